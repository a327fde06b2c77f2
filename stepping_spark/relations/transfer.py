"""Rows of the driver in Spark, and rows of Spark: sent, packed, matched, counted and measured.

A sum of ints has up to 38 digits. Spark writes a decimal of so many digits as an object with an
array of bytes, and a long as eight bytes. So a sum becomes two columns: a long, and the decimal
where the sum is beyond 64 bits. One of them is NULL.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.base.packages import Column, DataFrame, SparkSession
from stepping_spark.base.packages import functions as F
from stepping_spark.relations.sums.overflow import is_wide
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.schema import Columns, Schema
from stepping_spark.rows.sql_text import closed
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf, quote
from stepping_spark.spark.session import with_settings

ROWS_IN_PLAN = 10_000  # beyond, tasks read them: both took equally long at about so many
_BATCH_BYTES = 16 << 20
LOCAL, BATCH = (
    "spark.sql.execution.arrow.localRelationThreshold",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
)


def frame_of(table: pa.Table, schema: Schema, spark: SparkSession) -> DataFrame:
    """The relation as a DataFrame, with its rows in the same order.

    Spark puts few rows into its plan. It converts them there one by one, on one core, and computes
    projections of them while it optimizes. So many rows are sent as Arrow batches, which the tasks
    of the query read.
    """
    if any(pa.types.is_nested(t) for t in table.schema.types):
        table = _unsliced(table)
    # Without a schema, Spark would treat naive timestamps as instants.
    if table.num_rows <= ROWS_IN_PLAN or not isinstance(spark, SparkSession):
        return spark.createDataFrame(table, schema.ddl)
    rows = str(batch_rows(table, 2 * spark.sparkContext.defaultParallelism))
    with with_settings(spark, {LOCAL: "0", BATCH: rows}):
        return spark.createDataFrame(table, schema.ddl)


def batch_rows(table: pa.Table, tasks: int) -> int:
    """The number of rows of a batch for one task, so that batches are neither tiny nor large."""
    parts = max(-(-table.nbytes // _BATCH_BYTES), min(tasks, table.num_rows // ROWS_IN_PLAN), 1)
    return -(-table.num_rows // parts)


def _unsliced(table: pa.Table) -> pa.Table:
    """A copy without sliced arrays: pyspark cannot read nested arrays that are slices."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


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
    """The inverse of `packed`."""
    sums = _sums(schema)
    if not sums:
        return frame
    whole = {
        n: f"coalesce(CAST({quote(n)} AS {t.ddl}), {quote(_beyond(n))}) AS {quote(n)}"
        for n, t in sums.items()
    }
    return frame.selectExpr(*[whole.get(n, quote(n)) for n, _ in schema.all])


def unpacked_table(table: pa.Table, schema: Schema) -> pa.Table:
    """The inverse of `packed`, for rows on the driver."""
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


@dataclass(frozen=True)
class RelationSize:
    """The number of rows of a relation, and their approximate bytes in Arrow."""

    rows: int
    nbytes: int
    nulls: tuple[str, ...] = ()  # the tested fields that contain NULLs, though they never should


def measure(
    frame: DataFrame, schema: Schema, tests: Sequence[tuple[str, str]] = ()
) -> RelationSize:
    """Count the rows of a computed DataFrame, and find the `tests` that some row fails."""
    size = " + ".join(_size(t, quote(n)) for n, t in schema.all)
    nulls = [f"count_if({test}) AS n{i}" for i, (_, test) in enumerate(tests)]
    row = frame.selectExpr("count(1) AS rows", f"sum({size}) AS bytes", *nulls).first()
    assert row is not None
    wrong = tuple(name for i, (name, _) in enumerate(tests) if row[f"n{i}"])
    return RelationSize(row["rows"], row["bytes"] or 0, wrong)


def width_of(schema: Schema) -> int | None:
    """The bytes of each row in Arrow, if all rows have the same number; None if not."""
    widths = [_width(t) for _, t in schema.all]
    widths_known = [w for w in widths if w is not None]
    return sum(widths_known) if len(widths_known) == len(widths) else None


def _width(t: RowType) -> int | None:
    if isinstance(t, Optional):
        return _width(t.inner)
    if isinstance(t, Struct):
        return width_of(Schema(t.fields, ()))
    if isinstance(t, ListOf | ZSetOf) or t.ddl in ("STRING", "BINARY"):
        return None
    return max(t.arrow.bit_width // 8, 1)


def column(name: str) -> Column:
    """The column of exactly this name, with any characters."""
    return F.col(quote(name))


def _size(t: RowType, value: str, depth: int = 0) -> str:
    """The approximate number of bytes of a value in Arrow, as SQL."""
    return f"coalesce({_known_size(t, value, depth)}, 0L)"


def _known_size(t: RowType, value: str, depth: int) -> str:
    if isinstance(t, Optional):
        return _known_size(t.inner, value, depth)
    if isinstance(t, Struct):
        sizes = (_size(f, f"{value}.{quote(n)}", depth) for n, f in t.fields)
        return closed(" + ".join(sizes))
    if isinstance(t, ListOf | ZSetOf):
        inner = t.inner if isinstance(t, ListOf) else t.item
        item = _size(inner, f"x{depth}", depth + 1)
        return f"aggregate({value}, 4L, (n{depth}, x{depth}) -> n{depth} + {item})"
    if t.ddl in ("STRING", "BINARY"):
        return closed(f"octet_length({value}) + 4L")
    return f"{max(t.arrow.bit_width // 8, 1)}L"


def matching(
    frame: DataFrame, wanted: DataFrame, key: Columns, *, among: bool = True, small: bool = False
) -> DataFrame:
    """The rows of a DataFrame whose key is in `wanted`, or is not if `among` is False.

    `wanted` has the columns of the key, with or without others. NULL matches NULL. Spark
    broadcasts `wanted` if it is `small`.
    """
    renamed = [(f"_m{i}_", n, t) for i, (n, t) in enumerate(key)]
    wanted = wanted.select(*[column(n).alias(m) for m, n, _ in renamed])
    same = functools.reduce(
        operator.and_, (_null_safe_equal(column(n), F.col(m), t) for m, n, t in renamed)
    )
    if small:
        wanted = F.broadcast(wanted)
    return frame.join(wanted, same, "leftsemi" if among else "leftanti")


def _null_safe_equal(left: Column, right: Column, t: RowType) -> Column:
    """Whether two values are the same.

    Spark looks up `<=>` by two columns, the value and whether it is NULL. A join of many rows takes
    twice as long as with one. So values that are never NULL are compared by `=`.
    """
    return left == right if isinstance(t, Atom) else left.eqNullSafe(right)
