"""The time of a step: the types of `now`, and the times that passed since the previous step.

Rows for the future are stored by their time, in minutes if it is an instant. So a step reads the
rows that became due by key: the times since the last step.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from stepping_spark.expressions.expr import Call, Expr
from stepping_spark.rows.atoms import DATE, DATETIME, INT, LOCAL_DATETIME, RowType

TIMES: dict[RowType, str] = {
    INT: "an int, such as the number of the step",
    DATE: "a date",
    DATETIME: "a datetime with a time zone",
    LOCAL_DATETIME: "a datetime without a time zone",
}
"""The types of times, and for each the description of a fitting `now`."""

_MINUTE = dt.timedelta(minutes=1)
_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCHS = {
    DATETIME: dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    LOCAL_DATETIME: dt.datetime(1970, 1, 1),
}


def is_time(now: object, t: RowType) -> bool:
    """Whether a `now` can be compared with times of the type."""
    if t == INT:
        return isinstance(now, int) and not isinstance(now, bool)
    if t == DATE:
        return isinstance(now, dt.date) and not isinstance(now, dt.datetime)
    return isinstance(now, dt.datetime) and (now.tzinfo is not None) == (t == DATETIME)


def units_of(time: Any, t: RowType) -> int:
    """A time as a number: of days, of microseconds, or the number itself."""
    if t in _EPOCHS:
        return int((time - _EPOCHS[t]) // _MICROSECOND)
    return int(time.toordinal()) if t == DATE else int(time)


def time_of(units: int, t: RowType) -> Any:
    """The time with this number of units; the earliest time that exists, if it would be earlier."""
    if t in _EPOCHS:
        earliest = units_of(dt.datetime.min.replace(tzinfo=_EPOCHS[t].tzinfo), t)
        return _EPOCHS[t] + _MICROSECOND * max(units, earliest)
    return dt.date.fromordinal(max(units, 1)) if t == DATE else units


def tick(time: Expr) -> Expr:
    """The key by which a row is stored until its time has come."""
    if time.type in (INT, DATE):
        return time
    return Call(INT, "minute" if time.type == DATETIME else "local_minute", (time,))


def ticks(since: Any, now: Any, t: RowType, most: int) -> Sequence[Any] | None:
    """The keys of the times after `since`, up to `now`; None if there are more than `most`."""
    if since is None:
        return ()
    first, last = _tick_of(since, t), _tick_of(now, t)
    if t == DATE:
        first, last = first.toordinal(), last.toordinal()
    if last - first > most:
        return None
    # The minute of the last step may not be over. Its day, or its number, is.
    found = range(first if t in _EPOCHS else first + 1, last + 1)
    return [dt.date.fromordinal(n) for n in found] if t == DATE else found


def _tick_of(time: Any, t: RowType) -> Any:
    return (time - _EPOCHS[t]) // _MINUTE if t in _EPOCHS else time
