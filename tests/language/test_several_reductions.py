"""Aggregations by several reductions, whose rows before and after a step are computed at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.plan.planner import registers_of
from tests.cases import constants

agg = st.agg


class Item(st.Data):
    shop: str | None
    name: str
    price: int
    weight: float


class Facts(st.Data):
    shop: str | None
    items: int
    total: int
    mean: float | None
    kinds: int
    first: str
    cheapest: str
    dearest: int
    prices: list[int]


FACTS: Any = {
    "items": agg.count(),
    "total": agg.sum(lambda r: r.price),
    "mean": agg.avg(lambda r: r.weight),
    "kinds": agg.count_distinct(lambda r: r.name),
    "first": agg.min(lambda r: r.name),
    "cheapest": agg.arg_min(lambda r: r.price, lambda r: r.name),
    "dearest": agg.max(lambda r: r.price),
    "prices": agg.collect_list(lambda r: r.price, order=lambda r: r.price),
}


class Whole(st.Data):
    items: int
    dearest: int | None


class Timed(st.Data):
    price: int
    items: int
    first: str


class Last(st.Data):
    shop: str | None
    items: int
    dearest: int


def last(items: st.ZSet[Item]) -> st.ZSet[Last]:
    return st.aggregate(
        items,
        by=lambda r: r.shop,
        into=Last,
        group_size=100,
        items=agg.count(),
        dearest=agg.max(lambda r: r.price),
    )


def facts(items: st.ZSet[Item]) -> tuple[st.ZSet[Facts], st.ZSet[Whole], st.ZSet[Last]]:
    """By key; without a key, where a row is there without input; by sums and one extreme alone."""
    return (
        st.aggregate(items, by=lambda r: r.shop, into=Facts, fields=FACTS),
        st.aggregate(
            items, by=None, into=Whole, items=agg.count(), dearest=agg.max(lambda r: r.price)
        ),
        last(items),
    )


def steps(seed: int, n: int, *, only_more: bool) -> Iterator[dict[Item, int]]:
    """Rows come and go; some steps change what one reduction is of, and nothing that others are."""
    source = random.Random(seed)
    there: list[Item] = []

    def new() -> Item:
        return Item(
            shop=source.choice(("a", "b", None)),
            name=source.choice(("x", "y", "Zoë")),
            price=source.randrange(6),
            weight=source.choice((0.5, 2.25, 1e16)),
        )

    for number in range(n):
        change: dict[Item, int] = {}

        def add(row: Item, weight: int, change: dict[Item, int] = change) -> None:
            change[row] = change.get(row, 0) + weight

        goes = [] if only_more else source.sample(there, min(len(there), source.randrange(4)))
        comes = [new() for _ in range(source.randrange(1, 4))]
        if not only_more and number % 3 == 2 and there:  # a price changes, and all else stays
            (old,) = goes = source.sample(there, 1)
            comes = [Item(shop=old.shop, name=old.name, price=old.price + 1, weight=old.weight)]
        for row in goes:
            there.remove(row)
            add(row, -1)
        for row in comes:
            there.append(row)
            add(row, 1)
        yield change
    if not only_more:
        yield {row: -n for row, n in _counted(there).items()}


def _counted(rows: list[Item]) -> dict[Item, int]:
    return {row: rows.count(row) for row in rows}


@pytest.mark.parametrize(
    ("local_rows", "append_only"),
    [
        pytest.param(2_000_000, False, id="driver"),
        pytest.param(2_000_000, True, id="driver, append only"),
        pytest.param(0, False, id="spark", marks=pytest.mark.turn(4, number=0)),
        pytest.param(0, True, id="spark, append only", marks=pytest.mark.turn(4, number=2)),
    ],
)
def test_a_step_gives_what_the_definition_gives(
    spark: SparkSession, local_rows: int, append_only: bool
) -> None:
    graph: Any = st.compile(facts, append_only=["items"] if append_only else ())
    oracle: Any = st.reference(st.compile(facts, optimize=False))
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    for change in steps(local_rows, 12 if local_rows else 3, only_more=append_only):
        given = (st.ZSetPython(change),)
        assert stepper.step(given) == oracle.step(given)


@pytest.mark.parametrize("append_only", [False, True], ids=["deletions", "append only"])
def test_the_parts_of_an_aggregation_are_kept_and_not_its_pieces(append_only: bool) -> None:
    graph = st.compile(last, append_only=("items",) if append_only else ())
    found = {tuple(n for n, _ in r.schema.columns) for r in registers_of(graph)}
    assert found == {("_key_",), ("_1", "_2")}  # the sums, and the rows that the extreme is of


def test_all_parts_are_read_at_the_keys_that_any_of_them_changes() -> None:
    plan = st.explain(st.compile(last)).plan
    at = "at keys of last.aggregate.accumulate and last.aggregate.map_2"
    assert plan.count(at) == 2


@pytest.mark.turn(3, number=1)
@pytest.mark.usefixtures("by_queries")
@constants(sampled_rows=0)
def test_rows_that_stay_as_they_are_are_no_change_in_spark(spark: SparkSession) -> None:
    def counted(items: st.ZSet[Item]) -> tuple[st.ZSet[Last], st.ZSet[Whole]]:
        rows = last(items)
        return rows, st.aggregate(
            rows, by=None, into=Whole, items=agg.count(), dearest=agg.max(lambda r: r.dearest)
        )

    graph: Any = st.compile(counted)
    limits = st.Limits(local_rows=0, fetched_rows=0)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
    rows = [Item(shop=str(i), name="x", price=i, weight=0.5) for i in range(50)]
    stepper.step((st.ZSetPython([(row, 1) for row in rows]),))
    # The store gives the rows of all shops, as its reader has the keys in Spark.
    more = st.ZSetPython({Item(shop="7", name="y", price=8, weight=0.5): 1})
    (out, whole) = stepper.step((more,))
    assert len(out.to_arrow()) == 2
    assert whole == st.ZSetPython({})


def test_of_groups_that_are_circuits_and_of_inputs_that_come_in_time() -> None:
    def grouped(items: st.ZSet[Item]) -> tuple[st.ZSet[st.Pair[Whole, str | None]], st.ZSet[Last]]:
        of_each = st.per_group[st.group(items, by=lambda r: r.shop)](
            lambda g: st.aggregate(
                g, None, Whole, items=agg.count(), dearest=agg.max(lambda r: r.price)
            )
        )
        return st.flatten(of_each), last(items)

    def timed(items: st.ZSet[Item]) -> st.ZSet[Timed]:
        return st.aggregate(
            items,
            by=lambda r: r.price,
            into=Timed,
            items=agg.count(),
            first=agg.min(lambda r: r.name),
        )

    source = random.Random(3)
    names = ("x", "y", "Zoë")
    in_time = [
        {
            Item(shop=None, name=source.choice(names), price=price, weight=0.5): w
            for price in (n, n + 1, n + 2)
            for w in (1, source.choice((-1, 1, 2)))
        }
        for n in range(10)
    ]
    for query, changes in ((grouped, list(steps(5, 12, only_more=False))), (timed, in_time)):
        lateness: Any = {"items": (lambda r: r.price, 2)} if query is timed else {}
        graph: Any = st.compile(query, lateness=lateness)
        stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph))
        oracle: Any = st.reference(st.compile(query, lateness=lateness, optimize=False))
        for change in changes:
            given = (st.ZSetPython(change),)
            assert stepper.step(given) == oracle.step(given)
