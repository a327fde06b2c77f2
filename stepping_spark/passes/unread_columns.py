"""Joins keep only the columns that a reader needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from stepping_spark.circuit.graph import (
    AnyCircuit,
    Vertex,
    adopt,
    inner_origin,
    substitute,
)
from stepping_spark.circuit.operators import (
    Accumulate,
    Add,
    Arrange,
    Delay,
    Differentiate,
    Explode,
    Filter,
    Integrate,
    Join,
    Linearity,
    LookUp,
    Map,
    MapMany,
    Neg,
    Operator,
    Present,
    PrunedMap,
)
from stepping_spark.expressions.expr import (
    Build,
    Call,
    Expr,
    Field,
    Literal,
    Opaque,
    PythonCall,
)
from stepping_spark.expressions.fingerprint import read_in_text
from stepping_spark.expressions.portable import choice
from stepping_spark.rows.atoms import BOOL, RowType
from stepping_spark.rows.row_class import open_class
from stepping_spark.rows.schema import VALUE, Carrying, StreamType, ZSetType
from stepping_spark.rows.types import Optional, Struct, unwrap

Paths = frozenset[tuple[str, ...]]
"""The parts of a row that are read: paths of names, each with everything below it."""

WHOLE: Paths = frozenset({()})


def drop_unread(graph: AnyCircuit) -> AnyCircuit:
    """Let a join store only the columns of its inputs that are read: saves state, and its reads.

    π(a ⋈ b) = π(π_l(a) ⋈ π_r(b)), if π_l and π_r keep the keys and what π reads of their side. A
    stream that several joins read keeps what any of them needs, so that they share a register. It
    stays whole if another operator stores it by the key of one of the joins. A stream for a reader
    outside of the circuit stays whole too. A value that nothing reads is not computed, and so
    cannot fail.
    """
    of_join: set[Vertex] = set()
    for v in graph.walk():
        if _is_of_join(v, of_join):
            of_join.add(v)
    return _Pruning(graph, _Readers(graph, of_join), of_join).pruned()


def _is_of_join(v: Vertex, of_join: set[Vertex]) -> bool:
    """Whether each row of a stream is made of rows of a join; `of_join` knows its inputs."""
    if v.operator.linearity in (Linearity.BILINEAR, Linearity.LOOK_UP):
        return True
    return v.operator.linearity is Linearity.LINEAR and any(i in of_join for i in v.inputs)


def _is_pruned(v: Vertex, of_join: set[Vertex]) -> bool:
    """Whether a map makes only the columns that are read: one of rows of a join."""
    op = v.operator
    if not isinstance(op, Map) or op.carried or v.inputs[0] not in of_join:
        return False
    return isinstance(op.f, Build | Field) and not isinstance(_row_of(v.inputs[0].type), Carrying)


class _Readers:
    """The parts of the rows of each stream that its readers need."""

    def __init__(self, graph: AnyCircuit, of_join: set[Vertex]) -> None:
        self._of_join = of_join
        self.of: dict[Vertex, Paths] = defaultdict(frozenset)
        """By stream: the parts that any reader needs."""
        self.stored: dict[Vertex, Paths] = defaultdict(frozenset)
        """By stream of which joins store the sum, or read it: the parts that these need."""
        self._keys: dict[Vertex, set[tuple[Expr, ...]]] = defaultdict(set)  # of joins, by stream
        self._taken: dict[Vertex, set[tuple[Expr, ...]]] = defaultdict(set)  # of other registers
        self._stored_whole = set(graph.loops)  # streams with a register that has all columns
        for v in _read_outside(graph):
            self.of[v] = WHOLE
            stream, over_steps = summed(v)
            if over_steps:
                self._stored_whole.add(stream)
        for v in reversed(list(graph.walk())):  # each reader before what it reads
            self._add_stored(v)
            self.of[v] = _cut(self.of[v], v.type)
            self._add_inputs(v, self.of[v])

    def _add_stored(self, v: Vertex) -> None:
        """Decide what joins store of a stream, whose readers are known."""
        if v in self.stored:
            if v in self._stored_whole or self._keys[v] & self._taken[v]:
                self.stored[v] = WHOLE
            self.stored[v] = _cut(self.stored[v], v.type)
            self.of[v] |= self.stored[v]

    def _add_inputs(self, v: Vertex, read: Paths) -> None:
        """Add what an operator needs of its inputs, if these parts of its own rows are read."""
        match v.operator:
            case Map(f=f, carried=()):
                made = read if _is_pruned(v, self._of_join) else WHOLE
                self._add(v.inputs[0], _read_by(f, made, v.inputs[0].type))
            case MapMany(f=f, carried=()) | Explode(f=f, carried=()):
                self._add(v.inputs[0], _read_by(f, WHOLE, v.inputs[0].type))
            case Filter(f=f):
                self._add(v.inputs[0], read | _read_by(f, WHOLE, v.inputs[0].type))
            case Accumulate(key=key, pick=pick):
                exprs = [pick] if key is None else [key.expr, pick]
                self._add(v.inputs[0], _read_by_each(exprs, v.inputs[0].type))
            case Join(left=left, right=right):
                for side, key, of in zip(("left", "right"), (left, right), v.inputs, strict=True):
                    self._store(of, key.parts, _under(read, side))
            case LookUp() as lookup:
                self._add_lookup(lookup, v.inputs, read)
            case Present(key=parts):
                self._store(v.inputs[0], parts, frozenset())
            case Add() | Neg() | Integrate() | Differentiate() | Delay():
                for i in v.inputs:
                    self._add(i, read)
            case op:
                self._add_whole(op, v.inputs)

    def _add_lookup(self, op: LookUp, inputs: tuple[Vertex, ...], read: Paths) -> None:
        known, table = inputs
        self._store(table, op.key, _under(read, f"_{op.place + 1}"))
        parts = set(_read_by_each(op.on, known.type))
        for path in read:
            if not path:
                parts.add(path)
                continue
            number = int(path[0][1:]) - 1
            if number != op.place:
                member = number if number < op.place else number - 1
                parts.add(path[1:] if op.bare else (f"_{member + 1}", *path[1:]))
        if op.bare:
            self._store(known, op.on, frozenset(parts))
        else:
            self._add(known, frozenset(parts))

    def _add_whole(self, op: Operator, inputs: tuple[Vertex, ...]) -> None:
        """All columns of the inputs: the operator may compare whole rows, or show them."""
        for i in inputs:
            self._add(i, WHOLE)
            stream, _ = summed(i)
            if isinstance(op, Arrange):
                self._taken[stream].add(op.key.parts)
            elif op.linearity is Linearity.PER_KEY:
                self._taken[stream].add(op.keyed_by(i.type))

    def _store(self, v: Vertex, key: tuple[Expr, ...], read: Paths) -> None:
        stream, _ = summed(v)
        needed = read | _read_by_each(key, v.type)
        self.stored[stream] |= needed
        self._keys[stream].add(key)
        self._add(v, needed)

    def _add(self, v: Vertex, read: Paths) -> None:
        self.of[v] |= read


class _Pruning:
    """Builds the circuit anew, with rows of the columns that are read."""

    def __init__(self, graph: AnyCircuit, readers: _Readers, of_join: set[Vertex]) -> None:
        self._graph, self._readers, self._of_join = graph, readers, of_join
        self._origins = dict(graph.origins)
        self._new: dict[Vertex, Vertex] = {}

    def pruned(self) -> AnyCircuit:
        for v in self._graph.walk():
            built = Vertex(self._operator(v), *self._inputs(v)) if v.inputs else v
            adopt(built, self._origins[v], self._origins)
            self._new[v] = built
        return substitute(self._graph, lambda v: self._new.get(v, v), self._origins)

    def _operator(self, v: Vertex) -> Operator:
        op = v.operator
        if not isinstance(op, Map) or not _is_pruned(v, self._of_join):
            return op
        f = _restricted(op.f, self._readers.of[v], _row_of(self._new[v.inputs[0]].type))
        return op if f == op.f else PrunedMap(f, note=op.note, whole=op.f)

    def _inputs(self, v: Vertex) -> Iterator[Vertex]:
        match v.operator:
            case Join() | Present():
                stored = set(v.inputs)
            case LookUp(bare=bare):
                stored = set(v.inputs if bare else v.inputs[1:])
            case Add():
                for i in v.inputs:
                    yield self._picked(i, self._readers.of[v])
                return
            case _:
                stored = set()
        for i in v.inputs:
            if i in stored:
                yield self._picked(i, self._readers.stored[summed(i)[0]])
            else:
                yield self._new[i]

    def _picked(self, v: Vertex, read: Paths) -> Vertex:
        """The new stream of `v`, with no other columns than these."""
        stream, over_steps = summed(v)
        new = self._new[stream]
        if not isinstance(v.type, ZSetType):
            return self._new[v]
        row, target = _row_of(new.type), _pruned(v.type.row, read)
        if row == target:
            return self._new[v]
        picked = Vertex(PrunedMap(_projection(row, target, ())), new)
        for op in reversed(over_steps):
            picked = Vertex(op, picked)
        adopt(picked, inner_origin(self._origins[v], picked), self._origins)
        return picked


def summed(v: Vertex) -> tuple[Vertex, list[Operator]]:
    """The stream of whose sum, or old value, a stream is; and the operators above it.

    π(I(a)) = I(π(a)), and so it is for z⁻¹ and arrangements: a state is that of fewer columns.
    """
    operators: list[Operator] = []
    while v.operator.same_stream or isinstance(v.operator, Integrate):
        operators.append(v.operator)
        (v,) = v.inputs
    return v, operators


def _read_outside(graph: AnyCircuit) -> Iterator[Vertex]:
    """The streams whose rows are read by more than the operators of the circuit."""
    yield from (*graph.roots, *graph.caches.values(), *graph.strict.values())
    for leaf, source in graph.loops.items():
        yield leaf
        yield source
    for lateness in graph.lateness.values():
        yield from (lateness.in_time, lateness.late, lateness.greatest)


def _row_of(t: StreamType) -> RowType:
    assert isinstance(t, ZSetType)
    return t.row


def _under(paths: Paths, name: str) -> Paths:
    """The parts below a field that are read."""
    if () in paths:
        return WHOLE
    return frozenset(p[1:] for p in paths if p[0] == name)


def _cut(paths: Paths, t: StreamType) -> Paths:
    """The same parts, or more: parts that rows without the other columns can have.

    Tuples keep all members, and a row keeps a column. A row that may be NULL itself stays whole.
    """
    if not isinstance(t, ZSetType) or not isinstance(t.row, Struct) or isinstance(t.row, Carrying):
        return WHOLE
    return frozenset(_kept(paths, t.row))


def _kept(paths: Paths, t: RowType) -> Iterator[tuple[str, ...]]:
    t = unwrap(t)
    if () in paths or not isinstance(t, Struct) or not t.fields:
        yield ()
        return
    parts = {n: _under(paths, n) for n, _ in t.fields}
    first = t.fields[0][0]
    for name, of in t.fields:
        is_kept = t.python is tuple or (name == first and not any(parts.values()))
        if parts[name] or is_kept:
            yield from ((name, *rest) for rest in _kept(parts[name], of))


def _read_by_each(exprs: Iterable[Expr], t: StreamType) -> Paths:
    return frozenset().union(*(_read_by(e, WHOLE, t) for e in exprs))


def _read_by(e: Expr, result: Paths, t: StreamType) -> Paths:
    """The parts of a row that an expression reads, if these parts of its result are read."""
    if isinstance(e, Field):
        path = () if e.path == (VALUE,) else e.path
        return frozenset((*path, *p) for p in result)
    if isinstance(e, PythonCall):
        return WHOLE
    if isinstance(e, Opaque):
        return frozenset(path for path, _ in read_in_text(e.text, t.schema.columns))
    row = unwrap(e.type)
    if isinstance(e, Build) and isinstance(row, Struct) and () not in result:
        named = zip((n for n, _ in row.fields), e.fields, strict=True)
        read = ((part, _under(result, n)) for n, part in named)
        return frozenset().union(*(_read_by(part, of, t) for part, of in read if of))
    return _read_by_each(e.parts(), t)


def _pruned(t: RowType, read: Paths) -> RowType:
    """The type of rows with the parts that are read."""
    if isinstance(t, Optional):
        return Optional(_pruned(t.inner, read))
    if () in read or not isinstance(t, Struct):
        return t
    parts = ((n, of, _under(read, n)) for n, of in t.fields)
    return _with_fields(t, tuple((n, _pruned(of, p)) for n, of, p in parts if p))


def _with_fields(t: Struct, fields: tuple[tuple[str, RowType], ...]) -> Struct:
    if fields == t.fields:
        return t
    names = tuple(n for n, _ in fields)
    if t.python is tuple or (t.name == "Pair" and len(names) == len(t.fields)):
        return Struct(t.name, fields, t.python)
    return Struct(t.name, fields, open_class(names))


def _projection(row: RowType, target: RowType, path: tuple[str, ...]) -> Expr:
    """The part of a row at a path, which has this type there, with no other columns than these."""
    if unwrap(row) == unwrap(target):
        return Field(target, path)
    source, result = unwrap(row), unwrap(target)
    assert isinstance(source, Struct)
    assert isinstance(result, Struct)
    types = dict(source.fields)
    fields = tuple(_projection(types[n], t, (*path, n)) for n, t in result.fields)
    if not isinstance(row, Optional):
        return Build(target, fields)
    known = Call(BOOL, "isNotNull", (Field(row, path),))
    return choice(known, Build(result, fields), Literal(target, None))


def _restricted(e: Expr, read: Paths, row: RowType) -> Expr:
    """An expression over a row of this type, without the parts of its result that none reads."""
    result = unwrap(e.type)
    if () in read or not isinstance(result, Struct):
        return e
    if isinstance(e, Build):
        parts = [(n, p, _under(read, n)) for (n, _), p in zip(result.fields, e.fields, strict=True)]
        kept = [(n, _restricted(p, of, row)) for n, p, of in parts if of]
        target = _with_fields(result, tuple((n, p.type) for n, p in kept))
        t = target if result is e.type else Optional(target)
        return Build(t, tuple(p for _, p in kept))
    if isinstance(e, Field):
        return _projection(_type_at(row, e.path), _pruned(e.type, read), e.path)
    if isinstance(e, Literal) and e.constant is None:
        return Literal(_pruned(e.type, read), None)
    return e


def _type_at(row: RowType, path: tuple[str, ...]) -> RowType:
    is_null = False
    for name in path:
        if name == VALUE:
            continue  # the row itself, which may be NULL
        is_null = is_null or isinstance(row, Optional)
        struct = unwrap(row)
        assert isinstance(struct, Struct)
        row = dict(struct.fields)[name]
    return Optional(unwrap(row)) if is_null else row
