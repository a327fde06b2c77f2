"""Casts, implicit and explicit, with Spark's meaning (ANSI)."""

from __future__ import annotations

import datetime as dt
import re

from sqlglot import exp

from stepping_spark.errors import StepError
from stepping_spark.expressions.arrow_calls import is_known
from stepping_spark.expressions.derived import narrowed
from stepping_spark.expressions.expr import Call, Expr, Literal
from stepping_spark.expressions.readings import function_of
from stepping_spark.from_sql.kinds import (
    BITS,
    FLOATS,
    INTEGERS,
    is_decimal,
    row_type_of,
)
from stepping_spark.from_sql.values import (
    Env,
    Value,
    column_of,
    constant,
    expr_of,
    in_spark,
    is_null,
    ours,
)
from stepping_spark.rows.atoms import FLOAT
from stepping_spark.rows.types import Optional

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")
_NUMBER = re.compile(r"-?\d{1,18}")
_NAMES = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "text": "string",
    "dec": "decimal(10,0)",
    "numeric": "decimal(10,0)",
    "decimal": "decimal(10,0)",
    "timestamp_ltz": "timestamp",
}


def converted(value: Value, kind: str) -> Value:
    """The value as Spark converts it implicitly to a kind, to meet another value."""
    return _cast(value, kind) or Value(column_of(value).cast(kind), kind)


def explicit(value: Value, kind: str, node: exp.Expr, env: Env, *, is_try: bool = False) -> Value:
    """CAST, or TRY_CAST, which gives NULL where CAST fails."""
    found = _cast(value, kind)
    e = None if found is None else expr_of(found)
    # A cast that never fails, or one of a constant that did not
    if found is not None and (not is_try or isinstance(e, Literal) or _never_fails(value, kind)):
        return found
    column = column_of(value)
    return in_spark(column.try_cast(kind) if is_try else column.cast(kind), [value], node, env)


def _never_fails(value: Value, kind: str) -> bool:
    if value.kind in INTEGERS and kind in INTEGERS:
        return INTEGERS.index(value.kind) <= INTEGERS.index(kind)
    return kind in ("string", *FLOATS) or value.kind == kind


def kind_written(to: exp.DataType) -> str:
    """The kind of a type in the text."""
    written = to.sql(dialect="spark").lower()
    name, _, rest = written.partition("(")
    if is_decimal(written):
        return f"decimal({rest.replace(' ', '')}" if "," in rest else f"decimal({rest[:-1]},0)"
    return _NAMES.get(name, written) if "<" not in written else written


def _cast(value: Value, kind: str) -> Value | None:
    """The value cast by the driver; None if only Spark can."""
    if value.kind == kind:
        return value
    e = expr_of(value)
    if e is None:
        return None
    if is_null(value):
        try:
            return constant(None, kind)
        except TypeError:  # rows cannot hold the kind
            return None
    if value.kind == "string" and isinstance(e, Literal):
        return _of_text(e.constant, kind)
    made = _converted(e, value.kind, kind)
    return None if made is None or not is_known(made) else ours(made, kind)


def _of_text(written: str, kind: str) -> Value | None:
    """A constant string as a value of a kind; None if it has an unusual form."""
    try:
        if kind == "date" and _DATE.fullmatch(written):
            return constant(dt.date.fromisoformat(written), kind)
        if kind == "timestamp_ntz" and _TIME.fullmatch(written):
            return constant(dt.datetime.fromisoformat(written), kind)
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
    if want == "timestamp" or have == "timestamp":
        return None  # it depends on the time zone
    named = _BY_FUNCTION.get((_family(have), _family(want)))
    if named is None:
        return None
    found = function_of(named, [e])
    if found is None:
        return None
    return narrowed(found, BITS[want]) if want in INTEGERS else found


def _family(kind: str) -> str:
    if kind in INTEGERS:
        return "integer"
    return "decimal" if is_decimal(kind) else kind


# The functions of `readings` that are casts
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
