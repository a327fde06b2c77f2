"""Lateness: rows that come too late, and state that leaves while the answer stays."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark import functions as F
from tests.every_store import MakeStore
from tests.late_rows import LATENESS, SETTLED, Beside, Event, annotated, in_time

BOTH = {"l": (lambda e: e.at, LATENESS), "r": (lambda e: e.at, LATENESS)}
SLOWER = {
    "descending lag",
    "descending lead",
    "asof forward",
    "asof tolerance",
    "outer",
    "range back",
}


def rows_kept(stepper: st.Stepper[Any, Any]) -> int:
    """The rows in all registers of a store."""
    store: Any = stepper.store
    store.compact()
    return sum(store.size(name).rows for name, _ in st.explain(stepper.graph).arrangements)


@pytest.mark.turn(2)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] * (n in SLOWER)) for n in SETTLED]
)
def test_the_answer_is_the_same_and_the_state_is_flat(name: str) -> None:
    query = annotated(SETTLED[name])
    graph, whole = st.compile(query, lateness=BOTH), st.reference(st.compile(query))
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    as_written = st.reference(st.compile(query, lateness=BOTH, optimize=False))
    optimized = st.reference(graph)
    sizes = []
    for step, change in enumerate(in_time(40, seed=len(name))):
        (wanted,) = whole.step(change)
        assert stepper.step(change) == (wanted,), step
        if step < 10:
            assert optimized.step(change) == (wanted,), step
        if step < 5:
            assert as_written.step(change) == (wanted,), step
        sizes.append(rows_kept(stepper))
    assert max(sizes[30:]) <= 2 * max(sizes[10:30]), sizes
    assert not any("keeps all rows" in hint for hint in st.explain(graph).hints)


TOGETHER = {n: SETTLED[n] for n in ("rows forward", "sessions", "asof backward left", "chained")}


def together(l: st.ZSet[Event], r: st.ZSet[Event]) -> Any:  # noqa: E741
    return tuple(query(l, r) for query in TOGETHER.values())


def goes_on_in(make_store: MakeStore, *, local_rows: int, steps: int) -> None:
    """Compare steps with plain Python, each in a store that was opened anew."""
    graph, whole = st.compile(together, lateness=BOTH), st.reference(st.compile(together))
    store = make_store(graph)
    for step, change in enumerate(in_time(steps, seed=11, many=3, pace=4)):
        stepper = st.Stepper(graph, store, local_rows=local_rows)
        assert stepper.step(change) == whole.step(change), step
        store = make_store.reopen(store, graph)
    stepper = st.Stepper(graph, store, local_rows=local_rows)
    with pytest.raises(st.InputError, match="too late"):
        stepper.step((st.ZSetPython({Event(key="a", at=0, n=1): 1}), None))
    assert store.last_step() == steps


def test_every_store_keeps_the_watermark_and_goes_on_after_a_restart(make_store: MakeStore) -> None:
    goes_on_in(make_store, local_rows=2_000_000, steps=10)


@pytest.mark.long
def test_every_store_keeps_it_in_spark_too(spark: SparkSession, make_store: MakeStore) -> None:
    goes_on_in(make_store, local_rows=0, steps=4)


@pytest.mark.parametrize("names", [("lead", "range both", "asof nearest", "joined", "except")])
def test_spark_gives_the_same(names: tuple[str, ...], spark: SparkSession) -> None:
    def query(l: st.ZSet[Event], r: st.ZSet[Event]) -> Any:  # noqa: E741
        return tuple(SETTLED[name](l, r) for name in names)

    graph, whole = st.compile(query, lateness=BOTH), st.reference(st.compile(query))
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
    for step, change in enumerate(in_time(3, seed=5, pace=8)):
        assert stepper.step(change) == whole.step(change), step


class Click(st.Data):
    user: str
    at: dt.datetime
    page: int


class Price(st.Data):
    page: int
    at: dt.datetime
    cents: int


class Shown(st.Data):
    user: str
    at: dt.datetime
    before: int | None


def of_clicks(clicks: st.ZSet[Click], prices: st.ZSet[Price]) -> Any:
    priced = st.asof_join(
        clicks,
        prices,
        on_left=lambda c: c.page,
        on_right=lambda p: p.page,
        at_left=lambda c: c.at,
        at_right=lambda p: p.at,
        how="left",
    )
    before: Any = st.win.lag(lambda c: c.page)
    shown = st.window(clicks, by=lambda c: c.user, order=lambda c: c.at, into=Shown, before=before)
    visits = st.sessions(clicks, by=lambda c: c.user, at=lambda c: c.at, gap=dt.timedelta(hours=1))
    same = st.join(
        clicks, prices, on_left=lambda c: (c.page, c.at), on_right=lambda p: (p.page, p.at)
    )
    return priced, shown, visits, same


START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def a_day(day: int) -> tuple[st.ZSetPython[Click], st.ZSetPython[Price]]:
    at = START + dt.timedelta(days=day)
    clicks = [
        Click(user=f"user {(day + i) % 3}", at=at + dt.timedelta(minutes=40 * i), page=i % 2)
        for i in range(6)
    ]
    prices = [Price(page=p, at=at + dt.timedelta(hours=p), cents=day) for p in (0, 1)]
    return st.ZSetPython([(c, 1) for c in clicks]), st.ZSetPython([(p, 1) for p in prices])


@pytest.mark.parametrize("days", [21, pytest.param(365, marks=pytest.mark.long)])
def test_a_year_of_days_keeps_as_many_rows_as_a_week(days: int, make_store: MakeStore) -> None:
    lateness: Any = {"clicks": (lambda c: c.at, "1 day"), "prices": (lambda p: p.at, "1 day")}
    graph = st.compile(of_clicks, lateness=lateness)
    stepper = st.Stepper(graph, make_store(graph))
    for day in range(7):
        stepper.step(a_day(day))
    week = rows_kept(stepper)
    for day in range(7, days):
        stepper.step(a_day(day))
    assert rows_kept(stepper) <= week + 2
    assert week < 100


class Daily(st.Data):
    user: str
    day: dt.date
    n: int
    pages: int
    most: int


class Hourly(st.Data):
    hour: dt.datetime
    n: int
    mean: float


Answers = tuple[st.ZSet[Daily], st.ZSet[Hourly], st.ZSet[Shown], st.ZSet[dt.date], st.ZSet[Click]]


def of_days(clicks: st.ZSet[Click]) -> Answers:
    daily = st.aggregate(
        clicks,
        by=lambda c: (c.user, F.to_date(c.at)),
        into=Daily,
        n=st.agg.count(),
        pages=st.agg.count_distinct(lambda c: c.page),
        most=st.agg.max(lambda c: c.page),
    )
    hourly = st.aggregate(
        clicks,
        by=lambda c: F.date_trunc("hour", c.at),
        into=Hourly,
        n=st.agg.count(),
        mean=st.agg.avg(lambda c: c.page),
    )
    before: Any = st.win.lag(lambda c: c.page)
    shown = st.window(clicks, by=lambda c: c.user, order=lambda c: c.at, into=Shown, before=before)
    days = st.distinct(st.map(clicks, f=lambda c: F.to_date(c.at)))
    return daily, hourly, shown, days, st.late(clicks)


OF_DAYS = (
    "SELECT user, to_date(at), count(1), count(DISTINCT page), max(page) FROM clicks "
    "GROUP BY user, to_date(at)",
    "SELECT date_trunc('hour', at), count(1), avg(page) FROM clicks GROUP BY ALL",
    "SELECT user, at, lag(page) OVER (PARTITION BY user ORDER BY at, page) FROM clicks",
    "SELECT DISTINCT to_date(at) FROM clicks",
)


@pytest.mark.parametrize(
    ("days", "local_rows"),
    [
        (16, 2_000_000),
        pytest.param(365, 2_000_000, marks=pytest.mark.long),
        pytest.param(40, 0, marks=pytest.mark.long),
    ],
)
def test_days_and_hours_of_accepted_rows_are_those_of_spark_sql(
    days: int, local_rows: int, spark: SparkSession
) -> None:
    """Some rows come a day late, and some too late: the plain query has the others."""
    graph = st.compile(of_days, lateness={"clicks": (lambda c: c.at, "1 day")})
    assert not any("keeps all rows" in hint for hint in st.explain(graph).hints)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    accepted: Counter[Click] = Counter()
    found: list[Counter[Any]] = [Counter() for _ in OF_DAYS]
    sizes, too_late = [], 0
    for day in range(days):
        clicks, _ = a_day(day)
        back = a_day(day - 1 - day % 3)[0] if day > 3 else clicks  # of today, a day or two ago
        change = clicks + st.ZSetPython([(row, 1) for row, n in list(back.iter())[:3] if n])
        *answers, late = stepper.step((change,))
        too_late += sum(n for _, n in late.iter())
        accepted.update(dict((change - late.to_python()).iter()))
        for rows, answer in zip(found, answers, strict=True):
            for row, n in answer.iter():
                rows[(row,) if isinstance(row, dt.date) else tuple(vars(row).values())] += n
        sizes.append(rows_kept(stepper))
    assert too_late
    assert max(sizes[14:]) <= 2 * max(sizes[7:14]), sizes
    there = [tuple(vars(c).values()) for c in accepted.elements()]
    frame = spark.createDataFrame(there, "user string, at timestamp, page bigint")
    frame.createOrReplaceTempView("clicks")
    for rows, text in zip(found, OF_DAYS, strict=True):
        expected = Counter(tuple(map(in_utc, r)) for r in spark.sql(text).collect())
        assert {row: n for row, n in rows.items() if n} == expected


def in_utc(value: Any) -> Any:
    """Spark's instants come in the local time of Python."""
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value


