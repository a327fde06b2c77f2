"""Joins, lifted to changes: inner, semi, anti and outer joins, and joins of many tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

from circuits.groups import distinct
from circuits.sets import more_often
from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.query import linear, lookups, outer_joins, ranges
from stepping_spark.query.lookups import Lookup
from stepping_spark.query.primitives import Key
from stepping_spark.rows.data import Pair
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
U = TypeVar("U")


def join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: Key[T],
    on_right: Key[U],
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
) -> ZSet[Pair[T, U]]:
    """The changes of the join: D(I(l) ⋈ I(r)) = I(l) ⋈ r + l ⋈ z⁻¹I(r)  (DBSP, theorem 3.4).

    `ZSet[T]` and `ZSet[U]` to `ZSet[Pair[T, U]]`: left and right are the rows whose keys are equal,
    each key a function of the row or a `st.Index`; weights multiply. NULL keys match nothing, or,
    with `null_safe=True`, each other (SQL's <=>). `where` is a further condition on the pairs: a
    function of the `Pair`. Keeps both inputs, each arranged by its key. A step reads the keys of
    the change from both. Raises `CompileError` where the two keys are of different types.

    >>> def query(a: st.ZSet[str], b: st.ZSet[tuple[str, int]]) -> st.ZSet[int]:
    ...     pairs = st.join(a, b, on_left=lambda name: name, on_right=lambda row: row[0])
    ...     return st.map(pairs, f=lambda p: p.right[1])
    >>> step = st.reference(st.compile(query)).step
    >>> _ = step((st.ZSetPython({"x": 1, "y": 1}), None))
    >>> (out,) = step((None, st.ZSetPython({("x", 7): 2, ("z", 8): 1})))
    >>> dict(out.iter())
    {7: 2}
    """
    if null_safe is not False:
        on_left, on_right = _null_safe(l, r, on_left, on_right, "join", null_safe)
    l_integrated = linear.integrate_indexed(l, indexes=(on_left,))
    r_integrated = linear.integrate_delay_indexed(r, indexes=(on_right,))
    joined_1 = linear.join(l_integrated, r, on_left=on_left, on_right=on_right)
    joined_2 = linear.join(l, r_integrated, on_left=on_left, on_right=on_right)
    added = linear.add(joined_1, joined_2)
    return linear.filter(added, where) if where is not None else added


def _null_safe(
    l: object,  # noqa: E741
    r: object,
    on_left: Any,
    on_right: Any,
    what: str,
    null_safe: bool,
) -> Any:
    """The keys by which NULL matches NULL."""
    return outer_joins.keys_of_both(l, r, on_left, on_right, what, null_safe=null_safe)


def semijoin(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: Key[T],
    on_right: Key[U],
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
) -> ZSet[T]:
    """The changes of the rows that have a match: l ⋉ r = π_left(l ⋈ distinct(keys of r)).

    All its parts are lifted already (DBSP, theorem 3.4 and proposition 4.7), and what is made of
    lifted parts is (proposition 3.2, the chain rule). Rows are those of l with the weights of l,
    however many rows of r match: ZSet[L]. NULL keys match nothing, or with `null_safe` each other.
    A row comes when its first match does, and goes with its last. Keeps l arranged by its key, and
    of r how many rows each key has. A step reads the keys of the change from both.
    With `where`, a function of a `Pair`, a match is a row for which it is true too: l ⋉ r is
    l − l ▷ r, and state and cost are those of `antijoin`. Raises `CompileError` where the two keys
    are not of one type.

    >>> def query(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.semijoin(a, b, on_left=lambda x: x, on_right=lambda x: x)
    >>> step = st.ZSetPython({1: 2, 2: 1}), st.ZSetPython({1: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {1: 2}
    """
    if where is not None:
        alone = antijoin(l, r, on_left=on_left, on_right=on_right, where=where, null_safe=null_safe)
        return linear.add(l, linear.neg(alone))
    if null_safe is not False:
        on_left, on_right = _null_safe(l, r, on_left, on_right, "semijoin", null_safe)
    keys = outer_joins.keys_of(r, on_right)
    present = distinct(keys)
    matched = join(l, present, on_left=on_left, on_right=outer_joins.itself(present))
    return linear.map(matched, f=lambda pair: pair.left)


def antijoin(
    l: ZSet[T],  # noqa: E741
    r: ZSet[U],
    *,
    on_left: Key[T],
    on_right: Key[U],
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
) -> ZSet[T]:
    """The changes of the rows that have no match: l − l ⋉ r, which is linear in its parts.

    Rows are those of l with the weights of l: ZSet[L]. Rows with a NULL key are among them, as
    with NOT EXISTS in SQL; they pass without a lookup; with `null_safe` NULL matches NULL. A row
    goes when its first match comes, and comes back when its last has gone. State, cost and errors
    are those of `semijoin`.
    With `where`, a function of a `Pair`, a match is a row for which it is true too: l ▷ r is
    (l − π_left(l ⋈ r where …))⁺, for tables, which have no negative weights. Then it keeps both
    inputs arranged by their keys, and that difference by the whole row; a step costs the rows, and
    those that they match.

    >>> def query(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.antijoin(a, b, on_left=lambda x: x, on_right=lambda x: x)
    >>> step = st.ZSetPython({1: 2, 2: 1}), st.ZSetPython({1: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {2: 1}
    """
    if where is not None:
        joined = join(l, r, on_left=on_left, on_right=on_right, where=where, null_safe=null_safe)
        return more_often(l, outer_joins.side_of(joined, l, "left"))
    with_match = semijoin(l, r, on_left=on_left, on_right=on_right, null_safe=null_safe)
    return linear.add(l, linear.neg(with_match))


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
    """The changes of an outer join: l ⋈ r + null(l − l ⋉ r), and likewise for the right side.

    What is without a match is taken from l itself, not from the join: l − left(l ⋈ r) would have
    negative weights where a row matches two. `how`: "left" gives ZSet[Pair[L, R | None]], "right"
    ZSet[Pair[L | None, R]], "full" ZSet[Pair[L | None, R | None]]. NULL keys match nothing, and
    their rows come with None, by way of a sum: nothing gathers them on one worker. With `null_safe`
    they match each other. `where`, a function of the `Pair`, is a further condition of the match,
    as in SQL's ON: a row whose matches all fail it comes with None. What is without a match is then
    (l − π_left(l ⋈ r where …))⁺, as in `antijoin`, and kept by the whole row.
    Keeps both sides arranged by their keys, and for each completed side how many rows each key of
    the other has. A step reads the keys of the change from all of those. Raises `CompileError`
    where the two keys are not of one type, or for another `how`.

    >>> def query(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[st.Pair[int, int | None]]:
    ...     return st.outer_join(a, b, on_left=lambda x: x, on_right=lambda x: x)
    >>> step = st.ZSetPython({1: 2, 2: 1}), st.ZSetPython({1: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> out == st.ZSetPython({st.Pair(left=1, right=1): 2, st.Pair(left=2, right=None): 1})
    True
    """
    outer_joins.check_how(how)
    if null_safe is not False:
        on_left, on_right = _null_safe(l, r, on_left, on_right, "outer_join", null_safe)
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


def cross_join(
    l: ZSet[T],  # noqa: E741
    r: ZSet[U],
    *,
    how: Literal["inner", "left"] = "inner",
    where: Callable[[Pair[T, U]], object] | None = None,
) -> ZSet[Any]:
    """The changes of all pairs of rows: a join by a key that all rows share.

    For a side of one row or a few: a scalar subquery, a table of rates, limits. ZSet[Pair[L, R]];
    with `how="left"` a row of l that meets nothing comes beside None, ZSet[Pair[L, R | None]]: what
    a scalar subquery is that may have no row. `where`, a function of the `Pair`, is a further
    condition of the match. Keeps both inputs. A step reads all of the other side for the rows of a
    change: whatever r has for a change of l, and all of l where r changes. For rows that lie in
    intervals see `st.range_join`. Raises `CompileError` for another `how`.

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
    """The changes of the pairs where `at` of a row of l lies in an interval, `low` to `high`, of r.

    ZSet[Pair[L, R]]; with `how="left"` a row of l that lies in none comes beside None. Values are
    `int`, `float`, `Decimal`, `date`, `datetime` or `LocalDateTime`, all three of one type; NULL
    lies nowhere. `bounds` says which ends belong to the interval. With `on_left` and `on_right`,
    rows must have equal keys as well; `where`, a function of the `Pair`, is a further condition.
    For a join by inequalities alone, without an interval, see `st.cross_join`.

    A join by bands of so much `width` (a number, or a timedelta): an interval is in all that it
    touches, a point in one. A width of about the length of an interval is good. An interval of
    more than 64 bands is in one that all points are in: it is compared with all of them. Keeps l
    twice and r once for each band, by band. A step reads the bands of the rows. Raises
    `CompileError` for values that are of several types, or have no bands.

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


def half_join(
    change: ZSet[T],
    r: ZSet[U],
    *,
    on_left: Key[T],
    on_right: Key[U],
    state: Literal["new", "old"] = "new",
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
) -> ZSet[Pair[T, U]]:
    """One term of the bilinear rule: change ⋈ I(r), or change ⋈ z⁻¹I(r) where `state` is "old".

    Rows are Pair(left, right) whose keys are equal, weights multiplied: ZSet[Pair[L, R]]. It
    answers to rows of `change` only: those of r that come later make no pairs with it. NULL keys
    match nothing, or with `null_safe` each other; `where` is a further condition on the pairs.
    Keeps r arranged by its key, and nothing of `change`. A step reads the keys of the change.
    Raises `CompileError` where the keys are not of one type, or for another `state`.
    The operator is that of seed 001, by which delta joins are made.

    >>> def query(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[st.Pair[int, int]]:
    ...     return st.half_join(a, b, on_left=lambda x: x, on_right=lambda x: x, state="old")
    >>> reference = st.reference(st.compile(query))
    >>> one = st.ZSetPython({1: 1})
    >>> [out.empty() for step in ((one, one), (None, one), (one, None))
    ...     for out in reference.step(step)]
    [True, True, False]
    """
    if state not in ("new", "old"):
        raise CompileError(f"{user_line()}: state={state!r} of a half_join; it is 'new' or 'old'")
    if null_safe is not False:
        on_left, on_right = _null_safe(change, r, on_left, on_right, "half_join", null_safe)
    if state == "new":
        known = linear.integrate_indexed(r, indexes=(on_right,))
    else:
        known = linear.integrate_delay_indexed(r, indexes=(on_right,))
    return linear.join(change, known, on_left=on_left, on_right=on_right, where=where)


def delta_join(base: ZSet[Any], *tables: Lookup[Any]) -> ZSet[Any]:
    """The changes of a join of many: the sum, over its inputs, of what a change of each one does.

    The term of an input reads the new state of the inputs before it, and the old state of those
    after (DBSP, theorem 3.4, for a product of many). See `stepping_spark.graph.delta_join` for the
    way each term takes. Rows are tuples, ZSet[tuple[B, R1, R2, …]], of a left lookup with `R |
    None`; weights multiply. A left lookup has a match, or None: where nothing has the key, and
    where the key is NULL, which no worker gathers.
    Keeps the inputs only, each arranged by the keys that it is looked up by: its own, and those
    that later lookups read from it. Nothing that is joined is kept. A step reads, for each term,
    the rows that its change leads to; of a left lookup also the rows of the keys that change.
    Raises `CompileError` for a lookup whose key is not made of fields and operators on them, or of
    which no part is read from one input alone.

    >>> def query(facts: st.ZSet[tuple[str, int]], users: st.ZSet[tuple[int, str]]) -> st.ZSet[
    ...     tuple[tuple[str, int], tuple[int, str]]
    ... ]:
    ...     user = st.Lookup(users, key=lambda u: u[0], on=lambda row: row[0][1])
    ...     return st.delta_join(facts, user)
    >>> step = st.ZSetPython({("tea", 1): 1}), st.ZSetPython({(1, "Ann"): 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {(('tea', 1), (1, 'Ann')): 1}
    """
    return lookups.joined(base, tables)
