"""Operators and casts of SQL, implicit and explicit, with Spark's meaning."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from sqlglot import exp

from stepping_spark.base.errors import CompileError, StepError
from stepping_spark.base.packages import functions
from stepping_spark.expressions.arrow_kernels import is_known
from stepping_spark.expressions.expr import Call, Expr, Literal
from stepping_spark.expressions.operations import result_type
from stepping_spark.expressions.portable import choice, narrowed
from stepping_spark.expressions.spark_to_arrow import function_of
from stepping_spark.expressions.symbolic import BINARY
from stepping_spark.expressions.text_kernels import day_of_text
from stepping_spark.rows.atoms import BOOL, FLOAT, INT
from stepping_spark.rows.types import Optional
from stepping_spark.sql.kinds import (
    BITS,
    FLOATS,
    INTEGERS,
    TIMES,
    arithmetic_kind,
    common_kind,
    decimal_kind,
    is_days,
    is_decimal,
    is_months,
    is_number,
    kind_of_struct,
    row_type_of,
)
from stepping_spark.sql.values import (
    Env,
    SqlValue,
    column_of,
    constant,
    constant_of,
    expr_of,
    exprs_of,
    in_spark,
    is_null,
    null,
    ours,
    refuse_special,
)

_TIME = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)(?:[ T](\d\d?):(\d\d?)(?::(\d\d?)(?:\.(\d{1,6}))?)?)?", re.ASCII
)
_NUMBER = re.compile(r"-?\d{1,18}")
_NAMES = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    **dict.fromkeys(("char", "text", "varchar"), "string"),
    "dec": "decimal(10,0)",
    "numeric": "decimal(10,0)",
    "decimal": "decimal(10,0)",
    "timestamp_ltz": "timestamp",
}


def converted(value: SqlValue, kind: str) -> SqlValue:
    """The value after Spark's implicit conversion to a kind, beside another value."""
    # The type of a text beside a number depends on the number's type
    of_text = value.kind == "string" and not isinstance(expr_of(value), Literal)
    result = None if of_text and kind != "string" else _cast(value, kind)
    return result or SqlValue(column_of(value).cast(kind), kind)


def explicit(
    value: SqlValue, kind: str, node: exp.Expr, env: Env, *, is_try: bool = False
) -> SqlValue:
    """CAST, or TRY_CAST, which is NULL where CAST fails."""
    if kind in TIMES:
        refuse_special(constant_of(value), node, env)
    result = _cast(value, kind)
    e = None if result is None else expr_of(result)
    # A cast that never fails, or a cast of a constant that succeeded
    if result is not None and (not is_try or isinstance(e, Literal) or _never_fails(value, kind)):
        return result
    attempt = _tried(value, kind) if is_try else None
    if attempt is not None:
        return ours(attempt, kind)
    column = column_of(value)
    return in_spark(column.try_cast(kind) if is_try else column.cast(kind), [value], node, env)


def _tried(value: SqlValue, kind: str) -> Expr | None:
    """TRY_CAST of text; None if only Spark can compute it."""
    e = expr_of(value)
    named = _BY_FUNCTION.get((value.kind, _family(kind)))
    if e is None or value.kind != "string" or named is None:
        return None
    attempt = function_of(f"try_{named}", [e])
    if attempt is None or kind not in INTEGERS:
        return attempt
    bound = 1 << (BITS[kind] - 1)
    least, most = (Literal(INT, n) for n in (-bound, bound - 1))
    checks = (Call(Optional(BOOL), op, (attempt, n)) for op, n in ((">=", least), ("<=", most)))
    fits = Call(Optional(BOOL), "&", tuple(checks))
    return choice(fits, attempt, Literal(Optional(INT), None))


def _never_fails(value: SqlValue, kind: str) -> bool:
    if value.kind in INTEGERS and kind in INTEGERS:
        return INTEGERS.index(value.kind) <= INTEGERS.index(kind)
    return value.kind == kind or (value.kind != "string" and kind in ("string", *FLOATS))


