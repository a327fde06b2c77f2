"""Cuts a step into segments. Spark's tasks compute a segment, each task for a part of the keys.

A task computes a stream with Arrow if it has all rows that the stream reads for its part of the
keys. So a stream is sent to its readers by the hash of the key by which they read it. If they
process its rows one by one, it stays where it was computed. The greatest time of an input is sent
to all parts. Rows are exchanged between two segments: a segment is a stage of Spark, and a step is
one job. A single task runs a recursion, and any stream that no key cuts into parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeGuard

from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import (
    ALL,
    Add,
    ByWatermark,
    InTime,
    Linearity,
    LookUp,
    Map,
    Settled,
    join_of,
)
from stepping_spark.circuit.physical import cells_of, walk
from stepping_spark.expressions.arrow_kernels import is_known
from stepping_spark.expressions.expr import Expr, Field, NotComposed, field_of, replaced
from stepping_spark.plan.loop import LoopPlan
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.spread import (
    NOT_SPREAD,
    Picks,
    Spread,
    picked,
    picks_of,
    spread_by,
    spread_of,
)
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
from stepping_spark.rows.schema import ZSetType

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
    """Tasks cannot compute a step because of its rows, or because a worker was lost."""


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

    One task computes a `whole` piece, from all rows of its streams.
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
    """The pieces that tasks compute from streams sent to them, and the additions to registers."""

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

    `sent` has, for each route, the segment that computes its stream, and the last segment that
    reads it. `empty` are the streams without rows, which no segment computes. Equal rows of an
    `apart` stream are in one part of the keys. A single task computes each of the `uncut` streams,
    from all rows that the stream reads.
    """

    segments: tuple[Segment, ...]
    sent: Mapping[Route, tuple[int, int]] = field(default_factory=dict)
    empty: frozenset[Vertex] = frozenset()
    apart: frozenset[Vertex] = frozenset()
    uncut: frozenset[Vertex] = frozenset()


_LEAST_SEGMENTS = 2
"""The least segments of a step: one for the changes, and one for parts of the keys."""


def segments_of(plan: Plan, empty: Iterable[Vertex] = (), *, keeps: bool = True) -> Segments:
    """The segments of a plan for a step in which some inputs are empty.

    With `keeps=False`, nothing is added to registers. Raises `NotInTasks` if tasks cannot compute a
    part of the plan that has rows.
    """
    empty = tuple(empty)
    anywhere: dict[Vertex, KeyParts] = {}
    best = _Cut(plan, empty, anywhere, keeps=keeps).segments()
    # Rows that may be anywhere may as well be where a later reader needs them.
    for v in dict.fromkeys(r.vertex for r in best.sent if r.key == ANYWHERE):
        for name, t in v.type.schema.columns:
            if len(best.segments) <= _LEAST_SEGMENTS:
                break
            by_column = {**anywhere, v: (Field(t, (name,)),)}
            candidate = _Cut(plan, empty, by_column, keeps=keeps).segments()
            if len(candidate.segments) < len(best.segments):
                best, anywhere = candidate, by_column
    return best


