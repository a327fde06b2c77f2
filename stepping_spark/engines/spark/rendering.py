"""Renders the terms of a plan as Spark SQL: for few rows, or for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stepping_spark.engines.spark.nodes import Context, Query
from stepping_spark.engines.spark.text import names
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.symbolic import to_column
from stepping_spark.graph.operators import Operator, trees_of
from stepping_spark.packages import Column
from stepping_spark.plan.terms import Leaf, Node, Term, type_of
from stepping_spark.rows.schema import StreamType
from stepping_spark.rows.sql_text import Sql, closed
from stepping_spark.rows.types import quote


@dataclass(frozen=True)
class DerivedTable:
    """A relation that has Columns which SQL text cannot say, beside those of a query."""

    name: str
    query: Query
    columns: tuple[tuple[str, Column], ...]


@dataclass
class Rendering:
    """Makes texts of terms, for relations that have these names.

    `few` rows are read and given, in one task. Of many, `small` are the relations that can be sent
    to all workers. `derived` are those that must be there before a text is run, in their order.
    """

    prefix: str
    names: Mapping[Leaf, str] = field(default_factory=dict)
    few: bool = True
    small: frozenset[str] = frozenset()
    now: str = "NULL"
    derived: list[DerivedTable] = field(default_factory=list)

    def term(self, t: Term) -> Query:
        """The query with the columns of the term's schema, in order."""
        if not isinstance(t, Node):
            return self.relation(self.names[t], type_of(t))
        args = [self.term(a) for a in t.args]
        return self.parts(t.parts, args, t.types)

    def stream(self, t: Term) -> Query:
        """The query of a term whose rows are to be kept, with its columns in order."""
        if not isinstance(t, Node):
            return self.term(t)
        return self.parts(t.parts, [self.term(a) for a in t.args], t.types, kept=True)

    def relation(self, name: str, t: StreamType) -> Query:
        """All of a relation."""
        return Query(f"SELECT {names(t.schema.all)} FROM {name}", frozenset((name,)))

    def parts(
        self,
        parts: Sequence[Operator],
        args: Sequence[Query],
        types: tuple[StreamType, ...],
        *,
        kept: bool = False,
    ) -> Query:
        """What operators make of relations, one after the other; the result may be to be kept."""
        *before, last = trees_of(parts, types)
        for tree in before:
            args = [self._context(args).query(tree)]
        context = self._context(args)
        return context.kept(last) if kept else context.query(last)

    def _context(self, args: Sequence[Query]) -> Context:
        return Context(self._computed, self._apart, self.few, self.small, self.now, args)

    def _computed(self, query: Query, exprs: Sequence[Expr], row: str) -> tuple[str, list[Sql]]:
        opaque = [e for e in dict.fromkeys(exprs) if not e.in_sql]
        if not opaque:
            return query.text, [e.sql(row) for e in exprs]
        columns = {e: f"_c{i}_" for i, e in enumerate(opaque)}
        shown = tuple((c, to_column(e)) for e, c in columns.items())
        table = self._apart(query, shown)
        texts = [
            e.sql(row) if e.in_sql else closed(f"{quote(row)}.{quote(columns[e])}") for e in exprs
        ]
        return table, texts

    def _apart(self, query: Query, columns: tuple[tuple[str, Column], ...] = ()) -> str:
        name = f"{self.prefix}_c{len(self.derived)}"
        self.derived.append(DerivedTable(name, query, columns))
        return f"SELECT * FROM {name}"
