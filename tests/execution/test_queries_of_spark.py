"""What Spark SQL computes where neither the driver nor tasks do: edges that its text must keep."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.circuit.physical import times_read
from stepping_spark.execution.spark.nodes import Rendering
from stepping_spark.plan.planner import plan_of
from stepping_spark.plan.step_ir import nodes
from tests.cases import Z, constants
from tests.queries import CIRCUITS, QUERIES, Circuit

pytestmark = pytest.mark.usefixtures("by_queries", "spark")


class Key(st.Data):
    key: int | None
    text: str


class Event(st.Data):
    n: int
    at: st.LocalDateTime


def at(hour: int) -> Any:
    return dt.datetime(2024, 5, 1, hour)


def taken(query: Any, *steps: Any) -> list[Any]:
    """The outputs of steps, which plain Python gives, too."""
    graph: Any = st.compile(query)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
    reference = st.reference(graph)
    outputs = []
    for step in steps:
        (out,) = stepper.step(step)
        assert (out.to_python(),) == reference.step(step)
        assert {v.how for v in stepper.metrics[-1].vertices.values()} & {"spark", "nothing to do"}
        outputs.append(out.to_python())
    return outputs


def without(a: st.ZSet[Key], b: st.ZSet[Key]) -> st.ZSet[Key]:
    return st.antijoin(a, b, on_left=lambda k: k.key, on_right=lambda k: k.key)


def pairs(a: st.ZSet[Key], b: st.ZSet[Key]) -> st.ZSet[st.Pair[Key, Key]]:
    return st.join(a, b, on_left=lambda k: k.key, on_right=lambda k: k.key)


def looked_up(a: st.ZSet[Key], b: st.ZSet[Key]) -> st.ZSet[tuple[Key, Key | None]]:
    there = st.Lookup(b, key=lambda k: k.key, on=lambda row: row[0].key, how="left")
    return st.delta_join(a, there)


@pytest.mark.parametrize("query", [*QUERIES, *CIRCUITS], ids=str)
def test_a_node_says_how_often_its_text_reads_each_input(query: Circuit) -> None:
    plan = plan_of(st.compile(query.in_spark))
    members = (m for stage in plan.stages for m in stage.members if m.python is None)
    for n in (n for m in members for n in nodes(m.term) if n.trees):
        rendering = Rendering("t", in_buckets=True)
        args = [rendering.relation(f"@{i}@", t) for i, t in enumerate(n.types)]
        main = rendering.parts(n.parts[:1], args, n.types).text
        texts = main + "".join(d.query.text for d in rendering.derived)
        found = [texts.count(f"@{i}@") for i, _ in enumerate(args)]
        assert found == [times_read(n.trees[0], i) for i, _ in enumerate(args)]


def test_null_matches_nothing() -> None:
    none = Key(key=None, text="a")
    (met,) = taken(pairs, (Z({none: 1}), Z({none: 1})))
    assert met == Z()
    (rest,) = taken(without, (Z({none: 1}), Z({none: 1})))
    assert rest == Z({none: 1})
    (alone,) = taken(looked_up, (Z({none: 1}), Z({none: 1})))
    assert alone == Z({(none, None): 1})


def test_a_row_at_the_watermark_is_in_time() -> None:
    def query(events: st.ZSet[Event]) -> st.ZSet[Event]:
        return st.map(events, f=lambda e: e)

    graph: Any = st.compile(query, lateness={"events": (lambda e: e.at, "1 hour")})
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
    stepper.step((Z({Event(n=1, at=at(5)): 1}),))
    edge = Z({Event(n=2, at=at(4)): 1})
    (kept,) = stepper.step((edge,))
    assert kept == edge
    with pytest.raises(st.InputError, match="too late"):
        stepper.step((Z({Event(n=3, at=at(3)): 1}),))


def distinct(a: st.ZSet[int]) -> st.ZSet[int]:
    return st.distinct(a)


def test_a_row_whose_weight_falls_to_zero_goes() -> None:
    _, gone = taken(distinct, (Z({1: 2, 2: 1}),), (Z({1: -2}),))
    assert gone == Z({1: -1})


@constants(sampled_rows=0)
def test_rows_that_stay_as_they_are_are_no_rows_of_an_output_in_spark() -> None:
    graph: Any = st.compile(distinct)
    store = st.StoreMemory.from_graph(graph, driver_bytes=0)
    stepper: Any = st.Stepper(graph, store, limits=st.Limits(local_rows=0, fetched_rows=0))
    stepper.step((Z(dict.fromkeys(range(50), 1)),))
    (out,) = stepper.step((Z(dict.fromkeys(range(20), 1)),))
    assert out == Z()
    assert list(stepper.metrics[-1].outputs.values()) == [0]


class Wide(st.Data):
    key: int
    text: str


def wide_pairs(a: st.ZSet[Wide], b: st.ZSet[Wide]) -> st.ZSet[st.Pair[Wide, Wide]]:
    return st.join(a, b, on_left=lambda x: x.key, on_right=lambda x: x.key)


def test_few_rows_of_many_bytes_stay_in_spark() -> None:
    graph: Any = st.compile(wide_pairs)
    change = Z({Wide(key=i % 2, text=f"{i:01000}"): 1 for i in range(20)})
    for most, in_spark in ((10_000_000, False), (100_000, True)):
        limits = st.Limits(local_rows=0, fetched_bytes=most)
        stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
        (out,) = stepper.step((change, change))  # 200 pairs of 2,000 bytes
        assert out.in_spark is in_spark
        assert (out,) == st.reference(graph).step((change, change))
