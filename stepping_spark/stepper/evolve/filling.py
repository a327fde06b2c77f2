"""The circuit that fills new registers, from old registers and from inputs that are read again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from stepping_spark.base.callsite import Line
from stepping_spark.base.errors import StoreMismatch
from stepping_spark.base.limits import Limits
from stepping_spark.circuit.graph import AnyGraph, Fixpoint, Graph, Origin, Path, Vertex, adopt
from stepping_spark.circuit.operators import Add, Input, Neg, Operator
from stepping_spark.execution.scheduler import Scheduler
from stepping_spark.plan.metrics import StepMetrics
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.planner import plan_of
from stepping_spark.plan.step_ir import Identities, RegisterPlan
from stepping_spark.relations.relation import DriverRelation, Relation, SparkRelation, plus
from stepping_spark.relations.store import (
    AddedRows,
    EvolvingStore,
    Now,
    Size,
    StepStore,
    Store,
)
from stepping_spark.relations.transfer import width_of
from stepping_spark.rows.schema import Schema
from stepping_spark.stepper.evolve.linearity import Narrowing, Terms, less
from stepping_spark.stepper.evolve.sums import StreamKinds


@dataclass
class BeforeAnyStep:
    """The state before the first step. Steps with it, also in tasks, store nothing."""

    settings: Mapping[str, str]
    added: Sequence[AddedRows] = ()

    def last_step(self) -> int:
        """0: no step was taken."""
        return 0

    def last_now(self) -> Now:
        """None: no step was taken."""
        return None

    def last_settings(self) -> Mapping[str, str]:
        """The session settings of the state that is evolved."""
        return self.settings

    def read(self, register: str, keys: Relation | None = None) -> tuple[Relation, ...]:
        """No rows: every register is empty."""
        return ()

    def add(self, register: str, change: Relation) -> None:
        """Ignore the change."""

    @contextmanager
    def attempt(self) -> Iterator[BeforeAnyStep]:
        """The state for an attempt of a task."""
        yield self


class NoState(BeforeAnyStep):
    """An empty store that passes additions to another one: `filled` has the names there."""

    def __init__(self, store: StepStore, filled: Mapping[str, str]) -> None:
        super().__init__(store.last_settings())
        self._store, self._filled = store, filled

    def add(self, register: str, change: Relation) -> None:
        """Add to the register that this one fills, if it fills any."""
        filled = self._filled.get(register)
        if filled is not None:
            self._store.add(filled, change)

    def serves_tasks(self, *, here: bool) -> bool:
        """Whether no recursion fills registers."""
        return not self._filled

    def for_tasks(self) -> BeforeAnyStep:
        """An empty state, wherever tasks run."""
        return BeforeAnyStep(self.settings)

    def merge_meanwhile(self, rows: int) -> None:
        """Do nothing: there are no batches."""

    def add_written(self, register: str, added: Sequence[AddedRows]) -> None:
        """Do nothing: tasks add no rows."""


_UNSUMMED = (
    "{path} ({line}): its rows depend on the order of the steps (a lateness, st.delay), so that no "
    "sum of the state tells what they are now; leave a view that exists as it was, and run a new "
    "one in a pipeline with a store and tables of its own"
)


@dataclass(frozen=True, eq=False)
class Filling:
    """A circuit whose single step fills registers, and computes the changes of views.

    It has an output for each new register, and for each view that changes.
    """

    graph: AnyGraph
    kept: Mapping[Vertex, str]  # its inputs from registers of the state
    given: Mapping[Vertex, Vertex]  # its inputs that are read again: inputs of the query
    states: Sequence[
        tuple[RegisterPlan, int]
    ]  # a register to fill, and the number of the output that fills it
    in_loops: Mapping[str, str]  # from its registers of recursions to the registers they fill
    views: Sequence[int | None]  # the output with a view's change; None: it does not change
    types: Sequence[Schema]  # of the views
    _under: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    _under_views: Sequence[tuple[str, ...]] = ()

    @property
    def read_again(self) -> tuple[str, ...]:
        """The names of the inputs that are read again."""
        return tuple(_label(v) for v in self.given)

    def made_of(self, register: str) -> tuple[str, ...]:
        """The sources of a new register: registers of the state, and inputs."""
        return self._under.get(register, ())

    def change_made_of(self, view: int) -> tuple[str, ...]:
        """The sources of the change of a view: registers of the state, and inputs."""
        return self._under_views[view]

    def of_views(self) -> Filling:
        """The part that only computes the changes of views."""
        wanted = [place for place in self.views if place is not None]
        graph = replace(self.graph, outputs=tuple(self.graph.outputs[place] for place in wanted))
        read = set(graph.walk())
        return replace(
            self,
            graph=replace(graph, inputs=tuple(v for v in graph.inputs if v in read)),
            given={v: of for v, of in self.given.items() if v in read},
            states=(),
            in_loops={},
            views=[None if place is None else wanted.index(place) for place in self.views],
        )

    def run(
        self,
        store: Store,
        again: Mapping[str, Relation],
        metrics: StepMetrics,
        now: Now,
        limits: Limits,
    ) -> tuple[list[Relation], Mapping[str, str] | None]:
        """Fill the registers of the store; returns the changes of views, and session settings.

        The settings are None, which keeps the state's settings, if no session was needed.
        """
        assert isinstance(store, EvolvingStore)
        nothing = NoState(store, self.in_loops)
        plan = plan_of(self.graph)
        scheduler = Scheduler(plan, nothing, limits=limits, keeps=False)
        values: dict[Vertex, Relation] = {}
        for v in self.graph.inputs:
            if v in self.kept:
                parts = store.read_kept(self.kept[v])
                metrics.read_whole(self.kept[v], (p.rows for p in parts))
                size = partial(store.size_kept, self.kept[v])
                values[v] = _added_up(parts, v.type.schema, size)
            else:
                empty = DriverRelation.empty(v.type.schema)
                values[v] = again.get(_label(self.given[v]), empty)
        relations: list[Relation] = []
        with scheduler.counting(metrics):
            if self.graph.outputs:
                since, first = nothing.last_now(), not nothing.last_step()
                relations = scheduler.run(metrics, values, now, since=since, first=first)
                paths = {str(plan.names[v][0]) for v in self.given}
                metrics.inputs = {n: rows for n, rows in metrics.inputs.items() if n in paths}
                filled, metrics.kept = metrics.kept, {}
                for n in filled.keys() & self.in_loops.keys():
                    metrics.keep(self.in_loops[n], filled[n])
            for state, place in self.states:
                rows = relations[place]
                if state.stored and not rows.is_empty:
                    rows = scheduler.projected(rows, state)
                if not rows.is_empty:
                    store.add(state.register.name, rows)
                    metrics.keep(state.register.name, rows.rows)
        changes = [
            DriverRelation.empty(schema) if place is None else relations[place]
            for place, schema in zip(self.views, self.types, strict=True)
        ]
        return changes, scheduler.settings


def filling_of(
    plan: Plan,
    identities: Identities,
    frontier: Mapping[Vertex, str],
    new: Sequence[str],
    views: Sequence[tuple[Vertex, Vertex | None]],
) -> Filling:
    """The filling of the registers `new`, and of views, as pairs of new and old streams.

    `frontier` are the streams with registers in the state, with the names of these.
    """
    try:
        return _Maker(plan, identities, frontier, new, views, Narrowing(frontier)).filling()
    except StoreMismatch:
        # A stream that narrowing replaced may have been needed for the rest of a sum.
        return _Maker(plan, identities, frontier, new, views, Narrowing(())).filling()


class _Maker:
    def __init__(
        self,
        plan: Plan,
        identities: Identities,
        frontier: Mapping[Vertex, str],
        new: Sequence[str],
        views: Sequence[tuple[Vertex, Vertex | None]],
        narrowing: Narrowing,
    ) -> None:
        self.plan, self.identities, self.frontier = plan, identities, frontier
        self.new, self.wanted_views = set(new), views
        self.new_vertices: dict[Vertex, Vertex] = {}
        self.kept: dict[Vertex, str] = {}
        self.given: dict[Vertex, Vertex] = {}
        self.origins: dict[Vertex, Origin] = {}
        self.sums = StreamKinds()
        self.narrowing = narrowing
        self.needs: dict[Vertex, bool] = {}

    def filling(self) -> Filling:
        outputs: list[Vertex] = []
        states, under = [], {}
        for s in self.plan.states:
            if s.register.name in self.new:
                v = self._needed(self.identities.unfused(s.change))
                states.append((s, len(outputs)))
                outputs.append(v)
                under[s.register.name] = self._under(v)
        loops = {}
        for v, loop in self.plan.loops.items():
            if any(s.register.name in self.new for s in loop.states):
                loops[self._needed(self.identities.unfused(v))] = loop
        for v, loop in loops.items():
            outputs.append(v)
            under |= {s.register.name: self._under(v) for s in loop.states}
        views: list[int | None] = []
        under_views: list[tuple[str, ...]] = []
        for now, was in self.wanted_views:
            if now is was:
                views.append(None)
                under_views.append(())
                continue
            views.append(len(outputs))
            outputs.append(self._change(now, was))
            under_views.append(self._under(outputs[-1]))
        graph = self._graph(outputs)
        return Filling(
            graph,
            self.kept,
            self.given,
            states,
            dict(self._in_loops(graph, loops)),
            views,
            [v.type.schema for v, _ in self.wanted_views],
            under,
            under_views,
        )

    def _change(self, now: Vertex, was: Vertex | None) -> Vertex:
        """The change of a view: its new stream minus its old one."""
        if was is None:
            new = self._built(now)
            return new if self.sums.is_value(new) else self._needed(now)
        same_rows = [(now, 1), (now, -1)]  # in another order of sums
        change = self._sum(less(now, was) or same_rows)  # common terms need not be known
        if not self.sums.is_change(change):  # a part of a join's change was left
            change = self._sum([(now, 1), (was, -1)])
        adopt(change, self._origin(now), self.origins)
        if not self.sums.is_change(change):
            new = self._built(now)
            if self.sums.is_value(new):
                return new  # the view is not a change, but a value at each step
            self._check(change, now)
        return change

    def _sum(self, terms: Terms) -> Vertex:
        """The sum of streams, over the filling's inputs."""
        parts = []
        for v, n in terms:
            built = self._built(v)
            parts += [built if n > 0 else Vertex(Neg(), built)] * abs(n)
        return functools.reduce(lambda a, b: Vertex(Add(), a, b), parts)

    def _needed(self, v: Vertex) -> Vertex:
        built = self._built(v)
        self._check(built, v)
        return built

    def _check(self, built: Vertex, v: Vertex) -> None:
        if not self.sums.is_change(built):
            origin = self._origin(v)
            raise StoreMismatch(_UNSUMMED.format(path=origin.path, line=origin.line))

    def _built(self, root: Vertex) -> Vertex:
        """The vertex over registers of the state, and over inputs that are read again."""
        pending = [root]
        while pending:
            v = pending[-1]
            if v in self.new_vertices:
                pending.pop()
                continue
            leaf = self._leaf(v)
            missing = [] if leaf else [i for i in v.inputs if i not in self.new_vertices]
            if missing:
                pending += missing
                continue
            vertex = leaf or (
                Vertex(v.operator, *(self.new_vertices[i] for i in v.inputs)) if v.inputs else v
            )
            self.new_vertices[v] = vertex
            self.origins.setdefault(vertex, self._origin(v))
        return self.new_vertices[root]

    def _leaf(self, v: Vertex) -> Vertex | None:
        number = len(self.kept) + len(self.given)
        if v in self.frontier:
            vertex = Vertex(Input(number, self.frontier[v], v.type))
            self.kept[vertex] = self.frontier[v]
            return vertex
        narrowed = self.narrowing.narrow(v)
        if narrowed is not None and self._needs_an_input(v):
            stream, operators = narrowed
            vertex = self._built(stream)
            for operator in operators:
                vertex = Vertex(operator, vertex)
                self.origins.setdefault(vertex, self._origin(v))
            return vertex
        if isinstance(v.operator, Input):
            vertex = Vertex(Input(number, v.operator.label, v.type))
            self.given[vertex] = v
            return vertex
        return None

    def _needs_an_input(self, root: Vertex) -> bool:
        """Whether a stream depends on an input that no wholly kept stream determines."""
        pending = [root]
        while pending:
            v = pending[-1]
            missing = [i for i in v.inputs if i not in self.needs]
            if v in self.frontier or v in self.needs or not missing:
                is_input = isinstance(v.operator, Input) or any(
                    self.needs[i] for i in v.inputs if i in self.needs
                )
                self.needs.setdefault(v, v not in self.frontier and is_input)
                pending.pop()
            else:
                pending += missing
        return self.needs[root]

    def _origin(self, v: Vertex) -> Origin:
        origin = self.identities.graph.origins.get(v)
        if origin is not None:
            return Origin(origin.path, origin.line)
        nowhere = Line("the state", 0, "the query before")
        return Origin(Path((self.plan.graph.name, "before", v.operator.name)), nowhere, inner=True)

    def _under(self, root: Vertex) -> tuple[str, ...]:
        """The names of the registers and inputs that a stream is computed from."""
        names: dict[str, None] = {}
        seen, pending = set(), [root]
        while pending:
            v = pending.pop()
            if v in seen:
                continue
            seen.add(v)
            if v in self.kept:
                names[self.kept[v]] = None
            elif v in self.given:
                names[f"input {_label(v)}"] = None
            pending += v.inputs
        return tuple(names)

    def _graph(self, outputs: list[Vertex]) -> AnyGraph:
        operators = (v.operator for v in self.new_vertices.values())
        bodies: dict[Operator, AnyGraph] = {
            op: op.body for op in operators if isinstance(op, Fixpoint)
        }
        return Graph(
            name=self.plan.graph.name,
            inputs=(*self.kept, *self.given),
            outputs=tuple(outputs),
            no_output=(),
            loops={},
            caches={},
            origins=self.origins,
            single=False,
            optimized=True,
            bodies={**bodies, **self.plan.graph.bodies},
        )

    def _in_loops(
        self, graph: AnyGraph, loops: Mapping[Vertex, object]
    ) -> Iterator[tuple[str, str]]:
        """The registers of recursions: of the filling, and of the query that they fill."""
        plan = plan_of(graph)
        for v, loop in plan.loops.items():
            ours = loops.get(plan.identities.unfused(v))
            if ours is not None:
                for filling, filled in zip(loop.states, ours.states, strict=True):  # type: ignore[attr-defined]
                    if filled.register.name in self.new:
                        yield filling.register.name, filled.register.name


_DECODED = 4
"""Bytes in memory per byte of a register with texts that Spark reads from files."""


def _added_up(parts: Sequence[Relation], schema: Schema, size: Callable[[], Size]) -> Relation:
    """All rows of a register of the state, as rows of its stream."""
    relation = plus([p.select(schema, beside=True) for p in parts], schema)
    if not isinstance(relation, SparkRelation):
        return relation.fetched().added_up()
    size_of_state, width = size(), width_of(schema)
    nbytes = size_of_state.nbytes * _DECODED if width is None else size_of_state.rows * width
    return replace(relation, rows=size_of_state.rows, nbytes=nbytes)


def _label(v: Vertex) -> str:
    assert isinstance(v.operator, Input)
    return v.operator.label
