"""Semijoins, antijoins and outer joins of the values of one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast, overload

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.expressions.expr import Build, Expr, Field
from stepping_spark.expressions.expr import Literal as Constant
from stepping_spark.expressions.index import Index, Key, key_of, keys_where_null_is_equal
from stepping_spark.graph.operators import Distinct, Join, Map
from stepping_spark.query.primitives import Key as By
from stepping_spark.query.primitives import add, add3, filter, neg  # noqa: A004
from stepping_spark.query.sets import positive_part
from stepping_spark.query.trace import make, row_of
from stepping_spark.rows.atoms import INT, RowType
from stepping_spark.rows.data import Pair, pair_of
from stepping_spark.rows.types import Optional, Struct, unwrap
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
U = TypeVar("U")
Sides = Literal["left", "right", "full"]


def semijoin(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: By[T],
    on_right: By[U],
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
    name: str | None = None,
) -> ZSet[T]:
    """l LEFT SEMI JOIN r, of the values of one step: the rows of l with a match in r.

    l ⋉ r = π_left(l ⋈ distinct(keys of r)). Weights are those of l, however many rows match. A NULL
    key matches nothing, or with `null_safe` NULL. `where` is a further condition of a match; then
    l ⋉ r = l − l ▷ r. Keeps no state.
    """
    if where is not None:
        alone = antijoin(l, r, on_left=on_left, on_right=on_right, where=where, null_safe=null_safe)
        return add(l, neg(alone), name=name)
    left, right = keys_of_both(l, r, on_left, on_right, "semijoin", null_safe=null_safe)
    keys = make(Distinct(), keys_of(r, right))
    return cast("ZSet[T]", make(left_of(l), matched(l, keys, left), name=name))


def antijoin(
    l: ZSet[T],  # noqa: E741
    r: ZSet[U],
    *,
    on_left: By[T],
    on_right: By[U],
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
    name: str | None = None,
) -> ZSet[T]:
    """l LEFT ANTI JOIN r, of the values of one step: the rows of l without a match in r.

    l ▷ r = l − l ⋉ r. Weights are those of l. A NULL key matches nothing, so its rows are in the
    result, as with NOT EXISTS in SQL; with `null_safe`, NULL matches NULL. `where` is a further
    condition of a match; then l ▷ r = (l − π_left(l ⋈ r where …))⁺. Keeps no state.
    """
    if where is not None:
        keys = keys_of_both(l, r, on_left, on_right, "antijoin", null_safe=null_safe)
        pairs = filter(cast("ZSet[Any]", make(Join(*keys), l, r)), where)
        return positive_part(add(l, neg(side_of(pairs, l, "left"))), name=name)
    with_match = semijoin(l, r, on_left=on_left, on_right=on_right, null_safe=null_safe)
    return add(l, neg(with_match), name=name)


@overload
def outer_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: By[T],
    on_right: By[U],
    how: Literal["left"] = "left",
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
    name: str | None = None,
) -> ZSet[Pair[T, U | Any]]: ...
@overload
def outer_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: By[T],
    on_right: By[U],
    how: Literal["right"],
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
    name: str | None = None,
) -> ZSet[Pair[T | Any, U]]: ...
@overload
def outer_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: By[T],
    on_right: By[U],
    how: Literal["full"],
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
    name: str | None = None,
) -> ZSet[Pair[T | Any, U | Any]]: ...
def outer_join(
    l: ZSet[T],  # noqa: E741
    r: ZSet[U],
    *,
    on_left: By[T],
    on_right: By[U],
    how: Sides = "left",
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
    name: str | None = None,
) -> ZSet[Any]:
    """l LEFT, RIGHT or FULL OUTER JOIN r, of the values of one step.

    Rows without a match are paired with None. `how`: "left" returns ZSet[Pair[L, R | None]],
    "right" ZSet[Pair[L | None, R]], "full" ZSet[Pair[L | None, R | None]]. NULL keys match nothing,
    or with `null_safe` each other. `where` is a further condition of a match. Keeps no state.
    """
    check_how(how)
    keys = keys_of_both(l, r, on_left, on_right, "outer_join", null_safe=null_safe)
    left = right = None
    if where is not None:
        joined = filter(cast("ZSet[Any]", make(Join(*keys), l, r)), where)
        if how != "right":
            left = positive_part(add(l, neg(side_of(joined, l, "left"))))
        if how != "left":
            right = positive_part(add(r, neg(side_of(joined, r, "right"))))
        return completed(l, r, joined, left, right, name)
    by_left, by_right = cast(Any, keys)
    if how != "right":
        left = antijoin(l, r, on_left=by_left, on_right=by_right)
    if how != "left":
        right = antijoin(r, l, on_left=by_right, on_right=by_left)
    return completed(l, r, make(Join(*keys), l, r), left, right, name)


@overload
def cross_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    how: Literal["inner"] = "inner",
    where: Callable[[Pair[T, U]], object] | None = None,
    name: str | None = None,
) -> ZSet[Pair[T, U]]: ...
@overload
def cross_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    how: Literal["left"],
    where: Callable[[Pair[T, U]], object] | None = None,
    name: str | None = None,
) -> ZSet[Pair[T, U | Any]]: ...
def cross_join(
    l: ZSet[T],  # noqa: E741
    r: ZSet[U],
    *,
    how: Literal["inner", "left"] = "inner",
    where: Callable[[Pair[T, U]], object] | None = None,
    name: str | None = None,
) -> ZSet[Any]:
    """l CROSS JOIN r, of the values of one step; with `where`, the pairs for which it is true.

    See `st.cross_join`. Keeps no state.
    """
    check_cross(how)
    on: Any = EVERYTHING
    if how == "left":
        return outer_join(l, r, on_left=on, on_right=on, where=where, name=name)
    joined: ZSet[Any] = make(Join(on, on), l, r, name=None if where else name)  # type: ignore[assignment]
    return filter(joined, where, name=name) if where else joined


# -- the parts; the incremental joins use them too


EVERYTHING = Key(Constant(INT, 0))  # the same key for all rows


def keys_of_both(
    l: object,  # noqa: E741
    r: object,
    on_left: By[Any] | Key,
    on_right: By[Any] | Key,
    what: str,
    *,
    null_safe: bool = False,
) -> tuple[Key, Key]:
    """The keys of the two sides of a join."""
    check_null_safe(null_safe)
    left = key_of(on_left, row_of(l, what), f"on_left of {what}")
    right = key_of(on_right, row_of(r, what), f"on_right of {what}")
    return keys_where_null_is_equal(left, right) if null_safe else (left, right)


def check_null_safe(null_safe: object) -> None:
    """Raise `CompileError` if it is not True or False."""
    if type(null_safe) is not bool:
        raise CompileError(
            f"{user_line()}: null_safe={null_safe!r}: expected True, so that NULL keys "
            "match each other, or False"
        )


def check_how(how: str) -> None:
    """Raise `CompileError` if it is not a kind of outer join."""
    if how not in ("left", "right", "full"):
        raise CompileError(
            f"{user_line()}: how={how!r} of an outer_join; it is 'left', 'right' or 'full'"
        )


def check_cross(how: str) -> None:
    """Raise `CompileError` if it is not a kind of cross join."""
    if how not in ("inner", "left"):
        raise CompileError(f"{user_line()}: how={how!r} of a cross_join; it is 'inner' or 'left'")


def side_of(pairs: object, a: object, side: str) -> Any:
    """The rows on one side of pairs; their type is that of the stream `a`."""
    return make(Map(Field(row_of(a, "a join"), (side,))), pairs)


def keys_of(a: object, by: By[Any] | Key) -> Any:
    """The stream of the keys of the rows."""
    return make(Map(key_of(by, row_of(a, "a join"), "on_right").expr), a)


def matched(a: object, keys: object, by: By[Any] | Key) -> Any:
    """The join of rows with a stream of keys."""
    return make(Join(key_of(by, row_of(a, "a join"), "on_left"), _identity(keys)), a, keys)


def _identity(keys: object) -> Key:
    of: Any = row_of(keys, "a join")
    return key_of(Index.identity(of), of, "keys")


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
    name: str | None,
) -> ZSet[Any]:
    """The joined pairs, and the rows without a match on each side, paired with NULL."""
    rows = row_of(l, "a join"), row_of(r, "a join")
    # If the right rows without a match are added, the left row may be NULL, and vice versa.
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
