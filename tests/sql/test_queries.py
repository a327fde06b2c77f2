"""Views in SQL: after each step, the sum of the changes is what Spark answers to the same text."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from tests.sql.corpus import Maintained, plain
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
            for table, rows in tables.items():
                given = [row for row, n in rows.items() for _ in range(n)]
                spark.createDataFrame(given, TABLES[table]).createOrReplaceTempView(table)
            wanted = Counter(plain(tuple(row)) for row in spark.sql(text).collect())
            assert view.left == wanted
