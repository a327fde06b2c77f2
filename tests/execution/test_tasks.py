"""Large steps in Spark's tasks, which compute with Arrow, against plain Python."""

from __future__ import annotations

import os
import pickle
import re
import threading
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as hs
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.execution import task_executor
from stepping_spark.execution.tasks import pickled
from stepping_spark.plan.planner import plan_of
from stepping_spark.plan.segments import ANYWHERE, NotInTasks, Piece, Segment, segments_of
from stepping_spark.rows.schema import ZSetType
from tests.cases import constants
from tests.elsewhere import IN_TASKS, QUERY
from tests.every_store import MakeStore
from tests.oracle.test_oracle import REGISTERS, expected, shown
from tests.queries import Circuit
from tests.strategies import Step, streams_of

PYTHON_ROWS = "fields of every type"
"""Its groups are Z-sets of Python, of rows with an Enum, and tasks lack the classes of users."""


def in_tasks(query: Circuit, *, optimize: bool) -> bool:
    """Whether tasks compute a query."""
    try:
        segments_of(plan_of(st.compile(query.in_spark, optimize=optimize)))
    except NotInTasks:
        return False
    return query.name != PYTHON_ROWS


def both_ways(queries: Iterable[Circuit]) -> list[Any]:
    """Each query with the rules and without them."""
    return [
        pytest.param(q, rule, id=f"{q}, {'optimized' if rule else 'as written'}")
        for q in queries
        for rule in (True, False)
    ]


def of_one_input(steps: list[Step]) -> list[Step]:
    """Steps in each of which one input changes: others need no segments."""
    return [
        tuple(z if i == n % len(step) else z * 0 for i, z in enumerate(step))
        for n, step in enumerate(steps)
    ]


