"""Window functions for `st.window`, and its order.

They mean what Spark's window functions with these names mean. Rows that tie are ordered by the
whole row, so that the answer is the same each time. `f` is a function of the row, as in `st.map`.

A frame is the set of rows that a function reads. `rows=(start, end)` counts rows from the row
itself, with a minus for those before it: (-6, 0) is the row and the six before it. `range=(start,
end)` is the rows whose value in the order is at most that far away. The distance is a number for
numbers, days or a timedelta for dates, and a timedelta for times, which is exact in every time zone
(a day has 24 hours); (0, 0) is all rows that tie with the row. None is the end of the partition.
Without either, the frame is the partition up to the last row that ties with the row, `range=(None,
0)`, and without an order the whole partition, as in SQL.

A function may have partitions or an order of its own: `st.win.rank().over(by=…, order=…)`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.expressions.directions import By
from stepping_spark.rows.atoms import short

__all__ = [
    "any_value",
    "asc",
    "avg",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "cume_dist",
    "dense_rank",
    "desc",
    "first_value",
    "lag",
    "last_value",
    "lead",
    "max",
    "median",
    "min",
    "nth_value",
    "ntile",
    "percent_rank",
    "percentile",
    "rank",
    "row_number",
    "stddev",
    "sum",
    "variance",
]

T = TypeVar("T")

Bounds = tuple[Any, Any]


def asc(f: Callable[[T], Any], *, nulls: str | None = None) -> By[T]:
    """Ascending by `f(row)`; NULL comes "first", unless `nulls="last"`."""
    return By(f, True, nulls)


def desc(f: Callable[[T], Any], *, nulls: str | None = None) -> By[T]:
    """Descending by `f(row)`; NULL comes "last", unless `nulls="first"`."""
    return By(f, False, nulls)


@dataclass(frozen=True)
class WindowFunction(Generic[T]):
    """One of the functions of this module, of rows of type T."""

    kind: str
    f: Callable[[T], Any] | None = None
    n: int = 1
    default: Any = None
    rows: Bounds | None = None
    range: Bounds | None = None
    ignore_nulls: bool = False
    by: Any = ...
    order: Any = ...
    other: Callable[[T], Any] | None = None  # the second value, of those that are of two
    option: float | bool | None = None

    def over(self, *given: object, by: Any = ..., order: Any = ...) -> WindowFunction[T]:
        """The same function over partitions, or in an order, of its own.

        What is left out is that of `st.window`; `by=None` is one partition of all rows.

        >>> share = st.win.sum(lambda sale: sale.amount).over(by=lambda sale: sale.day, order=None)
        >>> share.kind
        'sum'
        """
        if given:
            raise CompileError(
                f"{user_line()}: over takes by= and order=, found {short(given[0])}; write "
                f"st.win.{self.kind}(…).over(by=lambda row: row.x, order=lambda row: row.y)"
            )
        return dataclasses.replace(self, by=by, order=order)


def row_number() -> WindowFunction[Any]:
    """1, 2, 3 … in the order of the partition; ties are broken by the whole row. An int."""
    return WindowFunction("row_number")


def rank() -> WindowFunction[Any]:
    """One more than the number of rows before it; rows that tie have one rank. An int."""
    return WindowFunction("rank")


def dense_rank() -> WindowFunction[Any]:
    """One more than the number of different values of the order before it. An int."""
    return WindowFunction("dense_rank")


def percent_rank() -> WindowFunction[Any]:
    """(rank − 1) / (rows of the partition − 1); for a single row 0. A float."""
    return WindowFunction("percent_rank")


def cume_dist() -> WindowFunction[Any]:
    """The share of the partition's rows that are before the row, or tie with it. A float."""
    return WindowFunction("cume_dist")


def ntile(n: int) -> WindowFunction[Any]:
    """The number, from 1, of the row's part, of `n` parts as equal as possible. An int."""
    return WindowFunction("ntile", n=n)


def lag(
    f: Callable[[T], Any], n: int = 1, *, default: Any = None, ignore_nulls: bool = False
) -> WindowFunction[T]:
    """`f` of the row that is `n` rows before, or of the n-th before whose `f` is not NULL.

    `default` if there is no such row: by default NULL, so the field must be `X | None`.
    """
    return WindowFunction("lag", f, n, default, ignore_nulls=ignore_nulls)


def lead(
    f: Callable[[T], Any], n: int = 1, *, default: Any = None, ignore_nulls: bool = False
) -> WindowFunction[T]:
    """`f` of the row that is `n` rows after; otherwise like `lag`."""
    return WindowFunction("lead", f, n, default, ignore_nulls=ignore_nulls)


