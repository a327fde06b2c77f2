"""Semijoins, antijoins, outer and delta joins of the values of one step."""

from __future__ import annotations

from typing import Any, Literal, TypeVar, cast

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.expressions.expr import Build, Expr, Field
from stepping_spark.expressions.expr import Literal as Constant
from stepping_spark.expressions.index import Index, Key, key_of
from stepping_spark.graph.operators import Distinct, Join, Map
from stepping_spark.query.lookups import Lookup, operators_of
from stepping_spark.query.primitives import Key as By
from stepping_spark.query.primitives import add, add3, neg
from stepping_spark.query.trace import make, row_of
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.types import Optional, Struct, unwrap
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
U = TypeVar("U")
Sides = Literal["left", "right", "full"]


def semijoin(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    on_left: By[T],
    on_right: By[U],
    *,
    name: str | None = None,
) -> ZSet[T]:
    """The rows of a value that have a match: l ⋉ r = π_left(l ⋈ distinct(keys of r)).

    Weights are those of l, however many rows match. A NULL key matches nothing. Keeps no state.
    """
    keys = make(Distinct(), keys_of(r, on_right))
    return cast("ZSet[T]", make(left_of(l), matched(l, keys, on_left), name=name))


def antijoin(
    l: ZSet[T],  # noqa: E741
    r: ZSet[U],
    on_left: By[T],
    on_right: By[U],
    *,
    name: str | None = None,
) -> ZSet[T]:
    """The rows of a value that have no match: l − l ⋉ r.

    Weights are those of l. A NULL key matches nothing, so its rows are among them, as with NOT
    EXISTS in SQL. Keeps no state.
    """
    return add(l, neg(semijoin(l, r, on_left, on_right)), name=name)


def outer_join(
    l: ZSet[T],  # noqa: E741
    r: ZSet[U],
    on_left: By[T],
    on_right: By[U],
    how: Sides = "left",
    *,
    name: str | None = None,
) -> ZSet[Any]:
    """The pairs of a value whose keys are equal, and the rows without a match beside None.

    `how`: "left" gives ZSet[Pair[L, R | None]], "right" ZSet[Pair[L | None, R]], "full" both:
    ZSet[Pair[L | None, R | None]]. NULL keys match nothing. Keeps no state.
    """
    left = right = None
    if how in ("left", "full"):
        left = antijoin(l, r, on_left, on_right)
    if how in ("right", "full"):
        right = antijoin(r, l, on_right, on_left)
    keys = (
        key_of(on_left, row_of(l, "a join"), "on_left"),
        key_of(on_right, row_of(r, "a join"), "on_right"),
    )
    return completed(l, r, make(Join(*keys), l, r), left, right, how, name)


def delta_join(base: ZSet[Any], *lookups: Lookup[Any], name: str | None = None) -> ZSet[Any]:
    """The tuples of a value's rows and what each lookup has for them: (base, r1, r2, …).

    Of an inner lookup all rows with the key, of a left one None where there is none. Keeps no
    state. Raises `CompileError` where `st.delta_join` does.
    """
    joined: Any = base
    operators = operators_of(base, lookups)
    for n, (operator, lookup) in enumerate(zip(operators, lookups, strict=True), 1):
        joined = make(operator, joined, lookup.r, name=name if n == len(lookups) else None)
    return cast("ZSet[Any]", joined)


# -- the parts, which the lifted circuits are made of too


def keys_of(a: object, by: By[Any]) -> Any:
    """The keys of rows, as rows: a map."""
    return make(Map(key_of(by, row_of(a, "a join"), "on_right").expr), a)


def matched(a: object, keys: object, by: By[Any]) -> Any:
    """The join of rows with keys that are rows themselves."""
    return make(Join(key_of(by, row_of(a, "a join"), "on_left"), _identity(keys)), a, keys)


def itself(keys: object) -> Index[Any, Any]:
    """The index of keys that are rows, by themselves."""
    of: Any = row_of(keys, "a join")
    return Index.identity(of)


def _identity(keys: object) -> Key:
    return key_of(itself(keys), row_of(keys, "a join"), "keys")


def whole(row: RowType) -> Field:
    """The row itself."""
    return Field(row, () if isinstance(row, Struct) else ("_value_",))


def left_of(a: object) -> Map:
    """The map from pairs to their left rows."""
    return Map(Field(row_of(a, "a join"), ("left",)))


def completed(
    l: object,  # noqa: E741
    r: object,
    joined: object,
    left: object | None,
    right: object | None,
    how: str,
    name: str | None,
) -> ZSet[Any]:
    """The joined pairs, and the rows that are left alone on each side, beside NULL."""
    if left is None and right is None:
        raise CompileError(
            f"{user_line()}: how={how!r} of an outer_join; it is 'left', 'right' or 'full'"
        )
    rows = row_of(l, "a join"), row_of(r, "a join")
    # Where the right side is completed, the left one may be missing, and the other way round.
    types = tuple(
        row if other is None else Optional(unwrap(row))
        for row, other in zip(rows, (right, left), strict=True)
    )

    def pairs(stream: object, a: Expr, b: Expr) -> Any:
        return make(Map(Build(pair_of(*types), (a, b))), stream)

    parts = [pairs(joined, Field(types[0], ("left",)), Field(types[1], ("right",)))]
    if left is not None:
        alone = Field(types[0], whole(rows[0]).path)
        parts.append(pairs(left, alone, Constant(types[1], None)))
    if right is not None:
        alone = Field(types[1], whole(rows[1]).path)
        parts.append(pairs(right, Constant(types[0], None), alone))
    if len(parts) == 3:
        return cast("ZSet[Any]", add3(*parts, name=name))
    return cast("ZSet[Any]", add(*parts, name=name))
