"""Evolution of a pipeline: its state and tables follow a changed query or changed sinks.

An extra step turns the state into the state of the new query. Its outputs are the differences
between the new and the old rows of the views, for the sinks that they already had. A second extra
step writes all rows of a view into a new sink. Both steps are committed with their outputs, so each
sink gets its rows exactly once, as in any step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from stepping_spark.base.errors import SinkError, SourceError, SteppingError, StoreMismatch
from stepping_spark.base.limits import Limits
from stepping_spark.circuit.graph import AnyGraph
from stepping_spark.execution.io import held_input
from stepping_spark.pipeline.inputs import Feed, position_text
from stepping_spark.pipeline.outputs import Outlet, catch_up, deliver
from stepping_spark.pipeline.protocols import (
    STATE,
    Portion,
    Position,
    numbers_of,
    offsets_of,
    position_of,
    state_of,
    without,
)
from stepping_spark.pipeline.reporting import StepReport, log, rows_of, signs_of
from stepping_spark.pipeline.rounds import Rounds
from stepping_spark.pipeline.views import input_names
from stepping_spark.plan.difference import OtherRegisters
from stepping_spark.plan.metrics import StepMetrics
from stepping_spark.plan.planner import plan_of
from stepping_spark.relations.store import Store
from stepping_spark.rows.schema import ZSetType
from stepping_spark.stepper.evolve.evolution import (
    AS_BEFORE,
    OTHER_COLUMNS,
    UNKNOWN,
    WHOLE,
    Evolution,
    count_told,
    evolution_of,
)
from stepping_spark.stepper.evolve.stepping import time_of_evolution
from stepping_spark.stepper.stepper import Stepper
from stepping_spark.zsets.spark import ZSetSpark
from stores.location import MEMORY, Place


def evolve(stepper: Stepper[Any, Any], rounds: Rounds, state: int) -> None:
    """Evolve the state to the query, and fill new sinks of views.

    `state` is the number of the state. Does nothing if neither the query nor its sinks changed.
    """
    store, outlets = stepper.store, rounds.outlets
    step, offsets = store.last_step(), store.last_offsets()
    changed = stepper.evolution is not None
    if step and not changed and any(outlet.has_no_step() for outlet in outlets):
        changed = store.last_outputs() is None  # of rows with other columns, perhaps
    fresh = [outlet for outlet in outlets if outlet.needs_filling(step, offsets, changed=changed)]
    had = [outlet for outlet in outlets if outlet not in fresh]
    if stepper.evolution is not None:
        _check_delivered(had, step, offsets)
        log.info("%s", stepper.evolution)
        old_views = {outlet.view for outlet in had}
        views = stepper.evolution.views.items()
        whole = [name for name, outcome in views if outcome in WHOLE and name not in old_views]
        stepper.evolution.check_known(whole)  # before an input is read again
        _take(stepper, rounds, had, (), whole, state)
    elif fresh:
        catch_up(stepper, had, rounds.state_path)
    if fresh:
        names = list(dict.fromkeys(outlet.view for outlet in fresh))
        for outlet in fresh:
            words = (outlet.view, outlet.shown, outlet.why_filled)
            log.info("view %r: the sink %s is %s, and gets all rows", *words)
        _take(stepper, rounds, fresh, had, names, state)


def _take(
    stepper: Stepper[Any, Any],
    rounds: Rounds,
    into: Sequence[Outlet],
    keeping: Sequence[Outlet],
    whole: Sequence[str],
    state: int,
) -> None:
    """Take a step without input changes, and write its outputs `into` sinks, not `keeping`."""
    store, note, begun = stepper.store, rounds.reporting.note, time.perf_counter()
    names_again = stepper.needed_again(whole)
    again = {
        feed.name: content(feed, store, rounds.portion, note)
        for feed in rounds.feeds
        if feed.name in names_again
    }

    def prepare(step: int, outputs: tuple[Any, ...]) -> dict[str, int]:
        offsets = _offsets(rounds.feeds, state)
        for outlet in into:
            offsets.update(outlet.next_offsets)
            offsets.update(outlet.prepare(step, outputs[outlet.number]))
        for outlet in keeping:
            offsets.update(outlet.next_offsets)
            offsets.update(outlet.without_rows(step))
        return offsets

    evolution = stepper.evolution
    if evolution is not None:
        new = len(evolution.filled)
        note(f"{new:,} register{'' if new == 1 else 's'} to fill, and the changes of views")
    now = rounds.time_of(stepper.times, stepper.store)
    outputs = stepper.evolve(whole=whole, now=now, before_commit=prepare, **again)
    step, done = store.last_step(), stepper.metrics[-1]
    words = {} if evolution is None else evolution.words
    for register, n in done.kept.items():
        log.info("filled: %s, %s", words.get(register, register), _rows_told(n))
    did = "the state is as it was" if evolution is None else "the state is that of the query"
    log.info("step %d: %s, %.0f ms", step, did, done.ms)
    rows = deliver(step, outputs, into, rounds.state_path)
    for outlet, n in zip(into, rows, strict=True):
        log.info("step %d: %s rows into %s of view %r", step, n, outlet.shown, outlet.view)
    ms = (time.perf_counter() - begun) * 1e3
    read = tuple(rows_of(change) for change in again.values())
    rounds.reporting.count(StepReport(step, (), read, tuple(rows), ms))


def counted(
    evolution: Evolution, graph: AnyGraph, store: Store, rounds: Rounds, limits: Limits
) -> Evolution:
    """The evolution with the numbers of rows that leave and enter views; stores nothing.

    It computes the changes of views as the evolution does, but fills no registers.
    """
    again = {}
    for feed in rounds.feeds:
        if feed.name in evolution.read_again:
            feed.open(feed.position_in(store.last_offsets()))
            try:
                again[feed.name] = content(feed, store, rounds.portion, rounds.reporting.note)
            finally:
                feed.close()
    assert evolution.filling is not None
    filling = evolution.filling.of_views()
    types = {name: v.type for name, v in zip(input_names(graph), graph.inputs, strict=True)}
    inputs = {
        name: held_input(rows, types[name], f"input {name!r}", limits)
        for name, rows in again.items()
        if name in filling.read_again
    }
    plan = plan_of(graph)
    now = time_of_evolution(plan, store.last_now(), rounds.time_of(plan.times, store))
    changes, _ = filling.run(store, inputs, StepMetrics(evolution.step + 1), now, limits)
    counts = {}
    for (name, outcome), change, v in zip(
        evolution.views.items(), changes, plan.outputs, strict=True
    ):
        if outcome != AS_BEFORE and isinstance(v.type, ZSetType):
            counts[name] = signs_of(ZSetSpark(change, v.type))
    rows = {name: signs_of(z)[1] for name, z in again.items()}
    return replace(evolution, rows_again=rows, counts=counts)


def _offsets(feeds: Sequence[Feed], state: int) -> dict[str, int]:
    """The positions of the current sources, without those of removed inputs."""
    offsets = {STATE: state}
    for feed in feeds:
        if feed.position is not None:
            offsets.update(offsets_of(feed.name, feed.position))
    return offsets


def check_inputs(feeds: Sequence[Feed], offsets: Mapping[str, int]) -> None:
    """Refuse a renamed input: it would be read from its beginning once more."""
    names = [feed.name for feed in feeds]
    removed = sorted({key.partition(".")[0] for key in without(offsets, names)})
    new = [name for name in names if position_of(name, offsets) is None]
    if removed and new:
        raise StoreMismatch(
            f"the state has read the input {', '.join(map(repr, removed))}, and none is called so; "
            f"nothing of {', '.join(map(repr, new))} has been read. An input with another name is "
            "another table to a pipeline: keep the name (a query can be wrapped in a function with "
            f"that parameter), or evolve; with renamed={{{removed[0]!r}: {new[0]!r}}} it is the "
            f"same table (on the command line, --renamed {removed[0]}={new[0]})"
        )


def _check_delivered(had: Sequence[Outlet], step: int, offsets: Mapping[str, int]) -> None:
    """Refuse to evolve before each sink has the last step of the old query."""
    for outlet in had:
        if outlet.next_offsets and outlet.lacks(step, offsets):
            raise SinkError(
                f"view {outlet.view!r}: the sink {outlet.shown} lacks step {step} of the earlier "
                "query, and only that query can write it; run the earlier query once more, without "
                "new rows in its sources, and then this one"
            )


def store_at(
    place: Store | Place,
    graph: AnyGraph,
    limits: Limits,
    *,
    evolve: bool,
    copy_of: Place | None = None,
) -> Store:
    """The store at a place, copied from `copy_of` if it does not exist; or the given store."""
    if not isinstance(place, Place):
        return place
    if copy_of is not None and not is_there(place):
        # The copy has a number of its own, so it cannot write into the tables of the other state.
        place.state().copy_from(copy_of.state(), {STATE: state_of(0, {})})
        log.info("state %s: a copy of %s", place, copy_of)
    return place.store(graph, limits, evolve=evolve)


def has_no_step(place: Store | Place) -> bool:
    """Whether a state exists without a committed step: another query may begin with it."""
    if not isinstance(place, Place) or place.kind == MEMORY:
        return False
    with suppress(SteppingError):
        return is_there(place) and place.state().summary().step == 0
    return False


def is_there(place: Store | Place) -> bool:
    """Whether a state exists at a place."""
    return not isinstance(place, Place) or place.state().exists()


@contextmanager
def telling_the_plan(
    graph: AnyGraph, place: Store | Place, outlets: Sequence[Outlet], closed: Sequence[Feed] = ()
) -> Iterator[None]:
    """Add to the error about a changed query how to evolve, and the plan of the evolution.

    An error of one of the `closed` sources comes first, because an evolution would raise it, too.
    """
    try:
        yield
    except StoreMismatch as e:
        for feed in closed:
            try:
                feed.open(None)
            finally:
                feed.close()
        remedy = _remedy(graph, place, outlets)
        if remedy is None:
            raise
        message = f"{graph.name} has changed" if isinstance(e, OtherRegisters) else e
        raise StoreMismatch(f"{message}\n{remedy}") from e


def _remedy(graph: AnyGraph, place: Store | Place, outlets: Sequence[Outlet]) -> str | None:
    """How to evolve to a changed query; None if not needed, or if the state cannot be read."""
    if not isinstance(place, Place) or place.kind == MEMORY:
        return None
    plan = plan_of(graph)
    with suppress(SteppingError):
        store = place.state().reader(plan.registers, evolve=True)
        if store is not None:
            try:
                store.open(plan.registers, plan.output_schemas)
                evolution = evolution_of(graph, store)
                return (
                    _how_to_evolve(evolution, _filled(outlets, store))
                    if evolution.is_needed
                    else None
                )
            finally:
                store.close()
    return None


def _filled(outlets: Sequence[Outlet], store: Store) -> set[str]:
    """The views whose tables contain rows of the old query."""
    step, offsets = store.last_step(), store.last_offsets()

    def is_filled(outlet: Outlet) -> bool:
        try:
            return not outlet.would_need_filling(
                state_of(step, offsets), step, offsets, changed=True
            )
        except SinkError:  # it has rows that the view cannot have any more
            return True

    return {outlet.view for outlet in outlets if is_filled(outlet)}


def _how_to_evolve(evolution: Evolution, filled: Set[str]) -> str:
    """The steps to take before an evolution, its flags, and its plan."""
    first, refresh = "", list[str]()
    for name, outcome in evolution.views.items():
        if name in filled and outcome == OTHER_COLUMNS:
            first += f"Give the view {name!r} another table, as its columns are others. "
        elif name in filled and outcome == UNKNOWN:
            refresh.append(name)
    flags = "".join(f" --refresh {name}" for name in refresh)
    arguments = f", refresh={refresh}" if refresh else ""
    return (
        f"{first}To go on with the query as it is now, run with --evolve{flags} (in Python, "
        f"evolve=True{arguments}), which does this:\n{evolution}"
    )


def content(
    feed: Feed, store: Store, portion: Portion, note: Callable[[str], None]
) -> ZSetSpark[Any]:
    """All rows of a source as of the committed position, read in pieces as in a first load.

    A source can read its current rows, and the changes after a position. So these rows are the
    current rows minus the changes after the committed position. For a table that is new to the
    pipeline they are its current rows, and the feed continues after them: the step that uses them
    is committed with that position.
    """
    upto = feed.position_in(store.last_offsets())
    if upto is None:
        return feed.gathered(_all_there_is(feed, portion, note))
    return feed.gathered(_pieces(feed, upto, portion, note))


def _all_there_is(
    feed: Feed, portion: Portion, note: Callable[[str], None]
) -> Iterator[ZSetSpark[Any]]:
    while feed.begins_whole and (taken := feed.take(portion)).batch is not None:
        feed.position = taken.batch.position
        if taken.change is not None:
            far = f"up to {position_text(feed.position)}"
            note(f"input {feed.name!r} is read: {far}, {rows_told(taken.change)}")
            yield taken.change


def _pieces(
    feed: Feed, upto: Position, portion: Portion, note: Callable[[str], None]
) -> Iterator[ZSetSpark[Any]]:
    from_start, after = _Cursor(feed, None, portion), _Cursor(feed, upto, portion)
    while from_start.position != after.position:
        order = [from_start, after] if from_start < after else [after, from_start]
        moved = next((cursor for cursor in order if cursor.advance()), None)
        if moved is None:
            raise SourceError(
                f"input {feed.name!r}: {feed.shown} was read up to {upto}, and no longer returns "
                "the same rows up to there, so its earlier rows are unknown; start with a "
                "new store"
            )
        if moved.change is not None:
            far = f"up to {position_text(moved.position)}"
            if moved is after:
                far = f"less its changes {far}, which the state lacks"
            elif moved.position != upto:
                far += f" (the state has read up to {position_text(upto)})"
            note(f"input {feed.name!r} is read again: {far}, {rows_told(moved.change)}")
            yield moved.change if moved is from_start else -moved.change


def rows_told(change: ZSetSpark[Any]) -> str:
    """The number of rows of a change, as text for people."""
    return _rows_told(rows_of(change))


def _rows_told(n: int | None) -> str:
    return "rows in Spark" if n is None else count_told(n)


class _Cursor:
    """A second reading position of a source, beside the committed one."""

    def __init__(self, feed: Feed, position: Position | None, portion: Portion) -> None:
        self.position = position
        self._portion = portion
        self.change: ZSetSpark[Any] | None = None
        self._feed = feed

    def advance(self) -> bool:
        """Read the next `change`; returns whether there was one."""
        taken = self._feed.take_after(self.position, self._portion)
        self.change = taken.change
        if taken.batch is None:
            return False
        self.position = taken.batch.position
        return True

    def __lt__(self, other: _Cursor) -> bool:
        mine, others = (
            (0,) if p is None else numbers_of(p) for p in (self.position, other.position)
        )
        return self.position is None or mine[0] < others[0]
