"""Rows of one stream of a loop's body, each with its iteration, while a step runs."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stepping_spark.limits import Limits
from stepping_spark.plan.terms import When
from stepping_spark.relations.arrow import Column, canonical, empty, flat, one_array, row_ids
from stepping_spark.relations.codec import conform, frame_of
from stepping_spark.relations.hashes import Hashes, key_hashes
from stepping_spark.rows.schema import Columns, Schema
from stepping_spark.rows.types import quote
from stepping_spark.spark.session import no_constraints
from stepping_spark.store import Held

_TEST = {When.NOW: "=", When.BEFORE: "<", When.SO_FAR: "<="}
_COMPARE = {When.NOW: pc.equal, When.BEFORE: pc.less, When.SO_FAR: pc.less_equal}


class Layers:
    """Rows of a stream, on the driver and in Spark; `iteration` is the column that says of which.

    They have the columns of the stream, and those of the key.
    """

    def __init__(self, schema: Schema, key: Sequence[str], iteration: str, limits: Limits) -> None:
        self._most_parts = limits.loop_parts  # plans must not pile up
        self.schema = schema
        self.key = tuple(key)
        self._iteration = iteration
        self._runs = Runs(self.key)
        self._frames: list[tuple[DataFrame, frozenset[int]]] = []

    def add(self, held: Held) -> None:
        """Add rows with their iterations; a DataFrame must be materialised."""
        if isinstance(held, pa.Table):
            self._runs.add(held)
            return
        found = held.select(self._iteration).distinct().toArrow().column(0)
        self._frames.append((held, frozenset(numbers(found))))
        if len(self._frames) > self._most_parts:
            whole = functools.reduce(DataFrame.unionAll, [f for f, _ in self._frames])
            these = frozenset(i for _, some in self._frames for i in some)
            self._frames = [(checkpoint(whole), these)]

    def add_at(self, held: Held, k: int) -> None:
        """Add rows of one iteration."""
        if isinstance(held, DataFrame):
            self.add(held.withColumn(self._iteration, F.lit(k).cast("bigint")))
        elif held.num_rows:
            at = pa.array(np.full(held.num_rows, k, np.int64))
            self.add(held.append_column(self._iteration, at))

    def at(self, k: int, when: When, near: Hashes | None = None) -> tuple[Held, ...]:
        """The rows of some iterations, in parts that are not empty, with all their columns.

        With hashes of keys, those of the driver's rows that have such a key.
        """
        found: list[Held] = []
        tables = self._runs.tables if near is None else self._runs.at(near)
        for table in tables:
            chosen = table.filter(_COMPARE[when](table.column(self._iteration), pa.scalar(k)))
            if chosen.num_rows:
                found.append(chosen)
        test = f"{quote(self._iteration)} {_TEST[when]} {k}"
        for frame, iterations in self._frames:
            if any(_matches(i, when, k) for i in iterations):
                found.append(frame.where(test))
        return tuple(found)

    @property
    def parts(self) -> tuple[Held, ...]:
        """All rows, with all their columns."""
        return (*self._runs.tables, *(f for f, _ in self._frames))

    @property
    def on_driver(self) -> bool:
        """Whether the driver has all rows."""
        return not self._frames

    def after(self, k: int) -> tuple[list[pa.Table], set[int]]:
        """Later iterations: the rows that the driver has, and the numbers of those in Spark."""
        tables = [
            t.filter(pc.greater(t.column(self._iteration), pa.scalar(k))) for t in self._runs.tables
        ]
        later = {i for _, some in self._frames for i in some if i > k}
        return [t for t in tables if t.num_rows], later


class Runs:
    """Tables in the order of the hashes of their keys, the smaller ones put together as they come.

    So the rows of a few keys are found by bisection, whatever else there is.
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


def is_empty(held: Held) -> bool:
    """Whether a relation is known to have no rows."""
    return isinstance(held, pa.Table) and not held.num_rows


def settled(held: Held, schema: Schema, limits: Limits) -> Held:
    """The relation, computed: on the driver if it is few rows, else in Spark without lineage."""
    if isinstance(held, pa.Table):
        return held
    frame = checkpoint(held)
    return conform(frame.toArrow(), schema) if frame.count() <= limits.loop_rows else frame


def checkpoint(frame: DataFrame) -> DataFrame:
    """The DataFrame, computed, and without what it was computed from."""
    with no_constraints(frame.sparkSession):
        return frame.localCheckpoint()


class Keys:
    """Distinct keys, to tell those that have come before."""

    def __init__(self, columns: Columns, limits: Limits) -> None:
        self._limits = limits
        self._schema = Schema(columns, ())
        self._table = empty(self._schema)
        self._frames: list[DataFrame] = []

    def unseen(self, keys: Held) -> Held:
        """Those of the keys that have not come before; from now on they have."""
        before: list[Held] = [self._table, *self._frames]
        for seen in before:
            keys = having(keys, seen, self._schema, self._schema, among=False)
        keys = settled(keys, self._schema, self._limits)
        if isinstance(keys, DataFrame):
            self._frames.append(keys)
        else:
            self._table = pa.concat_tables([self._table, keys])
            if self._table.column(0).num_chunks > self._limits.loop_parts:
                self._table = self._table.combine_chunks()
        return keys


def having(rows: Held, keys: Held, schema: Schema, key: Schema, *, among: bool = True) -> Held:
    """The rows whose key is among the keys; or, not `among`, is not. NULL equals NULL."""
    if isinstance(rows, pa.Table) and isinstance(keys, pa.Table):
        found = _among(rows, keys, key)
        return rows.filter(pa.array(found if among else ~found))
    spark = next(x.sparkSession for x in (rows, keys) if isinstance(x, DataFrame))
    frame = rows if isinstance(rows, DataFrame) else frame_of(rows, schema, spark)
    wanted = keys if isinstance(keys, DataFrame) else F.broadcast(frame_of(keys, key, spark))
    names = [n for n, _ in key.columns]
    renamed = [f"_m{i}_" for i in range(len(names))]
    wanted = wanted.select([quote(n) for n in names]).toDF(*renamed)
    same = (F.col(quote(n)).eqNullSafe(F.col(m)) for n, m in zip(names, renamed, strict=True))
    on = functools.reduce(operator.and_, same)
    return frame.join(wanted, on, "leftsemi" if among else "leftanti")


def _among(rows: pa.Table, keys: pa.Table, key: Schema) -> npt.NDArray[np.bool_]:
    if not rows.num_rows or not keys.num_rows:
        return np.zeros(rows.num_rows, np.bool_)
    columns: list[Column] = []
    for name, _ in key.columns:
        both = one_array(concat_columns(rows.column(name), keys.column(name)))
        columns += flat(canonical(both))
    ids = row_ids(columns)
    return np.isin(ids[: rows.num_rows], ids[rows.num_rows :])


def concat_columns(a: Column, b: Column) -> Column:
    """One column behind the other."""
    chunks = [c for x in (a, b) for c in (x.chunks if isinstance(x, pa.ChunkedArray) else [x])]
    return pa.chunked_array(chunks, a.type)
