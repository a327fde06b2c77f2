"""Large changes in Spark: what is computed once for all its readers, and what need not be."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.execution import materialize
from stepping_spark.execution.sql_scope import SqlScope
from stepping_spark.relations.relation import SparkRelation, settle
from stepping_spark.relations.store import Register
from stepping_spark.relations.transfer import measure
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import row_type
from stores.batches import spark as spark_batches
from stores.memory import StoreMemory
from tests.cases import Z, constants

pytestmark = pytest.mark.usefixtures("by_queries")

Two = tuple[int, int]
PAIRS: Any = Two
SCHEMA = ZSetType(row_type(Two)).schema
BY_FIRST = Register("pairs by _1", SCHEMA, ("_1",))
BY_SECOND = Register("pairs by _2", SCHEMA, ("_2",))


class Chained(st.Data):
    start: int
    middle: int
    end: int


def chained(starts: st.ZSet[int], first: st.ZSet[Two], second: st.ZSet[Two]) -> st.ZSet[Chained]:
    """Two lookups, the second with what the first has found; the table of neither is changed."""
    one = st.Lookup(first, key=lambda p: p[0], on=lambda row: row[0])
    two = st.Lookup(second, key=lambda p: p[0], on=lambda row: row[1][1])
    found = st.delta_join(starts, one, two)
    return st.map(found, f=lambda row: Chained(start=row[0], middle=row[1][1], end=row[2][1]))


class Bought(st.Data):
    key: int
    n: int
    most: int


def met(first: st.ZSet[Two], second: st.ZSet[Two]) -> st.ZSet[st.Pair[Two, Two]]:
    return st.join(first, second, on_left=lambda p: p[0], on_right=lambda p: p[0])


def summed(joined: st.ZSet[st.Pair[Two, Two]]) -> st.ZSet[Bought]:
    """Two streams that read the same: the counts, and the greatest values."""
    return st.aggregate(
        joined,
        by=lambda p: (p.left[1],),
        into=Bought,
        n=st.agg.count(),
        most=st.agg.max(lambda p: p.right[1]),
    )


def bought(first: st.ZSet[Two], second: st.ZSet[Two]) -> st.ZSet[Bought]:
    return summed(met(first, second))


# No change is small enough for the driver.
LARGE = st.Limits(local_rows=0, fetched_rows=0)


class Texts:
    """The queries that are asked of Spark."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        original = SqlScope.sql

        def watched(sources: SqlScope, text: str, uses: Iterable[str]) -> DataFrame:
            self.asked.append(text)
            return original(sources, text, uses)

        monkeypatch.setattr(SqlScope, "sql", watched)


def frame_of(rows: Mapping[Two, int], spark: SparkSession) -> DataFrame:
    lines = [(*row, n) for row, n in rows.items()]
    return spark.createDataFrame(lines, "_1 bigint, _2 bigint, _count_ bigint")


def given(changes: Iterable[tuple[Any, Any]], spark: SparkSession) -> tuple[Any, ...]:
    """Changes as DataFrames."""
    return tuple(
        st.ZSetSpark.from_dataframe(z.to_dataframe(spark), t, count="_count_") for z, t in changes
    )


STARTS = Z(dict.fromkeys(range(9), 1))
STEPS: list[tuple[Any, Any, Any]] = [
    (STARTS, Z({(i, i + 1): 1 for i in range(9)}), Z({(3, 1): 2, (4, 2): 1})),
    (Z({2: -1, 9: 1}), Z({(9, 3): 1, (3, 4): -1}), Z({(4, 2): -1, (4, 5): 1})),
]


def test_a_settled_relation_has_each_row_once_and_is_known_by_its_key(spark: SparkSession) -> None:
    frame = frame_of({(1, 1): 2, (1, 2): 1, (2, 1): 3}, spark)
    frame = frame.unionAll(frame_of({(1, 2): -1, (1, 1): 1}, spark))
    given = SparkRelation(frame, SCHEMA)
    settled = settle(given, ("_1",), "pairs")
    assert sorted(map(tuple, settled.frame.collect())) == [(1, 1, 3), (2, 1, 3)]
    assert (settled.rows, settled.nulls) == (2, ())
    assert settled.is_settled(SCHEMA, ("_1",))
    assert not settled.is_settled(SCHEMA, ("_2",))
    assert not given.is_settled(SCHEMA, ("_1",))


def test_a_settled_relation_is_forgotten_with_its_dataframe(spark: SparkSession) -> None:
    settled = settle(SparkRelation(frame_of({(1, 1): 2}, spark), SCHEMA), ("_1",), "pairs")
    frame = weakref.ref(settled.frame)
    del settled
    gc.collect()
    assert frame() is None


