"""The log of a Delta table: its commits and versions, and the reading of their rows."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable as Table
from deltalake import QueryBuilder, Schema
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    TableNotFoundError,
)
from deltalake.fs import DeltaStorageHandler

from stepping_spark.base.errors import SteppingError
from stepping_spark.pipeline.changes import ranges_of
from stepping_spark.pipeline.columns import plain, plain_field
from stepping_spark.pipeline.protocols import ANEW
from stepping_spark.rows.schema import CHANGE, COUNT
from stepping_spark.rows.sql_text import all_of, any_of, closed
from stepping_spark.spark.session import first_line
from stepping_spark.zsets.from_change_feed import counted_feed

VECTORS = "delta.enableDeletionVectors"
FEED = "delta.enableChangeDataFeed"
FEED_COLUMNS = (CHANGE, "_commit_version", "_commit_timestamp")
"""The columns of a change feed: it cannot be read where the table has such a column of its own."""

APPEND_ONLY = "delta.appendOnly"
_MAPPING = "delta.columnMapping.mode"
_PHYSICAL = "delta.columnMapping.physicalName"

NO_ARROW = ("variant", "interval", "geometry", "geography")
"""Prefixes of the names of Delta types that deltalake maps to an unrelated type of Arrow."""


@dataclass(frozen=True)
class Meta:
    """The metadata of a table, as far as this package needs it.

    `mapping` is the mode of column mapping: none, name or id. With it, `physical` has the names of
    columns in files.
    """

    table: str
    fields: pa.Schema
    partitions: tuple[str, ...]
    feed: bool
    mapping: str
    physical: Mapping[str, str]

    @property
    def mapped(self) -> bool:
        """Whether columns have other names in files (column mapping)."""
        return self.mapping != "none"

    @property
    def has_feed_columns(self) -> bool:
        """Whether a column has the name of a column of the change feed."""
        return any(name.lower() in FEED_COLUMNS for name in self.fields.names)

    @property
    def partitions_in_files(self) -> pa.Schema:
        """The partition columns by their names in files."""
        columns = map(self.fields.field, self.partitions)
        return pa.schema([f.with_name(self.physical.get(f.name, f.name)) for f in columns])

    @property
    def texts(self) -> list[str]:
        """The partition columns of type string."""
        return [n for n in self.partitions if pa.types.is_string(self.fields.field(n).type)]


ChangedFile: TypeAlias = tuple[Mapping[str, Any], int | None]


@dataclass(frozen=True)
class Commit:
    """The commit of a version: whether rows may have changed, new metadata, and its steps by app.

    `plain`: no path is percent-encoded. `touched` has the values of the partitions in which rows
    changed; None if unknown. `files` has the actions of the files with the changed rows, with the
    count of their rows, or None for a file of the change feed, which says it; None if only some
    rows of a file changed, by a deletion vector.
    """

    version: int
    changes_rows: bool
    meta: Meta | None
    steps: Mapping[str, int] = field(default_factory=dict)
    plain: bool = True
    touched: tuple[Mapping[str, str | None], ...] | None = ()
    files: tuple[ChangedFile, ...] | None = ()


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
    metadata = table.metadata()
    return _meta(
        str(metadata.id), table.schema(), metadata.partition_columns, metadata.configuration
    )


def arrow_schema(table: Table) -> pa.Schema:
    """The columns of an opened table; a type without an equal in Arrow is opaque."""
    document = json.loads(table.schema().to_json())
    columns: Any = table.schema().to_arrow()
    fields = pa.schema(columns)
    return pa.schema(
        [
            fields.field(i).with_type(_arrow_type(f["type"], fields.field(i).type))
            for i, f in enumerate(document["fields"])
        ]
    )


def _arrow_type(delta_type: Any, t: Any) -> pa.DataType:
    """The Arrow type `t`, with opaque types where Delta's type has no equal in Arrow."""
    match delta_type:
        case {"type": "struct", "fields": list(fields)}:
            inner = zip(fields, t, strict=True)
            return pa.struct([f.with_type(_arrow_type(s["type"], f.type)) for s, f in inner])
        case {"type": "array", "elementType": element}:
            return pa.list_(t.value_field.with_type(_arrow_type(element, t.value_type)))
        case {"type": "map", "keyType": key, "valueType": value}:
            return pa.map_(_arrow_type(key, t.key_type), _arrow_type(value, t.item_type))
        case str(name) if name.startswith(NO_ARROW):
            return pa.opaque(pa.null(), type_name=name, vendor_name="Delta")
        case _:
            arrow_type: pa.DataType = t
            return arrow_type


