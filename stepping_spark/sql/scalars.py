"""Scalars of SQL, structs and lambdas: columns of a traced row function.

`scalar` is called while a function of rows is traced (`row_expr`). Sub-queries, aggregates and
window functions have been replaced by columns before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

from sqlglot import exp

from stepping_spark.base.packages import functions as F
from stepping_spark.expressions.expr import Build, Field
from stepping_spark.expressions.portable import slid
from stepping_spark.expressions.spark_to_arrow import function_of
from stepping_spark.rows.row_class import field_name, open_class
from stepping_spark.rows.types import Optional, Struct, unwrap
from stepping_spark.sql import operators, values
from stepping_spark.sql.functions import concatenated, function, slid_in_spark, units_of_time
from stepping_spark.sql.kinds import kind_of_struct, struct_fields
from stepping_spark.sql.names import same
from stepping_spark.sql.operators import explicit, kind_written
from stepping_spark.sql.plan import SLID
from stepping_spark.sql.values import (
    Env,
    SqlValue,
    column_of,
    expr_of,
    exprs_of,
    folded,
    folded_in_spark,
    in_spark,
    null,
    ours,
    varying,
)

_TAKERS = {
    **{n: n for n in ("aggregate", "exists", "filter", "forall", "map_filter", "map_zip_with")},
    **{n: n for n in ("reduce", "transform", "transform_keys", "transform_values", "zip_with")},
    "any_match": "exists",
    "all_match": "forall",
    "array_sort": "array_sort",
}


class Lambdas(Env, Protocol):
    """Translates the bodies of lambdas, with values for their variables."""

    @property
    def is_within(self) -> bool:
        """Whether the current nodes are within a lambda."""

    def value(self, node: exp.Expr) -> SqlValue:
        """The value of a node."""

    def within(self, variables: dict[str, SqlValue], body: exp.Expr) -> SqlValue:
        """The value of a lambda's body."""


def higher_order(name: str, args: Sequence[exp.Expr], node: exp.Expr, t: Lambdas) -> SqlValue:
    """A call of a function with lambdas. Only Spark computes it."""
    taker = _TAKERS.get(name.lower())
    if taker is None:
        listed = ", ".join(_TAKERS)
        t.fail(node, f"{name} takes no lambda", f"these functions do: {listed}")
    values: list[SqlValue] = []
    arguments: list[Any] = []
    for arg in args:
        if isinstance(arg, exp.Lambda):
            arguments.append(_lambda_function(arg, t))
            continue
        values.append(t.value(arg))
        arguments.append(column_of(values[-1]))
    column = getattr(F, taker)(*arguments)
    return SqlValue(column, "") if t.is_within else in_spark(column, values, node, t)


def _lambda_function(node: exp.Lambda, t: Lambdas) -> Callable[..., Any]:
    names = [str(e.name).lower() for e in node.expressions]

    def of(*columns: Any) -> Any:
        variables = {n: SqlValue(c, "") for n, c in zip(names, columns, strict=True)}
        return column_of(t.within(variables, node.this))

    # PySpark counts the parameters
    arities: dict[int, Callable[..., Any]] = {
        1: lambda x: of(x),
        2: lambda x, y: of(x, y),
        3: lambda x, y, z: of(x, y, z),
    }
    if len(names) not in arities:
        t.fail(node, f"a lambda has one to three variables, found {len(names)}")
    return arities[len(names)]


class Translates(Env, Protocol):
    """Translates the parts of a tree to values."""

    def value(self, node: exp.Expr) -> SqlValue:
        """The value of a part."""


def made_struct(args: list[exp.Expr], node: exp.Expr, t: Translates) -> SqlValue:
    """struct(a, b AS c), or (a, b), with Spark's names of the fields."""
    values = [t.value(a.this if isinstance(a, exp.Alias) else a) for a in args]
    return of_parts([_name_of(a, i) for i, a in enumerate(args, 1)], values, node, t)


