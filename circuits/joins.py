"""Joins, lifted to changes."""

from __future__ import annotations

from typing import TypeVar

from stepping_spark.query import linear
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
) -> ZSet[Pair[T, U]]:
    """The changes of the join: D(I(l) ⋈ I(r)) = I(l) ⋈ r + l ⋈ z⁻¹I(r)  (DBSP, theorem 3.4).

    `ZSet[T]` and `ZSet[U]` to `ZSet[Pair[T, U]]`: left and right are the rows whose keys are equal,
    each key a function of the row or a `st.Index`; weights multiply; NULL keys match nothing. Keeps
    both inputs, each arranged by its key. A step reads the keys of the change from both. Raises
    `CompileError` where the two keys are of different types.

    >>> def query(a: st.ZSet[str], b: st.ZSet[tuple[str, int]]) -> st.ZSet[int]:
    ...     pairs = st.join(a, b, on_left=lambda name: name, on_right=lambda row: row[0])
    ...     return st.map(pairs, f=lambda p: p.right[1])
    >>> step = st.reference(st.compile(query)).step
    >>> _ = step((st.ZSetPython({"x": 1, "y": 1}), None))
    >>> (out,) = step((None, st.ZSetPython({("x", 7): 2, ("z", 8): 1})))
    >>> dict(out.iter())
    {7: 2}
    """
    l_integrated = linear.integrate_indexed(l, indexes=(on_left,))
    r_integrated = linear.integrate_delay_indexed(r, indexes=(on_right,))
    joined_1 = linear.join(l_integrated, r, on_left=on_left, on_right=on_right)
    joined_2 = linear.join(l, r_integrated, on_left=on_left, on_right=on_right)
    added = linear.add(joined_1, joined_2)
    return added
