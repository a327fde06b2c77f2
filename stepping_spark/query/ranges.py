"""Range joins of points with the intervals around them, computed as joins by bands."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast, overload

from stepping_spark.algebra import joins
from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.expressions.bands import BANDED, MICROSECOND, bands
from stepping_spark.expressions.expr import Build, Call, Expr, Field, PythonCall
from stepping_spark.expressions.functions import row_expr
from stepping_spark.expressions.index import Key
from stepping_spark.expressions.operations import result_type
from stepping_spark.graph.operators import Filter, Join, Map, MapMany
from stepping_spark.query.outer_joins import matching
from stepping_spark.query.primitives import Key as By
from stepping_spark.query.primitives import filter  # noqa: A004
from stepping_spark.query.trace import make, on_streams, row_of
from stepping_spark.rows.atoms import INT, Atom, RowType
from stepping_spark.rows.data import Pair, pair_of
from stepping_spark.rows.types import tuple_of, unwrap
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
U = TypeVar("U")
Width = int | float | dt.timedelta
Bounds = Literal["[]", "[)", "(]", "()"]


@overload
def range_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    at: Callable[[T], Any],
    low: Callable[[U], Any],
    high: Callable[[U], Any],
    width: Width,
    bounds: Bounds = "[]",
    on_left: By[T] | None = None,
    on_right: By[U] | None = None,
    how: Literal["inner"] = "inner",
    where: Callable[[Pair[T, U]], object] | None = None,
    name: str | None = None,
) -> ZSet[Pair[T, U]]: ...
@overload
def range_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    at: Callable[[T], Any],
    low: Callable[[U], Any],
    high: Callable[[U], Any],
    width: Width,
    bounds: Bounds = "[]",
    on_left: By[T] | None = None,
    on_right: By[U] | None = None,
    how: Literal["left"],
    where: Callable[[Pair[T, U]], object] | None = None,
    name: str | None = None,
) -> ZSet[Pair[T, U | Any]]: ...
def range_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    at: Callable[[T], Any],
    low: Callable[[U], Any],
    high: Callable[[U], Any],
    width: Width,
    bounds: Bounds = "[]",
    on_left: By[T] | None = None,
    on_right: By[U] | None = None,
    how: Literal["inner", "left"] = "inner",
    where: Callable[[Pair[T, U]], object] | None = None,
    name: str | None = None,
) -> ZSet[Any]:
    """l JOIN r ON at BETWEEN low AND high, of the values of one step.

    See `st.range_join`. Keeps no state.
    """
    banded = Banded.of(l, r, (at, low, high), width, bounds, (on_left, on_right), how)
    pairs = banded.pairs(make(Join(*banded.keys), banded.points, banded.intervals))
    if where is not None:
        pairs = filter(pairs, where)
    if how == "inner":
        return pairs
    return cast("ZSet[Any]", on_streams(joins.left_completed)(l, r, pairs, name=name))


@dataclass(frozen=True)
class Banded:
    """The two sides of a range join, each row paired with the number of a band."""

    points: Any
    intervals: Any
    keys: tuple[Key, Key]
    rows: tuple[RowType, RowType]
    inside: Expr  # the condition, over pairs of rows

    @classmethod
    def of(
        cls,
        l: object,  # noqa: E741
        r: object,
        functions: tuple[Callable[[Any], Any], ...],
        width: Width,
        bounds: str,
        on: tuple[Any, Any],
        how: str,
    ) -> Banded:
        """The sides of a range join. Raises `CompileError` for types without bands."""
        where = f"{user_line()}: range_join"
        rows = row_of(l, "range_join"), row_of(r, "range_join")
        at, low, high = (
            row_expr(f, row) for f, row in zip(functions, (rows[0], rows[1], rows[1]), strict=True)
        )
        _check(where, (at, low, high), bounds, how)
        units = _units(where, width, unwrap(at.type))
        points = make(MapMany(bands(rows[0], at, at, units, point=True)), l)
        intervals = make(MapMany(bands(rows[1], low, high, units, point=False)), r)
        keys = ((), ()) if on == (None, None) else _keys(where, l, r, on)
        made = [_longer(tuple(e.under("left") for e in parts)) for parts in keys]
        first, last = ("<=" if b in "[]" else "<" for b in bounds)
        inside = _both(
            _compared(first, low.under("right"), at.under("left"), where),
            _compared(last, at.under("left"), high.under("right"), where),
        )
        return cls(points, intervals, (made[0], made[1]), rows, inside)

    def pairs(self, joined: object) -> ZSet[Any]:
        """Of the pairs that share a band, those whose point lies in the interval."""
        left, right = self.rows
        cells = (Field(left, ("left", "left")), Field(right, ("right", "left")))
        pairs = make(Map(Build(pair_of(left, right), cells)), joined)
        return cast("ZSet[Any]", make(Filter(self.inside), pairs))


def _keys(where: str, l: object, r: object, on: tuple[Any, Any]) -> Any:  # noqa: E741
    if None in on:
        raise CompileError(f"{where}: on_left and on_right come together; give both, or none")
    left, right = matching(l, r, *on, "range_join")["on"]
    return left.parts, right.parts


def _longer(parts: tuple[Expr, ...]) -> Key:
    """The key of a row paired with its band: its own key, and the number of the band."""
    every = (*parts, Field(INT, ("right",)))
    return Key(Build(tuple_of(e.type for e in every), every), (True,) * len(every))


def _check(where: str, values: tuple[Expr, ...], bounds: str, how: str) -> None:
    kinds = set()
    for e in values:
        t = unwrap(e.type)
        if isinstance(e, PythonCall) or not isinstance(t, Atom) or t.name not in BANDED:
            raise CompileError(
                f"{where}: at, low and high are fields, or operators on them, of type "
                f"{', '.join(BANDED)}; found {e} of type {e.type}"
            )
        kinds.add(t.name)
    if len(kinds) > 1:
        shown = ", ".join(f"{e} of type {e.type}" for e in values)
        raise CompileError(f"{where}: at, low and high are of one type, found {shown}")
    if bounds not in ("[]", "[)", "(]", "()"):
        raise CompileError(f"{where}: bounds={bounds!r}; it is '[]', '[)', '(]' or '()'")
    if how not in ("inner", "left"):
        raise CompileError(f"{where}: how={how!r}; it is 'inner' or 'left'")


def _units(where: str, width: Width, t: RowType) -> int | float:
    """The width of a band in the units of a type: microseconds for times, days for dates."""
    assert isinstance(t, Atom)
    of_times = t.name in ("date", "datetime", "LocalDateTime")
    found: float = 0
    if isinstance(width, dt.timedelta) and of_times:
        found = width.days if t.name == "date" else width // MICROSECOND
    elif type(width) in (int, float) and not of_times:
        found = cast(float, width) if t.name in ("float", "Decimal") else int(cast(float, width))
    if not 0 < found < 2**62:
        kind = "a timedelta" if of_times else "a number"
        raise CompileError(
            f"{where}: width={width!r}: the width of a band of {t} is {kind} greater than zero; "
            "about the length of an interval is good"
        )
    return found


def _compared(op: str, a: Expr, b: Expr, where: str) -> Expr:
    return Call(result_type(op, (a.type, b.type), where), op, (a, b))


def _both(a: Expr, b: Expr) -> Expr:
    return Call(result_type("&", (a.type, b.type), ""), "&", (a, b))
