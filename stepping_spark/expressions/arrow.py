"""Evaluates expressions over small relations with Arrow, without Spark.

Each expression is compiled once, when a plan is prepared, to a function of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from stepping_spark.expressions.arrow_calls import kernel_of
from stepping_spark.expressions.derived import Derived
from stepping_spark.expressions.expr import Build, Call, Expr, Field, Literal, Opaque, Singleton
from stepping_spark.relations.arrow import Array, one_array
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import Struct, unwrap

pc: Any = pyarrow.compute

Arrays: TypeAlias = list[Array]
Evaluator: TypeAlias = Callable[[pa.Table, bool], Any]
"""Computes the column of an expression over a table's rows; None on an overflow: ask Spark.

The second argument says whether the session's time zone is known to be UTC.
"""


@dataclass(frozen=True)
class Ask:
    """Evaluates expressions over the rows of a relation where Arrow alone cannot."""

    values: Callable[[pa.Table, Schema, tuple[Expr, ...]], Arrays]  # Spark evaluates these
    in_utc: bool = False  # whether the session's time zone is known to be UTC


Values: TypeAlias = Callable[[pa.Table, Ask], Arrays]
Relation: TypeAlias = Callable[[Sequence[Any]], pa.Table]


def evaluator(e: Expr) -> Evaluator | None:
    """The function that computes an expression in Arrow; None if only Spark can evaluate it."""
    if isinstance(e, Literal):
        return _constant(e)
    if isinstance(e, Field):
        return _field(e)
    if isinstance(e, Opaque):
        return None if e.reading is None else evaluator(e.reading)
    parts = tuple(map(evaluator, e.parts()))
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    t = unwrap(e.type)
    if isinstance(e, Build) and isinstance(t, Struct):
        return _of_parts(known, struct_of(t))
    if isinstance(e, Singleton):
        return _of_parts(known, _singletons(e))
    if isinstance(e, Derived):
        made = _of_parts(known, e.arrow)
        return _if_in_utc(made) if e.in_session_zone else made
    kernel = kernel_of(e) if isinstance(e, Call) else None
    return None if kernel is None else _of_parts(known, kernel)


def values_of(schema: Schema, exprs: Sequence[Expr]) -> Values:
    """A function that computes the values of expressions over the rows of a relation."""
    distinct = list(dict.fromkeys(exprs))
    evaluators = [evaluator(e) for e in distinct]
    places = None if len(distinct) == len(exprs) else [distinct.index(e) for e in exprs]

    def values(table: pa.Table, ask: Ask) -> Arrays:
        columns: list[Any] = []
        asked = []
        for i, compute in enumerate(evaluators):
            column = None if compute is None else compute(table, ask.in_utc)
            if column is None:
                asked.append(i)
            columns.append(column)
        if asked:
            wanted = tuple(distinct[i] for i in asked)
            found = ask.values(table, schema, wanted) if table.num_rows else map(_nothing, wanted)
            for i, column in zip(asked, found, strict=True):
                columns[i] = column
        return columns if places is None else [columns[i] for i in places]

    return values


def _nothing(e: Expr) -> Any:
    return pa.array([], e.type.arrow)


def relation_of(schema: Schema) -> Relation:
    """A function that makes a table of columns and diffs."""
    made = schema.arrow
    fields = list(made)

    def relation(columns: Sequence[Any]) -> pa.Table:
        return pa.Table.from_arrays(cast(columns, fields), schema=made)

    return relation


def _constant(e: Literal) -> Evaluator:
    value: Any = pa.scalar(e.type.encode(e.constant, "a constant"), e.type.arrow)

    def constant(table: pa.Table, _: bool) -> Array:
        column: Array = pa.repeat(value, table.num_rows)
        return column

    return constant


def _field(e: Field) -> Evaluator:
    if not e.path:
        t = unwrap(e.type)
        assert isinstance(t, Struct)
        return _of_parts([_at(n) for n, _ in t.fields], struct_of(t))
    return _at(*e.path)


def _at(name: str, *path: str) -> Evaluator:
    """A function that reads a column, or a field within it."""

    def read(table: pa.Table, _: bool) -> Array:
        chunks: Any = table.column(name)
        found: Array = chunks.chunk(0) if chunks.num_chunks == 1 else one_array(chunks)
        for part in path:
            found = _part(found, part)
        return found

    return read


def _part(rows: Any, name: str) -> Array:
    """The column of a field; NULL where the row is."""
    found: Array = pc.struct_field(rows, name) if rows.null_count else rows.field(name)
    return found


def _of_parts(parts: Sequence[Evaluator], made: Callable[[Arrays], Any]) -> Evaluator:
    """A function that computes the columns of the parts, and makes one column of them."""

    def compute(table: pa.Table, in_utc: bool) -> Any:
        columns = []
        for part in parts:
            found = part(table, in_utc)
            if found is None:
                return None
            columns.append(found)
        return made(columns)

    return compute


def _if_in_utc(evaluated: Evaluator) -> Evaluator:
    """The same evaluator, but None (ask Spark) in a session time zone other than UTC."""
    return lambda table, in_utc: evaluated(table, in_utc) if in_utc else None


def _singletons(e: Singleton) -> Callable[[Arrays], Array]:
    lists: Any = e.type.arrow
    fields = list(lists.value_type)

    def made(columns: Arrays) -> Array:
        rows = len(columns[0])
        items = pa.StructArray.from_arrays(
            [columns[0], pa.array(np.ones(rows, np.int64))], fields=fields
        )
        return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1), pa.int32()), items)

    return made


def struct_of(t: Struct) -> Callable[[Arrays], Array]:
    """A function that makes one column of rows from the columns of their fields."""
    fields = [pa.field(n, ft.arrow) for n, ft in t.fields]

    def made(columns: Arrays) -> Array:
        return pa.StructArray.from_arrays(cast(columns, fields), fields=fields)

    return made


def cast(columns: Sequence[Any], fields: Sequence[pa.Field[Any]]) -> Arrays:
    """The columns, cast to the types of the fields."""
    made = list(columns)
    for i, f in enumerate(fields):
        if made[i].type != f.type:
            made[i] = made[i].cast(f.type)
    return made


def spread(values: Array, t: RowType) -> Arrays:
    """The columns of the fields of rows that are in one column."""
    if not isinstance(t, Struct):
        return [values]
    return [_part(values, n) for n, _ in t.fields]
