"""Data files and commits of a Delta table, written without deltalake.

deltalake reads deletion vectors but writes none, and it writes no data files in Spark's tasks. Its
merge rewrites each file that contains one of the rows, so that ten rows of millions cost megabytes.
With deletion vectors a step is one commit with the new rows in a small file, the places of the old
rows, and the changes, for readers of the change feed. The protocol: "Deletion Vectors" and "Add CDC
File" of https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import uuid4

import obstore
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from deltalake import DeltaTable as Table
from deltalake.exceptions import CommitFailedError
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, from_url

from stepping_spark.base.errors import SinkError
from stepping_spark.pipeline.changes import ByKey, Rewritten, TableForm
from stepping_spark.pipeline.columns import conformed
from stepping_spark.pipeline.delta.files import GROUP_ROWS, DataFile, DataFiles, rows_of_file
from stepping_spark.pipeline.delta.log import FEED, VECTORS, DeltaLog, is_on
from stepping_spark.rows.schema import CHANGE, COUNT
from stepping_spark.spark.session import first_line

pc: Any = pyarrow.compute

FILE_ROWS = 1_000_000
"""The most rows of a file."""

MOST_GONE = 1 << 14
"""A file with more deleted rows, or with more than a quarter deleted, is rewritten."""

_KNOWN = frozenset(
    ("appendOnly", "changeDataFeed", "deletionVectors", "invariants", "timestampNtz", "variantType")
)
_CHECKPOINT = "delta.checkpointInterval"
_LOCKING = "locking_provider"
_CONSTRAINT = "delta.constraints."


def why_not_written(table: Table, options: Mapping[str, str] | None) -> str:
    """Why only deltalake may write a table; empty if a `TableWriter` may."""
    metadata = table.metadata()
    unknown = sorted(frozenset(table.protocol().writer_features or ()) - _KNOWN)
    if unknown:
        return f"it has features that are not known here: {', '.join(unknown)}"
    if metadata.partition_columns:
        return "it has partitions"
    if any(name.startswith(_CONSTRAINT) for name in metadata.configuration):
        return "it has constraints"
    if any(name.startswith("delta.") for f in table.schema().fields for name in f.metadata):
        return "a column has an invariant, a generated value or a mapped name"
    if any(_LOCKING in name.lower() for name in (*(options or ()), *os.environ)):
        return "its commits go through a lock"
    return ""


def why_merged(table: Table, options: Mapping[str, str] | None) -> str:
    """Why deltalake must merge the steps of a table; empty if a `MarkedTable` may write them."""
    features = table.protocol().writer_features or ()
    if not is_on(table.metadata().configuration, VECTORS) or "deletionVectors" not in features:
        return f"{VECTORS} is not set: set it to true (ALTER TABLE … SET TBLPROPERTIES)"
    return why_not_written(table, options)


def milliseconds() -> int:
    """The current time in milliseconds, the unit of the log."""
    return int(time.time() * 1e3)


class TableWriter:
    """Writes data files and commits of a table, without deltalake.

    `columns` are the columns of the table; `key` names those by which rows are found.
    """

    def __init__(
        self, uri: str, options: Mapping[str, str] | None, columns: pa.Schema, key: Sequence[str]
    ) -> None:
        self.uri = uri
        self.options = dict(options or {})
        self.columns = columns
        self.key = list(key)

    @cached_property
    def _objects(self) -> Any:
        return _objects(self.uri, self.options)

    def put(self, rows: pa.Table) -> list[dict[str, Any]]:
        """Write data files; returns the actions that add them.

        The rows are sorted by the key, so that a row group has a small range of keys.
        """
        sortable = [n for n in self.key if not pa.types.is_nested(rows.schema.field(n).type)]
        if sortable:
            keys: Any = [(name, "ascending") for name in sortable]
            rows = rows.take(pc.sort_indices(rows, sort_keys=keys))
        pieces = (rows.slice(i, FILE_ROWS) for i in range(0, rows.num_rows, FILE_ROWS))
        return [self._put(piece) for piece in pieces]

    def _put(self, rows: pa.Table) -> dict[str, Any]:
        path = f"part-00000-{uuid4()}-c000.snappy.parquet"
        size = self._upload(path, rows.select(self.columns.names).cast(self.columns))
        return DataFile(
            {
                "path": path,
                "partitionValues": {},
                "size": size,
                "modificationTime": milliseconds(),
                "dataChange": True,
                "stats": json.dumps(_stats(rows)),
            }
        ).added

    def put_feed(self, feed: Sequence[tuple[str, pa.Table]]) -> dict[str, Any]:
        """Write the changes for the change feed; returns their `cdc` action."""
        parts = [
            rows.select(self.columns.names)
            .cast(self.columns)
            .append_column(CHANGE, pa.repeat(pa.scalar(kind), rows.num_rows))
            for kind, rows in feed
            if rows.num_rows
        ]
        path = f"_change_data/cdc-00000-{uuid4()}.c000.snappy.parquet"
        size = self._upload(path, pa.concat_tables(parts))
        return {"cdc": {"path": path, "partitionValues": {}, "size": size, "dataChange": False}}

    def _upload(self, path: str, rows: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, row_group_size=GROUP_ROWS, compression="snappy")
        data = sink.getvalue()
        with _failures():
            obstore.put(self._objects, path, data.to_pybytes())
        return int(data.size)

    def commit(
        self,
        log: DeltaLog,
        table: Table,
        operation: str,
        actions: Sequence[Mapping[str, Any]],
        steps: Mapping[str, int] | None = None,
    ) -> None:
        """Commit the next version of the table; raises an error if another commit came first.

        `steps` are the last steps of applications.
        """
        now = milliseconds()
        version = table.version() + 1
        info = {
            "timestamp": now,
            "operation": operation,
            "operationParameters": {},
            "readVersion": table.version(),
            "isBlindAppend": False,
            "engineInfo": "stepping_spark",
        }
        transactions = [
            {"txn": {"appId": app, "version": step, "lastUpdated": now}}
            for app, step in (steps or {}).items()
        ]
        text = "\n".join(
            json.dumps(action) for action in ({"commitInfo": info}, *transactions, *actions)
        )
        path = f"_delta_log/{version:020d}.json"
        with _failures():
            obstore.put(self._objects, path, text.encode(), mode="create", use_multipart=False)
        every = int(table.metadata().configuration.get(_CHECKPOINT) or 100)
        if version % every == 0:
            with log.warning(f"there is no checkpoint of version {version}"):
                newest = log.newest()
                newest.create_checkpoint()
                newest.cleanup_metadata()


@dataclass(frozen=True)
class _Change:
    """A change: the keys of old rows, the new rows, and the change feed, which includes them."""

    old: pa.Table
    rows: pa.Table
    feed: tuple[tuple[str, pa.Table], ...]


class MarkedTable:
    """Writes the steps of a table by deletion vectors.

    `columns` are the columns of the table. State: for each data file its action in the log and its
    footer, and the keys of small files. A step reads one row group, of `GROUP_ROWS` rows, of each
    file that may have a key. It writes its new rows, the change feed with the old rows, and the
    places of all deleted rows of the files that it touches.
    """

    def __init__(
        self,
        log: DeltaLog,
        options: Mapping[str, str] | None,
        columns: pa.Schema,
        key: Sequence[str],
    ) -> None:
        self._log = log
        self._columns = columns
        self._key = list(key)
        self._read = self._columns_of([*key, *(n for n in columns.names if n == COUNT)])
        self._files = DataFiles(log, self._read, key)
        self._writer = TableWriter(log.uri, options, columns, key)

    def find(self, table: Table, keys: pa.Table) -> pa.Table:
        """The rows with one of the keys: their key columns and the count."""
        self._files.update(table)
        parts = [rows for _, _, rows in self._files.find(keys)]
        return pa.concat_tables([self._read.empty_table(), *parts])

    def by_key(self, table: Table, split: ByKey, steps: Mapping[str, int]) -> None:
        """Write a step with one row for each key."""
        old = pa.concat_tables([split.before, split.gone]).select(self._key)
        rows = pa.concat_tables([split.came, split.changed])
        self._write(table, _Change(old, rows, split.feed), steps)

    def by_count(self, table: Table, change: pa.Table, steps: Mapping[str, int]) -> None:
        """Write a step whose counts are added to the counts of rows in the table."""
        keys = change.select(self._key)
        before = self.find(table, keys)
        names = self._read.names
        both = pa.concat_tables([before, change.select(names).cast(self._read)])
        after = both.group_by(self._key, use_threads=False).aggregate([(COUNT, "sum")])
        after = after.rename_columns(names)
        after = after.filter(pc.not_equal(after.column(COUNT), 0))
        feed = (("delete", before), ("insert", after))  # with another count it is another row
        self._write(table, _Change(keys, after, feed), steps)

    def _write(self, table: Table, change: _Change, steps: Mapping[str, int]) -> None:
        """Write a step as one commit; raises `CommitFailedError` if another commit came first."""
        self._files.update(table)
        now = milliseconds()
        marked = self._files.find(change.old)
        actions: list[dict[str, Any]] = []
        for f, places, _ in marked:
            actions += [f.removed(now), f.without(places).added]
        actions += self._writer.put(change.rows)
        if marked and is_on(table.metadata().configuration, FEED):
            actions.append(self._writer.put_feed(change.feed))
        self._writer.commit(self._log, table, "MERGE" if marked else "WRITE", actions, steps)

    def renew(self, table: Table) -> None:
        """Rewrite the files with many deleted rows."""
        self._files.update(table)
        now = milliseconds()
        actions = []
        for f in self._files.files.values():
            if len(f.gone) > min(MOST_GONE, (f.rows or FILE_ROWS) // 4):
                actions.append(f.removed(now, changes=False))
                parts = [
                    conformed(rows, self._columns)
                    for rows in rows_of_file(self._log.files, f, self._columns.names)
                ]
                rows = pa.concat_tables([self._columns.empty_table(), *parts])
                for action in self._writer.put(rows):
                    actions.append({"add": {**action["add"], "dataChange": False}})
        if actions:
            self._writer.commit(self._log, table, "OPTIMIZE", actions)

    def _columns_of(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self._columns.field(n) for n in names])


@dataclass(frozen=True)
class FilesOfTasks:
    """The actions of a step whose files tasks have written, for a version of the table.

    `rewrites`: the actions remove files of this version, so they fit no other version.
    """

    version: int
    actions: Sequence[Mapping[str, Any]]
    rewrites: bool


@dataclass(frozen=True)
class DeltaPart:
    """Some data files of a table, for a task, which reads the rows that are not deleted."""

    uri: str
    options: Mapping[str, str] | None
    columns: pa.Schema
    files: tuple[DataFile, ...]

    def tables(self) -> Iterator[pa.Table]:
        """The rows."""
        system = DeltaLog(self.uri, self.options, SinkError).files
        for f in self.files:
            for rows in rows_of_file(system, f, self.columns.names):
                yield conformed(rows, self.columns)


@dataclass(frozen=True)
class DeltaShare:
    """The work of a task that writes a step: data files, and with `feed` the change feed."""

    form: TableForm
    step: int
    uri: str
    options: Mapping[str, str] | None
    feed: bool

    def write(self, rewritten: Rewritten) -> list[object]:
        """Write the files; returns the actions that add them."""
        form = self.form
        writer = TableWriter(self.uri, self.options, form.schema, form.order)
        actions: list[object] = [*writer.put(rewritten.rows)]
        if self.feed and any(rows.num_rows for _, rows in rewritten.feed):
            actions.append(writer.put_feed(rewritten.feed))
        return actions


_CLIENT = ("allow_http", "allow_invalid_certificates", "connect_timeout", "proxy_url", "timeout")
_DELTALAKE = ("s3_allow_unsafe_rename",)


def _objects(uri: str, options: Mapping[str, str]) -> Any:
    """The obstore store of a table, configured by the options of deltalake."""
    if "://" not in uri:
        return LocalStore(os.path.abspath(uri))
    config: dict[str, Any] = {}
    client: dict[str, Any] = {}
    for name, value in options.items():
        bare = _PROVIDER.sub("", name.lower())
        if bare in _CLIENT:
            client[bare] = value.lower() == "true" if bare.startswith("allow") else value
        elif bare not in _DELTALAKE:
            config[name.lower()] = value
    with _failures():
        return from_url(uri, config=config, client_options=client)  # type: ignore[call-overload]


_PROVIDER = re.compile("^(aws|azure|google)_")


@contextmanager
def _failures() -> Iterator[None]:
    """Translate errors of obstore to those of deltalake, and to `OSError`."""
    try:
        yield
    except AlreadyExistsError as e:
        raise CommitFailedError(f"another commit came first: {first_line(e)}") from e
    except BaseError as e:
        raise OSError(first_line(e)) from e


def _stats(rows: pa.Table) -> dict[str, Any]:
    """The statistics of a file, by which readers skip files.

    Only integers, strings and dates have bounds, as JSON stores them without loss; a text of more
    than `_TEXT` characters is no bound.
    """
    bounds: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}}
    nulls = {}
    for name in rows.column_names:
        column: Any = rows.column(name)
        t = column.type
        if pa.types.is_nested(t):
            continue
        nulls[name] = column.null_count
        if not (pa.types.is_integer(t) or pa.types.is_string(t) or pa.types.is_date32(t)):
            continue
        extremes = pc.min_max(column).as_py()
        for kind, value in zip(bounds, (extremes["min"], extremes["max"]), strict=True):
            if value is None or (isinstance(value, str) and len(value) > _TEXT):
                continue
            bounds[kind][name] = value if isinstance(value, int | str) else value.isoformat()
    return {"numRecords": rows.num_rows, **bounds, "nullCount": nulls}


_TEXT = 32  # the most characters of a text that is a bound
