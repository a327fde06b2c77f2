"""SELECT: from a tree of the parser to a relational plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from stepping_spark.sql.aggregate_calls import (
    GENERATORS,
    args_of,
    inner_call,
    is_aggregate,
    name_of,
)
from stepping_spark.sql.binder import Attach, Binder, Grouping, grouping_of
from stepping_spark.sql.joins import unnested
from stepping_spark.sql.names import VisibleName, same
from stepping_spark.sql.plan import (
    FunctionCall,
    GroupBy,
    Item,
    Limit,
    Over,
    PlanColumn,
    RelationalPlan,
    Scalar,
    SelectDistinct,
    SelectList,
    WhereClause,
    Windows,
    column_of,
    conjuncts,
    ref,
    refs,
)
from stepping_spark.sql.time_windows import TimeWindow, window_of_time
from stepping_spark.sql.unnest import is_in, not_in, semi


@dataclass
class Select(Binder):
    """One SELECT, whose clauses it binds."""

    node: exp.Select = field(kw_only=True)

    # -- the clauses

    def planned(self, order: exp.Order | None, limit: int | None, offset: int) -> RelationalPlan:
        """The plan of the whole SELECT, with its ORDER BY and LIMIT. Called once.

        Binding a clause collects what the plan needs below it: `before` and `after` have the
        sub-queries to attach before and after the groups, `calls` the aggregates, and `windows` the
        window functions. So the clauses are bound first, and then the plan is put together.
        """
        node = self.node
        self.named_windows = {w.name.lower(): w for w in node.args.get("windows") or ()}
        where = node.args.get("where")
        if where is not None:
            self.plan = self._with_where(self.plan, where.this)
        sessions = self._with_windows_of_time()
        items = self._select_items()
        self._bind_group_by(items)
        if sessions is not None:
            self._with_sessions(sessions)
        having, qualify = node.args.get("having"), node.args.get("qualify")
        selected = [(PlanColumn(name), self._item(e)) for name, e in items]
        if having is not None:
            self.refuse_windows(having.this)
        having_conditions = [] if having is None else self._bound_conjuncts(having.this)
        qualify_conditions = [] if qualify is None else self._bound_conjuncts(qualify.this)
        if qualify is not None and not self.windows:
            remedy = "write the condition in WHERE or HAVING"
            self.fail(qualify.this, "QUALIFY needs a window function in this SELECT", remedy)
        needs_order = order is not None and (limit is not None or offset)
        order_exprs = self.ordered(order, selected) if needs_order and order is not None else []
        plan = self._with_groups(self.plan)
        if having_conditions:
            plan = _with_conditions(plan, having_conditions)
        for layer in self._window_layers():
            plan = Windows(plan, layer)
        if qualify_conditions:
            plan = _with_conditions(plan, qualify_conditions)
        return self._select_list(plan, selected, order_exprs, limit, offset)

    def _window_layers(self) -> list[tuple[tuple[PlanColumn, Over], ...]]:
        """The window functions in layers: each reads only functions of earlier layers."""
        layers: list[tuple[tuple[PlanColumn, Over], ...]] = []
        unplaced = dict(self.windows)
        while unplaced:
            unplaced_columns = set(unplaced.values())
            ready = [o for o in unplaced if not any(refs(e) & unplaced_columns for e in o.exprs())]
            layers.append(tuple((unplaced.pop(over), over) for over in ready))
        return layers

    def _select_list(
        self,
        plan: RelationalPlan,
        selected: list[Item],
        order_exprs: list[Scalar],
        limit: int | None,
        offset: int,
    ) -> RelationalPlan:
        """The plan with the select list, DISTINCT, and the first rows."""
        is_limited = limit is not None or bool(offset)
        columns = tuple(c for c, _ in selected)
        if self.node.args.get("distinct") is not None:
            self._check_distinct()
            plan = SelectDistinct(SelectList(plan, tuple(selected)))
            if not is_limited:
                return plan
            by_expr = {e: ref(c) for c, e in selected}
            order_exprs = [_replaced(o, by_expr) for o in order_exprs]
            for o in order_exprs:
                if not refs(o) <= set(columns):
                    self.fail(o, "ORDER BY of SELECT DISTINCT is by a column that is not selected")
            return Limit(plan, tuple(order_exprs), limit, offset)
        if not is_limited:
            return SelectList(plan, tuple(selected))
        return SelectList(Limit(plan, tuple(order_exprs), limit, offset), tuple(selected))

    def _check_distinct(self) -> None:
        distinct = self.node.args["distinct"]
        if isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None:
            self.fail(distinct, "Spark has no DISTINCT ON", "use row_number() and QUALIFY")

    # -- windows of time

    def _with_windows_of_time(self) -> TimeWindow | None:
        """Add the column of a call of `window(…)`; returns a call of `session_window(…)`."""
        node = self.node
        parts = [*node.expressions, *(node.args.get(k) for k in ("group", "having", "qualify"))]
        parts.append(node.args.get("order"))
        window = window_of_time(self, parts)
        if window is None:
            return None
        if not window.is_session:
            for attach in self.before:
                self.plan = attach(self.plan)
            self.before.clear()
            self.plan = window.over(self.plan)
        if not self.scope.lookup(window.column.name, ""):
            hidden = VisibleName(window.column.name, "", window.column, shown=False)
            self.scope = replace(self.scope, names=[*self.scope.names, hidden])
        return window if window.is_session else None

    def _with_sessions(self, window: TimeWindow) -> None:
        """Add the column of `session_window(…)`: sessions are separate for all other keys."""
        grouping = self.grouping
        keys = [] if grouping is None else [e for _, e in grouping.keys]
        session_keys = [e for e in keys if "column" in e.meta and column_of(e) is window.column]
        if grouping is None or grouping.sets is not None or not session_keys:
            self.fail(
                window.at,
                "session_window is one of the expressions of GROUP BY, without ROLLUP or CUBE",
                "group by it: GROUP BY session_window(…)",
            )
        for attach in self.before:
            self.plan = attach(self.plan)
        self.before.clear()
        self.plan = window.sessions(self.plan, [e for e in keys if e is not session_keys[0]])

    # -- the select list

    def _select_items(self) -> list[tuple[str, Scalar]]:
        """The names and expressions of the select list, with stars expanded."""
        items: list[tuple[str, Scalar]] = []
        for node in self.node.expressions:
            generator_columns = self._generated(node)
            if generator_columns is not None:
                items += generator_columns
            elif isinstance(node, exp.Star):
                items += self._star(node, self.scope.columns)
            elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
                items += self._star(node.this, self._table_columns(node))
            elif isinstance(node, exp.Alias):
                items.append((node.alias, node.this))
                self._add_alias(node.alias, node.this)
            else:
                items.append((self.queries.name_of(node), node))
        return items

    def _generated(self, node: Scalar) -> list[tuple[str, Scalar]] | None:
        """The columns of a generator in the select list; None for other expressions."""
        inner = node.this if isinstance(node, exp.Alias | exp.Aliases) else node
        if name_of(inner) not in GENERATORS:
            return None
        names = [a.name for a in node.aliases] if isinstance(node, exp.Aliases) else []
        names = [node.alias] if isinstance(node, exp.Alias) else names
        self.plan, columns = unnested(self, self.plan, inner, "", names)
        return [(c.name, ref(c, inner)) for c in columns]

    def _item(self, node: Scalar) -> Scalar:
        """An expression of the select list, which does not see its own alias."""
        with self.scope.without_alias(node):
            return self._bind(node)

    def _add_alias(self, name: str, node: Scalar) -> None:
        """Let later clauses use an alias of the select list; the first of two equal ones counts."""
        self.scope.aliases.setdefault(name.lower(), node)

    def _star(self, star: exp.Star, columns: Sequence[PlanColumn]) -> list[tuple[str, Scalar]]:
        """The items of a star over these columns, without those that its EXCEPT leaves out."""
        left_out = {
            n.name.lower() for n in star.args.get("except_") or star.args.get("except") or ()
        }
        for name in left_out:
            if not any(same(c.name, name) for c in columns):
                self.fail(star, f"there is no column {name} to leave out of *")
        if not columns:
            self.fail(star, "* has no columns without FROM")
        return [(c.name, ref(c, star)) for c in columns if c.name.lower() not in left_out]

    def _table_columns(self, node: exp.Column) -> list[PlanColumn]:
        """The columns of the table before a star, as in `t.*`. Fails if there is no such table."""
        table = node.table
        columns = self.scope.of_table(table)
        if not columns:
            tables = ", ".join(self.scope.tables())
            self.fail(node, f"there is no table {table}", f"the tables here are {tables}")
        return columns

    # -- groups

    def _bind_group_by(self, items: list[tuple[str, Scalar]]) -> None:
        """Bind GROUP BY, if the SELECT has one, an aggregate, or HAVING."""
        group = self.node.args.get("group")
        having = self.node.args.get("having")
        has_aggregate = any(self._has_aggregate(e) for _, e in items) or (
            having is not None and self._has_aggregate(having.this)
        )
        if group is None and not has_aggregate and having is None:
            return
        grouping = grouping_of(group, items, self) if group is not None else Grouping([], None)
        self.grouping = grouping

    def _has_aggregate(self, node: Scalar) -> bool:
        """Whether an expression has an aggregate of its own, outside of windows and sub-queries."""
        if isinstance(node, exp.Query | exp.Subquery):
            return False
        if isinstance(node, exp.Window):
            inner = inner_call(node.this)
            window_exprs = [*args_of(inner)[0], *node.args.get("partition_by", ())]
            if node.args.get("order"):
                window_exprs.append(node.args["order"])
            return any(map(self._has_aggregate, window_exprs))
        if is_aggregate(node):
            return True
        if isinstance(node, exp.Column) and len(node.parts) == 1:
            alias = self.scope.aliases.get(node.name.lower())
            columns = self.scope.lookup(node.name, "")
            if alias is not None and not columns:
                with self.scope.without_alias(alias):
                    return self._has_aggregate(alias)
        return any(self._has_aggregate(part) for part in node.iter_expressions())

    def _with_groups(self, plan: RelationalPlan) -> RelationalPlan:
        """The plan with the sub-queries before the groups, the groups, and those after them."""
        for attach in self.before:
            plan = attach(plan)
        if self.grouping is not None:
            calls = tuple((c, call) for call, c in self.calls.items())
            keys = tuple(self.grouping.keys)
            if not calls:
                calls = ((PlanColumn("rows"), FunctionCall("count", (exp.Star(),), self.node)),)
            plan = GroupBy(plan, keys, calls, self.grouping.sets, self._group_size())
        for attach in self.after:
            plan = attach(plan)
        return plan

    def _group_size(self) -> int | None:
        """The number of the hint GROUP_SIZE; other hints are Spark's, and change no rows."""
        hints = self.node.args.get("hint")
        for hint in [] if hints is None else hints.expressions:
            if hint.name.lower() == "group_size":
                sizes = [
                    e.name for e in hint.expressions if isinstance(e, exp.Literal) and e.is_int
                ]
                if len(hint.expressions) != 1 or not sizes or int(sizes[0]) < 1:
                    reason = "GROUP_SIZE takes the number of rows of the largest group"
                    self.fail(hint, reason, "write /*+ GROUP_SIZE(1000) */")
                return int(sizes[0])
        return None

    # -- conditions

    def _with_where(self, plan: RelationalPlan, condition: Scalar) -> RelationalPlan:
        """The plan with WHERE: conjuncts that are sub-queries become semijoins."""
        conditions: list[Scalar] = []
        self.refuse_windows(condition)
        for e in conjuncts(condition):
            semijoin = self._semijoin(e)
            if semijoin is None:
                conditions.append(self.bind_row(e))
            for attach in self.before:
                plan = attach(plan)
            self.before.clear()
            plan = plan if semijoin is None else semijoin(plan)
        return _with_conditions(plan, conditions)

    def _bound_conjuncts(self, condition: Scalar) -> list[Scalar]:
        """The bound conditions of HAVING or QUALIFY, which see the aliases of the select list."""
        self.after_list = True
        bound = [self._bind(e) for e in conjuncts(condition)]
        self.after_list = False
        return bound

    def _semijoin(self, e: Scalar) -> Attach | None:
        """The semijoin or antijoin of a condition EXISTS or IN; None for other conditions."""
        negated = isinstance(e, exp.Not)
        inner = e.this if negated else e
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Exists):
            sub = self._sub(inner.this)
            how = "anti" if negated else "semi"
            return lambda plan: semi(plan, sub, how=how)
        if is_in(inner):
            assert isinstance(inner, exp.In)
            lhs = self._lhs(inner, self.bind_row)
            sub = self._sub(inner.args["query"])
            self._check_width(inner, lhs, sub)
            if negated:
                return lambda plan: not_in(plan, sub, lhs)
            return lambda plan: semi(plan, sub, lhs)
        return None


def _with_conditions(plan: RelationalPlan, conditions: Iterable[Scalar]) -> RelationalPlan:
    all_conditions = tuple(conditions)
    return WhereClause(plan, all_conditions) if all_conditions else plan


def _replaced(e: Scalar, replacements: Mapping[Scalar, Scalar]) -> Scalar:
    replaced: Scalar = e.copy().transform(
        lambda n: replacements[n].copy() if n in replacements else n
    )
    return replaced
