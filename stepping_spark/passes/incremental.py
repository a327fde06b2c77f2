"""Makes queries incremental: pushes integrals through operators, until they meet a D."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial

from stepping_spark.circuit.delta_join import DeltaJoin
from stepping_spark.circuit.graph import AnyCircuit, Vertex, reachable, rewrite
from stepping_spark.circuit.operators import (
    Add,
    Arrange,
    Collate,
    Collated,
    Delay,
    Differentiate,
    Haitch,
    Hold,
    Integrate,
    Linearity,
    LookUp,
    MakeSet,
    Map,
    Neg,
    Operator,
    Top,
)
from stepping_spark.expressions.expr import PythonCall
from stepping_spark.rows.schema import ZSetType


def cancel(graph: AnyCircuit) -> AnyCircuit:
    """Remove pairs of inverse operators: saves two registers, and a full read of one of them."""
    return rewrite(graph, cancel_inverses)


def cancel_inverses(v: Vertex) -> Vertex | None:
    """D(I(a)) = a;  −(−a) = a;  I(D(a)) = a, unless a is a function of integrals.

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
    """Whether a value is a function of integrals only, by operators that can be incremental."""
    if isinstance(v.operator, Integrate):
        return True
    if isinstance(v.operator, MakeSet):  # one row: it may be read in full
        return is_integral(v.inputs[0])
    if v.operator.linearity is Linearity.NONLINEAR or not v.inputs:
        return False
    return not isinstance(v.operator, Differentiate) and all(map(is_integral, v.inputs))


def push_integrals(graph: AnyCircuit) -> AnyCircuit:
    """Make D∘Q∘I work on changes: full reads become reads by key, or disappear."""
    named_after: dict[Vertex, Vertex] = {}

    def rule(v: Vertex) -> Vertex | None:
        pushed = push_integral(v, named_after)
        origin = graph.origins.get(v)
        if pushed is not None and (origin is None or origin.inner):
            named_after.setdefault(pushed, v.inputs[0])
        return pushed

    return rewrite(graph, rule, named_after)


def push_integral(v: Vertex, named_after: dict[Vertex, Vertex] | None = None) -> Vertex | None:
    """D(Q(I a)) as a query on changes; applied if everything under the D is an integral.

    linear Q      D(Q(I a))      = Q(a)
    bilinear Q    D(I a ⋈ I b)   = I(a) ⋈ b + a ⋈ z⁻¹I(b)         (DBSP, theorem 3.4)
    temporal Q    D(Q_t(I a))    = hold(a): rows are held back until their time
    per key F     D(F(I a))      = H_F(z⁻¹I(a), a), if F(0) = 0    (DBSP, proposition 4.7)
    make_set      D(set(Q(I a))) = D(set(I(Q'(a)))), with Q' as above: the sum is one row
    lookups       D(I a ⋈ I b ⋈ …) = Σ changes of each, by `circuit.delta_join`

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
        is_left = total is q.inputs[0]
        return None if is_left else Vertex(Differentiate(), Vertex(q.operator, total))
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
    """D(I a ⋈ I b ⋈ …), as a delta join; None if the lookups do not begin at a base."""
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


def recognise_integrals(graph: AnyCircuit) -> AnyCircuit:
    """Replace a loop z = y + a, y = z⁻¹(z) by z = I(a): one register that adds up changes."""
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
    """The stream a of a loop z = y + a, where y is z⁻¹(z); None for another loop."""
    if isinstance(source.operator, Delay):
        total, before = source.inputs[0], leaf
    else:
        total, before = source, Vertex(Delay(), leaf)
    if not isinstance(total.operator, Add) or before not in total.inputs:
        return None
    first, second = total.inputs
    return second if first is before else first


def recognise_differences(graph: AnyCircuit) -> AnyCircuit:
    """Replace a − z⁻¹(a) by D(a)."""
    return rewrite(graph, difference)


def difference(v: Vertex) -> Vertex | None:
    """−z⁻¹(a) + a = D(a)."""
    if not isinstance(v.operator, Add):
        return None
    for negated, a in (v.inputs, v.inputs[::-1]):
        if negated is Vertex(Neg(), Vertex(Delay(), a)):
            return Vertex(Differentiate(), a)
    return None


def collate_at_once(graph: AnyCircuit) -> AnyCircuit:
    """Compute the rows of touched keys from the states of the reductions: saves a state of pieces.

    H_collate(z⁻¹I(p), p) = H_(collate ∘ Σ fᵢ)(z⁻¹I(a₁), a₁, z⁻¹I(a₂), a₂, …), if p is the sum of
    changes H_fᵢ(z⁻¹I(aᵢ), aᵢ): such changes add up to fᵢ(I(aᵢ)). A step reads the states of all
    reductions at the keys that any of them changes.
    """
    fed_back = frozenset(graph.loops.values())
    return rewrite(graph, partial(_at_once, fed_back))


def _at_once(fed_back: frozenset[Vertex], v: Vertex) -> Vertex | None:
    h = v.operator
    if not isinstance(h, Haitch) or not isinstance(h.of, Collate):
        return None
    state, change = v.inputs
    if state is not _before(change):
        return None
    parts: list[tuple[Operator, ...]] = []
    inputs: list[Vertex] = []
    for piece in _addends(change):
        pair = _part(piece, fed_back)
        if pair is None:
            return None
        part, argument = pair
        parts.append(part)
        inputs += argument
    return Vertex(Haitch(Collated(tuple(parts), h.of.required)), *inputs)


def _addends(v: Vertex) -> Iterator[Vertex]:
    """The terms of which a stream is the sum."""
    if isinstance(v.operator, Add):
        for i in v.inputs:
            yield from _addends(i)
    else:
        yield v


def _part(
    v: Vertex, fed_back: frozenset[Vertex]
) -> tuple[tuple[Operator, ...], tuple[Vertex, Vertex]] | None:
    """The operators that make pieces of rows by key, and the state of the rows with its change."""
    maps: list[Operator] = []
    while isinstance(v.operator, Map) and not isinstance(v.operator.f, PythonCall):
        maps.append(v.operator)
        (v,) = v.inputs
    if not isinstance(v.operator, Haitch) or not v.operator.of.reduces:
        return None
    fold, (state, change) = v.operator.of, v.inputs
    if v in fed_back and isinstance(fold, Top):
        # Its own sum is its state: the first rows of the first rows are themselves.
        state, change = _before(v), v
    if state is not _before(change):
        return None
    return (fold, *reversed(maps)), (state, change)


def _before(change: Vertex) -> Vertex:
    """The sum of the changes before the step."""
    return Vertex(Delay(), Vertex(Integrate(), change))
