"""Converts a circuit on changes to the same circuit on values, by its first step."""

from __future__ import annotations

from collections.abc import Sequence

from stepping_spark.graph.graph import Origin, Vertex
from stepping_spark.graph.operators import Add, Delay, Haitch
from stepping_spark.graph.rewrite import adopt


def on_values(roots: Sequence[Vertex], origins: dict[Vertex, Origin]) -> list[Vertex]:
    """The circuit on values that computes the same query as a circuit on changes.

    In its first step Q∆ = D∘Q∘I is Q: there are no earlier values, so I(a) = D(a) = a, z⁻¹(a) = 0
    and H(0, a) = distinct(a). So an incremental operator becomes its counterpart in `st.linear`.
    """
    found: dict[Vertex, Vertex | None] = {}
    for root in roots:
        for v in _ordered(root):
            if v not in found:
                made = found[v] = _first(v, [found[i] for i in v.inputs])
                if made is not None:
                    adopt(made, origins[v], origins)
    return [found[v] or v for v in roots]


def _first(v: Vertex, inputs: list[Vertex | None]) -> Vertex | None:
    """The value in the first step; None if it is empty."""
    op = v.operator
    known = [i for i in inputs if i is not None]
    if isinstance(op, Delay):
        return None
    if op.same_at_first:
        return inputs[0]
    if isinstance(op, Add) and len(known) < 2:
        return known[0] if known else None
    if isinstance(op, Haitch) and inputs[0] is None:
        return None if inputs[1] is None else Vertex(op.of, inputs[1])
    if len(known) < len(inputs):
        return None  # linear, bilinear, per key: empty for empty inputs
    return Vertex(op, *known)


def _ordered(root: Vertex) -> list[Vertex]:
    """The vertex and those it is computed from, inputs first."""
    order: dict[Vertex, None] = {}
    pending = [(root, False)]
    while pending:
        v, ready = pending.pop()
        if ready:
            order[v] = None
        elif v not in order:
            pending.append((v, True))
            pending += [(i, False) for i in reversed(v.inputs)]
    return list(order)
