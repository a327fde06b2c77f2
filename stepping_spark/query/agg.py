"""What a group is reduced to: sums, means, extremes, first rows, collections.

A function of the row picks the value, as in `map`. NULLs are left out, as SQL does, but for those
of rows that `first_n` and `collect` gather. Where nothing is left, SQL's answer is NULL, and the
field must be `X | None`; a count is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

from stepping_spark.zsets.spark import ZSetPython

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
    """A `ZSetPython` of `f(row)` of a group's rows: in an aggregate, or as a `pick_value`.

    `f` gives a value of any row type, by `to` or an annotation where it cannot be seen; equal ones
    are counted. The state holds every value once; a step costs the groups that it touches, whole.

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
    order: Any = None  # a function of the row, or an Index
    n: int = 1


def count(f: Callable[[T], Any] | None = None) -> Aggregate[T]:
    """How many rows a group has; with `f`, for how many of them it is not NULL. An int."""
    return Aggregate("count", f)


def sum(f: Callable[[T], Any]) -> Aggregate[T]:  # noqa: A001 - the field's name
    """The sum of `f(row)`.

    Of ints an int (beyond 64 bits it is a `StepError`), of floats a float, added exactly and
    rounded once, of a Decimal(p, s) one of ten digits more, at most 38.
    """
    return Aggregate("sum", f)


def avg(f: Callable[[T], Any]) -> Aggregate[T]:
    """The mean of `f(row)`: of ints and floats a float, of a Decimal(p, s) a Decimal(p+4, s+4)."""
    return Aggregate("avg", f)


def stddev(f: Callable[[T], Any]) -> Aggregate[T]:
    """The sample standard deviation of `f(row)`, a float; NULL for fewer than two values.

    From exact sums of the values and of their squares. As in Spark, numbers are taken as floats.
    """
    return Aggregate("stddev", f)


def min(f: Callable[[T], Any]) -> Aggregate[T]:  # noqa: A001 - the field's name
    """The least `f(row)`, of any type, in Spark's order: NaN is above all numbers."""
    return Aggregate("min", f)


def max(f: Callable[[T], Any]) -> Aggregate[T]:  # noqa: A001 - the field's name
    """The greatest `f(row)`, of any type, in Spark's order: NaN is above all numbers."""
    return Aggregate("max", f)


def arg_min(order: Callable[[T], Any], value: Callable[[T], Any] | None = None) -> Aggregate[T]:
    """`value(row)`, or the row itself, where `order(row)` is least; of several the least value.

    NULL where `order` is NULL in all rows.
    """
    return Aggregate("arg_min", value, order)


def arg_max(order: Callable[[T], Any], value: Callable[[T], Any] | None = None) -> Aggregate[T]:
    """`value(row)`, or the row itself, where `order(row)` is greatest; of several the least value.

    NULL where `order` is NULL in all rows.
    """
    return Aggregate("arg_max", value, order)


def first_n(index: Any, n: int, value: Callable[[T], Any] | None = None) -> Aggregate[T]:
    """The list of `value(row)`, or of the rows, of the first n by an index or a function.

    A row of weight 2 is there twice; of equals by the index, the lesser value comes first.
    """
    return Aggregate("first_n", value, index, n)


def count_distinct(f: Callable[[T], Any]) -> Aggregate[T]:
    """How many different values, but for NULL, `f` gives. An int."""
    return Aggregate("count_distinct", f)


def sum_distinct(f: Callable[[T], Any]) -> Aggregate[T]:
    """The sum of the different values that `f` gives; types are those of `sum`."""
    return Aggregate("sum_distinct", f)


AGGREGATES = (
    *("arg_max", "arg_min", "avg", "collect", "count", "count_distinct", "first_n", "max", "min"),
    *("stddev", "sum", "sum_distinct"),
)

if not TYPE_CHECKING:  # a checker would take any name for one that there is

    def __getattr__(name: str) -> NoReturn:
        """Say which aggregates there are."""
        raise AttributeError(
            f"st.agg has no {name!r}; it has {', '.join(AGGREGATES)}: for others gather the group "
            "with st.agg.collect, and compute them in a function that is wrapped in st.python"
        )
