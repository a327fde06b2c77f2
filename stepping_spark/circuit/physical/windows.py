"""Windows: functions of the rows around a row, and the rows that a change can affect."""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa

from stepping_spark.circuit.physical.nodes import Fold
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.index import Order
from stepping_spark.expressions.portable import one_if_known
from stepping_spark.rows.atoms import INT, MOST_DIGITS, TIMEDELTA, Atom, RowType
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import Optional, tuple_of, unwrap


@dataclass(frozen=True)
class Sorting:
    """One part of an order, with its direction and the place of NULL."""

    expr: Expr
    ascending: bool
    nulls_first: bool

    @property
    def order(self) -> Order:
        """The order in parts for which NULL comes first if and only if the part ascends."""
        own = (self.expr, self.ascending)
        if self.nulls_first == self.ascending or not isinstance(self.expr.type, Optional):
            return (own,)
        return ((one_if_known(self.expr), self.nulls_first), own)

    def __str__(self) -> str:
        direction = "" if self.ascending else " desc"
        if not isinstance(self.expr.type, Optional) or self.nulls_first == self.ascending:
            return f"{self.expr}{direction}"
        return f"{self.expr}{direction} nulls {'first' if self.nulls_first else 'last'}"


@dataclass(frozen=True)
class Frame:
    """The frame of a window function: the rows around a row. None is the end of the partition.

    With `rows`, `start` and `end` count rows from the row itself, negative ones before it.
    Otherwise they are distances from its sort value: added to it, or subtracted from it in a
    descending order. Zero then includes all rows that tie with the row.
    """

    rows: bool
    start: Any
    end: Any

    @property
    def has_own_row(self) -> bool:
        """Whether the frame always contains the row itself."""
        start, end = _sign(self.start), _sign(self.end)
        return (start is None or start <= 0) and (end is None or end >= 0)

    @property
    def by_value(self) -> bool:
        """Whether the frame depends on distances of values."""
        return not self.rows and bool(_sign(self.start) or _sign(self.end))

    def __str__(self) -> str:
        return f"{'rows' if self.rows else 'range'} {self.start} to {self.end}"


def _sign(bound: Any) -> int | None:
    if bound is None:
        return None
    zero = type(bound)(0)
    return int(bound > zero) - int(bound < zero)


def offset_type(t: RowType) -> Atom | None:
    """The type of offsets to the values of an order, for a frame; None if there are none."""
    bare = unwrap(t)
    if not isinstance(bare, Atom):
        return None
    if bare.name in ("int", "float", "timedelta"):
        return bare
    if bare.name == "Decimal" and bare.precision < MOST_DIGITS:
        return bare
    return {"date": INT, "datetime": TIMEDELTA, "LocalDateTime": TIMEDELTA}.get(bare.name)


def unit_of(bound: Any) -> Any:
    """A distance in the unit of the values: microseconds, days, or the number itself."""
    if isinstance(bound, int | float):
        return bound
    if isinstance(bound, decimal.Decimal):
        return Fraction(bound)
    return (bound.days * 86_400 + bound.seconds) * 1_000_000 + bound.microseconds


@dataclass(frozen=True)
class WindowCall:
    """A function over the rows around a row.

    `kind` is one of

        row_number rank dense_rank percent_rank cume_dist ntile   of the order alone
        lag lead                           the value `n` rows away, or else `args[1]`
        first_value nth_value last_value   a value of the frame; NULL if it has none
        count min max                      of the known values of the frame
        sum                                the same; 0 without values, if its type has no NULL
        percentile                         the value at the `share` of the way through them, sorted
        session_start session_end          the first or the last value of the order, of a run of
                                           rows that are each at most `gap` from the next; all such
                                           functions of a window have one gap
    """

    kind: str
    type: RowType
    args: tuple[Expr, ...] = ()
    frame: Frame | None = None
    n: int = 1
    ignore_nulls: bool = False
    gap: Any = None
    share: float = 0.5

    def __str__(self) -> str:
        shown = [str(a) for a in self.args] + [str(self.gap)] * (self.gap is not None)
        if self.kind in ("lag", "lead", "ntile", "nth_value"):
            shown.append(str(self.n))
        if self.kind == "percentile":
            shown.append(str(self.share))
        if self.ignore_nulls:
            shown.append("ignore nulls")
        if self.frame is not None:
            shown.append(str(self.frame))
        return f"{self.kind}({', '.join(shown)})"


@dataclass(frozen=True)
class Windowed(Fold):
    """Each row, repeated by its weight, and the results of functions: Pair(row, tuple).

    Rows of one key are a partition, in an order, then by the whole row; rows without a positive
    total weight do not count.
    """

    row: RowType
    keys: tuple[Expr, ...]
    sorting: tuple[Sorting, ...]
    calls: tuple[WindowCall, ...]

    @cached_property
    def schema(self) -> Schema:
        return Schema(windowed(self.row, self.calls).fields)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        args = (a for c in self.calls for a in c.args)
        return (*self.keys, *(s.expr for s in self.sorting), *args)

    @property
    def order(self) -> Order:
        """The order, in the form of other nodes."""
        return tuple(part for s in self.sorting for part in s.order)


