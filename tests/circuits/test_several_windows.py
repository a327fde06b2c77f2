"""Functions over partitions and orders of their own in one `st.window`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from tests.against_sql import held_to_sql


class Sale(st.Data):
    id: int
    shop: str | None
    day: int
    cents: int


class Row(st.Data):
    id: int
    day: int
    in_shop: int
    of_day: int
    place: int
    mean: float
    before: int | None
    twice: int


def over(row: Any) -> Any:
    return row.cents, row.id


def several(sales: st.ZSet[Sale]) -> st.ZSet[Row]:
    found: Any = {
        "in_shop": st.win.row_number(),
        "before": st.win.lag(lambda s: s.id),
        "of_day": st.win.sum(lambda s: s.cents).over(by=lambda s: s.day, order=None),
        "mean": st.win.avg(lambda s: s.cents).over(by=lambda s: s.day, order=None),
        "place": st.win.rank().over(by=None, order=st.win.desc(lambda s: s.cents)),
        "twice": lambda s: s.cents * 2,
    }
    return st.window(sales, by=lambda s: s.shop, order=over, into=Row, **found)


SQL = """
    SELECT id, day, row_number() OVER shops, sum(cents) OVER days, rank() OVER places,
        avg(cents) OVER days, lag(id) OVER shops, cents * 2
    FROM sales
    WINDOW shops AS (PARTITION BY shop ORDER BY cents, id), days AS (PARTITION BY day),
        places AS (ORDER BY cents DESC)
"""


def sale(draw: random.Random) -> Sale:
    return Sale(
        id=draw.randrange(10**6),
        shop=draw.choice(("a", "b", None)),
        day=draw.randrange(3),
        cents=draw.randrange(5),
    )


@pytest.mark.parametrize("local_rows", [2_000_000, pytest.param(0, marks=pytest.mark.long)])
def test_the_sum_of_changes_is_what_sql_says(local_rows: int, spark: SparkSession) -> None:
    graph: Any = st.compile(several)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    held_to_sql(spark, graph, lambda: stepper, {"found": SQL}, {"sales": sale}, steps=3)


def test_the_driver_the_reference_and_the_circuit_as_written_agree() -> None:
    graph = st.compile(several)
    whole = st.reference(st.compile(several, optimize=False))
    step = st.Stepper(graph, st.StoreMemory.from_graph(graph)).step
    draw, there = random.Random(2), list[Sale]()
    for _ in range(5):
        gone = [there.pop(draw.randrange(len(there))) for _ in range(len(there) // 3)]
        came = [sale(draw) for _ in range(5)]
        there += came
        change = st.ZSetPython([*((s, 2) for s in came), *((s, -2) for s in gone)])
        assert step((change,)) == whole.step((change,))


def test_functions_with_the_same_partitions_and_order_share_a_window() -> None:
    graph = st.compile(several)
    windows = [v for v in graph.walk() if "window" in v.operator.describe()]
    assert len(windows) == 3
    assert len(st.explain(graph).arrangements) == 3


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: st.win.rank().over("shop"), "over takes by= and order=, found 'shop'"),
        (lambda: st.win.rank().over(by=lambda s: s.shop, order=None), "rank needs an order"),
    ],
)
def test_what_a_function_cannot_be_over_is_said(made: Callable[[], Any], said: str) -> None:
    def query(sales: st.ZSet[Sale]) -> Any:
        class Placed(st.Data):
            id: int
            n: int

        return st.window(sales, by=None, order=over, into=Placed, n=made())

    with pytest.raises(st.CompileError, match=said):
        st.compile(query)
