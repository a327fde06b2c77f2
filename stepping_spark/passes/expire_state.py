"""Expires rows from the state once no later change can affect or need them, by the watermarks.

It has the conditions for each operator, the pass, and the reasons why a state keeps all rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from stepping_spark.circuit.graph import (
    AnyCircuit,
    AnyGraph,
    Origin,
    Path,
    States,
    Vertex,
    adopt,
    rewrite,
)
from stepping_spark.circuit.operators import (
    Add,
    BucketedTop,
    Delay,
    Expire,
    Feedback,
    Haitch,
    Integrate,
    InTime,
    Join,
    LookUp,
    Neg,
    Operator,
    Settled,
    Touched,
    Window,
)
from stepping_spark.circuit.physical import (
    Frame,
    Nearest,
    Runs,
    WindowCall,
    nearby_of,
    reach_of,
    unit_of,
)
from stepping_spark.expressions.expr import Call, Expr, Field, Literal, bare
from stepping_spark.expressions.portable import choice
from stepping_spark.passes.watermarks import KnownBounds, LowerBound, LowerBounds, is_of
from stepping_spark.rows.atoms import BOOL
from stepping_spark.rows.types import Optional

_Side: TypeAlias = tuple[Vertex, Vertex, tuple[Expr, ...], tuple[Expr, ...]]
"""A state, the changes that meet it, and their keys."""


@dataclass(frozen=True)
class Frees:
    """The condition under which rows of a window expire.

    `further` is the least distance of a row's time before the watermarks at which its partition is
    checked. If `window` is None, such a row expires. Otherwise the window computes further values:
    a row expires when each value of `free`, over pairs of the row and the window's results, is
    before the watermarks minus a distance.
    """

    further: int
    window: Window | None = None
    free: tuple[tuple[Expr, int], ...] = ()


def is_state_of(state: Vertex, change: Vertex) -> tuple[Vertex, bool] | None:
    """The stream a if the arguments are z⁻¹I(a) and a, or both negated, and whether they are."""
    negated = isinstance(state.operator, Neg) and isinstance(change.operator, Neg)
    if negated:
        (state,), (change,) = state.inputs, change.inputs
    is_own = isinstance(state.operator, Delay) and summed(state) is change
    return (change, negated) if is_own else None


def summed(state: Vertex) -> Vertex | None:
    """The stream a if the argument is I(a) or z⁻¹I(a); otherwise None."""
    if isinstance(state.operator, Delay):
        (state,) = state.inputs
    return state.inputs[0] if isinstance(state.operator, Integrate) else None


def is_kept(a: Vertex) -> bool:
    """Whether expired rows are already removed from a stream: it is a − expire(a)."""
    return (
        isinstance(a.operator, Add)
        and isinstance(a.inputs[1].operator, Neg)
        and isinstance(a.inputs[1].inputs[0].operator, Expire)
    )


def in_key(fold: Operator, a: Vertex, bounds: LowerBounds) -> LowerBound | None:
    """The bound of a value that is determined by the key."""
    keys = {bare(e) for e in fold.keyed_by(a.type)}
    return next((b for b in bounds if b.value.in_sql and is_of(b.value, keys)), None)


def met_by(on: Iterable[Expr], key: Iterable[Expr], bounds: LowerBounds) -> LowerBound | None:
    """A bound of a value on one side of a join, from an equal value on the other side."""
    for mine, theirs in zip(on, key, strict=True):
        for b in bounds:
            is_time = mine.in_sql and not isinstance(mine.type, Optional)
            if b.value == bare(theirs) and is_time:
                return LowerBound(bare(mine), b.marks)
    return None


def _sides(join: Join, left: Vertex, right: Vertex) -> Iterator[_Side]:
    """The two sides of a join: each as a state that the changes of the other side meet."""
    yield left, right, join.left.parts, join.right.parts
    yield right, left, join.right.parts, join.left.parts


def frees_of(op: Window, bound: LowerBound) -> Frees | str:
    """The condition under which rows of a window expire, by a bound; or why none ever do."""
    if not op.sorting or bare(op.sorting[0].expr) != bound.value:
        return f"its order does not begin with {bound.value}"
    near = nearby_of(op.sorting, op.calls)
    if isinstance(near, Runs):
        return _of_sessions(op, bound, unit_of(near.gap))
    if isinstance(near, Nearest):
        return _of_nearest(op, bound, near.value)
    return _of_frames(op, bound)


def _probe(op: Window, *calls: WindowCall) -> Window:
    return Window(op.keys, op.sorting, calls)


def _result_field(number: int, c: WindowCall) -> Field:
    return Field(c.type, ("right", f"_{number}"))


def _of_sessions(op: Window, bound: LowerBound, gap: int) -> Frees:
    """Rows of sessions that ended so long ago that no future row joins them."""
    end = WindowCall("session_end", bound.value.type, gap=op.calls[0].gap)
    return Frees(gap, _probe(op, end), ((_result_field(1, end), gap),))


def _of_nearest(op: Window, bound: LowerBound, match: Expr) -> Frees:
    """As-of joins: a probe row expires, and of matched rows the last before the watermark stays.

    A matched row is needed until a later one of its partition is before the watermark. A probe row
    that looks for the nearest row before it expires when the watermark has passed it; one that
    looks for the nearest row after it, when that row is before the watermark.
    """
    time = Optional(bound.value.type)
    is_none = Call(BOOL, "isNull", (match,))
    known_at = choice(is_none, Literal(time, None), _optional(bound.value))
    later = WindowCall("first_value", time, (known_at,), Frame(True, 1, None), ignore_nulls=True)
    passed: Expr = _result_field(1, later)
    if all(c.kind == "last_value" for c in op.calls):
        passed = choice(is_none.under("left"), _optional(bound.value).under("left"), passed)
    return Frees(0, _probe(op, later), ((passed, 0),))


def _optional(e: Expr) -> Expr:
    return dataclasses.replace(e, type=Optional(e.type))


def _of_frames(op: Window, bound: LowerBound) -> Frees | str:
    """Rows outside of the frames of future rows, and of rows that future rows can affect."""
    reach = reach_of(op.sorting, op.calls)
    if isinstance(reach, str):
        return reach
    if reach.carried:
        return f"{reach.carried[0]} counts or adds up all rows before"
    up = op.sorting[0].ascending
    sides = ((reach.back, reach.far_back), (reach.forward, reach.far_forward))
    (back, far_back), (forward, far_forward) = sides if up else sides[::-1]
    ff, fb = unit_of(far_forward), unit_of(far_back)
    if forward and fb:
        return "one function looks at rows after it, and another at a distance before it"
    if not back and not forward:
        return Frees(ff + fb)
    kind, time = "lead" if up else "lag", Optional(bound.value.type)
    looks = dict.fromkeys(n for n in (back, back + forward) if n)
    calls = tuple(WindowCall(kind, time, (bound.value,), n=n) for n in looks)
    free = [(bound.value.under("left"), ff + fb)]
    free += [(_result_field(1, calls[0]), ff)] if back else []
    free += [(_result_field(len(calls), calls[-1]), 0)] if forward else []
    return Frees(ff + fb, _probe(op, *calls), tuple(free))


def drop_settled(graph: AnyCircuit) -> AnyCircuit:
    """Keep only rows that future rows can meet in a state: saves rows from before the watermarks.

    Does nothing without an input with a lateness. With a the changes of a stream, and e its rows
    that are before the watermark (`Expire`), for future rows that are not before it:

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
        for leaf, change in self.fed_back.items():
            own = origins[leaf]
            path = Path((*own.path.scope, "kept"))
            adopt(change, Origin(path, own.line, inner=True, view=own.view), origins)
        return dataclasses.replace(graph, loops={**graph.loops, **self.fed_back}, origins=origins)

    def _rule(self, v: Vertex) -> Vertex | None:
        self.known.of(v)  # inputs come first, so that this does not go deep
        if isinstance(v.operator, Haitch):
            return self._change(v, v.operator.of)
        if isinstance(v.operator, BucketedTop):
            return self._change(v, v.operator.top)
        return self._join(v, v.operator) if isinstance(v.operator, Join) else None

    # -- operators that work per key

    def _change(self, v: Vertex, of: Operator) -> Vertex | None:
        """The change of an operator per key, with a state without expired rows."""
        state, change = v.inputs
        wrapped = is_state_of(state, change)
        if wrapped is None:
            return None
        a, negated = wrapped
        bound = in_key(of, a, self.known.of(a))
        if bound is not None:
            unexpired = Vertex(Delay(), Vertex(Integrate(), self._unexpired(a, bound)))
            return Vertex(v.operator, Vertex(Neg(), unexpired) if negated else unexpired, change)
        if not isinstance(of, Window) or negated:
            return None
        for b in self.known.of(a):
            frees = frees_of(of, b)
            if not isinstance(frees, str):
                return Vertex(v.operator, self._kept_of_window(a, of, b, frees), a)
        return None

    def _unexpired(self, a: Vertex, bound: LowerBound) -> Vertex:
        """A stream without the rows that the watermarks of a bound pass."""
        return Vertex(Add(), a, Vertex(Neg(), self._passed(a, bound, 0)))

    def _passed(self, a: Vertex, bound: LowerBound, further: int) -> Vertex:
        marks = sorted(bound.marks, key=lambda m: (m.greatest.digest, m.distance))
        distances = tuple(m.distance + further for m in marks)
        greatest = (Vertex(Integrate(), m.greatest) for m in marks)
        return Vertex(Expire(bound.value, distances), a, *greatest)

    def _kept_of_window(self, a: Vertex, op: Window, bound: LowerBound, frees: Frees) -> Vertex:
        """The state of a window before a step, without the rows that were settled by then."""
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
        for state, change, on, key in _sides(op, left, right):
            if state not in self.states or change in self.states:
                continue
            bound = met_by(on, key, self.known.of(change))
            a = summed(state)
            if bound is None or a is None or is_kept(a):
                return None
            old = Vertex(Delay(), Vertex(Integrate(), self._unexpired(a, bound)))

            def joined(side: Vertex, state: Vertex = state) -> Vertex:
                return Vertex(op, *(side if i is state else i for i in v.inputs))

            now = isinstance(state.operator, Integrate)
            return Vertex(Add(), joined(old), joined(a)) if now else joined(old)
        return None