def commit_of(version: int, text: str) -> Commit:
    """The actions in the commit file of a version.

    If there are files of the change feed, they have all changed rows.
    """
    meta, plain, some_rows = None, True, False
    steps: dict[str, int] = {}
    touched: list[Mapping[str, str | None]] | None = []
    feed: list[ChangedFile] = []
    whole: list[ChangedFile] = []
    for line in text.splitlines():
        match json.loads(line):
            case {"cdc": dict(file)}:
                feed.append((_placed(file), None))
            case {"add": {"dataChange": True} as file}:
                whole.append((_placed(file), 1))
                some_rows = some_rows or bool(file.get("deletionVector"))
            case {"remove": {"dataChange": True} as file}:
                whole.append((_placed(file), -1))
                some_rows = some_rows or bool(file.get("deletionVector"))
            case {"txn": {"appId": str(app), "version": int(step)}}:
                steps[app] = step
                continue
            case {"metaData": dict(metadata)}:
                meta = _meta_said(metadata)
                continue
            case _:
                continue
        plain = plain and "%" not in file["path"]
        values = file.get("partitionValues")
        touched = None if values is None or touched is None else [*touched, values]
    files = None if some_rows and not feed else tuple(feed or whole)
    partitions = None if touched is None else tuple(touched)
    return Commit(version, bool(feed or whole), meta, steps, plain, partitions, files)


def _placed(file: Mapping[str, Any]) -> dict[str, Any]:
    return {name: file.get(name) for name in ("path", "partitionValues", "size")}


def _meta_said(action: Mapping[str, Any]) -> Meta:
    schema = Schema.from_json(action["schemaString"])
    columns, configuration = action.get("partitionColumns") or (), action.get("configuration") or {}
    return _meta(str(action["id"]), schema, columns, configuration)


def _meta(table: str, schema: Schema, partitions: Any, configuration: Mapping[str, Any]) -> Meta:
    fields: Any = schema.to_arrow()
    mapping = str(configuration.get(_MAPPING) or "none").lower()
    mapped = schema.fields if mapping != "none" else ()
    physical = {f.name: str(f.metadata[_PHYSICAL]) for f in mapped}
    feed = is_on(configuration, FEED)
    return Meta(table, pa.schema(fields), tuple(partitions), feed, mapping, physical)


def is_on(configuration: Mapping[str, Any], name: str) -> bool:
    """Whether a property of a table is true."""
    return str(configuration.get(name)).lower() == "true"


OTHER = "deltalake cannot do this: read it with st.CatalogTable, or leave that feature out"

_LATER = "steps are written all the same, and it is tried again after later ones"

_logger = logging.getLogger("stepping_spark.pipeline")

_MISSING = re.compile(r"(?:location|file) (\S+?):? not found")
_THROUGH = re.compile(
    r"^(?:(?:C Data interface|External|Arrow|Parquet|Kernel|Object Store) error: )+"
)

_NO_FOLDER = "Could not create local directory"
"""In the error of deltalake, which then says that there is no table."""


