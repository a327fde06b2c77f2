"""The nodes: relations made of relations, also by folding the rows of a key.

Each has a `schema`, `inputs`, which are the relations that it reads, and `exprs`, the functions of
rows that it evaluates over the columns of its inputs. The result of a node need not be
consolidated, unless the node is a fold: a reader that needs it consolidated adds up the weights.
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
    """A node: a relation that is made of others."""

    @property
    def schema(self) -> Schema:
        """The columns and diffs of the result."""
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[Physical, ...]:
        """The relations that the node reads."""
        return ()

    @property
    def occurrences(self) -> tuple[int, ...]:
        """The number of occurrences of each input in the SQL text of the node."""
        return (1,) * len(self.inputs)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """The functions of rows that the node evaluates."""
        return ()


@dataclass(frozen=True)
class Argument(Physical):
    """One of the relations over which a tree is built."""

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
    """A placeholder for a relation; several in one tree have different numbers."""

    of: Schema
    number: int = 0

    @property
    def schema(self) -> Schema:
        return self.of


@dataclass(frozen=True)
class Cell:
    """An expression as one column; or, if `spread`, a row as one column for each field."""

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
    """Cells that copy columns."""
    return tuple(Cell(Field(t, (n,)), ((n, t),)) for n, t in columns)


@dataclass(frozen=True)
class Project(Physical):
    """Maps each row to another row with the same weight."""

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
    """The timed rows whose time is at most the time of the step."""

    time: RowType


@dataclass(frozen=True)
class BelowGreatest(_Same):
    """The rows whose value is before the greatest value of another relation, minus a distance.

    `distance` is in the unit of the values, see `expressions.expr`. If the other relation
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
    """The rows with every diff negated."""


@dataclass(frozen=True)
class Unnest(Physical):
    """A row for each item of a list, with the `carried` columns of its row.

    `paths` lead to the columns within an item. `weight` is the path of its weight, if it has one:
    weights multiply. `name` is the name of the operator in errors.
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
    """The rows of all parts: their sum."""

    parts: tuple[Physical, ...]

    @property
    def schema(self) -> Schema:
        return self.parts[0].schema

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return self.parts


@dataclass(frozen=True)
class EquiJoin(Physical):
    """Pairs of rows of both sides with equal keys; weights multiply. NULL equals nothing.

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
    """The rows of the left side whose key is not on the right side. NULL matches nothing."""

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
    def occurrences(self) -> tuple[int, ...]:
        return (2, 1)  # once for keys, once for NULL

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return self.key


@dataclass(frozen=True)
class Contributions(Physical):
    """The contribution of each row to a sum, by key, as a relation of sums."""

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
    """The number of occurrences of an argument in the SQL text of a tree."""
    if isinstance(tree, Argument):
        return int(tree.number == number)
    by_input = zip(tree.occurrences, tree.inputs, strict=True)
    return sum(n * times_read(i, number) for n, i in by_input)


@dataclass(frozen=True)
class Fold(Physical):
    """A node whose result for a key depends on all rows of that key, added up."""

    of: Physical

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.of,)


@dataclass(frozen=True)
class Positive(Fold):
    """Each row with a positive total weight: once, or with that weight if `counted`."""

    counted: bool = False

    @property
    def schema(self) -> Schema:
        return self.of.schema


@dataclass(frozen=True)
class Rank(Fold):
    """The first n rows of each key by an order, then by the whole row; weights are counted.

    With `ties`, only the order counts: all rows that fewer than n rows precede, like SQL's RANK.
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
    """A row for each key: the list of its rows' items, by an order, then by the whole row."""

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
    """A row for each key, the first column, with the largest value of each other column.

    A key without a value in one of the first `required` other columns has no row.
    """

    required: int
    once: bool = False  # whether each piece occurs at most once, with weight 1

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

    Without a key it is a single row, the sum, which is zero if there are no rows.
    """

    type: GroupedType | ScalarType

    @cached_property
    def schema(self) -> Schema:
        if isinstance(self.type, GroupedType):
            return Schema(pair_of(self.type.sum.value, self.type.key).fields)
        return Schema(columns_of(self.type.sum.value))


@dataclass(frozen=True)
class ChangeOf(Physical):
    """The change of a fold: its result for state plus change, minus its result for the state.

    Only the state's rows of the change's keys are needed. The fold is over a `Hole`.
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
    def occurrences(self) -> tuple[int, ...]:
        return (2, 1)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return self.fold.exprs


@dataclass(frozen=True)
class CollatedChange(Physical):
    """The change of rows that are combined from the results of several folds for a key.

    `pieces` is over a `Hole` for each part: the results of the part's fold. It needs all results
    for the keys of the changes, whether they differ or not.
    """

    pieces: LargestByKey
    parts: tuple[ChangeOf, ...]

    @property
    def schema(self) -> Schema:
        return self.pieces.schema

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return tuple(i for part in self.parts for i in part.inputs)

    @property
    def occurrences(self) -> tuple[int, ...]:
        return tuple(2 * n for part in self.parts for n in part.occurrences)

    @cached_property
    def exprs(self) -> tuple[Expr, ...]:
        over_results = (e for n in walk(self.pieces) for e in n.exprs)
        return (*(e for part in self.parts for e in part.exprs), *over_results)


BUCKET = "_bucket_"
"""The column of the bucket of a row, while an engine finds the first rows of buckets."""


@dataclass(frozen=True)
class BucketedRank(Physical):
    """The change of some rows of each key, among which are the first ones: see `BucketedTop`.

    `rank` finds the first rows, over a `Hole`. Groups of at most `read_whole` rows have no buckets.
    `state` and `firsts` need only the rows of the keys of the change.
    """

    rank: Rank
    buckets: int
    read_whole: int
    state: Physical
    change: Physical
    firsts: Physical

    @property
    def schema(self) -> Schema:
        return self.rank.schema

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.state, self.change, self.firsts)

    @property
    def occurrences(self) -> tuple[int, ...]:
        return (4, 9, 1)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return self.rank.exprs


def change_of(tree: Physical, state: Physical, change: Physical) -> ChangeOf:
    """The change of a tree whose root is a fold over a linear tree."""
    if not isinstance(tree, Fold):
        raise TypeError(f"only a fold has a change by key, found {type(tree).__name__}")
    below = tree.of
    return ChangeOf(
        dataclasses.replace(tree, of=Hole(below.schema)), over(below, state), over(below, change)
    )


def over(tree: Physical, given: Physical) -> Physical:
    """A tree of one argument, with a relation in place of the argument."""
    if isinstance(tree, Argument):
        return given
    (below,) = tree.inputs
    return dataclasses.replace(tree, of=over(below, given))  # type: ignore[call-arg]
