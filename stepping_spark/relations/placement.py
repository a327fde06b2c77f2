"""The placement of a computation: on the driver or in Spark, by estimates of the faster one.

An estimate adds up the rows and bytes that are read, fetched and sent, each with a cost of its own.
Spark shares its work among the tasks that run at once, and needs some time even for a query without
rows. So the driver wins for few rows, and Spark for many, the sooner the more tasks it has. With
two tasks at once, no estimate favours a query of Spark; only a step in tasks can be faster.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from rich.filesize import decimal

from stepping_spark.base.limits import Limits
from stepping_spark.base.packages import SparkSession
from stepping_spark.spark.session import (
    bytes_of_a_task,
    has_started,
    quarter_of_memory,
    tasks_at_once,
)

FEW_ROWS = 10_000
"""Rows up to which the driver computes without an estimate; they take some milliseconds."""

# Measured on two cores next to other programs, so the ratios are more reliable than the times: a
# join and an aggregate of 10,000 to 2,000,000 rows of 32 to 128 bytes, on the driver and in Spark;
# and rows of 40 to 2,000 bytes that are fetched, sent and shuffled.

DRIVER_ROW = 0.4e-3
"""Milliseconds to compute with a row on the driver. Measured: 0.2 to 0.6 us."""

ADDED_ROW = 0.1e-3
"""Milliseconds of the driver for a row that is added up with others before a join.

Measured: 0.02 to 0.06 us; 0.2 us and more where few of them are equal.
"""

SPARK_QUERY = 300.0
"""Milliseconds of a query without rows. Measured: 340 to 400, and more at first."""

SPARK_ROW = 2.5e-3
"""Milliseconds of one core of Spark to compute with a row. Measured: 2.3 to 2.6 us."""

TASKS = 350.0
"""Milliseconds of a step in tasks that compute with Arrow, without rows. Measured: 300 to 400."""

TASK_ROW = 5e-3
"""Milliseconds of a task for a row of a change. Measured: 4 to 6 us."""

CHANGED_ROW = 2.7e-3
"""Milliseconds of the driver for a row of a change, in the whole step. Measured: 2.5 to 2.9 us."""

WINDOWED_ROW = 7e-3
"""The same for a row whose partition a window computes anew. Measured: 6.9 us, ten rows in each."""

SPARK_BYTE = 20e-6
"""Milliseconds of one core of Spark to shuffle a byte twice, as for a join and an aggregate.

Measured: 9 to 12 ns for a shuffle of rows with 128 to 2,000 bytes.
"""

FETCHED_BYTE = 8e-6
"""Milliseconds to fetch a byte from Spark. Measured: 8 to 15 ns."""

SENT_BYTE = 5e-6
"""Milliseconds to send a byte to Spark. Measured: 5 to 12 ns, with a query that reads it."""

COPIES = 5
"""The most bytes of memory that the driver needs per byte that it reads. Measured: 0.1 to 4.8."""

MOST_READ = 1 << 30
"""The most bytes that the driver reads for a computation, even with more memory.

A column of texts has at most 2 GB in Arrow.
"""

SEARCHED_ROW = 0.12e-3
"""Milliseconds to read a row of a Parquet file on the driver, and to compare its key.

Measured: 0.09 to 0.12 us.
"""

SCANNED_ROW = 0.5e-3
"""Milliseconds of one core of Spark to read such a row. Measured: 0.5 to 0.9 us."""

ALWAYS_SEARCHED = int(SPARK_QUERY / SEARCHED_ROW)
"""Rows that the driver has searched before any query of Spark returns."""

STARTING = 10_000.0
"""Milliseconds to start a session if none runs. Measured: 10 to 26 s."""

ROWS_PER_KEY = 32
"""Rows on the driver per key in Spark from which on the driver fetches and looks up the keys.

With fewer rows it sends all of them to Spark. Measured: a key takes 5 us, and a row 0.4 us.
"""

LOOKED_UP_KEYS = 100_000
"""Keys that one read of a store looks up. Beyond: it may return other rows too, or Spark joins.

`StoreMemory` looks up more: one key for each `ROWS_PER_KEY` rows that it has on the driver.
"""

SENT_WHOLE = 5
"""Rows on the driver per key that a read may look up, up to which all rows are sent to Spark.

