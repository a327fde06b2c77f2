"""`st.linear.window` and `st.linear.sessions`: window functions and frames to vertices."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError, InputError
from stepping_spark.circuit.operators import Filter, Map, Window
from stepping_spark.circuit.physical import Frame, Sorting, WindowCall
from stepping_spark.circuit.physical.windows import offset_type
from stepping_spark.expressions.expr import Build, Call, Expr, Field, Literal, PythonCall, whole
from stepping_spark.expressions.functions import row_expr
from stepping_spark.expressions.index import Index, key_of
from stepping_spark.expressions.portable import Mean, widened
from stepping_spark.language import win
from stepping_spark.language.agg import Aggregate
from stepping_spark.language.aggregate import (
    MANY,
    Together,
    check_share,
    coerced,
    open_row,
    target_of,
)
from stepping_spark.language.algebra import ONE_GROUP, beside, under
from stepping_spark.language.call_errors import call_of
from stepping_spark.language.primitives import KeyFunction
from stepping_spark.language.reductions import SUMMED, AggregateCall, mean_type, summed_type
from stepping_spark.language.sort_orders import OrderGiven, sorting_of
from stepping_spark.language.trace import make, row_of
from stepping_spark.language.win import WindowFunction
from stepping_spark.rows.atoms import BOOL, DATE, FLOAT, INT, Atom, RowType
from stepping_spark.rows.data import Session, pair_of, session_of
from stepping_spark.rows.schema import BIG_INT
from stepping_spark.rows.types import Optional, Struct, tuple_of, unwrap
from stepping_spark.zsets.spark import ZSet


def frame_of(f: WindowFunction[Any], sorting: tuple[Sorting, ...], at: str) -> Frame:
    """The frame of a function. Raises `CompileError` if it is not valid."""
    if f.rows is not None and f.range is not None:
        raise CompileError(f"{at}: rows= and range= are two frames; leave one out")
    named, bounds = ("rows", f.rows) if f.rows is not None else ("range", f.range)
    if bounds is None:
        return Frame(False, None, 0 if sorting else None)
    where = f"{at}: {named}={bounds!r}"
    if not isinstance(bounds, tuple) or len(bounds) != 2:
        raise CompileError(f"{where}: expected (start, end), such as (None, 0)")
    if named == "rows":
        start, end = (_count_of_rows(b, where) for b in bounds)
    else:
        start, end = (_offset(b, sorting, where) for b in bounds)
    if start is not None and end is not None and _is_after(start, end):
        raise CompileError(f"{where}: the frame ends before it begins; write (start, end)")
    return Frame(named == "rows", start, end)


def _is_after(start: Any, end: Any) -> bool:
    zeros = [type(x)(0) for x in (start, end)]
    if type(start) is type(end):
        return bool(start > end)
    return bool(start > zeros[0]) or bool(end < zeros[1])  # one of them is 0, which fits any type


def _count_of_rows(bound: Any, where: str) -> int | None:
    if bound is not None and (type(bound) is not int or abs(bound) > MANY):
        raise CompileError(f"{where}: expected a number of rows, or None for all, found {bound!r}")
    return bound


def in_days(distance: Any, t: RowType) -> Any:
    """The distance in the form added to values of this type: for dates, a number of days."""
    is_days = isinstance(distance, dt.timedelta) and not distance % dt.timedelta(days=1)
    return distance.days if is_days and unwrap(t) == DATE else distance


def _offset(bound: Any, sorting: tuple[Sorting, ...], where: str) -> Any:
    """A distance in the order, encoded for the type of its values; 0 fits any type."""
    if bound is None or (type(bound) is int and bound == 0):
        return bound
    if len(sorting) != 1:
        raise CompileError(
            f"{where}: a distance is from one value, and the order has {len(sorting)}; order by "
            "one, or use rows="
        )
    t = sorting[0].expr.type
    kind = offset_type(t)
    if kind is None:
        remedy = "use rows="
        if isinstance(unwrap(t), Atom) and unwrap(t).name == "Decimal":  # type: ignore[attr-defined]
            remedy = "annotate the field with Annotated[Decimal, st.Precision(37, s)], or " + remedy
        raise CompileError(f"{where}: the order is by {t}, to which no distance is added; {remedy}")
    try:
        distance = kind.encode(in_days(bound, t), where)
    except InputError as e:
        raise CompileError(f"{e}; the order is by {t}") from None
    if isinstance(distance, float) and not math.isfinite(distance):
        raise CompileError(f"{where}: expected a finite distance, or None for all")
    return distance if distance != type(distance)(0) else 0


T = TypeVar("T")
R = TypeVar("R")

OF_ORDER = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead")
FLOATS = ("percent_rank", "cume_dist")


def window(
    a: ZSet[T],
    /,
    *,
    by: KeyFunction[T] | None = None,
    order: OrderGiven[T] = None,
    into: type[R] | None = None,
    fields: Mapping[str, WindowFunction[T] | Callable[[T], Any]] | None = None,
    **functions: WindowFunction[T] | Callable[[T], Any],
) -> ZSet[R]:
    """Each row of a value, with the results of window functions. Keeps no state.

    See `st.window`, which does the same for the sum of all changes.
    """
    row = row_of(a, "window")
    where = f"{user_line()}: window"
    needed = "each function, and for each field of the row that is to be there"
    target = None if into is None else target_of(into, needed, where)
    by_field = _by_field(fields, functions, target, where)
    values = {n: _value(f, row) for n, f in by_field.items()}
    seconds = {n: row_expr(f.other, row) for n, f in by_field.items() if _is_of_two(f)}
    overs = {n: _over(f, by, order, row) for n, f in by_field.items() if _is_function(f)}
    windows = list(dict.fromkeys(overs.values()))
    row_values = [e for n, e in values.items() if e is not None and n not in overs]
    used = (e for w in windows for e in (*w.keys, *(s.expr for s in w.sorting)))
    args = (e for e in (*values.values(), *seconds.values()) if e is not None)
    source = prepared(a, row, (*used, *args), row_values)
    filled = {
        n: _within(source.moved(e), len(windows))
        for n, e in values.items()
        if e is not None and n not in overs
    }
    stream = source.stream
    for i, w in enumerate(windows):  # each reads the results of the previous one

        def moved(e: Expr, i: int = i) -> Expr:
            return _within(source.moved(e), i)

        planned = _Planned(under(w.sorting, [moved(s.expr) for s in w.sorting]), where)
        for n, over in overs.items():
            if over == w:
                exprs = (values[n], seconds.get(n))
                result = planned.field_of(n, by_field[n], *(e and moved(e) for e in exprs))
                filled[n] = _within(result, len(windows) - 1 - i)
        keys = tuple(map(moved, w.keys)) or ONE_GROUP
        stream = make(Window(keys, planned.sorting, tuple(planned.calls)), stream)
    path = ("left",) * len(windows)
    if target is None:
        target = _type_of_row(filled, row, where)
    built = Build(target, _fields(target, filled, row, (*path, *source.path), where))
    return cast("ZSet[R]", make(Map(built), stream))


@dataclass(frozen=True)
class _Over:
    """The partitions and the order of a function."""

    keys: tuple[Expr, ...]
    sorting: tuple[Sorting, ...]


def _over(f: WindowFunction[Any], by: Any, order: Any, row: RowType) -> _Over:
    """The partitions and order of a function: its own, or else those given for all."""
    by, order = (of_all if own is ... else own for own, of_all in ((f.by, by), (f.order, order)))
    keys = () if by is None else key_of(by, row, "`by` of window").parts
    return _Over(keys, sorting_of(order, row, "`order` of window"))


def _within(e: Expr, windows: int) -> Expr:
    """The expression, over rows that this number of windows has wrapped in pairs."""
    for _ in range(windows):
        e = e.under("left")
    return e


ARGUMENTS = {"partition_by": "by", "partitionBy": "by", "order_by": "order", "orderBy": "order"}


def _by_field(
    fields: Any, functions: Mapping[str, Any], target: Struct | None, where: str
) -> dict[str, Any]:
    """The requested functions, by the field that each fills."""
    for n in functions:
        if n in ARGUMENTS and (target is None or n not in dict(target.fields)):
            named = "" if target is None else f", and {target} has no field of that name"
            raise CompileError(
                f"{where}: {n}= is not an argument{named}; write "
                f"{ARGUMENTS[n]}=, as in by=lambda row: row.x, order=lambda row: row.y"
            )
    if fields is not None and not isinstance(fields, Mapping):
        raise CompileError(
            f"{where}: fields={fields!r}: expected functions by the names of the fields that they "
            "fill; write fields={'n': st.win.row_number()}"
        )
    by_field = {**(fields or {}), **functions}
    twice = [n for n in functions if n in (fields or {})]
    if twice:
        raise CompileError(
            f"{where}: {twice[0]!r} is in fields= and is an argument too; leave one out"
        )
    for n, f in by_field.items():
        call = call_of(f, win, "st.win")
        if call is not None:
            raise CompileError(f"{where}: {n}= is a function that is not called; write {n}={call}")
        if isinstance(f, Aggregate):
            raise CompileError(f"{where}: {n}= is st.agg.{f.kind}(…), {_instead(n, f.kind)}")
        if not _is_function(f) and not callable(f):
            raise CompileError(
                f"{where}: {n}={f!r}: expected a window function, such as st.win.row_number(), or "
                "a function of the row"
            )
    if not any(map(_is_function, by_field.values())):
        raise CompileError(
            f"{where}: no window function is asked for; write n=st.win.row_number(), or use st.map"
        )
    return by_field


def _instead(name: str, kind: str) -> str:
    """What to write instead of an aggregate of groups."""
    if kind in win.__all__:
        return f"which is of a group of st.aggregate; write {name}=st.win.{kind}(…)"
    return (
        f"and st.agg.{kind} has no frames: for the whole partition, join the rows with "
        "st.aggregate(rows, by=…, into=…)"
    )


def _is_function(f: object) -> bool:
    return isinstance(f, WindowFunction)


def _is_of_two(f: object) -> bool:
    return isinstance(f, WindowFunction) and f.other is not None


def _value(f: Any, row: RowType) -> Expr | None:
    """The argument of a window function, or the expression for a field; None if there is none."""
    if isinstance(f, WindowFunction):
        return None if f.f is None else row_expr(f.f, row)
    return row_expr(f, row)


# -- the input rows of the window


@dataclass(frozen=True)
class Prepared:
    """A stream of the original rows, paired with precomputed values that SQL cannot express."""

    stream: Any
    fields: Mapping[Expr, Expr]
    path: tuple[str, ...]  # of the original row

    def moved(self, e: Expr) -> Expr:
        """The expression over the original row, rewritten for rows of the stream."""
        if e in self.fields:
            return self.fields[e]
        for side in self.path:
            e = e.under(side)
        return e


def prepared(a: Any, row: RowType, used: Iterable[Expr], row_values: Iterable[Expr]) -> Prepared:
    """Pair the rows with values computed first: those SQL cannot express, and `row_values`."""
    calls = [e for e in dict.fromkeys(used) if isinstance(e, PythonCall)]
    first = Prepared(a, {}, ())
    if calls:
        t = tuple_of(c.type for c in calls)
        function = Together(tuple(c.function for c in calls))
        called = PythonCall(t, function, ", ".join(map(str, calls)))
        first = Prepared(make(Map(beside(called, row)), a), _fields_of_struct(calls), ("left",))
        row = pair_of(row, t)
    others = [e for e in used if not e.in_sql] + [e for e in row_values if not isinstance(e, Field)]
    computed = [e for e in dict.fromkeys(others) if e not in first.fields]
    if not computed:
        return first
    t = tuple_of(e.type for e in computed)
    parts = tuple(map(first.moved, computed))
    stream = make(Map(Build(pair_of(row, t), (whole(row), Build(t, parts)))), first.stream)
    fields = {e: x.under("left") for e, x in first.fields.items()}
    return Prepared(stream, fields | _fields_of_struct(computed), (*first.path, "left"))


def _fields_of_struct(exprs: Sequence[Expr]) -> dict[Expr, Expr]:
    return {e: Field(e.type, ("right", f"_{i}")) for i, e in enumerate(exprs, 1)}


# -- the computed results


@dataclass
class _Planned:
    """The distinct functions of one window, and the fields made from their results."""

    sorting: tuple[Sorting, ...]
    where: str
    calls: list[WindowCall] = field(default_factory=list)

    def add(self, c: WindowCall) -> Field:
        """Add a function, and return the field of its result in the window's rows."""
        if c not in self.calls:
            self.calls.append(c)
        return Field(c.type, ("right", f"_{self.calls.index(c) + 1}"))

    def field_of(
        self, name: str, f: WindowFunction[Any], value: Expr | None, other: Expr | None = None
    ) -> Expr:
        """The expression for a field."""
        at = f"{self.where}: {name}"
        if type(f.n) is not int or not 1 <= f.n <= MANY:
            raise CompileError(f"{at}: n should be an int from 1 to {MANY}, found {f.n!r}")
        if f.kind in OF_ORDER and not self.sorting:
            raise CompileError(f"{at}: {f.kind} needs an order; write order=lambda row: …")
        if f.kind in ("lag", "lead"):
            assert value is not None
            return self.add(_shifted(f, value, at))
        if f.kind in OF_ORDER:
            return self.add(WindowCall(f.kind, FLOAT if f.kind in FLOATS else INT, n=f.n))
        frame = frame_of(f, self.sorting, at)
        if f.kind == "count":
            never_null = value is None or not isinstance(value.type, Optional)
            args = () if never_null or value is None else (value,)
            return self.add(WindowCall("count", INT, args, frame))
        assert value is not None
        nullable = isinstance(value.type, Optional) or not frame.has_own_row
        call = AggregateCall(name, f.kind, value, (), 1, self.where, other, f.option)
        if f.kind in ("sum", "avg"):
            return self._added_up(call, value, frame, nullable)
        if f.kind in SUMMED:
            return SUMMED[f.kind](frame.has_own_row, _Framed(self, frame), call)(("right",))
        if f.kind in ("median", "percentile"):
            check_share(f.option, at)
            summed_type(call)
            share, t = float(f.option or 0), _or_null(FLOAT, nullable)
            values = (widened(value, FLOAT),)
            return self.add(WindowCall("percentile", t, values, frame, share=share))
        t = value.type
        if nullable or (f.kind == "nth_value" and f.n > 1):
            t = Optional(unwrap(t))
        kind = "min" if f.kind == "any_value" else f.kind
        return self.add(WindowCall(kind, t, (value,), frame, f.n, f.ignore_nulls))

    def _added_up(self, call: AggregateCall, value: Expr, frame: Frame, nullable: bool) -> Expr:
        t = summed_type(call)
        if call.kind == "sum":
            return self.add(WindowCall("sum", _or_null(t, nullable), (value,), frame))
        quotient_type = mean_type(call) if t.name == "Decimal" else FLOAT
        if t == INT:
            t, value = BIG_INT, widened(value, BIG_INT)
        total = self.add(WindowCall("sum", _or_null(t, nullable), (value,), frame))
        counted = (value,) if isinstance(value.type, Optional) else ()
        n = self.add(WindowCall("count", INT, counted, frame))
        return Mean(_or_null(quotient_type, nullable), (total, n))


