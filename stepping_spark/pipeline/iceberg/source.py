"""An Iceberg table as a source: what differs between the snapshot that was read and a newer one."""

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
    """The files that only one of two snapshots has: the columns wanted of them, and a count."""

    parts: tuple[tuple[Schema, ScanTasks, int], ...]

    @property
    def rows(self) -> int:
        """How many rows these files hold; some of them may be deleted."""
        return sum(task.file.record_count for _, files, _ in self.parts for task in files.values())


@dataclass(frozen=True)
class IcebergFiles:
    """Some data files of a snapshot, with what is deleted of them.

    `names` has the column of each field of the `schema`, and `count` is that of each row.
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
        """The rows, with counts. A SourceError for those that pyiceberg would not read whole."""
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
    """The error for a table, by its name."""
    return SourceError(f"Iceberg table {table}: {reason}")


def _unread(before: int, to: int) -> str:
    return f"what leads from snapshot {before} to {to} cannot be read"


class IcebergSource(InPieces):
    """What comes after a snapshot.

    A position is (snapshot, table): all up to the snapshot is read; `table` tells whether it is
    still the same table. Of a difference that is read in pieces it is (snapshot, table, n, k, to):
    k of n pieces of what leads from one snapshot to the other are read.
    """

    unit = "snapshot"
    """What the first number of a position is, as messages say it."""

    def __init__(self, name: str, catalog: str | Catalog, options: Mapping[str, str]) -> None:
        super().__init__()
        self._place = IcebergPlace(name, catalog, options, self._failure)

    def schema(self) -> pa.Schema:
        """The columns of the table as it is now."""
        return self._arrow_schema(self._place.table().schema())

    def behind(self, after: Position | None) -> int | None:
        """The snapshots that were not read and changed rows."""
        table = self._place.table()
        ends = self._ends(table, NOTHING if after is None else numbers_of(after)[0])
        return sum(not rewrites(table.snapshot_by_id(end)) for end in ends)

    def look(self, after: Position | None, portion: Portion) -> Batch | None:
        """What `read` would give, without its rows."""
        table = self._place.table()
        before, number, *piece = self._numbers(table, after)
        ends = piece[2:] or self._ends(table, before)[-1:]
        if not ends:
            return None
        if before != NOTHING:
            self._wanted_schema(table, before)
        return Batch((ends[0], number), (self._schema_at(table, ends[0]).empty_table(),))

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """What some snapshots changed, or the next piece of what one did."""
        table = self._place.table()
        before, number, *piece = self._numbers(table, after)
        if piece:
            return self._piece(table, before, number, *piece)
        ends = self._ends(table, before)
        if not ends:
            return None
        # The first load is one difference: what was before the current snapshot is of no use.
        ends = ends[-1:] if after is None else ends[: portion.versions]
        return self._changes(table, before, number, ends, portion)

    def _numbers(self, table: Table, after: Position | None) -> tuple[int, ...]:
        """The numbers of a position, which is one of this table."""
        number = number_of(str(table.metadata.table_uuid))
        numbers = (NOTHING, number) if after is None else numbers_of(after)
        if numbers[1] != number:
            raise self._failure(
                f"this is another table than the one that was read up to snapshot {numbers[0]}: it "
                f"was dropped and made anew; {ANEW}"
            )
        return numbers

    # -- which snapshots

    def _ends(self, table: Table, before: int) -> list[int]:
        """The snapshots after one, the oldest first.

        One that the table was rolled back from, or whose line is cut, leads to the current one.
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

    # -- what is read

    def _changes(
        self, table: Table, before: int, number: int, ends: list[int], portion: Portion
    ) -> Batch:
        """What leads to one of some snapshots: as far as the portion allows."""
        rewritten = self._rewritten(table, before, ends)
        if rewritten:
            # Its position is committed: the snapshot before it may expire.
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
        """How many of the next snapshots only rewrote files."""
        for n, end in enumerate(ends):
            snapshot = table.snapshot_by_id(end)
            follows = snapshot is not None and snapshot.parent_snapshot_id == (
                ends[n - 1] if n else before
            )
            if not follows or not rewrites(snapshot):
                return n
        return len(ends)

    def _piece(self, table: Table, before: int, number: int, n: int, k: int, to: int) -> Batch:
        """One piece of a difference; made again where another process made them."""
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
        """The files that only one of two snapshots has; `planned` gives those of each."""
        with self._place.trying(
            f"the files of snapshots {before} and {to} cannot be listed", RETRY
        ):
            schema, new = self._wanted_schema(table, to), planned(to)
            if before == NOTHING:
                return FileDifference(((schema, new, 1),))
            old_schema, old = self._wanted_schema(table, before), planned(before)
            # A column that was dropped, and one that was added under its name, are two: then what
            # a file holds that both snapshots have is not the same.
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
        """The files of each snapshot in a difference."""
        for wanted, files, count in difference.parts:
            names = self._names(wanted, to if count > 0 else before)
            every = tuple(files.values())
            name = self._place.name
            yield IcebergFiles(name, table.metadata, table.io, wanted, names, schema, count, every)

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
            replace(files, files=tuple(some))
            for files in self._files_of(table, before, to, difference, schema)
            for some in shares_of(files.files)
        ]
        what = f"Iceberg table {self._place.name}: {_unread(before, to)}"
        return frame_of_files(session, parts, schema, what)

    # -- what a snapshot has

    def _files(self, table: Table, snapshot: int) -> ScanTasks:
        """The files of a snapshot, by their paths and those of what is deleted of them."""
        return {
            (task.file.file_path, frozenset(file.file_path for file in task.delete_files)): task
            for task in table.scan(snapshot_id=snapshot).plan_files()
        }

    def _wanted_schema(self, table: Table, snapshot: int) -> Schema:
        """The wanted columns as a snapshot has them.

        A column that was added since the snapshot is read by the schema of the table: it is NULL.
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
        """The column of each field; others are not read."""
        return found_columns(
            self._columns,
            self._arrow_schema(schema),
            lambda reason: self._failure(f"at snapshot {snapshot} {reason}"),
        )

    def _schema_at(self, table: Table, snapshot: int) -> pa.Schema:
        """The schema of what is read of a snapshot, with counts."""
        with self._place.trying(f"snapshot {snapshot} cannot be read", RETRY):
            return self._rows_of(self._wanted_schema(table, snapshot), snapshot)

    def _rows_of(self, wanted: Schema, snapshot: int) -> pa.Schema:
        """The schema of rows with these columns, under the names of the fields, with counts."""
        columns = self._arrow_schema(wanted)
        names = self._names(wanted, snapshot).items()
        fields = [
            columns.field(columns.names.index(column)).with_name(name) for name, column in names
        ]
        return pa.schema([*fields, pa.field(COUNT, pa.int64())])

    def _schema_of(self, difference: FileDifference, before: int, to: int) -> pa.Schema:
        """The schema of what a difference holds, whose two snapshots may have other types."""
        schemas = [
            self._rows_of(wanted, to if count > 0 else before)
            for wanted, _, count in difference.parts
        ]
        try:
            return common_schema(schemas)
        except ValueError as e:
            raise self._failure(
                f"between snapshots {before} and {to} {e}; change the row class, and {ANEW}"
            ) from None

    def _arrow_schema(self, schema: Schema) -> pa.Schema:
        """Columns in Arrow, with the types that are given; an opaque type where Arrow has none."""
        with self._place.trying("its columns are not known", RETRY):
            return pa.schema(told_fields(schema))

    # -- errors

    def _failure(self, reason: str) -> SourceError:
        return failure(self._place.name, reason)


def told_fields(schema: Schema) -> Iterator[pa.Field[Any]]:
    """Columns in Arrow, with the types that are given; an opaque type where Arrow has none."""
    for field in schema.fields:
        try:
            column = schema_to_pyarrow(Schema(field), include_field_ids=False).field(0)
            yield column.with_type(readable(column.type))
        except (NotImplementedError, TypeError, AttributeError):
            t = pa.opaque(pa.null(), type_name=str(field.field_type), vendor_name="Iceberg")
            yield pa.field(field.name, t, not field.required)
