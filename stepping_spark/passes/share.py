"""One register for all who read one state, kept by the keys that they read it by."""

from __future__ import annotations

from stepping_spark.graph import Vertex
from stepping_spark.operators import Arrange
from stepping_spark.rewrite import Circuit, rewrite


def share_registers(graph: Circuit) -> Circuit:
    """Leave it to the readers by which key a state is kept.

    A register belongs to the stream that it sums, so I(a) and z⁻¹I(a) are its new and its old
    value, and all who read it by one key share one arrangement. An index that was asked for, but
    by which nobody reads, would be one more: only a cache keeps those.
    """
    kept = set(graph.caches.values()) | set(graph.no_output)
    for v in tuple(kept):
        while isinstance(v.operator, Arrange):
            kept.add(v)
            v = v.inputs[0]

    def drop_index(v: Vertex) -> Vertex | None:
        """arrange(a, key) = a, as values."""
        return v.inputs[0] if isinstance(v.operator, Arrange) and v not in kept else None

    return rewrite(graph, drop_index)
