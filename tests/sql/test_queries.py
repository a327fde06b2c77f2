"""Views in SQL: after each step, the sum of the changes is what Spark answers to the same text."""

from __future__ import annotations

import functools

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.sql.corpus import Maintained, Rows, plain_rows, table_in_spark
from tests.sql.shop import TABLES, changes, queries

pytestmark = pytest.mark.spark
QUERIES = queries()
STEPS = 4


@functools.cache
def frames(spark: SparkSession, seed: int, number: int) -> dict[str, DataFrame]:
    """The tables after a step, in Spark, for all queries."""
    _, tables = list(changes(seed, STEPS))[number]
    return {
        name: table_in_spark(spark, rows, TABLES[name]).coalesce(1) for name, rows in tables.items()
    }


def answer(spark: SparkSession, text: str, seed: int, number: int) -> Rows:
    """What Spark answers to the text after a step."""
    for name, frame in frames(spark, seed, number).items():
        frame.createOrReplaceTempView(name)
    return plain_rows(spark.sql(text))


@pytest.mark.turn(6)
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_view_is_what_spark_answers(spark: SparkSession, name: str, seed: int) -> None:
    text = QUERIES[name]
    view = Maintained(text, TABLES)
    for number, (change, _) in enumerate(changes(seed, STEPS)):
        view.step(change)
        assert view.left == answer(spark, text, seed, number), f"after step {number}"
