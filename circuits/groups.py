"""Reductions by key, lifted to changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from stepping_spark import linear
from stepping_spark.index import Index
from stepping_spark.rows import Pair
from stepping_spark.zset import ZSet

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def group_reduce_flatten(
    a: ZSet[T],
    *,
    by: Index[T, K] | Callable[[T], K],
    zero: Callable[[], V],
    pick_value: Callable[[T], V],
) -> ZSet[Pair[V, K]]:
    """The changes of a sum by key: D(flatten(I(Σ_key pick_value(row) · weight))).

    Rows are Pair(left=sum, right=key). A group that has no rows left has no row; one whose sum is
    zero has. `zero` and `pick_value` are as for `reduce`. Summing by key is linear, and flattening
    depends on each key alone, so the optimizer makes H(z⁻¹I, change) of it: keeps for each key
    the number of rows and the sum, arranged by key; a step reads the keys of the change.
    """
    accumulated = linear.accumulate(a, by=by, zero=zero, pick_value=pick_value)
    integrated = linear.integrate(accumulated)
    flattened = linear.flatten(integrated)
    differentiated = linear.differentiate(flattened)
    return differentiated
