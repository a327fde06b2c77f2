"""Relations: rows with weights, held by the driver or by Spark, and what is known about them."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stepping_spark.limits import Limits
from stepping_spark.packages import DataFrame, SparkSession
from stepping_spark.packages import functions as F
from stepping_spark.relations import arrow
from stepping_spark.relations.arrow import Column, canonical, flat, one_array, row_ids
from stepping_spark.relations.codec import conform
from stepping_spark.relations.few_equal import consolidate_few_equal
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.matches import matching
from stepping_spark.spark.measure import column
from stepping_spark.spark.send import frame_of
from stepping_spark.spark.wide import packed, unpacked_table
from stepping_spark.sums.overflow import Sums


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
        """Some of the columns, those of a schema. The result may have equal rows.

        Not so with `beside`: the other columns are beside the rows, and are functions of these.
        """

    @abstractmethod
    def renamed(self, names: Sequence[str]) -> Relation:
        """The same relation with other column names. It must have no diffs."""

    @abstractmethod
    def distinct(self, *, nulls: bool) -> Relation:
        """The distinct rows of a relation without diffs; only those without NULL unless `nulls`."""

    @abstractmethod
    def having(self, keys: Relation, *, among: bool = True) -> Relation:
        """The rows whose key is among the keys, or is not if `among` is False. NULL equals NULL.

        The keys are rows of the key's columns, without diffs.
        """

    @abstractmethod
    def fetched(self, limits: Limits) -> DriverRelation:
        """The same relation on the driver, however large it is."""

    @abstractmethod
    def in_spark(self, spark: Callable[[], SparkSession]) -> SparkRelation:
        """The same relation in Spark."""


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
        return DriverRelation(arrow.empty(schema), schema, consolidated=True)

    @property
    def rows(self) -> int:
        """The number of rows, counting equal ones separately."""
        return self.table.num_rows

    @property
    def nbytes(self) -> int:
        """About the number of bytes of the rows."""
        return self.table.nbytes

    def added_up(self) -> DriverRelation:
        """The same with each row once. A sum beyond the type of its diff raises `StepError`."""
        if self.consolidated:
            return self
        return DriverRelation(each_once(self.table, self.schema), self.schema, consolidated=True)

    def select(self, schema: Schema, *, beside: bool = False) -> DriverRelation:
        """Some of the columns, those of a schema."""
        if schema == self.schema:
            return self
        once = beside and self.consolidated
        return DriverRelation(self.table.select(schema.arrow.names), schema, once)

    def renamed(self, names: Sequence[str]) -> DriverRelation:
        """The same relation with other column names. It must have no diffs."""
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
        found = _among(self.table, keys.table, keys.schema)
        return replace(self, table=self.table.filter(pa.array(found if among else ~found)))

    def fetched(self, limits: Limits) -> DriverRelation:
        """This relation itself."""
        return self

    def in_spark(self, spark: Callable[[], SparkSession]) -> SparkRelation:
        """The same relation in Spark."""
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
        """Whether it is computed as a register with this schema and key keeps it."""
        known = self.consolidated and self.rows is not None
        return known and self.schema == schema and self.partitioned_by == tuple(key)

    def added_up(self, said: Callable[[str, RowType], str]) -> SparkRelation:
        """The same with each row once. Runs no job.

        A sum that does not fit its diff's type is an error within Spark, with the text from `said`.
        """
        sums = Sums.of(self.schema.diffs, said, grouped=bool(self.schema.columns))
        by = [column(n) for n, _ in self.schema.columns]
        rows, added, totals = (
            [F.expr(text).alias(n) for n, text in texts]
            for texts in (sums.rows, sums.sums, sums.totals)
        )
        once = self.frame.select(*by, *rows).groupBy(*by).agg(*added).where(sums.alive)
        return SparkRelation(once.select(*by, *totals), self.schema, consolidated=True)

    def select(self, schema: Schema, *, beside: bool = False) -> SparkRelation:
        """Some of the columns, those of a schema."""
        if schema == self.schema:
            return self
        frame = self.frame.select(*[column(n) for n, _ in schema.all])
        return SparkRelation(frame, schema, beside and self.consolidated)

    def renamed(self, names: Sequence[str]) -> SparkRelation:
        """The same relation with other column names. It must have no diffs."""
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
        found = matching(self.frame, wanted, keys.schema.columns, among=among, small=small)
        return SparkRelation(found, self.schema, self.consolidated)

    def fetched(self, limits: Limits) -> DriverRelation:
        """The same relation on the driver, however large it is.

        Several jobs fetch a large relation, if its size is known. Spark has the result of a task in
        memory three or four times until it is sent, and the heap needs room for that too.
        """
        pieces = -(-(self.nbytes or 0) // limits.piece_bytes)
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
class Scan(SparkRelation):
    """A relation that is not computed: the only query that reads it does that, and checks its rows.

    `check` stands in the plan of a query that does.
    """

    check: str = ""


def on_driver(parts: Sequence[Relation], schema: Schema) -> pa.Table:
    """The rows of those parts that the driver holds, in one table."""
    return arrow.concat((p.table for p in parts if p.table is not None), schema)


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
    """The rows of a table, each once, in the way that takes less time for so many."""
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
    columns: list[Column] = []
    for name, _ in key.columns:
        both = one_array(_behind(rows.column(name), keys.column(name)))
        columns += flat(canonical(both))
    ids = row_ids(columns)
    return np.isin(ids[: rows.num_rows], ids[rows.num_rows :])


def _behind(a: Column, b: Column) -> Column:
    """One column appended to the other."""
    chunks = [c for x in (a, b) for c in (x.chunks if isinstance(x, pa.ChunkedArray) else [x])]
    return pa.chunked_array(chunks, a.type)
