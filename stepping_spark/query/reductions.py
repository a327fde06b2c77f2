"""The kinds of reductions, by which aggregates are computed, and the state of each.

Accumulable aggregates are sums, and changes are added to them. Hierarchical ones are the first rows
by an order; the first rows of a table are the first among the first rows of its parts. Basic ones
store all values. Aggregates of distinct values are accumulable, after `distinct`. The most frequent
value is the first value, ordered by a sum. If there are several kinds, each is computed separately,
and their results are joined by key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from stepping_spark.expressions.expr import Build, Expr, Field, Literal, Singleton
from stepping_spark.expressions.index import Order
from stepping_spark.graph.reduce_plan import ReducePart
from stepping_spark.physical import Sorting
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.types import ZSetOf, tuple_of
from stepping_spark.zsets.spark import ZSetPython

ONE = Literal(INT, 1)

Levels = tuple[int, ...]
Shown = Callable[[tuple[str, ...]], Expr]  # the value of an aggregate, from the path of its result


@dataclass
class Reduction:
    """A reduction under construction; its rows are the key, followed by the arguments."""

    args: list[Expr] = field(default_factory=list)
    aggregates: list[str] = field(default_factory=list)
    always: ClassVar[bool] = False  # without a key it gives a row even without input

    def arg(self, e: Expr) -> Field:
        """An argument, as a column of the reduction's rows."""
        if e not in self.args:
            self.args.append(e)
        return Field(e.type, (f"_{self.args.index(e) + 2}",))

    @property
    def pick(self) -> Expr:
        """The expression that one row adds to the sum."""
        raise NotImplementedError

    def part(self, monotonic: bool, levels: Levels) -> ReducePart:
        """The description for `explain`; `levels` are the numbers of buckets of groups."""
        raise NotImplementedError


class Leaves(Protocol):
    """The collector of the sums that an aggregate needs."""

    def arg(self, e: Expr) -> Expr:
        """An argument, as an expression that sums can use."""

    def leaf(self, e: Expr) -> int:
        """The number of a sum, from 1."""


@dataclass
class Sums(Reduction):
    """Sums over all rows, or over the distinct ones."""

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
        return Build(tuple_of(e.type for e in self.leaves), tuple(self.leaves))

    def part(self, monotonic: bool, levels: Levels) -> ReducePart:
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

    def part(self, monotonic: bool, levels: Levels) -> ReducePart:
        rows = "the first row" if self.n == 1 else f"the first {self.n} rows"
        keeps = f"{rows}, by key"
        kind = "hierarchical, monotonic"
        if not monotonic:
            kind = "hierarchical, bucketed" if levels else "hierarchical, of small groups"
            keeps = "; ".join(_by_level("all rows", rows, levels))
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

    def part(self, monotonic: bool, levels: Levels) -> ReducePart:
        return ReducePart("basic", tuple(self.aggregates), "all values, by key")


@dataclass
class Gathered(Reduction):
    """All values, or the distinct ones, as an ordered list."""

    order: Order = ()
    values: tuple[Expr, ...] = ()
    distinct: bool = False

    def part(self, monotonic: bool, levels: Levels) -> ReducePart:
        keeps = "all values, by key; a step reads those of the groups that it touches"
        if self.distinct:
            keeps = f"how often each value comes, by key and value; and {keeps}, each once"
            return ReducePart("distinct, then basic", tuple(self.aggregates), keeps)
        return ReducePart("basic", tuple(self.aggregates), keeps)


@dataclass
class Frequent(Reduction):
    """The most frequent value; the least of several."""

    values: tuple[Expr, ...] = ()

    def part(self, monotonic: bool, levels: Levels) -> ReducePart:
        keeps = (
            "how often each value comes, by key and value; "
            f"{'; '.join(_by_level('all of those', 'the first one', levels))}"
        )
        return ReducePart("accumulable, then hierarchical", tuple(self.aggregates), keeps)


def _by_level(rows: str, first: str, levels: Levels) -> list[str]:
    """The state of each level, down to whole groups."""
    kept = [rows, *([f"{first} of each bucket"] * len(levels))]
    return [
        *(f"{what}, by key and {n:,} buckets" for what, n in zip(kept, levels, strict=False)),
        f"{kept[-1]}, by key",
    ]


@dataclass(frozen=True)
class Asked:
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
        return f"{self.field} = {self.asked}"

    @property
    def asked(self) -> str:
        """The aggregate, without its field."""
        shown = [str(s) for s in self.order]
        shown += [str(self.n)] * (self.kind == "first_n")
        shown += [str(e) for e in (self.value, self.other) if e is not None]
        shown += [] if self.option is None or self.kind == "median" else [repr(self.option)]
        return f"{self.kind}({', '.join(shown)})"

    @property
    def picked(self) -> Expr:
        """The value that is aggregated."""
        assert self.value is not None
        return self.value
