"""A program for the tests: large changes on a cluster of two workers.

    python -m tests.two_workers workers | hot

It needs STEPPING_SPARK_MASTER=local-cluster[2,1,1024]. With `workers`, one of them dies; with
`hot`, one key of a join has three of ten million rows.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

import stepping_spark as st
from stepping_spark.spark.session import get_session

MANY = 100_000
HOT = 10_000_000

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


def both_workers(spark: SparkSession, directory: Path) -> None:
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


class AtWork:
    """A function of rows that says which worker calls it, if the tests wait for one."""

    def __init__(self, directory: Path) -> None:
        self._wanted, self._begun = directory / "wanted", directory / "begun"

    def __call__(self, row: Row) -> Row:
        if self._wanted.exists():
            with suppress(FileNotFoundError):  # the other worker was first
                self._wanted.rename(self._begun)
                self._begun.write_text(str(os.getppid()))
                time.sleep(5)
        return row

    def kill(self) -> None:
        """Kill the worker that is the first to call it, while it does so."""
        self._wanted.touch()
        while not self._begun.exists() or not (daemon := self._begun.read_text()):
            time.sleep(0.01)
        status = Path(f"/proc/{daemon}/status").read_text()
        (executor,) = re.findall(r"^PPid:\s+(\d+)$", status, re.MULTILINE)
        os.kill(int(executor), signal.SIGKILL)


def a_worker_dies(spark: SparkSession, directory: Path) -> None:
    at_work = AtWork(directory)

    def sums_of_called(rows: st.ZSet[Row], names: st.ZSet[Row]) -> st.ZSet[Sums]:
        return sums(st.map(rows, f=st.python(at_work, to=Row)), names)

    graph = st.compile(sums_of_called)
    names = spark.range(0, 1000).selectExpr("id AS key", "id % 10 AS value")
    with st.StoreParquet.from_graph(graph, directory / "state", create=True) as store:
        stepper = st.Stepper(graph, store, limits=IN_SPARK)
        tables = []
        for n in (1, 2, 3):
            rows = spark.range(0, MANY, 1, 8).selectExpr("id % 1000 AS key", f"id * {n} AS value")
            tables.append(rows)
            change = st.ZSetSpark.from_dataframe(rows, Row)
            given = (change, st.ZSetSpark.from_dataframe(names, Row) if n == 1 else None)
            killer = threading.Thread(target=at_work.kill, daemon=True)
            if n == 2:
                killer.start()
            try:
                stepper.step(given, step=n)
            except st.SteppingError as e:  # the worker had rows of the change
                if n != 2 or "take the step again" not in str(e):
                    raise
                print(e)
                assert store.last_step() == 1
                stepper.step(given, step=n)
            metrics = stepper.metrics[-1]
            assert {v.how for v in metrics.vertices.values()} == {"tasks"}, metrics
            if n == 2:
                assert not killer.is_alive(), "no worker has died"
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


def most_memory(spark: SparkSession) -> int:
    """The most bytes that a Python process of a worker has used."""
    found = [0]
    for executor in map(psutil.Process, executors(spark)):
        for child in executor.children(recursive=True):
            (peak,) = re.findall(
                r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{child.pid}/status").read_text(), re.MULTILINE
            )
            found.append(int(peak) << 10)
    return max(found)


def priced(rows: st.ZSet[Row], names: st.ZSet[Row]) -> st.ZSet[st.Pair[Row, Row]]:
    pairs = st.join(rows, names, on_left=lambda r: r.key, on_right=lambda n: n.key)
    return st.filter(pairs, f=lambda p: (p.left.value + p.right.value) % 1000 == 1)


def a_hot_key(spark: SparkSession, directory: Path) -> None:
    """A join of ten million rows, of which three million have one key, on workers of 1 GB."""
    graph = st.compile(priced)
    rows = spark.range(0, HOT, 1, 8)
    rows = rows.selectExpr("IF(id % 10 < 3, 0, id % 100000) AS key", "id AS value")
    names = spark.range(0, 100_000).selectExpr("id AS key", "id % 10 AS value")
    others = spark.range(0, 100_000, 10).selectExpr("id AS key", "id % 10 + 1 AS value")

    def pairs_with(names: DataFrame) -> Counter[tuple[int, int]]:
        named = rows.join(names.withColumnRenamed("value", "name"), "key")
        found = named.where("(value + name) % 1000 = 1").select("value", "name")
        return Counter(map(tuple, found.collect()))

    def pairs_of(change: Any) -> Counter[tuple[int, int]]:
        return Counter({(p.left.value, p.right.value): n for p, n in change.iter()})

    with st.StoreParquet.from_graph(graph, directory / "state", create=True) as store:
        stepper = st.Stepper(graph, store, limits=IN_SPARK)
        given = (st.ZSetSpark.from_dataframe(rows, Row), st.ZSetSpark.from_dataframe(names, Row))
        begun = time.perf_counter()
        (out,) = stepper.step(given)
        loaded = time.perf_counter() - begun
        assert pairs_of(out) == pairs_with(names) != Counter()
        # The name of the hot key changes, and a tenth of the others do.
        gone = names.where("key % 10 = 0").selectExpr("key", "value", "-1L AS n")
        change = st.ZSetSpark.from_dataframe(
            others.selectExpr("key", "value", "1L AS n").unionAll(gone), Row, count="n"
        )
        begun = time.perf_counter()
        (out,) = stepper.step((None, change))
        stepped = time.perf_counter() - begun
        before, after = pairs_with(names.where("key % 10 = 0")), pairs_with(others)
        after.subtract(before)
        assert pairs_of(out) == after
    peak = most_memory(spark)
    print(f"loaded in {loaded:.0f} s, stepped in {stepped:.0f} s; a process had {peak >> 20} MB")
    for metrics in stepper.metrics:
        print(metrics.not_in_tasks or "in tasks")
    assert peak < 1 << 30
    print("a hot key is joined")


PARTS = {"workers": (both_workers, a_worker_dies), "hot": (a_hot_key,)}


def main() -> None:
    spark = get_session()
    for part in PARTS[sys.argv[1]]:
        with tempfile.TemporaryDirectory() as directory:
            part(spark, Path(directory))
    spark.stop()


if __name__ == "__main__":
    main()
