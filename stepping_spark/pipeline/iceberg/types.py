"""Types of Iceberg and of Arrow: what a view's columns are in a table, and how a table is read."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from stepping_spark.pipeline.plain import plain_type

_ATOMS: dict[pa.DataType, IcebergType] = {
    pa.bool_(): BooleanType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.timestamp("us", "UTC"): TimestamptzType(),
    pa.timestamp("us"): TimestampType(),
}


class NoType(Exception):
    """A column whose type Iceberg does not have; the text is the column's path and type."""


def schema_of(columns: pa.Schema) -> Schema:
    """The columns of a view as a schema of Iceberg. Raises `NoType` for a type that it has not."""
    ids = itertools.count(1)
    return Schema(*[_field(field, field.name, ids) for field in columns])


def _field(field: pa.Field[Any], path: str, ids: Iterator[int]) -> NestedField:
    number = next(ids)
    return NestedField(number, field.name, _type(field.type, path, ids), not field.nullable)


def _type(t: pa.DataType, path: str, ids: Iterator[int]) -> IcebergType:
    if isinstance(t, pa.StructType):
        if not t.num_fields:
            raise NoType(f"{path} is a struct without fields")
        return StructType(*[_field(field, f"{path}.{field.name}", ids) for field in t])
    if isinstance(t, pa.ListType):
        number = next(ids)
        return ListType(number, _type(t.value_type, f"{path}[]", ids), element_required=False)
    if isinstance(t, pa.Decimal128Type):
        return DecimalType(t.precision, t.scale)
    if t not in _ATOMS:
        raise NoType(f"{path} is a {t}")
    return _ATOMS[t]


def readable(t: pa.DataType) -> pa.DataType:
    """A type as a source gives it: UUIDs are texts, as in rows, and bytes have no fixed length."""
    if isinstance(t, pa.StructType):
        return pa.struct([field.with_type(readable(field.type)) for field in t])
    if isinstance(t, pa.ListType | pa.LargeListType):
        return pa.list_(t.value_field.with_type(readable(t.value_type)))
    if isinstance(t, pa.UuidType):
        return pa.string()
    return pa.binary() if pa.types.is_fixed_size_binary(t) else plain_type(t)


def converted(column: Any, t: pa.DataType) -> Any:
    """A column of a table in a type as `readable` gives it, or in a wider one."""
    if not _has_uuids(column.type):
        return column.cast(t)
    return pa.array(map(_told, column.to_pylist()), t)


def _has_uuids(t: pa.DataType) -> bool:
    if isinstance(t, pa.StructType):
        return any(_has_uuids(field.type) for field in t)
    if isinstance(t, pa.ListType | pa.LargeListType):
        return _has_uuids(t.value_type)
    return isinstance(t, pa.UuidType)


def _told(value: Any) -> Any:
    """A value of Python with texts for UUIDs."""
    match value:
        case uuid.UUID():
            return str(value)
        case dict():
            return {name: _told(part) for name, part in value.items()}
        case list():
            return [_told(part) for part in value]
    return value
