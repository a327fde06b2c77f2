"""A window reads the end of a partition where the step before knows what comes before it.

The states of these tests are small, so `CUT_ROWS` is 0: a partition of any size is cut, and next to
no rows are read that are not needed. Results are compared with plain Python, which recomputes.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.execution.arrow import window_delta
from stepping_spark.relations.store import OrderedStore
from tests.cases import constants
from tests.every_store import MakeStore
from tests.queries import Order


class Sale(st.Data):
    shop: str | None
    day: dt.date | None
    cents: int
    weight: float | None


class Row(st.Data):
    day: dt.date | None
    cents: int
    number: int
    rank: int
    before: int | None
    after: int | None
    so_far: int
    exact: float | None
    known: int
    few: float | None
    near: int
    top: int | None


def windows(**how: Any) -> Callable[..., Any]:
    def query(sales: st.ZSet[Sale]) -> st.ZSet[Row]:
        given: dict[str, Any] = {"by": lambda s: s.shop, "order": lambda s: s.day, **how}
        return st.window(
            sales,
            into=Row,
            number=st.win.row_number(),
            rank=st.win.rank(),
            before=st.win.lag(lambda s: s.cents, 2),
            after=st.win.lead(lambda s: s.cents),
            so_far=st.win.sum(lambda s: s.cents),
            exact=st.win.sum(lambda s: s.weight, rows=(None, -1)),
            known=st.win.count(lambda s: s.weight),
            few=st.win.avg(lambda s: s.weight, rows=(-1, 1)),
            near=st.win.count(range=(dt.timedelta(days=-2), 0)),
            top=st.win.max(lambda s: s.cents, rows=(-2, 0)),
            **given,
        )

    return query


def visits(sales: st.ZSet[Sale]) -> Any:
    return st.sessions(sales, by=lambda s: s.shop, at=lambda s: s.day, gap=1)


def nearest(direction: Any) -> Callable[..., Any]:
    def query(sales: st.ZSet[Sale]) -> Any:
        dear = st.filter(sales, lambda s: s.cents > 1)
        on: Any = {"on_left": lambda s: s.shop, "on_right": lambda s: s.shop}
        at: Any = {"at_left": lambda s: s.day, "at_right": lambda s: s.day}
        return st.asof_join(sales, dear, direction=direction, how="left", **on, **at)

    return query


def two_orders(sales: st.ZSet[Sale]) -> Any:
    """One state that two windows read, each in its own order."""
    last: Any = st.win.desc(lambda s: s.day)
    return windows()(sales), windows(order=last)(sales)


QUERIES = {
    "ascending": windows(),
    "descending": windows(order=st.win.desc(lambda s: s.day, nulls="first")),
    "nulls last": windows(order=st.win.asc(lambda s: s.day, nulls="last"), by=None),
    "two orders": two_orders,
    "sessions": visits,
    "backward": nearest("backward"),
    "forward": nearest("forward"),
}

WEIGHTS = (None, 1e16, 1.0, -1e16, 0.1, float("inf"))


class Stream:
    """Changes that mostly add to the end, as those of a log do, and now and then go back."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.rows: list[Sale] = []
        self.day = 0

    def change(self) -> dict[Sale, int]:
        self.day += self.draw.randrange(3)
        change: dict[Sale, int] = {}
        for _ in range(self.draw.randrange(1, 4)):
            if self.rows and self.draw.random() < 0.3:
                last = self.draw.randrange(max(len(self.rows) - 3, 0), len(self.rows))
                at = last if self.draw.random() < 0.7 else self.draw.randrange(len(self.rows))
                gone = self.rows.pop(at)
                change[gone] = change.get(gone, 0) - 1
            else:
                came = self._row()
                times = self.draw.choice((1, 1, 1, 2, -1))  # a row may also come less than once
                self.rows += [came] * max(times, 0)
                change[came] = change.get(came, 0) + times
        return change

    def _row(self) -> Sale:
        back = self.draw.choice((0, 0, 0, 0, 1, 9, None))
        day = None if back is None else dt.date(2024, 1, 1) + dt.timedelta(self.day - back)
        return Sale(
            shop=self.draw.choice(("A", "A", "B", None)),
            day=day,
            cents=self.draw.randrange(4),
            weight=self.draw.choice(WEIGHTS),
        )


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whether reads of windows were of the ends of partitions, or of all rows; with no slack."""
    found: list[str] = []
    monkeypatch.setattr(window_delta, "SLACK", 1)

    def counted(cls: Any, name: str) -> None:
        own = getattr(cls, name)

        def reading(store: Any, register: str, *args: Any) -> Any:
            found.append(name)
            return own(store, register, *args)

        monkeypatch.setattr(cls, name, reading)

    for cls in (st.StoreMemory, st.StoreParquet, st.StorePostgres):
        counted(cls, "read")
        counted(cls, "read_since")
    return found


def stepped(steppers: Sequence[Any], query: Any, seed: int, steps: int) -> None:
    """Take steps, each by one of the steppers, and compare each with plain Python's."""
    reference, stream = st.reference(st.compile(query)), Stream(seed)
    for i in range(steps):
        step = (st.ZSetPython(stream.change()),)
        found, expected = steppers[i % len(steppers)].step(step), reference.step(step)
        assert found == expected, i


