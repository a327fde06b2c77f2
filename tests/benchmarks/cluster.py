"""What a cluster costs and gains: the same steps in threads of one process, and on workers.

    python -m tests.benchmarks.cluster --rows 1000000

A join of orders and customers: its first load, as Spark jobs; then steps of three orders and one
customer, on the driver and with `local_rows=0`, beside the empty job. Each master is a process of
its own, one after the other; each of its threads or workers has one core.

    python -m tests.benchmarks.cluster --rows 1000000 --large

Large steps in Spark's tasks: sums of that join by region, with a Parquet state, where
half as many orders as the state has come and go in turn. Each worker has half a core, by a control
group, so that two of them leave one to the driver; that takes root. The state is on the disk of
this machine, or on an S3 of a process of its own, which takes from the driver's core. Medians. How
much faster two workers are than one says how a step scales.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import click
import pyarrow.fs as pafs
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from stepping_spark.spark.session import get_session
from tests.benchmarks.control_groups import with_cores
from tests.benchmarks.step import Ours
from tests.benchmarks.tables import Customer, Order, Tables, query
from tests.two_workers import executors

ONE, TWO = "local-cluster[1,1,2048]", "local-cluster[2,1,2048]"
MASTERS = {
    "one thread": "local[1]",
    "two threads": "local[2]",
    "one worker": ONE,
    "two workers": TWO,
}
LARGE = {"one worker": (ONE, ""), "two workers": (TWO, ""), "two workers, S3": (TWO, "s3")}
WARM = 10  # steps that are not measured
LARGE_WARM, LARGE_ROUNDS = 6, 10
IN_SPARK = st.Limits(local_rows=0, fetched_rows=0)  # nothing comes to the driver
CORES = 0.5  # of a worker


class Sold(st.Data):
    region: int
    orders: int
    amount: int


def sold(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> st.ZSet[Sold]:
    return st.aggregate(
        query(orders, customers),
        by=lambda p: p.right.region,
        into=Sold,
        orders=st.agg.count(),
        amount=st.agg.sum(lambda p: p.left.amount),
    )


class Large:
    """A step of many orders, in Spark's tasks."""

    def __init__(self, spark: SparkSession, rows: int, store: st.StoreParquet) -> None:
        self.tables = Tables(rows)
        self.stepper: Any = st.Stepper(st.compile(sold), store, limits=IN_SPARK)
        self.tables.load(spark, self.stepper)
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
    """Milliseconds of small work, in this process and on the master that it is told."""
    spark = get_session()
    spark.range(1).collect()
    begun = time.perf_counter()
    steps = Ours(spark, rows, IN_SPARK)
    loaded = (time.perf_counter() - begun) * 1e3
    ways: dict[str, Callable[[int], object]] = {
        "empty job": lambda n: spark.range(1).collect(),
        "step": Ours(spark, rows, st.Limits()).step,
        "step, local_rows=0": steps.step,
    }
    return {"first load": loaded} | timed(ways, WARM, rounds)


def measured_large(rows: int, state: str) -> dict[str, float]:
    """Milliseconds of a large step on workers of half a core."""
    spark = get_session()
    workers = int(os.environ["STEPPING_SPARK_MASTER"].removeprefix("local-cluster[").split(",")[0])
    while spark.sparkContext.defaultParallelism < workers or len(executors(spark)) < workers:
        time.sleep(0.1)
    with ExitStack() as stack:
        for pid in executors(spark):
            stack.enter_context(with_cores(pid, CORES))
        if state:
            store = st.StoreParquet(
                "bucket/state", create=True, filesystem=stack.enter_context(s3())
            )
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-"))
            store = st.StoreParquet(folder, create=True)
        step = Large(spark, rows, store).step
        return timed({f"step of {rows // 2:,} orders": step}, LARGE_WARM, LARGE_ROUNDS)


@contextmanager
def s3() -> Iterator[pafs.FileSystem]:
    """An S3 of a process of its own, with the bucket `bucket`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            system = pafs.S3FileSystem(
                access_key="key",
                secret_key="secret",
                region="us-east-1",
                scheme="http",
                endpoint_override=f"127.0.0.1:{port}",
                allow_bucket_creation=True,
            )
            while True:
                try:
                    system.create_dir("bucket")
                    break
                except OSError:
                    time.sleep(0.2)
            yield system
        finally:
            server.terminate()


def timed(ways: Mapping[str, Callable[[int], object]], warm: int, rounds: int) -> dict[str, float]:
    """The median of each way; they take turns, and the first ones warm up."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for n in range(warm + rounds):
        for name, way in ways.items():
            begun = time.perf_counter()
            way(n + 1)
            taken[name].append((time.perf_counter() - begun) * 1e3)
    return {name: statistics.median(ms[warm:]) for name, ms in taken.items()}


def on(master: str, arguments: Sequence[str]) -> dict[str, float]:
    """What a process measures on a master."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.cluster", "--child", *arguments],
        env={**os.environ, "STEPPING_SPARK_MASTER": master},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


@click.command(help=__doc__)
@click.option("--rows", default=1_000_000, show_default=True, help="orders in the state")
@click.option("--rounds", default=30, show_default=True)
@click.option("--large", is_flag=True, help="large steps, on workers of half a core")
@click.option("--child", is_flag=True, hidden=True)
@click.option("--state", default="", hidden=True)
def main(rows: int, rounds: int, large: bool, child: bool, state: str) -> None:
    """Print the medians, side by side."""
    if child:
        print(json.dumps(measured_large(rows, state) if large else measured(rows, rounds)))
        return
    given = [f"--rows={rows}", f"--rounds={rounds}"]
    if large:
        table = Table(title=f"{rows // 2:,} orders, and sums of a join of {rows:,}; milliseconds")
        for column in ("", "a step", "as fast as one worker"):
            table.add_column(column, justify="right" if column else "left")
        first = 0.0
        for name, (master, place) in LARGE.items():
            (ms,) = on(master, [*given, "--large", f"--state={place}"]).values()
            first = first or ms
            table.add_row(name, f"{ms:,.0f}", f"{first / ms:.2f}")
        Console(width=120).print(table)
        return
    found = {name: on(master, given) for name, master in MASTERS.items()}
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