def of_parts(names: list[str], values: list[SqlValue], node: exp.Expr, t: Translates) -> SqlValue:
    """A struct of values; the driver makes it if it can compute them all."""
    exprs = exprs_of(*values)
    named: list[str] = []
    for n in names:
        named.append(field_name(n, named))
    if exprs is None or named != names or {v.kind for v in values} & {"", "void"}:
        columns = [column_of(v).alias(n) for n, v in zip(names, values, strict=True)]
        return in_spark(F.struct(*columns), values, node, t)
    fields = tuple(zip(names, (e.type for e in exprs), strict=True))
    row = Struct("Row", fields, open_class(tuple(names)))
    kinds = [v.kind for v in values]
    return ours(Build(row, tuple(exprs)), kind_of_struct(list(zip(names, kinds, strict=True))))


def field_of(node: exp.Dot, t: Translates) -> SqlValue:
    """A field of a struct."""
    if isinstance(node.expression, exp.Func):
        t.fail(node, "a function of a catalog or a schema is not known", "use Spark's functions")
    return _part(t.value(node.this), node.expression.name, node, t)


def _part(of: SqlValue, name: str, node: exp.Expr, t: Translates) -> SqlValue:
    e, row = expr_of(of), None
    if e is not None and of.kind.startswith("struct<"):
        row = unwrap(e.type)
    if isinstance(e, Build | Field) and isinstance(row, Struct):
        kinds = (kind for _, kind in struct_fields(of.kind))
        for i, ((n, of_field), kind) in enumerate(zip(row.fields, kinds, strict=True)):
            if same(n, name):
                if isinstance(e, Build):
                    return ours(e.fields[i], kind)
                is_nullable = isinstance(e.type, Optional)
                field_type = Optional(unwrap(of_field)) if is_nullable else of_field
                return ours(Field(field_type, (*e.path, n)), kind)
    return in_spark(column_of(of).getField(name), [of], node, t)


def named_struct(args: list[exp.Expr], node: exp.Expr, t: Translates) -> SqlValue:
    """named_struct('a', x, 'b', y)."""
    names = [a.name for a in args[::2] if isinstance(a, exp.Literal) and a.is_string]
    if len(names) * 2 != len(args) or not names:
        t.fail(node, "named_struct takes names and values in turns", "write named_struct('a', x)")
    return of_parts(names, [t.value(a) for a in args[1::2]], node, t)


def _name_of(e: exp.Expr, number: int) -> str:
    """Spark's name of a part of a struct."""
    if isinstance(e, exp.Column) and "column" in e.meta:
        return str(e.meta["column"].name)
    if isinstance(e, exp.Dot):
        return str(e.expression.name)
    named = isinstance(e, exp.Alias | exp.Column | exp.Identifier)  # the last one in a lambda
    return e.alias_or_name if named else f"col{number}"


def names_of(node: exp.Expr) -> list[str] | None:
    """The field names of a struct in the text; None for other values."""
    called = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    if isinstance(node, exp.Tuple) or called == "struct":
        return [_name_of(a, i) for i, a in enumerate(node.expressions, 1)]
    return [a.name for a in node.expressions[::2]] if called == "named_struct" else None


def scalar(node: exp.Expr, env: Env) -> SqlValue:
    """The value of an expression, with Spark's value and type (ANSI).

    An expression without columns is a constant. Errors are raised by `env.fail`.
    """
    return Translator(env, varying(node)).value(node, top=True)