@dataclass
class _Framed:
    """The sums of an aggregate, as sums over a frame; a sum without values is 0."""

    planned: _Planned
    frame: Frame

    def arg(self, e: Expr) -> Expr:
        """An argument, unchanged."""
        return e

    def leaf(self, e: Expr) -> int:
        """Add a sum, and return its number among the functions of the window."""
        field = self.planned.add(WindowCall("sum", unwrap(e.type), (e,), self.frame))
        return int(field.path[-1].removeprefix("_"))


def _or_null(t: RowType, nullable: bool) -> RowType:
    return Optional(t) if nullable else t


def _shifted(f: WindowFunction[Any], value: Expr, at: str) -> WindowCall:
    t = value.type
    if f.default is None:
        return WindowCall(f.kind, Optional(unwrap(t)), (value,), None, f.n, f.ignore_nulls)
    bare = unwrap(t)
    try:
        bare.encode(f.default, f"{at}: default")
    except InputError as e:
        raise CompileError(str(e)) from None
    default = Literal(bare, f.default)
    return WindowCall(f.kind, t, (value, default), None, f.n, f.ignore_nulls)


# -- the fields of the result row


def _fields(
    target: Struct, filled: dict[str, Expr], row: RowType, path: tuple[str, ...], where: str
) -> tuple[Expr, ...]:
    names = [n for n, _ in target.fields]
    unknown = [n for n in filled if n not in names]
    if unknown:
        raise CompileError(
            f"{where}: {target} has no field {unknown[0]!r}; it has {', '.join(names)}"
        )
    left = [n for n in names if n not in filled]
    values = filled | _of_row(target, left, row, path, where)
    return tuple(coerced(values[n], t, n, where) for n, t in target.fields)


