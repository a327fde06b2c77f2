"""Which vertex made a query fail: Spark's errors name a query; users think of vertices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import Fused, parts_of
from stepping_spark.plan.terms import Node, Term, nodes


def failing_vertex(t: Term, run: Callable[[Term], None]) -> tuple[Vertex, int] | None:
    """The first vertex, from the leaves up, whose own term fails to run, and which part of it."""
    for node in nodes(t):
        for i, prefix in enumerate(_prefixes(node)):
            try:
                run(prefix)
            except Exception:
                return node.vertex, i
    return None


def _prefixes(node: Node) -> Iterator[Node]:
    parts = parts_of(node.operator)
    for i in range(1, len(parts)):
        yield dataclasses.replace(node, operator=Fused(parts[:i]))
    yield node
