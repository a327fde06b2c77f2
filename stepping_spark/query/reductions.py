"""How an aggregation is computed: which aggregates together, by what kind of reduction.

Accumulable aggregates are sums, and a change is added to them. Hierarchical ones are the first
rows by an order, and the first of a whole are the first of those of its parts. Basic ones keep all
values. Those of distinct values are accumulable, of what `distinct` gives. Where there are several
kinds, each is computed apart, and the pieces of a key are collated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from stepping_spark.errors import CompileError
from stepping_spark.expressions.derived import Mean, Otherwise, given, known, widened
from stepping_spark.expressions.expr import Build, Expr, Field, Literal, Singleton
from stepping_spark.expressions.index import Order
from stepping_spark.expressions.moments import deviation, square, square_left
from stepping_spark.graph.reduce_plan import ReducePart
from stepping_spark.rows.atoms import FLOAT, INT, REST, Atom, RowType
from stepping_spark.rows.schema import BIG_INT
from stepping_spark.rows.types import ListOf, Optional, ZSetOf, tuple_of, unwrap
from stepping_spark.zsets.spark import ZSetPython

Shown = Callable[[tuple[str, ...]], Expr]  # the value of an aggregate, given where its piece is


@dataclass
class Reduction:
    """A reduction as it is put together; its rows are the key and then the arguments."""

    args: list[Expr] = field(default_factory=list)
    aggregates: list[str] = field(default_factory=list)

    def arg(self, e: Expr) -> Field:
        """An argument, as a column of the reduction's rows."""
        if e not in self.args:
            self.args.append(e)
        return Field(e.type, (f"_{self.args.index(e) + 2}",))

    @property
    def pick(self) -> Expr:
        """Of what is added up: what one row adds."""
        raise NotImplementedError

    def part(self, monotonic: bool) -> ReducePart:
        """What to say of it."""
        raise NotImplementedError


@dataclass
class Sums(Reduction):
    """Numbers that are added up, of all rows or of the distinct ones."""

    distinct: bool = False
    leaves: list[Expr] = field(default_factory=list)

    def leaf(self, e: Expr) -> int:
        """The number of a sum, from 1."""
        if e not in self.leaves:
            self.leaves.append(e)
        return self.leaves.index(e) + 1

    @property
    def pick(self) -> Build:
        """The numbers of one row."""
        return Build(tuple_of(e.type for e in self.leaves), tuple(self.leaves))

    def part(self, monotonic: bool) -> ReducePart:
        n = len(self.leaves)
        keeps = f"the number of rows and {n} sum{'s' * (n > 1)}, by key"
        if self.distinct:
            keeps = f"how often each value comes, by key and value; and {keeps}"
            return ReducePart("distinct, then accumulable", tuple(self.aggregates), keeps)
        return ReducePart("accumulable", tuple(self.aggregates), keeps)


@dataclass
class First(Reduction):
    """The first rows by an order: a value or more of the first one, or the list of a value."""

    order: Order = ()
    n: int = 1
    values: tuple[Expr, ...] = ()
    listed: bool = False

    def part(self, monotonic: bool) -> ReducePart:
        rows = "the first row" if self.n == 1 else f"the first {self.n} rows"
        keeps = f"{rows}, by key"
        kind = "hierarchical, monotonic"
        if not monotonic:
            kind = "hierarchical, bucketed"
            keeps = f"all by key and 4096 buckets; {rows} of each by 64; {rows} of those by key"
        if self.listed:
            keeps += "; and those again, to list them"
        return ReducePart(kind, tuple(self.aggregates), keeps)


@dataclass
class Collected(Reduction):
    """All values, as a Z-set."""

    values: tuple[Expr, ...] = ()

    @property
    def pick(self) -> Singleton:
        """The Z-set of one row."""
        (item,) = self.values
        return Singleton(ZSetOf(item.type, ZSetPython), item)

    def part(self, monotonic: bool) -> ReducePart:
        return ReducePart("basic", tuple(self.aggregates), "all values, by key")


