"""Semijoins, antijoins and outer joins of the values of one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast, overload

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.functions import row_expr
from stepping_spark.expressions.index import Key, key_of
from stepping_spark.language import algebra
from stepping_spark.language.primitives import KeyFunction
from stepping_spark.language.trace import on_streams, row_of
from stepping_spark.rows.data import Pair, pair_of
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
U = TypeVar("U")


def semijoin(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: KeyFunction[T],
    on_right: KeyFunction[U],
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
    name: str | None = None,
) -> ZSet[T]:
    """l LEFT SEMI JOIN r, of the values of one step: the rows of l with a match in r.

    l ⋉ r = π_left(l ⋈ distinct(keys of r)). Weights are those of l, however many rows match. A NULL
    key matches nothing, or with `null_safe` NULL. `where` is a further condition of a match; then
    l ⋉ r = l − l ▷ r. Keeps no state.
    """
    arguments = matching(l, r, on_left, on_right, "semijoin", where, null_safe=null_safe)
    return cast("ZSet[T]", on_streams(algebra.semijoin)(l, r, **arguments, name=name))


def antijoin(
    l: ZSet[T],  # noqa: E741
    r: ZSet[U],
    *,
    on_left: KeyFunction[T],
    on_right: KeyFunction[U],
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
    name: str | None = None,
) -> ZSet[T]:
    """l LEFT ANTI JOIN r, of the values of one step: the rows of l without a match in r.

    l ▷ r = l − l ⋉ r. Weights are those of l. A NULL key matches nothing, so its rows are in the
    result, as with NOT EXISTS in SQL; with `null_safe`, NULL matches NULL. `where` is a further
    condition of a match; then l ▷ r = (l − π_left(l ⋈ r where …))⁺. Keeps no state.
    """
    arguments = matching(l, r, on_left, on_right, "antijoin", where, null_safe=null_safe)
    return cast("ZSet[T]", on_streams(algebra.antijoin)(l, r, **arguments, name=name))


@overload
def outer_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: KeyFunction[T],
    on_right: KeyFunction[U],
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
    on_left: KeyFunction[T],
    on_right: KeyFunction[U],
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
    on_left: KeyFunction[T],
    on_right: KeyFunction[U],
    how: Literal["full"],
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
    name: str | None = None,
) -> ZSet[Pair[T | Any, U | Any]]: ...
def outer_join(
    l: ZSet[T],  # noqa: E741
    r: ZSet[U],
    *,
    on_left: KeyFunction[T],
    on_right: KeyFunction[U],
    how: algebra.JoinSide = "left",
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
    name: str | None = None,
) -> ZSet[Any]:
    """l LEFT, RIGHT or FULL OUTER JOIN r, of the values of one step.

    Rows without a match are paired with None. `how`: "left" returns ZSet[Pair[L, R | None]],
    "right" ZSet[Pair[L | None, R]], "full" ZSet[Pair[L | None, R | None]]. NULL keys match nothing,
    or with `null_safe` each other. `where` is a further condition of a match. Keeps no state.
    """
    if how not in ("left", "right", "full"):
        raise CompileError(
            f"{user_line()}: how={how!r} of an outer_join; it is 'left', 'right' or 'full'"
        )
    arguments = matching(l, r, on_left, on_right, "outer_join", where, null_safe=null_safe)
    joined = on_streams(algebra.outer_join)(l, r, how=how, **arguments, name=name)
    return cast("ZSet[Any]", joined)


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
    if how not in ("inner", "left"):
        raise CompileError(f"{user_line()}: how={how!r} of a cross_join; it is 'inner' or 'left'")
    condition = where_of(l, r, "cross_join", where)
    joined = on_streams(algebra.cross_join)(l, r, how=how, where=condition, name=name)
    return cast("ZSet[Any]", joined)


def matching(
    l: object,  # noqa: E741
    r: object,
    on_left: KeyFunction[Any] | Key,
    on_right: KeyFunction[Any] | Key,
    what: str,
    where: Callable[[Any], object] | None = None,
    *,
    null_safe: bool = False,
) -> dict[str, Any]:
    """The arguments of the joins of the algebra: the keys of the two sides, and the condition."""
    if type(null_safe) is not bool:
        raise CompileError(
            f"{user_line()}: null_safe={null_safe!r}: expected True, so that NULL keys "
            "match each other, or False"
        )
    left = key_of(on_left, row_of(l, what), f"on_left of {what}")
    right = key_of(on_right, row_of(r, what), f"on_right of {what}")
    condition = where_of(l, r, what, where)
    return {"on": (left, right), "where": condition, "null_safe": null_safe}


def where_of(
    l: object,  # noqa: E741
    r: object,
    what: str,
    where: Callable[[Any], object] | None,
) -> Expr | None:
    """The condition over the pairs of rows."""
    return None if where is None else row_expr(where, pair_of(row_of(l, what), row_of(r, what)))
