"""Window functions on the driver, over rows sorted by partition and order.

The rows of a frame are contiguous, so a frame is a pair of positions. Counts and sums over a frame
are differences of prefix sums; its least value is looked up in the least values of runs of 1, 2,
4 … rows. All partitions are computed at once.
"""

from __future__ import annotations

import bisect
import decimal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from stepping_spark.base.errors import StepError
from stepping_spark.circuit.physical import Frame, Sorting, WindowCall, unit_of
from stepping_spark.execution.arrow.groups import beginnings, by_numbers, positions, ranks
from stepping_spark.expressions.lists import at_share
from stepping_spark.relations.arrow import Array
from stepping_spark.relations.hashing import Numbers
from stepping_spark.relations.sums.floats import rounding_error, split, total
from stepping_spark.relations.sums.sql import DECIMALS, SMALLER
from stepping_spark.rows.atoms import INT_MAX, INT_MIN, REST, Atom
from stepping_spark.rows.types import Optional, unwrap

FrameBounds: TypeAlias = tuple[Numbers, Numbers]  # the first positions of frames, and their ends


def whole_sums(values: Any, t: Atom, start: Numbers, end: Numbers) -> Any:
    """The sums of frames of ints, or of Decimals in units of the last digit, as exact ints."""
    if pa.types.is_decimal(values.type):
        with decimal.localcontext(decimal.Context(prec=100)):
            units = [int((v or decimal.Decimal(0)).scaleb(t.scale)) for v in values.to_pylist()]
        return _differences(units, start, end)
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    largest = max(abs(int(numbers.max(initial=0))), abs(int(numbers.min(initial=0))))
    if largest * max(len(numbers), 1) <= INT_MAX:
        so_far = np.append(0, np.cumsum(numbers))
        return so_far[end] - so_far[start]
    return _differences(numbers.tolist(), start, end)


def _differences(units: Sequence[int], start: Numbers, end: Numbers) -> Any:
    so_far = np.empty(len(units) + 1, object)
    so_far[0] = 0
    so_far[1:] = list(_so_far(units))
    return so_far[end] - so_far[start]


def _so_far(units: Sequence[int]) -> Any:
    summed = 0
    for n in units:
        summed += n
        yield summed


def check_fits(sums: Any, least: int, most: int, t: Atom, remedy: str) -> None:
    """Raise `StepError` if a sum is beyond its type."""
    beyond = [n for n in (sums.max(initial=0), sums.min(initial=0)) if not least <= n <= most]
    if beyond:
        raise StepError(f"the sum {beyond[0]} over a frame is beyond {t}; {remedy}")


def float_sums(
    values: Any, t: Atom, frames: FrameBounds, carried: Mapping[int, int], none: Any
) -> Array:
    """The exact sums of frames of floats, each rounded once; they use prefix sums of each bin."""
    limbs: dict[int, list[int]] = {}
    for i, v in enumerate(values.to_pylist()):
        if v is not None:
            bin_, limb = split(v)
            limbs.setdefault(bin_, [0] * len(values))[i] = limb
    sums = {
        bin_: (_differences(units, *frames) + carried.get(bin_, 0)).tolist()
        for bin_, units in limbs.items()
    }
    sums |= {b: [n] * len(values) for b, n in carried.items() if b not in sums}
    sum_of: dict[tuple[int, ...], float] = {}
    totals = np.zeros(len(values))
    shown = rounding_error if t == REST else total
    for i, parts in enumerate(zip(*sums.values(), strict=True)):
        if parts not in sum_of:
            sum_of[parts] = shown(dict(zip(sums, parts, strict=True)))
        totals[i] = sum_of[parts]
    return pa.array(totals, mask=none)


pc: Any = pyarrow.compute