def _type_of_row(filled: dict[str, Expr], row: RowType, where: str) -> Struct:
    """The type of rows that have the fields of the row and the functions, without a class."""
    if not isinstance(row, Struct) or row.python is tuple:
        raise CompileError(f"{where}: a row that is {row} has no names of fields; give into=")
    fields = [(n, t) for n, t in row.fields if n not in filled]
    return open_row([*fields, *((n, e.type) for n, e in filled.items())])


def _of_row(
    target: Struct, left: list[str], row: RowType, path: tuple[str, ...], where: str
) -> dict[str, Expr]:
    """The fields filled from the row: by name, or for a tuple in order."""
    if not isinstance(row, Struct):
        parts = [("row", Field(row, path))]
    else:
        parts = [(n, Field(t, (*path, n))) for n, t in row.fields]
    if (not isinstance(row, Struct) or row.python is tuple) and len(left) == len(parts):
        return dict(zip(left, (e for _, e in parts), strict=True))
    named = dict(parts)
    missing = [n for n in left if n not in named]
    if missing:
        raise CompileError(
            f"{where}: nothing fills {', '.join(missing)} of {target} (the row has "
            f"{', '.join(named)}); say each by a window function, {missing[0]}=st.win.…, or by a "
            f"function of the row, {missing[0]}=lambda row: …"
        )
    return {n: named[n] for n in left}


