"""The operators of groups on Arrow arrays, and the first rows that a change can affect.

A change that removes m rows of a key leaves n of its first n + m rows. So only these rows matter,
however many the key has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.expressions.arrow_evaluator import ArraysOf, Ask, ZoneOf, evaluator, values_of
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.index import Order
from stepping_spark.relations.arrow import (
    Array,
    ArrowColumn,
    Ids,
    are_mostly_different,
    below_length,
    canonical,
    concat,
    flat,
    one_array,
    repeated,
    row_ids,
    row_numbers,
    sample,
)
from stepping_spark.relations.hashing import Numbers
from stepping_spark.rows.atoms import INT_MAX
from stepping_spark.rows.schema import COUNT, Schema
from stepping_spark.rows.types import sort_key

_NUMBERS = {
    pa.bool_().id: pa.int8(),
    pa.int64().id: pa.int64(),
    pa.date32().id: pa.int32(),
    pa.timestamp("us").id: pa.int64(),
    pa.duration("us").id: pa.int64(),
}
"""The types whose values are stored as numbers in the same order, and the types of the numbers."""


def ranks(column: ArrowColumn) -> list[Numbers]:
    """Columns of numbers that sort rows as Spark sorts the values: NULL first, NaN last."""
    array: Any = one_array(canonical(column))
    t = array.type
    if pa.types.is_list(t):
        return [_by_key([sort_key(v) for v in array.to_pylist()])]
    valid = [_flags(array.is_valid())] if array.null_count else []
    if pa.types.is_struct(t):
        return valid + [r for part in array.flatten() for r in ranks(part)]
    if pa.types.is_floating(t):
        nan = _flags(pc.is_nan(array).fill_null(False))
        return [*valid, nan, _dense(pc.if_else(pc.is_nan(array), pa.scalar(0.0), array))]
    number = _NUMBERS.get(t.id)
    if number is None:
        return [*valid, _dense(array)]
    numbers = array.cast(number) if t == pa.bool_() else array.view(number)
    if array.null_count:
        numbers = numbers.fill_null(0)
    return [*valid, np.asarray(numbers.to_numpy(), np.int64)]


def _valid_positions(array: Any) -> Numbers:
    """The positions of the values that are not NULL."""
    return np.flatnonzero(_flags(array.is_valid())) if array.null_count else np.arange(len(array))


def _flags(array: Any) -> Numbers:
    return np.asarray(array.cast(pa.int8()).to_numpy(zero_copy_only=False), np.int64)


def _dense(array: Any) -> Numbers:
    if not len(array):
        return np.zeros(0, np.int64)
    numbers: Any = pc.rank(array, "ascending", tiebreaker="dense")
    return np.asarray(numbers.to_numpy(), np.int64)


def _by_key(keys: Sequence[Any]) -> Numbers:
    numbers = {k: i for i, k in enumerate(sorted(set(keys)))}
    return np.array([numbers[k] for k in keys], np.int64)


def key_ids(keys: Sequence[ArrowColumn]) -> Numbers:
    """The number of each row's key; equal keys have the same number."""
    return row_ids([f for k in keys for f in flat(canonical(k))])


def foremost_of(
    keys: Sequence[ArrowColumn], order: Sequence[tuple[ArrowColumn, bool]]
) -> tuple[Numbers, Numbers]:
    """The positions from `foremost`, and the number of the key of each of these rows."""
    numbers = row_numbers([f for k in keys for f in flat(canonical(k))])
    rows = len(numbers)
    if not rows or not are_mostly_different(numbers[sample(rows)], rows):
        ids = below_length(numbers) if rows else numbers
        mask = foremost(ids, order)
        return mask, ids[mask]
    # Most keys have a single row, which is the first one; only the rows of other keys are compared.
    shared = repeated(numbers.view(np.uint64))
    ids = np.arange(rows)
    among = np.flatnonzero(shared)
    if len(among):
        some = positions(among)
        own = key_ids([k.take(some) for k in keys])
        mask = foremost(own, [(column.take(some), up) for column, up in order])
        shared[among[mask]] = False
        ids[among] = rows + own
    at = np.flatnonzero(~shared)
    return at, ids[at]


def in_order(
    ids: Numbers, order: Sequence[tuple[ArrowColumn, bool]], row: Sequence[ArrowColumn]
) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """The positions of rows sorted by key, order and row, and which rows differ from the previous.

    Only rows that tie in the order are compared by all their columns.
    """
    shared = np.bincount(ids)[ids] > 1
    among, alone = shared.nonzero()[0], (~shared).nonzero()[0]
    differ = np.ones(len(ids), np.bool_)
    if not len(among):
        return alone, differ
    taken = positions(among)
    by = [ids[among]]
    for column, up in order or [(c, True) for c in row]:
        by += [r if up else ~r for r in ranks(_values_at(column, taken))]
    at, begins = by_numbers(by)
    equal = np.flatnonzero(~(begins & np.append(begins[1:], True)))
    if len(equal):
        tied = at[equal]
        taken = positions(among[tied])
        run = np.cumsum(begins, dtype=np.int64)[equal]
        by = [run, *(r for c in row for r in ranks(c.take(taken)))]
        ordered, differ[equal] = by_numbers(by)
        at[equal] = tied[ordered]
    return np.append(among[at], alone), differ


