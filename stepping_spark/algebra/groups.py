"""The first rows of groups, of the values of one step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from stepping_spark.algebra.rows import map, row_of  # noqa: A004
from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import Top
from stepping_spark.circuit.physical import Sorting
from stepping_spark.expressions.expr import Build, Expr, Field, Literal, whole
from stepping_spark.expressions.index import Order
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.types import tuple_of

ONE_GROUP: tuple[Expr, ...] = (Literal(INT, 0),)  # the key of all rows, if there is no other


def first_n(
    a: Vertex,
    *,
    order: Sequence[Sorting],
    n: int,
    by: tuple[Expr, ...] = (),
    ties: bool = False,
    group_size: int | None = None,
) -> Vertex:
    """The first n rows in an order, of each group; with `ties`, those that tie with the n-th too.

    What SQL cannot express is computed first, beside the row.
    """
    parts = (*by, *(s.expr for s in order))
    if all(p.in_sql for p in parts):
        return Vertex(Top(by or ONE_GROUP, order_of(order), n, ties, group_size), a)
    row, computed = row_of(a), tuple_of(p.type for p in parts)
    beside = Build(pair_of(row, computed), (whole(row), Build(computed, parts)))
    fields = tuple(Field(p.type, ("right", f"_{i}")) for i, p in enumerate(parts, 1))
    carried = order_of(under(order, fields[len(by) :]))
    top = Top(fields[: len(by)] or ONE_GROUP, carried, n, ties, group_size)
    return map(Vertex(top, map(a, beside)), Field(row, ("left",)))


def order_of(sortings: Iterable[Sorting]) -> Order:
    """The order of these parts; whether NULL comes first becomes a part of its own."""
    return tuple(part for s in sortings for part in s.order)


def under(sortings: Sequence[Sorting], exprs: Sequence[Expr]) -> tuple[Sorting, ...]:
    """The same parts, with these expressions in their place."""
    pairs = zip(sortings, exprs, strict=True)
    return tuple(dataclasses.replace(s, expr=e) for s, e in pairs)
