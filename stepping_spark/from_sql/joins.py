"""The joins of FROM, and LATERAL VIEW."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from stepping_spark.from_sql.binder import Binder
from stepping_spark.from_sql.columns import Column, Expr, coalesced, conjuncts, ref
from stepping_spark.from_sql.generators import unnested
from stepping_spark.from_sql.names import Name, Scope
from stepping_spark.from_sql.plan import Join, Plan, Project, free
from stepping_spark.from_sql.unnest import Domain, over_domain

if TYPE_CHECKING:
    from stepping_spark.from_sql.query import Queries


def joined(
    queries: Queries, left: Plan, scope: Scope, join: exp.Join, outer: Scope | None
) -> tuple[Plan, Scope]:
    """A relation joined with another one."""
    how = _how(queries, join)
    node = join.this
    if isinstance(node, exp.Lateral):
        return _lateral(queries, left, scope, join, how)
    right, other = queries.relation(node, outer)
    both = Scope([*scope.names, *other.names], outer)
    names = _shared(queries, join, scope, other)
    if names:
        return _using(queries, (left, right), (scope, other), how, names, join)
    plan = Join(left, right, how, _condition(queries, join, left, right, both))
    return plan, scope if how in ("semi", "anti") else both


def _condition(
    queries: Queries, join: exp.Join, left: Plan, right: Plan, both: Scope
) -> tuple[Expr, ...]:
    on = join.args.get("on")
    if on is None:
        return ()
    binder = Binder(queries, Join(left, right, "inner"), both)
    conditions = tuple(binder.bind_row(e) for e in conjuncts(on))
    if binder.before:
        queries.fail(on, "a sub-query in ON is not supported", "write it in WHERE, or join it")
    return conditions


def _how(queries: Queries, join: exp.Join) -> str:
    side, kind = (str(join.args.get(k) or "").upper() for k in ("side", "kind"))
    if kind in ("SEMI", "ANTI"):
        return kind.lower()
    if side in ("LEFT", "RIGHT", "FULL"):
        return side.lower()
    if kind in ("", "INNER", "CROSS", "OUTER"):
        return "inner"
    queries.fail(join, f"a join of kind {kind} is not supported")


def _shared(queries: Queries, join: exp.Join, left: Scope, right: Scope) -> list[str]:
    """The columns of USING, or those that NATURAL finds."""
    names = [n.name for n in join.args.get("using") or ()]
    if str(join.args.get("method") or "").upper() == "NATURAL":
        there = [n.name.lower() for n in right.names if n.alone]
        names = [n.name for n in left.names if n.shown and n.name.lower() in there]
    for name in names:
        for scope in (left, right):
            if len(scope.found(name, "")) != 1:
                queries.fail(join, f"USING: {name} is not exactly one column of each side")
    return names


def _using(
    queries: Queries,
    plans: tuple[Plan, Plan],
    scopes: tuple[Scope, Scope],
    how: str,
    names: list[str],
    join: exp.Join,
) -> tuple[Plan, Scope]:
    """JOIN … USING: the shared columns come first, and once."""
    pairs = [tuple(s.found(name, "")[0] for s in scopes) for name in names]
    on = tuple(exp.EQ(this=ref(a, join), expression=ref(b, join)) for a, b in pairs)
    plan: Plan = Join(*plans, how, on)
    if how in ("semi", "anti"):
        return plan, scopes[0]
    merged = [b if how == "right" else a for a, b in pairs]
    if how == "full":
        merged = [Column(a.name) for a, _ in pairs]
        items = [(m, coalesced(ref(a), ref(b))) for m, (a, b) in zip(merged, pairs, strict=True)]
        plan = Project(plan, (*((c, ref(c)) for c in plan.columns), *items))
    first = [Name(name, "", m) for name, m in zip(names, merged, strict=True)]
    rest = [n for s in scopes for n in s.names]
    hidden = {c for pair in pairs for c in pair}
    others = [
        replace(n, shown=False, alone=False) if n.column in hidden and n.alone else n for n in rest
    ]
    return plan, Scope([*first, *others], scopes[0].outer)


def _lateral(
    queries: Queries, left: Plan, scope: Scope, join: exp.Join, how: str
) -> tuple[Plan, Scope]:
    """JOIN LATERAL (query): the query's rows for each row of the left side."""
    node = join.this
    if how not in ("inner", "left"):
        queries.fail(join, f"a {how} join with LATERAL is not supported")
    plan = queries.planned(node.this, Scope(scope.names, scope.outer))
    alias = node.args.get("alias")
    names = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
    table = alias.name if alias is not None else ""
    columns = plan.columns
    pairs = zip(columns, names or [c.name for c in columns], strict=True)
    fresh = tuple((Column(name, table), ref(c)) for c, name in pairs)
    plan = Project(plan, fresh)
    both = Scope([*scope.names, *Scope.of(plan.columns, table, None).names], scope.outer)
    on = _condition(queries, join, left, plan, both)
    if free(plan) & set(left.columns):
        domain = Domain.of(left, plan)
        plan = over_domain(plan, domain)
        on = (*domain.joined(), *on)
    return Join(left, plan, how, on), both


def lateral_view(
    queries: Queries, plan: Plan, scope: Scope, node: exp.Lateral
) -> tuple[Plan, Scope]:
    """LATERAL VIEW [OUTER] explode(…) t AS x: each row with each item of a list."""
    alias = node.args.get("alias")
    names = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
    table = alias.name if alias is not None else ""
    binder = Binder(queries, plan, scope)
    outer = bool(node.args.get("outer"))
    made, columns = unnested(binder, plan, node.this, table, names, outer)
    return made, Scope([*scope.names, *(Name(c.name, table, c) for c in columns)], scope.outer)
