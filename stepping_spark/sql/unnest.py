"""Sub-queries as joins: by the distinct outer values; EXISTS, IN, ANY and ALL.

A sub-query that reads columns of the outer query has a result for each combination of their values.
These combinations are its domain. `over_domain` computes all results at once, as a relation with
the columns of the domain, which are its join keys with the outer query (Neumann and Kemper,
Unnesting Arbitrary Queries, 2015).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from stepping_spark.sql.facts import COUNTS, is_null_for_sure
from stepping_spark.sql.plan import (
    TRUE,
    FunctionCall,
    GroupBy,
    InlineValues,
    LateralView,
    Limit,
    PlanColumn,
    RelationalPlan,
    Scalar,
    SelectDistinct,
    SelectList,
    SessionsOf,
    SetOf,
    SqlJoin,
    WhereClause,
    Windows,
    as_items,
    coalesced,
    free,
    has_at_most_one_row,
    is_one_row,
    keeping,
    ref,
    refs,
    renamed,
    substituted,
)


def null_safe(a: PlanColumn, b: PlanColumn) -> Scalar:
    """a <=> b."""
    return exp.NullSafeEQ(this=ref(a), expression=ref(b))


# -- the sub-query of a condition


@dataclass(frozen=True)
class Matched:
    """A sub-query as the right side of a join, with the conditions of a match."""

    plan: RelationalPlan
    on: tuple[Scalar, ...]
    values: tuple[Scalar, ...]
    """The columns of the sub-query, as expressions over the plan."""


def matched(outer: RelationalPlan, sub: RelationalPlan) -> Matched:
    """A sub-query of EXISTS or IN as the side of a join, without outer columns within it."""
    values: tuple[Scalar, ...] = tuple(ref(c) for c in sub.columns)
    on: list[Scalar] = []
    inner = sub
    while free(inner):
        if isinstance(inner, SelectList):
            items = dict(inner.items)
            values = tuple(substituted(v, items) for v in values)
            on = [substituted(e, items) for e in on]
            inner = inner.source
        elif isinstance(inner, WhereClause):
            outside = free(inner)
            on += [e for e in inner.conditions if refs(e) & outside]
            inside = tuple(e for e in inner.conditions if not refs(e) & outside)
            inner = replace(inner, conditions=inside) if inside else inner.source
            if free(inner) and inside:
                break
        elif isinstance(inner, SelectDistinct):
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

    plan: RelationalPlan
    columns: Mapping[PlanColumn, PlanColumn]  # by the columns of the outer query

    @classmethod
    def of(cls, outer: RelationalPlan, sub: RelationalPlan) -> Domain:
        """The domain of a sub-query."""
        read = sorted(free(sub) & set(outer.columns), key=lambda c: c.number)
        fresh = {c: PlanColumn(c.name, c.table) for c in read}
        items = tuple((fresh[c], ref(c)) for c in read)
        return cls(SelectDistinct(SelectList(outer, items)), fresh)

    def again(self) -> Domain:
        """The same domain, with columns of other numbers."""
        fresh = {mine: PlanColumn(mine.name, mine.table) for mine in self.columns.values()}
        items = tuple((new, ref(mine)) for mine, new in fresh.items())
        columns = {outer: fresh[mine] for outer, mine in self.columns.items()}
        return Domain(SelectList(self.plan, items), columns)

    def inside(self, e: Scalar) -> Scalar:
        """An expression of a sub-query, over the columns of the domain."""
        return renamed(e, self.columns)

    @property
    def inner_columns(self) -> tuple[PlanColumn, ...]:
        """The columns of the domain that stand for those of the outer query."""
        return tuple(self.columns.values())

    def joined(self) -> tuple[Scalar, ...]:
        """The conditions that join a result with the outer query."""
        return tuple(null_safe(outer, mine) for outer, mine in self.columns.items())


def over_domain(plan: RelationalPlan, domain: Domain) -> RelationalPlan:
    """The plan's rows for each row of the domain, with the domain's columns added."""
    domain_columns = domain.inner_columns
    outer = set(domain.columns)
    if not free(plan) & outer:
        return keeping(SqlJoin(plan, domain.plan, "inner"), (*plan.columns, *domain_columns))
    match plan:
        case WhereClause():
            conditions = tuple(map(domain.inside, plan.conditions))
            return WhereClause(over_domain(plan.source, domain), conditions)
        case SelectList():
            items = tuple((c, domain.inside(e)) for c, e in plan.items)
            return SelectList(over_domain(plan.source, domain), (*items, *as_items(domain_columns)))
        case SqlJoin():
            return _join(plan, domain)
        case GroupBy():
            return _aggregate(plan, domain)
        case Windows():
            calls = tuple(
                (c, replace(o := over.mapped(domain.inside), by=(*o.by, *map(ref, domain_columns))))
                for c, over in plan.calls
            )
            return Windows(over_domain(plan.source, domain), calls)
        case SessionsOf():
            by = (*map(domain.inside, plan.by), *map(ref, domain_columns))
            return replace(
                plan, source=over_domain(plan.source, domain), by=by, at=domain.inside(plan.at)
            )
        case SelectDistinct():
            return SelectDistinct(over_domain(plan.source, domain))
        case Limit():
            order = tuple(map(domain.inside, plan.order))
            by = (*map(domain.inside, plan.by), *map(ref, domain_columns))
            source = over_domain(plan.source, domain)
            return Limit(source, order, plan.count, plan.offset, by)
        case SetOf():
            left, right = over_domain(plan.left, domain), domain.again()
            other = over_domain(plan.right, right)
            return replace(
                plan, left=left, right=other, new_columns=(*plan.new_columns, *domain_columns)
            )
        case LateralView():
            source = over_domain(plan.source, domain)
            return replace(plan, source=source, value=domain.inside(plan.value))
        case InlineValues():
            return _values(plan, domain)
    raise NotImplementedError(type(plan).__name__)


def _values(plan: InlineValues, domain: Domain) -> RelationalPlan:
    """Rows of values that read columns of the outer query, as a union of select lists."""
    parts: list[RelationalPlan] = []
    for row in plan.rows:
        cells = zip(plan.new_columns, row, strict=True)
        items = tuple((c, domain.inside(e)) for c, e in cells)
        parts.append(SelectList(domain.plan, (*items, *as_items(domain.inner_columns))))
    whole = parts[0]
    for part, row in zip(parts[1:], plan.rows[1:], strict=True):
        whole = SetOf("union", True, whole, part, whole.columns, row[0])
    return whole


def _join(plan: SqlJoin, domain: Domain) -> RelationalPlan:
    outer = set(domain.columns)
    on = tuple(map(domain.inside, plan.on))
    if plan.how == "inner" and not free(plan.right) & outer:
        return replace(plan, left=over_domain(plan.left, domain), on=on)
    if plan.how == "inner" and not free(plan.left) & outer:
        return replace(plan, right=over_domain(plan.right, domain), on=on)
    if plan.how in ("left", "semi", "anti", "mark") and not free(plan.right) & outer:
        return replace(plan, left=over_domain(plan.left, domain), on=on)
    other = domain.again()
    pairs = zip(domain.inner_columns, other.inner_columns, strict=True)
    on += tuple(null_safe(a, b) for a, b in pairs)
    left, right = over_domain(plan.left, domain), over_domain(plan.right, other)
    if plan.how in ("right", "full"):
        return _outer(plan, left, right, on, domain, other)
    return replace(plan, left=left, right=right, on=on)


def _outer(
    plan: SqlJoin,
    left: RelationalPlan,
    right: RelationalPlan,
    on: tuple[Scalar, ...],
    domain: Domain,
    other: Domain,
) -> RelationalPlan:
    """A right or full join: the domain's columns are of the side that is not padded."""
    joined = replace(plan, left=left, right=right, on=on)
    fresh = {c: PlanColumn(c.name, c.table) for c in domain.inner_columns}
    pairs = zip(domain.inner_columns, other.inner_columns, strict=True)
    items = [(fresh[a], coalesced(ref(a), ref(b))) for a, b in pairs]
    inner = SelectList(joined, (*as_items(plan.columns), *items))
    return SelectList(inner, (*as_items(plan.columns), *((a, ref(b)) for a, b in fresh.items())))


