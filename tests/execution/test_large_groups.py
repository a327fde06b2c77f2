"""First rows of groups that grow large and shrink: a step reads some buckets of a large group."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.circuit.operators import READ_WHOLE
from stepping_spark.plan.planner import plan_of
from stores import memory
from stores.batches.driver import Ranges
from tests import cases
from tests.cases import constants
from tests.every_store import MakeStore
from tests.tasks_in_process import LIMITS, tasks_in_process


class Bid(st.Data):
    item: str | None
    price: float | None
    bidder: int


class Best(st.Data):
    item: str | None
    bids: int
    dearest: float | None
    bidder: int | None


Bids = st.ZSet[Bid]
Z = st.ZSetPython


def query(bids: Bids) -> tuple[Bids, Bids, Bids, Bids, Bids, st.ZSet[Best]]:
    def item(b: Bid) -> str | None:
        return b.item

    def price(b: Bid) -> float | None:
        return b.price

    return (
        st.first_n(bids, price, 1, by=item),
        st.first_n(bids, price, 3, by=item),
        st.first_n(bids, price, 2, by=item, ties=True),
        st.first_n(bids, price, 2, by=lambda b: (b.bidder % 2, b.item), group_size=100_000),
        st.first_n(bids, price, 2),
        st.aggregate(
            bids,
            by=item,
            into=Best,
            bids=st.agg.count(),
            dearest=st.agg.max(lambda b: b.price),
            bidder=st.agg.arg_max(lambda b: b.price, lambda b: b.bidder),
        ),
    )


def bid(source: random.Random) -> Bid:
    price = source.choice((None, float("nan"), -0.0, 0.0, 1.5, 2.5))
    return Bid(
        item=source.choice("ab") if source.random() < 0.9 else None,
        price=price,
        bidder=source.randrange(6),
    )


def changes(source: random.Random, number: int) -> Iterator[Z[Bid]]:
    """Changes that make groups large, and small again."""
    rows: list[Bid] = []
    for i in range(number):
        more = [bid(source) for _ in range(source.randrange(12))]
        gone = source.sample(
            rows, len(rows) * source.choice((0, 1, 2, 3)) // 4 if i % 4 == 3 else 0
        )
        for row in gone:
            rows.remove(row)
        rows += more
        # A row may go more often than it came, and come back.
        odd = [(bid(source), source.choice((-2, 1, 2)))]
        yield Z([*((r, 1) for r in more), *((r, -1) for r in gone), *odd])


SMALL = {"read_whole": 4, "rows_per_first": 0, "least_buckets": 2, "most_buckets": 4}
"""Constants with which groups of a few rows are large."""


def hold(steppers: list[Any], seed: int, number: int, of: Any = query) -> None:
    """Steppers of one state, by turns, give what the plain Python gives."""
    source = random.Random(seed)
    oracle: Any = st.reference(st.compile(of))
    for change in changes(source, number):
        stepper = source.choice(steppers)
        assert stepper.step((change,)) == oracle.step((change,))


@pytest.mark.turn(2)
@pytest.mark.parametrize("cut_rows", [0, 1_000])
@pytest.mark.parametrize("seed", range(4))
def test_first_rows_are_those_of_all_rows_in_every_store(
    seed: int, cut_rows: int, make_store: MakeStore
) -> None:
    with constants(**SMALL, cut_rows=cut_rows):
        graph: Any = st.compile(query)
        hold([st.Stepper(graph, make_store(graph))], seed, 24)


@pytest.mark.turn(3)
@pytest.mark.driver
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(3))
def test_tasks_and_the_driver_take_steps_by_turns(seed: int, make_store: MakeStore) -> None:
    with constants(**SMALL, cut_rows=0), tasks_in_process(from_a_file=True):
        graph: Any = st.compile(query)
        store = make_store(graph)
        large = st.Stepper(graph, store, limits=LIMITS)
        hold([st.Stepper(graph, store), large], seed, 16)
        assert any(v.how == "tasks" for m in large.metrics for v in m.vertices.values())


def in_queries(bids: Bids) -> tuple[Bids, Bids]:
    def item(b: Bid) -> str | None:
        return b.item

    return (
        st.first_n(bids, lambda b: b.price, 2, by=item),
        st.first_n(bids, lambda b: b.price, 1, by=item, ties=True),
    )


@pytest.mark.turn(12)
@pytest.mark.parametrize("workers", [True, False])
def test_queries_of_spark_and_the_driver_take_steps_by_turns(
    workers: bool, make_store: MakeStore, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not workers:
        name = "stepping_spark.execution.spark_executor.workers_compute"
        monkeypatch.setattr(name, lambda _: False)
    with constants(**SMALL, cut_rows=0), cases.by_queries():
        graph: Any = st.compile(in_queries)
        store = make_store(graph)
        large = st.Stepper(graph, store, limits=st.Limits(local_rows=0))
        hold([st.Stepper(graph, store), large], 5, 6, in_queries)
        assert any(v.how == "spark" for m in large.metrics for v in m.vertices.values())


def everything(*_: object) -> Ranges:
    """All places, in place of those of some keys or buckets, as if all keys shared a hash."""
    return Ranges(np.array([0], np.uint64), np.array([2**64 - 1], np.uint64))


def of_many_groups(source: random.Random, number: int) -> Iterator[Z[Bid]]:
    """Changes of groups of which some are large."""
    rows: list[Bid] = []
    for i in range(number):
        more = [
            Bid(item=source.choice("aaaabbbbcdefgh"), price=source.choice((None, 0.5, 1.5)),
                bidder=source.randrange(9))
            for _ in range(source.randrange(8) if i else 30)
        ]  # fmt: skip
        gone = source.sample(rows, len(rows) * source.choice((0, 1, 2)) // 6)
        for row in gone:
            rows.remove(row)
        rows += more
        yield Z([*((r, 1) for r in more), *((r, -1) for r in gone)])


@pytest.mark.parametrize("cut_rows", [0, 1_000])
@pytest.mark.parametrize("others", ["places", "buckets", "places buckets"])
def test_a_store_may_return_rows_of_other_keys_too(
    others: str, cut_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in others.split():
        monkeypatch.setattr(memory, f"wanted_{name}", everything)
    source = random.Random(7)
    with constants(**SMALL, cut_rows=cut_rows):
        graph: Any = st.compile(in_queries)
        stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph))
        oracle: Any = st.reference(graph)
        for change in of_many_groups(source, 24):
            assert stepper.step((change,)) == oracle.step((change,))


@pytest.mark.long
@pytest.mark.parametrize("workers", [True, False])
def test_queries_of_spark_may_read_a_part_of_the_rows_of_other_keys(
    workers: bool, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest batch is read whole, and the others by key, as stores read small batches."""
    if not workers:
        name = "stepping_spark.execution.spark_executor.workers_compute"
        monkeypatch.setattr(name, lambda _: False)
    by_key, whole = memory._at_keys, memory.rows_of_batch
    in_spark = False

    def read(of: Any, batches: Any, keys: Any, limits: Any, places: Any = None) -> Any:
        if not in_spark or len(batches) < 2:
            return by_key(of, batches, keys, limits, places)
        return (*by_key(of, batches[:-1], keys, limits, places), whole(batches[-1], of))

    monkeypatch.setattr(memory, "_at_keys", read)
    with constants(**SMALL, cut_rows=0), cases.by_queries():
        graph: Any = st.compile(in_queries)
        store = st.StoreMemory.from_graph(graph)
        steppers: list[Any] = [
            st.Stepper(graph, store),
            st.Stepper(graph, store, limits=st.Limits(local_rows=0)),
        ]
        oracle: Any = st.reference(graph)
        for i, change in enumerate(of_many_groups(random.Random(3), 9)):
            in_spark = i % 3 == 2
            assert steppers[in_spark].step((change,)) == oracle.step((change,))


