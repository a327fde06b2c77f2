"""SQL's DISTINCT, UNION, INTERSECT and EXCEPT of the values of one step."""

from __future__ import annotations

from stepping_spark.algebra.rows import TypeMismatch, add, row_of, subtract
from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import Distinct, PositivePart


def distinct(a: Vertex) -> Vertex:
    """Every row with a positive weight, with weight 1."""
    return Vertex(Distinct(), a)


def positive_part(a: Vertex) -> Vertex:
    """x⁺ = max(x, 0): every row with a positive weight, with its weight."""
    return Vertex(PositivePart(), a)


def union(a: Vertex, b: Vertex, *, all: bool = False) -> Vertex:  # noqa: A002
    """a + b, and without `all` distinct(a + b)."""
    _check("union", a, b)
    return add(a, b) if all else distinct(add(a, b))


def intersect(a: Vertex, b: Vertex, *, all: bool = False) -> Vertex:  # noqa: A002
    """min(a, b) = a − (a − b)⁺, and without `all` distinct(min(a, b))."""
    _check("intersect", a, b)
    both = subtract(a, positive_part(subtract(a, b)))
    return both if all else distinct(both)


def except_(a: Vertex, b: Vertex, *, all: bool = False) -> Vertex:  # noqa: A002
    """(a − b)⁺, and without `all` (distinct(a) − distinct(b))⁺."""
    _check("except_", a, b)
    return positive_part(subtract(a, b) if all else subtract(distinct(a), distinct(b)))


def symmetric_difference(a: Vertex, b: Vertex) -> Vertex:
    """2·distinct(s) − s with s = distinct(a) + distinct(b): a row of both has weight 2 in s."""
    _check("symmetric_difference", a, b)
    s = add(distinct(a), distinct(b))
    some = distinct(s)
    return add(some, subtract(some, s))


def _check(what: str, a: Vertex, b: Vertex) -> None:
    rows = row_of(a), row_of(b)
    if rows[0] != rows[1]:
        raise TypeMismatch(what, "two ZSets of the same rows", f"{rows[0]} and {rows[1]}")