def _aggregate(plan: GroupBy, domain: Domain) -> RelationalPlan:
    """Groups for each row of the domain; without keys, one row also if there are no rows."""
    keys = tuple((c, domain.inside(e)) for c, e in plan.keys)
    calls = tuple((c, call.mapped(domain.inside)) for c, call in plan.calls)
    source = over_domain(plan.source, domain)
    if not plan.is_global:
        sets = plan.sets
        if sets is not None:
            n = range(len(keys), len(keys) + len(domain.inner_columns))
            sets = tuple((*s, *n) for s in sets)
        return GroupBy(source, (*keys, *as_items(domain.inner_columns)), calls, sets)
    inner = {c: PlanColumn(c.name, c.table) for c in domain.inner_columns}
    grouped = GroupBy(source, tuple((inner[c], ref(c)) for c in domain.inner_columns), calls)
    on = tuple(null_safe(a, b) for a, b in inner.items())
    joined = SqlJoin(domain.plan, grouped, "left", on)
    results = tuple((PlanColumn(c.name), _of_no_rows(c, call)) for c, call in calls)
    first = SelectList(joined, (*results, *as_items(domain.inner_columns)))
    pairs = zip(calls, results, strict=True)
    again = tuple((c, ref(new)) for (c, _), (new, _) in pairs)
    return SelectList(first, (*again, *as_items(domain.inner_columns)))