def test_a_store_takes_what_was_settled_for_it_as_it_is(spark: SparkSession) -> None:
    pairs = SparkRelation(frame_of({(1, 1): 2, (2, 1): 3}, spark), SCHEMA)
    settled = settle(pairs, ("_1",), "pairs")
    assert spark_batches.settle(settled, BY_FIRST) is settled
    assert spark_batches.settle(settled, BY_SECOND) is not settled
    store = StoreMemory([BY_FIRST, BY_SECOND], driver_bytes=0)
    for register in (BY_FIRST, BY_SECOND):
        store.add(register.name, settled)
    store.commit(1, None)
    for register in (BY_FIRST, BY_SECOND):
        (found,) = store.read(register.name)
        assert found.frame is not None
        assert sorted(map(tuple, found.frame.collect())) == [(1, 1, 2), (2, 1, 3)]


def test_a_sum_beyond_its_column_names_whose_it_is(spark: SparkSession) -> None:
    frame = frame_of({(1, 1): 2**62}, spark)
    with pytest.raises(st.StepError, match=r"query\.pairs \(q\.py:1\): the sum of _count_ is"):
        settle(SparkRelation(frame.unionAll(frame), SCHEMA), ("_1",), "query.pairs (q.py:1)")
    failing = SparkRelation(frame.where("assert_true(_1 > 1) IS NULL"), SCHEMA)
    with pytest.raises(PySparkException):
        settle(failing, (), "query.pairs (q.py:1)")


def test_a_first_change_is_computed_once_as_its_register_keeps_it(spark: SparkSession) -> None:
    graph = st.compile(met)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph, driver_bytes=0), limits=LARGE)
    computed = spark.sparkContext.accumulator(0)

    def counted(x: int) -> int:
        computed.add(1)
        return x

    seen: Any = F.udf(lambda x: counted(x), "bigint")  # without hints, which PySpark looks into
    rows: Z[Two] = Z({(i, i % 3): 1 for i in range(9)})
    frame = rows.to_dataframe(spark)
    watched = frame.withColumn("_1", seen(frame["_1"]))
    first: st.ZSetSpark[Any] = st.ZSetSpark.from_dataframe(watched, PAIRS, count="_count_")
    (out,) = stepper.step((first, rows))
    assert computed.value == 9
    assert (out.to_python(),) == st.reference(graph).step((rows, rows))
    held = first.checked(first.type, "input 'first'", LARGE)
    assert isinstance(held, SparkRelation)
    assert held.is_settled(first.type.schema, ("_1",))
    assert first.to_python() == rows
    assert computed.value == 9


def test_a_first_change_that_does_not_fit_is_one_clear_error(spark: SparkSession) -> None:
    graph = st.compile(met)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    holes = spark.sql("SELECT 1L _1, CAST(NULL AS BIGINT) _2")
    wrong: Any = st.ZSetSpark.from_dataframe(holes, PAIRS)
    with pytest.raises(
        st.InputError, match=r"input 'first', column '_2': expected int, found NULL"
    ):
        stepper.step((wrong, None))
    beyond = frame_of({(1, 1): 2**62}, spark)
    twice: Any = st.ZSetSpark.from_dataframe(beyond.unionAll(beyond), PAIRS, count="_count_")
    with pytest.raises(st.SteppingError, match="input 'first': the sum of _count_ is beyond"):
        stepper.step((twice, None))
    fine: Any = (Z[Two]({(1, 1): 1}), Z[Two]({(1, 2): 1}))
    (out,) = stepper.step(fine)
    assert out == Z({st.Pair(left=(1, 1), right=(1, 2)): 1})


def test_of_a_first_load_the_vertex_that_failed_is_named_though_others_read_it(
    spark: SparkSession,
) -> None:
    graph = st.compile(chained)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=LARGE)
    many: Any = (Z[int]({1: 2**40}), Z[Two]({(1, 3): 2**40}), Z[Two]({(3, 1): 1}))
    changes = given(zip(many, (int, Two, Two), strict=True), spark)
    with pytest.raises(st.StepError, match=r"delta_join\.look_up .*product of two weights"):
        stepper.step(changes)
    fine = given(zip(STEPS[0], (int, Two, Two), strict=True), spark)
    (out,) = stepper.step(fine)
    assert (out.to_python(),) == st.reference(graph).step(STEPS[0])


def test_where_spark_has_not_enough_memory_no_vertex_is_looked_for(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = st.compile(met)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=LARGE)
    step = (Z[Two]({(1, 1): 1}), Z[Two]({(1, 2): 1}))

    def full(*_: Any, **__: Any) -> None:
        raise PySparkException("Job aborted: org.apache.spark.memory.SparkOutOfMemoryError: got 0")

    with monkeypatch.context() as patch:
        texts = Texts(patch)
        changes = given(zip(step, (Two, Two), strict=True), spark)
        original = materialize.Materializer.computed
        inputs = graph.inputs

        def computed(
            self: materialize.Materializer, s: Any, v: Any, *rest: Any, **named: Any
        ) -> Any:
            return (original if v in inputs else full)(self, s, v, *rest, **named)

        patch.setattr(materialize.Materializer, "computed", computed)
        with pytest.raises(st.StepError, match=r"enough memory .*got 0.*spark\.driver\.memory"):
            stepper.step(changes)
    assert not any("probe" in text for text in texts.asked)
    (out,) = stepper.step(given(zip(step, (Two, Two), strict=True), spark))
    assert (out.to_python(),) == st.reference(graph).step(step)


