"""Row functions with Spark's own functions, and with rows that may be missing."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.plan import plan_of

Z = st.ZSetPython


class Inner(st.Data):
    a: int


class Outer(st.Data):
    name: str
    inner: Inner | None


class Row(st.Data):
    x: int
    name: str


def query(
    a: st.ZSet[Row],
) -> tuple[st.ZSet[Outer], st.ZSet[int], st.ZSet[st.Pair[st.ZSetPython[str], int]]]:
    outer = st.map(a, f=lambda r: Outer(name=r.name, inner=Inner(a=r.x)))
    large: Any = lambda r: F.when(r.x > 1, r.x)  # noqa: E731 - NULL for the others
    upper: Any = st.agg.collect(lambda r: F.upper(r.name), to=str)
    by_parity = st.group_reduce_flatten(a, by=lambda r: r.x % 2, zero=Z, pick_value=upper)
    return st.distinct(outer), st.reduce(a, zero=int, pick_value=large), by_parity


@pytest.mark.parametrize("local_rows", [20_000, 0])
def test_columns_of_spark_stand_wherever_a_row_function_may(
    spark: SparkSession, local_rows: int
) -> None:
    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    outer, large, upper = stepper.step((Z({Row(x=1, name="a"): 1, Row(x=3, name="b"): 2}),))
    assert outer == Z({Outer(name="a", inner=Inner(a=1)): 1, Outer(name="b", inner=Inner(a=3)): 1})
    assert large == Z({6: 1})
    assert upper == Z({st.Pair(left=Z({"A": 1, "B": 2}), right=1): 1})


def test_a_join_with_several_readers_is_computed_once() -> None:
    def several(a: st.ZSet[Row]) -> tuple[st.ZSet[int], st.ZSet[st.Pair[int, str]]]:
        joined = st.join(a, a, on_left=lambda r: r.x, on_right=lambda r: r.x)
        by_name = st.group_reduce_flatten(
            joined, by=lambda p: p.left.name, zero=int, pick_value=lambda p: p.right.x
        )
        return st.count(joined), by_name

    assert str(plan_of(st.compile(several))).count("join(") == 2


def test_the_index_of_a_cache_below_a_join_is_kept() -> None:
    cache = st.Cache[st.Pair[Row, Row]](name="pairs")

    def cached(a: st.ZSet[Row]) -> st.ZSet[st.Pair[Row, Row]]:
        joined = st.join(a, a, on_left=lambda r: r.x, on_right=lambda r: r.x)
        by_name = (lambda p: p.left.name,)
        _ = cache[joined](lambda p: st.integrate_indexed(p, indexes=by_name))
        return joined

    arranged = dict(st.explain(st.compile(cached)).arrangements)
    assert arranged["cache.pairs"] == ("_key_1_",)
