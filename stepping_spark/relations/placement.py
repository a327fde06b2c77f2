"""Where a computation runs: on the driver or in Spark, whichever is estimated to take less time.

An estimate adds up the rows and bytes that are read, fetched and sent, each with a cost of its own.
Spark shares its work among the tasks that run at once, and needs some time for a query with no rows
at all. So the driver wins for few rows, and Spark for many, the sooner the more tasks it has. With
two tasks at once, no estimate is in Spark's favour.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from rich.filesize import decimal

from stepping_spark.base.limits import Limits
from stepping_spark.spark.session import has_started, quarter_of_memory, tasks_at_once

FEW_ROWS = 10_000
"""The driver takes so many rows without an estimate. It needs some milliseconds for them."""

# Measured on two cores with other programs beside, so that the ratios say more than the times: a
# join and an aggregate of 10,000 to 2,000,000 rows of 32 to 128 bytes, on the driver and in Spark;
# and rows of 40 to 2,000 bytes that are fetched, sent and shuffled.

DRIVER_ROW = 0.4e-3
"""Milliseconds to compute with a row on the driver. Measured: 0.2 to 0.6 us."""

ADDED_ROW = 0.1e-3
"""The same for a row that is added up with others before they are joined.

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
"""The same on the driver, with all that a step does with the row. Measured: 2.5 to 2.9 us."""

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
"""Bytes that the driver takes for each byte that it reads, at most. Measured: 0.1 to 4.8."""

MOST_READ = 1 << 30
"""Bytes that the driver reads for a computation at most, where a machine has more memory.

A column of texts has at most 2 GB in Arrow.
"""

SEARCHED_ROW = 0.12e-3
"""Milliseconds to read a row of a Parquet file on the driver, and to see whether it has a key.

Measured: 0.09 to 0.12 us.
"""

SCANNED_ROW = 0.5e-3
"""Milliseconds of one core of Spark to do the same. Measured: 0.5 to 0.9 us."""

ALWAYS_SEARCHED = int(SPARK_QUERY / SEARCHED_ROW)
"""Rows that the driver has searched before any query of Spark returns."""

STARTING = 10_000.0
"""Milliseconds to start a session where none runs. Measured: 10 to 26 s."""

ROWS_PER_KEY = 32
"""Rows of the driver for each key in Spark, from which on it fetches and looks up the keys.

With fewer rows it sends all of them to Spark. Measured: a key takes 5 us, and a row 0.4 us.
"""

LOOKED_UP_KEYS = 100_000
"""Keys that one read of a store looks up. Beyond: it may return other rows too, or Spark joins.

`StoreMemory` looks up more: one key for each `ROWS_PER_KEY` rows that it has on the driver.
"""

SENT_WHOLE = 5
"""Rows of the driver for each key that a read may look up, up to which it sends all to Spark.

With twice 100,000 rows that took as long as the job that fetches keys. With 450,000 rows that job
took 0.55 seconds; to send them was not measured apart.
"""


@dataclass(frozen=True, slots=True)
class Workload:
    """What a computation reads: all of it, the bytes that Spark has, and those that the driver has.

    With `added_up`, the driver adds up the rows before it joins them, and what is read are the
    columns that matter then.
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
    """Whether the driver runs a computation, and why: the estimate, in words."""

    on_driver: bool
    why: str


@dataclass(frozen=True, slots=True)
class Resources:
    """What there is to compute with: tasks of Spark at once, and memory of the driver in bytes.

    `starting` is how long Spark takes before its first query, in milliseconds.
    """

    tasks: int
    memory: int
    starting: float = 0.0

    def placed(self, work: Workload) -> Placement:
        """Where a computation takes less time, among the places that have the memory for it.

        Spark needs none for it that it cannot write to disk.
        """
        needed = COPIES * work.nbytes
        if needed > self.memory:
            return Placement(
                False,
                f"would take up to {decimal(needed)} of the driver's memory, "
                f"of {decimal(self.memory)} (working_bytes)",
            )
        each = ADDED_ROW if work.added_up else DRIVER_ROW
        here = work.rows * each + work.fetched * FETCHED_BYTE
        spread = (work.rows * SPARK_ROW + work.nbytes * SPARK_BYTE) / self.tasks
        in_spark = self.starting + SPARK_QUERY + work.sent * SENT_BYTE + spread
        return Placement(here <= in_spark, self._compared(here, in_spark))

    def searched(self, rows: int) -> Placement:
        """Where to look for keys in so many rows of files."""
        here = rows * SEARCHED_ROW
        in_spark = self.starting + SPARK_QUERY + rows * SCANNED_ROW / self.tasks
        return Placement(here <= in_spark, self._compared(here, in_spark))

    def shared(self, rows: int, nbytes: int, *, windowed: bool) -> bool:
        """Whether tasks take less time than the driver for a step with changes of this size.

        If it is `windowed`, windows compute the partitions of the changed rows anew.
        """
        here = rows * (WINDOWED_ROW if windowed else CHANGED_ROW)
        in_tasks = self.starting + TASKS + rows * TASK_ROW / self.tasks
        return COPIES * nbytes > self.memory or in_tasks < here

    def _compared(self, here: float, in_spark: float) -> str:
        tasks = "1 task" if self.tasks == 1 else f"{self.tasks:,} tasks"
        return (
            f"about {_rounded(here)} ms on the driver, {_rounded(in_spark)} ms in Spark "
            f"with {tasks} at once"
        )


def resources(limits: Limits) -> Resources:
    """What the limits say, and where they say nothing, what the session and the machine have."""
    return Resources(
        limits.parallelism or tasks_at_once(),
        limits.working_bytes or most_memory(),
        0.0 if has_started() else STARTING,
    )


def bytes_of_a_step(limits: Limits) -> int:
    """The bytes of a change with which the driver computes in its memory."""
    return (limits.working_bytes or most_memory()) // COPIES


def bytes_given(limits: Limits) -> int:
    """The bytes that a computation on the driver may give."""
    return limits.given_bytes or bytes_of_a_step(limits)


@functools.cache
def most_memory() -> int:
    """The bytes of memory for one computation, where the limits do not say them."""
    return min(quarter_of_memory(), COPIES * MOST_READ)


def is_sent_whole(rows: int, nbytes: int, limits: Limits) -> bool:
    """Whether to send so many rows to Spark takes less time than a job that fetches keys."""
    return rows <= SENT_WHOLE * LOOKED_UP_KEYS and nbytes <= limits.broadcast_bytes


def _rounded(ms: float) -> str:
    """Two digits of an estimate, which has no more."""
    return f"{float(f'{ms:.2g}'):,.0f}"
