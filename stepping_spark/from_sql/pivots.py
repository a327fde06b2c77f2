"""PIVOT as aggregates with FILTER, and UNPIVOT as a union."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from stepping_spark.from_sql.aggregate_calls import is_aggregate
from stepping_spark.from_sql.binder import Binder
from stepping_spark.from_sql.columns import Column, Expr, column_of, ref, refs
from stepping_spark.from_sql.names import Scope
from stepping_spark.from_sql.plan import Aggregate, Call, Filter, Item, Plan, Project, SetOf

if TYPE_CHECKING:
    from stepping_spark.from_sql.query import Queries


def pivoted(queries: Queries, plan: Plan, scope: Scope, node: exp.Pivot) -> tuple[Plan, Scope]:
    """A relation after PIVOT or UNPIVOT."""
    made = (
        _unpivot(queries, plan, scope, node)
        if node.args.get("unpivot")
        else _pivot(queries, plan, scope, node)
    )
    return made, Scope.of(made.columns, node.alias, scope.outer)


# -- PIVOT


def _pivot(queries: Queries, plan: Plan, scope: Scope, node: exp.Pivot) -> Plan:
    """The groups of all other columns, with the aggregates of each value as columns.

    A value that no row of a group has gives NULL, for a count too.
    """
    binder = Binder(queries, plan, scope)
    (given,) = node.args["fields"]
    on = _columns(binder, given.this)
    calls: dict[Call, Column] = {}
    shown: list[Item] = []
    read = set(on)
    for value in given.expressions:
        parts = _parts(value.this if isinstance(value, exp.PivotAlias) else value)
        equal = [
            exp.NullSafeEQ(this=ref(c), expression=v.copy()) for c, v in zip(on, parts, strict=True)
        ]
        condition = exp.and_(*equal, copy=False)
        there = Call("count", (exp.Star(),), node, condition=condition)
        rows = calls.setdefault(there, Column("rows"))
        named = value.alias if isinstance(value, exp.PivotAlias) else _named(parts)
        for aggregate in node.expressions:
            inner = aggregate.this if isinstance(aggregate, exp.Alias) else aggregate
            e = _with_condition(binder, inner, condition, calls)
            read |= {c for call in calls for a in call.args for c in refs(a)}
            several = len(node.expressions) > 1 or isinstance(aggregate, exp.Alias)
            label = aggregate.alias or queries.name_of(inner)
            name = f"{named}_{label}" if several else named
            none = exp.GT(this=ref(rows), expression=exp.Literal.number(0))
            shown.append((Column(name), exp.Case(ifs=[exp.If(this=none, true=e)])))
    keys = tuple((c, ref(c)) for c in scope.columns if c not in read)
    groups = Aggregate(plan, keys, tuple((c, call) for call, c in calls.items()))
    return Project(groups, (*((c, ref(c)) for c, _ in keys), *shown))


def _with_condition(binder: Binder, node: Expr, condition: Expr, calls: dict[Call, Column]) -> Expr:
    """An expression of aggregates, each of the rows that meet a condition."""
    if is_aggregate(node):
        call = binder.call(exp.Filter(this=node.copy(), expression=exp.Where(this=exp.true())))
        one = Call(call.name, call.args, node, call.distinct, condition, call.order)
        return ref(calls.setdefault(one, Column(call.name)), node)
    made = node.copy()
    for part in list(made.iter_expressions()):
        part.replace(_with_condition(binder, part, condition, calls))
    return made


def _parts(node: Expr) -> list[Expr]:
    while isinstance(node, exp.Paren):
        node = node.this
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node]


def _columns(binder: Binder, node: Expr) -> list[Column]:
    return [column_of(binder.bind_row(_as_column(e))) for e in _parts(node)]


def _as_column(node: Expr) -> Expr:
    return exp.Column(this=node.copy()) if isinstance(node, exp.Identifier) else node


def _named(parts: list[Expr]) -> str:
    return "_".join(
        p.name if isinstance(p, exp.Literal | exp.Column) else p.sql("spark") for p in parts
    )


# -- UNPIVOT


def _unpivot(queries: Queries, plan: Plan, scope: Scope, node: exp.Pivot) -> Plan:
    """A row for each of the columns that are named, with the column's name and value."""
    binder = Binder(queries, plan, scope)
    (given,) = node.args["fields"]
    values = [p.name for p in node.expressions for p in _parts(p)]
    sources = []
    for entry in given.expressions:
        inner = entry.this if isinstance(entry, exp.PivotAlias) else entry
        columns = _columns(binder, inner)
        label = (
            entry.alias if isinstance(entry, exp.PivotAlias) else "_".join(c.name for c in columns)
        )
        sources.append((columns, label))
        if len(columns) != len(values):
            queries.fail(entry, f"UNPIVOT makes {len(values)} columns of {len(columns)}")
    named = {c for columns, _ in sources for c in columns}
    others = [c for c in scope.columns if c not in named]
    parts = [_part(plan, others, given.this.name, values, *source) for source in sources]
    if not node.args.get("include_nulls"):
        parts = [_without_null(p, len(values)) for p in parts]
    whole = parts[0]
    for part in parts[1:]:
        whole = SetOf("union", True, whole, part, tuple(Column(c.name) for c in whole.columns))
    return whole


def _part(
    plan: Plan,
    others: list[Column],
    name: str,
    values: list[str],
    columns: list[Column],
    label: str,
) -> Plan:
    kept = [(Column(c.name), ref(c)) for c in others]
    given = [(Column(v), ref(c)) for v, c in zip(values, columns, strict=True)]
    return Project(plan, (*kept, (Column(name), exp.Literal.string(label)), *given))


def _without_null(plan: Plan, n: int) -> Plan:
    """The rows of which some value is known."""
    known = [exp.Not(this=exp.Is(this=ref(c), expression=exp.Null())) for c in plan.columns[-n:]]
    return Filter(plan, (exp.or_(*known, copy=False),))
