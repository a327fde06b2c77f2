"""`exp` and `ln` bit for bit as Java's StrictMath, which Spark calls: as fdlibm computes them.

The processor's own functions differ from it in the last bit, and from one another.

After e_exp.c and e_log.c of fdlibm 5.3: Copyright (C) 2004 by Sun Microsystems, Inc. All rights
reserved. Permission to use, copy, modify, and distribute this software is freely granted, provided
that this notice is preserved.
"""

from __future__ import annotations

import math
import struct

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
    found: int = struct.unpack(">i", struct.pack(">d", x)[:4])[0]
    return found


def _with_high(x: float, high: int) -> float:
    low = struct.pack(">d", x)[4:]
    found: float = struct.unpack(">d", struct.pack(">i", high) + low)[0]
    return found


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
