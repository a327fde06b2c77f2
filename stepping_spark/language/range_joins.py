"""Range joins of points with the intervals around them, computed as joins by bands."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, cast, overload

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.operators import Filter, Join, Map, MapMany
from stepping_spark.expressions.expr import Build, Call, Expr, Field, PythonCall, tupled, whole
from stepping_spark.expressions.functions import row_expr
from stepping_spark.expressions.index import Key
from stepping_spark.expressions.operations import result_type
from stepping_spark.expressions.portable import Derived, widened
from stepping_spark.language import algebra
from stepping_spark.language.outer_joins import matching
from stepping_spark.language.primitives import (
    KeyFunction,
    filter,  # noqa: A004
)
from stepping_spark.language.trace import make, on_streams, row_of
from stepping_spark.rows.atoms import FLOAT, INT, Atom, RowType
from stepping_spark.rows.data import Pair, pair_of
from stepping_spark.rows.sql_text import all_of, closed, let_all, literal
from stepping_spark.rows.types import ListOf, unwrap
from stepping_spark.zsets.spark import ZSet

MOST_BANDS = 64  # the most bands of an interval; a wider one is compared with every point
WIDE = -(2**63) + 1  # the band of wider intervals and of every point; all others are above it
FARTHEST = 2**52  # floats beyond this band, or its negative, are put into it

MICROSECOND = dt.timedelta(microseconds=1)
_UNITS: Mapping[str, tuple[Callable[[Any], int], str]] = {
    "int": (lambda v: v, "{0}"),
    "date": (lambda v: v.toordinal() - 719163, "CAST(unix_date({0}) AS BIGINT)"),
    "datetime": (
        lambda v: (v - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // MICROSECOND,
        "unix_micros({0})",
    ),
    "LocalDateTime": (
        lambda v: (v - dt.datetime(1970, 1, 1)) // MICROSECOND,
        "unix_date(CAST({0} AS DATE)) * 86400000000L + (hour({0}) * 60L + minute({0})) * 60000000L"
        " + CAST(extract(SECOND FROM {0}) * 1000000BD AS BIGINT)",
    ),
}
BANDED = ("int", "float", "Decimal", "date", "datetime", "LocalDateTime")


@dataclass(frozen=True)
class Bands(Derived):
    """The row with the number of each of its bands: a list of Pair(left=row, right=number).

    The parts: the row; the first and the last value of an interval (a point has the same value
    twice). NULL lies in no band.
    """

    width: int | float = 1
    point: bool = False
    label: ClassVar[str] = "bands"

    def __str__(self) -> str:
        return f"bands of {self.width} of {', '.join(map(str, dict.fromkeys(self.args[1:])))}"

    @property
    def _of(self) -> Atom:
        t = unwrap(self.args[1].type)
        assert isinstance(t, Atom)
        return t

    def band(self, value: Any) -> int:
        """The number of the band of a value."""
        if self._of != FLOAT:
            return max(_UNITS[self._of.name][0](value) // int(self.width), WIDE + 1)
        quotient = value / self.width
        if quotient != quotient or quotient >= FARTHEST:
            return FARTHEST
        return -FARTHEST if quotient <= -FARTHEST else math.floor(quotient)

    def of(self, *values: Any) -> Any:
        row, low, high = values
        if low is None or high is None:
            return ()
        first, last = self.band(low), self.band(high)
        if self.point:
            numbers: tuple[int, ...] = (first, WIDE)
        elif last - first >= MOST_BANDS:
            numbers = (WIDE,)
        else:
            numbers = tuple(range(first, last + 1))
        return tuple(Pair(left=row, right=n) for n in numbers)

    def _band_sql(self, value: str) -> str:
        if self._of != FLOAT:
            unit = closed(_UNITS[self._of.name][1].format(value))
            width = f"{int(self.width)}L"
            quotient = closed(f"{unit} DIV {width} - if({unit} % {width} < 0, 1L, 0L)")
            return f"greatest({quotient}, {WIDE + 1}L)"
        share = closed(f"{value} / {literal(float(self.width), FLOAT)}")
        far = f"{FARTHEST}L"
        return (
            f"CASE WHEN isnan({share}) OR {share} >= {far} THEN {far} "
            f"WHEN {share} <= -{far} THEN -{far} ELSE floor({share}) END"
        )

    def _sql(self, row: str) -> str:
        of_row, low, high = (a.sql(row) for a in self.args)
        bands = {"first": self._band_sql(low), "last": self._band_sql(high)}
        numbers = f"array(v.first, {WIDE}L)"
        if not self.point:
            numbers = (
                f"CASE WHEN CAST(v.last AS DECIMAL(20, 0)) - v.first >= {MOST_BANDS} "
                f"THEN array({WIDE}L) "
                "WHEN v.first <= v.last THEN sequence(v.first, v.last) END"
            )
        rows = f"transform({let_all('v', bands, numbers)}, b -> {_pair(of_row)})"
        none = f"CAST(array() AS {self.type.ddl})"
        not_null = all_of([f"{low} IS NOT NULL", f"{high} IS NOT NULL"])
        return f"coalesce(if({not_null}, CAST({rows} AS {self.type.ddl}), {none}), {none})"


def _pair(row: str) -> str:
    return f"named_struct('left', {row}, 'right', b)"


def bands(row: RowType, low: Expr, high: Expr, width: int | float, *, point: bool) -> Bands:
    """The bands of a row that is an interval or a point; see `Bands`."""
    t = unwrap(low.type)
    # Casting Decimals to float keeps their order.
    if isinstance(t, Atom) and t.name == "Decimal":
        low, high = widened(low, FLOAT), widened(high, FLOAT)
    return Bands(ListOf(pair_of(row, INT)), (whole(row), low, high), width, point)


T = TypeVar("T")
U = TypeVar("U")
Width = int | float | dt.timedelta
IntervalEnds = Literal["[]", "[)", "(]", "()"]


@overload
def range_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    at: Callable[[T], Any],
    low: Callable[[U], Any],
    high: Callable[[U], Any],
    width: Width,
    bounds: IntervalEnds = "[]",
    on_left: KeyFunction[T] | None = None,
    on_right: KeyFunction[U] | None = None,
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
    bounds: IntervalEnds = "[]",
    on_left: KeyFunction[T] | None = None,
    on_right: KeyFunction[U] | None = None,
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
    bounds: IntervalEnds = "[]",
    on_left: KeyFunction[T] | None = None,
    on_right: KeyFunction[U] | None = None,
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
    return cast("ZSet[Any]", on_streams(algebra.left_completed)(l, r, pairs, name=name))


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
        longer_keys = [_longer(tuple(e.under("left") for e in parts)) for parts in keys]
        first, last = ("<=" if b in "[]" else "<" for b in bounds)
        inside = _and(
            _compared(first, low.under("right"), at.under("left"), where),
            _compared(last, at.under("left"), high.under("right"), where),
        )
        return cls(points, intervals, (longer_keys[0], longer_keys[1]), rows, inside)

    def pairs(self, joined: object) -> ZSet[Any]:
        """The pairs whose point lies in the interval, of the pairs that share a band."""
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
    return Key(tupled(*every), (True,) * len(every))


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
        text = ", ".join(f"{e} of type {e.type}" for e in values)
        raise CompileError(f"{where}: at, low and high are of one type, found {text}")
    if bounds not in ("[]", "[)", "(]", "()"):
        raise CompileError(f"{where}: bounds={bounds!r}; it is '[]', '[)', '(]' or '()'")
    if how not in ("inner", "left"):
        raise CompileError(f"{where}: how={how!r}; it is 'inner' or 'left'")


def _units(where: str, width: Width, t: RowType) -> int | float:
    """The width of a band in the units of a type: microseconds for times, days for dates."""
    assert isinstance(t, Atom)
    of_times = t.name in ("date", "datetime", "LocalDateTime")
    units: float = 0
    if isinstance(width, dt.timedelta) and of_times:
        units = width.days if t.name == "date" else width // MICROSECOND
    elif type(width) in (int, float) and not of_times:
        units = cast(float, width) if t.name in ("float", "Decimal") else int(cast(float, width))
    if not 0 < units < 2**62:
        kind = "a timedelta" if of_times else "a number"
        raise CompileError(
            f"{where}: width={width!r}: the width of a band of {t} is {kind} greater than zero; "
            "about the length of an interval is good"
        )
    return units


def _compared(op: str, a: Expr, b: Expr, where: str) -> Expr:
    return Call(result_type(op, (a.type, b.type), where), op, (a, b))


def _and(a: Expr, b: Expr) -> Expr:
    return Call(result_type("&", (a.type, b.type), ""), "&", (a, b))
