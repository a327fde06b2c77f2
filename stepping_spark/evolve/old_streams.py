"""What the circuit before gave, as vertices of the circuit that is there now, or of a state."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from stepping_spark.circuit.graph import AnyGraph, Vertex
from stepping_spark.circuit.operators import Input, Map
from stepping_spark.evolve.circuit import KeptCircuit, Reader, Unreadable, ids_of, of_class
from stepping_spark.expressions.expr import Build, Field
from stepping_spark.plan.difference import Described
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import Struct


class OldStreams:
    """What the circuit before gave, as vertices of the circuit that is there now, or of a state."""

    def __init__(
        self,
        circuit: KeptCircuit,
        kept: Described,
        graph: AnyGraph,
        frontier: dict[Vertex, str],
        reader: Reader,
    ) -> None:
        self._circuit, self._frontier, self._reader = circuit, frontier, reader
        self._by_id = {found: v for v, found in ids_of(graph, graph.walk()).items()}
        self._placed: dict[int, str] = {}
        self._made: dict[int, Vertex] = {}
        for name, said in kept.items():
            place = circuit.registers.get(str(said.get("sums", "")))
            if place is not None:
                self._placed.setdefault(place, name)
        for place, name in self._placed.items():
            v = self._stream(place)
            if v is not None and self.has_rows_of(place, v):
                self._made[place] = v
                frontier.setdefault(v, name)

    def _stream(self, place: int) -> Vertex | None:
        """The stream that a register keeps, as the circuit has it; None: it cannot be made."""
        found = self._made.get(place) or self._same(place)
        if found is None:
            with suppress(Unreadable):
                found = self._circuit.vertex(
                    place, lambda at: None if at == place else self._known(at), self._reader
                )
        return found

    def view(self, place: int, now: Vertex) -> Vertex:
        """What a view was, as a stream of the type that it has now; `now`, if it is the same.

        Raises `Unreadable` if it is unknown, or its rows had other columns.
        """
        if self._by_id.get(self._circuit.ids[place]) is now and self.has_rows_of(place, now):
            return now
        found = self._circuit.vertex(place, self._known, self._reader)
        if found.type.schema != now.type.schema:
            had, has = (
                ", ".join(f"{n}: {t}" for n, t in v.type.schema.columns) for v in (found, now)
            )
            raise Unreadable(f"its rows had {had}, and have {has}")
        return of_class(found, now)

    def has_rows_of(self, place: int, v: Vertex) -> bool:
        """Whether a view had the columns that it has now."""
        found = self._circuit.type_at(place, self._reader).schema
        return found.kinds == v.type.schema.kinds

    def _same(self, place: int) -> Vertex | None:
        """The same vertex of the circuit, if it has it, over rows of the same class."""
        v = self._by_id.get(self._circuit.ids[place])
        given = self._circuit.input_at(place, self._reader)
        return v if v is not None and (given is None or v.type == given.type) else None

    def _known(self, place: int) -> Vertex | None:
        """A vertex of the circuit, or one whose sum the state has, at a place."""
        found = self._same(place)
        if found is not None and (place not in self._placed or self.has_rows_of(place, found)):
            return found
        if place in self._placed:
            found = self._made.get(place)
            if found is None:
                t = self._circuit.type_at(place, self._reader)
                called = self._circuit.called(place)
                found = self._made[place] = Vertex(Input(_number(self._frontier), called, t))
                self._frontier[found] = self._placed[place]
            return found
        v = self._by_id.get(self._circuit.ids[place])
        given = self._circuit.input_at(place, self._reader)
        return None if v is None or given is None else _fewer(v, given)


def _fewer(v: Vertex, given: Input) -> Vertex | None:
    """The rows of an input as they were, with fewer columns; None: it is not so simple."""
    now, was = v.type, given.type
    if not (isinstance(now, ZSetType) and isinstance(was, ZSetType)):
        return None
    there = dict(now.schema.columns)
    if not isinstance(was.row, Struct) or not isinstance(now.row, Struct):
        return None
    if any(there.get(name) != t for name, t in was.row.fields):
        return None
    return Vertex(Map(Build(was.row, tuple(Field(t, (n,)) for n, t in was.row.fields))), v)


def _number(taken: Mapping[Vertex, str]) -> int:
    """A number for one more stream that comes from a state."""
    return 1_000_000 + len(taken)
