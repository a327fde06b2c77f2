"""Finds the Spark session to work with, or starts a local one tuned for small steps.

Private in PySpark, where its public interface has no answer: `SparkContext._jsc`, to see that a
session was stopped from the JVM's side, and which jobs have a tag; `SparkSession._jsparkSession`,
to tell two sessions apart; `SparkContext._gateway`, to see whether there is a JVM, and that it has
ended; `SparkContext._active_spark_context`, to see whether the user has started Spark.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.util import inheritable_thread_target

from stepping_spark.errors import SteppingError
from stepping_spark.spark.java import launch

__all__ = [
    "JobCounter",
    "count_jobs",
    "for_thread",
    "get_session",
    "in_session",
    "is_stopped",
    "no_constraints",
    "quarter_of_memory",
    "running_session",
    "streaming_query",
]

T = TypeVar("T")

LEAST_MEGABYTES = 1024
MOST_CORES = 8
"""More cores than this only add overhead to the small stages a step is made of."""
PARTITIONS_PER_CORE = 4
"""Of what is shuffled, which in a small step nothing is: a task sorts a part of its core's rows."""

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
"""Errors only. The gateway's level is named because Spark announces it where it is not."""

# What fails in a task or a query reaches the caller as an exception; logged too, it is there
# several times over, with a page of Java frames each time.
_TOLD_TWICE_BY_JAVA = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.FileFormatWriter",
    "org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask",
    "org.apache.spark.sql.execution.datasources.v2.OverwriteByExpressionExec",
    "org.apache.spark.util.Utils",
)
_TOLD_TWICE_BY_PYTHON = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

_log = logging.getLogger("stepping_spark")
_lock = threading.Lock()


def get_session() -> SparkSession:
    """The active Spark session, classic or Connect; without one, a local session is started.

    The local one runs on `local[n]` with at most 8 cores, or on the master that the environment
    variable STEPPING_SPARK_MASTER names, listens on the loopback interface only, and leaves
    nothing behind in the working directory. Raises SteppingError if it cannot be started.

    >>> st.get_session() is spark.active()
    True
    """
    with _lock:
        return running_session() or _start()


def is_stopped(session: SparkSession) -> bool:
    """Whether it is one that was stopped; one of Spark Connect does not tell."""
    if not isinstance(session, SparkSession):
        return False
    _check_java()
    context = session.sparkContext._jsc
    return context is None or context.sc().isStopped()


class JobCounter:
    """Counts the Spark jobs that this thread starts inside a `with` block.

    `count` is set when the block ends; it stays None on Spark Connect, which does not tell.
    Blocks may nest, and threads count apart.
    """

    def __init__(self, session: SparkSession) -> None:
        # A Connect session is another class, which has no SparkContext.
        self._context = session.sparkContext if isinstance(session, SparkSession) else None
        self._tag = f"stepping-spark-{uuid.uuid4()}"
        self.count: int | None = None

    def __enter__(self) -> JobCounter:
        if self._context is not None:
            self._context.addJobTag(self._tag)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._context is None:
            return
        try:
            self._context.removeJobTag(self._tag)
            jvm_context = self._context._jsc.sc()
            # Spark records a job's start on another thread: wait until it has.
            jvm_context.listenerBus().waitUntilEmpty()
            self.count = len(jvm_context.statusTracker().getJobIdsForTag(self._tag))
        except (Py4JError, OSError, AttributeError):
            # The JVM is gone, or the session was stopped, which leaves None in its place: the
            # error that ended the block says more than this one would.
            if error is None:
                raise


def count_jobs(session: SparkSession) -> JobCounter:
    """A context manager that counts the Spark jobs of a block: `with count_jobs(s) as jobs: ...`"""
    return JobCounter(session)


def in_session(frame: DataFrame, session: SparkSession) -> DataFrame:
    """The DataFrame as one of the session, whose SQL then sees a temporary view of it.

    A batch of a streaming query belongs to a session that is the query's own.
    """
    own = frame.sparkSession
    if own is session or not isinstance(own, SparkSession):
        return frame
    if own._jsparkSession.equals(session._jsparkSession):
        return frame
    # Global views are all that sessions share; an analyzed DataFrame no longer needs its view.
    name = f"stepping_spark_{uuid.uuid4().hex}"
    frame.createGlobalTempView(name)
    try:
        return session.table(f"{session.conf.get('spark.sql.globalTempDatabase')}.{name}")
    finally:
        session.catalog.dropGlobalTempView(name)


def streaming_query(batch: DataFrame) -> str | None:
    """The id of the streaming query that calls a `foreachBatch` function on this thread.

    It is kept in the query's checkpoint, so that a restarted query has it again. None where Spark
    does not tell: outside such a function, and where `PYSPARK_PIN_THREAD` is false.
    """
    session = batch.sparkSession
    if not isinstance(session, SparkSession):
        return None
    return session.sparkContext.getLocalProperty("sql.streaming.queryId")


_CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
_without_constraints: dict[str, tuple[int, str | None]] = {}
"""By session: how many threads want none now, and what its setting was before the first."""


