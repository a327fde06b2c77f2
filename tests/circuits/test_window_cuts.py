"""Of a partition only the rows that a change can matter to are computed, and nothing else differs.

The states of these tests are small, so `CUT_ROWS` is 0: a partition of any size is cut.
What comes out is compared with plain Python, which knows of no cuts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as hs

import stepping_spark as st
from stepping_spark.execution.arrow import nodes, window_delta
from tests.cases import constants
from tests.queries import Order
from tests.strategies import streams_of


class Row(st.Data):
    id: int
    number: int
    rank: int
    before: int | None
    after: str | None
    so_far: float
    price: Decimal | None
    near: int
    around: int | None
    up_to: float | None
    last: int | None


def windows(**how: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[Row]:
        given: dict[str, Any] = {"by": lambda o: o.user, "order": lambda o: o.n, **how}
        return st.window(
            a,
            into=Row,
            number=st.win.row_number(),
            rank=st.win.rank(),
            before=st.win.lag(lambda o: o.n, 2),
            after=st.win.lead(lambda o: o.user),
            so_far=st.win.sum(lambda o: o.amount),
            price=st.win.sum(lambda o: o.price, rows=(None, -2)),
            near=st.win.count(lambda o: o.n, range=(-1, 1)),
            around=st.win.sum(lambda o: o.n, rows=(-1, 1)),
            up_to=st.win.sum(lambda o: o.amount, range=(None, -1)),
            last=st.win.last_value(lambda o: o.id, rows=(None, 1)),
            **given,
        )

    return query


WAYS = [
    windows(),
    windows(order=st.win.desc(lambda o: o.n, nulls="first"), by=lambda o: (o.rush, o.user)),
    windows(order=st.win.asc(lambda o: o.n, nulls="last"), by=None),
]


@pytest.mark.turn(3)
@pytest.mark.parametrize("query", WAYS)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(steps=streams_of(Order, max_steps=6))
@constants(cut_rows=0)
def test_a_cut_partition_gives_what_plain_python_gives(
    query: Callable[..., Any], steps: Any
) -> None:
    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    reference = st.reference(graph)
    for step in steps:
        (found,), (expected,) = stepper.step(step), reference.step(step)
        assert found == expected


def running(a: st.ZSet[tuple[int, float]]) -> st.ZSet[tuple[int, float]]:
    class Summed(st.Data):
        n: int
        total: float

    summed = st.window(
        a,
        order=lambda r: r[0],
        into=Summed,
        n=lambda r: r[0],
        total=st.win.sum(lambda r: r[1], rows=(None, 0)),
    )
    return st.map(summed, f=lambda s: (s.n, s.total))


@given(numbers=hs.lists(hs.floats(), min_size=1, max_size=20))
@constants(cut_rows=0)
def test_floats_that_are_left_out_are_added_exactly(numbers: list[float]) -> None:
    graph = st.compile(running)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    reference = st.reference(graph)
    for i, x in enumerate(numbers):
        step = (st.ZSetPython({(i, x): 1 + i % 3}),)
        (found,), (expected,) = stepper.step(step), reference.step(step)
        assert found == expected


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows of the state each cut keeps."""
    found: list[int] = []

    def counted(n: Any, over: Any) -> Any:
        cut = window_delta.cut_of(n, over)

        def counting(state: Any, change: Any, run: Any) -> Any:
            for before, more, carried in cut(state, change, run):
                found.append(before.table.num_rows)
                yield before, more, carried

        return counting

    monkeypatch.setattr(nodes, "cut_of", counted)
    return found


@pytest.mark.driver
def test_of_a_large_partition_few_rows_are_computed(kept: list[int]) -> None:
    graph = st.compile(running)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    stepper.step((st.ZSetPython([((n, 1.0), 1) for n in range(5_000)]),))
    stepper.step((st.ZSetPython({(5_000, 2.0): 1, (4_990, 1.0): -1}),))
    (out,) = stepper.step((st.ZSetPython({(5_001, 4.0): 1}),))
    assert dict(out.iter()) == {(5_001, 5_005.0): 1}
    assert kept[-2:] == [10, 0]


