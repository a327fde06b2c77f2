"""What only grows: streams whose values have no negative weights."""

from __future__ import annotations

from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import Integrate


def is_positive(v: Vertex) -> bool:
    """Whether no value of a stream has a negative weight: of changes, that they only insert."""
    return v.operator.is_positive(all(map(is_positive, v.inputs)))


def grows(v: Vertex) -> bool:
    """Whether a value is one of integrals, and its changes only insert."""
    if isinstance(v.operator, Integrate):
        return is_positive(v.inputs[0])
    return v.operator.monotone and all(map(grows, v.inputs))
