"""What a stream has at most, as known before it is computed, and the query that fetches it then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.execution import spark_executor
from stepping_spark.execution.materialize import SizeBound, bound, together
from stepping_spark.execution.step import Computed, Step
from stepping_spark.plan.step_ir import Materialized
from stepping_spark.relations.transfer import measure
from tests.cases import Z, constants
from tests.compositions import Composition, Row, compositions, steps_of

pytestmark = pytest.mark.usefixtures("by_queries")

LARGE = st.Limits(local_rows=0)  # the driver may fetch, and computes nothing


class Told:
    """The bounds that were asked for, each with what the stream had then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bounds: dict[Materialized, SizeBound | None] = {}
        self.made: list[tuple[SizeBound | None, Computed]] = []
        large = spark_executor.SparkExecutor._large

        def asked(step: Step, m: Materialized) -> SizeBound | None:
            self.bounds[m] = bound(step, m)
            return self.bounds[m]

        def watched(*args: Any, **kwargs: Any) -> list[Computed]:
            made = large(*args, **kwargs)
            self.made += [(self.bounds[c.member], c) for c in made if c.member in self.bounds]
            return made

        monkeypatch.setattr(spark_executor, "bound", asked)
        monkeypatch.setattr(spark_executor.SparkExecutor, "_large", watched)


@constants(small_rows=0)
def test_no_stream_has_more_than_its_bound(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(monkeypatch)

    @settings(max_examples=6, suppress_health_check=list(HealthCheck))
    @given(composition=compositions(most=4, least=2), steps=steps_of(max_steps=2))
    def holds(composition: Composition, steps: list[Any]) -> None:
        query: Any = composition.query(st)
        graph = st.compile(query)
        stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=LARGE)
        reference = st.reference(graph)
        for step in steps:
            assert [out.to_python() for out in stepper.step(step)] == list(reference.step(step))

    assert known(copied, ROWS, told) is not None  # of the random ones, all may be without bounds
    holds()
    bounded = [(most, made.held) for most, made in told.made if most is not None]
    for most, held in bounded:
        found = measure(held.in_spark(lambda: spark).frame, held.schema)
        assert (found.rows <= most.rows, found.nbytes <= most.nbytes) == (True, True)


def copied(a: st.ZSet[Row]) -> Any:
    return st.map(st.filter(a, lambda r: r.k != 0), f=lambda r: (r.t, r.k, (r.t, r.v)))


def longer(a: st.ZSet[Row]) -> Any:
    upper: Any = F.upper
    return st.map(a, f=lambda r: (upper(r.t), r.k))


def twice(a: st.ZSet[Row]) -> Any:
    return st.add(st.map(a, f=lambda r: (r.t, r.k)), st.map(a, f=lambda r: (r.t, r.v)))


def floats(a: st.ZSet[Row]) -> Any:
    half: Any = F.lit(0.5)
    return st.reduce(a, zero=float, pick_value=lambda r: half)


@constants(small_rows=0)
def known(query: Callable[..., Any], rows: Any, told: Told) -> SizeBound | None:
    graph = st.compile(query)
    st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=LARGE).step((rows,))
    return told.made[0][0]


ROWS = Z({Row(k=i, v=i, t="é" * i): 1 for i in range(10)})
TEXTS = sum(2 * i + 4 for i in range(10))


@pytest.mark.parametrize("query", [copied, twice])
def test_the_bound_of_what_copies_its_input_is_its_size(
    query: Callable[..., Any], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = known(query, ROWS, Told(monkeypatch))
    assert found is not None
    assert found.rows == (20 if query is twice else 10)
    numbers = 10 * 3 if query is copied else 20 * 2  # with their weights
    assert found.nbytes >= 2 * TEXTS + numbers * 8
    assert found.nbytes <= 3 * TEXTS + numbers * 8 + 200  # lengths of texts, and bits of NULL


@pytest.mark.parametrize("query", [longer, floats])
def test_what_may_be_wider_or_more_than_its_input_has_no_bound(
    query: Callable[..., Any], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert known(query, ROWS, Told(monkeypatch)) is None


class Answers(st.Data):
    first: bool
    second: bool
    third: list[bool]
    text: str


def texts(a: st.ZSet[Answers]) -> Any:
    return st.map(st.filter(a, lambda r: r.first), f=lambda r: (r.text, r.text, r.third, r.text))


def test_truth_values_of_which_arrow_has_eight_in_a_byte_leave_texts_their_room(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(monkeypatch)
    rows = [Answers(first=True, second=True, third=[True] * 8, text=f"{i:017}") for i in range(99)]
    found = known(texts, Z(dict.fromkeys(rows, 1)), told)
    assert found is not None
    table = told.made[0][1].held.table
    assert table is not None
    assert 3 * 99 * 17 < table.nbytes <= found.nbytes


def test_streams_share_a_table_as_far_as_it_has_room() -> None:
    members: list[Any] = [object() for _ in range(5)]
    narrow, wide = SizeBound(10, 8, 40), SizeBound(10, 32, 0)
    assert (narrow.nbytes, narrow.beside(wide).nbytes) == (120, 20 * 40 + 40)
    bounds = dict(zip(members, (narrow, wide, narrow, narrow, wide), strict=True))
    assert together(bounds, 10**6) == [members]
    assert together(bounds, 1_000) == [members[:2], members[2:4], members[4:]]
    assert together(bounds, 1) == [[m] for m in members]
    assert together({}, 1) == []


class Sale(st.Data):
    user: int
    amount: int
    day: int


class User(st.Data):
    id: int
    group: int


class Total(st.Data):
    group: int
    amount: int
    last: int


def totals(sales: st.ZSet[Sale], users: st.ZSet[User]) -> st.ZSet[Total]:
    """Two streams that read the same join: the sums, and the last days."""
    user = st.Lookup(users, key=lambda u: u.id, on=lambda row: row[0].user)
    return st.aggregate(
        st.delta_join(sales, user),
        by=lambda row: row[1].group,
        into=Total,
        group_size=1_000,
        amount=st.agg.sum(lambda row: row[0].amount),
        last=st.agg.max(lambda row: row[0].day),
    )


def sales(first: int, last: int) -> Any:
    return Z({Sale(user=i % 7, amount=i, day=i): 1 for i in range(first, last)})


@constants(small_rows=0, sampled_rows=5)
def test_streams_with_few_rows_for_sure_are_fetched_by_one_query_in_one_job(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken() -> tuple[Any, int, int | None]:
        graph = st.compile(totals)
        # The join has more rows than the driver fetches to compute with.
        stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=LARGE)
        stepper.step((sales(0, 50), Z({User(id=i, group=i % 3): 1 for i in range(7)})))
        (out,) = stepper.step((sales(50, 60), None))
        return out.to_python(), stepper.metrics[-1].queries, stepper.metrics[-1].jobs

    out, queries_of_few, jobs_of_few = taken()
    monkeypatch.setattr(spark_executor, "bound", lambda *_: None)
    same, queries_of_many, jobs_of_many = taken()
    assert out == same
    assert queries_of_few == queries_of_many - 1
    assert jobs_of_few == (jobs_of_many or 0) - 3  # each of both was computed, and then fetched
