"""Powers and logarithms by fdlibm's algorithms, as in Java.

The results equal those of Java's StrictMath, which Spark calls, bit for bit. The functions of
processors differ from it, and from one another, in the last bit.

They follow e_exp.c, e_log.c, e_log10.c and e_pow.c of fdlibm 5.3: Copyright (C) 2004 by Sun
Microsystems, Inc. All rights reserved. Permission to use, copy, modify, and distribute this
software is freely granted, provided that this notice is preserved.
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


def _scaled(x: float) -> tuple[float, int, int]:
    """A number that is not tiny, of the same digits; the upper half of its bits; the exponent."""
    k = 0
    if _high(x) < 0x00100000:  # tiny
        k, x = -54, x * 2.0**54
    high = _high(x)
    return x, high, k + (high >> 20) - 1023


def ln(x: float) -> float:
    """The natural logarithm of a number that is more than zero, or is NaN."""
    x, high, k = _scaled(x)
    if high >= 0x7FF00000:
        return x
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


_PER_LN10 = 4.34294481903251816668e-01
_LOG10_2_HIGH, _LOG10_2_LOW = 3.01029995663611771306e-01, 3.69423907715893078616e-13


def log10(x: float) -> float:
    """The logarithm to base 10 of a number that is more than zero, or is NaN."""
    x, high, k = _scaled(x)
    if high >= 0x7FF00000:
        return x
    below_one = int(k < 0)
    x = _with_high(x, (high & 0x000FFFFF) | ((0x3FF - below_one) << 20))
    y = float(k + below_one)
    return (y * _LOG10_2_LOW + _PER_LN10 * ln(x)) + y * _LOG10_2_HIGH


# Powers

_HUGE = float.fromhex("0x1.00000ffffffffp31")
_NEAR_ONE = (float.fromhex("0x1.fffffp-1"), float.fromhex("0x1.00000ffffffffp0"))
_1_LN2 = (1.44269504088896338700e00, 1.44269502162933349609e00, 1.92596299112661746887e-08)
_CP = (9.61796693925975554329e-01, 9.61796700954437255859e-01, -7.02846165095275826516e-09)
_LN2 = (6.93147180559945286227e-01, 6.93147182464599609375e-01, -1.90465429995776804525e-09)
"""A number, its first digits, and the rest: 1 / ln 2, 2 / (3 ln 2), and ln 2."""
_BP, _DP_HIGH, _DP_LOW = (
    (1.0, 1.5),
    (0.0, 5.84962487220764160156e-01),
    (0.0, 1.35003920212974897128e-08),
)
_L = (
    5.99999999999994648725e-01,
    4.28571428578550184252e-01,
    3.33333329818377432918e-01,
    2.72728123808534006489e-01,
    2.30660745775561754067e-01,
    2.06975017800338417784e-01,
)
_OVER = 8.0085662595372944372e-0017


def _low(x: float) -> int:
    """The lower half of the bits."""
    half: int = struct.unpack(">I", struct.pack(">d", x)[4:])[0]
    return half


def _cut(x: float) -> float:
    """The number with zeros in the lower half of its bits."""
    number: float = struct.unpack(">d", struct.pack(">d", x)[:4] + b"\0\0\0\0")[0]
    return number


def power(x: float, y: float) -> float:
    """A number to the power of another."""
    special = _special_power(x, y)
    if special is not None:
        return special
    sign = -1.0 if x < 0 and y % 2 == 1 else 1.0
    size = abs(x)
    if abs(y) > _HUGE:
        less, more = _NEAR_ONE
        if size < less:
            return sign * (math.inf if y < 0 else 0.0)
        if size > more:
            return sign * (math.inf if y > 0 else 0.0)
        high, low = _log2_near_one(size)
    else:
        high, low = _log2(size)
    cut = _cut(y)
    return sign * _two_to(cut * high, (y - cut) * high + y * low)


def _special_power(x: float, y: float) -> float | None:
    """The power if one of the numbers is special; None if none is."""
    size = abs(x)
    if y == 0.0:
        return 1.0
    if x != x or y != y:
        return math.nan
    if y == 2.0:
        return x * x
    if y == 0.5 and x != -math.inf:
        return math.sqrt(x + 0.0) if x >= 0 else math.nan
    if y == 1.0:
        return x
    if math.isinf(y):
        if size == 1.0:
            return math.nan
        return math.inf if (size > 1.0) == (y > 0) else 0.0
    is_negative = math.copysign(1.0, x) < 0
    if size in (0.0, 1.0, math.inf):
        of_size = size if y > 0 else (math.inf if size == 0.0 else 1.0 / size)
        if is_negative and size == 1.0 and y % 1 != 0:
            return math.nan
        return -of_size if is_negative and y % 2 == 1 else of_size
    if y == -1.0:
        return 1.0 / x
    return math.nan if is_negative and y % 1 != 0 else None


def _log2_near_one(x: float) -> tuple[float, float]:
    """The logarithm to base 2 of a number near 1, as a number of few digits and the rest."""
    whole, first, rest = _1_LN2
    t = x - 1.0
    w = (t * t) * (0.5 - t * (0.3333333333333333333333 - t * 0.25))
    u = first * t
    v = t * rest - w * whole
    high = _cut(u + v)
    return high, v - (high - u)


def _log2(x: float) -> tuple[float, float]:
    """The logarithm to base 2 of any number, as a number of few digits and the rest."""
    x, bits, n = _scaled(x)
    part = bits & 0x000FFFFF
    bits, k = part | 0x3FF00000, 0
    if 0x3988E < part < 0xBB67A:
        k = 1
    elif part >= 0xBB67A:
        n, bits = n + 1, bits - 0x00100000
    x = _with_high(x, bits)
    u, v = x - _BP[k], 1.0 / (x + _BP[k])
    ss = u * v
    s_high = _cut(ss)
    t_high = _with_high(0.0, ((bits >> 1) | 0x20000000) + 0x00080000 + (k << 18))
    t_low = x - (t_high - _BP[k])
    s_low = v * ((u - s_high * t_high) - s_high * t_low)
    s2 = ss * ss
    r = s2 * s2 * (_L[0] + s2 * (_L[1] + s2 * (_L[2] + s2 * (_L[3] + s2 * (_L[4] + s2 * _L[5])))))
    r += s_low * (s_high + ss)
    s2 = s_high * s_high
    t_high = _cut(3.0 + s2 + r)
    t_low = r - ((t_high - 3.0) - s2)
    u = s_high * t_high
    v = s_low * t_high + t_low * ss
    p_high = _cut(u + v)
    p_low = v - (p_high - u)
    whole, first, rest = _CP
    z_high = first * p_high
    z_low = rest * p_high + p_low * whole + _DP_LOW[k]
    high = _cut(((z_high + z_low) + _DP_HIGH[k]) + n)
    return high, z_low - (((high - n) - _DP_HIGH[k]) - z_high)


def _two_to(high: float, low: float) -> float:
    """Two to the power of a sum."""
    z = low + high
    bits, rest = _high(z), _low(z)
    if bits >= 0x40900000:  # 1024
        if bits > 0x40900000 or rest or low + _OVER > z - high:
            return math.inf
    elif (bits & 0x7FFFFFFF) >= 0x4090CC00 and (  # -1075
        (bits & 0xFFFFFFFF) != 0xC090CC00 or rest or low <= z - high
    ):
        return 0.0
    size, n = bits & 0x7FFFFFFF, 0
    if size > 0x3FE00000:  # more than a half
        n = (bits & 0xFFFFFFFF) + (0x00100000 >> ((size >> 20) - 0x3FE))
        k = ((n & 0x7FFFFFFF) >> 20) - 0x3FF
        t = math.copysign(_with_high(0.0, n & 0x7FFFFFFF & ~(0x000FFFFF >> k)), z)
        n = ((n & 0x000FFFFF) | 0x00100000) >> (20 - k)
        n = -n if bits < 0 else n
        high -= t
    whole, first, others = _LN2
    t = _cut(low + high)
    u = t * first
    v = (low - (t - high)) * whole + t * others
    z = u + v
    w = v - (z - u)
    t = z * z
    t1 = z - t * (_P[0] + t * (_P[1] + t * (_P[2] + t * (_P[3] + t * _P[4]))))
    r = (z * t1) / (t1 - 2.0) - (w + z * w)
    return math.ldexp(1.0 - (r - z), n)
