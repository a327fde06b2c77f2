"""Random views over random changes are what Spark answers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as hs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from stepping_spark.base.errors import CompileError, StepError
from tests.sql.corpus import Maintained, Rows, plain_rows, table_in_spark
from tests.sql.random_views import DDLS, changes, views

STEPS = 4


@pytest.fixture(scope="module")
def refused() -> list[int]:
    """How many views were tried, and how many were refused."""
    return [0, 0]


def hold(text: str, steps: list[dict[str, Any]], spark: SparkSession, refused: list[int]) -> None:
    """Step a view, and compare it with Spark after each step."""
    there: dict[str, Rows] = {name: Counter() for name in DDLS}
    for name in DDLS:
        table_in_spark(spark, there[name], DDLS[name]).createOrReplaceTempView(name)
    try:
        _ = spark.sql(text).schema
    except PySparkException as e:
        event(f"Spark refuses: {str(e)[:60]}")
        return
    refused[0] += 1
    try:
        view = Maintained(text, {name: ddl for name, ddl in DDLS.items() if f"FROM {name}" in text})
    except CompileError as e:
        refused[1] += 1
        event(f"refused: {str(e)[:60]}")
        return
    for step in steps:
        change = {name: Counter[tuple[Any, ...]]() for name in DDLS}
        for name, some in step.items():
            for comes, row in some:
                if comes or there[name][row] + change[name][row] > 0:
                    change[name][row] += 1 if comes else -1
            for row, n in change[name].items():
                there[name][row] += n
            there[name] = +there[name]
        failed: StepError | None = None
        try:
            view.step({n: {r: k for r, k in c.items() if k} for n, c in change.items()})
        except StepError as e:
            failed = e
        for name in DDLS:
            table_in_spark(spark, there[name], DDLS[name]).createOrReplaceTempView(name)
        try:
            wanted = plain_rows(spark.sql(text))
        except PySparkException:
            return  # of a value: our error may come earlier, or later
        assert failed is None, failed
        assert view.left == wanted


@pytest.mark.turn(12, number=5)
def test_a_random_view_is_what_spark_answers(spark: SparkSession, refused: list[int]) -> None:
    @settings(
        max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    @given(views(depth=3), changes(STEPS))
    def held(text: str, steps: list[dict[str, Any]]) -> None:
        hold(text, steps, spark, refused)

    held()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_many_random_views_are_what_spark_answers(
    seed: int, spark: SparkSession, refused: list[int]
) -> None:
    @settings(
        max_examples=100,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(hs.just(seed), views(depth=4), changes(STEPS))
    def held(_: int, text: str, steps: list[dict[str, Any]]) -> None:
        hold(text, steps, spark, refused)

    held()
    assert refused[0] >= 50
    assert refused[1] <= refused[0] * 0.05, refused
