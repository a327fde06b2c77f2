"""Finds or starts the Spark session, and reads its settings, errors and plans.

Private in PySpark, which has no public alternative: `SparkContext._jsc`, to detect a session that
the JVM's side has stopped, and the jobs with a tag; `SparkSession._jsparkSession`, to distinguish
two sessions; `SparkContext._gateway`, to detect whether there is a JVM, and whether it has ended;
`SparkContext._active_spark_context`, to detect whether the user has started Spark;
`DataFrame._jdf`, because no public method returns a plan and its statistics.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from stepping_spark.base.errors import SteppingError
from stepping_spark.base.packages import (
    DataFrame,
    Late,
    Raised,
    SparkContext,
    SparkSession,
    is_imported,
    raised,
)
from stepping_spark.base.scratch import ScratchFolder
from stepping_spark.spark.column_tree import as_trees
from stepping_spark.spark.java import launch

if TYPE_CHECKING:
    from py4j import protocol as raised_by_java
else:
    raised_by_java = Raised("py4j.protocol")

__all__ = [
    "JobCounter",
    "advice",
    "advice_for",
    "advise",
    "bytes_of_a_task",
    "cores",
    "first_line",
    "get_session",
    "has_started",
    "in_session",
    "is_cancelled",
    "is_same_again",
    "is_stopped",
    "no_constraints",
    "quarter_of_memory",
    "raised_by_java",
    "raised_in_worker",
    "running_session",
    "runs_here",
    "scanned_bytes",
    "streaming_query",
    "tasks_at_once",
    "times_planned",
    "with_settings",
    "zone_to_come",
]

PARTITIONS = "spark.sql.shuffle.partitions"
CLASSES = "spark.sql.codegen.cache.maxEntries"
PER_CORE = 8  # partitions; with more, a step of a few rows waits for many empty tasks
ENOUGH_CLASSES = 500  # of generated code; a circuit of three joins and an aggregate has 150
LEAST_MEGABYTES = 1024
MOST_CORES = 8
"""More cores than this only add overhead to a step, which consists of small stages."""
PARTITIONS_PER_CORE = 4
"""For shuffles: each task sorts only a part of its core's rows. Small steps shuffle nothing."""
ZONE_HERE = "UTC"
"""The time zone of a session that is started here."""

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
"""Only errors are logged. The gateway gets a level of its own, or Spark would announce it."""

# An error of a task or a query reaches the caller as an exception. The log would repeat it several
# times, each with a page of Java frames.
_LOGGED_TWICE_BY_JAVA = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.FileFormatWriter",
    "org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask",
    "org.apache.spark.sql.execution.datasources.v2.OverwriteByExpressionExec",
    "org.apache.spark.util.Utils",
)
_LOGGED_TWICE_BY_PYTHON = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

_OF_VALUES = re.compile(r"SQLSTATE: (22|P0)")
_WAITED = "Exception thrown in awaitResult:"
_CAUSES = re.compile(r"^Caused by: (\S+: \S.*)$", re.MULTILINE)
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*) SQLSTATE: \w+")
_UNKNOWN = 2**62
_ROW_BY_ROW = ("Filter", "Project")
# A leaf of another kind may be anything, such as a batch of a stream or an uncomputed cache.
_READS = ("DataSourceV2ScanRelation", "LocalRelation", "LogicalRelation", "Range")

_spark = Late("pyspark")
_logger = Late("pyspark.logger")
_log = logging.getLogger("stepping_spark")
_lock = threading.Lock()
_folders: list[ScratchFolder] = []
"""The folders of the sessions that were started here, until the process ends."""
_changed: dict[tuple[str, str], tuple[int, str | None]] = {}
"""The number of threads that have changed a setting of a session, and its original value."""
_advised: WeakSet[SparkSession] = WeakSet()


def get_session() -> SparkSession:
    """The active Spark session, classic or Connect. If there is none, a local session is started.

    The local session runs on `local[n]` with at most 8 cores, or on the master in the environment
    variable STEPPING_SPARK_MASTER. It listens on the loopback interface only, and leaves nothing
    behind in the working directory. Raises SteppingError if it cannot be started.

    >>> st.get_session() is spark.active()
    True
    """
    with _lock, as_trees(wanted=False):
        return running_session() or _start()


def running_session() -> SparkSession | None:
    """The active or default session, unless it has been stopped. Does not import PySpark."""
    if not is_imported("pyspark.sql"):
        return None
    _check_java()
    try:
        with as_trees(wanted=False):
            session = SparkSession.active()
        if not is_stopped(session):
            return session
        # It was stopped outside of PySpark, which would return it again.
        session.stop()
    except raised.PySparkRuntimeError:
        return None  # there is no session
    except (raised_by_java.Py4JError, OSError) as e:
        raise _java_ended(e) from e
    return None


