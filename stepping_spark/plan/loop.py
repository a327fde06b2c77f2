"""The plan of a loop: the streams of its body that an iteration computes, and the state it reads.

A stream of the body has a value at each step t and iteration k. An iteration computes the change at
(t, k): how the step changes the difference between iterations k and k - 1. The state has these
changes by iteration, summed over the steps so far. Let x be the changes in this step and X the
state, both by iteration; x_<k and x_≤k are sums over iterations. Then the change of a join at
iteration k is

    a_k ⋈ (B + b)_≤k  +  a_<k ⋈ (B + b)_k  +  A_k ⋈ b_≤k  +  A_<k ⋈ b_k

and the change of an operator F that works per key, such as distinct, is

    F((A + a)_≤k) − F((A + a)_<k) − F(A_≤k) + F(A_<k),

for the keys that the step has changed. A later iteration may change the result for a key again, if
the state has rows of the key at that iteration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from stepping_spark.base.callsite import Line
from stepping_spark.circuit.graph import AnyGraph, Fixpoint, Path, Vertex
from stepping_spark.circuit.operators import Add, Input, Join, Linearity, Neg
from stepping_spark.expressions.expr import Expr
from stepping_spark.plan.step_ir import (
    Apply,
    Identities,
    Leaf,
    Materialized,
    RegisterPlan,
    Side,
    Slice,
    Term,
    When,
    key_columns,
    python_of,
    shown_key,
)
from stepping_spark.relations.store import Register
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.schema import Schema

ITERATION = "_iter_"


@dataclass(frozen=True)
class StateRead:
    """A look-up in the state of a stream, by the keys in the changes of another stream."""

    kept: Vertex
    key: tuple[Expr, ...]
    by: Vertex
    by_key: tuple[Expr, ...]
    nulls: bool  # whether NULL keys match each other


@dataclass(frozen=True)
class Round:
    """Streams that can be computed together at an iteration, and the state that they need."""

    look_ups: tuple[StateRead, ...]
    members: tuple[Materialized, ...]


@dataclass(frozen=True, eq=False)
class LoopPlan:
    """The plan of a recursion: the rounds of an iteration, repeated until nothing changes."""

    path: Path
    line: Line
    operator: Fixpoint
    inputs: tuple[Vertex, ...]  # of the surrounding circuit
    rounds: tuple[Round, ...]
    states: tuple[RegisterPlan, ...]  # of the streams of the body
    names: dict[Vertex, tuple[Path, Line]]

    @property
    def body(self) -> AnyGraph:
        """The circuit of one iteration."""
        return self.operator.body

    @cached_property
    def look_ups(self) -> tuple[StateRead, ...]:
        """All look-ups, each once."""
        return tuple(dict.fromkeys(x for r in self.rounds for x in r.look_ups))

    @cached_property
    def gives(self) -> tuple[Materialized, ...]:
        """The recursive streams, as the changes of all iterations."""
        return tuple(Materialized(v, Slice(v, when=When.SO_FAR)) for v in self.body.outputs)

    @cached_property
    def outside(self) -> dict[Vertex, Vertex]:
        """The body's vertices for outer streams. They are the same at each iteration."""
        return dict(zip(self.body.inputs, self.inputs, strict=True))

    @property
    def reads(self) -> Iterator[tuple[Vertex, tuple[Expr, ...]]]:
        """The outer streams whose sums are looked up, and the keys."""
        for x in self.look_ups:
            if x.kept in self.outside:
                yield self.outside[x.kept], x.key

    def __str__(self) -> str:
        lines = [f"loop {self.path}"]
        for i, r in enumerate(self.rounds, 1):
            lines.append(f"  round {i} of each iteration")
            for x in r.look_ups:
                kept, by = self.names[x.kept][0], self.names[x.by][0]
                lines.append(f"    look up {kept} by {shown_key(x.key)} at keys of {by}")
            lines += [f"    compute {self.names[m.vertex][0]}" for m in r.members]
        return "\n".join(lines)


