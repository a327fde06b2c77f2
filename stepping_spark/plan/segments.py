"""Cuts a step into segments. Spark's tasks compute each of them, every task a part of the keys.

A task computes a stream with Arrow if it has all rows that the stream reads for its part of the
keys. So a stream is sent to where it is read, by the hash of the key by which it is read there, or
it stays where it was computed, if its rows are taken one by one. Rows change places between two
segments: a segment is a stage of Spark, and a step is one job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import (
    Add,
    Haitch,
    IdentityPrint,
    Linearity,
    LookUp,
    join_of,
)
from stepping_spark.circuit.physical import walk
from stepping_spark.expressions.arrow_kernels import is_known
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.portable import Bucket
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.step_ir import (
    ALL,
    Apply,
    Materialized,
    Read,
    Ref,
    RegisterPlan,
    Term,
    keys_of_each,
    nodes,
)

KeyParts = tuple[Expr, ...]
Needs = dict[Vertex, KeyParts | None]
ANYWHERE: KeyParts = (ALL,)


class NotInTasks(Exception):
    """Tasks do not compute something. The text says what."""


class TooMany(NotInTasks):
    """A task does not compute so many rows."""


@dataclass(frozen=True)
class Route:
    """A stream that is sent by the hash of a key; without a key, it stays where it was computed."""

    vertex: Vertex
    key: KeyParts | None


@dataclass(frozen=True)
class Piece:
    """A stream to compute, or a summand of one, and the routes of the streams that it reads.

    If it reads a register whole, one task computes it.
    """

    member: Materialized
    routes: Mapping[Vertex, Route]
    whole: bool


@dataclass(frozen=True)
class Segment:
    """What is computed and added to registers, of what was sent."""

    pieces: tuple[Piece, ...]
    adds: tuple[tuple[RegisterPlan, Route], ...]

    @property
    def reads(self) -> frozenset[Route]:
        """The routes that it reads."""
        of_pieces = (route for p in self.pieces for route in p.routes.values())
        return frozenset([*of_pieces, *(route for _, route in self.adds)])


@dataclass(frozen=True)
class Segments:
    """The segments of a step. The first has the changes as they come, one row at a time.

    `sent` has the first segment of each route, where its stream is computed, and the last one,
    which reads it.
    """

    segments: tuple[Segment, ...]
    sent: Mapping[Route, tuple[int, int]] = field(default_factory=dict)


def segments_of(plan: Plan) -> Segments:
    """The segments of a plan. Raises `NotInTasks` if it has something that tasks cannot compute."""
    if plan.graph.strict or plan.graph.lateness:
        raise NotInTasks("an input is checked against the state")
    if plan.loops:
        raise NotInTasks("a recursion goes on until nothing changes")
    return _Cut(plan).segments()


class _Cut:
    """Cuts one plan, and holds the intermediate results."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._places: dict[Vertex, int] = dict.fromkeys(plan.graph.inputs, 0)
        self._keys: dict[Vertex, KeyParts | None] = {}  # of streams that are in parts by a key
        self._pieces: list[tuple[int, Piece]] = []
        self._adds: list[tuple[int, tuple[RegisterPlan, Route]]] = []
        self._sent: dict[Route, tuple[int, int]] = {}

    def segments(self) -> Segments:
        for stage in self._plan.stages:
            for m in stage.streams:
                self._place(m)
        for state in self._plan.states:
            if not all(is_known(e) for _, e in state.stored):
                raise NotInTasks("only Spark knows a function of a key")
            key = self._sending(state.change, state.key or ANYWHERE)
            at = self._at(state.change, key)
            self._adds.append((at, (state, self._used(state.change, key, at))))
        number = 1 + max((at for at, _ in (*self._pieces, *self._adds)), default=0)
        segments = (
            Segment(
                tuple(p for at, p in self._pieces if at == n),
                tuple(a for at, a in self._adds if at == n),
            )
            for n in range(number)
        )
        return Segments(tuple(segments), self._sent)

    def _place(self, m: Materialized) -> None:
        """Find the segment of a stream: the first one where all that it reads can be."""
        pieces = [
            (piece, {v: self._sending(v, key) for v, key in needs.items()})
            for piece, needs in _pieces(m)
        ]
        # What comes before the first exchange is in no parts, of which one could read a register.
        at = max(
            int(any(reads_whole(piece.term) for piece, _ in pieces)),
            *(self._at(v, key) for _, needs in pieces for v, key in needs.items()),
            0,
        )
        self._places[m.vertex] = at
        for piece, needs in pieces:
            routes = {v: self._used(v, key, at) for v, key in needs.items()}
            self._pieces.append((at, Piece(piece, routes, reads_whole(piece.term))))
        op = m.vertex.operator
        if isinstance(op, Haitch) and op.of.row_at == ():
            keys = {key for _, needs in pieces for key in needs.values()}
            if len(keys) == 1 and None not in keys:  # its rows are rows of the change
                self._keys[m.vertex] = keys.pop()

    def _sending(self, v: Vertex, key: KeyParts | None) -> KeyParts | None:
        """The key by which to send a stream; None if it is in parts by that key.

        A part of the key will do. So buckets of a key are in the same task.
        """
        key = key and (tuple(e for e in key if not isinstance(e, Bucket)) or key)
        return None if key is not None and self._keys.get(v) == key else key

    def _at(self, v: Vertex, key: KeyParts | None) -> int:
        """The first segment that can read a stream by a key."""
        return self._places[v] + (key is not None)

    def _used(self, v: Vertex, key: KeyParts | None, at: int) -> Route:
        """The route of a stream that a segment reads by a key."""
        place = self._places[v]
        if key is None and place == 0 < at:
            key = ANYWHERE  # changes are in no parts as they come
        route = Route(v, key)
        _, last = self._sent.get(route, (place, 0))
        self._sent[route] = place, max(last, at)
        return route


