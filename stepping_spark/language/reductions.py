"""The kinds of reductions that compute aggregates, their state, and aggregates made of sums.

Accumulable aggregates are sums, and changes are added to them. Hierarchical aggregates are the
first rows by an order; the first rows of a table are the first among the first rows of its parts.
Basic aggregates store all values. Aggregates of distinct values are accumulable, after `distinct`.
The most frequent value is the first value, ordered by a sum. If there are several kinds, each is
computed separately, and their results are joined by key.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Protocol

from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.operators import buckets_of
from stepping_spark.circuit.operators.groups import ReducePart
from stepping_spark.circuit.physical import Sorting
from stepping_spark.expressions.expr import Build, Call, Expr, Field, Literal, Singleton, tupled
from stepping_spark.expressions.index import Order
from stepping_spark.expressions.portable import Mean, if_nonzero, one_if_known, truth, widened
from stepping_spark.expressions.statistics import (
    PAIRED,
    correlation,
    deviation,
    paired,
    square,
    square_left,
    times,
    times_left,
)
from stepping_spark.rows.atoms import BOOL, FLOAT, INT, REST, Atom, RowType
from stepping_spark.rows.schema import SUM_OF_INTS
from stepping_spark.rows.types import Optional, ZSetOf, unwrap
from stepping_spark.zsets.spark import ZSetPython

ONE = Literal(INT, 1)

Shown = Callable[[tuple[str, ...]], Expr]  # the value of an aggregate, from the path of its result


@dataclass
class Reduction:
    """A reduction under construction; its rows are the key, followed by the arguments."""

    args: list[Expr] = field(default_factory=list)
    aggregates: list[str] = field(default_factory=list)
    always: ClassVar[bool] = False  # without a key it has a row even without input

    def arg(self, e: Expr) -> Field:
        """An argument, as a column of the reduction's rows."""
        if e not in self.args:
            self.args.append(e)
        return Field(e.type, (f"_{self.args.index(e) + 2}",))

    @property
    def pick(self) -> Expr:
        """The expression that one row adds to the sum."""
        raise NotImplementedError

    def part(self, monotonic: bool, group_size: int | None) -> ReducePart:
        """The description for `explain`."""
        raise NotImplementedError


class Leaves(Protocol):
    """The collector of the sums that an aggregate needs."""

    def arg(self, e: Expr) -> Expr:
        """An argument, as an expression that sums can use."""

    def leaf(self, e: Expr) -> int:
        """The number of a sum, from 1."""


@dataclass
class Sums(Reduction):
    """Sums over all rows, or over the distinct values."""

    distinct: bool = False
    always: ClassVar[bool] = True
    leaves: list[Expr] = field(default_factory=list)

    def leaf(self, e: Expr) -> int:
        """The number of a sum, from 1."""
        if e not in self.leaves:
            self.leaves.append(e)
        return self.leaves.index(e) + 1

    @property
    def pick(self) -> Build:
        """The numbers that one row adds."""
        return tupled(*self.leaves)

    def part(self, monotonic: bool, group_size: int | None) -> ReducePart:
        n = len(self.leaves)
        keeps = f"the number of rows and {n} sum{'s' * (n > 1)}, by key"
        if self.distinct:
            keeps = f"how often each value comes, by key and value; and {keeps}"
            return ReducePart("distinct, then accumulable", tuple(self.aggregates), keeps)
        return ReducePart("accumulable", tuple(self.aggregates), keeps)


@dataclass
class First(Reduction):
    """The first rows by an order: values of the first row, or the list of a value of all."""

    order: Order = ()
    n: int = 1
    values: tuple[Expr, ...] = ()
    listed: bool = False

    def part(self, monotonic: bool, group_size: int | None) -> ReducePart:
        rows = "the first row" if self.n == 1 else f"the first {self.n} rows"
        keeps = f"{rows}, by key"
        kind = "hierarchical, monotonic"
        if not monotonic:
            buckets = buckets_of(group_size, self.n)
            kind = "hierarchical, bucketed" if buckets else "hierarchical, of small groups"
            keeps = _kept("all rows", rows, buckets)
        if self.listed:
            keeps += "; and those again, to list them"
        return ReducePart(kind, tuple(self.aggregates), keeps)


