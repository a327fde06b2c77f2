"""The names in scope of a SELECT: columns of FROM, aliases, columns of outer queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from stepping_spark.sql.plan import PlanColumn, Scalar, ref

Fail = Callable[..., NoReturn]


@dataclass(frozen=True)
class VisibleName:
    """A column that can be named, with or without its table."""

    name: str
    table: str
    column: PlanColumn
    shown: bool = True  # whether `*` has it; not so the columns that USING merged
    alone: bool = True  # whether it can be named without its table


@dataclass
class Scope:
    """The columns of FROM, in the order of `*`, and the scope of the outer query."""

    names: list[VisibleName] = field(default_factory=list)
    outer: Scope | None = None
    aliases: dict[str, Scalar] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Iterable[PlanColumn], table: str, outer: Scope | None) -> Scope:
        """The scope of one table."""
        return cls([VisibleName(c.name, table, c) for c in columns], outer)

    @property
    def columns(self) -> list[PlanColumn]:
        """The columns of `*`."""
        return [n.column for n in self.names if n.shown]

    @contextmanager
    def without_alias(self, node: Scalar) -> Iterator[None]:
        """A context in which no alias means this expression of the select list."""
        names = [name for name, aliased in self.aliases.items() if aliased is node]
        for name in names:
            del self.aliases[name]
        try:
            yield
        finally:
            self.aliases.update(dict.fromkeys(names, node))

    def tables(self) -> list[str]:
        """The names of the tables."""
        return list(dict.fromkeys(n.table for n in self.names if n.table))

    def of_table(self, table: str) -> list[PlanColumn]:
        """The columns of `table.*`."""
        return [n.column for n in self.names if same(n.table, table)]

    def lookup(self, name: str, table: str) -> list[PlanColumn]:
        """The columns of this scope that a name may mean."""
        return [
            n.column
            for n in self.names
            if same(n.name, name) and (same(n.table, table) if table else n.alone)
        ]


def same(a: str, b: str) -> bool:
    """Whether two names are equal; SQL does not distinguish the case of letters."""
    return a.lower() == b.lower()


_WITHOUT_PARENTHESES = ("current_time", "localtime", "session_user", "user")
"""Functions that Spark calls without parentheses, if no column has their name."""


def resolve(
    node: exp.Column, scope: Scope, alias: Callable[[str], Scalar | None], fail: Fail
) -> Scalar:
    """The expression that a name stands for: a column, an alias, or a field of a struct column.

    The order is that of Spark: columns of FROM, aliases of the select list, the outer query.
    """
    parts = [p.name for p in node.parts]
    expression = _within(parts, scope, node, fail)
    if expression is None:
        aliased = alias(parts[0])
        expression = None if aliased is None else _fields(aliased, parts[1:])
    outer = scope.outer
    while expression is None and outer is not None:
        expression = _within(parts, outer, node, fail)
        outer = outer.outer
    if expression is None and len(parts) == 1 and parts[0].lower() in _WITHOUT_PARENTHESES:
        expression = exp.Anonymous(this=parts[0], expressions=[])
        expression.meta.update(node.this.meta)
    if expression is None:
        fail(node, f"there is no column {'.'.join(parts)}", _names_text(parts, scope))
    return expression


def _within(parts: Sequence[str], scope: Scope, node: exp.Column, fail: Fail) -> Scalar | None:
    """A name of one scope: table.column.field…, or column.field…"""
    for at in (1, 0) if len(parts) > 1 else (0,):
        candidates = scope.lookup(parts[at], parts[0] if at else "")
        if len(candidates) > 1:
            tables = dict.fromkeys(f"{c.table}.{parts[at]}" for c in candidates)
            remedy = f"write one of {', '.join(tables)}"
            if len(tables) == 1:
                remedy = "give each table an alias in FROM, and write alias.column"
            fail(node, f"{parts[at]} is ambiguous", remedy)
        if candidates:
            return _fields(ref(candidates[0], node), parts[at + 1 :])
    return None


def _fields(e: Scalar, names: Sequence[str]) -> Scalar:
    for name in names:
        e = exp.Dot(this=e, expression=exp.Identifier(this=name, quoted=True))
    return e


def _names_text(parts: Sequence[str], scope: Scope) -> str:
    if len(parts) > 1 and not any(same(t, parts[0]) for t in scope.tables()):
        return f"the tables here are {', '.join(scope.tables()) or 'none'}"
    columns = scope.of_table(parts[0]) if len(parts) > 1 else scope.columns
    names = list(dict.fromkeys(c.name for c in columns))
    text = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return f"the columns are {text}" if names else "there is no FROM"