def windowed(row: RowType, calls: tuple[WindowCall, ...]) -> Any:
    """The type of a row together with the results of functions."""
    return pair_of(row, tuple_of(c.type for c in calls))


Calls: TypeAlias = tuple[WindowCall, ...]

WHOLE_NUMBERS = ("int", "date", "datetime", "LocalDateTime", "timedelta")


@dataclass(frozen=True)
class Reach:
    """How far the functions of a window look back and forward, in rows and in distances.

    A change affects rows whose functions look forward to it; to compute these, the rows that they
    look back to are needed too. `carried` are functions of all previous rows: they count or add
    them up, so only the count, or the sum, of rows further back is needed.
    """

    back: int
    forward: int
    far_back: Any  # 0, or an offset to values of the order
    far_forward: Any
    carried: tuple[WindowCall, ...]


@dataclass(frozen=True)
class Runs:
    """A change affects the runs that contain it: runs of rows at most `gap` from the next."""

    gap: Any


@dataclass(frozen=True)
class Nearest:
    """A change affects the rows around it, up to the next row on each side that has the value.

    The functions find the nearest row, before or after, that has the value, as in as-of joins.
    """

    value: Expr


@dataclass(frozen=True)
class _Look:
    """How far one function looks back and forward, in rows or in distances."""

    back: Any = 0
    forward: Any = 0
    by_value: bool = False
    is_carried: bool = False


def cut_by(keys: tuple[Expr, ...], sorting: tuple[Sorting, ...], calls: Calls) -> Sorting | None:
    """The order by which a change affects only a part of a partition; None if it affects all."""
    if nearby_of(sorting, calls) is None and isinstance(reach_of(sorting, calls), str):
        return None
    return sorting[0] if all(map(_is_told_apart, keys)) else None


def _is_told_apart(key: Expr) -> bool:
    """Whether Arrow compares the values of a key as Spark does."""
    t = key.type.arrow
    return not (pa.types.is_nested(t) or pa.types.is_floating(t) or pa.types.is_duration(t))


def nearby_of(sorting: tuple[Sorting, ...], calls: tuple[WindowCall, ...]) -> Runs | Nearest | None:
    """The rows that a change can affect, if that depends on the values of the rows around it."""
    t = unwrap(sorting[0].expr.type) if sorting else None
    if not isinstance(t, Atom) or t.name not in WHOLE_NUMBERS or not sorting[0].ascending:
        return None
    gaps = {c.gap for c in calls}
    if None not in gaps:
        return Runs(*gaps)
    if all(map(_finds_nearest, calls)) and len({c.args for c in calls}) == 1:
        return Nearest(*calls[0].args)
    return None


def _finds_nearest(c: WindowCall) -> bool:
    frames = {"last_value": Frame(True, None, 0), "first_value": Frame(True, 0, None)}
    return c.ignore_nulls and c.frame == frames.get(c.kind)


def reach_of(sorting: tuple[Sorting, ...], calls: tuple[WindowCall, ...]) -> Reach | str:
    """How far functions look; or the reason why all rows of a partition are affected."""
    if not sorting:
        return "there is no order"
    t = unwrap(sorting[0].expr.type)
    if not isinstance(t, Atom) or t.name not in WHOLE_NUMBERS:
        return f"the order is by {sorting[0].expr.type}"
    looks: list[_Look] = []
    for c in calls:
        look = _look(c)
        if look is None:
            return f"of {c}"
        looks.append(look)
    carried = tuple(c for c, x in zip(calls, looks, strict=True) if x.is_carried)

    def furthest(side: str, far: bool) -> Any:
        distances = (getattr(x, side) for x in looks if x.by_value == far)
        return max((d for d in distances if d), default=0)

    back, forward = (furthest(side, False) for side in ("back", "forward"))
    far_back, far_forward = (furthest(side, True) for side in ("back", "forward"))
    return Reach(back, forward, far_back, far_forward, carried)


def _look(c: WindowCall) -> _Look | None:
    """How far a function looks; None: over the whole partition, or as far as values decide."""
    if c.kind in ("row_number", "rank"):
        return _Look(is_carried=True)
    if c.kind in ("lag", "lead") and not c.ignore_nulls:
        return _Look(back=c.n) if c.kind == "lag" else _Look(forward=c.n)
    if c.frame is None or c.frame.end is None:
        return None
    return _look_of_frame(c, c.frame)


def _look_of_frame(c: WindowCall, frame: Frame) -> _Look | None:
    start, end = frame.start, frame.end
    zero = type(end)(0)
    forward, before = max(end, zero), max(-end, zero)
    if start is not None:
        return _Look(max(-start, type(start)(0)), forward, frame.by_value)
    if c.kind in ("count", "sum"):
        return _Look(before, forward, frame.by_value, is_carried=True)
    if c.kind == "last_value" and not c.ignore_nulls:
        return _Look(before, forward, frame.by_value)
    return None
