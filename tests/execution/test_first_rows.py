"""The first row of each key, in Spark."""

from __future__ import annotations

import datetime as dt
import math
import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from tests.cases import Z


class Reading(st.Data):
    key: str | None
    n: int | None
    x: float
    on: dt.date | None
    text: str


class Extremes(st.Data):
    key: str | None
    least: int | None
    most: int | None
    highest: float
    last: dt.date | None
    text: str
    when: int | None


def extremes(a: st.ZSet[Reading]) -> st.ZSet[Extremes]:
    return st.aggregate(
        a,
        by=lambda r: r.key,
        into=Extremes,
        least=st.agg.min(lambda r: r.n),
        most=st.agg.max(lambda r: r.n),
        highest=st.agg.max(lambda r: r.x),
        last=st.agg.max(lambda r: r.on),
        text=st.agg.min(lambda r: r.text),
        when=st.agg.arg_max(lambda r: r.x, lambda r: r.n),
    )


def first(a: st.ZSet[Reading]) -> st.ZSet[Reading]:
    return st.first_n(a, lambda r: r.x, 1, by=lambda r: r.key)


def one(a: st.ZSet[st.Pair[int, int]]) -> st.ZSet[st.Pair[int, int]]:
    return st.first_n(a, lambda p: p.right, 1, by=lambda p: p.left)


@pytest.mark.turn(3)
@pytest.mark.parametrize("query", [extremes, first, one], ids=lambda q: q.__name__)
def test_the_first_rows_in_spark_are_those_of_the_driver(
    query: Any, spark: SparkSession, by_queries: None
) -> None:
    source = random.Random(7)
    graph: Any = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
    reference = st.reference(graph)
    kept: list[Any] = []
    for _ in range(2):
        come = [some(query, source) for _ in range(12)]
        gone = [kept.pop(source.randrange(len(kept))) for _ in range(len(kept) // 2)]
        kept += come
        change = Z([(row, 1) for row in come]) + Z([(row, -1) for row in gone])
        (out,) = stepper.step((change,))
        assert (out.to_python(),) == reference.step((change,))


def some(query: Any, source: random.Random) -> Any:
    if query is one:
        return st.Pair(left=source.randrange(3), right=source.randrange(9))
    return Reading(
        key=source.choice(("a", "b", None)),
        n=source.choice((None, 1, 2, -(2**63))),
        x=source.choice((math.nan, 0.0, -0.0, -math.inf, 2.5)),
        on=source.choice((None, dt.date(2024, 2, 29), dt.date(1, 1, 1))),
        text=source.choice(("", "z", "ä")),
    )