Event = tuple[int, int]  # time, number


def visits(a: st.ZSet[Event], b: st.ZSet[Event]) -> Any:
    return st.sessions(st.add(a, b), by=None, at=lambda r: r[0], gap=3)


def nearest(direction: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Event], b: st.ZSet[Event]) -> Any:
        on: Any = {"on_left": lambda r: 1, "on_right": lambda r: 1, "how": "left"}
        at: Any = {"at_left": lambda r: r[0], "at_right": lambda r: r[0]}
        return st.asof_join(a, b, direction=direction, **on, **at)

    return query


NEARBY = [visits, nearest("backward"), nearest("forward"), nearest("nearest")]


@pytest.mark.parametrize("query", NEARBY)
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(seed=hs.integers(0, 10_000))
@constants(cut_rows=0)
def test_sessions_and_nearest_rows_of_a_cut_partition_are_those_of_plain_python(
    query: Callable[..., Any], seed: int
) -> None:
    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    reference = st.reference(graph)
    draw = random.Random(seed)
    there: tuple[list[Event], list[Event]] = ([], [])
    for _ in range(6):
        step = []
        for rows in there:
            gone = [rows.pop(draw.randrange(len(rows))) for _ in range(len(rows) // 3)]
            came = [(draw.randrange(30), draw.randrange(3)) for _ in range(draw.randrange(5))]
            rows += came
            step.append(st.ZSetPython([(r, 1) for r in came] + [(r, -1) for r in gone]))
        (found,), (expected,) = stepper.step(tuple(step)), reference.step(tuple(step))
        assert found == expected


@pytest.mark.driver
@pytest.mark.parametrize("query", NEARBY)
def test_of_many_sessions_and_prices_those_near_a_change_are_computed(
    query: Callable[..., Any], kept: list[int]
) -> None:
    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    many = st.ZSetPython([((n, i), 1) for n in range(0, 20_000, 10) for i in (0, 1)])
    prices = st.ZSetPython([((n, 7), 1) for n in range(5, 20_000, 20)])
    stepper.step((many, prices))
    one: st.ZSetPython[tuple[int, int]] = st.ZSetPython({(9_991, 2): 1})
    other: st.ZSetPython[tuple[int, int]] = st.ZSetPython({(9_985, 7): -1})
    for changed in ((one, None), (None, other)):
        stepper.step(changed)
        assert 0 < kept[-1] <= 12


def test_explain_says_from_where_on_a_partition_is_computed() -> None:
    class Placed(st.Data):
        id: int
        place: int

    def ranked(a: st.ZSet[Order]) -> st.ZSet[Placed]:
        return st.window(a, order=lambda o: o.n, into=Placed, place=st.win.rank())

    def dealt(a: st.ZSet[Order]) -> st.ZSet[Placed]:
        return st.window(a, order=lambda o: o.n, into=Placed, place=st.win.ntile(4))

    def by_text(a: st.ZSet[Order]) -> st.ZSet[Placed]:
        return st.window(a, order=lambda o: o.user, into=Placed, place=st.win.rank())

    assert "from the first row of the change on; in Spark's jobs whole" in str(
        st.explain(st.compile(ranked))
    )
    (found,) = (v for v in st.explain(st.compile(visits)).vertices if "partitions" in v.how)
    assert "from one gap of more than 3 before the change to the next after it" in found.how
    (found,) = (v for v in st.explain(st.compile(NEARBY[1])).vertices if "partitions" in v.how)
    assert "up to the next row on each side that may be found" in found.how
    assert "whole, because of ntile(4)" in str(st.explain(st.compile(dealt)))
    assert "whole, because the order is by str | None" in str(st.explain(st.compile(by_text)))
