"""Sends rows that the driver holds to Spark."""

from __future__ import annotations

import pyarrow as pa

from stepping_spark.packages import DataFrame, SparkSession
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.session import with_settings

ROWS_IN_PLAN = 10_000  # beyond, tasks read them: both took equally long at about that many
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
        table = _whole(table)
    # Without a schema, Spark would treat naive timestamps as instants.
    if table.num_rows <= ROWS_IN_PLAN or not isinstance(spark, SparkSession):
        return spark.createDataFrame(table, schema.ddl)
    rows = str(batch_rows(table, 2 * spark.sparkContext.defaultParallelism))
    with with_settings(spark, {LOCAL: "0", BATCH: rows}):
        return spark.createDataFrame(table, schema.ddl)


def batch_rows(table: pa.Table, tasks: int) -> int:
    """The rows of a batch, which is read by a task: neither tiny nor large."""
    parts = max(-(-table.nbytes // _BATCH_BYTES), min(tasks, table.num_rows // ROWS_IN_PLAN), 1)
    return -(-table.num_rows // parts)


def _whole(table: pa.Table) -> pa.Table:
    """A copy without sliced arrays: pyspark cannot read nested arrays that are slices."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()
