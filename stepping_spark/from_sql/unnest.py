"""Sub-queries as joins: correlated ones by the distinct values of the outer query's columns.

A sub-query that reads columns of the outer query has a result for each combination of their
values. These combinations are its domain. `over_domain` gives all results at once, as a relation
that has the columns of the domain too, and is joined with the outer query by them (Neumann and
Kemper, Unnesting Arbitrary Queries, 2015).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from stepping_spark.from_sql.columns import (
    TRUE,
    Column,
    Expr,
    coalesced,
    ref,
    refs,
    renamed,
    substituted,
)
from stepping_spark.from_sql.plan import (
    Aggregate,
    Call,
    Distinct,
    Filter,
    First,
    Join,
    Plan,
    Project,
    SetOf,
    Unnest,
    Values,
    Windows,
    free,
    has_at_most_one_row,
    is_one_row,
    keeping,
)

COUNTS = ("count", "count_if", "regr_count", "approx_count_distinct")
"""Aggregates that are 0, not NULL, for no rows."""


def null_safe(a: Column, b: Column) -> Expr:
    """a <=> b."""
    return exp.NullSafeEQ(this=ref(a), expression=ref(b))


# -- the sub-query of a condition


@dataclass(frozen=True)
class Matched:
    """A sub-query as the right side of a join, with the conditions of a match."""

    plan: Plan
    on: tuple[Expr, ...]
    values: tuple[Expr, ...]
    """The columns of the sub-query, as expressions over the plan."""


def matched(outer: Plan, sub: Plan) -> Matched:
    """A sub-query of EXISTS or IN, without columns of the outer query inside of it."""
    values: tuple[Expr, ...] = tuple(ref(c) for c in sub.columns)
    on: list[Expr] = []
    inner = sub
    while free(inner):
        if isinstance(inner, Project):
            items = dict(inner.items)
            values = tuple(substituted(v, items) for v in values)
            on = [substituted(e, items) for e in on]
            inner = inner.source
        elif isinstance(inner, Filter):
            outside = free(inner)
            on += [e for e in inner.conditions if refs(e) & outside]
            inside = tuple(e for e in inner.conditions if not refs(e) & outside)
            inner = replace(inner, conditions=inside) if inside else inner.source
            if free(inner) and inside:
                break
        elif isinstance(inner, Distinct):
            inner = inner.source
        else:
            break
    if not free(inner):
        return Matched(inner, tuple(on), values)
    domain = Domain.of(outer, sub)
    whole = over_domain(sub, domain)
    return Matched(whole, domain.joined(), tuple(ref(c) for c in sub.columns))


# -- the domain


@dataclass(frozen=True)
class Domain:
    """The distinct values of columns of the outer query, as columns of their own."""

    plan: Plan
    columns: Mapping[Column, Column]  # by the columns of the outer query

    @classmethod
    def of(cls, outer: Plan, sub: Plan) -> Domain:
        """The domain of a sub-query."""
        read = sorted(free(sub) & set(outer.columns), key=lambda c: c.number)
        fresh = {c: Column(c.name, c.table) for c in read}
        items = tuple((fresh[c], ref(c)) for c in read)
        return cls(Distinct(Project(outer, items)), fresh)

    def again(self) -> Domain:
        """The same domain, with columns of other numbers."""
        fresh = {mine: Column(mine.name, mine.table) for mine in self.columns.values()}
        items = tuple((new, ref(mine)) for mine, new in fresh.items())
        columns = {outer: fresh[mine] for outer, mine in self.columns.items()}
        return Domain(Project(self.plan, items), columns)

    def inside(self, e: Expr) -> Expr:
        """An expression of a sub-query, over the columns of the domain."""
        return renamed(e, self.columns)

    @property
    def made(self) -> tuple[Column, ...]:
        """The columns."""
        return tuple(self.columns.values())

    def joined(self) -> tuple[Expr, ...]:
        """The conditions that join a result with the outer query."""
        return tuple(null_safe(outer, mine) for outer, mine in self.columns.items())


def over_domain(plan: Plan, domain: Domain) -> Plan:
    """The plan's rows for each row of the domain, with the domain's columns added."""
    own = domain.made
    outer = set(domain.columns)
    if not free(plan) & outer:
        return keeping(Join(plan, domain.plan, "inner"), (*plan.columns, *own))
    match plan:
        case Filter():
            conditions = tuple(map(domain.inside, plan.conditions))
            return Filter(over_domain(plan.source, domain), conditions)
        case Project():
            items = tuple((c, domain.inside(e)) for c, e in plan.items)
            return Project(over_domain(plan.source, domain), (*items, *kept(own)))
        case Join():
            return _join(plan, domain)
        case Aggregate():
            return _aggregate(plan, domain)
        case Windows():
            calls = tuple(
                (c, replace(o := over.mapped(domain.inside), by=(*o.by, *map(ref, own))))
                for c, over in plan.calls
            )
            return Windows(over_domain(plan.source, domain), calls)
        case Distinct():
            return Distinct(over_domain(plan.source, domain))
        case First():
            order = tuple(map(domain.inside, plan.order))
            by = (*map(domain.inside, plan.by), *map(ref, own))
            source = over_domain(plan.source, domain)
            return First(source, order, plan.count, plan.offset, by)
        case SetOf():
            left, right = over_domain(plan.left, domain), domain.again()
            other = over_domain(plan.right, right)
            return SetOf(plan.kind, plan.all, left, other, (*plan.made, *own))
        case Unnest():
            source = over_domain(plan.source, domain)
            return replace(plan, source=source, value=domain.inside(plan.value))
        case Values():
            return _values(plan, domain)
    raise NotImplementedError(type(plan).__name__)


def kept(columns: Iterable[Column]) -> tuple[tuple[Column, Expr], ...]:
    """The items of a SELECT that has these columns as they are."""
    return tuple((c, ref(c)) for c in columns)


def _values(plan: Values, domain: Domain) -> Plan:
    """A row of values that reads columns of the outer query; several are united."""
    parts: list[Plan] = []
    for row in plan.rows:
        cells = zip(plan.made, row, strict=True)
        items = tuple((c, domain.inside(e)) for c, e in cells)
        parts.append(Project(domain.plan, (*items, *kept(domain.made))))
    whole = parts[0]
    for part in parts[1:]:
        whole = SetOf("union", True, whole, part, whole.columns)
    return whole


def _join(plan: Join, domain: Domain) -> Plan:
    outer = set(domain.columns)
    on = tuple(map(domain.inside, plan.on))
    if plan.how == "inner" and not free(plan.right) & outer:
        return replace(plan, left=over_domain(plan.left, domain), on=on)
    if plan.how == "inner" and not free(plan.left) & outer:
        return replace(plan, right=over_domain(plan.right, domain), on=on)
    if plan.how in ("left", "semi", "anti", "mark") and not free(plan.right) & outer:
        return replace(plan, left=over_domain(plan.left, domain), on=on)
    other = domain.again()
    pairs = zip(domain.made, other.made, strict=True)
    on += tuple(null_safe(a, b) for a, b in pairs)
    left, right = over_domain(plan.left, domain), over_domain(plan.right, other)
    if plan.how in ("right", "full"):
        return _outer(plan, left, right, on, domain, other)
    return replace(plan, left=left, right=right, on=on)


def _outer(
    plan: Join, left: Plan, right: Plan, on: tuple[Expr, ...], domain: Domain, other: Domain
) -> Plan:
    """A right or full join: the domain's columns are those of the side that is there."""
    joined = replace(plan, left=left, right=right, on=on)
    fresh = {c: Column(c.name, c.table) for c in domain.made}
    pairs = zip(domain.made, other.made, strict=True)
    items = [(fresh[a], coalesced(ref(a), ref(b))) for a, b in pairs]
    inner = Project(joined, (*kept(plan.columns), *items))
    return Project(inner, (*kept(plan.columns), *((a, ref(b)) for a, b in fresh.items())))


