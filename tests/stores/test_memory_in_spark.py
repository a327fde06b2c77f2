"""The memory store, where state is larger than the driver may hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from stepping_spark.base.errors import StepError
from stepping_spark.relations.relation import DriverRelation, Relation, SparkRelation
from stepping_spark.relations.store import Register
from stepping_spark.rows.atoms import INT, STR
from stepping_spark.rows.schema import COUNT, Schema
from stepping_spark.rows.types import Optional
from stores.contract.store import StoreContract
from stores.contract.values import (
    BY_WORD,
    WHOLE,
    WORDS,
    Create,
    Hold,
    add,
    as_it_is,
    content,
    keys_relation,
    relation_of,
    row,
)
from stores.memory import StoreMemory
from tests.cases import MOST, constants


@pytest.mark.turn(6)
class TestInSpark(StoreContract):
    """Nothing fits the driver: changes and large sets of keys are DataFrames, few keys a table."""

    commits = 20

    @pytest.fixture
    def create(self, spark: SparkSession) -> Create:
        return lambda registers: StoreMemory(registers, driver_bytes=0, spark=spark)

    @pytest.fixture
    def hold(self, spark: SparkSession) -> Hold:
        def as_frame(relation: DriverRelation) -> Relation:
            few_keys = not relation.schema.diffs and relation.rows <= 100
            return relation if few_keys else relation.in_spark(lambda: spark)

        return as_frame


def parts_of(store: StoreMemory, register: Register) -> list[str]:
    return ["driver" if p.frame is None else "Spark" for p in store.read(register.name)]


def large(first: int, n: int) -> list[tuple[str, int, int]]:
    return [(f"w{i}", i, 1) for i in range(first, first + n)]


@pytest.fixture
def roomy(spark: SparkSession) -> StoreMemory:
    return StoreMemory([BY_WORD, WHOLE], driver_bytes=40_000, spark=spark)


def test_a_dataframe_that_fits_what_is_left_of_the_budget_comes_to_the_driver(
    roomy: StoreMemory, spark: SparkSession
) -> None:
    for step, n in ((1, 5_000), (2, 500)):
        change = relation_of(WORDS, large(step * 10_000, n)).in_spark(lambda: spark)
        roomy.add(BY_WORD.name, change)
        roomy.commit(step, None)
    assert parts_of(roomy, BY_WORD) == ["Spark", "driver"]
    assert 0 < roomy.driver_bytes <= 40_000
    assert len(content(roomy, BY_WORD)) == 5_500
    asked = keys_relation(BY_WORD, [("w10000",), ("w20001",), ("w30002",)])
    assert len(content(roomy, BY_WORD, asked)) == 2


def test_what_outgrows_the_budget_moves_to_spark_largest_first(roomy: StoreMemory) -> None:
    add(roomy, BY_WORD, as_it_is, large(0, 600))
    add(roomy, WHOLE, as_it_is, large(0, 400))
    roomy.commit(1, None)
    add(roomy, WHOLE, as_it_is, large(1_000, 150))
    add(roomy, BY_WORD, as_it_is, large(1_000, 250))
    roomy.commit(2, None)
    assert parts_of(roomy, BY_WORD) == ["Spark", "driver"]
    assert parts_of(roomy, WHOLE) == ["driver", "driver"]
    assert len(content(roomy, BY_WORD)) == 850


def test_batches_in_spark_merge_by_size_and_are_released(spark: SparkSession) -> None:
    store = StoreMemory([BY_WORD], driver_bytes=0, spark=spark)
    frames: list[DataFrame] = []
    for step in range(1, 9):
        store.add(BY_WORD.name, relation_of(WORDS, large(step * 3, 4)).in_spark(lambda: spark))
        store.commit(step, None)
        frames += [p.frame for p in store.read(BY_WORD.name) if p.frame is not None]
        assert store.batches(BY_WORD.name) <= 4
    now = [p.frame for p in store.read(BY_WORD.name) if p.frame is not None]
    assert all(p.is_cached for p in now)
    assert not frames[0].is_cached
    assert frames[0].count() == 4


def test_an_aborted_change_in_spark_is_released(spark: SparkSession) -> None:
    before = cached_in(spark)
    store = StoreMemory([BY_WORD], driver_bytes=0, spark=spark)
    store.add(BY_WORD.name, relation_of(WORDS, large(0, 5)).in_spark(lambda: spark))
    assert cached_in(spark) == before + 1
    store.abort()
    assert cached_in(spark) == before


def cached_in(spark: SparkSession) -> int:
    context: Any = spark.sparkContext._jsc
    return sum(
        1
        for info in context.sc().getRDDStorageInfo()
        if "InMemory" in info.name() or "Scan" in info.name() or "Sort" in info.name()
    )


def test_the_plan_of_a_batch_in_spark_does_not_grow(spark: SparkSession) -> None:
    store = StoreMemory([BY_WORD], driver_bytes=0, spark=spark)

    def plan() -> int:
        (oldest, *_) = store.read(BY_WORD.name)
        assert oldest.frame is not None
        execution: Any = oldest.frame._jdf
        return len(str(execution.queryExecution().optimizedPlan().toString()).splitlines())

    sizes = []
    for step in range(1, 13):
        store.add(BY_WORD.name, relation_of(WORDS, large(step * 3, 4)).in_spark(lambda: spark))
        store.commit(step, None)
        sizes.append(plan())
    assert len(set(sizes)) == 1


def test_a_dataframe_is_computed_once(spark: SparkSession) -> None:
    calls = spark.sparkContext.accumulator(0)

    def counted(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            calls.add(part.num_rows)
            yield part

    for budget in (0, 10**9):
        calls.value = 0
        store = StoreMemory([BY_WORD], driver_bytes=budget, spark=spark)
        frame = relation_of(WORDS, large(0, 7)).in_spark(lambda: spark).frame
        counting = frame.mapInArrow(counted, WORDS.ddl)
        store.add(BY_WORD.name, SparkRelation(counting, WORDS))
        store.commit(1, None)
        assert len(content(store, BY_WORD)) == 7
        assert calls.value == 7


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_overflow_in_spark_is_an_error_and_not_another_number(
    spark: SparkSession, ansi: str, sign: int
) -> None:
    store = StoreMemory([BY_WORD], driver_bytes=0, spark=spark)
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        rows = relation_of(WORDS, [("a", 1, sign * MOST), ("a", 1, sign * 2)])
        with pytest.raises(StepError, match=r"_count_ .* BIGINT"):
            store.add(BY_WORD.name, rows.in_spark(lambda: spark))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    store.abort()
    steps = [("a", 1, sign * MOST), ("a", 1, sign * 2), ("a", 1, sign * -5), ("b", 1, sign * -3)]
    store.add(BY_WORD.name, relation_of(WORDS, steps).in_spark(lambda: spark))
    store.commit(1, None)
    assert content(store, BY_WORD) == {
        row("a", 1): (sign * (MOST - 3),),
        row("b", 1): (sign * -3,),
    }


@constants(looked_up_keys=2)
def test_keys_in_a_dataframe_too_many_to_fetch_are_joined_in_spark(
    spark: SparkSession,
) -> None:
    roomy = StoreMemory([BY_WORD, WHOLE], driver_bytes=40_000, spark=spark)
    for step, n in ((1, 5_000), (2, 100)):
        change = relation_of(WORDS, large(step * 10_000, n)).in_spark(lambda: spark)
        roomy.add(BY_WORD.name, change)
        roomy.commit(step, None)
    asked = keys_relation(BY_WORD, [(f"w{10_000 + i}",) for i in range(7)]).in_spark(lambda: spark)
    in_spark, on_driver = roomy.read(BY_WORD.name, asked)
    assert in_spark.frame is not None
    assert in_spark.frame.count() == 7
    assert on_driver.table is not None
    assert on_driver.rows == 100


@pytest.mark.parametrize("in_text", [0, 1_000])
def test_keys_are_the_same_as_sql_text_and_as_a_broadcast(
    spark: SparkSession, in_text: int
) -> None:
    schema = Schema((("f", Optional(STR)), ("n", INT)), ((COUNT, INT),))
    register = Register("r", schema, ("f",))
    store = StoreMemory([register], driver_bytes=0, spark=spark)
    words = [None, "", "'", "\\", "a\\'b", "\0", "é", "%", "${x}"]
    change = relation_of(schema, [(w, i, 1) for i, w in enumerate(words)])
    store.add(register.name, change.in_spark(lambda: spark))
    store.commit(1, None)
    # Any two words are told apart: one of these questions is for one of them and not the other.
    for bit in (1, 2, 4, 8):
        wanted = {i: word for i, word in enumerate(words, 1) if i & bit}
        asked = keys_relation(register, [(word,) for word in wanted.values()])
        expected = {row(word, i - 1): (1,) for i, word in wanted.items()}
        with constants(listed_keys=in_text):
            assert content(store, register, asked) == expected
