"""Inputs with a lateness: the detection of late rows, and `st.late`."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from stepping_spark.base.callsite import Line, user_line
from stepping_spark.base.errors import CompileError, short
from stepping_spark.circuit.graph import Lateness, Vertex
from stepping_spark.circuit.operators import (
    Delay,
    Feedback,
    Haitch,
    Integrate,
    InTime,
    Map,
    PositivePart,
    Top,
)
from stepping_spark.expressions.expr import Expr, Field, PythonCall, bare
from stepping_spark.expressions.functions import row_expr
from stepping_spark.language.algebra import ONE_GROUP
from stepping_spark.language.trace import Stream, Tracer, tracer, vertex_of
from stepping_spark.language.window import in_days
from stepping_spark.rows.atoms import DATE, DATETIME, INT, LOCAL_DATETIME, TIMES, RowType
from stepping_spark.rows.schema import VALUE, ZSetType
from stepping_spark.rows.types import unwrap
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
_PART = re.compile(r"\s*(\d+)\s*(microsecond|millisecond|second|minute|hour|day|week)s?")
EXAMPLE = 'lateness={"clicks": (lambda click: click.at, "1 hour")}'


def late(a: ZSet[T]) -> ZSet[T]:
    """The late rows of an input, which are dropped everywhere else in the query.

    `a` is an input of the query with a lateness, from `st.compile(query, lateness=…)`. A row is
    late if its time is before the watermark: the greatest time of the rows that earlier steps
    added, minus the lateness. A row whose time is NULL is late, too, and so is the removal of a row
    from before the watermark. If the query does not use `st.late`, a late row raises `InputError`.
    Weights are those of the change. State: the greatest time. A step costs the rows of the change.

    >>> def query(a: st.ZSet[tuple[str, int]]) -> tuple[st.ZSet[str], st.ZSet[tuple[str, int]]]:
    ...     return st.map(a, f=lambda row: row[0]), st.late(a)
    >>> step = st.reference(st.compile(query, lateness={"a": (lambda row: row[1], 5)})).step
    >>> _ = step((st.ZSetPython({("x", 10): 1}),))
    >>> names, too_late = step((st.ZSetPython({("y", 5): 1, ("z", 4): 1}),))
    >>> dict(names.iter()), dict(too_late.iter())
    ({'y': 1}, {('z', 4): 1})
    """
    v, late_inputs = vertex_of(a, "late"), tracer().lateness
    for label, lateness in late_inputs.items():
        if lateness.in_time is v:
            late_inputs[label] = dataclasses.replace(lateness, refused=False)
            return cast("ZSet[T]", Stream(lateness.late, tracer()))
    raise CompileError(
        f"{user_line()}: late takes an input of the query, as it comes, that has a lateness; those "
        f"are: {', '.join(late_inputs) or 'none'}; give it one: st.compile(query, {EXAMPLE})"
    )


def streams_of(
    current: Tracer,
    inputs: Sequence[Stream],
    lateness: Mapping[str, object],
    line: Line,
    query: str,
) -> list[Stream]:
    """The streams passed to the query; for inputs with a lateness, without the late rows."""
    labels = [current.label(s.vertex) for s in inputs]
    return [
        _in_time(current, s, label, lateness[label], line, query) if label in lateness else s
        for label, s in zip(labels, inputs, strict=True)
    ]


def _in_time(
    current: Tracer, stream: Stream, label: str, value: object, line: Line, query: str
) -> Stream:
    """The stream of an input without its late rows; the greatest time is state.

    If x is the Z-set of times that a step adds, the greatest time is I(y), y = H_Top(z⁻¹I(y), x).
    """
    where = f"{line}: lateness of {label!r}"
    if not isinstance(value, tuple) or len(value) != 2 or not callable(value[0]):
        raise CompileError(
            f"{where}: expected a function that returns the time of a row, and how late rows may "
            f"come, found {short(value)}; write {EXAMPLE}"
        )
    f, lateness = value
    assert isinstance(stream.vertex.type, ZSetType)
    at = _time(row_expr(f, stream.vertex.type.row), where)
    t = unwrap(at.type)
    distance = _units(lateness, t, where)

    def named(name: str, v: Vertex) -> Vertex:
        current.note(v, f"{label}_{name}", line, (query, f"{label}_lateness"))
        return v

    leaf = named("greatest_time", Vertex(Feedback(len(current.loops), ZSetType(t))))
    sums = named("greatest_time_so_far", Vertex(Integrate(), leaf))
    before = named("greatest_time_before", Vertex(Delay(), sums))
    in_time = named("in_time", Vertex(InTime(at, distance), stream.vertex, before))
    too_late = named("late", Vertex(InTime(at, distance, late=True), stream.vertex, before))
    times = named("times", Vertex(Map(bare(at)), in_time))
    added = named("times_added", Vertex(PositivePart(), times))
    greatest = Top(ONE_GROUP, ((Field(t, (VALUE,)), False),), 1)
    current.loops[leaf] = named("greatest_time_change", Vertex(Haitch(greatest), before, added))
    current.no_output.append(too_late)
    text = lateness if isinstance(lateness, str) else repr(lateness)
    current.lateness[label] = Lateness(at, distance, text, in_time, too_late, leaf, True)
    return Stream(in_time, current)


def _time(at: Expr, where: str) -> Expr:
    if isinstance(at, PythonCall) or unwrap(at.type) not in TIMES:
        text = "an st.python function" if isinstance(at, PythonCall) else f"{at} of type {at.type}"
        raise CompileError(
            f"{where}: the time of a row is an int, a date or a datetime, found {text}; give a "
            "field of such a type, or Spark's functions on fields"
        )
    return at


def _units(value: object, t: RowType, where: str) -> int:
    """The lateness, in the units of the times."""
    distance = _interval(value, where) if isinstance(value, str) else value
    if isinstance(distance, dt.timedelta) and t in (DATETIME, LOCAL_DATETIME):
        distance = distance // dt.timedelta(microseconds=1)
    elif t == DATE:
        distance = in_days(distance, t)
    elif t != INT:
        distance = None
    if type(distance) is not int:
        expected: dict[RowType, str] = {INT: "an int", DATE: 'whole days, as "2 days" or 2'}
        raise CompileError(
            f"{where}: the times are {t}, so rows may come late by "
            f"{expected.get(t, 'a timedelta or a text such as ' + repr('1 hour'))}; found {value!r}"
        )
    if distance < 0:
        raise CompileError(f"{where}: expected zero or more, found {value!r}")
    return distance


def _interval(text: str, where: str) -> dt.timedelta:
    interval, at = dt.timedelta(0), 0
    while at < len(text.rstrip()) or not text.strip():
        part = _PART.match(text, at)
        if part is None:
            raise CompileError(
                f"{where}: expected a text such as '1 hour' or '1 day 12 hours', found {text!r}; "
                "the units are weeks, days, hours, minutes, seconds, milliseconds and microseconds"
            )
        interval += dt.timedelta(**{f"{part[2]}s": int(part[1])})
        at = part.end()
    return interval