@dataclass
class Collected(Reduction):
    """All values, as a Z-set."""

    values: tuple[Expr, ...] = ()
    always: ClassVar[bool] = True

    @property
    def pick(self) -> Singleton:
        """The Z-set of one row."""
        (item,) = self.values
        return Singleton(ZSetOf(item.type, ZSetPython), item)

    def part(self, monotonic: bool, group_size: int | None) -> ReducePart:
        return ReducePart("basic", tuple(self.aggregates), "all values, by key")


@dataclass
class Gathered(Reduction):
    """All values, or the distinct ones, as an ordered list."""

    order: Order = ()
    values: tuple[Expr, ...] = ()
    distinct: bool = False

    def part(self, monotonic: bool, group_size: int | None) -> ReducePart:
        keeps = "all values, by key; a step reads those of the groups that it touches"
        if self.distinct:
            keeps = f"how often each value comes, by key and value; and {keeps}, each once"
            return ReducePart("distinct, then basic", tuple(self.aggregates), keeps)
        return ReducePart("basic", tuple(self.aggregates), keeps)


@dataclass
class Frequent(Reduction):
    """The most frequent value; the least of several."""

    values: tuple[Expr, ...] = ()

    def part(self, monotonic: bool, group_size: int | None) -> ReducePart:
        keeps = (
            "how often each value comes, by key and value; "
            f"{_kept('all of those', 'the first one', buckets_of(group_size, 1))}"
        )
        return ReducePart("accumulable, then hierarchical", tuple(self.aggregates), keeps)


def _kept(rows: str, first: str, buckets: int | None) -> str:
    """The state of first rows."""
    all_rows = f"{rows}, by key"
    if buckets is None:
        return all_rows
    return f"{all_rows}; {first}, and in large groups of each of {buckets:,} buckets, by key"


@dataclass(frozen=True)
class AggregateCall:
    """A requested aggregate, with its functions as expressions over the input's rows."""

    field: str
    kind: str
    value: Expr | None
    order: tuple[Sorting, ...]
    n: int
    where: str
    other: Expr | None = None  # the second argument, for aggregates of two
    option: float | str | bool | None = None

    def __str__(self) -> str:
        says_kind = re.fullmatch(rf"{self.kind}(_\d+)?", self.field)
        return self.call if says_kind else f"{self.field} = {self.call}"

    @property
    def call(self) -> str:
        """The aggregate, without its field."""
        arguments = [str(s) for s in self.order]
        arguments += [str(self.n)] * (self.kind == "first_n")
        arguments += [str(e) for e in (self.value, self.other) if e is not None]
        arguments += [] if self.option is None or self.kind == "median" else [repr(self.option)]
        return f"{self.kind}({', '.join(arguments)})"

    @property
    def picked(self) -> Expr:
        """The value that is aggregated."""
        assert self.value is not None
        return self.value


def _type(keyed: bool, t: RowType, e: Expr) -> RowType:
    """The type of an aggregate that is NULL if the expression has no value."""
    nullable = isinstance(e.type, Optional) or not keyed
    return Optional(unwrap(t)) if nullable else unwrap(t)


def _count(keyed: bool, sums: Leaves, a: AggregateCall) -> Shown:
    """The number of rows, or of values."""
    leaf = sums.leaf(_one_if_known(sums, a.value))
    return lambda at: Field(INT, (*at, f"_{leaf}"))


