"""Values of SQL: columns with their Spark types, literals, and folded constants.

A value is *ours* if the driver can compute it. Otherwise it is a Column of PySpark. Our ints and
floats have 64 bits, so a value is cast to its kind when it becomes a Column.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn, Protocol

from sqlglot import exp

from stepping_spark.base.errors import StepError
from stepping_spark.base.packages import Column, functions, raised
from stepping_spark.expressions.arrow_kernels import is_known
from stepping_spark.expressions.coercion import coerce
from stepping_spark.expressions.columns import ROW, TEXTS, ExprColumn, opaque, to_column
from stepping_spark.expressions.expr import Expr, Literal
from stepping_spark.expressions.spark_to_arrow import reading_of
from stepping_spark.expressions.symbolic import symbolic
from stepping_spark.expressions.text_kernels import day_of_text
from stepping_spark.rows.atoms import BOOL, DATE, INT, LONGEST, MOST_DIGITS, STR, Atom
from stepping_spark.rows.sql_text import text
from stepping_spark.rows.types import ListOf, Optional, unwrap
from stepping_spark.spark.column_made import in_running_session
from stepping_spark.spark.column_tree import as_trees, tree_of
from stepping_spark.spark.session import first_line, get_session, raised_by_java
from stepping_spark.spark.types import kind_in_spark
from stepping_spark.sql.kinds import (
    decimal_kind,
    is_decimal,
    is_months,
    kind_of,
    of_open_class,
    row_type_of,
)


@dataclass(frozen=True)
class SqlValue:
    """A column with its kind: Spark's simple type string, `void` for NULL.

    A kind is "" if it is unknown: within the lambda of a higher-order function.
    """

    column: Any
    kind: str
    digits: int = 0
    """The digits of an integer literal: its precision beside a decimal."""


class Env(Protocol):
    """The environment of a scalar: the columns that it may name, and the text for errors."""

    def column(self, node: exp.Column) -> SqlValue:
        """The value of a column. The tree is bound already."""

    def fail(self, node: exp.Expr, reason: str, remedy: str = "") -> NoReturn:
        """Raise the error for a node."""


def ours(e: Expr, kind: str, digits: int = 0) -> SqlValue:
    """An expression as a value."""
    return SqlValue(symbolic(e), kind, digits)


def constant(value: Any, kind: str, digits: int = 0) -> SqlValue:
    """A constant as a value."""
    return ours(Literal(row_type_of(kind, nullable=value is None), value), kind, digits)


def null() -> SqlValue:
    """NULL without a type."""
    return ours(Literal(Optional(STR), None), "void")


def expr_of(v: SqlValue) -> Expr | None:
    """The expression of a value that the driver can compute; None for other values."""
    if not isinstance(v.column, ExprColumn):
        return None
    e: Expr = v.column.__expr__
    return e if is_known(e) else None


def exprs_of(*values: SqlValue) -> list[Expr] | None:
    """The expressions of values that the driver can compute; None if it cannot compute all."""
    exprs = [expr_of(v) for v in values]
    computable = [e for e in exprs if e is not None]
    return computable if len(computable) == len(exprs) else None


def constant_of(v: SqlValue) -> Any:
    """The constant of a value; None for NULL and for other values."""
    e = expr_of(v)
    return e.constant if isinstance(e, Literal) else None


def is_null(v: SqlValue) -> bool:
    """Whether a value is the constant NULL, of any kind."""
    e = expr_of(v)
    return isinstance(e, Literal) and e.constant is None


def column_of(v: SqlValue) -> Column:
    """The value as a Column of PySpark, with the Spark type of its kind."""
    if not isinstance(v.column, ExprColumn):
        column: Column = v.column
        return column
    e: Expr = v.column.__expr__
    if v.kind == "void":
        return functions.lit(None)
    if isinstance(e, Literal):
        return _literal(e, v.kind)
    column = to_column(e)
    return column if v.kind == kind_of(e.type) else column.cast(v.kind)


def _literal(e: Literal, kind: str) -> Column:
    """A constant as a literal of Spark, which some functions require."""
    if e.constant is None:
        return functions.lit(None).cast(kind)
    if is_months(kind):
        return functions.expr(f"INTERVAL '{e.constant}' MONTH").cast(kind)
    if kind in ("int", "string", "boolean"):
        return functions.lit(e.constant)
    column = to_column(e)
    return column if kind == kind_of(e.type) else column.cast(kind)


def in_spark(column: Column, args: list[SqlValue], node: exp.Expr, env: Env) -> SqlValue:
    """A Column that only Spark can compute, with the kind from Spark's analyzer.

    Within a lambda the variables have no type yet, so Spark cannot analyze it.
    """
    if any(a.kind == "" for a in args):
        return SqlValue(column, "")
    reading = reading_of(tree_of(column), TEXTS.get() or {})
    if reading is not None and unwrap(reading.type) in _OF_ONE_KIND:
        return ours(reading, kind_of(reading.type))
    kind = kind_by_spark(column, node, env)
    if kind == "void":  # rows have no type for NULL alone
        return SqlValue(column.cast("string"), kind)
    if "struct<" in kind and _is_held(kind):
        return SqlValue(symbolic(_with_open_classes(column, node, env)), kind)
    return SqlValue(column, kind)


_OF_ONE_KIND = (STR, ListOf(STR), ListOf(Optional(STR)), BOOL, DATE)
"""Types with a single kind; an int, for example, may have fewer bits in Spark."""


def _is_held(kind: str) -> bool:
    """Whether rows can hold values of a kind."""
    try:
        row_type_of(kind, nullable=True)
    except TypeError:
        return False
    return True


def _with_open_classes(column: Column, node: exp.Expr, env: Env) -> Expr:
    """A Column whose Spark structs are rows without a class of their own."""
    e = opaque(column)
    t = of_open_class(e.type)
    if "struct<" in str(t):
        names = "its names have to be letters, digits and _, and differ in more than their case"
        env.fail(node, f"a row cannot hold {t}", f"name the fields with AS: {names}")
    return coerce(e, t, "sql")


def kind_by_spark(column: Column, node: exp.Expr, env: Env) -> str:
    """The kind of a Column, from Spark's analyzer."""
    try:
        return kind_in_spark(column, ROW.get())
    except (raised.PySparkException, raised_by_java.Py4JJavaError) as e:
        remedy = ""
        if "UNRESOLVED_ROUTINE" in str(e):
            remedy = "look for it in the list of Spark's functions, or use st.map with st.python"
        env.fail(node, f"Spark refuses this: {first_line(e)}", remedy)


