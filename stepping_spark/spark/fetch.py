"""Fetches small computed relations from Spark to the driver.

On one machine the driver joins, groups and sorts one or two million rows in a fraction of the time
that Spark's jobs take. For more rows, or wide ones, memory is the limit. On a cluster, rows stay in
Spark if its tasks are faster.
"""

from __future__ import annotations

from dataclasses import replace

from rich.filesize import decimal

from stepping_spark.limits import Limits
from stepping_spark.packages import functions as F
from stepping_spark.spark.measure import measure, width_of
from stepping_spark.spark.placement import FEW_ROWS, Work, resources
from stepping_spark.spark.relation import DriverRelation, SparkRelation

_BYTES_OF_ROW = 8
"""The bytes of most rows in files, at least: of numbers, without text, and not all equal."""

_ROWS_OF_PARTITION = 1 << 33
"""`monotonically_increasing_id` counts the rows of each partition from a multiple of this."""


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


def most_fetched(limits: Limits) -> int:
    """The rows of a stream that the driver fetches: it does not fetch more than it computes with.

    It fetches `sampled_rows` in any case: the store and the lookups of keys use them.
    """
    return min(max(limits.local_rows, limits.sampled_rows), limits.fetched_rows)


def fetch_if_few(
    relation: SparkRelation,
    limits: Limits,
    *,
    most_rows: int | None = None,
    most_bytes: int | None = None,
) -> DriverRelation | None:
    """The rows of a computed relation, each once; None if there are too many."""
    most_rows = limits.fetched_rows if most_rows is None else min(most_rows, limits.fetched_rows)
    if most_rows < 1:
        return None
    if relation.rows is None:
        measured = measure(relation.frame, relation.schema)
        relation = replace(relation, rows=measured.rows, nbytes=measured.nbytes)
    rows, nbytes = relation.rows or 0, relation.nbytes or 0
    if why_not_fetched(rows, nbytes, limits, most_rows=most_rows, most_bytes=most_bytes):
        return None
    return relation.fetched(limits).added_up()


def fetch_if_few_in(
    nbytes: int, relation: SparkRelation, limits: Limits, *, most_rows: int, most_bytes: int
) -> DriverRelation | None:
    """The rows of a relation that is read from so many bytes, each once; None: there are too many.

    One job fetches them where so many bytes rarely have too many rows, and where all rows take the
    same memory. To find out if there are too many, it fetches at most one row more than that from
    each partition. Otherwise another job counts the rows before.
    """
    width = width_of(relation.schema)
    most = most_rows if width is None else min(most_rows, most_bytes // width)
    likely = nbytes // _BYTES_OF_ROW
    if width is None or most < 1 or not _are_few(likely, width, limits, most):
        return fetch_if_few(relation, limits, most_rows=most_rows, most_bytes=most_bytes)
    number = F.monotonically_increasing_id() % F.lit(_ROWS_OF_PARTITION)
    some = SparkRelation(relation.frame.where(number <= most), relation.schema).fetched(limits)
    return some.added_up() if _are_few(some.rows, width, limits, most) else None


def _are_few(rows: int, width: int, limits: Limits, most: int) -> bool:
    return not why_not_fetched(rows, rows * width, limits, most_rows=most)


def why_not_fetched(
    rows: int, nbytes: int, limits: Limits, *, most_rows: int, most_bytes: int | None = None
) -> str:
    """Why a relation of this size stays in Spark; empty if the driver may fetch it."""
    most_bytes = limits.fetched_bytes if most_bytes is None else most_bytes
    work = Work(rows, nbytes, fetched=nbytes)
    if rows > most_rows:
        return f"{work}, more than the {most_rows:,} that the driver fetches"
    if nbytes > most_bytes:
        return f"{work}, more than the {decimal(most_bytes)} that the driver fetches"
    if rows <= FEW_ROWS:
        return ""
    placed = resources(limits).placed(work)
    return "" if placed.on_driver else f"{work}: {placed.why}"
