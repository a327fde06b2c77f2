"""Rows of one stream of a loop's body, each with its iteration, while a step runs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.limits import Limits
from stepping_spark.packages import DataFrame
from stepping_spark.packages import functions as F
from stepping_spark.plan.terms import When
from stepping_spark.relations.arrow import Column
from stepping_spark.relations.codec import conform
from stepping_spark.relations.hashes import Hashes, key_hashes
from stepping_spark.rows.schema import Columns, Schema
from stepping_spark.rows.types import quote
from stepping_spark.spark.relation import DriverRelation, Relation, SparkRelation
from stepping_spark.spark.session import no_constraints

_TEST = {When.NOW: "=", When.BEFORE: "<", When.SO_FAR: "<="}
_COMPARE = {When.NOW: pc.equal, When.BEFORE: pc.less, When.SO_FAR: pc.less_equal}


class Layers:
    """Rows of a stream, on the driver and in Spark, of a schema that has a column of iterations.

    They have the columns of the stream, and those of the key.
    """

    def __init__(self, schema: Schema, key: Sequence[str], iteration: str, limits: Limits) -> None:
        self.schema = schema
        self.key = tuple(key)
        self._most_parts = limits.loop_parts  # plans must not pile up
        self._iteration = iteration
        self._runs = Runs(self.key)
        self._frames: list[tuple[DataFrame, frozenset[int]]] = []

    def add(self, held: Relation) -> None:
        """Add rows with their iterations; what Spark has must be materialised."""
        if held.table is not None:
            self._runs.add(held.table)
            return
        assert held.frame is not None
        found = held.frame.select(self._iteration).distinct().toArrow().column(0)
        self._frames.append((held.frame, frozenset(numbers(found))))
        if len(self._frames) > self._most_parts:
            whole = functools.reduce(DataFrame.unionAll, [f for f, _ in self._frames])
            these = frozenset(i for _, some in self._frames for i in some)
            self._frames = [(checkpoint(whole), these)]

    def add_at(self, held: Relation, k: int) -> None:
        """Add rows of one iteration."""
        names = self.schema.arrow.names
        if held.frame is not None:
            frame = held.frame.withColumn(self._iteration, F.lit(k).cast("bigint"))
            self.add(SparkRelation(frame.select(*map(quote, names)), self.schema))
        elif held.table is not None and held.table.num_rows:
            at = pa.array(np.full(held.table.num_rows, k, np.int64))
            table = held.table.append_column(self._iteration, at)
            self.add(DriverRelation(table.select(names), self.schema))

    def at(self, k: int, when: When, near: Hashes | None = None) -> tuple[Relation, ...]:
        """The rows of some iterations, in parts that are not empty, with all their columns.

        With hashes of keys, those of the driver's rows that have such a key.
        """
        found: list[Relation] = []
        tables = self._runs.tables if near is None else self._runs.at(near)
        for table in tables:
            chosen = table.filter(_COMPARE[when](table.column(self._iteration), pa.scalar(k)))
            if chosen.num_rows:
                found.append(DriverRelation(chosen, self.schema))
        test = f"{quote(self._iteration)} {_TEST[when]} {k}"
        for frame, iterations in self._frames:
            if any(_matches(i, when, k) for i in iterations):
                found.append(SparkRelation(frame.where(test), self.schema))
        return tuple(found)

    @property
    def parts(self) -> tuple[Relation, ...]:
        """All rows, with all their columns."""
        return (
            *(DriverRelation(t, self.schema) for t in self._runs.tables),
            *(SparkRelation(f, self.schema) for f, _ in self._frames),
        )

    @property
    def on_driver(self) -> bool:
        """Whether the driver has all rows."""
        return not self._frames

    def after(self, k: int) -> tuple[list[DriverRelation], set[int]]:
        """Later iterations: the rows that the driver has, and the numbers of those in Spark."""
        tables = [
            t.filter(pc.greater(t.column(self._iteration), pa.scalar(k))) for t in self._runs.tables
        ]
        later = {i for _, some in self._frames for i in some if i > k}
        return [DriverRelation(t, self.schema) for t in tables if t.num_rows], later


class Runs:
    """Tables in the order of the hashes of their keys, the smaller ones put together as they come.

    So the rows of a few keys are found by bisection among any number of rows.
    """

    def __init__(self, key: tuple[str, ...]) -> None:
        self._key = key
        self._runs: list[tuple[Hashes, pa.Table]] = []

    @property
    def tables(self) -> list[pa.Table]:
        """All rows."""
        return [table for _, table in self._runs]

    def add(self, table: pa.Table) -> None:
        """Add rows; without a key, in no order."""
        if not table.num_rows:
            return
        self._runs.append(_sorted(hashes_of(table, self._key), table))
        while len(self._runs) > 1 and self._runs[-2][1].num_rows < 2 * self._runs[-1][1].num_rows:
            (old, older), (new, newer) = self._runs.pop(-2), self._runs.pop(-1)
            both = pa.concat_tables([older, newer])
            self._runs.append(_sorted(np.concatenate([old, new]), both))

    def at(self, keys: Hashes) -> list[pa.Table]:
        """The rows that have one of the keys, by their hashes, each once and in order."""
        found = []
        for hashes, table in self._runs:
            begins = np.searchsorted(hashes, keys, side="left")
            counts = np.searchsorted(hashes, keys, side="right") - begins
            ends = np.cumsum(counts)
            if len(ends) and ends[-1]:
                within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
                positions: npt.NDArray[np.int64] = np.repeat(begins, counts) + within
                found.append(table.take(positions))
        return found


def hashes_of(table: pa.Table, key: Sequence[str]) -> Hashes:
    """The hash of each row's key."""
    return key_hashes(table, key)[0]


