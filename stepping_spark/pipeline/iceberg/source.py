"""An Iceberg table as a source: the difference between the last read snapshot and a newer one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

from stepping_spark.base.errors import SourceError
from stepping_spark.base.packages import DataFrame, SparkSession
from stepping_spark.pipeline.by_tasks import frame_of_files, may_read, shares_of
from stepping_spark.pipeline.chunks import Chunks, InPieces, at_most, least_bytes
from stepping_spark.pipeline.columns import common_schema, found_columns
from stepping_spark.pipeline.iceberg.place import IcebergPlace, rewrites
from stepping_spark.pipeline.iceberg.types import converted, loss, readable
from stepping_spark.pipeline.protocols import (
    ANEW,
    RETRY,
    Batch,
    Portion,
    Position,
    number_of,
    numbers_of,
)
from stepping_spark.rows.schema import COUNT

NOTHING = 0
"""In a position, the snapshot before the first: a table without rows."""

ScanTasks: TypeAlias = "Mapping[object, FileScanTask]"


@dataclass(frozen=True)
class FileDifference:
    """The files that only one of two snapshots has, with their wanted columns and a count."""

    parts: tuple[tuple[Schema, ScanTasks, int], ...]

    @property
    def rows(self) -> int:
        """The number of rows in these files, deleted ones included."""
        return sum(task.file.record_count for _, files, _ in self.parts for task in files.values())


@dataclass(frozen=True)
class IcebergFiles:
    """Some data files of a snapshot, with their delete files.

    `names` has the column of each field of the `schema`, and `count` is the count of each row.
    """

    table: str
    metadata: TableMetadata
    io: FileIO
    wanted: Schema
    names: Mapping[str, str]
    schema: pa.Schema
    count: int
    files: tuple[FileScanTask, ...]

    def tables(self) -> Iterator[pa.Table]:
        """The rows, with counts. Raises `SourceError` if pyiceberg would lose values."""
        for task in self.files:
            if (lost := loss(self.io, task, self.wanted)) is not None:
                raise failure(self.table, lost)
        scan = ArrowScan(self.metadata, self.io, self.wanted, AlwaysTrue())
        for batch in scan.to_record_batches(self.files):
            columns = [
                converted(batch.column(self.names[field.name]), field.type)
                for field in self.schema
                if field.name != COUNT
            ]
            counts = pa.repeat(pa.scalar(self.count, pa.int64()), batch.num_rows)
            yield pa.table([*columns, counts], schema=self.schema)


def failure(table: str, reason: str) -> SourceError:
    """The error for a table of this name."""
    return SourceError(f"Iceberg table {table}: {reason}")


def _unread(before: int, to: int) -> str:
    return f"what leads from snapshot {before} to {to} cannot be read"


class IcebergSource(InPieces):
    """Reads the changes after a snapshot.

    A position is (snapshot, table): everything up to the snapshot is read, and `table` identifies
    the table. Within a difference that is read in pieces it is (snapshot, table, n, k, to): k of n
    pieces of the difference between the snapshot and `to` are read.
    """

    lengths = (2, 5)
    unit = "snapshot"
    """The name of the first number of a position, for messages."""

    def __init__(self, name: str, catalog: str | Catalog, options: Mapping[str, str]) -> None:
        super().__init__()
        self._place = IcebergPlace(name, catalog, options, self._failure)

    def schema(self) -> pa.Schema:
        """The columns of the table as it is now."""
        return self._arrow_schema(self._place.table().schema())

    def behind(self, after: Position | None) -> int | None:
        """The number of unread snapshots that changed rows."""
        table = self._place.table()
        ends = self._ends(table, NOTHING if after is None else numbers_of(after)[0])
        return sum(not rewrites(table.snapshot_by_id(end)) for end in ends)

    def look(self, after: Position | None, portion: Portion) -> Batch | None:
        """The batch that `read` would return for all new snapshots, without rows."""
        table = self._place.table()
        before, number, *piece = self._numbers(table, after)
        ends = piece[2:] or self._ends(table, before)[-1:]
        if not ends:
            return None
        if before != NOTHING:
            self._wanted_schema(table, before)
        return Batch((ends[0], number), (self._schema_at(table, ends[0]).empty_table(),))

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The changes of some snapshots, or the next piece of a difference."""
        table = self._place.table()
        before, number, *piece = self._numbers(table, after)
        if piece:
            return self._piece(table, before, number, *piece)
        ends = self._ends(table, before)
        if not ends:
            return None
        # The first load reads the current snapshot only, not its history.
        ends = ends[-1:] if after is None else ends[: portion.versions]
        return self._changes(table, before, number, ends, portion)

    def _numbers(self, table: Table, after: Position | None) -> tuple[int, ...]:
        """The numbers of a position; raises `SourceError` if it is of another table."""
        number = number_of(str(table.metadata.table_uuid))
        numbers = (NOTHING, number) if after is None else numbers_of(after)
        if numbers[1] != number:
            raise self._failure(
                f"this is another table than the one that was read up to snapshot {numbers[0]}: it "
                f"was dropped and made anew; {ANEW}"
            )
        return numbers

    # -- snapshots

    def _ends(self, table: Table, before: int) -> list[int]:
        """The snapshots after one, the oldest first.

        If `before` is no ancestor of the current snapshot, only the current one: after a rollback,
        or if snapshots between them expired.
        """
        current = table.current_snapshot()
        if current is None or current.snapshot_id == before:
            return []
        ends, at = [current.snapshot_id], current.parent_snapshot_id
        while at is not None and at != before:
            snapshot = table.snapshot_by_id(at)
            if snapshot is None:
                break
            ends.append(at)
            at = snapshot.parent_snapshot_id
        return ends[::-1] if before in (at, NOTHING) else ends[:1]

    # -- batches

    def _changes(
        self, table: Table, before: int, number: int, ends: list[int], portion: Portion
    ) -> Batch:
        """The changes up to the last of these snapshots that the portion allows."""
        rewritten = self._rewritten(table, before, ends)
        if rewritten:
            # The position is committed, so that the snapshot before it may expire.
            return Batch((ends[rewritten - 1], number), (), rewritten, final=True)
        planned = functools.cache(functools.partial(self._files, table))
        while True:
            to = ends[-1]
            difference = self._difference(table, before, to, planned)
            schema = self._schema_of(difference, before, to)
            if portion.holds(difference.rows, least_bytes(difference.rows, schema)):
                tables = self._read(table, before, to, difference, schema)
                content = at_most(tables, schema, portion)
                if content is not None:
                    return Batch((to, number), (content,), len(ends))
            if len(ends) == 1:
                break
            ends = ends[: len(ends) // 2]
        frame = self._by_tasks(table, before, to, difference, schema, portion.tasks())
        if frame is not None:
            return Batch((to, number), (frame,), len(ends))
        tables = self._read(table, before, to, difference, schema)
        pieces = Chunks(tables, schema, portion=portion)
        self._keep((before, number, pieces.n, to), pieces)
        return self._piece(table, before, number, pieces.n, 0, to)

    def _rewritten(self, table: Table, before: int, ends: list[int]) -> int:
        """The number of next snapshots that only rewrote files, before another kind."""
        for n, end in enumerate(ends):
            snapshot = table.snapshot_by_id(end)
            follows = snapshot is not None and snapshot.parent_snapshot_id == (
                ends[n - 1] if n else before
            )
            if not follows or not rewrites(snapshot):
                return n
        return len(ends)

    def _piece(self, table: Table, before: int, number: int, n: int, k: int, to: int) -> Batch:
        """One piece of a difference; cut again if this process lacks the pieces."""
        cut = functools.partial(self._cut, table, before, to, n=n)
        piece = self._pieces((before, number, n, to), n, cut).read(k)
        if k + 1 < n:
            return Batch((before, number, n, k + 1, to), (piece,), 0)
        return Batch((to, number), (piece,), 1)

    def _cut(self, table: Table, before: int, to: int, *, n: int) -> Chunks:
        difference = self._difference(table, before, to, functools.partial(self._files, table))
        schema = self._schema_of(difference, before, to)
        return Chunks(self._read(table, before, to, difference, schema), schema, n=n)

    def _difference(
        self, table: Table, before: int, to: int, planned: Callable[[int], ScanTasks]
    ) -> FileDifference:
        """The files that only one of two snapshots has; `planned` returns the files of each."""
        with self._place.trying(
            f"the files of snapshots {before} and {to} cannot be listed", RETRY
        ):
            schema, new = self._wanted_schema(table, to), planned(to)
            if before == NOTHING:
                return FileDifference(((schema, new, 1),))
            old_schema, old = self._wanted_schema(table, before), planned(before)
            # A column that was dropped and added again under its name is another column: then rows
            # of a file in both snapshots may differ.
            if old_schema.field_ids == schema.field_ids:
                same = old.keys() & new.keys()
                old = {key: task for key, task in old.items() if key not in same}
                new = {key: task for key, task in new.items() if key not in same}
            return FileDifference(((old_schema, old, -1), (schema, new, 1)))

    def _read(
        self, table: Table, before: int, to: int, difference: FileDifference, schema: pa.Schema
    ) -> Iterator[pa.Table]:
        """The rows of a difference, with the counts 1 and -1."""
        with self._place.trying(_unread(before, to), RETRY):
            for files in self._files_of(table, before, to, difference, schema):
                yield from files.tables()

    def _files_of(
        self, table: Table, before: int, to: int, difference: FileDifference, schema: pa.Schema
    ) -> Iterator[IcebergFiles]:
        """The files of each part of a difference."""
        for iceberg_schema, files, count in difference.parts:
            names = self._names(iceberg_schema, to if count > 0 else before)
            every = tuple(files.values())
            name = self._place.name
            yield IcebergFiles(
                name, table.metadata, table.io, iceberg_schema, names, schema, count, every
            )

    def _by_tasks(
        self,
        table: Table,
        before: int,
        to: int,
        difference: FileDifference,
        schema: pa.Schema,
        session: SparkSession | None,
    ) -> DataFrame | None:
        """The rows of a difference as a DataFrame; None if no tasks can read its files."""
        if session is None or not may_read(session, table.metadata.location):
            return None
        parts = [
            replace(files, files=tuple(share))
            for files in self._files_of(table, before, to, difference, schema)
            for share in shares_of(files.files)
        ]
        what = f"Iceberg table {self._place.name}: {_unread(before, to)}"
        return frame_of_files(session, parts, schema, what)

    # -- files and columns of a snapshot

    def _files(self, table: Table, snapshot: int) -> ScanTasks:
        """The files of a snapshot, by their paths and the paths of their delete files."""
        return {
            (task.file.file_path, frozenset(file.file_path for file in task.delete_files)): task
            for task in table.scan(snapshot_id=snapshot).plan_files()
        }

    def _wanted_schema(self, table: Table, snapshot: int) -> Schema:
        """The wanted columns in the schema of a snapshot.

        If a column was added after the snapshot, uses the table's current schema: the column is
        NULL.
        """
        if table.snapshot_by_id(snapshot) is None:
            raise self._failure(
                f"snapshot {snapshot}, which was read last, was expired; {ANEW}, and keep "
                "snapshots for longer than a pipeline may stand still"
            )
        for schema in (table.scan(snapshot_id=snapshot).projection(), table.schema()):
            try:
                names = self._names(schema, snapshot)
            except SourceError as e:
                missing = e
            else:
                return schema.select(*dict.fromkeys(names.values()))
        raise missing

    def _names(self, schema: Schema, snapshot: int) -> dict[str, str]:
        """The column of each field; other columns are not read."""
        return found_columns(
            self._columns,
            self._arrow_schema(schema),
            lambda reason: self._failure(f"at snapshot {snapshot} {reason}"),
        )

    def _schema_at(self, table: Table, snapshot: int) -> pa.Schema:
        """The schema of the columns read from a snapshot, with counts."""
        with self._place.trying(f"snapshot {snapshot} cannot be read", RETRY):
            return self._rows_of(self._wanted_schema(table, snapshot), snapshot)

    def _rows_of(self, iceberg_schema: Schema, snapshot: int) -> pa.Schema:
        """The schema of rows with these columns, named like the fields, with counts."""
        columns = self._arrow_schema(iceberg_schema)
        names = self._names(iceberg_schema, snapshot).items()
        fields = [
            columns.field(columns.names.index(column)).with_name(name) for name, column in names
        ]
        return pa.schema([*fields, pa.field(COUNT, pa.int64())])

    def _schema_of(self, difference: FileDifference, before: int, to: int) -> pa.Schema:
        """The common schema of a difference, whose two snapshots may have different types."""
        schemas = [
            self._rows_of(iceberg_schema, to if count > 0 else before)
            for iceberg_schema, _, count in difference.parts
        ]
        try:
            return common_schema(schemas)
        except ValueError as e:
            raise self._failure(
                f"between snapshots {before} and {to} {e}; change the row class, and {ANEW}"
            ) from None

    def _arrow_schema(self, schema: Schema) -> pa.Schema:
        """Columns in Arrow, with the types in which they are read; opaque if Arrow has none."""
        with self._place.trying("its columns are not known", RETRY):
            return pa.schema(told_fields(schema))

    # -- errors

    def _failure(self, reason: str) -> SourceError:
        return failure(self._place.name, reason)


def told_fields(schema: Schema) -> Iterator[pa.Field[Any]]:
    """Columns in Arrow, with the types in which they are read; opaque if Arrow has none."""
    for field in schema.fields:
        try:
            column = schema_to_pyarrow(Schema(field), include_field_ids=False).field(0)
            yield column.with_type(readable(column.type))
        except (NotImplementedError, TypeError, AttributeError):
            t = pa.opaque(pa.null(), type_name=str(field.field_type), vendor_name="Iceberg")
            yield pa.field(field.name, t, not field.required)