def _aggregate(plan: Aggregate, domain: Domain) -> Plan:
    """Groups for each row of the domain; if there is no key, a row also where there are no rows."""
    keys = tuple((c, domain.inside(e)) for c, e in plan.keys)
    calls = tuple((c, call.mapped(domain.inside)) for c, call in plan.calls)
    source = over_domain(plan.source, domain)
    if not plan.is_global:
        sets = plan.sets
        if sets is not None:
            n = range(len(keys), len(keys) + len(domain.made))
            sets = tuple((*s, *n) for s in sets)
        return Aggregate(source, (*keys, *kept(domain.made)), calls, sets)
    inner = {c: Column(c.name, c.table) for c in domain.made}
    grouped = Aggregate(source, tuple((inner[c], ref(c)) for c in domain.made), calls)
    on = tuple(null_safe(a, b) for a, b in inner.items())
    joined = Join(domain.plan, grouped, "left", on)
    shown = tuple((Column(c.name), _of_no_rows(c, call)) for c, call in calls)
    first = Project(joined, (*shown, *kept(domain.made)))
    pairs = zip(calls, shown, strict=True)
    again = tuple((c, ref(new)) for (c, _), (new, _) in pairs)
    return Project(first, (*again, *kept(domain.made)))


def _of_no_rows(c: Column, call: Call) -> Expr:
    if call.name in COUNTS:
        return coalesced(ref(c), exp.Literal.number(0))
    return ref(c)


# -- a sub-query that is a value


