"""Exact sums of floats: no digit is lost, so every added value can be subtracted again.

Sums of doubles do not form a group: 1e16 + 1 − 1e16 is 0. So a float x is stored as one limb, an
integer m in a bin b with x = m · 2**(32·b − 1074) exactly. A sum is stored as the sum of m for each
bin, again an integer. Only the total is rounded, once. The functions exist in Python and in SQL,
and agree bit for bit:

    split(x)       the bin and the limb of x; |m| < 2**84, so that 10**12 limbs of one bin have room
                   in a DECIMAL(38, 0); a weight multiplies the limb
    total(limbs)   the float nearest to Σ m · 2**(32·b − 1074), ties to even: for finite floats the
                   value of `math.fsum`, and ±inf if it is beyond the largest float. It depends only
                   on the sum of each bin, not on the order of additions

NaN, inf and −inf have bins of their own, whose limbs count them. A nonzero count makes the total
that value. A negative count of inf gives −inf, and the other way round. Both infinities together
give NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from stepping_spark.relations.sums.overflow import fitting
from stepping_spark.rows.atoms import FLOAT, NAN
from stepping_spark.rows.sql_text import Sql, closed, let

WIDTH = 32  # bits from one bin to the next
WHOLE_BITS = 53  # of a float, without its exponent
LOWEST = 1074  # the smallest float is 2**-1074
NAN_BIN, INF_BIN, MINUS_INF_BIN = -1, -2, -3
TOO_LARGE = "a sum of floats is too large; add up fewer or smaller ones"


def split(x: float) -> tuple[int, int]:
    """The bin and the limb of a float. Zero has the limb 0."""
    if math.isnan(x):
        return NAN_BIN, 1
    if math.isinf(x):
        return (INF_BIN if x > 0 else MINUS_INF_BIN), 1
    fraction, exponent = math.frexp(x)
    lowest = max(exponent - 53, -LOWEST)  # the power of two of a subnormal's last bit
    mantissa = int(math.ldexp(fraction, exponent - lowest))
    bin_, shift = divmod(lowest + LOWEST, WIDTH) if mantissa else (0, 0)
    return bin_, mantissa << shift


def limbs_of(values: npt.NDArray[np.float64], times: npt.NDArray[np.int64]) -> dict[int, int]:
    """The sum of weighted floats, as the sum of the limbs of each bin."""
    finite = np.isfinite(values)
    limbs: dict[int, int] = {}
    for x, n in zip(values[~finite].tolist(), times[~finite].tolist(), strict=True):
        bin_, limb = split(x)
        limbs[bin_] = limbs.get(bin_, 0) + limb * n
    fractions, exponents = np.frexp(values[finite])
    mantissas = np.ldexp(fractions, WHOLE_BITS).astype(np.int64)
    for exponent in np.unique(exponents).tolist():
        at = exponents == exponent
        bin_, limb = bin_of(added(mantissas[at], times[finite][at]), exponent)
        limbs[bin_] = limbs.get(bin_, 0) + limb
    return limbs


def bin_of(summed: int, exponent: int) -> tuple[int, int]:
    """The bin and the limb of a sum of floats with this exponent, as ints of `WHOLE_BITS` bits."""
    bin_, shift = divmod(max(exponent - WHOLE_BITS + LOWEST, 0), WIDTH)
    lost = max(WHOLE_BITS - LOWEST - exponent, 0)  # the zeros at the end of subnormals
    return bin_, (summed << shift) >> lost


def added(values: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> int:
    """The exact sum of ints, each times its weight."""
    if not len(values):
        return 0
    times_most = max(int(times.max()), -int(times.min())) * len(times)
    if times_most * max(int(values.max()), -int(values.min())) < 2**63:
        return int(np.dot(values, times))
    if times_most >= 2**31:
        return sum(v * n for v, n in zip(values.tolist(), times.tolist(), strict=True))
    # The halves of the bits are added apart: no sum of this many 32-bit numbers exceeds 64 bits.
    high, low = values >> 32, values & (2**32 - 1)
    return (int((high * times).sum()) << 32) + int((low * times).sum())


def total(limbs: Mapping[int, int]) -> float:
    """The float nearest to the sum of the limbs, ties to even."""
    infinite = {_sign(limbs.get(INF_BIN, 0)), -_sign(limbs.get(MINUS_INF_BIN, 0))} - {0}
    if limbs.get(NAN_BIN, 0) or len(infinite) == 2:
        return NAN
    if infinite:
        return infinite.pop() * math.inf
    exact = sum(m << (WIDTH * b) for b, m in limbs.items() if b >= 0)
    try:
        return exact / (1 << LOWEST)  # Python divides integers with correct rounding
    except OverflowError:
        return _sign(exact) * math.inf


def rounding_error(limbs: Mapping[int, int]) -> float:
    """The float nearest to the rounding error of the total; 0 if the total is not finite."""
    nearest = total(limbs)
    if not math.isfinite(nearest):
        return 0.0
    bin_, limb = split(nearest)
    return total({**limbs, bin_: limbs.get(bin_, 0) - limb}) + 0.0


def _sign(n: int) -> int:
    return (n > 0) - (n < 0)


def split_sql(x: str) -> Sql:
    """A STRUCT<bin: BIGINT, limb: DECIMAL(38, 0)> of a DOUBLE expression; both NULL for NULL."""
    bin_ = (
        f"CASE WHEN x = 0 THEN 0L WHEN abs(x) < double('Infinity') THEN {_bin_sql()} "
        f"WHEN isnan(x) THEN {NAN_BIN}L WHEN x > 0 THEN {INF_BIN}L "
        f"WHEN x < 0 THEN {MINUS_INF_BIN}L END"
    )
    limb = f"CASE WHEN x = 0 THEN 0BD WHEN bin >= 0 THEN {_limb_sql()} WHEN bin < 0 THEN 1BD END"
    parts = f"named_struct('bin', bin, 'limb', CAST({limb} AS DECIMAL(38, 0)))"
    return let("x", x, let("bin", bin_, parts))


def _bin_sql() -> Sql:
    """The bin of `x`, a finite float that is not zero.

    Bin b begins at 2**(32·b − 1022), except for bin 0. The logarithm may be wrong in its last
    digit. So it only selects the nearest beginning of a bin, which is a float, and x is compared
    with that.
    """
    body = "greatest(0L, nearest - if(abs(x) < pow(2D, 32 * nearest - 1022), 1L, 0L))"
    return let("nearest", "floor((log2(abs(x)) + 1038) / 32)", body)


def _limb_sql() -> Sql:
    """The limb of `x`, a finite float that is not zero: x · 2**(1074 − 32·bin), 84 bits at most.

    The power may be too large for a float, but its square root is not. Each step is exact. The
    integer is converted to the decimal in two parts, because only a BIGINT converts exactly.
    """
    high = closed("CAST(y / 1099511627776D AS BIGINT) * 1099511627776BD")
    joined = f"CAST({high} + CAST(y % 1099511627776D AS BIGINT) AS DECIMAL(38, 0))"
    return let("root", "pow(2D, 537 - 16 * bin)", let("y", "x * root * root", joined))


def total_sql(items: str) -> Sql:
    """The total, a DOUBLE, of an ARRAY<STRUCT<bin: BIGINT, limb: DECIMAL(38, 0)>>.

    `items` need not be sorted, and a bin may appear several times. Fails if the sum of the limbs of
    one bin is within 2**96 of the largest DECIMAL(38, 0).
    """
    lone = closed(f"CAST(items[0].limb AS DOUBLE) * {_power_sql(closed('items[0].bin'))}")
    finite = (
        f"CASE WHEN size(items) = 0 THEN 0D WHEN size(items) = 1 THEN {lone} "
        f"ELSE {_finite_sql()} END"
    )
    finite = let("items", "filter(items, i -> i.bin >= 0)", finite)
    return let("items", items, f"coalesce({_special_sql()}, {fitting(finite, FLOAT, TOO_LARGE)})")


def rest_sql(items: str, nearest: str) -> Sql:
    """The rounding error of the total `nearest`, a DOUBLE; 0 if the total is not finite."""
    bin_and_limb = let(
        "part",
        split_sql("nearest"),
        "named_struct('bin', part.bin, 'limb', CAST(0BD - part.limb AS DECIMAL(38, 0)))",
    )
    left = closed(f"{total_sql(f'concat({items}, array({bin_and_limb}))')} + 0D")
    return let("nearest", nearest, f"if(abs(nearest) < double('Infinity'), {left}, 0D)")


def _power_sql(bin_: Sql) -> Sql:
    """The value of a limb of 1 in the bin."""
    return closed(f"pow(2D, {WIDTH} * {bin_} - {LOWEST})")


def _count_sql(bin_: str, start: str = "0BD") -> Sql:
    """The sum of the limbs of one bin, added to a start."""
    added = f"CAST(n + if(i.bin = {bin_}, i.limb, 0BD) AS DECIMAL(38, 0))"
    return closed(f"aggregate(items, CAST({start} AS DECIMAL(38, 0)), (n, i) -> {added})")


def _special_sql() -> Sql:
    """The total if the limbs contain NaN or infinities, else NULL."""
    nan = _count_sql(str(NAN_BIN))
    up, down = (f"sign({_count_sql(str(b))})" for b in (INF_BIN, MINUS_INF_BIN))
    value = (
        f"CASE WHEN {nan} <> 0 OR up * down > 0 THEN double('NaN') "
        "WHEN up <> down THEN (up - down) * double('Infinity') END"
    )
    counted = let("up", up, let("down", down, value))
    return closed(f"CASE WHEN exists(items, i -> i.bin < 0) THEN {counted} END")


def _finite_sql() -> Sql:
    """The total of finite floats, of which there is at least one.

    From the lowest bin up, carries reduce each bin to a digit of 32 bits, not negative, so that
    lower bins cannot subtract from higher ones. Then digits are taken from the highest bin down,
    until there are more than 62 bits. If any other bit is set, the last bit taken is set too. This
    rounds to the nearest float as the whole sum would.
    """
    digit = "pmod(n, 4294967296BD)"
    carried = f"CAST((n - {digit}) / 4294967296BD AS DECIMAL(38, 0))"
    digits = f"concat(array(CAST({digit} AS DECIMAL(10, 0))), s.digits)"
    step = f"named_struct('carry', {carried}, 'digits', {digits})"
    none = "CAST(array() AS ARRAY<DECIMAL(10, 0)>)"
    empty = f"named_struct('carry', CAST(0 AS DECIMAL(38, 0)), 'digits', {none})"
    taken = "CAST(a.top * 4294967296BD + d AS DECIMAL(38, 0))"
    take = f"named_struct('top', {taken}, 'left', a.left, 'rest', false)"
    leave = "named_struct('top', a.top, 'left', a.left + 1L, 'rest', a.rest OR d <> 0)"
    start = "named_struct('top', s.carry, 'left', 0L, 'rest', false)"
    last = "if(a.rest AND a.top % 2BD = 0, CAST(a.top + 1BD AS DECIMAL(38, 0)), a.top)"
    rounded = (
        f"aggregate(s.digits, {start}, (a, d) -> if(abs(a.top) < 4611686018427387904BD, {take}, "
        f"{leave}), a -> CAST({last} AS DOUBLE) * {_power_sql(closed('low + a.left'))})"
    )
    summed = (
        f"aggregate(sequence(low, array_max(items.bin)), {empty}, "
        f"(s, b) -> {let('n', _count_sql('b', 's.carry'), step)}, s -> {rounded})"
    )
    return let("low", "array_min(items.bin)", summed)