class DeltaLog:
    """An existing Delta table, followed from version to version.

    `failure` makes an error of a reason with a remedy.
    """

    def __init__(
        self, uri: str, options: Mapping[str, str] | None, failure: Callable[[str], SteppingError]
    ) -> None:
        self.uri = uri
        self.address = uri if "://" in uri else os.path.abspath(uri)
        """The URI with an absolute path, for tasks, which have another working directory."""
        self.options = dict(options) if options else None
        self._failure = failure
        self._table: Table | None = None
        self._mark: tuple[int, int | None] = (-1, None)  # a version, and the hash of its commit
        self._files: pafs.PyFileSystem | None = None

    @contextmanager
    def trying(self, what: str, remedy: str, if_missing: str | None = None) -> Iterator[None]:
        """Translate errors of deltalake: the failed action, the cause, and the remedy.

        `if_missing` is the remedy for a missing file.
        """
        try:
            yield
        except TableNotFoundError as e:
            if _NO_FOLDER in str(e):
                raise self._failure(
                    f"{what}: {_short_line(e)}; let this user write there, or give another path"
                ) from e
            raise self._failure(
                f"there is no Delta table; create it, or check the path: {_short_line(e)}"
            ) from e
        except SteppingError:
            raise
        except BaseException as e:
            if not _foreign(e):
                raise
            missing = _MISSING.search(str(e))
            if if_missing is not None and missing is not None:
                raise self._failure(f"{what}: {missing[1]} is not there; {if_missing}") from e
            would_do = if_missing if if_missing is not None and "not found" in str(e) else remedy
            would_do = OTHER if "unsupported" in str(e).lower() else would_do
            raise self._failure(f"{what}: {_short_line(e)}; {would_do}") from e

    @contextmanager
    def warning(self, what: str) -> Iterator[None]:
        """Log errors of work after a commit as warnings: later steps repeat it.

        There is no warning if somebody else commits at the same time.
        """
        try:
            with self.trying(what, _LATER):
                yield
        except SteppingError as e:
            if not isinstance(e.__cause__, CommitFailedError):
                _logger.warning("%s", str(e))

    def exists(self) -> bool:
        """Whether the table exists."""
        with self.trying("it could not be found", "check the path and the credentials"):
            return Table.is_deltatable(self.uri, self.options)

    def at(self, version: int) -> Table:
        """The table as it was at a version."""
        with self.trying(
            f"version {version} cannot be opened",
            f"its log was cleaned up, or the table is another one: {ANEW}",
        ):
            return Table(self.uri, version=version, storage_options=self.options)

    @property
    def table(self) -> Table:
        """The table at the version of the last call of `newest`, without reading the log again."""
        return self.newest() if self._table is None else self._table

    def newest(self) -> Table:
        """The table at its newest version; opened again if the path has another table now."""
        if self._table is not None and self._mark[1] == self._marked(self._mark[0]):
            with self.trying("its log could not be read", "try again when it can be reached"):
                self._table.update_incremental()
        else:
            with self.trying("it could not be opened", "check the path and the credentials"):
                self._table = Table(self.uri, storage_options=self.options)
        version = self._table.version()
        if version != self._mark[0]:
            self._mark = version, self._marked(version)
        return self._table

    def _marked(self, version: int) -> int | None:
        """A hash of a version's commit, which differs if the table was created again; or None."""
        try:
            return hash(self.text(version))
        except (DeltaError, OSError):
            return None

    def rows(self, version: int) -> int:
        """The rows of a version by its statistics; 0 if unknown or with deletion vectors."""
        table = self.table if self.table.version() == version else self.at(version)
        if is_on(table.metadata().configuration, VECTORS):
            return 0
        with self.trying("its files are not known", "check the files of the table"):
            files: Any = table.get_add_actions(flatten=True)
            counts = pa.table(files).column("num_records")
        return pc.sum(counts).as_py() or 0

    def schema(self) -> pa.Schema:
        """The columns of the table as it is now."""
        table = self.newest()
        with self.trying("its columns are not known", OTHER):
            return arrow_schema(table)

    def meta(self, version: int | None = None) -> Meta:
        """The metadata at a version, or of the table as `newest` returned it last."""
        table = self.table if version is None else self.at(version)
        with self.trying("its columns are not known", OTHER):
            return meta_of(table)

    def back_to(self, version: int) -> Iterator[Commit]:
        """The commits after a version, the newest first, as far as their log is kept."""
        for number in range(self.table.version(), version, -1):
            try:
                yield self.commit(number)
            except SteppingError as e:
                if isinstance(e.__cause__, FileNotFoundError):
                    return
                raise

    def commit(self, version: int) -> Commit:
        """The commit of a version."""
        with self.trying(
            f"the log of version {version} cannot be read",
            f"it was cleaned up before this pipeline had read it: {ANEW}",
        ):
            return commit_of(version, self.text(version))

    @property
    def files(self) -> pafs.PyFileSystem:
        """The files below the table's path."""
        if self._files is None:
            handler: Any = DeltaStorageHandler(self.uri, self.options)
            self._files = pafs.PyFileSystem(handler)
        return self._files

    def text(self, version: int) -> str:
        """The text of the commit file of a version."""
        with self.files.open_input_stream(f"_delta_log/{version:020d}.json") as file:
            text: bytes = file.read()
        return text.decode()

    def checkpoint(self) -> tuple[int, pa.Table] | None:
        """The version of the last checkpoint and its `add` actions; None without a checkpoint."""
        try:
            with self.files.open_input_stream("_delta_log/_last_checkpoint") as file:
                pointer = json.loads(file.read())
        except FileNotFoundError:
            return None
        version, n = int(pointer["version"]), pointer.get("parts")
        parts = [f".{i:010d}.{n:010d}" for i in range(1, n + 1)] if n else [""]
        tables = []
        for part in parts:
            path = f"_delta_log/{version:020d}.checkpoint{part}.parquet"
            with self.files.open_input_file(path) as file:
                tables.append(pq.read_table(file, columns=["add"]))
        return version, pa.concat_tables(tables)


