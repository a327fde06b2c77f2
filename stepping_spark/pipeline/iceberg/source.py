"""An Iceberg table as a source: what differs between the snapshot that was read and a newer one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyiceberg.exceptions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation

from stepping_spark.errors import SourceError
from stepping_spark.pipeline.pieces import InPieces, Pieces, at_most
from stepping_spark.pipeline.plain import plain, plain_field
from stepping_spark.pipeline.positions import number_of, numbers_of
from stepping_spark.pipeline.protocols import Batch, Portion, Position
from stepping_spark.pipeline.remedies import ANEW, RETRY
from stepping_spark.rows.schema import COUNT
from stepping_spark.spark.errors import first_line

NOTHING = 0
"""In a position, the snapshot before the first: a table without rows."""

_ERRORS: tuple[type[BaseException], ...] = (
    OSError,
    ValueError,
    pa.ArrowException,
    *(
        e
        for e in vars(pyiceberg.exceptions).values()
        if isinstance(e, type) and issubclass(e, Exception)
    ),
)
"""What pyiceberg raises: its own errors have no class in common."""

Files: TypeAlias = "Mapping[object, FileScanTask]"


@dataclass(frozen=True)
class Difference:
    """The files that only one of two snapshots has: the columns wanted of them, and a count."""

    parts: tuple[tuple[Schema, Files, int], ...]

    @property
    def rows(self) -> int:
        """How many rows these files hold; some of them may be deleted."""
        return sum(task.file.record_count for _, files, _ in self.parts for task in files.values())


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
        self._name = name
        self._catalog = catalog
        self._options = options

    def behind(self, after: Position | None) -> int | None:
        """The snapshots that were not read."""
        return len(self._ends(self._newest(), NOTHING if after is None else numbers_of(after)[0]))

    def look(self, after: Position | None, portion: Portion) -> Batch | None:
        """What `read` would give, without its rows."""
        table = self._newest()
        before, number, *piece = self._numbers(table, after)
        ends = piece[2:] or self._ends(table, before)[-1:]
        if not ends:
            return None
        if before != NOTHING:
            self._wanted(table, before)
        return Batch((ends[0], number), (self._schema_at(table, ends[0]).empty_table(),))

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """What some snapshots changed, or the next piece of what one did."""
        table = self._newest()
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
        found = (NOTHING, number) if after is None else numbers_of(after)
        if found[1] != number:
            raise self._failure(
                f"this is another table than the one that was read up to snapshot {found[0]}: it "
                f"was dropped and made anew; {ANEW}"
            )
        return found

    # -- which snapshots

    def _newest(self) -> Table:
        """The table as it is now."""
        with self._trying("it cannot be loaded", "check the catalog and the name", Exception):
            if isinstance(self._catalog, str):
                self._catalog = load_catalog(self._catalog, **self._options)
            return self._catalog.load_table(self._name)

    def _ends(self, table: Table, before: int) -> list[int]:
        """The snapshots after one, the oldest first.

        One that the table was rolled back from, or whose line is cut, leads to the current one.
        """
        current = table.current_snapshot()
        if current is None or current.snapshot_id == before:
            return []
        found, at = [current.snapshot_id], current.parent_snapshot_id
        while at is not None and at != before:
            snapshot = table.snapshot_by_id(at)
            if snapshot is None:
                break
            found.append(at)
            at = snapshot.parent_snapshot_id
        return found[::-1] if before in (at, NOTHING) else found[:1]

    # -- what is read

    def _changes(
        self, table: Table, before: int, number: int, ends: list[int], portion: Portion
    ) -> Batch:
        """What leads to one of some snapshots: as far as so many rows allow."""
        rewritten = self._rewritten(table, before, ends)
        if rewritten:
            return Batch((ends[rewritten - 1], number), (), rewritten)
        planned = functools.cache(functools.partial(self._files, table))
        while True:
            difference = self._difference(table, before, ends[-1], planned)
            if portion.rows is None or difference.rows <= portion.rows or len(ends) == 1:
                break
            ends = ends[: len(ends) // 2]
        to = ends[-1]
        tables = self._read(table, before, to, difference)
        if portion.rows is None or difference.rows <= portion.rows:
            found = at_most(tables, self._schema_at(table, to), None)
            assert found is not None
            return Batch((to, number), (found,), len(ends))
        pieces = Pieces(tables, self._schema_at(table, to), rows=portion.rows)
        self._keep((before, number, pieces.n, to), pieces)
        return self._piece(table, before, number, pieces.n, 0, to)

    def _rewritten(self, table: Table, before: int, ends: list[int]) -> int:
        """How many of the next snapshots only rewrote files."""
        for n, end in enumerate(ends):
            found = table.snapshot_by_id(end)
            if (
                found is None
                or found.parent_snapshot_id != (ends[n - 1] if n else before)
                or found.summary is None
                or found.summary.operation != Operation.REPLACE
            ):
                return n
        return len(ends)

    def _piece(self, table: Table, before: int, number: int, n: int, k: int, to: int) -> Batch:
        """One piece of a difference; made again where another process made them."""
        cut = functools.partial(self._cut, table, before, to, n=n)
        found = self._pieces((before, number, n, to), n, cut).read(k)
        if k + 1 < n:
            return Batch((before, number, n, k + 1, to), (found,), 0)
        return Batch((to, number), (found,), 1)

    def _cut(self, table: Table, before: int, to: int, *, n: int) -> Pieces:
        difference = self._difference(table, before, to, functools.partial(self._files, table))
        tables = self._read(table, before, to, difference)
        return Pieces(tables, self._schema_at(table, to), n=n)

    def _difference(
        self, table: Table, before: int, to: int, planned: Callable[[int], Files]
    ) -> Difference:
        """The files that only one of two snapshots has; `planned` gives those of each."""
        with self._trying(f"the files of snapshots {before} and {to} cannot be listed", RETRY):
            schema, new = self._wanted(table, to), planned(to)
            if before == NOTHING:
                return Difference(((schema, new, 1),))
            old_schema, old = self._wanted(table, before), planned(before)
            # A column that was dropped, and one that was added under its name, are two: then what
            # a file holds that both snapshots have is not the same.
            if old_schema.field_ids == schema.field_ids:
                same = old.keys() & new.keys()
                old = {key: task for key, task in old.items() if key not in same}
                new = {key: task for key, task in new.items() if key not in same}
            return Difference(((old_schema, old, -1), (schema, new, 1)))

    def _read(
        self, table: Table, before: int, to: int, difference: Difference
    ) -> Iterator[pa.Table]:
        """The rows of a difference, with the counts 1 and -1."""
        target = self._schema_at(table, to)
        with self._trying(f"what leads from snapshot {before} to {to} cannot be read", RETRY):
            for wanted, files, count in difference.parts:
                scan = ArrowScan(table.metadata, table.io, wanted, AlwaysTrue())
                for batch in scan.to_record_batches(files.values()):
                    yield self._counted(batch, count, target)

    def _counted(self, batch: pa.RecordBatch, count: int, target: pa.Schema) -> pa.Table:
        """A batch with the wanted columns, under the names of the rows, and its count."""
        there = {name.lower(): name for name in batch.schema.names}
        columns = [
            plain(batch.column(there[field.name.lower()])).cast(field.type)
            for field in target
            if field.name != COUNT
        ]
        counts = pa.repeat(pa.scalar(count, pa.int64()), batch.num_rows)
        return pa.table([*columns, counts], schema=target)

    # -- what a snapshot has

    def _files(self, table: Table, snapshot: int) -> Files:
        """The files of a snapshot, by their paths and those of what is deleted of them."""
        return {
            (task.file.file_path, frozenset(file.file_path for file in task.delete_files)): task
            for task in table.scan(snapshot_id=snapshot).plan_files()
        }

    def _wanted(self, table: Table, snapshot: int) -> Schema:
        """The wanted columns as a snapshot has them, by their names in any case."""
        if table.snapshot_by_id(snapshot) is None:
            raise self._failure(
                f"snapshot {snapshot}, which was read last, was expired; {ANEW}, and keep "
                "snapshots for longer than a pipeline may stand still"
            )
        schema = table.scan(snapshot_id=snapshot).projection()
        names = [field.name for field in schema.fields]
        there = {name.lower(): name for name in names}
        missing = [n for n in self._columns.names if n.lower() not in there]
        if missing:
            raise self._failure(
                f"at snapshot {snapshot} there is no column {', '.join(missing)}; the columns are "
                f"{', '.join(names)}; change the row class, or the table"
            )
        return schema.select(*(there[n.lower()] for n in self._columns.names))

    def _schema_at(self, table: Table, snapshot: int) -> pa.Schema:
        """The schema of what is read, with counts, under the names of the rows."""
        with self._trying(f"snapshot {snapshot} cannot be read", RETRY):
            found = schema_to_pyarrow(self._wanted(table, snapshot), include_field_ids=False)
        there = {field.name.lower(): field for field in found}
        fields = [plain_field(there[n.lower()], n) for n in self._columns.names]
        return pa.schema([*fields, pa.field(COUNT, pa.int64())])

    # -- errors

    @contextmanager
    def _trying(self, what: str, remedy: str, *others: type[Exception]) -> Iterator[None]:
        """Errors of pyiceberg as ours: what could not be done, why, and what would do.

        A catalog may raise those of what it is made of: `others`.
        """
        try:
            yield
        except SourceError:
            raise
        except (*_ERRORS, *others) as e:
            raise self._failure(f"{what}: {self._said(e)}; {remedy}") from e

    def _said(self, e: BaseException) -> str:
        """The first line of an error, without what options hold: passwords may be among them."""
        line = first_line(e)
        for name, value in self._options.items():
            if name not in ("type", "warehouse") and value:
                line = line.replace(value, "***")
        return line

    def _failure(self, said: str) -> SourceError:
        return SourceError(f"Iceberg table {self._name}: {said}")
