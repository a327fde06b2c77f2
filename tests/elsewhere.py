"""A program for the tests: circuits on another kind of Spark session, held to plain Python.

    python -m tests.elsewhere connect | cluster  [NAME OF A QUERY ...]

Each query is stepped with the same changes on the driver, in Spark's tasks, and with changes that
Spark holds in its tasks and by its queries. The state of queries that are named is in memory and in
Parquet files; of all queries, one has its state in memory and the next one in files.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.spark.java import java_environment
from stepping_spark.spark.session import get_session
from tests import cases
from tests.cases import User
from tests.every_store import InFiles, InMemory, MakeStore
from tests.queries import CIRCUITS, QUERIES, Circuit
from tests.strategies import Number, Step, streams_of

Edge = st.Pair[int, int]
WORKERS = "local-cluster[2,1,1024]"  # two workers with a core each
IN_TASKS = st.Limits(local_rows=0)
"""Spark's tasks take each step, if they can."""


def closed(edges: st.ZSet[Edge]) -> st.ZSet[Edge]:
    return st.transitive_closure(edges)


def distinct_of_each(edges: st.ZSet[Edge]) -> st.ZSet[st.Pair[int, int]]:
    by_start = st.group(edges, by=lambda e: e.left)
    return st.flatten(st.per_group[by_start](lambda g: st.distinct(st.map(g, f=lambda e: e.right))))


MORE = [
    Circuit("recursion", closed, (st.Pair[int, int],)),
    Circuit("per group", distinct_of_each, (st.Pair[int, int],)),
]
QUERY = {q.name: q for q in (*QUERIES, *CIRCUITS, *MORE)}


def connect() -> SparkSession:
    """A session of Spark Connect, with a server of its own, whose workers run this Python."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with java_environment(Path(tempfile.mkdtemp())):
        spark = SparkSession.builder.remote("local[2]").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "2")  # of few rows, 200 only take time
    return spark


SESSIONS: dict[str, Callable[[], SparkSession]] = {"connect": connect, "cluster": get_session}


def in_python(value: Any) -> Any:
    return value.to_python() if isinstance(value, st.ZSetSpark) else value


def steps_of(query: Circuit) -> list[Step]:
    """The same steps each time: of many, those with the most rows."""
    found: list[list[Step]] = []

    @settings(
        max_examples=30,
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(steps=streams_of(*query.rows, max_steps=3))
    def collect(steps: list[Step]) -> None:
        found.append(steps)

    collect()
    return max(found, key=lambda steps: sum(size(z) for step in steps for z in step))


def size(change: Any) -> int:
    return len(change) if isinstance(change, st.ZSetPython) else 1


def check(spark: SparkSession, query: Circuit, make_store: MakeStore) -> None:
    """Hold a circuit to plain Python, in each way that it can be stepped."""
    graph = st.compile(query.in_spark)
    plain = st.reference(st.compile(query.changes))
    steps = steps_of(query)
    expected = [plain.step(step) for step in steps]

    def as_it_is(change: Any, rows: Any) -> Any:
        return change

    def in_spark(change: Any, rows: Any) -> Any:
        if isinstance(rows, Number) or not change:
            return change
        return st.ZSetSpark.from_dataframe(change.to_dataframe(spark), rows, count="_count_")

    for limits, by_queries, held in (
        (st.Limits(), False, as_it_is),
        (IN_TASKS, False, as_it_is),
        (IN_TASKS, False, in_spark),
        (IN_TASKS, True, in_spark),
    ):
        with cases.by_queries() if by_queries else nullcontext():
            stepper = st.Stepper(graph, make_store(graph), limits=limits)
            found = []
            for step in steps:
                outs = stepper.step([held(z, t) for z, t in zip(step, query.rows, strict=True)])
                found.append(tuple(map(in_python, outs)))
        assert found == expected, f"{query} with {limits}, {held.__name__}, {by_queries=}"


def check_pipeline(directory: Path) -> None:
    """Follow a Delta table, and keep a view of it in another one, by Spark where it computes."""
    feed = {"delta.enableChangeDataFeed": "true"}
    users, names = str(directory / "users"), str(directory / "names")
    rows = pa.table({"id": [1, 2, 3], "name": ["ann", "bob", "ann"]})
    write_deltalake(users, rows, configuration=feed)
    found = []
    for change in (lambda: None, lambda: DeltaTable(users).delete("id = 2")):
        change()
        with st.Pipeline(
            names_of_users,
            store=f"parquet:{directory / 'state'}",
            limits=st.Limits(local_rows=0),
            users=st.DeltaTable(users),
            into={"names_of_users": st.DeltaTable(names, key="_value_")},
        ) as pipeline:
            assert pipeline.run() == 1
        values: list[Any] = DeltaTable(names).to_pyarrow_table()["_value_"].to_pylist()
        found.append(sorted(values))
    assert found == [["ann", "bob"], ["ann"]]


def names_of_users(users: st.ZSet[User]) -> st.ZSet[str]:
    return st.distinct(st.map(users, f=lambda u: u.name))


PIPELINE = "pipeline"


def main(kind: str, *names: str) -> None:
    spark = SESSIONS[kind]()
    with tempfile.TemporaryDirectory() as directory:
        for number, name in enumerate(names or (*QUERY, PIPELINE)):
            if name == PIPELINE:
                check_pipeline(Path(directory))
                print(f"{name}: as it should be", flush=True)
                continue
            stores: list[InMemory | InFiles] = [InMemory(), InFiles(Path(directory))]
            for store in stores if names else [stores[number % 2]]:
                check(spark, QUERY[name], store)
                store.close()
            print(f"{name}: as plain Python says", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
