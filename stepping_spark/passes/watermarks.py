"""Lower bounds of values in future rows, derived from the watermarks of inputs.

No future row of an input with a lateness has a time before its watermark. Streams that depend on
the input inherit this bound if their operators preserve it: filters, maps that keep the column,
joins by it, windows that do not look forward. Bounds are derived, never guessed; a stream without a
derived bound has none.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stepping_spark.circuit.graph import States, Vertex
from stepping_spark.circuit.operators import (
    ALL,
    Accumulate,
    Add,
    BucketedTop,
    Collated,
    Haitch,
    InTime,
    Join,
    Map,
    Operator,
    Window,
)
from stepping_spark.circuit.physical import reach_of
from stepping_spark.expressions.expr import (
    Build,
    Call,
    Expr,
    Field,
    Opaque,
    bare,
    fields_of,
    places_in,
)
from stepping_spark.expressions.spark_to_arrow import SparkFunction
from stepping_spark.rows.atoms import DATETIME
from stepping_spark.rows.schema import VALUE, StreamType
from stepping_spark.rows.types import Struct, unwrap


@dataclass(frozen=True)
class InputWatermark:
    """The watermark of an input: its greatest time so far, minus a distance."""

    greatest: Vertex  # the feedback of the stream whose sum is the row of that time
    distance: int


@dataclass(frozen=True)
class LowerBound:
    """A value of the rows of a stream that in future changes is not before all these watermarks."""

    value: Expr
    marks: frozenset[InputWatermark]


LowerBounds: TypeAlias = tuple[LowerBound, ...]

LONGEST_UNITS = {
    unit: dt.timedelta(hours=hours)
    for unit, hours in {
        "second": 1, "minute": 1, "hour": 4, "day": 48, "week": 8 * 24, "month": 32 * 24,
        "quarter": 93 * 24, "year": 367 * 24,
    }.items()
}  # fmt: skip
"""An upper limit of the distance from a time to the beginning of its unit, with clock changes."""


class KnownBounds:
    """The bounds of the changes in a circuit, each computed once."""

    def __init__(self, loops: Mapping[Vertex, Vertex]) -> None:
        self._states = States(loops)
        self._found: dict[Vertex, LowerBounds] = {}

    def of(self, v: Vertex) -> LowerBounds:
        """The bounds of a stream of changes."""
        if v not in self._found:
            bounds = set(self._of(v))
            weaker = {b for b in bounds for x in bounds if b.value == x.value and b.marks > x.marks}
            self._found[v] = tuple(sorted(bounds - weaker, key=_in_order))
        return self._found[v]

    def _of(self, v: Vertex) -> Iterator[LowerBound]:
        op = v.operator
        if isinstance(op, InTime) and not op.late:
            greatest = v.inputs[1].inputs[0].inputs[0]  # z⁻¹(I(x))
            yield LowerBound(bare(op.at), frozenset({InputWatermark(greatest, op.lateness)}))
        elif isinstance(op, Map) and not op.carried:
            yield from _moved(self.of(v.inputs[0]), op.f)
        elif isinstance(op, Accumulate) and op.key is not None:
            for b in _kept_by(self.of(v.inputs[0]), op.key.expr):
                yield LowerBound(b.value.under("_key_"), b.marks)
        elif isinstance(op, Add):
            yield from _of_both(*map(self.of, v.inputs))
        elif isinstance(op, Join):
            yield from self._of_join(op, *v.inputs)
        elif op.keeps_rows:
            yield from self.of(v.inputs[0])
        elif isinstance(op, BucketedTop):
            yield from _of_change(op.top, v.type, self.of(v.inputs[1]))
        elif isinstance(op, Haitch):
            changes = v.inputs[1::2]
            of = [self.of(c) for c in changes]
            if isinstance(op.of, Collated):
                yield from _of_collated(op.of, [c.type for c in changes], of)
            else:
                yield from _of_change(op.of, changes[0].type, *of)

    def _of_join(self, op: Join, left: Vertex, right: Vertex) -> Iterator[LowerBound]:
        """The bounds of a side that is a change, also for equal key values of the other side."""
        sides = [("left", left, op.left.parts), ("right", right, op.right.parts)]
        for (own, stream, key), (other, _, other_key) in (sides, sides[::-1]):
            if stream in self._states:
                continue
            for b in self.of(stream):
                yield LowerBound(b.value.under(own), b.marks)
                for mine, theirs in zip(key, other_key, strict=True):
                    if bare(mine) == b.value:
                        yield LowerBound(bare(theirs.under(other)), b.marks)


def _in_order(b: LowerBound) -> tuple[str, list[str]]:
    return str(b.value), sorted(f"{m.greatest.digest} {m.distance}" for m in b.marks)


def _of_both(a: LowerBounds, b: LowerBounds) -> Iterator[LowerBound]:
    """The bounds of a sum, whose rows may come from either stream."""
    for mine in a:
        for theirs in b:
            if mine.value == theirs.value:
                yield LowerBound(mine.value, mine.marks | theirs.marks)


def _of_collated(
    op: Collated, types: Sequence[StreamType], bounds: Sequence[LowerBounds]
) -> Iterator[LowerBound]:
    """The bounds of H of several operators: the common bounds of all their pieces."""
    by_part: list[LowerBounds] = []
    for (fold, *maps), t, of in zip(op.parts, types, bounds, strict=True):
        pieces, t = tuple(_of_change(fold, t, of)), fold.type_of(t)
        for f in maps:
            assert isinstance(f, Map)
            pieces, t = tuple(_moved(pieces, f.f)), f.type_of(t)
        by_part.append(pieces)
    all_of_them = functools.reduce(lambda a, b: tuple(_of_both(a, b)), by_part)
    yield from _of_change(op.collate, t, all_of_them)


def _of_change(of: Operator, t: StreamType, bounds: LowerBounds) -> Iterator[LowerBound]:
    """The bounds of H, whose result has rows of the changed keys, including old ones."""
    if of.key_at is not None:
        (key,) = of.keyed_by(t)
        for b in _kept_by(bounds, key):
            value = b.value
            for side in of.key_at:
                value = value.under(side)
            yield LowerBound(value, b.marks)
    if of.row_at is None:
        return
    keys = {bare(e) for e in of.keyed_by(t)}
    for b in bounds:
        if is_of(b.value, keys) or _looks_back(of, b.value):
            value = b.value
            for side in of.row_at:
                value = value.under(side)
            yield LowerBound(value, b.marks)


def _looks_back(of: Operator, value: Expr) -> bool:
    """Whether a window is in the order of a value, and none of its functions looks forward."""
    if not isinstance(of, Window) or not of.sorting or bare(of.sorting[0].expr) != value:
        return False
    reach = reach_of(of.sorting, of.calls)
    if isinstance(reach, str):
        return False
    if of.sorting[0].ascending:
        return not (reach.forward or reach.far_forward)
    return not (reach.back or reach.far_back or reach.carried)


def is_of(value: Expr, keys: Iterable[Expr]) -> bool:
    """Whether a value is one of the keys, or computed from parts of them."""
    key_set = set(keys)
    if value in key_set or ALL in key_set:
        return True
    paths = [k.path for k in key_set if isinstance(k, Field)]
    fields = list(fields_of(value))
    return bool(fields) and all(any(f.path[: len(p)] == p for p in paths) for f in fields)


def _moved(bounds: LowerBounds, f: Expr) -> Iterator[LowerBound]:
    """The bounds of the results of a map."""
    for b in _kept_by(bounds, f):
        is_row = any(not field.path for field in fields_of(b.value))
        yield LowerBound(b.value.under(VALUE), b.marks) if is_row else b


def _kept_by(bounds: LowerBounds, f: Expr) -> Iterator[LowerBound]:
    """The bounds of values in the result of a function that it copies or rounds down."""
    for b in bounds:
        for place in places_in(f, b.value):
            yield LowerBound(place, b.marks)
        for e, place in _parts(f):
            yield from _rounded_down(b, e, place)


def _parts(f: Expr, *path: str) -> Iterator[tuple[Expr, Field]]:
    """The parts of a function's result, each with its place in it."""
    if isinstance(f, Call) and f.op == "known":
        f = f.args[0]
    own_type = unwrap(f.type)
    if isinstance(f, Build) and isinstance(own_type, Struct):
        for (name, _), e in zip(own_type.fields, f.fields, strict=True):
            yield from _parts(e, *path, name)
    else:
        yield f, Field(own_type, path)


def _rounded_down(b: LowerBound, e: Expr, place: Field) -> Iterator[LowerBound]:
    """The bound of a day, or of the beginning of an hour, to which a time is rounded down."""
    reading = e.reading if isinstance(e, Opaque) and e.reading is not None else e
    if not isinstance(reading, SparkFunction) or tuple(map(bare, reading.args)) != (b.value,):
        return
    if reading.name == "to_date" and b.value.type == DATETIME:
        yield LowerBound(Call(DATETIME, "day_over", (place,)), b.marks)
    elif reading.name == "date_trunc" and reading.constants[0].lower() in LONGEST_UNITS:
        longest = LONGEST_UNITS[reading.constants[0].lower()] // dt.timedelta(microseconds=1)
        yield LowerBound(
            place, frozenset(InputWatermark(m.greatest, m.distance + longest) for m in b.marks)
        )
