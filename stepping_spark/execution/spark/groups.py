"""The operators of groups in Spark SQL."""

from __future__ import annotations

from stepping_spark.circuit.physical import Gather, LargestByKey, Rank
from stepping_spark.execution.spark.text import key_names, ordered
from stepping_spark.rows.schema import COUNT
from stepping_spark.rows.sql_text import all_of, closed
from stepping_spark.rows.types import ListOf, quote


def top(op: Rank, query: str) -> str:
    """The first rows of a consolidated query, which has the keys beside its rows."""
    shown = ", ".join(quote(n) for n, _ in op.of.schema.columns)
    by = key_names(op.keys)
    count = f"CAST(least(t.{COUNT}, {op.n}L) AS DECIMAL(20, 0))"
    if op.ties:
        return _with_ties(op, query, count)
    window = (
        f"OVER (PARTITION BY {by} ORDER BY {ordered(op.order, op.of.schema.columns, 't')} "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )
    before = f"coalesce(sum({count}) {window}, 0)"
    ranked = f"SELECT t.*, {before} AS _before_ FROM ({query}) t WHERE t.{COUNT} > 0"
    kept = f"CAST(least({COUNT}, {op.n}L - _before_) AS BIGINT) AS {COUNT}"
    return f"SELECT {shown}, {kept} FROM ({ranked}) WHERE _before_ < {op.n}"


def _with_ties(op: Rank, query: str, count: str) -> str:
    """The rows with few rows before them in the order; ties are not before each other."""
    shown = ", ".join(quote(n) for n, _ in op.of.schema.columns)
    by = key_names(op.keys)
    order = ordered(op.order, (), "t")
    peers = ", ".join([by, *(e.sql("t") for e, _ in op.order)])
    so_far = f"sum({count}) OVER (PARTITION BY {by} ORDER BY {order})"
    before = closed(f"{so_far} - sum({count}) OVER (PARTITION BY {peers})")
    ranked = f"SELECT t.*, {before} AS _before_ FROM ({query}) t WHERE t.{COUNT} > 0"
    return f"SELECT {shown}, {COUNT} FROM ({ranked}) WHERE _before_ < {op.n}"


def listed(op: Gather, query: str) -> str:
    """The lists of a consolidated query's rows."""
    order = ordered(op.order, op.of.schema.columns, "t")
    ranked = (
        f"SELECT {op.key.sql('t')} AS k, {op.item.sql('t')} AS v, t.{COUNT} AS n, row_number() "
        f"OVER (PARTITION BY {op.key.sql('t')} ORDER BY {order}) AS at "
        f"FROM ({query}) t WHERE t.{COUNT} > 0"
    )
    # As structs, because collect_list leaves out NULLs.
    rows = "array_sort(collect_list(named_struct('at', at, 'v', named_struct('v', v), 'n', n)))"
    repeated = f"flatten(transform({rows}, r -> array_repeat(r.v, CAST(r.n AS INT))))"
    items = f"CAST(transform({repeated}, r -> r.v) AS {ListOf(op.item.type).ddl})"
    return f"SELECT {items} AS `left`, k AS `right`, 1L AS {COUNT} FROM ({ranked}) GROUP BY k"


def collated(op: LargestByKey, query: str) -> str:
    """The rows made of a consolidated query's pieces."""
    ((key, _), *pieces) = op.of.schema.columns
    largest = ", ".join(f"max({quote(n)}) AS {quote(n)}" for n, _ in pieces)
    kept = all_of(f"{quote(n)} IS NOT NULL" for n, _ in pieces[: op.required])
    rows = f"SELECT {quote(key)}, {largest} FROM ({query}) WHERE {COUNT} > 0 GROUP BY {quote(key)}"
    return f"SELECT *, 1L AS {COUNT} FROM ({rows}) WHERE {kept}"
