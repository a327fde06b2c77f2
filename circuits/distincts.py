"""Distinct, lifted to changes."""

from __future__ import annotations

from typing import TypeVar

from stepping_spark.query import linear
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")


def distinct(a: ZSet[T]) -> ZSet[T]:
    """The changes of distinct: D(distinct(I(a))) = H(z⁻¹I(a), a)  (DBSP, proposition 4.7).

    `ZSet[T]` to `ZSet[T]`: weight 1 where the integral is positive. Keeps the input, arranged by
    the whole row. A step reads the rows of the change.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(a)
    >>> step = st.reference(st.compile(query)).step
    >>> outs = [step((st.ZSetPython({"x": n}),))[0] for n in (2, 1, -3)]
    >>> [dict(out.iter()) for out in outs]
    [{'x': 1}, {}, {'x': -1}]
    """
    integrated = linear.integrate_delay(a)
    changed = linear.haitch(integrated, a)
    return changed
