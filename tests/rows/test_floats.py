"""Exact sums of floats: nothing is lost, the total is rounded once, and SQL gives the same bits."""

from __future__ import annotations

import decimal
import math
import random
import struct
from collections.abc import Iterable
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as hs
from pyspark.sql import SparkSession

from stepping_spark.relations.sums.floats import (
    INF_BIN,
    MINUS_INF_BIN,
    NAN_BIN,
    split,
    split_sql,
    total,
    total_sql,
)

SMALLEST = 5e-324
LARGEST = 1.7976931348623157e308
Limbs = dict[int, int]

finite = hs.floats(allow_nan=False, allow_infinity=False)
weights = hs.integers(-5, 5) | hs.integers(-(10**9), 10**9)


def limbs(weighted: Iterable[tuple[float, int]]) -> Limbs:
    """The sum of floats, each times its weight, as the sum of its limbs in each bin."""
    sums: Limbs = {}
    for x, weight in weighted:
        b, m = split(x)
        sums[b] = sums.get(b, 0) + m * weight
    return sums


def once(xs: Iterable[float]) -> Limbs:
    return limbs((x, 1) for x in xs)


def bits(x: float) -> bytes:
    return b"NaN" if math.isnan(x) else struct.pack("<d", x)


def any_float(source: random.Random) -> float:
    x: float = struct.unpack("<d", source.randbytes(8))[0]
    return x


@given(finite)
@example(SMALLEST)
@example(-SMALLEST)
@example(2.225073858507201e-308)  # the largest subnormal
@example(2.2250738585072014e-308)  # the smallest normal
@example(LARGEST)
@example(-LARGEST)
def test_a_limb_is_the_float_exactly(x: float) -> None:
    b, m = split(x)
    assert Fraction(m) * Fraction(2) ** (32 * b - 1074) == Fraction(x)
    assert 0 <= b < 64
    assert abs(m) < 2**84


def test_zeros_have_no_limb() -> None:
    assert split(0.0) == split(-0.0) == (0, 0)
    assert bits(total({})) == bits(total(once([-0.0, -0.0]))) == bits(0.0)


def nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@given(hs.lists(finite, max_size=20))
def test_the_total_is_the_correctly_rounded_sum(xs: list[float]) -> None:
    try:
        expected = math.fsum(xs)
    except OverflowError:  # fsum gives up at a partial sum where the whole may still be finite
        expected = nearest(sum(map(Fraction, xs), Fraction(0)))
    assert total(once(xs)) == expected


@given(hs.lists(hs.tuples(finite, weights), max_size=10))
def test_a_weight_counts_as_many_times(weighted: list[tuple[float, int]]) -> None:
    exact = sum((Fraction(x) * weight for x, weight in weighted), Fraction(0))
    assert total(limbs(weighted)) == nearest(exact)


@given(hs.lists(hs.tuples(hs.floats(), weights), max_size=10), hs.lists(finite, max_size=5))
def test_what_was_added_can_be_taken_away(
    weighted: list[tuple[float, int]], rest: list[float]
) -> None:
    taken = [(x, -weight) for x, weight in weighted]
    left = limbs([*weighted, *taken, *((x, 1) for x in rest)])
    assert bits(total(left)) == bits(total(once(rest)))


def test_a_large_value_does_not_swallow_a_small_one() -> None:
    assert total(once([1e16, 1.0, -1e16])) == 1.0
    assert total(limbs([(1e308, 3), (SMALLEST, 1), (1e308, -3)])) == SMALLEST


def test_a_sum_beyond_the_largest_float_is_infinite_until_it_comes_back() -> None:
    assert total(once([LARGEST, LARGEST])) == math.inf
    assert total(limbs([(LARGEST, -2)])) == -math.inf
    assert total(once([LARGEST, LARGEST, -LARGEST])) == LARGEST


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({NAN_BIN: 1}, math.nan),
        ({NAN_BIN: -2, 3: 5}, math.nan),
        ({INF_BIN: 2, 3: 5}, math.inf),
        ({INF_BIN: -1}, -math.inf),
        ({MINUS_INF_BIN: 1, 3: 5}, -math.inf),
        ({MINUS_INF_BIN: -3}, math.inf),
        ({INF_BIN: 1, MINUS_INF_BIN: 1}, math.nan),
        ({INF_BIN: 1, MINUS_INF_BIN: -1}, math.inf),
        ({NAN_BIN: 0, INF_BIN: 0, MINUS_INF_BIN: 0}, 0.0),
    ],
)
def test_nan_and_infinities_are_counted(counts: Limbs, expected: float) -> None:
    assert bits(total(counts)) == bits(expected)