def loop_of(
    operator: Fixpoint,
    inputs: tuple[Vertex, ...],
    path: Path,
    line: Line,
    identities: Identities,
) -> LoopPlan:
    """The plan of the loop of a recursion over these streams of the surrounding circuit."""
    return _LoopPlanner(operator, inputs, path, line, identities).loop()


class _LoopPlanner:
    def __init__(
        self,
        operator: Fixpoint,
        inputs: tuple[Vertex, ...],
        path: Path,
        line: Line,
        identities: Identities,
    ) -> None:
        self.operator, self.inputs, self.path, self.line = operator, inputs, path, line
        self.identities = identities
        self.body = operator.body
        self.order = list(self.body.walk())
        self.computed = self._computed()

    def loop(self) -> LoopPlan:
        members = [m for v in self.computed if (m := self._member(v)) is not None]
        depth = self._depths(members)
        deepest = max(depth.values(), default=0)
        rounds = []
        for d in range(1, deepest + 1):
            of_round = tuple(m for m in members if depth[m.vertex] == d)
            look_ups = dict.fromkeys(x for m in of_round for x in self._look_ups(m))
            rounds.append(Round(tuple(look_ups), of_round))
        names = {
            v: (Path((*self.path.parts, *p.parts[1:])), self.body.line(v))
            for v, p in self.body.paths.items()
        }
        states = self._states([x for r in rounds for x in r.look_ups], names)
        return LoopPlan(
            self.path, self.line, self.operator, self.inputs, tuple(rounds), states, names
        )

    def _computed(self) -> list[Vertex]:
        """The streams whose changes are kept while the loop runs."""
        streams: dict[Vertex, None] = dict.fromkeys(self.body.outputs)
        readers: dict[Vertex, int] = {}
        for v in self.order:
            for i in v.inputs:
                readers[i] = readers.get(i, 0) + 1
            if isinstance(v.operator, Join):
                streams.update(dict.fromkeys(v.inputs))
            elif v.operator.linearity is Linearity.PER_KEY or python_of(v) is not None:
                streams.update(dict.fromkeys((*v.inputs, v)))
        streams.update((v, None) for v, n in readers.items() if n > 1)
        return [v for v in self.order if v in streams]

    def _member(self, v: Vertex) -> Materialized | None:
        return None if not v.operator.arity else Materialized(v, self._operator(v))

    def _term(self, v: Vertex) -> Term:
        if not v.operator.arity or v in self.computed:
            return Slice(v)
        return self._operator(v)

    def _operator(self, v: Vertex) -> Term:
        op = v.operator
        if isinstance(op, Join):
            return _joined(v, op)
        if op.linearity is Linearity.PER_KEY:
            return _per_key(v)
        return Apply(v, op, tuple(self._term(i) for i in v.inputs))

    def _depths(self, members: list[Materialized]) -> dict[Vertex, int]:
        by_vertex = {m.vertex: m for m in members}
        depth: dict[Vertex, int] = {}
        for v in self.order:  # in the order in which an iteration computes them
            if v in by_vertex:
                waits = [x.vertex for x in by_vertex[v].leaves if isinstance(x, Slice)]
                depth[v] = 1 + max((depth.get(w, 0) for w in waits), default=0)
        return depth

    def _look_ups(self, m: Materialized) -> Iterator[StateRead]:
        def under(v: Vertex) -> Iterator[StateRead]:
            op = v.operator
            if isinstance(op, Join):
                (a, b), (left, right) = v.inputs, (op.left.parts, op.right.parts)
                yield StateRead(b, right, a, left, nulls=False)
                yield StateRead(a, left, b, right, nulls=False)
            elif op.linearity is Linearity.PER_KEY:
                (a,) = v.inputs
                key = op.keyed_by(a.type)
                yield StateRead(a, key, a, key, nulls=True)
            else:
                for i in v.inputs:
                    if i not in self.computed:
                        yield from under(i)

        yield from under(m.vertex)

    def _states(
        self, look_ups: list[StateRead], names: dict[Vertex, tuple[Path, Line]]
    ) -> tuple[RegisterPlan, ...]:
        states = []
        taken: dict[str, int] = {}
        for v, key in dict.fromkeys((x.kept, x.key) for x in look_ups):
            if isinstance(v.operator, Input):
                continue  # constant within a step: a register of the surrounding circuit
            schema = v.type.schema
            columns, stored = key_columns(schema, key)
            schema_held = Schema(
                (*schema.columns, (ITERATION, INT), *((c, e.type) for c, e in stored)),
                schema.diffs,
            )
            name = f"{names[v][0]} by {shown_key(key)}"
            n = taken[name] = taken.get(name, 0) + 1
            name = name if n == 1 else f"{name} {n}"
            sums = self.identities.sums_in_loop(self.operator, self.inputs, v, key)
            states.append(RegisterPlan(Register(name, schema_held, columns, sums), v, key, stored))
        return tuple(states)


