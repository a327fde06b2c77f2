"""The first rows of each key on the driver, of which a change touches some."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from tests.cases import constants


class Bid(st.Data):
    item: str | None
    price: int
    bidder: int


class Best(st.Data):
    item: str | None
    bids: int
    price: int


Bids = st.ZSet[Bid]


def query(bids: Bids) -> tuple[Bids, Bids, Bids, Bids, Bids, st.ZSet[Best]]:
    by, order = (lambda b: b.item), (lambda b: -b.price)
    return (
        st.first_n(bids, order, 1, by=by, group_size=1_000),
        st.first_n(bids, order, 3, by=by, group_size=1_000),
        st.first_n(bids, order, 2, by=by, ties=True, group_size=1_000),
        st.first_n(bids, order, 2, group_size=1_000),
        st.first_n(bids, order, 2, by=lambda b: (b.bidder, b.item)),
        st.aggregate(
            bids,
            by=by,
            into=Best,
            group_size=1_000,
            bids=st.agg.count(),
            price=st.agg.max(lambda b: b.price),
        ),
    )


def bid(source: random.Random) -> Bid:
    return Bid(
        item=source.choice(("a", "b", "c", None)),
        price=source.randrange(5),
        bidder=source.randrange(3),
    )


@pytest.mark.parametrize("seed", range(4))
@constants(cut_rows=0)
def test_they_are_those_of_all_rows_whatever_comes_and_goes(seed: int) -> None:
    source = random.Random(seed)
    graph: Any = st.compile(query)
    store = st.StoreMemory.from_graph(graph)
    stepper: Any = st.Stepper(graph, store)
    oracle: Any = st.reference(graph)
    for _ in range(60):
        # Rows go more often than they came, too, and come back.
        change = st.ZSetPython(
            [(bid(source), source.choice((-2, -1, 1, 1, 2, 3))) for _ in range(source.randrange(4))]
        )
        assert stepper.step((change,)) == oracle.step((change,))


@pytest.mark.usefixtures("by_queries")
@pytest.mark.parametrize("local_rows", [2_000_000, 0])
@constants(cut_rows=10)
def test_few_rows_of_a_key_are_read_whatever_goes(local_rows: int, spark: SparkSession) -> None:
    def best(bids: st.ZSet[Bid]) -> st.ZSet[Bid]:
        return st.first_n(bids, lambda b: -b.price, 1, by=lambda b: b.item, group_size=1_000)

    graph = st.compile(best)
    limits = st.Limits(local_rows=local_rows)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
    rows = [Bid(item=item, price=p, bidder=0) for item in "abc" for p in range(1_000)]
    stepper.step((st.ZSetPython([(row, 1) for row in rows]),))

    def read(*gone: int) -> int:
        stepper.step((st.ZSetPython({rows[i]: -1 for i in gone}),))
        (cost,) = stepper.metrics[-1].vertices.values()
        return int(cost.rows_in) - len(gone)

    assert read(0, 1_000, 2_000) == 2 + 2 + 2
    # The rows that went before are in a batch of their own. A step reads them, and for each of them
    # one more row.
    assert read(1, 999, 1_001) == (1 + 2 + 1 + 1) + (1 + 1 + 1 + 1)


class Place(st.Data):
    name: str
    floor: int | None


class Box(st.Data):
    tags: list[int]
    place: Place | None
    inner: st.Pair[st.Pair[int, str], float]
    price: int


class Dearest(st.Data):
    tags: list[int]
    often: int


Boxes = st.ZSet[Box]


def boxes(rows: Boxes) -> tuple[Boxes, Boxes, Boxes, st.ZSet[Dearest]]:
    def order(b: Box) -> int:
        return -b.price

    return (
        st.first_n(rows, order, 2, by=lambda b: b.tags, group_size=100),
        st.first_n(rows, order, 1, by=lambda b: (b.place, b.tags), group_size=100),
        st.first_n(rows, order, 1, by=lambda b: b.inner, group_size=100),
        st.aggregate(
            rows,
            by=lambda b: b.tags,
            into=Dearest,
            group_size=100,
            often=st.agg.mode(lambda b: b.price),
        ),
    )


@pytest.mark.parametrize("seed", range(3))
@constants(cut_rows=0)
def test_they_are_those_of_all_rows_by_keys_of_lists_and_structs(seed: int) -> None:
    source = random.Random(seed)

    def box() -> Box:
        inner = st.Pair(left=source.randrange(2), right=source.choice("xy"))
        number = source.choice((0.0, -0.0, float("nan")))
        place = source.choice((None, Place(name="a", floor=None), Place(name="a", floor=1)))
        return Box(
            tags=source.choice(([], [1], [1, 2])),
            place=place,
            inner=st.Pair(left=inner, right=number),
            price=source.randrange(4),
        )

    graph: Any = st.compile(boxes)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    oracle: Any = st.reference(graph)
    for _ in range(25):
        change = st.ZSetPython([(box(), source.choice((-2, -1, 1, 1, 3))) for _ in range(3)])
        assert stepper.step((change,)) == oracle.step((change,))


@constants(cut_rows=0)
def test_a_weight_beyond_64_bits_is_an_error_also_where_few_rows_are_looked_at() -> None:
    def best(bids: st.ZSet[Bid]) -> st.ZSet[Bid]:
        return st.first_n(bids, lambda b: -b.price, 1, by=lambda b: b.item, group_size=1_000)

    graph = st.compile(best)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    dear, cheap = (Bid(item="a", price=p, bidder=0) for p in (2, 1))
    stepper.step((st.ZSetPython({dear: 2**63 - 1}),))
    with pytest.raises(st.StepError, match="BIGINT"):
        stepper.step((st.ZSetPython({dear: 1}),))
    assert stepper.step((st.ZSetPython({cheap: 1}),)) == (st.ZSetPython({}),)
