"""What steps by hand have in common: state in Spark's cache, and a change as temporary views."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.benchmarks.peers.peer import WEIGHT, Tables
from tests.benchmarks.peers.spark import cached, changed


class Hand(ABC):
    """A view that is maintained by hand, for changes of the tables that may change.

    The tables are in Spark's cache by their names, as far as the query reads them, partitioned and
    sorted by a key. The rows of a change are `d_` and the name of the table, with their weights.
    """

    COLUMNS: ClassVar[Mapping[str, tuple[str, ...]]]
    """Of each table, the columns that are read. The first is the key."""

    CHANGED: ClassVar[Mapping[str, tuple[str, ...]]]
    """The tables that change, and the columns of which all rows come or go."""

    def __init__(self, spark: SparkSession, base: Path) -> None:
        self.spark = spark
        self._frames: dict[str, DataFrame] = {}
        for name, columns in self.COLUMNS.items():
            file = spark.read.parquet(str(base / f"{name}.parquet"))
            self.place(name, file.select(*columns), columns[0])

    def place(self, name: str, frame: DataFrame, *keys: str) -> None:
        """Let a table, or another part of the state, have these rows."""
        old = self._frames.get(name)
        self._frames[name] = cached(frame, *keys)
        self._frames[name].createOrReplaceTempView(name)
        if old is not None:
            old.unpersist()

    @abstractmethod
    def load(self) -> pa.Table:
        """Make the rest of the state; the view as it is at first, with weights."""

    def step(self, change: Tables) -> pa.Table | DataFrame:
        """The change of the view, computed, with weights."""
        for name in self.CHANGED:
            rows = change[name].select([*self.COLUMNS[name], WEIGHT])
            self.spark.createDataFrame(rows).createOrReplaceTempView(f"d_{name}")
        return self.delta()

    @abstractmethod
    def delta(self) -> pa.Table | DataFrame:
        """The change of the view, from the state and the changes of the tables."""

    def keep(self) -> None:
        """Put the last change into the state; not timed."""
        for name, keys in self.CHANGED.items():
            frame = changed(self._frames[name], self.spark.table(f"d_{name}"), *keys)
            self.place(name, frame, self.COLUMNS[name][0])

    def close(self) -> None:
        """Give up the state."""
        for name, frame in self._frames.items():
            frame.unpersist()
            self.spark.catalog.dropTempView(name)
