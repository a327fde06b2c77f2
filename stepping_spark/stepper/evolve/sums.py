"""Tests whether the first step of a circuit on sums returns the sums of the results of its steps.

It does if the circuit is the incremental form of a query. To prove that, each stream is written as
a polynomial of the streams that it is computed from, before the step and as the step changes them.
With P the value before and Δ the change of each,

    a change of a query  has, for a product of n streams, all of P·Δ … Δ·Δ but P·P, equally often
    the value of a query has all of them equally often
    the old value        has P·P only

So I(a) ⋈ b + a ⋈ z⁻¹I(b) = (Pₐ + Δₐ) Δᵦ + Δₐ Pᵦ is a change, whatever a pass has made of it, and
a ⋈ I(b), a join with the current value, is none. Operators per key, such as distinct, and nonlinear
ones, are streams of their own: H_F(z⁻¹I(a), a) is the change of F(a).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any, TypeAlias

from stepping_spark.circuit.delta_join import DeltaJoin
from stepping_spark.circuit.graph import Fixpoint, Vertex
from stepping_spark.circuit.operators import (
    Add,
    Arrange,
    BucketedTop,
    Delay,
    Differentiate,
    Haitch,
    Hold,
    Input,
    Integrate,
    Linearity,
    LookUp,
    Neg,
    Nothing,
    Operator,
)
from stepping_spark.rows.schema import ZSetType

BEFORE, CHANGE = "before", "change"
MOST = 65_536
"""The most terms of a polynomial; larger ones are not examined."""

# A product: a leaf (a stream, at a time), or an operator over products.
Monomial: TypeAlias = Any
Polynomial: TypeAlias = "Counter[Monomial]"
FrozenPolynomial: TypeAlias = "frozenset[tuple[Monomial, int]]"
"""The products, without times, of which a stream is the change or the value, with coefficients."""


class StreamKinds:
    """Classifies the streams of a circuit: changes of a query, its values, or neither."""

    def __init__(self) -> None:
        self._found: dict[Vertex, Polynomial | None] = {}
        self._numbers: dict[Hashable, int] = {}
        self._bare: dict[Vertex, Vertex] = {}

    def is_change(self, v: Vertex) -> bool:
        """Whether the sum of a stream is a function of the sums of the inputs."""
        return self._change_of(v) is not None

    def is_value(self, v: Vertex) -> bool:
        """Whether a stream itself is a function of the sums of the inputs, and not a change."""
        return not self.is_change(v) and self._total(v, with_before=True) is not None

    def _change_of(self, v: Vertex) -> FrozenPolynomial | None:
        return self._total(v, with_before=False)

    def _total(self, v: Vertex, *, with_before: bool) -> FrozenPolynomial | None:
        polynomial = self._of(v)
        return None if polynomial is None else _total(polynomial, with_before=with_before)

    def _of(self, root: Vertex) -> Polynomial | None:
        pending = [root]
        while pending:  # a long chain of operators is deeper than Python's stack
            v = pending[-1]
            missing = [i for i in v.inputs if i not in self._found]
            if missing:
                pending += missing
                continue
            pending.pop()
            if v not in self._found:
                self._found[v] = self._polynomial(v)
        return self._found[root]

    def _polynomial(self, v: Vertex) -> Polynomial | None:
        op = v.operator
        if isinstance(op, Input):
            return self._own_change(v)
        if isinstance(op, Nothing):
            return Counter()
        if not v.inputs:
            return None  # a feedback
        looked_up = _lookups(self._unarranged(v)) if isinstance(op, Add) else None
        if looked_up is not None:
            lookups, changes = looked_up
            totals = [self._change_of(a) for a in changes]
            return None if None in totals else self._own_change((lookups, *totals))
        inputs = [self._found[i] for i in v.inputs]
        polynomials = [p for p in inputs if p is not None]
        if len(polynomials) < len(inputs):
            return None
        if isinstance(op, Integrate):
            return _spread(_total(polynomials[0], with_before=False), CHANGE, BEFORE)
        if isinstance(op, Delay):
            return _spread(_total(polynomials[0], with_before=True), BEFORE)
        if isinstance(op, Differentiate):
            value = _total(polynomials[0], with_before=True)
            return _without_before(_spread(value, CHANGE, BEFORE))
        if isinstance(op, Arrange):
            return polynomials[0]
        if isinstance(op, Add):
            return _added(polynomials, 1)
        if isinstance(op, Neg):
            return _added(polynomials, -1)
        if isinstance(op, Haitch):
            return self._per_key(op.of, polynomials)
        if isinstance(op, BucketedTop):
            return self._per_key(op, polynomials)
        if isinstance(op, Fixpoint | Hold):
            totals = [_total(p, with_before=False) for p in polynomials]
            return None if None in totals else self._own_change((op, *totals))
        if op.linearity is Linearity.LINEAR:
            return _applied(op, polynomials[:1])
        if op.linearity is Linearity.BILINEAR or (isinstance(op, LookUp) and not op.left):
            return _applied(op, polynomials)
        return self._of_values(op, polynomials)

    def _per_key(self, op: Operator, polynomials: list[Polynomial]) -> Polynomial | None:
        """The polynomial of a change by key, if each pair of its inputs is z⁻¹I(a) and a."""
        changes = [_total(p, with_before=False) for p in polynomials[1::2]]
        for before, change in zip(polynomials[::2], changes, strict=True):
            if change is None or before != _spread(change, BEFORE):
                return None
        return self._own_change((op, *changes))

    def _of_values(self, op: Hashable, polynomials: list[Polynomial]) -> Polynomial | None:
        """The polynomial of a function of new values, or of old ones."""
        totals = [_total(p, with_before=True) for p in polynomials]
        if None not in totals:
            return Counter({self._leaf((op, *totals), t): 1 for t in (CHANGE, BEFORE)})
        olds = [_before(p) for p in polynomials]
        return None if None in olds else Counter({self._leaf((op, *olds), BEFORE): 1})

    def _unarranged(self, v: Vertex) -> Vertex:
        """The vertex without the arrangements below it."""
        if v not in self._bare:
            inputs = map(self._unarranged, v.inputs)
            is_kept = isinstance(v.operator, Arrange)
            self._bare[v] = next(inputs) if is_kept else Vertex(v.operator, *inputs)
        return self._bare[v]

    def _own_change(self, stream: Hashable) -> Polynomial:
        """The polynomial of the change of an atomic stream."""
        return Counter({self._leaf(stream, CHANGE): 1})

    def _leaf(self, stream: Hashable, time: str) -> Monomial:
        return ("of", self._numbers.setdefault(stream, len(self._numbers)), time)


def _lookups(v: Vertex) -> tuple[tuple[LookUp, ...], list[Vertex]] | None:
    """The lookups of a delta join, and the changes of its inputs; None for another vertex."""
    lookups: list[LookUp] = []
    changes: list[Vertex] = []
    known = v
    while isinstance(known.operator, Add) and isinstance(known.inputs[0].operator, LookUp):
        lookup = known.inputs[0].operator
        known, table = known.inputs[0].inputs
        if not isinstance(table.operator, Integrate):
            return None
        lookups.insert(0, lookup)
        changes.insert(0, table.inputs[0])
        if lookup.bare:
            changes.insert(0, known)
            rows = [a.type.row for a in changes if isinstance(a.type, ZSetType)]
            integrals = [Vertex(Integrate(), a) for a in changes]
            join = DeltaJoin(rows, lookups, changes, integrals, Vertex).change()
            return (tuple(lookups), changes) if join is v else None
    return None


def _leaves(t: Monomial) -> int:
    return 1 if t[0] == "of" else sum(map(_leaves, t[2:]))


def _times(t: Monomial) -> Iterable[str]:
    if t[0] == "of":
        yield t[2]
    else:
        for part in t[2:]:
            yield from _times(part)


def _shape(t: Monomial) -> Monomial:
    """A product without its times."""
    return t[:2] if t[0] == "of" else (*t[:2], *map(_shape, t[2:]))


def _at_times(shape: Monomial, times: Iterable[str]) -> Monomial:
    """A product with these times, one for each leaf."""
    ordered = iter(times)

    def at(t: Monomial) -> Monomial:
        return (*t, next(ordered)) if t[0] == "of" else (*t[:2], *map(at, t[2:]))

    return at(shape)


def _total(p: Polynomial, *, with_before: bool) -> FrozenPolynomial | None:
    """The products whose change a polynomial is, or with `with_before` whose value; or None."""
    by_shape: dict[Monomial, dict[tuple[str, ...], int]] = {}
    for term, often in p.items():
        by_shape.setdefault(_shape(term), {})[tuple(_times(term))] = often
    pairs = []
    for shape, often_at in by_shape.items():
        n = _leaves(shape)
        often = next(iter(often_at.values()))
        is_even = set(often_at.values()) == {often}
        all_before = (BEFORE,) * n in often_at
        if not is_even or all_before != with_before:
            return None
        if len(often_at) != 2**n - (not with_before):
            return None
        pairs.append((shape, often))
    return frozenset(pairs)


def _before(p: Polynomial) -> FrozenPolynomial | None:
    """The products of which a polynomial is the old value; None if it is none."""
    if any(time != BEFORE for term in p for time in _times(term)):
        return None
    return frozenset((_shape(term), often) for term, often in p.items())


def _spread(total: FrozenPolynomial | None, *times: str) -> Polynomial | None:
    """All products of a total at all of these times; None without a total, or beyond `MOST`."""
    terms: Polynomial = Counter()
    for shape, often in total or ():
        n = _leaves(shape)
        if len(times) ** n > MOST:
            return None
        for chosen in itertools.product(times, repeat=n):
            terms[_at_times(shape, chosen)] += often
    return None if total is None else terms


def _without_before(p: Polynomial | None) -> Polynomial | None:
    return None if p is None else Counter({t: n for t, n in p.items() if CHANGE in _times(t)})


def _added(polynomials: list[Polynomial], sign: int) -> Polynomial:
    terms: Polynomial = Counter()
    for p in polynomials:
        for term, often in p.items():
            terms[term] += sign * often
    return Counter({t: n for t, n in terms.items() if n})


def _applied(op: Hashable, polynomials: list[Polynomial]) -> Polynomial | None:
    """The polynomial of an operator that is linear in each of its inputs."""
    size = 1
    for p in polynomials:
        size *= max(1, len(p))
    if size > MOST:
        return None
    terms: Polynomial = Counter()
    for chosen in itertools.product(*(p.items() for p in polynomials)):
        often = 1
        for _, n in chosen:
            often *= n
        terms[("by", op, *(t for t, _ in chosen))] += often
    return terms
