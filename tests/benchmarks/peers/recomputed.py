"""Plain Spark SQL, which computes the view again after each change.

Tables are directories of Parquet files, or with the variant `cached` DataFrames in Spark's cache,
partitioned and sorted by key. They are brought up to date before the query is timed.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from stepping_spark.spark.session import JobCounter
from tests.benchmarks.peers.peer import TABLES, VIEWS, Tables, Way
from tests.benchmarks.peers.spark import KEY, cached, changed, session


class Peer(Way):
    """The tables, and the view."""

    def __init__(self, view: str, directory: Path, variant: str) -> None:
        self._spark = session(directory, **{"adaptive.enabled": "true"})
        self._view, self._directory = VIEWS[view], directory
        self._cached = variant == "cached"
        self._tables: dict[str, DataFrame] = {}
        self._paths: dict[str, Path] = {}
        self._result = pa.table({})

    def load(self, tables: Tables) -> None:
        for name in TABLES:
            self._place(name, self._spark.createDataFrame(tables[name]))
        self._recompute()

    def prepare(self, change: Tables) -> None:
        for name, rows in change.items():
            self._place(
                name, changed(self._tables[name], self._spark.createDataFrame(rows), "orderkey")
            )

    def step(self, change: Tables) -> int | None:
        with JobCounter(self._spark) as jobs:
            self._recompute()
        return jobs.count

    def result(self) -> pa.Table:
        return self._result

    def empty_job(self) -> None:
        self._spark.range(1).collect()

    def close(self) -> None:
        self._spark.stop()

    def _place(self, name: str, frame: DataFrame) -> None:
        """Let a table have these rows."""
        old = self._tables.get(name)
        if self._cached:
            self._tables[name] = cached(frame, KEY[name])
            if old is not None:
                old.unpersist()
        else:
            before = self._paths.get(name)
            self._paths[name] = Path(tempfile.mkdtemp(prefix=name, dir=self._directory)) / "rows"
            frame.coalesce(2).write.parquet(str(self._paths[name]))
            self._tables[name] = self._spark.read.parquet(str(self._paths[name]))
            if before is not None:
                shutil.rmtree(before)
        self._tables[name].createOrReplaceTempView(name)

    def _recompute(self) -> None:
        self._result = self._spark.sql(self._view).toArrow()