def kind_written(to: exp.DataType) -> str:
    """The kind of a type in the text."""
    if to.this is exp.DType.TIME:  # sqlglot makes a TIMESTAMP of it
        return "time"
    if to.this is exp.DType.STRUCT:
        return kind_of_struct([(f.name, kind_written(f.args["kind"])) for f in to.expressions])
    if to.this in (exp.DType.ARRAY, exp.DType.MAP):
        return f"{to.this.value.lower()}<{','.join(map(kind_written, to.expressions))}>"
    written = to.sql(dialect="spark").lower()
    name, _, args = written.partition("(")
    if is_decimal(written):
        return f"decimal({args.replace(' ', '')}" if "," in args else f"decimal({args[:-1]},0)"
    return _NAMES.get(name, written)


def _cast(value: SqlValue, kind: str) -> SqlValue | None:
    """The value cast by the driver; None if only Spark can."""
    if value.kind == kind:
        return value
    e = expr_of(value)
    if value.kind == "void" or is_null(value):
        try:
            return constant(None, kind)
        except TypeError:  # rows cannot hold the kind
            return None
    if e is None:
        return None
    if value.kind == "string" and isinstance(e, Literal):
        return _of_text(e.constant, kind)
    result = _converted(e, value.kind, kind)
    return None if result is None or not is_known(result) else ours(result, kind)


def _of_text(written: str, kind: str) -> SqlValue | None:
    """A constant string as a value of a kind; None if it has an unusual form."""
    try:
        if kind == "date":
            date = day_of_text(written)
            return None if date is None else constant(date, kind)
        if kind == "timestamp_ntz" and (time := _TIME.fullmatch(written)) is not None:
            *parts, fraction = (g or "0" for g in time.groups())
            year, month, day, hour, minute, second = map(int, parts)
            micros = int(fraction.ljust(6, "0"))
            return constant(dt.datetime(year, month, day, hour, minute, second, micros), kind)
    except ValueError:  # no such day: Spark raises the error
        return None
    if kind in INTEGERS and _NUMBER.fullmatch(written):
        bound = 1 << (BITS[kind] - 1)
        return constant(int(written), kind) if -bound <= int(written) < bound else None
    return constant(float(written), kind) if _is_double(written, kind) else None


def _is_double(written: str, kind: str) -> bool:
    return kind == "double" and _NUMBER.fullmatch(written.replace(".", "", 1)) is not None


def _converted(e: Expr, have: str, want: str) -> Expr | None:
    """A cast between numbers, times and texts."""
    if have in INTEGERS and want in INTEGERS:
        if INTEGERS.index(have) <= INTEGERS.index(want):
            return e
        return _folded(narrowed(e, BITS[want]))
    if have in (*INTEGERS, "float") and want == "double":
        return e if have == "float" else _folded(_call("to_float", e, want))
    if isinstance(e, Literal) and is_decimal(have) and want == "double":
        return Literal(FLOAT, float(e.constant))
    if (have in INTEGERS or is_decimal(have)) and is_decimal(want):
        return _folded(_call("to_decimal", e, want))
    named = _BY_FUNCTION.get((_family(have), _family(want)))
    if named is None:
        return None
    result = function_of(named, [e])
    if result is None:
        return None
    return narrowed(result, BITS[want]) if want in INTEGERS else result


def _family(kind: str) -> str:
    if kind in INTEGERS:
        return "integer"
    return "decimal" if is_decimal(kind) else kind


