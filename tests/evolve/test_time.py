"""Queries whose rows depend on time: they evolve as others do, or the message says why not.

What a watermark has let go, or a delay holds back, no sum of the state tells. So such a part may
stay as it is, or go, and is not filled.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.plan.planner import plan_of
from stepping_spark.rows.atoms import DATE
from stepping_spark.stepper.evolve.evolution import WHOLE
from tests.cases import Z
from tests.every_store import MakeStore
from tests.late_rows import LATENESS, SETTLED, Event, annotated, in_time

LATE: Any = {"l": (lambda e: e.at, LATENESS), "r": (lambda e: e.at, LATENESS)}
LATER: Any = {"l": (lambda e: e.at, LATENESS + 4), "r": (lambda e: e.at, LATENESS)}
KINDS = ("lag", "asof backward", "joined", "counted")
Events = st.ZSet[Event]


class Stepped:
    """A query with its state after some steps, and the sum of each output."""

    def __init__(self, make_store: MakeStore, graph: Any, steps: Iterable[Any]) -> None:
        self.make_store = make_store
        self.store = make_store(graph)
        self.stepper: Any = st.Stepper(graph, self.store)
        self.views: list[Any] = [Z()] * len(graph.outputs)
        self.given: list[Any] = [Z()] * len(graph.inputs)
        for step in steps:
            self.step(step)

    def step(self, step: Any, **now: Any) -> None:
        outs = self.stepper.step(step, **now)
        self.views = [v + out.to_python() for v, out in zip(self.views, outs, strict=True)]
        self.given = [z + change for z, change in zip(self.given, step, strict=True)]

    def evolve(self, graph: Any) -> st.Evolution | None:
        """Become another query, with all rows of the inputs that are asked for."""
        self.store = self.make_store.reopen(self.store, graph, evolve=True)
        self.stepper = st.Stepper(graph, self.store, evolve=True)
        plan: st.Evolution | None = self.stepper.evolution
        whole = [] if plan is None else [n for n, said in plan.views.items() if said in WHOLE]
        names = dict(zip(("l", "r"), self.given, strict=True))
        again = {name: names[name] for name in self.stepper.needed_again(whole)}
        outs = self.stepper.evolve(whole=whole, **again)
        self.views = [Z()] * len(outs) if whole else self.views
        self.views = [v + out.to_python() for v, out in zip(self.views, outs, strict=True)]
        return plan


def check_equal(a: Stepped, b: Stepped, steps: Iterable[Any]) -> None:
    """Both give the same in some more steps."""
    for step in steps:
        a.step(step)
        b.step(step)
        assert a.views == b.views


def beside(late: Callable[..., Any], least: int) -> Callable[..., Any]:
    """A view of late rows, and one of a filter above a state that has nothing to do with them."""

    def query(l: Events, r: Events) -> Any:  # noqa: E741
        windows = late(l, r)
        large = st.filter(st.distinct(r), f=lambda e: e.n >= least)
        return windows, large

    return query


@pytest.mark.parametrize("name", [n for n in KINDS if n not in ("asof backward", "joined")])
def test_a_part_that_knows_lateness_stays_while_another_changes(
    make_store: MakeStore, name: str
) -> None:
    late: Any = {"l": LATE["l"]}
    before, after = (st.compile(beside(SETTLED[name], n), lateness=late) for n in (1, 2))
    steps = list(in_time(16, seed=47))
    running = Stepped(make_store, before, steps[:10])
    plan = running.evolve(after)
    assert plan is not None
    assert (plan.filled, plan.dropped, plan.read_again) == ({}, (), ())
    assert list(plan.views.values()) == ["as before", "changes"]
    anew = Stepped(make_store, after, steps[:10])
    assert running.views == anew.views
    check_equal(running, anew, steps[10:])


@pytest.mark.parametrize("name", KINDS)
def test_rows_that_a_watermark_has_let_go_are_not_made_up(make_store: MakeStore, name: str) -> None:
    """The message names the place; the state goes on with the query that made it."""
    query = annotated(SETTLED[name])
    before = st.compile(query, lateness=LATE)
    steps = list(in_time(8, seed=7))
    running = Stepped(make_store, before, steps[:6])
    anew = Stepped(make_store, before, steps[:6])
    changed = annotated(lambda *inputs: st.neg(SETTLED[name](*inputs)))
    for graph in (st.compile(changed, lateness=LATE), st.compile(query, lateness=LATER)):
        with pytest.raises(st.StoreMismatch, match=r"py:\d+.*depend on the order of the steps"):
            running.evolve(graph)
    running.store = make_store.reopen(running.store, before)
    running.stepper = st.Stepper(before, running.store)
    check_equal(running, anew, steps[6:])


@pytest.mark.parametrize("name", KINDS)
def test_without_lateness_the_inputs_are_read_again(make_store: MakeStore, name: str) -> None:
    query = annotated(SETTLED[name])
    steps = list(in_time(14, seed=5))
    running = Stepped(make_store, st.compile(query, lateness=LATE), steps[:10])
    plan = running.evolve(st.compile(query))
    assert plan is not None
    assert plan.read_again
    assert "it depended on the order of the steps" in str(plan)
    anew = Stepped(make_store, st.compile(query), steps[:10])
    check_equal(running, anew, steps[10:])


def recent(days: int, least: int) -> Callable[..., Any]:
    """Events of the last days, above a state, and of them those with enough."""

    def query(l: Events, r: Events) -> Any:  # noqa: E741
        known = st.distinct(l)
        now = st.temporal_filter(known, lower=lambda e: e.at, upper=lambda e: e.at + days)
        return st.filter(now, f=lambda e: e.n >= least)

    return query


@pytest.mark.parametrize("after", [recent(4, 2), recent(7, 1), recent(2, 0)])
@pytest.mark.parametrize("before", [recent(4, 1)])
def test_a_filter_by_the_time_of_the_step_evolves_as_of_the_last_one(
    make_store: MakeStore, before: Any, after: Any
) -> None:
    graphs = st.compile(before), st.compile(after)
    steps = list(in_time(20, seed=3))
    running = Stepped(make_store, graphs[0], ())
    anew = Stepped(make_store, graphs[1], ())
    for now, step in enumerate(steps[:12]):
        running.step(step, now=now)
        anew.step(step, now=now)
    plan = running.evolve(graphs[1])
    assert plan is None or plan.read_again == ()
    assert running.views == anew.views
    for now, step in enumerate(steps[12:], 12):
        running.step(step, now=now)
        anew.step(step, now=now)
        assert running.views == anew.views


def held_back(least: int, *, more: bool = False) -> Callable[..., Any]:
    def query(l: Events, r: Events) -> Any:  # noqa: E741
        late = st.delay(st.distinct(l))
        large = st.filter(st.distinct(r), f=lambda e: e.n >= least)
        return st.neg(late) if more else late, large

    return query


def test_a_delay_stays_while_another_part_changes_and_is_not_changed(
    make_store: MakeStore,
) -> None:
    steps = list(in_time(12, seed=11))
    before, after = st.compile(held_back(1)), st.compile(held_back(2))
    running = Stepped(make_store, before, steps[:6])
    with pytest.raises(st.StoreMismatch, match="depend on the order of the steps"):
        running.evolve(st.compile(held_back(1, more=True)))
    plan = running.evolve(after)
    assert plan is not None
    assert plan.read_again == ()
    anew = Stepped(make_store, after, steps[:6])
    assert running.views == anew.views
    check_equal(running, anew, steps[6:])


class Placed(st.Data):
    id: int
    day: dt.date
    at: dt.datetime


def of_days(days: int) -> Any:
    def query(a: st.ZSet[Placed]) -> Any:
        return st.temporal_filter(
            st.distinct(a), lower=lambda r: r.day, upper=lambda r: r.day + days
        )

    return query


def of_instants(days: int) -> Any:
    span = dt.timedelta(days=days)

    def query(a: st.ZSet[Placed]) -> Any:
        return st.temporal_filter(st.distinct(a), lower=lambda r: r.at, upper=lambda r: r.at + span)

    return query


def of_updates(days: int) -> Any:
    span = dt.timedelta(days=days)

    def query(a: st.ZSet[Placed]) -> Any:
        gone = st.join_function(a, f=lambda r: [st.Update(value=r, time=r.at + span)])
        return st.filter(st.add(a, st.neg(gone)), f=lambda r: r.id > 2)

    return query


def of_a_recursion(days: Any) -> Any:
    """The rows of some days, and below each those with less by two."""

    def query(a: st.ZSet[Placed]) -> Any:
        def by_twos(a: st.ZSet[Placed], y: st.ZSet[Placed]) -> st.ZSet[Placed]:
            now = st.temporal_filter(a, upper=lambda r: r.day + days)
            big = st.filter(y, f=lambda r: r.id > 1)
            return st.add(now, st.map(big, f=lambda r: Placed(id=r.id - 2, day=r.day, at=r.at)))

        return st.fixpoint(a, by_twos, to=Placed)

    return query


CLOCKS: list[tuple[Any, Any]] = [
    (of_days(3), of_instants(2)),
    (of_instants(3), of_days(4)),
    (of_days(2), of_updates(3)),
    (of_updates(2), of_days(5)),
    (of_instants(2), of_updates(3)),
    (of_a_recursion(2), of_instants(3)),
    (of_instants(3), of_a_recursion(2)),
]
FIRST = dt.datetime(2026, 3, 1, 9, tzinfo=dt.UTC)


def as_time(at: dt.datetime, graph: Any) -> Any:
    """A time of the kind that a circuit compares with."""
    return at.date() if DATE in plan_of(graph).times else at


@pytest.mark.usefixtures("spark")  # the time zone is that of the session
@pytest.mark.parametrize("hours", [0, 30])
@pytest.mark.parametrize(("before", "after"), CLOCKS)
def test_a_query_may_compare_with_another_kind_of_time(
    make_store: MakeStore, before: Any, after: Any, hours: int
) -> None:
    """What the view was is as of the last step, and what it is as of the time that is given."""
    graphs = st.compile(before), st.compile(after)
    chance, rows = random.Random(hours), list[Placed]()

    def change(day: int) -> Any:
        at = FIRST + dt.timedelta(days=day + chance.randrange(-2, 4), hours=day)
        gone = {rows.pop(0): -1} if day % 3 == 2 else {}
        rows.append(Placed(id=day, day=at.date(), at=at))
        return (Z({rows[-1]: 1, **gone}),)

    store = make_store(graphs[0])
    stepper: Any = st.Stepper(graphs[0], store)
    view: Any = Z()
    for day in range(6):
        last = FIRST + dt.timedelta(days=day)
        (out,) = stepper.step(change(day), now=as_time(last, graphs[0]))
        view += out.to_python()
    store = make_store.reopen(store, graphs[1], evolve=True)
    stepper = st.Stepper(graphs[1], store, evolve=True)
    all_rows = Z(dict.fromkeys(rows, 1))
    again = dict.fromkeys(stepper.needed_again(), all_rows)
    if as_time(last, graphs[0]) != as_time(last, graphs[1]):
        last += dt.timedelta(hours=hours)
    (out,) = stepper.evolve(now=as_time(last, graphs[1]), **again)
    view += out.to_python()
    anew: Any = st.Stepper(graphs[1], st.StoreMemory.from_graph(graphs[1]))
    (out,) = anew.step((all_rows,), now=as_time(last, graphs[1]))
    whole: Any = out.to_python()
    assert view == whole
    for day in range(7, 11):
        step, now = change(day), as_time(FIRST + dt.timedelta(days=day), graphs[1])
        (out,), (wanted,) = stepper.step(step, now=now), anew.step(step, now=now)
        view += out.to_python()
        whole += wanted.to_python()
        assert view == whole
