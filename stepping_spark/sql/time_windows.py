"""Windows of time: Spark's `window`, `session_window` and `window_time`.

`window` is a struct of two functions of a row's time, the begin and the end. Sliding windows
overlap, so a row becomes one row for each of them. Sessions depend on all rows of a key, so they
are an operator, `st.sessions`. A row whose time is NULL is in no window.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from stepping_spark.sql.aggregate_calls import name_of
from stepping_spark.sql.binder import Binder
from stepping_spark.sql.plan import (
    SLID,
    LateralView,
    PlanColumn,
    RelationalPlan,
    Scalar,
    SelectList,
    SessionsOf,
    WhereClause,
    as_items,
    ref,
)

MOST_WINDOWS = 1_000
"""The most sliding windows that contain a row."""

_MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"\s*([+-]?\d+)(\.\d{1,6})?\s+([a-z]+?)s?\b", re.IGNORECASE)


@dataclass(frozen=True)
class TimeWindow:
    """A call of `window` or `session_window`: the column that replaces it, and its parts.

    Times are in microseconds. For a session, `size` is the gap.
    """

    at: Scalar
    time: Scalar
    column: PlanColumn
    size: int
    slide: int = 0
    offset: int = 0

    @property
    def is_session(self) -> bool:
        """Whether it is a session."""
        return not self.slide

    def over(self, plan: RelationalPlan) -> RelationalPlan:
        """The rows of a plan, each with every window that contains it."""
        if not isinstance(self.time, exp.Column):  # begin and end read it, so compute it once
            time = PlanColumn("time")
            plan = SelectList(plan, (*as_items(plan.columns), (time, slid(self.time))))
            return replace(self, time=ref(time)).over(plan)
        number = -(-self.size // self.slide)
        windows = [self._window(i) for i in range(number)]
        if number == 1 and self.size == self.slide:
            has_time = exp.Not(this=exp.Is(this=slid(self.time), expression=exp.Null()))
            with_times = WhereClause(plan, (has_time,))
            return SelectList(with_times, (*as_items(plan.columns), (self.column, windows[0])))
        listed = exp.Anonymous(this="array", expressions=windows)
        all_ = LateralView(plan, listed, (self.column,))
        end = exp.Dot(this=ref(self.column), expression=exp.to_identifier("end", quoted=True))
        return WhereClause(all_, (exp.LT(this=slid(self.time), expression=end),))

    def _window(self, number: int) -> Scalar:
        """The window `number` windows before the last one that has begun."""
        back = -number * self.slide
        edges = (slid(self.time, self.slide, self.offset, back + n) for n in (0, self.size))
        return _struct(*edges)

    def sessions(self, plan: RelationalPlan, by: Sequence[Scalar]) -> RelationalPlan:
        """The rows of a plan, each with its session among rows with equal `by`."""
        start, end = PlanColumn("start"), PlanColumn("end")
        rows = SessionsOf(plan, tuple(by), slid(self.time), self.size, (start, end))
        window = _struct(ref(start), slid(ref(end), shift=self.size))
        return SelectList(rows, (*as_items(plan.columns), (self.column, window)))


def slid(time: Scalar, slide: int = 1, offset: int = 0, shift: int = 0) -> Scalar:
    """The last multiple of `slide` (plus `offset`) up to a time, plus `shift`; see `Slid`."""
    numbers = [exp.Literal(this=str(n), is_string=False) for n in (slide, offset, shift)]
    return exp.Anonymous(this=SLID, expressions=[time.copy(), *numbers])


def _struct(start: Scalar, end: Scalar) -> Scalar:
    names = (exp.Literal.string("start"), exp.Literal.string("end"))
    return exp.Anonymous(this="named_struct", expressions=[names[0], start, names[1], end])


def window_of_time(binder: Binder, parts: Iterable[Scalar | None]) -> TimeWindow | None:
    """The window of time that parts of a SELECT call, or None. Replaces the calls by its column."""
    calls = [n for part in parts if part is not None for n in _calls(part)]
    if not calls:
        return None
    windows = [_time_window(binder, call) for call in calls]
    first = windows[0]
    for call, other in zip(calls, windows, strict=True):
        if (other.time, other.size, other.slide, other.offset) != (
            first.time,
            first.size,
            first.slide,
            first.offset,
        ):
            binder.fail(call, "a SELECT has one window of time", "write the other in a sub-query")
        call.replace(ref(first.column, call))
    return first


def _calls(part: Scalar) -> list[Scalar]:
    walked = part.walk(prune=lambda n: isinstance(n, exp.Query))
    return [n for n in walked if name_of(n) in ("window", "session_window")]


def _time_window(binder: Binder, call: Scalar) -> TimeWindow:
    name, args = name_of(call), call.expressions
    most = 4 if name == "window" else 2
    if not 2 <= len(args) <= most:
        binder.fail(call, f"{name} takes 2 to {most} arguments, found {len(args)}")
    time = binder.bind_row(args[0])
    size, *options = (_micros(binder, a) for a in args[1:])
    if size <= 0:
        binder.fail(args[1], "a window of time lasts longer than 0", "write '10 minutes'")
    column = PlanColumn(name)
    if name == "session_window":
        return TimeWindow(call, time, column, size)
    slide, offset = options[0] if options else size, options[1] if options[1:] else 0
    if not 0 < slide <= size or size > slide * MOST_WINDOWS:
        remedy = f"from a {MOST_WINDOWS:,}th of the window to the window"
        binder.fail(args[2], "the distance of windows of time does not fit", f"write one {remedy}")
    if not -slide < offset < slide:
        binder.fail(args[3], "the start of windows of time is less than their distance")
    return TimeWindow(call, time, column, size, slide, offset)


def _micros(binder: Binder, node: Scalar) -> int:
    """The microseconds of a constant like '10 minutes'."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        return int(node.name)
    text = node.name.removeprefix("interval ") if isinstance(node, exp.Literal) else ""
    micros, at = 0, 0
    while at < len(text.rstrip()):
        part = _PART.match(text, at)
        if part is None or part[3].lower() not in _MICROS:
            break
        unit_micros = _MICROS[part[3].lower()]
        fraction = int(f"{(part[2] or '.0')[1:]:0<6}") * unit_micros // 1_000_000
        micros += int(part[1]) * unit_micros + (-fraction if part[1].startswith("-") else fraction)
        at = part.end()
    if not text.strip() or at < len(text.rstrip()):
        units = ", ".join(f"{unit}s" for unit in _MICROS)
        binder.fail(
            node,
            "the length of a window of time is a constant text",
            f"write a number and a unit, as '10 minutes'; the units are {units}",
        )
    return micros
