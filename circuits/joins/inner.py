"""Inner, semi and anti joins, lifted to changes, and half of a join."""

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
    """The changes of l JOIN r: D(I(l) ⋈ I(r)) = I(l) ⋈ r + l ⋈ z⁻¹I(r)  (DBSP, theorem 3.4).

    `ZSet[T]` and `ZSet[U]` to `ZSet[Pair[T, U]]`: left and right are the rows whose keys are equal;
    a key is a function of the row or a `st.Index`. Weights multiply. NULL keys match nothing, or,
    with `null_safe=True`, each other (SQL's <=>). `where` is a further condition on the pairs: a
    function of the `Pair`. Keeps both inputs, each arranged by its key. A step reads the keys of
    the change from both. Raises `CompileError` if the two keys have different types.

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

    It is made of lifted parts (DBSP, theorem 3.4 and proposition 4.7), so it is lifted itself
    (proposition 3.2, the chain rule). The result has rows of l with the weights of l, however many
    rows of r match: ZSet[L]. NULL keys match nothing, or with `null_safe` each other. A row is
    added with its first match, and removed with its last. Keeps l arranged by its key, and of r how
    many rows each key has. A step reads the keys of the change from both.

    With `where`, a function of a `Pair`, only rows for which it is true are matches: l ⋉ r is l − l
    ▷ r, and state and cost are those of `antijoin`. Raises `CompileError` if the two keys have
    different types.

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
    """The changes of the rows that have no match: l − l ⋉ r, which is linear in its parts.

    The result has rows of l with the weights of l: ZSet[L]. Rows with a NULL key have no match, as
    with NOT EXISTS in SQL, and pass without a look-up; with `null_safe`, NULL matches NULL. A row
    is removed when its first match is added, and returns when its last match is removed. State,
    cost and errors are those of `semijoin`.

    With `where`, a function of a `Pair`, only rows for which it is true are matches: l ▷ r is (l −
    π_left(l ⋈ r where …))⁺, for tables, which have no negative weights. Then it keeps both inputs
    arranged by their keys, and that difference by the whole row. A step costs the rows of the
    change, and those that they match.

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
    """One term of the bilinear rule: change ⋈ I(r), or change ⋈ z⁻¹I(r) if `state` is "old".

    Rows are Pair(left, right) whose keys are equal, weights multiplied: ZSet[Pair[L, R]]. It reacts
    to rows of `change` only: later changes of r make no pairs with it. NULL keys match nothing, or
    with `null_safe` each other; `where` is a further condition on the pairs. Keeps r arranged by
    its key, and nothing of `change`. A step reads the keys of the change. Raises `CompileError` if
    the keys have different types, or for another `state`. Delta joins are made of such terms.

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
