"""Common pieces of Spark SQL: lists of columns, keys, and consolidation."""

from __future__ import annotations

from collections.abc import Sequence

from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.index import Order
from stepping_spark.relations.sums.overflow import SumsQuery, beyond, total
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.schema import COUNT, Columns, Schema
from stepping_spark.rows.sql_text import Sql, all_of
from stepping_spark.rows.types import quote


def names(columns: Columns, row: str = "") -> str:
    """A list of columns."""
    prefix = f"{quote(row)}." if row else ""
    return ", ".join(prefix + quote(n) for n, _ in columns)


def spread(expr: Sql, columns: Columns) -> list[str]:
    """The columns of an expression whose value is a row."""
    return [f"{expr}.{quote(n)} AS {quote(n)}" for n, _ in columns]


def equal(left: Sequence[Sql], right: Sequence[Sql]) -> Sql:
    """The condition that the parts of two keys are equal."""
    return all_of(f"{a} = {b}" for a, b in zip(left, right, strict=True))


def ordered(order: Order, columns: Columns, row: str) -> str:
    """An ORDER BY: the order, then the whole row."""
    parts = [f"{e.sql(row)} {'ASC' if up else 'DESC'}" for e, up in order]
    return ", ".join([*parts, *(f"{quote(row)}.{quote(n)}" for n, _ in columns)])


def key_names(keys: Sequence[Expr]) -> str:
    """The names of the columns of keys in a query."""
    return ", ".join(f"_k{i}_" for i, _ in enumerate(keys))


WEIGHT = total(quote(COUNT), INT, beyond(COUNT, INT))


def consolidated(query: str, schema: Schema, keys: Sequence[Expr] = ()) -> str:
    """The consolidated query: equal rows are merged, and rows with zero diffs are left out.

    With keys, it has their columns too: see `key_names`.
    """
    by = names(schema.columns)
    if keys:
        computed = ", ".join(f"{k.sql('t')} AS _k{i}_" for i, k in enumerate(keys))
        query = f"SELECT {names(schema.all, 't')}, {computed} FROM ({query}) t"
        by = f"{by}, {key_names(keys)}"
    columns, grouped = (f"{by}, ", f" GROUP BY {by}") if by else ("", "")
    sums = SumsQuery.of(schema.diffs, beyond, grouped=bool(by))
    rows = f"SELECT {columns}{_list(sums.rows)} FROM ({query}) t"
    added = f"SELECT {columns}{_list(sums.sums)} FROM ({rows}){grouped}"
    return f"SELECT {columns}{_list(sums.totals)} FROM ({added}) WHERE {sums.alive}"


def _list(texts: Sequence[tuple[str, Sql]]) -> str:
    return ", ".join(f"{text} AS {quote(n)}" for n, text in texts)
