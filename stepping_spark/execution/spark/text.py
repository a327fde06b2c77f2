"""Pieces of Spark SQL that all nodes use: lists of columns, keys, and consolidation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepping_spark.expressions.expr import Expr, Field
from stepping_spark.expressions.index import Order
from stepping_spark.relations.sums.overflow import Limbs, SumsQuery, beyond, is_wide, nonzero, total
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.schema import COUNT, Columns, Schema
from stepping_spark.rows.sql_text import Sql, all_of
from stepping_spark.rows.types import quote

# Few rows are joined and grouped in one task: no shuffle, and no job of its own for a broadcast.
ONE_TASK = "/*+ COALESCE(1) */"


def names(columns: Columns, row: str = "") -> str:
    """A list of columns."""
    prefix = f"{quote(row)}." if row else ""
    return ", ".join(prefix + quote(n) for n, _ in columns)


def spread(expr: Sql, columns: Columns) -> list[str]:
    """The columns of a row that an expression gives."""
    return [f"{expr}.{quote(n)} AS {quote(n)}" for n, _ in columns]


def equal(left: Sequence[Sql], right: Sequence[Sql]) -> Sql:
    """The condition that the parts of two keys are equal."""
    return all_of(f"{a} = {b}" for a, b in zip(left, right, strict=True))


def ordered(order: Order, columns: Columns, row: str) -> str:
    """An ORDER BY: the order, then the whole row."""
    parts = [f"{e.sql(row)} {'ASC' if up else 'DESC'}" for e, up in order]
    return ", ".join([*parts, *(f"{quote(row)}.{quote(n)}" for n, _ in columns)])


def key_names(keys: Sequence[Expr]) -> str:
    """The columns that keys have beside the rows of a query."""
    return ", ".join(f"_k{i}_" for i, _ in enumerate(keys))


WEIGHT = total(quote(COUNT), INT, beyond(COUNT, INT))


def consolidated(query: str, schema: Schema, keys: Sequence[Expr] = (), *, few: bool) -> str:
    """The query with equal rows made one, their diffs added, and rows without weight left out.

    Of keys there are columns beside the rows: see `key_names`. Many rows are partitioned by them,
    `few` are one partition.
    """
    one = ONE_TASK if few else ""
    if not schema.columns:
        return added_up(f"SELECT {one} * FROM ({query})", "", schema.diffs, few=few)
    by = names(schema.columns)
    grouped, beside = f"SELECT {one} {names(schema.all)} FROM ({query})", ""
    of_row = _columns(keys, schema)
    if of_row is not None:  # not exchanged and grouped a second time
        beside = "".join(f", {c} AS _k{i}_" for i, c in enumerate(of_row))
        if not few:
            grouped += f" DISTRIBUTE BY {', '.join(of_row)}"
    elif keys:
        by = f"{by}, {key_names(keys)}"
        computed = ", ".join(f"{k.sql('t')} AS _k{i}_" for i, k in enumerate(keys))
        grouped = f"SELECT {one} {names(schema.all, 't')}, {computed} FROM ({query}) t"
        if not few:
            grouped += f" DISTRIBUTE BY {key_names(keys)}"
    once = added_up(grouped, by, schema.diffs, few=few)
    return f"SELECT *{beside} FROM ({once})" if beside else once


def added_up(
    query: str,
    by: str,
    diffs: Columns,
    *,
    few: bool,
    given: Mapping[str, Limbs] | None = None,
    same: Mapping[str, str] | None = None,
) -> str:
    """The sums of a query's diffs by some columns, unless all are zero.

    `given` are diffs that the query has no columns for. Nor has it any for those that are the
    `same` as another diff. Of few rows decimals are added up as they are: the text is shortest.
    """
    columns, grouped = (f"{by}, ", f" GROUP BY {by}") if by else ("", "")
    if few or not any(is_wide(t) for _, t in diffs):
        sums = [(n, total(quote(n), t, beyond(n, t), grouped=bool(by))) for n, t in diffs]
        once = f"SELECT {columns}{_list(sums)} FROM ({query}) t{grouped}"
        return f"SELECT * FROM ({once}) WHERE {nonzero(diffs)}"
    sums_of = SumsQuery.of(diffs, beyond, grouped=bool(by), given=given, same=same)
    rows = f"SELECT {columns}{_list(sums_of.rows)} FROM ({query}) t"
    sums_ = f"SELECT {columns}{_list(sums_of.sums)} FROM ({rows}){grouped}"
    return f"SELECT {columns}{_list(sums_of.totals)} FROM ({sums_}) WHERE {sums_of.alive}"


def _list(texts: Sequence[tuple[str, Sql]]) -> str:
    return ", ".join(f"{text} AS {quote(n)}" for n, text in texts)


def _columns(keys: Sequence[Expr], schema: Schema) -> list[str] | None:
    """The columns of the rows that keys are; None where one is not a column."""
    columns = {(n,) for n, _ in schema.columns}
    found = [k.path for k in keys if isinstance(k, Field) and k.path in columns]
    return [quote(n) for (n,) in found] if keys and len(found) == len(keys) else None
