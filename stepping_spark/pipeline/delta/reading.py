"""How rows of a Delta table are read: whole versions, or what their change feed says."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute
from deltalake import DeltaTable as Table
from deltalake import QueryBuilder

from stepping_spark.pipeline.changes import ranges_of
from stepping_spark.pipeline.delta.versions import Meta, Version, meta_of
from stepping_spark.pipeline.plain import plain, plain_field
from stepping_spark.rows.schema import CHANGE, COUNT
from stepping_spark.rows.sql_text import all_of, any_of, closed
from stepping_spark.zsets.from_change_feed import counted_feed

pc: Any = pyarrow.compute

MOST = 1_000
"""Partitions that a comparison of two versions names; more are read whole."""


@dataclass(frozen=True)
class Span:
    """Versions that are read alike, from the first to the last: by their change feed, or compared.

    `after` are the metadata of the last. A comparison is of the version before the first with the
    last; `where` says which rows, in SQL.
    """

    first: int
    last: int
    after: Meta
    by_feed: bool
    where: str = ""


def spans_of(
    changed: Sequence[Version], *, by_snapshot: bool, wanted: Callable[[Meta], pa.Schema]
) -> list[Span]:
    """How versions that changed rows are read.

    They are compared if the change feed was off, if deltalake cannot read it (column mapping,
    columns that are called like its own, paths that are encoded), and if the table was replaced or
    its columns have other types since.
    """
    found: list[tuple[Span, list[Version]]] = []
    for v in changed:
        feed = (
            not by_snapshot
            and v.meta.feed
            and not v.meta.mapped
            and not v.meta.has_feed_columns
            and v.commit.plain
            and (v.meta is v.before or _same(v, wanted))
        )
        last = found[-1] if found else None
        alike = last is not None and last[0].by_feed == feed
        if last is not None and alike and (not feed or last[0].after is v.meta):
            found[-1] = replace(last[0], last=v.number, after=v.meta), [*last[1], v]
        else:
            found.append((Span(v.number, v.number, v.meta, feed), [v]))
    return [
        span if span.by_feed else replace(span, where=_where(versions)) for span, versions in found
    ]


def _same(v: Version, wanted: Callable[[Meta], pa.Schema]) -> bool:
    return v.before.table == v.meta.table and wanted(v.before) == wanted(v.meta)


def _where(versions: Sequence[Version]) -> str:
    """The partitions in which rows changed, in SQL; empty: all.

    It names the columns of text only, so that the texts of a log need no conversion.
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
            values |= {said.get(name) or None for said in v.commit.touched}
        if len(values) <= MOST:
            conditions.append(_one_of(quoted(name), values))
    return all_of(conditions) if conditions else ""


def _one_of(column: str, values: set[str | None]) -> str:
    listed = ", ".join(literal(value or "") for value in sorted(values, key=str))
    conditions = [closed(f"{column} IN ({listed})")]
    if None in values:
        conditions.append(closed(f"{column} IS NULL"))
    return any_of(conditions)


def by_feed(table: Table, span: Span, columns: Sequence[str]) -> Iterator[tuple[pa.Table, Any]]:
    """What the change feed says, with the count of each row."""
    unique = dict.fromkeys([*columns, CHANGE])
    reader = table.load_cdf(span.first, span.last, columns=[quoted(name) for name in unique])
    for batch in pa.RecordBatchReader.from_stream(reader):
        found = pa.Table.from_batches([batch])
        yield found, counted_feed(found.select([CHANGE]), "the change feed").column(COUNT)


def scanned(table: Table, columns: Sequence[str], where: str) -> Iterator[pa.Table]:
    """These columns of the rows of a version for which a condition holds."""
    names = ", ".join(map(quoted, dict.fromkeys(columns)))
    condition = f" WHERE {where}" if where else ""
    reader = QueryBuilder().register("t", table).execute(f"SELECT {names} FROM t{condition}")
    for batch in pa.RecordBatchReader.from_stream(reader):
        yield pa.Table.from_batches([batch])


def quoted(name: str) -> str:
    """The name of a column in SQL: it may be a keyword, and have capitals."""
    return '"{}"'.format(name.replace('"', '""'))


def literal(value: str) -> str:
    """A text in SQL."""
    return "'{}'".format(value.replace("'", "''"))


def with_one_of(table: Table, values: Any, columns: Sequence[str]) -> pa.Table:
    """These columns of the rows whose first column has one of the values.

    The bounds of files say which files are read: values are given as a few ranges.
    """
    name = quoted(columns[0])
    ranges = [closed(f"{name} BETWEEN {a} AND {b}") for a, b in _ranges(values)]
    unknown = [closed(f"{name} IS NULL")] if ranges and values.null_count else []
    types = meta_of(table).fields
    schema = pa.schema([plain_field(types.field(n), n) for n in columns])
    found = [schema.empty_table()]
    condition = any_of(ranges + unknown) if ranges else ""
    for rows in scanned(table, columns, condition):
        made = pa.table([plain(rows.column(n)) for n in columns], schema=schema)
        found.append(made.filter(pc.is_in(made.column(0), value_set=values.cast(schema.types[0]))))
    return pa.concat_tables(found)


def _ranges(values: Any) -> list[tuple[str, str]]:
    """Ranges in SQL in which the values are; none for a type without literals."""
    for is_one, told in _LITERALS.items():
        if is_one(values.type):
            return [(told(least), told(most)) for least, most in ranges_of(values)]
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
