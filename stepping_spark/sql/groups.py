"""Rows that are joined with their own groups: their common part is computed once.

If a query compares rows with an aggregate of such rows, both sides begin with the same joins. A
correlated sub-query is grouped for all keys, also for keys that no row of the outer query needs;
here the needed keys restrict both sides. Sums of rows whose groups are joined anyway are computed
from the groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from stepping_spark.sql.clock import reads_clock
from stepping_spark.sql.facts import Facts
from stepping_spark.sql.inner_joins import InnerJoin, where
from stepping_spark.sql.kinds import INTEGERS, decimal_kind, digits, is_decimal
from stepping_spark.sql.plan import (
    FunctionCall,
    GroupBy,
    Item,
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
"""The most ways that are tried to find the relations of a sub-query in the outer query."""


@dataclass(frozen=True)
class GroupsByKey:
    """A relation of groups with all their keys: the key expression of each of its columns."""

    plan: RelationalPlan
    groups: GroupBy
    keys: Mapping[PlanColumn, Scalar]

    @classmethod
    def of(cls, plan: RelationalPlan) -> GroupsByKey | None:
        """The groups from which a plan selects; None if it selects from no groups with all keys."""
        selected = {c: c for c in plan.columns}
        inner = plan
        while isinstance(inner, SelectList | WhereClause):
            if isinstance(inner, SelectList):
                items = dict(inner.items)
                columns = {c: items[column] for c, column in selected.items()}
                selected = {c: column_of(e) for c, e in columns.items() if _is_ref(e)}
            inner = inner.source
        if not isinstance(inner, GroupBy) or inner.sets is not None or not inner.keys:
            return None
        exprs = dict(inner.keys)
        keys = {c: exprs[column] for c, column in selected.items() if column in exprs}
        keys_shown = {column for c, column in selected.items() if c in keys}
        return cls(plan, inner, keys) if len(keys_shown) == len(exprs) else None

    def with_groups(self, groups: GroupBy) -> RelationalPlan:
        """The relation over other groups."""
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
    """Whether a condition is one of these, up to the order of the sides of an equality."""
    if isinstance(e, exp.EQ):
        return any(is_equality(c, e.this, e.expression) for c in conditions)
    return e in conditions


def correspondences(
    inner: Sequence[RelationalPlan], outer: Sequence[RelationalPlan]
) -> Iterator[list[RelationalPlan]]:
    """The ways to match relations with others of the same shapes, in the order of `inner`."""
    shapes = Shapes()
    shaped_outer = [(r, shapes.of(r)) for r in outer]
    choices = [[r for r, n in shaped_outer if n == shapes.of(i)] for i in inner]
    ways = (list(c) for c in itertools.product(*choices) if len(set(c)) == len(c))
    return itertools.islice(ways, MOST_TRIED)


def columns_between(
    inner: Sequence[RelationalPlan], outer: Sequence[RelationalPlan]
) -> dict[PlanColumn, PlanColumn]:
    """The outer column of each inner column, for relations that correspond."""
    pairs = zip(inner, outer, strict=True)
    return {a: b for i, o in pairs for a, b in zip(i.columns, o.columns, strict=True)}


def with_common_rows(join: InnerJoin) -> None:
    """Compute the common relations of rows and their own groups once.

    R ⋈_(r = k) S ⋈_(r = k) γ_k(S) = R ⋈_(r = k) T ⋈_(r = k) γ_k(T), where T = S ⋉_(k = r) R: a row
    of S that has no match in R is in no row of the result, and in no group that one is joined with.
    S may be joins of several relations, with their conditions. If R is a whole table, T = S.
    Conditions on S alone that the groups lack apply to T.
    """
    for relation in list(join.relations):
        grouped = GroupsByKey.of(relation)
        common = None if grouped is None else _Common.of(join, relation, grouped)
        if common is not None:
            common.put_into(join)


@dataclass(frozen=True)
class _Common:
    """The relations of a join that are also below the groups of another relation of the join."""

    relation: RelationalPlan  # with the groups
    grouped: GroupsByKey
    inner: InnerJoin  # below the groups
    outer: list[RelationalPlan]  # the same relations, in the join
    conditions: list[Scalar]  # the same conditions, of the join
    keys: tuple[Scalar, ...]  # below the groups
    keys_outside: tuple[Scalar, ...]  # the same keys, in the join
    needed_keys: RelationalPlan | None  # None: the groups are restricted by no keys

    @classmethod
    def of(cls, join: InnerJoin, relation: RelationalPlan, grouped: GroupsByKey) -> _Common | None:
        """The first match of relations, or None."""
        inner = InnerJoin.of(grouped.groups.source)
        others = [r for r in join.relations if r is not relation]
        equal_exprs = {k: equal_to(k, relation, join.conditions) for k in grouped.keys}
        if not all(equal_exprs.values()):
            return None
        for outer in correspondences(inner.relations, others):
            columns = columns_between(inner.relations, outer)
            conditions = [renamed(e, columns) for e in inner.conditions]
            if not all(has(join.conditions, e) for e in conditions):
                continue
            keys = {k: renamed(e, columns) for k, e in grouped.keys.items()}
            is_own_group = all(keys[k] in equal_exprs[k] for k in keys)
            remaining = [r for r in others if r not in outer]
            needed_keys = None if is_own_group else _needed_keys(join, remaining, keys, equal_exprs)
            if not is_own_group and needed_keys is None:
                continue
            if needed_keys is not None and not _restricts(needed_keys):
                needed_keys = None
            if needed_keys is None and len(outer) == 1:
                continue
            both_keys = tuple(grouped.keys.values()), tuple(keys.values())
            return cls(relation, grouped, inner, outer, conditions, *both_keys, needed_keys)
        return None

    def put_into(self, join: InnerJoin) -> None:
        """Replace the relations by their join, and group the same join."""
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
        """The joins of the relations, restricted to the needed keys."""
        join = InnerJoin(list(relations), list(conditions))
        if self.needed_keys is None:
            return join.plan()
        pairs = zip(keys, self.needed_keys.columns, strict=True)
        key_equalities = tuple(exp.EQ(this=e.copy(), expression=ref(c)) for e, c in pairs)
        for i, r in enumerate(join.relations):
            if all(refs(e) <= set(r.columns) for e in keys):
                join.relations[i] = SqlJoin(r, self.needed_keys, "semi", key_equalities)
                return join.plan()
        return SqlJoin(join.plan(), self.needed_keys, "semi", key_equalities)


def equal_to(k: PlanColumn, relation: RelationalPlan, conditions: list[Scalar]) -> list[Scalar]:
    """The expressions of other relations that are equal to a column of a relation."""
    equals = []
    for e in conditions:
        for a, b in ((e.this, e.expression), (e.expression, e.this)) if _is_eq(e) else ():
            if _is_ref(a) and column_of(a) == k and refs(b) and not refs(b) & {*relation.columns}:
                equals.append(b)
    return equals


def _is_eq(e: Scalar) -> bool:
    return isinstance(e, exp.EQ)


def _needed_keys(
    join: InnerJoin,
    relations: Sequence[RelationalPlan],
    keys: Mapping[PlanColumn, Scalar],
    equal_exprs: Mapping[PlanColumn, list[Scalar]],
) -> RelationalPlan | None:
    """The needed keys: of the rows of one other relation that meet the conditions on it alone."""
    for r in relations:
        columns = set(r.columns)
        items = []
        for k, key in keys.items():
            for e in equal_exprs[k]:
                if refs(e) <= columns and has(join.conditions, exp.EQ(this=key, expression=e)):
                    items.append((PlanColumn("key"), e))
                    break
        if len(items) == len(keys):
            own_conditions = [e for e in join.conditions if refs(e) and refs(e) <= columns]
            lasting = [e for e in own_conditions if not reads_clock(e)]
            return SelectList(where(r, lasting), tuple(items))
    return None


def _restricts(plan: RelationalPlan) -> bool:
    """Whether a relation may have fewer rows than a table."""
    return not all(isinstance(n, TableScan | SelectList) for n in nodes(plan))


MOST_SUMMED_DIGITS = 18
"""The most digits of decimals whose sums, and sums of sums, cannot overflow."""
_COMBINED_BY = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}
"""The aggregate that combines partial aggregates of rows."""


def without_grouped_rows(plan: RelationalPlan, facts: Facts) -> RelationalPlan:
    """The plan without joins with rows that are only summed, if their groups are joined, too.

    γ_(K; sum(x)) (A ⋉_(a = k) σ(V) ⋈_(a = k) B) = γ_(K; sum(s)) (A ⋈_(a = k) σ(V)),
    where V = γ_(k; s = sum(x)) (B).

    A row of V stands for the rows of B with its k. They are in the same group of K, as only k and
    their aggregates are read. The keys of V are unique, so a semijoin with V is a join. The rule
    also holds for count, min and max. Sums are of integers and decimals, whose order of additions
    does not matter.
    """
    plan = with_sources(plan, *(without_grouped_rows(s, facts) for s in plan.sources()))
    if not isinstance(plan, GroupBy) or plan.sets is not None:
        return plan
    if not any(isinstance(n, GroupBy) for s in plan.sources() for n in nodes(s)):
        return plan
    join = InnerJoin.of(plan.source, with_semis=True)
    candidates = [(v, tuple(join.conditions)) for v in join.relations]
    for v, on in (*join.semis, *candidates):
        grouped = GroupsByKey.of(v)
        for rows in join.relations if grouped is not None else ():
            regrouped = None if rows is v else _Regrouped.of(plan, join, grouped, on, rows, facts)
            result = None if regrouped is None else regrouped.plan()
            if result is not None:
                return result
    return plan


@dataclass
class _Regrouped:
    """A GROUP BY that reads groups instead of their rows."""

    top: GroupBy
    join: InnerJoin
    groups: GroupsByKey
    rows: RelationalPlan
    to_groups: dict[PlanColumn, PlanColumn]  # from columns of the rows to those below the groups
    keys: dict[Scalar, PlanColumn]  # the group key of an expression on the rows
    facts: Facts
    added_calls: list[tuple[PlanColumn, FunctionCall]] = field(default_factory=list)  # to groups

    @classmethod
    def of(
        cls,
        top: GroupBy,
        join: InnerJoin,
        groups: GroupsByKey | None,
        on: tuple[Scalar, ...],
        rows: RelationalPlan,
        facts: Facts,
    ) -> _Regrouped | None:
        """The rewriting to groups; None if the join reads other columns of the rows."""
        assert groups is not None
        inner = InnerJoin.of(groups.groups.source)
        if len(inner.relations) != 1 or isinstance(inner.relations[0], GroupBy):
            return None
        if not any(correspondences(inner.relations, [rows])):
            return None
        if any(refs(e) & set(rows.columns) for _, of_semi in join.semis for e in of_semi):
            return None
        columns = columns_between(inner.relations, [rows])
        conditions = [renamed(e, columns) for e in inner.conditions]
        keys = {renamed(e, columns): k for k, e in groups.keys.items()}
        touching = [e for e in join.conditions if refs(e) & set(rows.columns)]
        remaining = [e for e in touching if not has(conditions, e)]
        if not all(has(touching, e) for e in conditions) or not _are_keys(
            remaining, keys, groups.plan, on
        ):
            return None
        to_groups = {b: a for a, b in columns.items()}
        return cls(top, join, groups, rows, to_groups, keys, facts)

    def plan(self) -> RelationalPlan | None:
        """The GROUP BY over the groups; None if it reads other columns of the rows."""
        keys = [self._key_over_groups(e) for _, e in self.top.keys]
        combined_calls = [self._over_groups(call) for _, call in self.top.calls]
        if None in (*keys, *combined_calls):
            return None
        items: list[Item] = [(c, ref(c)) for c, _ in self.top.keys]
        new_calls = []
        for (c, call), combined in zip(self.top.calls, combined_calls, strict=True):
            assert combined is not None
            kind = self._kind_of_sum(call)
            column = PlanColumn(c.name) if is_decimal(kind) else c
            new_calls.append((column, combined))
            items.append((c, ref(c) if column is c else _as_decimal(column, *digits(kind))))
        new_keys = tuple(
            (c, e) for (c, _), e in zip(self.top.keys, keys, strict=True) if e is not None
        )
        return SelectList(GroupBy(self._without_rows(), new_keys, tuple(new_calls)), tuple(items))

    def _key_over_groups(self, e: Scalar) -> Scalar | None:
        """A key of the result as an expression over the groups; None if there is none."""
        if e in self.keys:
            return ref(self.keys[e])
        return None if refs(e) & set(self.rows.columns) else e

    def _over_groups(self, call: FunctionCall) -> FunctionCall | None:
        """An aggregate of rows as an aggregate of the groups; None if there is none.

        Adds the aggregates that it needs and the groups lack to `added_calls`.
        """
        columns_read = {c for e in call.exprs() for c in refs(e)}
        row_columns = set(self.rows.columns)
        if not columns_read & row_columns and call.name in ("min", "max"):
            return call
        is_plain = not call.distinct and call.condition is None and not call.order
        if not is_plain or call.name not in _COMBINED_BY or not columns_read <= row_columns:
            return None
        if call.name == "count" and (not self.top.keys or len(call.args) != 1):
            return None  # a count of no rows is 0, and a sum is NULL
        if call.name == "sum" and not self._kind_of_sum(call):
            return None
        column = self._aggregate(call.mapped(lambda e: renamed(e, self.to_groups)))
        return FunctionCall(_COMBINED_BY[call.name], (ref(column),), call.at)

    def _aggregate(self, call: FunctionCall) -> PlanColumn:
        """The column of the groups with an aggregate, which is added if it is new."""
        for c, existing in (*self.groups.groups.calls, *self.added_calls):
            if existing == call:
                return c
        column = PlanColumn(call.name)
        self.added_calls.append((column, call))
        return column

    def _kind_of_sum(self, call: FunctionCall) -> str:
        """The type of a sum whose sums are exact; "" for others."""
        (e, *_) = call.args
        if call.name != "sum" or not (isinstance(e, exp.Column) and "column" in e.meta):
            return ""
        kind = self.facts.kind(self.rows, column_of(e))
        if is_decimal(kind):
            p, s = digits(kind)
            return decimal_kind(p + 10, s) if p <= MOST_SUMMED_DIGITS else ""
        return "bigint" if kind in INTEGERS else ""

    def _without_rows(self) -> RelationalPlan:
        """The joins without the rows, with their groups."""
        groups = self.groups.groups
        extended = replace(groups, calls=(*groups.calls, *self.added_calls))
        extended_groups = _showing(self.groups.plan, groups, extended)
        relations = [r for r in self.join.relations if r is not self.rows]
        row_columns = set(self.rows.columns)
        conditions = [e for e in self.join.conditions if not refs(e) & row_columns]
        semis = [(v, on) for v, on in self.join.semis if v is not self.groups.plan]
        if self.groups.plan in relations:
            relations = [extended_groups if r is self.groups.plan else r for r in relations]
        else:
            relations.append(extended_groups)
            conditions += [e for v, on in self.join.semis if v is self.groups.plan for e in on]
        return InnerJoin(relations, conditions, semis).plan()


def _as_decimal(c: PlanColumn, *size: int) -> Scalar:
    numbers = [exp.DataTypeParam(this=exp.Literal.number(n)) for n in size]
    to = exp.DataType(this=exp.DType.DECIMAL, expressions=numbers)
    return exp.Cast(this=ref(c), to=to)


def _showing(plan: RelationalPlan, old: GroupBy, new: GroupBy) -> RelationalPlan:
    """A relation of groups extended by the new aggregates."""
    if plan is old:
        return new
    if isinstance(plan, SelectList):
        more = [(c, ref(c)) for c, _ in new.calls if c not in plan.columns]
        return SelectList(_showing(plan.source, old, new), (*plan.items, *more))
    assert isinstance(plan, WhereClause)
    return replace(plan, source=_showing(plan.source, old, new))


def _are_keys(
    conditions: list[Scalar],
    keys: dict[Scalar, PlanColumn],
    groups: RelationalPlan,
    on: tuple[Scalar, ...],
) -> bool:
    """Whether conditions are exactly the equalities of all keys of rows and groups."""
    matched_keys: set[PlanColumn] = set()
    for e in conditions:
        for key, k in keys.items():
            equal_exprs = [ref(k), *equal_to(k, groups, list(on))]
            if any(is_equality(e, key, other) for other in equal_exprs):
                matched_keys.add(k)
                break
        else:
            return False
    return matched_keys == set(keys.values())
