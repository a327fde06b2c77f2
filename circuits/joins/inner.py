"""Incremental inner, semi and anti joins, and the half join."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from circuits.groups import distinct
from circuits.sets import more_often
from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.query import linear, outer_joins
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
    """The rows of l JOIN r ON on_left = on_right, kept up to date by the changes of l and r.

    D(I(l) ⋈ I(r)) = I(l) ⋈ r + l ⋈ z⁻¹I(r)  (DBSP, theorem 3.4). `ZSet[T]` and `ZSet[U]` to
    `ZSet[Pair[T, U]]`: left and right are two rows with equal keys. A key is a function of the row,
    or a `st.Index`. Weights multiply. NULL keys match nothing, or with `null_safe=True` each other
    (SQL's <=>). `where`, a function of the `Pair`, is a further condition on the pairs.

    State: both inputs, each arranged by its key. A step reads the keys of the change from both.
    Raises `CompileError` if the two keys have different types.

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
        on_left, on_right = keys_of_null_safe(l, r, on_left, on_right, "join", null_safe)
    l_integrated = linear.integrate_indexed(l, indexes=(on_left,))
    r_integrated = linear.integrate_delay_indexed(r, indexes=(on_right,))
    joined_1 = linear.join(l_integrated, r, on_left=on_left, on_right=on_right)
    joined_2 = linear.join(l, r_integrated, on_left=on_left, on_right=on_right)
    added = linear.add(joined_1, joined_2)
    return linear.filter(added, where) if where is not None else added


def keys_of_null_safe(
    l: object,  # noqa: E741
    r: object,
    on_left: Any,
    on_right: Any,
    what: str,
    null_safe: bool,
) -> Any:
    """The two keys, changed so that NULL matches NULL."""
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
    """The rows of l LEFT SEMI JOIN r, those with a match in r, kept up to date by their changes.

    l ⋉ r = π_left(l ⋈ distinct(keys of r)). Its parts are incremental (DBSP, theorem 3.4 and
    proposition 4.7), so it is incremental too (proposition 3.2, the chain rule). The result has
    rows of l with the weights of l, however many rows of r match: ZSet[L]. NULL keys match nothing,
    or with `null_safe` each other. A row is added with its first match, and removed with its last.
    State: l arranged by its key, and the number of rows of r for each key. A step reads the keys of
    the change from both.

    `where`, a function of a `Pair`, is a further condition of a match. Then l ⋉ r is l − l ▷ r, and
    state and cost are those of `antijoin`. Raises `CompileError` if the two keys have different
    types.

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
        on_left, on_right = keys_of_null_safe(l, r, on_left, on_right, "semijoin", null_safe)
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
    """The rows of l LEFT ANTI JOIN r, those without a match in r, kept up to date by their changes.

    l ▷ r = l − l ⋉ r, which is linear in its parts. The result has rows of l with the weights of l:
    ZSet[L]. A row with a NULL key has no match, as with NOT EXISTS in SQL, and passes without a
    lookup; with `null_safe`, NULL matches NULL. A row is removed when its first match is added, and
    returns when its last match is removed. State, cost and errors are those of `semijoin`.

    `where`, a function of a `Pair`, is a further condition of a match. Then l ▷ r is
    (l − π_left(l ⋈ r where …))⁺, for tables, which have no negative weights. State: both inputs,
    arranged by their keys, and that difference by the whole row. A step costs the rows of the
    change, and the rows that match them.

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
    """The rows of change JOIN r ON …; later changes of r do not update them.

    It is one term of the bilinear rule: change ⋈ I(r), or change ⋈ z⁻¹I(r) if `state` is "old",
    with r as it was before the step. Delta joins are sums of such terms. Rows are Pair(left, right)
    with equal keys, and weights multiply: ZSet[Pair[L, R]]. Only rows of `change` produce output.
    NULL keys match nothing, or with `null_safe` each other. `where` is a further condition on the
    pairs. State: r arranged by its key, and nothing of `change`. A step reads the keys of the
    change. Raises `CompileError` if the keys have different types, or for another `state`.

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
        on_left, on_right = keys_of_null_safe(change, r, on_left, on_right, "half_join", null_safe)
    if state == "new":
        known = linear.integrate_indexed(r, indexes=(on_right,))
    else:
        known = linear.integrate_delay_indexed(r, indexes=(on_right,))
    return linear.join(change, known, on_left=on_left, on_right=on_right, where=where)
