"""Bringing to the driver what Spark has computed, where it is few rows.

On one machine the driver joins, groups and sorts a million rows, or two, in a fraction of the time
that Spark's jobs take for them; beyond, and where rows are wide, memory is what counts.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from stepping_spark.relations.arrow import consolidate, each_once
from stepping_spark.relations.codec import conform
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.checkpoint import Measured, fetched, measure

DRIVER_ROWS = 2_000_000
DRIVER_BYTES = 256 << 20
SAMPLE = 10_000  # rows that are brought without being counted
GIVEN_ROWS = 1_000_000
"""What a computation may give on the driver, or one query to it, however few rows it reads.

A list that a function of a row makes is one value, and comes whole before its items are counted.
"""


class FanOut(Exception):
    """A computation gives too many rows for the driver; the text says how many."""


def check_few(rows: int, what: str) -> None:
    """Raises `FanOut` where a computation is about to give too many rows."""
    if rows > GIVEN_ROWS:
        raise FanOut(f"{what} gives {rows:,} rows, more than {GIVEN_ROWS:,}")


def check_cut(rows: int, what: str) -> None:
    """The same where rows were cut off after one more than may be given: nobody knows the rest."""
    if rows > GIVEN_ROWS:
        raise FanOut(f"{what} gives more than {GIVEN_ROWS:,} rows")


def brought(
    frame: DataFrame,
    schema: Schema,
    measured: Measured | None = None,
    *,
    most_rows: int | None = None,
    most_bytes: int = DRIVER_BYTES,
    once: bool = False,
) -> pa.Table | None:
    """The rows of a DataFrame that is computed, each once; None where they are too many.

    `once` says that Spark has each of them once.
    """
    most_rows = DRIVER_ROWS if most_rows is None else min(most_rows, DRIVER_ROWS)
    if most_rows < 1:
        return None
    if measured is None:
        sample = frame.limit(SAMPLE + 1).toArrow()
        if sample.num_rows <= min(SAMPLE, most_rows):
            return consolidate(conform(sample, schema), schema)
        measured = measure(frame, schema)
    if measured.rows > most_rows or measured.nbytes > most_bytes:
        return None
    table = conform(fetched(frame, schema, measured), schema)
    return each_once(table, schema) if once else consolidate(table, schema)
