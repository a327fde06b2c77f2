"""The nodes that fold: the result for a key depends on the consolidated rows of that key."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.index import Order
from stepping_spark.physical.nodes import Argument, Hole, Physical
from stepping_spark.physical.trees import walk
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.schema import GroupedType, ScalarType, Schema, columns_of
from stepping_spark.rows.types import ListOf, Optional


@dataclass(frozen=True)
class Fold(Physical):
    """A node whose result for a key depends on the sum of all rows of that key."""

    of: Physical

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.of,)


@dataclass(frozen=True)
class Positive(Fold):
    """Each row whose weights add up to more than zero: once, or, `counted`, so often."""

    counted: bool = False

    @property
    def schema(self) -> Schema:
        return self.of.schema


@dataclass(frozen=True)
class Rank(Fold):
    """The first n rows of each key by an order, then by the whole row; weights are counted.

    With `ties`, the order alone counts: all rows before which there are fewer than n, as SQL's
    RANK has it.
    """

    keys: tuple[Expr, ...]
    order: Order
    n: int
    ties: bool = False

    @property
    def schema(self) -> Schema:
        return self.of.schema

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (*self.keys, *(e for e, _ in self.order))


@dataclass(frozen=True)
class Gather(Fold):
    """A row for each key: the list of what its rows have, by an order, then by the whole row."""

    key: Expr
    order: Order
    item: Expr

    @cached_property
    def schema(self) -> Schema:
        return Schema(pair_of(ListOf(self.item.type), self.key.type).fields)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.key, self.item, *(e for e, _ in self.order))


@dataclass(frozen=True)
class Pieces(Fold):
    """A row for each key, which is the first column: the largest of each other column.

    A key that has no value in one of the first `required` of them has no row.
    """

    required: int
    once: bool = False  # whether each piece is there at most once, of weight 1: nothing to add up

    @cached_property
    def schema(self) -> Schema:
        fields = tuple(
            (n, t.inner if 1 <= i <= self.required and isinstance(t, Optional) else t)
            for i, (n, t) in enumerate(self.of.schema.columns)
        )
        return Schema(fields)


@dataclass(frozen=True)
class Totals(Fold):
    """The values of sums: a row for each key, with the sum and the key.

    Without a key it is one row, the sum, zero where nothing is.
    """

    type: GroupedType | ScalarType

    @cached_property
    def schema(self) -> Schema:
        if isinstance(self.type, GroupedType):
            return Schema(pair_of(self.type.sum.value, self.type.key).fields)
        return Schema(columns_of(self.type.sum.value))


@dataclass(frozen=True)
class ChangeOf(Physical):
    """The change of a fold: its result for state and change, less its result for the state.

    Of the state only the rows of the change's keys matter. The fold is over a `Hole`.
    """

    fold: Fold
    state: Physical
    change: Physical

    @property
    def schema(self) -> Schema:
        return self.fold.schema

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.state, self.change)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return self.fold.exprs


@dataclass(frozen=True)
class CollatedChange(Physical):
    """The change of rows that are made of what several folds give for a key.

    `pieces` is over a `Hole` for each part: the results of the part's fold. All that they give for
    the keys of the changes matters, whether it differs or not.
    """

    pieces: Pieces
    parts: tuple[ChangeOf, ...]

    @property
    def schema(self) -> Schema:
        return self.pieces.schema

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return tuple(i for part in self.parts for i in part.inputs)

    @cached_property
    def exprs(self) -> tuple[Expr, ...]:
        over_results = (e for n in walk(self.pieces) for e in n.exprs)
        return (*(e for part in self.parts for e in part.exprs), *over_results)


def change_of(tree: Physical, state: Physical, change: Physical) -> ChangeOf:
    """The change of a tree whose root is a fold, and which is linear below it."""
    if not isinstance(tree, Fold):
        raise TypeError(f"only a fold has a change by key, found {type(tree).__name__}")
    below = tree.of
    return ChangeOf(
        dataclasses.replace(tree, of=Hole(below.schema)), over(below, state), over(below, change)
    )


def over(tree: Physical, given: Physical) -> Physical:
    """The tree, of one argument, over a relation that is given."""
    if isinstance(tree, Argument):
        return given
    (below,) = tree.inputs
    return dataclasses.replace(tree, of=over(below, given))  # type: ignore[call-arg]
