"""Makes the plan of a step, and finds the registers that it needs.

The state of a circuit is registers, and a register is the sum of a stream of changes: I(x) and
z⁻¹I(x) are the new and the old value of the register of x; any other z⁻¹(y) is the register of
D(y). So within a step the circuit has no loops: its leaves are inputs and reads of old values.
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
    Collated,
    Delay,
    Differentiate,
    Expire,
    Feedback,
    Haitch,
    Hold,
    Input,
    Integrate,
    Join,
    LookUp,
    Neg,
    Settled,
    Top,
    Window,
    join_of,
    parts_of,
)
from stepping_spark.circuit.physical import Sorting, cut_by
from stepping_spark.expressions.expr import Expr, Field, tick
from stepping_spark.passes.cleanup import fuse
from stepping_spark.plan.loop import LoopPlan, loop_of
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.step_ir import (
    Apply,
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
    keys_of_each,
    ordering_of,
    python_of,
    shown_key,
)
from stepping_spark.relations.store import Register, register_name
from stepping_spark.rows.schema import Schema


class RegisterAllocation:
    """Finds the registers of a plan; `summed` gives the stream that a value is the sum of."""

    def __init__(
        self,
        graph: AnyGraph,
        names: Mapping[Vertex, tuple[Path, Line]],
        summed: Callable[[Vertex], Vertex],
        identities: Identities,
    ) -> None:
        self.graph = graph
        self.names = names
        self._identities = identities
        self._summed = summed

    def states(
        self, stages: tuple[Stage, ...], loops: dict[Vertex, LoopPlan]
    ) -> tuple[RegisterPlan, ...]:
        """The registers that the stages and the loops read, and those of caches."""
        # For each register that is needed, the caches of its value: each cache names a register.
        wanted: dict[tuple[Vertex, tuple[Expr, ...]], list[str]] = {}
        for cache, v in self.graph.caches.items():
            first, *more = self._indexes(v) or [()]
            wanted.setdefault((self._summed(v), first), []).append(register_name(cache))
            for key in more:
                wanted.setdefault((self._summed(v), key), [])
        for stage in stages:
            for read in stage.reads:
                wanted.setdefault((read.change, read.key), [])
        for loop in loops.values():
            for read_by_key in loop.reads:
                wanted.setdefault(read_by_key, [])
        orders = _orders(stages)
        keyed = {change for change, key in wanted if key}
        taken: dict[str, int] = {}
        states = []
        for (change, key), names in wanted.items():
            if not key and change in keyed and not names:
                continue  # read whole through the register that has a key
            schema, by = change.type.schema, orders.get((change, key))
            columns, stored = key_columns(schema, key)
            order = None
            if by is not None:
                order, beside = ordering_of(schema, by)
                stored += beside
            held = Schema(schema.columns + tuple((c, e.type) for c, e in stored), schema.diffs)
            why = "" if names else self._why_strict(stages, change, key)
            for wish in names or [self._register_name(change, key)]:
                n = taken[wish] = taken.get(wish, 0) + 1
                name = wish if n == 1 else f"{wish} {n}"
                sums = self._identities.sums(change, key)
                register = Register(name, held, columns, sums, why, order)
                states.append(RegisterPlan(register, change, key, stored, by))
        return tuple(states)

    def _why_strict(self, stages: tuple[Stage, ...], change: Vertex, key: tuple[Expr, ...]) -> str:
        """What a register is for, where nothing but the check of a strict input reads it."""
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

    def _indexes(self, v: Vertex) -> list[tuple[Expr, ...]]:
        keys = []
        while isinstance(v.operator, Arrange) or v in self.graph.loops:
            if isinstance(v.operator, Arrange):
                keys.append(v.operator.key.parts)
                v = v.inputs[0]
            else:
                v = self.graph.loops[v]
        return keys[::-1]

    def _register_name(self, change: Vertex, key: tuple[Expr, ...]) -> str:
        path = str(self.names[change][0])
        if not key:
            return path
        return f"{path} by {shown_key(key)}"


def _orders(stages: tuple[Stage, ...]) -> dict[tuple[Vertex, tuple[Expr, ...]], Sorting]:
    """The order of each register of which a window may need the last rows of a key only."""
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
        keeping = RegisterAllocation(self.graph, self.names, self._summed, self.identities)
        return Plan(
            self.graph,
            stages,
            keeping.states(stages, loops),
            outputs,
            loops,
            self.names,
            dict(self._kept()),
            self.identities,
        )

    def _kept(self) -> Iterator[tuple[Vertex, Vertex]]:
        for v in self.graph.walk():
            if isinstance(v.operator, Integrate):
                yield v, self._summed(v)
            elif isinstance(v.operator, Delay):
                yield v, self._change(v)
            elif isinstance(v.operator, Differentiate):
                yield v, v
            elif v.operator.holds_back:
                yield v, self._held_back(v)

    def _loops(self, members: Sequence[Materialized]) -> dict[Vertex, LoopPlan]:
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
        streams: dict[Vertex, None] = dict.fromkeys(self.graph.outputs)
        order = list(self.graph.walk())
        for v in order:
            op = v.operator
            if isinstance(op, Integrate):
                streams[v.inputs[0]] = None
            elif isinstance(op, Delay):
                streams[self._change(v)] = None
            elif op.written:
                streams[v] = None
            elif op.holds_back:
                streams[v.inputs[0]] = streams[v] = streams[self._held_back(v)] = None
            elif isinstance(op, Settled):
                streams[v.inputs[2]] = None
            elif python_of(v) is not None:
                streams[v.inputs[0]] = streams[v] = None
            elif isinstance(op, Haitch):
                streams.update(dict.fromkeys(v.inputs[1::2]))
            elif isinstance(op, Fixpoint):
                streams.update(dict.fromkeys((*v.inputs, v)))
            elif isinstance(op, LookUp):
                # A state too: the text of the fold occurs three times in a query.
                streams[v.inputs[0]] = None
            elif join_of(op):
                for side, other in (v.inputs, v.inputs[::-1]):
                    if side in self.states and other not in self.states:
                        streams[other] = None
        for v in self.graph.caches.values():
            streams[self._summed(v)] = None
        streams.update(dict.fromkeys(self.graph.strict.values()))
        streams.update(dict.fromkeys(x.late for x in self.graph.lateness.values()))
        for v in self._shared(order, streams):
            streams[v] = None
        resolved = dict.fromkeys(self._resolve(v) for v in streams)
        return [v for v in resolved if not isinstance(v.operator, Input)]

    def _shared(self, order: Sequence[Vertex], streams: dict[Vertex, None]) -> list[Vertex]:
        readers: dict[Vertex, int] = {}
        for v in order:
            for i in v.inputs:
                readers[i] = readers.get(i, 0) + 1
        return [
            v for v in order if readers.get(v, 0) > 1 and not self._is_read(v) and v not in streams
        ]

    @staticmethod
    def _is_read(v: Vertex) -> bool:
        """Whether a step reads a stream from a register, instead of computing it."""
        return not v.inputs or v.operator.gives_state or isinstance(v.operator, Arrange)

    def _resolve(self, v: Vertex) -> Vertex:
        """The vertex that computes the value: feedbacks and arrangements are followed."""
        while True:
            if isinstance(v.operator, Feedback):
                v = self.graph.loops[v]
            elif isinstance(v.operator, Arrange):
                v = v.inputs[0]
            else:
                return v

    def _change(self, delay: Vertex) -> Vertex:
        """The stream whose sum a delay gives the old value of."""
        return self._summed(delay.inputs[0], delay)

    def _held_back(self, v: Vertex) -> Vertex:
        """The change of the state of a hold: its input less its output."""
        rest = Vertex(Add(), self._resolve(v.inputs[0]), Vertex(Neg(), v))
        if rest not in self.held_back:
            self.held_back[rest] = v
            path, line = self.names[v]
            self.names[rest] = (Path((*path.scope, f"{path.parts[-1]}_to_come")), line)
        return rest

    def _summed(self, v: Vertex, named_after: Vertex | None = None) -> Vertex:
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
        """The term of a vertex that is materialised."""
        if isinstance(v.operator, Differentiate):
            old = Apply(v, Neg(), (Read(v),))
            return Apply(v, Add(), (self._term(v.inputs[0]), old))
        if v in self.held_back:
            came, out = v.inputs[0], Ref(self.held_back[v])
            return Apply(v, Add(), (self._term(came), Apply(v, Neg(), (out,))))
        return self._operator(v, None)

    def _term(self, v: Vertex, at: Read | None = None) -> Term:
        """The term of a vertex inside another's; `at`: only these keys of it matter."""
        v = self._resolve(v)
        ready = isinstance(v.operator, Input) or v in self.materialised_set
        if ready and not (at is not None and v in self.states):
            return Ref(v)
        return self._operator(v, at)

    @cached_property
    def materialised_set(self) -> set[Vertex]:
        return set(self.materialised)

    def _operator(self, v: Vertex, at: Read | None) -> Term:
        op = v.operator
        if isinstance(op, Integrate):
            return replace(self._read(self._resolve(v.inputs[0]), at), new=True)
        if isinstance(op, Delay):
            return self._read(self._change(v), at)
        join = join_of(op)
        if join is not None:
            return Apply(v, op, self._join_sides(v, join))
        if isinstance(op, LookUp):
            return Apply(v, op, self._look_up_sides(v, op))
        if isinstance(op, Hold):
            rest = self._held_back(v)
            old = Read(rest, (tick(Field(op.time, ("time",))),), due=Clock(op.time))
            return Apply(v, op, (Apply(v, Add(), (old, self._term(v.inputs[0]))),))
        if isinstance(op, Expire):
            return self._expiring(v, op)
        if isinstance(op, Settled):
            return self._settling(v, op)
        if isinstance(op, Haitch):
            return Apply(v, op, self._state_and_change(v, op))
        passed = at if all(p.keeps_rows for p in parts_of(op)) else None
        return Apply(v, op, tuple(self._term(i, passed) for i in v.inputs))

    def _state_and_change(self, v: Vertex, op: Haitch) -> tuple[Term, ...]:
        """For each input, its state at the keys that any of them changes, and its change."""
        states, changes = v.inputs[::2], tuple(map(self._resolve, v.inputs[1::2]))
        keys = keys_of_each(op.of, [c.type for c in changes])
        by = tuple(Keys(c, key) for c, key in zip(changes, keys, strict=True))
        folds = op.of.folds if isinstance(op.of, Collated) else (op.of,)
        terms: list[Term] = []
        for state, change, key, fold in zip(states, changes, keys, folds, strict=True):
            cut = self._cut(v, op, change)
            first = fold if isinstance(fold, Top) and self._is_old(state, change) else None
            read = Read(change, key, by, nulls=True, cut=cut, first=first)
            terms += [self._term(state, read), self._term(change)]
        return tuple(terms)

    def _cut(self, v: Vertex, op: Haitch, change: Vertex) -> Window | None:
        """The window that a change of is computed, where all that its state gets is the change."""
        if not isinstance(op.of, Window) or not self._is_old(v.inputs[0], change):
            return None
        return op.of if cut_by(op.of.keys, op.of.sorting, op.of.calls) else None

    def _is_old(self, state: Vertex, change: Vertex) -> bool:
        """Whether a state is the old sum of a change."""
        return isinstance(state.operator, Delay) and self._change(state) is change

    def _expiring(self, v: Vertex, op: Expire) -> Term:
        """The rows that watermarks pass. They are read from the state by their time."""
        rows, *greatest = v.inputs
        changes = (self._summed(g) for g in greatest)
        clock = Clock(op.value.type, tuple(zip(changes, op.distances, strict=True)))
        old = Read(self._held_back(v), (tick(op.value),), due=clock)
        came = Apply(v, Add(), (old, self._term(rows)))
        return Apply(v, op, (came, *map(self._term, greatest)))

    def _settling(self, v: Vertex, op: Settled) -> Term:
        state, change, touched, *greatest = map(self._resolve, v.inputs)
        key = op.window.keys
        by_key = tuple(e.under("_1") for e in key)
        before = self._term(state, Read(touched, key, (Keys(touched, by_key),), nulls=True))
        rest = (self._term(i) for i in (change, touched, *greatest))
        return Apply(v, op, (before, *rest))

    def _join_sides(self, v: Vertex, op: Join) -> tuple[Term, Term]:
        left, right = (self._resolve(i) for i in v.inputs)
        on, key = op.left.parts, op.right.parts
        if left in self.states and right not in self.states:
            return self._term(left, Read(left, on, (Keys(right, key),))), self._term(right)
        if right in self.states and left not in self.states:
            return self._term(left), self._term(right, Read(right, key, (Keys(left, on),)))
        return self._term(left), self._term(right)

    def _look_up_sides(self, v: Vertex, op: LookUp) -> tuple[Term, Term]:
        known, table = (self._resolve(i) for i in v.inputs)
        if table in self.states and known not in self.states:
            return self._term(known), self._term(table, Read(table, op.key, (Keys(known, op.on),)))
        return self._term(known), self._term(table)

    @staticmethod
    def _read(change: Vertex, at: Read | None) -> Read:
        return Read(change) if at is None else replace(at, change=change)

    def _stages(self, members: list[Materialized]) -> tuple[Stage, ...]:
        """Stages: each stream is in the first one after its inputs. Projections need no stage."""
        by_vertex = {m.vertex: m for m in members}
        waits = {m.vertex: [w for w in _waits(m) if w in by_vertex] for m in members}
        waited_for = {w for ws in waits.values() for w in ws}
        projections = {m.vertex for m in members if m.only_projects and m.vertex in waited_for}
        depth: dict[Vertex, int] = {}  # each after its inputs

        def visit(v: Vertex) -> int:
            if v not in depth:
                depths = [visit(w) + (w not in projections) for w in waits[v]]
                depth[v] = max(depths, default=1)
            return depth[v]

        for m in members:
            visit(m.vertex)
        early = {w for v, ws in waits.items() for w in ws if depth[w] == depth[v]}
        return tuple(
            Stage(
                tuple(m for m in members if depth[m.vertex] == d and m.vertex not in early),
                tuple(by_vertex[v] for v, at in depth.items() if at == d and v in early),
            )
            for d in range(1, max(depth.values(), default=0) + 1)
        )


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