With twice 100,000 rows, sending took as long as the job that fetches keys. With 450,000 rows that
job took 0.55 seconds; sending was not measured separately.
"""


@dataclass(frozen=True, slots=True)
class Workload:
    """The reads of a computation: all rows and bytes, bytes to fetch from Spark, bytes to send.

    With `added_up`, the driver adds up the rows before it joins them, and `nbytes` are the bytes of
    the columns that this needs.
    """

    rows: int
    nbytes: int
    fetched: int = 0
    sent: int = 0
    added_up: bool = False

    def __str__(self) -> str:
        return f"{self.rows:,} rows ({decimal(self.nbytes)})"


@dataclass(frozen=True, slots=True)
class Placement:
    """Whether the driver runs a computation, and the reason: the estimate, in words."""

    on_driver: bool
    why: str


@dataclass(frozen=True, slots=True)
class Resources:
    """The available resources: tasks of Spark at once, and memory of the driver in bytes.

    `starting` is the time of Spark before its first query, in milliseconds.
    """

    tasks: int
    memory: int
    starting: float = 0.0

    def placed(self, work: Workload) -> Placement:
        """The faster place for a computation; Spark if the driver lacks the memory for it.

        Spark can write to disk if memory does not suffice.
        """
        if why := self._too_large(work.nbytes):
            return Placement(False, why)
        each = ADDED_ROW if work.added_up else DRIVER_ROW
        here = work.rows * each + work.fetched * FETCHED_BYTE
        spread = (work.rows * SPARK_ROW + work.nbytes * SPARK_BYTE) / self.tasks
        in_spark = self.starting + SPARK_QUERY + work.sent * SENT_BYTE + spread
        return Placement(here <= in_spark, self._compared(here, in_spark, "in Spark"))

    def searched(self, rows: int) -> Placement:
        """The faster place to look for keys in so many rows of files."""
        here = rows * SEARCHED_ROW
        in_spark = self.starting + SPARK_QUERY + rows * SCANNED_ROW / self.tasks
        return Placement(here <= in_spark, self._compared(here, in_spark, "in Spark"))

    def of_step(self, rows: int, nbytes: int, *, windowed: bool, first: bool) -> Placement:
        """The faster place for a step with changes of this size: the driver, or Spark's tasks.

        If it is `windowed`, windows compute the partitions of the changed rows anew. The `first`
        step has no state to read and merge; then the driver needs less time for a row than a task.
        """
        if why := self._too_large(nbytes):
            return Placement(False, f"the change {why}")
        if first:
            return Placement(
                True, "the first load fits into the driver's memory, and is faster there"
            )
        here = rows * (WINDOWED_ROW if windowed else CHANGED_ROW)
        in_tasks = self.starting + TASKS + rows * TASK_ROW / self.tasks
        return Placement(here <= in_tasks, self._compared(here, in_tasks, "in Spark's tasks"))

    def _too_large(self, nbytes: int) -> str:
        """The reason why the driver lacks the memory to read so many bytes; "" if it has it."""
        needed = COPIES * nbytes
        if needed <= self.memory:
            return ""
        return (
            f"would take up to {decimal(needed)} of the driver's memory, "
            f"of {decimal(self.memory)} (working_bytes)"
        )

    def _compared(self, here: float, there: float, where: str) -> str:
        tasks = "1 task" if self.tasks == 1 else f"{self.tasks:,} tasks"
        of_these = f", of which starting Spark takes {_rounded(self.starting)} ms"
        return (
            f"about {_rounded(here)} ms on the driver, {_rounded(there)} ms {where} "
            f"with {tasks} at once" + (of_these if self.starting else "")
        )


def resources(limits: Limits) -> Resources:
    """The resources in the limits; by default those of the session and of the machine."""
    return Resources(
        limits.parallelism or tasks_at_once(),
        limits.working_bytes or most_memory(),
        0.0 if has_started() else STARTING,
    )


def bytes_of_a_step(limits: Limits) -> int:
    """The bytes of a change for which the memory of the driver suffices."""
    return (limits.working_bytes or most_memory()) // COPIES


def bytes_given(limits: Limits) -> int:
    """The most bytes of the result of a computation on the driver."""
    return limits.given_bytes or bytes_of_a_step(limits)


def bytes_given_in_a_task(limits: Limits, elsewhere: SparkSession | None) -> int:
    """The most bytes of the result of a computation in a task.

    `elsewhere` is the session if its workers are not on this machine.
    """
    tasks = resources(limits).tasks
    if limits.given_bytes or elsewhere is None:
        return bytes_given(limits) // tasks
    return bytes_of_a_task(elsewhere, tasks) // COPIES


@functools.cache
def most_memory() -> int:
    """The bytes of memory for one computation, unless the limits set them."""
    return min(quarter_of_memory(), COPIES * MOST_READ)


def is_sent_whole(rows: int, nbytes: int, limits: Limits) -> bool:
    """Whether sending so many rows to Spark is faster than a job that fetches keys."""
    return rows <= SENT_WHOLE * LOOKED_UP_KEYS and nbytes <= limits.broadcast_bytes


def _rounded(ms: float) -> str:
    """The text of an estimate, rounded to its two significant digits."""
    return f"{float(f'{ms:.2g}'):,.0f}"
