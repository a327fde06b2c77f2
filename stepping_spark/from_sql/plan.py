"""The relational plan of a query in SQL: nodes over columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

from sqlglot import exp

from stepping_spark.from_sql.columns import (
    Change,
    Column,
    Expr,
    ref,
    refs,
)

# -- nodes


@dataclass(frozen=True, eq=False)
class Plan:
    """A relation."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of its rows, in order."""
        raise NotImplementedError

    def sources(self) -> tuple[Plan, ...]:
        """The relations that it reads."""
        return ()

    def exprs(self) -> tuple[Expr, ...]:
        """The expressions that it evaluates on their rows."""
        return ()

    def mapped(self, f: Change) -> Plan:
        """The node with each of its expressions replaced by `f` of it."""
        return self


@dataclass(frozen=True, eq=False)
class Scan(Plan):
    """The rows of a table."""

    table: str
    made: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.made


@dataclass(frozen=True, eq=False)
class Values(Plan):
    """Rows of constants."""

    rows: tuple[tuple[Expr, ...], ...]
    made: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.made

    def exprs(self) -> tuple[Expr, ...]:
        return tuple(e for row in self.rows for e in row)

    def mapped(self, f: Change) -> Plan:
        return replace(self, rows=tuple(tuple(map(f, row)) for row in self.rows))


@dataclass(frozen=True, eq=False)
class OneSource(Plan):
    """A relation made of one other; it has the columns of the other, unless it says so."""

    source: Plan
    keeps_columns: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.source.columns

    def sources(self) -> tuple[Plan, ...]:
        return (self.source,)


Item = tuple[Column, Expr]


def _of_items(items: Iterable[Item], f: Change) -> tuple[Item, ...]:
    return tuple((c, f(e)) for c, e in items)


@dataclass(frozen=True, eq=False)
class Project(OneSource):
    """SELECT: a column for each expression."""

    items: tuple[Item, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(c for c, _ in self.items)

    def exprs(self) -> tuple[Expr, ...]:
        return tuple(e for _, e in self.items)

    def mapped(self, f: Change) -> Plan:
        return replace(self, items=_of_items(self.items, f))


@dataclass(frozen=True, eq=False)
class Filter(OneSource):
    """WHERE: the rows for which all conditions are true."""

    keeps_columns: ClassVar[bool] = True

    conditions: tuple[Expr, ...]

    def exprs(self) -> tuple[Expr, ...]:
        return self.conditions

    def mapped(self, f: Change) -> Plan:
        return replace(self, conditions=tuple(map(f, self.conditions)))


@dataclass(frozen=True, eq=False)
class Join(Plan):
    """A join. `how`: inner, left, right, full, semi, anti, or mark.

    A mark join has all rows of the left side, and a column that says whether there is a match.
    """

    left: Plan
    right: Plan
    how: str
    on: tuple[Expr, ...] = ()
    mark: Column | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        if self.mark is not None:
            return (*self.left.columns, self.mark)
        if self.how in ("semi", "anti"):
            return self.left.columns
        return self.left.columns + self.right.columns

    def sources(self) -> tuple[Plan, ...]:
        return (self.left, self.right)

    def exprs(self) -> tuple[Expr, ...]:
        return self.on

    def mapped(self, f: Change) -> Plan:
        return replace(self, on=tuple(map(f, self.on)))


@dataclass(frozen=True)
class Call:
    """A call of an aggregate function, or of a window function.

    `args` has the arguments; `order` the order of `WITHIN GROUP`, as `Ordered`.
    """

    name: str
    args: tuple[Expr, ...]
    at: Expr = field(compare=False)
    distinct: bool = False
    condition: Expr | None = None
    order: tuple[Expr, ...] = ()
    ignore_nulls: bool = False

    def exprs(self) -> tuple[Expr, ...]:
        extra = () if self.condition is None else (self.condition,)
        return (*self.args, *extra, *self.order)

    def mapped(self, f: Change) -> Call:
        """The call with each of its expressions replaced by `f` of it."""
        return replace(
            self,
            args=tuple(map(f, self.args)),
            condition=None if self.condition is None else f(self.condition),
            order=tuple(map(f, self.order)),
        )


@dataclass(frozen=True, eq=False)
class Aggregate(OneSource):
    """GROUP BY. `sets` are the grouping sets, as numbers of keys; None: one set of all keys."""

    keys: tuple[Item, ...]
    calls: tuple[tuple[Column, Call], ...]
    sets: tuple[tuple[int, ...], ...] | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*(c for c, _ in self.keys), *(c for c, _ in self.calls))

    def exprs(self) -> tuple[Expr, ...]:
        return (*(e for _, e in self.keys), *(e for _, call in self.calls for e in call.exprs()))

    def mapped(self, f: Change) -> Plan:
        calls = tuple((c, call.mapped(f)) for c, call in self.calls)
        return replace(self, keys=_of_items(self.keys, f), calls=calls)

    @property
    def is_global(self) -> bool:
        """Whether it has exactly one row."""
        return not self.keys and self.sets is None


