"""`st.linear.asof_join`: a window over the rows of both sides, in the order of time."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, cast, overload

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError, InputError
from stepping_spark.circuit.operators import Add, Filter, Map, Window
from stepping_spark.circuit.physical import Frame, Sorting, WindowCall
from stepping_spark.circuit.physical.windows import offset_type
from stepping_spark.expressions.expr import Build, Call, Expr, Field, Literal, whole
from stepping_spark.expressions.index import Key, key_of
from stepping_spark.expressions.operations import result_type
from stepping_spark.expressions.portable import choice
from stepping_spark.language.primitives import KeyFunction
from stepping_spark.language.trace import Stream, make, row_of
from stepping_spark.rows.atoms import BOOL, DATE, INT, TIMEDELTA, Atom, RowType
from stepping_spark.rows.data import Pair, pair_of
from stepping_spark.rows.types import Optional, Struct, tuple_of, unwrap
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
U = TypeVar("U")
Direction = typing.Literal["backward", "forward", "nearest"]
How = typing.Literal["inner", "left"]


@overload
def asof_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: KeyFunction[T],
    on_right: KeyFunction[U],
    at_left: KeyFunction[T],
    at_right: KeyFunction[U],
    direction: Direction = "backward",
    tolerance: Any = None,
    how: typing.Literal["inner"] = "inner",
    where: None = None,
) -> ZSet[Pair[T, U]]: ...
@overload
def asof_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: KeyFunction[T],
    on_right: KeyFunction[U],
    at_left: KeyFunction[T],
    at_right: KeyFunction[U],
    direction: Direction = "backward",
    tolerance: Any = None,
    how: typing.Literal["left"],
    where: None = None,
) -> ZSet[Pair[T, U | Any]]: ...
def asof_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: KeyFunction[T],
    on_right: KeyFunction[U],
    at_left: KeyFunction[T],
    at_right: KeyFunction[U],
    direction: Direction = "backward",
    tolerance: Any = None,
    how: How = "inner",
    where: None = None,
) -> ZSet[Any]:
    """Each row of `l` with the row of `r` nearest in time, for the values of one step.

    Keeps no state. See `st.asof_join`, the incremental form.
    """
    line = f"{user_line()}: asof_join"
    if where is not None:
        raise CompileError(
            f"{line}: where= would be a condition before or after the nearest row is found; write "
            "st.asof_join(l, st.filter(r, lambda r: …), …) for the nearest of the rows of r for "
            "which it is true (SQL's ON … AND …), or st.filter(st.asof_join(l, r, …), lambda pair: "
            "…) for a condition on what was found (SQL's WHERE)"
        )
    for name, value, choices in (("direction", direction, Direction), ("how", how, How)):
        if value not in typing.get_args(choices):
            texts = ", ".join(map(repr, typing.get_args(choices)))
            raise CompileError(f"{line}: {name}={value!r}: expected one of {texts}")
    left = _side(l, on_left, at_left, "left", line)
    right = _side(r, on_right, at_right, "right", line)
    _check_alike(left, right, line)
    if direction == "nearest" or tolerance is not None:
        option = "direction='nearest'" if direction == "nearest" else f"tolerance={tolerance!r}"
        _check_has_distances(unwrap(left.at), f"{line}: {option}")
    matches = _Joined(left, right, direction, line).matches(tolerance)
    beside = Field(Optional(unwrap(right.row)), ("right",))
    if how == "inner":
        left_row, right_row = Field(left.row, ("left",)), _not_null(beside)
        pair = Build(pair_of(left.row, right_row.type), (left_row, right_row))
        return cast("ZSet[Any]", make(Map(pair), make(Filter(_is_there(beside)), matches)))
    if not left.nullable:
        return cast("ZSet[Any]", matches)
    null = any_of(Call(BOOL, "isNull", (p,)) for p in left.nullable)
    pair = Build(
        pair_of(left.row, beside.type), (Field(left.row, ("_1",)), Literal(beside.type, None))
    )
    alone = make(Map(pair), make(Filter(null), left.rows))
    return cast("ZSet[Any]", make(Add(), matches, alone))


@dataclass(frozen=True)
class _Side:
    """The rows of one side, each as (row, key, time)."""

    row: RowType
    key: Struct
    at: RowType
    rows: Stream

    @property
    def parts(self) -> tuple[Field, ...]:
        """The parts of the key, and the time."""
        return (*(Field(t, ("_2", n)) for n, t in self.key.fields), Field(self.at, ("_3",)))

    @property
    def nullable(self) -> list[Field]:
        """The parts that may be NULL; a row with NULL in one of them matches nothing."""
        return [p for p in self.parts if isinstance(p.type, Optional)]


def _side(a: object, on: Any, at: Any, side: str, where: str) -> _Side:
    row = row_of(a, "asof_join")
    key = key_of(on, row, f"on_{side} of asof_join")
    time = _single(key_of(at, row, f"at_{side} of asof_join"), f"{where}: at_{side}")
    keys = tuple_of(p.type for p in key.parts)
    built = Build(tuple_of((row, keys, time.type)), (whole(row), Build(keys, key.parts), time))
    return _Side(row, keys, time.type, make(Map(built), a))


def _single(key: Key, where: str) -> Expr:
    if len(key.parts) != 1:
        raise CompileError(f"{where}: expected one value, found {len(key.parts)}; give the time")
    return key.parts[0]


def _check_alike(left: _Side, right: _Side, where: str) -> None:
    def bare(side: _Side) -> list[RowType]:
        return [unwrap(p.type) for p in side.parts]

    if bare(left) != bare(right):
        types = (", ".join(str(t) for t in bare(side)) for side in (left, right))
        raise CompileError(
            f"{where}: keys and times of {' and of '.join(types)}: those of both sides must be of "
            "the same types; convert one side with .cast"
        )


def _check_has_distances(at: RowType, where: str) -> None:
    numbers = isinstance(at, Atom) and at.name in ("int", "float", "Decimal")
    if not numbers and offset_type(at) is None:
        raise CompileError(
            f"{where}: times are {at}, which have no distances; these have: "
            "int, float, Decimal, date, datetime, st.LocalDateTime, timedelta; convert them, or "
            "use direction='backward' or 'forward' without a tolerance"
        )


def _is_there(e: Expr) -> Expr:
    return Call(BOOL, "isNotNull", (e,))


def _not_null(e: Expr) -> Expr:
    return Call(unwrap(e.type), "known", (e,)) if isinstance(e.type, Optional) else e


def _optional(e: Expr) -> Expr:
    return e if isinstance(e.type, Optional) else dataclasses.replace(e, type=Optional(e.type))


def any_of(conditions: Iterable[Expr]) -> Expr:
    """The condition that one of these is true."""
    return functools.reduce(lambda a, b: Call(BOOL, "|", (a, b)), conditions)


def all_of(conditions: Iterable[Expr]) -> Expr:
    """The condition that all of these are true."""
    return functools.reduce(lambda a, b: Call(BOOL, "&", (a, b)), conditions)


class _Joined:
    """The rows of both sides as one stream, in the order of time within each key.

    Its rows are (key, time, number of the side, left row, right row with its time). One of the last
    two is NULL. Among rows with the same time, the candidates come before the probing rows.
    """

    def __init__(self, left: _Side, right: _Side, direction: str, where: str) -> None:
        self.left, self.right, self.direction, self.where = left, right, direction, where
        keys = tuple(unwrap(t) for _, t in left.key.fields)
        self.at = unwrap(left.at)
        own_type, self.other = Optional(unwrap(left.row)), Optional(tuple_of((right.row, self.at)))
        self.columns = tuple_of((*keys, self.at, INT, own_type, self.other))
        self.left_number = 0 if direction == "forward" else 1
        *self.keys, self.time, self.number, self.own, self.found_row = (
            Field(t, (n,)) for n, t in self.columns.fields
        )

    def _tagged(self, side: _Side) -> Stream:
        """The rows of one side that have a key and a time."""
        rows = side.rows
        if side.nullable:
            rows = make(Filter(all_of(map(_is_there, side.nullable))), rows)
        parts = map(_not_null, side.parts)
        row = Field(side.row, ("_1",))
        if side is self.left:
            number, cells = self.left_number, (_optional(row), Literal(self.other, None))
        else:
            number = 1 - self.left_number
            with_time = Build(self.other, (row, _not_null(side.parts[-1])))
            cells = (Literal(self.own.type, None), with_time)  # type: ignore[assignment]
        return make(Map(Build(self.columns, (*parts, Literal(INT, number), *cells))), rows)

    def matches(self, tolerance: Any) -> Stream:
        """Pairs of a left row that has a key and a time, and its match or NULL."""
        both = make(Add(), self._tagged(self.left), self._tagged(self.right))
        sorting = tuple(Sorting(e, True, True) for e in (self.time, self.number))
        calls = []
        if self.direction != "forward":
            calls.append(self._call("last_value", Frame(True, None, 0)))
        if self.direction != "backward":
            calls.append(self._call("first_value", Frame(True, 0, None)))
        windowed = make(Window(tuple(self.keys), sorting, tuple(calls)), both)
        is_left = (Field(INT, ("left", *self.number.path)), Literal(INT, self.left_number))
        lefts = make(Filter(Call(BOOL, "==", is_left)), windowed)
        left_row = Field(self.own.type, ("left", *self.own.path))
        row = (
            Call(self.left.row, "known", (left_row,))
            if self.own.type != self.left.row
            else left_row
        )
        nearest = self._nearest(len(calls), tolerance)
        return make(Map(Build(pair_of(self.left.row, nearest.type), (row, nearest))), lefts)

    def _call(self, kind: str, frame: Frame) -> WindowCall:
        return WindowCall(kind, self.other, (self.found_row,), frame, ignore_nulls=True)

    def _nearest(self, candidates: int, tolerance: Any) -> Expr:
        """The nearest candidate, or NULL if it is further away than the tolerance."""
        t = Optional(unwrap(self.right.row))
        row, at = self._candidate(1)
        if candidates == 2:
            later, later_at = self._candidate(2)
            nearer = Call(BOOL, "<", (self._distance(later_at), self._distance(at)))
            takes_later = any_of((Call(BOOL, "isNull", (at,)), nearer))
            row, at = choice(takes_later, later, row), choice(takes_later, later_at, at)
        if tolerance is None:
            return row
        far = self._distance(at)
        near = Call(BOOL, "<=", (far, self._limit(tolerance, unwrap(far.type))))
        return choice(near, row, Literal(t, None))

    def _candidate(self, number: int) -> tuple[Expr, Expr]:
        at = ("right", f"_{number}")
        types = (Optional(unwrap(self.right.row)), Optional(self.at))
        return Field(types[0], (*at, "_1")), Field(types[1], (*at, "_2"))

    def _distance(self, at: Expr) -> Expr:
        """The distance of a time from the row's time."""
        own_time = Field(self.at, ("left", *self.time.path))
        pairs = ((at, own_time), (own_time, at))
        t = result_type("-", (at.type, own_time.type), f"{self.where}: the distance of times")
        after, before = (Call(t, "-", pair) for pair in pairs)
        return choice(Call(BOOL, ">=", (at, own_time)), after, before)

    def _limit(self, tolerance: Any, t: RowType) -> Literal:
        where = f"{self.where}: tolerance={tolerance!r}"
        if t == TIMEDELTA and self.at == DATE and type(tolerance) is int:
            tolerance = dt.timedelta(days=tolerance)
        try:
            t.encode(tolerance, where)
        except InputError as e:
            raise CompileError(f"{e}; times are {self.at}") from None
        if tolerance < type(tolerance)(0):
            raise CompileError(f"{where}: expected the largest distance, zero or more")
        return Literal(t, tolerance)
