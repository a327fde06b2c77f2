"""Cuts a step into segments. Spark's tasks compute a segment, each task for a part of the keys.

A task computes a stream with Arrow if it has all rows that the stream reads for its part of the
keys. So a stream is sent to its readers by the hash of the key by which they read it. If they take
its rows one by one, it stays where it was computed. The greatest time of an input is sent to all
parts. Rows are exchanged between two segments: a segment is a stage of Spark, and a step is one
job. One task runs a recursion, for all keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import (
    ALL,
    Add,
    ByWatermark,
    Haitch,
    IdentityPrint,
    InTime,
    Linearity,
    LookUp,
    Map,
    Operator,
    Settled,
    join_of,
)
from stepping_spark.circuit.physical import cells_of, walk
from stepping_spark.expressions.arrow_kernels import is_known
from stepping_spark.expressions.expr import Expr, field_of, replaced
from stepping_spark.expressions.portable import Bucket
from stepping_spark.plan.loop import LoopPlan
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.step_ir import (
    Apply,
    Leaf,
    Materialized,
    Read,
    Ref,
    RegisterPlan,
    Term,
    is_nothing,
    nodes,
    python_of,
)

KeyParts = tuple[Expr, ...]
Needs = dict[Vertex, KeyParts | None]
ANYWHERE: KeyParts = (ALL,)
EVERYWHERE: KeyParts = (ALL, ALL)
"""Instead of a key: the rows are sent to all parts of the keys."""
WHOLE: KeyParts = ()
"""The key of no columns: all rows are sent to one part."""


class NotInTasks(Exception):
    """Tasks cannot compute a step; the message names the reason."""


class NotThisTime(NotInTasks):
    """Tasks cannot compute a step because of its rows."""


class TooMany(NotThisTime):
    """A part of the keys has too many rows for a task."""


class LargeOutput(NotThisTime):
    """An output has more rows than the driver fetches."""


@dataclass(frozen=True)
class Route:
    """A stream, sent by the hash of a key; without a key it stays where it was computed."""

    vertex: Vertex
    key: KeyParts | None


@dataclass(frozen=True)
class Piece:
    """A stream to compute, or a summand of one, and the routes of the streams that it reads.

    One task computes a piece that reads a `whole` register.
    """

    member: Materialized
    routes: Mapping[Vertex, Route]
    whole: bool


@dataclass(frozen=True)
class LoopPiece:
    """The recursive streams of a loop, which one task computes, and the routes of its inputs."""

    loop: LoopPlan
    members: tuple[Materialized, ...]
    routes: Mapping[Vertex, Route]
    whole: ClassVar[bool] = True


@dataclass(frozen=True)
class Segment:
    """The pieces that tasks compute of the streams sent to them, and the additions to registers."""

    pieces: tuple[Piece | LoopPiece, ...]
    adds: tuple[tuple[RegisterPlan, Route], ...]

    @property
    def reads(self) -> frozenset[Route]:
        """The routes that the segment reads."""
        of_pieces = (route for p in self.pieces for route in p.routes.values())
        return frozenset([*of_pieces, *(route for _, route in self.adds)])


@dataclass(frozen=True)
class Segments:
    """The segments of a step. The first one has the changes of the inputs, in no order of keys.

    `sent` has, for each route, the segment that computes its stream, and the last one that reads
    the route. `empty` are the streams without rows, of which no segment has a piece.
    """

    segments: tuple[Segment, ...]
    sent: Mapping[Route, tuple[int, int]] = field(default_factory=dict)
    empty: frozenset[Vertex] = frozenset()


def segments_of(plan: Plan, empty: Iterable[Vertex] = ()) -> Segments:
    """The segments of a plan for a step in which some inputs are empty.

    Raises `NotInTasks` if tasks cannot compute a part of the plan that has rows.
    """
    return _Cut(plan, empty).segments()


class _Cut:
    """Cuts one plan, and holds the intermediate results."""

    def __init__(self, plan: Plan, empty: Iterable[Vertex]) -> None:
        self._plan = plan
        self._empty = set(empty)
        self._places: dict[Vertex, int] = dict.fromkeys(plan.graph.inputs, 0)
        self._keys: dict[Vertex, KeyParts | None] = {}  # by which the rows of a stream are spread
        self._placed: list[tuple[int, Piece | LoopPiece]] = []
        self._adds: list[tuple[int, tuple[RegisterPlan, Route]]] = []
        self._sent: dict[Route, tuple[int, int]] = {}

    def segments(self) -> Segments:
        loops = self._plan.loops
        for stage in self._plan.stages:
            looping = [m for m in stage.streams if m.vertex in loops]
            for loop in dict.fromkeys(loops[m.vertex] for m in looping):
                self._place_loop(loop, tuple(m for m in looping if loops[m.vertex] is loop))
            for m in stage.streams:
                if m.vertex in loops:
                    continue
                term = self._with_rows(m.term)
                if term is None:
                    self._empty.add(m.vertex)
                else:
                    self._place(m if term is m.term else Materialized(m.vertex, term))
        for state in self._plan.states:
            if state.change in self._empty:
                continue
            self._check_key_known(state)
            key = self._sending(state.change, state.key or ANYWHERE)
            at = self._at(state.change, key)
            self._adds.append((at, (state, self._used(state.change, key, at))))
        number = 1 + max((at for at, _ in (*self._placed, *self._adds)), default=0)
        segments = (
            Segment(
                tuple(p for at, p in self._placed if at == n),
                tuple(a for at, a in self._adds if at == n),
            )
            for n in range(number)
        )
        return Segments(tuple(segments), self._sent, frozenset(self._empty))

    def _is_empty(self, leaf: Leaf) -> bool:
        """Whether a leaf has no rows: a stream, or a register that is read by no keys."""
        if isinstance(leaf, Ref):
            return leaf.vertex in self._empty
        keys = leaf.by if isinstance(leaf, Read) and leaf.due is None else ()
        return bool(keys) and all(k.of in self._empty for k in keys)

    def _with_rows(self, t: Term) -> Term | None:
        """A term without summands that have no rows; None if it has none."""
        if is_nothing(t, self._is_empty):
            return None
        if not isinstance(t, Apply):
            return t
        if not isinstance(t.operator, Add):
            return t
        args = tuple(a for a in map(self._with_rows, t.args) if a is not None)
        if args == t.args:
            return t
        return args[0] if len(args) == 1 else Apply(t.vertex, t.operator, args)

    def _pieces(self, m: Materialized) -> Iterator[tuple[Materialized, Needs]]:
        """A stream and its needs; or its summands, if they read one stream by different keys."""
        op = m.vertex.operator
        if isinstance(op, IdentityPrint):
            raise NotInTasks(f"{op.name} is for the driver")
        try:
            yield m, self._needs(m.term)
        except _Clash:
            t = m.term
            if not isinstance(t, Apply) or not isinstance(t.operator, Add):
                raise NotInTasks("an operator reads a stream by two keys") from None
            for arg in t.args:
                yield from self._pieces(Materialized(m.vertex, arg))

    def _needs(self, t: Term) -> Needs:
        """The streams that a term reads, each with its key."""
        self._check_known(t)
        needs: Needs = {}
        self._collect(t, WHOLE if reads_whole(t) else None, needs)
        return needs

    @staticmethod
    def _check_key_known(state: RegisterPlan) -> None:
        if not all(is_known(e) for _, e in state.stored):
            raise NotInTasks("only Spark knows a function of a key")

    @staticmethod
    def _check_known(t: Term) -> None:
        """Raise `NotInTasks` if neither Arrow nor Python knows a function in a term."""
        for n in nodes(t):
            exprs = (e for tree in n.trees for x in walk(tree) for e in x.exprs)
            if python_of(n.vertex) is None and not all(map(is_known, exprs)):
                raise NotInTasks(f"only Spark knows a function in {n.operator.name}")

    def _collect(self, t: Term, key: KeyParts | None, needs: Needs) -> None:
        if isinstance(t, Apply):
            if key is None and (streams := self._anywhere(t)):
                for v in streams:
                    self._need(v, None, needs)
                return
            of_rows = _of_rows(t)
            for arg, by in zip(of_rows, _keys_of_args(t, key), strict=True):
                if by and isinstance(arg, Apply):
                    by = _key_before(arg, by, t.operator)
                self._collect(arg, by, needs)
            for greatest in t.args[len(of_rows) :]:
                assert isinstance(greatest, Read)
                if greatest.new:
                    self._need(greatest.change, EVERYWHERE, needs)
        elif isinstance(t, Ref):
            self._need(t.vertex, key, needs)
        else:
            assert isinstance(t, Read)  # the slices of streams are in recursions
            for v, by in [*((k.of, k.key) for k in t.by), *[(t.change, t.key)] * t.new]:
                self._need(v, by, needs)
            for v, _ in t.due.marks if t.due is not None else ():
                self._need(v, EVERYWHERE, needs)

    def _need(self, v: Vertex, key: KeyParts | None, needs: Needs) -> None:
        # A stream whose rows are taken one by one may be sent by any key.
        if v in self._empty:
            return
        if needs.get(v) is None:
            needs[v] = key
        elif key not in (None, needs[v]):
            raise _Clash

    def _anywhere(self, t: Apply) -> frozenset[Vertex]:
        """The streams of a join whose rows may be anywhere; empty if they must be sent by its key.

        It joins rows of a stream with those that a register has for their keys, which any task
        finds in the state: this step does not change them.
        """
        if not isinstance(t.operator, LookUp) and join_of(t.operator) is None:
            return frozenset()
        for read, other in (t.args, t.args[::-1]):
            if not isinstance(read, Read) or not isinstance(other, Ref):
                continue
            if not read.new or read.change in self._empty:
                of = frozenset(k.of for k in read.by)
                return of if other.vertex in of else frozenset()
        return frozenset()

    def _place_loop(self, loop: LoopPlan, members: tuple[Materialized, ...]) -> None:
        """Find the segment of a loop, after those of its inputs."""
        given = [v for v in dict.fromkeys(loop.inputs) if v not in self._empty]
        if not given:
            self._empty.update(m.vertex for m in members)
            return
        for m in (m for r in loop.rounds for m in r.members):
            self._check_known(m.term)
        for state in loop.states:
            self._check_key_known(state)
        at = max(self._at(v, WHOLE) for v in given)
        self._places.update(dict.fromkeys((m.vertex for m in members), at))
        routes = {v: self._used(v, WHOLE, at) for v in given}
        self._placed.append((at, LoopPiece(loop, members, routes)))

    def _place(self, m: Materialized) -> None:
        """Find the segment of a stream: the first one that can have all streams that it reads."""
        pieces = [
            (piece, {v: self._sending(v, k) for v, k in needs.items()})
            for piece, needs in self._pieces(m)
        ]
        # The first segment has no parts of the keys, which share the work of reading registers,
        # and that of calling Python.
        at = max(
            int(m.python is not None or any(map(_reads_rows, (p.term for p, _ in pieces)))),
            *(self._at(v, key) for _, needs in pieces for v, key in needs.items()),
            0,
        )
        self._places[m.vertex] = at
        for piece, needs in pieces:
            routes = {v: self._used(v, key, at) for v, key in needs.items()}
            self._placed.append((at, Piece(piece, routes, reads_whole(piece.term))))
        op = m.vertex.operator
        if isinstance(op, Haitch) and op.of.row_at == ():
            keys = {key for _, needs in pieces for key in needs.values()}
            if len(keys) == 1 and None not in keys:  # its rows are rows of the change
                self._keys[m.vertex] = keys.pop()

    def _sending(self, v: Vertex, key: KeyParts | None) -> KeyParts | None:
        """The key by which to send a stream; None if its rows are spread by that key already.

        The key without its bucket will do: all buckets of a key are then in one task.
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
            key = ANYWHERE  # changes are not spread by a key
        route = Route(v, key)
        _, last = self._sent.get(route, (place, 0))
        self._sent[route] = place, max(last, at)
        return route