class Translator:
    """Translates one scalar in its environment, with the variables of enclosing lambdas."""

    def __init__(self, env: Env, varying: set[int]) -> None:
        self._env = env
        self._varying = varying
        self._variables: dict[str, SqlValue] = {}

    def column(self, node: exp.Column) -> SqlValue:
        """The value of a column, or of a variable."""
        return self._env.column(node)

    def fail(self, node: exp.Expr, reason: str, remedy: str = "") -> NoReturn:
        """Raise the error for a node."""
        self._env.fail(node, reason, remedy)

    def value(self, node: exp.Expr, *, top: bool = False) -> SqlValue:
        """The value of a node. Constants are folded; in Spark only the largest constant nodes."""
        handler = _HANDLERS.get(type(node))
        if handler is None:
            self.fail(
                node,
                f"{type(node).__name__} is not understood as a value",
                "write it with functions and operators of Spark SQL",
            )
        result = handler(node, self)
        if id(node) in self._varying:
            return result
        parent = node.parent
        result = folded(result)
        if top or parent is None or id(parent) in self._varying:
            return folded_in_spark(result)
        return result

    @property
    def is_within(self) -> bool:
        """Whether the current nodes are within a lambda."""
        return bool(self._variables)

    def variable(self, name: str, node: exp.Expr) -> SqlValue:
        """The variable of a lambda."""
        result = self._variables.get(name.lower())
        if result is None:
            self.fail(node, f"{name} is no variable of a lambda here")
        return result

    def within(self, variables: dict[str, SqlValue], body: exp.Expr) -> SqlValue:
        """The value of a lambda's body."""
        before = self._variables
        self._variables = before | variables
        try:
            return self.value(body)
        finally:
            self._variables = before


NodeHandler = Callable[[Any, Translator], SqlValue]


def _operator(
    operator: Callable[[str, SqlValue, SqlValue, exp.Expr, Env], SqlValue], op: str
) -> NodeHandler:
    return lambda node, t: operator(op, t.value(node.this), t.value(node.expression), node, t)


def _pair(operator: Callable[[SqlValue, SqlValue, exp.Expr, Env], SqlValue]) -> NodeHandler:
    return lambda node, t: operator(t.value(node.this), t.value(node.expression), node, t)


def _call(name: str, *parts: str) -> NodeHandler:
    """A handler of a node with its own syntax, as a call of a function with these arguments."""

    def called(node: exp.Expr, t: Translator) -> SqlValue:
        nodes = [node.args.get(part) for part in parts]
        return function(name, [t.value(g) for g in nodes if g is not None], node, t)

    return called


def _negation(node: exp.Neg, t: Translator) -> SqlValue:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return values.number(f"-{inner.this}", node, t)
    if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal):  # -1L
        written = inner.this
        if not written.is_string:
            as_negative = exp.Cast(this=exp.Neg(this=written.copy()), to=inner.args["to"].copy())
            as_negative.meta.update(inner.meta)
            return _cast(as_negative, t)
    return operators.negated(t.value(inner), node, t)


def _not(node: exp.Not, t: Translator) -> SqlValue:
    inner = node.this
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
        return operators.null_test(t.value(inner.this), node, t, negated=True)
    return operators.inverted(t.value(inner), node, t)


def _is(node: exp.Is, t: Translator) -> SqlValue:
    a, b = t.value(node.this), node.expression
    if isinstance(b, exp.Null):
        return operators.null_test(a, node, t)
    if isinstance(b, exp.Boolean):
        return operators.is_true(a, bool(b.this), node, t)
    t.fail(node, "IS takes NULL, TRUE, FALSE, UNKNOWN or [NOT] DISTINCT FROM")


def _different(node: exp.NullSafeNEQ, t: Translator) -> SqlValue:
    a, b = t.value(node.this), t.value(node.expression)
    return operators.inverted(operators.compared("eqNullSafe", a, b, node, t), node, t)


def _in(node: exp.In, t: Translator) -> SqlValue:
    if node.args.get("query") is not None or node.args.get("unnest") is not None:
        t.fail(node, "IN of a sub-query is no value")
    options = [t.value(o) for o in node.expressions]
    return operators.among(t.value(node.this), options, node, t)


