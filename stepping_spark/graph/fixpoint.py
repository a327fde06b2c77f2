"""Recursion as an operator: the body of a loop is a circuit of its own, on values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from stepping_spark.graph.graph import AnyGraph
from stepping_spark.graph.operators import Feedback, Input, Linearity, Operator
from stepping_spark.rows.schema import StreamType


@dataclass(frozen=True)
class Outside(Input):
    """A stream that the body of a recursion gets from around it."""


@dataclass(frozen=True)
class Recursive(Feedback):
    """The result of the iteration before; empty at first."""

    recursive: ClassVar[bool] = True


@dataclass(frozen=True)
class Fixpoint(Operator):
    """The changes of the least fixpoint of a body, of its inputs' sums.

    `body` has an input for each of the operator's, and a loop for each recursive stream. Of
    several recursive streams this gives the one with the number; the others are vertices with the
    same body and inputs, and run in one loop with it.

    Equal bodies may have other names and lines: those of a query are in its `Graph.bodies`.
    """

    body: AnyGraph
    number: int
    max_iterations: int
    linearity: ClassVar[Linearity] = Linearity.NONLINEAR
    gives_change: ClassVar[bool] = True

    def type_of(self, *inputs: StreamType) -> StreamType:
        return self.body.outputs[self.number].type

    def describe(self) -> str:
        return "" if self.body.single else f"stream {self.number}"

    def identity(self) -> str:
        # Not by names, which do not matter, nor by the limit, which may be raised.
        return f"{self.number} of {self.digest}"

    @property
    def digest(self) -> str:
        """The identity of the body, in every process."""
        return " ".join(v.digest for v in self.body.outputs)

    def endless(self, where: str, sizes: Mapping[str, int]) -> str:
        """The error for a loop that has not ended."""
        shown = ", ".join(f"{name} {n:,}" for name, n in sizes.items())
        return (
            f"{where}: the recursion {self.body.name!r} has not ended after max_iterations="
            f"{self.max_iterations:,} iterations; rows of the last ones: {shown}; the store is as "
            "it was before the step: bound what the function can give (a filter, a longest path), "
            "or raise max_iterations"
        )


def named(operator: Fixpoint, graph: AnyGraph) -> Fixpoint:
    """The operator, its body with the names and lines of this query."""
    return replace(operator, body=graph.bodies[operator])