def _sum(keyed: bool, sums: Leaves, a: AggregateCall) -> Shown:
    """The sum; NULL without values."""
    x = sums.arg(a.picked)
    t = summed_type(a)
    summed = sums.leaf(_retyped(x, t))
    n = sums.leaf(_one_if_known(sums, a.value))

    def show(at: tuple[str, ...]) -> Expr:
        value = Field(t, (*at, f"_{summed}"))
        if not isinstance(_type(keyed, t, x), Optional):
            return value
        return if_nonzero(Field(INT, (*at, f"_{n}")), value)

    return show


def _avg(keyed: bool, sums: Leaves, a: AggregateCall) -> Shown:
    """The sum divided by the count."""
    x = sums.arg(a.picked)
    t = summed_type(a)
    quotient_type: Atom = FLOAT
    if t == INT:
        t = SUM_OF_INTS  # wide enough for every sum
        leaf = widened(x, t)
    else:
        leaf = _retyped(x, t)
        quotient_type = mean_type(a) if t.name == "Decimal" else FLOAT
    summed, n = sums.leaf(leaf), sums.leaf(_one_if_known(sums, a.value))

    def show(at: tuple[str, ...]) -> Expr:
        args = Field(t, (*at, f"_{summed}")), Field(INT, (*at, f"_{n}"))
        return Mean(_type(keyed, quotient_type, x), args)

    return show


def _moment(keyed: bool, sums: Leaves, a: AggregateCall) -> Shown:
    """The variance or the deviation, from the sums of the values and of their squares."""
    summed_type(a)
    x = widened(sums.arg(a.picked), FLOAT)
    leaves = [_one_if_known(sums, a.value), *_exactly(x), *_exactly(square(x)), square_left(x)]
    numbers = [sums.leaf(leaf) for leaf in leaves]

    def show(at: tuple[str, ...]) -> Expr:
        return deviation(_leaves(at, numbers), population=a.option is True, root=a.kind == "stddev")

    return show


def _corr(keyed: bool, sums: Leaves, a: AggregateCall) -> Shown:
    """The correlation, from the sums of two values, of their squares and of their products."""
    numbers = _of_pairs(sums, _pair(sums, a), ("x", "y", "xx", "yy", "xy"))
    return lambda at: correlation(_leaves(at, numbers))


def _paired(keyed: bool, sums: Leaves, a: AggregateCall) -> Shown:
    """A covariance or a number of a line, from the sums that it needs of `_corr`."""
    numbers = _of_pairs(sums, _pair(sums, a), PAIRED[a.kind])
    return lambda at: paired(a.kind, _leaves(at, numbers))


def _count_of_pairs(keyed: bool, sums: Leaves, a: AggregateCall) -> Shown:
    """The number of rows with both values."""
    leaf = sums.leaf(_one_of(_pair(sums, a)[0]))
    return lambda at: Field(INT, (*at, f"_{leaf}"))


def _mean_of_pairs(keyed: bool, sums: Leaves, a: AggregateCall) -> Shown:
    """The mean of one of two values, in rows that have both."""
    value = _pair(sums, a)[a.kind == "regr_avgy"]
    summed, n = sums.leaf(value), sums.leaf(_one_of(value))

    def show(at: tuple[str, ...]) -> Expr:
        args = Field(FLOAT, (*at, f"_{summed}")), Field(INT, (*at, f"_{n}"))
        return Mean(Optional(FLOAT), args)

    return show


def _pair(sums: Leaves, a: AggregateCall) -> tuple[Expr, Expr]:
    """The values x and y as floats, in rows with both. In SQL a regression has y first."""
    assert a.other is not None
    for e in (a.picked, a.other):
        summed_type(dataclasses.replace(a, value=e))
    first, second = (widened(sums.arg(e), FLOAT) for e in (a.picked, a.other))
    x, y = (second, first) if a.kind.startswith("regr_") else (first, second)
    return _where_known(x, y), _where_known(y, x)


