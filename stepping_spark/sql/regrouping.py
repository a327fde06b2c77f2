"""Sums of rows whose groups are joined anyway: they are made of the groups, and not of the rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sqlglot import exp

from stepping_spark.sql.facts import Facts
from stepping_spark.sql.groups import (
    GroupsByKey,
    columns_between,
    correspondences,
    equal_to,
    has,
    is_equality,
)
from stepping_spark.sql.inner_joins import InnerJoin
from stepping_spark.sql.kinds import INTEGERS, decimal_kind, digits, is_decimal
from stepping_spark.sql.plan import (
    FunctionCall,
    GroupBy,
    Item,
    PlanColumn,
    RelationalPlan,
    Scalar,
    SelectList,
    WhereClause,
    column_of,
    nodes,
    ref,
    refs,
    renamed,
    with_sources,
)

MOST_DIGITS = 18
"""Digits of decimals whose sums, and the sums of these, cannot overflow."""
_AGAIN = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}
"""The aggregate that makes one of all rows from those of parts of them."""


def without_grouped_rows(plan: RelationalPlan, facts: Facts) -> RelationalPlan:
    """The plan without joins with rows whose groups are joined, too, and of which sums are read.

    γ_(K; sum(x)) (A ⋉_(a = k) σ(V) ⋈_(a = k) B) = γ_(K; sum(s)) (A ⋈_(a = k) σ(V)),
    where V = γ_(k; s = sum(x)) (B).

    A row of V stands for the rows of B with its k, which are in the same group of K: nothing but k
    is read of them, and their aggregates. The keys of V are unique, so a semijoin with it is a
    join. Also for count, min and max. Sums are those of integers and decimals, where the order of
    additions does not matter.
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
            found = None if rows is v else _Regrouped.of(plan, join, grouped, on, rows, facts)
            made = None if found is None else found.plan()
            if made is not None:
                return made
    return plan


@dataclass
class _Regrouped:
    """A GROUP BY that reads groups in the place of their rows."""

    top: GroupBy
    join: InnerJoin
    groups: GroupsByKey
    rows: RelationalPlan
    to_groups: dict[PlanColumn, PlanColumn]  # the columns of what is grouped, by those of the rows
    keys: dict[Scalar, PlanColumn]  # the key of the groups that an expression on the rows is
    facts: Facts
    more: list[tuple[PlanColumn, FunctionCall]] = field(default_factory=list)  # of the groups

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
        """The groups in the place of their rows; None if something else is read of the rows."""
        assert groups is not None
        inner = InnerJoin.of(groups.groups.source)
        if len(inner.relations) != 1 or isinstance(inner.relations[0], GroupBy):
            return None
        if not any(correspondences(inner.relations, [rows])):
            return None
        if any(refs(e) & set(rows.columns) for _, of_semi in join.semis for e in of_semi):
            return None
        columns = columns_between(inner.relations, [rows])
        own = [renamed(e, columns) for e in inner.conditions]
        keys = {renamed(e, columns): k for k, e in groups.keys.items()}
        touching = [e for e in join.conditions if refs(e) & set(rows.columns)]
        rest = [e for e in touching if not has(own, e)]
        if not all(has(touching, e) for e in own) or not _are_keys(rest, keys, groups.plan, on):
            return None
        back = {b: a for a, b in columns.items()}
        return cls(top, join, groups, rows, back, keys, facts)

    def plan(self) -> RelationalPlan | None:
        """The GROUP BY of the groups; None if something else is read of the rows."""
        keys = [self._key(e) for _, e in self.top.keys]
        calls = [self._again(call) for _, call in self.top.calls]
        if None in (*keys, *calls):
            return None
        items: list[Item] = [(c, ref(c)) for c, _ in self.top.keys]
        made = []
        for (c, call), again in zip(self.top.calls, calls, strict=True):
            assert again is not None
            kind = self._kind_of_sum(call)
            own = PlanColumn(c.name) if is_decimal(kind) else c
            made.append((own, again))
            items.append((c, ref(c) if own is c else _as_decimal(own, *digits(kind))))
        by = tuple((c, e) for (c, _), e in zip(self.top.keys, keys, strict=True) if e is not None)
        return SelectList(GroupBy(self._without_rows(), by, tuple(made)), tuple(items))

    def _key(self, e: Scalar) -> Scalar | None:
        """A key of the result, over the groups."""
        if e in self.keys:
            return ref(self.keys[e])
        return None if refs(e) & set(self.rows.columns) else e

    def _again(self, call: FunctionCall) -> FunctionCall | None:
        """An aggregate of rows, as one of the groups; None if there is none."""
        read = {c for e in call.exprs() for c in refs(e)}
        own = set(self.rows.columns)
        if not read & own and call.name in ("min", "max"):
            return call
        is_plain = not call.distinct and call.condition is None and not call.order
        if not is_plain or call.name not in _AGAIN or not read <= own:
            return None
        if call.name == "count" and (not self.top.keys or len(call.args) != 1):
            return None  # of no rows it is 0, and a sum NULL
        if call.name == "sum" and not self._kind_of_sum(call):
            return None
        at = self._aggregate(call.mapped(lambda e: renamed(e, self.to_groups)))
        return FunctionCall(_AGAIN[call.name], (ref(at),), call.at)

    def _aggregate(self, call: FunctionCall) -> PlanColumn:
        """The column of the groups with an aggregate."""
        for c, known in (*self.groups.groups.calls, *self.more):
            if known == call:
                return c
        made = PlanColumn(call.name)
        self.more.append((made, call))
        return made

    def _kind_of_sum(self, call: FunctionCall) -> str:
        """The type of a sum of which sums are exact, "" for others."""
        (e, *_) = call.args
        if call.name != "sum" or not (isinstance(e, exp.Column) and "column" in e.meta):
            return ""
        kind = self.facts.kind(self.rows, column_of(e))
        if is_decimal(kind):
            p, s = digits(kind)
            return decimal_kind(p + 10, s) if p <= MOST_DIGITS else ""
        return "bigint" if kind in INTEGERS else ""

    def _without_rows(self) -> RelationalPlan:
        """The joins without the rows, with their groups."""
        groups = self.groups.groups
        made = replace(groups, calls=(*groups.calls, *self.more))
        whole = _showing(self.groups.plan, groups, made)
        relations = [r for r in self.join.relations if r is not self.rows]
        own = set(self.rows.columns)
        conditions = [e for e in self.join.conditions if not refs(e) & own]
        semis = [(v, on) for v, on in self.join.semis if v is not self.groups.plan]
        if self.groups.plan in relations:
            relations = [whole if r is self.groups.plan else r for r in relations]
        else:
            relations.append(whole)
            conditions += [e for v, on in self.join.semis if v is self.groups.plan for e in on]
        return InnerJoin(relations, conditions, semis).plan()


def _as_decimal(c: PlanColumn, *size: int) -> Scalar:
    numbers = [exp.DataTypeParam(this=exp.Literal.number(n)) for n in size]
    to = exp.DataType(this=exp.DType.DECIMAL, expressions=numbers)
    return exp.Cast(this=ref(c), to=to)


def _showing(plan: RelationalPlan, old: GroupBy, new: GroupBy) -> RelationalPlan:
    """A relation of groups that shows all their aggregates."""
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
    """Whether conditions say that rows and groups have equal keys, all of them, and no more."""
    asked: set[PlanColumn] = set()
    for e in conditions:
        for own, k in keys.items():
            equal = [ref(k), *equal_to(k, groups, list(on))]
            if any(is_equality(e, own, other) for other in equal):
                asked.add(k)
                break
        else:
            return False
    return asked == set(keys.values())
