"""Operators on values, with Spark's meaning: their SQL, their types, and plain Python."""

from __future__ import annotations

import datetime as dt
import decimal
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stepping_spark.base.errors import CompileError, StepError
from stepping_spark.rows.atoms import (
    BOOL,
    FLOAT,
    INT,
    INT_MAX,
    INT_MIN,
    MOST_DIGITS,
    Atom,
    RowType,
)
from stepping_spark.rows.types import Optional, unwrap


def fit(value: Any, t: RowType, what: str) -> Any:
    """A Python value, as stored in a column of the type. Overflow raises an error, as in Spark."""
    t = unwrap(t)
    if value is None or not isinstance(t, Atom):
        return value
    if t == INT and not INT_MIN <= value <= INT_MAX:
        raise StepError(f"{what} = {value}: beyond 64 bits; use a Decimal field")
    if t.name == "Decimal":
        with decimal.localcontext(decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)):
            value = value.quantize(decimal.Decimal(1).scaleb(-t.scale))
            fits = abs(value) < decimal.Decimal(10) ** (t.precision - t.scale)
        if not fits:
            raise StepError(f"{what} = {value}: does not fit {t}")
    return value


@dataclass(frozen=True)
class OperatorInfo:
    """The SQL of an operator on values, and its computation in Python."""

    sql: str
    python: Callable[..., Any]
    strict: bool = True  # NULL in, NULL out


_OF_DIVISIONS = decimal.Context(prec=77, rounding=decimal.ROUND_HALF_UP)
"""The precision to which Spark rounds a quotient, before it rounds it to its type."""


def _alike(*values: Any) -> tuple[Any, ...]:
    """The numbers in the common type that Spark uses: floats, if one is a float."""
    if not any(isinstance(v, float) for v in values):
        return values
    return tuple(None if v is None else float(v) for v in values)


def _divide(a: Any, b: Any) -> Any:
    if b == 0:
        raise StepError("division by zero")
    a, b = _alike(a, b)
    if isinstance(a, decimal.Decimal) or isinstance(b, decimal.Decimal):
        return _OF_DIVISIONS.divide(decimal.Decimal(a), decimal.Decimal(b))
    return float(a) / float(b)


def _remainder(a: Any, b: Any) -> Any:
    if b == 0:
        raise StepError("division by zero")
    a, b = _alike(a, b)
    r = abs(a) % abs(b)  # Spark's remainder has the sign of the dividend
    return -r if a < 0 else r


_OF_JAVA = decimal.Context(prec=34)
"""The precision to which Spark rounds the negative of a Decimal."""


def _negative(a: Any) -> Any:
    return _OF_JAVA.minus(a) if isinstance(a, decimal.Decimal) else -a