# -- rows that are late


def only(clicks: st.ZSet[Event]) -> st.ZSet[Event]:
    return clicks


def aside(clicks: st.ZSet[Event]) -> tuple[st.ZSet[Event], st.ZSet[Event]]:
    too_late = st.late(clicks)
    return clicks, too_late


def event(at: int) -> Event:
    return Event(key="a", at=at, n=1)


def of(*pairs: tuple[Event, int]) -> tuple[st.ZSetPython[Event]]:
    return (st.ZSetPython(pairs),)


FIVE: Any = {"clicks": (lambda c: c.at, 5)}
Step = Callable[..., Any]


def steps_of(query: Any, **given: Any) -> list[Step]:
    """Steps of the query by the driver and by the reference."""
    graph = st.compile(query, lateness=FIVE, **given)
    return [
        st.Stepper(graph, st.StoreMemory.from_graph(graph)).step,
        st.reference(graph).step,
        st.reference(st.compile(query, lateness=FIVE, optimize=False, **given)).step,
    ]


def test_a_row_from_before_the_watermark_is_an_error_and_changes_nothing() -> None:
    for step in steps_of(only):
        step(of((event(20), 1), (event(3), 1)))  # in its first step nothing is late
        for late in (event(14), event(3)):
            for n in (1, -1):
                with pytest.raises(st.InputError) as caught:
                    step(of((late, n), (event(30), 1)))
                said = str(caught.value)
                assert said.startswith("input 'clicks': the change has rows that come too late")
                assert repr(late) in said
                assert "it is '5' before 20, the greatest time of the steps before" in said
                assert "st.late(clicks)" in said
        assert step(of((event(15), 1), (event(16), -1))) == of((event(15), 1), (event(16), -1))


