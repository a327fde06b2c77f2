"""Reductions to one row, lifted to changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from stepping_spark import linear
from stepping_spark.zset import ZSet

T = TypeVar("T")
V = TypeVar("V")


def reduce(a: ZSet[T], *, zero: Callable[[], V], pick_value: Callable[[T], V]) -> ZSet[V]:
    """The changes of a sum: D(make_set(I(Σ pick_value(row) · weight)))  (DBSP, section 7.2).

    One row, from the first step on: `zero()` while there is nothing to add. `pick_value` gives an
    int, float or Decimal, a row of them that is added field by field, or a `ZSetPython`
    (`st.agg.collect`). Floats are added exactly, so that what was added can be taken away.
    Keeps the sum; a step costs the rows of the change.
    """
    total = linear.total(a, zero=zero, pick_value=pick_value)
    integrated = linear.integrate(total)
    as_set = linear.make_set(integrated)
    differentiated = linear.differentiate(as_set)
    return differentiated


def count(a: ZSet[Any]) -> ZSet[int]:
    """The changes of the number of rows, by weight. One row, from the first step on."""
    return reduce(a, zero=int, pick_value=lambda row: 1)
