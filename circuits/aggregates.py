"""Many aggregates at once, lifted to changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stepping_spark.expressions.index import Index
from stepping_spark.query import linear
from stepping_spark.query.agg import Aggregate
from stepping_spark.zsets.spark import ZSet, ZSetPython

T = TypeVar("T")
R = TypeVar("R")


def aggregate(
    a: ZSet[T],
    by: Index[T, Any] | Callable[[T], Any] | None,
    into: type[R],
    *,
    fields: Mapping[str, Aggregate[T] | Callable[[T], ZSetPython[Any]]] | None = None,
    **aggregates: Aggregate[T] | Callable[[T], ZSetPython[Any]],
) -> ZSet[R]:
    """The changes of SELECT by, aggregates FROM a GROUP BY by: D(aggregate(I(a))).

    `into` is a `Data` with a field for each aggregate, by its name, and one for each part of the
    key: that of the same name, or else those that are left, in order. `fields` has more aggregates
    by the names of their fields, for names that are none of an argument or are arguments of this
    function (`a`, `by`, `into`, `fields`). Fields have the types that
    Spark SQL gives: see `st.agg`. A group that has no rows left has no row; one whose sum is zero
    has. Without a key (`by=None`) there is one row from the first step on: of no rows a count is 0,
    and all else NULL, so that those fields must be `X | None`.

    Aggregates of one kind are computed together, those of several kinds apart, and then collated
    by key. `st.explain` prints the plan, and the state of each part:

    accumulable: count, sum, avg, stddev: the numbers of rows and the sums, by key. A step costs its
    rows, and reads the groups that they touch.
    distinct: count_distinct, sum_distinct: the values by key and value; then the same.
    hierarchical: min, max, arg_min, arg_max, first_n: as `st.first_n`, by buckets, of which a
    deletion reads three; of append-only inputs only the first rows.
    basic: collect: all values, by key. A step costs the sizes of the groups that it touches.

    Raises `CompileError` where fields and aggregates do not fit, `StepError` for a sum beyond its
    type.

    >>> class Summary(st.Data):
    ...     user: str
    ...     orders: int
    ...     least: float
    >>> def query(orders: st.ZSet[tuple[str, float]]) -> st.ZSet[Summary]:
    ...     return st.aggregate(orders, by=lambda o: o[0], into=Summary,
    ...                         orders=st.agg.count(), least=st.agg.min(lambda o: o[1]))
    >>> change = st.ZSetPython({("Ann", 2.5): 1, ("Ann", 0.5): 2})
    >>> (out,) = st.reference(st.compile(query)).step((change,))
    >>> dict(out.iter())
    {Summary(user='Ann', orders=3, least=0.5): 1}
    """
    integrated = linear.integrate(a)
    aggregated = linear.aggregate(integrated, by, into, fields=fields, **aggregates)
    differentiated = linear.differentiate(aggregated)
    return differentiated
