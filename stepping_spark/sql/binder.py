"""Binds the expressions of a SELECT: names, aggregates, windows, sub-queries, GROUP BY."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from stepping_spark.sql.aggregate_calls import (
    AGGREGATES,
    GENERATORS,
    WINDOW_ONLY,
    args_of,
    canonical,
    inner_call,
    instead_of,
    is_aggregate,
    is_star,
    name_of,
    wrong_call,
)
from stepping_spark.sql.names import Scope, resolve, same
from stepping_spark.sql.parse import quantified
from stepping_spark.sql.plan import (
    FunctionCall,
    Item,
    Over,
    PlanColumn,
    RelationalPlan,
    Scalar,
    column_of,
    free,
    ref,
    refs,
    rewritten,
    substituted,
)
from stepping_spark.sql.unnest import is_in, marked, with_not_in, with_quantified, with_value

if TYPE_CHECKING:
    from stepping_spark.sql.query import QueryScope


@dataclass
class Grouping:
    """The keys of groups, and the grouping sets as numbers of keys; None: all keys.

    `written` has the keys before binding: a key with a sub-query is found by its text only.
    """

    keys: list[Item]
    sets: tuple[tuple[int, ...], ...] | None
    written: dict[Scalar, int] = field(default_factory=dict)

    def number(self, written: Scalar, bind: Callable[[Scalar], Scalar]) -> int:
        """The number of a key, which is added if it is new."""
        if written not in self.written:
            self.written[written] = self._number(bind(written))
        return self.written[written]

    def _number(self, e: Scalar) -> int:
        for i, (_, key) in enumerate(self.keys):
            if key == e:
                return i
        name = e.meta["column"].name if "column" in e.meta else "key"
        self.keys.append((PlanColumn(name), e))
        return len(self.keys) - 1


def grouping_of(group: exp.Group, items: Sequence[tuple[str, Scalar]], binder: Binder) -> Grouping:
    """The keys of a GROUP BY, bound over the rows of FROM."""
    grouping = Grouping([], None)
    if group.args.get("all"):
        for _, e in items:
            if not any(is_aggregate(p) for p in e.walk()):
                grouping.number(e, binder.bind_row)
        return grouping
    for e in group.expressions:
        if isinstance(e, exp.Tuple) and not e.expressions:
            binder.fail(e, "Spark has no GROUP BY ()", "leave GROUP BY out, or write GROUPING SETS")
    for e in group.expressions if group.args.get("grouping_sets") else ():
        _sets(e, grouping, items, binder)  # GROUP BY a, b GROUPING SETS (…) names its keys first
    parts = [_sets(e, grouping, items, binder) for e in _elements(group)]
    if all(len(sets) == 1 for sets in parts) and not _has_sets(group):
        return grouping
    product = itertools.product(*parts)
    grouping.sets = tuple(
        tuple(dict.fromkeys(itertools.chain(*combination))) for combination in product
    )
    return grouping


def _elements(group: exp.Group) -> list[Scalar]:
    """The elements of GROUP BY; WITH ROLLUP and WITH CUBE apply to all elements before it."""
    for kind, node_type in (("rollup", exp.Rollup), ("cube", exp.Cube)):
        if group.args.get(kind):
            return [node_type(expressions=[e.copy() for e in group.expressions])]
    return list(group.args.get("grouping_sets") or group.expressions)


def _has_sets(group: exp.Group) -> bool:
    return any(isinstance(e, exp.Rollup | exp.Cube | exp.GroupingSets) for e in _elements(group))


Sets = list[tuple[int, ...]]


def _sets(
    node: Scalar, grouping: Grouping, items: Sequence[tuple[str, Scalar]], binder: Binder
) -> Sets:
    """The sets of one element of GROUP BY."""
    if isinstance(node, exp.GroupingSets):
        return [s for e in node.expressions for s in _sets(e, grouping, items, binder)]
    if isinstance(node, exp.Rollup | exp.Cube):
        parts = [_numbers(e, grouping, items, binder) for e in node.expressions]
        n = len(parts)
        if isinstance(node, exp.Rollup):
            chosen = [tuple(range(k)) for k in range(n, -1, -1)]
        else:
            chosen = [c for k in range(n, -1, -1) for c in itertools.combinations(range(n), k)]
        return [tuple(i for part in c for i in parts[part]) for c in chosen]
    return [_numbers(node, grouping, items, binder)]


def _numbers(
    node: Scalar, grouping: Grouping, items: Sequence[tuple[str, Scalar]], binder: Binder
) -> tuple[int, ...]:
    """The keys of one element: a single key, or a list in parentheses."""
    if isinstance(node, exp.Tuple):
        return tuple(i for e in node.expressions for i in _numbers(e, grouping, items, binder))
    while isinstance(node, exp.Paren):
        node = node.this
    return (grouping.number(_meant(node, items, binder), binder.bind_row),)


def _meant(node: Scalar, items: Sequence[tuple[str, Scalar]], binder: Binder) -> Scalar:
    """The expression that a position or an alias of the select list stands for."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        at = int(node.name)
        if not 1 <= at <= len(items):
            binder.fail(node, f"GROUP BY {at}: the select list has {len(items)} columns")
        return items[at - 1][1]
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        columns = binder.scope.lookup(node.name, "")
        named = [e for name, e in items if same(name, node.name)]
        if not columns and named:
            return named[0]
    return node