@pytest.mark.driver
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 60), marks=pytest.mark.long)])
@constants(cut_rows=0)
def test_what_comes_out_is_what_plain_python_gives(
    query: Callable[..., Any], read: list[str], seeds: range
) -> None:
    graph = st.compile(query)
    for seed in seeds:
        store = st.StoreMemory.from_graph(graph)
        stepped([st.Stepper(graph, store)], query, seed, 25)
    assert "read_since" in read


@pytest.mark.driver
@pytest.mark.parametrize("name", ["ascending", "descending", "sessions", "forward"])
@constants(cut_rows=0)
def test_it_is_so_in_every_store(name: str, make_store: MakeStore, read: list[str]) -> None:
    query = QUERIES[name]
    graph = st.compile(query)
    stepped([st.Stepper(graph, make_store(graph))], query, 7, 15)
    assert "read_since" in read


@pytest.mark.driver
@constants(cut_rows=0)
def test_a_step_that_failed_is_not_known_of(
    read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = QUERIES["ascending"]
    graph = st.compile(query)
    store = st.StoreMemory.from_graph(graph)
    stepper, reference = st.Stepper(graph, store), st.reference(graph)
    stream, other = Stream(3), Stream(4)

    def failing(*args: Any) -> None:
        raise st.StoreError("no room")

    for i in range(25):
        if i % 2:
            with monkeypatch.context() as patched:
                patched.setattr(store, "commit", failing)
                with pytest.raises(st.StoreError, match="no room"):
                    stepper.step((st.ZSetPython(other.change()),))
        step = (st.ZSetPython(stream.change()),)
        assert stepper.step(step) == reference.step(step)
    assert "read_since" in read


@constants(cut_rows=0)
def test_what_another_stepper_has_changed_is_read_again(read: list[str]) -> None:
    query = QUERIES["ascending"]
    graph = st.compile(query)
    store = st.StoreMemory.from_graph(graph)
    stepped([st.Stepper(graph, store) for _ in range(2)], query, 5, 20)
    assert "read_since" not in read


@constants(cut_rows=0)
def test_from_a_store_that_knows_no_order_partitions_are_read_whole(read: list[str]) -> None:
    class Plain:
        """A store as it may be anybody's own."""

        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            if name == "read_since":
                raise AttributeError(name)
            return getattr(self._store, name)

    graph = st.compile(QUERIES["ascending"])
    store: Any = Plain(st.StoreMemory.from_graph(graph))
    assert not isinstance(store, OrderedStore)
    stepped([st.Stepper(graph, store)], QUERIES["ascending"], 6, 15)
    assert "read_since" not in read


@pytest.mark.driver
@constants(cut_rows=0)
def test_what_spark_computes_has_the_whole_partition(spark: Any, read: list[str]) -> None:
    """A row that counts many times is more than the driver gives, and so one for Spark."""
    query = QUERIES["ascending"]
    graph = st.compile(query)
    limits = st.Limits(given_rows=40)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
    reference, stream = st.reference(graph), Stream(1)
    for i in range(8):
        change = {Sale(shop="A", day=dt.date(2025, 1, i + 1), cents=i, weight=0.5): 1}
        if i == 5:
            change[stream._row()] = 50
        step = (st.ZSetPython(change),)
        assert stepper.step(step) == reference.step(step)
    assert read.count("read_since") >= 5


class Placed(st.Data):
    at: int
    cents: int
    given: int | None


Event = tuple[int, int]

FUNCTIONS: dict[str, Any] = {
    "row_number": st.win.row_number(),
    "running sum": st.win.sum(lambda r: r[1], rows=(None, 0)),
    "lag": st.win.lag(lambda r: r[1]),
    "rows": st.win.sum(lambda r: r[1], rows=(-6, 0)),
    "range": st.win.sum(lambda r: r[1], range=(-6, 0)),
}


def at_the_end(name: str) -> Callable[..., Any]:
    def query(rows: st.ZSet[Event], others: st.ZSet[Event]) -> Any:
        if name == "sessions":
            return st.sessions(rows, by=lambda r: 1, at=lambda r: r[0], gap=3)
        if name == "asof_join":
            one: Any = {"on_left": lambda r: 1, "on_right": lambda r: 1}
            at: Any = {"at_left": lambda r: r[0], "at_right": lambda r: r[0]}
            return st.asof_join(rows, others, **one, **at)
        return st.window(
            rows,
            order=lambda r: r[0],
            into=Placed,
            at=lambda r: r[0],
            cents=lambda r: r[1],
            given=FUNCTIONS[name],
        )

    return query


@pytest.mark.driver
@pytest.mark.parametrize("name", [*FUNCTIONS, "sessions", "asof_join"])
@constants(cut_rows=100)
def test_a_row_at_the_end_reads_as_many_rows_of_a_large_partition_as_of_a_small_one(
    name: str, make_store: MakeStore
) -> None:
    graph = st.compile(at_the_end(name))
    rows_read = {}
    for size in (200, 4_000):
        stepper = st.Stepper(graph, make_store(graph))
        many = st.ZSetPython([((10 * n, 5), 1) for n in range(size)])
        prices = st.ZSetPython([((100 * n, 7), 1) for n in range(size // 10)])
        stepper.step((many, prices))
        for i in range(3):
            one: st.ZSetPython[Event] = st.ZSetPython({(10 * (size + i), 6): 1})
            stepper.step((one, None))
            rows_read[size, i] = sum(v.rows_in or 0 for v in stepper.metrics[-1].vertices.values())
    assert rows_read[200, 2] == rows_read[4_000, 2] < 200
    assert rows_read[4_000, 0] >= 4_000  # which finds out what comes before the end


@constants(cut_rows=100)
def test_a_change_before_the_end_reads_the_partition(make_store: MakeStore) -> None:
    graph = st.compile(at_the_end("running sum"))
    stepper, reference = st.Stepper(graph, make_store(graph)), st.reference(graph)
    many = st.ZSetPython([((n, 1), 1) for n in range(500)])
    late: st.ZSetPython[Event] = st.ZSetPython({(3, 2): 1})
    last: st.ZSetPython[Event] = st.ZSetPython({(500, 2): 1})
    further: st.ZSetPython[Event] = st.ZSetPython({(501, 2): 1})
    for change in (many, last, late, further):
        step = (change, None)
        assert stepper.step(step) == reference.step(step)


class Amount(st.Data):
    id: int
    total: Decimal | None


@constants(cut_rows=0)
def test_an_order_that_is_computed_is_kept_beside_the_rows(make_store: MakeStore) -> None:
    def query(a: st.ZSet[Order]) -> st.ZSet[Amount]:
        return st.window(
            a,
            by=lambda o: o.user,
            order=lambda o: -o.id,
            into=Amount,
            total=st.win.sum(lambda o: o.price, rows=(None, 0)),
        )

    graph = st.compile(query)
    store = make_store(graph)
    stepper, reference = st.Stepper(graph, store), st.reference(graph)
    for i in range(12):
        order = Order(id=-i, user="ab"[i % 2], amount=0.5, price=Decimal(i) / 4, n=None, rush=False)
        step = (st.ZSetPython({order: 1}),)
        assert stepper.step(step) == reference.step(step)
    (register,) = stepper._plan.registers
    assert register.order is not None
    assert register.order.column == "_order_"


def test_explain_says_which_windows_read_the_end_of_a_partition() -> None:
    def how(query: Callable[..., Any]) -> list[str]:
        return [v.how for v in st.explain(st.compile(query)).vertices if "partitions" in v.how]

    assert "reads only the end of a partition, if an earlier step" in how(windows())[0]
    one, other = how(two_orders)
    assert "reads only the end of a partition" in one
    assert "reads the partition whole, as it is kept by day" in other
