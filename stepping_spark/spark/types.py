"""Row types from Spark's types: of a Column, by Spark's analyzer, and of a DataFrame's columns."""

from __future__ import annotations

import decimal
import functools
import re
from typing import Any

import pyarrow as pa

from stepping_spark.base.errors import CompileError
from stepping_spark.base.packages import (
    Column,
    DataFrame,
    SparkSession,
    functions,
    raised,
)
from stepping_spark.base.packages import types as T
from stepping_spark.rows.atoms import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    LOCAL_DATETIME,
    STR,
    TIMEDELTA,
    Atom,
    RowType,
)
from stepping_spark.rows.schema import columns_of
from stepping_spark.rows.types import ListOf, Optional, Struct, quote
from stepping_spark.spark.column_made import in_running_session
from stepping_spark.spark.column_tree import as_trees, is_window
from stepping_spark.spark.session import first_line, get_session, raised_by_java

_SIMPLE: dict[str, RowType] = {
    "BooleanType": BOOL,
    "ByteType": INT,
    "ShortType": INT,
    "IntegerType": INT,
    "LongType": INT,
    "FloatType": FLOAT,
    "DoubleType": FLOAT,
    "StringType": STR,
    "BinaryType": BYTES,
    "DateType": DATE,
    "TimestampType": DATETIME,
    "TimestampNTZType": LOCAL_DATETIME,
    "DayTimeIntervalType": TIMEDELTA,
}


def from_spark(t: T.DataType, nullable: bool, where: str) -> RowType:
    """The row type of a Spark type. A struct has no Python class yet (its name is empty)."""
    inner: RowType
    if isinstance(t, T.DecimalType):
        inner = Atom("Decimal", decimal.Decimal, t.precision, t.scale)
    elif isinstance(t, T.ArrayType):
        inner = ListOf(from_spark(t.elementType, t.containsNull, where))
    elif isinstance(t, T.StructType):
        fields = tuple((f.name, from_spark(f.dataType, f.nullable, where)) for f in t.fields)
        inner = Struct("", fields, dict)
    elif type(t).__name__ in _SIMPLE:
        inner = _SIMPLE[type(t).__name__]
    else:
        raise CompileError(
            f"{where}: Spark gives {t.simpleString()}, which a row cannot hold; convert it to a "
            "type that can (.cast, F.to_json, F.map_entries …)"
        )
    return Optional(inner) if nullable else inner


def analyzed(column: Column, row: RowType, where: str) -> RowType:
    """The type of a Column over rows of the type, from Spark's analyzer.

    Runs no job. Starts a session if none is active. Raises `CompileError` for a Column that is no
    function of one row, or that Spark refuses.
    """
    _refuse_what_several_rows_say(column, where)
    try:
        asked = in_running_session(column)
    except CompileError as e:
        raise CompileError(f"{where}: {e}") from None
    with as_trees(wanted=False):
        return _analyzed(asked, row, where)


def _analyzed(column: Column, row: RowType, where: str) -> RowType:
    spark = get_session()
    ddl = ", ".join(
        f"{quote(n)} {t.ddl}{'' if isinstance(t, Optional) else ' NOT NULL'}"
        for n, t in columns_of(row)
    )
    rows = _rows(spark, ddl)
    try:
        field = rows.select(column).schema.fields[0]
    except (raised.PySparkException, raised_by_java.Py4JJavaError) as e:
        raise CompileError(f"{where}: Spark refuses {column}: {first_line(e)}") from e
    _refuse_what_is_no_function_of_the_row(rows, column, where)
    return from_spark(field.dataType, field.nullable, where)


def kind_in_spark(column: Column, row: RowType) -> str:
    """Spark's own type of a Column over rows of the type, as text. Runs no job.

    If Spark refuses the Column, it raises `PySparkException`, or an error of Java that PySpark does
    not know.
    """
    spark = get_session()
    ddl = ", ".join(f"{quote(n)} {t.ddl}" for n, t in columns_of(row))
    asked = in_running_session(column)
    with as_trees(wanted=False):
        return _rows(spark, ddl).select(asked).schema.fields[0].dataType.simpleString()


@functools.lru_cache(maxsize=512)
def _rows(spark: SparkSession, ddl: str) -> DataFrame:
    """The empty relation of a type."""
    return spark.createDataFrame([], ddl)


def _refuse_what_several_rows_say(column: Column, where: str) -> None:
    """Refuse window functions, windows of time, and the clock."""
    clock = _CLOCK.search(str(column))
    if clock:
        raise CompileError(
            f"{where}: {clock[0]} differs from step to step, so that removing a row would not "
            "undo what adding it did; use st.temporal_filter, which compares times of the rows "
            "with the now= of the steps, or put the time into the rows"
        )
    of_time = _WINDOW_OF_TIME.search(str(column))
    if of_time:
        raise CompileError(
            f"{where}: {of_time[1]} makes new rows, and a row function returns one value for each "
            "row. Use F.date_trunc to group by an hour or a day, and "
            "st.sessions for sessions"
        )
    if is_window(column):
        raise CompileError(
            f"{where}: {column} is a window function: it looks at several rows, and a function of "
            "a row at one. Use st.window with the function of this name in st.win; for the first "
            "rows of each group, st.first_n is cheaper"
        )


def _refuse_what_is_no_function_of_the_row(rows: DataFrame, column: Column, where: str) -> None:
    """Refuse aggregates, generators and random values: Spark does, inside an aggregate."""
    try:
        _ = rows.agg(functions.count(column)).schema  # on Connect, this asks the analyzer
    except (raised.PySparkException, raised_by_java.Py4JJavaError) as e:
        raise CompileError(
            f"{where}: {column} is not a function of one row alone: {first_line(e)}; a row "
            "function may hold no aggregate, window, generator or random value: use st.aggregate "
            "for sums, st.window for windows, st.map_many with the array itself for explode"
        ) from e


_WINDOW_OF_TIME = re.compile(r"\b(session_window|window_time|window)\(")
_CLOCK = re.compile(
    r"\b(current_date|current_timestamp|current_time|localtimestamp|now|curdate|unix_timestamp)\(\)"
)


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
    """The Arrow schema of a DataFrame; a type that Arrow lacks is represented by its Spark name."""
    return pa.schema([pa.field(f.name, _arrow(f.dataType), f.nullable) for f in schema.fields])


def _arrow(t: T.DataType) -> Any:
    if isinstance(t, T.DecimalType):
        return pa.decimal128(t.precision, t.scale)
    if isinstance(t, T.ArrayType):
        return pa.list_(pa.field("item", _arrow(t.elementType), t.containsNull))
    if isinstance(t, T.StructType):
        return pa.struct(list(arrow_schema_of(t)))
    arrow_type = _ARROW.get(type(t).__name__)
    return pa.opaque(pa.null(), t.simpleString(), "Spark") if arrow_type is None else arrow_type


def spark_schema_of(schema: pa.Schema) -> T.StructType:
    """The Spark schema of an Arrow table. Raises `KeyError` for a type that Spark lacks."""
    return T.StructType([T.StructField(f.name, _spark(f.type), f.nullable) for f in schema])


def _spark(t: Any) -> T.DataType:
    if pa.types.is_decimal128(t):
        return T.DecimalType(t.precision, t.scale)
    if pa.types.is_list(t):
        return T.ArrayType(_spark(t.value_type), t.value_field.nullable)
    if pa.types.is_struct(t):
        return spark_schema_of(pa.schema(list(t)))
    spark_type: T.DataType = getattr(T, _SPARK[t])()
    return spark_type


_SPARK = {t: name for name, t in reversed(_ARROW.items())}