@pytest.mark.parametrize(("query", "optimize"), both_ways(QUERY.values()))
@pytest.mark.turn(12)
@settings(max_examples=2, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(data=hs.data())
def test_tasks_give_what_plain_python_gives(
    spark: SparkSession, query: Circuit, optimize: bool, data: hs.DataObject
) -> None:
    steps = data.draw(streams_of(*query.rows, max_steps=3))
    steps += data.draw(streams_of(*query.rows, max_steps=2).map(of_one_input))
    stepper = stepper_of(query.in_spark, optimize=optimize)
    assert [shown(stepper.step(s)) for s in steps] == expected(query.changes, steps)
    if in_tasks(query, optimize=optimize):
        assert {m.not_in_tasks for m in stepper.metrics} == {""}


@pytest.mark.parametrize(("query", "optimize"), both_ways(map(QUERY.__getitem__, REGISTERS)))
@pytest.mark.turn(12)
def test_a_store_opened_anew_between_steps_gives_that_too(
    spark: SparkSession, make_store: MakeStore, query: Circuit, optimize: bool
) -> None:
    graph = st.compile(query.in_spark, optimize=optimize)

    @settings(
        max_examples=1,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(steps=streams_of(*query.rows))
    def holds(steps: list[Step]) -> None:
        assume(len(steps) > 2)
        store = make_store(graph)
        found = []
        for step in steps:
            store = make_store.reopen(store, graph)
            stepper = st.Stepper(graph, store, limits=IN_TASKS)
            found.append(shown(stepper.step(step)))
            if in_tasks(query, optimize=optimize):
                assert not stepper.metrics[-1].not_in_tasks
        assert found == expected(query.changes, steps)

    holds()


class Sale(st.Data):
    item: int
    shop: int
    cents: int


class Shop(st.Data):
    shop: int
    city: str


class Sold(st.Data):
    city: str
    n: int
    most: int


def sold(sales: st.ZSet[Sale], shops: st.ZSet[Shop]) -> st.ZSet[Sold]:
    beside = st.join(sales, shops, on_left=lambda s: s.shop, on_right=lambda s: s.shop)
    return st.aggregate(
        beside,
        by=lambda pair: pair.right.city,
        into=Sold,
        n=st.agg.count(),
        most=st.agg.max(lambda pair: pair.left.cents * 2),
    )


SHOPS = st.ZSetPython({Shop(shop=i, city="ABC"[i % 3]): 1 for i in range(20)})


def sales(n: int, weight: int = 1) -> st.ZSetPython[Sale]:
    return st.ZSetPython({Sale(item=i, shop=i % 20, cents=i % 977): weight for i in range(n)})


def stepper_of(
    query: Any, *, optimize: bool = True, local_rows: int = 0, **limits: int
) -> st.Stepper[Any, Any]:
    graph = st.compile(query, optimize=optimize)
    store = st.StoreMemory.from_graph(graph)
    return st.Stepper(graph, store, limits=st.Limits(local_rows=local_rows, **limits))


def where(stepper: st.Stepper[Any, Any]) -> set[str]:
    metrics = stepper.metrics[-1]
    return {v.how for v in metrics.vertices.values()} | {metrics.not_in_tasks} - {""}


def test_a_step_is_one_job(spark: SparkSession) -> None:
    stepper, reference = stepper_of(sold), st.reference(st.compile(sold))
    for step in ((sales(3_000), SHOPS), (sales(2_000, -1), st.ZSetPython())):
        assert shown(stepper.step(step)) == reference.step(step)
        assert where(stepper) == {"tasks"}
    metrics = stepper.metrics[-1]
    assert (metrics.jobs, metrics.queries) == (1, 1)
    assert list(metrics.inputs.values()) == [2_000, 0]
    assert 2_000 in metrics.kept.values()


@pytest.mark.driver
def test_few_rows_are_not_for_tasks(spark: SparkSession) -> None:
    stepper = stepper_of(sold, local_rows=100)
    stepper.step((sales(50), SHOPS))
    assert "tasks" not in where(stepper)
    stepper.step((sales(101), None))
    assert where(stepper) == {"tasks"}


@constants(sampled_rows=100)
def test_a_change_in_spark_is_read_by_tasks(spark: SparkSession) -> None:
    rows = spark.range(4_000).selectExpr("id AS item", "id % 20 AS shop", "id % 977 AS cents")
    stepper = stepper_of(sold)
    (out,) = stepper.step((st.ZSetSpark.from_dataframe(rows, Sale), SHOPS))
    assert out.to_python() == st.reference(st.compile(sold)).step((sales(4_000), SHOPS))[0]
    assert where(stepper) == {"tasks"}


def processes(sales: st.ZSet[Sale]) -> st.ZSet[int]:
    return st.map(sales, f=st.python(lambda s: os.getpid() if s.item >= 0 else 0, to=int))


@constants(sampled_rows=100)
def test_a_change_stays_in_spark_where_tasks_cannot_read_the_state(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_executor, "runs_here", lambda _: False)
    rows = spark.range(4_000).selectExpr("id AS item", "id % 20 AS shop", "id % 977 AS cents")
    stepper = stepper_of(processes)
    (out,) = stepper.step((st.ZSetSpark.from_dataframe(rows, Sale),))
    called = dict(out.to_python().iter())
    assert sum(called.values()) == 4_000
    assert os.getpid() not in called


def test_the_driver_goes_on_where_tasks_ended_and_the_other_way_round(spark: SparkSession) -> None:
    graph = st.compile(sold)
    store = st.StoreMemory.from_graph(graph)
    driver = st.Stepper(graph, store)
    tasks = st.Stepper(graph, store, limits=IN_TASKS)
    reference = st.reference(graph)
    for stepper, weight in ((driver, 1), (tasks, 2), (driver, -1), (tasks, -1), (driver, -1)):
        step = (sales(500, weight), SHOPS)
        assert shown(stepper.step(step)) == reference.step(step)


@pytest.mark.driver
def test_an_error_of_a_function_is_told_as_without_tasks(spark: SparkSession) -> None:
    large = st.ZSetPython({Sale(item=1, shop=1, cents=2**62): 1})
    told = []
    for rows in (0, 20):
        stepper = stepper_of(sold, local_rows=rows)
        stepper.step((sales(5), SHOPS))
        with pytest.raises(st.StepError) as error:
            stepper.step((large, None))
        told.append(str(error.value))
        assert stepper.store.last_step() == 1
        stepper.step((sales(30), None))
        assert where(stepper) == {"tasks"}
    of_row = re.compile(r" for the row \(left=\{'shop': 1, .*?\): ")  # which the driver finds
    assert told[0] == of_row.sub(": ", told[1]) != told[1]


@pytest.mark.turn(3)
def test_a_step_with_too_many_rows_for_a_task_is_taken_by_queries(spark: SparkSession) -> None:
    stepper = stepper_of(sold, given_bytes=20_000)
    (out,) = stepper.step((sales(2_000), SHOPS))
    assert out.to_python() == st.reference(st.compile(sold)).step((sales(2_000), SHOPS))[0]
    assert stepper.metrics[-1].not_in_tasks
    assert "not in Spark's tasks: " in str(stepper.metrics[-1])
    stepper.step((sales(2), None))
    assert where(stepper) == {"tasks"}


def test_one_task_runs_a_recursion(spark: SparkSession) -> None:
    closed = QUERY["recursion"].in_spark
    stepper, reference = stepper_of(closed), st.reference(st.compile(closed))
    edges = st.ZSetPython({st.Pair(left=i, right=i + 1): 1 for i in range(5)})
    for change in (edges, -edges, edges):
        assert shown(stepper.step((change,))) == reference.step((change,))
        assert where(stepper) == {"tasks"}
    assert [*stepper.metrics[-1].iterations.values()] == [6]


def test_a_recursion_without_an_end_is_told_as_without_tasks(spark: SparkSession) -> None:
    edges = st.ZSetPython({st.Pair(left=i, right=i + 1): 1 for i in range(5)})

    def closed(e: st.ZSet[st.Pair[int, int]]) -> st.ZSet[st.Pair[int, int]]:
        return st.transitive_closure(e, max_iterations=3)

    told = []
    for rows in (0, 20):
        stepper = stepper_of(closed, local_rows=rows)
        with pytest.raises(st.FixpointError) as error:
            stepper.step((edges,))
        told.append(str(error.value))
    assert told[0] == told[1]


def test_a_recursion_with_too_many_rows_for_a_task_is_taken_by_queries(
    spark: SparkSession,
) -> None:
    closed = QUERY["recursion"].in_spark
    stepper, reference = stepper_of(closed, given_bytes=40_000), st.reference(st.compile(closed))
    # Many short chains: few iterations find all paths, none of them many.
    chains = [(100 * chain + i, 100 * chain + i + 1) for chain in range(25) for i in range(6)]
    edges = st.ZSetPython({st.Pair(left=a, right=b): 1 for a, b in chains})
    assert shown(stepper.step((edges,))) == reference.step((edges,))
    assert "a recursion has more rows" in stepper.metrics[-1].not_in_tasks


def of_price(s: Sale) -> str:
    if s.cents < 0:
        raise ValueError("no price")
    return f"{s.cents // 100} euros"


def prices(sales: st.ZSet[Sale]) -> st.ZSet[str]:
    return st.distinct(st.map(sales, f=st.python(of_price)))


def test_tasks_call_python(spark: SparkSession) -> None:
    stepper, reference = stepper_of(prices), st.reference(st.compile(prices))
    for change in (sales(500), sales(300, -1)):
        assert shown(stepper.step((change,))) == reference.step((change,))
        assert where(stepper) == {"tasks"}


def test_a_function_that_workers_cannot_get_is_called_on_the_driver(spark: SparkSession) -> None:
    lock = threading.Lock()

    def price(s: Sale) -> str:
        with lock:
            return of_price(s)

    def locked(sales: st.ZSet[Sale]) -> st.ZSet[str]:
        return st.distinct(st.map(sales, f=st.python(price)))

    stepper = stepper_of(locked)
    assert shown(stepper.step((sales(500),))) == st.reference(st.compile(locked)).step(
        (sales(500),)
    )
    assert "cannot be sent to workers" in stepper.metrics[-1].not_in_tasks


def test_a_row_that_python_cannot_take_keeps_no_later_step_from_tasks(spark: SparkSession) -> None:
    told = []
    for rows in (0, 20):
        stepper = stepper_of(prices, local_rows=rows)
        with pytest.raises(st.StepError, match="no price") as error:
            stepper.step((st.ZSetPython({Sale(item=1, shop=1, cents=-1): 1}),))
        told.append(str(error.value))
        stepper.step((sales(30),))
        assert where(stepper) == {"tasks"}
    assert told[0] == told[1]


def test_what_failed_tasks_have_written_goes_away(spark: SparkSession) -> None:
    graph = st.compile(sold)
    with closing(st.StoreMemory.from_graph(graph)) as store:
        stepper = st.Stepper(graph, store, limits=IN_TASKS)
        stepper.step((sales(100), SHOPS))
        before = store.for_tasks()
        Path(before.folder, "left.arrow").write_bytes(b"")
        stepper.step((sales(100), None))
        after = store.for_tasks()
        files = {p for paths in after.files.values() for p in paths}
        assert {str(p) for p in Path(after.folder).iterdir()} == files
    assert not Path(after.folder).exists()


def test_a_plan_for_workers_is_without_classes_of_the_user() -> None:
    plan = plan_of(st.compile(sold))
    made, _ = pickle.loads(pickled(plan, segments_of(plan)))
    here, there = plan.outputs[0].type, made.outputs[0].type
    assert isinstance(here, ZSetType)
    assert here.row != there.row  # its class is another one
    assert here.schema.arrow == there.schema.arrow


def test_a_plan_is_cut_where_rows_change_places() -> None:
    plan = plan_of(st.compile(sold, whole_rows=True))
    cut = [
        {plan.names[p.member.vertex][0].parts[-1] for p in segment.pieces if isinstance(p, Piece)}
        for segment in segments_of(plan).segments
    ]
    # By shop; then by city, the buckets of which are where the city is.
    assert cut == [set(), {"join", "map_2", "accumulate"}, {"top_of_256", "map_3"}]


def test_only_what_changes_has_a_part_and_rows_are_not_sent_to_find_others() -> None:
    plan = plan_of(st.compile(sold, whole_rows=True))
    sales_in, shops_in = plan.graph.inputs
    segments = segments_of(plan, [shops_in])
    pieces = [p for segment in segments.segments for p in segment.pieces]
    assert [p.routes[sales_in].key for p in pieces if sales_in in p.routes] == [ANYWHERE]
    kept = {state.change for segment in segments.segments for state, _ in segment.adds}
    assert sales_in in kept
    assert shops_in not in kept
    assert segments_of(plan, [sales_in, shops_in]).segments == (Segment((), ()),)


def test_explain_says_whether_tasks_take_large_steps(spark: SparkSession) -> None:
    takes = st.explain(st.compile(sold)).in_tasks
    of_tasks, and_rows = takes.split("; ")
    assert of_tasks == "a large step is one job of Spark's tasks, if that is faster"
    assert and_rows == "it exchanges rows up to 2 times"
    page = str(st.explain(st.compile(QUERY["functions of columns"].in_spark)))
    why = "no job of Spark's tasks: only Spark knows a function in map_many"
    assert f"a step in which all inputs change is {why}" in page