# The functions of `spark_functions` that are casts
_BY_FUNCTION = {
    ("integer", "string"): "cast_to_string",
    ("decimal", "string"): "cast_to_string",
    ("boolean", "string"): "cast_to_string",
    ("date", "string"): "cast_to_string",
    ("timestamp_ntz", "string"): "cast_to_string",
    ("decimal", "double"): "cast_to_double",
    ("decimal", "integer"): "cast_to_bigint",
    ("double", "integer"): "cast_to_bigint",
    ("timestamp_ntz", "date"): "cast_to_date",
    ("date", "timestamp_ntz"): "cast_to_timestamp_ntz",
    ("boolean", "integer"): "cast_to_bigint",
    ("string", "integer"): "cast_to_bigint",
    ("string", "double"): "cast_to_double",
    ("string", "date"): "cast_to_date",
    ("timestamp", "date"): "cast_to_date",
    ("timestamp", "timestamp_ntz"): "cast_to_timestamp_ntz",
    ("date", "timestamp"): "cast_to_timestamp",
    ("timestamp_ntz", "timestamp"): "cast_to_timestamp",
}


def _call(op: str, e: Expr, kind: str) -> Expr:
    t = row_type_of(kind, nullable=isinstance(e.type, Optional))
    return Call(t, op, (e,))


def _folded(e: Expr) -> Expr | None:
    """The expression, or its value if it is a constant; None if the value does not fit."""
    if not all(isinstance(p, Literal) for p in e.parts()):
        return e
    try:
        return Literal(e.type, e.value(None))
    except StepError:
        return None


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    **BINARY,
    "eqNullSafe": lambda a, b: a.eqNullSafe(b),
}


def called(op: str, args: Sequence[Expr], kind: str) -> SqlValue | None:
    """An operator on our expressions; None if the driver has none for their types."""
    try:
        e = Call(result_type(op, tuple(a.type for a in args), ""), op, tuple(args))
    except CompileError:  # Spark converts one side, or has no such operator
        return None
    return ours(e, kind) if is_known(e) else None


def binary(op: str, a: SqlValue, b: SqlValue, node: exp.Expr, env: Env) -> SqlValue:
    """An operator that only Spark computes, on unconverted values."""
    return in_spark(_BINARY[op](column_of(a), column_of(b)), [a, b], node, env)


# Arithmetic


def arithmetic(op: str, a: SqlValue, b: SqlValue, node: exp.Expr, env: Env) -> SqlValue:
    """`+ - * / %`, on numbers, days, times and intervals."""
    kind = arithmetic_kind(op, _exact_kind(a, b), _exact_kind(b, a))
    result = _moved(op, a, b) if kind is None else _of_numbers(op, a, b, kind)
    return result or binary(op, a, b, node, env)


def _exact_kind(v: SqlValue, beside: SqlValue) -> str:
    """The kind of a value; a literal int beside a decimal is a decimal with its own digits."""
    return decimal_kind(v.digits, 0) if v.digits and is_decimal(beside.kind) else v.kind


def _of_numbers(op: str, a: SqlValue, b: SqlValue, kind: str) -> SqlValue | None:
    if "float" in (a.kind, b.kind) or "string" in (a.kind, b.kind):
        if kind == "float":
            return None  # 32 bits
        a, b = (_as_number(v, kind) for v in (a, b))
    if is_null(a) or is_null(b):
        return constant(None, kind)
    if is_decimal(kind):
        a, b = _as_decimal(a), _as_decimal(b)
    elif kind == "double" and op != "/":
        a, b = converted(a, kind), converted(b, kind)
    args = exprs_of(a, b)
    if args is None:
        return None
    result = called(op, args, kind)
    if result is None or kind not in INTEGERS:
        return result
    return ours(narrowed(result.column.__expr__, BITS[kind]), kind)


def _as_number(v: SqlValue, kind: str) -> SqlValue:
    if v.kind == "string":
        return converted(v, "bigint" if kind in INTEGERS else "double")
    return v if kind in INTEGERS else converted(v, "double")


def _as_decimal(v: SqlValue) -> SqlValue:
    """An int beside a decimal as a decimal: with the digits of a literal, or of its width."""
    if v.kind not in INTEGERS:
        return v
    width = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}[v.kind]
    return converted(v, decimal_kind(v.digits or width, 0))


