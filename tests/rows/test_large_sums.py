"""Sums of ints in Spark, which adds them up as longs: equal to Python's at every size."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

import stepping_spark as st
from stepping_spark.base.errors import StepError
from stepping_spark.execution.spark.text import consolidated
from stepping_spark.relations.relation import SparkRelation, computed_once, settle
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.schema import BIG_INT, Schema
from tests.cases import constants

SCHEMA = Schema((("k", INT),), (("_rows_", INT), ("_sum_x_", BIG_INT)))
LARGEST = 10**38 - 1
EDGES = [
    sign * (x + d)
    for x in (0, 2**31, 2**32, 2**62, 2**63, 2**64, 2**95, 2**96, 2**126, LARGEST - 2**65, LARGEST)
    for d in (-1, 0, 1)
    for sign in (1, -1)
    if x + d <= LARGEST
]
MOST = 2**63 - 1


@pytest.fixture(params=["true", "false"], ids=["ansi", "not ansi"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session with and without ANSI."""
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    try:
        yield spark
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def frame(session: SparkSession, rows: list[tuple[int, int]]) -> DataFrame:
    columns = T.StructType(
        [
            T.StructField("k", T.LongType()),
            T.StructField("_rows_", T.LongType()),
            T.StructField("_sum_x_", T.DecimalType(38, 0)),
        ]
    )
    return session.createDataFrame([(k, 1, Decimal(x)) for k, x in rows], columns).repartition(3)


def in_text(of: DataFrame) -> dict[int, int]:
    of.createOrReplaceTempView("large_sums")
    query = consolidated("SELECT * FROM large_sums", SCHEMA)
    return {r["k"]: int(r["_sum_x_"]) for r in of.sparkSession.sql(query).collect()}


def in_frame(of: DataFrame) -> dict[int, int]:
    once = SparkRelation(of, SCHEMA).added_up(lambda name, t: f"{name} is beyond {t.ddl}")
    return {r["k"]: int(r["_sum_x_"]) for r in once.frame.collect()}


def test_sums_are_those_of_python(session: SparkSession) -> None:
    seed = random.Random(1)
    # A first row that makes the sum what is wanted: every edge, of parts that are of every size.
    rows: list[tuple[int, int]] = []
    for k, total in enumerate(EDGES):
        parts = [
            seed.choice((1, -1)) * seed.getrandbits(seed.choice((8, 40, 70, 110))) for _ in "ab"
        ]
        rest = total - sum(parts)
        rows += [(k, x) for x in parts] if abs(rest) <= LARGEST else []
        rows.append((k, rest if abs(rest) <= LARGEST else total))
    wanted: dict[int, int] = defaultdict(int)
    for k, x in rows:
        wanted[k] += x
    of = frame(session, rows)
    assert in_text(of) == in_frame(of) == wanted
    assert {*EDGES} == {*wanted.values()}