Attach = Callable[[RelationalPlan], RelationalPlan]
AttachIn = Callable[[RelationalPlan, RelationalPlan, Sequence[Scalar], PlanColumn], RelationalPlan]


@dataclass
class Binder:
    """Binds expressions over the rows of a plan, or over its groups.

    It collects the calls in the expressions: aggregates in `calls`, window functions in `windows`,
    sub-queries in `before` (over the rows) and `after` (over the groups).
    """

    queries: QueryScope
    plan: RelationalPlan
    scope: Scope
    named_windows: dict[str, exp.Window] = field(default_factory=dict)
    before: list[Attach] = field(default_factory=list)  # sub-queries over the rows of FROM
    after: list[Attach] = field(default_factory=list)  # sub-queries over the groups
    calls: dict[FunctionCall, PlanColumn] = field(default_factory=dict)
    windows: dict[Over, PlanColumn] = field(default_factory=dict)
    grouping: Grouping | None = None
    parameters: list[str] = field(default_factory=list)  # of the enclosing lambdas
    after_list: bool = False  # whether in HAVING or QUALIFY, which see aliases
    trying: bool = False  # whether a failure raises `_Unbound`

    # -- sub-queries

    def _lhs(self, node: exp.In, bind: Callable[[Scalar], Scalar]) -> list[Scalar]:
        left = node.this
        while isinstance(left, exp.Paren):
            left = left.this
        return [bind(e) for e in (left.expressions if isinstance(left, exp.Tuple) else [left])]

    def _check_width(self, node: Scalar, lhs: Sequence[Scalar], sub: RelationalPlan) -> None:
        if len(lhs) != len(sub.columns):
            self.fail(node, f"{len(lhs)} values are compared with {len(sub.columns)} columns")

    def _sub(self, node: Scalar) -> RelationalPlan:
        return self.queries.planned(node, self.scope)

    # -- expressions

    def bind_row(self, node: Scalar) -> Scalar:
        """An expression over the rows of FROM."""
        return self._bound(node, grouped=False)

    def refuse_windows(self, node: Scalar) -> None:
        """Refuse window functions in a condition that is evaluated before them."""
        for part in node.walk(prune=lambda n: isinstance(n, exp.Query)):
            if isinstance(part, exp.Window):
                self.fail(
                    part,
                    "WHERE, ON and HAVING come before window functions",
                    "write the condition in QUALIFY",
                )

    def _bind(self, node: Scalar) -> Scalar:
        """An expression over the groups, if there are any."""
        return self._bound(node, grouped=self.grouping is not None)

    def _bound(self, node: Scalar, *, grouped: bool) -> Scalar:
        if isinstance(node, exp.Window):
            return self._window(node, grouped)
        if is_aggregate(node):
            if not grouped:
                self.fail(
                    node,
                    f"{name_of(inner_call(node))} is an aggregate, and stands where "
                    "there are no groups",
                    "use HAVING, or a sub-query",
                )
            return self._aggregate(node)
        if isinstance(node, exp.Exists):
            return self._exists(node, grouped)
        if isinstance(node, exp.Not) and node.find(exp.In) is not None:
            return self._negated(node, grouped)
        if is_in(node):
            return self._in(node, grouped, marked)
        quantifier = quantified(node)
        if quantifier is not None:
            return self._quantified(node, quantifier, grouped)
        if isinstance(node, exp.Subquery | exp.Query):
            return self._scalar(node, grouped)
        if grouped and self.grouping is not None:
            key = self._key(node)
            if key is not None:
                return key
        if isinstance(node, exp.Column):
            return self._name(node, grouped)
        if isinstance(node, exp.Anonymous) and any(map(is_star, node.expressions)):
            node = node.copy()
            node.set("expressions", self._spread(node.expressions))
        if name_of(node) in WINDOW_ONLY:
            self.fail(node, f"{name_of(node)} needs OVER (…)")
        if name_of(node) in GENERATORS:
            self.fail(node, f"{name_of(node)} makes rows", "use LATERAL VIEW")
        return self._with_parts(node, grouped)

    def _spread(self, args: Sequence[Scalar]) -> list[Scalar]:
        """The arguments of a call, with each `*` replaced by its columns."""
        arguments: list[Scalar] = []
        for a in args:
            columns = self.scope.of_table(a.table) if isinstance(a, exp.Column) else None
            references = [ref(c, a) for c in columns or self.scope.columns]
            arguments += references if is_star(a) else [a]
        return arguments

    def _with_parts(self, node: Scalar, grouped: bool) -> Scalar:
        """The node with its parts bound."""
        names = [p.name for p in node.expressions] if isinstance(node, exp.Lambda) else []
        self.parameters += names
        args: dict[str, object] = {}
        for key, value in node.args.items():
            if isinstance(node, exp.Lambda) and key == "expressions":
                args[key] = [v.copy() for v in value]
            elif isinstance(value, list):
                args[key] = [self._part(v, grouped) for v in value]
            else:
                args[key] = self._part(value, grouped)
        del self.parameters[len(self.parameters) - len(names) :]
        bound = type(node)(**args)
        bound.meta.update(node.meta)
        return bound

    def _part(self, value: object, grouped: bool) -> object:
        if isinstance(value, exp.Identifier | exp.DataType | exp.Literal | exp.Var):
            return value.copy()
        return self._bound(value, grouped=grouped) if isinstance(value, exp.Expression) else value

    def _name(self, node: exp.Column, grouped: bool) -> Scalar:
        if "column" in node.meta:
            expression: Scalar = node
        elif len(node.parts) == 1 and node.name in self.parameters:
            return node.copy()
        else:
            aliased: list[Scalar] = []

            def alias(name: str) -> Scalar | None:
                bound = self._alias_of(name, grouped)
                aliased.extend([] if bound is None else [bound])
                return bound

            expression = resolve(node, self.scope, alias, self.fail)
            if aliased:
                return expression
        if not grouped or not refs(expression) <= set(self.plan.columns):
            return expression
        key = self._part_of_key(expression)
        if key is None and self.after_list and len(node.parts) == 1:
            key = self._alias_of(node.name, grouped)
        if key is None:
            named = ".".join(p.name for p in node.parts)
            self.fail(
                node,
                f"{named} is neither in GROUP BY nor in an aggregate",
                f"add it to GROUP BY, or write any_value({named})",
            )
        return key

    def _alias_of(self, name: str, grouped: bool) -> Scalar | None:
        """The expression of the select list with this alias; None if there is none."""
        node = self.scope.aliases.get(name.lower())
        if node is None:
            return None
        with self.scope.without_alias(node):
            return self._bound(node, grouped=grouped)

    def _key(self, node: Scalar) -> Scalar | None:
        """The reference to the group key that equals an expression; None if no key does."""
        if isinstance(node, exp.Literal | exp.Null | exp.Boolean):
            return None
        if node.find(exp.Query) is not None:
            return self._key_with_query(node)
        if any(is_aggregate(p) or isinstance(p, exp.Window) for p in node.walk()):
            return None
        was, self.trying = self.trying, True
        try:
            return self._key_of(self.bind_row(node), node)
        except _Unbound:
            return None
        finally:
            self.trying = was

    def _key_with_query(self, node: Scalar) -> Scalar | None:
        assert self.grouping is not None
        number = self.grouping.written.get(node)
        return None if number is None else ref(self.grouping.keys[number][0], node)

    def _key_of(self, bound: Scalar, at: Scalar | None = None) -> Scalar | None:
        assert self.grouping is not None
        for column, e in self.grouping.keys:
            if e == bound:
                return ref(column, at if at is not None else bound)
        return None

    def _part_of_key(self, bound: Scalar) -> Scalar | None:
        """The group key that equals a name, or a field of such a key; None if there is none."""
        key = self._key_of(bound)
        if key is not None or not isinstance(bound, exp.Dot):
            return key
        inner = self._part_of_key(bound.this)
        return None if inner is None else exp.Dot(this=inner, expression=bound.expression.copy())

    def _aggregate(self, node: Scalar) -> Scalar:
        call = self.call(node)
        if call.name in ("grouping", "grouping_id"):
            return self._grouping(node, call)
        return ref(self.calls.setdefault(call, PlanColumn(call.name)), node)

    def _grouping(self, node: Scalar, call: FunctionCall) -> Scalar:
        assert self.grouping is not None
        if self.grouping.sets is None:
            self.fail(node, f"{call.name} is of ROLLUP, CUBE or GROUPING SETS")
        args = tuple(self._key_of(a) or a for a in call.args)
        keys = {c for c, _ in self.grouping.keys}
        if any(refs(a) - keys or not refs(a) for a in args):
            self.fail(node, f"{call.name} is of expressions of GROUP BY")
        numbered = FunctionCall(call.name, args, node)
        return ref(self.calls.setdefault(numbered, PlanColumn(call.name)), node)

    def call(self, node: Scalar) -> FunctionCall:
        """An aggregate, over the rows of FROM."""
        return self._made_call(node, self.bind_row)

    def _made_call(self, node: Scalar, bind: Callable[[Scalar], Scalar]) -> FunctionCall:
        order: tuple[Scalar, ...] = ()
        condition, ignore = None, False
        at = node
        while True:
            if isinstance(node, exp.Filter):
                condition = bind(node.expression.this)
            elif isinstance(node, exp.WithinGroup):
                order = tuple(self._order_part(o, bind) for o in node.expression.expressions)
            elif isinstance(node, exp.IgnoreNulls):
                ignore = True
            elif not isinstance(node, exp.RespectNulls):
                break
            node = node.this
        args, distinct = args_of(node)
        starred = len(args) == 1 and isinstance(args[0], exp.Star)  # count(*)
        bound = (args[0].copy(),) if starred else tuple(map(bind, self._spread(args)))
        name = canonical(name_of(node))
        call = FunctionCall(name, bound, at, distinct, condition, order, ignore)
        wrong = wrong_call(call)
        if wrong:
            self.fail(at, wrong, instead_of(call))
        return call

    def _order_part(self, node: Scalar, bind: Callable[[Scalar], Scalar]) -> Scalar:
        if not isinstance(node, exp.Ordered):
            node = exp.Ordered(this=node, desc=False, nulls_first=True)
        order_item = node.copy()
        order_item.set("this", bind(node.this))
        return order_item

    # -- windows

    def _window(self, node: exp.Window, grouped: bool) -> Scalar:
        def bind(e: Scalar) -> Scalar:
            return self._bound(e, grouped=grouped)

        spec = self._spec(node)
        call = self._made_call(node.this, bind)
        if call.name not in WINDOW_ONLY | AGGREGATES:
            self.fail(node, f"{call.name} is no window function")
        by = tuple(map(bind, spec.args.get("partition_by") or ()))
        order = spec.args.get("order")
        sorting: tuple[Scalar, ...] = (
            () if order is None else tuple(self._order_part(o, bind) for o in order.expressions)
        )
        over = Over(call, by, sorting, spec.args.get("spec"))
        return ref(self.windows.setdefault(over, PlanColumn(call.name)), node)

    def _spec(self, node: exp.Window) -> exp.Window:
        """The specification of a window, with the parts of a named window that it refers to."""
        name = node.args.get("alias")
        if name is None:
            return node
        named_window = self.named_windows.get(name.name.lower())
        if named_window is None:
            names = ", ".join(self.named_windows) or "none"
            self.fail(node, f"there is no window {name.name}", f"the windows are {names}")
        whole = self._spec(named_window).copy()
        for part in ("partition_by", "order", "spec"):
            if node.args.get(part):
                whole.set(part, node.args[part])
        return whole

    # -- sub-queries within expressions

    def _attach(self, grouped: bool, attach: Attach) -> None:
        (self.after if grouped else self.before).append(attach)

    def _inner(self, node: Scalar, grouped: bool) -> RelationalPlan:
        """A sub-query; over groups, its outer columns are the group keys."""
        sub = self._sub(node)
        if not grouped or self.grouping is None:
            return sub
        outside = free(sub) & set(self.plan.columns)
        keys = {column_of(e): ref(c) for c, e in self.grouping.keys if isinstance(e, exp.Column)}
        missing = [c for c in outside if c not in keys]
        if missing:
            self.fail(node, f"{missing[0]} is neither in GROUP BY nor in an aggregate")
        return rewritten(sub, lambda e: substituted(e, keys))

    def _exists(self, node: exp.Exists, grouped: bool) -> Scalar:
        sub, mark = self._inner(node.this, grouped), PlanColumn("exists")
        self._attach(grouped, lambda plan: marked(plan, sub, (), mark))
        return ref(mark, node)

    def _negated(self, node: exp.Not, grouped: bool) -> Scalar:
        """NOT of conditions with sub-queries: pushed into each of them, as Spark does."""
        inner = node.this
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if is_in(inner):
            return self._in(inner, grouped, with_not_in)
        if isinstance(inner, exp.Not):
            return self._bound(inner.this, grouped=grouped)
        if not isinstance(inner, exp.And | exp.Or):
            return self._with_parts(node, grouped)
        other = exp.Or if isinstance(inner, exp.And) else exp.And
        sides = [exp.Not(this=e.copy()) for e in (inner.this, inner.expression)]
        return exp.Paren(
            this=other(
                **{
                    name: self._bound(side, grouped=grouped)
                    for name, side in zip(("this", "expression"), sides, strict=True)
                }
            )
        )

    def _in(self, node: Scalar, grouped: bool, attached: AttachIn) -> Scalar:
        assert isinstance(node, exp.In)
        lhs = self._lhs(node, lambda e: self._bound(e, grouped=grouped))
        sub, value = self._inner(node.args["query"], grouped), PlanColumn("in")
        self._check_width(node, lhs, sub)
        self._attach(grouped, lambda plan: attached(plan, sub, lhs, value))
        return ref(value, node)

    def _quantified(self, node: Scalar, quantifier: Scalar, grouped: bool) -> Scalar:
        lhs = self._bound(node.this, grouped=grouped)
        sub, value = self._inner(quantifier.this, grouped), PlanColumn("compared")
        self._check_width(node, [lhs], sub)
        compared = type(node)(this=lhs, expression=ref(sub.columns[0]))
        is_any = isinstance(quantifier, exp.Any)
        self._attach(grouped, lambda plan: with_quantified(plan, sub, compared, is_any, value))
        return ref(value, node)

    def _scalar(self, node: Scalar, grouped: bool) -> Scalar:
        sub, value = self._inner(node, grouped), PlanColumn("value")
        if len(sub.columns) != 1:
            self.fail(node, f"a sub-query that is a value has one column, found {len(sub.columns)}")
        self._attach(grouped, lambda plan: with_value(plan, sub, value))
        return ref(value, node)

    # -- ORDER BY

    def ordered(self, order: exp.Order, items: Sequence[Item]) -> list[Scalar]:
        """The parts of ORDER BY: an alias or a position of the select list, or an expression."""
        (first, *_) = parts = list(order.expressions)
        if isinstance(first.this, exp.Var) and same(first.this.name, "all"):
            parts = [first.copy() for _ in items]
            for part, (_, e) in zip(parts, items, strict=True):
                part.set("this", e.copy())

        def bind(e: Scalar) -> Scalar:
            if isinstance(e, exp.Literal) and not e.is_string and e.name.isdigit():
                at = int(e.name)
                if not 1 <= at <= len(items):
                    self.fail(e, f"ORDER BY {at}: the select list has {len(items)} columns")
                return items[at - 1][1]
            if isinstance(e, exp.Column) and len(e.parts) == 1:
                named = [v for c, v in items if same(c.name, e.name)]
                if named:
                    return named[0]
            return self._bind(e)

        return [self._order_part(o, bind) for o in parts]

    def fail(self, node: Scalar, reason: str, remedy: str = "") -> NoReturn:
        """Raise the error of a place in the text."""
        if self.trying:
            raise _Unbound
        self.queries.fail(node, reason, remedy)


class _Unbound(Exception):
    """An expression that cannot be bound over the rows of FROM."""
