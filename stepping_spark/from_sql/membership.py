"""EXISTS, IN, ANY and ALL of sub-queries: semijoins, antijoins, columns that mark a match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from stepping_spark.from_sql.columns import (
    Column,
    Expr,
    ref,
    substituted,
)
from stepping_spark.from_sql.plan import (
    Filter,
    Join,
    Plan,
    Project,
)
from stepping_spark.from_sql.unnest import kept, matched


def in_list(lhs: Sequence[Expr], values: Sequence[Expr]) -> tuple[Expr, ...]:
    """The conditions of a match of IN."""
    pairs = zip(lhs, values, strict=True)
    return tuple(exp.EQ(this=a.copy(), expression=b.copy()) for a, b in pairs)


def semi(outer: Plan, sub: Plan, lhs: Sequence[Expr] = (), how: str = "semi") -> Plan:
    """The rows of the outer plan with a match in a sub-query (EXISTS, IN), or without one."""
    found = matched(outer, sub)
    values = found.values[: len(lhs)]
    return Join(outer, found.plan, how, (*found.on, *in_list(lhs, values)))


def marked(outer: Plan, sub: Plan, lhs: Sequence[Expr], mark: Column) -> Plan:
    """The outer plan with a column that says whether there is a match, TRUE or FALSE."""
    found = matched(outer, sub)
    on = (*found.on, *in_list(lhs, found.values[: len(lhs)]))
    return Join(outer, found.plan, "mark", on, mark)


def is_null(e: Expr) -> Expr:
    """e IS NULL."""
    return exp.Is(this=e.copy(), expression=exp.Null())


def with_not_in(outer: Plan, sub: Plan, lhs: Sequence[Expr], value: Column) -> Plan:
    """The outer plan with the value of `lhs NOT IN (sub-query)`, as Spark has it: TRUE or FALSE.

    It is FALSE where SQL's value is NULL. (Of `lhs IN (sub-query)` too: that is `marked`.)
    """
    found = Column("match")
    plan = marked(outer, sub, lhs, found)
    may_match: list[Expr] = [ref(found)]
    for e, condition, inner in _unknown(sub, lhs):
        mark = Column("unknown")
        if condition is None:
            plan = marked(plan, _where(sub, inner), (), mark)
        else:
            plan = _some(plan, sub, condition, mark)
        may_match.append(ref(mark) if e is None else exp.and_(is_null(e), ref(mark), copy=False))
    shown = exp.Not(this=exp.Paren(this=exp.or_(*may_match, copy=False)))
    return Project(plan, (*kept(outer.columns), (value, shown)))


def not_in(outer: Plan, sub: Plan, lhs: Sequence[Expr]) -> Plan:
    """The rows of the outer plan for which `lhs NOT IN (sub-query)` is true."""
    plan = semi(outer, sub, lhs, "anti")
    for e, condition, inner in _unknown(sub, lhs):
        if condition is not None:
            found = matched(plan, sub)
            with_values = dict(zip(sub.columns, found.values, strict=True))
            on = (*found.on, substituted(condition, with_values))
            plan = Join(plan, found.plan, "anti", on)
            continue
        found = matched(plan, _where(sub, inner))
        extra = () if e is None else (is_null(e),)
        plan = Join(plan, found.plan, "anti", (*found.on, *extra))
    return plan


def is_in(node: Expr) -> bool:
    """Whether a node is `… IN (sub-query)`."""
    return isinstance(node, exp.In) and node.args.get("query") is not None


def with_quantified(outer: Plan, sub: Plan, compared: Expr, is_any: bool, value: Column) -> Plan:
    """The outer plan with the value of a comparison with ANY or ALL rows of a sub-query.

    A row for which it is true decides ANY, and one for which it is false decides ALL. Otherwise the
    value is NULL if it is NULL for a row.
    """
    found, unknown = Column("match"), Column("unknown")
    deciding = compared if is_any else exp.Not(this=exp.Paren(this=compared.copy()))
    plan = _some(outer, sub, deciding, found)
    plan = _some(plan, sub, is_null(exp.Paren(this=compared.copy())), unknown)
    shown = exp.Case(
        ifs=[
            exp.If(this=ref(found), true=exp.Boolean(this=is_any)),
            exp.If(this=ref(unknown), true=exp.Null()),
        ],
        default=exp.Boolean(this=not is_any),
    )
    return Project(plan, (*kept(outer.columns), (value, shown)))


def _where(sub: Plan, condition: Expr | None) -> Plan:
    return sub if condition is None else Filter(sub, (condition,))


def _some(plan: Plan, sub: Plan, condition: Expr, mark: Column) -> Plan:
    """The plan with a column that says whether some row of the sub-query meets a condition."""
    found = matched(plan, sub)
    with_values = dict(zip(sub.columns, found.values, strict=True))
    return Join(plan, found.plan, "mark", (*found.on, substituted(condition, with_values)), mark)


_Unknown = tuple[Expr | None, Expr | None, Expr | None]


def _unknown(sub: Plan, lhs: Sequence[Expr]) -> Iterator[_Unknown]:
    """When IN is NULL, if nothing matches: (NULL on the left, a condition of both, one within).

    One value: it is NULL and the sub-query has rows, or the sub-query has a NULL. Several values:
    some row differs in no part for sure.
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
