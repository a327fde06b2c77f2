"""Joins, and the nodes whose result for a key depends on all rows of that key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.base.limits import Limits
from stepping_spark.circuit.physical import (
    Gather,
    LargestByKey,
    Physical,
    Positive,
    Rank,
    Totals,
    Windowed,
)
from stepping_spark.execution.arrow.groups import (
    collated,
    first,
    first_with_ties,
    foremost_of,
    in_order,
    key_ids,
    lists,
    positions,
)
from stepping_spark.execution.arrow.kernels import Context, sum_of
from stepping_spark.execution.arrow.windows import Partitions, column_of
from stepping_spark.expressions.arrow_evaluator import relation_of, spread, struct_of, values_of
from stepping_spark.expressions.arrow_kernels import Arrays
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.index import Order
from stepping_spark.relations.arrow import (
    FEW,
    Array,
    Ids,
    canonical,
    canonical_rows,
    comparable,
    concat,
    empty,
    flat,
    negate,
    one_array,
    row_ids,
)
from stepping_spark.relations.hashing import key_hashes
from stepping_spark.relations.placement import bytes_given
from stepping_spark.relations.relation import DriverRelation, FanOut
from stepping_spark.relations.sums.arrow import totals
from stepping_spark.rows.schema import COUNT, GroupedType, Schema
from stepping_spark.rows.types import Struct


def most_given(limits: Limits, rows: int, *tables: pa.Table) -> int:
    """The most rows that a result may have, if they are as wide as average rows of its tables.

    A row of a join is as wide as a row of each table. The result has at most `rows` rows. If these
    fit in any case, the exact sizes of columns, which are slow to compute, are not needed.
    """
    most_bytes, width_at_most = bytes_given(limits), 0
    for t in tables:  # columns may share a buffer
        width_at_most += t.num_columns * t.get_total_buffer_size() // max(t.num_rows, 1) + 1
    if rows * width_at_most <= most_bytes:
        return limits.given_rows
    width = sum(t.nbytes // t.num_rows for t in tables if t.num_rows)
    return min(limits.given_rows, most_bytes // max(width, 1))


_ROWS_OF_ONE_THREAD = 50_000


def join_indices(left: Arrays, right: Arrays, most: int) -> tuple[Array, Array]:
    """The positions of the pairs of rows with equal keys; NULL equals nothing.

    Raises `FanOut` if there are more than `most` pairs.
    """
    is_small = len(left[0]) + len(right[0]) <= FEW
    if is_small and not any(map(pa.types.is_nested, [k.type for k in left])):
        return _join_by_dictionary(left, right, most)
    names = [f"k{i}" for i in range(len(left))]
    keys = [_comparable(a, b) for a, b in zip(left, right, strict=True)]
    tables = []
    for side, position_name in ((0, "i"), (1, "j")):
        columns = [k[side] for k in keys]
        rows = pa.array(np.arange(len(columns[0])))
        tables.append(pa.table([*columns, rows], names=[*names, position_name]))
    if len(left[0]) * len(right[0]) > most and (pairs := _count_pairs(tables, names, most)) > most:
        raise FanOut.of(pairs, "a join", most)
    small, large = sorted(tables, key=len)  # Arrow hashes the right side
    threads = large.num_rows > _ROWS_OF_ONE_THREAD
    joined = large.join(small, keys=names, join_type="inner", use_threads=threads)
    return one_array(joined.column("i")), one_array(joined.column("j"))


def _join_by_dictionary(left: Arrays, right: Arrays, most: int) -> tuple[Array, Array]:
    """`join_indices` for few rows, with a dictionary, which is faster than a join of Arrow."""
    positions_of_key: dict[tuple[Any, ...], list[int]] = {}
    for j, key in enumerate(zip(*[comparable(canonical(k)) for k in right], strict=True)):
        if None not in key:
            positions_of_key.setdefault(key, []).append(j)
    indices: tuple[list[int], list[int]] = ([], [])
    for i, key in enumerate(zip(*[comparable(canonical(k)) for k in left], strict=True)):
        matches = positions_of_key.get(key, ())
        indices[0].extend([i] * len(matches))
        indices[1].extend(matches)
    if len(indices[0]) > most:
        raise FanOut.of(len(indices[0]), "a join", most)
    return pa.array(indices[0], pa.int64()), pa.array(indices[1], pa.int64())


def _count_pairs(tables: list[pa.Table], names: list[str], most: int) -> int:
    """The number of pairs of a join, or an upper bound if that is at most `most`.

    The bound takes hashes of the smaller side; the number takes groups of both sides, and a join.
    """
    small, large = sorted(tables, key=len)
    bound = most_of_a_key(small, names) * large.num_rows
    if bound <= most:
        return bound
    small_counts = small.group_by(names).aggregate([([], "count_all")])
    large_counts = large.group_by(names).aggregate([([], "count_all")])
    both = large_counts.join(small_counts, keys=names, join_type="inner", right_suffix="_right")
    pairs_per_key: Any = pc.multiply(both.column("count_all"), both.column("count_all_right"))
    return pc.sum(pairs_per_key).as_py() or 0


def most_of_a_key(table: pa.Table, names: list[str]) -> int:
    """An upper bound of the rows per key: the rows per hash slot, which several keys may share."""
    slots = np.uint64(4 << table.num_rows.bit_length())
    return int(np.bincount((key_hashes(table, names) % slots).view(np.int64)).max(initial=0))


def _comparable(a: Array, b: Array) -> tuple[Array, Array]:
    """Two columns of keys, in types that Arrow can join."""
    if pa.types.is_duration(a.type):
        return a.cast(pa.int64()), b.cast(pa.int64())
    if not pa.types.is_nested(a.type):
        return one_array(canonical(a)), one_array(canonical(b))
    both = pa.concat_arrays([a, b])
    ids = pa.array(row_ids(flat(canonical(both))), mask=both.is_null().to_numpy(False))
    return ids[: len(a)], ids[len(a) :]


class FoldKernel(Protocol):
    """Folds a relation; with a change, returns the change of the fold.

    That change is the fold of the new relation, minus the fold of the old one.
    """

    def __call__(
        self, run: Context, rows: DriverRelation, change: DriverRelation | None = None
    ) -> DriverRelation: ...


def _fold_old_and_new(
    schema: Schema, fold: Callable[[DriverRelation], pa.Table], *, consolidated: bool = False
) -> FoldKernel:
    """A kernel that folds the old and the new relation; `consolidated`: no fold has equal rows."""

    def kernel(
        run: Context, rows: DriverRelation, change: DriverRelation | None = None
    ) -> DriverRelation:
        if change is None:
            return DriverRelation(fold(rows), schema, consolidated)
        new = fold(sum_of([rows, change], rows.schema))
        table = concat([new, negate(fold(rows), schema)], schema)
        return DriverRelation(table, schema, consolidated and not rows.table.num_rows)

    return kernel


def _where(table: pa.Table, mask: Any) -> pa.Table:
    """The rows for which a NumPy mask is true."""
    return table if np.count_nonzero(mask) == len(mask) else table.filter(pa.array(mask))


def _ones(rows: int) -> Any:
    return pa.array(np.ones(rows, np.int64))


def _positive_rows(rows: DriverRelation) -> pa.Table:
    """The rows with a positive total weight, consolidated."""
    consolidated = rows.added_up().table
    return _where(consolidated, one_array(consolidated.column(COUNT)).to_numpy() > 0)


def positive_kernel(n: Positive) -> FoldKernel:
    """The kernel of distinct rows, or of their positive weights if the node is `counted`."""
    relation, names = relation_of(n.schema), [c for c, _ in n.schema.columns]

    def positive(rows: DriverRelation) -> pa.Table:
        rows_left = _positive_rows(rows)
        counts = one_array(rows_left.column(COUNT)) if n.counted else _ones(rows_left.num_rows)
        return relation([*(one_array(rows_left.column(c)) for c in names), counts])

    return _fold_old_and_new(n.schema, positive, consolidated=True)


class _Ordered(NamedTuple):
    """The rows with positive weight, by key and in order: first the new relation, then the old one.

    `ids` are numbers of their keys, which differ between the two relations. `numbers` are numbers
    of the rows: rows with the same number are equal. `signs` are 1 for new rows, -1 for old ones.
    """

    rows: pa.Table
    ids: Ids
    counts: Ids
    signs: Ids
    numbers: Ids


OrderKernel: TypeAlias = Callable[[Context, DriverRelation, DriverRelation | None], _Ordered]


def _in_order(of: Physical, keys: Sequence[Expr], order: Order) -> OrderKernel:
    """A function that orders the rows of a relation, and of the relation after a change."""
    schema, values = of.schema, values_of(of.schema, (*keys, *(e for e, _ in order)))
    directions = [up for _, up in order]

    def ordered(run: Context, rows: DriverRelation, change: DriverRelation | None) -> _Ordered:
        rows_after = rows if change is None else sum_of([rows, change], schema)
        table = canonical_rows(rows_after.table, schema).combine_chunks()
        if not table.num_rows:
            return _Ordered(table, *[np.zeros(0, np.int64)] * 4)
        columns = values(table, run.ask)
        directed = zip(columns[len(keys) :], directions, strict=True)
        ids = key_ids(columns[: len(keys)])
        sorted_positions, differ = in_order(
            ids, list(directed), table.columns[: len(schema.columns)]
        )
        firsts = np.flatnonzero(differ)
        # Without the weights of the change, the same rows are the relation before it.
        new_weights = _checked_weights(rows_after)
        weights = [new_weights]
        if change is not None:
            old_weights = new_weights.copy()
            old_weights[rows.table.num_rows :] = 0
            weights.append(old_weights)
        sums = [np.add.reduceat(w[sorted_positions], firsts) for w in weights]
        present = [np.flatnonzero(w > 0) for w in sums]
        numbers = np.concatenate(present)
        present_positions = sorted_positions[firsts[numbers]]
        sides = np.arange(len(present)).repeat([len(n) for n in present])
        return _Ordered(
            table.take(positions(present_positions)),
            ids[present_positions] + sides * table.num_rows,
            np.concatenate([w[n] for w, n in zip(sums, present, strict=True)]),
            1 - 2 * sides,
            numbers,
        )

    return ordered


def _foremost(of: Physical, keys: Sequence[Expr], order: Order) -> OrderKernel:
    """`_in_order` for the first row of each key and the rows that the order ties with it.

    Only these rows are sorted. Each row has a number of its own, even if two are equal.
    """
    schema, values = of.schema, values_of(of.schema, (*keys, *(e for e, _ in order)))
    directions = [up for _, up in order]

    def ordered(run: Context, rows: DriverRelation, change: DriverRelation | None) -> _Ordered:
        parts = [_positive_rows(rows if change is None else sum_of([rows, change], schema))]
        if change is not None:
            parts.append(_positive_rows(rows))
        table = concat(parts, schema).combine_chunks()
        if not table.num_rows:
            return _Ordered(table, *[np.zeros(0, np.int64)] * 4)
        sides = np.arange(len(parts)).repeat([t.num_rows for t in parts])
        columns = values(table, run.ask)
        directed = zip(columns[len(keys) :], directions, strict=True)
        foremost, ids = foremost_of([*columns[: len(keys)], pa.array(sides)], list(directed))
        foremost_array = positions(foremost)
        table, sides = table.take(foremost_array), sides[foremost]
        directed = zip(
            (c.take(foremost_array) for c in columns[len(keys) :]), directions, strict=True
        )
        sorted_positions, _ = in_order(ids, list(directed), table.columns[: len(schema.columns)])
        if (sorted_positions[1:] < sorted_positions[:-1]).any():
            table, ids, sides = (
                table.take(positions(sorted_positions)),
                ids[sorted_positions],
                sides[sorted_positions],
            )
        counts = np.asarray(one_array(table.column(COUNT)).to_numpy(), np.int64)
        return _Ordered(table, ids, counts, 1 - 2 * sides, np.arange(len(ids)))

    return ordered


_SURE_TO_FIT = 2.0**62  # a sum of absolute weights, as floats, with which no sum is beyond 64 bits


def _checked_weights(rows: DriverRelation) -> Ids:
    """The weights of rows. Raises `StepError` if a sum for equal rows does not fit in 64 bits."""
    weights = np.asarray(one_array(rows.table.column(COUNT)).to_numpy(), np.int64)
    if np.abs(weights.astype(np.float64)).sum() > _SURE_TO_FIT:
        rows.added_up()
    return weights


def rank_kernel(n: Rank) -> FoldKernel:
    """The kernel of the first `n.n` rows of each key, with ties or without."""
    ordered = (_foremost if n.n == 1 else _in_order)(n.of, n.keys, n.order)
    relation, column_count = relation_of(n.schema), len(n.schema.columns)
    order = values_of(n.of.schema, [e for e, _ in n.order])

    def rank(
        run: Context, rows: DriverRelation, change: DriverRelation | None = None
    ) -> DriverRelation:
        table, ids, counts, signs, numbers = ordered(run, rows, change)
        if n.ties:
            counts = counts * first_with_ties(ids, counts, order(table, run.ask), n.n)
        else:
            counts = first(ids, counts, n.n)
        # A row that both relations contain equally often cancels out.
        position_of_number = np.full(numbers.max(initial=-1) + 1, -1)
        sums = np.zeros(len(position_of_number), np.int64)
        for sign in (-1, 1):
            of_side = np.flatnonzero(signs == sign)
            sums[numbers[of_side]] += sign * counts[of_side]
            position_of_number[numbers[of_side]] = of_side
        nonzero = np.flatnonzero(sums)
        row_columns = table.take(positions(position_of_number[nonzero])).columns[:column_count]
        result = relation([*map(one_array, row_columns), pa.array(sums[nonzero])])
        is_consolidated = change is None or n.n > 1 or not rows.table.num_rows
        return DriverRelation(result, n.schema, is_consolidated)

    return rank


def gather_kernel(n: Gather) -> FoldKernel:
    """The kernel of the ordered list of each key's items."""
    ordered, relation = _in_order(n.of, (n.key,), n.order), relation_of(n.schema)
    values = values_of(n.of.schema, (n.key, n.item))

    def gather(
        run: Context, rows: DriverRelation, change: DriverRelation | None = None
    ) -> DriverRelation:
        table, ids, counts, signs, _ = ordered(run, rows, change)
        keys, items = values(table, run.ask)
        firsts, arrays = lists(ids, items, counts)
        result = relation([arrays, keys.take(positions(firsts)), pa.array(signs[firsts])])
        return DriverRelation(result, n.schema)

    return gather