A = TypeVar("A")


def sessions(
    a: ZSet[T],
    *,
    by: KeyFunction[T] | None = None,
    at: Index[T, A] | Callable[[T], A],
    gap: Any,
) -> ZSet[Session[T, A]]:
    """Each row of a value, with the start and the end of its session. Keeps no state.

    See `st.sessions`, the incremental form.
    """
    row = row_of(a, "sessions")
    where = f"{user_line()}: sessions"
    keys = () if by is None else key_of(by, row, "`by` of sessions").parts
    time = key_of(at, row, "`at` of sessions")
    if len(time.parts) != 1:
        raise CompileError(f"{where}: at: expected one value, found {len(time.parts)}")
    (when,) = time.parts
    width = _width(gap, when.type, where)
    source = prepared(a, row, (*keys, when), ())
    moved = source.moved(when)
    rows = source.stream
    if isinstance(when.type, Optional):
        rows = make(Filter(Call(BOOL, "isNotNull", (moved,))), rows)
        moved = Call(unwrap(when.type), "known", (moved,))
    calls = tuple(WindowCall(k, moved.type, gap=width) for k in ("session_start", "session_end"))
    key: tuple[Expr, ...] = tuple(map(source.moved, keys)) or ONE_GROUP
    windowed = make(Window(key, (Sorting(moved, True, True),), calls), rows)
    edges = (Field(moved.type, ("right", f"_{i}")) for i in (1, 2))
    built = Build(session_of(row, moved.type), (Field(row, ("left", *source.path)), *edges))
    return cast("ZSet[Session[T, A]]", make(Map(built), windowed))


def _width(gap: Any, t: RowType, where: str) -> Any:
    """The gap, in the form that is added to times."""
    kind = offset_type(t)
    if kind is None or kind == FLOAT:
        raise CompileError(
            f"{where}: at gives {t}, which has no distances to compare with a gap; these have: "
            "int, date, datetime, st.LocalDateTime, timedelta, and a Decimal of less than 38 digits"
        )
    place = f"{where}: gap={gap!r}"
    try:
        width = kind.encode(in_days(gap, t), place)
    except InputError as e:
        raise CompileError(f"{e}; at gives {t}") from None
    if width < type(width)(0):
        raise CompileError(
            f"{place}: expected the largest gap between two rows of a session, zero or more, "
            f"found {gap}"
        )
    return width
