"""The first rows by an order, lifted to changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from stepping_spark.expressions.index import Index
from stepping_spark.query import linear
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")


def first_n(
    a: ZSet[T],
    index: Index[T, Any] | Callable[[T], Any],
    n: int,
    *,
    by: Index[T, Any] | Callable[[T], Any] | None = None,
) -> ZSet[T]:
    """The changes of ORDER BY index LIMIT n, or with `by` of that in each group: D(first_n(I(a))).

    Rows of `a` in, rows of `a` out: the first n by the order of `index` (`ascending` says which
    way), a row of weight 2 counting as two, ties by the whole row. NULL comes first and NaN last,
    the reverse where the order descends, as in Spark. A row without a positive weight is not there.

    The first n of a whole are the first n of the first n of its parts, so the optimizer keeps a
    tower: the rows by 4,096 buckets of their hash, the first n of each of those by 64, and of each
    of those by group. A step reads the buckets of the rows that change: of a group of N rows about
    N / 4096 + 128 · n. Of an append-only input only the first n are kept, and read.

    Raises `CompileError` where the index does not fit, or n is no number of rows.

    >>> def query(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.first_n(a, st.Index.identity(int, ascending=False), 2)
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({1: 1, 2: 1, 3: 1}),))
    >>> out == st.ZSetPython({3: 1, 2: 1})
    True
    """
    integrated = linear.integrate(a)
    first = linear.first_n(integrated, index, n, by=by)
    differentiated = linear.differentiate(first)
    return differentiated