@dataclass(frozen=True)
class Over:
    """A window function with its partitions, its order (as `Ordered`) and its frame."""

    call: Call
    by: tuple[Expr, ...]
    order: tuple[Expr, ...]
    frame: exp.WindowSpec | None = None

    def exprs(self) -> tuple[Expr, ...]:
        return (*self.call.exprs(), *self.by, *self.order)

    def mapped(self, f: Change) -> Over:
        """The function with each of its expressions replaced by `f` of it."""
        by, order = (tuple(map(f, some)) for some in (self.by, self.order))
        return replace(self, call=self.call.mapped(f), by=by, order=order)


@dataclass(frozen=True, eq=False)
class Windows(OneSource):
    """The rows, each with the values of window functions."""

    calls: tuple[tuple[Column, Over], ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.source.columns, *(c for c, _ in self.calls))

    def exprs(self) -> tuple[Expr, ...]:
        return tuple(e for _, over in self.calls for e in over.exprs())

    def mapped(self, f: Change) -> Plan:
        return replace(self, calls=tuple((c, over.mapped(f)) for c, over in self.calls))


@dataclass(frozen=True, eq=False)
class Distinct(OneSource):
    """SELECT DISTINCT."""

    keeps_columns: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class First(OneSource):
    """ORDER BY … LIMIT … OFFSET, of all rows or of each group."""

    keeps_columns: ClassVar[bool] = True

    order: tuple[Expr, ...]
    count: int | None
    offset: int = 0
    by: tuple[Expr, ...] = ()

    def exprs(self) -> tuple[Expr, ...]:
        return (*self.order, *self.by)

    def mapped(self, f: Change) -> Plan:
        return replace(self, order=tuple(map(f, self.order)), by=tuple(map(f, self.by)))


@dataclass(frozen=True, eq=False)
class SetOf(Plan):
    """UNION, INTERSECT or EXCEPT; columns correspond by their position."""

    kind: str
    all: bool
    left: Plan
    right: Plan
    made: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.made

    def sources(self) -> tuple[Plan, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Unnest(OneSource):
    """Each row with each item of a list: LATERAL VIEW explode. With `outer`, NULL for none."""

    value: Expr
    made: tuple[Column, ...]
    outer: bool = False
    position: Column | None = None
    fields: bool = False  # whether each field of an item is a column, as `inline` does

    @property
    def columns(self) -> tuple[Column, ...]:
        at = () if self.position is None else (self.position,)
        return (*self.source.columns, *at, *self.made)

    def exprs(self) -> tuple[Expr, ...]:
        return (self.value,)

    def mapped(self, f: Change) -> Plan:
        return replace(self, value=f(self.value))


# -- questions about plans


def nodes(plan: Plan) -> Iterator[Plan]:
    """The plan's nodes."""
    yield plan
    for source in plan.sources():
        yield from nodes(source)


def free(plan: Plan) -> set[Column]:
    """The columns that a plan reads and does not make: those of an outer query."""
    made: set[Column] = set()
    read: set[Column] = set()
    for node in nodes(plan):
        made |= set(node.columns)
        for e in node.exprs():
            read |= refs(e)
    return read - made


def with_sources(plan: Plan, *sources: Plan) -> Plan:
    """The node with other sources."""
    if isinstance(plan, OneSource):
        return replace(plan, source=sources[0])
    if isinstance(plan, Join | SetOf):
        return replace(plan, left=sources[0], right=sources[1])
    return plan


def keeping(plan: Plan, columns: Iterable[Column]) -> Project:
    """The plan with these columns only."""
    return Project(plan, tuple((c, ref(c)) for c in columns))


def with_fresh_columns(plan: Plan, table: str, names: Iterable[str]) -> Project:
    """The plan with columns of its own: one for each of the plan's, with another number."""
    pairs = zip(plan.columns, names, strict=True)
    return Project(plan, tuple((Column(name, table), ref(c)) for c, name in pairs))


def is_one_row(plan: Plan) -> bool:
    """Whether a plan has exactly one row."""
    match plan:
        case Aggregate():
            return plan.is_global
        case Project() | Windows():
            return is_one_row(plan.source)
        case Join(how="left" | "inner") if not plan.on and plan.mark is None:
            return is_one_row(plan.left) and is_one_row(plan.right)
        case Values():
            return len(plan.rows) == 1
    return False


def has_at_most_one_row(plan: Plan) -> bool:
    """Whether a plan has one row or none, for sure."""
    match plan:
        case Aggregate():
            return plan.is_global
        case First():
            return plan.count == 1 and not plan.by
        case Project() | Windows() | Filter() | Distinct():
            return has_at_most_one_row(plan.source)
        case Values():
            return len(plan.rows) <= 1
        case Join(how="inner" | "left"):
            return has_at_most_one_row(plan.left) and has_at_most_one_row(plan.right)
    return False


def rewritten(plan: Plan, f: Change) -> Plan:
    """The plan with each expression of its nodes replaced."""
    sources = [rewritten(source, f) for source in plan.sources()]
    return with_sources(plan, *sources).mapped(f)