def _of_pairs(sums: Leaves, pair: tuple[Expr, Expr], powers: tuple[str, ...]) -> list[int]:
    """The numbers of the sums of pairs: of their count, then of the wanted powers of x and y."""
    of = dict(zip("xy", pair, strict=True))
    leaves = [_one_of(pair[0])]
    for name in powers:
        if len(name) == 1:
            leaves += _exactly(of[name])
        else:
            p, q = of[name[0]], of[name[1]]
            leaves += [*_exactly(times(p, q)), times_left(p, q)]
    return [sums.leaf(leaf) for leaf in leaves]


def _one_of(x: Expr) -> Expr:
    return one_if_known(x) if isinstance(x.type, Optional) else ONE


def _where_known(x: Expr, y: Expr) -> Expr:
    """The value in rows that also have the other one, otherwise NULL."""
    return if_nonzero(one_if_known(y), x) if isinstance(y.type, Optional) else x


def _exactly(x: Expr) -> tuple[Expr, Expr]:
    """A float twice: for the rounded sum, and for the rest that rounding leaves."""
    t = Optional(REST) if isinstance(x.type, Optional) else REST
    return x, dataclasses.replace(x, type=t)


def _leaves(at: tuple[str, ...], numbers: list[int]) -> tuple[Expr, ...]:
    """The fields of a count, and of sums of floats."""
    types = (INT, *[FLOAT] * (len(numbers) - 1))
    return tuple(Field(t, (*at, f"_{n}")) for t, n in zip(types, numbers, strict=True))


def _truths(keyed: bool, sums: Leaves, a: AggregateCall) -> Shown:
    """Whether all, or any, of the values are true: from their number, and the number of true."""
    if unwrap(a.picked.type) != BOOL:
        raise CompileError(
            f"{a.where}: {a}: {a.picked.type} is not a bool; compare it with something"
        )
    x = sums.arg(a.picked)
    n, true = sums.leaf(_one_if_known(sums, a.value)), sums.leaf(truth(x))

    def show(at: tuple[str, ...]) -> Expr:
        many, trues = (Field(INT, (*at, f"_{i}")) for i in (n, true))
        op, right = ("==", many) if a.kind == "bool_and" else (">", Literal(INT, 0))
        value = Call(BOOL, op, (trues, right))
        return if_nonzero(many, value) if isinstance(_type(keyed, BOOL, x), Optional) else value

    return show


def _one_if_known(sums: Leaves, value: Expr | None) -> Expr:
    """1 for each row with a value."""
    if value is None or not isinstance(value.type, Optional):
        return ONE
    return one_if_known(sums.arg(value))


def _retyped(e: Expr, t: RowType) -> Expr:
    """The argument, converted for a sum of this type."""
    return dataclasses.replace(e, type=Optional(t) if isinstance(e.type, Optional) else t)


def summed_type(a: AggregateCall) -> Atom:
    """The type of the sum."""
    t = unwrap(a.picked.type)
    if not isinstance(t, Atom) or t.name not in ("int", "float", "Decimal"):
        raise CompileError(
            f"{a.where}: {a}: {a.picked.type} cannot be added up; these can: int, float, Decimal"
        )
    if t.name == "Decimal":
        return Atom("Decimal", Decimal, min(38, t.precision + 10), t.scale)
    return t


def mean_type(a: AggregateCall) -> Atom:
    t = unwrap(a.picked.type)
    assert isinstance(t, Atom)
    return Atom("Decimal", Decimal, min(38, t.precision + 4), min(38, t.scale + 4))


SUMMED: dict[str, Callable[[bool, Leaves, AggregateCall], Shown]] = {
    "avg": _avg,
    "bool_and": _truths,
    "bool_or": _truths,
    "corr": _corr,
    "count": _count,
    **dict.fromkeys(PAIRED, _paired),
    "regr_avgx": _mean_of_pairs,
    "regr_avgy": _mean_of_pairs,
    "regr_count": _count_of_pairs,
    "stddev": _moment,
    "sum": _sum,
    "variance": _moment,
}
