"""Scalars of SQL: an expression of the text becomes a column of a traced row function.

`scalar` is called while a function of rows is traced (`row_expr`). Sub-queries, aggregates and
window functions have been replaced by columns before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from sqlglot import exp

from stepping_spark.expressions.readings import function_of
from stepping_spark.from_sql import literals, operators
from stepping_spark.from_sql.calls import higher_order
from stepping_spark.from_sql.casts import explicit, kind_written
from stepping_spark.from_sql.folding import folded, folded_in_spark, varying
from stepping_spark.from_sql.functions import concatenated, function, units_of_time
from stepping_spark.from_sql.structs import field_of, made_struct, named_struct
from stepping_spark.from_sql.values import (
    Env,
    Value,
    column_of,
    expr_of,
    in_spark,
    null,
    ours,
)
from stepping_spark.packages import functions as F


def scalar(node: exp.Expr, env: Env) -> Value:
    """The value of an expression, with Spark's value and type (ANSI).

    What has no column is a constant. Errors come from `env.fail`.
    """
    return Translator(env, varying(node)).value(node, top=True)


class Translator:
    """Translates one scalar: its surroundings, and the variables of the lambdas around a node."""

    def __init__(self, env: Env, varying: set[int]) -> None:
        self._env = env
        self._varying = varying
        self._variables: dict[str, Value] = {}

    def column(self, node: exp.Column) -> Value:
        """The value of a column, or of a variable."""
        return self._env.column(node)

    def fail(self, node: exp.Expr, reason: str, remedy: str = "") -> NoReturn:
        """Raise the error for a node."""
        self._env.fail(node, reason, remedy)

    def value(self, node: exp.Expr, *, top: bool = False) -> Value:
        """The value of a node. A constant is computed, in Spark only the greatest one."""
        handler = _HANDLERS.get(type(node))
        if handler is None:
            self.fail(
                node,
                f"{type(node).__name__} is not understood as a value",
                "write it with functions and operators of Spark SQL",
            )
        found = handler(node, self)
        if id(node) in self._varying:
            return found
        parent = node.parent
        found = folded(found)
        if top or parent is None or id(parent) in self._varying:
            return folded_in_spark(found)
        return found

    @property
    def is_within(self) -> bool:
        """Whether the nodes are part of a lambda."""
        return bool(self._variables)

    def variable(self, name: str, node: exp.Expr) -> Value:
        """The variable of a lambda."""
        found = self._variables.get(name.lower())
        if found is None:
            self.fail(node, f"{name} is no variable of a lambda here")
        return found

    def within(self, variables: dict[str, Value], body: exp.Expr) -> Value:
        """The value of a lambda's body."""
        before = self._variables
        self._variables = before | variables
        try:
            return self.value(body)
        finally:
            self._variables = before


Handler = Callable[[Any, Translator], Value]


def _operator(operator: Callable[[str, Value, Value, exp.Expr, Env], Value], op: str) -> Handler:
    return lambda node, t: operator(op, t.value(node.this), t.value(node.expression), node, t)


def _pair(operator: Callable[[Value, Value, exp.Expr, Env], Value]) -> Handler:
    return lambda node, t: operator(t.value(node.this), t.value(node.expression), node, t)


def _call(name: str, *parts: str) -> Handler:
    """A node with a syntax of its own that is a call of a function, with these of its arguments."""

    def called(node: exp.Expr, t: Translator) -> Value:
        given = [node.args.get(part) for part in parts]
        return function(name, [t.value(g) for g in given if g is not None], node, t)

    return called


def _negation(node: exp.Neg, t: Translator) -> Value:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return literals.number(f"-{inner.this}", node, t)
    if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal):  # -1L
        written = inner.this
        if not written.is_string:
            as_negative = exp.Cast(this=exp.Neg(this=written.copy()), to=inner.args["to"].copy())
            as_negative.meta.update(inner.meta)
            return _cast(as_negative, t)
    return operators.negated(t.value(inner), node, t)


def _not(node: exp.Not, t: Translator) -> Value:
    inner = node.this
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
        return operators.null_test(t.value(inner.this), node, t, negated=True)
    return operators.inverted(t.value(inner), node, t)


def _is(node: exp.Is, t: Translator) -> Value:
    a, b = t.value(node.this), node.expression
    if isinstance(b, exp.Null):
        return operators.null_test(a, node, t)
    if isinstance(b, exp.Boolean):
        return operators.is_true(a, bool(b.this), node, t)
    t.fail(node, "IS takes NULL, TRUE, FALSE, UNKNOWN or [NOT] DISTINCT FROM")


