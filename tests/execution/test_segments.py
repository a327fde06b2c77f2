"""Where a plan is cut for tasks, and what many parts of the keys give together, without a job."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as hs
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.plan.planner import plan_of
from stepping_spark.plan.segments import EVERYWHERE, WHOLE, NotInTasks, Piece, segments_of
from stepping_spark.relations.blobs import BlobFile
from tests.cases import A, B
from tests.compositions import Composition, compositions, steps_of
from tests.elsewhere import QUERY
from tests.execution.test_tasks import both_ways, in_tasks, of_one_input
from tests.oracle.test_oracle import expected, shown
from tests.queries import Circuit
from tests.strategies import streams_of
from tests.tasks_in_process import LIMITS, tasks_in_process
from tests.tpch.test_tpch import MAINTAINED


@pytest.fixture(scope="module", params=[True, False], ids=["from a file", "sent by Spark"])
def in_process(request: pytest.FixtureRequest) -> Iterator[None]:
    with tasks_in_process(from_a_file=request.param):
        yield


@pytest.mark.parametrize(("query", "optimize"), both_ways(QUERY.values()))
@pytest.mark.turn(12)
@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(data=hs.data())
def test_many_parts_of_the_keys_give_what_plain_python_gives(
    in_process: None, spark: SparkSession, query: Circuit, optimize: bool, data: hs.DataObject
) -> None:
    if not in_tasks(query, optimize=optimize):
        pytest.skip("tasks do not take it")
    steps = data.draw(streams_of(*query.rows, max_steps=3))
    steps += data.draw(streams_of(*query.rows, max_steps=2).map(of_one_input))
    graph = st.compile(query.in_spark, optimize=optimize)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=LIMITS)
    assert [shown(stepper.step(s)) for s in steps] == expected(query.changes, steps)
    assert {m.not_in_tasks for m in stepper.metrics} == {""}


@pytest.mark.turn(2)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    composition=compositions(),
    steps=steps_of() | steps_of().map(of_one_input),
    optimize=hs.booleans(),
)
def test_many_parts_of_the_keys_give_what_random_queries_are(
    in_process: None,
    spark: SparkSession,
    composition: Composition,
    steps: list[Any],
    optimize: bool,
) -> None:
    query: Any = composition.query(st)
    graph: Any = st.compile(query, optimize=optimize)
    try:
        segments_of(plan_of(graph))
    except NotInTasks:
        assume(False)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=LIMITS)
    reference = st.reference(graph)
    for step in steps:
        assert shown(stepper.step(step)) == reference.step(step)
    assert {m.not_in_tasks for m in stepper.metrics} == {""}


class Two(st.Data):
    x: int
    z: int


def by_right(left: st.ZSet[Two], beside: st.ZSet[B], key: Any) -> st.ZSet[B]:
    pairs = st.join(left, beside, on_left=key, on_right=lambda b: b.y)
    return st.map(pairs, f=lambda p: p.right)


@pytest.mark.parametrize("alone", [True, False], ids=["summed", "distinct"])
def test_rows_of_a_register_are_where_the_stream_was_sent_not_where_their_key_says(
    in_process: None, spark: SparkSession, alone: bool
) -> None:
    """One of the joins takes the rows of `a` where they are, the other one sends them by its key.

    So equal rows of the first one may be anywhere.
    """

    def query(a: st.ZSet[Two], b: st.ZSet[B], c: st.ZSet[B]) -> st.ZSet[B]:
        both = by_right(a, b, lambda a: a.x) + by_right(a, c, lambda a: a.z)
        return both if alone else st.distinct(both)

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=LIMITS)
    reference = st.reference(graph)
    numbers = range(100, 110)
    beside = st.ZSetPython({B(name="b", y=n): 1 for n in numbers})
    none: Any = st.ZSetPython({})
    of_b, of_c = ({Two(x=n, z=1): 1 for n in numbers}, {Two(x=8, z=n): 1 for n in numbers})
    more = st.ZSetPython({**of_b, **of_c})
    for step in ((none, beside, beside), (more, none, st.ZSetPython({B(name="c", y=99): 1}))):
        (found,) = stepper.step(step)
        assert (found.to_python(),) == reference.step(step)
        assert found.to_arrow().num_rows == len(found.to_python())
        assert not stepper.metrics[-1].not_in_tasks


def test_a_step_for_which_there_is_no_room_in_a_file_is_sent(
    in_process: None, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(BlobFile, "written", full)
    graph = st.compile(by_name)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=LIMITS)
    rows = st.ZSetPython({A(x=n, name="ab"[n % 2]): 1 for n in range(20)})
    (found,) = stepper.step((rows,))
    assert found == st.ZSetPython({"a": 1, "b": 1})
    assert not stepper.metrics[-1].not_in_tasks


def by_name(a: st.ZSet[A]) -> st.ZSet[str]:
    return st.distinct(st.map(a, f=lambda a: a.name))


def test_rows_are_exchanged_only_where_they_meet_others() -> None:
    """Q9 with changed orders and lines: those of an order are in one task, which adds them up."""
    plan = plan_of(st.compile(MAINTAINED[9]))
    changed = {"orders", "lineitem"}
    empty = [v for v in plan.graph.inputs if plan.names[v][0].parts[-1] not in changed]
    assert len(segments_of(plan, empty).segments) == 3


def test_a_stream_is_not_sent_to_a_reader_whose_key_says_where_it_is() -> None:
    def query(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[str]:
        pairs = st.join(a, b, on_left=lambda a: a.name, on_right=lambda b: b.name)
        each = st.distinct(pairs)  # equal pairs have equal names
        return st.distinct(st.map(each, f=lambda p: p.right.name))

    plan = plan_of(st.compile(query))
    (_, second) = segments_of(plan).segments
    sent = {str(plan.names[r.vertex][0]) for r in second.reads if r.key is not None}
    assert sent == {"query.a", "query.b"}


def test_a_stream_is_sent_to_a_reader_with_another_key() -> None:
    def query(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[st.Pair[A, B]]:
        pairs = st.join(a, b, on_left=lambda a: a.name, on_right=lambda b: b.name)
        return st.first_n(pairs, lambda p: p.right.y, 1, by=lambda p: p.left.x)

    plan = plan_of(st.compile(query))
    pieces = [p for s in segments_of(plan).segments for p in s.pieces if isinstance(p, Piece)]
    routes = [r for p in pieces for r in p.routes.values()]
    sent = {str(plan.names[r.vertex][0]): r.key and [*map(str, r.key)] for r in routes}
    assert sent["query.join.join"] == ["left.x"]


def test_what_may_be_anywhere_goes_where_a_later_reader_needs_it() -> None:
    def query(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[st.Pair[A, B]]:
        """Rows that have a partner by one column, each once by another."""
        pairs = st.join(a, b, on_left=lambda a: a.name, on_right=lambda b: b.name)
        return st.first_n(pairs, lambda p: p.right.y, 1, by=lambda p: p.left.x)

    plan = plan_of(st.compile(query))
    a, b = plan.graph.inputs
    (_, second) = segments_of(plan, [b]).segments
    pieces = [p for p in second.pieces if isinstance(p, Piece) and a in p.routes]
    assert [list(map(str, p.routes[a].key or ())) for p in pieces] == [["x"]]


def test_tasks_print_a_stream_at_each_step_as_plain_python_does(
    in_process: None, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    def query(rows: st.ZSet[Two]) -> st.ZSet[Two]:
        return st.filter(st.identity_print(st.distinct(rows), "rows"), f=lambda r: r.x > 1)

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=LIMITS)
    reference = st.reference(graph)
    many = st.ZSetPython([(Two(x=x, z=0), 1) for x in range(9)])
    steps = [many, many * -1 + st.ZSetPython({Two(x=1, z=1): 2})]
    for step in steps:
        stepper.step((step,))
        by_tasks = capsys.readouterr().out.replace("ZSetSpark", "ZSetPython")
        reference.step((step,))
        assert by_tasks == capsys.readouterr().out != ""
    assert {m.not_in_tasks for m in stepper.metrics} == {""}


@pytest.mark.spark
@pytest.mark.parametrize(("query", "optimize"), both_ways(QUERY.values()))
def test_all_rows_are_sent_to_the_one_task_that_computes_with_all(
    query: Circuit, optimize: bool
) -> None:
    if not in_tasks(query, optimize=optimize):
        pytest.skip("tasks do not take it")
    first, *rest = segments_of(plan_of(st.compile(query.in_spark, optimize=optimize))).segments
    assert not any(piece.whole for piece in first.pieces)
    whole = [piece for segment in rest for piece in segment.pieces if piece.whole]
    assert {r.key for piece in whole for r in piece.routes.values()} <= {WHOLE, EVERYWHERE}


def test_what_one_task_computes_is_told() -> None:
    def query(a: st.ZSet[Two]) -> st.ZSet[tuple[Two, Two]]:
        return st.delta_join(a, st.Lookup(a, key=lambda r: r.z, on=lambda row: row[0].x))

    assert "; one task computes query.delta_join" in str(st.explain(st.compile(query)))
