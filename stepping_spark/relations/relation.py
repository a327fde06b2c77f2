"""Relations: rows with weights, on the driver or in Spark, with their known properties.

A materialized relation in Spark is cut from its lineage and consolidated. It is partitioned by the
register's key. So neither the next queries nor the store need an exchange to join or group by that
key.

On one machine the driver joins, groups and sorts one or two million rows in a fraction of the time
that Spark's jobs take. For more rows, or wide ones, memory is the limit. On a cluster, rows stay in
Spark if its tasks are faster.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.filesize import decimal

from stepping_spark.base.errors import StepError
from stepping_spark.base.limits import Limits
from stepping_spark.base.packages import DataFrame, SparkSession, StorageLevel, raised
from stepping_spark.base.packages import functions as F
from stepping_spark.relations import arrow
from stepping_spark.relations.arrow import ArrowColumn, canonical, flat, one_array, row_ids
from stepping_spark.relations.codec import conform
from stepping_spark.relations.hashing import consolidate_few_equal
from stepping_spark.relations.placement import FEW_ROWS, Workload, resources
from stepping_spark.relations.sums.overflow import SumsQuery, beyond
from stepping_spark.relations.transfer import (
    RelationSize,
    column,
    frame_of,
    matching,
    measure,
    packed,
    unpacked,
    unpacked_table,
    width_of,
)
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Schema

SAMPLED_ROWS = 10_000
"""Rows of a stream that are fetched, even if `local_rows` is less. Beyond: they stay in Spark."""

PIECE_BYTES = 64 << 20
"""Bytes that one job fetches to the driver: Spark holds several copies of them meanwhile.

Beyond: several jobs fetch a piece each.
"""

KEPT_BYTES = 512 << 20
"""Bytes of a change in Spark that the driver may fetch and keep: Spark refuses results of 1 GB.

