"""Instants as local times of a time zone and back, by Java's rules.

Moves times by durations, and counts the whole units between them.

The rules come from `zoneinfo`, exact to the second, before 1900 too. `known_zone` returns the zones
that are computed here: the zones in `TESTED`, whose clock changes a test compares with Spark's, and
fixed offsets. Spark computes other zones.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
import zoneinfo
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Micros: TypeAlias = Any  # a numpy array of int64

UTC = ("UTC", "Etc/UTC", "Z", "GMT", "+00:00")
TESTED = frozenset({
    *("America/Chicago", "America/Los_Angeles", "America/New_York", "America/Sao_Paulo"),
    *("Asia/Kolkata", "Asia/Shanghai", "Asia/Singapore", "Asia/Tokyo", "Australia/Sydney"),
    *("Europe/Berlin", "Europe/Lisbon", "Europe/London", "Europe/Madrid", "Europe/Paris"),
    *("Europe/Rome", "Europe/Vienna", "Europe/Warsaw", "Europe/Zurich"),
})  # fmt: skip
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d\d):(\d\d)")
_SECOND, _HOUR, _DAY = 1_000_000, 3_600_000_000, 86_400_000_000
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_LEAST, _MOST = ((t - _EPOCH) // _MICROSECOND for t in (dt.datetime.min, dt.datetime.max))


def known_zone(name: str) -> dt.tzinfo | None:
    """The zone of this name; None if only Spark computes it."""
    if name in UTC:
        return dt.UTC
    fixed = _OFFSET.fullmatch(name)
    if fixed is not None:
        offset = dt.timedelta(hours=int(fixed[2]), minutes=int(fixed[3]))
        return dt.timezone(-offset if fixed[1] == "-" else offset)
    return _of_file(name) if name in TESTED else None


@functools.cache
def _of_file(name: str) -> dt.tzinfo | None:
    try:
        return zoneinfo.ZoneInfo(name)
    except zoneinfo.ZoneInfoNotFoundError:  # this machine has no rules
        return None


def local_times(x: Any, zone: dt.tzinfo) -> Any:
    """Instants as the local times of a zone. Raises ArrowInvalid beyond the years 1 to 9999."""
    if zone is dt.UTC:
        return x.cast(pa.timestamp("us"))
    instants = _micros(x)
    return _as_times(instants + _offsets(instants, zone, _of_instant), x, pa.timestamp("us"))


def instants(x: Any, zone: dt.tzinfo) -> Any:
    """Local times as instants: times in a gap move by its length; of two instants the earlier."""
    if zone is dt.UTC:
        return x.cast(pa.timestamp("us", "UTC"))
    local = _micros(x)
    return _as_times(local - _offsets(local, zone, _of_local), x, pa.timestamp("us", "UTC"))


def instants_beside(local: Any, x: Any, zone: dt.tzinfo) -> Any:
    """Local times as instants, with the offsets of the instants `x` if these are valid."""
    return _as_times(_beside(_micros(local), _micros(x), zone), x, pa.timestamp("us", "UTC"))


def _beside(wanted: Micros, instants: Micros, zone: dt.tzinfo) -> Micros:
    near = wanted - _offsets(instants, zone, _of_instant)
    fits = near + _offsets(near, zone, _of_instant) == wanted
    return np.where(fits, near, wanted - _offsets(wanted, zone, _of_local))


def shifted(x: Any, by: Any) -> Any:
    """Times moved by exactly these durations. Raises ArrowInvalid beyond the years 1 to 9999."""
    times = pc.add_checked(x, by)
    ends: Any = pc.min_max(times.cast(pa.int64()))
    least, most = ends.as_py().values()
    if least is not None and (least < _LEAST or most > _MOST):
        raise pa.ArrowInvalid("a time beyond the years that Python has")
    return times


def moved(x: Any, by: Any, zone: dt.tzinfo) -> Any:
    """Instants moved by durations: by their whole days on the clock of the zone, then by the rest.

    So a day later is the same time of the day, even if clocks change in between. Raises
    ArrowInvalid beyond the years 1 to 9999.
    """
    span = _micros(by)
    days = np.sign(span) * (np.abs(span) // _DAY) * _DAY
    if zone is dt.UTC or not np.any(days):
        return shifted(x, by)
    micros, either = _micros(x), pc.add(x, by)  # NULL where one of them is
    local = micros + _offsets(micros, zone, _of_instant) + days
    later = np.where(days == 0, micros, _beside(local, micros, zone))
    return _as_times(later + span - days, either, pa.timestamp("us", "UTC"))


def between(a: Any, b: Any, zone: dt.tzinfo) -> Any:
    """The durations from instants `b` to instants `a`, as differences of local times."""
    return pc.subtract_checked(local_times(a, zone), local_times(b, zone))


def whole_units(start: Any, end: Any, unit: tuple[str, int]) -> Any:
    """The number of whole units between local times: multiples of a microsecond, day or month.

    As in Java, an incomplete day does not count, and then the days of the month decide whether a
    month is complete.
    """
    (name, multiple), first, last = unit, _micros(start), _micros(end)
    if name == "microsecond":
        units = last - first
    else:
        day, clock = first // _DAY, first % _DAY
        end_day, end_clock = last // _DAY, last % _DAY
        units = end_day - day
        units -= (units > 0) & (end_clock < clock)
        units += (units < 0) & (end_clock > clock)
        if name == "month":
            units = _towards_zero(_place_of_month(day + units) - _place_of_month(day), 32)
    mask = pc.or_(start.is_null(), end.is_null()).to_numpy(zero_copy_only=False)
    return pa.array(_towards_zero(units, multiple), pa.int64(), mask=mask)


def _place_of_month(days: Micros) -> Micros:
    """Months since 1970, and the days of the month as 32nds of it."""
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    return months.astype(np.int64) * 32 + (dates - months).astype(np.int64)


def _towards_zero(numbers: Micros, by: int) -> Micros:
    return np.sign(numbers) * (np.abs(numbers) // by)


def _micros(x: Any) -> Micros:
    return np.asarray(x.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))


def _as_times(micros: Micros, like: Any, t: pa.DataType) -> Any:
    mask = like.is_null().to_numpy(zero_copy_only=False)
    if np.any((micros < _LEAST) | (micros > _MOST)):
        raise pa.ArrowInvalid("a time beyond the years that Python has")
    return pa.array(micros, pa.int64(), mask=mask).cast(t)


def _of_instant(seconds: int, zone: dt.tzinfo) -> int:
    moment = (_EPOCH + dt.timedelta(seconds=seconds)).replace(tzinfo=dt.UTC)
    return _seconds(moment.astimezone(zone).utcoffset())


def _of_local(seconds: int, zone: dt.tzinfo) -> int:
    return _seconds(zone.utcoffset(_EPOCH + dt.timedelta(seconds=seconds)))


def _seconds(offset: dt.timedelta | None) -> int:
    assert offset is not None
    return round(offset.total_seconds())


def _offsets(micros: Micros, zone: dt.tzinfo, of: Callable[[int, dt.tzinfo], int]) -> Micros:
    """The offsets from UTC in microseconds, computed by the hour unless clocks change within it."""
    hours, at = np.unique(micros // _HOUR, return_inverse=True)
    try:
        first = np.array([of(h * 3600, zone) for h in hours.tolist()], np.int64)
        last = np.array([of(h * 3600 + 3599, zone) for h in hours.tolist()], np.int64)
        offsets = first[at]
        for i in np.flatnonzero(first[at] != last[at]).tolist():
            offsets[i] = of(int(micros[i] // _SECOND), zone)
    except OverflowError as e:
        raise pa.ArrowInvalid(f"a time beyond the years that Python has: {e}") from None
    return offsets * _SECOND


def day_of(local: Any) -> Any:
    """The days of local times."""
    midnights = pc.floor_temporal(local, unit="day")
    return midnights.cast(pa.date32())