def _short_line(e: BaseException) -> str:
    """The first line of an error, without the prefixes of the libraries that passed it on."""
    return _THROUGH.sub("", first_line(e))


def _foreign(e: BaseException) -> bool:
    """Whether deltalake or Arrow raised an error; a panic of Rust is no `Exception`."""
    is_theirs = isinstance(
        e, DeltaError | OSError | pa.ArrowException | ValueError | NotImplementedError
    )
    return is_theirs or type(e) is Exception or type(e).__name__ == "PanicException"


pc: Any = pyarrow.compute

MOST = 1_000
"""The most values of a partition column in a comparison's condition; with more, it has none."""


class ReadBy(Enum):
    """By what the changed rows of versions are read."""

    FILES = 0
    """Arrow reads the files of the change feed, or those that were added and removed."""

    FEED = 1
    """deltalake reads the change feed."""

    COMPARISON = 2
    """The rows before are compared with the rows after."""


@dataclass(frozen=True)
class Span:
    """A range of versions that are read alike.

    `after` is the metadata of the last. A comparison is between the version before the first and
    the last; `where` is the SQL condition of the compared rows.
    """

    first: int
    last: int
    after: Meta
    by: ReadBy
    where: str = ""


def spans_of(
    changed: Sequence[Version],
    compared: Collection[int],
    schema_of: Callable[[Meta], pa.Schema],
    by_files: Callable[[Version], bool],
) -> list[Span]:
    """The spans in which versions that changed rows are read.

    Versions are compared if they are `compared`, if the change feed was off, if a column has the
    name of a feed column, and if the version replaced the table or changed the types of its
    columns. If Arrow cannot read its files (`by_files`), they are also compared if deltalake cannot
    read the change feed: with column mapping and encoded paths.
    """
    spans: list[tuple[Span, list[Version]]] = []
    for v in changed:
        by = ReadBy.COMPARISON
        followed = v.number not in compared and v.meta.feed and not v.meta.has_feed_columns
        if followed and (v.meta is v.before or _has_same_schema(v, schema_of)):
            if by_files(v):
                by = ReadBy.FILES
            elif not v.meta.mapped and v.commit.plain:
                by = ReadBy.FEED
        last = spans[-1] if spans else None
        alike = last is not None and last[0].by == by
        if last is not None and alike and (by == ReadBy.COMPARISON or last[0].after is v.meta):
            spans[-1] = replace(last[0], last=v.number, after=v.meta), [*last[1], v]
        else:
            spans.append((Span(v.number, v.number, v.meta, by), [v]))
    return [
        replace(span, where=_where(versions)) if span.by == ReadBy.COMPARISON else span
        for span, versions in spans
    ]


def _has_same_schema(v: Version, schema_of: Callable[[Meta], pa.Schema]) -> bool:
    return v.before.table == v.meta.table and schema_of(v.before) == schema_of(v.meta)


def _where(versions: Sequence[Version]) -> str:
    """The SQL condition of the partitions in which rows changed; empty for all rows.

    It uses string columns only, as the log has all partition values as text.
    """
    first, last = versions[0].before, versions[-1].meta
    if first.mapped or last.mapped or any(first.partitions != v.meta.partitions for v in versions):
        return ""
    conditions = []
    for name in last.texts:
        values: set[str | None] = set()
        for v in versions:
            if v.commit.touched is None:
                return ""
            values |= {partition.get(name) or None for partition in v.commit.touched}
        if len(values) <= MOST:
            conditions.append(_one_of(quoted(name), values))
    return all_of(conditions) if conditions else ""


def _one_of(column: str, values: set[str | None]) -> str:
    listed = ", ".join(literal(value or "") for value in sorted(values, key=str))
    conditions = [closed(f"{column} IN ({listed})")]
    if None in values:
        conditions.append(closed(f"{column} IS NULL"))
    return any_of(conditions)


