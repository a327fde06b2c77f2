"""The old circuit in a state: its vertices, and its streams and views in terms of the new one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from stepping_spark.base.callsite import Line
from stepping_spark.circuit.graph import AnyGraph, Fixpoint, Graph, Origin, Path, Vertex
from stepping_spark.circuit.operators import (
    Add,
    Feedback,
    Filter,
    Input,
    Map,
    Nothing,
    Operator,
    PrunedMap,
)
from stepping_spark.circuit.operators.time import Temporal
from stepping_spark.expressions.coercion import coerce
from stepping_spark.expressions.expr import Build, Call, Field, Literal, whole
from stepping_spark.plan.difference import Described
from stepping_spark.relations.store import Now, Register
from stepping_spark.rows.atoms import BOOL, RowType
from stepping_spark.rows.schema import Schema, StreamType, ZSetType, kind_of
from stepping_spark.rows.types import Optional, Struct, unwrap
from stepping_spark.stepper.evolve.circuit import (
    FORMAT,
    Reader,
    Unreadable,
    checksum,
    ids_of,
    pruned,
)


class KeptCircuit:
    """The circuit in a state. Its vertices are built from the text on demand.

    Raises `Unreadable` for the text of another version, or an edited one.
    """

    def __init__(self, text: str) -> None:
        try:
            whole = json.loads(text)
            circuit = whole["circuit"]
            if whole["checksum"] != checksum(circuit):
                raise Unreadable("its checksum is not that of its text: somebody has edited it")
            if circuit["format"] != FORMAT:
                raise Unreadable(
                    f"its format is {circuit['format']}, and this version reads {FORMAT}"
                )
            self.digest = str(circuit["digest"])
            self.inputs = {str(label): int(n) for label, n in circuit["inputs"]}
            self.outputs = [(str(name), int(place)) for name, place in circuit["outputs"]]
            self.registers: dict[str, list[int]] = {}
            for sums, place in circuit["registers"]:
                self.registers.setdefault(str(sums), []).append(int(place))
            # The contents of registers in words; states of earlier versions lack them.
            self.words = {str(sums): str(words) for sums, words in circuit.get("words", {}).items()}
            self.ids = [str(v["id"]) for v in circuit["vertices"]]
            self._vertices = circuit["vertices"]
            self.pruned = _pruned_places(self._vertices)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
            raise Unreadable(f"the circuit of the state is damaged: {e}") from None

    def vertex(
        self, place: int, by_place: Callable[[int], Vertex | None], reader: Reader, then: Now
    ) -> Vertex:
        """The vertex at a place; `by_place` returns existing vertices, by their places.

        Streams that depend on the time are as of `then`; None: as of the evolution's time. Raises
        `Unreadable`, with the name of the vertex, for one that this process cannot build.
        """
        vertices: dict[int, Vertex] = {}
        needed, pending = set(), [place]
        while pending:
            at = pending.pop()
            if at in needed or at in vertices:
                continue
            vertex = by_place(at)
            if vertex is not None:
                vertices[at] = vertex
            else:
                needed.add(at)
                pending += self._vertices[at]["of"]
        for at in sorted(needed):  # each after its inputs
            entry = self._vertices[at]
            try:
                operator = _read(entry["operator"], reader)
                if isinstance(operator, Feedback):
                    raise Unreadable("it depended on the order of the steps, which no sum tells")
                if not operator.arity and not isinstance(operator, Nothing):
                    raise Unreadable(f"{operator.name} has no rows in the state")
                inputs = [vertices[i] for i in entry["of"]]
                if isinstance(operator, Add):  # rows of an existing vertex may have another class
                    inputs = [_of_class(i, inputs[0]) for i in inputs]
                if isinstance(operator, Temporal) and then is not None:
                    operator = _as_of(operator.time, then)
                vertices[at] = Vertex(operator, *inputs)
            except Exception as e:  # somebody may have edited the text
                raise Unreadable(f"{entry.get('called')}: {e}") from e
        return vertices[place]

    def input_at(self, place: int, reader: Reader) -> Input | None:
        """The input at a place; None if it is another vertex."""
        entry = self._vertices[place]["operator"]
        operator = reader.read(entry) if entry.get("is") == "Input" else None
        return operator if isinstance(operator, Input) else None

    def type_at(self, place: int, reader: Reader) -> StreamType:
        """The type of a stream with a register, or of an output."""
        stream_type = reader.read(self._vertices[place].get("type"))
        if not isinstance(stream_type, StreamType):
            raise Unreadable(f"{self.called(place)} has no type")
        return stream_type

    def called(self, place: int) -> str:
        """The name of the vertex at a place, in its query."""
        return str(self._vertices[place]["called"])


class OtherColumns(Unreadable):
    """The error for a view whose columns have changed."""


class OldStreams:
    """The streams of the old circuit, as vertices over the new circuit, or over a state.

    Streams that depend on the time are as of `then`; None: as of the evolution's time.
    """

    def __init__(
        self,
        circuit: KeptCircuit,
        kept: Described,
        graph: AnyGraph,
        frontier: dict[Vertex, str],
        reader: Reader,
        then: Now,
    ) -> None:
        self._circuit, self._frontier, self._reader = circuit, frontier, reader
        self._then = then
        self._by_id: dict[str, list[Vertex]] = {}
        for vertex, identity in ids_of(graph, graph.walk()).items():
            self._by_id.setdefault(identity, []).append(vertex)
        self._pruned = pruned(graph.walk())
        self._placed: dict[int, str] = {}
        self._made: dict[int, Vertex] = {}
        for name, description in kept.items():
            places = circuit.registers.get(str(description.get("sums", "")), [])
            if len(places) > 1:  # streams that differ in the columns that are left
                places = [place for place in places if self._is_of(place, description)]
            for place in places[:1]:
                self._placed.setdefault(place, name)
        for place, name in self._placed.items():
            v = self._stream(place)
            if v is not None and self.has_rows_of(place, v):
                self._made[place] = v
                frontier.setdefault(v, name)

    def _is_of(self, place: int, description: Mapping[str, Any]) -> bool:
        """Whether a register has the columns of the stream at a place, and behind them its key."""
        rows = self._circuit.type_at(place, self._reader).schema.columns
        stored = Register.described("", description).schema.columns
        own = [(n, kind_of(t)) for n, t in stored[: len(rows)]]
        is_key = all(n.startswith("_") for n, _ in stored[len(rows) :])
        return is_key and own == [(n, kind_of(t)) for n, t in rows]

    def _stream(self, place: int) -> Vertex | None:
        """The stream of a register, as a vertex of the new circuit; None if it cannot be built."""
        stream = self._made.get(place) or self._same(place)
        if stream is None or not self.has_rows_of(place, stream):
            with suppress(Unreadable):
                return self._circuit.vertex(
                    place,
                    lambda at: None if at == place else self._vertex_at(at),
                    self._reader,
                    self._then,
                )
        return stream

    def view(self, place: int, now: Vertex) -> Vertex:
        """The old stream of a view, with its new type; `now` itself if the view is the same.

        A column may be NULL now that was not before. Raises `Unreadable` if the old stream is
        unknown, and `OtherColumns` if it had other columns.
        """
        alike = self._by_id.get(self._circuit.ids[place], ())
        if now in alike and self.has_rows_of(place, now):
            return now
        stream = _with_nulls(
            self._circuit.vertex(place, self._vertex_at, self._reader, self._then), now
        )
        had, has = stream.type.schema, now.type.schema
        if had != has:
            kind = Unreadable if _bare(had) == _bare(has) else OtherColumns
            raise kind(f"its rows had {_columns_text(had)}, and have {_columns_text(has)}")
        return _of_class(stream, now)

    def has_rows_of(self, place: int, v: Vertex) -> bool:
        """Whether the old stream at a place has the columns of a vertex."""
        schema = self._circuit.type_at(place, self._reader).schema
        return schema.kinds == v.type.schema.kinds

    def _same(self, place: int) -> Vertex | None:
        """The equal vertex of the new circuit, with all its columns; None without one."""
        alike = self._by_id.get(self._circuit.ids[place], ())
        source = self._circuit.input_at(place, self._reader)
        if source is not None:
            return next((v for v in alike if v.type == source.type), None)
        if place in self._circuit.pruned:
            return next((v for v in alike if self.has_rows_of(place, v)), None)
        return next((v for v in alike if v not in self._pruned), None)

    def _vertex_at(self, place: int) -> Vertex | None:
        """The vertex for a place, if it is in the new circuit, or the state has its sum."""
        stream = self._same(place)
        if stream is not None and (place not in self._placed or self.has_rows_of(place, stream)):
            return stream
        if place in self._placed:
            stream = self._made.get(place)
            if stream is None:
                t = self._circuit.type_at(place, self._reader)
                called = self._circuit.called(place)
                stream = self._made[place] = Vertex(Input(_number(self._frontier), called, t))
                self._frontier[stream] = self._placed[place]
            return stream
        source = self._circuit.input_at(place, self._reader)
        if source is None:
            return None
        alike = self._by_id.get(self._circuit.ids[place], ())
        inputs = (v for v in alike if isinstance(v.operator, Input))
        return next((_fewer(v, source) for v in inputs), None)


def _columns_text(schema: Schema) -> str:
    return ", ".join(f"{n}: {t}" for n, t in schema.columns)


def _bare(schema: Schema) -> list[tuple[str, RowType]]:
    """Columns with their types, whether these allow NULL or not."""
    return [(n, unwrap(t)) for n, t in schema.all]


def _with_nulls(v: Vertex, like: Vertex) -> Vertex:
    """A stream whose columns allow NULL as in another one; unchanged if the columns differ."""
    was, now = v.type, like.type
    if not isinstance(was, ZSetType) or not isinstance(now, ZSetType) or was.schema == now.schema:
        return v
    if not isinstance(was.row, Struct) or not isinstance(now.row, Struct):
        return v
    have, want = dict(was.row.fields), dict(now.row.fields)
    if [*have] != [*want] or any(want[n] not in (t, Optional(t)) for n, t in have.items()):
        return v
    columns = (coerce(Field(t, (n,)), want[n], "") for n, t in have.items())
    return Vertex(Map(Build(now.row, tuple(columns))), v)


def _fewer(v: Vertex, given: Input) -> Vertex | None:
    """The old rows of an input that has more columns now; None for another difference."""
    now, was = v.type, given.type
    if not (isinstance(now, ZSetType) and isinstance(was, ZSetType)):
        return None
    columns = dict(now.schema.columns)
    if not isinstance(was.row, Struct) or not isinstance(now.row, Struct):
        return None
    if any(columns.get(name) != t for name, t in was.row.fields):
        return None
    return Vertex(Map(Build(was.row, tuple(Field(t, (n,)) for n, t in was.row.fields))), v)


def _pruned_places(vertices: Sequence[Mapping[str, Any]]) -> set[int]:
    """The places of streams of which columns may be left out, as `circuit.pruned` finds them."""
    places: set[int] = set()
    for place, v in enumerate(vertices):
        if v["operator"].get("is") == PrunedMap.__name__ or not places.isdisjoint(v["of"]):
            places.add(place)
    return places


def _as_of(t: RowType, then: Now) -> Filter:
    """The filter of timed rows whose time is at most `then`."""
    return Filter(Call(BOOL, "<=", (Field(t, ("time",)), Literal(t, then))))


def _number(taken: Mapping[Vertex, str]) -> int:
    """The number of a further input for a stream from a state."""
    return 1_000_000 + len(taken)


def _of_class(v: Vertex, like: Vertex) -> Vertex:
    """A stream with the row class of another one, if they have the same columns."""
    if v.type == like.type or v.type.schema != like.type.schema:
        return v
    assert isinstance(like.type, ZSetType)
    row = like.type.row
    if not isinstance(row, Struct):
        return Vertex(Map(whole(row)), v)
    return Vertex(Map(Build(row, tuple(Field(t, (n,)) for n, t in row.fields))), v)


def _read(entry: Mapping[str, Any], reader: Reader) -> Operator:
    if "unwritten" in entry:
        raise Unreadable(entry["unwritten"])
    if "body" in entry:
        return Fixpoint(_body(entry["body"], reader), entry["number"], entry["max_iterations"])
    operator = reader.read(entry)
    if not isinstance(operator, Operator):
        raise Unreadable("it is no operator")
    return operator


def _body(entry: Mapping[str, Any], reader: Reader) -> AnyGraph:
    """The body of a recursion."""
    vertices: list[Vertex] = []
    origins: dict[Vertex, Origin] = {}
    for v in entry["vertices"]:
        vertices.append(Vertex(_read(v["operator"], reader), *(vertices[i] for i in v["of"])))
        path = Path(tuple(v["called"].split(".")))
        origins.setdefault(vertices[-1], Origin(path, Line(entry["name"], 0, "the query before")))
    return Graph(
        name=entry["name"],
        inputs=tuple(vertices[i] for i in entry["entries"]),
        outputs=tuple(vertices[place] for _, place in entry["outputs"]),
        no_output=(),
        loops={vertices[leaf]: vertices[source] for leaf, source in entry["loops"]},
        caches={},
        origins=origins,
        single=len(entry["outputs"]) == 1,
    )
