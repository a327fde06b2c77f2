"""Window functions and sort orders for `st.window`.

They work as Spark's window functions of the same names. Ties are broken by the whole row, so the
results are deterministic. `f` is a function of the row, as in `st.map`.

A frame is the set of rows that a function reads. `rows=(start, end)` counts rows from the current
row; negative numbers are rows before it: (-6, 0) is the row and the six before it.
`range=(start, end)` is the rows whose order value is within this distance. The distance is a number
for numbers, days or a timedelta for dates, and a timedelta for times, which is exact in every time
zone (a day has 24 hours). (0, 0) is all rows that tie with the current row. None is the first or
last row of the partition. The default frame is `range=(None, 0)`: the partition up to the last row
that ties with the current row. Without an order it is the whole partition, as in SQL.

A function can have its own partitions or order: `st.win.rank().over(by=…, order=…)`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError, short
from stepping_spark.expressions.columns import By

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

FrameArgument = tuple[Any, Any]


def asc(f: Callable[[T], Any], *, nulls: str | None = None) -> By[T]:
    """Ascending by `f(row)`. NULLs come first, or last with `nulls="last"`."""
    return By(f, True, nulls)


def desc(f: Callable[[T], Any], *, nulls: str | None = None) -> By[T]:
    """Descending by `f(row)`. NULLs come last, or first with `nulls="first"`."""
    return By(f, False, nulls)


@dataclass(frozen=True)
class WindowFunction(Generic[T]):
    """A window function over rows of type T, made by the functions of this module."""

    kind: str
    f: Callable[[T], Any] | None = None
    n: int = 1
    default: Any = None
    rows: FrameArgument | None = None
    range: FrameArgument | None = None
    ignore_nulls: bool = False
    by: Any = ...
    order: Any = ...
    other: Callable[[T], Any] | None = None  # the second argument, for functions of two
    option: float | bool | None = None

    def over(self, *args: object, by: Any = ..., order: Any = ...) -> WindowFunction[T]:
        """The same function with its own partitions or order.

        If `by` or `order` is omitted, it is that of `st.window`. `by=None` is one partition of all
        rows.

        >>> share = st.win.sum(lambda sale: sale.amount).over(by=lambda sale: sale.day, order=None)
        >>> share.kind
        'sum'
        """
        if args:
            raise CompileError(
                f"{user_line()}: over takes by= and order=, found {short(args[0])}; write "
                f"st.win.{self.kind}(…).over(by=lambda row: row.x, order=lambda row: row.y)"
            )
        return dataclasses.replace(self, by=by, order=order)


def row_number() -> WindowFunction[Any]:
    """The number of the row in its partition: 1, 2, 3 …; the whole row breaks ties. An int."""
    return WindowFunction("row_number")


def rank() -> WindowFunction[Any]:
    """One more than the number of rows before the row; rows that tie share a rank. An int."""
    return WindowFunction("rank")


def dense_rank() -> WindowFunction[Any]:
    """One more than the number of distinct order values before the row's. An int."""
    return WindowFunction("dense_rank")


def percent_rank() -> WindowFunction[Any]:
    """(rank − 1) / (rows of the partition − 1), or 0 for a single row. A float."""
    return WindowFunction("percent_rank")


def cume_dist() -> WindowFunction[Any]:
    """The fraction of the partition's rows that come before the row or tie with it. A float."""
    return WindowFunction("cume_dist")


def ntile(n: int) -> WindowFunction[Any]:
    """The number (from 1) of the row's bucket, of `n` buckets of about equal size. An int."""
    return WindowFunction("ntile", n=n)


def lag(
    f: Callable[[T], Any], n: int = 1, *, default: Any = None, ignore_nulls: bool = False
) -> WindowFunction[T]:
    """`f` of the row `n` rows before; with `ignore_nulls`, only rows whose `f` is not NULL count.

    It is `default` if there is no such row. Without a default it is NULL, so the field must be
    `X | None`.
    """
    return WindowFunction("lag", f, n, default, ignore_nulls=ignore_nulls)


def lead(
    f: Callable[[T], Any], n: int = 1, *, default: Any = None, ignore_nulls: bool = False
) -> WindowFunction[T]:
    """`f` of the row `n` rows after; otherwise like `lag`."""
    return WindowFunction("lead", f, n, default, ignore_nulls=ignore_nulls)


