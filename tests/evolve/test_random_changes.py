"""A state that was made by one query becomes that of another: for random pairs of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as hs

import stepping_spark as st
from tests.cases import Z
from tests.compositions import ALL, EDITED, INPUTS, ONE, TWO, Composition, compositions, steps_of
from tests.every_store import InMemory, MakeStore

PHASES = (Phase.explicit, Phase.generate)  # a failure is small already, and each case takes long
pytestmark = pytest.mark.usefixtures("spark")  # some functions of rows are Spark's


@hs.composite
def edits(draw: hs.DrawFn) -> tuple[Composition, Composition]:
    """A query, and one that somebody made of it: an operator edited, or another, more, or fewer.

    What is edited of an operator is a constant, a key, an aggregate, or a join more.
    """
    before = draw(compositions(most=4))
    steps = list(before.steps)
    for _ in range(draw(hs.integers(1, 2))):
        at = draw(hs.integers(0, len(steps) - 1))
        editable = [i for i, (name, _) in enumerate(steps) if name in EDITED]
        kinds = ["another", "more", "fewer", "other streams", *(["edited"] * 4 if editable else [])]
        match draw(hs.sampled_from(kinds)):
            case "edited":
                at = draw(hs.sampled_from(editable))
                name, taken = steps[at]
                steps[at] = (f"{name}: {draw(hs.sampled_from(sorted(EDITED[name])))}", taken)
            case "another":
                _, taken = steps[at]
                names = sorted(ONE if len(taken) == 1 else TWO)
                steps[at] = (draw(hs.sampled_from(names)), taken)
            case "more":
                last = INPUTS + len(steps) - 1
                name = draw(hs.sampled_from(sorted(ALL)))
                taken = (last,) if name in ONE else (last, draw(hs.integers(0, last)))
                steps.append((name, taken))
            case "fewer" if len(steps) > 1:
                steps.pop()
            case _:
                name, taken = steps[at]
                of = hs.integers(0, INPUTS + at - 1)
                steps[at] = (name, tuple(draw(of) for _ in taken))
    return before, Composition(tuple(steps))


def evolved(
    make_store: MakeStore, before: Any, after: Any, first: list[Any], then: list[Any]
) -> None:
    """Take steps with a query, evolve to another, and take steps with that; see that all is right.

    Then evolve back to the first query.
    """
    graphs = st.compile(before), st.compile(after)
    store = make_store(graphs[0])
    stepper: Any = st.Stepper(graphs[0], store)
    given: Any = [Z(), Z()]
    view: Any = Z()
    for step in first:
        (out,) = stepper.step(step)
        view += out.to_python()
        given = [total + change for total, change in zip(given, step, strict=True)]
    for graph, steps in ((graphs[1], then), (graphs[0], then)):
        store = make_store.reopen(store, graph, evolve=True)
        stepper = st.Stepper(graph, store, evolve=True)
        plan = st.evolution(graph, store)
        names = dict(zip(("a", "b"), given, strict=True))
        (change,) = stepper.evolve(**{name: names[name] for name in plan.read_again})
        view += change.to_python()
        anew: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph))
        (whole,) = anew.step(tuple(given))
        assert view == whole.to_python(), f"{plan}"
        store = make_store.reopen(store, graph)
        stepper = st.Stepper(graph, store)
        for step in steps:
            (out,), (wanted,) = stepper.step(step), anew.step(step)
            assert out.to_python() == wanted.to_python(), f"{plan}"
            view += out.to_python()
            given = [total + change for total, change in zip(given, step, strict=True)]
    store.close()


EDITS = [(name, what) for name, edits in EDITED.items() for what in edits]


@pytest.mark.parametrize(("name", "what"), EDITS)
@settings(max_examples=2, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(first=steps_of(max_steps=3), then=steps_of(max_steps=2))
def test_an_operator_that_is_edited(
    name: str, what: str, first: list[Any], then: list[Any]
) -> None:
    taken = (0,) if name in ONE else (0, 1)
    before, after = Composition(((name, taken),)), Composition(((f"{name}: {what}", taken),))
    evolved(InMemory(), before.query(st), after.query(st), first, then)


def added_to_its_reader(name: str) -> Any:
    """An operator of two streams, added to a function of one of them."""
    joined = ("aggregate per group", (1,)), ("delta join", (2, 1))
    return Composition((*joined, (name, (3, 1)), ("with text", (3,)), ("add", (5, 4)))).query(st)


@pytest.mark.turn(2)
@pytest.mark.parametrize("name", sorted(TWO))
def test_an_operator_of_two_streams_may_become_any_other(name: str) -> None:
    """Their changes share a part, of which no sum tells what it is without the others."""
    before = st.compile(added_to_its_reader(name))
    store = st.StoreMemory.from_graph(before)
    st.Stepper(before, store).step((Z(), Z()))
    for other in sorted(TWO):
        plan = st.evolution(st.compile(added_to_its_reader(other)), store)
        assert set(plan.views.values()) == {"as before" if other == name else "changes"}


OUTER = ("outer left", "outer right", "outer full")


@pytest.mark.turn(2)
@pytest.mark.parametrize(("name", "other"), list(itertools.permutations(OUTER, 2)))
@settings(max_examples=3, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(first=steps_of(max_steps=3), then=steps_of(max_steps=2))
def test_an_outer_join_may_become_another(
    name: str, other: str, first: list[Any], then: list[Any]
) -> None:
    evolved(InMemory(), added_to_its_reader(name), added_to_its_reader(other), first, then)


@pytest.mark.turn(3)
@settings(max_examples=60, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(pair=edits(), first=steps_of(max_steps=3), then=steps_of(max_steps=2))
def test_a_state_becomes_that_of_an_edited_query(
    pair: tuple[Composition, Composition], first: list[Any], then: list[Any]
) -> None:
    before, after = pair
    evolved(InMemory(), before.query(st), after.query(st), first, then)


@settings(max_examples=8, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(pair=edits(), first=steps_of(max_steps=2), then=steps_of(max_steps=1))
def test_in_every_store(
    make_store: MakeStore,
    pair: tuple[Composition, Composition],
    first: list[Any],
    then: list[Any],
) -> None:
    before, after = pair
    evolved(make_store, before.query(st), after.query(st), first, then)


@pytest.mark.long
@settings(max_examples=500, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(pair=edits(), first=steps_of(max_steps=4), then=steps_of(max_steps=3))
def test_five_hundred_edits(
    make_store: MakeStore,
    pair: tuple[Composition, Composition],
    first: list[Any],
    then: list[Any],
) -> None:
    before, after = pair
    evolved(make_store, before.query(st), after.query(st), first, then)


@settings(max_examples=30, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(
    before=compositions(most=4),
    after=compositions(most=4),
    first=steps_of(max_steps=2),
    then=steps_of(max_steps=2),
)
def test_a_state_becomes_that_of_any_query(
    before: Composition, after: Composition, first: list[Any], then: list[Any]
) -> None:
    evolved(InMemory(), before.query(st), after.query(st), first, then)
