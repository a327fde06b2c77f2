"""Expressions over the rows of a relation: plain ones taken from it, others evaluated by Spark.

Over rows that the driver holds this is the projection of a local relation, which Spark's
optimizer computes itself; one small job brings it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from stepping_spark.codec import conform, frame_of
from stepping_spark.expr import Expr, Field
from stepping_spark.local import column as plain_column
from stepping_spark.relations import Array, distinct_rows
from stepping_spark.schema import Schema
from stepping_spark.source import inline, is_inline
from stepping_spark.store import Held
from stepping_spark.symbolic import to_column
from stepping_spark.terms import ALL
from stepping_spark.types import quote

Named = Sequence[tuple[str, Expr]]


class Projection:
    """Evaluates expressions; keeps the Columns that they are to Spark."""

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        self._spark = spark
        self._columns: dict[Expr, Column] = {}

    def select(self, held: Held, schema: Schema, exprs: Named, *, beside: bool) -> Held:
        """A relation of the expressions, called as said; `beside`: with the columns it has."""
        if isinstance(held, pa.Table):
            found = [plain_column(e, held) for _, e in exprs]
            plain = [c for c in found if c is not None]
            if len(plain) == len(found):
                return _joined(held, schema, exprs, plain, beside)
        shown = [self._column(e).alias(n) for n, e in exprs]
        if isinstance(held, DataFrame):
            frame = held
        elif is_inline(held, schema):
            frame = self._spark().sql(inline(held, schema))
        else:
            frame = frame_of(held, schema, self._spark())
        if beside:
            own, diffs = (
                [F.col(quote(n)) for n, _ in part] for part in (schema.columns, schema.diffs)
            )
            shown = [*own, *shown, *diffs]
        projected = frame.select(*shown)
        if isinstance(held, DataFrame):
            return projected
        return conform(projected.toArrow(), _schema(schema, exprs, beside))

    def keys(
        self,
        held: Held,
        schema: Schema,
        names: Sequence[str],
        key: tuple[Expr, ...],
        *,
        nulls: bool,
    ) -> Held:
        """The distinct keys of a relation's rows, under the names that a register has for them.

        Without `nulls` a key that has a NULL is none.
        """
        if key == (ALL,):
            key = tuple(Field(t, (n,)) for n, t in schema.columns)
        exprs = tuple(zip(names, key, strict=True))
        keys = self.select(held, schema, exprs, beside=False)
        if isinstance(keys, DataFrame):
            return (keys if nulls else keys.dropna()).distinct()
        return distinct_rows(keys, drop_nulls=not nulls)

    def _column(self, e: Expr) -> Column:
        found = self._columns.get(e)
        if found is None:
            found = self._columns[e] = to_column(e)
        return found


def _schema(schema: Schema, exprs: Named, beside: bool) -> Schema:
    made = tuple((n, e.type) for n, e in exprs)
    return Schema(schema.columns + made, schema.diffs) if beside else Schema(made, ())


def _joined(
    table: pa.Table, schema: Schema, exprs: Named, columns: Sequence[Array], beside: bool
) -> pa.Table:
    made: dict[str, Any] = {n: c for (n, _), c in zip(exprs, columns, strict=True)}
    if beside:
        own, diffs = ({n: table.column(n) for n, _ in p} for p in (schema.columns, schema.diffs))
        made = {**own, **made, **diffs}
    return pa.table(made)
