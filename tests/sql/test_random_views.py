"""Random views over random changes are what Spark answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, event, find, given, settings
from hypothesis import strategies as hs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from stepping_spark.base.errors import CompileError, StepError
from stepping_spark.spark.session import with_settings
from tests.cases import INTERPRETED
from tests.sql.corpus import FAILED, Maintained, Rows, plain_rows, same, table_in_spark
from tests.sql.random_views import Case, Step, cases

STEPS = 6
SEEDS = 20


_RULES = "org.apache.spark.sql.catalyst.optimizer."
PLAIN = {
    **INTERPRETED,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.optimizer.excludedRules": (f"{_RULES}PropagateEmptyRelation,{_RULES}EliminateSorts"),
}
"""What lets Spark answer as a plain query, and soon.

Spark leaves out what is joined with no rows, and its errors; without the first rule it computes it.
It removes the ORDER BY below a LIMIT, if the rows have a correlated subquery beside them (seen in
4.3); without the second rule it sorts.
"""


@pytest.fixture
def plainly(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, without compiled code and without plans that change as they run."""
    with with_settings(spark, PLAIN):
        yield spark


@pytest.fixture(scope="module")
def refused() -> list[int]:
    """How many views were tried, and how many were refused."""
    return [0, 0]


def applied(there: Rows, step: Step, table: str) -> Rows:
    """The change of a table in a step."""
    comes, goes = step[table]
    change = Counter(comes)
    for number in goes:
        left = sorted((there + change).elements(), key=repr)
        if left:
            change[left[number % len(left)]] -= 1
        change = Counter({row: n for row, n in change.items() if n})
    return change


def hold(case: Case, spark: SparkSession, refused: list[int]) -> None:
    """Step a view, and compare it with Spark after each step."""
    ddls = case.ddls
    there: dict[str, Rows] = {name: Counter() for name in ddls}
    for name in ddls:
        table_in_spark(spark, there[name], ddls[name]).createOrReplaceTempView(name)
    try:
        _ = spark.sql(case.text).schema
    except PySparkException as e:
        event(f"Spark refuses: {str(e)[:60]}")
        return
    refused[0] += 1
    try:
        view = Maintained(case.text, ddls)
    except CompileError as e:
        refused[1] += 1
        event(f"refused: {str(e)[:60]}")
        return
    for step in case.steps:
        change = {name: applied(there[name], step, name) for name in ddls}
        for name, rows in change.items():
            if not rows:
                continue
            there[name] = Counter(
                {r: n for r in there[name] | rows if (n := there[name][r] + rows[r])}
            )
            table_in_spark(spark, there[name], ddls[name]).createOrReplaceTempView(name)
        failed: StepError | None = None
        try:
            view.step(change)
        except StepError as e:
            failed = e
        try:
            wanted = plain_rows(spark.sql(case.text))
        except FAILED:
            return  # of a value: our error may come earlier, or later
        assert failed is None, failed
        assert same(view.left, wanted), (view.left - wanted, wanted - view.left)


@pytest.mark.turn(12, number=5)
def test_a_random_view_is_what_spark_answers(plainly: SparkSession, refused: list[int]) -> None:
    @settings(
        max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    @given(cases(depth=3, steps=STEPS))
    def held(case: Case) -> None:
        hold(case, plainly, refused)

    held()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEEDS))
def test_many_random_views_are_what_spark_answers(
    seed: int, plainly: SparkSession, refused: list[int]
) -> None:
    @settings(
        max_examples=100,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(hs.just(seed), cases(depth=4, steps=STEPS))
    def held(_: int, case: Case) -> None:
        hold(case, plainly, refused)

    held()
    assert refused[0] >= 50
    assert refused[1] <= refused[0] * 0.05, refused


@pytest.mark.long
def test_a_view_that_fails_is_shown_as_small_as_it_can_be() -> None:
    quick = settings(max_examples=200, deadline=None, database=None, derandomize=True)
    found = find(cases(depth=1, steps=1), lambda case: " JOIN " in case.text, settings=quick)
    assert len(found.text) < 150, found.text
    assert all(not comes and not goes for step in found.steps for comes, goes in step.values())
