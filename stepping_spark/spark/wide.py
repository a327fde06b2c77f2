"""Sums of ints as longs, where Spark keeps or sends rows.

A sum of ints has up to 38 digits. Spark writes a decimal of so many digits as an object with an
array of bytes, and a long as eight bytes. So a sum becomes two columns: a long, and the decimal
where the sum is beyond 64 bits. One of them is NULL.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Columns, Schema
from stepping_spark.rows.types import quote
from stepping_spark.sums.overflow import is_wide


def packed(frame: DataFrame, schema: Schema) -> DataFrame:
    """The rows with two columns in place of each sum."""
    if not _sums(schema):
        return frame
    shown = [quote(n) for n, _ in schema.columns]
    for n, t in schema.diffs:
        x = quote(n)
        if is_wide(t):
            shown.append(f"TRY_CAST({x} AS BIGINT) AS {x}")
            shown.append(f"if(TRY_CAST({x} AS BIGINT) IS NULL, {x}, NULL) AS {quote(_beyond(n))}")
        else:
            shown.append(x)
    return frame.selectExpr(*shown)


def unpacked(frame: DataFrame, schema: Schema) -> DataFrame:
    """The rows that were packed, as they were."""
    if not _sums(schema):
        return frame
    return frame.selectExpr(*[_whole(n, t) for n, t in schema.all])


def unpacked_table(table: pa.Table, schema: Schema) -> pa.Table:
    """The same for rows that the driver has."""
    for n, t in _sums(schema):
        longs, beyond = table.column(n).cast(t.arrow), table.column(_beyond(n))
        whole = longs if beyond.null_count == len(beyond) else pc.coalesce(longs, beyond)
        table = table.set_column(table.schema.get_field_index(n), n, whole)
    return table.select([n for n, _ in schema.all])


def _sums(schema: Schema) -> Columns:
    return tuple((n, t) for n, t in schema.diffs if is_wide(t))


def _beyond(name: str) -> str:
    return f"{name}.beyond"


def _whole(name: str, t: RowType) -> str:
    x = quote(name)
    if not is_wide(t):
        return x
    return f"coalesce(CAST({x} AS {t.ddl}), {quote(_beyond(name))}) AS {x}"