def first_value(
    f: Callable[[T], Any],
    *,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
    ignore_nulls: bool = False,
) -> WindowFunction[T]:
    """`f` of the first row of the frame, or of the first whose `f` is not NULL."""
    return WindowFunction("first_value", f, 1, None, rows, range, ignore_nulls)


def last_value(
    f: Callable[[T], Any],
    *,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
    ignore_nulls: bool = False,
) -> WindowFunction[T]:
    """`f` of the last row of the frame, or of the last whose `f` is not NULL."""
    return WindowFunction("last_value", f, 1, None, rows, range, ignore_nulls)


def nth_value(
    f: Callable[[T], Any],
    n: int,
    *,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
    ignore_nulls: bool = False,
) -> WindowFunction[T]:
    """`f` of the n-th row of the frame, from 1; NULL if it has fewer rows."""
    return WindowFunction("nth_value", f, n, None, rows, range, ignore_nulls)


def count(
    f: Callable[[T], Any] | None = None,
    *,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The number of rows of the frame; with `f`, of those for which it is not NULL. An int."""
    return WindowFunction("count", f, 1, None, rows, range)


def sum(  # noqa: A001 - the field's name
    f: Callable[[T], Any],
    *,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The sum of `f` over the frame, exact, with the types of `st.agg.sum`; NULL without values."""
    return WindowFunction("sum", f, 1, None, rows, range)


def avg(
    f: Callable[[T], Any],
    *,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The mean of `f` over the frame, with the types of `st.agg.avg`; NULL without values."""
    return WindowFunction("avg", f, 1, None, rows, range)


def min(  # noqa: A001 - the field's name
    f: Callable[[T], Any],
    *,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The least `f` of the frame, of any type, in Spark's order; NULL without values."""
    return WindowFunction("min", f, 1, None, rows, range)


def max(  # noqa: A001 - the field's name
    f: Callable[[T], Any],
    *,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The greatest `f` of the frame, of any type, in Spark's order; NULL without values."""
    return WindowFunction("max", f, 1, None, rows, range)


def any_value(
    f: Callable[[T], Any],
    *,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """Some `f` of the frame that is not NULL: the least one, so that it is always the same."""
    return WindowFunction("any_value", f, 1, None, rows, range)


def bool_and(
    f: Callable[[T], Any],
    *,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """Whether `f` is true wherever it is not NULL in the frame; NULL without values. A bool."""
    return WindowFunction("bool_and", f, 1, None, rows, range)


def bool_or(
    f: Callable[[T], Any],
    *,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """Whether `f` is true somewhere in the frame; NULL without values. A bool."""
    return WindowFunction("bool_or", f, 1, None, rows, range)


def median(
    f: Callable[[T], Any],
    *,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The median of `f` over the frame: `percentile(f, 0.5)`."""
    return WindowFunction("median", f, 1, None, rows, range, option=0.5)


def percentile(
    f: Callable[[T], Any],
    p: float,
    *,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The exact percentile of `f` over the frame, as `st.agg.percentile` has it; NULL of none."""
    return WindowFunction("percentile", f, 1, None, rows, range, option=p)


def stddev(
    f: Callable[[T], Any],
    *,
    population: bool = False,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The standard deviation of `f` over the frame, as `st.agg.stddev` has it. A float or NULL."""
    return WindowFunction("stddev", f, 1, None, rows, range, option=population or None)


def variance(
    f: Callable[[T], Any],
    *,
    population: bool = False,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The variance of `f` over the frame, as `st.agg.variance` has it. A float or NULL."""
    return WindowFunction("variance", f, 1, None, rows, range, option=population or None)


def corr(
    x: Callable[[T], Any],
    y: Callable[[T], Any],
    *,
    rows: Bounds | None = None,
    range: Bounds | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The correlation of two numbers over the frame, as `st.agg.corr` has it. A float or NULL."""
    return WindowFunction("corr", x, 1, None, rows, range, other=y)


def __dir__() -> list[str]:
    """The functions and `asc` and `desc`, without what they are made of."""
    return sorted(__all__)


if not TYPE_CHECKING:  # a checker would take any name for one that there is

    def __getattr__(name: str) -> NoReturn:
        """Say which functions there are."""
        raise AttributeError(
            f"st.win has no {name!r}; it has {', '.join(__all__)}. For another aggregate of a "
            "whole partition, join the rows with st.aggregate(rows, by=…, into=…); for one of a "
            "frame, gather the rows that it reads with st.range_join, and aggregate those"
        )
