"""The Spark session of a peer, and tables in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from stepping_spark.spark.session import with_settings
from tests.benchmarks.peers.peer import WEIGHT

KEY = {"customers": "custkey", "orders": "orderkey", "lines": "orderkey", "days": "custkey"}
AS_BY_DEFAULT = {
    f"spark.sql.{name}.enabled": "true" for name in ("adaptive", "constraintPropagation")
}
HEAP = "BENCHMARK_HEAP"  # the environment variable that says how much memory a JVM may take


def session(directory: Path, **settings: str) -> SparkSession:
    """A local session tuned for this machine's size; settings as `spark_sql_x` or given whole."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # its workers need what this one has
    conf = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": os.environ.get(HEAP, "6g"),
        "spark.local.dir": str(directory),
        "spark.log.level": "ERROR",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.cache.maxEntries": "1000",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Else a table below 48 MB becomes literal rows of a plan: 2.6 s a million.
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    given = {f"spark.sql.{name}": value for name, value in settings.items()}
    builder = SparkSession.builder.master("local[2]").appName("views")
    return builder.config(map={**conf, **given}).getOrCreate()


def changed(table: DataFrame, change: DataFrame, *keys: str) -> DataFrame:
    """The rows of a table after a change, which brings and takes all rows of some keys."""
    gone = change.where(f"{WEIGHT} < 0").select(*keys)
    come = change.where(f"{WEIGHT} > 0").drop(WEIGHT)
    return table.join(gone, list(keys), "left_anti").select(table.columns).unionByName(come)


def cached(frame: DataFrame, *keys: str) -> DataFrame:
    """The rows in Spark's cache, partitioned and sorted by a key."""
    # With it, Spark would forget how they are partitioned.
    with with_settings(frame.sparkSession, {"spark.sql.adaptive.enabled": "false"}):
        made = frame.repartition(*keys).sortWithinPartitions(*keys).localCheckpoint().cache()
        made.count()
    return made
