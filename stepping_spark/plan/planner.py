"""Makes the plan of a step, and finds the registers that it needs.

The state of a circuit consists of registers, and a register is the sum of a stream of changes: I(x)
and z⁻¹I(x) are the new and the old value of the register of x; any other z⁻¹(y) is the old value of
the register of D(y). So within a step the circuit has no loops: its leaves are inputs and old
values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from stepping_spark.base.callsite import Line
from stepping_spark.circuit.graph import (
    AnyGraph,
    Fixpoint,
    Path,
    States,
    Vertex,
    check_is_graph,
    named,
)
from stepping_spark.circuit.operators import (
    Add,
    Arrange,
    BucketedTop,
    Delay,
    Differentiate,
    Expire,
    Feedback,
    IdentityPrint,
    Input,
    Integrate,
    KeyedRead,
    Neg,
    Top,
    Window,
    only_prunes,
    parts_of,
)
from stepping_spark.circuit.physical import Sorting, cut_by
from stepping_spark.expressions.expr import Expr, tick
from stepping_spark.passes.cleanup import fuse
from stepping_spark.plan.loop import LoopPlan, loop_of
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.step_ir import (
    Apply,
    BucketedRead,
    Clock,
    Identities,
    Keys,
    Materialized,
    Read,
    Ref,
    RegisterPlan,
    Stage,
    Term,
    key_columns,
    ordering_of,
    python_of,
    shown_key,
)
from stepping_spark.relations.store import Register, register_name
from stepping_spark.rows.schema import Schema


class RegisterAllocation:
    """Finds the registers of a plan; `stream_of_sum` maps a value to the stream whose sum it is."""

    def __init__(
        self,
        graph: AnyGraph,
        names: Mapping[Vertex, tuple[Path, Line]],
        stream_of_sum: Callable[[Vertex], Vertex],
        identities: Identities,
    ) -> None:
        self.graph = graph
        self.names = names
        self._identities = identities
        self._stream_of_sum = stream_of_sum

    def states(
        self, stages: tuple[Stage, ...], loops: dict[Vertex, LoopPlan]
    ) -> tuple[RegisterPlan, ...]:
        """The registers that the stages and the loops read, and the registers of caches."""
        # For each needed register, the caches of its value: each cache has a register of its name.
        wanted: dict[tuple[Vertex, tuple[Expr, ...]], list[str]] = {}
        for cache, v in self.graph.caches.items():
            first, *more = self._keys_of_cache(v) or [()]
            wanted.setdefault((self._stream_of_sum(v), first), []).append(register_name(cache))
            for key in more:
                wanted.setdefault((self._stream_of_sum(v), key), [])
        for stage in stages:
            for read in stage.reads:
                wanted.setdefault((read.change, read.key), [])
        for loop in loops.values():
            for loop_read in loop.reads:
                wanted.setdefault(loop_read, [])
        orders = _orders(stages)
        keyed = {change for change, key in wanted if key}
        times_used: dict[str, int] = {}
        states = []
        for (change, key), names in wanted.items():
            if not key and change in keyed and not names:
                continue  # a register with a key serves this read
            schema, sorting = change.type.schema, orders.get((change, key))
            key_names, stored = key_columns(schema, key)
            order = None
            if sorting is not None:
                order, order_columns = ordering_of(schema, sorting)
                stored += order_columns
            register_schema = Schema(
                schema.columns + tuple((c, e.type) for c, e in stored), schema.diffs
            )
            purpose = "" if names else self._why_strict(stages, change, key)
            for wanted_name in names or [self._register_name(change, key)]:
                number = times_used[wanted_name] = times_used.get(wanted_name, 0) + 1
                name = wanted_name if number == 1 else f"{wanted_name} {number}"
                sums = self._identities.sums(change, key)
                register = Register(name, register_schema, key_names, sums, purpose, order)
                states.append(RegisterPlan(register, change, key, stored, sorting))
        return tuple(states)

    def _why_strict(self, stages: tuple[Stage, ...], change: Vertex, key: tuple[Expr, ...]) -> str:
        """The purpose of a register that only the check of a strict input reads; "" for others."""
        checks = {v: label for label, v in self.graph.strict.items()}
        readers = [
            m.vertex
            for stage in stages
            for m in stage.members
            if any(isinstance(r, Read) and (r.change, r.key) == (change, key) for r in m.leaves)
        ]
        if not readers or not checks.keys() >= set(readers):
            return ""
        return f"the rows of input {checks[readers[0]]!r}, because it is strict"

    def _keys_of_cache(self, v: Vertex) -> list[tuple[Expr, ...]]:
        """The keys by which a cached value is arranged, the first arrangement first."""
        keys = []
        while isinstance(v.operator, Arrange) or v in self.graph.loops:
            if isinstance(v.operator, Arrange):
                keys.append(v.operator.key.parts)
                v = v.inputs[0]
            else:
                v = self.graph.loops[v]
        return keys[::-1]

    def _register_name(self, change: Vertex, key: tuple[Expr, ...]) -> str:
        path = str(self._name_of(change))
        if not key:
            return path
        return f"{path} by {shown_key(key)}"

    def _name_of(self, change: Vertex) -> Path:
        """The name of a stream; without some columns, the name of the stream with all of them."""
        v, graph = self._identities.unfused(change), self._identities.graph
        if not only_prunes(v.operator) or v not in graph.paths:
            return self.names[change][0]
        while only_prunes(v.operator):
            (v,) = v.inputs
        return graph.paths[v]


def _orders(stages: tuple[Stage, ...]) -> dict[tuple[Vertex, tuple[Expr, ...]], Sorting]:
    """The order of each register from which a window may read only the last rows of a key."""
    orders: dict[tuple[Vertex, tuple[Expr, ...]], Sorting] = {}
    for stage in stages:
        for read in stage.reads:
            if read.cut is not None:
                orders.setdefault((read.change, read.key), read.cut.sorting[0])
    return orders


def registers_of(graph: AnyGraph) -> tuple[Register, ...]:
    """The registers that a store keeps for a circuit."""
    check_is_graph(graph, "; the graph comes first: from_graph(st.compile(query), …)")
    return plan_of(graph).registers


def plan_of(graph: AnyGraph) -> Plan:
    """The plan of a circuit; the same object each time."""
    check_is_graph(
        graph,
        "; beside a store, the order is st.iteration(store, graph, …), st.Stepper(graph, store)",
    )
    plan = graph.memo.get("plan")
    if not isinstance(plan, Plan):
        fused, stands_for = fuse(graph) if graph.optimized else (graph, {})
        plan = graph.memo["plan"] = _Planner(fused, Identities(graph, stands_for)).plan()
    return plan


class _Planner:
    """Makes one plan, and holds the intermediate results."""

    def __init__(self, graph: AnyGraph, identities: Identities) -> None:
        self.graph = graph
        self.identities = identities
        self.states = States(graph.loops)
        self.held_back: dict[Vertex, Vertex] = {}
        self.names: dict[Vertex, tuple[Path, Line]] = {
            v: (path, graph.line(v)) for path, v in graph.vertices.items()
        }
        self.materialised = self._materialised()

    def plan(self) -> Plan:
        members = [Materialized(v, self._definition(v)) for v in self.materialised]
        stages = self._stages(members)
        outputs = tuple(self._resolve(v) for v in self.graph.outputs)
        loops = self._loops(members)
        allocation = RegisterAllocation(
            self.graph, self.names, self._stream_of_sum, self.identities
        )
        return Plan(
            self.graph,
            stages,
            allocation.states(stages, loops),
            outputs,
            loops,
            self.names,
            {v: stream for v in self.graph.walk() if (stream := self._state_stream(v)) is not None},
            self.identities,
        )

    def _state_stream(self, v: Vertex) -> Vertex | None:
        """The stream whose sum is the state of a vertex; None if it has no state."""
        op = v.operator
        if isinstance(op, Delay):
            return self._stream_of_sum(v.inputs[0], v)
        if isinstance(op, Integrate):
            return self._stream_of_sum(v)
        if op.due is not None:
            return self._held_back_change(v)
        return v if isinstance(op, Differentiate) else None

    def _loops(self, members: Sequence[Materialized]) -> dict[Vertex, LoopPlan]:
        """The loop that computes each recursive stream; streams of one recursion share it."""
        plans: dict[tuple[object, ...], LoopPlan] = {}
        loops = {}
        for v in (m.vertex for m in members):
            if isinstance(v.operator, Fixpoint):
                inputs = tuple(self._resolve(i) for i in v.inputs)
                key = (v.operator.body, v.operator.max_iterations, inputs)
                if key not in plans:
                    operator = named(v.operator, self.graph)
                    plans[key] = loop_of(operator, inputs, *self.names[v], self.identities)
                    self.names = {**plans[key].names, **self.names}
                loops[v] = plans[key]
        return loops

    # -- materialised streams

    def _materialised(self) -> list[Vertex]:
        """The streams that a step computes once, instead of inside the terms of their readers."""
        streams: dict[Vertex, None] = dict.fromkeys(self.graph.outputs)
        vertices = list(self.graph.walk())
        for v in vertices:
            if v.operator.due is not None or python_of(v) is not None:
                streams[v.inputs[0]] = streams[v] = None
            elif isinstance(v.operator, Fixpoint):
                streams.update(dict.fromkeys((*v.inputs, v)))
            elif isinstance(v.operator, IdentityPrint):
                streams[v] = None
            stream = self._state_stream(v)
            if stream is not None:
                streams[stream] = None
            lookups, reads = _lookups(v), self._reads(v)
            for n, lookup in lookups.items():
                # A delta join reads the keys several times, also the keys of a state.
                key_inputs = (m for m, _ in lookup.at if n in reads or m not in lookups)
                streams.update((v.inputs[m], None) for m in key_inputs)
        for v in self.graph.caches.values():
            streams[self._stream_of_sum(v)] = None
        streams.update(dict.fromkeys(self.graph.strict.values()))
        streams.update(dict.fromkeys(x.late for x in self.graph.lateness.values()))
        for v in self._shared(vertices, streams):
            streams[v] = None
        resolved = dict.fromkeys(self._resolve(v) for v in streams)
        return [v for v in resolved if not isinstance(v.operator, Input)]

    def _shared(self, vertices: Sequence[Vertex], streams: dict[Vertex, None]) -> list[Vertex]:
        """The computed vertices with several readers that are not among `streams` yet."""
        readers: dict[Vertex, int] = {}
        for v in vertices:
            for i in v.inputs:
                readers[i] = readers.get(i, 0) + 1
        return [
            v
            for v in vertices
            if readers.get(v, 0) > 1 and not self._is_read(v) and v not in streams
        ]

    @staticmethod
    def _is_read(v: Vertex) -> bool:
        """Whether a step reads a stream instead of computing it: an input or a register."""
        return not v.inputs or v.operator.gives_state or isinstance(v.operator, Arrange)

    def _resolve(self, v: Vertex) -> Vertex:
        """The vertex that computes a value, behind feedbacks and arrangements."""
        while True:
            if isinstance(v.operator, Feedback):
                v = self.graph.loops[v]
            elif isinstance(v.operator, Arrange):
                v = v.inputs[0]
            else:
                return v

    def _held_back_change(self, v: Vertex) -> Vertex:
        """The change of the state of a hold: its input minus its output.

        Names this stream, after which the register is named.
        """
        change = Vertex(Add(), self._resolve(v.inputs[0]), Vertex(Neg(), v))
        if change not in self.held_back:
            self.held_back[change] = v
            path, line = self.names[v]
            self.names[change] = (Path((*path.scope, f"{path.parts[-1]}_to_come")), line)
        return change

    def _stream_of_sum(self, v: Vertex, named_after: Vertex | None = None) -> Vertex:
        """The stream whose sum over the steps is a value: the input of an integral, or D(v).

        A new D(v) gets a name from `named_after`, else from `v`. A register is named after its
        stream, so a state holds this name.
        """
        v = self._resolve(v)
        if isinstance(v.operator, Integrate):
            return self._resolve(v.inputs[0])
        change = Vertex(Differentiate(), v)
        if change not in self.names:
            path, line = self.names[named_after or v]
            self.names[change] = (Path((*path.scope, f"{path.parts[-1]}_change")), line)
        return change

    # -- terms

    def _definition(self, v: Vertex) -> Term:
        """The term of a materialised vertex."""
        if isinstance(v.operator, Differentiate):
            old = Apply(v, Neg(), (Read(v),))
            return Apply(v, Add(), (self._term(v.inputs[0]), old))
        if v in self.held_back:
            entering, leaving = v.inputs[0], Ref(self.held_back[v])
            return Apply(v, Add(), (self._term(entering), Apply(v, Neg(), (leaving,))))
        return self._operator_term(v, None)

    def _term(self, v: Vertex, keyed_read: Read | None = None) -> Term:
        """The term of a vertex inside another term.

        `keyed_read` names the keys of which the other term needs the rows; None: all rows. It is
        the read of a register, whose stream `_operator_term` fills in.
        """
        v = self._resolve(v)
        ready = isinstance(v.operator, Input) or v in self.materialised_set
        if ready and not (keyed_read is not None and v in self.states):
            return Ref(v)
        return self._operator_term(v, keyed_read)

    @cached_property
    def materialised_set(self) -> set[Vertex]:
        return set(self.materialised)

    def _operator_term(self, v: Vertex, keyed_read: Read | None) -> Term:
        """The term that applies the operator of a vertex, or reads the register of a state."""
        op = v.operator
        if op.gives_state:
            change = self._state_stream(v)
            assert change is not None
            read = Read(change) if keyed_read is None else replace(keyed_read, change=change)
            return replace(read, new=isinstance(op, Integrate))
        if op.due is not None:
            return self._due_term(v, *op.due)
        passed_on = keyed_read if all(p.keeps_rows for p in parts_of(op)) else None
        reads = self._reads(v)
        args = [self._term(i, reads.get(n, passed_on)) for n, i in enumerate(v.inputs)]
        own = (read.buckets.firsts for read in reads.values() if read.buckets is not None)
        return Apply(v, op, (*args, *own))

    def _due_term(self, v: Vertex, time: Expr, distances: tuple[int, ...]) -> Term:
        """The rows that are due. Rows of earlier steps are read from the state by their time."""
        rows, *greatest = v.inputs
        marks = zip(map(self._stream_of_sum, greatest), distances, strict=True)
        waiting_rows = Read(
            self._held_back_change(v), (tick(time),), due=Clock(time.type, tuple(marks))
        )
        candidates = Apply(v, Add(), (waiting_rows, self._term(rows)))
        return Apply(v, v.operator, (candidates, *map(self._term, greatest)))

    def _reads(self, v: Vertex) -> dict[int, Read]:
        """The reads by key of an operator, for the inputs of which it needs only some keys."""
        inputs = tuple(map(self._resolve, v.inputs))
        reads: dict[int, Read] = {}
        for n, lookup in _lookups(v).items():
            if inputs[n] not in self.states or not lookup.pays(lambda m: inputs[m] in self.states):
                continue
            by = tuple(Keys(inputs[m], key) for m, key in lookup.at)
            fold = lookup.fold
            if fold is not None and not self._is_before(v.inputs[n], inputs[n + 1]):
                fold = None  # only of such a sum a fold may need less than all rows of a key
            cut = fold if isinstance(fold, Window) and _is_cut(fold) else None
            first = fold if isinstance(fold, Top) else None
            reads[n] = Read(inputs[n], lookup.key, by, nulls=lookup.nulls, cut=cut, first=first)
        if isinstance(v.operator, BucketedTop):
            firsts = replace(reads[0], change=self._own_state(v))
            reads[0] = replace(reads[0], buckets=BucketedRead(v.operator, firsts))
        return reads

    def _own_state(self, v: Vertex) -> Vertex:
        """The stream whose sum is the state of a stream: of its rows, or of those not expired."""
        expire = self._expiring.get(v)
        return v if expire is None else self._held_back_change(expire)

    @cached_property
    def _expiring(self) -> dict[Vertex, Vertex]:
        """The vertices whose rows expire from a state, and the vertices that let them."""
        return {v.inputs[0]: v for v in self.graph.walk() if isinstance(v.operator, Expire)}

    def _is_before(self, state: Vertex, change: Vertex) -> bool:
        """Whether a state is the sum of the earlier changes of a stream."""
        return isinstance(state.operator, Delay) and self._state_stream(state) is change

    def _stages(self, members: list[Materialized]) -> tuple[Stage, ...]:
        """The stages: each stream is in the first one after its inputs; projections need none."""
        by_vertex = {m.vertex: m for m in members}
        waits = {m.vertex: [w for w in _waits(m) if w in by_vertex] for m in members}
        waited_for = {w for waited in waits.values() for w in waited}
        projections = {m.vertex for m in members if m.only_projects and m.vertex in waited_for}
        depth: dict[Vertex, int] = {}  # each after its inputs

        def visit(v: Vertex) -> int:
            if v not in depth:
                depths = [visit(w) + (w not in projections) for w in waits[v]]
                depth[v] = max(depths, default=1)
            return depth[v]

        for m in members:
            visit(m.vertex)
        projected = {w for v, waited in waits.items() for w in waited if depth[w] == depth[v]}
        return tuple(
            Stage(
                tuple(
                    m for m in members if depth[m.vertex] == number and m.vertex not in projected
                ),
                tuple(
                    by_vertex[v]
                    for v, stage_number in depth.items()
                    if stage_number == number and v in projected
                ),
            )
            for number in range(1, max(depth.values(), default=0) + 1)
        )


def _lookups(v: Vertex) -> Mapping[int, KeyedRead]:
    return v.operator.lookups(*(i.type for i in v.inputs))


def _is_cut(op: Window) -> bool:
    """Whether a window needs only the last rows of a partition, given a prefix of the others."""
    return cut_by(op.keys, op.sorting, op.calls) is not None


def _waits(m: Materialized) -> Iterator[Vertex]:
    """The streams to materialise before this one."""
    for leaf in m.leaves:
        if not isinstance(leaf, Read):
            yield leaf.vertex
            continue
        yield from (keys.of for keys in leaf.by)
        if leaf.new:
            yield leaf.change
        if leaf.due is not None:
            yield from (greatest for greatest, _ in leaf.due.marks)
