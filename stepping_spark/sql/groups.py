"""Rows that are joined with their own groups: what both read is computed once.

Where a query compares rows with an aggregate of such rows, both sides begin with the same joins. A
sub-query that is correlated is grouped for all keys, also for those that no row of the outer query
asks for; the keys that may be asked for restrict both sides.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from stepping_spark.sql.clock import reads_clock
from stepping_spark.sql.inner_joins import InnerJoin, where
from stepping_spark.sql.plan import (
    GroupBy,
    PlanColumn,
    RelationalPlan,
    Scalar,
    SelectList,
    Shapes,
    SqlJoin,
    TableScan,
    WhereClause,
    column_of,
    nodes,
    ref,
    refs,
    renamed,
    with_sources,
)

MOST_TRIED = 24
"""The ways to find the relations of a sub-query among those of the outer query."""


@dataclass(frozen=True)
class GroupsByKey:
    """A relation of groups that shows all their keys: by its column, what a key is of a row."""

    plan: RelationalPlan
    groups: GroupBy
    keys: Mapping[PlanColumn, Scalar]

    @classmethod
    def of(cls, plan: RelationalPlan) -> GroupsByKey | None:
        """The groups that a plan selects from; None if it is no such plan."""
        shown = {c: c for c in plan.columns}
        inner = plan
        while isinstance(inner, SelectList | WhereClause):
            if isinstance(inner, SelectList):
                items = dict(inner.items)
                columns = {c: items[own] for c, own in shown.items()}
                shown = {c: column_of(e) for c, e in columns.items() if _is_ref(e)}
            inner = inner.source
        if not isinstance(inner, GroupBy) or inner.sets is not None or not inner.keys:
            return None
        exprs = dict(inner.keys)
        keys = {c: exprs[own] for c, own in shown.items() if own in exprs}
        there = {own for c, own in shown.items() if c in keys}
        return cls(plan, inner, keys) if len(there) == len(exprs) else None

    def with_groups(self, groups: GroupBy) -> RelationalPlan:
        """The relation with other groups in their place."""
        return _replaced(self.plan, self.groups, groups)


def _replaced(plan: RelationalPlan, old: RelationalPlan, new: RelationalPlan) -> RelationalPlan:
    if plan is old:
        return new
    return with_sources(plan, *(_replaced(s, old, new) for s in plan.sources()))


def _is_ref(e: Scalar) -> bool:
    return isinstance(e, exp.Column) and "column" in e.meta


def is_equality(e: Scalar, a: Scalar, b: Scalar) -> bool:
    """Whether a condition is a = b, or b = a."""
    return isinstance(e, exp.EQ) and (e.this, e.expression) in ((a, b), (b, a))


def has(conditions: Sequence[Scalar], e: Scalar) -> bool:
    """Whether a condition is among others; the sides of an equality may be exchanged."""
    if isinstance(e, exp.EQ):
        return any(is_equality(c, e.this, e.expression) for c in conditions)
    return e in conditions


def correspondences(
    inner: Sequence[RelationalPlan], outer: Sequence[RelationalPlan]
) -> Iterator[list[RelationalPlan]]:
    """The ways to find relations of the same shapes among others, in the same order."""
    shapes = Shapes()
    of_outer = [(r, shapes.of(r)) for r in outer]
    choices = [[r for r, n in of_outer if n == shapes.of(i)] for i in inner]
    found = (list(c) for c in itertools.product(*choices) if len(set(c)) == len(c))
    return itertools.islice(found, MOST_TRIED)


def columns_between(
    inner: Sequence[RelationalPlan], outer: Sequence[RelationalPlan]
) -> dict[PlanColumn, PlanColumn]:
    """The columns of relations that correspond, by the inner ones."""
    pairs = zip(inner, outer, strict=True)
    return {a: b for i, o in pairs for a, b in zip(i.columns, o.columns, strict=True)}


def with_common_rows(join: InnerJoin) -> None:
    """Compute once what rows and their own groups are both made of.

    R ⋈_(r = k) S ⋈_(r = k) γ_k(S) = R ⋈_(r = k) T ⋈_(r = k) γ_k(T), where T = S ⋉_(k = r) R: a row
    of S that has no match in R is in no row of the result, and in no group that one is joined with.
    S may be joins of several relations, with their conditions. If R is no part of a table only,
    T = S. Conditions on S alone that the groups do not have are asked of T.
    """
    for relation in list(join.relations):
        grouped = GroupsByKey.of(relation)
        found = None if grouped is None else _Common.of(join, relation, grouped)
        if found is not None:
            found.put_into(join)


@dataclass(frozen=True)
class _Common:
    """The relations of a join that are also those of the groups of another one."""

    relation: RelationalPlan  # of the groups
    grouped: GroupsByKey
    inner: InnerJoin  # what is grouped
    outer: list[RelationalPlan]  # the same relations, in the join
    conditions: list[Scalar]  # the same conditions, of the join
    keys: tuple[Scalar, ...]  # of what is grouped
    keys_outside: tuple[Scalar, ...]  # the same keys, in the join
    asked: RelationalPlan | None  # the keys that are asked for

    @classmethod
    def of(cls, join: InnerJoin, relation: RelationalPlan, grouped: GroupsByKey) -> _Common | None:
        """What is found first; None: nothing."""
        inner = InnerJoin.of(grouped.groups.source)
        others = [r for r in join.relations if r is not relation]
        equal = {k: equal_to(k, relation, join.conditions) for k in grouped.keys}
        if not all(equal.values()):
            return None
        for outer in correspondences(inner.relations, others):
            columns = columns_between(inner.relations, outer)
            conditions = [renamed(e, columns) for e in inner.conditions]
            if not all(has(join.conditions, e) for e in conditions):
                continue
            keys = {k: renamed(e, columns) for k, e in grouped.keys.items()}
            is_of_own = all(keys[k] in equal[k] for k in keys)
            rest = [r for r in others if r not in outer]
            asked = None if is_of_own else _asked(join, rest, keys, equal)
            if not is_of_own and asked is None:
                continue
            if asked is not None and not _restricts(asked):
                asked = None
            if asked is None and len(outer) == 1:
                continue
            of_keys = tuple(grouped.keys.values()), tuple(keys.values())
            return cls(relation, grouped, inner, outer, conditions, *of_keys, asked)
        return None

    def put_into(self, join: InnerJoin) -> None:
        """Replace the relations by their join, and have it grouped, too."""
        rows = self._rows(self.outer, self.conditions, self.keys_outside)
        inner = self._rows(self.inner.relations, self.inner.conditions, self.keys)
        groups = self.grouped.with_groups(replace(self.grouped.groups, source=inner))
        relations: list[RelationalPlan] = []
        for r in join.relations:
            if r is self.outer[0]:
                relations.append(rows)
            elif r not in self.outer:
                relations.append(groups if r is self.relation else r)
        join.relations = relations
        join.whole |= {rows, groups}
        join.conditions = [e for e in join.conditions if not has(self.conditions, e)]

    def _rows(
        self,
        relations: Sequence[RelationalPlan],
        conditions: Sequence[Scalar],
        keys: Sequence[Scalar],
    ) -> RelationalPlan:
        """The joins of the relations, with the keys that are asked for only."""
        made = InnerJoin(list(relations), list(conditions))
        if self.asked is None:
            return made.plan()
        pairs = zip(keys, self.asked.columns, strict=True)
        on = tuple(exp.EQ(this=e.copy(), expression=ref(c)) for e, c in pairs)
        for i, r in enumerate(made.relations):
            if all(refs(e) <= set(r.columns) for e in keys):
                made.relations[i] = SqlJoin(r, self.asked, "semi", on)
                return made.plan()
        return SqlJoin(made.plan(), self.asked, "semi", on)


def equal_to(k: PlanColumn, relation: RelationalPlan, conditions: list[Scalar]) -> list[Scalar]:
    """What a column of a relation is equal to, of other relations."""
    found = []
    for e in conditions:
        for a, b in ((e.this, e.expression), (e.expression, e.this)) if _is_eq(e) else ():
            if _is_ref(a) and column_of(a) == k and refs(b) and not refs(b) & {*relation.columns}:
                found.append(b)
    return found


def _is_eq(e: Scalar) -> bool:
    return isinstance(e, exp.EQ)


def _asked(
    join: InnerJoin,
    rest: Sequence[RelationalPlan],
    keys: Mapping[PlanColumn, Scalar],
    equal: Mapping[PlanColumn, list[Scalar]],
) -> RelationalPlan | None:
    """The keys that rows of one other relation ask for, with the conditions on this alone."""
    for r in rest:
        there = set(r.columns)
        items = []
        for k, own in keys.items():
            for e in equal[k]:
                if refs(e) <= there and has(join.conditions, exp.EQ(this=own, expression=e)):
                    items.append((PlanColumn("key"), e))
                    break
        if len(items) == len(keys):
            alone = [e for e in join.conditions if refs(e) and refs(e) <= there]
            lasting = [e for e in alone if not reads_clock(e)]
            return SelectList(where(r, lasting), tuple(items))
    return None


def _restricts(plan: RelationalPlan) -> bool:
    """Whether a relation may be fewer rows than a table."""
    return not all(isinstance(n, TableScan | SelectList) for n in nodes(plan))
