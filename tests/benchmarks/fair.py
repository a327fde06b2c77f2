"""A step of one view beside the same by hand, and beside the query, all warm in one Spark session.

    python -m tests.benchmarks.fair --scale 2 --sizes 30000,100000

The view is *orders* of `tests.benchmarks.views`, and a change of K is the same as there. Engines
take turns on each change: by hand in Spark SQL (`peers/spark_sql_delta.py`), this library with
everything in Spark (`local_rows=0`) and by default, the query on tables in Spark's cache, whose
rows are thrown away, and the query from Parquet files, which writes the view as Parquet. CPU is
that of all processes, Java's and Spark's workers too. What puts a change into the tables of the
hand-written step, and of the query on cached tables, is not timed. The query from files reads the
tables as they are at first. At the end all views are compared with what DuckDB says of the final
tables. Medians; the heap is BENCHMARK_HEAP (12g here).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console

from stepping_spark.spark.session import JobCounter, with_settings
from tests.benchmarks.peers import ours, spark_sql_delta, workload
from tests.benchmarks.peers.peer import TABLES, VIEWS, Tables, Way
from tests.benchmarks.peers.spark import AS_BY_DEFAULT, HEAP
from tests.benchmarks.peers.worker import tables_of
from tests.benchmarks.peers.workload import Workload
from tests.benchmarks.took import Took, took
from tests.benchmarks.turns import BY_DEFAULT, BY_HAND, CACHED, medians, remember, run, shown

IN_SPARK, FILES = "everything in Spark", "query, files"
QUERY = VIEWS["orders"]


class Engines:
    """All of them, in one session."""

    def __init__(self, made: Workload, home: Path, store: str) -> None:
        self._made, self._home = made, home
        kept = "" if store == "memory" else f":{store}"
        self.peers: dict[str, Way] = {
            BY_HAND: spark_sql_delta.Peer("orders", home, ""),
            IN_SPARK: ours.Peer("orders", _new(home / "in_spark"), f"jobs{kept}"),
            BY_DEFAULT: ours.Peer("orders", _new(home / "by_default"), kept),
        }
        self._spark: Any = SparkSession.active()
        self._files = self._spark.newSession()
        self._read("base")
        tables = tables_of(made.root / "base")
        for way in self.peers.values():
            way.load(tables)

    def names(self) -> list[str]:
        return [*self.peers, CACHED, FILES]

    def step(self, name: str, change: Tables) -> tuple[int | None, Took]:
        """Take one engine through a change; its jobs, and what it took."""
        if name in self.peers:
            return took(lambda: self.peers[name].step(change))
        query = self._cached if name == CACHED else self._from_files
        with JobCounter(self._spark) as jobs:
            _, taken = took(query)
        return jobs.count, taken

    def _cached(self) -> None:
        # The hand-written step keeps the tables in Spark's cache.
        with with_settings(self._spark, AS_BY_DEFAULT):
            self._spark.sql(QUERY).write.format("noop").mode("overwrite").save()

    def _from_files(self) -> None:
        with with_settings(self._files, AS_BY_DEFAULT):
            self._files.sql(QUERY).write.mode("overwrite").parquet(str(self._home / "view"))

    def _read(self, directory: str) -> None:
        for name in TABLES:
            file = self._made.root / directory / f"{name}.parquet"
            self._files.read.parquet(str(file)).createOrReplaceTempView(name)

    def keep(self) -> None:
        """Put the change where the next step needs it, and let Java clean up after that."""
        for way in self.peers.values():
            way.keep()
        self._spark._jvm.System.gc()

    def wrong(self) -> list[str]:
        """The engines whose view is not what DuckDB says."""
        self._read("final")
        found = {name: way.result() for name, way in self.peers.items()}
        found[CACHED] = self._spark.sql(QUERY).toArrow()
        found[FILES] = self._files.sql(QUERY).toArrow()
        result = self._home / "result.parquet"
        said = []
        for name, rows in found.items():
            pq.write_table(rows, result)
            if n := workload.differences(self._made, "orders", result, inserts_only=False):
                said.append(f"{name} ({n} rows)")
        return said


def _new(directory: Path) -> Path:
    directory.mkdir()
    return directory


@click.command(help=__doc__)
@click.option("--scale", default=0.1, show_default=True, help="TPC-H's scale factor")
@click.option("--sizes", default="3000,10000", show_default=True, help="K, by commas")
@click.option("--warm", default=2, show_default=True, help="changes of each size before")
@click.option("--steps", default=4, show_default=True, help="changes of each size measured")
@click.option("--store", type=click.Choice(["memory", "parquet"]), default="memory")
@click.option("--results", type=click.Path(path_type=Path), help="a CSV file to add lines to")
def main(scale: float, sizes: str, warm: int, steps: int, store: str, results: Path | None) -> None:
    os.environ.setdefault(HEAP, "12g")
    console = Console(width=110)
    ks = [int(k) for k in sizes.split(",")]
    with tempfile.TemporaryDirectory(prefix="fair-") as scratch:
        home = Path(scratch)
        order = workload.order_of(ks, [warm] * len(ks), [steps] * len(ks))
        made = workload.make(home / "data", scale, order, warm * len(ks))
        engines = Engines(made, home, store)
        found = medians(run(made, engines, console))
        wrong = engines.wrong()
        for way in engines.peers.values():
            way.close()
    rows = ", ".join(f"{n:,} {name}" for name, n in made.rows.items())
    console.print(shown(f"scale {scale:g}, {store}: {rows}", found, engines.names()))
    if wrong:
        raise click.ClickException(f"DuckDB says otherwise of: {', '.join(wrong)}")
    if results is not None:
        remember(results, (f"{scale:g}", store), found)


if __name__ == "__main__":
    main()