def by_numbers(by: Sequence[Numbers]) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """The positions of rows sorted by numbers, and which rows differ from the previous one.

    Rows with the same numbers are in any order.
    """
    packed = _packed(by) if len(by[0]) else by
    at = np.argsort(packed[0]) if len(packed) == 1 else np.lexsort(packed[::-1])
    return np.asarray(at, np.int64), beginnings(numbers[at] for numbers in packed)


def beginnings(by: Iterable[Numbers]) -> npt.NDArray[np.bool_]:
    """Which rows differ from the previous one in some of their numbers; the first row does."""
    mask: npt.NDArray[np.bool_] | None = None
    for numbers in by:
        if mask is None:
            mask = np.zeros(len(numbers), np.bool_)
            mask[:1] = True
        mask[1:] |= numbers[1:] != numbers[:-1]
    assert mask is not None
    return mask


def _packed(by: Sequence[Numbers]) -> list[Numbers]:
    """Fewer columns of numbers with the same order: columns with few bits are packed into one."""
    parts: list[Numbers] = []
    values = 0  # the size of the last column's range
    for numbers in by:
        least = int(numbers.min())
        own = int(numbers.max()) - least + 1
        from_zero = numbers - least if own <= INT_MAX else numbers
        if parts and values * own <= INT_MAX:
            parts[-1] = parts[-1] * own + from_zero
            values *= own
        else:
            parts.append(from_zero)
            values = own
    return parts


def foremost(ids: Numbers, order: Sequence[tuple[ArrowColumn, bool]]) -> Numbers:
    """The positions of the rows that no row of their key precedes in the order."""
    at = np.arange(len(ids))
    for column, up in order:
        of, within = at, np.arange(len(at))
        for numbers in ranks(_values_at(column, positions(at))):
            by = ~numbers[within] if up else numbers[within]
            most = np.full(ids.max() + 1, np.iinfo(np.int64).min)
            np.maximum.at(most, ids[of[within]], by)
            within = within[by == most[ids[of[within]]]]
        at = of[within]
    return at


def _values_at(column: ArrowColumn, at: Array) -> ArrowColumn:
    """The values at ascending positions; the column itself if these are all."""
    return column if len(at) == len(column) else column.take(at)


def positions(at: Any, mask: Any = None) -> Any:
    """Positions as an Arrow array, for `take`."""
    return pa.array(np.asarray(at, np.int64), pa.int64(), mask=mask)


def first(ids: Numbers, counts: Numbers, n: int) -> Numbers:
    """The number of copies of each row among the first n of its key; rows of a key are adjacent."""
    counts = np.minimum(counts, n)
    before = np.cumsum(counts) - counts
    starts = np.flatnonzero(np.diff(ids, prepend=-1))
    lengths = np.diff(np.append(starts, len(ids)))
    left = n - (before - np.repeat(before[starts], lengths))
    return np.asarray(np.minimum(np.maximum(left, 0), counts), np.int64)


def first_with_ties(ids: Numbers, counts: Numbers, order: Sequence[ArrowColumn], n: int) -> Numbers:
    """For each row, whether fewer than n rows of its key sort before it (ties do not count).

    Rows of a key are adjacent and in order.
    """
    begins = beginnings([ids])
    differs = beginnings([ids, *(r for column in order for r in ranks(column))])
    capped = np.minimum(counts, n)
    before = capped.cumsum() - capped
    key, peer = begins.nonzero()[0], differs.nonzero()[0]
    of_key, of_peer = begins.cumsum() - 1, differs.cumsum() - 1
    return np.asarray(before[peer][of_peer] - before[key][of_key] < n)


def lists(ids: Numbers, items: Array, counts: Numbers) -> tuple[Numbers, Array]:
    """The first position of each key, and the list of its items, repeated by their weights."""
    starts = np.flatnonzero(np.diff(ids, prepend=-1))
    ends = np.append(starts[1:], len(ids))
    offsets = np.append(0, np.cumsum(counts)).astype(np.int64)
    repeated = items.take(positions(np.repeat(np.arange(len(ids)), counts)))
    edges = np.append(offsets[starts], offsets[ends[-1:]])
    return starts, pa.ListArray.from_arrays(pa.array(edges, pa.int32()), repeated)


def collated(table: pa.Table, required: int) -> pa.Table:
    """One row for each key, the first column; the other columns are its pieces, NULL if missing."""
    key, *pieces = (one_array(c) for c in table.columns)
    ids = key_ids([key])
    _, firsts, dense = np.unique(ids, return_index=True, return_inverse=True)
    columns = [key.take(positions(firsts))]
    for piece in pieces:
        at = _valid_positions(piece)
        of_key = dense[at]
        row_of = np.full(len(firsts), -1, np.int64)
        row_of[of_key] = at
        if (row_of[of_key] != at).any():  # a key has several pieces
            largest = np.lexsort([r[at] for r in ranks(piece)[::-1]] + [of_key])
            row_of[of_key[largest]] = at[largest]  # the last assignment for a key remains
        columns.append(piece.take(positions(row_of, mask=row_of < 0)))
    rows = pa.Table.from_arrays(columns, names=table.schema.names)
    masks = [pc.is_valid(c) for c in rows.columns[1 : required + 1] if c.null_count]
    return rows.filter(functools.reduce(pc.and_, masks)) if masks else rows