@dataclass
class Partitions:
    """Rows sorted by partition and order: the number of each row's partition, and its sort values.

    A row of weight 2 occurs twice.
    """

    ids: Numbers
    sorting: tuple[Sorting, ...]
    sorted_by: Sequence[Array]
    carried: Mapping[WindowCall, Any] = field(default_factory=dict)  # see `window_delta`
    frames: dict[Frame, FrameBounds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.size = len(self.ids)
        self.at = np.arange(self.size)
        begins = beginnings([self.ids])
        self.number = np.cumsum(begins) - 1
        self.start, self.end = _runs(begins)
        order = (r for column in self.sorted_by for r in ranks(column))
        self.peer_begins = beginnings([self.ids, *order])
        self.peer_start, self.peer_end = _runs(self.peer_begins)

    def bounds(self, frame: Frame) -> FrameBounds:
        """The first position and the end of the frame of each row."""
        if frame not in self.frames:
            if frame.rows:
                span = self._by_rows(frame)
            elif frame.by_value:
                span = self._by_value(frame)
            else:
                start = self.start if frame.start is None else self.peer_start
                span = start, self.end if frame.end is None else self.peer_end
            start, end = span
            self.frames[frame] = start, np.maximum(start, end)
        return self.frames[frame]

    def _by_rows(self, frame: Frame) -> FrameBounds:
        start, end = self.start, self.end
        if frame.start is not None:
            start = np.clip(self.at + _within(frame.start, self.size), self.start, self.end)
        if frame.end is not None:
            end = np.clip(self.at + 1 + _within(frame.end, self.size), self.start, self.end)
        return start, end

    def _by_value(self, frame: Frame) -> FrameBounds:
        """The bounds of a frame by value, by bisection among the sort values of partitions."""
        (by,), (column,) = self.sorting, self.sorted_by
        valid = np.asarray(column.is_valid())
        values = _numbers(column, by)
        own: list[Any] = [values]
        for bound in (frame.start, frame.end):
            offset = 0 if bound is None else unit_of(bound)
            own.append(_moved(values, offset if by.ascending else -offset))
        every, codes = np.unique(np.concatenate(own), return_inverse=True)
        most = len(every) + 1
        codes = codes.reshape(3, self.size)
        codes = codes + 1 if by.ascending else most - 1 - codes
        codes = np.where(valid, codes, 0 if by.nulls_first else most)
        own_codes, from_, to = codes + self.number * (most + 1)
        start = self.start if frame.start is None else np.searchsorted(own_codes, from_, "left")
        end = self.end if frame.end is None else np.searchsorted(own_codes, to, "right")
        return start, end


def _within(rows: int, size: int) -> int:
    return max(-size - 1, min(size + 1, rows))


def _runs(begins: Any) -> FrameBounds:
    """The first position and the end of each row's run; `begins` marks first rows of runs."""
    starts = np.flatnonzero(begins)
    run = np.cumsum(begins) - 1
    return starts[run], np.append(starts[1:], len(begins))[run]


def _numbers(column: Any, by: Sorting) -> Any:
    """The values of an order as numbers, to which offsets can be added; NULL becomes 0."""
    if pa.types.is_floating(column.type):
        return np.asarray(column.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)
    if pa.types.is_decimal(column.type):
        fractions = [Fraction(v or 0) for v in column.to_pylist()]
        return np.array([*fractions, None], object)[:-1]
    days = pa.types.is_date32(column.type)
    whole = column.cast(pa.int32()).cast(pa.int64()) if days else column.cast(pa.int64())
    return np.asarray(whole.fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _moved(values: Any, offset: Any) -> Any:
    """The sums of values and an offset, also beyond 64 bits."""
    if values.dtype == np.int64 and len(values):
        largest = max(abs(int(values.max())), abs(int(values.min())))
        if largest + abs(offset) > INT_MAX:
            return np.array([*(int(v) + offset for v in values), None], object)[:-1]
    return values + offset


def column_of(call: WindowCall, at: Partitions, args: Sequence[Array]) -> Array:
    """The result of a window function for each row."""
    return _KINDS[call.kind](call, at, args)


def _ints(values: Any) -> Array:
    return pa.array(np.asarray(values, np.int64))


def _row_number(call: WindowCall, at: Partitions, args: Sequence[Array]) -> Array:
    return _ints(at.at - at.start + 1 + at.carried.get(call, 0))


def _rank(call: WindowCall, at: Partitions, args: Sequence[Array]) -> Array:
    return _ints(at.peer_start - at.start + 1 + at.carried.get(call, 0))


def _dense_rank(call: WindowCall, at: Partitions, args: Sequence[Array]) -> Array:
    peers = np.cumsum(at.peer_begins)
    return _ints(peers - peers[at.start] + 1)


def _percent_rank(call: WindowCall, at: Partitions, args: Sequence[Array]) -> Array:
    others = at.end - at.start - 1
    shares: Array = pa.array((at.peer_start - at.start) / np.maximum(others, 1))
    return shares


def _cume_dist(call: WindowCall, at: Partitions, args: Sequence[Array]) -> Array:
    return pa.array((at.peer_end - at.start) / (at.end - at.start))


def _ntile(call: WindowCall, at: Partitions, args: Sequence[Array]) -> Array:
    """The number of each row's tile; the first tiles have one row more if the sizes differ."""
    rows, before = at.end - at.start, at.at - at.start
    each, longer = np.divmod(rows, call.n)
    in_longer = longer * (each + 1)
    late = longer + (before - in_longer) // np.maximum(each, 1)
    return _ints(np.where(before < in_longer, before // (each + 1), late) + 1)


def _shifted(call: WindowCall, at: Partitions, args: Sequence[Array]) -> Array:
    """The value `n` rows, or `n` known values, before or after each row."""
    values = args[0]
    n = _within(call.n, at.size)
    if call.ignore_nulls:
        valid, before = _valid_positions(values)
        places = (
            before - n if call.kind == "lag" else before + np.asarray(values.is_valid()) + n - 1
        )
        first, last = before[at.start], np.append(before, len(valid))[at.end]
        in_reach = (places >= first) & (places < last)
        taken = np.append(valid, 0)[np.where(in_reach, places, len(valid))]
    else:
        taken = at.at - n if call.kind == "lag" else at.at + n
        in_reach = (taken >= at.start) & (taken < at.end)
    picked: Array = values.take(positions(np.where(in_reach, taken, 0), mask=~in_reach))
    if len(args) > 1:
        picked = pc.if_else(pa.array(in_reach), picked, args[1])
    return picked


def _valid_positions(values: Any) -> tuple[Numbers, Numbers]:
    """The positions of the known values, and the number of known values before each row."""
    valid = np.asarray(values.is_valid())
    return np.flatnonzero(valid), np.cumsum(valid) - valid


def _picked(call: WindowCall, at: Partitions, args: Sequence[Array]) -> Array:
    """The first, n-th or last value of the frame."""
    (values,) = args
    assert call.frame is not None
    start, end = at.bounds(call.frame)
    kept = at.at
    if call.ignore_nulls:
        kept, before = _valid_positions(values)
        before = np.append(before, len(kept))
        start, end = before[start], before[end]
    places = end - 1 if call.kind == "last_value" else start + _within(call.n, at.size) - 1
    in_frame = (places >= start) & (places < end)
    taken = np.append(kept, 0)[np.where(in_frame, places, len(kept))]
    return values.take(positions(taken, mask=~in_frame))


def _counted(values: Array, start: Numbers, end: Numbers) -> Numbers:
    """The number of known values in each frame."""
    so_far = np.append(0, np.cumsum(np.asarray(values.is_valid())))
    return np.asarray(so_far[end] - so_far[start])


def _count(call: WindowCall, at: Partitions, args: Sequence[Array]) -> Array:
    assert call.frame is not None
    start, end = at.bounds(call.frame)
    counts = _counted(args[0], start, end) if args else end - start
    return _ints(counts + at.carried.get(call, 0))


def _extreme(call: WindowCall, at: Partitions, args: Sequence[Array]) -> Array:
    """The least or the greatest value of the frame, from two runs of 2ⁿ rows that cover it."""
    (values,) = args
    assert call.frame is not None
    start, end = at.bounds(call.frame)
    codes = _codes(values)
    if call.kind == "max":
        codes = -codes
    least = np.where(np.asarray(values.is_valid()), codes, at.size)
    extremes = np.full(at.size, at.size, np.int64)
    lengths = end - start
    run = 1
    while run <= max(lengths.max(initial=0), 1):
        at_run = np.flatnonzero((lengths >= run) & (lengths < 2 * run))
        extremes[at_run] = np.minimum(least[start[at_run]], least[end[at_run] - run])
        least = np.minimum(least[: max(len(least) - run, 0)], least[run:])
        run *= 2
    has_value = extremes != at.size
    place = np.zeros(2 * at.size + 1, np.int64)
    place[codes] = at.at
    return values.take(positions(place[np.where(has_value, extremes, 0)], mask=~has_value))


def _codes(values: Array) -> Numbers:
    """A number for each value; the greater value has the greater number."""
    at, begins = by_numbers(ranks(values))
    codes = np.empty(len(values), np.int64)
    codes[at] = np.cumsum(begins) - 1
    return codes


def _sum(call: WindowCall, at: Partitions, args: Sequence[Array]) -> Array:
    """The exact sum of the frame's known values; NULL if there are none."""
    (values,) = args
    assert call.frame is not None
    start, end = at.bounds(call.frame)
    count, carried = at.carried.get(call, (0, {}))
    none = _counted(values, start, end) + count == 0
    if not isinstance(call.type, Optional):
        none = np.zeros(at.size, np.bool_)
    t = unwrap(call.type)
    assert isinstance(t, Atom)
    if t.name == "float":
        floats: Array = float_sums(values, t, (start, end), carried, none)
        return floats
    exact = whole_sums(values, t, start, end)
    if carried:
        exact = exact.astype(object) + carried[0]
    if t.name == "int":
        check_fits(exact, INT_MIN, INT_MAX, t, DECIMALS)
        ints: Array = pa.array(exact.astype(np.int64), mask=none)
        return ints
    most = 10**t.precision - 1
    check_fits(exact, -most, most, t, SMALLER)
    with decimal.localcontext(decimal.Context(prec=100)):
        shown = [
            None if no else decimal.Decimal(n).scaleb(-t.scale)
            for n, no in zip(exact.tolist(), none, strict=True)
        ]
    return pa.array(shown, t.arrow)


def _percentile(call: WindowCall, at: Partitions, args: Sequence[Array]) -> Array:
    """The percentile of the frame's known values, which are kept sorted from row to row."""
    (values,) = args
    assert call.frame is not None
    codes, valid = _codes(values).tolist(), values.is_valid().to_pylist()
    number_of: dict[int, Any] = dict(zip(codes, values.to_pylist(), strict=True))
    picked: list[int] = []

    def number(i: int) -> float:
        value: float = number_of[picked[i]]
        return value

    first = last = 0
    percentiles: list[float | None] = []
    for start, end in zip(*(b.tolist() for b in at.bounds(call.frame)), strict=True):
        if start >= last:
            picked.clear()
            first = last = start
        for i in range(last, end):
            if valid[i]:
                bisect.insort(picked, codes[i])
        for i in range(first, start):
            if valid[i]:
                picked.pop(bisect.bisect_left(picked, codes[i]))
        first, last = start, max(last, end)
        percentiles.append(at_share(len(picked), number, call.share))
    return pa.array(percentiles, pa.float64())


def _session(call: WindowCall, at: Partitions, args: Sequence[Array]) -> Array:
    """The first or the last sort value of each row's session, the run of rows between wide gaps."""
    (by,), (column,) = at.sorting, at.sorted_by
    values = _numbers(column, by)
    begins = at.start == at.at
    begins[1:] |= values[1:] > _moved(values, unit_of(call.gap))[:-1]
    start, end = _runs(begins)
    edges = positions(start if call.kind == "session_start" else end - 1)
    result: Array = column.take(edges)
    return result


_KINDS: dict[str, Callable[[WindowCall, Partitions, Sequence[Array]], Array]] = {
    "count": _count,
    "cume_dist": _cume_dist,
    "dense_rank": _dense_rank,
    "first_value": _picked,
    "lag": _shifted,
    "last_value": _picked,
    "lead": _shifted,
    "max": _extreme,
    "min": _extreme,
    "nth_value": _picked,
    "ntile": _ntile,
    "percent_rank": _percent_rank,
    "percentile": _percentile,
    "rank": _rank,
    "row_number": _row_number,
    "session_end": _session,
    "session_start": _session,
    "sum": _sum,
}
