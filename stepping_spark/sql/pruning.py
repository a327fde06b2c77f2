"""Columns that nobody reads go. What two parts of a plan share keeps the columns of both."""

from __future__ import annotations

from dataclasses import replace

from stepping_spark.sql.plan import (
    GroupBy,
    LateralView,
    Limit,
    PlanColumn,
    RecursiveQuery,
    RelationalPlan,
    SelectDistinct,
    SelectList,
    SessionsOf,
    SetOf,
    SqlJoin,
    WhereClause,
    Windows,
    keeping,
    refs,
    with_sources,
)
from stepping_spark.sql.shapes import Shapes


def pruned(
    plan: RelationalPlan, needed: set[PlanColumn], kept: frozenset[PlanColumn]
) -> RelationalPlan:
    """The plan without columns that nobody reads. It may have more than those that are needed.

    Joins, windows and first rows have those of the `kept` columns that are below them.

    Joins and groups of one shape keep the columns that one of them needs, so they stay equal, and
    are kept once: π_A(J) and π_B(J) read one J' = π_(A ∪ B)(J).
    """
    pruning = _Pruning(plan, kept)
    while True:
        made = pruning.of(plan, needed)
        if not pruning.grown:
            return made
        pruning.grown = False


class _Pruning:
    """Prunes a plan. What parts of one shape need is known when none of them needs more."""

    def __init__(self, plan: RelationalPlan, kept: frozenset[PlanColumn]) -> None:
        self.kept = kept  # columns that stay where a row may have more than it needs
        self.shapes = Shapes()
        self.repeated = self.shapes.repeated(plan)
        self.needed: dict[int, set[int]] = {}  # by shape: the places of columns
        self.grown = False

    def _with_those_of_others(
        self, plan: RelationalPlan, needed: set[PlanColumn]
    ) -> set[PlanColumn]:
        """What a join or a group needs, with what others of its shape need."""
        if not self.repeated or not isinstance(plan, SqlJoin | GroupBy | Windows):
            return needed
        number = self.shapes.of(plan)
        if number not in self.repeated:
            return needed
        own = {i for i, c in enumerate(plan.columns) if c in needed}
        known = self.needed.setdefault(number, own)
        self.grown |= not own <= known
        known |= own
        return {plan.columns[i] for i in known}

    def of(self, plan: RelationalPlan, needed: set[PlanColumn]) -> RelationalPlan:
        """The plan without columns that nobody reads, nor those of its shape."""
        needed = self._with_those_of_others(plan, needed)
        match plan:
            case SelectList():
                items = tuple((c, e) for c, e in plan.items if c in needed) or plan.items[:1]
                below = {c for _, e in items for c in refs(e)}
                return SelectList(self.of(plan.source, below), items)
            case SqlJoin(how="mark") if plan.mark not in needed:
                return self.of(plan.left, needed)
            case SqlJoin():
                return self._join(plan, needed)
            case SetOf():
                return self._set(plan, needed)
            case GroupBy():
                calls = tuple((c, call) for c, call in plan.calls if c in needed)
                made = replace(plan, calls=calls or plan.calls[:1])
                below = {c for e in made.exprs() for c in refs(e)}
                return replace(made, source=self.of(plan.source, below))
            case Windows():
                windows = tuple((c, over) for c, over in plan.calls if c in needed)
                if not windows:
                    return self.of(plan.source, needed)
                fewer = replace(plan, calls=windows)
                below = _below(fewer, needed) | self.kept
                return replace(fewer, source=self._fitted(plan.source, below))
            case SelectDistinct():
                return with_sources(plan, self._fitted(plan.sources()[0], set(plan.columns)))
            case RecursiveQuery():
                return with_sources(
                    plan, *(self._fitted(s, set(s.columns)) for s in plan.sources())
                )
            case Limit() | LateralView() | SessionsOf():
                below = _below(plan, needed) | self.kept
                return with_sources(plan, self._fitted(plan.source, below))
            case WhereClause():
                return replace(plan, source=self.of(plan.source, _below(plan, needed)))
        return plan

    def _fitted(self, plan: RelationalPlan, needed: set[PlanColumn]) -> RelationalPlan:
        """The plan with the needed columns only; at least one."""
        plan = self.of(plan, needed)
        wanted = [c for c in plan.columns if c in needed] or list(plan.columns[:1])
        if len(wanted) == len(plan.columns):
            return plan
        return keeping(plan, wanted)

    def _join(self, plan: SqlJoin, needed: set[PlanColumn]) -> RelationalPlan:
        read = needed | self.kept | {c for e in plan.on for c in refs(e)}
        left, right = (
            self._fitted(side, read & set(side.columns)) for side in (plan.left, plan.right)
        )
        return replace(plan, left=left, right=right)

    def _set(self, plan: SetOf, needed: set[PlanColumn]) -> RelationalPlan:
        if plan.kind != "union" or not plan.all:
            sides = [self._fitted(s, set(s.columns)) for s in plan.sources()]
            return with_sources(plan, *sides)
        places = [i for i, c in enumerate(plan.made) if c in needed] or [0]
        sides = []
        for source in plan.sources():
            wanted = [source.columns[i] for i in places]
            sides.append(keeping(self.of(source, set(wanted)), wanted))
        made = tuple(plan.made[i] for i in places)
        return replace(plan, left=sides[0], right=sides[1], made=made)


def _below(plan: RelationalPlan, needed: set[PlanColumn]) -> set[PlanColumn]:
    """What a node needs of its source."""
    read = {c for e in plan.exprs() for c in refs(e)}
    return (needed | read) & {c for s in plan.sources() for c in s.columns}