Beyond: Spark keeps or writes it.
"""


class Relation(ABC):
    """Rows of a schema, with its columns, in order. Immutable.

    Equal rows may occur several times; their diffs are added. A small relation is held on the
    driver, a large one in Spark: `DriverRelation` has a `table`, `SparkRelation` has a `frame`, and
    the other attribute is None.

    `consolidated` says that each row occurs once, and none has only zero diffs. `partitioned_by` is
    the columns by which Spark has partitioned the rows. It is None if that is unknown. `rows` and
    `nbytes` are None if they are unknown; reading them runs no job.
    """

    table: pa.Table | None
    frame: DataFrame | None
    schema: Schema
    consolidated: bool
    partitioned_by: tuple[str, ...] | None

    @property
    @abstractmethod
    def rows(self) -> int | None:
        """The number of rows, counting equal ones separately."""

    @property
    @abstractmethod
    def nbytes(self) -> int | None:
        """About the number of bytes of the rows in Arrow."""

    @property
    def is_empty(self) -> bool:
        """Whether it is known, without a job, to have no rows."""
        return self.rows == 0

    @abstractmethod
    def select(self, schema: Schema, *, beside: bool = False) -> Relation:
        """The columns of a schema. The result may have equal rows.

        With `beside`, the omitted columns are functions of the rest, so rows stay distinct.
        """

    @abstractmethod
    def renamed(self, names: Sequence[str]) -> Relation:
        """The relation with other column names. It must have no diffs."""

    @abstractmethod
    def distinct(self, *, nulls: bool) -> Relation:
        """The distinct rows of a relation without diffs; only those without NULL unless `nulls`."""

    @abstractmethod
    def having(self, keys: Relation, *, among: bool = True) -> Relation:
        """The rows whose key is among the keys, or is not if `among` is False. NULL equals NULL.

        The keys are rows of the key's columns, without diffs.
        """

    @abstractmethod
    def fetched(self) -> DriverRelation:
        """The relation on the driver, however large it is."""

    @abstractmethod
    def in_spark(self, spark: Callable[[], SparkSession]) -> SparkRelation:
        """The relation in Spark."""


@dataclass(frozen=True, eq=False)
class DriverRelation(Relation):
    """A relation that the driver holds, as an Arrow table with the columns of the schema."""

    table: pa.Table
    schema: Schema
    consolidated: bool = False

    frame = None
    partitioned_by = None

    @staticmethod
    def empty(schema: Schema) -> DriverRelation:
        """The relation without rows."""
        return DriverRelation(schema.empty, schema, consolidated=True)

    @property
    def rows(self) -> int:
        """The number of rows, counting equal ones separately."""
        return self.table.num_rows

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows."""
        return not self.table.num_rows

    @property
    def nbytes(self) -> int:
        """About the number of bytes of the rows."""
        return self.table.nbytes

    def added_up(self) -> DriverRelation:
        """The consolidated relation. A sum beyond the type of its diff raises `StepError`."""
        if self.consolidated:
            return self
        return DriverRelation(each_once(self.table, self.schema), self.schema, consolidated=True)

    def filter(self, kept: Any) -> DriverRelation:
        """The rows for which a mask is true; NULL is not true."""
        return DriverRelation(self.table.filter(kept), self.schema, self.consolidated)

    def select(self, schema: Schema, *, beside: bool = False) -> DriverRelation:
        """The columns of a schema."""
        if schema == self.schema:
            return self
        once = beside and self.consolidated
        return DriverRelation(self.table.select(schema.names), schema, once)

    def renamed(self, names: Sequence[str]) -> DriverRelation:
        """The relation with other column names. It must have no diffs."""
        table = self.table.rename_columns(list(names))
        return DriverRelation(table, _renamed(self.schema, names), self.consolidated)

    def distinct(self, *, nulls: bool) -> DriverRelation:
        """The distinct rows of a relation without diffs; only those without NULL unless `nulls`."""
        table = arrow.distinct_rows(self.table, drop_nulls=not nulls)
        return DriverRelation(table, self.schema, consolidated=True)

    def having(self, keys: Relation, *, among: bool = True) -> Relation:
        """The rows whose key is among the keys, or is not if `among` is False."""
        if keys.frame is not None:
            session = keys.frame.sparkSession
            return self.in_spark(lambda: session).having(keys, among=among)
        assert keys.table is not None
        mask = _among(self.table, keys.table, keys.schema)
        return replace(self, table=self.table.filter(pa.array(mask if among else ~mask)))

    def fetched(self) -> DriverRelation:
        """This relation itself."""
        return self

    def in_spark(self, spark: Callable[[], SparkSession]) -> SparkRelation:
        """The relation in Spark."""
        frame = frame_of(self.table, self.schema, spark())
        return SparkRelation(frame, self.schema, self.consolidated)


