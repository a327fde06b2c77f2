"""One test or more for each family of operators, for stores, pipelines, workers and Connect.

`python -m tests.compat` runs these with each version of PySpark, and with `pyspark-client` alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

import stepping_spark as st
from stepping_spark import functions as F
from tests import elsewhere
from tests.cases import ROOT, User
from tests.every_store import InFiles, InMemory, MakeStore

pytestmark = [pytest.mark.compat, pytest.mark.spark]

FAMILIES = {
    "rows": ("filter and map", "map many", "lists", "functions in Python", "several outputs"),
    "functions": ("fields of every type", "functions of columns"),
    "joins": ("join by two fields", "antijoin by two fields", "full join", "delta join"),
    "sets": ("distinct of a join of distincts", "unions, intersections and differences"),
    "groups": ("group floats by user", "group Decimals by user", "group rows by user", "count"),
    "aggregates": ("aggregates of several kinds, by two fields", "reduce floats"),
    "first rows": ("first n with ties of each user",),
    "windows": ("windows of rows of each user", "windows by dates and times"),
    "as-of joins": ("as-of join of each group, forward",),
    "sessions": ("sessions by user",),
    "streams": ("delays, integrals and differences", "loops"),
    "recursion": ("recursion",),
    "per group": ("per group",),
}


@pytest.mark.slow
@pytest.mark.turn(12)
@pytest.mark.parametrize("name", [name for names in FAMILIES.values() for name in names])
def test_each_family_of_operators_gives_what_plain_python_gives(
    spark: SparkSession, name: str
) -> None:
    elsewhere.check(spark, elsewhere.QUERY[name], InMemory())


@pytest.mark.slow
def test_each_store_keeps_what_a_circuit_needs(spark: SparkSession, make_store: MakeStore) -> None:
    elsewhere.check(spark, elsewhere.QUERY["groups of a join, grouped again"], make_store)


@pytest.mark.slow
def test_a_pipeline_follows_a_table_and_keeps_a_view(spark: SparkSession, tmp_path: Path) -> None:
    elsewhere.check_pipeline(tmp_path)


def in_python(users: st.ZSet[User]) -> st.ZSet[int]:
    return st.map(users, f=st.python(lambda u: os.getpid() if u.id >= 0 else 0, to=int))


def test_a_function_in_python_runs_in_the_workers(spark: SparkSession) -> None:
    graph = st.compile(in_python)
    users = spark.range(100_000).selectExpr("id", "'ann' AS name")
    change = st.ZSetSpark.from_dataframe(users, User)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
    (out,) = stepper.step((change,))
    processes = dict(out.to_python().iter())
    assert sum(processes.values()) == 100_000
    assert os.getpid() not in processes


class Named(st.Data):
    name: str
    users: int


def counted(users: st.ZSet[User], names: st.ZSet[str]) -> st.ZSet[Named]:
    pairs = st.join(users, names, on_left=lambda u: u.name, on_right=lambda name: name)
    return st.aggregate(pairs, by=lambda pair: pair.right, into=Named, users=st.agg.count())


@pytest.mark.parametrize("held_by_spark", [False, True], ids=["on the driver", "in Spark"])
@pytest.mark.parametrize("files", [False, True], ids=["memory", "parquet"])
def test_a_large_step_is_computed_in_tasks(
    spark: SparkSession, tmp_path: Path, files: bool, held_by_spark: bool
) -> None:
    graph = st.compile(counted)
    stores = InFiles(tmp_path) if files else InMemory()
    stepper = st.Stepper(graph, stores(graph), limits=elsewhere.IN_TASKS)
    reference = st.reference(graph)
    names = st.ZSetPython({"name 1": 1, "name 2": 1})
    for number, weight in ((600, 1), (400, -1)):
        users = st.ZSetPython({User(id=i, name=f"name {i % 3}"): weight for i in range(number)})
        change: Any = users
        if held_by_spark:
            frame = users.to_dataframe(spark)
            change = st.ZSetSpark.from_dataframe(frame, User, count="_count_")
        (out,) = stepper.step((change, names))
        assert elsewhere.in_python(out) == reference.step((users, names))[0]
        metrics = stepper.metrics[-1]
        if files or not is_remote():
            assert not metrics.not_in_tasks
            assert {v.how for v in metrics.vertices.values()} == {"tasks"}
        else:  # the server's workers do not see the memory of this process
            assert "cannot read or write the state" in metrics.not_in_tasks
    stores.close()


def called(users: st.ZSet[User]) -> st.ZSet[tuple[str, int, str | None]]:
    return st.map(
        users,
        f=lambda u: (
            F.upper(u.name),
            F.when(u.id > 1, u.id * 2).otherwise(F.lit(0)),
            F.sha2(u.name, 256),
        ),
    )


@pytest.mark.driver
def test_the_driver_computes_functions_of_spark_without_a_query(spark: SparkSession) -> None:
    graph = st.compile(called)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    stepper.step((st.ZSetPython({User(id=1, name="ann"): 1}),))
    assert stepper.metrics[-1].queries == 0


@pytest.mark.parametrize("local_rows", [0, st.Limits.local_rows])
def test_functions_of_spark_give_what_spark_says(spark: SparkSession, local_rows: int) -> None:
    graph = st.compile(called)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    rows = {User(id=1, name="ann"): 1, User(id=2, name="bob"): 2}
    (out,) = stepper.step((st.ZSetPython(rows),))
    found: Any = out.to_python() if isinstance(out, st.ZSetSpark) else out
    assert {row[:2]: count for row, count in found.iter()} == {("ANN", 0): 1, ("BOB", 4): 2}
    assert {len(row[2]) for row, _ in found.iter()} == {64}


def test_a_query_that_spark_refuses_says_where(spark: SparkSession) -> None:
    def summed(users: st.ZSet[User]) -> st.ZSet[Any]:
        return st.map(users, f=lambda u: F.expr("sum(id)"))

    with pytest.raises(st.CompileError, match=r"test_selection\.py.*not a function of one row"):
        st.compile(summed)


def test_the_rows_of_a_dataframe_are_checked(spark: SparkSession) -> None:
    users = spark.createDataFrame([(1, None)], "id bigint, name string")
    with pytest.raises(st.InputError, match="name"):
        st.ZSetSpark.from_dataframe(users, User).to_python()


@pytest.mark.slow
@pytest.mark.turn(2, number=1)
def test_circuits_run_on_connect(tmp_path: Path) -> None:
    if is_remote():
        pytest.skip("the session of all these tests is one of Connect")
    done = subprocess.run(
        [sys.executable, "-m", "tests.elsewhere", "connect", "recursion", elsewhere.PIPELINE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "recursion: as plain Python says" in done.stdout
    assert "pipeline: as it should be" in done.stdout