def pieces_kernel(n: LargestByKey) -> FoldKernel:
    relation, names = relation_of(n.schema), [c for c, _ in n.of.schema.columns]

    def pieces(rows: DriverRelation) -> pa.Table:
        own = rows.table if n.once else _positive_rows(rows)
        if not own.num_rows:
            return empty(n.schema)
        table = collated(own.select(names), n.required)
        return relation([*(one_array(c) for c in table.columns), _ones(table.num_rows)])

    return _fold_old_and_new(n.schema, pieces)


def totals_kernel(n: Totals) -> FoldKernel:
    relation, sums = relation_of(n.schema), totals(n.type)

    def total(rows: DriverRelation) -> pa.Table:
        keys, values = sums(rows.added_up().table)
        if isinstance(n.type, GroupedType):
            return relation([values, keys, _ones(len(values))])
        return relation([*spread(values, n.type.sum.value), _ones(len(values))])

    return _fold_old_and_new(n.schema, total)


def window_kernel(n: Windowed) -> FoldKernel:
    """The kernel of window functions: each row with its results, as often as its weight says.

    It takes `run.carried` for the rows before those that it gets: see `window_delta`.
    """
    ordered, relation = _in_order(n.of, n.keys, n.order), relation_of(n.schema)
    schema, sorting = n.of.schema, values_of(n.of.schema, [s.expr for s in n.sorting])
    args = values_of(schema, [a for c in n.calls for a in c.args])
    (_, row_type), (_, results_type) = n.schema.columns
    assert isinstance(results_type, Struct)
    make_row = struct_of(row_type) if isinstance(row_type, Struct) else None
    make_results = struct_of(results_type)

    def window(
        run: Context, rows: DriverRelation, change: DriverRelation | None = None
    ) -> DriverRelation:
        table, ids, counts, signs, numbers = ordered(run, rows, change)
        # As floats, because the sum may be beyond 64 bits.
        total_rows = int(max(counts[signs == sign].sum(dtype=np.float64) for sign in (1, -1)))
        if total_rows > (most := most_given(run.limits, total_rows, table)):
            raise FanOut.of(total_rows, "window", most)
        each_once = not (counts > 1).any()
        if not each_once:
            ids, signs = np.repeat(ids, counts), np.repeat(signs, counts)
            table = table.take(positions(np.repeat(np.arange(len(counts)), counts)))
        partitions = Partitions(ids, n.sorting, sorting(table, run.ask), run.carried)
        args_left = iter(args(table, run.ask))
        columns = [column_of(c, partitions, [next(args_left) for _ in c.args]) for c in n.calls]
        row_columns = [one_array(c) for c in table.columns[: len(schema.columns)]]
        if each_once and change is not None:
            changed = positions(_changed_positions(numbers, signs, columns))
            row_columns, columns = (
                [c.take(changed) for c in part] for part in (row_columns, columns)
            )
            signs = signs[changed]
        row_column = row_columns[0] if make_row is None else make_row(row_columns)
        result = relation([row_column, make_results(columns), pa.array(signs)])
        return DriverRelation(result, n.schema, each_once and not n.schema.has_floats)

    return window