def with_value(outer: Plan, sub: Plan, value: Column) -> Plan:
    """The outer plan with the value of a scalar sub-query as a column."""
    (column,) = sub.columns
    if not free(sub):
        single = sub if has_at_most_one_row(sub) else _one_each(sub, column, ())
        how = "inner" if is_one_row(single) else "left"
        joined: Plan = Join(outer, keeping(single, (column,)), how)
        return Project(joined, (*kept(outer.columns), (value, ref(column))))
    simple = _grouped_by_key(sub)
    if simple is not None:
        return simple.joined(outer, value)
    domain = Domain.of(outer, sub)
    whole = over_domain(sub, domain)
    if not has_at_most_one_row(sub):
        whole = _one_each(whole, column, domain.made)
    joined = Join(outer, keeping(whole, (column, *domain.made)), "left", domain.joined())
    return Project(joined, (*kept(outer.columns), (value, ref(column))))


def _one_each(whole: Plan, column: Column, domain: Sequence[Column]) -> Plan:
    """One row for each row of the domain; more are an error of the step."""
    at = ref(column)
    n, some = Column("rows"), Column(column.name)
    calls = ((n, Call("count", (exp.Star(),), at)), (some, Call("any_value", (at,), at)))
    grouped = Aggregate(whole, kept(domain), calls)
    refused = exp.Anonymous(
        this="raise_error",
        expressions=[exp.Literal.string("a sub-query that is a value has more than one row")],
    )
    many = exp.GT(this=ref(n), expression=exp.Literal.number(1))
    checked = exp.Case(ifs=[exp.If(this=many, true=refused)], default=ref(some))
    return Project(grouped, ((column, checked), *kept(domain)))


@dataclass(frozen=True)
class _Grouped:
    """An aggregate whose correlation is equalities only: grouped by the inner sides of them."""

    plan: Aggregate
    outer: tuple[Expr, ...]
    inner: tuple[Column, ...]
    value: Expr  # over the aggregate
    of_none: Expr  # the value where there is no row

    def joined(self, outer: Plan, value: Column) -> Plan:
        there = Column("there")
        items = [*kept(self.inner), (there, TRUE), *kept(c for c, _ in self.plan.calls)]
        right = Project(self.plan, tuple(items))
        pairs = zip(self.outer, self.inner, strict=True)
        on = tuple(exp.EQ(this=e.copy(), expression=ref(c)) for e, c in pairs)
        whole = Join(outer, right, "left", on)
        shown: Expr = self.value
        if not isinstance(self.of_none, exp.Null):
            absent = exp.Is(this=ref(there), expression=exp.Null())
            shown = exp.Case(ifs=[exp.If(this=absent, true=self.of_none)], default=self.value)
        return Project(whole, (*kept(outer.columns), (value, shown)))


def _grouped_by_key(sub: Plan) -> _Grouped | None:
    """A sub-query that is SELECT f(aggregates) FROM … WHERE inner = outer, by its keys."""
    (column,) = sub.columns
    shown: Expr = ref(column)
    plan = sub
    while isinstance(plan, Project):
        if free(plan) - free(plan.source):
            return None
        shown = substituted(shown, dict(plan.items))
        plan = plan.source
    if not isinstance(plan, Aggregate) or not plan.is_global:
        return None
    outside = free(sub)
    if any(refs(e) & outside for e in plan.exprs()):
        return None
    found = _equalities(plan.source, outside)
    if found is None:
        return None
    source, pairs = found
    keys = tuple((Column("key"), inner) for inner, _ in pairs)
    grouped = Aggregate(source, keys, plan.calls)
    nothing = {
        c: exp.Literal.number(0) if call.name in COUNTS else exp.Null() for c, call in plan.calls
    }
    of_none = substituted(shown, nothing)
    if not of_none.find(exp.Literal):
        of_none = exp.Null()
    outer = tuple(outer for _, outer in pairs)
    return _Grouped(grouped, outer, tuple(c for c, _ in keys), shown, of_none)


def _equalities(plan: Plan, outside: set[Column]) -> tuple[Plan, list[tuple[Expr, Expr]]] | None:
    """The plan without the equalities with outer columns, and these, the inner side first."""
    if not isinstance(plan, Filter):
        return None
    pairs: list[tuple[Expr, Expr]] = []
    rest: list[Expr] = []
    for e in plan.conditions:
        if not refs(e) & outside:
            rest.append(e)
            continue
        pair = _equality(e, outside)
        if pair is None:
            return None
        pairs.append(pair)
    source = replace(plan, conditions=tuple(rest)) if rest else plan.source
    return None if free(source) or not pairs else (source, pairs)


def _equality(e: Expr, outside: set[Column]) -> tuple[Expr, Expr] | None:
    if not isinstance(e, exp.EQ):
        return None
    for inner, outer in ((e.this, e.expression), (e.expression, e.this)):
        if refs(outer) <= outside and refs(inner) and not refs(inner) & outside:
            return inner, outer
    return None
