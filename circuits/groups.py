"""Reductions by key, lifted to changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from stepping_spark.expressions.index import Index
from stepping_spark.query import linear
from stepping_spark.rows.data import Pair
from stepping_spark.zsets.spark import ZSet

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

    `ZSet[T]` to `ZSet[Pair[V, K]]`: left the sum, right the key that `by` gives, a function of the
    row or a `st.Index`; NULL is a key of its own. A group that has no rows left has no row; one
    whose sum is zero has. `zero` and `pick_value` are as for `reduce`.

    Summing by key is linear, and flattening depends on each key alone, so the optimizer makes
    H(z⁻¹I, change) of it: keeps for each key the number of rows and the sum, arranged by key; a
    step reads the keys of the change. Raises `CompileError` for what cannot be added up, and for a
    key that is a `st.python` function.

    >>> class Sale(st.Data):
    ...     shop: str
    ...     amount: int
    >>> def query(sales: st.ZSet[Sale]) -> st.ZSet[st.Pair[int, str]]:
    ...     return st.group_reduce_flatten(
    ...         sales, by=lambda s: s.shop, zero=int, pick_value=lambda s: s.amount)
    >>> step = st.reference(st.compile(query)).step
    >>> _ = step((st.ZSetPython({Sale(shop="A", amount=3): 2}),))
    >>> (out,) = step((st.ZSetPython({Sale(shop="A", amount=4): 1}),))
    >>> out == st.ZSetPython({st.Pair(left=6, right="A"): -1, st.Pair(left=10, right="A"): 1})
    True
    """
    accumulated = linear.accumulate(a, by=by, zero=zero, pick_value=pick_value)
    integrated = linear.integrate(accumulated)
    flattened = linear.flatten(integrated)
    differentiated = linear.differentiate(flattened)
    return differentiated
