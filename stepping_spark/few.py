"""Bringing to the driver what Spark has computed, where it is few rows.

On one machine the driver joins, groups and sorts a million rows in a fraction of the time that
Spark's jobs take for them; beyond, and where rows are wide, memory is what counts.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from stepping_spark.codec import conform
from stepping_spark.relations import consolidate
from stepping_spark.schema import Schema

DRIVER_ROWS = 1_000_000
DRIVER_BYTES = 256 << 20
SAMPLE = 10_000  # rows that are brought at once, and tell how wide they are


def brought(frame: DataFrame, schema: Schema, rows: int | None = None) -> pa.Table | None:
    """The rows of a DataFrame that is computed, each once; None where they are too many.

    `rows` is their number, where it is known.
    """
    if DRIVER_ROWS < 1:
        return None
    sample = frame.limit(SAMPLE + 1).toArrow()
    if sample.num_rows > SAMPLE:
        most = min(DRIVER_ROWS, DRIVER_BYTES * sample.num_rows // sample.nbytes)
        if (frame.count() if rows is None else rows) > most:
            return None
        sample = frame.toArrow()
    return consolidate(conform(sample, schema), schema)
