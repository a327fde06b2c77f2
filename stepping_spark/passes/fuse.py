"""Fuses chains of linear operators into one operator.

The planner runs this pass, on what the others have made: a circuit is printed and drawn with the
vertices that the user wrote, and `st.explain` tells which of them are one.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

from stepping_spark.expressions.expr import PythonCall
from stepping_spark.graph.graph import Origin, Vertex
from stepping_spark.graph.operators import (
    Accumulate,
    Add,
    Fused,
    Join,
    only_projects,
    parts_of,
)
from stepping_spark.graph.rewrite import Circuit, substitute


def fuse(graph: Circuit) -> tuple[Circuit, dict[Vertex, Vertex]]:
    """Make one vertex of a chain of linear operators, with the join before or the sum behind it.

    f(g(a)) = (f·g)(a);  f(a + b) = f(a) + f(b), where f only picks fields of what joins give.
    Saves a materialised stream where a chain is evaluated on the driver, and the pairs of a join
    that a map takes apart. What several read, or the user asked for, stays a vertex. Gives also
    the vertex of the circuit that each new one stands for.
    """
    return _Fusing(graph).fused()


class _Fusing:
    def __init__(self, graph: Circuit) -> None:
        self.graph = graph
        # Under the names that the circuit is printed with, whatever others are gone.
        self.origins = {
            v: dataclasses.replace(graph.origins[v], path=graph.paths[v]) for v in graph.walk()
        }
        self.readers = Counter(i for v in graph.walk() for i in v.inputs)
        self.readers.update(graph.loops.values())
        for root in (*graph.outputs, *graph.no_output, *graph.caches.values()):
            self.readers[root] += 2  # it has a reader outside
        self.new: dict[Vertex, Vertex] = {}
        self.stands_for: dict[Vertex, Vertex] = {}

    def fused(self) -> tuple[Circuit, dict[Vertex, Vertex]]:
        for v in self.graph.walk():
            made = self._follows(v)
            if made is None:
                made = Vertex(v.operator, *(self.new[i] for i in v.inputs)) if v.inputs else v
                self.origins.setdefault(made, self.origins[v])
            self.new[v] = made
            self.stands_for.setdefault(made, v)
        fused = substitute(self.graph, lambda v: self.new.get(v, v), self.origins)
        return fused, self.stands_for

    def _follows(self, v: Vertex) -> Vertex | None:
        """The vertex that does what v does, and what is before it; None where v stays."""
        op = v.operator
        if not (op.row_by_row or isinstance(op, Accumulate)) or _in_python(v):
            return None
        (before,) = v.inputs
        if self.readers[before] != 1:
            return None
        if isinstance(before.operator, Add) and only_projects(v.operator):
            sides = before.inputs
            if all(self.readers[s] == 1 and self._is_join(s) for s in sides):
                parts = [self._joined(s, v, self.origins[s]) for s in sides]
                for part, side in zip(parts, sides, strict=True):
                    self.stands_for.setdefault(part, Vertex(v.operator, side))
                made = Vertex(Add(), *parts)
                named = dataclasses.replace(self.origins[v], beside=(self.origins[before],))
                self.origins.setdefault(made, named)
                return made
        joins = before.operator.row_by_row or isinstance(before.operator, Join)
        if joins and not _in_python(before):
            return self._joined(before, v, self.origins[v])
        return None

    def _is_join(self, v: Vertex) -> bool:
        return isinstance(parts_of(self.new[v].operator)[0], Join)

    def _joined(self, before: Vertex, v: Vertex, named: Origin) -> Vertex:
        head = self.new[before]
        made = Vertex(Fused((*parts_of(head.operator), v.operator)), *head.inputs)
        ours, theirs = self.origins[v], self.origins[head]
        parts = (*(theirs.parts or (theirs,)), ours)
        if made not in self.origins:
            self.origins[made] = dataclasses.replace(named, parts=parts)
        return made


def _in_python(v: Vertex) -> bool:
    op = v.operator
    f = op.pick if isinstance(op, Accumulate) else getattr(op, "f", None)
    return isinstance(f, PythonCall)