def _of_no_rows(c: PlanColumn, call: FunctionCall) -> Scalar:
    if call.name in COUNTS:
        return coalesced(ref(c), exp.Literal.number(0))
    return ref(c)


# -- a sub-query that is a value


def with_value(outer: RelationalPlan, sub: RelationalPlan, value: PlanColumn) -> RelationalPlan:
    """The outer plan with the value of a scalar sub-query as a column."""
    (column,) = sub.columns
    if not free(sub):
        single = sub if has_at_most_one_row(sub) else _one_each(sub, column, ())
        how = "inner" if is_one_row(single) else "left"
        joined: RelationalPlan = SqlJoin(outer, keeping(single, (column,)), how)
        return SelectList(joined, (*as_items(outer.columns), (value, ref(column))))
    simple = _grouped_by_key(sub)
    if simple is not None:
        return simple.joined(outer, value)
    domain = Domain.of(outer, sub)
    whole = over_domain(sub, domain)
    if not has_at_most_one_row(sub):
        whole = _one_each(whole, column, domain.inner_columns)
    joined = SqlJoin(
        outer, keeping(whole, (column, *domain.inner_columns)), "left", domain.joined()
    )
    return SelectList(joined, (*as_items(outer.columns), (value, ref(column))))


def _one_each(
    whole: RelationalPlan, column: PlanColumn, domain: Sequence[PlanColumn]
) -> RelationalPlan:
    """One row for each row of the domain; a second row is an error of the step."""
    at = ref(column)
    n, value = PlanColumn("rows"), PlanColumn(column.name)
    calls = (
        (n, FunctionCall("count", (exp.Star(),), at)),
        (value, FunctionCall("any_value", (at,), at)),
    )
    grouped = GroupBy(whole, as_items(domain), calls)
    refused = exp.Anonymous(
        this="raise_error",
        expressions=[exp.Literal.string("a sub-query that is a value has more than one row")],
    )
    many = exp.GT(this=ref(n), expression=exp.Literal.number(1))
    checked = exp.Case(ifs=[exp.If(this=many, true=refused)], default=ref(value))
    return SelectList(grouped, ((column, checked), *as_items(domain)))


@dataclass(frozen=True)
class _Grouped:
    """An aggregate that is correlated only by equalities, grouped by their inner sides."""

    plan: GroupBy
    outer: tuple[Scalar, ...]
    inner: tuple[PlanColumn, ...]
    value: Scalar  # over the aggregate
    of_none: Scalar  # the value without a row

    def joined(self, outer: RelationalPlan, value: PlanColumn) -> RelationalPlan:
        exists = PlanColumn("there")
        items = [*as_items(self.inner), (exists, TRUE), *as_items(c for c, _ in self.plan.calls)]
        right = SelectList(self.plan, tuple(items))
        pairs = zip(self.outer, self.inner, strict=True)
        on = tuple(exp.EQ(this=e.copy(), expression=ref(c)) for e, c in pairs)
        whole = SqlJoin(outer, right, "left", on)
        result: Scalar = self.value
        if not isinstance(self.of_none, exp.Null):
            absent = exp.Is(this=ref(exists), expression=exp.Null())
            result = exp.Case(ifs=[exp.If(this=absent, true=self.of_none)], default=self.value)
        return SelectList(whole, (*as_items(outer.columns), (value, result)))


