"""Conditions that are false for each row, by what is known of the columns; and joins that go then.

NOT IN asks whether a value is NULL, on both sides. Where a column is never NULL, these questions
are joins without a match.
"""

from __future__ import annotations

from sqlglot import exp

from stepping_spark.sql.facts import Facts
from stepping_spark.sql.plan import (
    InlineValues,
    PlanColumn,
    RelationalPlan,
    Scalar,
    SelectDistinct,
    SelectList,
    SqlJoin,
    WhereClause,
    column_of,
    ref,
    with_sources,
)


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
