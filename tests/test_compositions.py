"""Random queries of up to six operators: their changes add up to the query on whole tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark import linear
from stepping_spark.driver import LOCAL_ROWS
from tests.compositions import Composition, compositions, steps_of
from tests.strategies import Step, add_up

Z = st.ZSetPython


def whole(composition: Composition, tables: Step) -> Any:
    """The query on tables, in plain Python."""
    graph = st.compile(composition.query(linear), optimize=False)
    (out,) = st.reference(graph).step(tables)
    return out


def sums(steps: Sequence[Step]) -> list[Step]:
    """The tables after each step."""
    nothing: Step = (Z(), Z())
    return [add_up(steps[:n], nothing) for n in range(1, len(steps) + 1)]


def check(composition: Composition, steps: Sequence[Step], take: Callable[..., Any]) -> None:
    """What the steps give adds up to the query on the tables, after each of them."""
    found = Z[Any]()
    for change, tables in zip(steps, sums(steps), strict=True):
        (out,) = take(change)
        found = found + out.to_python()
        assert found == whole(composition, tables)


def check_engine(
    composition: Composition,
    steps: Sequence[Step],
    *,
    optimize: bool,
    local_rows: int = LOCAL_ROWS,
) -> None:
    graph = st.compile(composition.query(st), optimize=optimize)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    check(composition, steps, stepper.step)


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "as written"])
@settings(max_examples=60)
@given(composition=compositions(), steps=steps_of())
def test_the_changes_of_a_composition_add_up_to_the_query_on_whole_tables(
    optimize: bool, composition: Composition, steps: list[Step]
) -> None:
    graph = st.compile(composition.query(st), optimize=optimize)
    check(composition, steps, st.reference(graph).step)


@settings(max_examples=30)
@given(composition=compositions(), steps=steps_of())
def test_the_incremental_form_of_a_composition_on_tables_adds_up_to_it(
    composition: Composition, steps: list[Step]
) -> None:
    graph = st.compile(st.incrementalize(composition.query(linear)))
    check(composition, steps, st.reference(graph).step)


@settings(max_examples=25)
@given(composition=compositions(), steps=steps_of(), optimize=hs.booleans())
def test_the_changes_of_a_composition_add_up_on_the_driver(
    spark: SparkSession, composition: Composition, steps: list[Step], optimize: bool
) -> None:
    check_engine(composition, steps, optimize=optimize)


@settings(max_examples=3)
@given(composition=compositions(most=4), steps=steps_of(max_steps=2))
def test_the_changes_of_a_composition_add_up_as_spark_jobs(
    spark: SparkSession, composition: Composition, steps: list[Step]
) -> None:
    check_engine(composition, steps, optimize=True, local_rows=0)