def least(numbers: st.ZSet[int]) -> st.ZSet[int]:
    return st.first_n(numbers, lambda n: n, 1)


def test_a_step_reads_small_groups_whole_and_some_buckets_of_large_ones(
    make_store: MakeStore,
) -> None:
    graph: Any = st.compile(least)
    store: Any = make_store(graph)
    stepper: Any = st.Stepper(graph, store)

    def read(change: dict[int, int]) -> int:
        stepper.step((Z(change),))
        return sum(v.rows_in or 0 for v in stepper.metrics[-1].vertices.values())

    def sizes() -> list[int]:
        return [store.size(r.name).rows for r in plan_of(graph).registers]

    read(dict.fromkeys(range(READ_WHOLE), 1))
    store.compact()
    assert sorted(sizes()) == [1, READ_WHOLE]
    assert read({0: -1}) >= READ_WHOLE
    read(dict.fromkeys(range(READ_WHOLE, 50_000), 1))
    store.compact()
    assert sorted(sizes()) == [256, 49_999]
    # Of each register a bucket; and all rows of the second one, of which two operators are made.
    assert read({1: -1, 60_000: 1}) < 2 * 50_000 / 256 * 1.5 + 3 * 256 + 10
    read(dict.fromkeys(range(1_000, 50_000), -1))
    store.compact()
    rows, firsts = max(sizes()), min(sizes())
    assert (rows, firsts) == (999, firsts)
    assert 200 < firsts <= 256


