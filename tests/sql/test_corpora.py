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

from tests.every_store import InMemory, MakeStore
from tests.sql import corpus, refusals, replayed, tpc

PARTS = 24

SAMPLES = 12
"""Parts of the sample of a hundred queries, for all stores and modes."""

TIES = {"query_1391", "tpcds_q51", "tpcds_q68", "tpcds_q89"}
"""Queries whose answer their rows do not determine."""

LARGE = 12
"""Parts of the large views of openivm: Spark takes half a minute for each answer."""

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


@pytest.mark.long
@pytest.mark.parametrize("part", range(LARGE))
def test_large_views_of_openivm_are_what_spark_answers(part: int, spark: SparkSession) -> None:
    steps = [*corpus.streams(seed=1, steps=2)]
    chosen = corpus.queries("openivm_large")[part::LARGE]
    found = corpus.compare(chosen, corpus.tpcc().TABLES, lambda _: steps, spark)
    assert not found.wrong
    assert not found.refused


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


def sample() -> list[tuple[str, dict[str, Any]]]:
    """A hundred queries, each with its corpus."""
    found = [("openivm", q) for q in corpus.queries("openivm")[::19]]
    found += [("tpch", q) for q in corpus.queries("tpch")[::2]]
    found += [("tpcds", q) for q in corpus.queries("tpcds")[::8]]
    return [(name, q) for name, q in found if q["name"] not in TIES][:100]


@pytest.mark.turn(SAMPLES)
@pytest.mark.parametrize("part", range(SAMPLES))
@pytest.mark.parametrize("local_rows", [None, 0], ids=["driver", "everything in Spark"])
def test_a_sample_is_the_same_in_every_store_and_in_spark(
    part: int, local_rows: int | None, make_store: MakeStore, spark: SparkSession
) -> None:
    if local_rows is None and isinstance(make_store, InMemory):
        pytest.skip("all views are tested so")
    steps = [*corpus.streams(seed=1, steps=4)]
    for name, q in sample()[part::SAMPLES]:
        ddls = corpus.tpcc().TABLES if name == "openivm" else tpc.tables(name)
        changes = steps if name == "openivm" else [*tpc.streams(q, ddls, steps=4)]
        how = {"make_store": make_store, "local_rows": local_rows}
        found = corpus.compare([q], ddls, lambda _, changes=changes: changes, spark, **how)  # type: ignore[misc]
        assert not found.wrong


@pytest.mark.long
def test_the_page_of_refusals_says_what_is_refused(spark: SparkSession) -> None:
    assert refusals.PAGE.read_text() == refusals.page(refusals.counted(spark))


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
