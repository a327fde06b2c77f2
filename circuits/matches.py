"""Semijoins, antijoins and outer joins, lifted to changes."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from circuits.distincts import distinct
from circuits.joins import join
from stepping_spark.query import linear, outer_joins
from stepping_spark.query.primitives import Key
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
U = TypeVar("U")


def semijoin(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: Key[T],
    on_right: Key[U],
) -> ZSet[T]:
    """The changes of the rows that have a match: l ⋉ r = π_left(l ⋈ distinct(keys of r)).

    All its parts are lifted already (DBSP, theorem 3.4 and proposition 4.7), and what is made of
    lifted parts is (proposition 3.2, the chain rule). Rows are those of l with the weights of l,
    however many rows of r match: ZSet[L]. NULL keys match nothing. A row comes when its first
    match does, and goes with its last.
    Keeps l arranged by its key, and of r how many rows each key has. A step reads the keys of the
    change from both. Raises `CompileError` where the two keys are not of one type.

    >>> def query(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.semijoin(a, b, on_left=lambda x: x, on_right=lambda x: x)
    >>> step = st.ZSetPython({1: 2, 2: 1}), st.ZSetPython({1: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {1: 2}
    """
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
) -> ZSet[T]:
    """The changes of the rows that have no match: l − l ⋉ r, which is linear in its parts.

    Rows are those of l with the weights of l: ZSet[L]. Rows with a NULL key are among them, as
    with NOT EXISTS in SQL; they pass without a lookup. A row goes when its first match comes, and
    comes back when its last has gone. State, cost and errors are those of `semijoin`.

    >>> def query(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.antijoin(a, b, on_left=lambda x: x, on_right=lambda x: x)
    >>> step = st.ZSetPython({1: 2, 2: 1}), st.ZSetPython({1: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {2: 1}
    """
    with_match = semijoin(l, r, on_left=on_left, on_right=on_right)
    return linear.add(l, linear.neg(with_match))


def outer_join(
    l: ZSet[T],  # noqa: E741
    r: ZSet[U],
    *,
    on_left: Key[T],
    on_right: Key[U],
    how: Literal["left", "right", "full"] = "left",
) -> ZSet[Any]:
    """The changes of an outer join: l ⋈ r + null(l − l ⋉ r), and likewise for the right side.

    What is without a match is taken from l itself, not from the join: l − left(l ⋈ r) would have
    negative weights where a row matches two. `how`: "left" gives ZSet[Pair[L, R | None]], "right"
    ZSet[Pair[L | None, R]], "full" ZSet[Pair[L | None, R | None]]. NULL keys match nothing, and
    their rows come with None, by way of a sum: nothing gathers them on one worker.
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
    left = right = None
    if how in ("left", "full"):
        left = antijoin(l, r, on_left=on_left, on_right=on_right)
    if how in ("right", "full"):
        right = antijoin(r, l, on_left=on_right, on_right=on_left)
    joined = join(l, r, on_left=on_left, on_right=on_right)
    return outer_joins.completed(l, r, joined, left, right, how, None)
