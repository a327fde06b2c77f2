"""Evaluates expressions over small relations with Arrow, exactly as Spark does, without Spark.

Each expression is compiled once, when a plan is prepared, to a function of tables. Spark evaluates
expressions that Arrow cannot compute, or that overflow.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from stepping_spark.expressions.arrow_kernels import (
    Arrays,
    ZonedKernel,
    kernel_of,
    zoned_kernel_of,
)
from stepping_spark.expressions.expr import (
    Build,
    Call,
    Expr,
    Field,
    Items,
    Literal,
    Opaque,
    Singleton,
    Transformed,
    Variable,
)
from stepping_spark.expressions.portable import Derived
from stepping_spark.relations.arrow import Array, one_array
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import Struct, unwrap

pc: Any = pyarrow.compute

ZoneOf: TypeAlias = Callable[[], dt.tzinfo | None]
"""Returns the session's time zone; None if it is unknown, or if only Spark knows its rules."""

Evaluator: TypeAlias = Callable[[pa.Table, ZoneOf], Any]
"""Computes the column of an expression over a table's rows; None on an overflow: ask Spark."""


def unknown_zone() -> None:
    """No time zone: Spark evaluates functions of times."""


@dataclass(frozen=True)
class Ask:
    """Evaluates expressions over the rows of a relation that Arrow alone cannot."""

    values: Callable[[pa.Table, Schema, tuple[Expr, ...]], Arrays]  # Spark evaluates these
    zone: ZoneOf = unknown_zone


ArraysOf: TypeAlias = Callable[[pa.Table, Ask], Arrays]
RelationOf: TypeAlias = Callable[[Sequence[Any]], pa.Table]


def evaluator(e: Expr) -> Evaluator | None:
    """The function that computes an expression in Arrow; None if only Spark can evaluate it."""
    if isinstance(e, Literal):
        return _constant(e)
    if isinstance(e, Field):
        return _field(e)
    if isinstance(e, Opaque):
        return None if e.reading is None else evaluator(e.reading)
    if isinstance(e, Variable):
        return _reader_of(_column_of(e))
    parts = tuple(map(evaluator, e.parts()))
    readable = [p for p in parts if p is not None]
    if len(readable) < len(parts):
        return None
    if isinstance(e, Transformed):
        return _of_items(e, *readable)
    if isinstance(e, Items):
        return _of_parts(readable, partial(_lists, e.type)) if readable else None
    t = unwrap(e.type)
    if isinstance(e, Build) and isinstance(t, Struct):
        return _of_parts(readable, struct_of(t))
    if isinstance(e, Singleton):
        return _of_parts(readable, _singletons(e))
    if isinstance(e, Derived):
        if e.in_session_zone:
            return _of_parts_in_zone(readable, e.arrow_in)
        return _of_parts(readable, e.arrow)
    if not isinstance(e, Call):
        return None
    in_zone, kernel = zoned_kernel_of(e), kernel_of(e)
    if in_zone is not None:
        return _of_parts_in_zone(readable, in_zone)
    return None if kernel is None else _of_parts(readable, kernel)


def values_of(schema: Schema, exprs: Sequence[Expr]) -> ArraysOf:
    """A function that computes the values of expressions over the rows of a relation."""
    distinct = list(dict.fromkeys(exprs))
    evaluators = [evaluator(e) for e in distinct]
    places = None if len(distinct) == len(exprs) else [distinct.index(e) for e in exprs]

    def values(table: pa.Table, ask: Ask) -> Arrays:
        columns: list[Any] = []
        asked = []
        for i, compute in enumerate(evaluators):
            column = None if compute is None else compute(table, ask.zone)
            if column is None:
                asked.append(i)
            columns.append(column)
        if asked:
            wanted = tuple(distinct[i] for i in asked)
            answers = ask.values(table, schema, wanted) if table.num_rows else map(_nothing, wanted)
            for i, column in zip(asked, answers, strict=True):
                columns[i] = column
        return columns if places is None else [columns[i] for i in places]

    return values


def _nothing(e: Expr) -> Any:
    return pa.array([], e.type.arrow)


def relation_of(schema: Schema) -> RelationOf:
    """A function that makes a table of columns and diffs."""
    arrow_schema = schema.arrow
    fields = list(arrow_schema)

    types = [f.type for f in fields]

    def relation(columns: Sequence[Any]) -> pa.Table:
        for column, t in zip(columns, types, strict=True):
            if column.type != t:
                columns = cast(columns, fields)
                break
        return pa.Table.from_arrays(columns, schema=arrow_schema)

    return relation


def _constant(e: Literal) -> Evaluator:
    value: Any = pa.scalar(e.type.encode(e.constant, "a constant"), e.type.arrow)

    def constant(table: pa.Table, _: ZoneOf) -> Array:
        n = table.num_rows
        # A list cannot be repeated zero times.
        column: Array = pa.repeat(value, n) if n else pa.nulls(0, value.type)
        return column

    return constant


def _field(e: Field) -> Evaluator:
    if not e.path:
        t = unwrap(e.type)
        assert isinstance(t, Struct)
        return _row(t)
    return _reader_of(*e.path)


