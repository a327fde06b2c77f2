"""Which times have come since the last step: by `now`, or by the watermarks of inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow.compute as pc

from stepping_spark.errors import SHOWN_ROWS, too_late
from stepping_spark.execution.step import Step
from stepping_spark.expressions.clock import time_of, units_of
from stepping_spark.graph.graph import Lateness, Vertex
from stepping_spark.limits import DEFAULT
from stepping_spark.plan.terms import Clock, Read
from stepping_spark.relations.codec import conform, decode
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import VALUE, ZSetType
from stepping_spark.rows.types import unwrap
from stepping_spark.spark.relation import Relation

Parts: TypeAlias = tuple[Relation, ...]


def times_of(clock: Clock, step: Step, before: Callable[[Read], Parts]) -> tuple[Any, Any] | None:
    """(Previous time or None, current time); None if no time has passed since the last step."""
    if not clock.marks:
        return step.since, step.now
    since: list[int | None] = []
    now: list[int] = []
    for greatest, distance in clock.marks:
        old = greatest_of(before(Read(greatest)), clock.time)
        new = greatest_of((step.values[greatest],), clock.time)
        if old is None and new is None:
            return None
        # What is before the watermark has come: the last such time is one unit before it.
        since.append(None if old is None else old - distance - 1)
        now.append(max(x for x in (old, new) if x is not None) - distance - 1)
    known = [x for x in since if x is not None]
    first = min(known) if len(known) == len(since) else None
    if first == min(now):
        return None
    return None if first is None else time_of(first, clock.time), time_of(min(now), clock.time)


def greatest_of(parts: Parts, t: RowType) -> int | None:
    """The greatest time of a relation of times, as a number; weights do not count."""
    found = []
    for part in parts:
        latest: Any = pc.max(part.fetched(DEFAULT).table.column(VALUE))
        if latest.is_valid:
            found.append(units_of(t.decode(latest.as_py()), t))
    return max(found, default=None)


def check_in_time(held: Relation, v: Vertex, label: str, x: Lateness, old: Parts) -> None:
    """Raise an `InputError` if a change has late rows, which are `held`."""
    if held.is_empty:
        return
    assert isinstance(v.type, ZSetType)
    rows = held.table
    if held.frame is not None:
        rows = conform(held.frame.limit(SHOWN_ROWS + 1).toArrow(), v.type.schema)
    assert rows is not None
    if not rows.num_rows:
        return
    t = unwrap(x.at.type)
    latest = greatest_of(old, t)
    shown = [row for row, _ in decode(rows.slice(0, SHOWN_ROWS + 1), v.type)]
    greatest = None if latest is None else time_of(latest, t)
    raise too_late(shown, f"input {label!r}", label, str(x.at), greatest, x.said)