def test_what_is_fetched_in_pieces_is_all_of_it(spark: SparkSession) -> None:
    frame = spark.range(100).selectExpr(
        "id AS _1", "if(id % 3 = 0, NULL, id) AS _2", "1L AS _count_"
    )
    schema = ZSetType(row_type(tuple[int, int | None])).schema
    measured = measure(frame, schema)
    relation = SparkRelation(frame, schema, nbytes=measured.nbytes)
    whole = relation.fetched().table
    with constants(piece_bytes=measured.nbytes // 5):
        pieces = relation.fetched().table
    assert pieces.column("_1").num_chunks > whole.column("_1").num_chunks
    assert sorted(pieces.to_pylist(), key=itemgetter("_1")) == whole.to_pylist()


def remainders(a: st.ZSet[int]) -> tuple[st.ZSet[int], st.ZSet[int]]:
    """Two streams of which neither waits for the other."""
    twos, threes = st.map(a, f=lambda x: x % 2), st.map(a, f=lambda x: x % 3)
    return st.distinct(twos), st.distinct(threes)


def test_the_jobs_of_a_step_are_in_the_group_of_who_takes_it(
    spark: SparkSession,
) -> None:
    graph = st.compile(remainders)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
    context = spark.sparkContext
    context.setJobGroup("all of it", "a step")
    try:
        stepper.step((Z(dict.fromkeys(range(6), 1)),))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    jobs = context.statusTracker().getJobIdsForGroup("all of it")
    assert stepper.metrics[-1].jobs == len(jobs) > 2
    assert sum(v.jobs or 0 for v in stepper.metrics[-1].vertices.values()) == len(jobs)


@constants(sampled_rows=0)
def test_a_stream_in_spark_is_fetched_once_for_lookups_and_for_the_store(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    classic = type(spark.range(1))
    original = classic.toArrow

    def watched(frame: DataFrame) -> Any:
        fetched.append(", ".join(frame.columns))
        return original(frame)

    graph: Any = st.compile(bought)
    first: list[Any] = [Z({(i, i % 3): 1 for i in range(9)}), Z({(i, i): 1 for i in range(9)})]
    second: list[Any] = [Z({(1, 1): -1, (9, 1): 1}), Z({(9, 8): 1, (2, 2): -1})]
    results = []
    for most in (0, 100):
        stepper: Any = st.Stepper(graph, StoreMemory.from_graph(graph), local_rows=0)
        stepper.step(given(((first[0], Two), (first[1], Two)), spark))
        with constants(looked_up_keys=most), monkeypatch.context() as patch:
            fetched.clear()
            patch.setattr(classic, "toArrow", watched)
            (out,) = stepper.step(given(((second[0], Two), (second[1], Two)), spark))
            jobs = len(fetched)
        results.append((out.to_python(), jobs))
    (by_job, many), (from_driver, few) = results
    assert by_job == from_driver
    assert few < many


class Listed(st.Data):
    order: int
    customer: int
    line: int


def listed(lines: st.ZSet[Two], orders: st.ZSet[Two], customers: st.ZSet[int]) -> st.ZSet[Listed]:
    """Lines as (order, line), orders as (order, customer)."""
    order = st.Lookup(orders, key=lambda o: o[0], on=lambda row: row[0][0])
    customer = st.Lookup(customers, key=lambda c: c, on=lambda row: row[1][1])
    found = st.delta_join(lines, order, customer)
    return st.map(found, f=lambda row: Listed(order=row[1][0], customer=row[2], line=row[0][1]))


LOADED: tuple[Any, ...] = (
    Z({(i, n): 1 for i in range(100) for n in range(3)}),
    Z({(i, i % 10): 1 for i in range(100)}),
    Z(dict.fromkeys(range(10), 1)),
)
REPLACED: tuple[Any, ...] = (
    Z[Two]({(i, n): -1 for i in range(20) for n in range(3)}) + Z[Two]({(100, 0): 1, (101, 1): 1}),
    Z[Two]({(i, i % 10): -1 for i in range(20)}) + Z[Two]({(100, 1): 1, (101, 2): 1}),
    Z({10: 1}),
)


@pytest.mark.driver
def test_orders_that_go_with_their_lines_give_no_rows_that_cancel() -> None:
    graph = st.compile(listed)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    stepper.step(LOADED)
    (out,) = stepper.step(REPLACED)
    assert sum(1 for _ in out.iter()) == 60 + 2
    joins = [v for path, v in stepper.metrics[-1].vertices.items() if "look_up" in path]
    # Lines that came meet the orders that are there, and orders that went the lines that were.
    # The last number is that of their sum.
    assert sorted(v.rows_out or 0 for v in joins) == [0, 0, 2, 60, 62, 62]
