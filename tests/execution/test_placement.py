"""Where a computation runs: the estimates, and what steps and stores do by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.base.limits import Limits
from stepping_spark.relations import placement
from stepping_spark.relations.arrow import concat
from stepping_spark.relations.placement import (
    Resources,
    Workload,
    bytes_given,
    bytes_given_in_a_task,
    resources,
)
from stepping_spark.relations.relation import DriverRelation
from stepping_spark.relations.store import Register
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.schema import COUNT, Schema
from stepping_spark.spark.session import JobCounter, cores
from stores.parquet import store as reading
from stores.parquet.file_validation import GROUP_ROWS
from tests.cases import constants
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.driver

GB = 1 << 30
DESKTOP, CLUSTER = Resources(2, 4 * GB), Resources(100, 4 * GB)
SCHEMA = Schema((("k", INT), ("v", INT)), ((COUNT, INT),))
BY_K = Register("rows by k", SCHEMA, ("k",))


def in_spark(rows: int, width: int) -> Workload:
    return Workload(rows, rows * width, fetched=rows * width)


def held(rows: int, width: int) -> Workload:
    return Workload(rows, rows * width, sent=rows * width)


def in_both(rows: int, width: int) -> Workload:
    return Workload(rows, rows * width)


@pytest.mark.parametrize(
    ("there_is", "work", "on_driver"),
    [
        (DESKTOP, in_spark(2_000_000, 128), True),
        (DESKTOP, in_spark(50_000, 5_000), True),
        (DESKTOP, held(2_000_000, 128), True),
        (DESKTOP, in_both(2_000_000, 128), True),
        (CLUSTER, in_spark(2_000_000, 16), False),
        (CLUSTER, in_spark(600_000, 40), False),
        (CLUSTER, in_spark(300_000, 40), True),
        (CLUSTER, in_spark(50_000, 4_000), False),  # few rows, many bytes
        (CLUSTER, held(50_000, 4_000), True),
        (CLUSTER, held(1_000_000, 40), True),
        (CLUSTER, in_both(1_000_000, 40), False),
        (CLUSTER, held(2_000_000, 8), False),
        (Resources(2, GB), held(2_000_000, 128), False),  # needs 1.3 GB
        (Resources(2, GB), held(2_000_000, 100), True),
    ],
)
def test_a_computation_runs_where_it_takes_less_time(
    there_is: Resources, work: Workload, on_driver: bool
) -> None:
    assert there_is.placed(work).on_driver is on_driver


@pytest.mark.parametrize("tasks", [1, 2])
def test_with_two_tasks_the_driver_computes_all_that_its_limits_allow(tasks: int) -> None:
    there_is, most = Resources(tasks, 64 * GB), Limits()
    for rows in (1, 1_000, 100_000, most.local_rows):
        for nbytes in (rows, 10 * rows, bytes_given(most)):
            for fetched in (0, nbytes):
                work = Workload(rows, nbytes, fetched=fetched, sent=nbytes - fetched)
                assert there_is.placed(work).on_driver, work
    assert there_is.searched(reading.SEARCHED_ROWS).on_driver


def test_more_tasks_search_files_sooner_than_the_driver() -> None:
    assert CLUSTER.searched(2_000_000).on_driver
    assert CLUSTER.searched(placement.ALWAYS_SEARCHED).on_driver
    assert not CLUSTER.searched(4_000_000).on_driver


def test_the_reason_says_the_estimates_and_what_they_depend_on() -> None:
    work = in_spark(2_000_000, 32)
    assert str(work) == "2,000,000 rows (64.0 MB)"
    assert CLUSTER.placed(work).why == (
        "about 1,300 ms on the driver, 360 ms in Spark with 100 tasks at once"
    )
    assert Resources(1, GB).searched(1_000_000).why == (
        "about 120 ms on the driver, 800 ms in Spark with 1 task at once"
    )
    assert Resources(2, GB, 10_000).searched(1_000_000).why == (
        "about 120 ms on the driver, 11,000 ms in Spark with 2 tasks at once, of which starting "
        "Spark takes 10,000 ms"
    )
    assert Resources(2, GB).placed(held(2_000_000, 320)).why == (
        "would take up to 3.2 GB of the driver's memory, of 1.1 GB (working_bytes)"
    )


@pytest.mark.parametrize(
    ("there_is", "rows", "windowed", "first", "on_driver", "why"),
    [
        (
            DESKTOP,
            100_000,
            False,
            False,
            True,
            "about 270 ms on the driver, 600 ms in Spark's tasks",
        ),
        (
            CLUSTER,
            200_000,
            False,
            False,
            False,
            "about 540 ms on the driver, 360 ms in Spark's tasks",
        ),
        (
            DESKTOP,
            100_000,
            True,
            False,
            False,
            "about 700 ms on the driver, 600 ms in Spark's tasks",
        ),
        (CLUSTER, 9_000_000, False, True, True, "the first load fits into the driver's memory"),
        (
            Resources(2, GB),
            30_000_000,
            False,
            True,
            False,
            "the change would take up to 1.2 GB of the driver's memory, of 1.1 GB (working_bytes)",
        ),
    ],
)
def test_a_large_step_runs_in_tasks_if_they_take_less_time_or_have_the_only_memory(
    there_is: Resources, rows: int, windowed: bool, first: bool, on_driver: bool, why: str
) -> None:
    placed = there_is.of_step(rows, 8 * rows, windowed=windowed, first=first)
    assert placed.on_driver is on_driver
    assert placed.why.startswith(why)


class WithSettings:
    """A session of another machine with these settings."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.conf = settings


