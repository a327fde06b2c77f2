"""The plan of a step: what is kept, what is shared, and that steps do not grow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.language import linear
from stepping_spark.plan.planner import plan_of
from tests.cases import Link, Z


class Node(st.Data):
    id: int


class Named(st.Data):
    name: str
    target: int


class Found(st.Data):
    query: int
    at: int


def three_steps(query: st.ZSet[Node], links: st.ZSet[Link]) -> st.ZSet[Found]:
    """Seed 001: what is within three links of each query."""
    step0 = st.map(query, f=lambda q: Found(query=q.id, at=q.id))
    step1 = _follow(step0, links)
    step2 = _follow(step1, links)
    step3 = _follow(step2, links)
    return step3


def _follow(found: st.ZSet[Found], links: st.ZSet[Link]) -> st.ZSet[Found]:
    joined = st.join(found, links, on_left=lambda f: f.at, on_right=lambda link: link.source)
    return st.map(joined, f=lambda p: Found(query=p.left.query, at=p.right.target))


def test_three_joins_with_links_share_one_arrangement_of_links() -> None:
    explained = st.explain(st.compile(three_steps))
    arranged = [(name.split(" by ")[0], key) for name, key in explained.arrangements]
    assert len(arranged) == 4
    assert [a for a in arranged if "links" in a[0]] == [("three_steps.links", ("source",))]
    assert [key for name, key in arranged if "links" not in name] == [("at",)] * 3
    assert str(explained).count("bilinear") == 6


def test_old_and_new_value_of_an_integral_are_one_register() -> None:
    def query(a: st.ZSet[int]) -> tuple[st.ZSet[int], st.ZSet[int]]:
        return st.integrate(a), st.integrate_delay(a)

    assert len(plan_of(st.compile(query)).registers) == 1


def test_a_loop_written_by_hand_is_the_same_register_as_integrate() -> None:
    def by_hand(a: st.ZSet[int]) -> st.ZSet[int]:
        with st.feedback(st.ZSet[int]) as before:
            total = st.add(before, a)
            before.connect(st.delay(total))
        return total

    def delayed_first(a: st.ZSet[int]) -> st.ZSet[int]:
        with st.feedback(st.ZSet[int]) as total_:
            total = st.add(st.delay(total_), a)
            total_.connect(total)
        return total

    def integral(a: st.ZSet[int]) -> st.ZSet[int]:
        return st.integrate(a)

    assert st.compile(by_hand) == st.compile(integral)
    assert st.compile(delayed_first) == st.compile(integral)
    assert st.compile(by_hand, optimize=False) != st.compile(integral, optimize=False)


def test_the_cache_of_a_grouping_is_fed_by_its_changes() -> None:
    cache = st.Cache[st.Pair[int, int]](name="sums")

    def query(a: st.ZSet[Link]) -> st.ZSet[st.Pair[int, int]]:
        grouped = st.group_reduce_flatten(
            a, by=lambda a: a.target, zero=int, pick_value=lambda a: a.source
        )
        _ = cache[grouped](lambda g: st.integrate(g))
        return grouped

    explained = st.explain(st.compile(query))
    assert "in full" not in str(explained)
    assert [name for name, _ in explained.arrangements if name.startswith("cache.")] == [
        "cache.sums"
    ]


def test_what_nobody_needs_is_not_run() -> None:
    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        st.distinct(a)
        return st.map(a, f=lambda x: x + 1)

    graph = st.compile(query)
    assert [v.operator.name for v in graph.vertices.values()] == ["input", "map"]
    assert plan_of(graph).registers == ()


def test_incremental_operators_read_by_key_and_others_say_that_they_do_not() -> None:
    def query(a: st.ZSet[Link]) -> st.ZSet[Link]:
        return linear.distinct(a)

    incremental = str(st.explain(st.compile(st.incrementalize(query))))
    as_written = str(st.explain(st.compile(st.incrementalize(query), optimize=False)))
    assert "recomputed for the keys of the change" in incremental
    assert "in full" not in incremental
    assert "recomputed in full: it reads all of" in as_written


class AggregateCall:
    """What Spark is asked in each step: the queries, and the lines of their plans."""

    def __init__(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[list[int]] = []
        frames = type(spark.range(0))
        for action in ("collect", "toArrow", "localCheckpoint"):
            monkeypatch.setattr(frames, action, self._measured(getattr(frames, action)))

    def _measured(self, action: Callable[..., Any]) -> Callable[..., Any]:
        def measured(frame: Any, *args: Any, **kwargs: Any) -> Any:
            plan = frame._jdf.queryExecution().optimizedPlan().toString()
            self.steps[-1].append(len(plan.splitlines()))
            return action(frame, *args, **kwargs)

        return measured


@pytest.mark.parametrize(
    ("local_rows", "steps"),
    [
        pytest.param(st.Limits.local_rows, 100, id="driver"),
        pytest.param(0, 15, id="spark", marks=pytest.mark.turn(6, number=1)),
    ],
)
def test_a_step_is_as_large_in_the_end_as_step_3(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, local_rows: int, steps: int
) -> None:
    capital: Any = F.hex  # which only Spark can evaluate, also for the driver

    def query(a: st.ZSet[Named], b: st.ZSet[Node]) -> st.ZSet[st.Pair[int, str]]:
        loud = st.map(a, f=lambda a: Named(name=capital(a.name), target=a.target))
        joined = st.join(loud, b, on_left=lambda a: a.target, on_right=lambda b: b.id)
        return st.group_reduce_flatten(
            joined, by=lambda p: p.left.name, zero=int, pick_value=lambda p: p.right.id
        )

    graph = st.compile(query)
    store = st.StoreMemory.from_graph(graph)
    stepper = st.Stepper(graph, store, local_rows=local_rows)
    asked = AggregateCall(spark, monkeypatch)
    for n in range(steps):
        asked.steps.append([])
        name = Named(name=f"n{n}", target=n % 2)
        stepper.step((Z({name: 1}), Z({Node(id=n % 2): 1})))
    assert all(sum(lines) > 0 for lines in asked.steps)
    assert asked.steps[-1] == asked.steps[2]
    assert stepper.metrics[-1].queries == stepper.metrics[2].queries <= len(asked.steps[2])
    for register in plan_of(graph).registers:
        assert store.batches(register.name) <= 2 * math.log2(steps) + 1


@pytest.mark.usefixtures("by_queries")
def test_to_pick_fields_costs_no_query_and_delays_nothing(spark: SparkSession) -> None:
    def query(a: st.ZSet[Link]) -> tuple[st.ZSet[Node], st.ZSet[Node]]:
        targets = st.map(a, f=lambda a: Node(id=a.target))
        heads = st.map(targets, f=lambda t: t)
        return st.distinct(targets), heads

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
    for n in range(3):
        distinct, heads = stepper.step((Z({Link(source=n, target=n // 2): 1}),))
    assert distinct == Z({Node(id=1): 1})
    assert heads == Z({Node(id=1): 1})
    (stage,) = plan_of(graph).stages
    assert len(stage.projections) == 1
    metrics = stepper.metrics[-1]
    assert metrics.queries == 1
    assert metrics.vertices["query.targets"].how == "driver"


@pytest.mark.driver
def test_metrics_name_every_vertex() -> None:
    graph = st.compile(three_steps)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    stepper.step((st.ZSetPython({Node(id=1): 1}), st.ZSetPython({Link(source=1, target=2): 1})))
    (metrics,) = stepper.metrics
    ran = {str(p) for p, v in graph.vertices.items() if v.operator.name in ("join", "map")}
    assert ran <= set(metrics.vertices)
    assert metrics.jobs == 0
    assert metrics.ms > 0
    assert sum(v.ms for v in metrics.vertices.values()) <= metrics.ms


def test_variables_of_a_caller_elsewhere_do_not_hide_what_a_query_is_annotated_with() -> None:
    elsewhere: dict[str, Any] = {}
    exec("def call(f, query):\n    st = Link = None\n    return f(query)", elsewhere)
    assert elsewhere["call"](st.compile, three_steps) == st.compile(three_steps)


def test_a_key_may_have_a_field_twice(spark: SparkSession) -> None:
    def query(a: st.ZSet[Link], b: st.ZSet[Node]) -> st.ZSet[st.Pair[Link, Node]]:
        return st.join(
            a, b, on_left=lambda x: (x.source, x.target), on_right=lambda n: (n.id, n.id)
        )

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    loop, node = Link(source=1, target=1), Node(id=1)
    stepper.step((None, st.ZSetPython({node: 1})))
    (out,) = stepper.step((st.ZSetPython({loop: 1, Link(source=1, target=2): 1}), None))
    assert out == st.ZSetPython({st.Pair(left=loop, right=node): 1})


def test_paths_and_text_are_the_same_for_the_same_program() -> None:
    assert str(st.compile(three_steps)) == str(st.compile(three_steps))
    names = [str(p) for p in st.compile(three_steps).vertices]
    assert "three_steps._follow.join" not in names  # the user's variables name what they hold
    assert "three_steps.step0" in names
    assert "three_steps._follow_2.join.join" in names


def test_a_vertex_comes_after_all_it_takes_also_where_a_loop_leads_back_to_it() -> None:
    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        with st.feedback(st.ZSet[int]) as y:
            z = st.add(a, y)
            w = st.filter(z, f=lambda x: x > 1)
            y.connect(st.delay(w))
        return z

    order = list(st.compile(query, optimize=False).walk())
    place = {v: i for i, v in enumerate(order)}
    assert all(place[taken] < place[v] for v in order for taken in v.inputs)
