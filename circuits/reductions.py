"""Reductions to one row, lifted to changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from stepping_spark.query import linear
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
V = TypeVar("V")


def reduce(a: ZSet[T], *, zero: Callable[[], V], pick_value: Callable[[T], V]) -> ZSet[V]:
    """The changes of a sum: D(make_set(I(Σ pick_value(row) · weight)))  (DBSP, section 7.2).

    `ZSet[T]` to `ZSet[V]`, of one row, from the first step on: `zero()` while there is nothing to
    add. `pick_value` gives an int, float or Decimal, a row of them that is added field by field, or
    a `ZSetPython` (`st.agg.collect`); NULL counts as zero. Floats are added exactly, so that what
    was added can be taken away. Keeps the sum, and the row that it made; a step costs the rows of
    the change. Raises `CompileError` for what cannot be added up, and for a `zero` that is
    something.

    >>> def query(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.reduce(a, zero=int, pick_value=lambda x: x)
    >>> step = st.reference(st.compile(query)).step
    >>> outs = [step((change,))[0] for change in (st.ZSetPython({5: 2}), st.ZSetPython({5: -1}))]
    >>> outs == [st.ZSetPython({10: 1}), st.ZSetPython({10: -1, 5: 1})]
    True
    """
    total = linear.total(a, zero=zero, pick_value=pick_value)
    integrated = linear.integrate(total)
    as_set = linear.make_set(integrated)
    differentiated = linear.differentiate(as_set)
    return differentiated


def count(a: ZSet[Any]) -> ZSet[int]:
    """The changes of the number of rows, by weight: `reduce` with 1 for each row.

    `ZSet[T]` to `ZSet[int]`, of one row, from the first step on. Keeps the number; a step costs the
    rows of the change.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[int]:
    ...     return st.count(a)
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({"x": 2, "y": 1}),))
    >>> dict(out.iter())
    {3: 1}
    """
    return reduce(a, zero=int, pick_value=lambda row: 1)