def zone_to_come() -> str | None:
    """The time zone of a session that would be started; None if another program decides it."""
    return None if _is_told_where() or has_started() else ZONE_HERE


def has_started() -> bool:
    """Whether Spark runs already, so that a query need not wait for its start."""
    utils = sys.modules.get("pyspark.sql.utils")
    if utils is not None and utils.is_remote():
        return True
    return is_imported("pyspark.sql") and SparkContext._active_spark_context is not None


def is_stopped(session: SparkSession) -> bool:
    """Whether a session was stopped; False for Spark Connect, which does not report it."""
    if not isinstance(session, SparkSession):
        return False
    _check_java()
    context = session.sparkContext._jsc
    return context is None or context.sc().isStopped()


def runs_here(session: SparkSession) -> bool:
    """Whether the session's workers are on this machine."""
    if not isinstance(session, SparkSession):
        return False  # Spark Connect
    return str(session.sparkContext.master).partition("[")[0] == "local"


def tasks_at_once() -> int:
    """The tasks that run at once in the running session; starts none.

    Without a session, and on Spark Connect, which does not report it, the cores of a local session.
    """
    if not is_imported("pyspark.sql"):
        return cores()
    # A session that was stopped, or whose JVM has ended, is an error only where Spark is needed.
    with suppress(raised_by_java.Py4JError, OSError, AttributeError):
        context = SparkContext._active_spark_context
        if context is not None:
            return max(context.defaultParallelism, 1)
    return cores()


def cores() -> int:
    """The cores that this process may use, at most MOST_CORES."""
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


def bytes_of_a_task(session: SparkSession, tasks: int) -> int:
    """The bytes of memory for a task on a worker elsewhere, by the session's settings.

    These are a quarter of the JVM's memory, or all of Python's, shared by the tasks of a worker.
    Without a number of cores, one worker may run all `tasks` that run at once.
    """
    at_once = int(session.conf.get("spark.executor.cores", None) or tasks)
    of_python = session.conf.get("spark.executor.pyspark.memory", None)
    if of_python:
        return _bytes(of_python) // at_once
    is_local = str(session.conf.get("spark.master", None)).partition("[")[0] == "local"
    of_java = session.conf.get(f"spark.{'driver' if is_local else 'executor'}.memory", None)
    return _bytes(of_java or "1g") // 4 // at_once


def _bytes(text: str) -> int:
    """The bytes of a size in Spark's settings; a number alone has the unit MiB."""
    size = re.fullmatch(r"(\d+)\s*([bkmgtp]?)i?b?", text.strip().lower())
    assert size is not None  # Spark has read it
    return int(size[1]) << 10 * "bkmgtp".index(size[2] or "m")


def _start() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        elsewhere = _is_client_alone() or _is_told_where()
        if elsewhere or SparkContext._active_spark_context is not None:
            return SparkSession.builder.getOrCreate()
        folder = ScratchFolder()
        _folders.append(folder)
        scratch = folder.path
        conf = _conf(scratch)
        if SparkContext._gateway is None:
            launch(conf, scratch)
        for name in _LOGGED_TWICE_BY_PYTHON:
            _logger.PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
        session = SparkSession.builder.config(map=dict(conf)).getOrCreate()
        _log.info("started a Spark session on %s, tuned for small steps", conf["spark.master"])
        return session
    except (raised.PySparkException, raised_by_java.Py4JError) as e:
        raise SteppingError(
            f"Spark did not start: {e} Start a session yourself with SparkSession.builder, which "
            "is then used, or correct what is wrong with the one started here."
        ) from e


def _is_told_where() -> bool:
    """Whether the environment determines the session: Spark Connect, or a JVM started Python."""
    return (
        "SPARK_REMOTE" in os.environ
        or "SPARK_CONNECT_MODE_ENABLED" in os.environ
        or os.environ.get("SPARK_API_MODE", "").lower() == "connect"
        or "PYSPARK_GATEWAY_PORT" in os.environ
    )


def _is_client_alone() -> bool:
    """Whether PySpark is `pyspark-client`, which supports only Spark Connect, without Java."""
    return not hasattr(_spark, "SparkContext")


def _check_java() -> None:
    """Check that the JVM that this process has started is still running.

    It checks the JVM's process, because the connection may take a while to notice its end.
    """
    if _is_client_alone():
        return
    started = getattr(SparkContext._gateway, "proc", None)
    if started is not None and started.poll() is not None:
        raise _java_ended(f"its process ended with status {started.returncode}")


def _java_ended(reason: object) -> SteppingError:
    return SteppingError(
        "The Spark session of this process cannot be used: its Java virtual machine has ended "
        f"({reason}). Look above for its last messages (out of memory?), and start Python again."
    )


