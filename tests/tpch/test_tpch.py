"""The 22 queries of TPC-H, maintained, are after each refresh what Spark SQL gives."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from tests.tpch import q01_to_q11, q12_to_q22
from tests.tpch.data import Tables
from tests.tpch.sql import QUERIES
from tests.tpch.tables import TABLES

MAINTAINED: dict[int, Callable[..., Any]] = {
    n: getattr(q01_to_q11 if n < 12 else q12_to_q22, f"q{n}") for n in QUERIES
}
# One of each kind: sums, a join with the first rows, EXISTS, a filter, an outer join, a scalar
# subquery, an antijoin with a count of distinct values, text. The others are for `-m long`.
SHORT = (1, 3, 4, 6, 13, 15, 16, 22)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables(tmp_path_factory.mktemp("tpch"))


def by_spark(spark: SparkSession, tables: Tables, at: int, n: int) -> Counter[tuple[Any, ...]]:
    """What plain Spark SQL gives on the tables after so many refreshes."""
    for name in TABLES:
        spark.read.parquet(tables.file(at, name)).createOrReplaceTempView(name)
    found = spark.sql(QUERIES[n])
    fields = [f.name for f in dataclasses.fields(row_of(n))]
    return Counter(tuple(row) for row in found.select(*fields).collect())


def row_of(n: int) -> type[st.Data]:
    """The row class of a query's result."""
    module = inspect.getmodule(MAINTAINED[n])
    row: type[st.Data] = getattr(module, f"Q{n}")
    return row


def loaded(spark: SparkSession, tables: Tables, name: str) -> st.ZSetSpark[Any]:
    """A table before the first refresh."""
    return st.ZSetSpark.from_dataframe(spark.read.parquet(tables.file(0, name)), TABLES[name])


def shown(view: st.ZSetPython[Any]) -> Counter[tuple[Any, ...]]:
    return Counter({dataclasses.astuple(row): n for row, n in view.iter()})


@pytest.mark.slow
@pytest.mark.turn(6)
@pytest.mark.parametrize(
    "n",
    [pytest.param(n, id=f"Q{n}", marks=() if n in SHORT else pytest.mark.long) for n in QUERIES],
)
def test_the_view_is_what_spark_sql_gives_after_each_refresh(
    spark: SparkSession, tables: Tables, n: int
) -> None:
    names = list(inspect.signature(MAINTAINED[n]).parameters)
    graph = st.compile(MAINTAINED[n])
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    (view,) = (z.to_python() for z in stepper.step([loaded(spark, tables, t) for t in names]))
    seen = [shown(view)]
    assert seen[0] == by_spark(spark, tables, 0, n)
    for at, refresh in enumerate(tables.refreshes, 1):
        (change,) = stepper.step([refresh.change(t) for t in names])
        view = view + change.to_python()
        seen.append(shown(view))
        assert seen[at] == by_spark(spark, tables, at, n), refresh.name
    assert any(now != then for now, then in itertools.pairwise(seen))
