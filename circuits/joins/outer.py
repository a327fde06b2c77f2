"""Incremental outer joins, cross joins and range joins.

For a type checker, the row of the optional side is `R | Any`: an R, or None if there is no match.
A function of the pair may use its fields as they are; they are NULL if there is no match.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast, overload

from circuits.joins.inner import antijoin, join, keys_of_null_safe
from circuits.sets import more_often
from stepping_spark.query import linear, outer_joins, ranges
from stepping_spark.query.primitives import Key
from stepping_spark.rows.data import Pair
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
U = TypeVar("U")


@overload
def outer_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: Key[T],
    on_right: Key[U],
    how: Literal["left"] = "left",
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
) -> ZSet[Pair[T, U | Any]]: ...
@overload
def outer_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: Key[T],
    on_right: Key[U],
    how: Literal["right"],
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
) -> ZSet[Pair[T | Any, U]]: ...
@overload
def outer_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: Key[T],
    on_right: Key[U],
    how: Literal["full"],
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
) -> ZSet[Pair[T | Any, U | Any]]: ...
def outer_join(
    l: ZSet[T],  # noqa: E741
    r: ZSet[U],
    *,
    on_left: Key[T],
    on_right: Key[U],
    how: Literal["left", "right", "full"] = "left",
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
) -> ZSet[Any]:
    """The rows of l LEFT, RIGHT or FULL OUTER JOIN r ON …, kept up to date by their changes.

    A left join is l ⋈ r + null(l − l ⋉ r), and likewise for the right side. Rows without a match
    are taken from l itself, not from the join: l − left(l ⋈ r) would have negative weights if a row
    has two matches. `how`: "left" returns ZSet[Pair[L, R | None]], "right" ZSet[Pair[L | None, R]],
    "full" ZSet[Pair[L | None, R | None]]. NULL keys match nothing; their rows are paired with None,
    and are not gathered on one worker. With `null_safe` they match each other. `where`, a function
    of the `Pair`, is a further condition of the match, as in SQL's ON: a row is paired with None if
    it meets the condition with no row of equal key. The rows without a match are then
    (l − π_left(l ⋈ r where …))⁺, as in `antijoin`, and are stored by the whole row.

    State: both sides, arranged by their keys, and for each side that is preserved the number of
    rows of each key of the other side. A step reads the keys of the change from all of these.
    Raises `CompileError` if the two keys have different types, or for another `how`.

    >>> def query(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[st.Pair[int, int | None]]:
    ...     return st.outer_join(a, b, on_left=lambda x: x, on_right=lambda x: x)
    >>> step = st.ZSetPython({1: 2, 2: 1}), st.ZSetPython({1: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> out == st.ZSetPython({st.Pair(left=1, right=1): 2, st.Pair(left=2, right=None): 1})
    True
    """
    outer_joins.check_how(how)
    if null_safe is not False:
        on_left, on_right = keys_of_null_safe(l, r, on_left, on_right, "outer_join", null_safe)
    left = right = None
    if where is not None:
        joined = join(l, r, on_left=on_left, on_right=on_right, where=where)
        if how != "right":
            left = more_often(l, outer_joins.side_of(joined, l, "left"))
        if how != "left":
            right = more_often(r, outer_joins.side_of(joined, r, "right"))
        return outer_joins.completed(l, r, joined, left, right, None)
    if how != "right":
        left = antijoin(l, r, on_left=on_left, on_right=on_right)
    if how != "left":
        right = antijoin(r, l, on_left=on_right, on_right=on_left)
    joined = join(l, r, on_left=on_left, on_right=on_right)
    return outer_joins.completed(l, r, joined, left, right, None)


@overload
def cross_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    how: Literal["inner"] = "inner",
    where: Callable[[Pair[T, U]], object] | None = None,
) -> ZSet[Pair[T, U]]: ...
@overload
def cross_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    how: Literal["left"],
    where: Callable[[Pair[T, U]], object] | None = None,
) -> ZSet[Pair[T, U | Any]]: ...
def cross_join(
    l: ZSet[T],  # noqa: E741
    r: ZSet[U],
    *,
    how: Literal["inner", "left"] = "inner",
    where: Callable[[Pair[T, U]], object] | None = None,
) -> ZSet[Any]:
    """The rows of l CROSS JOIN r, kept up to date by their changes.

    Use it if one side has one row or a few: a scalar subquery, a table of rates, limits. It is a
    join by a key that all rows share: ZSet[Pair[L, R]]. With `how="left"` a row of l without a
    match is paired with None, ZSet[Pair[L, R | None]], as for a scalar subquery that may have no
    row. `where`, a function of the `Pair`, is a condition of the match. State: both inputs. A step
    reads all of r for a change of l, and all of l for a change of r. For rows that lie in intervals
    see `st.range_join`. Raises `CompileError` for another `how`.

    >>> def query(prices: st.ZSet[int], least: st.ZSet[int]) -> st.ZSet[int]:
    ...     pairs = st.cross_join(prices, least, where=lambda p: p.left >= p.right)
    ...     return st.map(pairs, f=lambda p: p.left)
    >>> step = st.ZSetPython({1: 1, 5: 2}), st.ZSetPython({3: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {5: 2}
    """
    outer_joins.check_cross(how)
    on: Any = outer_joins.EVERYTHING
    if how == "left":
        return outer_join(l, r, on_left=on, on_right=on, where=where)
    return join(l, r, on_left=on, on_right=on, where=where)


@overload
def range_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    at: Callable[[T], Any],
    low: Callable[[U], Any],
    high: Callable[[U], Any],
    width: int | float | dt.timedelta,
    bounds: Literal["[]", "[)", "(]", "()"] = "[]",
    on_left: Key[T] | None = None,
    on_right: Key[U] | None = None,
    how: Literal["inner"] = "inner",
    where: Callable[[Pair[T, U]], object] | None = None,
) -> ZSet[Pair[T, U]]: ...
@overload
def range_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    at: Callable[[T], Any],
    low: Callable[[U], Any],
    high: Callable[[U], Any],
    width: int | float | dt.timedelta,
    bounds: Literal["[]", "[)", "(]", "()"] = "[]",
    on_left: Key[T] | None = None,
    on_right: Key[U] | None = None,
    how: Literal["left"],
    where: Callable[[Pair[T, U]], object] | None = None,
) -> ZSet[Pair[T, U | Any]]: ...
def range_join(
    l: ZSet[T],  # noqa: E741
    r: ZSet[U],
    *,
    at: Callable[[T], Any],
    low: Callable[[U], Any],
    high: Callable[[U], Any],
    width: int | float | dt.timedelta,
    bounds: Literal["[]", "[)", "(]", "()"] = "[]",
    on_left: Key[T] | None = None,
    on_right: Key[U] | None = None,
    how: Literal["inner", "left"] = "inner",
    where: Callable[[Pair[T, U]], object] | None = None,
) -> ZSet[Any]:
    """The rows of l JOIN r ON at BETWEEN low AND high, kept up to date by their changes.

    ZSet[Pair[L, R]]; with `how="left"` a row of l that lies in no interval is paired with None.
    `at`, `low` and `high` have one type: `int`, `float`, `Decimal`, `date`, `datetime` or
    `LocalDateTime`. NULL lies in no interval. `bounds` says which ends belong to the interval. With
    `on_left` and `on_right`, rows must also have equal keys. `where`, a function of the `Pair`, is
    a further condition. For a join by inequalities without an interval, see `st.cross_join`.

    It joins by bands of this `width` (a number, or a timedelta): an interval is in every band that
    it touches, and a point is in one. Choose a width of about the length of an interval. Intervals
    of more than 64 bands are in one extra band with all points: they are compared with every point.
    State: l twice, and r once for each of its bands, by band. A step reads the bands of its rows.
    Raises `CompileError` for values of different types, or of types without bands.

    >>> def query(a: st.ZSet[int], b: st.ZSet[tuple[int, int]]) -> st.ZSet[int]:
    ...     pairs = st.range_join(a, b, at=lambda n: n, low=lambda i: i[0], high=lambda i: i[1],
    ...                           width=10)
    ...     return st.map(pairs, f=lambda p: p.left)
    >>> step = st.ZSetPython({5: 1, 25: 2}), st.ZSetPython({(20, 31): 1, (7, 25): 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {25: 4}
    """
    on = (on_left, on_right)
    banded = ranges.Banded.of(l, r, (at, low, high), width, bounds, on, how)
    by_left, by_right = cast(Any, banded.keys)
    joined = join(banded.points, banded.intervals, on_left=by_left, on_right=by_right)
    pairs = banded.pairs(joined)
    if where is not None:
        pairs = linear.filter(pairs, where)
    if how == "inner":
        return pairs
    alone = more_often(l, outer_joins.side_of(pairs, l, "left"))
    return outer_joins.completed(l, r, pairs, alone, None, None)
