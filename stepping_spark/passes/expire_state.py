"""Expires rows from the state once no later change can affect or need them, by the watermarks."""

from __future__ import annotations

import dataclasses

from stepping_spark.circuit.graph import AnyCircuit, Origin, Path, States, Vertex, adopt, rewrite
from stepping_spark.circuit.operators import (
    Add,
    Delay,
    Expire,
    Feedback,
    Haitch,
    Integrate,
    Join,
    Neg,
    Settled,
    Touched,
    Window,
)
from stepping_spark.circuit.retention import (
    Frees,
    frees_of,
    in_key,
    is_kept,
    is_state_of,
    met_by,
    summed,
)
from stepping_spark.circuit.watermarks import KnownBounds, LowerBound


def drop_settled(graph: AnyCircuit) -> AnyCircuit:
    """Keep of a state what rows to come can meet: saves the rows from before the watermarks.

    Does nothing without an input that has a lateness. With a the changes of a stream, and e those
    of its rows that are before the watermark (`Expire`), for rows to come that are not:

    key with the time   H_F(z⁻¹I(a), a)  = H_F(z⁻¹I(a − e), a)
    window              H_W(z⁻¹I(a), a)  = H_W(z⁻¹I(k), a),  k = a − settled(z⁻¹I(k), a, e)
    join by the time    I(a) ⋈ b         = z⁻¹I(a − e) ⋈ b + a ⋈ b, e by the watermark of b
                        z⁻¹I(a) ⋈ b      = z⁻¹I(a − e) ⋈ b
    """
    return _Settling(graph).settled() if graph.lateness else graph


class _Settling:
    def __init__(self, graph: AnyCircuit) -> None:
        self.graph = graph
        self.loops = dict(graph.loops)
        self.known = KnownBounds(graph.loops)
        self.states = States(graph.loops)
        self.fed_back: dict[Vertex, Vertex] = {}

    def settled(self) -> AnyCircuit:
        graph = rewrite(self.graph, self._rule)
        origins = dict(graph.origins)
        for leaf, kept in self.fed_back.items():
            own = origins[leaf]
            adopt(kept, Origin(Path((*own.path.scope, "kept")), own.line, inner=True), origins)
        return dataclasses.replace(graph, loops={**graph.loops, **self.fed_back}, origins=origins)

    def _rule(self, v: Vertex) -> Vertex | None:
        self.known.of(v)  # inputs come first, so that this does not go deep
        if isinstance(v.operator, Haitch):
            return self._change(v, v.operator)
        return self._join(v, v.operator) if isinstance(v.operator, Join) else None

    # -- operators that work per key

    def _change(self, v: Vertex, op: Haitch) -> Vertex | None:
        state, change = v.inputs
        wrapped = is_state_of(state, change)
        if wrapped is None:
            return None
        a, negated = wrapped
        bound = in_key(op.of, a, self.known.of(a))
        if bound is not None:
            kept = Vertex(Delay(), Vertex(Integrate(), self._kept(a, bound)))
            return Vertex(op, Vertex(Neg(), kept) if negated else kept, change)
        if not isinstance(op.of, Window) or negated:
            return None
        for b in self.known.of(a):
            frees = frees_of(op.of, b)
            if not isinstance(frees, str):
                return Vertex(op, self._kept_of_window(a, op.of, b, frees), a)
        return None

    def _kept(self, a: Vertex, bound: LowerBound) -> Vertex:
        """A stream without the rows that the watermarks of a bound pass."""
        return Vertex(Add(), a, Vertex(Neg(), self._passed(a, bound, 0)))

    def _passed(self, a: Vertex, bound: LowerBound, further: int) -> Vertex:
        marks = sorted(bound.marks, key=lambda m: (m.greatest.digest, m.distance))
        distances = tuple(m.distance + further for m in marks)
        greatest = (Vertex(Integrate(), m.greatest) for m in marks)
        return Vertex(Expire(bound.value, distances), a, *greatest)

    def _kept_of_window(self, a: Vertex, op: Window, bound: LowerBound, frees: Frees) -> Vertex:
        """The state of a window before a step: without the rows that were settled then."""
        passed = self._passed(a, bound, frees.further)
        if frees.window is None:
            return Vertex(Delay(), Vertex(Integrate(), Vertex(Add(), a, Vertex(Neg(), passed))))
        number = 1 + max(
            (leaf.operator.number for leaf in (*self.loops, *self.fed_back)),  # type: ignore[attr-defined]
            default=-1,
        )
        leaf = Vertex(Feedback(number, a.type))
        before = Vertex(Delay(), Vertex(Integrate(), leaf))
        touched = Vertex(Touched(), a, passed)
        _, *greatest = passed.inputs
        assert isinstance(passed.operator, Expire)
        distances = tuple(d - frees.further for d in passed.operator.distances)
        operator = Settled(frees.window, frees.free, distances)
        gone = Vertex(operator, before, a, touched, *greatest)
        self.fed_back[leaf] = Vertex(Add(), a, Vertex(Neg(), gone))
        return before

    # -- joins

    def _join(self, v: Vertex, op: Join) -> Vertex | None:
        left, right = v.inputs
        for state, change, on, key in (
            (left, right, op.left.parts, op.right.parts),
            (right, left, op.right.parts, op.left.parts),
        ):
            if state not in self.states or change in self.states:
                continue
            bound = met_by(on, key, self.known.of(change))
            a = summed(state)
            if bound is None or a is None or is_kept(a):
                return None
            old = Vertex(Delay(), Vertex(Integrate(), self._kept(a, bound)))

            def joined(side: Vertex, state: Vertex = state) -> Vertex:
                return Vertex(op, *(side if i is state else i for i in v.inputs))

            now = isinstance(state.operator, Integrate)
            return Vertex(Add(), joined(old), joined(a)) if now else joined(old)
        return None
