"""Operators with weights and times: `explode`, `join_function`, `temporal_filter`.

What a temporal operator has given up to a step is what it says of the whole input at that step's
`now`: however the input came, and whatever was held back.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.language import linear
from tests.cases import Z, everywhere

UTC = dt.UTC


class Offer(st.Data):
    item: str
    since: int
    until: int | None


def filtered(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Offer]) -> st.ZSet[Offer]:
        kept: st.ZSet[Offer] = ops.temporal_filter(
            a, lower=lambda o: o.since, upper=lambda o: o.until
        )
        return kept

    return query


def is_on(o: Offer, now: int) -> bool:
    return o.until is not None and o.since <= now < o.until


def from_then_on(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Offer]) -> st.ZSet[str]:
        known: st.ZSet[Offer] = ops.temporal_filter(a, lower=lambda o: o.since * 2)
        return st.map(known, f=lambda o: o.item)

    return query


def until_then(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Offer]) -> st.ZSet[Offer]:
        kept: st.ZSet[Offer] = ops.temporal_filter(a, upper=lambda o: o.until)
        return kept

    return query


def updates(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Offer]) -> st.ZSet[tuple[str, int]]:
        f: Any = lambda o: [  # noqa: E731
            st.Update(value=(o.item, 1), time=o.since, weight=2),
            st.Update(value=(o.item, o.since), time=o.since + 2, weight=-1),
            st.Update(value=(o.item, 0), time=0, weight=0),
        ]
        joined: st.ZSet[tuple[str, int]] = ops.join_function(a, f)
        return joined

    return query


def python_updates(ops: Any) -> Callable[..., Any]:
    def f(o: Offer) -> list[st.Update[str, int]]:
        return [st.Update(value=c, time=o.since + i) for i, c in enumerate(o.item)]

    def query(a: st.ZSet[Offer]) -> st.ZSet[str]:
        joined: st.ZSet[str] = ops.join_function(a, st.python(f))
        return joined

    return query


def of_updates(o: Offer, now: int) -> list[tuple[Any, int]]:
    made = [((o.item, 1), o.since, 2), ((o.item, o.since), o.since + 2, -1)]
    return [(value, n) for value, time, n in made if time <= now]


Meaning = Callable[[Offer, int], list[tuple[Any, int]]]
CASES: dict[str, tuple[Callable[[Any], Callable[..., Any]], Meaning]] = {
    "filter": (filtered, lambda o, now: [(o, 1)] if is_on(o, now) else []),
    "lower": (from_then_on, lambda o, now: [(o.item, 1)] if o.since * 2 <= now else []),
    "upper": (
        until_then,
        lambda o, now: [(o, 1)] if o.until is not None and now < o.until else [],
    ),
    "updates": (updates, of_updates),
    "updates of Python": (
        python_updates,
        lambda o, now: [(c, 1) for i, c in enumerate(o.item) if o.since + i <= now],
    ),
}

offers = hs.builds(
    Offer,
    item=hs.sampled_from(["a", "bc", ""]),
    since=hs.integers(0, 9),
    until=hs.none() | hs.integers(0, 12),
)
changes = hs.lists(hs.tuples(offers, hs.integers(-2, 2)), max_size=5).map(Z)
steps_of = hs.lists(hs.tuples(changes, hs.integers(0, 4)), min_size=1, max_size=7)


def whole(meaning: Meaning, table: Any, now: int) -> Any:
    return Z([(v, n * w) for row, n in table.iter() for v, w in meaning(row, now)])


def check(step: Callable[..., tuple[Any, ...]], meaning: Meaning, steps: Sequence[Any]) -> None:
    table, found, now = Z[Any](), Z[Any](), 1
    for change, later in steps:
        now += later
        table = table + change
        (out,) = step((change,), now=now)
        found = found + out.to_python()
        assert found == whole(meaning, table, now)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "as written"])
@given(steps=steps_of)
def test_plain_python_gives_what_the_whole_says_at_each_step(
    case: str, optimize: bool, steps: Sequence[Any]
) -> None:
    make, meaning = CASES[case]
    for query in (make(st), st.incrementalize(make(linear))):
        check(st.reference(st.compile(query, optimize=optimize)).step, meaning, steps)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "as written"])
@settings(max_examples=10)
@given(steps=steps_of)
def test_the_driver_gives_what_the_whole_says_at_each_step(
    spark: SparkSession, case: str, optimize: bool, steps: Sequence[Any]
) -> None:
    make, meaning = CASES[case]
    graph = st.compile(st.incrementalize(make(linear)), optimize=optimize)
    check(st.Stepper(graph, st.StoreMemory.from_graph(graph)).step, meaning, steps)


@pytest.mark.turn(3)
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=3)
@given(steps=steps_of)
def test_spark_jobs_give_what_the_whole_says_at_each_step(
    spark: SparkSession, case: str, steps: Sequence[Any]
) -> None:
    make, meaning = CASES[case]
    graph = st.compile(make(st))
    check(st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0).step, meaning, steps)


def test_the_lifted_operator_is_what_the_rules_make_of_the_one_on_whole_tables() -> None:
    for make in (filtered, from_then_on, until_then, updates):
        assert st.compile(make(st)) == st.compile(st.incrementalize(make(linear)))


def test_what_has_come_out_is_no_longer_kept_and_little_is_read(spark: SparkSession) -> None:
    graph = st.compile(filtered(st))
    store = st.StoreMemory.from_graph(graph)
    stepper = st.Stepper(graph, store)
    many = Z({Offer(item=f"{i}", since=i, until=i + 1): 1 for i in range(1_000)})
    stepper.step((many,), now=0)
    (out,) = stepper.step((None,), now=500)
    assert out == Z({Offer(item="500", since=500, until=501): 1, **_gone(0)})
    (out,) = stepper.step((None,), now=501)
    assert stepper.metrics[-1].vertices["query.hold"].rows_in == 2
    stepper.step((None,), now=5_000)
    ((register, _),) = st.explain(graph).arrangements
    store.compact()
    assert store.read(register) == ()


def _gone(now: int) -> dict[Offer, int]:
    return {Offer(item=f"{now}", since=now, until=now + 1): -1}


class Event(st.Data):
    at: dt.datetime
    day: dt.date
    local: st.LocalDateTime


def test_times_are_instants_dates_or_local_times(spark: SparkSession) -> None:
    def by(f: Any) -> Any:
        def query(a: st.ZSet[Event]) -> st.ZSet[Event]:
            return st.temporal_filter(a, lower=f)

        return query

    at = dt.datetime(1899, 12, 31, 23, 59, 59, 999_999, UTC)
    local: Any = dt.datetime(2013, 3, 10, 2, 30)
    row = Event(at=at, day=dt.date(2013, 1, 1), local=local)
    cases: list[tuple[Any, Any, Any]] = [
        (lambda e: e.at, at, dt.timedelta(microseconds=1)),
        (lambda e: e.day, row.day, dt.timedelta(days=1)),
        (lambda e: e.local, row.local, dt.timedelta(microseconds=1)),
        (lambda e: F.date_add(e.day, 2), row.day + dt.timedelta(days=2), dt.timedelta(days=1)),
    ]
    for local_rows in (st.Limits.local_rows, 0):
        for f, due, little in cases:
            graph = st.compile(by(f))
            stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
            (early,) = stepper.step((Z({row: 1}),), now=due - little)
            (then,) = stepper.step((None,), now=due)
            (late,) = stepper.step((Z({row: 1}),), now=due + dt.timedelta(days=400))
            assert (early.empty(), then, late) == (True, Z({row: 1}), Z({row: 1}))


def test_a_now_that_cannot_be_compared_is_an_error_and_changes_nothing() -> None:
    def query(a: st.ZSet[Event]) -> st.ZSet[Event]:
        return st.temporal_filter(a, upper=lambda e: e.at)

    graph = st.compile(query)
    store = st.StoreMemory.from_graph(graph)
    stepper = st.Stepper(graph, store)
    for now in (None, dt.date(2013, 1, 1), dt.datetime(2013, 1, 1)):
        with pytest.raises(st.InputError, match=r"query\.hold .*datetime with a time zone"):
            stepper.step((None,), now=now)
    assert store.last_step() == 0


def test_wrong_updates_are_refused_with_the_line() -> None:
    def weights(a: st.ZSet[str]) -> st.ZSet[str]:
        return st.explode(a, f=lambda x: [(x, 0.5)])  # type: ignore[list-item]

    def tuples(a: st.ZSet[str]) -> st.ZSet[str]:
        return st.join_function(a, f=lambda x: [(x, 1)])  # type: ignore[list-item]

    def text(a: st.ZSet[str]) -> st.ZSet[str]:
        return st.temporal_filter(a, lower=lambda x: x)

    def neither(a: st.ZSet[str]) -> st.ZSet[str]:
        return st.temporal_filter(a)

    def differ(a: st.ZSet[Event]) -> st.ZSet[Event]:
        return st.temporal_filter(a, lower=lambda e: e.at, upper=lambda e: e.day)

    for query, message in (
        (weights, "weights"),
        (tuples, "Update"),
        (text, "times are ints"),
        (neither, "needs lower="),
        (differ, "bounds .* differ"),
    ):
        with pytest.raises(st.CompileError, match=f"(?s)test_updates.py.*{message}"):
            st.compile(query)


@everywhere
def test_structs_of_spark_are_taken_by_the_order_of_their_fields(
    spark: SparkSession, local_rows: int
) -> None:
    def query(a: st.ZSet[Offer]) -> st.ZSet[str]:
        f: Any = lambda o: F.transform(  # noqa: E731
            F.split(o.item, ""), lambda c: F.struct(c, F.length(c).cast("bigint"))
        )
        return st.explode(a, f=f)

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    (out,) = stepper.step((Z({Offer(item="abca", since=0, until=None): 2}),))
    assert out == Z({"a": 4, "b": 2, "c": 2})