@dataclass(frozen=True, eq=False)
class SparkRelation(Relation):
    """A relation that Spark holds, or can compute, as a DataFrame.

    `nulls` are the fields in which NULL was found, though their types do not allow it.
    """

    frame: DataFrame
    schema: Schema
    consolidated: bool = False
    partitioned_by: tuple[str, ...] | None = None
    rows: int | None = None
    nbytes: int | None = None
    nulls: tuple[str, ...] = ()

    table = None

    def is_settled(self, schema: Schema, key: Sequence[str]) -> bool:
        """Whether it is computed in the layout of a register with this schema and key."""
        known = self.consolidated and self.rows is not None
        return known and self.schema == schema and self.partitioned_by == tuple(key)

    def added_up(self, message_of: Callable[[str, RowType], str]) -> SparkRelation:
        """The consolidated relation. Runs no job.

        A sum that does not fit the type of its diff is an error within Spark, with the text of
        `message_of`.
        """
        sums = SumsQuery.of(self.schema.diffs, message_of, grouped=bool(self.schema.columns))
        by = [column(n) for n, _ in self.schema.columns]
        rows, added, totals = (
            [F.expr(text).alias(n) for n, text in texts]
            for texts in (sums.rows, sums.sums, sums.totals)
        )
        once = self.frame.select(*by, *rows).groupBy(*by).agg(*added).where(sums.alive)
        return SparkRelation(once.select(*by, *totals), self.schema, consolidated=True)

    def select(self, schema: Schema, *, beside: bool = False) -> SparkRelation:
        """The columns of a schema."""
        if schema == self.schema:
            return self
        frame = self.frame.select(*[column(n) for n, _ in schema.all])
        return SparkRelation(frame, schema, beside and self.consolidated)

    def renamed(self, names: Sequence[str]) -> SparkRelation:
        """The relation with other column names. It must have no diffs."""
        frame = self.frame.toDF(*names)
        return SparkRelation(frame, _renamed(self.schema, names), self.consolidated)

    def distinct(self, *, nulls: bool) -> SparkRelation:
        """The distinct rows of a relation without diffs; only those without NULL unless `nulls`."""
        frame = (self.frame if nulls else self.frame.dropna()).distinct()
        return SparkRelation(frame, self.schema, consolidated=True)

    def having(self, keys: Relation, *, among: bool = True) -> SparkRelation:
        """The rows whose key is among the keys, or is not if `among` is False."""
        wanted = keys.in_spark(lambda: self.frame.sparkSession).frame
        small = keys.table is not None
        frame = matching(self.frame, wanted, keys.schema.columns, among=among, small=small)
        return SparkRelation(frame, self.schema, self.consolidated)

    def fetched(self) -> DriverRelation:
        """The relation on the driver, however large it is.

        Several jobs fetch a large relation, if its size is known. Spark holds the result of a task
        in memory three or four times until it is sent, and the heap needs room for that too.
        """
        pieces = -(-(self.nbytes or 0) // PIECE_BYTES)
        frame = packed(self.frame, self.schema)
        if pieces < 2 or not self.schema.columns:
            table = frame.toArrow()
        else:
            number = F.xxhash64(*[column(n) for n, _ in self.schema.columns])
            piece = F.pmod(number, F.lit(pieces))
            table = pa.concat_tables([frame.where(piece == i).toArrow() for i in range(pieces)])
        table = unpacked_table(table, self.schema)
        return DriverRelation(conform(table, self.schema), self.schema, self.consolidated)

    def in_spark(self, spark: Callable[[], SparkSession]) -> SparkRelation:
        """This relation itself."""
        return self


@dataclass(frozen=True, eq=False)
class LazyScan(SparkRelation):
    """A relation that its only reader, a single query, computes and checks.

    `check` is a text in the plan of a query that checks the rows.
    """

    check: str = ""


def on_driver(parts: Sequence[Relation], schema: Schema) -> pa.Table:
    """The rows of the parts on the driver, in one table."""
    if len(parts) == 1:
        table = parts[0].table
        if table is not None and table.schema.equals(schema.arrow):
            return table
    return arrow.concat([p.table for p in parts if p.table is not None], schema)


def plus(parts: Sequence[Relation], schema: Schema) -> Relation:
    """The sum of relations of a schema: all their rows, not consolidated."""
    if len(parts) == 1:
        return parts[0]
    table = on_driver(parts, schema)
    frames = [p.frame for p in parts if p.frame is not None]
    if not frames:
        return DriverRelation(table, schema, consolidated=not table.num_rows)
    if table.num_rows:
        frames.append(frame_of(table, schema, frames[0].sparkSession))
    return SparkRelation(functools.reduce(DataFrame.unionByName, frames), schema)


def each_once(table: pa.Table, schema: Schema) -> pa.Table:
    """The rows of a table, consolidated by the faster method for their number."""
    few = table.num_rows <= arrow.FEW
    return (arrow.consolidate if few else consolidate_few_equal)(table, schema)


def added_up(parts: Sequence[Relation], schema: Schema) -> tuple[Relation, ...]:
    """Add up the rows of several batches for the keys of a change, before they are joined.

    Otherwise a row that one batch added and another removed would be joined twice with every match.
    Parts in Spark are not added up here; a query adds them up.
    """
    in_spark = [p for p in parts if p.table is None]
    if len(parts) - len(in_spark) < 2:
        return tuple(parts)
    table = on_driver(parts, schema)
    return (*in_spark, DriverRelation(table, schema).added_up())


def _renamed(schema: Schema, names: Sequence[str]) -> Schema:
    return Schema(tuple((n, t) for n, (_, t) in zip(names, schema.columns, strict=True)), ())


def _among(rows: pa.Table, keys: pa.Table, key: Schema) -> npt.NDArray[np.bool_]:
    if not rows.num_rows or not keys.num_rows:
        return np.zeros(rows.num_rows, np.bool_)
    columns: list[ArrowColumn] = []
    for name, _ in key.columns:
        both = one_array(_behind(rows.column(name), keys.column(name)))
        columns += flat(canonical(both))
    ids = row_ids(columns)
    return np.isin(ids[: rows.num_rows], ids[rows.num_rows :])


def _behind(a: ArrowColumn, b: ArrowColumn) -> ArrowColumn:
    """One column appended to the other."""
    chunks = [c for x in (a, b) for c in (x.chunks if isinstance(x, pa.ChunkedArray) else [x])]
    return pa.chunked_array(chunks, a.type)


def settle(
    relation: SparkRelation,
    key: Sequence[str],
    whose: str,
    *,
    level: StorageLevel | None = None,
    tests: Sequence[tuple[str, str]] = (),
) -> SparkRelation:
    """Compute a relation once, consolidate it, cut its lineage, and measure it.

    `level` is the storage level; by default it is memory, as far as there is room. Errors of Spark
    are raised unchanged. A sum that does not fit its column raises a StepError that begins with
    `whose`.
    """
    schema, frame = relation.schema, relation.frame
    if 0 < len(key) < len(schema.columns):
        # Equal rows have equal keys, so the grouping needs no other exchange.
        frame = frame.repartition(*[column(k) for k in key])

    message = too_large(whose)
    rows = frame
    if not relation.consolidated or relation.partitioned_by != tuple(key):
        rows = SparkRelation(frame, schema).added_up(message).frame
    try:
        kept, measured = _computed(rows, schema, tests, level)
    except raised.PySparkException as e:
        for name, t in schema.diffs:
            if message(name, t) in str(e):
                raise StepError(message(name, t)) from e
        raise
    return SparkRelation(
        kept,
        schema,
        consolidated=True,
        partitioned_by=tuple(key),
        rows=measured.rows,
        nbytes=measured.nbytes,
        nulls=measured.nulls,
    )


def too_large(whose: str) -> Callable[[str, RowType], str]:
    """The text of the error of a sum that does not fit its column; it begins with `whose`."""
    return lambda name, t: f"{whose}: {beyond(name, t)}"


def computed_once(relation: SparkRelation, tests: Sequence[tuple[str, str]] = ()) -> SparkRelation:
    """Compute a relation once, cut its lineage, and measure it, without consolidation."""
    kept, measured = _computed(relation.frame, relation.schema, tests)
    return SparkRelation(
        kept,
        relation.schema,
        relation.consolidated,
        rows=measured.rows,
        nbytes=measured.nbytes,
        nulls=measured.nulls,
    )


def _computed(
    frame: DataFrame,
    schema: Schema,
    tests: Sequence[tuple[str, str]],
    level: StorageLevel | None = None,
) -> tuple[DataFrame, RelationSize]:
    """The rows of a DataFrame, cut from its lineage, and their size: computed in one job.

    The job that measures reads every row, so it also computes and stores them.
    """
    small = packed(frame, schema)
    stored = small.localCheckpoint(False) if level is None else small.localCheckpoint(False, level)
    kept = unpacked(stored, schema)
    return kept, measure(kept, schema, tests)


_BYTES_OF_ROW = 8
"""The least bytes of most rows in files, for numbers without text that are not all equal."""

_FEW_BYTES = 4 << 20
"""Bytes of files up to which they are fetched without counting rows, whatever their content."""

_UNPACKED = 16
"""The most bytes in memory per byte of a file, except for rows of equal texts."""

_ROWS_OF_PARTITION = 1 << 33
"""`monotonically_increasing_id` counts the rows of each partition from a multiple of this."""


class FanOut(Exception):
    """The error for a computation with too many rows for the driver; the text has their number."""

    @classmethod
    def of(cls, rows: int, what: str, most: int) -> FanOut:
        """The error for a computation that is about to produce this number of rows."""
        return cls(f"{what} gives {rows:,} rows, more than {most:,}")


def check_cut(rows: int, what: str, most: int) -> None:
    """Raise FanOut for a result of more than `most` rows, which was cut off at `most` + 1."""
    if rows > most:
        raise FanOut(f"{what} gives more than {most:,} rows")


def most_fetched(limits: Limits) -> int:
    """The most rows of a stream that the driver fetches: as many as it may compute with.

    But at least `SAMPLED_ROWS`, within `fetched_rows`: the store and lookups of keys use them.
    """
    return min(max(limits.local_rows, SAMPLED_ROWS), limits.fetched_rows)


def fetch_if_few(
    relation: SparkRelation,
    limits: Limits,
    *,
    most_rows: int | None = None,
    most_bytes: int | None = None,
) -> DriverRelation | None:
    """The consolidated rows of a computed relation; None if there are too many."""
    most_rows = limits.fetched_rows if most_rows is None else min(most_rows, limits.fetched_rows)
    if most_rows < 1:
        return None
    if relation.rows is None:
        measured = measure(relation.frame, relation.schema)
        relation = replace(relation, rows=measured.rows, nbytes=measured.nbytes)
    rows, nbytes = relation.rows or 0, relation.nbytes or 0
    if why_not_fetched(rows, nbytes, limits, most_rows=most_rows, most_bytes=most_bytes):
        return None
    return relation.fetched().added_up()


def fetch_if_few_in(
    nbytes: int, relation: SparkRelation, limits: Limits, *, most_rows: int, most_bytes: int
) -> DriverRelation | None:
    """The consolidated rows of a relation read from so many bytes; None if there are too many.

    One job fetches them if so many bytes rarely have too many rows, and if all rows take the same
    memory or there are few bytes. To detect too many rows, it fetches at most one row more than
    allowed from each partition. Otherwise another job counts the rows before.
    """
    width = width_of(relation.schema)
    if width is None and nbytes <= min(_FEW_BYTES, most_bytes // _UNPACKED):
        width = 1
    most = most_rows if width is None else min(most_rows, most_bytes // width)
    likely = nbytes // _BYTES_OF_ROW
    if width is None or most < 1 or not _are_few(likely, width, limits, most):
        return fetch_if_few(relation, limits, most_rows=most_rows, most_bytes=most_bytes)
    number = F.monotonically_increasing_id() % F.lit(_ROWS_OF_PARTITION)
    some = SparkRelation(relation.frame.where(number <= most), relation.schema).fetched()
    return some.added_up() if _are_few(some.rows, width, limits, most) else None


def _are_few(rows: int, width: int, limits: Limits, most: int) -> bool:
    return not why_not_fetched(rows, rows * width, limits, most_rows=most)


def why_not_fetched(
    rows: int, nbytes: int, limits: Limits, *, most_rows: int, most_bytes: int | None = None
) -> str:
    """The reason why a relation of this size stays in Spark; "" if the driver may fetch it."""
    most_bytes = limits.fetched_bytes if most_bytes is None else most_bytes
    work = Workload(rows, nbytes, fetched=nbytes)
    if rows > most_rows:
        return f"{work}, more than the {most_rows:,} that the driver fetches"
    if nbytes > most_bytes:
        return f"{work}, more than the {decimal(most_bytes)} that the driver fetches"
    if rows <= FEW_ROWS:
        return ""
    placed = resources(limits).placed(work)
    return "" if placed.on_driver else f"{work}: {placed.why}"
