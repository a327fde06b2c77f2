"""What the streams of a circuit are called in a state: the same in every process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stepping_spark.expressions.expr import Expr
from stepping_spark.graph.fixpoint import Fixpoint
from stepping_spark.graph.graph import AnyGraph, Vertex
from stepping_spark.plan.terms import told, told_in_loop


@dataclass(frozen=True)
class Identities:
    """The identities of streams, by what computes them before vertices are fused.

    Which vertices are fused depends on who else reads them. So a query that gets one more output
    keeps the identities, and with them its state.
    """

    graph: AnyGraph  # before vertices were fused
    stands_for: Mapping[Vertex, Vertex]  # for vertices of the plan, those of that graph

    def unfused(self, v: Vertex) -> Vertex:
        """The vertex that a vertex of the plan stands for."""
        found = self.stands_for.get(v)
        if found is not None or not v.inputs:
            return v if found is None else found
        return Vertex(v.operator, *map(self.unfused, v.inputs))  # one that the planner made

    def of(self, v: Vertex) -> str:
        """The digest of all that computes a stream."""
        return self.graph.told(self.unfused(v)).rpartition(" ")[2]

    def sums(self, change: Vertex, key: tuple[Expr, ...]) -> str:
        """What identifies the register of a stream with a key: see `Register.sums`."""
        return told(self.graph.told(self.unfused(change)), key)

    def sums_in_loop(
        self, operator: Fixpoint, inputs: Sequence[Vertex], v: Vertex, key: tuple[Expr, ...]
    ) -> str:
        """The same of a stream in the body of a recursion, with these inputs."""
        return told_in_loop(operator, map(self.of, inputs), v, key)

    def moved(self, graph: AnyGraph, to: Callable[[Vertex], Vertex]) -> Identities:
        """The identities that the same streams have in a circuit with other vertices."""
        return Identities(graph, {v: to(unfused) for v, unfused in self.stands_for.items()})
