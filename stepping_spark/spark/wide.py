"""Sums of ints as longs, where Spark keeps or sends rows.

A sum of ints has up to 38 digits. Spark writes a decimal of so many digits as an object with an
array of bytes, and a long as eight bytes. So a sum becomes two columns: a long, and the decimal
where the sum is beyond 64 bits. One of them is NULL.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.packages import DataFrame
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import quote
from stepping_spark.sums.overflow import is_wide


def packed(frame: DataFrame, schema: Schema) -> DataFrame:
    """The rows with two columns in place of each sum."""
    sums = _sums(schema)
    if not sums:
        return frame
    shown = [quote(n) for n, _ in schema.all if n not in sums]
    for n in sums:
        long = f"TRY_CAST({quote(n)} AS BIGINT)"
        shown.append(f"{long} AS {quote(n)}")
        shown.append(f"if({long} IS NULL, {quote(n)}, NULL) AS {quote(_beyond(n))}")
    return frame.selectExpr(*shown)


def unpacked(frame: DataFrame, schema: Schema) -> DataFrame:
    """The rows that were packed, as they were."""
    sums = _sums(schema)
    if not sums:
        return frame
    whole = {
        n: f"coalesce(CAST({quote(n)} AS {t.ddl}), {quote(_beyond(n))}) AS {quote(n)}"
        for n, t in sums.items()
    }
    return frame.selectExpr(*[whole.get(n, quote(n)) for n, _ in schema.all])


def unpacked_table(table: pa.Table, schema: Schema) -> pa.Table:
    """The same for rows that the driver has."""
    for n, t in _sums(schema).items():
        longs, beyond = table.column(n).cast(t.arrow), table.column(_beyond(n))
        whole = longs if beyond.null_count == len(beyond) else pc.coalesce(longs, beyond)
        table = table.set_column(table.schema.get_field_index(n), n, whole)
    return table.select([n for n, _ in schema.all])


def _sums(schema: Schema) -> dict[str, RowType]:
    """The diffs that are sums of ints."""
    return {n: t for n, t in schema.diffs if is_wide(t)}


def _beyond(name: str) -> str:
    return f"{name}.beyond"
