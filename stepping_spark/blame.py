"""Which vertex made a query fail: Spark tells of a query, users think of vertices."""

from __future__ import annotations

from collections.abc import Callable

from stepping_spark.graph import Vertex
from stepping_spark.terms import Term, nodes


def failing_vertex(t: Term, run: Callable[[Term], None]) -> Vertex | None:
    """The first vertex, from the leaves up, whose own term fails to run."""
    for node in nodes(t):
        try:
            run(node)
        except Exception:
            return node.vertex
    return None
