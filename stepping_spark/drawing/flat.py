"""Protocols of a circuit for drawing, and circuits with the bodies of their vertices inlined.

A `Graph` and an inlined circuit are drawn by the same code, since both implement the protocols.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from stepping_spark.callsite import Line
from stepping_spark.graph.operators import Feedback, Input, Operator
from stepping_spark.graph.states import V
from stepping_spark.rows.schema import StreamType


class Path(Protocol):
    """The path of a vertex, as needed for drawing."""

    @property
    def parts(self) -> tuple[str, ...]: ...


class Circuit(Protocol[V]):
    """A circuit, as needed for drawing."""

    @property
    def name(self) -> str: ...
    @property
    def outputs(self) -> tuple[V, ...]: ...
    @property
    def called(self) -> tuple[str, ...]: ...
    @property
    def no_output(self) -> tuple[V, ...]: ...
    @property
    def loops(self) -> Mapping[V, V]: ...
    @property
    def caches(self) -> Mapping[str, V]: ...
    @property
    def paths(self) -> Mapping[V, Path]: ...
    @property
    def bodies(self) -> Mapping[Operator, Any]: ...
    def walk(self) -> Iterator[V]: ...
    def line(self, v: V, /) -> Line: ...


@dataclass(frozen=True, eq=False)
class Part:
    """A vertex of an inlined circuit."""

    operator: Operator
    inputs: tuple[Part, ...]
    type: StreamType


@dataclass(frozen=True)
class Name:
    """The path of a part."""

    parts: tuple[str, ...]


@dataclass
class Flat:
    """An inlined circuit: no vertex contains another circuit."""

    name: str
    no_output: tuple[Part, ...] = ()
    outputs: tuple[Part, ...] = ()
    called: tuple[str, ...] = ()
    caches: dict[str, Part] = field(default_factory=dict)
    loops: dict[Part, Part] = field(default_factory=dict)
    paths: dict[Part, Name] = field(default_factory=dict)
    lines: dict[Part, Line] = field(default_factory=dict)
    bodies: Mapping[Operator, Any] = field(default_factory=dict)

    def walk(self) -> Iterator[Part]:
        """Every part, each after its inputs except for loops."""
        yield from self.paths

    def line(self, v: Part, /) -> Line:
        """The user's line that made a part."""
        return self.lines[v]


def flattened(graph: Circuit[Any]) -> Flat | None:
    """The circuit with the bodies of its vertices inlined, in frames; None if it has none."""
    order = list(graph.walk())
    if not any(v.operator in graph.bodies for v in order):
        return None
    flat = Flat(graph.name)
    parts: dict[Any, Part] = {}
    insides: dict[tuple[Any, ...], dict[Any, Part]] = {}
    for v in order:
        inner = graph.bodies.get(v.operator)
        if inner is None:
            parts[v] = _laid(flat, v, parts, graph.paths[v].parts, graph.line(v))
            continue
        inputs = tuple(parts[i] for i in v.inputs)
        if (inner, inputs) not in insides:
            insides[inner, inputs] = _inside(flat, inner, inputs, graph.paths[v].parts)
        parts[v] = insides[inner, inputs][inner.outputs[v.operator.number]]
    flat.loops.update((parts[leaf], parts[v]) for leaf, v in graph.loops.items())
    flat.outputs, flat.called = tuple(parts[v] for v in graph.outputs), graph.called
    flat.no_output = tuple(parts[v] for v in graph.no_output)
    flat.caches = {name: parts[v] for name, v in graph.caches.items()}
    return flat


def _inside(
    flat: Flat, inner: Circuit[Any], inputs: tuple[Part, ...], within: tuple[str, ...]
) -> dict[Any, Part]:
    """The parts of a circuit inside a vertex; its inputs are parts of the circuit around it."""
    parts: dict[Any, Part] = {}
    for v in inner.walk():
        if isinstance(v.operator, Input):
            parts[v] = inputs[v.operator.number]
        else:
            path = (*within, *inner.paths[v].parts[1:])
            parts[v] = _laid(flat, v, parts, path, inner.line(v))
    flat.loops.update((parts[leaf], parts[v]) for leaf, v in inner.loops.items() if leaf in parts)
    return parts


def _laid(flat: Flat, v: Any, parts: Mapping[Any, Part], path: tuple[str, ...], line: Line) -> Part:
    inputs = () if isinstance(v.operator, Feedback) else tuple(parts[i] for i in v.inputs)
    made = Part(v.operator, inputs, v.type)
    flat.paths[made], flat.lines[made] = Name(path), line
    return made
