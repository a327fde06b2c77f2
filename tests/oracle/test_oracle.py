"""Every query, on the driver and as Spark jobs, against plain Python, with rules on and off.

`test_reference` shows that plain Python is right: that the sum of its outputs is the query on the
sum of the inputs, however the changes are dealt into steps. Here the engine is held to the same
at each step: with deletions, NULL, NaN, weights of both signs, groups that empty and return.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as hs
from pyspark.sql import SparkSession

import stepping_spark as st
from tests.cases import Z
from tests.every_store import MakeStore
from tests.queries import CIRCUITS, QUERIES, Circuit, Query
from tests.strategies import Number, Step, add_up, shuffled, streams_of

Long = Annotated[Decimal, st.Precision(38, 0)]
every_query = pytest.mark.parametrize("query", QUERIES, ids=str)
EVERY: list[Circuit] = [*QUERIES, *CIRCUITS]
every_circuit = pytest.mark.parametrize("query", EVERY, ids=str)
LONG = pytest.mark.long
# Spark takes its time: a twelfth of the circuits in each run, and fewer with large changes. With
# `-m long` it is all of them.
some_as_written = pytest.mark.parametrize(
    ("query", "optimize"),
    [
        pytest.param(
            q,
            rule,
            id=f"{q}, {'optimized' if rule else 'as written'}",
            marks=pytest.mark.turn(12),
        )
        for q in EVERY
        for rule in (True, False)
    ],
)
# A circuit for each kind of register. `-m long` takes all circuits.
REGISTERS = (
    "fields of every type",  # by whole rows
    "joins on NULL, and with conditions",  # by a key
    "windows by dates and times",  # in order
    "first n of each user",  # by a bucket
    "reduce rows of numbers",  # a sum
    "group rows of numbers by user",  # sums by a key
    "aggregates of several kinds, by two fields",
    "loops",  # the value of the step before
)
assert set(REGISTERS) < {q.name for q in EVERY}
a_circuit_for_each_register = pytest.mark.parametrize(
    "query", [pytest.param(q, id=str(q), marks=() if q.name in REGISTERS else LONG) for q in EVERY]
)
rules = pytest.mark.parametrize(
    "optimize",
    [
        pytest.param(True, id="optimized"),
        pytest.param(False, id="as written", marks=pytest.mark.turn(2)),
    ],
)


def run(
    query: Any,
    steps: Sequence[Step],
    *,
    local_rows: int = st.Limits.local_rows,
    optimize: bool = True,
) -> list[tuple[Any, ...]]:
    """The outputs of each step, from a fresh store."""
    graph = st.compile(query, optimize=optimize)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    return [shown(stepper.step(step)) for step in steps]


def shown(outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Z-sets as values of Python; numbers are that already."""
    return tuple(out.to_python() if isinstance(out, st.ZSetSpark) else out for out in outputs)


def expected(query: Any, steps: Sequence[Step]) -> list[tuple[Any, ...]]:
    reference = st.reference(st.compile(query))
    return [reference.step(step) for step in steps]


@every_circuit
@rules
@settings(max_examples=5)
@given(data=hs.data())
def test_the_driver_gives_what_plain_python_gives(
    spark: SparkSession, query: Circuit, optimize: bool, data: hs.DataObject
) -> None:
    steps = data.draw(streams_of(*query.rows))
    assert run(query.in_spark, steps, optimize=optimize) == expected(query.changes, steps)


@a_circuit_for_each_register
@pytest.mark.parametrize(
    ("examples", "optimize"),
    [(1, True), pytest.param(20, True, marks=LONG), pytest.param(10, False, marks=LONG)],
)
def test_every_store_gives_what_plain_python_gives_opened_anew_between_steps(
    spark: SparkSession, make_store: MakeStore, query: Circuit, examples: int, optimize: bool
) -> None:
    graph = st.compile(query.in_spark, optimize=optimize)

    @settings(max_examples=examples, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(steps=streams_of(*query.rows))
    def holds(steps: list[Step]) -> None:
        assume(len(steps) > 3)
        assume(sum(map(is_something, (change for step in steps for change in step))) > 3)
        store = make_store(graph)
        found = []
        for step in steps:
            store = make_store.reopen(store, graph)
            found.append(shown(st.Stepper(graph, store).step(step)))
        assert found == expected(query.changes, steps)

    holds()


def is_something(change: Any) -> bool:
    return not change.empty() if isinstance(change, Z) else bool(change)


@pytest.mark.usefixtures("by_queries")
@some_as_written
@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=hs.data())
def test_queries_of_spark_give_what_plain_python_gives(
    spark: SparkSession, query: Circuit, optimize: bool, data: hs.DataObject
) -> None:
    steps = data.draw(streams_of(*query.rows, max_steps=3))
    found = run(query.in_spark, steps, local_rows=0, optimize=optimize)
    assert found == expected(query.changes, steps)


@every_query
@pytest.mark.turn(4)
@settings(max_examples=2)
@given(data=hs.data(), seed=hs.integers(0, 2**32), many=hs.integers(1, 4))
def test_it_does_not_matter_how_changes_are_dealt_into_steps(
    spark: SparkSession, query: Query, data: hs.DataObject, seed: int, many: int
) -> None:
    steps = data.draw(streams_of(*query.rows))
    whole = summed(run(query.in_spark, steps))
    assert summed(run(query.in_spark, [add_up(steps[1:], steps[0])])) == whole
    dealt = shuffled(steps, random.Random(seed), many)
    assert summed(run(query.in_spark, dealt)) == whole


@pytest.mark.usefixtures("by_queries")
@every_circuit
@pytest.mark.turn(12)
@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=hs.data())
def test_a_large_change_in_spark_gives_what_a_small_one_gives(
    spark: SparkSession, query: Circuit, data: hs.DataObject
) -> None:
    steps = data.draw(streams_of(*query.rows, max_steps=2))
    steps = [s for s in steps if all(s)]
    graph = st.compile(query.in_spark)
    limits = st.Limits(local_rows=0, fetched_rows=0)  # nothing comes to the driver
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph, driver_bytes=0), limits=limits)
    found = []
    for step in steps:
        given = [in_spark(z, t, spark) for z, t in zip(step, query.rows, strict=True)]
        found.append(shown(stepper.step(given)))
    assert found == expected(query.changes, steps)


def in_spark(change: Any, rows: Any, spark: SparkSession) -> Any:
    if isinstance(rows, Number):
        return change
    frame = change.to_dataframe(spark)
    return st.ZSetSpark.from_dataframe(frame, rows, count="_count_")


def summed(found: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return add_up(found[1:], found[0])


def test_the_opposite_of_a_sum_of_38_digits_is_exact(spark: SparkSession) -> None:
    def query(a: Long) -> Long:
        return st.neg(a)

    total = Decimal("12345678901234567890123456789012345678")
    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
    opposite = total.copy_negate()  # a minus would round it to the digits of the context
    negated = [stepper.step((x,)) for x in (total, opposite)]
    assert negated == [(opposite,), (total,)]
