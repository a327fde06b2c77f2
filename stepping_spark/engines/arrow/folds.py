"""Folds on the driver: nodes whose result for a key depends on all rows of that key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

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
from stepping_spark.engines.arrow.joins import most_given
from stepping_spark.engines.arrow.kernels import Context, Kernel
from stepping_spark.engines.arrow.windows import Partitions, column_of
from stepping_spark.expressions.arrow import relation_of, spread, struct_of, values_of
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.index import Order
from stepping_spark.physical import (
    Gather,
    Physical,
    Pieces,
    Positive,
    Rank,
    Totals,
    Windowed,
)
from stepping_spark.relations.arrow import Ids, empty, one_array
from stepping_spark.rows.schema import COUNT, GroupedType
from stepping_spark.rows.types import Struct
from stepping_spark.spark.fetch import FanOut
from stepping_spark.spark.relation import each_once
from stepping_spark.sums.arrow import totals


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


def pieces_kernel(n: Pieces, of: Kernel) -> Kernel:
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
