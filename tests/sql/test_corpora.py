"""Views of others, held to Spark's own answers; each run takes a part, `-m long` all.

They are data that does not belong to the project: `STEPPING_SPARK_CORPORA` says where.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from functools import cache
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.sql import corpus, replayed, tpc

PARTS = 24

TIES = {"query_1391", "tpcds_q51", "tpcds_q68", "tpcds_q89"}
"""Queries whose answer their rows do not determine."""

REFUSED = {"openivm": 2, "tpch": 0, "tpcds": 2}
"""How many of a part may be refused, by corpus."""

pytestmark = pytest.mark.skipif(
    "STEPPING_SPARK_CORPORA" not in os.environ,
    reason="STEPPING_SPARK_CORPORA does not say where the corpora are",
)


@cache
def cases() -> list[dict[str, Any]]:
    """The cases of all test suites."""
    files = [corpus.folder() / "ivm" / f"{name}.json" for name in replayed.FILES]
    return [case for file in files for case in json.loads(file.read_text())]


@pytest.mark.turn(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_views_of_openivm_are_what_spark_answers(part: int, spark: SparkSession) -> None:
    chosen = [q for q in corpus.queries("openivm")[part::PARTS] if q["name"] not in TIES]
    steps = [*corpus.streams(seed=1, steps=4)]
    found = corpus.compare(chosen, corpus.tpcc().TABLES, lambda _: steps, spark)
    assert not found.wrong
    assert len(found.refused) <= REFUSED["openivm"], found.refused


@pytest.mark.turn(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("benchmark", ["tpch", "tpcds"])
def test_queries_of_tpc_are_what_spark_answers(
    benchmark: str, part: int, spark: SparkSession
) -> None:
    ddls = tpc.tables(benchmark)
    chosen = [q for q in corpus.queries(benchmark)[part::PARTS] if q["name"] not in TIES]
    found = corpus.compare(chosen, ddls, lambda q: tpc.streams(q, ddls, steps=4), spark)
    assert not found.wrong
    assert len(found.refused) <= REFUSED[benchmark], found.refused


@pytest.mark.turn(PARTS, number=3)
def test_queries_of_nexmark_are_what_spark_answers(spark: SparkSession) -> None:
    found = corpus.compare(
        tpc.nexmark(), tpc.NEXMARK, lambda q: tpc.streams(q, tpc.NEXMARK, steps=4), spark
    )
    assert not found.wrong
    assert [*found.refused] == ["nexmark_q20"]  # two columns of one name
    assert found.right == 14


@pytest.mark.turn(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_views_of_other_test_suites_are_what_spark_answers(part: int, spark: SparkSession) -> None:
    said: Counter[str] = Counter()
    wrong = []
    for told in cases()[part::PARTS]:
        for word, details in replayed.replay(replayed.Case(told, batch=1), spark):
            said[word] += 1
            if word in ("WRONG", "CRASHED"):
                wrong.append(details)
    assert not wrong
    assert said["right"] > sum(said.values()) * 0.7, said
