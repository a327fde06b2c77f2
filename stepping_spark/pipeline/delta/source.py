"""A Delta table as a source: a snapshot first, then its change feed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from stepping_spark.base.errors import SourceError
from stepping_spark.base.packages import DataFrame, SparkSession
from stepping_spark.pipeline.by_tasks import frame_of_files, may_read, shares_of
from stepping_spark.pipeline.chunks import Chunks, InPieces, at_most, least_bytes
from stepping_spark.pipeline.columns import (
    common_schema,
    conformed,
    found_columns,
    plain_field,
    with_parts,
)
from stepping_spark.pipeline.delta.files import (
    DataFile,
    RowsOfFiles,
    files_of,
    reads,
)
from stepping_spark.pipeline.delta.log import (
    FEED,
    DeltaLog,
    IncompleteFeed,
    Meta,
    ReadBy,
    Span,
    Updates,
    Version,
    by_feed,
    scanned,
    spans_of,
)
from stepping_spark.pipeline.protocols import (
    ANEW,
    RETRY,
    Batch,
    Portion,
    Position,
    number_of,
    numbers_of,
)
from stepping_spark.rows.names import column_of
from stepping_spark.rows.schema import COUNT

log = logging.getLogger("stepping_spark.pipeline")

T = TypeVar("T")

_VACUUMED = (
    f"its files were removed (VACUUM) before this pipeline had read them: {ANEW}, and let the "
    "retention be longer than a pipeline may stand still"
)

_CHANGES = "the changes of version {} cannot be read"

UNCHANGED = 8
"""Versions without changed rows, after which the position is committed anyway.

