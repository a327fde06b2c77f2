"""Finds the rows of a partition that a change can affect, so that only these are computed.

The results of window functions change for the rows from the first change on, and for as many before
it as the functions look forward. To compute these rows, the functions also read the rows that they
look back to, and a count or a sum of all earlier rows: see `circuit.physical.windows`. The search
reads only the values of the order, and is far cheaper than sorting and computing the partition
twice.

Each step computes a summary of the rows before some place (a `Prefix`) for the next step, which
then reads the partition from that place on, and earlier rows only if a change affects them.

As-of joins look for the nearest row that has a value: the rows around a change are found for all
keys at once.

A row that one batch inserts, another may delete. If a row has a weight below 1, the rows with the
same sort position are consolidated first. A row whose weight is still below 1 is kept unchanged.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from stepping_spark.circuit.physical import (
    Nearest,
    Reach,
    Runs,
    Sorting,
    WindowCall,
    Windowed,
    cut_by,
    nearby_of,
    reach_of,
    unit_of,
)
from stepping_spark.execution.arrow.groups import key_ids, positions
from stepping_spark.execution.arrow.kernels import (
    Carried,
    Context,
    NeedsPrefix,
    PartitionKey,
    Prefix,
    Prefixes,
)
from stepping_spark.expressions.arrow_evaluator import ArraysOf, evaluator, values_of
from stepping_spark.expressions.expr import Call, Expr
from stepping_spark.relations.arrow import (
    concat,
    consolidate,
    distinct_numbers,
    distinct_rows,
    one_array,
)
from stepping_spark.relations.hashing import Numbers, order_numbers
from stepping_spark.relations.relation import DriverRelation
from stepping_spark.relations.sums.floats import added, limbs_of
from stepping_spark.rows.atoms import BOOL, INT_MIN
from stepping_spark.rows.schema import COUNT, Schema
from stepping_spark.rows.types import unwrap

pc: Any = pyarrow.compute
DeltaPieces: TypeAlias = Iterator[tuple[DriverRelation, DriverRelation, Carried]]
Cut: TypeAlias = Callable[[DriverRelation, DriverRelation, Context], DeltaPieces]

CUT_ROWS = 1_000
"""Rows of the state of a window, or of first rows, up to which all of them are used.

An as-of join uses only the rows around the change, however few rows there are.
Beyond: for a window the driver computes the rows from the change on, and the rows before it that
the functions need. For first rows it keeps, for each key, the wanted number of rows and one more
for each row that the change removes.
"""

CUT_KEYS = 8
"""Keys of a change for which the driver searches for those rows, each in a pass over the state.

