"""Conversion between Python rows, Arrow tables and DataFrames; and type inference for rows."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from stepping_spark.base.errors import InputError
from stepping_spark.rows.atoms import (
    ATOMS,
    DECIMAL,
    INT,
    INT_MAX,
    INT_MIN,
    STR,
    Atom,
    LocalDateTime,
    RowType,
)
from stepping_spark.rows.data import Data
from stepping_spark.rows.schema import Schema, ZSetType
from stepping_spark.rows.types import (
    ZSET_CLASS,
    ListOf,
    Optional,
    Struct,
    ZSetOf,
    is_open,
    row_type,
)


def encode(pairs: Iterable[tuple[Any, int]], t: ZSetType, where: str) -> pa.Table:
    """The relation of these rows and counts, in the given order.

    Raises an InputError that begins with `where` and names the field and row that does not fit.
    """
    items = list(pairs)
    rows = [row for row, _ in items]
    counts = [n for _, n in items]
    if set(map(type, counts)) - {int} or (
        counts and not (min(counts) >= INT_MIN and max(counts) <= INT_MAX)
    ):
        counts = [INT.encode(n, f"{where}, a count") for n in counts]
    schema = t.schema
    columns = _plain_columns(rows, t.row)
    if columns is None:
        encoded = [t.row.encode(row, where) for row in rows]
        columns = [encoded]
        if isinstance(t.row, Struct):
            columns = [[row[name] for row in encoded] for name, _ in schema.columns]
    arrays = [
        pa.array(values, type=field.type)
        for values, field in zip((*columns, counts), schema.arrow, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


_AS_IT_IS = ("bool", "bytes", "date")


def _plain_columns(rows: list[Any], t: RowType) -> list[list[Any]] | None:
    """The columns of many rows at once, if Arrow accepts every value without conversion.

    None if a value needs conversion or is wrong. Then `RowType.encode` converts it or raises the
    error.
    """
    if not isinstance(t, Struct) or t.python is tuple or set(map(type, rows)) - {t.python}:
        return None
    columns = []
    for name, field in t.fields:
        inner = field.inner if isinstance(field, Optional) else field
        values = [getattr(row, name) for row in rows]
        types = set(map(type, values)) - ({type(None)} if inner is not field else set())
        if not isinstance(inner, Atom) or types - {inner.python}:
            return None
        valid = values if inner is field else [v for v in values if v is not None]
        if inner.name == "int":
            if valid and not (min(valid) >= INT_MIN and max(valid) <= INT_MAX):
                return None
        elif inner.name == "str":
            if not all(map(str.isascii, valid)):  # some other strings are not valid text
                return None
        elif inner.name not in _AS_IT_IS:
            return None
        columns.append(values)
    return columns


def decode(table: pa.Table, t: ZSetType) -> Iterator[tuple[Any, int]]:
    """The rows and counts of a relation, in its order; the inverse of `encode`."""
    for batch in table.to_batches():
        columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
        counts = columns.pop()
        if isinstance(t.row, Struct):
            decoders = [field.decode for _, field in t.row.fields]
            for *parts, n in zip(*columns, counts, strict=True):
                yield t.row.build([d(v) for d, v in zip(decoders, parts, strict=True)]), n
        else:
            for value, n in zip(columns[0], counts, strict=True):
                yield t.row.decode(value), n


def conform(table: pa.Table, schema: Schema) -> pa.Table:
    """The table with exactly the columns and types of the schema.

    Tables from Spark differ in names of list items, in nullability, and, depending on its settings,
    in the width of strings and the zone of timestamps.
    """
    target = schema.arrow
    if table.schema.equals(target, check_metadata=True):
        return table
    table = table.select(target.names).replace_schema_metadata(None)
    return table if table.schema.equals(target) else table.cast(target)


def infer(values: Iterable[Any], where: str) -> RowType:
    """The common type of all these values. Raises InputError if there is none."""
    items = list(values)
    some = [v for v in items if v is not None]
    # A side that is missing in every row has no type. Any type can hold its NULLs: text is used.
    inner = _common(some, where) if some else STR
    if len(some) == len(items) or isinstance(inner, Optional):
        return inner
    return Optional(inner)


def _common(values: Sequence[Any], where: str) -> RowType:
    classes = {_class(v) for v in values}
    if len(classes) > 1:
        names = " and ".join(sorted(c.__name__ for c in classes))
        raise InputError(f"{where}: the rows are of several types: {names}; use rows of one type")
    (cls,) = classes
    if cls is decimal.Decimal:
        return _decimal(values, where)
    if cls in ATOMS:
        return ATOMS[cls]
    if cls is tuple:
        return _tuple(values, where)
    if cls in ZSET_CLASS:
        return ZSetOf(infer((row for z in values for row, _ in z.iter()), where), cls)
    if issubclass(cls, Data) and hasattr(cls, "__parameters__"):
        return _generic(cls, values, where)
    try:
        return row_type(cls)
    except TypeError as e:
        raise InputError(f"{where}: {e}") from None


def _class(value: Any) -> type:
    if isinstance(value, tuple):
        return tuple
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        return LocalDateTime
    return type(value)


def _tuple(values: Sequence[tuple[Any, ...]], where: str) -> RowType:
    lengths = {len(v) for v in values}
    if len(lengths) > 1 or lengths == {0}:
        return ListOf(infer((item for v in values for item in v), where))
    columns = zip(*values, strict=True)
    fields = tuple((f"_{i}", infer(c, f"{where}, field '_{i}'")) for i, c in enumerate(columns, 1))
    return Struct("tuple", fields, tuple)


def _generic(cls: type[Data], values: Sequence[Any], where: str) -> RowType:
    def field(name: str, annotation: Any) -> RowType:
        if is_open(annotation):
            return infer((getattr(v, name) for v in values), f"{where}, field {name!r}")
        return row_type(annotation)

    fields = tuple((n, field(n, a)) for n, a in cls.__row_fields__().items())
    return Struct(cls.__name__, fields, cls)


def _decimal(values: Sequence[decimal.Decimal], where: str) -> RowType:
    if not all(v.is_finite() for v in values):
        raise InputError(f"{where}: a Decimal that is NaN or infinite; use a float")
    whole = max(max(v.adjusted() + 1, 0) for v in values)
    scale = max(max(-int(v.as_tuple().exponent), 0) for v in values)
    if whole <= DECIMAL.precision - DECIMAL.scale and scale <= DECIMAL.scale:
        return DECIMAL
    if whole + scale > 38:
        raise InputError(
            f"{where}: the Decimals have up to {whole} digits before the point and {scale} after "
            "it; Spark's have 38 in all: round them"
        )
    return Atom("Decimal", decimal.Decimal, 38, scale)
