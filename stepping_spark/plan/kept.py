"""The registers of a circuit: which streams it keeps the sum of, by which key, in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stepping_spark.callsite import Line
from stepping_spark.expressions.expr import Expr
from stepping_spark.graph.graph import AnyGraph, Path, Vertex
from stepping_spark.graph.operators import Arrange
from stepping_spark.physical import Sorting
from stepping_spark.plan.identities import Identities
from stepping_spark.plan.loop import LoopPlan
from stepping_spark.plan.terms import (
    Read,
    Stage,
    State,
    key_columns,
    ordering_of,
    shown_key,
)
from stepping_spark.rows.schema import Schema
from stepping_spark.store import Register, register_name


class Kept:
    """Finds the registers of a plan; `summed` gives the stream that a value is the sum of."""

    def __init__(
        self,
        graph: AnyGraph,
        names: Mapping[Vertex, tuple[Path, Line]],
        summed: Callable[[Vertex], Vertex],
        identities: Identities,
    ) -> None:
        self.graph = graph
        self.names = names
        self._identities = identities
        self._summed = summed

    def states(self, stages: tuple[Stage, ...], loops: dict[Vertex, LoopPlan]) -> tuple[State, ...]:
        """The registers that the stages and the loops read, and those of caches."""
        # For each register that is needed, the caches of that value: each has one of its name.
        wanted: dict[tuple[Vertex, tuple[Expr, ...]], list[str]] = {}
        for cache, v in self.graph.caches.items():
            first, *more = self._indexes(v) or [()]
            wanted.setdefault((self._summed(v), first), []).append(register_name(cache))
            for key in more:
                wanted.setdefault((self._summed(v), key), [])
        for stage in stages:
            for read in stage.reads:
                wanted.setdefault((read.change, read.key), [])
        for loop in loops.values():
            for read_by_key in loop.reads:
                wanted.setdefault(read_by_key, [])
        orders = _orders(stages)
        keyed = {change for change, key in wanted if key}
        taken: dict[str, int] = {}
        states = []
        for (change, key), names in wanted.items():
            if not key and change in keyed and not names:
                continue  # read whole through the register that has a key
            schema, by = change.type.schema, orders.get((change, key))
            columns, stored = key_columns(schema, key)
            order = None
            if by is not None:
                order, beside = ordering_of(schema, by)
                stored += beside
            held = Schema(schema.columns + tuple((c, e.type) for c, e in stored), schema.diffs)
            why = "" if names else self._why_strict(stages, change, key)
            for wish in names or [self._register_name(change, key)]:
                n = taken[wish] = taken.get(wish, 0) + 1
                name = wish if n == 1 else f"{wish} {n}"
                sums = self._identities.sums(change, key)
                register = Register(name, held, columns, sums, why, order)
                states.append(State(register, change, key, stored, by))
        return tuple(states)

    def _why_strict(self, stages: tuple[Stage, ...], change: Vertex, key: tuple[Expr, ...]) -> str:
        """What a register is for, where nothing but the check of a strict input reads it."""
        checks = {v: label for label, v in self.graph.strict.items()}
        readers = [
            m.vertex
            for stage in stages
            for m in stage.members
            if any(isinstance(r, Read) and (r.change, r.key) == (change, key) for r in m.leaves)
        ]
        if not readers or not checks.keys() >= set(readers):
            return ""
        return f"the rows of input {checks[readers[0]]!r}, because it is strict"

    def _indexes(self, v: Vertex) -> list[tuple[Expr, ...]]:
        keys = []
        while isinstance(v.operator, Arrange) or v in self.graph.loops:
            if isinstance(v.operator, Arrange):
                keys.append(v.operator.key.parts)
                v = v.inputs[0]
            else:
                v = self.graph.loops[v]
        return keys[::-1]

    def _register_name(self, change: Vertex, key: tuple[Expr, ...]) -> str:
        path = str(self.names[change][0])
        if not key:
            return path
        return f"{path} by {shown_key(key)}"


def _orders(stages: tuple[Stage, ...]) -> dict[tuple[Vertex, tuple[Expr, ...]], Sorting]:
    """The order of each register of which a window may need the last rows of a key only."""
    found: dict[tuple[Vertex, tuple[Expr, ...]], Sorting] = {}
    for stage in stages:
        for read in stage.reads:
            if read.cut is not None:
                found.setdefault((read.change, read.key), read.cut.sorting[0])
    return found
