"""Joins, and the nodes whose result for a key depends on all rows of that key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
from stepping_spark.engines.arrow.groups import (
    collated,
    first,
    first_with_ties,
    foremost_of,
    in_order,
    key_ids,
    lists,
    positions,
)
from stepping_spark.engines.arrow.kernels import Context, Kernel
from stepping_spark.engines.arrow.windows import Partitions, column_of
from stepping_spark.expressions.arrow_kernels import (
    Arrays,
    relation_of,
    spread,
    struct_of,
    values_of,
)
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.index import Order
from stepping_spark.relations.arrow import (
    FEW,
    Array,
    Ids,
    canonical,
    comparable,
    empty,
    flat,
    is_simple,
    one_array,
    row_ids,
)
from stepping_spark.relations.placement import bytes_given
from stepping_spark.relations.relation import FanOut, each_once
from stepping_spark.relations.sums.arrow import totals
from stepping_spark.rows.schema import COUNT, GroupedType
from stepping_spark.rows.types import Struct


def most_given(limits: Limits, *tables: pa.Table) -> int:
    """The rows that a computation may give, if each is as wide as the average rows of its tables.

    Those of a join are rows of both tables.
    """
    width = sum(t.nbytes // t.num_rows for t in tables if t.num_rows)
    return min(limits.given_rows, bytes_given(limits) // max(width, 1))


def join_indices(left: Arrays, right: Arrays, most: int) -> tuple[Array, Array]:
    """The positions of rows whose keys are equal; NULL equals nothing.

    `FanOut` where they are more than `most`.
    """
    if len(left[0]) + len(right[0]) <= FEW and all(is_simple(k.type) for k in (*left, *right)):
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
    joined = sides[0].join(sides[1], keys=names, join_type="inner", use_threads=False)
    return one_array(joined.column("i")), one_array(joined.column("j"))


def _few_indices(left: Arrays, right: Arrays, most: int) -> tuple[Array, Array]:
    """The same for few rows: a dictionary is made before Arrow has begun."""
    places: dict[tuple[Any, ...], list[int]] = {}
    for j, key in enumerate(zip(*map(comparable, right), strict=True)):
        if None not in key:
            places.setdefault(key, []).append(j)
    found: tuple[list[int], list[int]] = ([], [])
    for i, key in enumerate(zip(*map(comparable, left), strict=True)):
        at = places.get(key, ())
        found[0].extend([i] * len(at))
        found[1].extend(at)
    if len(found[0]) > most:
        raise FanOut.of(len(found[0]), "a join", most)
    return pa.array(found[0], pa.int64()), pa.array(found[1], pa.int64())


def _pairs(sides: list[pa.Table], names: list[str], most: int) -> int:
    """How many rows a join gives; it may be an upper bound, if that is no more than `most`."""
    small, large = sorted(sides, key=len)
    counted = small.group_by(names).aggregate([([], "count_all")])
    greatest = pc.max(counted.column("count_all")).as_py() or 0
    if greatest * large.num_rows <= most:
        return int(greatest * large.num_rows)
    counts = large.group_by(names).aggregate([([], "count_all")])
    both = counts.join(counted, keys=names, join_type="inner", right_suffix="_right")
    each: Any = pc.multiply(both.column("count_all"), both.column("count_all_right"))
    return pc.sum(each).as_py() or 0


def _comparable(a: Array, b: Array) -> tuple[Array, Array]:
    """Two columns of keys, in types that Arrow can join."""
    if pa.types.is_duration(a.type):
        return a.cast(pa.int64()), b.cast(pa.int64())
    if not pa.types.is_nested(a.type):
        return one_array(canonical(a)), one_array(canonical(b))
    both = pa.concat_arrays([a, b])
    ids = pa.array(row_ids(flat(canonical(both))), mask=both.is_null().to_numpy(False))
    return ids[: len(a)], ids[len(a) :]


def added_up(of: Physical, rows: Kernel) -> Kernel:
    """The rows of a node, each once; unchanged if they are known to be."""
    schema = of.schema

    def added_up(run: Context) -> pa.Table:
        table = rows(run)
        return table if run.is_once(table, schema) else each_once(table, schema)

    return added_up


def _where(table: pa.Table, kept: Any) -> pa.Table:
    """The rows at which a mask of numpy is true."""
    return table if kept.all() else table.filter(pa.array(kept))


def _ones(rows: int) -> Any:
    return pa.array(np.ones(rows, np.int64))


def _there(of: Physical, rows: Kernel) -> Kernel:
    """The rows whose weights add up to more than zero, each once."""
    once = added_up(of, rows)

    def there(run: Context) -> pa.Table:
        table = once(run)
        return _where(table, table.column(COUNT).to_numpy() > 0)

    return there


def positive_kernel(n: Positive, rows: Kernel) -> Kernel:
    there, relation = _there(n.of, rows), relation_of(n.schema)
    names = [c for c, _ in n.schema.columns]

    def positive(run: Context) -> pa.Table:
        kept = there(run)
        counts = one_array(kept.column(COUNT)) if n.counted else _ones(kept.num_rows)
        return relation([*(one_array(kept.column(c)) for c in names), counts])

    return positive


def _in_order(
    of: Physical, rows: Kernel, keys: Sequence[Expr], order: Order, *, first: bool = False
) -> Callable[[Context], tuple[pa.Table, Ids, Ids]]:
    """The rows that are there, by key and in order; the numbers of their keys; their weights.

    If only the `first` one of each key matters, few others are there: no order takes them all.
    """
    there = _there(of, rows)
    values = values_of(of.schema, (*keys, *(e for e, _ in order)))

    def ordered(run: Context) -> tuple[pa.Table, Ids, Ids]:
        found = there(run)
        if not found.num_rows:
            return found, np.zeros(0, np.int64), np.zeros(0, np.int64)
        known = values(found, run.ask)
        by, columns = known[: len(keys)], known[len(keys) :]
        directed = [(c, up) for c, (_, up) in zip(columns, order, strict=True)]
        if first:
            kept, ids = foremost_of(by, directed)
            taken = positions(kept)
            found = found.take(taken)
            directed = [(c.take(taken), up) for c, up in directed]
        else:
            ids = key_ids(by)
        at = in_order(ids, directed, [found.column(c) for c, _ in of.schema.columns])
        if (at[1:] < at[:-1]).any():
            found, ids = found.take(positions(at)), ids[at]
        return found, ids, np.asarray(found.column(COUNT).to_numpy(), np.int64)

    return ordered


def rank_kernel(n: Rank, of: Kernel) -> Kernel:
    ordered = _in_order(n.of, of, n.keys, n.order, first=n.n == 1)
    relation = relation_of(n.schema)
    order = values_of(n.of.schema, [e for e, _ in n.order])

    def rank(run: Context) -> pa.Table:
        rows, ids, counts = ordered(run)
        if n.ties:
            return _where(rows, first_with_ties(ids, counts, order(rows, run.ask), n.n))
        numbers = first(ids, counts, n.n)
        columns = [one_array(rows.column(c)) for c, _ in n.schema.columns]
        return _where(relation([*columns, pa.array(numbers)]), numbers > 0)

    return rank


def gather_kernel(n: Gather, of: Kernel) -> Kernel:
    ordered, relation = _in_order(n.of, of, (n.key,), n.order), relation_of(n.schema)
    values = values_of(n.of.schema, (n.key, n.item))

    def gather(run: Context) -> pa.Table:
        rows, ids, counts = ordered(run)
        keys, items = values(rows, run.ask)
        firsts, found = lists(ids, items, counts)
        return relation([found, keys.take(positions(firsts)), _ones(len(firsts))])

    return gather


def pieces_kernel(n: LargestByKey, of: Kernel) -> Kernel:
    there = of if n.once else _there(n.of, of)
    relation, names = relation_of(n.schema), [c for c, _ in n.of.schema.columns]

    def pieces(run: Context) -> pa.Table:
        rows = there(run)
        if not rows.num_rows:
            return empty(n.schema)
        found = collated(rows.select(names), n.required)
        return relation([*(one_array(c) for c in found.columns), _ones(found.num_rows)])

    return pieces


def totals_kernel(n: Totals, of: Kernel) -> Kernel:
    rows, relation, sums = added_up(n.of, of), relation_of(n.schema), totals(n.type)

    def total(run: Context) -> pa.Table:
        keys, values = sums(rows(run))
        if isinstance(n.type, GroupedType):
            return relation([values, keys, _ones(len(values))])
        return relation([*spread(values, n.type.sum.value), _ones(len(values))])

    return total


def window_kernel(n: Windowed, of: Kernel) -> Kernel:
    ordered, relation = _in_order(n.of, of, n.keys, n.order), relation_of(n.schema)
    schema, sorting = n.of.schema, values_of(n.of.schema, [s.expr for s in n.sorting])
    args = values_of(schema, [a for c in n.calls for a in c.args])
    (_, row), (_, results) = n.schema.columns
    assert isinstance(results, Struct)
    made_row, made_results = struct_of(row) if isinstance(row, Struct) else None, struct_of(results)

    def window(run: Context) -> pa.Table:
        rows, ids, counts = ordered(run)
        if (total := int(counts.sum())) > (most := most_given(run.limits, rows)):
            raise FanOut.of(total, "window", most)
        if (counts > 1).any():
            ids = np.repeat(ids, counts)
            rows = rows.take(positions(np.repeat(np.arange(len(counts)), counts)))
        at = Partitions(ids, n.sorting, sorting(rows, run.ask), run.carried)
        given = iter(args(rows, run.ask))
        found = [column_of(c, at, [next(given) for _ in c.args]) for c in n.calls]
        own = [one_array(rows.column(c)) for c, _ in schema.columns]
        left = own[0] if made_row is None else made_row(own)
        return relation([left, made_results(found), _ones(rows.num_rows)])

    return window
