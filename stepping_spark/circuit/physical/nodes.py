"""The nodes: relations made of relations, also those that fold the rows of a key.

Each has a `schema`, the relations that it is made of as `inputs`, and the functions of rows that it
evaluates as `exprs`, over the columns of its inputs. Rows may stand several times in what a node
gives, unless it is a fold: weights are added up where somebody asks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from stepping_spark.expressions.expr import Build, Expr, Field
from stepping_spark.expressions.index import Key, Order
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.schema import (
    Columns,
    GroupedType,
    ScalarType,
    Schema,
    StreamType,
    columns_of,
)
from stepping_spark.rows.types import ListOf, Optional, Struct


@dataclass(frozen=True)
class Physical:
    """A relation, and how it is made."""

    @property
    def schema(self) -> Schema:
        """The columns and diffs of the result."""
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[Physical, ...]:
        """The relations that the node reads."""
        return ()

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """The functions of rows that the node evaluates."""
        return ()


@dataclass(frozen=True)
class Argument(Physical):
    """One of the relations that a tree is over."""

    number: int
    type: StreamType

    @cached_property
    def schema(self) -> Schema:
        return self.type.schema


@dataclass(frozen=True)
class NoRows(Physical):
    """A relation without rows."""

    of: Schema

    @property
    def schema(self) -> Schema:
        return self.of


@dataclass(frozen=True)
class Hole(Physical):
    """A placeholder for a relation; of several in one tree, each has a number."""

    of: Schema
    number: int = 0

    @property
    def schema(self) -> Schema:
        return self.of


@dataclass(frozen=True)
class Cell:
    """An expression as columns: one, or, where it is a row that is spread, one for each field."""

    expr: Expr
    columns: Columns
    spread: bool = False


def cells_of(f: Expr) -> tuple[Cell, ...]:
    """The columns of a function's result."""
    if not isinstance(f.type, Struct):
        return (Cell(f, columns_of(f.type)),)
    if isinstance(f, Build):
        return tuple(Cell(e, (c,)) for e, c in zip(f.fields, f.type.fields, strict=True))
    if isinstance(f, Field) and not f.path:
        return of_columns(f.type.fields)
    return (Cell(f, f.type.fields, spread=True),)


def of_columns(columns: Columns) -> tuple[Cell, ...]:
    """Columns as they are."""
    return tuple(Cell(Field(t, (n,)), ((n, t),)) for n, t in columns)


@dataclass(frozen=True)
class Project(Physical):
    """Each row becomes another; its weight stays."""

    of: Physical
    cells: tuple[Cell, ...]

    @cached_property
    def schema(self) -> Schema:
        return Schema(sum((c.columns for c in self.cells), ()), self.of.schema.diffs)

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.of,)

    @cached_property
    def exprs(self) -> tuple[Expr, ...]:
        return tuple(c.expr for c in self.cells)


@dataclass(frozen=True)
class _Same(Physical):
    """A node whose rows have the type of its input."""

    of: Physical

    @property
    def schema(self) -> Schema:
        return self.of.schema

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.of,)


@dataclass(frozen=True)
class Where(_Same):
    """The rows for which a condition is true; NULL is not true."""

    condition: Expr

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.condition,)


@dataclass(frozen=True)
class Due(_Same):
    """The timed rows whose time has come, at the time of the step."""

    time: RowType


@dataclass(frozen=True)
class BelowGreatest(_Same):
    """The rows whose value is before the greatest value of another relation, less a distance.

    `distance` is in the unit of the values, as `expressions.expr` has it. If the other relation
    has no rows, no row qualifies, and a NULL value never does. With `others` the result is the rows
    that do not qualify.
    """

    greatest: Physical  # of one column
    value: Expr
    distance: int
    others: bool = False

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.of, self.greatest)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.value,)


@dataclass(frozen=True)
class Negate(_Same):
    """The same rows with every diff negated."""


@dataclass(frozen=True)
class Unnest(Physical):
    """A row for each item of a list; `carried` columns of the row go along.

    `paths` lead to the columns within an item. Where `weight` does too, weights multiply. `name`
    is the operator that users know, for errors.
    """

    of: Physical
    lists: Expr
    paths: tuple[tuple[str, ...], ...]
    columns: Columns
    weight: tuple[str, ...] | None
    carried: Columns
    name: str

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.columns, *self.carried), self.of.schema.diffs)

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.of,)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.lists,)


@dataclass(frozen=True)
class Union(Physical):
    """The rows of all."""

    parts: tuple[Physical, ...]

    @property
    def schema(self) -> Schema:
        return self.parts[0].schema

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return self.parts


@dataclass(frozen=True)
class EquiJoin(Physical):
    """Rows of both sides whose keys are equal; weights multiply. NULL equals nothing.

    A cell is the number of a side (0 or 1) and an expression over its row.
    """

    left: Physical
    right: Physical
    left_key: tuple[Expr, ...]
    right_key: tuple[Expr, ...]
    cells: tuple[tuple[int, Expr], ...]
    columns: Columns

    @cached_property
    def schema(self) -> Schema:
        return Schema(self.columns)

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.left, self.right)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (*self.left_key, *self.right_key, *(e for _, e in self.cells))


@dataclass(frozen=True)
class AntiJoin(Physical):
    """The rows of the left side whose key the right side does not have. NULL matches nothing."""

    left: Physical
    right: Physical  # of keys, each once
    key: tuple[Expr, ...]

    @property
    def schema(self) -> Schema:
        return self.left.schema

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.left, self.right)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return self.key


@dataclass(frozen=True)
class Contributions(Physical):
    """What each row adds to a sum, by key: the rows of a sum as a relation has it."""

    of: Physical
    key: Key | None
    pick: Expr
    type: GroupedType | ScalarType

    @property
    def schema(self) -> Schema:
        return self.type.schema

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.of,)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.pick,) if self.key is None else (self.pick, *self.key.parts)


def paths_of(item: RowType, *before: str) -> tuple[tuple[str, ...], ...]:
    """The paths to the columns of a row that is nested in another."""
    if isinstance(item, Struct):
        return tuple((*before, n) for n, _ in item.fields)
    return (before,)


def walk(*trees: Physical) -> Iterator[Physical]:
    """The nodes of trees, inputs first."""
    for tree in trees:
        yield from walk(*tree.inputs)
        yield tree


def times_read(tree: Physical, number: int) -> int:
    """How often the text of a tree has an argument."""
    if isinstance(tree, Argument):
        return int(tree.number == number)
    times = sum(times_read(i, number) for i in tree.inputs)
    if isinstance(tree, AntiJoin):  # once for keys, once for NULL
        times += times_read(tree.left, number)
    return times


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
class LargestByKey(Fold):
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

    pieces: LargestByKey
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