_TIMES = ("timestamp", "timestamp_ntz")


def _moved(op: str, a: SqlValue, b: SqlValue) -> SqlValue | None:
    """A day or a time moved by an interval, or a difference; None if only Spark computes it."""
    if op == "+" and (b.kind == "date" or b.kind.startswith("timestamp")):
        a, b = b, a
    args = exprs_of(a, b)
    if args is None or op not in ("+", "-") or is_null(a) or is_null(b):
        return None
    if a.kind == "date":
        return _moved_day(op, a, b, args)
    if a.kind in _TIMES and is_days(b.kind):
        return called(op, args, a.kind)
    if a.kind in _TIMES and op == "-" and b.kind == a.kind:
        return called(op, args, "interval day to second")
    if is_days(a.kind) and is_days(b.kind):
        common = common_kind(a.kind, b.kind)
        return None if common is None else called(op, args, common)
    return None


def _moved_day(op: str, a: SqlValue, b: SqlValue, args: list[Expr]) -> SqlValue | None:
    by = constant_of(b)
    if b.kind in ("int", "smallint", "tinyint"):
        return called(op, args, "date")
    if b.kind == "interval day" and isinstance(by, dt.timedelta):
        return called(op, [args[0], Literal(INT, by.days)], "date")
    if is_months(b.kind) and by is not None:
        months = Literal(INT, by if op == "+" else -by)
        day = function_of("add_months", [args[0], months])
        return None if day is None else ours(day, "date")
    if op == "-" and b.kind in ("date", "string"):
        other = expr_of(converted(b, "date"))
        return None if other is None else called(op, [args[0], other], "interval day")
    return None


def negated(a: SqlValue, node: exp.Expr, env: Env) -> SqlValue:
    """`- a`."""
    e = expr_of(a)
    if e is not None and a.kind != "float" and (is_number(a.kind) or is_days(a.kind)):
        result = called("neg", [e], a.kind)
        if result is not None and a.kind in INTEGERS:
            return ours(narrowed(result.column.__expr__, BITS[a.kind]), a.kind)
        if result is not None:
            return result
    return in_spark(-column_of(a), [a], node, env)


# Comparisons


def compared(op: str, a: SqlValue, b: SqlValue, node: exp.Expr, env: Env) -> SqlValue:
    """`= != < <= > >=` and `<=>`."""
    if (is_null(a) or is_null(b)) and "" not in (a.kind, b.kind):
        if op != "eqNullSafe":
            return constant(None, "boolean")
        return null_test(b if is_null(a) else a, node, env)
    args = _comparable([a, b])
    result = None if args is None else called(op, args, "boolean")
    return result or binary(op, a, b, node, env)


def _comparable(values: Sequence[SqlValue]) -> list[Expr] | None:
    """The values converted for a comparison by the driver; None if it cannot compare them."""
    kind = common_of(values)
    if kind is None:
        return None
    return exprs_of(*(_beside(v, kind) for v in values))


def common_of(values: Sequence[SqlValue]) -> str | None:
    """The kind to which Spark converts all of these; None if there is none, or one is unknown."""
    kinds: list[str | None] = [v.kind for v in values]
    if "" in kinds:
        return None
    return reduce(lambda a, b: None if a is None or b is None else common_kind(a, b), kinds)


def _beside(v: SqlValue, kind: str) -> SqlValue:
    """A value converted for our comparison, which compares ints and decimals unconverted.

    Floats of 32 bits are compared as doubles.
    """
    exact = v.kind in INTEGERS or is_decimal(v.kind)
    if exact and (kind in INTEGERS or is_decimal(kind)):
        return v
    return v if v.kind in FLOATS and kind in FLOATS else converted(v, kind)


def null_test(a: SqlValue, node: exp.Expr, env: Env, *, negated: bool = False) -> SqlValue:
    """`a IS [NOT] NULL`."""
    e = expr_of(a)
    result = None if e is None else called("isNotNull" if negated else "isNull", [e], "boolean")
    if result is not None:
        return result
    column = column_of(a)
    return in_spark(column.isNotNull() if negated else column.isNull(), [a], node, env)


