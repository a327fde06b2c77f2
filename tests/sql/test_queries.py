"""Views in SQL: after each step, the sum of the changes is what Spark answers to the same text."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.sql.corpus import Maintained, spark_answer
from tests.sql.shop import TABLES, changes, queries

pytestmark = pytest.mark.spark
QUERIES = queries()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", QUERIES)
def test_a_view_is_what_spark_answers(spark: SparkSession, name: str, seed: int) -> None:
    text = QUERIES[name]
    view = Maintained(text, TABLES)
    for number, (change, tables) in enumerate(changes(seed, 4)):
        view.step(change)
        if number in (1, 3):
            wanted = spark_answer(spark, text, tables, TABLES)
            assert view.left == wanted