_INTEGER = re.compile(r"\d+")
_DECIMAL = re.compile(r"\d+\.\d*|\.\d+")
_WHOLE = re.compile(r"[+-]?\d{1,9}")
_UNITS = {
    "week": ("day", dt.timedelta(weeks=1)),
    "day": ("day", dt.timedelta(days=1)),
    "hour": ("hour", dt.timedelta(hours=1)),
    "minute": ("minute", dt.timedelta(minutes=1)),
    "second": ("second", dt.timedelta(seconds=1)),
    "millisecond": ("second", dt.timedelta(milliseconds=1)),
    "microsecond": ("second", dt.timedelta(microseconds=1)),
}
_MONTHS = {"month": 1, "year": 12}


_SPECIAL = ("now", "today", "tomorrow", "yesterday")
_EXAMPLES = {
    "date": "2024-02-29",
    "timestamp": "2024-02-29 10:30:00",
    "timestamp_ltz": "2024-02-29 10:30:00",
    "timestamp_ntz": "2024-02-29 10:30:00",
}


def refuse_special(content: object, node: exp.Expr, env: Env) -> None:
    """Raise an error for a text that means another date or time at each step."""
    if isinstance(content, str) and content.strip().lower() in _SPECIAL:
        remedy = "compare a column with current_date or current_timestamp() in WHERE"
        env.fail(node, f"{content!r} differs from step to step", remedy)


def typed_literal(written: exp.Literal, kind: str, node: exp.Expr, env: Env) -> SqlValue:
    """`DATE '2024-02-29'` and other typed literals, by Spark's rules."""
    content = str(written.this)
    if kind == "time":
        env.fail(node, "rows cannot hold a TIME", "use a TIMESTAMP, or a STRING")
    if kind not in _EXAMPLES:
        remedy = f"write CAST({text(content)} AS {kind.upper()})"
        env.fail(node, f"Spark has no literals of type {kind.upper()}", remedy)
    refuse_special(content, node, env)
    day = day_of_text(content) if kind == "date" else None
    if day is not None:
        return constant(day, kind)
    column = functions.expr(f"{kind.upper()} {text(content)}")
    try:
        column_kind = kind_in_spark(column, ROW.get())
    except (raised.PySparkException, raised_by_java.Py4JJavaError):
        remedy = f"write it like {kind.upper()} '{_EXAMPLES[kind]}'"
        env.fail(node, f"{content!r} is no {kind.upper()}", remedy)
    return SqlValue(column, column_kind)


def literal(node: exp.Literal, env: Env) -> SqlValue:
    """A string or a number without suffix."""
    if node.is_string:
        return constant(str(node.this), "string")
    return number(str(node.this), node, env)


def number(written: str, node: exp.Expr, env: Env) -> SqlValue:
    """A number, with its sign, by Spark's rules: int, bigint, decimal or double."""
    digits = written.removeprefix("-")
    if _INTEGER.fullmatch(digits):
        value = int(written)
        for kind, bits in (("int", 32), ("bigint", 64)):
            if -(1 << (bits - 1)) <= value < 1 << (bits - 1):
                return constant(value, kind, len(str(abs(value))))
    elif not _DECIMAL.fullmatch(digits):
        if math.isinf(float(written)):
            env.fail(node, f"{written} is greater than all DOUBLEs", "write 'Infinity'::DOUBLE")
        return constant(float(written), "double")
    return _exact(written, node, env)


def _exact(written: str, node: exp.Expr, env: Env) -> SqlValue:
    """A number as a decimal with its own digits."""
    exact = Decimal(written)
    _, digits, exponent = exact.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale)
    if precision > MOST_DIGITS:
        env.fail(
            node,
            f"{written} has {precision} digits, and Spark's decimals have up to {MOST_DIGITS}",
            "write it with an exponent (1e0) for a double, or round it",
        )
    return constant(exact, decimal_kind(precision, scale))


