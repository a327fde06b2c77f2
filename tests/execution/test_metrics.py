"""What a step tells of itself: where each vertex ran, and why."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark import functions as F
from stepping_spark.circuit.operators import Arrange, Delay, Feedback, Input, Integrate
from stepping_spark.plan.metrics import Cost, StepMetrics, VertexMetrics
from tests.cases import Z, stepper_of
from tests.queries import CIRCUITS, QUERIES, Circuit

pytestmark = pytest.mark.driver

Link = st.Pair[int, int]


class Order(st.Data):
    id: int
    item: str


def orders(n: int) -> st.ZSetPython[Order]:
    return Z({Order(id=i, item="tea"): 1 for i in range(n)})


def counts(a: st.ZSet[Order]) -> st.ZSet[int]:
    items = st.map(a, f=lambda o: o.item)
    return st.count(st.distinct(items))


def told(stepper: st.Stepper[Any, Any]) -> dict[str, tuple[str, str]]:
    """Where each vertex of the last step ran, and why."""
    return {path: (v.how, v.why) for path, v in stepper.metrics[-1].vertices.items()}


def test_few_rows_are_for_the_driver() -> None:
    stepper = stepper_of(counts)
    stepper.step((orders(3),))
    assert told(stepper)["counts.items"][0] == "driver"
    assert told(stepper)["counts.count.make_scalar"] == (
        "driver",
        "rows read: 1; a Spark query would take longer",
    )


@pytest.mark.parametrize("vertices", [10, 11])
def test_of_many_vertices_the_slowest_come_first(vertices: int) -> None:
    metrics = StepMetrics(1, ms=1_000.0)
    for n in range(vertices):
        metrics.note(f"q.v_{n}", Cost(float(n * 7 % 11 + 1), 0, "driver", ""), 1, 1, {})
    slowest = "slowest: q.v_3 11.0 ms, q.v_6 10.0 ms, q.v_9 9.0 ms"
    assert (slowest in str(metrics)) is (vertices > 10)


def test_a_vertex_says_which_function_of_which_line_asks_spark(spark: SparkSession) -> None:
    def hashes(a: st.ZSet[Order]) -> st.ZSet[tuple[str, int]]:
        return st.map(a, f=lambda o: (F.base64(o.item), o.id + 1))

    stepper = stepper_of(hashes)
    stepper.step((orders(3),))
    found = stepper.metrics[-1]
    (v,) = found.vertices.values()
    assert found.queries == 1
    assert re.search(
        r"; asks Spark for base64\(item\) \(test_metrics.py:\d+, in .*hashes\)$", v.why
    )
    assert "asks Spark for base64(item)" in str(found)


def test_a_step_names_the_functions_of_keys_that_ask_spark(spark: SparkSession) -> None:
    def pairs(a: st.ZSet[Order], b: st.ZSet[Order]) -> st.ZSet[st.Pair[Order, Order]]:
        return st.join(a, b, on_left=lambda o: F.base64(o.item), on_right=lambda o: o.item)

    stepper = stepper_of(pairs)
    stepper.step((orders(1), orders(1)))
    stepper.step((orders(2), orders(2)))
    assert stepper.metrics[-1].asked == ("base64(item)",)
    assert "keys ask Spark for base64(item)" in " ".join(str(stepper.metrics[-1]).split())


@pytest.mark.usefixtures("by_queries")
def test_more_rows_than_local_rows_are_for_spark(spark: SparkSession) -> None:
    def query(a: st.ZSet[Order]) -> st.ZSet[Order]:
        return st.distinct(a)

    stepper = stepper_of(query, st.Limits(local_rows=4))
    stepper.step((orders(4),))
    few = "rows read: 4; a Spark query would take longer"
    assert told(stepper)["query.distinct.distinct"] == ("driver", few)
    stepper.step((orders(3),))  # and the three that are there
    many = "rows read: 6, more than local_rows=4"
    assert told(stepper)["query.distinct.distinct"] == ("spark", many)


@pytest.mark.usefixtures("by_queries")
def test_rows_in_spark_stay_there(spark: SparkSession) -> None:
    def query(a: st.ZSet[Order]) -> tuple[st.ZSet[Order], st.ZSet[str], st.ZSet[int]]:
        once = st.distinct(a)
        loud = st.map(once, f=st.python(lambda o: o.item + "!", to=str))
        digits = st.map(once, f=lambda o: o.id % 10)
        return once, loud, st.distinct(digits)

    stepper = stepper_of(query, st.Limits(local_rows=4))
    frame = spark.range(150_000).selectExpr("id", "'tea' AS item")
    stepper.step((st.ZSetSpark.from_dataframe(frame, Order),))
    assert told(stepper)["query.loud"] == ("python", "a Python function, of rows in Spark")
    assert told(stepper)["query.digits"] == (
        "spark",
        "query.distinct.distinct is in Spark: 150,000 rows (3.5 MB), more than the 10,000 that the "
        "driver fetches",
    )
    stepper.step((Z({Order(id=-1, item="tea"): 1}),))
    on_driver = ("python", "a Python function, of rows on the driver")
    assert told(stepper)["query.loud"] == on_driver
    stepper.step((None,))
    assert told(stepper)["query.loud"][0] == "nothing to do"


def test_nothing_to_do_is_told() -> None:
    stepper = stepper_of(counts)
    stepper.step((orders(1),))
    stepper.step((None,))
    assert told(stepper)["counts.distinct.distinct"] == (
        "nothing to do",
        "an input is empty",
    )


def closure(a: st.ZSet[Link]) -> st.ZSet[Link]:
    return st.transitive_closure(a)


def chain(n: int) -> st.ZSetPython[Link]:
    return Z({st.Pair(left=i, right=i + 1): 1 for i in range(n)})


def test_a_recursion_has_the_vertices_that_it_iterates(spark: SparkSession) -> None:
    stepper = stepper_of(closure)
    stepper.step((chain(4),))
    metrics = stepper.metrics[-1]
    loop = metrics.vertices["closure.transitive_closure.closed"]
    (iterations,) = metrics.iterations.values()
    assert (loop.how, loop.why, iterations) == ("loop", "a recursion", 5)
    added = metrics.vertices["closure.transitive_closure.closed.add"]
    assert (added.how, added.rows_out) == ("driver", 4 + 3 + 2 + 1)
    assert sum(v.ms for v in metrics.vertices.values()) <= metrics.ms
    stepper.step((None,))
    assert told(stepper)["closure.transitive_closure.closed"] == (
        "loop",
        "a recursion; an input is empty",
    )


@pytest.mark.usefixtures("by_queries")
def test_the_jobs_of_a_recursion_are_told_with_the_vertices_that_have_them(
    spark: SparkSession,
) -> None:
    stepper = stepper_of(closure, st.Limits(local_rows=0))
    stepper.step((chain(2),))
    metrics = stepper.metrics[-1]
    added = metrics.vertices["closure.transitive_closure.closed.add"]
    assert added.how == "spark"
    assert added.jobs
    assert sum(v.jobs or 0 for v in metrics.vertices.values()) == metrics.jobs


# Values and inputs are there, and nothing is computed for them.
SILENT = (Input, Integrate, Delay, Arrange, Feedback)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("query", [*QUERIES, *CIRCUITS], ids=str)
def test_every_vertex_that_computes_is_named(query: Circuit, optimize: bool) -> None:
    graph = st.compile(query.changes, optimize=optimize)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    stepper.step((None,) * len(graph.input))
    computing = {str(p) for p, v in graph.vertices.items() if not isinstance(v.operator, SILENT)}
    assert computing <= set(stepper.metrics[-1].vertices)


@pytest.mark.usefixtures("by_queries")
def test_jobs_of_large_streams_are_told_with_each(spark: SparkSession) -> None:
    def query(a: st.ZSet[Order]) -> tuple[st.ZSet[int], st.ZSet[Order], st.ZSet[str]]:
        loud = st.map(a, f=st.python(lambda o: o.item + "!", to=str))
        return st.distinct(st.map(a, f=lambda o: o.id)), st.distinct(a), loud

    stepper = stepper_of(query, st.Limits(local_rows=4))
    frame = spark.range(20_000).selectExpr("id", "CAST(id AS STRING) AS item")
    stepper.step((st.ZSetSpark.from_dataframe(frame, Order),))
    stepper.step((Z({Order(id=i, item="tea"): 1 for i in range(5)}),))
    metrics = stepper.metrics[-1]
    ran = {p: v for p, v in metrics.vertices.items() if v.how == "spark" and v.within is None}
    assert len(ran) == 2
    assert all(v.jobs for v in ran.values())
    assert sum(v.jobs or 0 for v in metrics.vertices.values()) == metrics.jobs
    assert metrics.queries == 2


@pytest.mark.usefixtures("by_queries")
def test_jobs_of_python_functions_in_spark_are_told(spark: SparkSession) -> None:
    def query(a: st.ZSet[Order]) -> st.ZSet[str]:
        once = st.distinct(a)
        return st.map(once, f=st.python(lambda o: o.item + "!", to=str), name="loud")

    stepper = stepper_of(query, st.Limits(local_rows=4))
    frame = spark.range(150_000).selectExpr("id", "'tea' AS item")
    stepper.step((st.ZSetSpark.from_dataframe(frame, Order),))
    assert stepper.metrics[-1].vertices["query.loud"].jobs


def test_iterations_are_summed_and_the_dearest_place_is_told() -> None:
    idle = VertexMetrics("v", 0, 0, 1.0, 0, "nothing to do", "nothing")
    here = VertexMetrics("v", 2, 1, 2.0, 0, "driver", "few")
    there = VertexMetrics("v", None, 5, 4.0, 1, "spark", "many")
    assert idle.plus(here) == VertexMetrics("v", 2, 1, 3.0, 0, "driver", "few")
    assert here.plus(idle).how == "driver"
    assert here.plus(there) == VertexMetrics("v", None, 6, 6.0, 1, "spark", "many")
    assert there.plus(here) == here.plus(there)


def test_an_iteration_counts_whoever_shares_its_query() -> None:
    metrics = StepMetrics(1)
    metrics.note("a", Cost(5.0, 1, "spark", "many"), 1, 1, {})
    metrics.note("b", Cost(0.0, 0, "spark", "many", "a"), 1, 1, {})
    metrics.note("b", Cost(100.0, 7, "spark", "many"), 2, 3, {})
    both = metrics.vertices["b"]
    assert (both.ms, both.jobs, both.rows_in, both.within) == (100.0, 7, 3, None)


def test_what_runs_within_several_is_told_once_and_by_itself_if_it_does() -> None:
    metrics = StepMetrics(1)
    driver = Cost(1.0, 0, "driver", "few")
    for host in ("a", "b", "a"):
        metrics.note(host, driver, 1, 1, {"c": (2, 3)})
    assert (metrics.vertices["c"].within, metrics.vertices["c"].rows_in) == ("a", 4)
    metrics.note("c", driver, 5, 6, {})
    assert (metrics.vertices["c"].within, metrics.vertices["c"].rows_in) == (None, 5)


def test_two_recursions_are_told_apart(spark: SparkSession) -> None:
    def query(a: st.ZSet[Link], b: st.ZSet[Link]) -> tuple[st.ZSet[Link], st.ZSet[Link]]:
        return st.transitive_closure(a), st.transitive_closure(b)

    stepper = stepper_of(query)
    stepper.step((chain(4), chain(2)))
    gave = {p: v.rows_out for p, v in stepper.metrics[-1].vertices.items() if "closed.add" in p}
    assert gave["query.transitive_closure.closed.add"] == 4 + 3 + 2 + 1
    assert gave["query.transitive_closure_2.closed.add"] == 2 + 1


@pytest.mark.usefixtures("by_queries")
def test_printed_it_is_a_page(spark: SparkSession) -> None:
    stepper = stepper_of(counts, st.Limits(local_rows=0))
    stepper.step((orders(2),))
    metrics = stepper.metrics[-1]
    lines = str(metrics).splitlines()
    assert lines[0] == f"step 1: {metrics.ms:.1f} ms; Spark: jobs 4, queries 2"
    assert "      rows read: 1, more than local_rows=0" in lines
    assert set(metrics.vertices) <= set(re.findall(r"[\w.]*\w", str(metrics)))
    assert any(line.startswith("      with it: ") for line in lines)
    assert max(map(len, lines)) < 100
