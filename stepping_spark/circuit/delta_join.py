"""The delta join: the change of a join of many inputs, without a state of its own.

    S₀ = base        Sⱼ = Sⱼ₋₁ ⋈ rⱼ        dSⱼ = dSⱼ₋₁ ⋈ I(rⱼ) + z⁻¹I(Sⱼ₋₁) ⋈ drⱼ

The first term joins a change with the new values of all later lookups. The second begins with drⱼ,
and finds the matching rows of Sⱼ₋₁: it goes back to the base, from each lookup to the input that
its key is read from, and then forward through the other lookups, always in their old values. So
only inputs are read, each by the keys of rows that it is joined with, and no Sⱼ is ever stored.

The base, usually the largest table, is read in its old value, so the change need not be added to
it. If a row of the base and the row that it looks up are deleted in one step, the second term
deletes the pair, and the first one finds nothing.

For a left lookup, Sⱼ = Sⱼ₋₁ ⋈ rⱼ + null(Sⱼ₋₁ − Sⱼ₋₁ ⋈ present(rⱼ)). So −d present(rⱼ) is added to
drⱼ: the rows that it matches lose, or get back, their NULL. The sum of both goes back only once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.operators import Add, Delay, Filter, Haitch, LookUp, Map, Neg, Present
from stepping_spark.expressions.expr import (
    Call,
    Expr,
    Field,
    Literal,
    replaced,
    tupled,
)
from stepping_spark.expressions.operations import OPERATORS
from stepping_spark.rows.atoms import BOOL, RowType
from stepping_spark.rows.schema import VALUE
from stepping_spark.rows.types import Optional, Struct, unwrap

S = TypeVar("S")  # a stream: a vertex in passes, a symbolic stream in queries


@dataclass(frozen=True)
class DeltaJoin(Generic[S]):
    """Writes the change of a join of several inputs, from their changes and integrals.

    The base comes first, then the table of each lookup. `apply` applies an operator.
    """

    rows: Sequence[RowType]
    lookups: Sequence[LookUp]
    changes: Sequence[S]
    integrals: Sequence[S]
    apply: Callable[..., S]

    def change(self) -> S:
        """The change of the whole join."""
        total = self.changes[0]
        for j, lookup in enumerate(self.lookups, 1):
            followed = self.apply(lookup, total, self.integrals[j])
            total = self.apply(Add(), followed, self._met(j))
        return total

    def _old(self, i: int) -> S:
        """The value of an input before this step."""
        return self.apply(Delay(), self.integrals[i])

    def _met(self, j: int) -> S:
        """z⁻¹I(Sⱼ₋₁) ⋈ drⱼ, as rows of Sⱼ."""
        lookup = self.lookups[j - 1]
        source, used = reached(self._on(j), self._lefts)
        keys = [Field(e.type, (f"_{m}",)) for m, e in enumerate(lookup.key, 2)]
        back = self._back(tuple(keys[m] for m in used), j, used, source, 0)
        rows = self.apply(back, self._first_relation(j), self._old(source))
        rest = [m for m in range(len(keys)) if m not in used]
        fields = [Field(t, (f"_{i}",)) for i, t in enumerate(self._members((source, j)), 1)]
        # The keys of drⱼ come after its row, because a row that is None has none.
        fields += [Field(keys[m].type, (f"_{m + 3}",)) for m in rest]
        rows = self.apply(Map(tupled(*fields)), rows)
        checks = [
            (self._on(j)[m], Field(keys[m].type, (f"_{j + 2 + n}",))) for n, m in enumerate(rest)
        ]
        rows, bound, more = self._gone_back(rows, [source, j], source)
        rows = self._gone_forward(rows, bound, j)
        for a, b in (*checks, *more):
            rows = self.apply(Filter(Call(Optional(BOOL), "==", (a, b))), rows)
        if rest:
            members = enumerate(self._members(range(j + 1)), 1)
            rows = self.apply(Map(tupled(*(Field(t, (f"_{i}",)) for i, t in members))), rows)
        return rows

    def _first_relation(self, j: int) -> S:
        """The rows of drⱼ, each with its key; for a left lookup also keys that appear or vanish."""
        lookup, row, change = self.lookups[j - 1], self.rows[j], self.changes[j]
        (member,) = self._members((j,))
        whole = Field(member, () if isinstance(row, Struct) else (VALUE,))
        rows = self.apply(Map(tupled(whole, *lookup.key)), change)
        if not lookup.left:
            return rows
        keys = self.apply(Haitch(Present(lookup.key)), self._old(j), change)
        named = [Field(e.type, (f"_{m}",)) for m, e in enumerate(lookup.key, 1)]
        absent = self.apply(Map(tupled(Literal(member, None), *named)), keys)
        return self.apply(Add(), rows, self.apply(Neg(), absent))

    def _gone_back(
        self, rows: S, bound: list[int], at: int
    ) -> tuple[S, list[int], list[tuple[Expr, Expr]]]:
        """The rows joined with all inputs back to the base, and the equalities still to check."""
        checks: list[tuple[Expr, Expr]] = []
        while at:
            key = self.lookups[at - 1].key
            source, used = reached(self._on(at), self._lefts)
            place = _place(bound, at)
            on = tuple(key[m].under(f"_{place + 1}") for m in used)
            back = self._back(on, at, used, source, _place(bound, source))
            rows = self.apply(back, rows, self._old(source))
            rest = [m for m in range(len(key)) if m not in used]
            checks += [(self._on(at)[m], key[m].under(f"_{at + 1}")) for m in rest]
            bound = sorted((*bound, source))
            at = source
        return rows, bound, checks

    def _gone_forward(self, rows: S, bound: list[int], j: int) -> S:
        """The rows joined with the remaining lookups before j."""
        for i in range(1, j):
            if i in bound:
                continue
            places = {n: p for p, n in enumerate(bound)}
            on = tuple(moved(e, places) for e in self._on(i))
            place = _place(bound, i)
            lookup = dataclasses.replace(self.lookups[i - 1], on=on, place=place, bare=False)
            rows = self.apply(lookup, rows, self._old(i))
            bound = sorted((*bound, i))
        return rows

    def _back(
        self, on: tuple[Expr, ...], j: int, used: Sequence[int], source: int, place: int
    ) -> LookUp:
        """The lookup of the rows from which the key of lookup j is read."""
        key = tuple(within(self._on(j)[m], self.rows[source]) for m in used)
        return LookUp(on, key, place, optional=source in self._lefts)

    def _on(self, j: int) -> tuple[Expr, ...]:
        """The key that lookup j looks for, over tuples of all previous inputs."""
        lookup = self.lookups[j - 1]
        return tuple(e.under("_1") for e in lookup.on) if lookup.bare else lookup.on

    def _members(self, inputs: Sequence[int]) -> list[RowType]:
        return [
            Optional(unwrap(self.rows[i])) if i in self._lefts else self.rows[i] for i in inputs
        ]

    @property
    def _lefts(self) -> set[int]:
        return {j for j, lookup in enumerate(self.lookups, 1) if lookup.left}


def _place(bound: Sequence[int], i: int) -> int:
    return sum(b < i for b in bound)


# -- the inputs from which a lookup's key is read


def reached(on: Sequence[Expr], lefts: set[int]) -> tuple[int, list[int]]:
    """The input that most parts of a key read alone, and the numbers of these parts.

    A part that can be other than NULL for a row that is None does not count: it may match rows
    without any row of that input.
    """
    by_input: dict[int, list[int]] = {}
    for m, part in enumerate(on):
        read = inputs_of(part)
        if len(read) == 1 and not (read & lefts and not _is_strict(part)):
            by_input.setdefault(min(read), []).append(m)
    if not by_input:
        shown = ", ".join(map(str, on))
        raise CompileError(
            f"{user_line()}: on={shown}: no part of the key is read from one input alone, so that "
            "its rows could be found by it; give a tuple of such parts, or look up what is before "
            "it with a delta_join of its own, and st.join that with the table"
        )
    source = min(by_input, key=lambda i: (-len(by_input[i]), i))
    return source, by_input[source]


def inputs_of(e: Expr) -> set[int]:
    """The numbers of the tuple's members that an expression reads."""
    read: set[int] = set()

    def note(field: Field) -> Expr:
        if not field.path:
            raise CompileError(
                f"{user_line()}: on returns the whole row so far; return fields of it: row[0].id"
            )
        read.add(int(field.path[0][1:]) - 1)
        return field

    if not e.in_sql:
        raise CompileError(
            f"{user_line()}: only Spark or Python can read the key {e} of a lookup; map the table "
            "that it is read from first, with the key as a field"
        )
    replaced(e, note)
    return read


def moved(e: Expr, places: dict[int, int]) -> Expr:
    """The expression, over tuples with each member at its new place."""
    return replaced(
        e, lambda f: Field(f.type, (f"_{places[int(f.path[0][1:]) - 1] + 1}", *f.path[1:]))
    )


def within(e: Expr, row: RowType) -> Expr:
    """The expression, over the rows of the single tuple member that it reads."""

    def own(f: Field) -> Expr:
        t = row
        for name in f.path[1:]:
            optional = isinstance(t, Optional)
            (t,) = (ft for n, ft in unwrap(t).fields if n == name)  # type: ignore[attr-defined]
            t = Optional(t) if optional and not isinstance(t, Optional) else t
        if len(f.path) == 1 and not isinstance(row, Struct):
            return Field(row, (VALUE,))
        return Field(t, f.path[1:])

    return replaced(e, own)


def _is_strict(e: Expr) -> bool:
    """Whether an expression is NULL if all fields that it reads are."""
    if isinstance(e, Call):
        return OPERATORS[e.op].strict and all(map(_is_strict, e.args))
    return isinstance(e, Field | Literal)
