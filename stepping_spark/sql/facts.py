"""What is known of the columns of a plan from the types of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from stepping_spark.sql.nulls import never_true
from stepping_spark.sql.plan import (
    GroupBy,
    OneSource,
    PlanColumn,
    RelationalPlan,
    Scalar,
    SelectList,
    SetOf,
    SqlJoin,
    TableScan,
    WhereClause,
    column_of,
    conjuncts,
    nodes,
    refs,
)

COUNTS = ("count", "count_if", "regr_count", "approx_count_distinct")
"""Aggregates that are 0, not NULL, for no rows."""


@dataclass(frozen=True)
class ColumnType:
    """The Spark type of a column of a table, and whether it may be NULL."""

    kind: str
    nullable: bool


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

    def kind(self, plan: RelationalPlan, column: PlanColumn) -> str:
        """The Spark type of a column of a table that a plan reads; "" for others."""
        for part in nodes(plan):
            if isinstance(part, TableScan) and column in part.made:
                return self.tables[part.table][column.name].kind
        return ""

    def _never_null(self, plan: RelationalPlan) -> set[PlanColumn]:
        match plan:
            case TableScan():
                types = self.tables[plan.table]
                return {c for c in plan.made if not types[c.name].nullable}
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