# The settings of a session


def _conf(scratch: Path) -> Mapping[str, str]:
    log4j = scratch / "log4j2.properties"
    log4j.write_text(
        _LOG4J
        + "".join(
            f"logger.{n}.name = {logger}\nlogger.{n}.level = fatal\n"
            for n, logger in enumerate(_LOGGED_TWICE_BY_JAVA)
        )
    )
    usable = cores()
    master = os.environ.get("STEPPING_SPARK_MASTER", f"local[{usable}]")
    conf = {
        "spark.app.name": "stepping_spark",
        "spark.master": master,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        "spark.driver.memory": f"{max(quarter_of_memory() >> 20, LEAST_MEGABYTES)}m",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        # The queries of a step have some 150 classes. A cache of 100 would never have a hit.
        "spark.sql.codegen.cache.maxEntries": "1000",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": ZONE_HERE,
        # The UI is off, so keep little of its data on queries and stages, with their plans. Jobs
        # keep Spark's default, because the jobs of a step are counted.
        "spark.sql.ui.retainedExecutions": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        conf |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(PARTITIONS_PER_CORE * usable),
            "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        }
    return conf


@contextmanager
def with_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """A context in which a session has other settings, none of which changes a result.

    A session's settings belong to all its threads. The original values are restored when the last
    thread leaves.
    """
    if isinstance(session, SparkSession):
        this = str(session._jsparkSession.sessionUUID())
    else:
        this = session.session_id
    with _lock:
        for name, value in settings.items():
            users, before = _changed.get((this, name)) or (0, session.conf.get(name, None))
            session.conf.set(name, value)
            _changed[this, name] = users + 1, before

    def restore() -> None:
        with _lock:
            for name in settings:
                users, before = _changed.pop((this, name))
                if users > 1:
                    _changed[this, name] = users - 1, before
                elif before is None:
                    session.conf.unset(name)
                else:
                    session.conf.set(name, before)

    try:
        yield
    except BaseException:
        with suppress(Exception):  # Java may have ended, and the first error is more useful
            restore()
        raise
    restore()


def no_constraints(session: SparkSession) -> AbstractContextManager[None]:
    """A context in which Spark does not infer constraints, conditions on the columns of queries.

    Spark doubles a constraint for each of its columns that a projection renames: it took a minute
    to optimize an aggregation with 8 times `max`. And it handles constraints incorrectly if a
    checkpoint occurs in a query several times. It looks for columns that do not exist ("key not
    found", in Union.rewriteConstraints), or drops filters. Meanwhile the session's other queries
    are optimized without constraints.
    """
    return with_settings(session, {"spark.sql.constraintPropagation.enabled": "false"})


def advise(session: SparkSession) -> None:
    """Log one line, once per session, if a setting makes steps slow. Changes nothing."""
    if session in _advised:
        return
    _advised.add(session)
    line = advice(session)
    if line is not None:
        _log.warning(line)


def advice(session: SparkSession) -> str | None:
    """The change of settings that would make steps much faster; None if there is none."""
    if not isinstance(session, SparkSession):  # Spark Connect does not report the number of cores
        return None
    # On a cluster, large steps may need all partitions, and compiling code is a small cost.
    if not str(session.sparkContext.master).startswith("local["):
        return None
    return advice_for(
        int(session.conf.get(PARTITIONS) or 0),
        session.sparkContext.defaultParallelism,
        int(session.conf.get(CLASSES) or 0),
    )


def advice_for(partitions: int, cores: int, classes: int) -> str | None:
    """The line for a local session with these shuffle partitions, cores, and cached classes."""
    sentences = []
    if partitions > PER_CORE * cores:
        sentences.append(
            f"{PARTITIONS} is {partitions}, with {cores} cores: a small step that needs Spark jobs "
            f"takes about half as long again as with {cores}; "
            f"spark.conf.set({PARTITIONS!r}, {cores}) before the first step, if no step is large"
        )
    if classes < ENOUGH_CLASSES:
        sentences.append(
            f"{CLASSES} is {classes}: Spark keeps the compiled code of {classes} query stages. A "
            "step in Spark may need more. Then Spark compiles them all again at each step, which "
            f"takes 1.5 times as long. Set .config({CLASSES!r}, 1000) when you build the session"
        )
    return ". ".join(sentences) or None


# Jobs, and the plans of DataFrames


class JobCounter:
    """Counts the Spark jobs that this thread starts inside a `with` block.

    `count` is set when the block ends. It stays None on Spark Connect, which does not report jobs.
    Blocks may be nested. Each thread counts its own jobs.
    """

    def __init__(self, session: SparkSession) -> None:
        # A Connect session is of another class, without a SparkContext.
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
            # Spark records a job's start on another thread, so wait until it has.
            jvm_context.listenerBus().waitUntilEmpty()
            self.count = len(jvm_context.statusTracker().getJobIdsForTag(self._tag))
        except (raised_by_java.Py4JError, OSError, AttributeError):
            # The JVM has ended, or the session was stopped, which leaves None in its place. If an
            # error ended the block, that error is more useful than this one.
            if error is None:
                raise


def in_session(frame: DataFrame, session: SparkSession) -> DataFrame:
    """The DataFrame in the given session, whose SQL then sees temporary views of it.

    A batch of a streaming query belongs to a session of the query's own.
    """
    own = frame.sparkSession
    if own is session or not isinstance(own, SparkSession):
        return frame
    if own._jsparkSession.equals(session._jsparkSession):
        return frame
    # Sessions share only global views. An analyzed DataFrame no longer needs its view.
    name = f"stepping_spark_{uuid.uuid4().hex}"
    frame.createGlobalTempView(name)
    try:
        return session.table(f"{session.conf.get('spark.sql.globalTempDatabase')}.{name}")
    finally:
        session.catalog.dropGlobalTempView(name)


def streaming_query(batch: DataFrame) -> str | None:
    """The id of the streaming query that calls a `foreachBatch` function on this thread.

    The id is part of the query's checkpoint, so a restarted query has the same id. None if Spark
    does not report it: outside of such a function, and if `PYSPARK_PIN_THREAD` is false.
    """
    session = batch.sparkSession
    if not isinstance(session, SparkSession):
        return None
    return session.sparkContext.getLocalProperty("sql.streaming.queryId")


def scanned_bytes(frame: DataFrame) -> int | None:
    """The bytes that Spark would read for a DataFrame that only reads, filters and projects.

    Such a DataFrame costs little to compute twice. Files count by their size on disk. None if it
    also joins, groups, sorts or calls Python; or if Spark does not know the size, as for a database
    or Python objects, or does not report it, as with Spark Connect.
    """
    with suppress(AttributeError, raised_by_java.Py4JError):
        node: Any = frame._jdf.queryExecution().optimizedPlan()
        while node.nodeName() in _ROW_BY_ROW:
            node = node.child()
        if node.nodeName() in _READS:
            nbytes = int(node.stats().sizeInBytes())
            return None if nbytes >= _UNKNOWN else nbytes
    return None


def is_same_again(frame: DataFrame) -> bool:
    """Whether all expressions of a DataFrame are deterministic, according to Spark."""
    with suppress(AttributeError, raised_by_java.Py4JError):
        return bool(frame._jdf.queryExecution().optimizedPlan().deterministic())
    return False


def times_planned(frame: DataFrame, text: str) -> int:
    """The number of occurrences of a text in Spark's plan for a DataFrame."""
    plan: str = frame._jdf.queryExecution().optimizedPlan().toString()
    return plan.count(text)


# The errors of Spark


def first_line(e: BaseException) -> str:
    """The essential line of an error's text, without Spark's plans and stack traces.

    It is the first line. For a failure in a Python worker, the line after Python's own traceback is
    added to it. For an error that only the JVM knows, it is the second line, or the last cause with
    a text if that line says that something was waited for. For an error without a text, it is the
    name of its class. An error that our own SQL raised loses Spark's codes.
    """
    first, _, rest = str(e).strip().partition("\n")
    raised = _RAISED.fullmatch(first)
    if raised:
        return raised[1]
    if isinstance(e, raised_by_java.Py4JJavaError):
        line = rest.split("\n", 1)[0].removeprefix(": ")
        causes = _CAUSES.findall(rest) if line.rstrip().endswith(_WAITED) else ()
        return str(causes[-1]) if causes else line
    _, trace, text = rest.rpartition("Traceback (most recent call last):\n")
    lines = [x for x in text.splitlines() if x and not x.startswith(" ")] if trace else []
    return f"{first} {lines[0]}" if lines else first or type(e).__name__


def is_about_values(e: BaseException) -> bool:
    """Whether a value is the reason of an error: SQL's data exceptions, and errors of ours."""
    return isinstance(e, ValueError) or _OF_VALUES.search(str(e)) is not None


def is_cancelled(e: Exception) -> bool:
    """Whether an error of Spark says that the user has cancelled the job."""
    return "SPARK_JOB_CANCELLED" in str(e)


def raised_in_worker(e: raised.PySparkException) -> tuple[str, str] | None:
    """The name and text of an error of this library that one of Spark's Python workers raised."""
    errors = re.findall(r"^stepping_spark\.(?:\w+\.)*(\w+): (.*)$", str(e), re.MULTILINE)
    return errors[-1] if errors else None