@dataclass(frozen=True)
class Asked:
    """An aggregate that was asked for, its functions as expressions over the input's rows."""

    field: str
    kind: str
    value: Expr | None
    order: tuple[tuple[Expr, bool], ...]
    n: int
    where: str

    def __str__(self) -> str:
        shown = [f"{e}{'' if up else ' desc'}" for e, up in self.order]
        shown += [str(self.n)] * (self.kind == "first_n")
        shown += [str(self.value)] * (self.value is not None)
        return f"{self.field} = {self.kind}({', '.join(shown)})"

    @property
    def picked(self) -> Expr:
        """The value that it is of."""
        assert self.value is not None
        return self.value


@dataclass
class Planner:
    """Deals aggregates out to reductions."""

    keyed: bool
    reductions: list[Reduction] = field(default_factory=list)
    shown: list[tuple[str, Reduction, Shown]] = field(default_factory=list)

    def add(self, a: Asked) -> None:
        """Plan one aggregate."""
        kind = a.kind.removesuffix("_distinct")
        if kind in SUMMED:
            sums = self._sums(a.picked if a.kind != kind else None)
            found: tuple[Reduction, Shown] = sums, SUMMED[kind](self, sums, a)
        elif kind == "collect":
            found = self._collected(a)
        elif kind == "first_n":
            found = self._listed(a)
        else:
            found = self._extreme(a)
        found[0].aggregates.append(str(a))
        self.shown.append((a.field, *found))

    def ensure_row(self) -> None:
        """Without a key there is one row, also of nothing; a sum always has one."""
        if self.keyed:
            return
        if all(isinstance(r, First) for r in self.reductions):
            rows = self._sums(None)
            rows.leaf(ONE)
            rows.aggregates.append("whether there are rows")
        self.reductions.sort(
            key=lambda r: isinstance(r, First)
        )  # those that are always there first

    def _sums(self, distinct: Expr | None) -> Sums:
        for r in self.reductions:
            same = [distinct] if distinct is not None else []
            if isinstance(r, Sums) and r.distinct == bool(same) and (not same or r.args == same):
                return r
        made = Sums(distinct=distinct is not None)
        if distinct is not None:
            made.arg(distinct)
        self.reductions.append(made)
        return made

    def _type(self, t: RowType, e: Expr) -> RowType:
        """The type of what is NULL where no value of the expression is there."""
        nullable = isinstance(e.type, Optional) or not self.keyed
        return Optional(unwrap(t)) if nullable else unwrap(t)

    def count(self, sums: Sums, a: Asked) -> Shown:
        """How many rows, or values."""
        leaf = sums.leaf(_one(sums, a.value))
        return lambda at: Field(INT, (*at, f"_{leaf}"))

    def sum(self, sums: Sums, a: Asked) -> Shown:
        """The sum, NULL of nothing."""
        x = sums.arg(a.picked)
        t = _summed(a)
        summed = sums.leaf(_retyped(x, t))
        n = sums.leaf(_one(sums, a.value))

        def show(at: tuple[str, ...]) -> Expr:
            value = Field(t, (*at, f"_{summed}"))
            if not isinstance(self._type(t, x), Optional):
                return value
            return given(Field(INT, (*at, f"_{n}")), value)

        return show

    def avg(self, sums: Sums, a: Asked) -> Shown:
        """The sum by the count."""
        x = sums.arg(a.picked)
        t = _summed(a)
        shown: Atom = FLOAT
        if t == INT:
            t = BIG_INT  # no sum is beyond it, as none of floats is
            leaf = widened(x, BIG_INT)
        else:
            leaf = _retyped(x, t)
        if t.name == "Decimal" and t is not BIG_INT:
            shown = _mean_type(a)
        summed, n = sums.leaf(leaf), sums.leaf(_one(sums, a.value))

        def show(at: tuple[str, ...]) -> Expr:
            args = Field(t, (*at, f"_{summed}")), Field(INT, (*at, f"_{n}"))
            return Mean(self._type(shown, x), args)

        return show

    def stddev(self, sums: Sums, a: Asked) -> Shown:
        """The deviation, from the sums of the values and of their squares."""
        _summed(a)
        x = widened(sums.arg(a.picked), FLOAT)
        p, e = square(x), square_left(x)
        leaves = [_one(sums, a.value), x, _rest(x), p, _rest(p), e]
        numbers = [sums.leaf(leaf) for leaf in leaves]

        def show(at: tuple[str, ...]) -> Expr:
            types = (INT, *[FLOAT] * 5)
            return deviation(
                tuple(Field(t, (*at, f"_{n}")) for t, n in zip(types, numbers, strict=True))
            )

        return show

    def _extreme(self, a: Asked) -> tuple[Reduction, Shown]:
        """min, max, arg_min, arg_max: a value of the first row by an order."""
        r = First()
        up = a.kind.endswith("min")
        ordered = a.order[0][0] if a.order else a.picked
        by = r.arg(ordered)
        value = r.arg(a.picked)
        nullable = isinstance(by.type, Optional)
        r.order = (*(((known(by), False),) if nullable else ()), (by, up))
        r.values = (value, known(by)) if nullable and by != value else (value,)
        there = self._kept(r)

        def show(at: tuple[str, ...]) -> Expr:
            t = value.type if self.keyed else Optional(unwrap(value.type))
            found = Field(t, (*at, "_1"))
            return given(Field(INT, (*at, "_2")), found) if len(r.values) > 1 else found

        return there, show

    def _listed(self, a: Asked) -> tuple[Reduction, Shown]:
        """The list of the first rows' values."""
        r = First(n=a.n, listed=True)
        r.order = tuple((r.arg(e), up) for e, up in a.order)
        item = r.arg(a.picked)
        r.values = (item,)
        there = self._kept(r)
        t = ListOf(item.type)

        def show(at: tuple[str, ...]) -> Expr:
            found = Field(t if self.keyed else Optional(t), (*at, "_1"))
            return found if self.keyed else Otherwise(t, (found,), ())

        return there, show

    def _collected(self, a: Asked) -> tuple[Reduction, Shown]:
        r = Collected()
        r.values = (r.arg(a.picked),)
        there = self._kept(r)
        t = ZSetOf(a.picked.type, ZSetPython)
        return there, lambda at: Field(t, (*at, "_1"))

    def _kept(self, r: Reduction) -> Reduction:
        """The same reduction that there is already, or this one."""
        for other in self.reductions:
            if _same(r, other):
                return other
        self.reductions.append(r)
        return r


