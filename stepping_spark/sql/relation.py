"""A relation of a plan as a stream; its maps, filters, keys and orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from sqlglot import exp

from stepping_spark.circuit.physical import Sorting
from stepping_spark.expressions.coercion import coerce
from stepping_spark.expressions.expr import Build, tupled
from stepping_spark.expressions.expr import Expr as RowExpr
from stepping_spark.expressions.functions import row_expr
from stepping_spark.expressions.index import Key
from stepping_spark.expressions.symbolic import symbolic, to_expr
from stepping_spark.language import algebra
from stepping_spark.language.primitives import map as map_
from stepping_spark.language.trace import on_streams, row_of
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.row_class import field_name, open_class
from stepping_spark.rows.types import Struct
from stepping_spark.sql.kinds import row_type_of
from stepping_spark.sql.operators import converted
from stepping_spark.sql.parse import connected
from stepping_spark.sql.places import failure
from stepping_spark.sql.plan import Item, PlanColumn, Scalar, column_of
from stepping_spark.sql.scalars import scalar
from stepping_spark.sql.values import SqlValue

RowFunction = Callable[[Any], Any]

_STORABLE_AS = {
    "map<": "take a value of it, m['key'], or its entries, map_entries(m)",
    "variant": "read a part of it: variant_get(v, '$.a', 'int'), or to_json(v)",
    "interval": "make it a number: CAST(x AS INT), or add it to a date",
    "string collate": "CAST it AS STRING",
}
"""Remedies for a value that rows cannot hold, by the beginning of its type."""


@dataclass
class PlacedStream:
    """A stream whose rows have columns at paths of fields."""

    stream: Any
    places: Mapping[PlanColumn, tuple[str, ...]]
    kinds: dict[PlanColumn, str]
    text: str = field(repr=False)  # of the statement, for errors

    @property
    def row(self) -> RowType:
        """The type of the rows."""
        return row_of(self.stream, "sql")

    def value(self, e: Scalar, row: Any) -> SqlValue:
        """An expression on a symbolic row."""
        return scalar(e, _Env(self, row))

    def storable(self, e: Scalar, row: Any) -> SqlValue:
        """The value of an expression, for rows. Raises `SqlError` if rows cannot hold it."""
        value = self.value(e, row)
        try:
            row_type_of("string" if value.kind in ("", "void") else value.kind, nullable=True)
        except TypeError:
            remedies = (r for start, r in _STORABLE_AS.items() if value.kind.startswith(start))
            reason = f"this is {value.kind}, and rows cannot hold that"
            raise failure(self.text, e, reason, next(remedies, "convert it")) from None
        return value

    def function(self, e: Scalar, kind: str | None = None) -> RowFunction:
        """A function from a row to an expression, converted to a Spark type."""

        def of(row: Any) -> Any:
            value = self.storable(e, row) if kind is None else converted(self.value(e, row), kind)
            return value.column

        return of

    def expr(self, e: Scalar, kind: str | None = None) -> RowExpr:
        """An expression over the rows, converted to a Spark type."""
        return row_expr(self.function(e, kind), self.row)

    def kind(self, e: Scalar) -> str:
        """The Spark type of an expression."""
        if isinstance(e, exp.Column) and "column" in e.meta:
            return self.kinds[column_of(e)]
        kinds: list[str] = []

        def of(row: Any) -> Any:
            value = self.value(e, row)
            kinds.append(value.kind)
            return value.column

        row_expr(of, self.row)
        return kinds[0]

    def type(self, e: Scalar) -> RowType:
        """The row type of an expression."""
        return self.expr(e).type

    def with_stream(self, stream: Any) -> PlacedStream:
        """A relation with the same columns at the same places."""
        return replace(self, stream=stream)

    def under(self, side: str) -> dict[PlanColumn, tuple[str, ...]]:
        """The places of the columns in rows that have these rows in a field."""
        return {c: (side, *path) for c, path in self.places.items()}


@dataclass(frozen=True)
class _Env:
    """The columns of a relation in one symbolic row."""

    relation: PlacedStream
    row: Any

    def column(self, node: exp.Column) -> SqlValue:
        """The value of a reference."""
        column = column_of(node)
        value = self.row
        for name in self.relation.places[column]:
            value = getattr(value, name)
        return SqlValue(value, self.relation.kinds[column])

    def fail(self, node: Scalar, reason: str, remedy: str = "") -> NoReturn:
        """Raise the error of a place in the text."""
        raise failure(self.relation.text, node, reason, remedy)


def fields_of(columns: Sequence[PlanColumn]) -> list[str]:
    """A field name for each column."""
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


def projected(source: PlacedStream, items: Sequence[Item]) -> PlacedStream:
    """The relation mapped to a column for each expression."""
    columns = [c for c, _ in items]
    names = fields_of(columns)
    kinds: dict[PlanColumn, str] = {}

    def row_of(row: Any) -> Any:
        values = [source.storable(e, row) for _, e in items]
        kinds.update(zip(columns, (v.kind for v in values), strict=True))
        return built(names, [v.column for v in values])

    stream = map_(source.stream, f=row_of)
    return PlacedStream(
        stream, {c: (n,) for c, n in zip(columns, names, strict=True)}, kinds, source.text
    )


def filtered(source: PlacedStream, conditions: Sequence[Scalar]) -> PlacedStream:
    """The rows for which all conditions are true."""
    where = source.expr(all_of(conditions), "boolean")
    return source.with_stream(on_streams(algebra.filter)(source.stream, where=where))


def all_of(conditions: Sequence[Scalar]) -> Scalar:
    """The conditions, connected by AND."""
    return connected(exp.And, conditions)


def key_of(source: PlacedStream, exprs: Sequence[Scalar], kinds: Sequence[str | None] = ()) -> Key:
    """A key: one expression, or a tuple of them, converted to Spark types."""
    kinds = kinds or (None,) * len(exprs)
    parts = tuple(source.expr(e, k) for e, k in zip(exprs, kinds, strict=True))
    if len(parts) == 1:
        return Key(parts[0])
    return Key(tupled(*parts), (True,) * len(parts))


def order_of(source: PlacedStream, order: Sequence[Scalar]) -> list[Sorting]:
    """The sort keys of an ORDER BY."""
    parts = []
    for o in order:
        ascending, first = not o.args.get("desc"), o.args.get("nulls_first")
        parts.append(Sorting(source.expr(o.this), ascending, ascending if first is None else first))
    return parts
