"""An aggregation by several reductions: its rows before and after a step, at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from stepping_spark.expressions.expr import PythonCall
from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import (
    Add,
    Collate,
    Collated,
    Delay,
    Haitch,
    Integrate,
    Map,
    Operator,
    Top,
)
from stepping_spark.graph.rewrite import Circuit, rewrite


def collate_at_once(graph: Circuit) -> Circuit:
    """Compute the rows of touched keys from the states of the reductions: saves one of pieces.

    H_collate(z⁻¹I(p), p) = H_(collate ∘ Σ fᵢ)(z⁻¹I(a₁), a₁, z⁻¹I(a₂), a₂, …), if p is the sum of
    changes H_fᵢ(z⁻¹I(aᵢ), aᵢ): the sum of such a change is what fᵢ gives for the sum of aᵢ. A step
    reads the states of all reductions at the keys that any of them changes.
    """
    fed_back = frozenset(graph.loops.values())
    return rewrite(graph, partial(_at_once, fed_back))


def _at_once(fed_back: frozenset[Vertex], v: Vertex) -> Vertex | None:
    h = v.operator
    if not isinstance(h, Haitch) or not isinstance(h.of, Collate):
        return None
    state, change = v.inputs
    if state is not _before(change):
        return None
    parts: list[tuple[Operator, ...]] = []
    inputs: list[Vertex] = []
    for piece in _summed(change):
        found = _part(piece, fed_back)
        if found is None:
            return None
        part, given = found
        parts.append(part)
        inputs += given
    return Vertex(Haitch(Collated(tuple(parts), h.of.required)), *inputs)


def _summed(v: Vertex) -> Iterator[Vertex]:
    """The streams that a stream is the sum of."""
    if isinstance(v.operator, Add):
        for i in v.inputs:
            yield from _summed(i)
    else:
        yield v


def _part(
    v: Vertex, fed_back: frozenset[Vertex]
) -> tuple[tuple[Operator, ...], tuple[Vertex, Vertex]] | None:
    """What makes pieces of rows by key, and the state of these rows with their change."""
    maps: list[Operator] = []
    while isinstance(v.operator, Map) and not isinstance(v.operator.f, PythonCall):
        maps.append(v.operator)
        (v,) = v.inputs
    if not isinstance(v.operator, Haitch) or not v.operator.of.reduces:
        return None
    fold, (state, change) = v.operator.of, v.inputs
    if v in fed_back and isinstance(fold, Top):
        # Its own sum is its state, and first rows are the first among themselves.
        state, change = _before(v), v
    if state is not _before(change):
        return None
    return (fold, *reversed(maps)), (state, change)


def _before(change: Vertex) -> Vertex:
    """The sum of the changes before the step."""
    return Vertex(Delay(), Vertex(Integrate(), change))