class _Cut:
    """Cuts one plan, and holds the intermediate results. Segments are known by their numbers.

    `anywhere` has the keys for streams of the first segment whose rows may be anywhere; the other
    ones are sent by all columns. `segments` is called once.
    """

    def __init__(
        self,
        plan: Plan,
        empty: Iterable[Vertex],
        anywhere: Mapping[Vertex, KeyParts],
        *,
        keeps: bool,
    ) -> None:
        self._plan = plan
        self._keeps = keeps
        self._empty = set(empty)
        self._keys_of_anywhere = anywhere
        self._segment_of: dict[Vertex, int] = dict.fromkeys(plan.graph.inputs, 0)
        self._spread: dict[Vertex, Spread] = {}
        self._numbered_pieces: list[tuple[int, Piece | LoopPiece]] = []
        self._numbered_additions: list[tuple[int, tuple[RegisterPlan, Route]]] = []
        self._sent: dict[Route, tuple[int, int]] = {}  # see `Segments`
        self._uncut: set[Vertex] = set()

    def segments(self) -> Segments:
        loops = self._plan.loops
        for stage in self._plan.stages:
            looping = [m for m in stage.streams if m.vertex in loops]
            for m in stage.streams:
                if m in looping:
                    continue
                term = self._with_rows(m.term)
                if term is None:
                    self._empty.add(m.vertex)
                else:
                    self._place(m if term is m.term else Materialized(m.vertex, term))
            for loop in dict.fromkeys(loops[m.vertex] for m in looping):
                self._place_loop(loop, tuple(m for m in looping if loops[m.vertex] is loop))
        last = max((number for number, _ in self._numbered_pieces), default=0)
        for state in self._plan.states if self._keeps else ():
            if state.change not in self._empty:
                self._check_key_known(state)
                self._numbered_additions.append(self._addition(state, last))
        numbered = (*self._numbered_pieces, *self._numbered_additions)
        segments = (
            Segment(
                tuple(p for number, p in self._numbered_pieces if number == i),
                tuple(a for number, a in self._numbered_additions if number == i),
            )
            for i in range(1 + max((number for number, _ in numbered), default=0))
        )
        apart = frozenset(v for v, spread in self._spread.items() if spread)
        empty, uncut = frozenset(self._empty), frozenset(self._uncut)
        return Segments(tuple(segments), self._sent, empty, apart, uncut)

    def _is_empty(self, leaf: Leaf) -> bool:
        """Whether a leaf has no rows: an empty stream, or a register read by the keys of such."""
        if isinstance(leaf, Ref):
            return leaf.vertex in self._empty
        keys = leaf.by if isinstance(leaf, Read) and leaf.due is None else ()
        return bool(keys) and all(k.of in self._empty for k in keys)

    def _with_rows(self, t: Term) -> Term | None:
        """A term without its empty summands; None if all of it is empty."""
        if is_nothing(t, self._is_empty):
            return None
        if not isinstance(t, Apply):
            return t
        args = tuple(map(self._with_rows, t.args))
        if isinstance(t.operator, Add):
            args_left = tuple(a for a in args if a is not None)
            if len(args_left) == 1:
                return args_left[0]
        else:
            args_left = tuple(a or old for a, old in zip(args, t.args, strict=True))
        return t if args_left == t.args else Apply(t.vertex, t.operator, args_left)

    def _pieces(self, m: Materialized) -> Iterator[tuple[Materialized, Needs, bool]]:
        """A stream and its needs; or its summands, if they read one stream by different keys.

        A piece that cannot be computed by a key is whole: one task computes it.
        """
        self._check_known(m.term)
        t, whole = m.term, reads_whole(m.term)
        try:
            needs: Needs = {}
            self._collect(t, WHOLE if whole else None, needs)
            yield m, needs, whole
        except _NotByKey:
            if isinstance(t, Apply) and isinstance(t.operator, Add):
                for arg in t.args:
                    yield from self._pieces(Materialized(m.vertex, arg))
            else:
                whole_streams: Needs = dict.fromkeys(self._streams_read(t), WHOLE)
                if any(isinstance(v.type, ZSetType) for v in whole_streams):
                    self._uncut.add(m.vertex)
                yield m, whole_streams, True

    def _streams_read(self, t: Term) -> Iterator[Vertex]:
        """The streams with rows that a term reads, and those by whose keys it reads registers."""
        for leaf in Materialized.leaves_of(t):
            streams = [leaf.vertex] if isinstance(leaf, Ref) else []
            if isinstance(leaf, Read):
                assert leaf.due is None  # rows that wait for their time have a term of their own
                streams = [*(k.of for k in leaf.by), *[leaf.change] * leaf.new]
            yield from (v for v in streams if v not in self._empty)

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
        """Add the streams that a term reads to `needs`, each with the key by which it is sent.

        `key` is the key by which the term's result is read; None: its rows may be anywhere. Raises
        `_NotByKey` if the term has no such key for a stream, or two.
        """
        if isinstance(t, Apply):
            if key is None and (streams := self._streams_anywhere(t)):
                for v in streams:
                    self._need(v, None, needs)
                return
            row_args = _row_args(t)
            for arg, arg_key in zip(row_args, _keys_of_args(t, key), strict=True):
                if arg_key and isinstance(arg, Apply):
                    arg_key = _key_before(arg, arg_key)
                self._collect(arg, arg_key, needs)
            for greatest in t.args[len(row_args) :]:
                assert isinstance(greatest, Read)
                if greatest.new:
                    self._need(greatest.change, EVERYWHERE, needs)
        elif isinstance(t, Ref):
            self._need(t.vertex, key, needs)
        else:
            assert isinstance(t, Read)  # the slices of streams are in recursions
            for v, own_key in [*((k.of, k.key) for k in t.by), *[(t.change, t.key)] * t.new]:
                self._need(v, own_key, needs)
            for v, _ in t.due.marks if t.due is not None else ():
                self._need(v, EVERYWHERE, needs)

    def _need(self, v: Vertex, key: KeyParts | None, needs: Needs) -> None:
        """Add one stream to `needs`. Raises `_NotByKey` if it is there with another key."""
        # A stream whose rows are processed one by one may be sent by any key.
        if v in self._empty:
            return
        if needs.get(v) is None:
            needs[v] = key
        elif key not in (None, needs[v]):
            raise _NotByKey

    def _streams_anywhere(self, t: Apply) -> frozenset[Vertex]:
        """The streams of a join whose rows may be anywhere; empty if they must be sent by its key.

        Such a join matches rows of a stream with rows of a register that this step does not change:
        any task can look these up in the state.
        """
        if not isinstance(t.operator, LookUp) and join_of(t.operator) is None:
            return frozenset()
        for lookup, stream in (t.args, t.args[::-1]):
            if not isinstance(lookup, Read) or not isinstance(stream, Ref):
                continue
            if not lookup.new or lookup.change in self._empty:
                key_streams = frozenset(k.of for k in lookup.by)
                return key_streams if stream.vertex in key_streams else frozenset()
        return frozenset()

    def _place_loop(self, loop: LoopPlan, members: tuple[Materialized, ...]) -> None:
        """Find the segment of a loop, after the segments of its inputs."""
        inputs = [v for v in dict.fromkeys(loop.inputs) if v not in self._empty]
        if not inputs:
            self._empty.update(m.vertex for m in members)
            return
        for m in (m for r in loop.rounds for m in r.members):
            self._check_known(m.term)
        for state in loop.states:
            self._check_key_known(state)
        number = max(self._first_segment(v, WHOLE) for v in inputs)
        self._segment_of.update(dict.fromkeys((m.vertex for m in members), number))
        self._uncut.update(m.vertex for m in members)
        routes = {v: self._add_route(v, WHOLE, number) for v in inputs}
        self._numbered_pieces.append((number, LoopPiece(loop, members, routes)))

    def _place(self, m: Materialized) -> None:
        """Find the segment of a stream: the first one to which all of its inputs can be sent."""
        pieces = [(p, self._routing(needs), whole) for p, needs, whole in self._pieces(m)]
        # The first segment has no parts of the keys. Parts share the work of reading registers and
        # of calling Python.
        number = max(
            int(m.python is not None or any(map(_reads_rows, (p.term for p, *_ in pieces)))),
            *(
                self._first_segment(v, key)
                for _, routing, _ in pieces
                for v, key in routing.sent.items()
            ),
            0,
        )
        self._segment_of[m.vertex] = number
        spreads = []
        for piece, routing, whole in pieces:
            routes = {v: self._add_route(v, key, number) for v, key in routing.sent.items()}
            self._numbered_pieces.append((number, Piece(piece, routes, whole)))
            spreads.append(NOT_SPREAD if whole else self._spread_in(piece.term, routing, routes))
        if number:
            self._spread[m.vertex] = frozenset.intersection(*spreads)

    def _routing(self, needs: Needs) -> _Routing:
        """The routing, of the streams that a piece reads, with which it can begin soonest.

        All streams may be sent by the same values that their keys determine: rows with equal keys
        meet then, too. A stream that is spread by these values already stays where it is.
        """
        keyed = {v: k for v, k in needs.items() if _is_key(k)}
        choices: dict[Picks | None, _Routing] = {}
        for picks in (None, *self._picks(keyed)):
            sent = dict(needs)
            for v, key in keyed.items():
                values = picked(key, picks)
                if values is None:
                    break
                sent[v] = None if spread_by(values) <= self._spread_at(v) else values
            else:
                choices.setdefault(picks, _Routing(sent, keyed, picks))
        return min(choices.values(), key=self._cost)

    def _picks(self, keyed: Mapping[Vertex, KeyParts]) -> Iterator[Picks]:
        """The values that keys determine, and by which at least one of the streams is spread."""
        schemas_by_all = {v.type.schema for v, k in keyed.items() if k == (ALL,)}
        if len({len(k) for k in keyed.values()}) != 1 or len(schemas_by_all) > 1:
            return
        if schemas_by_all and any(k != (ALL,) for k in keyed.values()):
            return
        for v, key in keyed.items():
            for values in sorted(self._spread_at(v), key=str):
                picks = picks_of(values, key)
                if picks is not None:
                    yield picks

    def _cost(self, routing: _Routing) -> tuple[int, int]:
        """The first segment of a piece with this routing, and how many streams it has to send."""
        number = max((self._first_segment(v, key) for v, key in routing.sent.items()), default=0)
        return number, sum(key is not None for key in routing.sent.values())

    def _spread_at(self, v: Vertex) -> Spread:
        """The spread of a stream in its own segment; unknown in the first one."""
        return self._spread.get(v, NOT_SPREAD)

    def _spread_in(self, t: Term, routing: _Routing, routes: Mapping[Vertex, Route]) -> Spread:
        """The spread of the rows of a term."""

        def leaf_spread(leaf: Leaf) -> Spread:
            if isinstance(leaf, Ref):
                route = routes.get(leaf.vertex)
                if route is None or route.key in (WHOLE, EVERYWHERE):
                    return NOT_SPREAD
                return self._spread_at(leaf.vertex) if route.key is None else spread_by(route.key)
            assert isinstance(leaf, Read)
            # Its rows are in the parts of the streams' rows, unless these were sent by other keys.
            sent_by_keys = (routing.keyed.get(k.of) == k.key for k in leaf.by)
            if not leaf.by or not all(sent_by_keys):
                return NOT_SPREAD
            values = picked(leaf.key, routing.picks)
            return NOT_SPREAD if values is None else spread_by(values)

        return spread_of(t, leaf_spread)

    def _addition(self, state: RegisterPlan, last: int) -> tuple[int, tuple[RegisterPlan, Route]]:
        """The segment that adds to a register, and the register with the route of the rows.

        `last` is the last segment with a piece.

        Rows are sent so that each task has a range of the register's keys. To save a further
        exchange, they stay where they are if equal rows are in one task already.
        """
        v, key = state.change, state.key or ANYWHERE
        spread = self._spread_at(v)
        sent: KeyParts | None = key
        if spread_by(key) <= spread or (
            self._segment_of[v] >= last and any(picks_of(values, key) for values in spread)
        ):
            sent = None
        number = self._first_segment(v, sent)
        return number, (state, self._add_route(v, sent, number))

    def _first_segment(self, v: Vertex, key: KeyParts | None) -> int:
        """The first segment that can read a stream by a key."""
        return self._segment_of[v] + (key is not None)

    def _add_route(self, v: Vertex, key: KeyParts | None, number: int) -> Route:
        """The route of a stream that a segment reads by a key; adds this reader to `_sent`."""
        computed_in = self._segment_of[v]
        if key is None and computed_in == 0 < number:  # changes of inputs are not spread by any key
            key = self._keys_of_anywhere.get(v, ANYWHERE)
        route = Route(v, key)
        _, last_reader = self._sent.get(route, (computed_in, 0))
        self._sent[route] = computed_in, max(last_reader, number)
        return route