TableParts: TypeAlias = Sequence[pa.Table]
Restrict: TypeAlias = Callable[[TableParts, pa.Table, int, ZoneOf], list[pa.Table]]
KeptMask: TypeAlias = npt.NDArray[np.bool_]

_MOST = 2**62


class _Asked(Exception):
    """Signal: only Spark can evaluate an expression over these rows, so all rows are kept."""


def restricting(schema: Schema, keys: Sequence[Expr], order: Order, n: int) -> Restrict | None:
    """A function that selects the rows of each part of a state that a change can affect.

    Its arguments are the parts, the change, the most entries that a row has in the parts, and a
    function for the session's time zone. None if only Spark can evaluate the keys or the order.
    """
    exprs = [*keys, *(e for e, _ in order)]
    if any(evaluator(e) is None for e in exprs):
        return None
    key_of, order_of = values_of(schema, keys), values_of(schema, [e for e, _ in order])
    ascending = [up for _, up in order]

    def restrict(parts: TableParts, change: pa.Table, often: int, zone: ZoneOf) -> list[pa.Table]:
        state = concat(parts, schema)
        if _largest(state) + _largest(change) * change.num_rows > _MOST:
            return list(parts)  # a weight may be beyond 64 bits, which is an error
        try:
            ask = Ask(_no_spark, zone)
            ids, wanted = _rows_needed(state, change, key_of, ask, n, often)
            columns = zip(order_of(state, ask), ascending, strict=True)
            mask = _mask_of_first(state, ids, wanted, list(columns))
        except _Asked:
            return list(parts)
        ends = np.cumsum([len(p) for p in parts])[:-1]
        return [p.filter(pa.array(k)) for p, k in zip(parts, np.split(mask, ends), strict=True)]

    return restrict


def _rows_needed(
    state: pa.Table, change: pa.Table, key_of: ArraysOf, ask: Ask, n: int, often: int
) -> tuple[Ids, Ids]:
    """The number of each row's key, and the number of rows that matter for each key.

    A negative weight -w removes one row, which may have several entries in the state: at most w,
    and at most `often`.
    """
    rows = state.num_rows
    gone = change.filter(pc.less(change.column(COUNT), pa.scalar(0)))
    both = zip(key_of(state, ask), key_of(gone, ask), strict=True)
    keys = [one_array(pa.chunked_array([a, b], a.type)) for a, b in both]
    ids = key_ids(keys) if keys else np.zeros(rows + gone.num_rows, np.int64)
    removed = np.append(_removed(state, often), _removed(gone, often))
    return ids[:rows], n + np.bincount(ids, removed).astype(np.int64)


def _removed(rows: pa.Table, often: int) -> Ids:
    counts = counts_of(rows)
    return np.where(counts < -often, often, -np.minimum(counts, 0))


def _mask_of_first(
    state: pa.Table, ids: Ids, wanted: Ids, order: Sequence[tuple[Array, bool]]
) -> KeptMask:
    """A mask of the rows to keep: the first rows of each key, and rows that tie with them.

    Rows with a negative weight are kept too: later rows may cancel them.
    """
    positive = counts_of(state) > 0
    mask = ~positive
    single = wanted[ids] == 1
    for at, find in (
        (np.flatnonzero(positive & single), foremost),
        (np.flatnonzero(positive & ~single), lambda of, by: _first(of, wanted, by)),
    ):
        if len(at):
            taken = [(c.take(positions(at)), up) for c, up in order]
            mask[at[find(ids[at], taken)]] = True
    return mask


def _first(ids: Ids, wanted: Ids, order: Sequence[tuple[Array, bool]]) -> Ids:
    """The positions of the rows that fewer than `wanted` rows of their key precede."""
    by = [ids, *(r if up else ~r for column, up in order for r in ranks(column))]
    at, differs = by_numbers(by)
    begins = np.diff(ids[at], prepend=-1) != 0
    place = np.arange(len(at))
    key, peers = (np.maximum.accumulate(np.where(b, place, 0)) for b in (begins, differs))
    return np.asarray(at[peers - key < wanted[ids[at]]], np.int64)


def counts_of(rows: pa.Table) -> Ids:
    """The weights of rows."""
    return np.asarray(rows.column(COUNT).to_numpy(), np.int64)


def _largest(rows: pa.Table) -> int:
    """The largest absolute weight."""
    counts = counts_of(rows)
    return max(abs(int(counts.min())), abs(int(counts.max()))) if len(counts) else 0


def _no_spark(*_: object) -> list[Array]:
    raise _Asked
