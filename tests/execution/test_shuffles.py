"""What a step of a large change costs in Spark: queries, shuffles and sums, each counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

import stepping_spark as st
from stepping_spark.execution.sql_scope import SqlScope
from tests.cases import constants

IN_SPARK = st.Limits(local_rows=0, fetched_rows=0)


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


class User(st.Data):
    id: int
    group: int


class Best(st.Data):
    user: int
    amount: int


class Revenue(st.Data):
    group: int
    amount: int
    largest: int


class Numbered(st.Data):
    id: int
    n: int


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


def best(sales: st.ZSet[Sale]) -> st.ZSet[Best]:
    return st.aggregate(
        sales,
        by=lambda s: s.user,
        into=Best,
        group_size=1_000,
        amount=st.agg.max(lambda s: s.amount),
    )


def named(sales: st.ZSet[Sale], users: st.ZSet[User]) -> st.ZSet[st.Pair[Sale, User]]:
    return st.join(sales, users, on_left=lambda s: s.user, on_right=lambda u: u.id)


def named_or_not(sales: st.ZSet[Sale], users: st.ZSet[User]) -> Any:
    return st.outer_join(sales, users, on_left=lambda s: s.user, on_right=lambda u: u.id)


def unnamed(sales: st.ZSet[Sale], users: st.ZSet[User]) -> st.ZSet[Sale]:
    return st.antijoin(sales, users, on_left=lambda s: s.user, on_right=lambda u: u.id)


def by_group(sales: st.ZSet[Sale], users: st.ZSet[User]) -> st.ZSet[Revenue]:
    user = st.Lookup(users, key=lambda u: u.id, on=lambda row: row[0].user)
    return st.aggregate(
        st.delta_join(sales, user),
        by=lambda row: row[1].group,
        into=Revenue,
        group_size=1_000,
        amount=st.agg.sum(lambda row: row[0].amount),
        largest=st.agg.max(lambda row: row[0].amount),
    )


def numbered(sales: st.ZSet[Sale]) -> st.ZSet[Numbered]:
    return st.window(
        sales,
        by=lambda s: s.user,
        order=lambda s: s.amount,
        into=Numbered,
        n=st.win.row_number(),
    )


def not_theirs(sales: st.ZSet[Sale], users: st.ZSet[User]) -> st.ZSet[int]:
    return st.except_(st.map(sales, f=lambda s: s.user), st.map(users, f=lambda u: u.id))


def users_of(spark: SparkSession, first: int, last: int) -> Any:
    rows = spark.range(first, last).selectExpr("id", "id % 20 AS group", "1L AS _count_")
    return st.ZSetSpark.from_dataframe(rows, User, count="_count_")


def sales(spark: SparkSession, first: int, last: int) -> Any:
    rows = spark.range(first, last).selectExpr(
        "id", "id % 200 AS user", "id * 7 % 1000 AS amount", "1L AS _count_"
    )
    return st.ZSetSpark.from_dataframe(rows, Sale, count="_count_")


class Costs(NamedTuple):
    """What the queries of a step have, taken together."""

    queries: int
    exchanges: int  # of rows among tasks; a broadcast is none
    sorts: int
    aggregates: int  # sums and largest values


@pytest.mark.turn(3)
@pytest.mark.parametrize(
    ("query", "most"),
    # One query makes old and new rows together, and one each stream whose keys others look up.
    [
        (users, Costs(2, 1, 0, 1)),
        (first, Costs(2, 2, 2, 2)),
        (best, Costs(2, 1, 0, 2)),
        (totals, Costs(6, 7, 0, 10)),
        (named, Costs(1, 0, 0, 0)),
        (named_or_not, Costs(3, 1, 0, 1)),
        (unnamed, Costs(3, 1, 0, 1)),
        (by_group, Costs(4, 2, 0, 5)),
        (numbered, Costs(1, 2, 2, 2)),
        (not_theirs, Costs(4, 3, 0, 3)),
    ],
)
@constants(small_rows=0, sampled_rows=0)
def test_a_step_has_few_queries_exchanges_and_sorts(
    query: Callable[..., Any],
    most: Costs,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frames: list[DataFrame] = []
    original = SqlScope.sql

    def watched(sources: SqlScope, text: str, uses: Iterable[str]) -> DataFrame:
        frames.append(original(sources, text, uses))
        return frames[-1]

    monkeypatch.setattr(SqlScope, "sql", watched)
    graph = st.compile(query)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=IN_SPARK)
    others = len(graph.input) - 1
    stepper.step((sales(spark, 0, 2_000), *[users_of(spark, 0, 150)] * others))
    frames.clear()
    stepper.step((sales(spark, 2_000, 2_500), *[users_of(spark, 150, 180)] * others))
    plans = [f._jdf.queryExecution() for f in frames]
    physical = [p.executedPlan().toString() for p in plans]
    found = Costs(
        len(plans),
        sum(len(re.findall(r"(?<!Broadcast)Exchange ", p)) for p in physical),
        sum(p.count("Sort [") for p in physical),
        sum(p.optimizedPlan().toString().count("Aggregate") for p in plans),
    )
    assert tuple(found) == tuple(most)
