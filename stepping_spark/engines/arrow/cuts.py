"""The rows of a partition that a change can matter to, so that no others are computed.

What functions over a window give changes for the rows from the first change on, and for as many
before it as functions look forward. Those rows need the ones that functions look back to, and of
all rows further back a count, or a sum: see `physical.reach`. Finding them takes a look at the
values of the order, which is far less than to sort the partition and to compute it twice.

Rows may come in several batches, and a row that came in one may go in another. What counts less
than once is therefore kept, with all that has its place in the order, and is added up with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from stepping_spark.engines.arrow.groups import positions
from stepping_spark.engines.arrow.kernels import Context
from stepping_spark.expressions.arrow import evaluator, values_of
from stepping_spark.expressions.expr import Call, Expr
from stepping_spark.physical import (
    Nearest,
    Reach,
    Runs,
    Sorting,
    WindowCall,
    Windowed,
    nearby_of,
    reach_of,
    unit_of,
)
from stepping_spark.relations.arrow import distinct_rows, one_array
from stepping_spark.relations.hashes import Numbers
from stepping_spark.rows.atoms import BOOL, INT_MAX, INT_MIN
from stepping_spark.rows.schema import COUNT, Schema
from stepping_spark.rows.types import unwrap
from stepping_spark.sums.floats import added, limbs_of

pc: Any = pyarrow.compute
Carried: TypeAlias = Mapping[WindowCall, Any]
Pieces: TypeAlias = Iterator[tuple[pa.Table, pa.Table, Carried]]
Cut: TypeAlias = Callable[[pa.Table, pa.Table, Context], Pieces]


def whole(state: pa.Table, change: pa.Table, run: Context) -> Pieces:
    """All rows of a state, and the change of it."""
    yield state, change, {}


def cut_of(n: Windowed, over: Schema) -> Cut:
    """What gives, for each key of a change, the rows that matter, their change, what is carried."""
    divider = _divider_of(n)
    if divider is None or not all(map(_is_told_apart, n.keys)):
        return whole
    exprs = (*n.keys, n.sorting[0].expr, *divider.reads)
    if any(evaluator(e) is None for e in exprs):
        return whole
    values, by, keys = values_of(over, exprs), n.sorting[0], len(n.keys)

    def cut(state: pa.Table, change: pa.Table, run: Context) -> Pieces:
        if state.num_rows < run.limits.cut_rows:
            yield from whole(state, change, run)
            return
        ask = run.ask
        of_change = values(change, ask)[:keys]
        touched = distinct_rows(
            pa.Table.from_arrays(of_change, names=[str(i) for i in range(keys)]), drop_nulls=False
        )
        if touched.num_rows > run.limits.cut_keys:
            yield from whole(state, change, run)
            return
        columns = values(state, ask)
        counts = np.asarray(one_array(state.column(COUNT)).to_numpy(), np.int64)
        places = _places(columns[keys], by)
        for key in touched.to_pylist():
            more = change.filter(pa.array(_have(of_change, key.values())))
            changed = _places(values(more, ask)[keys], by)
            mine = np.flatnonzero(_have(columns[:keys], key.values()))
            read = [column.take(positions(mine)) for column in columns[keys + 1 :]]
            kept, carried = divider.divide(places[mine], counts[mine], changed, read)
            yield state.take(positions(mine[kept])), more, carried

    return cut


class _Divider(Protocol):
    """Says which rows of a partition matter to a change of it."""

    @property
    def reads(self) -> Sequence[Expr]:
        """What it reads of rows, beside their place in the order."""

    def divide(
        self, places: Numbers, counts: Numbers, changed: Numbers, read: Sequence[Any]
    ) -> tuple[Any, Carried]:
        """Whether each row matters, and what is carried of the others."""


def _divider_of(n: Windowed) -> _Divider | None:
    near = nearby_of(n.sorting, n.calls)
    if isinstance(near, Runs):
        return _OfRuns(near)
    if isinstance(near, Nearest):
        return _OfNearest(near)
    reach = reach_of(n.sorting, n.calls)
    return None if isinstance(reach, str) else _OfReach(reach)


def _is_told_apart(key: Any) -> bool:
    t = key.type.arrow
    return not (pa.types.is_nested(t) or pa.types.is_floating(t) or pa.types.is_duration(t))


def _have(columns: Any, key: Any) -> Any:
    """Which rows have a key."""
    found = np.ones(len(columns[0]), np.bool_)
    for column, value in zip(columns, key, strict=True):
        if value is None:
            found &= ~np.asarray(column.is_valid())
        else:
            same = pc.equal(column, pa.scalar(value, column.type)).fill_null(False)
            found &= same.to_numpy(zero_copy_only=False)
    return found


def _places(column: Any, by: Sorting) -> Numbers:
    """The values of an order as ints, in the direction of the order; NULL is at an end of them."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    nulls = np.asarray(column.is_null())
    found = np.asarray(column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
    found = found if by.ascending else ~found
    return np.where(nulls, INT_MIN if by.nulls_first else INT_MAX, found)


def _are_sure(places: Numbers, counts: Numbers) -> Any:
    """Which rows are there for sure: no other row of their place counts less than once."""
    doubted = places[counts <= 0]
    return ~np.isin(places, doubted) if len(doubted) else np.ones(len(places), np.bool_)


@dataclass(frozen=True)
class _OfReach:
    """The rows from as far before the first change as functions look; the rest is carried."""

    reach: Reach

    @property
    def reads(self) -> Sequence[Expr]:
        return [a for c in self.reach.carried for a in c.args]

    def divide(
        self, places: Numbers, counts: Numbers, changed: Numbers, read: Sequence[Any]
    ) -> tuple[Any, Carried]:
        reach, begin = self.reach, int(changed.min())
        sure = _are_sure(places, counts)
        there = np.sort(places[sure & (places < begin)])
        for rows_back, far in ((reach.forward, reach.far_forward), (reach.back, reach.far_back)):
            before = there[: np.searchsorted(there, begin)]
            begin = max(begin - unit_of(far), INT_MIN)
            if rows_back and len(before):
                begin = min(begin, int(before[max(len(before) - rows_back, 0)]))
        kept = (places >= begin) | ~sure
        return kept, _carried(reach, read, counts, np.flatnonzero(~kept))


@dataclass(frozen=True)
class _OfRuns:
    """The runs that a change is in, as they would be with all rows of both."""

    runs: Runs
    reads: Sequence[Expr] = ()

    def divide(
        self, places: Numbers, counts: Numbers, changed: Numbers, read: Sequence[Any]
    ) -> tuple[Any, Carried]:
        every = np.unique(np.concatenate([places, changed]))
        gap = min(unit_of(self.runs.gap), 2**64 - 1)
        apart = every[1:].astype(np.uint64) - every[:-1].astype(np.uint64) > np.uint64(gap)
        run = np.concatenate([[0], np.cumsum(apart)])
        touched = np.isin(run, run[np.searchsorted(every, changed)])
        return touched[np.searchsorted(every, places)], {}


@dataclass(frozen=True)
class _OfNearest:
    """The rows around each change, up to the next row on each side that has the value.

    A row that may be gone is no such row, and stays with all that has its place.
    """

    nearest: Nearest

    @property
    def reads(self) -> Sequence[Expr]:
        return [Call(BOOL, "isNotNull", (self.nearest.value,))]

    def divide(
        self, places: Numbers, counts: Numbers, changed: Numbers, read: Sequence[Any]
    ) -> tuple[Any, Carried]:
        (has,) = read
        sure = _are_sure(places, counts)
        ends = np.unique(places[sure & np.asarray(has)])
        # The numbers of the ends around each change, and so the stretches between ends that count.
        first = np.searchsorted(ends, changed, "left") - 1
        last = np.searchsorted(ends, changed, "right")
        opened = np.bincount(first + 1, minlength=len(ends) + 2)
        closed = np.bincount(last + 1, minlength=len(ends) + 2)
        within = np.cumsum(opened - closed) > 0  # from each end to the next, first from before all
        starts = np.searchsorted(ends, places, "right")
        is_end = np.isin(places, ends)
        kept = within[starts] | (is_end & within[starts - 1]) | ~sure
        return kept, {}


def _carried(reach: Reach, args: Sequence[Any], counts: Numbers, rows: Numbers) -> Carried:
    """What functions have of the rows that are left out: their count, or their sum."""
    found: dict[WindowCall, Any] = {}
    left = iter(args)
    for c in reach.carried:
        values = [next(left) for _ in c.args]
        if not values:
            found[c] = int(counts[rows].sum())
            continue
        known, times = values[0].take(positions(rows)), counts[rows]
        if known.null_count:
            known, times = known.drop_null(), times[np.asarray(known.is_valid())]
        if c.kind == "count":
            found[c] = int(times.sum())
        else:
            found[c] = int(times.sum()), _limbs(known, times, c)
    return found


def _limbs(values: Any, times: Numbers, c: WindowCall) -> dict[int, int]:
    """The exact sum of values, each so often: of floats by bins, of other numbers in one."""
    if pa.types.is_floating(values.type):
        return limbs_of(values.to_numpy(), times)
    if pa.types.is_decimal(values.type):
        scale = unwrap(c.type).scale  # type: ignore[attr-defined]
        wide = values.cast(pa.decimal256(76, scale))
        sums = ((n, pc.sum(wide.filter(pa.array(times == n))).as_py()) for n in np.unique(times))
        return {0: sum(int(n) * int(s.scaleb(scale)) for n, s in sums)}
    return {0: added(values.to_numpy(), times)}
