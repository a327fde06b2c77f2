"""A program for the tests: large changes on a cluster of two workers, one of which dies.

python -m tests.two_workers, with STEPPING_SPARK_MASTER=local-cluster[2,1,1024]
"""

from __future__ import annotations

import dataclasses
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.spark.session import get_session

MANY = 100_000

# The driver alone would be faster, with so few.
IN_SPARK = st.Limits(fetched_rows=0)


class Row(st.Data):
    key: int
    value: int


Sums = st.Pair[int, int]
kept = st.Cache[Sums](name="sums")


def where(numbers: st.ZSet[int]) -> st.ZSet[int]:
    """The Python workers that see the rows, told apart by their parents, one for each executor."""
    return st.distinct(st.map(numbers, f=st.python(lambda x: os.getppid(), to=int)))


def sums(rows: st.ZSet[Row], names: st.ZSet[Row]) -> st.ZSet[Sums]:
    pairs = st.join(rows, names, on_left=lambda r: r.key, on_right=lambda n: n.key)
    given = st.group_reduce_flatten(
        pairs, by=lambda p: p.right.value, zero=int, pick_value=lambda p: p.left.value
    )
    _ = kept[given](lambda given: st.integrate(given))
    return given


def both_workers(spark: SparkSession) -> None:
    graph = st.compile(where)
    numbers = spark.range(0, MANY, 1, 8).selectExpr("id AS _value_")
    limits = dataclasses.replace(IN_SPARK, local_rows=0)
    (seen,) = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits).step(
        (st.ZSetSpark.from_dataframe(numbers, int),)
    )
    assert len(list(seen.iter())) == 2
    print("both workers computed it")


def executors(spark: SparkSession) -> list[int]:
    """The processes that run tasks of this application."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        ours = spark.sparkContext.applicationId in command
        if ours and any(c.endswith("CoarseGrainedExecutorBackend") for c in command):
            found.append(int(process.name))
    return found


def kill_one_when_busy(
    spark: SparkSession, stepper: st.Stepper[Any, Any], killed: list[int]
) -> None:
    """Kill an executor as soon as it has work to do; notes how many steps were done then."""
    tracker = spark.sparkContext.statusTracker()
    while not tracker.getActiveJobsIds():
        time.sleep(0.01)
    time.sleep(0.2)  # so that it has begun
    os.kill(executors(spark)[0], signal.SIGKILL)
    killed.append(len(stepper.metrics))


def a_worker_dies(spark: SparkSession, directory: Path) -> None:
    graph = st.compile(sums)
    names = spark.range(0, 1000).selectExpr("id AS key", "id % 10 AS value")
    with st.StoreParquet.from_graph(graph, directory, create=True) as store:
        stepper = st.Stepper(graph, store, limits=IN_SPARK)
        tables = []
        for n in (1, 2, 3):
            rows = spark.range(0, MANY, 1, 8).selectExpr("id % 1000 AS key", f"id * {n} AS value")
            tables.append(rows)
            change = st.ZSetSpark.from_dataframe(rows, Row)
            given = (change, st.ZSetSpark.from_dataframe(names, Row) if n == 1 else None)
            killed: list[int] = []
            killer = threading.Thread(target=kill_one_when_busy, args=(spark, stepper, killed))
            if n == 2:
                killer.start()
            try:
                stepper.step(given, step=n)
            except st.SteppingError as e:
                if n != 2:
                    raise
                print(f"the step failed: {str(e).splitlines()[0]}")
                assert store.last_step() == 1
                stepper.step(given, step=n)
            if n == 2:
                killer.join()
                assert killed == [n - 1], "it died when the step was done"
        whole = tables[0].unionAll(tables[1]).unionAll(tables[2])
        expected = (
            whole.join(names.withColumnRenamed("value", "name"), "key")
            .groupBy("name")
            .sum("value")
            .collect()
        )
        found = {r.right: r.left for r, _ in kept.zset(store).iter()}
        assert found == dict(map(tuple, expected))
    print("a worker died, and nothing is lost")


def main() -> None:
    spark = get_session()
    both_workers(spark)
    with tempfile.TemporaryDirectory() as directory:
        a_worker_dies(spark, Path(directory) / "state")
    spark.stop()


if __name__ == "__main__":
    main()
