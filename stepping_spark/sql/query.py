"""Queries as relational plans: WITH, sets, sub-queries, FROM, PIVOT, and names of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from stepping_spark.sql.aggregate_calls import GENERATORS, args_of, is_aggregate, name_of
from stepping_spark.sql.binder import Binder
from stepping_spark.sql.ctes import recursive_query, table_named, used_queries
from stepping_spark.sql.joins import joined, lateral_view, unnested
from stepping_spark.sql.names import Scope, same
from stepping_spark.sql.places import failure
from stepping_spark.sql.plan import (
    FunctionCall,
    GroupBy,
    InlineValues,
    Item,
    Limit,
    PlanColumn,
    RelationalPlan,
    Scalar,
    SelectList,
    SetOf,
    TableScan,
    WhereClause,
    column_of,
    keeping,
    ref,
    refs,
    with_fresh_columns,
)
from stepping_spark.sql.select import Select

_BINARY: dict[type[Scalar], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.EQ: "=",
    exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.And: "AND", exp.Or: "OR",
}  # fmt: skip


def shown_name(node: Scalar) -> str:
    """The name of a column for an expression without an alias."""
    if isinstance(node, exp.Column):
        return str(node.meta["column"].name) if "column" in node.meta else node.name
    if isinstance(node, exp.Dot):
        return str(node.expression.name)
    if isinstance(node, exp.Star):
        return "1"
    if isinstance(node, exp.Paren | exp.Filter | exp.IgnoreNulls):
        return shown_name(node.this)
    if isinstance(node, exp.Literal):
        return node.name
    if isinstance(node, exp.NEQ):
        return f"(NOT ({shown_name(node.this)} = {shown_name(node.expression)}))"
    if type(node) in _BINARY:
        left, right = shown_name(node.this), shown_name(node.expression)
        return f"({left} {_BINARY[type(node)]} {right})"
    if isinstance(node, exp.Subquery):
        return "scalarsubquery()"
    name = name_of(node)
    if name and not isinstance(node, exp.Case | exp.Cast):
        args, distinct = args_of(node)
        return f"{name}({'DISTINCT ' * distinct}{', '.join(map(shown_name, args))})"
    return str(node.sql(dialect="spark"))


def pivoted(
    queries: QueryScope, plan: RelationalPlan, scope: Scope, node: exp.Pivot
) -> tuple[RelationalPlan, Scope]:
    """A relation after PIVOT or UNPIVOT."""
    pivot = (
        _unpivot(queries, plan, scope, node)
        if node.args.get("unpivot")
        else _pivot(queries, plan, scope, node)
    )
    return pivot, Scope.of(pivot.columns, node.alias, scope.outer)


# -- PIVOT


def _pivot(
    queries: QueryScope, plan: RelationalPlan, scope: Scope, node: exp.Pivot
) -> RelationalPlan:
    """The groups of all other columns, with the aggregates of each value as columns.

    A value without rows in a group is NULL, also for a count.
    """
    binder = Binder(queries, plan, scope)
    (listed,) = node.args["fields"]
    on = _columns(binder, listed.this)
    calls: dict[FunctionCall, PlanColumn] = {}
    items: list[Item] = []
    read = set(on)
    for value in listed.expressions:
        parts = _parts(value.this if isinstance(value, exp.PivotAlias) else value)
        equal = [
            exp.NullSafeEQ(this=ref(c), expression=v.copy()) for c, v in zip(on, parts, strict=True)
        ]
        condition = exp.and_(*equal, copy=False)
        count = FunctionCall("count", (exp.Star(),), node, condition=condition)
        rows = calls.setdefault(count, PlanColumn("rows"))
        named = value.alias if isinstance(value, exp.PivotAlias) else _named(parts)
        for aggregate in node.expressions:
            inner = aggregate.this if isinstance(aggregate, exp.Alias) else aggregate
            e = _with_condition(binder, inner, condition, calls)
            read |= {c for call in calls for a in call.args for c in refs(a)}
            several = len(node.expressions) > 1 or isinstance(aggregate, exp.Alias)
            label = aggregate.alias or queries.name_of(inner)
            name = f"{named}_{label}" if several else named
            none = exp.GT(this=ref(rows), expression=exp.Literal.number(0))
            items.append((PlanColumn(name), exp.Case(ifs=[exp.If(this=none, true=e)])))
    keys = tuple((c, ref(c)) for c in scope.columns if c not in read)
    groups = GroupBy(plan, keys, tuple((c, call) for call, c in calls.items()))
    return SelectList(groups, (*((c, ref(c)) for c, _ in keys), *items))


def _with_condition(
    binder: Binder, node: Scalar, condition: Scalar, calls: dict[FunctionCall, PlanColumn]
) -> Scalar:
    """An expression of aggregates, each restricted to rows that meet a condition."""
    if is_aggregate(node):
        call = binder.call(exp.Filter(this=node.copy(), expression=exp.Where(this=exp.true())))
        restricted = FunctionCall(call.name, call.args, node, call.distinct, condition, call.order)
        return ref(calls.setdefault(restricted, PlanColumn(call.name)), node)
    copied = node.copy()
    for part in list(copied.iter_expressions()):
        part.replace(_with_condition(binder, part, condition, calls))
    return copied


def _parts(node: Scalar) -> list[Scalar]:
    while isinstance(node, exp.Paren):
        node = node.this
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node]


def _columns(binder: Binder, node: Scalar) -> list[PlanColumn]:
    return [column_of(binder.bind_row(_as_column(e))) for e in _parts(node)]


def _as_column(node: Scalar) -> Scalar:
    return exp.Column(this=node.copy()) if isinstance(node, exp.Identifier) else node


def _named(parts: list[Scalar]) -> str:
    return "_".join(
        p.name if isinstance(p, exp.Literal | exp.Column) else p.sql("spark") for p in parts
    )


# -- UNPIVOT


def _unpivot(
    queries: QueryScope, plan: RelationalPlan, scope: Scope, node: exp.Pivot
) -> RelationalPlan:
    """A row for each of the named columns, with the column's name and value."""
    binder = Binder(queries, plan, scope)
    (listed,) = node.args["fields"]
    values = [p.name for p in node.expressions for p in _parts(p)]
    sources = []
    for entry in listed.expressions:
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
    parts = [_part(plan, others, listed.this.name, values, *source) for source in sources]
    if not node.args.get("include_nulls"):
        parts = [_without_null(p, len(values)) for p in parts]
    whole = parts[0]
    for part, entry in zip(parts[1:], listed.expressions[1:], strict=True):
        shared = tuple(PlanColumn(c.name) for c in whole.columns)
        whole = SetOf("union", True, whole, part, shared, entry, casts_text=False)
    return whole