def test_rows_that_are_late_go_where_the_query_says_and_count_nowhere_else() -> None:
    for step in steps_of(aside):
        step(of((event(20), 1)))
        given, late = step(of((event(14), 2), (event(15), 1), (event(1), -1), (event(40), 1)))
        assert (given,) == of((event(15), 1), (event(40), 1))
        assert (late,) == of((event(14), 2), (event(1), -1))
        given, late = step(of((event(34), 1), (event(35), 1)))
        assert ((given,), (late,)) == (of((event(35), 1)), of((event(34), 1)))


def test_the_watermark_never_goes_back() -> None:
    for step in steps_of(aside):
        step(of((event(20), 1), (event(18), 1)))
        step(of((event(20), -1)))
        _, late = step(of((event(14), 1)))
        assert (late,) == of((event(14), 1))


def test_a_row_without_a_time_is_late() -> None:
    class Maybe(st.Data):
        at: int | None

    def query(rows: st.ZSet[Maybe]) -> Any:
        return st.sessions(rows, by=None, at=lambda r: r.at, gap=2), st.late(rows)

    graph = st.compile(query, lateness={"rows": (lambda r: r.at, 5)})
    without = st.ZSetPython({Maybe(at=None): 1})
    for step in (
        st.Stepper(graph, st.StoreMemory.from_graph(graph)).step,
        st.reference(graph).step,
    ):
        found, late = step((without + st.ZSetPython({Maybe(at=1): 1}),))
        assert late == without
        assert len(found.to_python()) == 1


def test_an_input_may_be_append_only_and_strict_too() -> None:
    def query(clicks: st.ZSet[Event]) -> Any:
        return st.first_n(clicks, lambda e: e.n, 1, by=lambda e: e.key)

    plain = st.compile(query, append_only="clicks")
    late = st.compile(query, append_only="clicks", lateness=FIVE)
    assert len(st.explain(late).arrangements) == len(st.explain(plain).arrangements) + 1
    for step in steps_of(only, strict=True):
        step(of((event(20), 1)))
        with pytest.raises(st.InputError, match="strict"):
            step(of((event(19), -1)))
        step(of((event(20), -1), (event(30), 1)))


