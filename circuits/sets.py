"""Unions, intersections and differences, lifted to changes, with SQL's NULLs and multiplicities.

Rows are the same where all their fields are, NULL and NaN included. x⁺ is max(x, 0), row by row.
The inputs are tables: in sum no row has a negative weight.
"""

from __future__ import annotations

from typing import TypeVar

from circuits.groups import distinct
from stepping_spark.query import linear, sets
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")


def union(a: ZSet[T], b: ZSet[T], *, all: bool = False) -> ZSet[T]:  # noqa: A002
    """The changes of a UNION b: distinct(a + b). With `all`, of a UNION ALL b, which is `st.add`.

    Two streams of one type to one of the same type. Keeps how often each row is in one or the
    other, by the whole row; with `all` nothing. A step costs the rows of the change. Raises
    `CompileError` for streams of two types.

    >>> def query(a: st.ZSet[int | None], b: st.ZSet[int | None]) -> st.ZSet[int | None]:
    ...     return st.union(a, b)
    >>> step = st.ZSetPython({1: 2, None: 1}), st.ZSetPython({None: 1, 3: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> out == st.ZSetPython({1: 1, None: 1, 3: 1})
    True
    """
    sets.check_sets(a, b, "union")
    added = linear.add(a, b)
    return added if all else distinct(added)


def intersect(a: ZSet[T], b: ZSet[T], *, all: bool = False) -> ZSet[T]:  # noqa: A002
    """The changes of a INTERSECT b: distinct(min(a, b)), where min(a, b) = a − (a − b)⁺.

    With `all`, of a INTERSECT ALL b: min(a, b), each row as often as both have it. Two streams of
    one type to one of the same type. Keeps a − b by the whole row, and without `all` the common
    rows. A step costs the rows of the change. Raises `CompileError` for streams of two types.

    >>> def query(a: st.ZSet[int | None], b: st.ZSet[int | None]) -> st.ZSet[int | None]:
    ...     return st.intersect(a, b, all=True)
    >>> step = st.ZSetPython({1: 2, None: 3}), st.ZSetPython({None: 2, 3: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {None: 2}
    """
    sets.check_sets(a, b, "intersect")
    both = linear.add(a, linear.neg(more_often(a, b)))
    return both if all else distinct(both)


def except_(a: ZSet[T], b: ZSet[T], *, all: bool = False) -> ZSet[T]:  # noqa: A002
    """The changes of a EXCEPT b: (distinct(a) − distinct(b))⁺.

    With `all`, of a EXCEPT ALL b: (a − b)⁺, each row as often as it is more often in `a` than in
    `b`. Two streams of one type to one of the same type. Keeps the difference by the whole row, and
    without `all` how often each row is in a, and in b. A step costs the rows of the change. Raises
    `CompileError` for streams of two types.

    >>> def query(a: st.ZSet[int | None], b: st.ZSet[int | None]) -> st.ZSet[int | None]:
    ...     return st.except_(a, b)
    >>> step = st.ZSetPython({1: 2, None: 3}), st.ZSetPython({None: 1, 3: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {1: 1}
    """
    sets.check_sets(a, b, "except_")
    return more_often(a, b) if all else more_often(distinct(a), distinct(b))


def more_often(a: ZSet[T], b: ZSet[T]) -> ZSet[T]:
    """The changes of (a − b)⁺."""
    integrated = linear.integrate(linear.add(a, linear.neg(b)))
    positive = linear.positive_part(integrated)
    differentiated = linear.differentiate(positive)
    return differentiated
