"""Frames of window functions, from the user's `rows=` or `range=`."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

from stepping_spark.errors import CompileError, InputError
from stepping_spark.physical import Frame, Sorting
from stepping_spark.physical.windows import offset_type
from stepping_spark.query.aggregate import MANY
from stepping_spark.query.win import WindowFunction
from stepping_spark.rows.atoms import DATE, Atom, RowType
from stepping_spark.rows.types import unwrap


def frame_of(f: WindowFunction[Any], sorting: tuple[Sorting, ...], at: str) -> Frame:
    """The frame of a function. Raises `CompileError` if it is not valid."""
    if f.rows is not None and f.range is not None:
        raise CompileError(f"{at}: rows= and range= are two frames; leave one out")
    named, given = ("rows", f.rows) if f.rows is not None else ("range", f.range)
    if given is None:
        return Frame(False, None, 0 if sorting else None)
    said = f"{at}: {named}={given!r}"
    if not isinstance(given, tuple) or len(given) != 2:
        raise CompileError(f"{said}: expected (start, end), such as (None, 0)")
    if named == "rows":
        start, end = (_count_of_rows(b, said) for b in given)
    else:
        start, end = (_offset(b, sorting, said) for b in given)
    if start is not None and end is not None and _is_after(start, end):
        raise CompileError(f"{said}: the frame ends before it begins; write (start, end)")
    return Frame(named == "rows", start, end)


def _is_after(start: Any, end: Any) -> bool:
    zeros = [type(x)(0) for x in (start, end)]
    if type(start) is type(end):
        return bool(start > end)
    return bool(start > zeros[0]) or bool(end < zeros[1])  # one of them is 0, which fits any type


def _count_of_rows(bound: Any, said: str) -> int | None:
    if bound is not None and (type(bound) is not int or abs(bound) > MANY):
        raise CompileError(f"{said}: expected a number of rows, or None for all, found {bound!r}")
    return bound


def in_days(distance: Any, t: RowType) -> Any:
    """The distance in the form added to values of this type: for dates, a number of days."""
    is_days = isinstance(distance, dt.timedelta) and not distance % dt.timedelta(days=1)
    return distance.days if is_days and unwrap(t) == DATE else distance


def _offset(bound: Any, sorting: tuple[Sorting, ...], said: str) -> Any:
    """A distance in the order, encoded for the type of its values; 0 fits any type."""
    if bound is None or (type(bound) is int and bound == 0):
        return bound
    if len(sorting) != 1:
        raise CompileError(
            f"{said}: a distance is from one value, and the order has {len(sorting)}; order by "
            "one, or use rows="
        )
    t = sorting[0].expr.type
    kind = offset_type(t)
    if kind is None:
        remedy = "use rows="
        if isinstance(unwrap(t), Atom) and unwrap(t).name == "Decimal":  # type: ignore[attr-defined]
            remedy = "annotate the field with Annotated[Decimal, st.Precision(37, s)], or " + remedy
        raise CompileError(f"{said}: the order is by {t}, to which no distance is added; {remedy}")
    try:
        found = kind.encode(in_days(bound, t), said)
    except InputError as e:
        raise CompileError(f"{e}; the order is by {t}") from None
    if isinstance(found, float) and not math.isfinite(found):
        raise CompileError(f"{said}: expected a finite distance, or None for all")
    return found if found != type(found)(0) else 0
