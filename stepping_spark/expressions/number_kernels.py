"""Kernels of numbers: rounding, signs, powers and logarithms, days by their numbers, and lists."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from stepping_spark.expressions.arrow_kernels import as_floats, compared_floats, is_rounded, one_nan
from stepping_spark.expressions.fdlibm import exp, ln, log10, power
from stepping_spark.rows.atoms import INT, MOST_DIGITS, Atom, RowType

pc: Any = pyarrow.compute
_EXACT = Context(prec=100)


def _digits(t: RowType) -> tuple[int, int] | None:
    return (t.precision, t.scale) if isinstance(t, Atom) and t.name == "Decimal" else None


def _decimal(precision: int, scale: int) -> Atom:
    return Atom("Decimal", Decimal, min(precision, MOST_DIGITS), scale)


# Rounding


def rounded_type(t: RowType, *constants: int) -> RowType:
    """The type of `round`: a Decimal has room for the largest rounded whole part."""
    size, places = _digits(t), constants[0] if constants else 0
    if size is None:
        return t
    whole = size[0] - size[1] + 1
    if places < 0:
        return _decimal(max(whole, 1 - places), 0)
    scale = min(size[1], places)
    return _decimal(whole + scale, scale)


def are_places(*values: Any) -> bool:
    return values == () or (len(values) == 1 and type(values[0]) is int and 0 <= values[0] <= 18)


def rounded(x: Any, places: int = 0) -> Any:
    """Numbers rounded half away from zero; floats are rounded by their shortest text."""
    if pa.types.is_integer(x.type):
        return x
    unit = Decimal(1).scaleb(-places)
    if pa.types.is_decimal(x.type):
        t = rounded_type(Atom("Decimal", Decimal, x.type.precision, x.type.scale), places)
        unit = Decimal(1).scaleb(-min(places, x.type.scale))
        return _each_decimal(lambda v: v.quantize(unit, ROUND_HALF_UP, _EXACT), x, t)

    def nearest(v: float) -> float:
        if not np.isfinite(v) or abs(v) >= 2.0**53:
            return v
        return float(Decimal(repr(v)).quantize(unit, ROUND_HALF_UP, Context(prec=400))) + 0.0

    return one_nan(
        pa.array([None if v is None else nearest(v) for v in x.to_pylist()], pa.float64())
    )


def whole_type(t: RowType) -> RowType:
    """The type of `floor` and `ceil`."""
    size = _digits(t)
    if size is None:
        return INT
    return t if size[1] == 0 else _decimal(size[0] - size[1] + 1, 0)


def floor(x: Any) -> Any:
    return _to_whole_numbers(x, np.floor, ROUND_FLOOR)


def ceil(x: Any) -> Any:
    return _to_whole_numbers(x, np.ceil, ROUND_CEILING)


def _to_whole_numbers(x: Any, of_floats: Callable[[Any], Any], mode: str) -> Any:
    if pa.types.is_integer(x.type):
        return x
    if pa.types.is_decimal(x.type):
        t = whole_type(Atom("Decimal", Decimal, x.type.precision, x.type.scale))
        return _each_decimal(lambda v: v.quantize(Decimal(1), mode, _EXACT), x, t)
    numbers = of_floats(x.fill_null(0.0).to_numpy(zero_copy_only=False))
    if not np.all(np.abs(numbers) < 2.0**63):
        return None  # Spark raises an error, or takes the nearest int
    mask = x.is_null().to_numpy(zero_copy_only=False)
    return pa.array(numbers.astype(np.int64), pa.int64(), mask=mask)


def _each_decimal(f: Callable[[Decimal], Decimal], x: Any, t: RowType) -> Any:
    return pa.array([None if v is None else f(v) for v in x.to_pylist()], t.arrow)


def powers_of_e(x: Any) -> Any:
    return _each_float(exp, x)


def logarithms(x: Any) -> Any:
    """Natural logarithms; NULL for a number without one."""
    return _each_float(lambda v: None if v <= 0 else ln(v), x)


def logarithms_of_2(x: Any) -> Any:
    """Logarithms to base 2, divided as in Spark; NULL for a number without one."""
    return _each_float(lambda v: None if v <= 0 else ln(v) / _LN_2, x)


def logarithms_of_10(x: Any) -> Any:
    """Logarithms to base 10; NULL for a number without one."""
    return _each_float(lambda v: None if v <= 0 else log10(v), x)


def logarithms_of(base: Any, x: Any) -> Any:
    """Logarithms to a base; NULL if the base or the number has no logarithm."""
    with np.errstate(divide="ignore", invalid="ignore"):  # the base may be 1
        return one_nan(pc.divide(logarithms(x), logarithms(base)))


def powers(x: Any, y: Any) -> Any:
    """Numbers to the power of others."""
    pairs = zip(as_floats(x).to_pylist(), as_floats(y).to_pylist(), strict=True)
    results = [None if a is None or b is None else power(a, b) for a, b in pairs]
    return one_nan(pa.array(results, pa.float64()))


_LN_2 = ln(2.0)


def _each_float(f: Callable[[float], float | None], x: Any) -> Any:
    numbers = [None if v is None else f(v) for v in as_floats(x).to_pylist()]
    return one_nan(pa.array(numbers, pa.float64()))


def absolute(x: Any) -> Any:
    """Absolute values. Raises ArrowInvalid for the least int, whose absolute value is too large."""
    if pa.types.is_decimal(x.type) and is_rounded(pc.if_else(pc.less(pc.sign(x), 0), x, None)):
        return None
    return pc.abs_checked(x)


def sign(x: Any) -> Any:
    """The signs of numbers: 1.0, -1.0, or the number itself if it is zero or NaN."""
    floats = as_floats(x)
    signs = pc.if_else(pc.greater(floats, 0.0), 1.0, pc.if_else(pc.less(floats, 0.0), -1.0, floats))
    return one_nan(signs)


def greatest(*columns: Any) -> Any:
    """The greatest non-NULL value; the first of equal ones, such as two zeros."""
    return _extreme(">", pc.max_element_wise, columns)


def least(*columns: Any) -> Any:
    """The least non-NULL value; the first of equal ones."""
    return _extreme("<", pc.min_element_wise, columns)


def _extreme(op: str, of_others: Callable[..., Any], columns: tuple[Any, ...]) -> Any:
    t = columns[0].type
    if pa.types.is_boolean(t) or pa.types.is_duration(t) or pa.types.is_timestamp(t):
        return of_others(*(x.cast(pa.int64()) for x in columns)).cast(t)
    if not pa.types.is_floating(t):
        return of_others(*columns)
    best, *others = columns
    for x in others:
        is_next = pc.or_(pc.is_null(best), compared_floats(op, x, best).fill_null(False))
        best = pc.if_else(is_next, x, best)
    return best


def quotients(a: Any, b: Any) -> Any:
    """Ints divided, cut towards zero. Raises ArrowInvalid for a zero divisor, and for an overflow.

    The overflow is the quotient of the least int and -1.
    """
    return pc.divide_checked(a, b)


# Days


def made_date(year: Any, month: Any, day: Any) -> Any:
    """The days; None if one does not exist: then Spark raises the error."""
    rows = zip(*(c.to_pylist() for c in (year, month, day)), strict=True)
    try:
        days = [None if None in row else dt.date(*row) for row in rows]
    except (ValueError, OverflowError):
        return None
    return pa.array(days, pa.date32())


def months_later(x: Any, months: int) -> Any:
    """The days `months` later, at most the last day of a month. None beyond Python's years."""

    def moved(day: dt.date) -> dt.date:
        year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
        later = [(year, month + 1, d) for d in range(day.day, day.day - 4, -1)]
        for year, month, d in later:
            try:
                return dt.date(year, month, d)
            except ValueError:
                if not 1 <= year <= dt.MAXYEAR:
                    raise
        raise AssertionError(day)

    try:
        return pa.array([None if v is None else moved(v) for v in x.to_pylist()], pa.date32())
    except ValueError:
        return None


def is_months(*values: Any) -> bool:
    return len(values) == 1 and type(values[0]) is int and abs(values[0]) <= 120_000


# Lists


def counted(first: Any, last: Any) -> Any:
    """The lists of the ints from one to another. None for very long ones."""
    pairs = list(zip(first.to_pylist(), last.to_pylist(), strict=True))
    valid = [(a, b) for a, b in pairs if a is not None and b is not None]
    if sum(abs(b - a) for a, b in valid) > 1_000_000:
        return None
    lists = [
        None if a is None or b is None else list(range(a, b + 1) if a <= b else range(a, b - 1, -1))
        for a, b in pairs
    ]
    return pa.array(lists, pa.list_(pa.int64()))
