"""From whole tables to changes: integrals are pushed through operators, to meet a D."""

from __future__ import annotations

from stepping_spark.graph import Vertex
from stepping_spark.operators import (
    Add,
    Arrange,
    Delay,
    Differentiate,
    Haitch,
    Integrate,
    Linearity,
)
from stepping_spark.passes.cancel import cancel_inverses, is_integral
from stepping_spark.rewrite import Circuit, rewrite


def push_integrals(graph: Circuit) -> Circuit:
    """Make D∘Q∘I work on changes: what was read in full is then read by key, or not at all."""
    return rewrite(graph, push_integral)


def push_integral(v: Vertex) -> Vertex | None:
    """D(Q(I a)), by what Q is; applied where everything under the D is an integral.

    linear Q      D(Q(I a))      = Q(a)
    bilinear Q    D(I a ⋈ I b)   = I(a) ⋈ b + a ⋈ z⁻¹I(b)         (DBSP, theorem 3.4)
    per key F     D(F(I a))      = H_F(z⁻¹I(a), a), if F(0) = 0    (DBSP, proposition 4.7)
    """
    if not isinstance(v.operator, Differentiate) or not is_integral(v.inputs[0]):
        return None
    q = v.inputs[0]
    if isinstance(q.operator, Integrate | Arrange):
        inner = q.inputs[0]
        return inner if isinstance(q.operator, Integrate) else Vertex(Differentiate(), inner)
    changes = tuple(_change(a) for a in q.inputs)
    match q.operator.linearity:
        case Linearity.LINEAR:
            return Vertex(q.operator, *changes)
        case Linearity.BILINEAR:
            (a, b) = changes
            return Vertex(
                Add(),
                Vertex(q.operator, _integral(a), b),
                Vertex(q.operator, a, Vertex(Delay(), _integral(b))),
            )
    (a,) = changes
    return Vertex(Haitch(q.operator), Vertex(Delay(), _integral(a)), a)


def _change(a: Vertex) -> Vertex:
    change = Vertex(Differentiate(), a)
    return cancel_inverses(change) or push_integral(change) or change


def _integral(change: Vertex) -> Vertex:
    integral = Vertex(Integrate(), change)
    return cancel_inverses(integral) or integral