def _grouped_by_key(sub: RelationalPlan) -> _Grouped | None:
    """The groups of a sub-query SELECT f(aggregates) FROM … WHERE inner = outer, or None."""
    (column,) = sub.columns
    value: Scalar = ref(column)
    plan = sub
    while isinstance(plan, SelectList):
        if free(plan) - free(plan.source):
            return None
        value = substituted(value, dict(plan.items))
        plan = plan.source
    if not isinstance(plan, GroupBy) or not plan.is_global:
        return None
    outside = free(sub)
    if any(refs(e) & outside for e in plan.exprs()):
        return None
    equalities = _equalities(plan.source, outside)
    if equalities is None:
        return None
    source, pairs = equalities
    keys = tuple((PlanColumn("key"), inner) for inner, _ in pairs)
    grouped = GroupBy(source, keys, plan.calls)
    nothing = {
        c: exp.Literal.number(0) if call.name in COUNTS else exp.Null() for c, call in plan.calls
    }
    of_none = substituted(value, nothing)
    if is_null_for_sure(of_none):
        of_none = exp.Null()
    outer = tuple(outer for _, outer in pairs)
    return _Grouped(grouped, outer, tuple(c for c, _ in keys), value, of_none)


def _equalities(
    plan: RelationalPlan, outside: set[PlanColumn]
) -> tuple[RelationalPlan, list[tuple[Scalar, Scalar]]] | None:
    """The plan without its equalities with outer columns, and their sides, inner first; or None."""
    if not isinstance(plan, WhereClause):
        return None
    pairs: list[tuple[Scalar, Scalar]] = []
    others: list[Scalar] = []
    for e in plan.conditions:
        if not refs(e) & outside:
            others.append(e)
            continue
        pair = _equality(e, outside)
        if pair is None:
            return None
        pairs.append(pair)
    source = replace(plan, conditions=tuple(others)) if others else plan.source
    return None if free(source) or not pairs else (source, pairs)


def _equality(e: Scalar, outside: set[PlanColumn]) -> tuple[Scalar, Scalar] | None:
    if not isinstance(e, exp.EQ):
        return None
    for inner, outer in ((e.this, e.expression), (e.expression, e.this)):
        if refs(outer) <= outside and refs(inner) and not refs(inner) & outside:
            return inner, outer
    return None