def _row(t: Struct) -> Evaluator:
    """A function that makes one column of a table's columns."""
    names, to_struct = [n for n, _ in t.fields], struct_of(t)

    def row(table: pa.Table, _: ZoneOf) -> Any:
        columns = []
        for name in names:
            chunks: Any = table.column(name)
            columns.append(chunks.chunk(0) if chunks.num_chunks == 1 else one_array(chunks))
        return to_struct(columns)

    return row


def _reader_of(name: str, *path: str) -> Evaluator:
    """A function that reads a column, or a field within it."""

    def read(table: pa.Table, _: ZoneOf) -> Any:
        chunks: Any = table.column(name)
        column: Any = chunks.chunk(0) if chunks.num_chunks == 1 else one_array(chunks)
        for part in path:
            column = pc.struct_field(column, part) if column.null_count else column.field(part)
        return column

    return read


def _part(rows: Any, name: str) -> Array:
    """The column of a field; NULL if the row is NULL."""
    column: Array = pc.struct_field(rows, name) if rows.null_count else rows.field(name)
    return column


def _of_parts(parts: Sequence[Evaluator], kernel: Callable[[Arrays], Any]) -> Evaluator:
    """A function that computes the columns of the parts, and makes one column of them."""

    def compute(table: pa.Table, zone: ZoneOf) -> Any:
        columns = []
        for part in parts:
            column = part(table, zone)
            if column is None:
                return None
            columns.append(column)
        return kernel(columns)

    return compute


def _of_parts_in_zone(parts: Sequence[Evaluator], kernel: ZonedKernel) -> Evaluator:
    """`_of_parts` for a kernel that also depends on the session's time zone."""

    def compute(table: pa.Table, zone: ZoneOf) -> Any:
        time_zone = zone()
        if time_zone is None:
            return None
        return _of_parts(parts, lambda columns: kernel(columns, time_zone))(table, zone)

    return compute


def _column_of(variable: Variable) -> str:
    """The name of a variable's column, which is added to the columns of the lists' rows."""
    return f"item {variable.name}"


def _of_items(e: Transformed, items: Evaluator, body: Evaluator) -> Evaluator:
    """A function that computes lists from lists, by a row for each item."""
    list_type: Any = unwrap(e.type).arrow

    def compute(table: pa.Table, zone: ZoneOf) -> Any:
        lists = items(table, zone)
        if lists is None:
            return None
        lengths = np.asarray(pc.list_value_length(lists).fill_null(0).to_numpy(), np.int64)
        ends = np.cumsum(lengths)
        parents = np.repeat(np.arange(len(lengths)), lengths)
        rows = table.take(pa.array(parents, pa.int64()))
        places = np.arange(len(parents)) - (ends - lengths)[parents]
        for v, column in zip(e.variables, (pc.list_flatten(lists), pa.array(places)), strict=False):
            rows = rows.append_column(_column_of(v), column)
        results = body(rows, zone)
        if results is None:
            return None
        offsets = pa.array(np.append(0, ends), pa.int32())
        (values,) = cast([results], [list_type.value_field])
        mask = lists.is_null() if lists.null_count else None
        return pa.ListArray.from_arrays(offsets, values, type=list_type, mask=mask)

    return compute


def _lists(t: RowType, columns: Arrays) -> Any:
    """The lists with one item from each column."""
    list_type: Any = unwrap(t).arrow
    width, rows = len(columns), len(columns[0])
    each = pa.concat_arrays(cast(columns, [list_type.value_field] * width))
    in_turn = np.arange(rows * width).reshape(width, rows).T.reshape(-1)
    offsets = pa.array(np.arange(rows + 1) * width, pa.int32())
    return pa.ListArray.from_arrays(
        offsets, each.take(pa.array(in_turn, pa.int64())), type=list_type
    )


def _singletons(e: Singleton) -> Callable[[Arrays], Array]:
    lists: Any = e.type.arrow
    fields = list(lists.value_type)

    def build(columns: Arrays) -> Array:
        rows = len(columns[0])
        items = pa.StructArray.from_arrays(
            [columns[0], pa.array(np.ones(rows, np.int64))], fields=fields
        )
        return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1), pa.int32()), items)

    return build


def struct_of(t: Struct) -> Callable[[Arrays], Array]:
    """A function that makes one column of rows from the columns of their fields."""
    fields = [pa.field(n, ft.arrow) for n, ft in t.fields]

    types = [f.type for f in fields]

    def build(columns: Arrays) -> Array:
        for column, t in zip(columns, types, strict=True):
            if column.type != t:
                columns = cast(columns, fields)
                break
        return pa.StructArray.from_arrays(columns, fields=fields)

    return build


def cast(columns: Sequence[Any], fields: Sequence[pa.Field[Any]]) -> Arrays:
    """The columns, cast to the types of the fields."""
    results = list(columns)
    for i, f in enumerate(fields):
        if results[i].type != f.type:
            results[i] = results[i].cast(f.type)
    return results


def spread(values: Array, t: RowType) -> Arrays:
    """The columns of the fields of rows that are in one column."""
    if not isinstance(t, Struct):
        return [values]
    return [_part(values, n) for n, _ in t.fields]
