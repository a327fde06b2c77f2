"""Distinct, lifted to changes."""

from __future__ import annotations

from typing import TypeVar

from stepping_spark import linear
from stepping_spark.zset import ZSet

T = TypeVar("T")


def distinct(a: ZSet[T]) -> ZSet[T]:
    """The changes of distinct: D(distinct(I(a))) = H(z⁻¹I(a), a)  (DBSP, proposition 4.7).

    Weight 1 where the integral is positive. Keeps the input, arranged by the whole row. A step
    reads the rows of the change.
    """
    integrated = linear.integrate_delay(a)
    changed = linear.haitch(integrated, a)
    return changed
