"""The first rows of groups, with those that tie, against Spark SQL's RANK."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st


class Sale(st.Data):
    id: int
    shop: str | None
    amount: float | None


BY_AMOUNT = st.Index.pick(Sale, lambda s: s.amount, ascending=False)
SHOPS = ("a", "b", None)
AMOUNTS = (1.0, 2.0, 2.0, 3.0, -0.0, 0.0, float("nan"), float("inf"), None)


def best(s: st.ZSet[Sale]) -> st.ZSet[Sale]:
    return st.first_n(s, BY_AMOUNT, 3, by=lambda s: s.shop, ties=True)


def best_of_all(s: st.ZSet[Sale]) -> st.ZSet[Sale]:
    return st.first_n(s, BY_AMOUNT, 4, ties=True)


RANKED = """
    SELECT id, shop, amount FROM (
        SELECT *, RANK() OVER ({by} ORDER BY amount DESC) AS place FROM sales
    ) WHERE place <= {n}
"""


@pytest.mark.turn(2)
@pytest.mark.parametrize("local_rows", [0, 2_000_000])
@pytest.mark.parametrize(
    ("query", "sql"),
    [
        (best, RANKED.format(by="PARTITION BY shop", n=3)),
        (best_of_all, RANKED.format(by="", n=4)),
    ],
)
def test_rows_that_tie_are_those_of_rank(
    query: Callable[..., st.ZSet[Sale]], sql: str, local_rows: int, spark: SparkSession
) -> None:
    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    draw = random.Random(7)
    there: list[Sale] = []
    found = st.ZSetPython[Sale]()
    for step in range(4):
        gone = draw.sample(there, len(there) // 3)
        there = [s for s in there if s not in gone]
        came = [
            Sale(id=100 * step + i, shop=draw.choice(SHOPS), amount=draw.choice(AMOUNTS))
            for i in range(12)
        ]
        there += came
        changes = st.ZSetPython(dict.fromkeys(came, 1)) + st.ZSetPython(dict.fromkeys(gone, -1))
        (out,) = stepper.step((changes,))
        found = found + st.ZSetPython(dict(out.iter()))
        spark.createDataFrame(
            [(s.id, s.shop, s.amount) for s in there], "id bigint, shop string, amount double"
        ).createOrReplaceTempView("sales")
        expected = {r.id for r in spark.sql(sql).collect()}
        assert {row.id for row, _ in found.iter()} == expected
        assert {n for _, n in found.iter()} == {1}


def test_of_equal_rows_all_that_tie_count() -> None:
    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        return st.first_n(a, lambda n: n % 10, 2, ties=True)

    # 11 comes twice and ties with 21, so that 2 has three rows before it.
    (out,) = st.reference(st.compile(query)).step((st.ZSetPython({11: 2, 21: 1, 2: 1}),))
    assert out == st.ZSetPython({11: 2, 21: 1})