def test_explain_says_which_state_keeps_all_rows_and_why() -> None:
    def query(clicks: st.ZSet[Event], users: st.ZSet[Event]) -> Any:
        ranked = st.window(
            clicks,
            by=lambda e: e.key,
            order=lambda e: e.at,
            into=Beside,
            found=st.win.row_number(),
        )
        other = st.window(
            clicks,
            by=lambda e: e.key,
            order=lambda e: e.n,
            into=Beside,
            found=st.win.lag(lambda e: e.at),
        )
        named = st.join(clicks, users, on_left=lambda e: e.key, on_right=lambda e: e.key)
        halved = st.map(clicks, f=lambda e: Event(key=e.key, at=e.at % 2, n=e.n))
        return ranked, other, named, st.distinct(halved)

    hints = [h for h in st.explain(st.compile(query, lateness=FIVE)).hints if "keeps all" in h]
    for why in (
        "row_number() counts or adds up all rows before",
        "its order does not begin with at",
        "nothing is known of how late the rows come that the left side is met by",
        "nothing is known of how late its rows come",
    ):
        assert sum(why in hint for hint in hints) == 1, hints
    assert all("test_lateness.py:" in hint for hint in hints)
    assert not any("keeps all" in hint for hint in st.explain(st.compile(query)).hints)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (5, r"lateness=5 .int. of only: expected a dict by input; write lateness="),
        ({"users": 5}, r"lateness=\['users'\] of only.*those are clicks"),
        ({"clicks": 5}, r"lateness of 'clicks': expected a function .* found 5 .*write lateness="),
        ({"clicks": (lambda c: c.key, 5)}, "the time of a row is an int, a date or a datetime"),
        ({"clicks": (lambda c: c.at, "1 hour")}, "the times are int, so .* late by an int; found"),
        ({"clicks": (lambda c: c.at, -1)}, "expected zero or more, found -1"),
    ],
)
def test_compile_says_what_a_lateness_is(given: Any, said: str) -> None:
    with pytest.raises(st.CompileError, match=said):
        st.compile(only, lateness=given)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1 hour", 3600), ("2 days 3 minutes", 172_980), (" 90 seconds", 90), ("1week", 604_800)],
)
def test_an_interval_of_text_is_what_it_says(text: str, seconds: int) -> None:
    def query(clicks: st.ZSet[Click]) -> Any:
        return st.late(clicks)

    graph = st.compile(query, lateness={"clicks": (lambda c: c.at, text)})
    step = st.reference(graph).step
    step((st.ZSetPython({Click(user="a", at=START, page=1): 1}),))
    for late in (0, 1):
        at = START - dt.timedelta(seconds=seconds + late)
        (found,) = step((st.ZSetPython({Click(user="a", at=at, page=1): 1}),))
        assert found.empty() is not bool(late)


@pytest.mark.parametrize("text", ["", "1", "1 month", "an hour", "1 hour or so"])
def test_a_text_that_is_no_interval_is_refused(text: str) -> None:
    def query(clicks: st.ZSet[Click]) -> Any:
        return clicks

    with pytest.raises(st.CompileError, match="such as '1 hour' or '1 day 12 hours'"):
        st.compile(query, lateness={"clicks": (lambda c: c.at, text)})


def test_late_takes_an_input_with_a_lateness() -> None:
    def query(clicks: st.ZSet[Event]) -> Any:
        return st.late(st.filter(clicks, f=lambda e: e.n > 0))

    with pytest.raises(st.CompileError, match=r"late takes an input .* those are: clicks; give"):
        st.compile(query, lateness=FIVE)
    with pytest.raises(st.CompileError, match=r"those are: none; give it one: st\.compile\(query"):
        st.compile(aside)


def test_a_pipeline_takes_it_and_has_a_view_of_what_is_late() -> None:
    changes = [(1, of((event(20), 1))[0]), (2, of((event(14), 1), (event(15), 1))[0])]
    seen: dict[str, list[Any]] = {"kept": [], "too_late": []}

    def kept(clicks: st.ZSet[Event]) -> st.ZSet[Event]:
        return st.distinct(clicks)

    def too_late(clicks: st.ZSet[Event]) -> st.ZSet[Event]:
        return st.late(clicks)

    def keep(name: str) -> Callable[[Any, Any], None]:
        return lambda _, z: seen[name].append(z)

    pipeline = st.Pipeline(
        {"kept": kept, "too_late": too_late},
        store="memory",
        clicks=changes,
        lateness=FIVE,
        into={name: keep(name) for name in seen},
    )
    assert pipeline.run() == 2
    assert sum(seen["kept"], st.ZSetPython()) == of((event(20), 1), (event(15), 1))[0]
    assert sum(seen["too_late"], st.ZSetPython()) == of((event(14), 1))[0]