def _different(node: exp.NullSafeNEQ, t: Translator) -> Value:
    a, b = t.value(node.this), t.value(node.expression)
    return operators.inverted(operators.compared("eqNullSafe", a, b, node, t), node, t)


def _in(node: exp.In, t: Translator) -> Value:
    if node.args.get("query") is not None or node.args.get("unnest") is not None:
        t.fail(node, "IN of a sub-query is no value")
    options = [t.value(o) for o in node.expressions]
    return operators.among(t.value(node.this), options, node, t)


def _between(node: exp.Between, t: Translator) -> Value:
    a, low, high = (t.value(node.args[part]) for part in ("this", "low", "high"))
    least = operators.compared(">=", a, low, node, t)
    return operators.both(least, operators.compared("<=", a, high, node, t), node, t)


def _case(node: exp.Case, t: Translator) -> Value:
    of = node.this
    operand = None if of is None else t.value(of)
    branches = []
    for branch in node.args["ifs"]:
        condition = t.value(branch.this)
        if operand is not None:
            condition = operators.compared("==", operand, condition, branch, t)
        branches.append((condition, t.value(branch.args["true"])))
    rest = node.args.get("default")
    return operators.chosen(branches, null() if rest is None else t.value(rest), node, t)


def _cast(node: exp.Cast, t: Translator) -> Value:
    kind = kind_written(node.args["to"])
    is_try = isinstance(node, exp.TryCast)
    of = t.value(node.this)
    found = explicit(of, kind, node, t, is_try=is_try)
    return Value(found.column, found.kind, of.digits) if node.meta.get("literal") else found


# Texts that match a pattern


def _matched(name: str) -> Handler:
    def match(node: exp.Binary, t: Translator) -> Value:
        found = _match(name, node, None, t)
        return operators.inverted(found, node, t) if node.args.get("negate") else found

    return match


def _escaped(node: exp.Escape, t: Translator) -> Value:
    inner = node.this
    name = "ilike" if isinstance(inner, exp.ILike) else "like"
    found = _match(name, inner, t.value(node.expression), t)
    return operators.inverted(found, node, t) if inner.args.get("negate") else found


def _match(name: str, node: Any, escape: Value | None, t: Translator) -> Value:
    a, pattern = t.value(node.this), node.expression
    if isinstance(pattern, exp.Any | exp.All):
        listed = pattern.this.unnest()
        options = listed.expressions if isinstance(listed, exp.Tuple) else [listed]
        join = operators.either if isinstance(pattern, exp.Any) else operators.both
        if node.args.get("negate"):  # NOT LIKE ALL: each is not matched
            join = operators.both if isinstance(pattern, exp.Any) else operators.either
        found = _one_match(name, a, t.value(options[0]), escape, node, t)
        for option in options[1:]:
            found = join(found, _one_match(name, a, t.value(option), escape, node, t), node, t)
        return found
    return _one_match(name, a, t.value(pattern), escape, node, t)


def _one_match(
    name: str, a: Value, pattern: Value, escape: Value | None, node: exp.Expr, t: Translator
) -> Value:
    args = [a, pattern, *([] if escape is None else [escape])]
    return function(name, args, node, t)


# Parts of rows, arrays and maps


def _subscript(node: exp.Bracket, t: Translator) -> Value:
    of, (key,) = t.value(node.this), node.expressions
    at = t.value(key)
    return in_spark(column_of(of)[column_of(at)], [of, at], node, t)


def _extract(node: exp.Extract, t: Translator) -> Value:
    field = node.this.name.lower()
    of = t.value(node.expression)
    name = _EXTRACTED.get(field)
    e = expr_of(of)
    if name is not None and e is not None:
        found = function_of(name, [e])
        if found is not None:
            return ours(found, "int")
    return in_spark(F.extract(F.lit(field), column_of(of)), [of], node, t)


_EXTRACTED = {
    **dict.fromkeys(("year", "y", "years", "yr", "yrs"), "year"),
    **dict.fromkeys(("quarter", "qtr"), "quarter"),
    **dict.fromkeys(("month", "mon", "mons", "months"), "month"),
    **dict.fromkeys(("week", "w", "weeks"), "weekofyear"),
    **dict.fromkeys(("day", "d", "days"), "day"),
    **dict.fromkeys(("dayofweek", "dow"), "dayofweek"),
    "doy": "dayofyear",
    **dict.fromkeys(("hour", "h", "hours", "hr", "hrs"), "hour"),
    **dict.fromkeys(("minute", "m", "min", "mins", "minutes"), "minute"),
}


