"""How far window functions look: the rows of a partition that a change can affect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from stepping_spark.expressions.expr import Expr
from stepping_spark.physical.windows import Frame, Sorting, WindowCall
from stepping_spark.rows.atoms import Atom
from stepping_spark.rows.types import unwrap

Calls: TypeAlias = tuple[WindowCall, ...]

WHOLE_NUMBERS = ("int", "date", "datetime", "LocalDateTime", "timedelta")


@dataclass(frozen=True)
class Reach:
    """How far the functions of a window look back and forward: so many rows, and so far in value.

    A row sees a change that its functions look forward to; all that it is given depends on what
    they look back to. `carried` are functions over all rows before. They count or add them up, so
    that of the rows further back only the count, or the sum, is needed.
    """

    back: int
    forward: int
    far_back: Any  # 0, or of the type that is added to values of the order
    far_forward: Any
    carried: tuple[WindowCall, ...]


@dataclass(frozen=True)
class Runs:
    """A change matters to the runs of rows that it is in, each at most `gap` from the next."""

    gap: Any


@dataclass(frozen=True)
class Nearest:
    """A change matters to the rows around it, up to the next on each side that has the value.

    Functions find the nearest row before or after that has it: this is what as-of joins do.
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
    """The order by which a change matters to a part of a partition only; None: to all of it."""
    if nearby_of(sorting, calls) is None and isinstance(reach_of(sorting, calls), str):
        return None
    return sorting[0] if all(map(_is_told_apart, keys)) else None


def _is_told_apart(key: Expr) -> bool:
    """Whether Arrow's equality of its values is Spark's."""
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
    """How far functions look; or why all rows of a partition matter."""
    if not sorting:
        return "there is no order"
    t = unwrap(sorting[0].expr.type)
    if not isinstance(t, Atom) or t.name not in WHOLE_NUMBERS:
        return f"the order is by {sorting[0].expr.type}"
    looks: list[_Look] = []
    for c in calls:
        found = _look(c)
        if found is None:
            return f"of {c}"
        looks.append(found)
    carried = tuple(c for c, x in zip(calls, looks, strict=True) if x.is_carried)

    def furthest(side: str, far: bool) -> Any:
        found = (getattr(x, side) for x in looks if x.by_value == far)
        return max((d for d in found if d), default=0)

    back, forward = (furthest(side, False) for side in ("back", "forward"))
    far_back, far_forward = (furthest(side, True) for side in ("back", "forward"))
    return Reach(back, forward, far_back, far_forward, carried)


def _look(c: WindowCall) -> _Look | None:
    """How many rows a function looks; None: the whole partition, or as many as values decide."""
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
