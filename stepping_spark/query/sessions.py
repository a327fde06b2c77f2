"""`st.linear.sessions`: rows, with the start and the end of their session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from stepping_spark.algebra.groups import ONE_GROUP
from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError, InputError
from stepping_spark.expressions.expr import Build, Call, Expr, Field
from stepping_spark.expressions.index import Index, key_of
from stepping_spark.graph.operators import Filter, Map, Window
from stepping_spark.physical import Sorting, WindowCall
from stepping_spark.physical.windows import offset_type
from stepping_spark.query.frames import in_days
from stepping_spark.query.primitives import Key
from stepping_spark.query.trace import make, row_of
from stepping_spark.query.window import prepared
from stepping_spark.rows.atoms import BOOL, FLOAT, RowType
from stepping_spark.rows.data import Session, session_of
from stepping_spark.rows.types import Optional, unwrap
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
A = TypeVar("A")


def sessions(
    a: ZSet[T],
    *,
    by: Key[T] | None = None,
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
    built = Build(session_of(row, moved.type), (Field(row, ("left", *source.own)), *edges))
    return cast("ZSet[Session[T, A]]", make(Map(built), windowed))


def _width(gap: Any, t: RowType, where: str) -> Any:
    """The gap, in the form that is added to times."""
    kind = offset_type(t)
    if kind is None or kind == FLOAT:
        raise CompileError(
            f"{where}: at gives {t}, which has no distances to compare with a gap; these have: "
            "int, date, datetime, st.LocalDateTime, timedelta, and a Decimal of less than 38 digits"
        )
    said = f"{where}: gap={gap!r}"
    try:
        found = kind.encode(in_days(gap, t), said)
    except InputError as e:
        raise CompileError(f"{e}; at gives {t}") from None
    if found < type(found)(0):
        raise CompileError(
            f"{said}: expected the largest gap between two rows of a session, zero or more, "
            f"found {gap}"
        )
    return found