class _Clash(Exception):
    """A term reads a stream by two keys."""


def reads_whole(t: Term) -> bool:
    """Whether a term reads all rows of a register, rather than those of some keys or times."""
    return any(not x.by and x.due is None for x in _reads_of_rows(t))


def _reads_of_rows(t: Term) -> Iterator[Read]:
    """The registers that a term reads, but for those that have a greatest time."""
    if isinstance(t, Read):
        yield t
    for arg in _of_rows(t) if isinstance(t, Apply) else ():
        yield from _reads_of_rows(arg)


def _reads_rows(t: Term) -> bool:
    return any(True for _ in _reads_of_rows(t))


def _of_rows(t: Apply) -> tuple[Term, ...]:
    """The arguments of an operator, but for the greatest times of inputs, which all tasks have."""
    first = t.parts[0]
    return t.args[: first.of_rows] if isinstance(first, ByWatermark) else t.args


def _keys_of_args(t: Apply, key: KeyParts | None) -> tuple[KeyParts | None, ...]:
    """The keys by which an operator reads its rows, if its own result is read by a key."""
    args, first = _of_rows(t), t.parts[0]
    if key == WHOLE or all(p.by_row for p in t.parts):
        return (key,) * len(args)
    keys: dict[int, KeyParts] = {}
    for n, lookup in t.operator.lookups(*t.types).items():
        keys |= {n: lookup.key, **dict(lookup.at)}
    if isinstance(first, Settled):
        keys[1] = keys[0]  # the change, with the state
    if first.linearity is Linearity.PER_KEY:
        keys = {n: of.keyed_by(t.types[n]) for n, of in enumerate(first.folds)}
    if len(keys) < len(args):
        raise NotInTasks(f"{t.operator.name} is for the driver")
    if not all(keys.values()):
        raise NotInTasks(f"{t.operator.name} has no key")
    return tuple(keys[n] for n in range(len(args)))


def _key_before(t: Apply, key: KeyParts, reader: Operator) -> KeyParts:
    """The key over the rows that an operator reads, for a key over those of its result.

    Rows that are equal in the one are equal in the other.
    """
    for op in reversed(t.parts):
        if isinstance(op, InTime) or (op.keeps_rows and op.by_row):
            continue
        if not isinstance(op, Map) or op.carried or python_of(t.vertex) is not None:
            raise NotInTasks(f"{reader.name} reads the result of {t.operator.name}")
        key = _over_row_of(op.f, key)
    return key


def _over_row_of(f: Expr, key: KeyParts) -> KeyParts:
    """A key over the rows that a function makes, as one over its own rows."""
    if key == (ALL,):
        return tuple(cell.expr for cell in cells_of(f))
    return tuple(replaced(e, lambda field: field_of(f, field.path, field.type)) for e in key)
