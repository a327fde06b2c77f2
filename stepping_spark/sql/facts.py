"""What is known of the columns of a plan from the types of its tables, and joins that go then.

NOT IN asks whether a value is NULL, on both sides. Where a column is never NULL, these questions
are joins without a match.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from stepping_spark.sql.nulls import never_true
from stepping_spark.sql.plan import (
    GroupBy,
    InlineValues,
    OneSource,
    PlanColumn,
    RelationalPlan,
    Scalar,
    SelectDistinct,
    SelectList,
    SetOf,
    SqlJoin,
    TableScan,
    WhereClause,
    column_of,
    conjuncts,
    nodes,
    ref,
    refs,
    with_sources,
)

COUNTS = ("count", "count_if", "regr_count", "approx_count_distinct")
"""Aggregates that are 0, not NULL, for no rows."""


SqlColumns = Mapping[str, tuple[tuple[str, ...] | None, str]]
"""By column: its place in a row, None if rows cannot hold it, and its Spark type."""


@dataclass(frozen=True)
class ColumnType:
    """The Spark type of a column of a table, whether it may be NULL, and whether rows have it."""

    kind: str
    nullable: bool
    held: bool = True


@dataclass(frozen=True)
class Facts:
    """What is known of columns; `tables` has the types of the columns of each table."""

    tables: Mapping[str, Mapping[str, ColumnType]]
    _known: dict[RelationalPlan, frozenset[PlanColumn]] = field(default_factory=dict)

    def never_null(self, plan: RelationalPlan) -> frozenset[PlanColumn]:
        """The columns of a plan that are NULL in none of its rows."""
        found = self._known.get(plan)
        if found is None:
            found = self._known[plan] = frozenset(self._never_null(plan)) & set(plan.columns)
        return found

    def of_tables(self, plan: RelationalPlan) -> dict[PlanColumn, ColumnType]:
        """The columns of the tables that a plan reads."""
        scans = [part for part in nodes(plan) if isinstance(part, TableScan)]
        return {c: self.tables[scan.table][c.name] for scan in scans for c in scan.made}

    def kind(self, plan: RelationalPlan, column: PlanColumn) -> str:
        """The Spark type of a column of a table that a plan reads; "" for others."""
        found = self.of_tables(plan).get(column)
        return found.kind if found else ""

    def _never_null(self, plan: RelationalPlan) -> set[PlanColumn]:
        match plan:
            case TableScan():
                types = self.tables[plan.table]
                known = {c for c in plan.made if not types[c.name].nullable}
                if plan.of is not None:
                    never = self.never_null(plan.of)
                    same = zip(plan.made, plan.of.columns, strict=True)
                    known |= {c for c, column in same if column in never}
                return known
            case SelectList():
                below = self.never_null(plan.source)
                return {c for c, e in plan.items if _is_known(e, below)}
            case GroupBy():
                below = self.never_null(plan.source)
                keys = {c for c, e in plan.keys if plan.sets is None and _is_known(e, below)}
                return keys | {c for c, call in plan.calls if call.name in COUNTS}
            case WhereClause():
                return {*self.never_null(plan.source), *_compared(plan.conditions)}
            case SqlJoin():
                return self._of_join(plan)
            case SetOf():
                left, right = map(self.never_null, plan.sources())
                pairs = zip(plan.made, plan.left.columns, plan.right.columns, strict=True)
                both = plan.kind == "union"
                return {c for c, a, b in pairs if a in left and (b in right or not both)}
            case OneSource():  # columns of its own may be NULL
                return set(self.never_null(plan.source))
        return set()

    def _of_join(self, plan: SqlJoin) -> set[PlanColumn]:
        left, right = map(self.never_null, plan.sources())
        match plan.how:
            case "inner":
                return {*left, *right, *_compared(plan.on)}
            case "semi":
                return {*left, *_compared(plan.on)}
            case "right":
                return set(right)
            case "full":
                return set()
        return {*left, plan.mark} if plan.mark is not None else set(left)


def _is_known(e: Scalar, known: frozenset[PlanColumn]) -> bool:
    """Whether an expression is never NULL, where these columns never are."""
    while isinstance(e, exp.Paren):
        e = e.this
    if isinstance(e, exp.Column) and "column" in e.meta:
        return column_of(e) in known
    return isinstance(e, exp.Literal | exp.Boolean)


def _compared(conditions: tuple[Scalar, ...]) -> set[PlanColumn]:
    """The columns that are not NULL where conditions are true."""
    parts = [part for e in conditions for part in conjuncts(e)]
    return {c for e in parts for c in refs(e) if never_true(e, {c})}


# -- joins without a match


def without_empty_joins(plan: RelationalPlan, facts: Facts) -> RelationalPlan:
    """The plan without semijoins, antijoins and marks that no row has a match in.

    (x IS NULL) = FALSE, if x is never NULL; σ_FALSE(A) = ∅; A ▷_FALSE B = A = A ▷ ∅; A ⋉_FALSE B
    and A ⋉ ∅ are σ_FALSE(A). A mark is FALSE then.
    """
    plan = with_sources(plan, *(without_empty_joins(s, facts) for s in plan.sources()))
    if not any(e.find(exp.Is) for e in plan.exprs()):
        return _without_empty_join(plan)
    known = frozenset[PlanColumn]().union(*map(facts.never_null, plan.sources()))
    return _without_empty_join(plan.mapped(lambda e: _decided(e, known)))


def _without_empty_join(plan: RelationalPlan) -> RelationalPlan:
    if not isinstance(plan, SqlJoin) or plan.how not in ("semi", "anti", "mark"):
        return plan
    if not any(map(_is_false, plan.on)) and not _is_empty(plan.right):
        return plan
    if plan.how == "semi":
        return WhereClause(plan.left, (exp.false(),))
    if plan.mark is None:
        return plan.left
    items = tuple((c, ref(c)) for c in plan.left.columns)
    return SelectList(plan.left, (*items, (plan.mark, exp.false())))


def _decided(e: Scalar, known: frozenset[PlanColumn]) -> Scalar:
    """The expression, where these columns are never NULL."""
    if isinstance(e, exp.Is) and isinstance(e.expression, exp.Null):
        inner = e.this
        is_known = isinstance(inner, exp.Column) and "column" in inner.meta
        return exp.false() if is_known and column_of(inner) in known else e
    if isinstance(e, exp.Paren | exp.Not):
        inner = _decided(e.this, known)
        return e if inner is e.this else type(e)(this=inner.copy())
    if not isinstance(e, exp.And | exp.Or):
        return e
    sides = [_decided(e.this, known), _decided(e.expression, known)]
    if isinstance(e, exp.Or):
        rest = [s for s in sides if not _is_false(s)]
        if len(rest) < len(sides):
            return rest[0] if rest else exp.false()
    elif any(map(_is_false, sides)):
        return exp.false()
    if sides[0] is e.this and sides[1] is e.expression:
        return e
    return type(e)(this=sides[0].copy(), expression=sides[1].copy())


def _is_false(e: Scalar) -> bool:
    while isinstance(e, exp.Paren):
        e = e.this
    return isinstance(e, exp.Boolean) and not e.this


def _is_empty(plan: RelationalPlan) -> bool:
    """Whether a plan has no rows, for sure."""
    match plan:
        case WhereClause():
            return any(map(_is_false, plan.conditions)) or _is_empty(plan.source)
        case SelectList() | SelectDistinct():
            return _is_empty(plan.source)
        case SqlJoin(how="inner"):
            return any(map(_is_empty, plan.sources())) or any(map(_is_false, plan.on))
        case InlineValues():
            return not plan.rows
    return False
