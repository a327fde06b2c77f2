"""Inner, semi, anti, outer and cross joins of the values of one step.

`on` is the keys of the two sides, `where` a further condition over pairs of rows. NULL keys match
nothing, or with `null_safe` each other.
"""

from __future__ import annotations

import typing

from stepping_spark.algebra.rows import (
    add,
    filter,  # noqa: A004
    map,  # noqa: A004
    row_of,
    subtract,
)
from stepping_spark.algebra.sets import distinct, positive_part
from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import Join
from stepping_spark.expressions.expr import Build, Expr, Field, Literal, whole
from stepping_spark.expressions.index import Key, keys_where_null_is_equal
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.types import Optional, Struct, unwrap

On = tuple[Key, Key]
JoinSide = typing.Literal["left", "right", "full"]
"""The side whose rows stay without a match."""
ONE_KEY = Key(Literal(INT, 0))  # the same key for all rows


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

    def paired(stream: Vertex, own: Expr, other: Expr) -> Vertex:
        return map(stream, Build(pair_of(a, b), (own, other)))

    parts = [paired(pairs, Field(a, ("left",)), Field(b, ("right",)))]
    if left is not None:
        parts.append(paired(left, Field(a, whole(rows[0]).path), Literal(b, None)))
    if right is not None:
        parts.append(paired(right, Literal(a, None), Field(b, whole(rows[1]).path)))
    return add(*parts)