def in_list(lhs: Sequence[Scalar], values: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """The conditions of a match of IN."""
    pairs = zip(lhs, values, strict=True)
    return tuple(exp.EQ(this=a.copy(), expression=b.copy()) for a, b in pairs)


def semi(
    outer: RelationalPlan, sub: RelationalPlan, lhs: Sequence[Scalar] = (), how: str = "semi"
) -> RelationalPlan:
    """The rows of the outer plan with a match in a sub-query (EXISTS, IN), or without one."""
    match = matched(outer, sub)
    values = match.values[: len(lhs)]
    return SqlJoin(outer, match.plan, how, (*match.on, *in_list(lhs, values)))


def marked(
    outer: RelationalPlan, sub: RelationalPlan, lhs: Sequence[Scalar], mark: PlanColumn
) -> RelationalPlan:
    """The outer plan with a column that is TRUE if a row has a match, else FALSE."""
    match = matched(outer, sub)
    on = (*match.on, *in_list(lhs, match.values[: len(lhs)]))
    return SqlJoin(outer, match.plan, "mark", on, mark)


def is_null(e: Scalar) -> Scalar:
    """e IS NULL."""
    return exp.Is(this=e.copy(), expression=exp.Null())


def with_not_in(
    outer: RelationalPlan, sub: RelationalPlan, lhs: Sequence[Scalar], value: PlanColumn
) -> RelationalPlan:
    """The outer plan with Spark's value of `lhs NOT IN (sub-query)`: TRUE or FALSE.

    It is FALSE where SQL's value is NULL. (So is `lhs IN (sub-query)`: see `marked`.)
    """
    match_mark = PlanColumn("match")
    plan = marked(outer, sub, lhs, match_mark)
    may_match: list[Scalar] = [ref(match_mark)]
    for e, condition, inner in _unknown(sub, lhs):
        mark = PlanColumn("unknown")
        if condition is None:
            plan = marked(plan, _where(sub, inner), (), mark)
        else:
            plan = _with_mark(plan, sub, condition, mark)
        may_match.append(ref(mark) if e is None else exp.and_(is_null(e), ref(mark), copy=False))
    result = exp.Not(this=exp.Paren(this=exp.or_(*may_match, copy=False)))
    return SelectList(plan, (*as_items(outer.columns), (value, result)))


def not_in(outer: RelationalPlan, sub: RelationalPlan, lhs: Sequence[Scalar]) -> RelationalPlan:
    """The rows of the outer plan for which `lhs NOT IN (sub-query)` is true."""
    plan = semi(outer, sub, lhs, "anti")
    for e, condition, inner in _unknown(sub, lhs):
        if condition is not None:
            match = matched(plan, sub)
            with_values = dict(zip(sub.columns, match.values, strict=True))
            on = (*match.on, substituted(condition, with_values))
            plan = SqlJoin(plan, match.plan, "anti", on)
            continue
        match = matched(plan, _where(sub, inner))
        extra = () if e is None else (is_null(e),)
        plan = SqlJoin(plan, match.plan, "anti", (*match.on, *extra))
    return plan


def is_in(node: Scalar) -> bool:
    """Whether a node is `… IN (sub-query)`."""
    return isinstance(node, exp.In) and node.args.get("query") is not None


def with_quantified(
    outer: RelationalPlan, sub: RelationalPlan, compared: Scalar, is_any: bool, value: PlanColumn
) -> RelationalPlan:
    """The outer plan with the value of a comparison with ANY or ALL rows of a sub-query.

    A row for which the comparison is true decides ANY, and a row for which it is false decides ALL.
    Otherwise the value is NULL if the comparison is NULL for a row.
    """
    match_mark, unknown = PlanColumn("match"), PlanColumn("unknown")
    deciding = compared if is_any else exp.Not(this=exp.Paren(this=compared.copy()))
    plan = _with_mark(outer, sub, deciding, match_mark)
    plan = _with_mark(plan, sub, is_null(exp.Paren(this=compared.copy())), unknown)
    result = exp.Case(
        ifs=[
            exp.If(this=ref(match_mark), true=exp.Boolean(this=is_any)),
            exp.If(this=ref(unknown), true=exp.Null()),
        ],
        default=exp.Boolean(this=not is_any),
    )
    return SelectList(plan, (*as_items(outer.columns), (value, result)))


def _where(sub: RelationalPlan, condition: Scalar | None) -> RelationalPlan:
    return sub if condition is None else WhereClause(sub, (condition,))


def _with_mark(
    plan: RelationalPlan, sub: RelationalPlan, condition: Scalar, mark: PlanColumn
) -> RelationalPlan:
    """The plan with a column whether some row of the sub-query meets a condition."""
    match = matched(plan, sub)
    with_values = dict(zip(sub.columns, match.values, strict=True))
    return SqlJoin(plan, match.plan, "mark", (*match.on, substituted(condition, with_values)), mark)


_Unknown = tuple[Scalar | None, Scalar | None, Scalar | None]


def _unknown(sub: RelationalPlan, lhs: Sequence[Scalar]) -> Iterator[_Unknown]:
    """When IN without a match is NULL: (value that is NULL, condition on both, condition within).

    One value: it is NULL and the sub-query has rows, or the sub-query has a NULL. Several values:
    in some row no part certainly differs.
    """
    if len(lhs) == 1:
        yield lhs[0], None, None
        yield None, None, is_null(ref(sub.columns[0]))
        return
    maybe = (
        exp.or_(exp.EQ(this=a.copy(), expression=ref(c)), is_null(a), is_null(ref(c)), copy=False)
        for a, c in zip(lhs, sub.columns, strict=True)
    )
    yield None, exp.and_(*maybe, copy=False), None
