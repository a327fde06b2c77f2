"""The joins of FROM, LATERAL VIEW, and functions that make rows of a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from stepping_spark.sql.aggregate_calls import GENERATORS, args_of, name_of
from stepping_spark.sql.binder import Binder
from stepping_spark.sql.names import Scope, VisibleName
from stepping_spark.sql.plan import (
    LateralView,
    PlanColumn,
    RelationalPlan,
    Scalar,
    SelectList,
    SqlJoin,
    coalesced,
    conjuncts,
    free,
    ref,
)
from stepping_spark.sql.scalars import names_of
from stepping_spark.sql.unnest import Domain, over_domain

if TYPE_CHECKING:
    from stepping_spark.sql.query import QueryScope


_INSTEAD = {
    "json_tuple": "use get_json_object(x, '$.field')",
    "variant_explode": "rows cannot hold a VARIANT: use from_json, and explode",
}
"""Remedies for functions that make rows and are not supported."""


def _stacked(binder: Binder, call: Scalar, args: Sequence[Scalar]) -> Scalar:
    """The list of the rows of stack(n, a, b, …): n rows, the last one with NULLs at its end."""
    number = args[0] if args else call
    n = int(number.name) if isinstance(number, exp.Literal) and number.name.isdigit() else 0
    if n < 1 or len(args) < 2:
        reason = "stack takes a number of rows, and their values"
        binder.fail(call, reason, "write stack(2, 'a', a, 'b', b)")
    values = args[1:]
    width = -(-len(values) // n)
    rows = [values[i : i + width] for i in range(0, n * width, width)]
    filled = [[*row, *(exp.Null() for _ in range(width - len(row)))] for row in rows]
    return exp.Anonymous(
        this="array",
        expressions=[
            exp.Anonymous(
                this="named_struct",
                expressions=[
                    part
                    for i, v in enumerate(row)
                    for part in (exp.Literal.string(f"col{i}"), v.copy())
                ],
            )
            for row in filled
        ],
    )


def unnested(
    binder: Binder,
    plan: RelationalPlan,
    call: Scalar,
    table: str,
    names: Sequence[str],
    outer: bool = False,
) -> tuple[RelationalPlan, list[PlanColumn]]:
    """The plan with the items of a list (explode, posexplode, inline, stack), and their columns."""
    name = name_of(call)
    kind = name.removesuffix("_outer")
    if kind not in ("explode", "posexplode", "inline", "stack"):
        binder.fail(call, f"{name} is not supported", _INSTEAD[kind])
    args, _ = args_of(call)
    if kind == "stack":
        kind, args = "inline", [_stacked(binder, call, args)]
    if len(args) != 1:
        binder.fail(call, f"{name} takes 1 argument, found {len(args)}")
    value = binder.bind_row(args[0])
    default_names = ["pos", "col"] if kind == "posexplode" else ["col"]
    if kind == "inline":
        fields = _fields(value)
        if not names and fields is None:
            remedy = "name them: LATERAL VIEW inline(…) t AS a, b"
            binder.fail(call, "the columns of inline are not known from the text", remedy)
        default_names = list(names) if fields is None else fields
    if names and len(names) != len(default_names):
        binder.fail(call, f"{name} makes {len(default_names)} columns, and {len(names)} are named")
    columns = [PlanColumn(n, table) for n in names or default_names]
    position = columns[0] if kind == "posexplode" else None
    for attach in binder.before:
        plan = attach(plan)
    binder.before.clear()
    outer = outer or name.endswith("_outer")
    made_of = tuple(columns) if kind == "inline" else (columns[-1],)
    return LateralView(plan, value, made_of, outer, position, kind == "inline"), columns


def _fields(value: Scalar) -> list[str] | None:
    """The field names of structs in a list, if the text has them: array(struct(a, b), …)."""
    if name_of(value) == "transform" and isinstance(value.expressions[-1], exp.Lambda):
        return names_of(value.expressions[-1].this)
    if name_of(value) == "array" and value.expressions:
        return names_of(value.expressions[0])
    return None


def joined(
    queries: QueryScope, left: RelationalPlan, scope: Scope, join: exp.Join, outer: Scope | None
) -> tuple[RelationalPlan, Scope]:
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
    left, right, on = _conditions(queries, join, left, right, both)
    return SqlJoin(left, right, how, on), scope if how in ("semi", "anti") else both


def _conditions(
    queries: QueryScope, join: exp.Join, left: RelationalPlan, right: RelationalPlan, both: Scope
) -> tuple[RelationalPlan, RelationalPlan, tuple[Scalar, ...]]:
    """The sides of a join with the values of sub-queries in ON, and the conditions of ON."""
    on = join.args.get("on")
    if on is None:
        return left, right, ()
    binder = Binder(queries, SqlJoin(left, right, "inner"), both)
    binder.refuse_windows(on)
    conditions = tuple(binder.bind_row(e) for e in conjuncts(on))
    for attach in binder.before:
        of_left, of_right = attach(left), attach(right)
        if not (free(of_left) - free(left)) & set(right.columns):
            left = of_left
        elif not (free(of_right) - free(right)) & set(left.columns):
            right = of_right
        else:
            remedy = "write it in WHERE, or join it"
            queries.fail(on, "a sub-query in ON reads columns of both sides", remedy)
    return left, right, conditions


def _how(queries: QueryScope, join: exp.Join) -> str:
    side, kind, method = (str(join.args.get(k) or "").upper() for k in ("side", "kind", "method"))
    if method not in ("", "NATURAL"):
        queries.fail(join, f"Spark has no {method} JOIN", "use st.asof_join for it")
    if kind in ("SEMI", "ANTI"):
        if side not in ("", "LEFT"):
            remedy = f"write LEFT {kind} JOIN, with the tables in the other order"
            queries.fail(join, f"Spark has no {side} {kind} JOIN", remedy)
        return kind.lower()
    if side in ("LEFT", "RIGHT", "FULL"):
        return side.lower()
    if kind in ("", "INNER", "CROSS", "OUTER"):
        return "inner"
    queries.fail(join, f"a join of kind {kind} is not supported")


def _shared(queries: QueryScope, join: exp.Join, left: Scope, right: Scope) -> list[str]:
    """The columns of USING, or the common columns for NATURAL."""
    names = [n.name for n in join.args.get("using") or ()]
    if str(join.args.get("method") or "").upper() == "NATURAL":
        on_right = [n.name.lower() for n in right.names if n.alone]
        names = [n.name for n in left.names if n.shown and n.name.lower() in on_right]
    for name in names:
        for scope in (left, right):
            if len(scope.lookup(name, "")) != 1:
                queries.fail(join, f"USING: {name} is not exactly one column of each side")
    return names


def _using(
    queries: QueryScope,
    plans: tuple[RelationalPlan, RelationalPlan],
    scopes: tuple[Scope, Scope],
    how: str,
    names: list[str],
    join: exp.Join,
) -> tuple[RelationalPlan, Scope]:
    """JOIN … USING: the shared columns come first, and once."""
    pairs = [tuple(s.lookup(name, "")[0] for s in scopes) for name in names]
    on = tuple(exp.EQ(this=ref(a, join), expression=ref(b, join)) for a, b in pairs)
    plan: RelationalPlan = SqlJoin(*plans, how, on)
    if how in ("semi", "anti"):
        return plan, scopes[0]
    merged = [b if how == "right" else a for a, b in pairs]
    if how == "full":
        merged = [PlanColumn(a.name) for a, _ in pairs]
        items = [(m, coalesced(ref(a), ref(b))) for m, (a, b) in zip(merged, pairs, strict=True)]
        plan = SelectList(plan, (*((c, ref(c)) for c in plan.columns), *items))
    first = [VisibleName(name, "", m) for name, m in zip(names, merged, strict=True)]
    visible = [n for s in scopes for n in s.names]
    hidden = {c for pair in pairs for c in pair}
    others = [
        replace(n, shown=False, alone=False) if n.column in hidden and n.alone else n
        for n in visible
    ]
    return plan, Scope([*first, *others], scopes[0].outer)


def _lateral(
    queries: QueryScope, left: RelationalPlan, scope: Scope, join: exp.Join, how: str
) -> tuple[RelationalPlan, Scope]:
    """JOIN LATERAL (query): the query's rows for each row of the left side."""
    node = join.this
    if how not in ("inner", "left"):
        queries.fail(join, f"a {how} join with LATERAL is not supported")
    alias = node.args.get("alias")
    names = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
    if name_of(node.this) in GENERATORS:
        if how == "left" or join.args.get("on") not in (None, exp.true()):
            remedy = "use explode_outer, and WHERE for conditions"
            queries.fail(join, "LATERAL with a function has no LEFT and no ON", remedy)
        return lateral_view(queries, left, scope, node)
    plan = queries.planned(node.this, Scope(scope.names, scope.outer))
    table = alias.name if alias is not None else ""
    columns = plan.columns
    pairs = zip(columns, names or [c.name for c in columns], strict=True)
    fresh = tuple((PlanColumn(name, table), ref(c)) for c, name in pairs)
    plan = SelectList(plan, fresh)
    both = Scope([*scope.names, *Scope.of(plan.columns, table, None).names], scope.outer)
    left, plan, on = _conditions(queries, join, left, plan, both)
    if free(plan) & set(left.columns):
        domain = Domain.of(left, plan)
        plan = over_domain(plan, domain)
        on = (*domain.joined(), *on)
    return SqlJoin(left, plan, how, on), both


def lateral_view(
    queries: QueryScope, plan: RelationalPlan, scope: Scope, node: exp.Lateral
) -> tuple[RelationalPlan, Scope]:
    """LATERAL VIEW [OUTER] explode(…) t AS x: each row with each item of a list."""
    alias = node.args.get("alias")
    names = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
    table = alias.name if alias is not None else ""
    binder = Binder(queries, plan, scope)
    outer = bool(node.args.get("outer"))
    view, columns = unnested(binder, plan, node.this, table, names, outer)
    return view, Scope(
        [*scope.names, *(VisibleName(c.name, table, c) for c in columns)], scope.outer
    )
