"""Kernels of numbers: rounding, signs, and the functions that Java computes as fdlibm does.

`exp` and `ln` are bit for bit those of Java's StrictMath, which Spark calls. The processor's own
functions differ from it in the last bit, and from one another.

`exp` and `ln` are after e_exp.c and e_log.c of fdlibm 5.3: Copyright (C) 2004 by Sun Microsystems,
Inc. All rights reserved. Permission to use, copy, modify, and distribute this software is freely
granted, provided that this notice is preserved.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from stepping_spark.expressions.arrow_kernels import as_floats, one_nan
from stepping_spark.rows.atoms import INT, MOST_DIGITS, Atom, RowType

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_PER_LN2 = 1.44269504088896338700e00
_MOST, _LEAST = 7.09782712893383973096e02, -7.45133219101941108420e02
_P = (
    1.66666666666666019037e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)
_LG = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)


def _high(x: float) -> int:
    """The upper half of the bits."""
    half: int = struct.unpack(">i", struct.pack(">d", x)[:4])[0]
    return half


def _with_high(x: float, high: int) -> float:
    low = struct.pack(">d", x)[4:]
    number: float = struct.unpack(">d", struct.pack(">i", high) + low)[0]
    return number


def exp(x: float) -> float:
    """e to the power of x."""
    if x != x or x == math.inf or x > _MOST:
        return math.inf if x > 0 else x
    if x < _LEAST:
        return 0.0
    size, k, high, low = _high(x) & 0x7FFFFFFF, 0, 0.0, 0.0
    if size > 0x3FD62E42:  # more than half of ln 2
        sign = -1.0 if x < 0 else 1.0
        if size < 0x3FF0A2B2:
            k, high, low = int(sign), x - sign * _LN2_HIGH, sign * _LN2_LOW
        else:
            k = int(_PER_LN2 * x + sign * 0.5)
            high, low = x - k * _LN2_HIGH, k * _LN2_LOW
        x = high - low
    elif size < 0x3E300000:
        return 1.0 + x
    t = x * x
    c = x - t * (_P[0] + t * (_P[1] + t * (_P[2] + t * (_P[3] + t * _P[4]))))
    if k == 0:
        return 1.0 - ((x * c) / (c - 2.0) - x)
    y = 1.0 - ((low - (x * c) / (2.0 - c)) - high)
    if k >= -1021:
        return _with_high(y, _high(y) + (k << 20))
    return _with_high(y, _high(y) + ((k + 1000) << 20)) * 2.0**-1000


def ln(x: float) -> float:
    """The natural logarithm of a number that is more than zero, or is NaN."""
    high, k = _high(x), 0
    if high < 0x00100000:  # tiny
        k, x = -54, x * 2.0**54
        high = _high(x)
    if high >= 0x7FF00000:
        return x
    k += (high >> 20) - 1023
    high &= 0x000FFFFF
    i = (high + 0x95F64) & 0x100000
    x = _with_high(x, high | (i ^ 0x3FF00000))
    k += i >> 20
    f = x - 1.0
    if (0x000FFFFF & (2 + high)) < 3:  # near 1
        if f == 0.0:
            return k * _LN2_HIGH + k * _LN2_LOW if k else 0.0
        r = f * f * (0.5 - 0.33333333333333333 * f)
        return k * _LN2_HIGH - ((r - k * _LN2_LOW) - f) if k else f - r
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = w * (_LG[1] + w * (_LG[3] + w * _LG[5]))
    even = z * (_LG[0] + w * (_LG[2] + w * (_LG[4] + w * _LG[6])))
    r = even + odd
    if (high - 0x6147A) | (0x6B851 - high) > 0:
        half = 0.5 * f * f
        if k == 0:
            return f - (half - s * (half + r))
        return k * _LN2_HIGH - ((half - (s * (half + r) + k * _LN2_LOW)) - f)
    if k == 0:
        return f - s * (f - r)
    return k * _LN2_HIGH - ((s * (f - r) - k * _LN2_LOW) - f)


pc: Any = pyarrow.compute
_EXACT = Context(prec=100)


def _digits(t: RowType) -> tuple[int, int] | None:
    return (t.precision, t.scale) if isinstance(t, Atom) and t.name == "Decimal" else None


def _decimal(precision: int, scale: int) -> Atom:
    return Atom("Decimal", Decimal, min(precision, MOST_DIGITS), scale)


# Rounding


def rounded_type(t: RowType, *constants: int) -> RowType:
    """The type of `round`: a Decimal has as many digits as its whole part may get."""
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
    """Rounded half away from zero, of the shortest text that a float has."""
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
    return _whole(x, np.floor, ROUND_FLOOR)


def ceil(x: Any) -> Any:
    return _whole(x, np.ceil, ROUND_CEILING)


def _whole(x: Any, of_floats: Callable[[Any], Any], mode: str) -> Any:
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
    """Natural logarithms; NULL of what has none."""
    return _each_float(lambda v: None if v <= 0 else ln(v), x)


def _each_float(f: Callable[[float], float | None], x: Any) -> Any:
    numbers = [None if v is None else f(v) for v in as_floats(x).to_pylist()]
    return one_nan(pa.array(numbers, pa.float64()))


def sign(x: Any) -> Any:
    """1.0, -1.0, or the zero or NaN that a number is."""
    floats = as_floats(x)
    signs = pc.if_else(pc.greater(floats, 0.0), 1.0, pc.if_else(pc.less(floats, 0.0), -1.0, floats))
    return one_nan(signs)


# Days


def made_date(year: Any, month: Any, day: Any) -> Any:
    """The days; None where one does not exist: Spark raises the error."""
    rows = zip(*(c.to_pylist() for c in (year, month, day)), strict=True)
    try:
        days = [None if None in row else dt.date(*row) for row in rows]
    except (ValueError, OverflowError):
        return None
    return pa.array(days, pa.date32())


def months_later(x: Any, months: int) -> Any:
    """The days so many months later, or the last of the month. None beyond the years of Python."""

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
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    if sum(abs(b - a) for a, b in known) > 1_000_000:
        return None
    lists = [
        None if a is None or b is None else list(range(a, b + 1) if a <= b else range(a, b - 1, -1))
        for a, b in pairs
    ]
    return pa.array(lists, pa.list_(pa.int64()))