@dataclass(frozen=True)
class _Routing:
    """The keys by which the streams of a piece are sent; None: a stream is not sent.

    `picks` selects values from the original keys, `keyed`; None: all values.
    """

    sent: Needs
    keyed: Mapping[Vertex, KeyParts]
    picks: Picks | None


class _NotByKey(Exception):
    """Signal: a term has no key for the rows that it needs together, or two keys for a stream."""


def _is_key(key: KeyParts | None) -> TypeGuard[KeyParts]:
    return bool(key) and key != EVERYWHERE


def reads_whole(t: Term) -> bool:
    """Whether a term reads all rows of a register, and not only some keys or times."""
    return any(not x.by and x.due is None for x in _reads_of_rows(t))


def _reads_of_rows(t: Term) -> Iterator[Read]:
    """The reads of registers in a term, except for registers of greatest times."""
    if isinstance(t, Read):
        yield t
    for arg in _row_args(t) if isinstance(t, Apply) else ():
        yield from _reads_of_rows(arg)


def _reads_rows(t: Term) -> bool:
    return any(True for _ in _reads_of_rows(t))


def _row_args(t: Apply) -> tuple[Term, ...]:
    """The arguments of an operator that are rows: all but the greatest times of inputs.

    All tasks have these times.
    """
    first = t.parts[0]
    return t.args[: first.row_inputs] if isinstance(first, ByWatermark) else t.args


