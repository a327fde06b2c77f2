"""The Spark session of a peer."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

HEAP = "BENCHMARK_HEAP"  # the environment variable that says how much memory a JVM may take


def session(directory: Path, **settings: str) -> SparkSession:
    """A local session tuned for this machine's size; settings as `spark_sql_x` or given whole."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # its workers need what this one has
    conf = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": os.environ.get(HEAP, "2g"),
        "spark.local.dir": str(directory),
        "spark.log.level": "ERROR",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.cache.maxEntries": "1000",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    given = {f"spark.sql.{name}": value for name, value in settings.items()}
    builder = SparkSession.builder.master("local[2]").appName("views")
    return builder.config(map={**conf, **given}).getOrCreate()
