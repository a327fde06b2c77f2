"""Plain Spark SQL, which computes the view again after each change.

Tables are directories of Parquet files, or with the variant `cached` DataFrames in Spark's cache.
New rows are appended. The keys of orders that are deleted are kept aside and left out where the
tables are read, until after ten changes the tables are written anew. Lines need no such care: they
are only reached through their orders.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from stepping_spark.spark.session import count_jobs
from tests.benchmarks.peers.peer import TABLES, VIEWS, Tables, parts
from tests.benchmarks.peers.spark import session

REWRITTEN = 10  # changes
KEY = {"customers": "custkey", "orders": "orderkey", "lines": "orderkey"}


class Peer:
    """The tables, what has been deleted from them, and the view."""

    def __init__(self, view: str, directory: Path, variant: str) -> None:
        self._spark = session(directory, **{"adaptive.enabled": "true", "shuffle.partitions": "4"})
        self._view, self._directory = VIEWS[view], directory
        self._cached = variant == "cached"
        self._frames: dict[str, DataFrame] = {}
        self._added: dict[str, list[pa.Table]] = {}
        self._gone: list[pa.Table] = []
        self._written = 0
        self._changes = 0
        self._result = pa.table({})

    def load(self, tables: Tables) -> None:
        for name in TABLES:
            self._place(name, self._spark.createDataFrame(tables[name]))
        self._recompute()

    def step(self, change: Tables) -> int | None:
        with count_jobs(self._spark) as jobs:
            for name in change:
                come, go = parts(change, name)
                if name == "orders":
                    self._gone.append(go.select(["orderkey"]))
                if self._cached:
                    self._added.setdefault(name, []).append(come)
                else:
                    new = self._spark.createDataFrame(come).coalesce(1)
                    new.write.mode("append").parquet(str(self._path(name)))
            self._changes += 1
            if self._changes % REWRITTEN == 0:
                self._rewrite()
            self._recompute()
        return jobs.count

    def keep(self) -> None:
        pass

    def result(self) -> pa.Table:
        return self._result

    def empty_job(self) -> None:
        self._spark.range(1).collect()

    def close(self) -> None:
        self._spark.stop()

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}_{self._written}"

    def _place(self, name: str, frame: DataFrame) -> None:
        if not self._cached:
            frame.write.parquet(str(self._path(name)))
            self._frames[name] = frame.limit(0)  # for its schema
            return
        placed = frame.repartition(2, KEY[name]).localCheckpoint().cache()
        placed.count()
        if name in self._frames:
            self._frames[name].unpersist()
        self._frames[name] = placed

    def _table(self, name: str) -> DataFrame:
        frame = self._frames[name]
        if not self._cached:
            return self._spark.read.schema(frame.schema).parquet(str(self._path(name)))
        if self._added.get(name):
            return frame.unionAll(self._spark.createDataFrame(pa.concat_tables(self._added[name])))
        return frame

    def _without_gone(self, frame: DataFrame) -> DataFrame:
        if not self._gone:
            return frame
        gone = self._spark.createDataFrame(pa.concat_tables(self._gone))
        return frame.join(gone.hint("broadcast"), "orderkey", "left_anti")

    def _recompute(self) -> None:
        for name in TABLES:
            frame = self._table(name)
            frame = self._without_gone(frame) if name == "orders" else frame
            frame.createOrReplaceTempView(name)
        self._result = self._spark.sql(self._view).toArrow()

    def _rewrite(self) -> None:
        tables = {n: self._without_gone(self._table(n)) for n in ("orders", "lines")}
        tables["customers"] = self._table("customers")
        old = [self._path(n) for n in tables]
        self._written += 1
        for name, frame in tables.items():
            self._place(name, frame if self._cached else frame.coalesce(2))
        if not self._cached:
            for path in old:
                shutil.rmtree(path)
        self._added.clear()
        self._gone.clear()