@pytest.mark.parametrize("most", [2**63 - 1, LARGEST], ids=["longs", "all"])
def test_sums_that_are_kept_and_fetched_are_the_same(session: SparkSession, most: int) -> None:
    """They are kept as longs, and as decimals beyond: NULL in one of the two."""
    wanted = {k: x for k, x in enumerate(EDGES) if x and -most <= x <= most}
    given = SparkRelation(frame(session, list(wanted.items())), SCHEMA)
    kept = settle(given, ("k",), "sums")
    assert kept.frame.schema.simpleString() == given.frame.schema.simpleString()
    assert {r["k"]: int(r["_sum_x_"]) for r in kept.frame.collect()} == wanted
    for pieces in (1, 3):
        for relation in (given, kept):
            with constants(piece_bytes=(kept.nbytes or 0) // pieces + 1):
                table = relation.fetched().table
            assert table.schema.equals(SCHEMA.arrow)
            found = zip(table["k"].to_pylist(), table["_sum_x_"].to_pylist(), strict=True)
            assert dict(found) == wanted


def test_a_sum_that_is_null_is_kept_and_fetched_as_null(session: SparkSession) -> None:
    schema = Schema((), SCHEMA.diffs[1:])
    none = session.sql("SELECT CAST(NULL AS DECIMAL(38, 0)) AS `_sum_x_`")
    kept = computed_once(SparkRelation(none, schema))
    assert [tuple(r) for r in kept.frame.collect()] == [(None,)]
    assert kept.fetched().table["_sum_x_"].to_pylist() == [None]


@pytest.mark.turn(2)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("rows", [(LARGEST, 1), (LARGEST, LARGEST, LARGEST), (10**37,) * 10])
def test_sums_of_more_than_38_digits_are_an_error(
    session: SparkSession, rows: tuple[int, ...], sign: int
) -> None:
    of = frame(session, [(1, sign * x) for x in rows])
    for added_up in (in_text, in_frame):
        with pytest.raises(PySparkException, match=r"_sum_x_.* is beyond DECIMAL\(38, 0\)"):
            added_up(of)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_of_more_than_38_digits_is_not_taken_for_zero(
    session: SparkSession, sign: int
) -> None:
    """All of it is in the high limb, whose sum is beyond 64 bits, and no other diff is left."""
    of = frame(session, [(1, sign * 5 * 10**18 * 2**64)] * 2).drop("_rows_")
    of.createOrReplaceTempView("large_sums")
    schema = Schema(SCHEMA.columns, SCHEMA.diffs[1:])
    query = consolidated("SELECT * FROM large_sums", schema)
    once = SparkRelation(of, schema).added_up(lambda name, t: f"{name} is beyond {t.ddl}")
    for added_up in (session.sql(query), once.frame):
        with pytest.raises(PySparkException, match=r"_sum_x_.* is beyond DECIMAL\(38, 0\)"):
            added_up.collect()


class Item(st.Data):
    key: int
    x: int
    y: int | None


class Total(st.Data):
    key: int
    xs: int
    ys: int | None
    rows: int


def totals(items: st.ZSet[Item]) -> st.ZSet[Total]:
    return st.aggregate(
        items,
        lambda i: i.key,
        Total,
        xs=st.agg.sum(lambda i: i.x),
        ys=st.agg.sum(lambda i: i.y),
        rows=st.agg.count(),
    )


@pytest.mark.turn(2)
@pytest.mark.usefixtures("by_queries")
@constants(sampled_rows=0)
def test_products_beyond_64_bits_are_exact(session: SparkSession) -> None:
    """Weights and values of every size, whose sums are small again."""
    seed = random.Random(2)
    sizes = [1, 3, 2**31, 2**32 + 1, 2**60]
    graph = st.compile(totals)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
    reference = st.reference(graph)
    for step in range(3):
        change: list[tuple[Item, int]] = []
        for key in range(40):
            x, n = (seed.choice(sizes) * seed.choice((1, -1)) for _ in "ab")
            y = seed.choice((None, x, MOST, -MOST))
            # The second cancels the product of the first, up to what a BIGINT holds.
            change += [
                (Item(key=key, x=x, y=y), n),
                (Item(key=key, x=-x, y=None if y is None else -y), n),
                (Item(key=key, x=seed.choice((7, -7, 2**40)), y=step), seed.choice((1, 2))),
            ]
        z = st.ZSetPython(change)
        assert stepper.step((z,)) == reference.step((z,))


@pytest.mark.turn(2)
@pytest.mark.usefixtures("by_queries")
@constants(sampled_rows=0)
def test_a_sum_beyond_its_type_says_so(session: SparkSession) -> None:
    graph = st.compile(totals)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
    z = st.ZSetPython([(Item(key=1, x=MOST, y=None), 1), (Item(key=1, x=1, y=None), 1)])
    with pytest.raises(StepError, match="a sum is beyond int"):
        stepper.step((z,))


@pytest.mark.usefixtures("by_queries")
@constants(sampled_rows=0)
def test_weights_beyond_their_type_say_so(session: SparkSession) -> None:
    graph = st.compile(totals)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
    z = st.ZSetPython([(Item(key=1, x=x, y=None), MOST) for x in (1, 2)])
    with pytest.raises(StepError, match="the sum of _rows_ is beyond BIGINT; feed fewer"):
        stepper.step((z,))
