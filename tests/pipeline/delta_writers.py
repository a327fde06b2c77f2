"""What other writers do with Delta tables and deltalake only reads: versions written by hand."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

Action: TypeAlias = "dict[str, dict[str, Any]]"

# RFC 1924 and Z85 write the same numbers with other characters.
B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def commit(table: Path, *actions: Action) -> int:
    """Write the next version."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    version = len(list(log.glob("*.json")))
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    return version


def actions_of(table: Path, version: int) -> list[Action]:
    """What a version says."""
    lines = (table / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return [json.loads(line) for line in lines]


def protocol(features: Sequence[str], more: Sequence[str] = ()) -> Action:
    """What a reader must know, and what only a writer must know."""
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": list(features),
            "writerFeatures": [*features, *more],
        }
    }


def metadata(
    fields: Mapping[str, object],
    *,
    table: str = "t",
    properties: Mapping[str, str] | None = None,
    physical: Mapping[str, str] | None = None,
) -> Action:
    """The columns of a table, with Delta's types; `physical` are their names in files."""
    known = list(physical or {})
    listed = [
        {
            "name": name,
            "type": t,
            "nullable": True,
            "metadata": {}
            if physical is None
            else {
                "delta.columnMapping.id": known.index(name) + 1,
                "delta.columnMapping.physicalName": physical[name],
            },
        }
        for name, t in fields.items()
    ]
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
    return {
        "metaData": {
            "id": table,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": listed}),
            "partitionColumns": [],
            "configuration": {
                "delta.enableChangeDataFeed": "true",
                **(mapping if physical is not None else {}),
                **(properties or {}),
            },
            "createdTime": 0,
        }
    }


def add(table: Path, rows: pa.Table) -> Action:
    """A data file with these rows."""
    table.mkdir(exist_ok=True)
    name = f"{uuid4().hex}.parquet"
    pq.write_table(rows, table / name)
    return {
        "add": {
            "path": name,
            "partitionValues": {},
            "size": (table / name).stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows.num_rows}),
        }
    }


def remove(added: Action) -> Action:
    """The end of a data file."""
    said = added["add"]
    kept = ("path", "partitionValues", "size", "dataChange", "deletionVector")
    removed = {name: said[name] for name in kept if name in said}
    return {"remove": {**removed, "deletionTimestamp": 0, "extendedFileMetadata": True}}


def without(added: Action, rows: Sequence[int]) -> Action:
    """The same data file with a deletion vector for some of its rows, by their places."""
    # A bitmap of 64 bits with one of 32, which has one container: an array of 16-bit numbers.
    numbers = b"".join(struct.pack("<H", row) for row in sorted(rows))
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + numbers
    data = struct.pack("<iQI", 1681511377, 1, 0) + bitmap
    padded = data + bytes(-len(data) % 4)
    vector = {
        "storageType": "i",
        "pathOrInlineDv": base64.b85encode(padded).decode().translate(str.maketrans(B85, Z85)),
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }
    return {"add": {**added["add"], "deletionVector": vector}}