def _between(node: exp.Between, t: Translator) -> SqlValue:
    a, low, high = (t.value(node.args[part]) for part in ("this", "low", "high"))
    least = operators.compared(">=", a, low, node, t)
    return operators.both(least, operators.compared("<=", a, high, node, t), node, t)


def _case(node: exp.Case, t: Translator) -> SqlValue:
    of = node.this
    operand = None if of is None else t.value(of)
    branches = []
    for branch in node.args["ifs"]:
        condition = t.value(branch.this)
        if operand is not None:
            condition = operators.compared("==", operand, condition, branch, t)
        branches.append((condition, t.value(branch.args["true"])))
    default = node.args.get("default")
    return operators.chosen(branches, null() if default is None else t.value(default), node, t)


def _cast(node: exp.Cast, t: Translator) -> SqlValue:
    kind = kind_written(node.args["to"])
    is_try = isinstance(node, exp.TryCast)
    if node.meta.get("typed") and isinstance(node.this, exp.Literal):
        return values.typed_literal(node.this, kind, node, t)
    of = t.value(node.this)
    result = explicit(of, kind, node, t, is_try=is_try)
    if not node.meta.get("literal"):
        return result
    sign = "-" if isinstance(node.this, exp.Neg) else ""
    return values.suffixed(
        f"{sign}{(node.this.this if sign else node.this).name}", result, of.digits, node, t
    )


# Pattern matching


def _matched(name: str) -> NodeHandler:
    def match(node: exp.Binary, t: Translator) -> SqlValue:
        result = _match(name, node, None, t)
        return operators.inverted(result, node, t) if node.args.get("negate") else result

    return match


def _escaped(node: exp.Escape, t: Translator) -> SqlValue:
    inner = node.this
    name = "ilike" if isinstance(inner, exp.ILike) else "like"
    result = _match(name, inner, t.value(node.expression), t)
    return operators.inverted(result, node, t) if inner.args.get("negate") else result


def _match(name: str, node: Any, escape: SqlValue | None, t: Translator) -> SqlValue:
    a, pattern = t.value(node.this), node.expression
    if isinstance(pattern, exp.Any | exp.All):
        listed = pattern.this.unnest()
        options = listed.expressions if isinstance(listed, exp.Tuple) else [listed]
        join = operators.either if isinstance(pattern, exp.Any) else operators.both
        if node.args.get("negate"):  # NOT LIKE ALL: no pattern matches
            join = operators.both if isinstance(pattern, exp.Any) else operators.either
        result = _one_match(name, a, t.value(options[0]), escape, node, t)
        for option in options[1:]:
            result = join(result, _one_match(name, a, t.value(option), escape, node, t), node, t)
        return result
    return _one_match(name, a, t.value(pattern), escape, node, t)


def _one_match(
    name: str,
    a: SqlValue,
    pattern: SqlValue,
    escape: SqlValue | None,
    node: exp.Expr,
    t: Translator,
) -> SqlValue:
    args = [a, pattern, *([] if escape is None else [escape])]
    return function(name, args, node, t)


# Parts of rows, arrays and maps


def _subscript(node: exp.Bracket, t: Translator) -> SqlValue:
    of, (key,) = t.value(node.this), node.expressions
    at = t.value(key)
    return in_spark(column_of(of)[column_of(at)], [of, at], node, t)


def _extract(node: exp.Extract, t: Translator) -> SqlValue:
    field = node.this.name.lower()
    of = t.value(node.expression)
    name = _EXTRACTED.get(field)
    e = expr_of(of)
    if name is not None and e is not None:
        part = function_of(name, [e])
        if part is not None:
            return ours(part, "int")
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


def _trim(node: exp.Trim, t: Translator) -> SqlValue:
    position = str(node.args.get("position") or "BOTH").upper()
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(position, "trim")
    a, of = t.value(node.this), node.expression
    if of is None:
        return function(name, [a], node, t)
    letters = t.value(of)
    return in_spark(getattr(F, name)(column_of(a), column_of(letters)), [a, letters], node, t)