def test_sql_splits_every_float_as_python_does(spark: SparkSession) -> None:
    source = random.Random(1)
    xs = [any_float(source) for _ in range(500)]
    xs += [0.0, -0.0, SMALLEST, -SMALLEST, LARGEST, -LARGEST, math.inf, -math.inf, math.nan, 0.1]
    for power in range(-1074, 1024):  # bins begin at powers of two
        x = math.ldexp(1.0, power)
        xs += [x, -math.nextafter(x, 0.0), math.nextafter(x, math.inf)]
    spark.createDataFrame(pa.table({"x": pa.array(xs)})).createOrReplaceTempView("floats")
    query = f"SELECT x, part.bin, part.limb FROM (SELECT x, {split_sql('x')} AS part FROM floats)"
    found = spark.sql(query)
    assert found.dtypes[1:] == [("bin", "bigint"), ("limb", "decimal(38,0)")]
    rows = found.collect()
    assert len(rows) == len(xs)
    assert [r["x"] for r in rows if (r["bin"], int(r["limb"])) != split(r["x"])] == []


def test_sql_gives_null_of_null(spark: SparkSession) -> None:
    part = spark.sql(f"SELECT {split_sql('CAST(NULL AS DOUBLE)')} AS part")
    assert tuple(part.select("part.*").head() or ()) == (None, None)


def sums(source: random.Random) -> Limbs:
    """A sum of one of the kinds that are hard to round."""
    match source.choice(("any", "near", "subnormal", "cancelled", "half-way", "special", "large")):
        case "any":
            return once(any_float(source) for _ in range(source.randint(1, 6)))
        case "near":
            xs = (source.uniform(-1, 1) * 10 ** source.randint(-5, 18) for _ in range(9))
            return limbs((x, source.randint(-3, 10**6)) for x in xs)
        case "subnormal":
            return limbs((SMALLEST * source.getrandbits(52), w) for w in (-2, 1, 5))
        case "cancelled":
            xs = (any_float(source) for _ in range(4))
            kept = [(x, source.randint(1, 9)) for x in xs if math.isfinite(x)]
            return limbs([*kept, *((x, -w) for x, w in kept), (source.uniform(-1, 1), 1)])
        case "half-way":
            power = source.randint(-900, 900)
            mantissa = source.getrandbits(52) | 1 << 52
            half = math.ldexp(source.choice((1.0, -1.0)), power - 1)
            tiny = math.ldexp(1.0, max(-1074, power - source.randint(2, 400)))
            return limbs(
                [(math.ldexp(mantissa, power), 1), (half, 1), (tiny, source.choice((0, 0, 1, -1)))]
            )
        case "special":
            xs = (source.choice((math.inf, -math.inf, math.nan, 1.0, LARGEST)) for _ in range(4))
            return limbs((x, source.choice((-1, 1))) for x in xs)
    bins = source.sample(range(64), source.randint(0, 6))
    limit = 10**38 - 2**96
    return {b: source.randint(-limit, limit) for b in bins}


def test_sql_totals_as_python_does(spark: SparkSession) -> None:
    source = random.Random(2)
    cases = [sums(source) for _ in range(700)]
    items = [
        [
            {"bin": b, "limb": decimal.Decimal(part)}
            for b, m in source.sample(sorted(case.items()), len(case))
            for part in ((m,) if source.random() < 0.8 else (m // 3, m - m // 3))
        ]
        for case in cases
    ]
    item = pa.struct([("bin", pa.int64()), ("limb", pa.decimal128(38, 0))])
    table = pa.table({"n": range(len(cases)), "items": pa.array(items, pa.list_(item))})
    spark.createDataFrame(table).createOrReplaceTempView("sums")
    rows = spark.sql(f"SELECT n, {total_sql('items')} AS total FROM sums ORDER BY n").collect()
    found = [bits(r["total"]) for r in rows]
    assert [c for c, x in zip(cases, found, strict=True) if x != bits(total(c))] == []
