"""D and I are each other's inverse."""

from __future__ import annotations

from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import Differentiate, Integrate, Linearity, MakeSet, Neg
from stepping_spark.graph.rewrite import Circuit, rewrite


def cancel(graph: Circuit) -> Circuit:
    """Remove what undoes itself: saves two registers, and reading one of them in full."""
    return rewrite(graph, cancel_inverses)


def cancel_inverses(v: Vertex) -> Vertex | None:
    """D(I(a)) = a;  −(−a) = a;  I(D(a)) = a, but where a is a function of integrals.

    Such an a would be computed in full at each step; its D is made incremental instead.
    """
    for outer, inner in ((Differentiate, Integrate), (Integrate, Differentiate), (Neg, Neg)):
        if isinstance(v.operator, outer) and isinstance(v.inputs[0].operator, inner):
            a = v.inputs[0].inputs[0]
            if inner is Differentiate and is_integral(a) and not isinstance(a.operator, Integrate):
                return None
            return a
    return None


def is_integral(v: Vertex) -> bool:
    """Whether a value is known to be a sum of changes, through and through."""
    if isinstance(v.operator, Integrate):
        return True
    if isinstance(v.operator, MakeSet):  # one row: it may be read in full
        return is_integral(v.inputs[0])
    if v.operator.linearity is Linearity.NONLINEAR or not v.inputs:
        return False
    return not isinstance(v.operator, Differentiate) and all(map(is_integral, v.inputs))