class Numbered(st.Data):
    bidder: int
    number: int


def beside_a_window(bids: Bids) -> tuple[Bids, st.ZSet[Numbered]]:
    """Both read the bids by item. For the window the register has their order as a column."""

    def item(b: Bid) -> str | None:
        return b.item

    def order(b: Bid) -> int:
        return b.bidder * 2

    numbered = st.window(
        bids, by=item, order=order, into=Numbered, bidder=lambda b: b.bidder, number=st.win.count()
    )
    return st.first_n(bids, order, 1, by=item), numbered


def test_a_register_that_a_window_reads_too_is_read_by_whole_groups(make_store: MakeStore) -> None:
    with constants(**SMALL, cut_rows=0):
        graph: Any = st.compile(beside_a_window)
        stepper = st.Stepper(graph, make_store(graph))
        assert any(r.order is not None for r in plan_of(graph).registers)
        hold([stepper], 7, 16, beside_a_window)


class Reading(st.Data):
    sensor: int
    day: int
    value: int


def daily(readings: st.ZSet[Reading]) -> st.ZSet[Reading]:
    return st.first_n(readings, lambda r: -r.value, 2, by=lambda r: (r.day, r.sensor))


@pytest.mark.turn(3)
@pytest.mark.parametrize("seed", range(3))
def test_large_groups_leave_the_state_when_their_time_has_passed(
    seed: int, make_store: MakeStore
) -> None:
    source = random.Random(seed)
    with constants(**SMALL, cut_rows=0):
        graph: Any = st.compile(daily, lateness={"readings": (lambda r: r.day, 1)})
        store: Any = make_store(graph)
        stepper: Any = st.Stepper(graph, store)
        oracle: Any = st.reference(graph)
        plain: Any = st.reference(st.compile(daily))
        most = 0
        for day in range(40):
            rows = [
                Reading(sensor=source.randrange(2), day=day - source.randrange(2), value=i)
                for i in range(source.randrange(20))
            ]
            change = Z([(r, 1) for r in rows])
            assert stepper.step((change,)) == oracle.step((change,)) == plain.step((change,))
            most = max(most, *(store.size(r.name).rows for r in plan_of(graph).registers))
        kept = {r.name: store.size(r.name).rows for r in plan_of(graph).registers}
        assert len(kept) == len(plan_of(graph).registers)
        assert most < 200, kept


def one_of_each(bids: Bids) -> tuple[Bids, Bids]:
    return (
        st.first_n(bids, lambda b: b.price, 1, by=lambda b: b.item, name="by_item"),
        st.first_n(bids, lambda b: b.price, 2, by=lambda b: b.bidder % 2, name="by_bidder"),
    )


def three_of_each(bids: Bids) -> tuple[Bids, Bids]:
    """The first view has more rows, and the second one is as it was."""
    _, by_bidder = one_of_each(bids)
    return st.first_n(bids, lambda b: b.price, 3, by=lambda b: b.item, name="by_item"), by_bidder


@pytest.mark.parametrize("seed", range(2))
def test_a_state_with_large_groups_becomes_that_of_another_query(
    seed: int, make_store: MakeStore
) -> None:
    source = random.Random(seed)
    steps = list(changes(source, 14))
    with constants(**SMALL, cut_rows=0):
        for before, after in ((one_of_each, three_of_each), (three_of_each, one_of_each)):
            graph, other = st.compile(before), st.compile(after)
            store = make_store(graph)
            stepper: Any = st.Stepper(graph, store)
            oracle: Any = st.reference(graph)
            by_item: Z[Bid] = Z()
            for change in steps[:8]:
                by_item += stepper.step((change,))[0]
                oracle.step((change,))
            store = make_store.reopen(store, other, evolve=True)
            stepper = st.Stepper(other, store, evolve=True)
            assert not stepper.evolution.read_again
            changed, same = stepper.evolve()
            assert not same.to_python()
            oracle = st.reference(other)
            rows: Z[Bid] = Z()
            for change in steps[:8]:
                rows += change
            whole, _ = oracle.step((rows,))
            assert by_item + changed.to_python() == whole
            for change in steps[8:]:
                assert stepper.step((change,)) == oracle.step((change,))
