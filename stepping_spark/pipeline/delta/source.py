"""A Delta table as a source: a snapshot first, then its change feed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable as Table
from deltalake import QueryBuilder

from stepping_spark.errors import SourceError
from stepping_spark.pipeline.delta.log import FEED, Log, Meta, quoted
from stepping_spark.pipeline.pieces import InPieces, Pieces, at_most
from stepping_spark.pipeline.plain import plain, plain_field
from stepping_spark.pipeline.positions import number_of, numbers_of
from stepping_spark.pipeline.protocols import Batch, Portion, Position
from stepping_spark.pipeline.remedies import ANEW, RETRY
from stepping_spark.rows.schema import COUNT
from stepping_spark.zsets.from_change_feed import CHANGE, counted_feed

_VACUUMED = (
    f"its files were removed (VACUUM) before this pipeline had read them: {ANEW}, and let the "
    "retention be longer than a pipeline may stand still"
)


class DeltaSource(InPieces):
    """What comes after a version.

    A position is (version, table): all up to the version is read; `table` tells whether it is still
    the same table. Within a version that is read in pieces it is (version, table, n, k): of the
    next version k of n pieces are read, and with -n, of the snapshot of this version.
    """

    unit = "version"
    """What the first number of a position counts, as messages say it."""

    def __init__(self, uri: str, options: Mapping[str, str] | None, *, by_snapshot: bool) -> None:
        super().__init__()
        self._log = Log(uri, options, self._failure)
        self._by_snapshot = by_snapshot
        self._names: dict[str, str] = {}
        self._meta: tuple[int, Meta] | None = None  # what holds after a version

    def behind(self, after: Position | None) -> int | None:
        """The versions that were not read."""
        newest = self._log.newest().version()
        return newest + 1 if after is None else newest - numbers_of(after)[0]

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The snapshot, the changes of some versions, or the next piece of one."""
        if after is None:
            return self._snapshot(self._log.newest().version(), portion)
        version, table, *piece = numbers_of(after)
        if piece:
            n, k = piece
            return self._piece((version, table), n, k)
        newest = self._log.newest().version()
        self._check_table(table, version, newest)
        if newest == version:
            return None
        last = newest if portion.versions is None else min(newest, version + portion.versions)
        return self._changes(version, table, last, portion)

    def look(self, after: Position | None, portion: Portion) -> Batch | None:
        """What `read` would give, without its rows."""
        newest = self._log.newest().version()
        version, table, *piece = (newest, 0) if after is None else numbers_of(after)
        last = newest if portion.versions is None else min(newest, version + portion.versions)
        if after is None or (piece and piece[0] < 0):
            self._check_columns(self._log.meta(version), version)
        else:
            self._check_table(table, version, newest)
            last = version + 1 if piece else last
            if last == version or not self._changing(version, last):
                return None
        return Batch((last, table), (self._schema.empty_table(),))

    # -- what is read

    def _snapshot(self, version: int, portion: Portion) -> Batch:
        meta = self._log.meta(version)
        self._check_columns(meta, version)
        table = number_of(meta.table)
        found = at_most(self._rows_of(version, 1), self._schema, portion.rows)
        if found is not None:
            return Batch((version, table), (found,), 1)
        pieces = Pieces(self._rows_of(version, 1), self._schema, rows=portion.rows or 1)
        self._keep((version, table), pieces)
        return self._piece((version, table), -pieces.n, 0)

    def _changes(self, version: int, table: int, last: int, portion: Portion) -> Batch:
        """What versions after one, up to another, changed; of fewer, where they are too large."""
        changing = self._changing(version, last)
        while True:
            wanted = [v for v in changing if v <= last]
            if not wanted:
                return Batch((last, table), (), last - version)
            found = at_most(self._stream(version, wanted), self._schema, portion.rows)
            if found is not None:
                return Batch((last, table), (found,), last - version)
            if len(wanted) == 1:
                break
            last = wanted[len(wanted) // 2 - 1]
        if wanted[0] > version + 1:  # what comes before it changed nothing
            return Batch((wanted[0] - 1, table), (), wanted[0] - 1 - version)
        pieces = Pieces(self._stream(version, wanted), self._schema, rows=portion.rows or 1)
        self._keep((version, table), pieces)
        return self._piece((version, table), pieces.n, 0)

    def _piece(self, at: tuple[int, int], n: int, k: int) -> Batch:
        """One piece of what comes after a version; made again where another process made them."""
        version, table = at
        found = self._pieces(at, abs(n), lambda: self._cut(version, n)).read(k)
        if k + 1 < abs(n):
            return Batch((version, table, n, k + 1), (found,), 0)
        return Batch((version + 1 if n > 0 else version, table), (found,), 1)

    def _cut(self, version: int, n: int) -> Pieces:
        if n > 0:
            tables = self._stream(version, self._changing(version, version + 1))
        else:
            self._check_columns(self._log.meta(version), version)
            tables = self._rows_of(version, 1)
        return Pieces(tables, self._schema, n=abs(n))

    def _stream(self, version: int, wanted: list[int]) -> Iterator[pa.Table]:
        """What the versions changed, that come after one, as rows with counts."""
        if self._by_snapshot:
            yield from self._rows_of(wanted[-1], 1)
            yield from self._rows_of(version, -1)
            return
        with self._log.trying(
            f"the changes of version {wanted[0]} cannot be read", RETRY, _VACUUMED
        ):
            reader = self._log.newest().load_cdf(
                wanted[0], wanted[-1], columns=[*map(quoted, self._names.values()), CHANGE]
            )
            for batch in pa.RecordBatchReader.from_stream(reader):
                yield self._counted(pa.Table.from_batches([batch]))

    def _rows_of(self, version: int, count: int) -> Iterator[pa.Table]:
        """The rows of a version, each with this count."""
        table = self._log.at(version)
        with self._log.trying(f"the rows of version {version} cannot be read", RETRY, _VACUUMED):
            for found in _scanned(table, list(self._names.values())):
                counts = pa.repeat(pa.scalar(count, pa.int64()), found.num_rows)
                yield self._with_counts(found, counts)

    def _counted(self, table: pa.Table) -> pa.Table:
        counted = counted_feed(table, f"Delta table {self._log.uri}")
        return self._with_counts(counted, counted.column(COUNT))

    def _with_counts(self, table: pa.Table, counts: Any) -> pa.Table:
        columns = [plain(table.column(said)) for said in self._names.values()]
        return pa.table([*columns, counts], names=[*self._names, COUNT])

    @property
    def _schema(self) -> pa.Schema:
        """The schema of what is read, by the newest version that was looked at."""
        found = self._log.schema()
        fields = [plain_field(found.field(said), name) for name, said in self._names.items()]
        return pa.schema([*fields, pa.field(COUNT, pa.int64())])

    # -- what is checked

    def _check_table(self, table: int, version: int, newest: int) -> None:
        found = str(self._log.newest().metadata().id)
        if number_of(found) != table or newest < version:
            raise self._failure(
                f"this is another table than the one that was read up to version {version}: it "
                f"was deleted and created again, or restored from a copy; {ANEW}"
            )

    def _changing(self, version: int, last: int) -> list[int]:
        """The versions after one, up to another, that changed rows, each of which can be read."""
        if self._meta is None or self._meta[0] != version:
            self._meta = version, self._log.meta(version)
        meta = self._meta[1]
        found = []
        for commit in self._log.commits(version + 1, last):
            meta = commit.meta or meta
            if not commit.changes_rows:
                continue
            if not meta.feed and not self._by_snapshot:
                raise self._failure(
                    f"version {commit.version} was written without the change feed, so nobody "
                    "knows which rows it changed; read the table with st.DeltaTable(path, "
                    f'diff="snapshot"), which compares versions, or set {FEED} = true and go on '
                    "from there with a new store"
                )
            found.append(commit.version)
        self._check_columns(meta, last)
        self._meta = last, meta
        return found

    def _check_columns(self, meta: Meta, version: int) -> None:
        """Find the wanted columns by their names, in any case; others are not read."""
        there = {name.lower(): name for name in meta.columns}
        missing = [n for n in self._columns.names if n.lower() not in there]
        if missing:
            raise self._failure(
                f"at version {version} there is no column {', '.join(missing)}; the columns are "
                f"{', '.join(meta.columns)}; change the row class, or the table"
            )
        self._names = {n: there[n.lower()] for n in self._columns.names}

    def _failure(self, said: str) -> SourceError:
        return SourceError(f"Delta table {self._log.uri}: {said}")


def _scanned(table: Table, columns: list[str]) -> Iterator[pa.Table]:
    names = ", ".join(map(quoted, columns))
    reader = QueryBuilder().register("t", table).execute(f"SELECT {names} FROM t")
    for batch in pa.RecordBatchReader.from_stream(reader):
        yield pa.Table.from_batches([batch])