def _joined(v: Vertex, op: Join) -> Term:
    """The change of a join at an iteration, by the equation above."""
    a, b = v.inputs
    left, right = op.left.parts, op.right.parts
    a_now, b_now = (Slice(x, key=key) for x, key in ((a, left), (b, right)))
    a_kept, b_kept = (Slice(x, Side.KEPT, When.NOW, key) for x, key in ((a, left), (b, right)))
    pairs: list[tuple[Term, Term]] = [
        (a_now, _new_state(b, right, When.SO_FAR, (a_now,))),
        (Slice(a, Side.CHANGED, When.BEFORE, left, (b_kept, b_now)), _sum(b, b_kept, b_now)),
        (a_kept, Slice(b, Side.CHANGED, When.SO_FAR, right, (a_kept,))),
        (Slice(a, Side.KEPT, When.BEFORE, left, (b_now,)), b_now),
    ]
    return _sum(v, *(Apply(v, op, pair) for pair in pairs))


def _per_key(v: Vertex) -> Term:
    """The change of an operator that works per key at an iteration, by the equation above."""
    (a,) = v.inputs
    key = v.operator.keyed_by(a.type)
    near = due_at(v)

    def of(t: Term) -> Apply:
        return Apply(v, v.operator, (t,))

    def old(when: When) -> Apply:
        return of(Slice(a, Side.KEPT, when, key, near))

    def new(when: When) -> Apply:
        return of(_new_state(a, key, when, near))

    less = Apply(v, Neg(), (_sum(v, new(When.BEFORE), old(When.SO_FAR)),))
    return _sum(v, new(When.SO_FAR), less, old(When.BEFORE))


def due_at(v: Vertex) -> tuple[Slice, ...]:
    """The slices whose keys an operator must be computed for at an iteration."""
    (a,) = v.inputs
    key = v.operator.keyed_by(a.type)
    return Slice(a, key=key), Slice(a, Side.KEPT, When.NOW, key)


def _new_state(x: Vertex, key: tuple[Expr, ...], when: When, near: tuple[Slice, ...]) -> Term:
    """The sum of a stream's state and change, at these iterations."""
    return _sum(x, *(Slice(x, side, when, key, near) for side in (Side.KEPT, Side.CHANGED)))


def _sum(v: Vertex, *terms: Term) -> Term:
    return terms[0] if len(terms) == 1 else Apply(v, Add(), terms)


def without(m: Materialized, empty: frozenset[Leaf]) -> Materialized | None:
    """The stream without its empty parts; None if all of it is empty. Cached."""
    if empty not in m.without:
        term = _without(m.term, empty)
        m.without[empty] = None if term is None else Materialized(m.vertex, term)
    return m.without[empty]


def _without(t: Term, empty: frozenset[Leaf]) -> Term | None:
    if not isinstance(t, Apply):
        return None if t in empty else t
    args = [_without(a, empty) for a in t.args]
    args_left = tuple(a for a in args if a is not None)
    if isinstance(t.operator, Add):
        return _sum(t.vertex, *args_left) if args_left else None
    # Linear, bilinear and per-key operators have no result rows without input rows.
    return Apply(t.vertex, t.operator, args_left) if len(args_left) == len(args) else None
