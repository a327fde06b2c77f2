"""Advice on settings of a user's own session that make steps slow."""

from __future__ import annotations

import logging
from weakref import WeakSet

from stepping_spark.packages import SparkSession

PARTITIONS = "spark.sql.shuffle.partitions"
PER_CORE = 8  # partitions; with more, a step of a few rows waits for many empty tasks
CLASSES = "spark.sql.codegen.cache.maxEntries"
ENOUGH_CLASSES = 500  # of generated code; a circuit of three joins and an aggregate has 150

_log = logging.getLogger("stepping_spark")
_advised: WeakSet[SparkSession] = WeakSet()


def advise(session: SparkSession) -> None:
    """Log one line, once per session, if a setting makes steps slow. Changes nothing."""
    if session in _advised:
        return
    _advised.add(session)
    said = advice(session)
    if said is not None:
        _log.warning(said)


def advice(session: SparkSession) -> str | None:
    """The change of settings that would make steps much faster; None if there is none."""
    if not isinstance(session, SparkSession):  # Spark Connect does not tell the number of cores
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
    said = []
    if partitions > PER_CORE * cores:
        said.append(
            f"{PARTITIONS} is {partitions}, with {cores} cores: a small step that needs Spark jobs "
            f"takes about half as long again as with {cores}; "
            f"spark.conf.set({PARTITIONS!r}, {cores}) before the first step, if no step is large"
        )
    if classes < ENOUGH_CLASSES:
        said.append(
            f"{CLASSES} is {classes}: Spark keeps the compiled code of {classes} query stages. A "
            "step in Spark may need more. Then Spark compiles them all again at each step, which "
            f"takes 1.5 times as long. Set .config({CLASSES!r}, 1000) when you build the session"
        )
    return ". ".join(said) or None
