"""Nexmark's queries, maintained, are after each step what Spark SQL gives."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from tests.against_sql import by_sql, in_spark, shown
from tests.nexmark import queries
from tests.nexmark.events import TABLES, Auction, Bid, Events, Person
from tests.nexmark.sql import QUERIES

MAINTAINED: dict[int, Callable[..., Any]] = {n: getattr(queries, f"q{n}") for n in QUERIES}
# One of each kind: a map, a mean of maxima of a join, hopping windows, the first rows, sessions, a
# rank. The others are for `-m long`.
SHORT = (1, 4, 5, 9, 11, 19)


def together(numbers: tuple[int, ...]) -> Callable[..., Any]:
    """Several queries as one, of all streams."""

    def query(
        persons: st.ZSet[Person],
        auctions: st.ZSet[Auction],
        bids: st.ZSet[Bid],
    ) -> Any:
        streams = {"persons": persons, "auctions": auctions, "bids": bids}
        found = []
        for n in numbers:
            names = inspect.signature(MAINTAINED[n]).parameters
            found.append(MAINTAINED[n](*(streams[name] for name in names)))
        return tuple(found)

    return query


@pytest.mark.slow
@pytest.mark.parametrize(
    ("numbers", "local_rows", "sizes"),
    [
        (SHORT, 2_000_000, (500, 60)),
        pytest.param(tuple(QUERIES), 2_000_000, (5_600, 60, 200), marks=pytest.mark.long),
        pytest.param(tuple(QUERIES), 0, (300, 60), marks=pytest.mark.long),
    ],
    ids=["some", "all", "all in spark"],
)
def test_the_views_are_what_spark_sql_gives_after_each_step(
    spark: SparkSession, numbers: tuple[int, ...], local_rows: int, sizes: tuple[int, ...]
) -> None:
    graph: Any = st.compile(together(numbers))
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    views: list[Any] = [st.ZSetPython() for _ in numbers]
    there: list[Any] = [st.ZSetPython() for _ in TABLES]
    for step, change in enumerate(Events(seed=7).steps(*sizes)):
        there = [z + c for z, c in zip(there, change, strict=True)]
        views = [z + c.to_python() for z, c in zip(views, stepper.step(change), strict=True)]
        if not step:
            continue
        for (name, row), z in zip(TABLES.items(), there, strict=True):
            rows = [r for r, n in z.iter() for _ in range(n)]
            in_spark(spark, rows, row).createOrReplaceTempView(name)
        for n, view in zip(numbers, views, strict=True):
            frame = spark.sql(QUERIES[n])
            wanted = by_sql(spark, QUERIES[n])
            assert wanted, f"q{n} gives nothing, and so is no test"
            assert in_order(view, frame.columns) == wanted, f"q{n}, step {step}"


def in_order(view: Any, names: list[str]) -> Any:
    """A view's rows, with their fields in the order of SQL's columns where names agree."""

    def ordered(row: Any) -> Any:
        fields = [f.name for f in dataclasses.fields(row)] if dataclasses.is_dataclass(row) else []
        if set(fields) != set(names):
            return row
        return tuple(getattr(row, n) for n in names)

    return shown(st.ZSetPython([(ordered(row), n) for row, n in view.iter()]))
