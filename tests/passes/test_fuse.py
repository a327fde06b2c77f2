"""Chains of linear operators become one vertex: the same results, in fewer questions to Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.plan.planner import plan_of
from tests.cases import User, Z


class Order(st.Data):
    id: int
    user: int
    item: str


def joined(a: st.ZSet[Order], b: st.ZSet[User]) -> st.ZSet[st.Pair[Order, User]]:
    return st.join(a, b, on_left=lambda o: o.user, on_right=lambda u: u.id)


def chain(a: st.ZSet[Order], b: st.ZSet[User]) -> st.ZSet[tuple[str, str]]:
    pairs = st.join(a, b, on_left=lambda o: o.user, on_right=lambda u: u.id)
    named = st.map(pairs, f=lambda p: (p.left.item, p.right.name))
    long: Any = lambda row: F.length(row[0]) > 2  # noqa: E731
    kept = st.filter(named, f=long)
    capital: Any = lambda row: (F.hex(row[0]), row[1])  # noqa: E731
    loud: st.ZSet[tuple[str, str]] = st.map(kept, f=capital)
    return loud


def summed(a: st.ZSet[Order]) -> st.ZSet[st.Pair[int, str]]:
    odd = st.filter(a, f=lambda o: o.id % 2 == 1)
    items = st.map(odd, f=lambda o: (o.item, o.id * 2))
    return st.group_reduce_flatten(
        items, by=lambda row: row[0], zero=int, pick_value=lambda row: row[1]
    )


def names(query: Callable[..., Any]) -> list[str]:
    """The operators that the plan of a query works with."""
    graph = plan_of(st.compile(query, whole_rows=True)).graph
    return [v.operator.name for v in graph.vertices.values()]


def test_a_chain_is_one_vertex_and_a_map_of_fields_moves_into_the_join(
    spark: SparkSession,
) -> None:
    assert names(chain).count("join·map") == 2
    assert "add·filter·map" in names(chain)
    assert {"map", "filter", "join"}.isdisjoint(names(chain))


def test_a_chain_moves_into_the_sum_that_follows_it() -> None:
    assert "filter·map·accumulate" in names(summed)
    assert {"filter", "map", "accumulate"}.isdisjoint(names(summed))


def test_the_circuit_is_printed_with_the_vertices_that_the_user_wrote() -> None:
    written = {v.operator.name for v in st.compile(summed).vertices.values()}
    assert {"filter", "map", "accumulate"} <= written


def test_explain_tells_which_vertices_are_one(spark: SparkSession) -> None:
    shown = str(st.explain(st.compile(chain)))
    assert re.search(r"one vertex of chain\.kept \(test_fuse\.py:\d+, in chain\)", shown)
    assert re.search(r"one vertex of chain\.loud \(test_fuse\.py:\d+, in chain\)", shown)
    assert "join·map, bilinear" in shown


def test_what_several_read_or_a_user_asked_for_stays_a_vertex() -> None:
    def query(a: st.ZSet[Order]) -> tuple[st.ZSet[Order], st.ZSet[str], st.ZSet[int]]:
        odd = st.filter(a, f=lambda o: o.id % 2 == 1)
        rest = st.filter(a, f=lambda o: o.id % 2 == 0)
        twice = st.map(rest, f=lambda o: o.id * 2)
        return odd, st.map(odd, f=lambda o: o.item), st.add(twice, st.neg(twice))

    assert {"filter", "map", "filter·map"} <= set(names(query))


def test_python_functions_are_not_fused() -> None:
    def query(a: st.ZSet[Order]) -> st.ZSet[int]:
        odd = st.filter(a, f=lambda o: o.id % 2 == 1)
        lengths = st.map(odd, f=st.python(lambda o: len(o.item), to=int))
        return st.map(lengths, f=lambda n: n + 1)

    assert names(query) == ["input", "filter", "map", "map"]


@pytest.mark.usefixtures("by_queries")
def test_a_chain_over_a_join_needs_no_further_job_or_query(spark: SparkSession) -> None:
    found = []
    for query in (joined, chain):
        graph = st.compile(query)
        stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
        for n in range(3):
            order, user = Order(id=n, user=1, item="milk"), User(id=n, name="Ann")
            stepper.step((Z({order: 1}), Z({user: 1})))
        metrics = stepper.metrics[-1]
        found.append((metrics.jobs, metrics.queries, len(plan_of(graph).registers)))
    assert found[0] == found[1]


@pytest.mark.driver
def test_a_chain_asks_spark_once_on_the_driver(spark: SparkSession) -> None:
    graph = st.compile(chain)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    (out,) = stepper.step(
        (
            Z({Order(id=1, user=1, item="milk"): 2, Order(id=2, user=1, item="te"): 1}),
            Z({User(id=1, name="Ann"): 1}),
        )
    )
    assert out == Z({("6D696C6B", "Ann"): 2})
    assert (stepper.metrics[-1].queries, stepper.metrics[-1].jobs) == (1, 0)


@pytest.mark.parametrize("local_rows", [st.Limits.local_rows, 0], ids=["driver", "spark"])
def test_an_error_names_the_line_of_the_operator_that_failed(
    spark: SparkSession, local_rows: int
) -> None:
    def query(a: st.ZSet[Order]) -> st.ZSet[str]:
        small = st.filter(a, f=lambda o: 10 / o.id < 5)
        items = st.map(small, f=lambda o: o.item)
        return st.filter(items, f=lambda item: item != "")

    assert "filter·map·filter" in names(query)
    graph = st.compile(query)
    store = st.StoreMemory.from_graph(graph)
    stepper = st.Stepper(graph, store, local_rows=local_rows)
    line = query.__code__.co_firstlineno + 1
    with pytest.raises(st.StepError, match=rf"query\.small \(test_fuse\.py:{line}, .*filter"):
        stepper.step((Z({Order(id=0, user=1, item="a"): 1}),))
    assert store.last_step() == 0


def test_an_error_after_a_join_s_picked_fields_names_the_function_that_failed(
    spark: SparkSession,
) -> None:
    def query(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[int]:
        joined = st.join(a, b, on_left=lambda x: x, on_right=lambda x: x)
        picked = st.map(joined, f=lambda p: p.left, name="picked")
        return st.map(picked, f=lambda x: x + 2**62, name="beyond")

    graph = st.compile(query)
    for local_rows in (st.Limits.local_rows, 0):
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
        with pytest.raises(st.StepError, match=r"^query\.beyond "):
            stepper.step((Z({2**62: 1}), Z({2**62: 1})))
        stepper.step((Z({1: 1}), Z({1: 1})))
        told = stepper.metrics[-1].vertices
        states = ("integrate", "delay")
        computing = {str(p) for p, v in graph.vertices.items() if v.operator.name not in states}
        assert {p for p in computing if "join" in p} <= set(told)
