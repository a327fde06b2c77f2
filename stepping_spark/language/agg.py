"""The aggregates of a group: sums, means, extremes, first rows, collections.

A function of the row picks the value, as in `map`. NULL values are skipped, as in SQL, except by
`first_n` and `collect`, which also take rows with NULL. Without values the result is NULL, as in
SQL, so the field must be `X | None`; a count is 0, and the lists of `collect_list` and
`collect_set` are empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

from stepping_spark.zsets.spark import ZSetPython

__all__ = [
    "any_value",
    "arg_max",
    "arg_min",
    "avg",
    "avg_distinct",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "collect",
    "collect_list",
    "collect_set",
    "corr",
    "count",
    "count_distinct",
    "covar_pop",
    "covar_samp",
    "first_n",
    "grouping_id",
    "kurtosis",
    "max",
    "median",
    "min",
    "mode",
    "percentile",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "skewness",
    "stddev",
    "string_agg",
    "sum",
    "sum_distinct",
    "variance",
]

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True)
class Collect(Generic[T, V]):
    """The Z-set of `f(row)`, for the rows of a group."""

    f: Callable[[T], V]
    to: Any = None

    def __call__(self, row: T) -> ZSetPython[V]:
        return ZSetPython({self.f(row): 1})


def collect(f: Callable[[T], V], *, to: type[V] | None = None) -> Callable[[T], ZSetPython[V]]:
    """A `ZSetPython` of `f(row)` for a group's rows: in an aggregate, or as a `pick_value`.

    `f` returns a value of any row type; give the type with `to` or an annotation if it cannot be
    derived. Equal values are counted. The state has every value once. A step costs the sizes of the
    groups that it touches.

    >>> def query(words: st.ZSet[tuple[int, str]]) -> st.ZSet[st.Pair[st.ZSetPython[str], int]]:
    ...     return st.group_reduce_flatten(
    ...         words, by=lambda w: w[0], zero=st.ZSetPython,
    ...         pick_value=st.agg.collect(lambda w: w[1]))
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({(1, "a"): 1, (1, "b"): 2}),))
    >>> [(p.right, p.left == st.ZSetPython({"a": 1, "b": 2})) for p, _ in out.iter()]
    [(1, True)]
    """
    return cast("Callable[[T], ZSetPython[V]]", Collect(f, to))


@dataclass(frozen=True)
class Aggregate(Generic[T]):
    """An aggregate over rows of type T, made by the functions of this module."""

    kind: str
    value: Callable[[T], Any] | None = None
    order: Any = None  # in the form of `st.window`
    n: int = 1
    other: Callable[[T], Any] | None = None  # the second argument, for aggregates of two
    option: float | str | bool | None = None


def count(f: Callable[[T], Any] | None = None) -> Aggregate[T]:
    """The number of rows of a group; with `f`, of rows whose `f` is not NULL. An int."""
    return Aggregate("count", f)


def sum(f: Callable[[T], Any]) -> Aggregate[T]:  # noqa: A001 - the field's name
    """The sum of `f(row)`.

    Ints give an int, and beyond 64 bits a `StepError`. Floats give a float, added exactly and
    rounded once. Decimal(p, s) gives a Decimal with ten more digits, at most 38.
    """
    return Aggregate("sum", f)


def avg(f: Callable[[T], Any]) -> Aggregate[T]:
    """The mean of `f(row)`: a float for ints and floats, a Decimal(p+4, s+4) for Decimal(p, s)."""
    return Aggregate("avg", f)


def stddev(f: Callable[[T], Any], *, population: bool = False) -> Aggregate[T]:
    """The sample standard deviation of `f(row)`, a float; NULL for fewer than two values.

    With `population=True` it is the population's (SQL's stddev_pop), and NULL without values. It is
    computed from exact sums of the values and of their squares. As in Spark, numbers are converted
    to floats.
    """
    return Aggregate("stddev", f, option=population or None)


def variance(f: Callable[[T], Any], *, population: bool = False) -> Aggregate[T]:
    """The sample variance of `f(row)`: the square of `stddev`, from the same exact sums.

    With `population=True` it is the population's (SQL's var_pop).
    """
    return Aggregate("variance", f, option=population or None)


def corr(x: Callable[[T], Any], y: Callable[[T], Any]) -> Aggregate[T]:
    """The correlation (Pearson's) of two numbers of each row, a float from -1 to 1.

    Only rows with both numbers count. It is NULL for fewer than two of them, and if one of the
    numbers is constant. It is computed from exact sums of the numbers, of their squares and of
    their products.
    """
    return Aggregate("corr", x, other=y)


def covar_pop(x: Callable[[T], Any], y: Callable[[T], Any]) -> Aggregate[T]:
    """The covariance of two numbers of each row, divided by their number: a float.

    Only rows with both numbers count, and without any it is NULL. It is computed from exact sums,
    as `corr` is.
    """
    return Aggregate("covar_pop", x, other=y)


def covar_samp(x: Callable[[T], Any], y: Callable[[T], Any]) -> Aggregate[T]:
    """The sample covariance: as `covar_pop`, divided by one less. NULL for fewer than two rows."""
    return Aggregate("covar_samp", x, other=y)


def regr_slope(y: Callable[[T], Any], x: Callable[[T], Any]) -> Aggregate[T]:
    """The slope of the line of least squares through (x, y), a float; y comes first, as in SQL.

    Only rows with both numbers count. It is NULL if x is constant, or there are no rows. It is
    computed from exact sums, as `corr` is.
    """
    return Aggregate("regr_slope", y, other=x)


def regr_intercept(y: Callable[[T], Any], x: Callable[[T], Any]) -> Aggregate[T]:
    """The y at x = 0 of the line of `regr_slope`; NULL where `regr_slope` is."""
    return Aggregate("regr_intercept", y, other=x)


def regr_r2(y: Callable[[T], Any], x: Callable[[T], Any]) -> Aggregate[T]:
    """The square of the correlation: NULL if x is constant, 1.0 if only y is."""
    return Aggregate("regr_r2", y, other=x)


def regr_count(y: Callable[[T], Any], x: Callable[[T], Any]) -> Aggregate[T]:
    """The number of rows with both numbers. An int."""
    return Aggregate("regr_count", y, other=x)


def regr_avgx(y: Callable[[T], Any], x: Callable[[T], Any]) -> Aggregate[T]:
    """The mean of x, in the rows that have y too: a float; NULL without such rows."""
    return Aggregate("regr_avgx", y, other=x)


def regr_avgy(y: Callable[[T], Any], x: Callable[[T], Any]) -> Aggregate[T]:
    """The mean of y, in the rows that have x too: a float; NULL without such rows."""
    return Aggregate("regr_avgy", y, other=x)


def regr_sxx(y: Callable[[T], Any], x: Callable[[T], Any]) -> Aggregate[T]:
    """The sum of the squares of x less its mean, in rows with both numbers; NULL without any."""
    return Aggregate("regr_sxx", y, other=x)


def regr_syy(y: Callable[[T], Any], x: Callable[[T], Any]) -> Aggregate[T]:
    """The sum of the squares of y less its mean, in rows with both numbers; NULL without any."""
    return Aggregate("regr_syy", y, other=x)


def regr_sxy(y: Callable[[T], Any], x: Callable[[T], Any]) -> Aggregate[T]:
    """The sum of (x less its mean) times (y less its mean); NULL without rows that have both."""
    return Aggregate("regr_sxy", y, other=x)


def skewness(f: Callable[[T], Any]) -> Aggregate[T]:
    """The skewness of `f(row)`, a float; NULL if all values are equal, or there are none.

    The state has every value. A step reads the values of the groups that it touches.
    """
    return Aggregate("skewness", f)


def kurtosis(f: Callable[[T], Any]) -> Aggregate[T]:
    """The excess kurtosis of `f(row)`, 0 for a normal distribution; otherwise like `skewness`."""
    return Aggregate("kurtosis", f)


def bit_and(f: Callable[[T], Any]) -> Aggregate[T]:
    """The bits that are set in all ints `f(row)`. An int; NULL without values.

    The state has each value, with its count. A step reads the distinct values of the groups that it
    touches.
    """
    return Aggregate("bit_and", f)


def bit_or(f: Callable[[T], Any]) -> Aggregate[T]:
    """The bits that are set in any int `f(row)`; otherwise like `bit_and`."""
    return Aggregate("bit_or", f)


def bit_xor(f: Callable[[T], Any]) -> Aggregate[T]:
    """The bits that are set in an odd number of ints `f(row)`. An int; NULL without values.

    The state has every value. A step reads the values of the groups that it touches.
    """
    return Aggregate("bit_xor", f)


def bool_and(f: Callable[[T], Any]) -> Aggregate[T]:
    """Whether all `f(row)` that are not NULL are true. A bool."""
    return Aggregate("bool_and", f)


def bool_or(f: Callable[[T], Any]) -> Aggregate[T]:
    """Whether any `f(row)` is true. A bool."""
    return Aggregate("bool_or", f)


def min(f: Callable[[T], Any]) -> Aggregate[T]:  # noqa: A001 - the field's name
    """The least `f(row)`, of any type, in Spark's order: NaN is above all numbers."""
    return Aggregate("min", f)


def max(f: Callable[[T], Any]) -> Aggregate[T]:  # noqa: A001 - the field's name
    """The greatest `f(row)`, of any type, in Spark's order: NaN is above all numbers."""
    return Aggregate("max", f)


def any_value(f: Callable[[T], Any]) -> Aggregate[T]:
    """Some `f(row)` that is not NULL: always the least one, to be deterministic."""
    return Aggregate("any_value", f)


def mode(f: Callable[[T], Any]) -> Aggregate[T]:
    """The most frequent `f(row)`; for several, the least, like Spark's mode(x, true).

    The state has the number of occurrences of each value. A step costs the values that it touches.
    """
    return Aggregate("mode", f)


def percentile(f: Callable[[T], Any], p: float) -> Aggregate[T]:
    """The exact percentile of `f(row)`, with `p` from 0 to 1, a float; interpolated, as in Spark.

    The state has every value. A step reads the values of the groups that it touches.
    """
    return Aggregate("percentile", f, option=p)


def median(f: Callable[[T], Any]) -> Aggregate[T]:
    """The median of `f(row)`: `percentile(f, 0.5)`."""
    return Aggregate("median", f, option=0.5)


def collect_list(f: Callable[[T], Any], *, order: Any = None) -> Aggregate[T]:
    """The list of `f(row)`, in an order like that of `st.window`: a function of the row, an index.

    For descending order write `order=st.win.desc(lambda a: a.x)`, or `order=lambda a: a.x.desc()`.
    Rows that tie, and all rows if there is no order, are sorted by value. Without values the list
    is empty. The state has every value. A step reads the values of the groups that it touches.
    """
    return Aggregate("collect_list", f, order)


def collect_set(f: Callable[[T], Any]) -> Aggregate[T]:
    """The list of the distinct values of `f(row)`, sorted. Without values the list is empty.

    Spark's own collect_set has no order. The state has each value, with its count. A step reads the
    distinct values of the groups that it touches.
    """
    return Aggregate("collect_set", f)


def string_agg(
    f: Callable[[T], Any], separator: str = "", *, order: Any = None, distinct: bool = False
) -> Aggregate[T]:
    """The strings `f(row)`, joined with a separator, in an order as in `collect_list`.

    For descending order write `order=st.win.desc(lambda a: a.x)`. NULL without values. With
    `distinct=True` each string occurs once, and the only orders are by the string itself. Also
    called listagg.
    """
    kind = "string_agg_distinct" if distinct else "string_agg"
    return Aggregate(kind, f, order, option=separator)


def grouping_id() -> Aggregate[Any]:
    """SQL's grouping_id(): the parts of the key that a row of `rollup`, `cube` … is summed over.

    An int with a bit for each part: 1 if the part is summed over (and so NULL). The last part is
    the lowest bit.
    """
    return Aggregate("grouping_id")


def arg_min(order: Callable[[T], Any], value: Callable[[T], Any] | None = None) -> Aggregate[T]:
    """`value(row)`, or the row itself, where `order(row)` is least; on ties, the least value.

    NULL if `order` is NULL in all rows.
    """
    return Aggregate("arg_min", value, order)


def arg_max(order: Callable[[T], Any], value: Callable[[T], Any] | None = None) -> Aggregate[T]:
    """`value(row)`, or the row itself, where `order(row)` is greatest; on ties, the least value.

    NULL if `order` is NULL in all rows.
    """
    return Aggregate("arg_max", value, order)


def first_n(order: Any, n: int, value: Callable[[T], Any] | None = None) -> Aggregate[T]:
    """The list of `value(row)`, or of the rows, of the first n by an order as in `st.window`.

    For the last ones write `st.win.desc(lambda a: a.x)`, or `lambda a: a.x.desc()`. A row of weight
    2 is in the list twice. Rows that tie are sorted by value.
    """
    return Aggregate("first_n", value, order, n)


def count_distinct(f: Callable[[T], Any]) -> Aggregate[T]:
    """The number of distinct values of `f(row)`, without NULL. An int."""
    return Aggregate("count_distinct", f)


def avg_distinct(f: Callable[[T], Any]) -> Aggregate[T]:
    """The mean of the distinct values of `f(row)`, with the types of `avg`."""
    return Aggregate("avg_distinct", f)


def sum_distinct(f: Callable[[T], Any]) -> Aggregate[T]:
    """The sum of the distinct values of `f(row)`, with the types of `sum`."""
    return Aggregate("sum_distinct", f)


def __dir__() -> list[str]:
    """The public names only: the aggregates."""
    return sorted(__all__)


if not TYPE_CHECKING:  # with this, a type checker would accept any name

    def __getattr__(name: str) -> NoReturn:
        """Raise an error that lists the available aggregates."""
        raise AttributeError(
            f"st.agg has no {name!r}; it has {', '.join(__all__)}: for others gather the group "
            "with st.agg.collect, and compute them in a function that is wrapped in st.python"
        )
