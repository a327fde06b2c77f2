"""Begins and ends of windows of time, of times that only Spark can compute; see `Slid`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepping_spark.base.packages import functions as F


def slid_in_spark(at: Any, kind: str, slide: int, offset: int, shift: int) -> Any:
    """The begin or the end of a window of time, shifted, of a time that is in it once."""

    def moved(micros: Any) -> Any:
        return micros - F.pmod(micros - offset, F.lit(slide)) + shift

    def moved_local(x: Any) -> Any:
        hours = F.unix_date(x.cast("date")).cast("bigint") * 24 + F.hour(x)
        seconds = F.extract(F.lit("SECOND"), x) * 1_000_000
        return (hours * 60 + F.minute(x)) * 60_000_000 + seconds.cast("bigint")

    if kind == "timestamp":
        return F.timestamp_micros(_of_one(F.unix_micros(at), moved))
    zero, micros = F.lit(0), _of_one(_of_one(at, moved_local), moved)
    span = F.make_dt_interval(
        zero, zero, zero, (micros / F.expr("1000000BD")).cast("decimal(18,6)")
    )
    return F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'") + span


def _of_one(value: Any, f: Callable[[Any], Any]) -> Any:
    """A function of a Column, which is computed once."""
    return F.transform(F.array(value), lambda x: f(x))[0]
