"""From whole tables to changes: pushes integrals through operators, until they meet a D."""

from __future__ import annotations

from stepping_spark.graph.delta_join import DeltaJoin
from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import (
    Add,
    Arrange,
    Delay,
    Differentiate,
    Haitch,
    Hold,
    Integrate,
    Linearity,
    LookUp,
    MakeSet,
)
from stepping_spark.graph.rewrite import Circuit, rewrite
from stepping_spark.passes.cancel import cancel_inverses, is_integral
from stepping_spark.rows.schema import ZSetType


def push_integrals(graph: Circuit) -> Circuit:
    """Make D∘Q∘I work on changes: what was read in full is then read by key, or not at all."""
    named_after: dict[Vertex, Vertex] = {}

    def rule(v: Vertex) -> Vertex | None:
        pushed = push_integral(v, named_after)
        origin = graph.origins.get(v)
        if pushed is not None and (origin is None or origin.inner):
            named_after.setdefault(pushed, v.inputs[0])
        return pushed

    return rewrite(graph, rule, named_after)


def push_integral(v: Vertex, named_after: dict[Vertex, Vertex] | None = None) -> Vertex | None:
    """D(Q(I a)), by what Q is; applied where everything under the D is an integral.

    linear Q      D(Q(I a))      = Q(a)
    bilinear Q    D(I a ⋈ I b)   = I(a) ⋈ b + a ⋈ z⁻¹I(b)         (DBSP, theorem 3.4)
    temporal Q    D(Q_t(I a))    = hold(a): what is to come is held back until its time
    per key F     D(F(I a))      = H_F(z⁻¹I(a), a), if F(0) = 0    (DBSP, proposition 4.7)
    make_set      D(set(Q(I a))) = D(set(I(Q'(a)))), with Q' as above: the sum is one row
    lookups       D(I a ⋈ I b ⋈ …) = Σ changes of each, by `deltas`

    `named_after` collects the changes of inner operators: each takes the name of its operator.
    """
    named_after = {} if named_after is None else named_after
    if not isinstance(v.operator, Differentiate) or not is_integral(v.inputs[0]):
        return None
    q = v.inputs[0]
    if isinstance(q.operator, Integrate):
        return q.inputs[0]
    if isinstance(q.operator, Arrange):
        return Vertex(Differentiate(), q.inputs[0])
    if isinstance(q.operator, MakeSet):
        total = _integral(_change(q.inputs[0], named_after))
        known = total is q.inputs[0]
        return None if known else Vertex(Differentiate(), Vertex(q.operator, total))
    if isinstance(q.operator, LookUp):
        return _push_through_lookups(q, named_after)
    changes = tuple(_change(a, named_after) for a in q.inputs)
    match q.operator.linearity:
        case Linearity.LINEAR:
            return Vertex(q.operator, *changes)
        case Linearity.TEMPORAL:
            return Vertex(Hold(q.operator.time), *changes)  # type: ignore[attr-defined]
        case Linearity.BILINEAR:
            (a, b) = changes
            return Vertex(
                Add(),
                Vertex(q.operator, _integral(a), b),
                Vertex(q.operator, a, Vertex(Delay(), _integral(b))),
            )
    (a,) = changes
    return Vertex(Haitch(q.operator), Vertex(Delay(), _integral(a)), a)


def _push_through_lookups(last: Vertex, named_after: dict[Vertex, Vertex]) -> Vertex | None:
    """D(I a ⋈ I b ⋈ …), as a delta join; None where the lookups do not begin at a base."""
    lookups: list[LookUp] = []
    inputs: list[Vertex] = []
    known = last
    while isinstance(known.operator, LookUp):
        lookups.append(known.operator)
        known, table = known.inputs
        inputs.append(table)
        if lookups[-1].bare:
            changes = [_change(a, named_after) for a in (known, *reversed(inputs))]
            rows = [a.type.row for a in changes if isinstance(a.type, ZSetType)]
            integrals = [_integral(a) for a in changes]
            return DeltaJoin(rows, lookups[::-1], changes, integrals, Vertex).change()
    return None


def _change(a: Vertex, named_after: dict[Vertex, Vertex]) -> Vertex:
    whole = Vertex(Differentiate(), a)
    change = cancel_inverses(whole) or push_integral(whole, named_after) or whole
    named_after.setdefault(change, a)
    return change


def _integral(change: Vertex) -> Vertex:
    integral = Vertex(Integrate(), change)
    return cancel_inverses(integral) or integral
