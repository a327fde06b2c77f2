"""Schemas of Spark in Arrow: the columns of a DataFrame for those who know Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from stepping_spark.packages import types as T

_ARROW: dict[str, Any] = {
    "BooleanType": pa.bool_(),
    "ByteType": pa.int8(),
    "ShortType": pa.int16(),
    "IntegerType": pa.int32(),
    "LongType": pa.int64(),
    "FloatType": pa.float32(),
    "DoubleType": pa.float64(),
    "StringType": pa.string(),
    "VarcharType": pa.string(),
    "CharType": pa.string(),
    "BinaryType": pa.binary(),
    "DateType": pa.date32(),
    "TimestampType": pa.timestamp("us", "UTC"),
    "TimestampNTZType": pa.timestamp("us"),
    "DayTimeIntervalType": pa.duration("us"),
}


def arrow_schema_of(schema: T.StructType) -> pa.Schema:
    """The columns of a DataFrame; a type that Arrow does not have has its name in Spark."""
    return pa.schema([pa.field(f.name, _arrow(f.dataType), f.nullable) for f in schema.fields])


def _arrow(t: T.DataType) -> Any:
    if isinstance(t, T.DecimalType):
        return pa.decimal128(t.precision, t.scale)
    if isinstance(t, T.ArrayType):
        return pa.list_(pa.field("item", _arrow(t.elementType), t.containsNull))
    if isinstance(t, T.StructType):
        return pa.struct(list(arrow_schema_of(t)))
    known = _ARROW.get(type(t).__name__)
    return pa.opaque(pa.null(), t.simpleString(), "Spark") if known is None else known
