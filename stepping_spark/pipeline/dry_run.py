"""The dry run of a pipeline: its unread changes, its state, and the cost of a step."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from stepping_spark.base.errors import StoreMismatch, StoreUnavailable
from stepping_spark.base.limits import Limits
from stepping_spark.circuit.graph import AnyGraph, Vertex
from stepping_spark.circuit.operators import Input
from stepping_spark.pipeline.changed_query import counted
from stepping_spark.pipeline.inputs import NOT_READ, Feed, position_text, short_name
from stepping_spark.pipeline.outputs import Outlet, check_query
from stepping_spark.pipeline.protocols import state_of
from stepping_spark.pipeline.rejects import DROP, FAIL
from stepping_spark.pipeline.rounds import Rounds, of_each
from stepping_spark.plan.explain import explain
from stepping_spark.plan.planner import plan_of
from stepping_spark.plan.register_words import words_of
from stepping_spark.plan.step_ir import Read, nodes
from stepping_spark.relations.store import Size, Store
from stepping_spark.report import KeptState, Report, report_of, sizes_of, state_of_store
from stepping_spark.rows.boxes import html_table
from stepping_spark.stepper.evolve.evolution import Evolution, evolution_of
from stores.location import MEMORY, Place

FULL = "recomputed in full"


@dataclass(frozen=True)
class Prospect:
    """The prediction of a run. Printed, it is a page of text, and `in_detail()` a longer one.

    `waiting` is the unread amount of each source (None if unknown), and `units` its unit: versions,
    files, log rows. `state` describes each register in words of the query, with its number of rows
    if known: rows as stored, of which several may add up to one row. `views` describes the reads of
    a step for each view, and `costs` how each vertex computes a step. `in_full` lists the vertices
    whose cost grows with the tables instead of the change. `writer` is another process that writes
    the state now, or None; until it ends a run is refused. `comments` are the comments of
    `st.view`s. `waits` lists the sinks that lack the last step, and `invalid` the treatment of rows
    that do not fit an input. With `evolve=True`, `evolution` is the plan for the state of a changed
    query, and `filled` lists the sinks that get all rows of their views.

    >>> def names(people: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(people)
    >>> found = st.Pipeline(names, store="memory", people=[], into={"names": print}).dry_run()
    >>> isinstance(found, st.Prospect), found.step, found.into, found.in_full
    (True, 0, (('names', 'print'),), ())
    """

    name: str
    place: str
    step: int
    sources: tuple[tuple[str, str, str], ...]
    waiting: Mapping[str, int | None]
    into: tuple[tuple[str, str], ...]
    state: tuple[tuple[str, str], ...]
    views: tuple[tuple[str, str], ...]
    costs: tuple[tuple[str, str, str], ...]
    in_full: tuple[str, ...]
    writer: str | None = None
    comments: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    waits: tuple[tuple[str, str], ...] = ()
    invalid: Mapping[str, str] = field(default_factory=dict)
    evolution: Evolution | None = None
    filled: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        lines = [f"pipeline {self.name}: state {self.place}, step {self.step:,}"]
        if self.writer is not None:
            lines.append(f"a run is refused now: {self.writer} writes the state")
        lines.append("reads")
        for name, source, position in self.sources:
            n = self.waiting[name]
            left = "unknown how much there is" if n is None else self._changes_text(n, name)
            read = "not read yet" if position == NOT_READ else f"read up to {position}"
            misfits = f"; {self.invalid[name]}" if name in self.invalid else ""
            lines.append(f"  {name}: {source}, {read}; {left}{misfits}")
        lines.append("writes")
        lines += [f"  {view}: {sink}" for view, sink in self.into] or ["  nothing"]
        lines += [f"  all rows of {view} go into {sink}" for view, sink in self.filled]
        lines += [f"  step {self.step:,} waits for {view}: {sink}" for view, sink in self.waits]
        if self.evolution is not None:
            lines.append(f"evolves {self.evolution}")
        steps = [(f"{view}{self._comment(view)}", does) for view, does in self.views]
        return "\n".join([*lines, *_told_of_steps(self.state, steps, self.in_full)])

    def _repr_html_(self) -> str:
        """The page as tables, for a notebook."""
        waiting = [
            (
                name,
                source,
                position,
                "unknown"
                if self.waiting[name] is None
                else self._changes_text(self.waiting[name] or 0, name),
                self.invalid.get(name, ""),
            )
            for name, source, position in self.sources
        ]
        tables: list[tuple[tuple[str, ...], Sequence[Sequence[str]]]] = [
            (("input", "source", "read up to", "to read", "rows that do not fit"), waiting),
            (("view", "sink"), list(self.into)),
            (("keeps", "rows"), list(self.state)),
            (("view", "a step"), list(self.views)),
        ]
        body = "".join(html_table(h, (False,) * len(h), rows) for h, rows in tables if rows)
        full = "".join(f"<p>{html.escape(path)} is {FULL}</p>" for path in self.in_full)
        head = html.escape(str(self).partition("\n")[0])
        return f"<div><strong>{head}</strong>{body}{full}</div>"

    def _changes_text(self, n: int, source: str) -> str:
        unit = self.units.get(source, "change")
        return f"{n:,} {unit}{'' if n == 1 else 's'} to read"

    def _comment(self, view: str) -> str:
        return f" ({self.comments[view]})" if view in self.comments else ""

    def in_detail(self) -> str:
        """The page, and how each vertex computes a step."""
        more = [f"  {path}: {how}  ({line})" for path, how, line in self.costs]
        return "\n".join([str(self), "how each vertex computes a step", *more])


def explained(graph: AnyGraph, views: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The text on a circuit's registers and on the reads of its views, and the vertices in full."""
    explanation = explain(graph)
    words = words_of(plan_of(graph))
    state = [(words.get(name, name), "") for name, _ in explanation.arrangements]
    in_full = tuple(v.path for v in explanation.vertices if v.how.startswith(FULL))
    steps = list(zip(views, _steps_of(graph)[: len(views)], strict=True))
    return "\n".join(_told_of_steps(state, steps, in_full)), in_full


def _told_of_steps(
    state: Sequence[tuple[str, str]], steps: Sequence[tuple[str, str]], in_full: Sequence[str]
) -> list[str]:
    """The lines on registers, on the reads of a step, and on vertices recomputed in full."""
    lines = [f"  {register}: {how}" if how else f"  {register}" for register, how in state]
    return [
        "keeps",
        *(lines or ["  nothing"]),
        "a step of",
        *(f"  {view}: {does}" for view, does in steps),
        *(f"{path} is {FULL} at each step" for path in in_full),
    ]


def prospect_of(
    graph: AnyGraph,
    views: Sequence[str],
    place: Store | Place,
    opened: Store | None,
    rounds: Rounds,
    comments: Mapping[str, str],
    evolves: bool,
    renamed: Mapping[str, str],
    limits: Limits | None,
    copy_of: Place | None,
) -> Prospect:
    """The prospect of a run. It takes no lock, makes no table, and changes nothing.

    With `limits`, the rows that an evolution changes are computed and counted. With `copy_of`, the
    state does not exist yet, and will be a copy of that state.
    """
    if copy_of is not None:
        copy_of.state().summary()  # raises an error if it does not exist
    feeds, outlets = rounds.feeds, rounds.outlets
    step, offsets, rows = 0, dict[str, int](), dict[str, int | None]()
    evolution, filled = None, list[Outlet]()
    with _to_read(graph, copy_of or place, opened, evolves) as store:
        if store is not None:
            if evolves:
                found_evolution = evolution_of(graph, store, renamed=renamed)
                evolution = found_evolution if found_evolution.is_needed else None
            step, offsets = store.last_step(), dict(store.last_offsets())
            if evolution is None:
                sizes = sizes_of(store, plan_of(graph).registers)
                rows = {name: size.rows for name, size in sizes.items()}
            else:
                rows = dict(evolution.kept)
        state = state_of(step, offsets) if copy_of is None else state_of(0, {})
        if evolves:
            changed = evolution is not None
            need = of_each(
                outlets, lambda o: o.would_need_filling(state, step, offsets, changed=changed)
            )
            filled = [outlet for outlet, needs in zip(outlets, need, strict=True) if needs]
        old_outlets = [outlet for outlet in outlets if outlet not in filled]
        if evolution is not None and store is not None:
            _check_known(evolution, old_outlets)
            if limits is not None:
                evolution = counted(evolution, graph, store, rounds, limits)
        lack = of_each(old_outlets, lambda o: o.look(state, step, offsets))
        lacking = [outlet for outlet, lacks in zip(old_outlets, lack, strict=True) if lacks]
        if store is not None and not evolves:
            check_query(store, graph, outlets)
    waiting, shown = {}, {}
    for feed in feeds:
        feed.open(feed.position_in(offsets))
        try:
            feed.look(rounds.portion)
            waiting[feed.name] = feed.behind()
            shown[feed.name] = ", ".join(filter(None, (feed.shown, feed.share_of_columns())))
        finally:
            feed.close()
    explanation = explain(graph)
    words = words_of(plan_of(graph))
    return Prospect(
        name=graph.name,
        place=(str(place) if isinstance(place, Place) else repr(place))
        + (f" (a copy of {copy_of})" if copy_of is not None else ""),
        step=step,
        sources=tuple(
            (f.name, shown[f.name], position_text(f.position_in(offsets))) for f in feeds
        ),
        waiting=waiting,
        into=tuple((outlet.view, outlet.shown) for outlet in outlets),
        state=tuple(
            (words.get(name, name), _rows(rows.get(name))) for name, _ in explanation.arrangements
        ),
        views=tuple(zip(views, _steps_of(graph)[: len(views)], strict=True)),
        costs=tuple((v.path, v.how, v.line) for v in explanation.vertices),
        in_full=tuple(v.path for v in explanation.vertices if v.how.startswith(FULL)),
        writer=_writer(place, opened),
        comments=comments,
        units={f.name: f.counts for f in feeds},
        waits=tuple((outlet.view, outlet.shown) for outlet in lacking),
        invalid={f.name: _told_of_misfits(f) for f in feeds if f.on_invalid != FAIL},
        evolution=evolution,
        filled=tuple((outlet.view, outlet.shown) for outlet in filled),
    )


def _check_known(evolution: Evolution, outlets: Sequence[Outlet]) -> None:
    """Refuse an evolution if the change for a sink is unknown; the error includes the plan."""
    try:
        evolution.check_known({*evolution.views} - {outlet.view for outlet in outlets})
    except StoreMismatch as e:
        raise StoreMismatch(f"{e}\nThe plan is:\n{evolution}") from None


def _told_of_misfits(feed: Feed) -> str:
    if feed.on_invalid == DROP:
        return "rows that do not fit are left out"
    return f"rows that do not fit go to {short_name(feed.on_invalid)}"


def unstepped(graph: AnyGraph, place: Store | Place) -> Report:
    """The report of a circuit without steps in this process, with the sizes of its state."""
    plan = plan_of(graph)
    if not isinstance(place, Place):
        return report_of(plan, graph, (), state_of_store(place, plan.registers), False)
    if place.kind == MEMORY:
        return report_of(plan, graph, (), KeptState(str(place), {}), False)
    try:
        registers = place.state().summary().registers
    except StoreUnavailable as e:
        return report_of(plan, graph, (), KeptState(str(place), {}, str(e)), False)
    sizes = {k.register.name: Size(k.batches, k.rows, k.nbytes) for k in registers}
    return report_of(plan, graph, (), KeptState(str(place), sizes), False)


@contextmanager
def _to_read(
    graph: AnyGraph, place: Store | Place, opened: Store | None, evolves: bool
) -> Iterator[Store | None]:
    """The store, opened to read, or None if a run creates it. Raises the errors of opening it."""
    plan = plan_of(graph)
    if opened is not None:
        yield opened
    elif not isinstance(place, Place):
        place.last_step()  # raises an error if the store is not open
        place.open(plan.registers, plan.output_schemas)
        yield place
    elif place.kind == MEMORY:
        yield None
    else:
        store = place.state().reader(plan.registers, evolve=evolves)
        try:
            if store is not None:
                store.open(plan.registers, plan.output_schemas)
            yield store
        finally:
            if store is not None:
                store.close()


def _writer(place: Store | Place, opened: Store | None) -> str | None:
    """The other process that writes the state, or None."""
    if opened is not None or not isinstance(place, Place) or place.kind == MEMORY:
        return None
    try:
        return place.state().other_writer()
    except StoreUnavailable:
        return None  # there is no state yet


def _steps_of(graph: AnyGraph) -> list[str]:
    """A text for each output of a circuit: the input changes and registers that it reads."""
    plan = plan_of(graph)
    reads = [
        (node.vertex, plan.state_of(leaf).register.name)
        for stage in plan.stages
        for member in stage.streams
        for node in nodes(member.term)
        for leaf in member.leaves_of(node)
        if isinstance(leaf, Read)
    ]
    texts = []
    for output in plan.graph.outputs:
        above = _above(output, plan.graph)
        inputs = [v.operator.label for v in above if isinstance(v.operator, Input)]
        loops = [plan.loops[v] for v in above if v in plan.loops]
        around = {v for loop in loops for v in loop.inputs}
        within = [s for loop in loops for s in loop.states]
        within += [s for s in plan.states if s.change in around]
        n = len({name for v, name in reads if v in above} | {s.register.name for s in within})
        text = f"{n:,} register{'' if n == 1 else 's'}" if n else "nothing that is kept"
        texts.append(f"reads the change of {', '.join(inputs) or 'no input'}, and {text}")
    return texts


def _above(output: Vertex, graph: AnyGraph) -> list[Vertex]:
    """The vertices from which an output is computed, in the order of the circuit."""
    vertices: set[Vertex] = set()
    pending = [output]
    while pending:
        v = pending.pop()
        if v not in vertices:
            vertices.add(v)
            pending += v.inputs
            pending += [graph.loops[v]] if v in graph.loops else []
    return [v for v in graph.walk() if v in vertices]


def _rows(rows: int | None) -> str:
    """The number of rows of a register, if it is known."""
    return "" if rows is None else f"{rows:,} {'row' if rows == 1 else 'rows'} as stored"
