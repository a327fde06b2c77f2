"""Fetches small computed relations from Spark to the driver.

On one machine the driver joins, groups and sorts one or two million rows in a fraction of the time
that Spark's jobs take. For more rows, or wide ones, memory is the limit.
"""

from __future__ import annotations

from dataclasses import replace

from stepping_spark.limits import Limits
from stepping_spark.relations.codec import conform
from stepping_spark.spark.measure import measure
from stepping_spark.spark.relation import DriverRelation, SparkRelation


class FanOut(Exception):
    """A computation produces too many rows for the driver. The text says how many."""

    @classmethod
    def of(cls, rows: int, what: str, most: int) -> FanOut:
        """The error for a computation that is about to produce this number of rows."""
        return cls(f"{what} gives {rows:,} rows, more than {most:,}")


def check_cut(rows: int, what: str, most: int) -> None:
    """Raise FanOut for a result of more than `most` rows, which was cut off at `most` + 1."""
    if rows > most:
        raise FanOut(f"{what} gives more than {most:,} rows")


def fetch_if_few(
    relation: SparkRelation,
    limits: Limits,
    *,
    most_rows: int | None = None,
    most_bytes: int | None = None,
) -> DriverRelation | None:
    """The rows of a computed relation, each once; None if there are too many."""
    most_rows = limits.fetched_rows if most_rows is None else min(most_rows, limits.fetched_rows)
    most_bytes = limits.fetched_bytes if most_bytes is None else most_bytes
    if most_rows < 1:
        return None
    if relation.rows is None:
        schema = relation.schema
        sample = relation.frame.limit(limits.sampled_rows + 1).toArrow()
        if sample.num_rows <= min(limits.sampled_rows, most_rows):
            return DriverRelation(conform(sample, schema), schema).added_up()
        measured = measure(relation.frame, schema)
        relation = replace(relation, rows=measured.rows, nbytes=measured.nbytes)
    if (relation.rows or 0) > most_rows or (relation.nbytes or 0) > most_bytes:
        return None
    return relation.fetched(limits).added_up()
