"""A word on the settings of a user's own session, where they cost steps much."""

from __future__ import annotations

import logging
from weakref import WeakSet

from pyspark.sql import SparkSession

PARTITIONS = "spark.sql.shuffle.partitions"
PER_CORE = 8  # partitions; above it a step of a few rows waits for tasks that have nothing to do

_log = logging.getLogger("stepping_spark")
_advised: WeakSet[SparkSession] = WeakSet()


def advise(session: SparkSession) -> None:
    """Log one line, once for a session, if a setting of it costs much; change nothing."""
    if session in _advised:
        return
    _advised.add(session)
    said = advice(session)
    if said is not None:
        _log.warning(said)


def advice(session: SparkSession) -> str | None:
    """What would make steps faster in this session, if it is much and known."""
    if not isinstance(session, SparkSession):  # one of Spark Connect, which does not tell of cores
        return None
    partitions = int(session.conf.get(PARTITIONS) or 0)
    cores = session.sparkContext.defaultParallelism
    # On a cluster large steps may need them all.
    local = str(session.sparkContext.master).startswith("local[")
    if not local or partitions <= PER_CORE * cores:
        return None
    return (
        f"{PARTITIONS} is {partitions}, with {cores} cores: a small step that needs Spark jobs "
        f"takes about half as long again as with {cores}; "
        f"spark.conf.set({PARTITIONS!r}, {cores}) before the first step, if no step is large"
    )
