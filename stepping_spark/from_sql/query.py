"""Queries: WITH, set operations, sub-queries and FROM, as relational plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from stepping_spark.from_sql.aggregate_calls import GENERATORS, args_of, name_of
from stepping_spark.from_sql.binder import Binder
from stepping_spark.from_sql.columns import Column, Expr, ref
from stepping_spark.from_sql.generators import unnested
from stepping_spark.from_sql.joins import joined, lateral_view
from stepping_spark.from_sql.names import Scope, same
from stepping_spark.from_sql.parse import failure
from stepping_spark.from_sql.pivots import pivoted
from stepping_spark.from_sql.plan import (
    First,
    Plan,
    Scan,
    SetOf,
    Values,
    keeping,
    with_fresh_columns,
)
from stepping_spark.from_sql.select import Select
from stepping_spark.from_sql.shown import shown_name

MOST_ROWS = 10_000
"""Rows of constants in a view."""
_SETS = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}


@dataclass
class Queries:
    """The tables and views that queries of one text may name."""

    text: str
    tables: Mapping[str, Sequence[str]]  # the columns of each table
    views: dict[str, Plan] = field(default_factory=dict)
    ctes: list[dict[str, Plan]] = field(default_factory=list)

    def fail(self, node: Expr | None, reason: str, remedy: str = "") -> NoReturn:
        """Raise the error of a place in the text."""
        raise failure(self.text, node, reason, remedy)

    def name_of(self, node: Expr) -> str:
        """The name that Spark gives a column without an alias."""
        return shown_name(node)

    def planned(self, node: Expr, outer: Scope | None = None) -> Plan:
        """The plan of a query."""
        with_ = node.args.get("with_") or node.args.get("with")
        if with_ is not None:
            return self._with(node, with_, outer)
        while isinstance(node, exp.Subquery | exp.Paren):
            if isinstance(node, exp.Subquery) and (node.args.get("with_") is not None):
                return self._with(node, node.args["with_"], outer)
            inner = node.this
            if any(node.args.get(k) for k in ("order", "limit", "offset")):
                plan = self.planned(inner, outer)
                return self._first(plan, node)
            node = inner
        if isinstance(node, exp.Select):
            return self._select(node, outer)
        if isinstance(node, exp.SetOperation):
            return self._first(self._set(node, outer), node)
        if isinstance(node, exp.Values):
            return self.values(node)
        if isinstance(node, exp.Table):
            return self.table(node, outer)[0]
        self.fail(node, f"{type(node).__name__} is no query")

    def _with(self, node: Expr, with_: exp.With, outer: Scope | None) -> Plan:
        known: dict[str, Plan] = {}
        self.ctes.append(known)
        try:
            for cte in used_queries(node, with_):
                if with_.args.get("recursive") and _names(cte.this, cte.alias):
                    self.fail(cte, "WITH RECURSIVE is not supported", "use st.fixpoint")
                plan = self.planned(cte.this, outer)
                known[cte.alias.lower()] = self._aliased(plan, cte.args["alias"], cte)
            bare = node.copy()
            bare.set("with_", None)
            return self.planned(bare, outer)
        finally:
            self.ctes.pop()

    def _aliased(self, plan: Plan, alias: exp.TableAlias, at: Expr) -> Plan:
        """The plan under the names of an alias: `AS t (a, b)`."""
        names = [c.name for c in alias.args.get("columns") or ()]
        if names and len(names) != len(plan.columns):
            self.fail(at, f"{alias.name} names {len(names)} columns of {len(plan.columns)}")
        return with_fresh_columns(plan, alias.name, names or [c.name for c in plan.columns])

    def _select(self, node: exp.Select, outer: Scope | None) -> Plan:
        plan, scope = self._from(node, outer)
        for kind in ("cluster", "distribute", "sort", "connect", "match", "sample"):
            if node.args.get(kind):
                self.fail(node.args[kind], f"{kind.upper()} is not supported in a view")
        limit, offset = self._bounds(node)
        return Select(self, plan, scope, node=node).planned(node.args.get("order"), limit, offset)

    def _bounds(self, node: Expr) -> tuple[int | None, int]:
        """LIMIT and OFFSET."""
        limit, offset = node.args.get("limit"), node.args.get("offset")
        rows = None if limit is None else self._number(limit, "LIMIT")
        return rows, 0 if offset is None else self._number(offset, "OFFSET") or 0

    def _number(self, node: Expr, what: str) -> int | None:
        value = node.expression if isinstance(node, exp.Limit | exp.Offset) else node
        if isinstance(value, exp.Column) and same(value.name, "all"):
            return None
        if not isinstance(value, exp.Literal) or not value.name.isdigit():
            self.fail(node, f"{what} takes a number")
        return int(value.name)

    # -- set operations

    def _set(self, node: exp.SetOperation, outer: Scope | None) -> Plan:
        kind = next(k for t, k in _SETS.items() if isinstance(node, t))
        left, right = self.planned(node.left, outer), self.planned(node.right, outer)
        if node.args.get("by_name"):
            right = self._by_name(left, right, node)
        if len(left.columns) != len(right.columns):
            self.fail(
                node,
                f"{kind.upper()} is of queries with {len(left.columns)} and "
                f"{len(right.columns)} columns",
            )
        distinct = node.args.get("distinct")
        made = tuple(Column(c.name) for c in left.columns)
        return SetOf(kind, distinct is False, left, right, made)

    def _by_name(self, left: Plan, right: Plan, node: Expr) -> Plan:
        found = []
        for c in left.columns:
            named = [r for r in right.columns if same(r.name, c.name)]
            if len(named) != 1:
                self.fail(node, f"UNION BY NAME: the second query has no column {c.name}")
            found.append(named[0])
        return keeping(right, found)

    def _first(self, plan: Plan, node: Expr) -> Plan:
        """ORDER BY and LIMIT of a query that is no SELECT: by its columns."""
        limit, offset = self._bounds(node)
        if limit is None and not offset:
            return plan
        order = node.args.get("order")
        scope = Scope.of(plan.columns, "", None)
        binder = Binder(self, plan, scope)
        shown = [(c, ref(c)) for c in plan.columns]
        ordered = [] if order is None else binder.ordered(order, shown)
        return First(plan, tuple(ordered), limit, offset)

    # -- FROM

    def _from(self, node: exp.Select, outer: Scope | None) -> tuple[Plan, Scope]:
        source = node.args.get("from_") or node.args.get("from")
        if source is None:
            plan: Plan = Values(((),), ())
            scope = Scope([], outer)
        else:
            plan, scope = self.relation(source.this, outer)
        for join in node.args.get("joins") or ():
            plan, scope = joined(self, plan, scope, join, outer)
        for lateral in node.args.get("laterals") or ():
            plan, scope = lateral_view(self, plan, scope, lateral)
        return plan, scope

    def relation(self, node: Expr, outer: Scope | None) -> tuple[Plan, Scope]:
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
            self.fail(node, "TABLESAMPLE gives other rows each time", "filter by a hash of the key")
        for join in node.args.get("joins") or ():
            plan, scope = joined(self, plan, scope, join, outer)
        for lateral in node.args.get("laterals") or ():
            plan, scope = lateral_view(self, plan, scope, lateral)
        for pivot in node.args.get("pivots") or ():
            plan, scope = pivoted(self, plan, scope, pivot)
        return plan, scope

    def _subquery(self, node: exp.Subquery, outer: Scope | None) -> tuple[Plan, Scope]:
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

    def table(self, node: exp.Table, outer: Scope | None) -> tuple[Plan, Scope]:
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
        shown = alias.name if alias is not None and alias.name else node.name
        names = [c.name for c in plan.columns]
        if alias is not None and alias.args.get("columns"):
            plan = self._aliased(plan, alias, node)
        elif not isinstance(plan, Scan):
            plan = with_fresh_columns(plan, shown, names)
        return plan, Scope.of(plan.columns, shown, outer)

    def _named(self, name: str, node: exp.Table) -> Plan:
        short = node.name.lower()
        for known in reversed(self.ctes):
            if short in known and "." not in name:
                return known[short]
        if short in self.views:
            return self.views[short]
        for wanted in (name.lower(), short):
            for table, columns in self.tables.items():
                if table.lower() == wanted:
                    alias = node.alias or node.name
                    return Scan(table, tuple(Column(c, alias) for c in columns))
        there = [*self.tables, *self.views, *(n for known in self.ctes for n in known)]
        self.fail(node, f"there is no table {name}", f"the tables are {', '.join(there) or 'none'}")

    def _function(self, node: exp.Table, outer: Scope | None) -> tuple[Plan, Scope]:
        """A function that makes rows: range, and explode of a constant list."""
        call = node.this
        name = name_of(call)
        alias = node.args.get("alias")
        table = alias.name if alias is not None and alias.name else name
        names = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
        if name == "range":
            plan: Plan = self._range(call, table, names)
        elif name in GENERATORS:
            binder = Binder(self, Values(((),), ()), Scope([], outer))
            plan, columns = unnested(binder, binder.plan, call, table, names)
            plan = keeping(plan, columns)
        else:
            self.fail(node, f"there is no table function {name}", "use range or explode")
        return plan, Scope.of(plan.columns, table, outer)

    def _range(self, call: Expr, table: str, names: Sequence[str]) -> Values:
        """range(end), range(start, end) or range(start, end, step), as rows of constants."""
        args, _ = args_of(call)
        numbers = [_whole(a) for a in args]
        if None in numbers or not 1 <= len(numbers) <= 3 or 0 in numbers[2:]:
            self.fail(call, "range takes one to three whole numbers")
        bounds = range(*(n for n in numbers if n is not None))
        if len(bounds) > MOST_ROWS:
            self.fail(call, f"range makes {len(bounds):,} rows, and a view may have {MOST_ROWS:,}")
        rows = tuple((exp.Anonymous(this="bigint", expressions=[_number(n)]),) for n in bounds)
        return Values(rows, (Column(names[0] if names else "id", table),))

    def values(self, node: exp.Values) -> Plan:
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
        return Values(tuple(rows), tuple(Column(n, table) for n in names))


def used_queries(node: Expr, with_: exp.With) -> list[exp.CTE]:
    """The queries of a WITH that its query reads, also by way of others; in their order."""
    wanted: set[str] = set()
    for part in node.iter_expressions():
        if part is not with_:
            wanted |= _unqualified(part)
    found: list[exp.CTE] = []
    for cte in reversed(with_.expressions):
        if cte.alias.lower() in wanted:
            found.insert(0, cte)
            wanted |= _unqualified(cte.this)
    return found


def _unqualified(node: Expr) -> set[str]:
    """The names of tables without a schema."""
    return {t.name.lower() for t in node.find_all(exp.Table) if not t.args.get("db")}


def _number(n: int) -> Expr:
    literal = exp.Literal.number(abs(n))
    return exp.Neg(this=literal) if n < 0 else literal


def _whole(node: Expr) -> int | None:
    """The whole number that a node is."""
    negative = isinstance(node, exp.Neg)
    inner = node.this if negative else node
    if not isinstance(inner, exp.Literal) or not inner.name.isdigit():
        return None
    return -int(inner.name) if negative else int(inner.name)


def _names(node: Expr, table: str) -> bool:
    return any(same(t.name, table) for t in node.find_all(exp.Table))
