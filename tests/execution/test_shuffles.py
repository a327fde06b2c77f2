"""What a step of a large change costs in Spark: queries, shuffles and sums, each counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import stepping_spark as st
from stepping_spark.execution.views import Sources

IN_SPARK = st.Limits(local_rows=0, small_rows=0, fetched_rows=0, sampled_rows=0)


class Sale(st.Data):
    id: int
    user: int
    amount: int


class Total(st.Data):
    user: int
    sales: int
    amount: int
    largest: int
    items: int


def users(sales: st.ZSet[Sale]) -> st.ZSet[int]:
    return st.distinct(st.map(sales, f=lambda s: s.user))


def first(sales: st.ZSet[Sale]) -> st.ZSet[Sale]:
    return st.first_n(sales, lambda s: s.amount, 3, by=lambda s: s.user)


def totals(sales: st.ZSet[Sale]) -> st.ZSet[Total]:
    return st.aggregate(
        sales,
        by=lambda s: s.user,
        into=Total,
        sales=st.agg.count(),
        amount=st.agg.sum(lambda s: s.amount),
        largest=st.agg.max(lambda s: s.amount),
        items=st.agg.count_distinct(lambda s: s.id),
    )


def sales(spark: SparkSession, first: int, last: int) -> Any:
    rows = spark.range(first, last).selectExpr(
        "id", "id % 200 AS user", "id * 7 % 1000 AS amount", "1L AS _count_"
    )
    return st.ZSetSpark.from_dataframe(rows, Sale, count="_count_")


@pytest.mark.parametrize(
    ("query", "most"),
    # Queries; shuffles; sums and largest values. Each query has one for old and new together, and
    # one that adds up what the rows of a change contribute to a count or a sum.
    [(users, (2, 1, 1)), (first, (3, 3, 3)), (totals, (7, 8, 12))],
)
def test_old_and_new_of_a_large_change_are_one_shuffle_and_one_sum(
    query: Callable[..., Any],
    most: tuple[int, int, int],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frames: list[DataFrame] = []
    original = Sources.sql

    def watched(sources: Sources, text: str, uses: Iterable[str]) -> DataFrame:
        frames.append(original(sources, text, uses))
        return frames[-1]

    monkeypatch.setattr(Sources, "sql", watched)
    graph = st.compile(query)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=IN_SPARK)
    stepper.step((sales(spark, 0, 2_000),))
    frames.clear()
    stepper.step((sales(spark, 2_000, 2_500),))
    plans = [f._jdf.queryExecution() for f in frames]
    shuffles = sum(p.executedPlan().toString().count("Exchange ") for p in plans)
    sums = sum(p.optimizedPlan().toString().count("Aggregate") for p in plans)
    found = (len(plans), shuffles, sums)
    assert all(n <= m for n, m in zip(found, most, strict=True)), found