SUMMED: dict[str, Callable[[Planner, Sums, Asked], Shown]] = {
    "count": Planner.count,
    "sum": Planner.sum,
    "avg": Planner.avg,
    "stddev": Planner.stddev,
}
ONE = Literal(INT, 1)


def _same(a: Reduction, b: Reduction) -> bool:
    if type(a) is not type(b) or a.args != b.args:
        return False
    if isinstance(a, First) and isinstance(b, First):
        return (a.order, a.n, a.values, a.listed) == (b.order, b.n, b.values, b.listed)
    return isinstance(a, Collected)


def _one(sums: Sums, value: Expr | None) -> Expr:
    """1 for each row that has a value."""
    if value is None or not isinstance(value.type, Optional):
        return ONE
    return known(sums.arg(value))


def _retyped(e: Field, t: RowType) -> Expr:
    """The field as a sum of that type takes it."""
    return Field(Optional(t) if isinstance(e.type, Optional) else t, e.path)


def _rest(e: Expr) -> Expr:
    """The same float, of whose sum is shown what rounding leaves over."""
    return dataclasses.replace(e, type=Optional(REST) if isinstance(e.type, Optional) else REST)


def _summed(a: Asked) -> Atom:
    """The type of the sum."""
    t = unwrap(a.picked.type)
    if not isinstance(t, Atom) or t.name not in ("int", "float", "Decimal"):
        raise CompileError(
            f"{a.where}: {a}: {a.picked.type} cannot be added up; what can: int, float, Decimal"
        )
    if t.name == "Decimal":
        return Atom("Decimal", Decimal, min(38, t.precision + 10), t.scale)
    return t


def _mean_type(a: Asked) -> Atom:
    t = unwrap(a.picked.type)
    assert isinstance(t, Atom)
    return Atom("Decimal", Decimal, min(38, t.precision + 4), min(38, t.scale + 4))
