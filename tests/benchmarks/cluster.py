"""What a cluster costs and gains: the same steps in threads of one process, and on workers.

    python -m tests.benchmarks.cluster --rows 1000000

A join of orders and customers: its first load, as Spark jobs; then steps of three orders and one
customer, on the driver and with `local_rows=0`, beside the empty job. Then large steps in Spark's
tasks with a Parquet state, in which half as many orders as the state has come and go in turn. Each
master is a process of its own, one after the other; each of its threads or workers has one core.
Medians. How much faster two are than one says how a step scales.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping

import click
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from stepping_spark.spark.session import get_session
from tests.benchmarks.step import Ours
from tests.benchmarks.tables import Order

MASTERS = {
    "one thread": "local[1]",
    "two threads": "local[2]",
    "one worker": "local-cluster[1,1,2048]",
    "two workers": "local-cluster[2,1,2048]",
}
WARM = 10  # steps that are not measured
LARGE_WARM, LARGE = 6, 10  # of the large ones
IN_SPARK = st.Limits(local_rows=0, fetched_rows=0)  # nothing comes to the driver


class Large(Ours):
    """Our step, of many orders, all of it in Spark."""

    def __init__(self, spark: SparkSession, rows: int, folder: str) -> None:
        super().__init__(spark, rows, IN_SPARK, st.StoreParquet(folder, create=True))
        self._spark = spark

    def step(self, n: int) -> None:
        """Half as many new orders as there are come in each odd step, and go in the next."""
        rows, weight = self.tables.rows, 1 if n % 2 else -1
        changed = self._spark.sql(f"""
            SELECT {rows} + id AS id, id % {self.tables.customers} AS customer,
                   id % 89 AS amount, {weight}L AS n
              FROM range({rows // 2})
        """)
        change = st.ZSetSpark.from_dataframe(changed, Order, count="n")
        (out,) = self.stepper.step((change, None))
        assert not out.empty()
        assert not self.stepper.metrics[-1].not_in_tasks


def measured(rows: int, rounds: int) -> dict[str, float]:
    """Milliseconds of everything, in this process and on the master that it is told."""
    spark = get_session()
    spark.range(1).collect()
    begun = time.perf_counter()
    steps = Ours(spark, rows, IN_SPARK)
    found = {"first load": (time.perf_counter() - begun) * 1e3}
    ways: dict[str, Callable[[int], object]] = {
        "empty job": lambda n: spark.range(1).collect(),
        "step": Ours(spark, rows, st.Limits()).step,
        "step, local_rows=0": steps.step,
    }
    found |= timed(ways, WARM, rounds)
    with tempfile.TemporaryDirectory(prefix="cluster-") as folder:
        large = {f"step of {rows // 2:,} orders": Large(spark, rows, folder).step}
        found |= timed(large, LARGE_WARM, LARGE)
    spark.stop()
    return found


def timed(ways: Mapping[str, Callable[[int], object]], warm: int, rounds: int) -> dict[str, float]:
    """The median of each way; they take turns, and the first ones warm up."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for n in range(warm + rounds):
        for name, way in ways.items():
            begun = time.perf_counter()
            way(n + 1)
            taken[name].append((time.perf_counter() - begun) * 1e3)
    return {name: statistics.median(ms[warm:]) for name, ms in taken.items()}


@click.command(help=__doc__)
@click.option("--rows", default=1_000_000, show_default=True, help="orders in the state")
@click.option("--rounds", default=30, show_default=True)
@click.option("--child", is_flag=True, hidden=True)
def main(rows: int, rounds: int, child: bool) -> None:
    """Print the medians, side by side."""
    if child:
        print(json.dumps(measured(rows, rounds)))
        return
    found = {}
    for name, master in MASTERS.items():
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.cluster", "--child", *sys.argv[1:]],
            env={**os.environ, "STEPPING_SPARK_MASTER": master},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found[name] = json.loads(done.stdout.splitlines()[-1])
    table = Table(title=f"a join, on {rows:,} orders; milliseconds, medians")
    for column in ("", *MASTERS, "threads, 1 / 2", "workers, 1 / 2"):
        table.add_column(column, justify="right" if column else "left")
    for name in next(iter(found.values())):
        one, two, worker, workers = (of[name] for of in found.values())
        times = (f"{ms:,.1f}" for ms in (one, two, worker, workers))
        table.add_row(name, *times, f"{one / two:.2f}", f"{worker / workers:.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
