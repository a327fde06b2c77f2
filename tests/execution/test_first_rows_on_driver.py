"""The first rows of each key on the driver, of which a change touches some."""

from __future__ import annotations

import random
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.engines.arrow import nodes
from stepping_spark.engines.arrow.first_rows import restricting


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
def test_they_are_those_of_all_rows_whatever_comes_and_goes(seed: int) -> None:
    source = random.Random(seed)
    graph: Any = st.compile(query)
    store = st.StoreMemory.from_graph(graph)
    stepper: Any = st.Stepper(graph, store, limits=st.Limits(cut_rows=0))
    oracle: Any = st.reference(graph)
    for _ in range(60):
        # Rows go more often than they came, too, and come back.
        change = st.ZSetPython(
            [(bid(source), source.choice((-2, -1, 1, 1, 2, 3))) for _ in range(source.randrange(4))]
        )
        assert stepper.step((change,)) == oracle.step((change,))


def test_all_rows_of_a_key_are_looked_at_only_where_a_first_one_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[int] = []

    def counted(n: Any) -> Any:
        restrict = restricting(n)
        assert restrict is not None

        def count(*args: Any) -> Any:
            found = restrict(*args)
            looked_at.append(found.num_rows)
            return found

        return count

    monkeypatch.setattr(nodes, "restricting", counted)

    def best(bids: st.ZSet[Bid]) -> st.ZSet[Bid]:
        return st.first_n(bids, lambda b: -b.price, 1, by=lambda b: b.item, group_size=1_000)

    graph = st.compile(best)
    limits = st.Limits(cut_rows=10)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
    rows = [Bid(item=item, price=p, bidder=0) for item in "abc" for p in range(1_000)]
    stepper.step((st.ZSetPython([(row, 1) for row in rows]),))
    looked_at.clear()
    stepper.step((st.ZSetPython({rows[0]: -1, rows[1_000]: -1, rows[2_000]: -1}),))
    assert looked_at == [3]
    stepper.step((st.ZSetPython({rows[1]: -1, rows[999]: -1, rows[1_001]: -1}),))
    assert looked_at == [3, 999 + 1]