def _part(
    plan: RelationalPlan,
    others: list[PlanColumn],
    name: str,
    values: list[str],
    columns: list[PlanColumn],
    label: str,
) -> RelationalPlan:
    keys = [(PlanColumn(c.name), ref(c)) for c in others]
    pairs = [(PlanColumn(v), ref(c)) for v, c in zip(values, columns, strict=True)]
    return SelectList(plan, (*keys, (PlanColumn(name), exp.Literal.string(label)), *pairs))


def _without_null(plan: RelationalPlan, n: int) -> RelationalPlan:
    """The rows in which at least one of the last `n` columns is not NULL."""
    not_null = [exp.Not(this=exp.Is(this=ref(c), expression=exp.Null())) for c in plan.columns[-n:]]
    return WhereClause(plan, (exp.or_(*not_null, copy=False),))


MOST_ROWS = 10_000
"""The most rows of constants in a view."""
_SETS = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}


@dataclass
class QueryScope:
    """The tables and views in scope of the queries of one text."""

    text: str
    tables: Mapping[str, Sequence[str]]  # the columns of each table
    views: dict[str, RelationalPlan] = field(default_factory=dict)
    written: Mapping[str, RelationalPlan] = field(default_factory=dict)  # views read like tables
    ctes: list[dict[str, RelationalPlan]] = field(default_factory=list)

    def fail(self, node: Scalar | None, reason: str, remedy: str = "") -> NoReturn:
        """Raise the error of a place in the text."""
        raise failure(self.text, node, reason, remedy)

    def name_of(self, node: Scalar) -> str:
        """The name in Spark of a column without an alias."""
        return shown_name(node)

    def planned(self, node: Scalar, outer: Scope | None = None) -> RelationalPlan:
        """The plan of a query."""
        with_ = node.args.get("with_")
        if with_ is not None:
            return self._with(node, with_, outer)
        if isinstance(node, exp.Subquery | exp.Paren):
            return self._first(self.planned(node.this, outer), node)
        if isinstance(node, exp.Select):
            return self._select(node, outer)
        if isinstance(node, exp.SetOperation):
            return self._first(self._set(node, outer), node)
        if isinstance(node, exp.Values):
            return self._first(self.values(node), node)
        if isinstance(node, exp.Table):
            return self.table(node, outer)[0]
        self.fail(node, f"{type(node).__name__} is no query")

    def _with(self, node: Scalar, with_: exp.With, outer: Scope | None) -> RelationalPlan:
        plans: dict[str, RelationalPlan] = {}
        self.ctes.append(plans)
        try:
            for cte in used_queries(node, with_):
                if with_.args.get("recursive") and table_named(cte.this, cte.alias):
                    plans[cte.alias.lower()] = recursive_query(self, cte, plans, outer)
                    continue
                plan = self.planned(cte.this, outer)
                plans[cte.alias.lower()] = self._aliased(plan, cte.args["alias"], cte)
            bare = node.copy()
            bare.set("with_", None)
            return self.planned(bare, outer)
        finally:
            self.ctes.pop()

    def _aliased(self, plan: RelationalPlan, alias: exp.TableAlias, at: Scalar) -> RelationalPlan:
        """The plan with the column names of an alias: `AS t (a, b)`."""
        names = [c.name for c in alias.args.get("columns") or ()]
        if names and len(names) != len(plan.columns):
            self.fail(at, f"{alias.name} names {len(names)} columns of {len(plan.columns)}")
        return with_fresh_columns(plan, alias.name, names or [c.name for c in plan.columns])

    def _select(self, node: exp.Select, outer: Scope | None) -> RelationalPlan:
        plan, scope = self._from(node, outer)
        for kind in ("cluster", "distribute", "sort", "connect", "match", "sample", "locks"):
            if node.args.get(kind):
                at = node if kind == "locks" else node.args[kind]
                self.fail(at, f"{kind.upper()} is not supported in a view", "leave it out")
        limit, offset = self._bounds(node)
        return Select(self, plan, scope, node=node).planned(node.args.get("order"), limit, offset)

    def _bounds(self, node: Scalar) -> tuple[int | None, int]:
        """The numbers of LIMIT and OFFSET."""
        limit, offset = node.args.get("limit"), node.args.get("offset")
        rows = None if limit is None else self._number(limit, "LIMIT")
        return rows, 0 if offset is None else self._number(offset, "OFFSET") or 0

    def _number(self, node: Scalar, what: str) -> int | None:
        value = node.expression if isinstance(node, exp.Limit | exp.Offset) else node
        if isinstance(value, exp.Var | exp.Column) and same(value.name, "all"):
            return None
        if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdigit():
            self.fail(node, f"{what} takes a number", "write a whole number")
        return int(value.name)

    # -- set operations

    def _set(self, node: exp.SetOperation, outer: Scope | None) -> RelationalPlan:
        kind = next(k for t, k in _SETS.items() if isinstance(node, t))
        left, right = self.planned(node.left, outer), self.planned(node.right, outer)
        if len(left.columns) != len(right.columns):
            self.fail(
                node,
                f"{kind.upper()} is of queries with {len(left.columns)} and "
                f"{len(right.columns)} columns",
                "give both the same columns; NULL takes the place of one that a query lacks",
            )
        distinct = node.args.get("distinct")
        columns = tuple(PlanColumn(c.name) for c in left.columns)
        return SetOf(kind, distinct is False, left, right, columns, node.right)

    def _first(self, plan: RelationalPlan, node: Scalar) -> RelationalPlan:
        """The plan with ORDER BY and LIMIT of a query that is no SELECT, by its columns."""
        limit, offset = self._bounds(node)
        if limit is None and not offset:
            return plan
        order = node.args.get("order")
        scope = Scope.of(plan.columns, "", None)
        binder = Binder(self, plan, scope)
        items = [(c, ref(c)) for c in plan.columns]
        ordered = [] if order is None else binder.ordered(order, items)
        return Limit(plan, tuple(ordered), limit, offset)

    # -- FROM

    def _from(self, node: exp.Select, outer: Scope | None) -> tuple[RelationalPlan, Scope]:
        source = node.args.get("from_") or node.args.get("from")
        if source is None:
            plan: RelationalPlan = InlineValues(((),), ())
            scope = Scope([], outer)
        else:
            plan, scope = self.relation(source.this, outer)
        for join in node.args.get("joins") or ():
            plan, scope = joined(self, plan, scope, join, outer)
        for lateral in node.args.get("laterals") or ():
            plan, scope = lateral_view(self, plan, scope, lateral)
        return plan, scope

    def relation(self, node: Scalar, outer: Scope | None) -> tuple[RelationalPlan, Scope]:
        """One relation of FROM, with the joins in its parentheses."""
        if isinstance(node, exp.Table):
            plan, scope = self.table(node, outer)
        elif isinstance(node, exp.Subquery):
            plan, scope = self._subquery(node, outer)
        elif isinstance(node, exp.Values):
            plan = self.values(node)
            scope = Scope.of(plan.columns, node.alias, outer)
        else:
            self.fail(node, f"FROM {type(node).__name__} is not supported")
        if node.args.get("sample") or isinstance(node, exp.TableSample):
            self.fail(
                node, "TABLESAMPLE returns other rows each time", "filter by a hash of the key"
            )
        for join in node.args.get("joins") or ():
            plan, scope = joined(self, plan, scope, join, outer)
        for lateral in node.args.get("laterals") or ():
            plan, scope = lateral_view(self, plan, scope, lateral)
        for pivot in node.args.get("pivots") or ():
            plan, scope = pivoted(self, plan, scope, pivot)
        return plan, scope

    def _subquery(self, node: exp.Subquery, outer: Scope | None) -> tuple[RelationalPlan, Scope]:
        if isinstance(node.this, exp.Table):
            inner, scope = self.relation(node.this, outer)
            if not node.alias:
                return inner, scope
            inner = self._aliased(inner, node.args["alias"], node)
            return inner, Scope.of(inner.columns, node.alias, outer)
        bare = node.copy()
        alias = node.args.get("alias")
        for part in ("alias", "joins", "laterals", "pivots", "sample"):
            bare.set(part, None)
        plan = self.planned(bare, outer)
        if alias is not None:
            plan = self._aliased(plan, alias, node)
        else:
            plan = with_fresh_columns(plan, "", [c.name for c in plan.columns])
        return plan, Scope.of(plan.columns, node.alias, outer)

    def table(self, node: exp.Table, outer: Scope | None) -> tuple[RelationalPlan, Scope]:
        """A table, a view, or a query of WITH."""
        if isinstance(node.this, exp.Func):
            return self._function(node, outer)
        for part in ("version", "when"):
            if node.args.get(part):
                self.fail(
                    node, "a view is of the tables as they are, not as they were", "leave out AS OF"
                )
        name = ".".join(p.name for p in node.parts)
        plan = self._named(name, node)
        alias = node.args.get("alias")
        table_name = alias.name if alias is not None and alias.name else node.name
        names = [c.name for c in plan.columns]
        if alias is not None and alias.args.get("columns"):
            plan = self._aliased(plan, alias, node)
        elif not isinstance(plan, TableScan):
            plan = with_fresh_columns(plan, table_name, names)
        return plan, Scope.of(plan.columns, table_name, outer)

    def _named(self, name: str, node: exp.Table) -> RelationalPlan:
        short = node.name.lower()
        for plans in reversed(self.ctes):
            if short in plans and "." not in name:
                return plans[short]
        if short in self.views:
            return self.views[short]
        for candidate in (name.lower(), short):
            for table, columns in self.tables.items():
                if table.lower() == candidate:
                    alias = node.alias or node.name
                    plan_columns = tuple(PlanColumn(c, alias) for c in columns)
                    return TableScan(table, plan_columns, self.written.get(table))
        names = [*self.tables, *self.views, *(n for plans in self.ctes for n in plans)]
        self.fail(node, f"there is no table {name}", f"the tables are {', '.join(names) or 'none'}")

    def _function(self, node: exp.Table, outer: Scope | None) -> tuple[RelationalPlan, Scope]:
        """A table function: range, or explode of a constant list."""
        call = node.this
        name = name_of(call)
        alias = node.args.get("alias")
        table = alias.name if alias is not None and alias.name else name
        names = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
        if name == "range":
            plan: RelationalPlan = self._range(call, table, names)
        elif name in GENERATORS:
            binder = Binder(self, InlineValues(((),), ()), Scope([], outer))
            plan, columns = unnested(binder, binder.plan, call, table, names)
            plan = keeping(plan, columns)
        else:
            self.fail(node, f"there is no table function {name}", "use range or explode")
        return plan, Scope.of(plan.columns, table, outer)

    def _range(self, call: Scalar, table: str, names: Sequence[str]) -> RelationalPlan:
        """range(end), range(start, end) or range(start, end, step), as rows of constants."""
        args, _ = args_of(call)
        numbers = [_int_of(a) for a in args]
        if None in numbers or not 1 <= len(numbers) <= 4 or 0 in numbers[2:]:
            self.fail(call, "range takes one to four whole numbers")
        bounds = range(*(n for n in numbers[:3] if n is not None))  # the fourth is about partitions
        if len(bounds) > MOST_ROWS:
            self.fail(call, f"range makes {len(bounds):,} rows, and a view may have {MOST_ROWS:,}")
        rows = tuple(
            (exp.Anonymous(this="bigint", expressions=[_number(n)]),) for n in bounds or (0,)
        )
        plan = InlineValues(rows, (PlanColumn(names[0] if names else "id", table),))
        return plan if bounds else WhereClause(plan, (exp.false(),))

    def values(self, node: exp.Values) -> RelationalPlan:
        """Rows of constants; columns are col1, col2, … if the alias names none."""
        rows = []
        for row in node.expressions:
            cells = row.expressions if isinstance(row, exp.Tuple) else [row]
            rows.append(tuple(c.this if isinstance(c, exp.Paren) else c for c in cells))
        alias = node.args.get("alias")
        names = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
        names = names or [f"col{i}" for i in range(1, len(rows[0]) + 1)]
        if any(len(row) != len(names) for row in rows):
            self.fail(node, "rows of VALUES have different numbers of columns")
        table = alias.name if alias is not None else ""
        return InlineValues(tuple(rows), tuple(PlanColumn(n, table) for n in names))


def _number(n: int) -> Scalar:
    literal = exp.Literal.number(abs(n))
    return exp.Neg(this=literal) if n < 0 else literal


def _int_of(node: Scalar) -> int | None:
    """The whole number of a literal node, or None."""
    negative = isinstance(node, exp.Neg)
    inner = node.this if negative else node
    if not isinstance(inner, exp.Literal) or not inner.name.isdigit():
        return None
    return -int(inner.name) if negative else int(inner.name)