@pytest.mark.parametrize(
    ("settings", "nbytes"),
    [
        ({"spark.executor.memory": "8g", "spark.executor.cores": "4"}, GB // 2),
        ({"spark.executor.memory": "512", "spark.executor.cores": "1"}, GB // 8),
        ({"spark.executor.memory": "1073741824b", "spark.executor.cores": "1"}, GB // 4),
        ({"spark.executor.cores": "2"}, GB // 8),
        ({"spark.executor.pyspark.memory": "3 GiB", "spark.executor.cores": "3"}, GB),
        (
            {
                "spark.master": "local[4]",
                "spark.driver.memory": "4096m",
                "spark.executor.cores": "4",
            },
            GB // 4,
        ),
    ],
)
def test_a_task_has_a_part_of_the_memory_of_its_worker(
    settings: dict[str, str], nbytes: int
) -> None:
    session: Any = WithSettings(settings)
    assert bytes_given_in_a_task(Limits(), session) == nbytes // 5
    assert bytes_given_in_a_task(Limits(given_bytes=70, parallelism=7), session) == 10


def test_a_task_on_this_machine_shares_the_memory_of_the_driver() -> None:
    limits = Limits(parallelism=4, working_bytes=GB)
    assert bytes_given_in_a_task(limits, None) == GB // 5 // 4


def test_limits_say_what_there_is_to_compute_with() -> None:
    found = resources(Limits(parallelism=7, working_bytes=GB))
    assert (found.tasks, found.memory) == (7, GB)


def test_without_a_session_the_machine_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    found = Resources(cores(), placement.most_memory(), placement.STARTING)
    assert resources(Limits()) == found
    work = Workload(4_000_000, 32)
    assert found.placed(work).on_driver  # a session that runs would be sooner done
    assert not Resources(100, placement.most_memory()).placed(work).on_driver
    assert SparkContext._active_spark_context is None


def test_a_session_that_has_ended_is_no_error_of_an_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ended:
        def __getattr__(self, name: str) -> int:
            raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(SparkContext, "_active_spark_context", Ended())
    assert resources(Limits()).tasks == cores()


def test_the_running_session_says_how_many_tasks_run_at_once(spark: SparkSession) -> None:
    assert resources(Limits()).tasks == spark.sparkContext.defaultParallelism


# -- steps


class Row(st.Data):
    k: int
    digit: int


def digits_of(rows: st.ZSet[Row]) -> tuple[st.ZSet[Row], st.ZSet[int]]:
    picked = st.filter(rows, f=lambda r: r.k >= 0)
    return picked, st.distinct(st.map(picked, f=lambda r: r.digit))


def stepped(
    rows: st.ZSetSpark[Row], limits: Limits
) -> tuple[tuple[Any, ...], dict[str, tuple[str, str]]]:
    """What one step gives, and for each vertex where it ran and why."""
    graph = st.compile(digits_of)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
    given = stepper.step((rows,))
    return given, {p: (v.how, v.why) for p, v in stepper.metrics[-1].vertices.items()}


def test_on_a_cluster_many_rows_stay_in_spark_and_on_two_cores_they_come(
    spark: SparkSession,
) -> None:
    frame = spark.range(700_000).selectExpr("id AS k", "id % 10 AS digit").localCheckpoint()
    digits = st.ZSetPython(dict.fromkeys(range(10), 1))

    limits = Limits(parallelism=100, task_rows=1_000_000)
    (picked, found), ran = stepped(st.ZSetSpark.from_dataframe(frame, Row), limits)
    assert picked.in_spark
    assert found == digits
    how, why = ran["digits_of.picked"]
    assert how == "spark"
    assert why.startswith("digits_of.rows is in Spark: 700,000 rows (16.8 MB): about ")
    assert why.endswith(" ms in Spark with 100 tasks at once")

    (picked, found), ran = stepped(st.ZSetSpark.from_dataframe(frame, Row), Limits(parallelism=2))
    assert not picked.in_spark
    assert found == digits
    how, why = ran["digits_of.picked"]
    assert how == "driver"
    assert why.startswith("it reads 700,000 rows (16.8 MB): about ")
    assert why.endswith(" ms in Spark with 2 tasks at once")


def test_explain_says_that_each_step_decides() -> None:
    lines = str(st.explain(st.compile(digits_of))).splitlines()
    assert lines[lines.index("plan") - 1] == (
        "else each stream runs on the driver or in Spark, by the rows and bytes it reads: "
        "see metrics"
    )


def on_the_driver(rows: int) -> st.ZSetSpark[Row]:
    table = pa.table({"k": range(rows), "digit": [i % 10 for i in range(rows)]})
    return st.ZSetSpark.from_arrow(table, Row)


def test_what_the_driver_holds_is_computed_there_also_on_a_cluster() -> None:
    _, ran = stepped(on_the_driver(100_000), Limits(parallelism=100))
    assert {how for how, _ in ran.values()} == {"driver"}


def test_what_does_not_fit_the_memory_of_the_driver_is_computed_in_spark(
    spark: SparkSession,
) -> None:
    (_, found), ran = stepped(
        on_the_driver(20_000), Limits(working_bytes=1 << 20, task_rows=100_000)
    )
    assert found == st.ZSetPython(dict.fromkeys(range(10), 1))
    assert ran["digits_of.picked"] == (
        "spark",
        "it reads 20,000 rows (480.0 kB): would take up to 2.4 MB of the driver's memory, "
        "of 1.0 MB (working_bytes)",
    )


# -- stores


def pairs(rows: st.ZSet[Row], keys: st.ZSet[int]) -> st.ZSet[st.Pair[Row, int]]:
    return st.join(rows, keys, on_left=lambda r: r.k, on_right=lambda k: k)


def test_a_large_state_in_files_does_not_come_to_the_driver_for_many_keys(
    tmp_path: Path, spark: SparkSession
) -> None:
    graph = st.compile(pairs)
    with (
        constants(always_searched=100, searched_rows=100),
        st.StoreParquet.from_graph(
            graph, tmp_path / "state", create=True, driver_rows=1_000, cache_bytes=0
        ) as store,
    ):
        stepper = st.Stepper(graph, store)
        stepper.step((on_the_driver(20_000), None))
        stepper.step((st.ZSetPython({Row(k=7, digit=-7): 1}), None))
        (found,) = stepper.step((None, st.ZSetPython(dict.fromkeys(range(500), 1))))
        ran = {(v.how, v.why) for v in stepper.metrics[-1].vertices.values()}
    assert ran == {("spark", "pairs.rows by k is in Spark")}
    expected = {st.Pair(left=Row(k=k, digit=k % 10), right=k): 1 for k in range(500)}
    expected[st.Pair(left=Row(k=7, digit=-7), right=7)] = 1
    assert found == st.ZSetPython(expected)


def rows_of(first: int, end: int) -> DriverRelation:
    columns = {"k": range(first, end), "v": range(first, end), COUNT: [1] * (end - first)}
    return DriverRelation(pa.table(columns, SCHEMA.arrow), SCHEMA)


def keys_of(*ks: int) -> DriverRelation:
    return DriverRelation(pa.table({"k": ks}, BY_K.keys.arrow), BY_K.keys)


def test_for_many_row_groups_the_driver_reads_small_files_and_spark_large_ones(
    tmp_path: Path, spark: SparkSession
) -> None:
    with (
        constants(always_searched=100, searched_rows=100),
        st.StoreParquet(
            tmp_path / "state", [BY_K], create=True, driver_rows=1_000, cache_bytes=0
        ) as store,
    ):
        for step, (first, end) in enumerate([(0, 5_000), (5_000, 5_500)], 1):
            store.add(BY_K.name, rows_of(first, end))
            store.commit(step, None)
        here, there = store.read(BY_K.name, keys_of(1, 2, 5_001, 5_002))
    assert here.table is not None
    assert set(here.table.column("k").to_pylist()) == {5_001, 5_002}
    assert there.frame is not None


def test_files_are_searched_by_spark_if_its_tasks_are_sooner_done(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A query of Spark would have to be this fast, for so few rows to be worth it.
    monkeypatch.setattr(placement, "SPARK_QUERY", 1.0)
    monkeypatch.setattr(reading, "ALWAYS_SEARCHED", 0)
    path, keys = tmp_path / "state", keys_of(*range(0, 16 * GROUP_ROWS, 7))
    with st.StoreParquet(path, [BY_K], create=True, driver_rows=100) as store:
        store.add(BY_K.name, rows_of(0, 16 * GROUP_ROWS))
        store.commit(1, None)
    for tasks, is_searched_here in ((100, False), (2, True)):
        limits = Limits(parallelism=tasks)
        with st.StoreParquet(path, [BY_K], driver_rows=100, limits=limits) as store:
            parts = store.read(BY_K.name, keys)
            assert all((p.table is not None) is is_searched_here for p in parts)
            found = concat([p.fetched().table for p in parts], SCHEMA).column("k")
            assert set(keys.table.column("k").to_pylist()) <= set(found.to_pylist())


@constants(looked_up_keys=2)
def test_keys_in_spark_come_to_a_much_larger_state_on_the_driver(spark: SparkSession) -> None:
    store = st.StoreMemory([BY_K])
    store.add(BY_K.name, rows_of(0, 3_200))
    store.commit(1, None)
    (found,) = store.read(BY_K.name, keys_of(*range(100)).in_spark(lambda: spark))
    assert found.rows == 100
    (found,) = store.read(BY_K.name, keys_of(*range(101)).in_spark(lambda: spark))
    assert found.rows == 3_200  # to send them takes less time than to fetch the keys


def test_a_small_state_on_the_driver_is_sent_whole_where_spark_has_the_keys(
    spark: SparkSession,
) -> None:
    keys = keys_of(1, 2).in_spark(lambda: spark)
    for most, limits, is_whole in (
        (4, Limits(), True),
        (3, Limits(), False),
        (4, Limits(broadcast_bytes=10), False),
    ):
        store = st.StoreMemory([BY_K], limits=limits)
        store.add(BY_K.name, rows_of(0, 20))
        store.commit(1, None)
        with constants(looked_up_keys=most), JobCounter(spark) as jobs:
            (found,) = store.read(BY_K.name, keys)
        assert found.rows == (20 if is_whole else 2)
        assert (jobs.count == 0) is is_whole


@constants(looked_up_keys=200)
def test_a_large_table_does_not_come_to_the_driver_for_many_keys(
    postgres: PostgresServer, spark: SparkSession
) -> None:
    limits = Limits(given_rows=100)
    with st.StorePostgres(
        postgres.url, [BY_K], schema="placement", create=True, driver_bytes=1_000, limits=limits
    ) as store:
        store.add(BY_K.name, rows_of(0, 3_000))
        store.commit(1, None)
        (few,) = store.read(BY_K.name, keys_of(*range(100)))
        (many,) = store.read(BY_K.name, keys_of(*range(101)))
        (in_spark,) = store.read(BY_K.name, keys_of(*range(201)).in_spark(lambda: spark))
        assert few.rows == 100
        for found in (many, in_spark):
            assert found.frame is not None
            assert found.frame.count() == 3_000  # which the reader joins with the keys


def sums_of(rows: st.ZSet[Row]) -> st.ZSet[st.Pair[int, int]]:
    return st.group_reduce_flatten(rows, by=lambda r: r.k, zero=int, pick_value=lambda r: r.digit)


def running_sums(rows: st.ZSet[Row]) -> st.ZSet[Row]:
    return st.window(
        rows,
        by=lambda r: r.k,
        order=lambda r: r.digit,
        into=Row,
        digit=st.win.sum(lambda r: r.digit),
    )


def test_tasks_compute_many_partitions_of_windows_sooner_than_groups(spark: SparkSession) -> None:
    ran = []
    for query in (sums_of, running_sums):
        graph: Any = st.compile(query)
        limits = Limits(parallelism=2)
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
        for _ in range(2):  # a first load has no state to read
            stepper.step((on_the_driver(120_000),))
        ran.append({v.how for v in stepper.metrics[-1].vertices.values()})
    assert ran == [{"driver"}, {"tasks"}]
