"""Joins, and the nodes whose result for a key depends on all rows of that key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

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
from stepping_spark.execution.arrow.kernels import Context
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
    """The rows that a computation may give, if each is as wide as the average rows of its tables.

    Those of a join are rows of both tables. It gives no more than `rows`. Where these have room in
    any case, the sizes of columns, which take long to find, do not matter.
    """
    most, widest = bytes_given(limits), 0
    for t in tables:  # columns may share a buffer
        widest += t.num_columns * t.get_total_buffer_size() // max(t.num_rows, 1) + 1
    if rows * widest <= most:
        return limits.given_rows
    width = sum(t.nbytes // t.num_rows for t in tables if t.num_rows)
    return min(limits.given_rows, most // max(width, 1))


_ROWS_OF_ONE_THREAD = 50_000


def join_indices(left: Arrays, right: Arrays, most: int) -> tuple[Array, Array]:
    """The positions of rows whose keys are equal; NULL equals nothing.

    `FanOut` where they are more than `most`.
    """
    few = len(left[0]) + len(right[0]) <= FEW
    if few and not any(map(pa.types.is_nested, [k.type for k in left])):
        return _few_indices(left, right, most)
    names = [f"k{i}" for i in range(len(left))]
    keys = [_comparable(a, b) for a, b in zip(left, right, strict=True)]
    sides = []
    for side, position in ((0, "i"), (1, "j")):
        columns = [k[side] for k in keys]
        rows = pa.array(np.arange(len(columns[0])))
        sides.append(pa.table([*columns, rows], names=[*names, position]))
    if len(left[0]) * len(right[0]) > most and (pairs := _pairs(sides, names, most)) > most:
        raise FanOut.of(pairs, "a join", most)
    small, large = sorted(sides, key=len)  # Arrow hashes the right side
    threads = large.num_rows > _ROWS_OF_ONE_THREAD
    joined = large.join(small, keys=names, join_type="inner", use_threads=threads)
    return one_array(joined.column("i")), one_array(joined.column("j"))


def _few_indices(left: Arrays, right: Arrays, most: int) -> tuple[Array, Array]:
    """The same for few rows: a dictionary is made before Arrow has begun."""
    places: dict[tuple[Any, ...], list[int]] = {}
    for j, key in enumerate(zip(*[comparable(canonical(k)) for k in right], strict=True)):
        if None not in key:
            places.setdefault(key, []).append(j)
    found: tuple[list[int], list[int]] = ([], [])
    for i, key in enumerate(zip(*[comparable(canonical(k)) for k in left], strict=True)):
        at = places.get(key, ())
        found[0].extend([i] * len(at))
        found[1].extend(at)
    if len(found[0]) > most:
        raise FanOut.of(len(found[0]), "a join", most)
    return pa.array(found[0], pa.int64()), pa.array(found[1], pa.int64())


def _pairs(sides: list[pa.Table], names: list[str], most: int) -> int:
    """How many rows a join gives; it may be an upper bound, if that is no more than `most`."""
    small, large = sorted(sides, key=len)
    at_most = _most_of_a_key(small, names) * large.num_rows
    if at_most <= most:
        return at_most
    counted = small.group_by(names).aggregate([([], "count_all")])
    counts = large.group_by(names).aggregate([([], "count_all")])
    both = counts.join(counted, keys=names, join_type="inner", right_suffix="_right")
    each: Any = pc.multiply(both.column("count_all"), both.column("count_all_right"))
    return pc.sum(each).as_py() or 0


def _most_of_a_key(table: pa.Table, names: list[str]) -> int:
    """An upper bound of the rows that share a key: the rows of a slot, which keys may share."""
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


Signed: TypeAlias = Sequence[tuple[int, DriverRelation]]
"""Relations, each with the sign of its fold in a sum."""

FoldKernel: TypeAlias = Callable[[Context, Signed], pa.Table]
"""Folds relations, and adds up the results with their signs.

