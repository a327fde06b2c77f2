"""Several operators per key whose results become one row: the last part of an aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from stepping_spark.graph.operators.base import GivesSets, Linearity, Operator
from stepping_spark.graph.operators.groups import Collate
from stepping_spark.graph.operators.linear import trees_of
from stepping_spark.physical import (
    Argument,
    ChangeOf,
    CollatedChange,
    Hole,
    Physical,
    Pieces,
    Union,
    change_of,
    over,
)
from stepping_spark.rows.schema import StreamType


@dataclass(frozen=True)
class Collated(GivesSets):
    """One row for each key, of what several operators give for it, each for an input of its own.

    Its result is that of `Collate` on the sum of their results, of which it keeps none. A part is
    an operator per key, and then the maps that make a piece of each of its rows. All parts have
    keys of one type.
    """

    parts: tuple[tuple[Operator, ...], ...]
    required: int
    linearity: ClassVar[Linearity] = Linearity.PER_KEY

    @cached_property
    def collate(self) -> Collate:
        """What makes one row of the pieces of a key."""
        return Collate(self.required)

    def type_of(self, *inputs: StreamType) -> StreamType:
        t = inputs[0]
        for operator in self.parts[0]:
            t = operator.type_of(t)
        return self.collate.type_of(t)

    def physical(self, *args: Argument) -> Physical:
        made = []
        for part, arg in zip(self.parts, args, strict=True):
            first, *maps = trees_of(part, (arg.type,))
            made.append(_after(over(first, arg), maps))
        return Pieces(Union(tuple(made)), self.required)

    def change(self, states: Sequence[Argument], changes: Sequence[Argument]) -> Physical:
        folds: list[ChangeOf] = []
        made: list[Physical] = []
        for part, state, change in zip(self.parts, states, changes, strict=True):
            first, *maps = trees_of(part, (change.type,))
            fold = change_of(first, state, change)
            made.append(_after(Hole(fold.schema, len(folds)), maps))
            folds.append(fold)
        return CollatedChange(Pieces(Union(tuple(made)), self.required, once=True), tuple(folds))

    @property
    def folds(self) -> tuple[Operator, ...]:
        return tuple(part[0] for part in self.parts)

    def identity(self) -> str:
        parts = (" · ".join(f"{p.name} {p.identity()}" for p in part) for part in self.parts)
        return f"{' + '.join(parts)} · {self.collate.identity()}"

    def describe(self) -> str:
        of = " + ".join(f"{p[0].name} {p[0].describe()}".strip() for p in self.parts)
        return f"of {of}, {self.collate.describe()}"


def _after(tree: Physical, maps: Sequence[Physical]) -> Physical:
    """What maps make of a tree, one after the other."""
    for f in maps:
        tree = over(f, tree)
    return tree
