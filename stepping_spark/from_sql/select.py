"""SELECT: from a tree of the parser to a relational plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from stepping_spark.from_sql.aggregate_calls import (
    GENERATORS,
    args_of,
    inner_call,
    is_aggregate,
    name_of,
)
from stepping_spark.from_sql.binder import Attach, Binder
from stepping_spark.from_sql.columns import (
    Column,
    Expr,
    conjuncts,
    ref,
    refs,
)
from stepping_spark.from_sql.generators import unnested
from stepping_spark.from_sql.grouping import Grouping, grouping_of
from stepping_spark.from_sql.membership import is_in, not_in, semi
from stepping_spark.from_sql.names import same
from stepping_spark.from_sql.plan import (
    Aggregate,
    Call,
    Distinct,
    Filter,
    First,
    Item,
    Plan,
    Project,
    Windows,
)


@dataclass
class Select(Binder):
    """One SELECT, while its clauses are bound."""

    node: exp.Select = field(kw_only=True)

    # -- the clauses

    def planned(self, order: exp.Order | None, limit: int | None, offset: int) -> Plan:
        """The plan of the whole SELECT, with its ORDER BY and LIMIT."""
        node = self.node
        self.named_windows = {w.name.lower(): w for w in node.args.get("windows") or ()}
        where = node.args.get("where")
        if where is not None:
            self.plan = self._filtered(self.plan, where.this, grouped=False)
        items = self._items()
        self._group(items)
        having, qualify = node.args.get("having"), node.args.get("qualify")
        shown = [(Column(name), self._bind(e)) for name, e in items]
        conditions = [] if having is None else self._bound_conjuncts(having.this)
        chosen = [] if qualify is None else self._bound_conjuncts(qualify.this)
        wanted = order is not None and (limit is not None or offset)
        ordered = self.ordered(order, shown) if wanted and order is not None else []
        plan = self._grouped(self.plan)
        if conditions:
            plan = _with_conditions(plan, conditions)
        if self.windows:
            plan = Windows(plan, tuple((c, over) for over, c in self.windows.items()))
        if chosen:
            plan = _with_conditions(plan, chosen)
        return self._shown(plan, shown, ordered, limit, offset)

    def _shown(
        self, plan: Plan, shown: list[Item], ordered: list[Expr], limit: int | None, offset: int
    ) -> Plan:
        """The select list, DISTINCT, and the first rows."""
        first = limit is not None or bool(offset)
        columns = tuple(c for c, _ in shown)
        if self.node.args.get("distinct") is not None:
            self._check_distinct()
            plan = Distinct(Project(plan, tuple(shown)))
            if not first:
                return plan
            by_expr = {e: ref(c) for c, e in shown}
            ordered = [_replaced(o, by_expr) for o in ordered]
            for o in ordered:
                if not refs(o) <= set(columns):
                    self.fail(o, "ORDER BY of SELECT DISTINCT is by a column that is not selected")
            return First(plan, tuple(ordered), limit, offset)
        if not first:
            return Project(plan, tuple(shown))
        return Project(First(plan, tuple(ordered), limit, offset), tuple(shown))

    def _check_distinct(self) -> None:
        distinct = self.node.args["distinct"]
        if isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None:
            self.fail(distinct, "Spark has no DISTINCT ON", "use row_number() and QUALIFY")

    # -- the select list

    def _items(self) -> list[tuple[str, Expr]]:
        """The names and expressions of the select list; stars are written out."""
        found: list[tuple[str, Expr]] = []
        for node in self.node.expressions:
            generated = self._generated(node)
            if generated is not None:
                found += generated
            elif isinstance(node, exp.Star):
                found += self._star(node, self.scope.columns)
            elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
                found += self._star(node.this, self._of_table(node))
            elif isinstance(node, exp.Alias):
                found.append((node.alias, node.this))
                self._alias(node.alias, node.this)
            else:
                found.append((self.queries.name_of(node), node))
        return found

    def _generated(self, node: Expr) -> list[tuple[str, Expr]] | None:
        """The columns of a generator in the select list; None if it is none."""
        inner = node.this if isinstance(node, exp.Alias | exp.Aliases) else node
        if name_of(inner) not in GENERATORS:
            return None
        names = [a.name for a in node.aliases] if isinstance(node, exp.Aliases) else []
        names = [node.alias] if isinstance(node, exp.Alias) else names
        self.plan, columns = unnested(self, self.plan, inner, "", names)
        return [(c.name, ref(c, inner)) for c in columns]

    def _alias(self, name: str, node: Expr) -> None:
        self.scope.aliases.setdefault(name.lower(), node)

    def _star(self, star: exp.Star, columns: Sequence[Column]) -> list[tuple[str, Expr]]:
        left_out = {
            n.name.lower() for n in star.args.get("except_") or star.args.get("except") or ()
        }
        for name in left_out:
            if not any(same(c.name, name) for c in columns):
                self.fail(star, f"there is no column {name} to leave out of *")
        if not columns:
            self.fail(star, "* is of no columns: there is no FROM")
        return [(c.name, ref(c, star)) for c in columns if c.name.lower() not in left_out]

    def _of_table(self, node: exp.Column) -> list[Column]:
        table = node.table
        columns = self.scope.of_table(table)
        if not columns:
            tables = ", ".join(self.scope.tables())
            self.fail(node, f"there is no table {table}", f"the tables here are {tables}")
        return columns

    # -- groups

    def _group(self, items: list[tuple[str, Expr]]) -> None:
        """Bind GROUP BY, if there is one, or if an aggregate is asked for."""
        group = self.node.args.get("group")
        having = self.node.args.get("having")
        asked = any(self._has_aggregate(e) for _, e in items) or (
            having is not None and self._has_aggregate(having.this)
        )
        if group is None and not asked and having is None:
            return
        keys = grouping_of(group, items, self) if group is not None else Grouping([], None)
        self.grouping = keys

    def _has_aggregate(self, node: Expr) -> bool:
        """Whether an expression has an aggregate of its own, outside of windows and sub-queries."""
        if isinstance(node, exp.Query | exp.Subquery):
            return False
        if isinstance(node, exp.Window):
            inner = inner_call(node.this)
            within = [*args_of(inner)[0], *node.args.get("partition_by", ())]
            if node.args.get("order"):
                within.append(node.args["order"])
            return any(map(self._has_aggregate, within))
        if is_aggregate(node):
            return True
        if isinstance(node, exp.Column) and len(node.parts) == 1:
            alias = self.scope.aliases.get(node.name.lower())
            known = self.scope.found(node.name, "")
            if alias is not None and not known and alias is not node:
                return self._has_aggregate(alias)
        return any(self._has_aggregate(part) for part in node.iter_expressions())

    def _grouped(self, plan: Plan) -> Plan:
        for attach in self.before:
            plan = attach(plan)
        if self.grouping is not None:
            calls = tuple((c, call) for call, c in self.calls.items())
            keys = tuple(self.grouping.keys)
            if not calls:
                calls = ((Column("rows"), Call("count", (exp.Star(),), self.node)),)
            plan = Aggregate(plan, keys, calls, self.grouping.sets)
        for attach in self.after:
            plan = attach(plan)
        return plan

    # -- conditions

    def _filtered(self, plan: Plan, condition: Expr, *, grouped: bool) -> Plan:
        """WHERE: sub-queries of conditions that AND connects are semijoins."""
        rest: list[Expr] = []
        for e in conjuncts(condition):
            made = self._semijoin(e)
            if made is None:
                bound = self.bind_row(e)
                for attach in self.before:
                    plan = attach(plan)
                self.before.clear()
                rest.append(bound)
                continue
            plan = made(plan)
        return _with_conditions(plan, rest)

    def _bound_conjuncts(self, condition: Expr) -> list[Expr]:
        self.after_list = True
        bound = [self._bind(e) for e in conjuncts(condition)]
        self.after_list = False
        return bound

    def _semijoin(self, e: Expr) -> Attach | None:
        """What EXISTS or IN does to the rows, as a condition; None for other conditions."""
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
            if self.before:
                return None
            sub = self._sub(inner.args["query"])
            self._check_width(inner, lhs, sub)
            if negated:
                return lambda plan: not_in(plan, sub, lhs)
            return lambda plan: semi(plan, sub, lhs)
        return None


def _with_conditions(plan: Plan, conditions: Iterable[Expr]) -> Plan:
    wanted = tuple(conditions)
    return Filter(plan, wanted) if wanted else plan


def _replaced(e: Expr, known: Mapping[Expr, Expr]) -> Expr:
    made: Expr = e.copy().transform(lambda n: known[n].copy() if n in known else n)
    return made