def suffixed(written: str, value: SqlValue, digits: int, node: exp.Expr, env: Env) -> SqlValue:
    """A number with a suffix for its type: `3L`, `1.5BD`. `value` is its cast."""
    if is_decimal(value.kind):
        return _exact(f"{Decimal(written):f}", node, env)
    figure = constant_of(folded_in_spark(value))
    if figure is None or (isinstance(figure, float) and math.isinf(figure)):
        remedy = "write a number that is nearer to 0"
        env.fail(node, f"{written} is out of the range of {value.kind.upper()}", remedy)
    return SqlValue(value.column, value.kind, digits)


def joined_strings(node: exp.Concat, env: Env) -> SqlValue:
    """Adjacent strings: `'a' 'b'` is `'ab'`."""
    return constant("".join(str(part.this) for part in node.expressions), "string")


def boolean(node: exp.Boolean, env: Env) -> SqlValue:
    """TRUE or FALSE."""
    return constant(bool(node.this), "boolean")


def of_null(node: exp.Null, env: Env) -> SqlValue:
    """NULL."""
    return null()


def raw_string(node: exp.RawString, env: Env) -> SqlValue:
    """A string in which a backslash is a character: `r'\\d'`."""
    return constant(str(node.this), "string")


def hexadecimal(node: exp.HexString, env: Env) -> SqlValue:
    """Bytes: `X'1F'`."""
    digits = str(node.this)
    return constant(bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2)), "binary")


def interval(node: exp.Interval, env: Env) -> SqlValue:
    """`INTERVAL '90' DAY`, with one unit, with two (`'1-2' YEAR TO MONTH`), or all in the text."""
    amount, unit = node.this, node.args.get("unit")
    written = _amount(amount)
    if written is None:
        env.fail(
            node,
            "the number of an INTERVAL is a constant in Spark",
            "write n * INTERVAL '1' DAY, or make_dt_interval(n)",
        )
    if isinstance(unit, exp.Var) and _WHOLE.fullmatch(written):
        value = one_unit(int(written), unit.name.lower().removesuffix("s"))
        if value is not None:
            return value
    units = "" if unit is None else f" {unit.sql(dialect='spark')}"
    return in_spark(functions.expr(f"INTERVAL {text(written)}{units}"), [], node, env)


def _amount(node: exp.Expr | None) -> str | None:
    """The text of a constant number or string."""
    if isinstance(node, exp.Paren):
        return _amount(node.this)
    if isinstance(node, exp.Neg):
        inner = _amount(node.this)
        return None if inner is None else f"-{inner}"
    return str(node.this) if isinstance(node, exp.Literal) else None


def one_unit(n: int, unit: str) -> SqlValue | None:
    """The interval of `n` units; None for an unknown unit, or for too many units."""
    if unit in _MONTHS:
        return ours(Literal(INT, n * _MONTHS[unit]), f"interval {unit}")
    if unit not in _UNITS:
        return None
    kind, single = _UNITS[unit]
    span = single * n
    return constant(span, f"interval {kind}") if abs(span) <= LONGEST else None


def varying(node: exp.Expr) -> set[int]:
    """The `id`s of the nodes that are not constant.

    They contain a column, or are part of a lambda.
    """
    identities: set[int] = set()
    for part in node.find_all(exp.Column, exp.Placeholder):
        above: exp.Expr | None = part
        while above is not None and id(above) not in identities:
            identities.add(id(above))
            above = None if above is node else above.parent
    inner = (part for lambda_node in node.find_all(exp.Lambda) for part in lambda_node.walk())
    return identities | {id(part) for part in inner}


def folded(v: SqlValue) -> SqlValue:
    """A value without columns as a constant, if the driver can compute it.

    A constant that fails, such as `1 / 0`, stays unchanged: Spark raises the error for a row.
    """
    e = expr_of(v)
    if e is None or isinstance(e, Literal):
        return v
    try:
        value = e.value(None)
    except (StepError, ArithmeticError, ValueError):
        return v
    return ours(Literal(e.type, value), v.kind)


def folded_in_spark(v: SqlValue) -> SqlValue:
    """A value without columns that only Spark can compute, as a constant."""
    if isinstance(v.column, ExprColumn) or v.kind == "":
        return v
    try:
        t = row_type_of(v.kind, nullable=True)
        encoded = _computed(v.column.cast(t.ddl))
    except (TypeError, raised.PySparkException, raised_by_java.Py4JJavaError):
        return v
    if not isinstance(row_type_of(v.kind, nullable=False), Atom):
        return v
    return constant(t.decode(encoded), v.kind)


def _computed(column: Column) -> object:
    frame, resolved = get_session().sql("SELECT 1"), in_running_session(column)
    with as_trees(wanted=False):
        # An aggregate or a random value is no constant.
        _ = frame.agg(functions.count(resolved)).schema
        return frame.select(resolved.alias("value")).toArrow().column(0)[0].as_py()
