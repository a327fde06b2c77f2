"""Random queries of up to six operators: their changes add up to the query on whole tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as hs
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.language import linear
from tests.cases import Z
from tests.compositions import Composition, Row, compositions, steps_of
from tests.compositions_in_sql import IN_SQL, in_sql
from tests.every_store import InMemory, MakeStore
from tests.strategies import Step, add_up


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
    make_store: MakeStore,
    *,
    optimize: bool,
    local_rows: int = st.Limits.local_rows,
) -> None:
    """The same, from a store that is opened anew before each step, where it outlives a process."""
    graph = st.compile(composition.query(st), optimize=optimize)
    store = make_store(graph)

    def take(change: Step) -> Any:
        nonlocal store
        store = make_store.reopen(store, graph)
        return st.Stepper(graph, store, local_rows=local_rows).step(change)

    check(composition, steps, take)


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
    check_engine(composition, steps, InMemory(), optimize=optimize)


@settings(max_examples=2, suppress_health_check=[HealthCheck.filter_too_much])
@given(composition=compositions(most=4, least=2), steps=steps_of(max_steps=2))
def test_the_changes_of_a_composition_add_up_as_spark_jobs(
    spark: SparkSession, composition: Composition, steps: list[Step]
) -> None:
    assume(all(map(is_something, steps[0])))
    check_engine(composition, steps, InMemory(), optimize=True, local_rows=0)


@pytest.mark.parametrize("make_store", ["parquet", "postgres"], indirect=True)
def test_the_changes_of_a_composition_add_up_in_stores_that_outlive_a_process(
    spark: SparkSession, make_store: MakeStore
) -> None:
    @settings(max_examples=4, suppress_health_check=list(HealthCheck))
    @given(composition=compositions(least=3), steps=steps_of(), optimize=hs.booleans())
    def holds(composition: Composition, steps: list[Step], optimize: bool) -> None:
        assume(len(steps) > 1 and all(map(is_something, steps[0])))
        check_engine(composition, steps, make_store, optimize=optimize)

    holds()


@settings(max_examples=8, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    composition=compositions(most=4, least=2, among=IN_SQL),
    steps=steps_of(),
    optimize=hs.booleans(),
)
def test_the_changes_of_a_composition_add_up_to_what_spark_sql_gives(
    spark: SparkSession, composition: Composition, steps: list[Step], optimize: bool
) -> None:
    tables = [tuple(map(positive, total)) for total in sums(steps)]
    assume(len(tables) > 1)
    assume(all(map(is_something, tables[-1])))
    graph = st.compile(composition.query(st), optimize=optimize)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    found = Z[Any]()
    for now, before in zip(tables, [(Z(), Z()), *tables], strict=False):
        (out,) = stepper.step(tuple(z - old for z, old in zip(now, before, strict=True)))
        found = found + out.to_python()
    for i, z in enumerate(tables[-1]):
        rows = [(r.k, r.v, r.t) for r, n in z.iter() for _ in range(n)]
        frame = spark.createDataFrame(rows, "k bigint, v bigint, t string")
        frame.createOrReplaceTempView(f"s{i}")
    given_by_sql = [Row(k=k, v=v, t=t) for k, v, t in spark.sql(in_sql(composition)).collect()]
    assert found == Z([(row, 1) for row in given_by_sql])


def is_something(change: Any) -> bool:
    return not change.empty()


def positive(z: Any) -> Z[Any]:
    """What a table can hold of a Z-set."""
    return Z({row: n for row, n in z.iter() if n > 0})
