"""What each node means on the driver: one function from Arrow tables to an Arrow table.

A Spark job costs tens of milliseconds before it does anything. Where all that a term reads is few
rows that the driver holds, look-ups, joins and sums are done here. Functions of rows keep Spark's
meaning, because Spark evaluates them, as the projection of a local relation, mostly without a job.
Plain fields, constants and rows made of them need no evaluation at all, and what
`stepping_spark.expressions.arrow_calls` lists is the same in Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.engines.arrow.groups import (
    collated,
    first,
    first_with_ties,
    in_order,
    lists,
    positions,
)
from stepping_spark.engines.arrow.joins import join_indices
from stepping_spark.errors import StepError
from stepping_spark.expressions.arrow import Columns, column, spread
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.index import Order
from stepping_spark.physical import (
    AntiJoin,
    Argument,
    ChangeOf,
    Contributions,
    Due,
    EquiJoin,
    Gather,
    Hole,
    Negate,
    Physical,
    Pieces,
    Positive,
    Project,
    Rank,
    Totals,
    Union,
    Unnest,
    Where,
)
from stepping_spark.relations.arrow import Ids, concat, consolidate, negate, one_array
from stepping_spark.rows.schema import COUNT, GroupedType, Schema
from stepping_spark.spark.fetch import check_few
from stepping_spark.store import Now
from stepping_spark.sums.arrow import contributions, totals

Ask = Callable[[pa.Table, Schema, tuple[Expr, ...]], Columns]


@dataclass
class Context:
    """Runs a tree of nodes over tables."""

    ask: Ask  # has Spark evaluate expressions that are not plain
    now: Now = None
    is_once: Callable[[pa.Table, Schema], bool] = lambda *_: False  # of what a leaf is
    args: Sequence[pa.Table] = ()
    filled: pa.Table | None = None  # what a fold is over, within the change of one

    def run(self, tree: Physical, args: Sequence[pa.Table]) -> pa.Table:
        """The relation that a tree is over these tables; rows may stand in it several times."""
        self.args = args
        return self.node(tree)

    def node(self, n: Physical) -> pa.Table:
        """The relation that a node gives."""
        return NODES[type(n)](self, n)

    def added_up(self, n: Physical) -> pa.Table:
        """The relation of a node with each row once; as it is, where that is known of it."""
        table = self.node(n)
        return table if self.is_once(table, n.schema) else consolidate(table, n.schema)

    def values(self, table: pa.Table, schema: Schema, exprs: Sequence[Expr]) -> Columns:
        """The values of expressions over the rows of a relation."""
        found = {e: column(e, table) for e in exprs}
        known = {e: values for e, values in found.items() if values is not None}
        asked = tuple(e for e in found if e not in known)
        if not table.num_rows:
            known.update((e, pa.array([], e.type.arrow)) for e in asked)
        elif asked:
            known.update(zip(asked, self.ask(table, schema, asked), strict=True))
        return [known[e] for e in exprs]


def _relation(columns: Sequence[Any], diffs: Sequence[Any], schema: Schema) -> pa.Table:
    arrays = [
        a.cast(f.type) if a.type != f.type else a
        for a, f in zip((*columns, *diffs), schema.arrow, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def _argument(run: Context, n: Argument) -> pa.Table:
    return run.args[n.number]


def _hole(run: Context, n: Hole) -> pa.Table:
    assert run.filled is not None
    return run.filled


def _project(run: Context, n: Project) -> pa.Table:
    table = run.node(n.of)
    columns: Columns = []
    for cell, values in zip(n.cells, run.values(table, n.of.schema, n.exprs), strict=True):
        columns += spread(values, cell.expr.type) if cell.spread else [values]
    return _relation(columns, [one_array(table.column(d)) for d, _ in n.schema.diffs], n.schema)


def _where(run: Context, n: Where) -> pa.Table:
    table = run.node(n.of)
    (kept,) = run.values(table, n.schema, (n.condition,))
    return table.filter(kept)  # NULL is dropped


def _due(run: Context, n: Due) -> pa.Table:
    table = run.node(n.of)
    now: Any = pa.scalar(n.time.encode(run.now, "now"), n.time.arrow)
    return table.filter(pc.less_equal(table.column("time"), now))


def _unnest(run: Context, n: Unnest) -> pa.Table:
    table = run.node(n.of)
    (values,) = run.values(table, n.of.schema, (n.lists,))
    items: Any = pc.list_flatten(values)
    check_few(len(items), n.name)
    rows = pc.list_parent_indices(values)
    # The other columns, the lists among them, are not repeated for each item.
    carried = [one_array(table.column(c)).take(rows) for c, _ in n.carried]
    counts: Any = one_array(table.column(COUNT)).take(rows)
    if n.weight is not None:
        counts = _product(counts, _at(items, n.weight))
    return _relation([*(_at(items, p) for p in n.paths), *carried], [counts], n.schema)


def _at(items: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        items = pc.struct_field(items, name)
    return items


def _union(run: Context, n: Union) -> pa.Table:
    return concat([run.node(p) for p in n.parts], n.schema)


def _negate(run: Context, n: Negate) -> pa.Table:
    return negate(run.node(n.of), n.schema)


def _equi_join(run: Context, n: EquiJoin) -> pa.Table:
    sides = [run.node(s) for s in n.inputs]
    keys = [
        run.values(table, side.schema, key)
        for table, side, key in zip(sides, n.inputs, (n.left_key, n.right_key), strict=True)
    ]
    matched = [s.take(at) for s, at in zip(sides, join_indices(*keys), strict=True)]
    cells = [run.values(matched[side], n.inputs[side].schema, (e,))[0] for side, e in n.cells]
    counts = _product(*(one_array(s.column(COUNT)) for s in matched))
    return _relation(cells, [counts], n.schema)


def _product(a: Any, b: Any) -> Any:
    """The product of two weights, or an error that says what it is."""
    try:
        return pc.multiply_checked(a, b)
    except pa.ArrowInvalid:
        raise StepError(
            "the product of two weights is beyond BIGINT; feed rows with smaller weights"
        ) from None


def _anti_join(run: Context, n: AntiJoin) -> pa.Table:
    left, right = run.node(n.left), run.node(n.right)
    if not left.num_rows:
        return left
    keys = run.values(left, n.left.schema, n.key)
    at, _ = join_indices(keys, [one_array(right.column(c)) for c, _ in n.right.schema.columns])
    absent = np.ones(left.num_rows, np.bool_)
    absent[at.to_numpy()] = False
    return left.filter(pa.array(absent))


def _contributions(run: Context, n: Contributions) -> pa.Table:
    table = run.node(n.of)
    exprs = (n.pick,) if n.key is None else (n.pick, n.key.expr)
    picked, *keys = run.values(table, n.of.schema, exprs)
    return contributions(keys, picked, n.pick.type, one_array(table.column(COUNT)), n.schema)


def _ones(rows: int) -> Any:
    return pa.array(np.ones(rows, np.int64))


def _there(run: Context, of: Physical) -> pa.Table:
    """The rows whose weights add up to more than zero, each once."""
    rows = run.added_up(of)
    return rows.filter(pc.greater(rows.column(COUNT), pa.scalar(0)))


def _positive(run: Context, n: Positive) -> pa.Table:
    kept = _there(run, n.of)
    columns = [one_array(kept.column(c)) for c, _ in n.schema.columns]
    return _relation(columns, [_ones(kept.num_rows)], n.schema)


def _in_order(
    run: Context, of: Physical, keys: Sequence[Expr], order: Order
) -> tuple[pa.Table, Ids, Ids]:
    """The rows that are there, by key and in order; the numbers of their keys; their weights."""
    rows = _there(run, of)
    if not rows.num_rows:
        return rows, np.zeros(0, np.int64), np.zeros(0, np.int64)
    known = run.values(rows, of.schema, (*keys, *(e for e, _ in order)))
    by, ordered = known[: len(keys)], known[len(keys) :]
    directed = [(c, up) for c, (_, up) in zip(ordered, order, strict=True)]
    at, ids = in_order(by, directed, [rows.column(c) for c, _ in of.schema.columns])
    rows = rows.take(positions(at))
    return rows, ids[at], np.asarray(rows.column(COUNT).to_numpy(), np.int64)


def _rank(run: Context, n: Rank) -> pa.Table:
    rows, ids, counts = _in_order(run, n.of, n.keys, n.order)
    if n.ties:
        order = run.values(rows, n.of.schema, [e for e, _ in n.order])
        return rows.filter(pa.array(first_with_ties(ids, counts, order, n.n)))
    kept = pa.array(first(ids, counts, n.n))
    found = _relation([one_array(rows.column(c)) for c, _ in n.schema.columns], [kept], n.schema)
    return found.filter(pc.greater(found.column(COUNT), pa.scalar(0)))


def _gather(run: Context, n: Gather) -> pa.Table:
    rows, ids, counts = _in_order(run, n.of, (n.key,), n.order)
    keys, items = run.values(rows, n.of.schema, (n.key, n.item))
    firsts, found = lists(ids, items, counts)
    return _relation([found, keys.take(positions(firsts))], [_ones(len(firsts))], n.schema)


def _pieces(run: Context, n: Pieces) -> pa.Table:
    rows = _there(run, n.of)
    if not rows.num_rows:
        return n.schema.arrow.empty_table()
    found = collated(rows.select([c for c, _ in n.of.schema.columns]), n.required)
    return _relation([one_array(c) for c in found.columns], [_ones(found.num_rows)], n.schema)


def _totals(run: Context, n: Totals) -> pa.Table:
    keys, values = totals(run.added_up(n.of), n.type)
    ones = _ones(len(values))
    if isinstance(n.type, GroupedType):
        return _relation([values, keys], [ones], n.schema)
    return _relation(spread(values, n.type.sum.value), [ones], n.schema)


def _change_of(run: Context, n: ChangeOf) -> pa.Table:
    over = n.state.schema
    state = run.node(n.state)
    both = concat([state, run.node(n.change)], over)
    found = []
    for run.filled in (state, both):
        found.append(run.node(n.fold))
    before, after = found
    return concat([after, negate(before, n.schema)], n.schema)


NODES: dict[type[Physical], Callable[[Context, Any], pa.Table]] = {
    AntiJoin: _anti_join,
    Argument: _argument,
    ChangeOf: _change_of,
    Contributions: _contributions,
    Due: _due,
    EquiJoin: _equi_join,
    Gather: _gather,
    Hole: _hole,
    Negate: _negate,
    Pieces: _pieces,
    Positive: _positive,
    Project: _project,
    Rank: _rank,
    Totals: _totals,
    Union: _union,
    Unnest: _unnest,
    Where: _where,
}
