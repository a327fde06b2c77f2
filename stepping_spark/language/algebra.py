"""The relational algebra: functions from vertices and expressions to vertices.

A function takes the values of one step, as vertices of a circuit, and expressions over their rows:
maps, filters and sums; distinct and the set operations of SQL; joins; the first rows of groups. It
uses no row class, no function of the user, and no line of a program. A front end makes the
expressions, from Python (`language`) or from SQL (`sql`), applies these functions to its streams by
`language.trace.on_streams`, and adds the place to a `TypeMismatch`.

Of joins, `on` is the keys of the two sides, `where` a further condition over pairs of rows. NULL
keys match nothing, or with `null_safe` each other.

Imports `circuit` and the packages before it; nothing of `language`.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import (
    Add,
    Distinct,
    Filter,
    Join,
    Map,
    Neg,
    PositivePart,
    Top,
)
from stepping_spark.circuit.physical import Sorting
from stepping_spark.expressions.expr import Build, Expr, Field, Literal, PythonCall, whole
from stepping_spark.expressions.index import Key, Order, keys_where_null_is_equal
from stepping_spark.rows.atoms import INT, RowType
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import Optional, Struct, tuple_of, unwrap

On = tuple[Key, Key]
JoinSide = typing.Literal["left", "right", "full"]
"""The side whose rows stay without a match."""
ONE_KEY = Key(Literal(INT, 0))  # the same key for all rows
ONE_GROUP: tuple[Expr, ...] = (Literal(INT, 0),)  # the key of all rows, if there is no other


@dataclass
class TypeMismatch(Exception):
    """Streams whose types do not fit an operator."""

    what: str
    expected: str
    found: str


def row_of(a: Vertex) -> RowType:
    """The type of the rows of a vertex."""
    assert isinstance(a.type, ZSetType), a.type
    return a.type.row


def map(a: Vertex, f: Expr) -> Vertex:  # noqa: A001 - the field's name for it
    """Each row becomes `f`. Linear."""
    return Vertex(Map(f), a)


def filter(a: Vertex, where: Expr) -> Vertex:  # noqa: A001 - the field's name for it
    """The rows for which `where` is true. Linear.

    A Python predicate is a Python map to (row, verdict); these are filtered and mapped back.
    """
    if not isinstance(where, PythonCall):
        return Vertex(Filter(where), a)
    row = row_of(a)
    judged = Vertex(Map(beside(where, row)), a)
    true = Vertex(Filter(Field(where.type, ("right",))), judged)
    return Vertex(Map(Field(row, ("left",))), true)


def beside(f: PythonCall, row: RowType) -> PythonCall:
    """The Python function that returns a Pair of the row and `f(row)`."""
    return PythonCall(pair_of(row, f.type), f.function, f.name, beside=True)


def add(a: Vertex, *more: Vertex) -> Vertex:
    """The sum of streams of one type. Linear."""
    for b in more:
        a = Vertex(Add(), a, b)
    return a


def subtract(a: Vertex, b: Vertex) -> Vertex:
    """a − b. Linear."""
    return Vertex(Add(), a, Vertex(Neg(), b))


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
    either = distinct(s)
    return add(either, subtract(either, s))


def _check(what: str, a: Vertex, b: Vertex) -> None:
    rows = row_of(a), row_of(b)
    if rows[0] != rows[1]:
        raise TypeMismatch(what, "two ZSets of the same rows", f"{rows[0]} and {rows[1]}")


def join(
    l: Vertex,  # noqa: E741
    r: Vertex,
    *,
    on: On,
    where: Expr | None = None,
    null_safe: bool = False,
) -> Vertex:
    """l ⋈ r: the pairs of rows with equal keys. Weights multiply. Bilinear."""
    pairs = Vertex(Join(*(keys_where_null_is_equal(*on) if null_safe else on)), l, r)
    return pairs if where is None else filter(pairs, where)


def semijoin(
    l: Vertex,  # noqa: E741
    r: Vertex,
    *,
    on: On,
    where: Expr | None = None,
    null_safe: bool = False,
) -> Vertex:
    """l ⋉ r = π_left(l ⋈ distinct(keys of r)), and with `where` l − l ▷ r."""
    if where is not None:
        return subtract(l, antijoin(l, r, on=on, where=where, null_safe=null_safe))
    left, right = keys_where_null_is_equal(*on) if null_safe else on
    keys = distinct(map(r, right.expr))
    return map(join(l, keys, on=(left, _whole_row(keys))), Field(row_of(l), ("left",)))


def antijoin(
    l: Vertex,  # noqa: E741
    r: Vertex,
    *,
    on: On,
    where: Expr | None = None,
    null_safe: bool = False,
) -> Vertex:
    """l ▷ r = l − l ⋉ r, and with `where` (l − π_left(l ⋈ r where …))⁺."""
    if where is None:
        return subtract(l, semijoin(l, r, on=on, null_safe=null_safe))
    return unmatched(l, join(l, r, on=on, where=where, null_safe=null_safe), "left")


def outer_join(
    l: Vertex,  # noqa: E741
    r: Vertex,
    *,
    on: On,
    how: JoinSide = "left",
    where: Expr | None = None,
    null_safe: bool = False,
) -> Vertex:
    """l ⋈ r + null(l ▷ r), of the "left" side, and likewise "right" and "full"."""
    on = keys_where_null_is_equal(*on) if null_safe else on
    pairs = join(l, r, on=on, where=where)
    left = right = None
    if how != "right":
        left = antijoin(l, r, on=on) if where is None else unmatched(l, pairs, "left")
    if how != "left":
        right = antijoin(r, l, on=on[::-1]) if where is None else unmatched(r, pairs, "right")
    return completed(l, r, pairs, left, right)


def cross_join(
    l: Vertex,  # noqa: E741
    r: Vertex,
    *,
    how: typing.Literal["inner", "left"] = "inner",
    where: Expr | None = None,
) -> Vertex:
    """The join by a key that all rows share."""
    on = (ONE_KEY, ONE_KEY)
    if how == "inner":
        return join(l, r, on=on, where=where)
    return outer_join(l, r, on=on, how=how, where=where)


def _whole_row(a: Vertex) -> Key:
    """The row as its own key; each field of a tuple is a part."""
    row = row_of(a)
    if not isinstance(row, Struct) or row.python is not tuple:
        return Key(whole(row))
    fields = tuple(Field(t, (n,)) for n, t in row.fields)
    return Key(Build(row, fields), (True,) * len(fields))


def unmatched(a: Vertex, pairs: Vertex, side: str) -> Vertex:
    """(a − π_side(pairs))⁺: the rows of `a` that are in no pair, for tables."""
    return positive_part(subtract(a, map(pairs, Field(row_of(a), (side,)))))


def left_completed(l: Vertex, r: Vertex, pairs: Vertex) -> Vertex:  # noqa: E741
    """The pairs, and the rows of `l` that are in no pair, paired with NULL."""
    return completed(l, r, pairs, unmatched(l, pairs, "left"), None)


def completed(
    l: Vertex,  # noqa: E741
    r: Vertex,
    pairs: Vertex,
    left: Vertex | None,
    right: Vertex | None,
) -> Vertex:
    """The pairs, and the rows without a match on each side, paired with NULL."""
    rows = row_of(l), row_of(r)
    # If the right rows without a match are added, the left row may be NULL, and vice versa.
    a, b = (
        row if other is None else Optional(unwrap(row))
        for row, other in zip(rows, (right, left), strict=True)
    )

    def paired(stream: Vertex, left_expr: Expr, right_expr: Expr) -> Vertex:
        return map(stream, Build(pair_of(a, b), (left_expr, right_expr)))

    parts = [paired(pairs, Field(a, ("left",)), Field(b, ("right",)))]
    if left is not None:
        parts.append(paired(left, Field(a, whole(rows[0]).path), Literal(b, None)))
    if right is not None:
        parts.append(paired(right, Literal(a, None), Field(b, whole(rows[1]).path)))
    return add(*parts)


def first_n(
    a: Vertex,
    *,
    order: Sequence[Sorting],
    n: int,
    by: tuple[Expr, ...] = (),
    ties: bool = False,
    group_size: int | None = None,
) -> Vertex:
    """The first n rows of each group in an order; with `ties`, also rows that tie with the n-th.

    Keys and orders that SQL cannot express are computed first, beside the row.
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
    """The order of these parts; the place of NULL becomes a part of its own."""
    return tuple(part for s in sortings for part in s.order)


def under(sortings: Sequence[Sorting], exprs: Sequence[Expr]) -> tuple[Sorting, ...]:
    """The same directions, with the expressions replaced by these."""
    pairs = zip(sortings, exprs, strict=True)
    return tuple(dataclasses.replace(s, expr=e) for s, e in pairs)
