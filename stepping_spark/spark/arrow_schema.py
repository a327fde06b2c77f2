"""Schemas of Spark in Arrow: the columns of a DataFrame for those who know Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

_ARROW: dict[type[T.DataType], Any] = {
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.StringType: pa.string(),
    T.VarcharType: pa.string(),
    T.CharType: pa.string(),
    T.BinaryType: pa.binary(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", "UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
    T.DayTimeIntervalType: pa.duration("us"),
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
    known = _ARROW.get(type(t))
    return pa.opaque(pa.null(), t.simpleString(), "Spark") if known is None else known