def first_value(
    f: Callable[[T], Any],
    *,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
    ignore_nulls: bool = False,
) -> WindowFunction[T]:
    """`f` of the first row of the frame; with `ignore_nulls`, the first that is not NULL."""
    return WindowFunction("first_value", f, 1, None, rows, range, ignore_nulls)


def last_value(
    f: Callable[[T], Any],
    *,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
    ignore_nulls: bool = False,
) -> WindowFunction[T]:
    """`f` of the last row of the frame; with `ignore_nulls`, the last that is not NULL."""
    return WindowFunction("last_value", f, 1, None, rows, range, ignore_nulls)


def nth_value(
    f: Callable[[T], Any],
    n: int,
    *,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
    ignore_nulls: bool = False,
) -> WindowFunction[T]:
    """`f` of the n-th row of the frame, counted from 1; NULL if the frame has fewer rows."""
    return WindowFunction("nth_value", f, n, None, rows, range, ignore_nulls)


def count(
    f: Callable[[T], Any] | None = None,
    *,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The number of rows in the frame; with `f`, of rows whose `f` is not NULL. An int."""
    return WindowFunction("count", f, 1, None, rows, range)


def sum(  # noqa: A001 - the field's name
    f: Callable[[T], Any],
    *,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The sum of `f` over the frame, exact, with the types of `st.agg.sum`; NULL without values."""
    return WindowFunction("sum", f, 1, None, rows, range)


def avg(
    f: Callable[[T], Any],
    *,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The mean of `f` over the frame, with the types of `st.agg.avg`; NULL without values."""
    return WindowFunction("avg", f, 1, None, rows, range)


def min(  # noqa: A001 - the field's name
    f: Callable[[T], Any],
    *,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The least `f` of the frame, of any type, in Spark's order; NULL without values."""
    return WindowFunction("min", f, 1, None, rows, range)


def max(  # noqa: A001 - the field's name
    f: Callable[[T], Any],
    *,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The greatest `f` of the frame, of any type, in Spark's order; NULL without values."""
    return WindowFunction("max", f, 1, None, rows, range)


def any_value(
    f: Callable[[T], Any],
    *,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """Some `f` of the frame that is not NULL: always the least one, to be deterministic."""
    return WindowFunction("any_value", f, 1, None, rows, range)


def bool_and(
    f: Callable[[T], Any],
    *,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """Whether all `f` of the frame that are not NULL are true; NULL without values. A bool."""
    return WindowFunction("bool_and", f, 1, None, rows, range)


def bool_or(
    f: Callable[[T], Any],
    *,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """Whether any `f` of the frame is true; NULL without values. A bool."""
    return WindowFunction("bool_or", f, 1, None, rows, range)


def median(
    f: Callable[[T], Any],
    *,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The median of `f` over the frame: `percentile(f, 0.5)`."""
    return WindowFunction("median", f, 1, None, rows, range, option=0.5)


def percentile(
    f: Callable[[T], Any],
    p: float,
    *,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The exact percentile of `f` in the frame, as in `st.agg.percentile`; NULL without values."""
    return WindowFunction("percentile", f, 1, None, rows, range, option=p)


def stddev(
    f: Callable[[T], Any],
    *,
    population: bool = False,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The standard deviation of `f` over the frame, as in `st.agg.stddev`. A float or NULL."""
    return WindowFunction("stddev", f, 1, None, rows, range, option=population or None)


def variance(
    f: Callable[[T], Any],
    *,
    population: bool = False,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The variance of `f` over the frame, as in `st.agg.variance`. A float or NULL."""
    return WindowFunction("variance", f, 1, None, rows, range, option=population or None)


def corr(
    x: Callable[[T], Any],
    y: Callable[[T], Any],
    *,
    rows: FrameArgument | None = None,
    range: FrameArgument | None = None,  # noqa: A002 - SQL's name
) -> WindowFunction[T]:
    """The correlation of two numbers over the frame, as in `st.agg.corr`. A float or NULL."""
    return WindowFunction("corr", x, 1, None, rows, range, other=y)


def __dir__() -> list[str]:
    """The public names only: the functions, `asc` and `desc`."""
    return sorted(__all__)


if not TYPE_CHECKING:  # with this, a type checker would accept any name

    def __getattr__(name: str) -> NoReturn:
        """Raise an error that lists the available functions."""
        raise AttributeError(
            f"st.win has no {name!r}; it has {', '.join(__all__)}. For another aggregate of a "
            "whole partition, join the rows with st.aggregate(rows, by=…, into=…); for one of a "
            "frame, gather the rows that it reads with st.range_join, and aggregate those"
        )
