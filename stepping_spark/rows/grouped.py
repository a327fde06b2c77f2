"""Rows in groups: the columns of a row, and the keys of its groups as further columns.

A circuit that runs per group works on such rows. A function of the row sees the row without its
groups. So does a function that only Spark can read, because the columns keep their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import VALUE, Columns, columns_of
from stepping_spark.rows.types import Struct


@dataclass(frozen=True)
class InGroup:
    """A row, and the keys of its groups by the names of their columns."""

    row: Any
    groups: tuple[tuple[str, Any], ...]

    def __getattr__(self, name: str) -> Any:
        for column, key in self.groups:
            if name == column:
                return key
        if name == VALUE:
            return self.row
        if isinstance(self.row, tuple) and name[1:].isdigit():
            return self.row[int(name[1:]) - 1]
        return getattr(self.row, name)


@dataclass(frozen=True)
class Carrying(Struct):
    """The type of rows in groups."""

    inner: RowType
    carried: Columns

    def __str__(self) -> str:
        return f"{self.inner} per {', '.join(str(t) for _, t in self.carried)}"

    def build(self, parts: list[Any]) -> Any:
        """The row of these values, in its groups."""
        n = len(parts) - len(self.carried)
        row = self.inner.build(parts[:n]) if isinstance(self.inner, Struct) else parts[0]
        names = (name for name, _ in self.carried)
        return InGroup(row, tuple(zip(names, parts[n:], strict=True)))


def carrying(row: RowType, columns: Columns) -> RowType:
    """The type of rows with these columns added after the key columns that they already have."""
    if not columns:
        return row
    if isinstance(row, Carrying):
        return carrying(row.inner, row.carried + columns)
    return Carrying("in group", columns_of(row) + columns, InGroup, row, columns)


def in_groups(row: Any, of: Any, columns: Columns) -> Any:
    """A row with the keys of these groups of `of`, added after those that it already has."""
    if not columns:
        return row
    groups = tuple((name, getattr(of, name)) for name, _ in columns)
    if isinstance(row, InGroup):
        return InGroup(row.row, row.groups + groups)
    return InGroup(row, groups)
