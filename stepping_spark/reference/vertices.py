"""The context of a vertex for its operator's meaning, and the order to compute vertices in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from stepping_spark.errors import StepError, SteppingError
from stepping_spark.expressions.expr import Expr
from stepping_spark.graph.fixpoint import Fixpoint, named
from stepping_spark.graph.graph import AnyGraph, Vertex
from stepping_spark.graph.operators import Delay, Explode, MapMany
from stepping_spark.reference.values import Part, Value, of_type
from stepping_spark.rows.schema import StreamType


def order(vertices: Iterable[Vertex], loops: Mapping[Vertex, Vertex]) -> tuple[Vertex, ...]:
    """The vertices, each after the ones whose value of this step it needs; a delay needs none."""
    needs: TopologicalSorter[Vertex] = TopologicalSorter()
    for v in vertices:
        sources = (loops[v],) if v in loops else v.inputs
        needs.add(v, *(() if isinstance(v.operator, Delay) else sources))
    return tuple(needs.static_order())


@dataclass(frozen=True)
class VertexContext:
    """The parts of a vertex that the meaning of its operator depends on."""

    operator: Any
    inputs: tuple[StreamType, ...]
    where: str
    now: Any = None

    def call(self, f: Expr, row: Any) -> Any:
        """The result of a row function. If it fails, the `StepError` shows the row."""
        try:
            value = f.value(row)
            if isinstance(self.operator, MapMany | Explode) and value is not None:
                value = list(value)
            return of_type(value, f.type, "its value")
        except Exception as e:
            found = str(e) if isinstance(e, SteppingError) else f"{type(e).__name__}: {e}"
            raise StepError(
                f"{self.where}: {f} failed for the row {row!r}: {found}; nothing has changed: mend "
                "the row or the function, and step again"
            ) from e

    def keys(
        self, key: Sequence[Expr], value: Value
    ) -> Iterator[tuple[tuple[Part, ...] | None, tuple[Any, int]]]:
        """The rows and weights, each with its key; the key is None if a part of it is NULL."""
        for row, n in value.items():
            parts = tuple(self.call(part, row) for part in key)
            yield None if None in parts else parts, (row, n)

    def matches(self, key: Sequence[Expr], value: Value) -> dict[Part, list[tuple[Any, int]]]:
        """The rows and weights by key, without keys that have a NULL part."""
        found: dict[Part, list[tuple[Any, int]]] = {}
        for parts, row in self.keys(key, value):
            if parts is not None:
                found.setdefault(parts, []).append(row)
        return found


def place_of(graph: AnyGraph, v: Vertex, now: Any = None) -> VertexContext:
    """The context of a vertex of a circuit."""
    where = f"{graph.paths[v]} ({graph.line(v)})"
    op = named(v.operator, graph) if isinstance(v.operator, Fixpoint) else v.operator
    return VertexContext(op, tuple(s.type for s in v.inputs), where, now)