def _exact(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(a: Any, b: Any) -> Any:
        if isinstance(a, dt.date) and not isinstance(a, dt.datetime) and isinstance(b, int):
            b = dt.timedelta(days=b)
        a, b = _alike(a, b)
        with decimal.localcontext(decimal.Context(prec=100)):
            return f(a, b)

    return apply


def _compare(f: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def order(v: Any) -> Any:
        return (v != v, 0.0 if v != v else v) if isinstance(v, float) else v

    def apply(a: Any, b: Any) -> bool:
        if isinstance(a, float) or isinstance(b, float):  # NaN equals itself and is the largest
            a, b = order(float(a)), order(float(b))
        return f(a, b)

    return apply


def _and(a: Any, b: Any) -> Any:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _either(a: Any, b: Any) -> Any:
    if a is True or b is True:
        return True
    return None if a is None or b is None else False


def _null_safe(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return _compare(operator.eq)(a, b)


def _is_in(a: Any, *options: Any) -> Any:
    if a is None:
        return None
    a, *options_alike = _alike(a, *options)
    if any(o is not None and _compare(operator.eq)(a, o) for o in options_alike):
        return True
    return None if None in options else False


def _minute(a: dt.datetime) -> int:
    return (a - dt.datetime(1970, 1, 1, tzinfo=a.tzinfo and dt.UTC)) // dt.timedelta(minutes=1)


def _day_over(day: dt.date) -> dt.datetime:
    """An instant at which the day is over in every time zone."""
    midnight = dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC)
    return min(midnight, dt.datetime(9999, 12, 30, tzinfo=dt.UTC)) + dt.timedelta(hours=42)


OPERATORS: dict[str, OperatorInfo] = {
    "+": OperatorInfo("{0} + {1}", _exact(operator.add)),
    "-": OperatorInfo("{0} - {1}", _exact(operator.sub)),
    "*": OperatorInfo("{0} * {1}", _exact(operator.mul)),
    "/": OperatorInfo("{0} / {1}", _divide),
    "%": OperatorInfo("{0} % {1}", _remainder),
    "neg": OperatorInfo("- {0}", _negative),
    "==": OperatorInfo("{0} = {1}", _compare(operator.eq)),
    "!=": OperatorInfo("{0} != {1}", _compare(operator.ne)),
    "<": OperatorInfo("{0} < {1}", _compare(operator.lt)),
    "<=": OperatorInfo("{0} <= {1}", _compare(operator.le)),
    ">": OperatorInfo("{0} > {1}", _compare(operator.gt)),
    ">=": OperatorInfo("{0} >= {1}", _compare(operator.ge)),
    "&": OperatorInfo("{0} AND {1}", _and, strict=False),
    "|": OperatorInfo("{0} OR {1}", _either, strict=False),
    "~": OperatorInfo("NOT {0}", operator.not_),
    "isNull": OperatorInfo("{0} IS NULL", lambda a: a is None, strict=False),
    "isNotNull": OperatorInfo("{0} IS NOT NULL", lambda a: a is not None, strict=False),
    "eqNullSafe": OperatorInfo("{0} <=> {1}", _null_safe, strict=False),
    "isin": OperatorInfo("{0} IN ({rest})", _is_in, strict=False),
    "coalesce": OperatorInfo("coalesce({0}, {1})", lambda a, b: b if a is None else a, False),
    # Exact whole minutes since 1970. A local time must not be converted in the session's zone.
    "minute": OperatorInfo(
        "(unix_micros({0}) - pmod(unix_micros({0}), 60000000L)) DIV 60000000L", _minute
    ),
    "local_minute": OperatorInfo(
        "unix_date(CAST({0} AS DATE)) * 1440L + hour({0}) * 60L + minute({0})", _minute
    ),
    "day_over": OperatorInfo(
        "timestamp_micros((unix_date({0}) * 24L + 42L) * 3600000000L)", _day_over
    ),
    "known": OperatorInfo("{0}", lambda a: a),  # a value that is already known not to be NULL
    "to_int": OperatorInfo("CAST({0} AS {type})", int),
    "to_float": OperatorInfo("CAST({0} AS {type})", float),
    "to_decimal": OperatorInfo("CAST({0} AS {type})", decimal.Decimal),
}


def result_type(op: str, types: tuple[RowType, ...], where: str) -> RowType:
    """The type of an operator's value. Raises CompileError if Spark has no such operator."""
    bare = tuple(unwrap(t) for t in types)
    if op in ("isNull", "isNotNull", "eqNullSafe"):
        return BOOL
    nullable = any(isinstance(t, Optional) for t in types)
    t = _bare_result(op, bare, where)
    return Optional(t) if nullable else t


def _bare_result(op: str, types: tuple[RowType, ...], where: str) -> RowType:
    if op in ("==", "!=", "<", "<=", ">", ">=", "isin"):
        if all(_comparable(types[0], t) for t in types[1:]):
            return BOOL
    elif op in ("&", "|", "~"):
        if all(t == BOOL for t in types):
            return BOOL
    elif op == "neg":
        if rank(types[0]) or str(types[0]) == "timedelta":
            return types[0]
    elif all(rank(t) for t in types):
        return _arithmetic(op, types[0], types[1])
    else:
        names = (op, *(str(t) for t in types))
        if names in _CALENDAR:
            return types[_CALENDAR[names]] if _CALENDAR[names] < 2 else _timedelta()
    shown = " and ".join(str(t) for t in types)
    raise CompileError(f"{where}: Spark has no {op!r} of {shown}; {_remedy(op, types)}")


def _remedy(op: str, types: tuple[RowType, ...]) -> str:
    """What to write instead of an operator that values of these types do not have."""
    if op in ("&", "|", "~"):
        example = "~(a.x == 1)" if op == "~" else f"(a.x > 1) {op} (a.y < 2)"
        return (
            f"Python reads {op} before a comparison: put each comparison in parentheses, "
            f"{example}; the bits of ints are .bitwiseAND, .bitwiseOR and F.bitwise_not"
        )
    names = {"number" if rank(t) else str(t) for t in types}
    if op == "+" and "str" in names:
        return "use F.concat"
    return _CONVERSIONS.get(frozenset(names), "cast one side, or use st.python")


_INTERVAL = "use dt.timedelta(days=1), or F.make_dt_interval(…), which makes one of ints"

# Remedies by the types of the two values; a number is an int, a float or a Decimal.
_CONVERSIONS: dict[frozenset[str], str] = {
    frozenset({"datetime", "LocalDateTime"}): "a datetime has a time zone, and a LocalDateTime has "
    "none: write a constant with or without tzinfo=dt.UTC, or .cast('timestamp_ntz') of a datetime",
    frozenset({"datetime", "date"}): "F.to_date(…) makes a date of a datetime, and "
    ".cast('timestamp') a datetime of a date",
    frozenset({"LocalDateTime", "date"}): "F.to_date(…) makes a date of a LocalDateTime, and "
    ".cast('timestamp_ntz') a LocalDateTime of a date",
    frozenset({"str", "number"}): "write a constant with or without quotes, or .cast('bigint') "
    "of a text",
    frozenset({"str", "date"}): "write a constant as dt.date(2024, 12, 31), or .cast('date') of a "
    "text",
    frozenset({"str", "datetime"}): "write a constant as dt.datetime(2024, 12, 31, "
    "tzinfo=dt.UTC), or .cast('timestamp') of a text",
    frozenset({"str", "LocalDateTime"}): "write a constant as dt.datetime(2024, 12, 31), or "
    ".cast('timestamp_ntz') of a text",
    frozenset({"timedelta", "number"}): _INTERVAL,
    frozenset({"datetime", "number"}): _INTERVAL,
    frozenset({"LocalDateTime", "number"}): _INTERVAL,
    frozenset({"bool", "number"}): ".cast('bigint') makes 1 or 0 of a bool",
}


# The index of the argument whose type the result has; 2: the result is a timedelta.
_CALENDAR: dict[tuple[str, ...], int] = {
    ("+", "date", "int"): 0,
    ("-", "date", "int"): 0,
    ("-", "date", "date"): 2,
    ("-", "datetime", "datetime"): 2,
    ("-", "LocalDateTime", "LocalDateTime"): 2,
    ("+", "datetime", "timedelta"): 0,
    ("-", "datetime", "timedelta"): 0,
    ("+", "LocalDateTime", "timedelta"): 0,
    ("-", "LocalDateTime", "timedelta"): 0,
    ("+", "timedelta", "timedelta"): 0,
    ("-", "timedelta", "timedelta"): 0,
}


def _timedelta() -> RowType:
    return Atom("timedelta", dt.timedelta)


def rank(t: RowType) -> int:
    """The width of a number's type, for comparison; 0 if it is not a number."""
    return {"int": 1, "Decimal": 2, "float": 3}.get(t.name, 0) if isinstance(t, Atom) else 0


def _comparable(a: RowType, b: RowType) -> bool:
    return a == b or bool(rank(a) and rank(b))


def _arithmetic(op: str, a: RowType, b: RowType) -> RowType:
    widest = max(rank(a), rank(b))
    if widest == 3 or (op == "/" and widest == 1):
        return FLOAT
    if widest == 1:
        return INT
    p, s = digits_of_result(op, a, b)
    if p > MOST_DIGITS:
        p, s = MOST_DIGITS, max(MOST_DIGITS - (p - s), min(s, 6))
    return Atom("Decimal", decimal.Decimal, p, s)


def digits_of_result(op: str, a: RowType, b: RowType) -> tuple[int, int]:
    """The digits that hold any result of an operator. If a Decimal has fewer, Spark rounds."""
    (p1, s1), (p2, s2) = digits(a), digits(b)
    match op:
        case "+" | "-":
            s = max(s1, s2)
            return max(p1 - s1, p2 - s2) + s + 1, s
        case "*":
            return p1 + p2 + 1, s1 + s2
        case "/":
            s = max(6, s1 + p2 + 1)
            return p1 - s1 + s2 + s, s
        case _:
            s = max(s1, s2)
            return min(p1 - s1, p2 - s2) + s, s


def digits(t: RowType) -> tuple[int, int]:
    """The number of digits of a number, and of its digits after the point."""
    assert isinstance(t, Atom)
    return (20, 0) if t.name == "int" else (t.precision, t.scale)