Beyond: it reads all rows of the keys, and computes them, except for as-of joins.
"""

_EXACT = decimal.Context(prec=100)  # the default of 28 digits would round
SLACK = 64
"""Extra rows kept before the change, so that the next step may change slightly earlier rows."""


def all_rows(state: DriverRelation, change: DriverRelation, run: Context) -> DeltaPieces:
    """All rows of a state, and its change."""
    yield state, change, {}


def cut_of(n: Windowed, over: Schema) -> Cut:
    """A function that yields the affected rows of keys, their change, and the carried values.

    `over` is the schema of the rows. Without prefixes of earlier steps, the function yields all
    keys of a small state, or of a change of many keys, together. Else it yields each changed key by
    itself, after one pass over the state, and adds the key's prefix for the next step to
    `run.state_notes.prefixes.new`.
    """
    divider = _divider_of(n)
    if divider is None or cut_by(n.keys, n.sorting, n.calls) is None:
        return all_rows
    exprs = (*n.keys, n.sorting[0].expr, *divider.reads)
    if any(evaluator(e) is None for e in exprs):
        return all_rows
    values, key_count = values_of(over, exprs), len(n.keys)
    consolidated_if_doubted = _consolidate_doubted(over, n.sorting[0])
    at_once = _nearest(values, n.sorting[0]) if isinstance(divider, _NearestDivider) else all_rows

    def cut(state: DriverRelation, change: DriverRelation, run: Context) -> DeltaPieces:
        prefixes = run.state_notes.prefixes or Prefixes()
        if not prefixes.old and state.table.num_rows < CUT_ROWS:
            yield from at_once(state, change, run)
            return
        change_keys = values(change.table, run.ask)[:key_count]
        changed_keys = distinct_rows(
            pa.Table.from_arrays(change_keys, names=[str(i) for i in range(key_count)]),
            drop_nulls=False,
        )
        if not prefixes.old and changed_keys.num_rows > CUT_KEYS:
            yield from at_once(state, change, run)
            return
        state_rows = consolidated_if_doubted(state.table, run)
        columns = values(state_rows, run.ask)
        for key in (tuple(row.values()) for row in changed_keys.to_pylist()):
            key_change = change.filter(pa.array(_has_key(change_keys, key)))
            order, *change_reads = values(key_change.table, run.ask)[key_count:]
            changed = _places(order, n.sorting[0])
            key_rows = np.flatnonzero(_has_key(columns[:key_count], key))
            partition = _Partition.of(
                state_rows, columns[key_count:], n.sorting[0], key_rows, prefixes.old.get(key)
            )
            affected, carried = partition.affected_rows(
                divider, changed, change_reads, prefixes, key
            )
            yield DriverRelation(affected, over), key_change, carried

    return cut


def _nearest(values: ArraysOf, by: Sorting) -> Cut:
    """A function that yields the rows around the changes of all keys at once.

    `values` computes the key, the order, and whether a row has the value.
    """

    def nearest(state: DriverRelation, change: DriverRelation, run: Context) -> DeltaPieces:
        both = zip(values(state.table, run.ask), values(change.table, run.ask), strict=True)
        *columns, order, has_values = [pa.concat_arrays(pair) for pair in both]
        ids, places = key_ids(columns), _places(order, by)
        # Distinct places for each key, with one free place before and one after those of a key.
        distinct, places = np.unique(places, return_inverse=True)
        places = ids * (len(distinct) + 2) + places + 1
        old_rows = state.table.num_rows
        edges = distinct_numbers(ids[old_rows:]) * (len(distinct) + 2)
        old, changed = places[:old_rows], places[old_rows:]
        counts = one_array(state.table.column(COUNT)).to_numpy()
        has, sure = np.asarray(has_values), _are_sure(old, counts)
        ends = old[sure & has[: len(old)]]
        ends = distinct_numbers(np.concatenate([ends, edges, edges + len(distinct) + 1]))
        mask = _around(old, ends, changed, has[len(old) :]) | ~sure
        yield state.filter(pa.array(mask)), change, {}

    return nearest


def _around(places: Numbers, ends: Numbers, changed: Numbers, has: Any) -> Any:
    """A mask of the rows around changes, up to the next end on each side.

    `ends` are the sorted places of rows that have a value. A change without a value affects no
    other row: then only the rows at its place and at the ends count.
    """
    # The numbers of the ends around each change, and so the stretches between ends that count.
    lower = np.searchsorted(ends, changed, "left") - 1
    upper = np.searchsorted(ends, changed, "right")
    opened = np.bincount(lower[has] + 1, minlength=len(ends) + 2)
    closed = np.bincount(upper[has] + 1, minlength=len(ends) + 2)
    within = np.cumsum(opened - closed) > 0  # from each end to the next, first from before all
    beside = np.concatenate([lower[~has], upper[~has]])
    beside = ends[beside[(beside >= 0) & (beside < len(ends))]]
    starts = np.searchsorted(ends, places, "right")
    is_end = np.isin(places, ends)
    near = np.isin(places, np.concatenate([beside, changed[~has]]))
    return within[starts] | (is_end & within[starts - 1]) | near


def _consolidate_doubted(over: Schema, by: Sorting) -> Callable[[pa.Table, Context], pa.Table]:
    """A function that consolidates the rows of places where some weight is below 1.

    The rows at other places stay as they are.
    """
    values = values_of(over, (by.expr,))

    def consolidated(rows: pa.Table, run: Context) -> pa.Table:
        counts = np.asarray(one_array(rows.column(COUNT)).to_numpy(), np.int64)
        if (counts > 0).all():
            return rows
        places = _places(values(rows, run.ask)[0], by)
        doubted = np.isin(places, places[counts <= 0])
        sure = rows.filter(pa.array(~doubted))
        return concat([sure, consolidate(rows.filter(pa.array(doubted)), over)], over)

    return consolidated


@dataclass(frozen=True)
class _Partition:
    """The rows of one key that were read: those after the prefix, or all without one.

    The rows are in no order; `places` are their places in the order, and `counts` their weights.
    """

    rows: pa.Table
    places: Numbers
    counts: Numbers
    read: list[Any]  # the columns that a divider reads
    prefix: Prefix | None

    @classmethod
    def of(
        cls, rows: pa.Table, columns: Any, by: Sorting, key_rows: Any, prefix: Prefix | None
    ) -> _Partition:
        """The partition of one key, whose rows are at the positions `key_rows` of the table.

        `columns` are the column of the order, and the columns that a divider reads.
        """
        places = _places(columns[0].take(positions(key_rows)), by)
        if prefix is not None:
            after_prefix = places >= prefix.place
            key_rows, places = key_rows[after_prefix], places[after_prefix]
        rows = rows.take(positions(key_rows))
        counts = np.asarray(one_array(rows.column(COUNT)).to_numpy(), np.int64)
        return cls(rows, places, counts, [c.take(positions(key_rows)) for c in columns[1:]], prefix)

    def affected_rows(
        self,
        divider: _Divider,
        changed: Numbers,
        change_reads: list[Any],
        prefixes: Prefixes,
        key: PartitionKey,
    ) -> tuple[pa.Table, Carried]:
        """The rows that a change affects, and the carried counts and sums of earlier rows.

        `changed` are the places of the changed rows. `change_reads` has the columns of the change
        that the divider reads. Adds the prefix of the key for the next step to `prefixes`.
        """
        last = None if self.prefix is None else self.prefix.last
        read = list(zip(self.read, change_reads, strict=True))
        mask = divider.divide(self.places, self.counts, changed, read, last)
        first_place = int(min(self.places[mask].min(initial=changed.min()), changed.min()))
        prefixes.new[key] = self._prefix_before(divider, first_place)
        carried = self._carried_before(divider, np.flatnonzero(~mask))
        return self.rows.take(positions(np.flatnonzero(mask))), carried

    def _prefix_before(self, divider: _Divider, end_place: int) -> Prefix:
        """The prefix for the next step, which ends up to `SLACK` rows before the affected ones.

        `end_place` is the first place that is changed or affected. The prefix ends before any row
        whose weight is below 1.
        """
        before = np.sort(self.places[self.places < end_place])
        if len(before) >= SLACK:
            end_place = int(before[-SLACK])
        elif self.prefix is not None:
            end_place = min(end_place, self.prefix.place)
        elif len(before):
            end_place = int(before[0])
        end_place = int(self.places[self.counts <= 0].min(initial=end_place))
        earlier = np.flatnonzero(self.places < end_place)
        last = None if self.prefix is None else self.prefix.last
        return Prefix(
            end_place,
            int(self.places[earlier].max()) if len(earlier) else last,
            self._carried_before(divider, earlier),
        )

    def _carried_before(self, divider: _Divider, omitted: Numbers) -> Carried:
        """The counts and sums of the prefix and of the rows at these positions together."""
        sums = _sums_of_rows(divider.carried, self.read, self.counts, omitted)
        return sums if self.prefix is None else _plus(self.prefix.carried, sums)


class _Divider(Protocol):
    """Decides which rows of a partition a change can affect."""

    @property
    def reads(self) -> Sequence[Expr]:
        """The columns that the divider reads, besides the columns of the order."""

    @property
    def carried(self) -> Sequence[WindowCall]:
        """The functions that need a count or a sum of the rows before the affected ones."""

    def divide(
        self,
        places: Numbers,
        counts: Numbers,
        changed: Numbers,
        read: Sequence[tuple[Any, Any]],
        last: int | None,
    ) -> Any:
        """A mask of the affected rows.

        `places` and `counts` are the places and weights of the rows that were read, and `changed`
        are the places of the changed rows. `read` has a pair for each column of `reads`: its values
        in the rows, and in the change. `last` is the place of the last row before the rows that
        were read; None if there is none. Raises `NeedsPrefix` if such earlier rows are affected
        too: the executor then defers the stream.
        """


def _divider_of(n: Windowed) -> _Divider | None:
    near = nearby_of(n.sorting, n.calls)
    if isinstance(near, Runs):
        return _RunsDivider(near)
    if isinstance(near, Nearest):
        return _NearestDivider(near)
    reach = reach_of(n.sorting, n.calls)
    return None if isinstance(reach, str) else _ReachDivider(reach)


def _has_key(columns: Any, key: Any) -> Any:
    """A mask of the rows with a key."""
    mask = np.ones(len(columns[0]), np.bool_)
    for column, value in zip(columns, key, strict=True):
        if value is None:
            mask &= ~np.asarray(column.is_valid())
        else:
            same = pc.equal(column, pa.scalar(value, column.type)).fill_null(False)
            mask &= same.to_numpy(zero_copy_only=False)
    return mask


def _places(column: Any, by: Sorting) -> Numbers:
    """The values of an order as ints, ascending in its direction; NULL is at one end of them."""
    return order_numbers(column, ascending=by.ascending, nulls_first=by.nulls_first)


def _are_sure(places: Numbers, counts: Numbers) -> Any:
    """A mask of the rows that certainly exist: no row at their place has a weight below one."""
    doubted = places[counts <= 0]
    return ~np.isin(places, doubted) if len(doubted) else np.ones(len(places), np.bool_)


@dataclass(frozen=True)
class _ReachDivider:
    """Affected rows: from as far before the first change as functions look; earlier are carried."""

    reach: Reach

    @property
    def reads(self) -> Sequence[Expr]:
        return [a for c in self.reach.carried for a in c.args]

    @property
    def carried(self) -> Sequence[WindowCall]:
        return self.reach.carried

    def divide(
        self,
        places: Numbers,
        counts: Numbers,
        changed: Numbers,
        read: Sequence[tuple[Any, Any]],
        last: int | None,
    ) -> Any:
        reach, begin = self.reach, int(changed.min())
        sure = _are_sure(places, counts)
        sure_places = np.sort(places[sure & (places < begin)])
        for rows_back, far in ((reach.forward, reach.far_forward), (reach.back, reach.far_back)):
            before = sure_places[: np.searchsorted(sure_places, begin)]
            begin = max(begin - unit_of(far), INT_MIN)
            if len(before) < rows_back and last is not None:
                raise NeedsPrefix
            if rows_back and len(before):
                begin = min(begin, int(before[max(len(before) - rows_back, 0)]))
        if last is not None and begin <= last:
            raise NeedsPrefix
        return (places >= begin) | ~sure


@dataclass(frozen=True)
class _RunsDivider:
    """Affected rows: the runs that contain a change, in the union of the rows and the change."""

    runs: Runs
    reads: Sequence[Expr] = ()
    carried: Sequence[WindowCall] = ()

    def divide(
        self,
        places: Numbers,
        counts: Numbers,
        changed: Numbers,
        read: Sequence[tuple[Any, Any]],
        last: int | None,
    ) -> Any:
        unread_place = [] if last is None else [last]
        all_places = distinct_numbers(
            np.concatenate([np.array(unread_place, np.int64), places, changed])
        )
        gap = min(unit_of(self.runs.gap), 2**64 - 1)
        apart = np.diff(all_places.astype(np.uint64)) > np.uint64(gap)
        run_numbers = np.concatenate([[0], np.cumsum(apart)])
        touched = np.isin(run_numbers, run_numbers[np.searchsorted(all_places, changed)])
        if last is not None and touched[0]:
            raise NeedsPrefix
        return touched[np.searchsorted(all_places, places)]


@dataclass(frozen=True)
class _NearestDivider:
    """Affected rows: around each change, up to the next row on each side that has the value.

    For a change without the value, only its place and the rows at these ends count. A row that may
    be gone does not count as an end, and all rows at its place are kept.
    """

    nearest: Nearest
    carried: Sequence[WindowCall] = ()

    @property
    def reads(self) -> Sequence[Expr]:
        return [Call(BOOL, "isNotNull", (self.nearest.value,))]

    def divide(
        self,
        places: Numbers,
        counts: Numbers,
        changed: Numbers,
        read: Sequence[tuple[Any, Any]],
        last: int | None,
    ) -> Any:
        ((has, of_change),) = read
        sure = _are_sure(places, counts)
        ends = distinct_numbers(places[sure & np.asarray(has)])
        if last is not None and (not len(ends) or changed.min() <= ends[0]):
            raise NeedsPrefix
        return _around(places, ends, changed, np.asarray(of_change)) | ~sure


def _plus(a: Carried, b: Carried) -> Carried:
    """The counts and sums of the rows of two parts of a partition."""
    return {c: _added(a[c], b[c]) for c in a}


def _added(a: Any, b: Any) -> Any:
    """The sum of two counts, or of two pairs of a count and the limbs of a sum."""
    if isinstance(a, int):
        return a + b
    (count, limbs), (more, others) = a, b
    return count + more, {n: limbs.get(n, 0) + others.get(n, 0) for n in {**limbs, **others}}


def _sums_of_rows(
    calls: Sequence[WindowCall], args: Sequence[Any], counts: Numbers, omitted: Numbers
) -> Carried:
    """For each function, the count or the sum of the rows at the positions `omitted`.

    `args` are the arguments of all functions, one after the other, for the rows of `counts`.
    """
    sums: dict[WindowCall, Any] = {}
    args_left = iter(args)
    for c in calls:
        call_args = [next(args_left) for _ in c.args]
        if not call_args:
            sums[c] = int(counts[omitted].sum())
            continue
        column, weights = call_args[0].take(positions(omitted)), counts[omitted]
        if column.null_count:
            column, weights = column.drop_null(), weights[np.asarray(column.is_valid())]
        if c.kind == "count":
            sums[c] = int(weights.sum())
        else:
            sums[c] = int(weights.sum()), _limbs(column, weights, c)
    return sums


def _limbs(values: Any, times: Numbers, c: WindowCall) -> dict[int, int]:
    """The exact sum of weighted values: floats by bins, other numbers as a single sum."""
    if pa.types.is_floating(values.type):
        return limbs_of(values.to_numpy(), times)
    if pa.types.is_decimal(values.type):
        scale = unwrap(c.type).scale  # type: ignore[attr-defined]
        wide = values.cast(pa.decimal256(76, scale))
        sums = (
            (n, pc.sum(wide.filter(pa.array(times == n))).as_py()) for n in distinct_numbers(times)
        )
        return {0: sum(int(n) * int(s.scaleb(scale, _EXACT)) for n, s in sums)}
    return {0: added(values.to_numpy(), times)}