def _slid(at: SqlValue, numbers: Sequence[int], node: exp.Expr, t: Translator) -> SqlValue:
    """The begin or end of the time window of a time; or of another window, by its last moment."""
    slide, offset, shift = numbers
    back = 0
    if at.kind.startswith("struct<start:"):
        at, back = _part(at, "end", node, t), 1
    if at.kind in ("date", "string"):
        at = explicit(at, "timestamp", node, t)
    if at.kind not in ("timestamp", "timestamp_ntz"):
        t.fail(node, f"a window of time is of a TIMESTAMP, found {at.kind}", "cast it")
    e = expr_of(at)
    is_ours = e is not None and e.in_sql
    if not is_ours and (slide, shift, back) == (1, 0, 0):
        return at
    if e is None or not is_ours:
        column = column_of(at)
        if back:
            column = slid_in_spark(column, at.kind, 1, 0, -back)
        column = slid_in_spark(column, at.kind, slide, offset, shift)
        return in_spark(column, [at], node, t)
    if back:
        e = slid(e, 1, 0, -back)
    return ours(slid(e, slide, offset, shift), at.kind)


def _function(node: exp.Anonymous, t: Translator) -> SqlValue:
    name = node.name
    args = node.expressions
    if name == SLID:
        of, *numbers = args
        return _slid(t.value(of), [int(n.name) for n in numbers], node, t)
    if name.lower() == "window_time" and len(args) == 1:
        window = t.value(args[0])
        if not window.kind.startswith("struct<start:"):
            t.fail(node, f"window_time is of a window, found {window.kind}")
        return _slid(window, [1, 0, 0], node, t)
    if any(isinstance(a, exp.Lambda) for a in args):
        return higher_order(name, args, node, t)
    if args and isinstance(args[0], exp.Var):
        return units_of_time(name, args[0].name, [t.value(a) for a in args[1:]], node, t)
    if name.lower() in ("struct", "named_struct"):
        return (made_struct if name.lower() == "struct" else named_struct)(args, node, t)
    return function(name, [t.value(a) for a in args], node, t)


def _tuple(node: exp.Tuple, t: Translator) -> SqlValue:
    return made_struct(node.expressions, node, t)


def _typed_array(node: exp.Array, t: Translator) -> SqlValue:
    return function("array", [t.value(a) for a in node.expressions], node, t)


def _clock(name: str) -> NodeHandler:
    return lambda node, t: function(name, [], node, t)


def _bits(op: str) -> NodeHandler:
    def combined(node: exp.Binary, t: Translator) -> SqlValue:
        a, b = t.value(node.this), t.value(node.expression)
        return function(op, [a, b], node, t)

    return combined


def _bits_inverted(node: exp.BitwiseNot, t: Translator) -> SqlValue:
    of = t.value(node.this)
    return in_spark(F.bitwise_not(column_of(of)), [of], node, t)


def _refused(reason: str, remedy: str) -> NodeHandler:
    """A handler that raises an error for its node."""

    def refused(node: exp.Expr, t: Translator) -> NoReturn:
        t.fail(node, reason, remedy)

    return refused


_NO_VALUE = _refused("a parameter has no value in a view", "write its value into the text")


_HANDLERS: dict[type, NodeHandler] = {
    exp.Literal: values.literal,
    exp.Boolean: values.boolean,
    exp.Null: values.of_null,
    exp.RawString: values.raw_string,
    exp.HexString: values.hexadecimal,
    exp.Concat: values.joined_strings,
    exp.Interval: values.interval,
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
    exp.Collate: _refused("collations are not supported", "compare lower(…) for one without case"),
    exp.JSONExtract: _refused(
        "-> makes a lambda, and no function around it takes one", "write it within a function"
    ),
    exp.Parameter: _NO_VALUE,
    exp.Placeholder: _NO_VALUE,
}
