"""Recognises integrals and differences that a user wrote by hand."""

from __future__ import annotations

import dataclasses
from functools import partial

from stepping_spark.graph.graph import Vertex, reachable
from stepping_spark.graph.operators import Add, Delay, Differentiate, Integrate, Neg
from stepping_spark.graph.rewrite import Circuit, rewrite


def recognise_integrals(graph: Circuit) -> Circuit:
    """A loop z = y + a, y = z⁻¹(z) is z = I(a): one register that grows by the change."""
    for leaf, source in graph.loops.items():
        total = source.inputs[0] if isinstance(source.operator, Delay) else source
        change = _summed(leaf, source)
        if change is None or leaf in reachable(change):
            continue
        integral = Vertex(Integrate(), change)
        before = Vertex(Delay(), integral)
        fed_back = before if isinstance(source.operator, Delay) else integral
        rest = {k: s for k, s in graph.loops.items() if k is not leaf}
        rule = partial(_replace, leaf, fed_back, {before, change}, integral)
        origins = {**graph.origins, integral: graph.origins[total]}
        without = dataclasses.replace(graph, loops=rest, origins=origins)
        return recognise_integrals(rewrite(without, rule))
    return graph


def _replace(
    leaf: Vertex, fed_back: Vertex, summed: set[Vertex], integral: Vertex, v: Vertex
) -> Vertex | None:
    """z = y + a  ⇒  z = I(a), y = z⁻¹I(a)."""
    if v is leaf:
        return fed_back
    return integral if isinstance(v.operator, Add) and set(v.inputs) == summed else None


def _summed(leaf: Vertex, source: Vertex) -> Vertex | None:
    """The a of z = y + a, where y is z⁻¹(z); None where the loop is another."""
    if isinstance(source.operator, Delay):
        total, before = source.inputs[0], leaf
    else:
        total, before = source, Vertex(Delay(), leaf)
    if not isinstance(total.operator, Add) or before not in total.inputs:
        return None
    first, second = total.inputs
    return second if first is before else first


def recognise_differences(graph: Circuit) -> Circuit:
    """a − z⁻¹(a) is D(a)."""
    return rewrite(graph, difference)


def difference(v: Vertex) -> Vertex | None:
    """−z⁻¹(a) + a = D(a)."""
    if not isinstance(v.operator, Add):
        return None
    for negated, a in (v.inputs, v.inputs[::-1]):
        if negated is Vertex(Neg(), Vertex(Delay(), a)):
            return Vertex(Differentiate(), a)
    return None
