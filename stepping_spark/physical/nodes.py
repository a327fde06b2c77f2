"""The nodes: relations made of relations.

Each has a `schema`, the relations that it is made of as `inputs`, and the functions of rows that it
evaluates as `exprs`, over the columns of its inputs. Rows may stand several times in what a node
gives, unless it is a fold: weights are added up where somebody asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from stepping_spark.expressions.expr import Build, Expr, Field
from stepping_spark.expressions.index import Key
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import (
    Columns,
    GroupedType,
    ScalarType,
    Schema,
    StreamType,
    columns_of,
)
from stepping_spark.rows.types import Struct


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
class Before(_Same):
    """The rows whose value is before the greatest value of another relation, less a distance.

    `distance` is in the unit of the values, as `expressions.clock` has it. If the other relation
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
