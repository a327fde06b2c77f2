"""Rewrites of relational plans: push down conditions, and prune columns that nobody reads.

They keep the rows of the result. They save state, since a join stores its inputs, and repeated
maps. A common part of two plans keeps the columns of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from stepping_spark.sql.clock import reads_clock
from stepping_spark.sql.facts import Facts, without_empty_joins, without_filling
from stepping_spark.sql.groups import GroupsByKey, with_common_rows, without_grouped_rows
from stepping_spark.sql.inner_joins import InnerJoin, equality, factored, implied, where
from stepping_spark.sql.plan import (
    GroupBy,
    LateralView,
    Limit,
    PlanColumn,
    RecursiveQuery,
    RelationalPlan,
    Scalar,
    SelectDistinct,
    SelectList,
    SessionsOf,
    SetOf,
    Shapes,
    SqlJoin,
    TableScan,
    WhereClause,
    Windows,
    column_of,
    has_at_most_one_row,
    keeping,
    ref,
    refs,
    substituted,
    with_sources,
)


def optimized(plan: RelationalPlan, facts: Facts, *, whole_rows: bool) -> RelationalPlan:
    """The plan after all rewrites.

    With `whole_rows`, columns of tables stay even if nobody reads them.
    """
    reduced = without_grouped_rows(without_empty_joins(plan, facts), facts)
    types = facts.of_tables(plan).items()
    kept = frozenset(c for c, t in types if whole_rows and t.storable)
    unheld = frozenset(c for c, t in types if not t.storable)
    return merged(pruned(pushed(reduced, ()), set(plan.columns), kept, unheld))


# -- maps


def merged(plan: RelationalPlan) -> RelationalPlan:
    """The plan with select lists merged into the nodes that read them."""
    plan = with_sources(plan, *map(merged, plan.sources()))
    if isinstance(plan, SelectList | GroupBy | WhereClause) and isinstance(plan.source, SelectList):
        items = dict(plan.source.items)
        if _costs_nothing(plan, items):
            below = with_sources(plan.mapped(lambda e: substituted(e, items)), plan.source.source)
            if isinstance(plan, WhereClause):
                return replace(plan.source, source=below)
            return merged(below)
    return plan


def _costs_nothing(plan: RelationalPlan, items: Mapping[PlanColumn, Scalar]) -> bool:
    """Whether merging computes no expression more often: only plain columns are read twice."""
    read = Counter(column_of(n) for e in plan.exprs() for n in e.find_all(exp.Column) if n.meta)
    computed = {c for c, e in items.items() if not isinstance(e, exp.Column)}
    again = 0 if isinstance(plan, WhereClause) else 1
    return all(read[c] <= again for c in computed)


# -- conditions


def pushed(plan: RelationalPlan, conditions: Sequence[Scalar]) -> RelationalPlan:
    """The rows of a plan that meet conditions, which are pushed down as far as possible."""
    match plan:
        case WhereClause():
            factors = [e for c in plan.conditions for e in factored(c)]
            return pushed(plan.source, (*conditions, *factors))
        case SelectList():
            items = dict(plan.items)
            inner = [substituted(e, items) for e in conditions]
            return replace(plan, source=pushed(plan.source, inner))
        case SqlJoin():
            plan = without_filling(plan, conditions)
            by_how = _ordered_joins if plan.how == "inner" else _past_join
            return by_how(plan, conditions)
        case GroupBy() if plan.sets is None and plan.keys:
            keys = dict(plan.keys)
            down, up = _split(conditions, set(keys))
            inner = [substituted(e, keys) for e in down]
            return where(replace(plan, source=pushed(plan.source, inner)), up)
        case SelectDistinct():
            return replace(plan, source=pushed(plan.source, conditions))
        case SetOf():
            return _past_set(plan, conditions)
        case Windows():
            down, up = _split(conditions, _partitioned(plan))
            return where(replace(plan, source=pushed(plan.source, down)), up)
        case LateralView():
            down, up = _split(conditions, set(plan.source.columns))
            return where(replace(plan, source=pushed(plan.source, down)), up)
    sources = [pushed(source, ()) for source in plan.sources()]
    return where(with_sources(plan, *sources), conditions)


def _split(
    conditions: Iterable[Scalar], columns: set[PlanColumn]
) -> tuple[list[Scalar], list[Scalar]]:
    """The conditions that read these columns only, and the others."""
    down: list[Scalar] = []
    up: list[Scalar] = []
    for e in conditions:
        (down if refs(e) and refs(e) <= columns else up).append(e)
    return down, up


def _partitioned(plan: Windows) -> set[PlanColumn]:
    """The columns by which all windows are partitioned."""
    by = [{column_of(e) for e in over.by if isinstance(e, exp.Column)} for _, over in plan.calls]
    return set.intersection(*by)


def _past_set(plan: SetOf, conditions: Sequence[Scalar]) -> RelationalPlan:
    down, up = _split(conditions, set(plan.new_columns))
    sides = []
    for source in plan.sources():
        named = {c: ref(column) for c, column in zip(plan.new_columns, source.columns, strict=True)}
        sides.append(pushed(source, [substituted(e, named) for e in down]))
    return where(with_sources(plan, *sides), up)


def _past_join(plan: SqlJoin, conditions: Sequence[Scalar]) -> RelationalPlan:
    """Outer joins and semijoins: conditions on a side that keeps its rows move to that side."""
    left, right = set(plan.left.columns), set(plan.right.columns)
    to_left: list[Scalar] = []
    to_right: list[Scalar] = []
    up, on = list(conditions), list(plan.on)
    if plan.how != "right" and plan.how != "full":
        to_left, up = _split(up, left)
        right_only, on = _split(on, right)
        to_right += right_only
    elif plan.how == "right":
        to_right, up = _split(up, right)
        to_left, on = _split(on, left)
    if plan.how == "semi":
        left_only, on = _split(on, left)
        to_left += left_only
    join = replace(
        plan,
        left=pushed(plan.left, to_left),
        right=pushed(plan.right, to_right),
        on=tuple(on),
    )
    return where(join, up)


# -- the order of inner joins


def _ordered_joins(plan: SqlJoin, conditions: Sequence[Scalar]) -> RelationalPlan:
    """Inner joins in a new order: each condition as early as possible, equalities first."""
    join = _gathered(plan, conditions)
    with_common_rows(join)
    relations = join.relations
    alone: list[list[Scalar]] = [[] for _ in relations]
    between: list[Scalar] = []
    for e in dict.fromkeys(join.conditions):
        at = [i for i, r in enumerate(relations) if refs(e) & set(r.columns)]
        (between if len(at) != 1 else alone[at[0]]).append(e)
        for i in at if len(at) > 1 else ():
            alone[i] += implied(e, set(relations[i].columns))
    placed = [
        where(pushed(r, ()), filters) if r in join.whole else pushed(r, filters)
        for r, filters in zip(relations, alone, strict=True)
    ]
    remaining = list(placed)
    for few in [r for r in remaining if has_at_most_one_row(r) or _are_chosen_groups(r)]:
        _join_first(few, remaining, between)
    chosen = {r for r, filters in zip(placed, alone, strict=True) if any(map(_chooses, filters))}
    _join_leaves(remaining, chosen, between)
    joined = remaining.pop(0)
    while remaining:
        joined = _inner(joined, remaining.pop(_next(joined, remaining, between)), between)
    return where(joined, between)


def _inner(left: RelationalPlan, right: RelationalPlan, conditions: list[Scalar]) -> SqlJoin:
    """The join of two relations on their conditions, which are removed from the list."""
    columns = set(left.columns) | set(right.columns)
    on = [e for e in conditions if refs(e) and refs(e) <= columns and not reads_clock(e)]
    conditions[:] = [e for e in conditions if e not in on]
    return SqlJoin(left, right, "inner", tuple(on))


def _join_first(
    few: RelationalPlan, relations: list[RelationalPlan], conditions: list[Scalar]
) -> None:
    """Join a single row, or chosen groups, first with the relation that an equality connects.

    (A ⋈ B) ⋈_(b = v) V = A ⋈ (B ⋈_(b = v) V). A row of B matches at most one row of V, and most
    match none, so few rows of B are joined with A.
    """
    for i, relation in enumerate(relations):
        sides = set(relation.columns), set(few.columns)
        if relation is not few and any(equality(e, *sides) for e in conditions):
            relations[i] = _inner(relation, few, conditions)
            relations.remove(few)
            return


def _chooses(e: Scalar) -> bool:
    """Whether a condition selects values, and so is probably true for few rows."""
    return isinstance(e, exp.EQ | exp.In | exp.Like)


def _join_leaves(
    relations: list[RelationalPlan], chosen: set[RelationalPlan], conditions: list[Scalar]
) -> None:
    """Join relations of few rows first with the only relation that they are joined with.

    (A ⋈_a B) ⋈_b V = A ⋈_a (B ⋈_b V), if the conditions b are on B and V. Then a change of A is
    looked up once, and rows of A ⋈ B are not stored. A join with few rows has few rows.
    """
    while len(relations) > 2:
        for v in relations:
            beside = [r for r in relations if r is not v and _are_joined(r, v, conditions)]
            if v in chosen and len(beside) == 1:
                i = relations.index(beside[0])
                relations[i] = _inner(beside[0], v, conditions)
                chosen.add(relations[i])
                relations.remove(v)
                break
        else:
            return


def _are_joined(a: RelationalPlan, b: RelationalPlan, conditions: list[Scalar]) -> bool:
    left, right = set(a.columns), set(b.columns)
    return any(refs(e) & left and refs(e) & right for e in conditions)


def _are_chosen_groups(plan: RelationalPlan) -> bool:
    """Whether a relation is groups that meet a condition, as by HAVING, with all their keys."""
    if GroupsByKey.of(plan) is None:
        return False
    while isinstance(plan, SelectList):
        plan = plan.source
    return isinstance(plan, WhereClause)


def _gathered(plan: SqlJoin, conditions: Sequence[Scalar]) -> InnerJoin:
    """The joined relations; outer joins among them become inner joins if that is equivalent."""
    join = InnerJoin(conditions=list(conditions))
    join.add(plan)
    while True:
        before, join.relations = join.relations, []
        for r in before:
            join.add(without_filling(r, join.conditions) if isinstance(r, SqlJoin) else r)
        if len(join.relations) == len(before):
            return join


def _next(
    joined: RelationalPlan, relations: Sequence[RelationalPlan], conditions: Sequence[Scalar]
) -> int:
    """The index of the relation to join next: the first that an equality connects, else 0."""
    columns = set(joined.columns)
    for i, relation in enumerate(relations):
        other_columns = set(relation.columns)
        if any(equality(e, columns, other_columns) for e in conditions):
            return i
    return 0


def pruned(
    plan: RelationalPlan,
    needed: set[PlanColumn],
    kept: frozenset[PlanColumn],
    unheld: frozenset[PlanColumn],
) -> RelationalPlan:
    """The plan without columns that nobody reads. It may have more columns than the needed ones.

    Joins, windows and first rows also keep the `kept` columns below them. Where no column is
    needed, one stays that is not `unheld`.

    Joins and groups of one shape keep the columns that any of them needs, so they stay equal, and
    are stored once: π_A(J) and π_B(J) read one J' = π_(A ∪ B)(J).
    """
    pruning = _Pruning(plan, kept, unheld)
    while True:
        narrower = pruning.of(plan, needed)
        if not pruning.grown:
            return narrower
        pruning.grown = False


def columns_of_plan(plan: RelationalPlan) -> dict[str, set[str]]:
    """The columns that a plan reads, by table."""
    pruning = _Pruning(plan)
    pruning.of(plan, set(plan.columns))
    return pruning.read


class _Pruning:
    """Prunes a plan, repeatedly, until the columns that parts of one shape need do not grow."""

    def __init__(
        self,
        plan: RelationalPlan,
        kept: frozenset[PlanColumn] = frozenset(),
        unheld: frozenset[PlanColumn] = frozenset(),
    ) -> None:
        self.kept = kept  # columns that stay in nodes that may have more than needed
        self.unheld = unheld
        self.shapes = Shapes()
        self.repeated = self.shapes.repeated(plan)
        self.needed: dict[int, set[int]] = {}  # by shape: the places of needed columns
        self.grown = False
        self.read: dict[str, set[str]] = {}  # by table: the names of the columns that are read

    def _with_those_of_others(
        self, plan: RelationalPlan, needed: set[PlanColumn]
    ) -> set[PlanColumn]:
        """The columns that a join or a group needs, and those that others of its shape need."""
        if not self.repeated or not isinstance(plan, SqlJoin | GroupBy | Windows):
            return needed
        number = self.shapes.of(plan)
        if number not in self.repeated:
            return needed
        positions = {i for i, c in enumerate(plan.columns) if c in needed}
        all_positions = self.needed.setdefault(number, positions)
        self.grown |= not positions <= all_positions
        all_positions |= positions
        return {plan.columns[i] for i in all_positions}

    def of(self, plan: RelationalPlan, needed: set[PlanColumn]) -> RelationalPlan:
        """The plan without columns that neither its readers nor those of its shape need."""
        needed = self._with_those_of_others(plan, needed)
        match plan:
            case TableScan(of=None):
                columns = {c.name for c in plan.columns if c in needed}
                self.read[plan.table] = self.read.get(plan.table, set()) | columns
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
                groups = replace(plan, calls=calls or plan.calls[:1])
                below = {c for e in groups.exprs() for c in refs(e)}
                return replace(groups, source=self.of(plan.source, below))
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
        """The plan with only the needed columns, but at least one."""
        one = [c for c in plan.columns if c not in self.unheld][:1]
        needed = needed & set(plan.columns) or set(one)
        plan = self.of(plan, needed)
        chosen = [c for c in plan.columns if c in needed]
        if len(chosen) == len(plan.columns):
            return plan
        return keeping(plan, chosen)

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
        places = [i for i, c in enumerate(plan.new_columns) if c in needed] or [0]
        sides = []
        for source in plan.sources():
            chosen = [source.columns[i] for i in places]
            sides.append(keeping(self.of(source, set(chosen)), chosen))
        columns = tuple(plan.new_columns[i] for i in places)
        return replace(plan, left=sides[0], right=sides[1], new_columns=columns)


def _below(plan: RelationalPlan, needed: set[PlanColumn]) -> set[PlanColumn]:
    """The columns that a node needs from its sources."""
    read = {c for e in plan.exprs() for c in refs(e)}
    return (needed | read) & {c for s in plan.sources() for c in s.columns}
