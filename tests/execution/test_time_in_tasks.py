"""Large steps in Spark's tasks, where rows come too late, are due by time, or are not there."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from tests.cases import A, Z
from tests.late_rows import LATENESS, SETTLED, Event, annotated, in_time
from tests.oracle.test_oracle import shown

IN_TASKS = st.Limits(local_rows=0)
LATE = {"l": (lambda e: e.at, LATENESS), "r": (lambda e: e.at, LATENESS)}


def both(graph: Any) -> tuple[st.Stepper[Any, Any], Any]:
    """A stepper whose steps tasks take, and what plain Python says."""
    store = st.StoreMemory.from_graph(graph)
    return st.Stepper(graph, store, limits=IN_TASKS), st.reference(graph)


def assert_in_tasks(stepper: st.Stepper[Any, Any]) -> None:
    metrics = stepper.metrics[-1]
    assert not metrics.not_in_tasks
    assert {v.how for v in metrics.vertices.values()} <= {"tasks"}


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "as written"])
@pytest.mark.parametrize("name", SETTLED)
@pytest.mark.turn(12)
def test_tasks_forget_what_is_settled(spark: SparkSession, name: str, optimize: bool) -> None:
    graph = st.compile(annotated(SETTLED[name]), lateness=LATE, optimize=optimize)
    stepper, reference = both(graph)
    for step in in_time(9, seed=7, many=6):
        assert shown(stepper.step(step)) == reference.step(step)
        if any(map(dict, (z.iter() for z in step))):
            assert_in_tasks(stepper)


class Timed(st.Data):
    name: str
    begins: int
    ends: int | None


class Shown(st.Data):
    name: str
    n: int


def valid(rows: st.ZSet[Timed]) -> st.ZSet[Shown]:
    now = st.temporal_filter(rows, lower=lambda r: r.begins, upper=lambda r: r.ends)
    return st.aggregate(now, by=lambda r: r.name, into=Shown, n=st.agg.count())


def timed(steps: int, most: int) -> Iterator[tuple[st.ZSetPython[Timed], int]]:
    """Changes with rows that begin and end about the time of the step, which moves on unevenly."""
    draw, now = random.Random(5), 0
    there: list[Timed] = []
    for _ in range(steps):
        now += draw.choice((0, 1, 1, most))
        came = [
            Timed(name=draw.choice("abc"), begins=b, ends=draw.choice((None, b + 3, b + most)))
            for b in (now + draw.randint(-5, 5) for _ in range(6))
        ]
        gone = [there.pop(draw.randrange(len(there))) for _ in range(min(3, len(there)))]
        there += came
        yield Z([*((r, 1) for r in came), *((r, -1) for r in gone)]), now


@pytest.mark.turn(2)
@pytest.mark.parametrize("most", [4, 20_000], ids=["looked up by time", "read whole"])
@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "as written"])
def test_rows_come_and_go_by_time(spark: SparkSession, optimize: bool, most: int) -> None:
    stepper, reference = both(st.compile(valid, optimize=optimize))
    for change, now in timed(8, most):
        assert shown(stepper.step((change,), now=now)) == reference.step((change,), now=now)
        assert_in_tasks(stepper)


def named(rows: st.ZSet[A]) -> st.ZSet[str]:
    return st.distinct(st.map(rows, f=lambda a: a.name))


def told(step: Any, *inputs: Any) -> str:
    with pytest.raises(st.InputError) as error:
        step(inputs)
    return str(error.value)


def test_an_absent_row_is_refused_as_without_tasks(spark: SparkSession) -> None:
    graph = st.compile(named, strict=True)
    stepper, _ = both(graph)
    driver = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    rows = Z({A(x=i, name=f"{i % 7}"): 1 for i in range(200)})
    more = Z({A(x=i, name=f"{i % 7}"): -1 for i in range(150, 201)})
    for x in (stepper, driver):
        x.step((rows,))
    assert told(stepper.step, more) == told(driver.step, more)
    assert stepper.store.last_step() == 1
    assert shown(stepper.step((-rows,))) == (Z({f"{i}": -1 for i in range(7)}),)
    assert_in_tasks(stepper)


def test_a_late_row_is_refused_as_without_tasks(spark: SparkSession) -> None:
    def query(l: st.ZSet[Event]) -> st.ZSet[Event]:  # noqa: E741
        return st.distinct(l)

    graph = st.compile(query, lateness={"l": (lambda e: e.at, LATENESS)})
    stepper, _ = both(graph)
    driver = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    late = Z({Event(key="a", at=1, n=1): 1})
    for x in (stepper, driver):
        x.step((Z({Event(key="a", at=100 + i, n=i): 1 for i in range(20)}),))
    assert told(stepper.step, late) == told(driver.step, late)
    assert stepper.store.last_step() == 1
    stepper.step((Z({Event(key="a", at=114, n=1): 1}),))
    assert_in_tasks(stepper)


class Seen(st.Data):
    at: dt.datetime
    page: str


class Many(st.Data):
    page: str
    n: int


def last_hour(seen: st.ZSet[Seen]) -> st.ZSet[Many]:
    now = st.temporal_filter(
        seen, lower=lambda s: s.at, upper=lambda s: s.at + dt.timedelta(hours=1)
    )
    return st.aggregate(now, by=lambda s: s.page, into=Many, n=st.agg.count())


def test_all_tasks_share_the_rows_of_one_time(spark: SparkSession) -> None:
    stepper, reference = both(st.compile(last_hour))
    noon = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    rows = Z({Seen(at=noon, page=f"{i}"): 1 for i in range(2_000)})
    other = Z({Seen(at=noon + dt.timedelta(hours=2), page="x"): 1})
    for change, hours in ((rows, 0), (other, 2)):
        now = noon + dt.timedelta(hours=hours)
        assert shown(stepper.step((change,), now=now)) == reference.step((change,), now=now)
        assert_in_tasks(stepper)
