"""Columns that are numbers, and expressions over them: trees of sqlglot with references to columns.

Names are bound before. A column keeps its number wherever the node that makes it is moved. So two
expressions are equal in Spark's sense if their trees are equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

Expr = exp.Expr
Change = Callable[[Expr], Expr]
_numbers = itertools.count(1)
_PLACE = ("line", "col", "start", "end", "text")


@dataclass(frozen=True)
class Column:
    """A column of a relation. Two columns are equal if they have one number."""

    name: str = field(compare=False)
    table: str = field(default="", compare=False)
    number: int = field(default_factory=lambda: next(_numbers))

    def __str__(self) -> str:
        return f"{self.table}.{self.name}" if self.table else self.name


def ref(column: Column, at: Expr | None = None) -> exp.Column:
    """A reference to a column; `at` is the place in the text that it stands for."""
    node = exp.Column(this=exp.Identifier(this=f"#{column.number}", quoted=True))
    node.meta.update(place(at) if at is not None else {})
    node.meta["column"] = column
    return node


def place(node: Expr) -> dict[str, Any]:
    """The position of a node, or of the first part of it that has one."""
    for part in node.walk():
        if "line" in part.meta:
            return {k: part.meta[k] for k in _PLACE if k in part.meta}
    return {}


def column_of(node: Expr) -> Column:
    """The column that a reference is of."""
    found: Column = node.meta["column"]
    return found


def refs(e: Expr) -> set[Column]:
    """The columns that an expression reads."""
    return {column_of(node) for node in e.find_all(exp.Column) if "column" in node.meta}


def substituted(e: Expr, values: Mapping[Column, Expr]) -> Expr:
    """The expression with these expressions in the place of references."""

    def replaced(node: Expr) -> Expr:
        value = values.get(column_of(node)) if _is_ref(node) else None
        return node if value is None else value.copy()

    return e.copy().transform(replaced) if refs(e) & set(values) else e


def renamed(e: Expr, columns: Mapping[Column, Column]) -> Expr:
    """The expression with references to other columns."""
    return substituted(e, {a: ref(b) for a, b in columns.items()})


def _is_ref(node: Expr) -> bool:
    return isinstance(node, exp.Column) and "column" in node.meta


def conjuncts(e: Expr | None) -> Iterator[Expr]:
    """The conditions that AND connects."""
    if isinstance(e, exp.And):
        yield from conjuncts(e.this)
        yield from conjuncts(e.expression)
    elif isinstance(e, exp.Paren):
        yield from conjuncts(e.this)
    elif e is not None:
        yield e


def coalesced(a: Expr, b: Expr) -> Expr:
    """coalesce(a, b)."""
    return exp.Anonymous(this="coalesce", expressions=[a, b])


TRUE = exp.true()
