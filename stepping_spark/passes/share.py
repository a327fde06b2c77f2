"""Shares one register between all readers of a state by the same key."""

from __future__ import annotations

import dataclasses

from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import Arrange
from stepping_spark.graph.rewrite import Circuit, adopt, rewrite


def share_registers(graph: Circuit) -> Circuit:
    """Leave it to the readers by which key a state is kept.

    A register belongs to the stream that it sums, so I(a) and z⁻¹I(a) are its new and its old
    value, and all who read it by one key share one arrangement. An index that was asked for, but
    by which nobody reads, would be one more: only a cache keeps those.
    """
    asked = {v: _indexes(v) for v in (*graph.no_output, *graph.caches.values())}
    bare = rewrite(graph, drop_index)
    origins = dict(bare.origins)

    def with_indexes(root: Vertex, base: Vertex) -> Vertex:
        for arrange in asked[root]:
            base = Vertex(arrange.operator, base)
            adopt(base, graph.origins[arrange], origins)
        return base

    return dataclasses.replace(
        bare,
        no_output=tuple(map(with_indexes, graph.no_output, bare.no_output)),
        caches={n: with_indexes(v, bare.caches[n]) for n, v in graph.caches.items()},
        origins=origins,
    )


def drop_index(v: Vertex) -> Vertex | None:
    """arrange(a, key) = a, as values."""
    return v.inputs[0] if isinstance(v.operator, Arrange) else None


def _indexes(v: Vertex) -> list[Vertex]:
    """The indexes that a cache was asked for, innermost first."""
    found = []
    while isinstance(v.operator, Arrange):
        found.append(v)
        v = v.inputs[0]
    return found[::-1]
