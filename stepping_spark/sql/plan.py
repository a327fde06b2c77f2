"""The relational plan of a query in SQL: nodes over numbered columns, and trees over these.

Names are bound before. A column keeps its number when the node that makes it moves. So two
expressions are equal in Spark's sense if their trees are equal. `Shapes` finds parts of a plan that
are equal up to the numbers of their columns.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from sqlglot import exp

Scalar = exp.Expr
ScalarRewrite = Callable[[Scalar], Scalar]
_numbers = itertools.count(1)
_PLACE = ("line", "col", "start", "end", "text")


@dataclass(frozen=True)
class PlanColumn:
    """A column of a relation. Two columns are equal if their numbers are equal."""

    name: str = field(compare=False)
    table: str = field(default="", compare=False)
    number: int = field(default_factory=lambda: next(_numbers))

    def __str__(self) -> str:
        return f"{self.table}.{self.name}" if self.table else self.name


def ref(column: PlanColumn, at: Scalar | None = None) -> exp.Column:
    """A reference to a column; `at` is the node whose place in the text it gets."""
    node = exp.Column(this=exp.Identifier(this=f"#{column.number}", quoted=True))
    node.meta.update(place(at) if at is not None else {})
    node.meta["column"] = column
    return node


def place(node: Scalar) -> dict[str, Any]:
    """The place of the first part of a node that has one; empty if none has."""
    for part in node.walk():
        if part._meta and "line" in part._meta:
            return {k: part.meta[k] for k in _PLACE if k in part.meta}
    return {}


def column_of(node: Scalar) -> PlanColumn:
    """The column of a reference."""
    column: PlanColumn = node.meta["column"]
    return column


def refs(e: Scalar) -> set[PlanColumn]:
    """The columns that an expression reads."""
    return {column_of(node) for node in e.find_all(exp.Column) if "column" in node.meta}


def substituted(e: Scalar, values: Mapping[PlanColumn, Scalar]) -> Scalar:
    """The expression with references replaced by these expressions."""

    def replaced(node: Scalar) -> Scalar:
        value = values.get(column_of(node)) if _is_ref(node) else None
        return node if value is None else value.copy()

    return e.copy().transform(replaced) if refs(e) & set(values) else e


def renamed(e: Scalar, columns: Mapping[PlanColumn, PlanColumn]) -> Scalar:
    """The expression with columns replaced by other columns."""
    return substituted(e, {a: ref(b) for a, b in columns.items()})


def _is_ref(node: Scalar) -> bool:
    return isinstance(node, exp.Column) and "column" in node.meta


def conjuncts(e: Scalar | None) -> Iterator[Scalar]:
    """The conditions that AND connects."""
    if isinstance(e, exp.And):
        yield from conjuncts(e.this)
        yield from conjuncts(e.expression)
    elif isinstance(e, exp.Paren):
        yield from conjuncts(e.this)
    elif e is not None:
        yield e


def coalesced(a: Scalar, b: Scalar) -> Scalar:
    """coalesce(a, b)."""
    return exp.Anonymous(this="coalesce", expressions=[a, b])


TRUE = exp.true()
SLID = "#slid"
"""The name of an internal function: the begin or the end of a window of time."""


# -- nodes


@dataclass(frozen=True, eq=False)
class RelationalPlan:
    """A relation."""

    @property
    def columns(self) -> tuple[PlanColumn, ...]:
        """The columns of its rows, in order."""
        raise NotImplementedError

    def sources(self) -> tuple[RelationalPlan, ...]:
        """The relations that the node reads."""
        return ()

    def exprs(self) -> tuple[Scalar, ...]:
        """The expressions that the node evaluates on their rows."""
        return ()

    def mapped(self, f: ScalarRewrite) -> RelationalPlan:
        """The node with `f` applied to each of its expressions."""
        return self


@dataclass(frozen=True, eq=False)
class TableScan(RelationalPlan):
    """The rows of a table, or of a view with its own output, whose plan `of` has more facts."""

    table: str
    new_columns: tuple[PlanColumn, ...]
    of: RelationalPlan | None = None

    @property
    def columns(self) -> tuple[PlanColumn, ...]:
        return self.new_columns


@dataclass(frozen=True, eq=False)
class InlineValues(RelationalPlan):
    """Rows of constants."""

    rows: tuple[tuple[Scalar, ...], ...]
    new_columns: tuple[PlanColumn, ...]

    @property
    def columns(self) -> tuple[PlanColumn, ...]:
        return self.new_columns

    def exprs(self) -> tuple[Scalar, ...]:
        return tuple(e for row in self.rows for e in row)

    def mapped(self, f: ScalarRewrite) -> RelationalPlan:
        return replace(self, rows=tuple(tuple(map(f, row)) for row in self.rows))


@dataclass(frozen=True, eq=False)
class OneSource(RelationalPlan):
    """A relation with one source; by default it has the columns of the source."""

    source: RelationalPlan
    keeps_columns: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[PlanColumn, ...]:
        return self.source.columns

    def sources(self) -> tuple[RelationalPlan, ...]:
        return (self.source,)


Item = tuple[PlanColumn, Scalar]


def _of_items(items: Iterable[Item], f: ScalarRewrite) -> tuple[Item, ...]:
    return tuple((c, f(e)) for c, e in items)


@dataclass(frozen=True, eq=False)
class SelectList(OneSource):
    """SELECT: a column for each expression."""

    items: tuple[Item, ...]

    @property
    def columns(self) -> tuple[PlanColumn, ...]:
        return tuple(c for c, _ in self.items)

    def exprs(self) -> tuple[Scalar, ...]:
        return tuple(e for _, e in self.items)

    def mapped(self, f: ScalarRewrite) -> RelationalPlan:
        return replace(self, items=_of_items(self.items, f))


@dataclass(frozen=True, eq=False)
class WhereClause(OneSource):
    """WHERE: the rows for which all conditions are true."""

    keeps_columns: ClassVar[bool] = True

    conditions: tuple[Scalar, ...]

    def exprs(self) -> tuple[Scalar, ...]:
        return self.conditions

    def mapped(self, f: ScalarRewrite) -> RelationalPlan:
        return replace(self, conditions=tuple(map(f, self.conditions)))


@dataclass(frozen=True, eq=False)
class SqlJoin(RelationalPlan):
    """A join. `how`: inner, left, right, full, semi, anti, or mark.

    A mark join has all rows of the left side, and a column whether a row has a match.
    """

    left: RelationalPlan
    right: RelationalPlan
    how: str
    on: tuple[Scalar, ...] = ()
    mark: PlanColumn | None = None

    @property
    def columns(self) -> tuple[PlanColumn, ...]:
        if self.mark is not None:
            return (*self.left.columns, self.mark)
        if self.how in ("semi", "anti"):
            return self.left.columns
        return self.left.columns + self.right.columns

    def sources(self) -> tuple[RelationalPlan, ...]:
        return (self.left, self.right)

    def exprs(self) -> tuple[Scalar, ...]:
        return self.on

    def mapped(self, f: ScalarRewrite) -> RelationalPlan:
        return replace(self, on=tuple(map(f, self.on)))


@dataclass(frozen=True)
class FunctionCall:
    """A call of an aggregate function, or of a window function.

    `args` has the arguments; `order` the order of `WITHIN GROUP`, as `Ordered`.
    """

    name: str
    args: tuple[Scalar, ...]
    at: Scalar = field(compare=False)
    distinct: bool = False
    condition: Scalar | None = None
    order: tuple[Scalar, ...] = ()
    ignore_nulls: bool = False

    def exprs(self) -> tuple[Scalar, ...]:
        extra = () if self.condition is None else (self.condition,)
        return (*self.args, *extra, *self.order)

    def mapped(self, f: ScalarRewrite) -> FunctionCall:
        """The call with `f` applied to each of its expressions."""
        return replace(
            self,
            args=tuple(map(f, self.args)),
            condition=None if self.condition is None else f(self.condition),
            order=tuple(map(f, self.order)),
        )


@dataclass(frozen=True, eq=False)
class GroupBy(OneSource):
    """GROUP BY. `sets` are the grouping sets, as numbers of keys; None: one set of all keys.

    `group_size` is the number of rows of the largest group, if the text says it.
    """

    keys: tuple[Item, ...]
    calls: tuple[tuple[PlanColumn, FunctionCall], ...]
    sets: tuple[tuple[int, ...], ...] | None = None
    group_size: int | None = None

    @property
    def columns(self) -> tuple[PlanColumn, ...]:
        return (*(c for c, _ in self.keys), *(c for c, _ in self.calls))

    def exprs(self) -> tuple[Scalar, ...]:
        return (*(e for _, e in self.keys), *(e for _, call in self.calls for e in call.exprs()))

    def mapped(self, f: ScalarRewrite) -> RelationalPlan:
        calls = tuple((c, call.mapped(f)) for c, call in self.calls)
        return replace(self, keys=_of_items(self.keys, f), calls=calls)

    @property
    def is_global(self) -> bool:
        """Whether it has exactly one row."""
        return not self.keys and self.sets is None


@dataclass(frozen=True)
class Over:
    """A window function with its partitions, its order (as `Ordered`) and its frame."""

    call: FunctionCall
    by: tuple[Scalar, ...]
    order: tuple[Scalar, ...]
    frame: exp.WindowSpec | None = None

    def exprs(self) -> tuple[Scalar, ...]:
        return (*self.call.exprs(), *self.by, *self.order)

    def mapped(self, f: ScalarRewrite) -> Over:
        """The window function with `f` applied to each of its expressions."""
        by, order = (tuple(map(f, exprs)) for exprs in (self.by, self.order))
        return replace(self, call=self.call.mapped(f), by=by, order=order)


@dataclass(frozen=True, eq=False)
class Windows(OneSource):
    """The rows, each with the values of window functions."""

    calls: tuple[tuple[PlanColumn, Over], ...]

    @property
    def columns(self) -> tuple[PlanColumn, ...]:
        return (*self.source.columns, *(c for c, _ in self.calls))

    def exprs(self) -> tuple[Scalar, ...]:
        return tuple(e for _, over in self.calls for e in over.exprs())

    def mapped(self, f: ScalarRewrite) -> RelationalPlan:
        return replace(self, calls=tuple((c, over.mapped(f)) for c, over in self.calls))


@dataclass(frozen=True, eq=False)
class SelectDistinct(OneSource):
    """SELECT DISTINCT."""

    keeps_columns: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class Limit(OneSource):
    """ORDER BY … LIMIT … OFFSET, of all rows or of each group."""

    keeps_columns: ClassVar[bool] = True

    order: tuple[Scalar, ...]
    count: int | None
    offset: int = 0
    by: tuple[Scalar, ...] = ()

    def exprs(self) -> tuple[Scalar, ...]:
        return (*self.order, *self.by)

    def mapped(self, f: ScalarRewrite) -> RelationalPlan:
        return replace(self, order=tuple(map(f, self.order)), by=tuple(map(f, self.by)))


@dataclass(frozen=True, eq=False)
class SetOf(RelationalPlan):
    """UNION, INTERSECT or EXCEPT; columns correspond by their position."""

    kind: str
    all: bool
    left: RelationalPlan
    right: RelationalPlan
    new_columns: tuple[PlanColumn, ...]
    at: Scalar = field(compare=False)
    casts_text: bool = True  # whether a string beside another type is cast to that type

    @property
    def columns(self) -> tuple[PlanColumn, ...]:
        return self.new_columns

    def sources(self) -> tuple[RelationalPlan, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class LateralView(OneSource):
    """Each row with each item of a list: LATERAL VIEW explode. With `outer`, NULL if no item."""

    value: Scalar
    new_columns: tuple[PlanColumn, ...]
    outer: bool = False
    position: PlanColumn | None = None
    fields: bool = False  # whether each field of an item is a column, as `inline` does

    @property
    def columns(self) -> tuple[PlanColumn, ...]:
        at = () if self.position is None else (self.position,)
        return (*self.source.columns, *at, *self.new_columns)

    def exprs(self) -> tuple[Scalar, ...]:
        return (self.value,)

    def mapped(self, f: ScalarRewrite) -> RelationalPlan:
        return replace(self, value=f(self.value))


@dataclass(frozen=True, eq=False)
class SessionsOf(OneSource):
    """The rows with a time that is not NULL, each with the first and last time of its session.

    Rows of one session agree in `by`, and neighbours are at most `gap` microseconds apart.
    """

    by: tuple[Scalar, ...]
    at: Scalar
    gap: int
    new_columns: tuple[PlanColumn, PlanColumn]

    @property
    def columns(self) -> tuple[PlanColumn, ...]:
        return (*self.source.columns, *self.new_columns)

    def exprs(self) -> tuple[Scalar, ...]:
        return (*self.by, self.at)

    def mapped(self, f: ScalarRewrite) -> RelationalPlan:
        return replace(self, by=tuple(map(f, self.by)), at=f(self.at))


@dataclass(frozen=True, eq=False)
class RecursiveRows(RelationalPlan):
    """The rows of a recursive query in the previous iteration."""

    new_columns: tuple[PlanColumn, ...]

    @property
    def columns(self) -> tuple[PlanColumn, ...]:
        return self.new_columns


@dataclass(frozen=True, eq=False)
class RecursiveQuery(RelationalPlan):
    """WITH RECURSIVE: the rows of `anchor`, and repeatedly the rows that `step` makes of `rows`.

    With `all` a row counts as often as it is found (UNION ALL), otherwise once (UNION).
    """

    name: str
    all: bool
    anchor: RelationalPlan
    step: RelationalPlan
    rows: RecursiveRows
    new_columns: tuple[PlanColumn, ...]
    most: int | None = None  # the most iterations of `step`

    @property
    def columns(self) -> tuple[PlanColumn, ...]:
        return self.new_columns

    def sources(self) -> tuple[RelationalPlan, ...]:
        return (self.anchor, self.step)


# -- properties and rewrites of plans


def nodes(plan: RelationalPlan) -> Iterator[RelationalPlan]:
    """The nodes of a plan, the plan first."""
    yield plan
    for source in plan.sources():
        yield from nodes(source)


def free(plan: RelationalPlan) -> set[PlanColumn]:
    """The columns that a plan reads and does not make: columns of an outer query."""
    inner: set[PlanColumn] = set()
    read: set[PlanColumn] = set()
    for node in nodes(plan):
        inner |= set(node.columns)
        for e in node.exprs():
            read |= refs(e)
    return read - inner


def with_sources(plan: RelationalPlan, *sources: RelationalPlan) -> RelationalPlan:
    """The node with other sources."""
    if isinstance(plan, OneSource):
        return replace(plan, source=sources[0])
    if isinstance(plan, SqlJoin | SetOf):
        return replace(plan, left=sources[0], right=sources[1])
    if isinstance(plan, RecursiveQuery):
        return replace(plan, anchor=sources[0], step=sources[1])
    return plan


def as_items(columns: Iterable[PlanColumn]) -> tuple[Item, ...]:
    """The items of a SELECT list that returns these columns unchanged."""
    return tuple((c, ref(c)) for c in columns)


def keeping(plan: RelationalPlan, columns: Iterable[PlanColumn]) -> SelectList:
    """The plan with these columns only."""
    return SelectList(plan, as_items(columns))


def with_fresh_columns(plan: RelationalPlan, table: str, names: Iterable[str]) -> SelectList:
    """The plan with a new column for each of its columns, with these names."""
    pairs = zip(plan.columns, names, strict=True)
    return SelectList(plan, tuple((PlanColumn(name, table), ref(c)) for c, name in pairs))


def is_one_row(plan: RelationalPlan) -> bool:
    """Whether a plan certainly has exactly one row."""
    match plan:
        case GroupBy():
            return plan.is_global
        case SelectList() | Windows():
            return is_one_row(plan.source)
        case SqlJoin(how="left" | "inner") if not plan.on and plan.mark is None:
            return is_one_row(plan.left) and is_one_row(plan.right)
        case InlineValues():
            return len(plan.rows) == 1
        case TableScan(of=RelationalPlan() as view):
            return is_one_row(view)
    return False


def has_at_most_one_row(plan: RelationalPlan) -> bool:
    """Whether a plan certainly has at most one row."""
    match plan:
        case GroupBy():
            return plan.is_global
        case Limit():
            return plan.count == 1 and not plan.by
        case SelectList() | Windows() | WhereClause() | SelectDistinct():
            return has_at_most_one_row(plan.source)
        case InlineValues():
            return len(plan.rows) <= 1
        case SqlJoin(how="inner" | "left"):
            return has_at_most_one_row(plan.left) and has_at_most_one_row(plan.right)
        case TableScan(of=RelationalPlan() as view):
            return has_at_most_one_row(view)
    return False


def rewritten(plan: RelationalPlan, f: ScalarRewrite) -> RelationalPlan:
    """The plan with `f` applied to each expression of its nodes."""
    sources = [rewritten(source, f) for source in plan.sources()]
    return with_sources(plan, *sources).mapped(f)


class Shapes:
    """The shapes of plans, as numbers. Plans of one shape have the same rows.

    Their columns correspond by position. Shapes compare plans, not rows, so plans of different
    shapes may have the same rows, too.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[RelationalPlan, int] = {}

    def of(self, plan: RelationalPlan) -> int:
        """The shape of a plan."""
        number = self._known.get(plan)
        if number is None:
            number = self._numbers.setdefault(self._description(plan), len(self._numbers))
            self._known[plan] = number
        return number

    def _description(self, plan: RelationalPlan) -> Hashable:
        if isinstance(plan, TableScan):
            return plan.table, tuple(c.name for c in plan.new_columns)
        if isinstance(plan, RecursiveRows):
            return plan  # of one recursion
        at: dict[PlanColumn, Hashable] = {}
        for n, source in enumerate(plan.sources()):
            at |= {c: (n, i) for i, c in enumerate(source.columns)}
        fields = (f.name for f in dataclasses.fields(plan) if f.compare)
        parts = (self._part(getattr(plan, name), at) for name in fields)
        return type(plan), *parts

    def _part(self, part: Any, at: Mapping[PlanColumn, Hashable]) -> Hashable:
        """A part of a node, with columns of its sources replaced by their places."""
        if isinstance(part, RelationalPlan):
            return self.of(part)
        if isinstance(part, PlanColumn):
            return at.get(part, "made")
        if isinstance(part, exp.Expr):
            return shape(part, at)
        if isinstance(part, tuple | list):
            return tuple(self._part(p, at) for p in part)
        if dataclasses.is_dataclass(part):
            compared = (f.name for f in dataclasses.fields(part) if f.compare)
            return tuple(self._part(getattr(part, name), at) for name in compared)
        return part  # type: ignore[no-any-return]

    def repeated(self, plan: RelationalPlan) -> set[int]:
        """The shapes that occur in a plan more than once."""
        parts = list(nodes(plan))
        read = Counter(part.table for part in parts if isinstance(part, TableScan))
        if all(n == 1 for n in read.values()):
            return set()
        return {number for number, n in Counter(map(self.of, parts)).items() if n > 1}


def shape(e: Scalar, at: Mapping[PlanColumn, Hashable]) -> Hashable:
    """An expression as a hashable value, with these values for its columns."""
    if isinstance(e, exp.Column) and "column" in e.meta:
        c = column_of(e)
        return at.get(c, c)
    if isinstance(e, exp.Paren):
        return shape(e.this, at)
    marks = [e.meta.get(k) for k in ("literal", "typed")] if e.meta else ()
    return type(e), *marks, *((k, _argument(v, at)) for k, v in e.args.items() if v)


def _argument(value: Any, at: Mapping[PlanColumn, Hashable]) -> Hashable:
    if isinstance(value, exp.Expr):
        return shape(value, at)
    if isinstance(value, list):
        return tuple(_argument(v, at) for v in value)
    return value  # type: ignore[no-any-return]
