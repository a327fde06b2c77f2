"""Facts on columns and conditions, such as NULL, and the joins that they remove.

A row that an outer join pads has NULL in all columns of the other side. A condition that is never
true for such rows removes them, so the join need not make them. Other facts on the columns of a
plan follow from the types of its tables.

NOT IN tests both sides for NULL. If a column is never NULL, these tests are joins without a match.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from sqlglot import exp

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

TRUE, FALSE, NULL, OTHER = "true", "false", "null", "other"
Possible = frozenset[str]
"""The values that an expression may have: TRUE, FALSE, NULL, or another one."""

_ANY: Possible = frozenset((TRUE, FALSE, NULL, OTHER))
_IS_NULL: Possible = frozenset((NULL,))
_STRICT = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.Add, exp.Sub, exp.Mul,
    exp.Div, exp.Mod, exp.Neg, exp.Cast, exp.TryCast,
)  # fmt: skip
"""Operators whose value is NULL if an argument is NULL."""


def never_true(e: Scalar, nulls: Set[PlanColumn]) -> bool:
    """Whether a condition is FALSE or NULL in each row where all of these columns are NULL."""
    return not possible(e, nulls) & {TRUE, OTHER}


def is_null_for_sure(e: Scalar, nulls: Set[PlanColumn] = frozenset()) -> bool:
    """Whether an expression is NULL in each row where all of these columns are NULL."""
    return possible(e, nulls) == _IS_NULL


def possible(e: Scalar, nulls: Set[PlanColumn]) -> Possible:
    """The values that an expression may have where all of these columns are NULL."""
    match e:
        case exp.Column():
            return _IS_NULL if "column" in e.meta and column_of(e) in nulls else _ANY
        case exp.Null():
            return _IS_NULL
        case exp.Boolean():
            return frozenset((TRUE if e.this else FALSE,))
        case exp.Literal():
            return frozenset((OTHER,))
        case exp.Paren():
            return possible(e.this, nulls)
        case exp.Not():
            return frozenset(map(_negated, possible(e.this, nulls)))
        case exp.And() | exp.Or():
            of = _and if isinstance(e, exp.And) else _or
            return _each(of, possible(e.this, nulls), possible(e.expression, nulls))
        case exp.Is(expression=exp.Null()):
            return frozenset(TRUE if v == NULL else FALSE for v in possible(e.this, nulls))
        case exp.NullSafeEQ():
            return _each(_equal, possible(e.this, nulls), possible(e.expression, nulls))
        case exp.Case(this=None):
            return _of_case(e, nulls)
        case exp.Anonymous(name=name) if name.lower() == "coalesce":
            return _first_known([possible(a, nulls) for a in e.expressions])
        case exp.Between() | exp.In():
            return _IS_NULL if is_null_for_sure(e.this, nulls) else _ANY
    if isinstance(e, _STRICT) and any(is_null_for_sure(a, nulls) for a in e.iter_expressions()):
        return _IS_NULL
    return _ANY


def _each(of: Callable[[str, str], str | None], a: Possible, b: Possible) -> Possible:
    """The outcomes of a function of two values; its outcome None means TRUE or FALSE."""
    outcomes = {of(x, y) for x, y in itertools.product(a, b)}
    unknown = {TRUE, FALSE} if None in outcomes else set()
    return frozenset({v for v in outcomes if v is not None} | unknown)


def _negated(a: str) -> str:
    return {TRUE: FALSE, FALSE: TRUE}.get(a, a)


def _and(a: str, b: str) -> str:
    if FALSE in (a, b):
        return FALSE
    return NULL if NULL in (a, b) else TRUE


def _or(a: str, b: str) -> str:
    return _negated(_and(_negated(a), _negated(b)))


def _equal(a: str, b: str) -> str | None:
    if OTHER in (a, b) and NULL not in (a, b):
        return None
    return TRUE if a == b else FALSE


def _of_case(e: exp.Case, nulls: Set[PlanColumn]) -> Possible:
    """The values of the reachable branches of CASE WHEN."""
    outcomes: set[str] = set()
    for branch in e.args["ifs"]:
        condition = possible(branch.this, nulls)
        if condition & {TRUE, OTHER}:
            outcomes |= possible(branch.args["true"], nulls)
        if condition == {TRUE}:
            return frozenset(outcomes)
    default = e.args.get("default")
    return frozenset(outcomes | (_IS_NULL if default is None else possible(default, nulls)))


def _first_known(values: list[Possible]) -> Possible:
    outcomes: set[str] = set()
    for v in values:
        outcomes |= v - {NULL}
        if NULL not in v:
            return frozenset(outcomes)
    return frozenset(outcomes | {NULL})


def without_filling(plan: SqlJoin, conditions: Sequence[Scalar]) -> SqlJoin:
    """The join without padded rows that one of the conditions certainly removes.

    σ_p(A ⟕ B) = σ_p(A ⋈ B), if p is never true where all columns of B are NULL; σ_p(A ⟗ B) is
    σ_p(A ⟖ B) then, and the other way round.
    """
    if plan.how not in ("left", "right", "full"):
        return plan
    fills_right = plan.how in ("left", "full")
    fills_left = plan.how in ("right", "full")
    right, left = set(plan.right.columns), set(plan.left.columns)
    fills_right = fills_right and not any(never_true(e, right) for e in conditions)
    fills_left = fills_left and not any(never_true(e, left) for e in conditions)
    how = {(True, True): "full", (True, False): "left", (False, True): "right"}
    return replace(plan, how=how.get((fills_right, fills_left), "inner"))


COUNTS = ("count", "count_if", "regr_count", "approx_count_distinct")
"""Aggregates that are 0, not NULL, for no rows."""


SqlColumns = Mapping[str, tuple[tuple[str, ...] | None, str]]
"""For each column its place in a row, or None if rows cannot hold it, and its Spark type."""


@dataclass(frozen=True)
class ColumnType:
    """The Spark type of a column of a table, whether it is nullable, and whether rows hold it."""

    kind: str
    nullable: bool
    storable: bool = True


@dataclass(frozen=True)
class Facts:
    """Facts on the columns of plans; `tables` has the types of the columns of each table."""

    tables: Mapping[str, Mapping[str, ColumnType]]
    _known: dict[RelationalPlan, frozenset[PlanColumn]] = field(default_factory=dict)

    def never_null(self, plan: RelationalPlan) -> frozenset[PlanColumn]:
        """The columns of a plan that are never NULL."""
        columns = self._known.get(plan)
        if columns is None:
            columns = self._known[plan] = frozenset(self._never_null(plan)) & set(plan.columns)
        return columns

    def of_tables(self, plan: RelationalPlan) -> dict[PlanColumn, ColumnType]:
        """The columns of the tables that a plan reads."""
        scans = [part for part in nodes(plan) if isinstance(part, TableScan)]
        return {c: self.tables[scan.table][c.name] for scan in scans for c in scan.new_columns}

    def kind(self, plan: RelationalPlan, column: PlanColumn) -> str:
        """The Spark type of a column of a table that a plan reads; "" for others."""
        column_type = self.of_tables(plan).get(column)
        return column_type.kind if column_type else ""

    def _never_null(self, plan: RelationalPlan) -> set[PlanColumn]:
        match plan:
            case TableScan():
                types = self.tables[plan.table]
                not_null = {c for c in plan.new_columns if not types[c.name].nullable}
                if plan.of is not None:
                    never = self.never_null(plan.of)
                    same = zip(plan.new_columns, plan.of.columns, strict=True)
                    not_null |= {c for c, column in same if column in never}
                return not_null
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
                pairs = zip(plan.new_columns, plan.left.columns, plan.right.columns, strict=True)
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


def _is_known(e: Scalar, not_null: frozenset[PlanColumn]) -> bool:
    """Whether an expression is never NULL if these columns never are."""
    while isinstance(e, exp.Paren):
        e = e.this
    if isinstance(e, exp.Column) and "column" in e.meta:
        return column_of(e) in not_null
    return isinstance(e, exp.Literal | exp.Boolean)


def _compared(conditions: tuple[Scalar, ...]) -> set[PlanColumn]:
    """The columns that are not NULL in rows for which conditions are true."""
    parts = [part for e in conditions for part in conjuncts(e)]
    return {c for e in parts for c in refs(e) if never_true(e, {c})}


# -- joins without a match


def without_empty_joins(plan: RelationalPlan, facts: Facts) -> RelationalPlan:
    """The plan without semijoins, antijoins and mark joins in which no row has a match.

    (x IS NULL) = FALSE, if x is never NULL; σ_FALSE(A) = ∅; A ▷_FALSE B = A = A ▷ ∅; A ⋉_FALSE B
    and A ⋉ ∅ are σ_FALSE(A). A mark is FALSE then.
    """
    plan = with_sources(plan, *(without_empty_joins(s, facts) for s in plan.sources()))
    if not any(e.find(exp.Is) for e in plan.exprs()):
        return _without_empty_join(plan)
    not_null = frozenset[PlanColumn]().union(*map(facts.never_null, plan.sources()))
    return _without_empty_join(plan.mapped(lambda e: _decided(e, not_null)))


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


def _decided(e: Scalar, not_null: frozenset[PlanColumn]) -> Scalar:
    """The expression, simplified with columns that are never NULL."""
    if isinstance(e, exp.Is) and isinstance(e.expression, exp.Null):
        inner = e.this
        is_known = isinstance(inner, exp.Column) and "column" in inner.meta
        return exp.false() if is_known and column_of(inner) in not_null else e
    if isinstance(e, exp.Paren | exp.Not):
        inner = _decided(e.this, not_null)
        return e if inner is e.this else type(e)(this=inner.copy())
    if not isinstance(e, exp.And | exp.Or):
        return e
    sides = [_decided(e.this, not_null), _decided(e.expression, not_null)]
    if isinstance(e, exp.Or):
        undecided = [s for s in sides if not _is_false(s)]
        if len(undecided) < len(sides):
            return undecided[0] if undecided else exp.false()
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
    """Whether a plan certainly has no rows."""
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
