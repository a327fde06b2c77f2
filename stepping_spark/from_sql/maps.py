"""Maps and filters of relations, and keys and orders as the operators take them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from sqlglot import exp

from stepping_spark.algebra import rows
from stepping_spark.expressions.expr import Build
from stepping_spark.expressions.index import Key
from stepping_spark.from_sql.columns import Column, Expr
from stepping_spark.from_sql.plan import Item
from stepping_spark.from_sql.relation import Relation, built, fields_of
from stepping_spark.physical import Sorting
from stepping_spark.query.primitives import map as map_
from stepping_spark.query.trace import on_streams
from stepping_spark.rows.types import tuple_of


def projected(source: Relation, items: Sequence[Item]) -> Relation:
    """The relation with a column for each expression."""
    columns = [c for c, _ in items]
    names = fields_of(columns)
    kinds: dict[Column, str] = {}

    def row_of(row: Any) -> Any:
        values = [source.value(e, row) for _, e in items]
        kinds.update(zip(columns, (v.kind for v in values), strict=True))
        return built(names, [v.column for v in values])

    stream = map_(source.stream, f=row_of)
    return Relation(
        stream, {c: (n,) for c, n in zip(columns, names, strict=True)}, kinds, source.text
    )


def filtered(source: Relation, conditions: Sequence[Expr]) -> Relation:
    """The rows for which all conditions are true."""
    where = source.expr(all_of(conditions), "boolean")
    return source.with_stream(on_streams(rows.filter)(source.stream, where=where))


def all_of(conditions: Sequence[Expr]) -> Expr:
    """The conditions, connected by AND."""
    return reduce(lambda a, b: exp.And(this=a, expression=b), conditions)


def key_of(source: Relation, exprs: Sequence[Expr], kinds: Sequence[str | None] = ()) -> Key:
    """A key: one expression, or a tuple of them, converted to Spark types."""
    kinds = kinds or (None,) * len(exprs)
    parts = tuple(source.expr(e, k) for e, k in zip(exprs, kinds, strict=True))
    if len(parts) == 1:
        return Key(parts[0])
    return Key(Build(tuple_of(p.type for p in parts), parts), (True,) * len(parts))


def order_of(source: Relation, order: Sequence[Expr]) -> list[Sorting]:
    """The parts of an ORDER BY."""
    parts = []
    for o in order:
        ascending, first = not o.args.get("desc"), o.args.get("nulls_first")
        parts.append(Sorting(source.expr(o.this), ascending, ascending if first is None else first))
    return parts