The change of a fold is its result for the new state, less that for the old one. Where rows are put
in order, those of both are at once.
"""


def _one_by_one(schema: Schema, fold: Callable[[DriverRelation], pa.Table]) -> FoldKernel:
    def each(run: Context, parts: Signed) -> pa.Table:
        made = [(sign, fold(rows)) for sign, rows in parts]
        return concat([t if sign > 0 else negate(t, schema) for sign, t in made], schema)

    return each


def _where(table: pa.Table, kept: Any) -> pa.Table:
    """The rows at which a mask of numpy is true."""
    return table if np.count_nonzero(kept) == len(kept) else table.filter(pa.array(kept))


def _ones(rows: int) -> Any:
    return pa.array(np.ones(rows, np.int64))


def _there(rows: DriverRelation) -> pa.Table:
    """The rows whose weights add up to more than zero, each once."""
    once = rows.added_up().table
    return _where(once, one_array(once.column(COUNT)).to_numpy() > 0)


def positive_kernel(n: Positive) -> FoldKernel:
    relation, names = relation_of(n.schema), [c for c, _ in n.schema.columns]

    def positive(rows: DriverRelation) -> pa.Table:
        kept = _there(rows)
        counts = one_array(kept.column(COUNT)) if n.counted else _ones(kept.num_rows)
        return relation([*(one_array(kept.column(c)) for c in names), counts])

    return _one_by_one(n.schema, positive)


class _Ordered(NamedTuple):
    """The rows that are there, by key and in order, of several relations.

    `ids` are the numbers of their keys, which differ between the relations.
    """

    rows: pa.Table
    ids: Ids
    counts: Ids
    signs: Ids


def _in_order(
    of: Physical, keys: Sequence[Expr], order: Order, *, first: bool = False
) -> Callable[[Context, Signed], _Ordered]:
    """A function that orders the rows of relations.

    If only the `first` one of each key matters, few others are there: no order takes them all.
    """
    schema, values = of.schema, values_of(of.schema, (*keys, *(e for e, _ in order)))
    directions = [up for _, up in order]

    def ordered(run: Context, parts: Signed) -> _Ordered:
        there = [_there(rows) for _, rows in parts]
        found = concat(there, schema).combine_chunks()
        if not found.num_rows:
            return _Ordered(found, *[np.zeros(0, np.int64)] * 3)
        sides = np.arange(len(parts)).repeat([t.num_rows for t in there])
        known = values(found, run.ask)
        by = known[: len(keys)]
        directed = list(zip(known[len(keys) :], directions, strict=True))
        if first:
            kept, ids = foremost_of([*by, pa.array(sides)], directed)
            taken = positions(kept)
            found, sides = found.take(taken), sides[kept]
            directed = [(c.take(taken), up) for c, up in directed]
        else:
            ids = key_ids(by) + sides * found.num_rows
        at = in_order(ids, directed, found.columns[: len(schema.columns)])
        if (at[1:] < at[:-1]).any():
            found, ids, sides = found.take(positions(at)), ids[at], sides[at]
        signs = np.array([sign for sign, _ in parts])[sides]
        counts = np.asarray(one_array(found.column(COUNT)).to_numpy(), np.int64)
        return _Ordered(found, ids, counts, signs)

    return ordered


def rank_kernel(n: Rank) -> FoldKernel:
    ordered = _in_order(n.of, n.keys, n.order, first=n.n == 1)
    relation, columns = relation_of(n.schema), len(n.schema.columns)
    order = values_of(n.of.schema, [e for e, _ in n.order])

    def rank(run: Context, parts: Signed) -> pa.Table:
        rows, ids, counts, signs = ordered(run, parts)
        if n.ties:
            kept: Any = first_with_ties(ids, counts, order(rows, run.ask), n.n)
        else:
            counts = first(ids, counts, n.n)
            kept = counts > 0
        own = [one_array(c) for c in rows.columns[:columns]]
        return _where(relation([*own, pa.array(counts * signs)]), kept)

    return rank


def gather_kernel(n: Gather) -> FoldKernel:
    ordered, relation = _in_order(n.of, (n.key,), n.order), relation_of(n.schema)
    values = values_of(n.of.schema, (n.key, n.item))

    def gather(run: Context, parts: Signed) -> pa.Table:
        rows, ids, counts, signs = ordered(run, parts)
        keys, items = values(rows, run.ask)
        firsts, found = lists(ids, items, counts)
        return relation([found, keys.take(positions(firsts)), pa.array(signs[firsts])])

    return gather


def pieces_kernel(n: LargestByKey) -> FoldKernel:
    relation, names = relation_of(n.schema), [c for c, _ in n.of.schema.columns]

    def pieces(rows: DriverRelation) -> pa.Table:
        there = rows.table if n.once else _there(rows)
        if not there.num_rows:
            return empty(n.schema)
        found = collated(there.select(names), n.required)
        return relation([*(one_array(c) for c in found.columns), _ones(found.num_rows)])

    return _one_by_one(n.schema, pieces)


def totals_kernel(n: Totals) -> FoldKernel:
    relation, sums = relation_of(n.schema), totals(n.type)

    def total(rows: DriverRelation) -> pa.Table:
        keys, values = sums(rows.added_up().table)
        if isinstance(n.type, GroupedType):
            return relation([values, keys, _ones(len(values))])
        return relation([*spread(values, n.type.sum.value), _ones(len(values))])

    return _one_by_one(n.schema, total)


def window_kernel(n: Windowed) -> FoldKernel:
    ordered, relation = _in_order(n.of, n.keys, n.order), relation_of(n.schema)
    schema, sorting = n.of.schema, values_of(n.of.schema, [s.expr for s in n.sorting])
    args = values_of(schema, [a for c in n.calls for a in c.args])
    (_, row), (_, results) = n.schema.columns
    assert isinstance(results, Struct)
    made_row, made_results = struct_of(row) if isinstance(row, Struct) else None, struct_of(results)

    def window(run: Context, parts: Signed) -> pa.Table:
        rows, ids, counts, signs = ordered(run, parts)
        total = max(int(counts[signs == sign].sum()) for sign, _ in parts)
        if total > (most := most_given(run.limits, total, rows)):
            raise FanOut.of(total, "window", most)
        if (counts > 1).any():
            ids, signs = np.repeat(ids, counts), np.repeat(signs, counts)
            rows = rows.take(positions(np.repeat(np.arange(len(counts)), counts)))
        at = Partitions(ids, n.sorting, sorting(rows, run.ask), run.carried)
        given = iter(args(rows, run.ask))
        found = [column_of(c, at, [next(given) for _ in c.args]) for c in n.calls]
        own = [one_array(c) for c in rows.columns[: len(schema.columns)]]
        left = own[0] if made_row is None else made_row(own)
        return relation([left, made_results(found), pa.array(signs)])

    return window


FOLDS: dict[type[Physical], Callable[..., FoldKernel]] = {
    Gather: gather_kernel,
    LargestByKey: pieces_kernel,
    Positive: positive_kernel,
    Rank: rank_kernel,
    Totals: totals_kernel,
    Windowed: window_kernel,
}