UNKNOWN = "nothing is known of how late its rows come: no field that it has is the time of an input"


def without_expiry(graph: AnyGraph) -> Iterator[tuple[Vertex, str]]:
    """The vertices that keep all rows of an input with a lateness, each with the reason."""
    if not graph.lateness:
        return
    late = _Late(graph)
    for v in graph.walk():  # inputs come first, so that nothing goes deep
        late.look_at(v)
        why = late.why(v)
        if why:
            yield v, why


class _Late:
    def __init__(self, graph: AnyGraph) -> None:
        self.graph = graph
        self.known, self.states = KnownBounds(graph.loops), States(graph.loops)
        self._depends: dict[Vertex, bool] = {}

    def look_at(self, v: Vertex) -> None:
        """Compute the bounds and the dependence of a vertex, after those of its inputs."""
        self.depends(v)
        self.known.of(v)

    def why(self, v: Vertex) -> str:
        """The reason why the state of a vertex keeps all rows; "" if it does not, or has none."""
        op = v.operator
        if isinstance(op, Haitch):
            reasons = map(self._of_state, op.of.folds, v.inputs[::2], v.inputs[1::2])
            return next(filter(None, reasons), "")
        if isinstance(op, BucketedTop):
            return self._of_state(op.top, *v.inputs)
        if isinstance(op, Join):
            return self._of_join(op, *v.inputs)
        if isinstance(op, LookUp) and v.inputs[1] in self.states:
            a = summed(v.inputs[1])
            return "a delta join looks up rows of any time" if a and self.depends(a) else ""
        return ""

    def _of_state(self, fold: Operator, state: Vertex, change: Vertex) -> str:
        wrapped = is_state_of(state, change)
        if wrapped is None or not self.depends(wrapped[0]):
            return ""
        a, negated = wrapped
        bounds = self.known.of(a)
        if not bounds:
            return UNKNOWN
        if in_key(fold, a, bounds) is not None:
            return "the circuit is not optimized"
        if not isinstance(fold, Window) or negated:
            return f"its key has no {_bounds_text(bounds)}"
        answers = [frees_of(fold, b) for b in bounds]
        reasons = [why for why in answers if isinstance(why, str)]
        return reasons[0] if len(reasons) == len(answers) else "the circuit is not optimized"

    def _of_join(self, op: Join, left: Vertex, right: Vertex) -> str:
        for state, change, on, key in _sides(op, left, right):
            a = summed(state)
            if a is None or change in self.states or is_kept(a) or not self.depends(a):
                continue
            bounds = self.known.of(change)
            if met_by(on, key, bounds) is not None:
                return "the circuit is not optimized"
            side = "left" if state is left else "right"
            if not bounds:
                return f"nothing is known of how late the rows come that the {side} side is met by"
            return (
                f"its key has no {_bounds_text(bounds)} of the rows that the {side} side is met by"
            )
        return ""

    def depends(self, v: Vertex) -> bool:
        """Whether a stream depends on an input with a lateness."""
        if v not in self._depends:
            self._depends[v] = False  # a fed back stream depends on the loop's other inputs
            inputs = (self.graph.loops[v],) if v in self.graph.loops else v.inputs
            is_dependent = isinstance(v.operator, InTime) or any(map(self.depends, inputs))
            self._depends[v] = is_dependent
        return self._depends[v]


def _bounds_text(bounds: LowerBounds) -> str:
    return " or ".join(dict.fromkeys(str(b.value) for b in bounds))
