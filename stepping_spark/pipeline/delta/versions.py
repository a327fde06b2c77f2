"""What one version of a Delta table says in its log: metadata, which rows changed, and steps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable as Table
from deltalake import Schema

from stepping_spark.rows.schema import CHANGE

FEED = "delta.enableChangeDataFeed"
FEED_COLUMNS = (CHANGE, "_commit_version", "_commit_timestamp")
"""The columns of a change feed: it cannot be read where the table has such a column of its own."""

APPEND_ONLY = "delta.appendOnly"
_MAPPING = "delta.columnMapping.mode"
_PHYSICAL = "delta.columnMapping.physicalName"

NO_ARROW = ("variant", "interval", "geometry", "geography")
"""Types of Delta, by how their names begin, for which deltalake has another type in Arrow."""


@dataclass(frozen=True)
class Meta:
    """What the metadata of a table says that matters here.

    `physical` are the names of columns in files, where column mapping gives them other ones.
    """

    table: str
    fields: pa.Schema
    partitions: tuple[str, ...]
    feed: bool
    physical: Mapping[str, str]

    @property
    def mapped(self) -> bool:
        """Whether columns have other names in files."""
        return bool(self.physical)

    @property
    def has_feed_columns(self) -> bool:
        """Whether columns have the names that those of a change feed have."""
        return any(name.lower() in FEED_COLUMNS for name in self.fields.names)

    @property
    def texts(self) -> list[str]:
        """The columns of text that the table is partitioned by."""
        return [n for n in self.partitions if pa.types.is_string(self.fields.field(n).type)]


@dataclass(frozen=True)
class Commit:
    """One version: whether rows may have changed, new metadata, and the steps it says it is.

    `plain` says that no path needs decoding. `touched` are the values of the partitions in which
    rows changed; None: unknown.
    """

    version: int
    changes_rows: bool
    meta: Meta | None
    steps: Mapping[str, int] = field(default_factory=dict)
    plain: bool = True
    touched: tuple[Mapping[str, str | None], ...] | None = ()


@dataclass(frozen=True)
class Version:
    """A commit between the metadata before it and after it."""

    commit: Commit
    before: Meta
    meta: Meta

    @property
    def number(self) -> int:
        """Its number."""
        return self.commit.version


def meta_of(table: Table) -> Meta:
    """The metadata of an opened table."""
    said = table.metadata()
    return _meta(str(said.id), table.schema(), said.partition_columns, said.configuration)


def told_schema(table: Table) -> pa.Schema:
    """The columns of an opened table; a type that Arrow does not have is an opaque one."""
    told = json.loads(table.schema().to_json())
    made: Any = table.schema().to_arrow()
    fields = pa.schema(made)
    return pa.schema(
        [
            fields.field(i).with_type(_told(f["type"], fields.field(i).type))
            for i, f in enumerate(told["fields"])
        ]
    )


def _told(said: Any, t: Any) -> pa.DataType:
    """An Arrow type, opaque where Delta's has no equal in Arrow."""
    match said:
        case {"type": "struct", "fields": list(fields)}:
            inner = zip(fields, t, strict=True)
            return pa.struct([f.with_type(_told(s["type"], f.type)) for s, f in inner])
        case {"type": "array", "elementType": element}:
            return pa.list_(t.value_field.with_type(_told(element, t.value_type)))
        case {"type": "map", "keyType": key, "valueType": value}:
            return pa.map_(_told(key, t.key_type), _told(value, t.item_type))
        case str(name) if name.startswith(NO_ARROW):
            return pa.opaque(pa.null(), type_name=name, vendor_name="Delta")
        case _:
            found: pa.DataType = t
            return found


def commit_of(version: int, text: str) -> Commit:
    """What the file of a version says."""
    changes, meta, plain = False, None, True
    steps: dict[str, int] = {}
    touched: list[Mapping[str, str | None]] | None = []
    for line in text.splitlines():
        match json.loads(line):
            case {"cdc": dict(file)}:
                pass
            case {"add": {"dataChange": True} as file} | {"remove": {"dataChange": True} as file}:
                pass
            case {"txn": {"appId": str(app), "version": int(step)}}:
                steps[app] = step
                continue
            case {"metaData": dict(said)}:
                meta = _meta_said(said)
                continue
            case _:
                continue
        changes = True
        plain = plain and "%" not in file["path"]
        values = file.get("partitionValues")
        touched = None if values is None or touched is None else [*touched, values]
    return Commit(version, changes, meta, steps, plain, None if touched is None else tuple(touched))


def _meta_said(said: Mapping[str, Any]) -> Meta:
    schema = Schema.from_json(said["schemaString"])
    columns, configuration = said.get("partitionColumns") or (), said.get("configuration") or {}
    return _meta(str(said["id"]), schema, columns, configuration)


def _meta(table: str, schema: Schema, partitions: Any, said: Mapping[str, Any]) -> Meta:
    fields: Any = schema.to_arrow()
    mapped = str(said.get(_MAPPING) or "none").lower() != "none"
    physical = {f.name: str(f.metadata[_PHYSICAL]) for f in schema.fields} if mapped else {}
    return Meta(table, pa.schema(fields), tuple(partitions), is_on(said, FEED), physical)


def is_on(configuration: Mapping[str, Any], name: str) -> bool:
    """Whether a property of a table is true."""
    return str(configuration.get(name)).lower() == "true"