@contextmanager
def no_constraints(session: SparkSession) -> Iterator[None]:
    """Within it, what is checkpointed does not remember what its plan knew of its columns.

    Spark gets that wrong where a checkpoint stands in a query several times: it looks for columns
    that are not there ("key not found", in Union.rewriteConstraints), or leaves out filters. The
    session is as it was once no thread is within. Other queries of it are meanwhile optimized
    without what Spark infers of columns, and give the same.
    """
    if isinstance(session, SparkSession):
        this = str(session._jsparkSession.sessionUUID())
    else:
        this = session.session_id
    with _lock:
        users, before = _without_constraints.get(this) or (0, session.conf.get(_CONSTRAINTS, None))
        session.conf.set(_CONSTRAINTS, "false")
        _without_constraints[this] = users + 1, before
    try:
        yield
    finally:
        with _lock:
            users, before = _without_constraints.pop(this)
            if users > 1:
                _without_constraints[this] = users - 1, before
            elif before is None:
                session.conf.unset(_CONSTRAINTS)
            else:
                session.conf.set(_CONSTRAINTS, before)


def for_thread(session: SparkSession, f: Callable[[], T]) -> Callable[[], T]:
    """The function, for one other thread: the jobs that it starts there are as if started here.

    They have the job group, tags and scheduler pool of this thread.
    """
    # Called for each thread: one that it had in common with another would be told of its jobs.
    wrapped: Callable[[], T] = inheritable_thread_target(session)(f)
    return wrapped


def _check_java() -> None:
    """See that the JVM that this process has started is there.

    Its process is asked, not the connection to it, which may take a while to notice.
    """
    started = getattr(SparkContext._gateway, "proc", None)
    if started is not None and started.poll() is not None:
        raise _java_ended(f"its process ended with status {started.returncode}")


def _java_ended(found: object) -> SteppingError:
    return SteppingError(
        "The Spark session of this process cannot be used: its Java virtual machine has ended "
        f"({found}). Look above for its last messages (out of memory?), and start Python again."
    )


def running_session() -> SparkSession | None:
    """The active or default session, unless it has been stopped."""
    _check_java()
    try:
        session = SparkSession.active()
        if not is_stopped(session):
            return session
        # Stopped behind PySpark's back: PySpark would hand it out again.
        session.stop()
    except PySparkRuntimeError:
        return None  # there is no session
    except (Py4JError, OSError) as e:
        raise _java_ended(e) from e
    return None


def _start() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        if _is_elsewhere() or SparkContext._active_spark_context is not None:
            return SparkSession.builder.getOrCreate()
        scratch = _scratch_directory()
        conf = _conf(scratch)
        if SparkContext._gateway is None:
            launch(conf, scratch)
        for name in _TOLD_TWICE_BY_PYTHON:
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
        session = SparkSession.builder.config(map=dict(conf)).getOrCreate()
        _log.info("started a Spark session on %s, tuned for small steps", conf["spark.master"])
        return session
    except (PySparkException, Py4JError) as e:
        raise SteppingError(
            f"Spark did not start: {e} Start a session yourself with SparkSession.builder, which "
            "is then used, or correct what is wrong with the one started here."
        ) from e


def _is_elsewhere() -> bool:
    """Whether the environment says where Spark is: Spark Connect, or a JVM that started Python."""
    return (
        "SPARK_REMOTE" in os.environ
        or "SPARK_CONNECT_MODE_ENABLED" in os.environ
        or os.environ.get("SPARK_API_MODE", "").lower() == "connect"
        or "PYSPARK_GATEWAY_PORT" in os.environ
    )


def _scratch_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="stepping-spark-"))
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not in a forked child
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)
    return directory


# The settings of a session started here


def _conf(scratch: Path) -> Mapping[str, str]:
    log4j = scratch / "log4j2.properties"
    log4j.write_text(
        _LOG4J
        + "".join(
            f"logger.{n}.name = {logger}\nlogger.{n}.level = fatal\n"
            for n, logger in enumerate(_TOLD_TWICE_BY_JAVA)
        )
    )
    cores = _cores()
    master = os.environ.get("STEPPING_SPARK_MASTER", f"local[{cores}]")
    conf = {
        "spark.app.name": "stepping_spark",
        "spark.master": master,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        "spark.driver.memory": f"{max(quarter_of_memory() >> 20, LEAST_MEGABYTES)}m",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        # The queries of a step are some 150 classes: of 100, Spark would find none again.
        "spark.sql.codegen.cache.maxEntries": "1000",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        # What a page that is not shown would tell of each query and stage, with their plans. Of
        # jobs, as many are kept as Spark does: those of a step are counted.
        "spark.sql.ui.retainedExecutions": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        conf |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(PARTITIONS_PER_CORE * cores),
            "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        }
    return conf


def _cores() -> int:
    """The cores this process may use, at most MOST_CORES."""
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MOST_CORES)
    return min(os.cpu_count() or 1, MOST_CORES)


def quarter_of_memory() -> int:
    """A quarter of the bytes of memory that this process may use."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for cgroup in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no such cgroup, or no limit: "max"
            limits.append(int(Path("/sys/fs/cgroup", cgroup).read_text()))
    return min(limits) // 4