def _changed_positions(numbers: Ids, signs: Ids, results: Sequence[Array]) -> Ids:
    """The positions of all rows except those with the same results in both relations."""
    new, old = np.flatnonzero(signs > 0), np.flatnonzero(signs < 0)
    new_position = np.full(numbers.max(initial=-1) + 1, -1)
    new_position[numbers[new]] = new
    before = old[new_position[numbers[old]] >= 0]
    after = new_position[numbers[before]]
    same = np.ones(len(before), np.bool_)
    for column in results:
        same &= _are_same(column.take(positions(before)), column.take(positions(after)))
    changed = np.ones(len(numbers), np.bool_)
    changed[before[same]] = changed[after[same]] = False
    return np.flatnonzero(changed)


def _are_same(a: Array, b: Array) -> Any:
    """A mask of the equal values of two columns; NULL equals NULL, and NaN equals NaN."""
    if pa.types.is_nested(a.type) or pa.types.is_floating(a.type):
        ids = key_ids([pa.chunked_array([a, b])])
        return ids[: len(a)] == ids[len(a) :]
    same: Any = pc.equal(a, b)
    if a.null_count or b.null_count:
        same = pc.or_(same.fill_null(False), pc.and_(a.is_null(), b.is_null()))
    return same.to_numpy(zero_copy_only=False)


FOLDS: dict[type[Physical], Callable[..., FoldKernel]] = {
    Gather: gather_kernel,
    LargestByKey: pieces_kernel,
    Positive: positive_kernel,
    Rank: rank_kernel,
    Totals: totals_kernel,
    Windowed: window_kernel,
}
