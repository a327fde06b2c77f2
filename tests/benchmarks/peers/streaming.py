"""Spark's Structured Streaming with RocksDB state: a join of streams, and an aggregation of it.

It takes insertions only. A step writes a file for each stream, and waits until they are processed;
`foreachBatch` puts the groups that have changed into the view.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.benchmarks.peers.peer import COLUMNS, CannotDo, Tables, Way, parts
from tests.benchmarks.peers.spark import session

STATE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STREAMS = ("orders", "lines")


class Peer(Way):
    """A streaming query, and the view that it keeps up to date."""

    def __init__(self, view: str, directory: Path, variant: str) -> None:
        if view != "orders":
            raise CannotDo("an aggregation of a join of streams is what this is about")
        self._directory = directory
        self._spark = session(
            directory,
            **{
                "streaming.stateStore.providerClass": STATE,
                "streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
                "streaming.noDataMicroBatches.enabled": "false",
            },
        )
        self._rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._files = 0
        self._query: Any = None

    def load(self, tables: Tables) -> None:
        customers = self._spark.createDataFrame(tables["customers"]).localCheckpoint().cache()
        for name in STREAMS:
            (self._directory / name).mkdir()
        self._put({name: tables[name] for name in STREAMS})
        orders, lines = (
            self._spark.readStream.schema(
                self._spark.createDataFrame(tables[n].slice(0, 1)).schema
            ).parquet(str(self._directory / n))
            for n in STREAMS
        )
        sold = orders.join(lines, "orderkey").join(F.broadcast(customers), "custkey")
        view = sold.groupBy("custkey", "segment").agg(
            F.count("*").alias("n_lines"),
            F.expr("sum(price * (100 - discount))").alias("revenue"),
            F.max("orderdate").alias("last_order"),
        )
        writer = view.writeStream.outputMode("update").foreachBatch(self._batch)
        at = str(self._directory / "checkpoint")
        self._query = writer.option("checkpointLocation", at).start()
        self._query.processAllAvailable()

    def step(self, change: Tables) -> int | None:
        self._put({name: parts(change, name)[0] for name in STREAMS})
        self._query.processAllAvailable()
        return None

    def result(self) -> pa.Table:
        rows = [(*key, *rest) for key, rest in self._rows.items()]
        return pa.table(dict(zip(COLUMNS["orders"], zip(*rows, strict=True), strict=True)))

    def empty_job(self) -> None:
        self._spark.range(1).collect()

    def close(self) -> None:
        self._query.stop()
        self._spark.stop()

    def _put(self, tables: Tables) -> None:
        self._files += 1
        for name, table in tables.items():
            hidden = self._directory / f".{name}"
            pq.write_table(table, hidden)
            os.rename(hidden, self._directory / name / f"{self._files:06}.parquet")

    def _batch(self, changed: DataFrame, number: int) -> None:
        columns = [changed.toArrow().column(n).to_pylist() for n in COLUMNS["orders"]]
        for custkey, segment, *rest in zip(*columns, strict=True):
            self._rows[custkey, segment] = tuple(rest)