def among(a: SqlValue, options: Sequence[SqlValue], node: exp.Expr, env: Env) -> SqlValue:
    """`a IN (…)`."""
    if is_null(a) and a.kind:
        return constant(None, "boolean")
    args = _comparable([a, *options])
    result = None if args is None else called("isin", args, "boolean")
    if result is not None:
        return result
    column = column_of(a).isin(*map(column_of, options))
    return in_spark(column, [a, *options], node, env)


# Logic


def both(a: SqlValue, b: SqlValue, node: exp.Expr, env: Env) -> SqlValue:
    """AND, with three values."""
    return _logic("&", a, b, node, env)


def either(a: SqlValue, b: SqlValue, node: exp.Expr, env: Env) -> SqlValue:
    """OR, with three values."""
    return _logic("|", a, b, node, env)


def _logic(op: str, a: SqlValue, b: SqlValue, node: exp.Expr, env: Env) -> SqlValue:
    args = exprs_of(*(_as_boolean(v) for v in (a, b)))
    result = None if args is None else called(op, args, "boolean")
    return result or binary(op, a, b, node, env)


def _as_boolean(v: SqlValue) -> SqlValue:
    return converted(v, "boolean") if v.kind == "void" else v


def inverted(a: SqlValue, node: exp.Expr, env: Env) -> SqlValue:
    """NOT."""
    a = _as_boolean(a)
    e = expr_of(a)
    if is_null(a):
        return a
    result = None if e is None else called("~", [e], "boolean")
    return result or in_spark(~column_of(a), [a], node, env)


def is_true(a: SqlValue, expected: bool, node: exp.Expr, env: Env) -> SqlValue:
    """`a IS TRUE` and `a IS FALSE`, which are never NULL."""
    return compared("eqNullSafe", a, constant(expected, "boolean"), node, env)


# Choices


def chosen(
    branches: Sequence[tuple[SqlValue, SqlValue]], default: SqlValue, node: exp.Expr, env: Env
) -> SqlValue:
    """CASE WHEN condition THEN value … ELSE default END."""
    values = [v for _, v in branches] + [default]
    conditions = [_as_boolean(c) for c, _ in branches]
    kind = common_of(values)
    if kind == "void":
        return null()
    if kind is not None:
        result = _choice(conditions, [converted(v, kind) for v in values], kind)
        if result is not None:
            return result
    column: Any = functions
    for condition, value in zip(conditions, values, strict=False):
        column = column.when(column_of(condition), column_of(value))
    return in_spark(column.otherwise(column_of(default)), [*conditions, *values], node, env)


def _choice(
    conditions: Sequence[SqlValue], values: Sequence[SqlValue], kind: str
) -> SqlValue | None:
    whens, thens = exprs_of(*conditions), exprs_of(*values)
    if whens is None or thens is None or any(c.kind != "boolean" for c in conditions):
        return None
    result = thens[-1]
    for when, then in reversed([*zip(whens, thens[:-1], strict=True)]):
        result = choice(when, then, result)
    return ours(result, kind) if is_known(result) else None


def first_of(values: Sequence[SqlValue], node: exp.Expr, env: Env) -> SqlValue:
    """COALESCE: the first value that is not NULL."""
    kind = common_of(values)
    args = None
    if kind == "void":
        return null()
    if kind is not None:
        args = exprs_of(*(converted(v, kind) for v in values))
    if args is not None and kind is not None:
        *front, last = args
        for e in reversed(front):
            # NULL only if all are
            last = Call(
                last.type if isinstance(e.type, Optional) else e.type, "coalesce", (e, last)
            )
        if is_known(last):
            return ours(last, kind)
    column = functions.coalesce(*map(column_of, values))
    return in_spark(column, list(values), node, env)
