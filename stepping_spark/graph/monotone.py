"""Streams that only grow: their values have no negative weights."""

from __future__ import annotations

from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import Integrate


def is_positive(v: Vertex, known: dict[Vertex, bool] | None = None) -> bool:
    """Whether no value of a stream has a negative weight: of changes, that they only insert."""
    known = {} if known is None else known  # a stream may be reached in many ways
    if v not in known:
        given = v.inputs[: v.operator.rows_from]
        known[v] = v.operator.is_positive(all(is_positive(i, known) for i in given))
    return known[v]


def grows(v: Vertex, known: dict[Vertex, bool] | None = None) -> bool:
    """Whether a value is one of integrals, and its changes only insert."""
    known = {} if known is None else known
    if v not in known:
        if isinstance(v.operator, Integrate):
            known[v] = is_positive(v.inputs[0])
        else:
            known[v] = v.operator.monotone and all(grows(i, known) for i in v.inputs)
    return known[v]