The log of old versions is cleaned up, so a position must not stay behind for ever.
"""


class DeltaSource(InPieces):
    """Reads the changes after a version.

    A position is (version, table): everything up to the version is read, and `table` identifies the
    table. Within a version that is read in pieces it is (version, table, n, k): k of n pieces of
    the next version are read; or with -n, k of n pieces of the snapshot of this version.
    """

    lengths = (2, 4)
    unit = "version"
    """The unit of the first number of a position, for messages."""

    def __init__(self, uri: str, options: Mapping[str, str] | None, *, by_snapshot: bool) -> None:
        super().__init__()
        self._log = DeltaLog(uri, options, self._failure)
        self._by_snapshot = by_snapshot
        self._metas: dict[int, Meta] = {}  # by version: the metadata after it
        self._versions: dict[int, Version] = {}
        self._committed: int | None = None
        self._lacking: set[int] = set()  # versions whose change feed lacks rows

    def open(self, columns: pa.Schema) -> None:
        """Set the wanted columns; raises `SourceError` if their changes could not be read."""
        super().open(columns)
        self._metas, self._versions, self._committed = {}, {}, None
        if len(columns):
            self._log.newest()
            self._check_feed()

    def schema(self) -> pa.Schema:
        """The columns of the table at its newest version."""
        return self._log.schema()

    def behind(self, after: Position | None) -> int | None:
        """The number of unread versions with changed rows."""
        newest = self._log.newest().version()
        if after is None:
            return newest + 1
        version, _, *piece = numbers_of(after)
        changed = sum(v.commit.changes_rows for v in self._after(version, newest))
        return changed + (bool(piece) and piece[0] < 0)

    def confirm(self, position: Position) -> None:
        """Remember the committed position."""
        self._committed = numbers_of(position)[0]

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The snapshot, the changes of some versions, or the next piece of one."""
        if after is None:
            return self._snapshot(self._log.newest().version(), portion)
        version, table, *piece = numbers_of(after)
        if self._committed is None:
            self._committed = version
        newest = self._log.newest().version()
        self._check_table(table, version, newest)
        if piece:
            n, k = piece
            return self._piece((version, table), n, k)
        if newest == version:
            return None
        last = newest if portion.versions is None else min(newest, version + portion.versions)
        return self._in_full(lambda: self._changes(version, last, portion))

    def look(self, after: Position | None, portion: Portion) -> Batch | None:
        """The batch that `read` would return, without rows."""
        newest = self._log.newest().version()
        self._check_feed()
        version, table, *piece = (newest, 0) if after is None else numbers_of(after)
        if after is not None:
            self._check_table(table, version, newest)
        if after is None or (piece and piece[0] < 0):
            return Batch((version, table), (self._schema_at(version).empty_table(),))
        last = newest if portion.versions is None else min(newest, version + portion.versions)
        spans = self._spans(version, version + 1 if piece else last)
        return Batch((last, table), (self._schema_of(spans).empty_table(),)) if spans else None

    # -- batches

    def _snapshot(self, version: int, portion: Portion) -> Batch:
        meta, schema = self._meta(version), self._schema_at(version)
        table = number_of(meta.table)
        rows = self._log.rows(version)
        if portion.holds(rows, least_bytes(rows, schema)):
            content = at_most(self._rows_of(version, 1, schema), schema, portion)
            if content is not None:
                return Batch((version, table), (content,), 1)
        frame = self._by_tasks(version, schema, portion.tasks())
        if frame is not None:
            return Batch((version, table), (frame,), 1)
        pieces = Chunks(self._rows_of(version, 1, schema), schema, portion=portion)
        self._keep((version, table), pieces)
        return self._piece((version, table), -pieces.n, 0)

    def _by_tasks(
        self, version: int, schema: pa.Schema, session: SparkSession | None
    ) -> DataFrame | None:
        """The rows of a version as a DataFrame; None if tasks cannot read its files."""
        meta = self._meta(version)
        if session is None or not may_read(session, self._log.uri):
            return None
        what = f"the rows of version {version} cannot be read"
        with self._log.trying(what, RETRY, _VACUUMED):
            files = files_of(self._log, self._log.at(version))
        if not files or not self._are_read((f.action for f in files), meta):
            return None
        rows = self._rows_of_files(((f, 1) for f in files), meta, version)
        return self._frame_of(rows, schema, session, what)

    def _changes_by_tasks(
        self, span: Span, schema: pa.Schema, session: SparkSession | None
    ) -> DataFrame | None:
        """The changes of a span as a DataFrame; None if tasks cannot read its files."""
        if session is None or not may_read(session, self._log.uri) or span.by != ReadBy.FILES:
            return None
        files = self._files_of(span)
        what = _CHANGES.format(span.first)
        updates = Updates()
        feed = replace(files, names={}, files=tuple(x for x in files.files if x[1] is None))
        with self._log.trying(what, RETRY, _VACUUMED):
            for _ in feed.tables(updates, self._log.files):
                pass
        updates.check(span)
        return self._frame_of(files, schema, session, what)

    def _frame_of(
        self, files: RowsOfFiles, schema: pa.Schema, session: SparkSession, what: str
    ) -> DataFrame | None:
        """The rows of data files as a DataFrame; None if tasks cannot read them."""
        parts = [replace(files, files=tuple(share)) for share in shares_of(files.files)]
        return frame_of_files(session, parts, schema, f"Delta table {self._log.uri}: {what}")

    def _are_read(self, actions: Iterable[Mapping[str, Any]], meta: Meta) -> bool:
        """Whether Arrow reads the files of these actions as deltalake does."""
        nested = any(map(pa.types.is_nested, self._columns.types))
        modes = ("none",) if nested else ("none", "name")
        return meta.mapping in modes and reads(meta.partitions_in_files, actions)

    def _is_in_files(self, v: Version) -> bool:
        """Whether Arrow reads the changed rows of a version."""
        files = v.commit.files
        return files is not None and self._are_read((action for action, _ in files), v.meta)

    def _rows_of_files(
        self, files: Iterable[tuple[DataFile, int | None]], meta: Meta, version: int
    ) -> RowsOfFiles:
        """The rows of data files."""
        names = {f: meta.physical.get(c, c) for f, c in self._names(meta, version).items()}
        place = self._log.address, self._log.options
        return RowsOfFiles(*place, names, meta.partitions_in_files, tuple(files))

    def _files_of(self, span: Span) -> RowsOfFiles:
        """The changed rows of a span that is read by its files."""
        commits = [self._versions[n].commit for n in range(span.first, span.last + 1)]
        files = [(DataFile(action), n) for c in commits for action, n in c.files or ()]
        return self._rows_of_files(files, span.after, span.last)

    def _in_full(self, read: Callable[[], T]) -> T:
        """What `read` returns; versions whose change feed lacks rows are compared."""
        while True:
            try:
                return read()
            except IncompleteFeed as e:
                self._lacking.update(range(e.first, e.last + 1))
                log.warning("Delta table %s: %s; the versions are compared", self._log.uri, e)

    def _changes(self, version: int, last: int, portion: Portion) -> Batch:
        """The changes of versions after one, up to `last`, or of fewer if they are too large."""
        while True:
            spans = self._spans(version, last)
            if not spans:
                return self._nothing(version, last)
            schema = self._schema_of(spans)
            content = at_most(self._stream(spans, schema), schema, portion)
            if content is not None:
                return Batch(self._position(last), (content,), last - version)
            changed = [v.number for v in self._after(version, last) if v.commit.changes_rows]
            if len(changed) == 1:
                break
            last = changed[len(changed) // 2 - 1]
        if changed[0] > version + 1:  # the versions before it changed nothing
            return self._nothing(version, changed[0] - 1)
        frame = self._changes_by_tasks(spans[0], schema, portion.tasks())
        if frame is not None:
            return Batch(self._position(last), (frame,), last - version)
        pieces = Chunks(self._stream(spans, schema), schema, portion=portion)
        at = version, number_of(self._meta(version).table)
        self._keep(at, pieces)
        return self._piece(at, pieces.n, 0)

    def _nothing(self, version: int, last: int) -> Batch:
        """A batch without rows; its position is committed if it is far after the committed one."""
        far = self._committed is not None and last - self._committed >= UNCHANGED
        return Batch(self._position(last), (), last - version, final=far)

    def _piece(self, at: tuple[int, int], n: int, k: int) -> Batch:
        """One piece of the rows after a version; cut again if this process lacks the pieces."""
        version, table = at
        piece = self._pieces(at, abs(n), lambda: self._cut(version, n)).read(k)
        if k + 1 < abs(n):
            return Batch((version, table, n, k + 1), (piece,), 0)
        return Batch(self._position(version + 1) if n > 0 else at, (piece,), 1)

    def _cut(self, version: int, n: int) -> Chunks:
        """The pieces of the next version, or with -n of the rows of this one."""
        if n > 0:
            return self._in_full(lambda: self._cut_changes(version, n))
        schema = self._schema_at(version)
        return Chunks(self._rows_of(version, 1, schema), schema, n=-n)

    def _cut_changes(self, version: int, n: int) -> Chunks:
        spans = self._spans(version, version + 1)
        schema = self._schema_of(spans)
        return Chunks(self._stream(spans, schema), schema, n=n)

    def _stream(self, spans: Sequence[Span], schema: pa.Schema) -> Iterator[pa.Table]:
        """The changes of versions, as rows with counts."""
        for span in spans:
            if span.by == ReadBy.COMPARISON:
                yield from self._rows_of(span.last, 1, schema, span.where)
                yield from self._rows_of(span.first - 1, -1, schema, span.where)
                continue
            updates = Updates()
            with self._log.trying(_CHANGES.format(span.first), RETRY, _VACUUMED):
                for rows in self._by_feed(span, updates):
                    yield self._cast(rows, schema)
            updates.check(span)

    def _by_feed(self, span: Span, updates: Updates) -> Iterator[pa.Table]:
        """The changed rows of a span by its change feed, with counts."""
        if span.by == ReadBy.FILES:
            yield from self._files_of(span).tables(updates, self._log.files)
            return
        names = self._names(span.after, span.last)
        newest = self._log.table
        table = newest if span.last == newest.version() else self._log.at(span.last)
        for rows, counts in by_feed(table, span, list(names.values()), updates):
            yield _of_fields(rows, names, counts)

    def _rows_of(
        self, version: int, count: int, schema: pa.Schema, where: str = ""
    ) -> Iterator[pa.Table]:
        """The rows of a version, each with this count."""
        names = self._names(self._meta(version), version)
        table = self._log.at(version)
        with self._log.trying(f"the rows of version {version} cannot be read", RETRY, _VACUUMED):
            for rows in scanned(table, list(names.values()), where):
                counts = pa.repeat(pa.scalar(count, pa.int64()), rows.num_rows)
                yield self._cast(_of_fields(rows, names, counts), schema)

    def _cast(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Rows with counts, with the columns of a schema; absent ones are NULL."""
        try:
            return conformed(rows, schema)
        except pa.ArrowException as e:
            raise self._failure(
                f"a value does not fit the type that its column has in another version: {e}; "
                f"change the row class, and {ANEW}"
            ) from e

    # -- versions

    def _meta(self, version: int) -> Meta:
        if version not in self._metas:
            self._metas[version] = self._log.meta(version)
        return self._metas[version]

    def _position(self, version: int) -> tuple[int, int]:
        return version, number_of(self._meta(version).table)

    def _after(self, version: int, last: int) -> list[Version]:
        """The versions after one, up to another; drops older ones from the cache."""
        self._versions = {n: v for n, v in self._versions.items() if n > version}
        self._metas = {n: meta for n, meta in self._metas.items() if n >= version}
        for number in range(version + 1, last + 1):
            if number not in self._versions:
                before, commit = self._meta(number - 1), self._log.commit(number)
                self._metas[number] = commit.meta or before
                self._versions[number] = Version(commit, before, self._metas[number])
        return [self._versions[n] for n in range(version + 1, last + 1)]

    def _spans(self, version: int, last: int) -> list[Span]:
        """The spans of versions that changed rows; versions that are read alike share a span."""
        changed = [v for v in self._after(version, last) if v.commit.changes_rows]
        dark = [v.number for v in changed if not v.meta.feed]
        if dark and not self._by_snapshot and not self._log.meta().feed:
            raise self._failure(
                f"version {dark[0]} was written without the change feed, so its changed rows are "
                f"unknown; {_SWITCH}"
            )
        compared = [v.number for v in changed] if self._by_snapshot else self._lacking
        spans = spans_of(changed, compared, self._wanted_schema, self._is_in_files)
        self._names(self._meta(last), last)
        return spans

    def _wanted_schema(self, meta: Meta) -> pa.Schema:
        """The wanted columns that exist by these metadata, with their types."""
        names = {column_of(field).lower() for field in self._columns}
        return pa.schema([f for f in meta.fields if f.name.lower() in names])

    # -- checks

    def _check_feed(self) -> None:
        """Refuse a table without a change feed, unless versions are compared."""
        if not self._by_snapshot and not self._log.meta().feed:
            raise self._failure(
                f"its change feed is off, so the changes of its versions will be unknown; {_SWITCH}"
            )

    def _check_table(self, table: int, version: int, newest: int) -> None:
        """Refuse another table; a table replaced by CREATE OR REPLACE continues the same log."""
        now = number_of(str(self._log.table.metadata().id))
        if newest < version or (now != table and number_of(self._log.meta(version).table) != table):
            raise self._failure(
                f"this is another table than the one that was read up to version {version}: it "
                f"was deleted and created again, or restored from a copy; {ANEW}"
            )

    def _names(self, meta: Meta, version: int) -> dict[str, str]:
        """The column of each field in a version; other columns are not read.

        With column mapping, a column that was renamed since is found under its old name, and
        without it under the name of the field. A field whose column was added since has none: its
        value is NULL in all rows of the version. So is a part of a struct that was added since,
        without column mapping.
        """
        try:
            return self._names_in_table(self._columns, meta, version)
        except SourceError:
            now = self._log.meta()
            if now.table != meta.table:
                raise
            newest = self._names_in_table(self._columns, now, self._log.table.version())
            if meta.physical:
                before = {physical: name for name, physical in meta.physical.items()}
                ids = ((field, now.physical[name]) for field, name in newest.items())
                there = {field: before[x] for field, x in ids if x in before}
                if there == newest:
                    raise
            else:
                columns = set(meta.fields.names)
                there = {f: name for f, name in newest.items() if name in columns}
                # A column that was renamed since has the name of its field, as before the rename.
                there |= {f: f for f in newest if f not in there and f in columns}
            added = [now.fields.field(name) for f, name in newest.items() if f not in there]
            if not all(column.nullable for column in added):
                raise
            return there

    def _names_in_table(self, columns: pa.Schema, meta: Meta, version: int) -> dict[str, str]:
        return found_columns(
            columns,
            meta.fields,
            lambda reason: self._failure(f"at version {version} {reason}"),
        )

    def _schema_at(self, version: int) -> pa.Schema:
        """The schema of the columns read from a version, with counts."""
        meta = self._meta(version)
        names = self._names(meta, version)
        columns = {name: meta.fields.field(column) for name, column in names.items()}
        if len(columns) < len(self._columns):  # of others the newest version has the types
            now = self._log.meta()
            newest = self._names(now, self._log.table.version())
            columns = {name: now.fields.field(c) for name, c in newest.items()} | columns
        fields = [
            plain_field(with_parts(columns[field.name], field), field.name)
            for field in self._columns
        ]
        return pa.schema([*fields, pa.field(COUNT, pa.int64())])

    def _schema_of(self, spans: Sequence[Span]) -> pa.Schema:
        """The common schema of the columns read from several versions, whose types may differ."""
        compared = {s.first - 1 for s in spans if s.by == ReadBy.COMPARISON}
        versions = compared | {s.last for s in spans}
        try:
            return common_schema([self._schema_at(n) for n in sorted(versions)])
        except ValueError as e:
            raise self._failure(
                f"between versions {min(versions)} and {max(versions)} {e}; change the row class, "
                f"and {ANEW}"
            ) from None

    def _failure(self, reason: str) -> SourceError:
        return SourceError(f"Delta table {self._log.uri}: {reason}")


def _of_fields(rows: pa.Table, names: Mapping[str, str], counts: Any) -> pa.Table:
    """The columns of fields, with counts."""
    values = [rows.column(column) for column in names.values()]
    return pa.table([*values, counts], names=[*names, COUNT])


_SWITCH = (
    f"set {FEED} = true (ALTER TABLE … SET TBLPROPERTIES), or read the table with "
    'st.DeltaTable(path, diff="snapshot"), which compares versions'
)
