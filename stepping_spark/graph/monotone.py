"""What only grows: streams whose values have no negative weights."""

from __future__ import annotations

from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import (
    Add,
    Arrange,
    Collate,
    Delay,
    Distinct,
    Filter,
    Flatten,
    Haitch,
    IdentityPrint,
    Input,
    Integrate,
    Join,
    Listed,
    Map,
    MapMany,
    Top,
)

# What gives no negative weights, where it is given none.
POSITIVE = (Add, Arrange, Delay, Filter, IdentityPrint, Integrate, Join, Map, MapMany)
MONOTONE = (Add, Arrange, Distinct, Filter, IdentityPrint, Join, Map, MapMany)


def is_positive(v: Vertex) -> bool:
    """Whether no value of a stream has a negative weight: of changes, that they only insert."""
    op = v.operator
    if isinstance(op, Input):
        return op.append_only
    if isinstance(op, Distinct | Top | Flatten | Listed | Collate):
        return True
    if isinstance(op, Haitch):
        return isinstance(op.of, Distinct) and all(map(is_positive, v.inputs))
    return isinstance(op, POSITIVE) and all(map(is_positive, v.inputs))


def grows(v: Vertex) -> bool:
    """Whether a value is one of integrals, and its changes only insert."""
    if isinstance(v.operator, Integrate):
        return is_positive(v.inputs[0])
    return isinstance(v.operator, MONOTONE) and all(map(grows, v.inputs))
