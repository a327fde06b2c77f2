"""The aggregates of a group: sums, means, extremes, first rows, collections.

A function of the row picks the value, as in `map`. NULL values are skipped, as in SQL, except by
`first_n` and `collect`, which also take rows with NULL. If no value is left, the result is NULL, as
in SQL, and the field must be `X | None`; a count is 0.
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
    "bool_and",
    "bool_or",
    "collect",
    "collect_list",
    "corr",
    "count",
    "count_distinct",
    "first_n",
    "grouping_id",
    "max",
    "median",
    "min",
    "mode",
    "percentile",
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
    """The Z-set of what `f` gives for the rows."""

    f: Callable[[T], V]
    to: Any = None

    def __call__(self, row: T) -> ZSetPython[V]:
        return ZSetPython({self.f(row): 1})


def collect(f: Callable[[T], V], *, to: type[V] | None = None) -> Callable[[T], ZSetPython[V]]:
    """A `ZSetPython` of `f(row)` for a group's rows: in an aggregate, or as a `pick_value`.

    `f` gives a value of any row type; say it with `to` or an annotation if it cannot be derived.
    Equal values are counted. The state holds every value once. A step costs the whole groups that
    it touches.

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
    """One of the aggregates of this module, of rows of type T."""

    kind: str
    value: Callable[[T], Any] | None = None
    order: Any = None  # as `st.window` takes it
    n: int = 1
    other: Callable[[T], Any] | None = None  # the second value, of those that are of two
    option: float | str | bool | None = None


def count(f: Callable[[T], Any] | None = None) -> Aggregate[T]:
    """The number of rows of a group; with `f`, of those for which it is not NULL. An int."""
    return Aggregate("count", f)


def sum(f: Callable[[T], Any]) -> Aggregate[T]:  # noqa: A001 - the field's name
    """The sum of `f(row)`.

    For ints an int (beyond 64 bits it is a `StepError`), for floats a float, added exactly and
    rounded once, for a Decimal(p, s) a Decimal with ten more digits, at most 38.
    """
    return Aggregate("sum", f)


def avg(f: Callable[[T], Any]) -> Aggregate[T]:
    """The mean of `f(row)`: of ints and floats a float, of a Decimal(p, s) a Decimal(p+4, s+4)."""
    return Aggregate("avg", f)


def stddev(f: Callable[[T], Any], *, population: bool = False) -> Aggregate[T]:
    """The sample standard deviation of `f(row)`, a float; NULL for fewer than two values.

    With `population=True` that of the population (SQL's stddev_pop), NULL without values. Computed
    from exact sums of the values and of their squares. As in Spark, numbers are converted to
    floats.
    """
    return Aggregate("stddev", f, option=population or None)


def variance(f: Callable[[T], Any], *, population: bool = False) -> Aggregate[T]:
    """The sample variance of `f(row)`: the square of `stddev`, from the same exact sums.

    With `population=True` that of the population (SQL's var_pop).
    """
    return Aggregate("variance", f, option=population or None)


def corr(x: Callable[[T], Any], y: Callable[[T], Any]) -> Aggregate[T]:
    """The correlation (Pearson's) of two numbers of each row, a float from -1 to 1.

    Of the rows that have both numbers. NULL if there are fewer than two of them, or if one of the
    numbers is always the same. Computed from exact sums of the numbers, of their squares and of
    their products.
    """
    return Aggregate("corr", x, other=y)


def bool_and(f: Callable[[T], Any]) -> Aggregate[T]:
    """Whether `f(row)` is true wherever it is not NULL. A bool."""
    return Aggregate("bool_and", f)


def bool_or(f: Callable[[T], Any]) -> Aggregate[T]:
    """Whether `f(row)` is true somewhere. A bool."""
    return Aggregate("bool_or", f)


def min(f: Callable[[T], Any]) -> Aggregate[T]:  # noqa: A001 - the field's name
    """The least `f(row)`, of any type, in Spark's order: NaN is above all numbers."""
    return Aggregate("min", f)


def max(f: Callable[[T], Any]) -> Aggregate[T]:  # noqa: A001 - the field's name
    """The greatest `f(row)`, of any type, in Spark's order: NaN is above all numbers."""
    return Aggregate("max", f)


def any_value(f: Callable[[T], Any]) -> Aggregate[T]:
    """Some `f(row)` that is not NULL: the least one, so that it is the same in every run."""
    return Aggregate("any_value", f)


def mode(f: Callable[[T], Any]) -> Aggregate[T]:
    """The most frequent `f(row)`; for several, the least, like Spark's mode(x, true).

    The state has how often each value occurs; a step costs the values that it touches.
    """
    return Aggregate("mode", f)


def percentile(f: Callable[[T], Any], p: float) -> Aggregate[T]:
    """The exact percentile of `f(row)`, with `p` from 0 to 1, a float; interpolated, as in Spark.

    The state has every value; a step reads the values of the groups that it touches.
    """
    return Aggregate("percentile", f, option=p)


def median(f: Callable[[T], Any]) -> Aggregate[T]:
    """The median of `f(row)`: `percentile(f, 0.5)`."""
    return Aggregate("median", f, option=0.5)


def collect_list(f: Callable[[T], Any], *, order: Any = None) -> Aggregate[T]:
    """The list of `f(row)`, in an order like that of `st.window`: a function of the row, an index.

    For descending order write `order=st.win.desc(lambda a: a.x)`, or `order=lambda a: a.x.desc()`.
    Rows that tie, and all rows if there is no order, are sorted by value. The list is empty if
    there is no value. The state has every value; a step reads the values of the groups that it
    touches.
    """
    return Aggregate("collect_list", f, order)


def string_agg(f: Callable[[T], Any], separator: str = "", *, order: Any = None) -> Aggregate[T]:
    """The strings `f(row)`, joined with a separator, in an order as in `collect_list`.

    For descending order write `order=st.win.desc(lambda a: a.x)`. NULL without values. Also called
    listagg.
    """
    return Aggregate("string_agg", f, order, option=separator)


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
    """The number of different values of `f`, without NULL. An int."""
    return Aggregate("count_distinct", f)


def sum_distinct(f: Callable[[T], Any]) -> Aggregate[T]:
    """The sum of the different values that `f` gives; types are those of `sum`."""
    return Aggregate("sum_distinct", f)


def __dir__() -> list[str]:
    """The aggregates, without what they are made of."""
    return sorted(__all__)


if not TYPE_CHECKING:  # a checker would take any name for one that there is

    def __getattr__(name: str) -> NoReturn:
        """Say which aggregates there are."""
        raise AttributeError(
            f"st.agg has no {name!r}; it has {', '.join(__all__)}: for others gather the group "
            "with st.agg.collect, and compute them in a function that is wrapped in st.python"
        )
