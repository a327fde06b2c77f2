"""Literals of SQL, typed as Spark types them."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

from sqlglot import exp

from stepping_spark.expressions.expr import Literal
from stepping_spark.from_sql.kinds import decimal_kind
from stepping_spark.from_sql.values import Env, Value, constant, in_spark, null, ours
from stepping_spark.packages import functions
from stepping_spark.rows.atoms import INT, LONGEST, MOST_DIGITS
from stepping_spark.rows.literals import text

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


def literal(node: exp.Literal, env: Env) -> Value:
    """A string or a number without suffix."""
    if node.is_string:
        return constant(str(node.this), "string")
    return number(str(node.this), node, env)


def number(written: str, node: exp.Expr, env: Env) -> Value:
    """A number, with its sign, by Spark's rules: int, bigint, decimal or double."""
    digits = written.removeprefix("-")
    if _INTEGER.fullmatch(digits):
        value = int(written)
        for kind, bits in (("int", 32), ("bigint", 64)):
            if -(1 << (bits - 1)) <= value < 1 << (bits - 1):
                return constant(value, kind, len(str(abs(value))))
    elif not _DECIMAL.fullmatch(digits):
        return constant(float(written), "double")
    exact = Decimal(written)
    _, shown, exponent = exact.as_tuple()
    scale = -int(exponent)
    precision = max(len(shown), scale)
    if precision > MOST_DIGITS:
        env.fail(
            node,
            f"{written} has {precision} digits, and Spark's decimals have up to {MOST_DIGITS}",
            "write it with an exponent (1e0) for a double, or round it",
        )
    return constant(exact, decimal_kind(precision, scale))


def joined_strings(node: exp.Concat, env: Env) -> Value:
    """Adjacent strings: `'a' 'b'` is `'ab'`."""
    return constant("".join(str(part.this) for part in node.expressions), "string")


def boolean(node: exp.Boolean, env: Env) -> Value:
    """TRUE or FALSE."""
    return constant(bool(node.this), "boolean")


def of_null(node: exp.Null, env: Env) -> Value:
    """NULL."""
    return null()


def raw_string(node: exp.RawString, env: Env) -> Value:
    """A string in which a backslash is a character: `r'\\d'`."""
    return constant(str(node.this), "string")


def hexadecimal(node: exp.HexString, env: Env) -> Value:
    """Bytes: `X'1F'`."""
    digits = str(node.this)
    return constant(bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2)), "binary")


def interval(node: exp.Interval, env: Env) -> Value:
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
        made = _one_unit(int(written), unit.name.lower().removesuffix("s"))
        if made is not None:
            return made
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


def _one_unit(n: int, unit: str) -> Value | None:
    if unit in _MONTHS:
        return ours(Literal(INT, n * _MONTHS[unit]), f"interval {unit}")
    if unit not in _UNITS:
        return None
    kind, one = _UNITS[unit]
    span = one * n
    return constant(span, f"interval {kind}") if abs(span) <= LONGEST else None