def _keys_of_args(t: Apply, key: KeyParts | None) -> tuple[KeyParts | None, ...]:
    """The keys by which an operator reads its arguments, if its own result is read by `key`."""
    args, first_part = _row_args(t), t.parts[0]
    if key == WHOLE or all(p.by_row for p in t.parts):
        return (key,) * len(args)
    keys: dict[int, KeyParts] = {}
    for i, lookup in t.operator.lookups(*t.types).items():
        keys |= {i: lookup.key, **dict(lookup.at)}
    if isinstance(first_part, Settled):
        keys[1] = keys[0]  # the change, with the state
    if first_part.linearity is Linearity.PER_KEY:
        keys = {i: fold.keyed_by(t.types[i]) for i, fold in enumerate(first_part.folds)}
    if len(keys) < len(args) or not all(keys.values()):
        raise _NotByKey
    return tuple(keys[i] for i in range(len(args)))


def _key_before(t: Apply, key: KeyParts) -> KeyParts:
    """A key over an operator's input rows that is equivalent to a key over its result rows."""
    for op in reversed(t.parts):
        if isinstance(op, InTime) or (op.keeps_rows and op.by_row):
            continue
        if not isinstance(op, Map) or op.carried or python_of(t.vertex) is not None:
            raise _NotByKey
        key = _over_row_of(op.f, key)
    return key


def _over_row_of(f: Expr, key: KeyParts) -> KeyParts:
    """A key over the results of a function, as a key over its input rows."""
    if key == (ALL,):
        return tuple(cell.expr for cell in cells_of(f))
    try:
        return tuple(replaced(e, lambda field: field_of(f, field.path, field.type)) for e in key)
    except NotComposed as e:
        raise _NotByKey from e
