"""A relation of a plan as a stream: where its columns are in the rows, and their Spark types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from sqlglot import exp

from stepping_spark.expressions.coercion import coerce
from stepping_spark.expressions.expr import Build
from stepping_spark.expressions.expr import Expr as RowExpr
from stepping_spark.expressions.functions import row_expr
from stepping_spark.expressions.results import to_expr
from stepping_spark.expressions.symbolic import symbolic
from stepping_spark.from_sql.casts import converted
from stepping_spark.from_sql.columns import Column, Expr, column_of
from stepping_spark.from_sql.parse import failure
from stepping_spark.from_sql.scalars import scalar
from stepping_spark.from_sql.values import Value
from stepping_spark.query.trace import row_of
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.row_class import field_name, open_class
from stepping_spark.rows.types import Struct

RowFunction = Callable[[Any], Any]


@dataclass
class Relation:
    """A stream whose rows have columns at paths of fields."""

    stream: Any
    places: Mapping[Column, tuple[str, ...]]
    kinds: dict[Column, str]
    text: str = field(repr=False)  # of the statement, for errors

    @property
    def row(self) -> RowType:
        """The type of the rows."""
        return row_of(self.stream, "sql")

    def value(self, e: Expr, row: Any) -> Value:
        """An expression on a symbolic row."""
        return scalar(e, _Env(self, row))

    def function(self, e: Expr, kind: str | None = None) -> RowFunction:
        """An expression as a function of the row, converted to a Spark type."""

        def of(row: Any) -> Any:
            value = self.value(e, row)
            return (value if kind is None else converted(value, kind)).column

        return of

    def expr(self, e: Expr, kind: str | None = None) -> RowExpr:
        """An expression over the rows, converted to a Spark type."""
        return row_expr(self.function(e, kind), self.row)

    def kind(self, e: Expr) -> str:
        """The Spark type of an expression."""
        if isinstance(e, exp.Column) and "column" in e.meta:
            return self.kinds[column_of(e)]
        found: list[str] = []

        def of(row: Any) -> Any:
            value = self.value(e, row)
            found.append(value.kind)
            return value.column

        row_expr(of, self.row)
        return found[0]

    def type(self, e: Expr) -> RowType:
        """The row type of an expression."""
        return self.expr(e).type

    def with_stream(self, stream: Any) -> Relation:
        """A relation with the same columns at the same places."""
        return replace(self, stream=stream)

    def under(self, side: str) -> dict[Column, tuple[str, ...]]:
        """The places in rows that have these rows in a field."""
        return {c: (side, *path) for c, path in self.places.items()}


@dataclass(frozen=True)
class _Env:
    """The columns of a relation in one symbolic row."""

    relation: Relation
    row: Any

    def column(self, node: exp.Column) -> Value:
        """The value of a reference."""
        column = column_of(node)
        value = self.row
        for name in self.relation.places[column]:
            value = getattr(value, name)
        return Value(value, self.relation.kinds[column])

    def fail(self, node: Expr, reason: str, remedy: str = "") -> NoReturn:
        """Raise the error of a place in the text."""
        raise failure(self.relation.text, node, reason, remedy)


def fields_of(columns: Sequence[Column]) -> list[str]:
    """A name for each column that a field of a row may have."""
    names: list[str] = []
    for c in columns:
        names.append(field_name(c.name, names))
    return names


def built(
    names: Sequence[str], values: Sequence[Any], types: Sequence[RowType] | None = None
) -> Any:
    """A symbolic row without a class of its own."""
    exprs: list[RowExpr] = [to_expr(v) for v in values]
    if types is not None:
        exprs = [coerce(e, t, "sql") for e, t in zip(exprs, types, strict=True)]
    fields = tuple(zip(names, types or [e.type for e in exprs], strict=True))
    return symbolic(Build(Struct("Row", fields, open_class(tuple(names))), tuple(exprs)))