class IncompleteFeed(Exception):
    """The change feed of these versions lacks rows."""

    def __init__(self, span: Span, old: int, new: int) -> None:
        super().__init__(
            f"the change feed of versions {span.first} to {span.last} has {old:,} old and {new:,} "
            "new rows of updates"
        )
        self.first, self.last = span.first, span.last


class Updates:
    """The numbers of old and new rows of updates in the change feed of a span."""

    def __init__(self) -> None:
        self._old = self._new = 0

    def add(self, kinds: Any) -> None:
        """Add the rows with these kinds of change."""
        self._old += pc.sum(pc.equal(kinds, "update_preimage")).as_py() or 0
        self._new += pc.sum(pc.equal(kinds, "update_postimage")).as_py() or 0

    def check(self, span: Span) -> None:
        """Raise `IncompleteFeed` if updates have not as many new rows as old ones.

        deltalake writes none for an updated row that equals another row of the table.
        """
        if self._old != self._new:
            raise IncompleteFeed(span, self._old, self._new)


def by_feed(
    table: Table, span: Span, columns: Sequence[str], updates: Updates
) -> Iterator[tuple[pa.Table, Any]]:
    """The rows of the change feed as deltalake reads it, and the count of each row.

    Adds the numbers of updated rows to `updates`.
    """
    unique = dict.fromkeys([*columns, CHANGE])
    reader = table.load_cdf(span.first, span.last, columns=[quoted(name) for name in unique])
    for batch in pa.RecordBatchReader.from_stream(reader):
        rows = pa.Table.from_batches([batch])
        updates.add(plain(rows.column(CHANGE)))
        yield rows, counted_feed(rows.select([CHANGE]), "the change feed").column(COUNT)


def scanned(table: Table, columns: Sequence[str], where: str) -> Iterator[pa.Table]:
    """Some columns of the rows of a version that satisfy a condition; of none, only the rows."""
    names = ", ".join(map(quoted, dict.fromkeys(columns))) or "1"
    condition = f" WHERE {where}" if where else ""
    builder = QueryBuilder().register("t", table)
    builder.execute("SET datafusion.execution.parquet.coerce_int96 = 'us'")  # see `parquet_file`
    reader = builder.execute(f"SELECT {names} FROM t{condition}")
    for batch in pa.RecordBatchReader.from_stream(reader):
        yield pa.Table.from_batches([batch])


def quoted(name: str) -> str:
    """The quoted name of a column in SQL: names may be keywords, and have capitals."""
    return '"{}"'.format(name.replace('"', '""'))


def literal(value: str) -> str:
    """A string literal in SQL."""
    return "'{}'".format(value.replace("'", "''"))


def with_one_of(table: Table, values: Any, columns: Sequence[str]) -> pa.Table:
    """Some columns of the rows whose first column has one of the values.

    The condition is a few ranges of values, so that the bounds of files exclude files.
    """
    name = quoted(columns[0])
    ranges = [closed(f"{name} BETWEEN {a} AND {b}") for a, b in _ranges(values)]
    unknown = [closed(f"{name} IS NULL")] if ranges and values.null_count else []
    types = meta_of(table).fields
    schema = pa.schema([plain_field(types.field(n), n) for n in columns])
    tables = [schema.empty_table()]
    condition = any_of(ranges + unknown) if ranges else ""
    for rows in scanned(table, columns, condition):
        part = pa.table([plain(rows.column(n)) for n in columns], schema=schema)
        tables.append(part.filter(pc.is_in(part.column(0), value_set=values.cast(schema.types[0]))))
    return pa.concat_tables(tables)


def _ranges(values: Any) -> list[tuple[str, str]]:
    """The ranges that cover the values, as SQL literals; none for a type without literals."""
    for is_one, to_sql in _LITERALS.items():
        if is_one(values.type):
            return [(to_sql(least), to_sql(most)) for least, most in ranges_of(values)]
    return []


_LITERALS: dict[Callable[[Any], bool], Callable[[Any], str]] = {
    pa.types.is_integer: str,
    pa.types.is_string: literal,
    pa.types.is_date: lambda value: f"CAST('{value.isoformat()}' AS DATE)",
    pa.types.is_timestamp: lambda value: _time(value),
}


def _time(value: dt.datetime) -> str:
    zone = "None" if value.tzinfo is None else 'Some("UTC")'
    return f"arrow_cast('{value.isoformat()}', 'Timestamp(Microsecond, {zone})')"