def _sorted(hashes: Hashes, table: pa.Table) -> tuple[Hashes, pa.Table]:
    order = np.argsort(hashes, kind="stable")
    return hashes[order], table.take(order).combine_chunks()


def _matches(i: int, when: When, k: int) -> bool:
    return i == k if when is When.NOW else i < k if when is When.BEFORE else i <= k


def numbers(column: Column) -> list[int]:
    """The values of a column of iterations."""
    values: Any = column.to_pylist()
    return list(values)


def settled(held: Relation, limits: Limits) -> Relation:
    """The relation, computed: on the driver if it is few rows, else in Spark without lineage."""
    if held.frame is None:
        return held
    frame = checkpoint(held.frame)
    rows = frame.count()
    if rows > limits.loop_rows:
        return SparkRelation(frame, held.schema, held.consolidated, rows=rows)
    return DriverRelation(conform(frame.toArrow(), held.schema), held.schema, held.consolidated)


def checkpoint(frame: DataFrame) -> DataFrame:
    """The DataFrame, computed, and without what it was computed from."""
    with no_constraints(frame.sparkSession):
        return in_few_partitions(frame).localCheckpoint()


def in_few_partitions(frame: DataFrame) -> DataFrame:
    """The DataFrame in at most as many partitions as a shuffle has.

    A union has the partitions of all its parts. An iteration reads the unions of earlier ones, so
    without this their number would double from one iteration to the next.
    """
    partitions = frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or ""
    return frame.coalesce(int(partitions)) if partitions.isdecimal() else frame


class Keys:
    """Distinct keys, to tell which keys are new."""

    def __init__(self, columns: Columns, limits: Limits) -> None:
        self._limits = limits
        self._schema = Schema(columns, ())
        self._here = DriverRelation.empty(self._schema)
        self._in_spark: list[Relation] = []

    def unseen(self, keys: Relation) -> Relation:
        """Those of the keys that have not come before; from now on they have."""
        before: list[Relation] = [self._here, *self._in_spark]
        for seen in before:
            keys = keys.having(seen, among=False)
        keys = settled(keys, self._limits)
        if keys.table is None:
            self._in_spark.append(keys)
        else:
            table = pa.concat_tables([self._here.table, keys.table])
            if table.column(0).num_chunks > self._limits.loop_parts:
                table = table.combine_chunks()
            self._here = DriverRelation(table, self._schema)
        return keys