def _trim(node: exp.Trim, t: Translator) -> Value:
    position = str(node.args.get("position") or "BOTH").upper()
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(position, "trim")
    a, of = t.value(node.this), node.expression
    if of is None:
        return function(name, [a], node, t)
    letters = t.value(of)
    return in_spark(getattr(F, name)(column_of(a), column_of(letters)), [a, letters], node, t)


def _function(node: exp.Anonymous, t: Translator) -> Value:
    name = node.name
    args = node.expressions
    if any(isinstance(a, exp.Lambda) for a in args):
        return higher_order(name, args, node, t)
    if args and isinstance(args[0], exp.Var):
        return units_of_time(name, args[0].name, [t.value(a) for a in args[1:]], node, t)
    if name.lower() in ("struct", "named_struct"):
        return (made_struct if name.lower() == "struct" else named_struct)(args, node, t)
    return function(name, [t.value(a) for a in args], node, t)


def _tuple(node: exp.Tuple, t: Translator) -> Value:
    return made_struct(node.expressions, node, t)


def _typed_array(node: exp.Array, t: Translator) -> Value:
    return function("array", [t.value(a) for a in node.expressions], node, t)


def _clock(name: str) -> Handler:
    return lambda node, t: function(name, [], node, t)


def _bits(op: str) -> Handler:
    def combined(node: exp.Binary, t: Translator) -> Value:
        a, b = t.value(node.this), t.value(node.expression)
        return function(op, [a, b], node, t)

    return combined


def _bits_inverted(node: exp.BitwiseNot, t: Translator) -> Value:
    of = t.value(node.this)
    return in_spark(F.bitwise_not(column_of(of)), [of], node, t)


def _json_arrow(node: exp.Expr, t: Translator) -> NoReturn:
    t.fail(node, "-> makes a lambda, and there is no function around it that takes one")


_HANDLERS: dict[type, Handler] = {
    exp.Literal: literals.literal,
    exp.Boolean: literals.boolean,
    exp.Null: literals.of_null,
    exp.RawString: literals.raw_string,
    exp.HexString: literals.hexadecimal,
    exp.Concat: literals.joined_strings,
    exp.Interval: literals.interval,
    exp.Paren: lambda node, t: t.value(node.this),
    exp.Column: lambda node, t: t.column(node),
    exp.Identifier: lambda node, t: t.variable(node.name, node),
    exp.Alias: lambda node, t: t.value(node.this),
    exp.Add: _operator(operators.arithmetic, "+"),
    exp.Sub: _operator(operators.arithmetic, "-"),
    exp.Mul: _operator(operators.arithmetic, "*"),
    exp.Div: _operator(operators.arithmetic, "/"),
    exp.Mod: _operator(operators.arithmetic, "%"),
    exp.IntDiv: _bits("div"),
    exp.Neg: _negation,
    exp.EQ: _operator(operators.compared, "=="),
    exp.NEQ: _operator(operators.compared, "!="),
    exp.LT: _operator(operators.compared, "<"),
    exp.LTE: _operator(operators.compared, "<="),
    exp.GT: _operator(operators.compared, ">"),
    exp.GTE: _operator(operators.compared, ">="),
    exp.NullSafeEQ: _operator(operators.compared, "eqNullSafe"),
    exp.NullSafeNEQ: _different,
    exp.And: _pair(operators.both),
    exp.Or: _pair(operators.either),
    exp.Not: _not,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Like: _matched("like"),
    exp.ILike: _matched("ilike"),
    exp.RegexpLike: _matched("rlike"),
    exp.Escape: _escaped,
    exp.DPipe: lambda node, t: concatenated(
        [t.value(node.this), t.value(node.expression)], node, t
    ),
    exp.BitwiseAnd: _bits("&"),
    exp.BitwiseOr: _bits("|"),
    exp.BitwiseXor: _bits("^"),
    exp.BitwiseNot: _bits_inverted,
    exp.BitwiseLeftShift: _bits("shiftleft"),
    exp.BitwiseRightShift: _bits("shiftright"),
    exp.Bracket: _subscript,
    exp.Dot: field_of,
    exp.Extract: _extract,
    exp.Trim: _trim,
    exp.StrPosition: _call("position", "substr", "this", "position"),
    exp.Substring: _call("substring", "this", "start", "length"),
    exp.Overlay: _call("overlay", "this", "expression", "from_", "for_"),
    exp.Anonymous: _function,
    exp.Array: _typed_array,
    exp.Tuple: _tuple,
    exp.CurrentDate: _clock("current_date"),
    exp.CurrentTime: _clock("current_time"),
    exp.CurrentTimestamp: _clock("current_timestamp"),
    exp.CurrentUser: _clock("current_user"),
    exp.SessionUser: _clock("session_user"),
    exp.JSONExtract: _json_arrow,
}