class _Clash(Exception):
    """A term reads a stream by two keys."""


def _pieces(m: Materialized) -> Iterator[tuple[Materialized, Needs]]:
    """A stream with what it needs; or its summands, if they read a stream by different keys."""
    op = m.vertex.operator
    if m.python is not None or isinstance(op, IdentityPrint) or op.holds_back:
        raise NotInTasks(f"{op.name} is for the driver")
    try:
        yield m, _needs(m.term)
    except _Clash:
        t = m.term
        if not isinstance(t, Apply) or not isinstance(t.operator, Add):
            raise NotInTasks("an operator reads a stream by two keys") from None
        for arg in t.args:
            yield from _pieces(Materialized(m.vertex, arg))


def _needs(t: Term) -> Needs:
    """The streams that a term reads, each with its key."""
    for n in nodes(t):
        if not all(is_known(e) for tree in n.trees for x in walk(tree) for e in x.exprs):
            raise NotInTasks(f"only Spark knows a function in {n.operator.name}")
    if any(isinstance(x, Read) and x.due is not None for x in Materialized.leaves_of(t)):
        raise NotInTasks("rows are due by time")
    needs: Needs = {}
    _collect(t, () if reads_whole(t) else None, needs)
    return needs


def reads_whole(t: Term) -> bool:
    """Whether a term reads a register, and not at the keys of streams."""
    return any(isinstance(x, Read) and not x.by for x in Materialized.leaves_of(t))


def _collect(t: Term, key: KeyParts | None, needs: Needs) -> None:
    if isinstance(t, Apply):
        for arg, by in zip(t.args, _keys_of_args(t, key), strict=True):
            if by and isinstance(arg, Apply) and not all(p.keeps_rows for p in arg.parts):
                raise NotInTasks(f"{t.operator.name} reads what {arg.operator.name} gives")
            _collect(arg, by, needs)
        return
    if isinstance(t, Ref):
        streams: list[tuple[Vertex, KeyParts | None]] = [(t.vertex, key)]
    else:
        assert isinstance(t, Read)  # the slices of streams are in recursions
        streams = [*((k.of, k.key) for k in t.by), *[(t.change, t.key)] * t.new]
    for v, by in streams:
        # Rows that are taken one by one may be where others are joined.
        if needs.get(v) is None:
            needs[v] = by
        elif by not in (None, needs[v]):
            raise _Clash


def _keys_of_args(t: Apply, key: KeyParts | None) -> tuple[KeyParts | None, ...]:
    """The keys by which an operator reads its inputs, if its result is read by this one."""
    op, join = t.operator, join_of(t.operator)
    keys: tuple[KeyParts, ...]
    if key == () or all(p.linearity in _BY_ROW for p in t.parts):
        return (key,) * len(t.args)
    if join is not None:
        keys = (join.left.parts, join.right.parts)
    elif isinstance(op, LookUp):
        keys = (op.on, op.key)
    elif isinstance(op, Haitch):
        keys = tuple(k for k in keys_of_each(op.of, t.types[1::2]) for _ in range(2))
    else:
        raise NotInTasks(f"{op.name} is for the driver")
    if not all(keys):
        raise NotInTasks(f"{op.name} has no key")
    return keys


_BY_ROW = (Linearity.LINEAR, Linearity.TEMPORAL)
