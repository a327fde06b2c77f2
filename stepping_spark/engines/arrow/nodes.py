"""What each node means on the driver: one function, whose result takes Arrow tables to one.

The nodes of a plan are prepared once. Each function here looks at its node and gives a kernel,
which the steps run: schemas, names and expressions are known to it by then.

A Spark job costs tens of milliseconds before it does anything. Where all that a term reads is few
rows that the driver holds, look-ups, joins and sums are done here. Functions of rows keep Spark's
meaning, because Spark evaluates them, as the projection of a local relation, mostly without a job.
Plain fields, constants and rows made of them need no evaluation at all, and what
`stepping_spark.expressions.arrow_calls` lists is the same in Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

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
from stepping_spark.expressions.arrow import Columns, cast, evaluator, spread
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.index import Order
from stepping_spark.limits import DEFAULT
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
from stepping_spark.relations.arrow import Ids, concat, consolidate, empty, negate, one_array
from stepping_spark.rows.schema import COUNT, GroupedType, Schema
from stepping_spark.spark.fetch import check_few
from stepping_spark.store import Now
from stepping_spark.sums.arrow import contributions, totals

Ask = Callable[[pa.Table, Schema, tuple[Expr, ...]], Columns]


@dataclass
class Context:
    """What kernels run on."""

    ask: Ask  # has Spark evaluate expressions that are not plain
    now: Now = None
    is_once: Callable[[pa.Table, Schema], bool] = lambda *_: False  # of what a leaf is
    most_rows: int = DEFAULT.given_rows  # that a node may give, however few it reads
    args: Sequence[pa.Table] = ()
    filled: pa.Table | None = None  # what a fold is over, within the change of one


Kernel: TypeAlias = Callable[[Context], pa.Table]
Values: TypeAlias = Callable[[Context, pa.Table], Columns]
Relation: TypeAlias = Callable[[Sequence[Any]], pa.Table]


def prepared(n: Physical) -> Kernel:
    """What gives the relation of a tree of nodes; rows may stand in it several times."""
    return NODES[type(n)](n)


def _values(schema: Schema, exprs: Sequence[Expr]) -> Values:
    """What gives the values of expressions over the rows of a relation."""
    distinct = list(dict.fromkeys(exprs))
    evaluators = [evaluator(e) for e in distinct]
    places = None if len(distinct) == len(exprs) else [distinct.index(e) for e in exprs]

    def values(run: Context, table: pa.Table) -> Columns:
        columns: list[Any] = []
        asked = []
        for i, compute in enumerate(evaluators):
            column = None if compute is None else compute(table)
            if column is None:
                asked.append(i)
            columns.append(column)
        if asked:
            wanted = tuple(distinct[i] for i in asked)
            found = run.ask(table, schema, wanted) if table.num_rows else map(_nothing, wanted)
            for i, column in zip(asked, found, strict=True):
                columns[i] = column
        return columns if places is None else [columns[i] for i in places]

    return values


def _nothing(e: Expr) -> Any:
    return pa.array([], e.type.arrow)


def _relation(schema: Schema) -> Relation:
    """What makes a table of columns and diffs."""
    made = schema.arrow
    fields = list(made)

    def relation(columns: Sequence[Any]) -> pa.Table:
        return pa.Table.from_arrays(cast(columns, fields), schema=made)

    return relation


def _added_up(of: Physical) -> Kernel:
    """The relation of a node with each row once; as it is, where that is known of it."""
    rows, schema = prepared(of), of.schema

    def added_up(run: Context) -> pa.Table:
        table = rows(run)
        return table if run.is_once(table, schema) else consolidate(table, schema)

    return added_up


def _argument(n: Argument) -> Kernel:
    return lambda run: run.args[n.number]


def _hole(n: Hole) -> Kernel:
    def hole(run: Context) -> pa.Table:
        assert run.filled is not None
        return run.filled

    return hole


def _project(n: Project) -> Kernel:
    rows, values, relation = prepared(n.of), _values(n.of.schema, n.exprs), _relation(n.schema)
    diffs = [d for d, _ in n.schema.diffs]
    split = [(c.expr.type, c.spread) for c in n.cells]

    def project(run: Context) -> pa.Table:
        table = rows(run)
        columns: Columns = []
        for (t, is_spread), found in zip(split, values(run, table), strict=True):
            columns += spread(found, t) if is_spread else [found]
        for d in diffs:
            columns.append(one_array(table.column(d)))
        return relation(columns)

    return project


def _where(n: Where) -> Kernel:
    rows, values = prepared(n.of), _values(n.schema, (n.condition,))

    def where(run: Context) -> pa.Table:
        table = rows(run)
        (kept,) = values(run, table)
        return table.filter(kept)  # NULL is dropped

    return where


def _due(n: Due) -> Kernel:
    rows = prepared(n.of)

    def due(run: Context) -> pa.Table:
        table = rows(run)
        now: Any = pa.scalar(n.time.encode(run.now, "now"), n.time.arrow)
        return table.filter(pc.less_equal(table.column("time"), now))

    return due


def _unnest(n: Unnest) -> Kernel:
    rows, values, relation = prepared(n.of), _values(n.of.schema, (n.lists,)), _relation(n.schema)

    def unnest(run: Context) -> pa.Table:
        table = rows(run)
        (found,) = values(run, table)
        items: Any = pc.list_flatten(found)
        check_few(len(items), n.name, run.most_rows)
        parents = pc.list_parent_indices(found)
        # The other columns, the lists among them, are not repeated for each item.
        carried = [one_array(table.column(c)).take(parents) for c, _ in n.carried]
        counts: Any = one_array(table.column(COUNT)).take(parents)
        if n.weight is not None:
            counts = _product(counts, _at(items, n.weight))
        return relation([*(_at(items, p) for p in n.paths), *carried, counts])

    return unnest


def _at(items: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        items = pc.struct_field(items, name)
    return items


def _union(n: Union) -> Kernel:
    parts, schema = [prepared(p) for p in n.parts], n.schema
    return lambda run: concat([part(run) for part in parts], schema)


def _negate(n: Negate) -> Kernel:
    rows, schema = prepared(n.of), n.schema
    return lambda run: negate(rows(run), schema)


def _equi_join(n: EquiJoin) -> Kernel:
    left, right = (prepared(side) for side in n.inputs)
    left_key = _values(n.left.schema, n.left_key)
    right_key = _values(n.right.schema, n.right_key)
    of_side = [[i for i, (s, _) in enumerate(n.cells) if s == side] for side in (0, 1)]
    cells = [
        _values(side.schema, [n.cells[i][1] for i in found])
        for side, found in zip(n.inputs, of_side, strict=True)
    ]
    schema, relation = n.schema, _relation(n.schema)

    def equi_join(run: Context) -> pa.Table:
        sides = [left(run), right(run)]
        if not (sides[0].num_rows and sides[1].num_rows):
            return empty(schema)
        keys = left_key(run, sides[0]), right_key(run, sides[1])
        found = join_indices(*keys, run.most_rows)
        columns: list[Any] = [None] * len(n.cells)
        counts = []
        for side, at in enumerate(found):
            matched = sides[side].take(at)
            for i, values in zip(of_side[side], cells[side](run, matched), strict=True):
                columns[i] = values
            counts.append(one_array(matched.column(COUNT)))
        return relation([*columns, _product(*counts)])

    return equi_join


def _product(a: Any, b: Any) -> Any:
    """The product of two weights, or an error that says what it is."""
    try:
        return pc.multiply_checked(a, b)
    except pa.ArrowInvalid:
        raise StepError(
            "the product of two weights is beyond BIGINT; feed rows with smaller weights"
        ) from None


def _anti_join(n: AntiJoin) -> Kernel:
    left, right, key = prepared(n.left), prepared(n.right), _values(n.left.schema, n.key)
    names = [c for c, _ in n.right.schema.columns]

    def anti_join(run: Context) -> pa.Table:
        rows, others = left(run), right(run)
        if not (rows.num_rows and others.num_rows):
            return rows
        keys = [one_array(others.column(c)) for c in names]
        at, _ = join_indices(key(run, rows), keys, run.most_rows)
        absent = np.ones(rows.num_rows, np.bool_)
        absent[at.to_numpy()] = False
        return rows.filter(pa.array(absent))

    return anti_join


def _contributions(n: Contributions) -> Kernel:
    rows, schema = prepared(n.of), n.schema
    exprs = (n.pick,) if n.key is None else (n.pick, n.key.expr)
    values, contribute = _values(n.of.schema, exprs), contributions(n.pick.type, schema)

    def contributed(run: Context) -> pa.Table:
        table = rows(run)
        picked, *keys = values(run, table)
        return contribute(keys, picked, one_array(table.column(COUNT)))

    return contributed


def _ones(rows: int) -> Any:
    return pa.array(np.ones(rows, np.int64))


def _there(of: Physical) -> Kernel:
    """The rows whose weights add up to more than zero, each once."""
    rows, zero = _added_up(of), pa.scalar(0)

    def there(run: Context) -> pa.Table:
        table = rows(run)
        return table.filter(pc.greater(table.column(COUNT), zero))

    return there


def _positive(n: Positive) -> Kernel:
    rows, relation = _there(n.of), _relation(n.schema)
    names = [c for c, _ in n.schema.columns]

    def positive(run: Context) -> pa.Table:
        kept = rows(run)
        return relation([*(one_array(kept.column(c)) for c in names), _ones(kept.num_rows)])

    return positive


def _in_order(
    of: Physical, keys: Sequence[Expr], order: Order
) -> Callable[[Context], tuple[pa.Table, Ids, Ids]]:
    """The rows that are there, by key and in order; the numbers of their keys; their weights."""
    there = _there(of)
    values = _values(of.schema, (*keys, *(e for e, _ in order)))

    def ordered(run: Context) -> tuple[pa.Table, Ids, Ids]:
        rows = there(run)
        if not rows.num_rows:
            return rows, np.zeros(0, np.int64), np.zeros(0, np.int64)
        known = values(run, rows)
        by, columns = known[: len(keys)], known[len(keys) :]
        directed = [(c, up) for c, (_, up) in zip(columns, order, strict=True)]
        at, ids = in_order(by, directed, [rows.column(c) for c, _ in of.schema.columns])
        rows = rows.take(positions(at))
        return rows, ids[at], np.asarray(rows.column(COUNT).to_numpy(), np.int64)

    return ordered


def _rank(n: Rank) -> Kernel:
    ordered, relation = _in_order(n.of, n.keys, n.order), _relation(n.schema)
    order = _values(n.of.schema, [e for e, _ in n.order])

    def rank(run: Context) -> pa.Table:
        rows, ids, counts = ordered(run)
        if n.ties:
            return rows.filter(pa.array(first_with_ties(ids, counts, order(run, rows), n.n)))
        columns = [one_array(rows.column(c)) for c, _ in n.schema.columns]
        found = relation([*columns, pa.array(first(ids, counts, n.n))])
        return found.filter(pc.greater(found.column(COUNT), pa.scalar(0)))

    return rank


def _gather(n: Gather) -> Kernel:
    ordered, relation = _in_order(n.of, (n.key,), n.order), _relation(n.schema)
    values = _values(n.of.schema, (n.key, n.item))

    def gather(run: Context) -> pa.Table:
        rows, ids, counts = ordered(run)
        keys, items = values(run, rows)
        firsts, found = lists(ids, items, counts)
        return relation([found, keys.take(positions(firsts)), _ones(len(firsts))])

    return gather


def _pieces(n: Pieces) -> Kernel:
    there, relation = _there(n.of), _relation(n.schema)
    names = [c for c, _ in n.of.schema.columns]

    def pieces(run: Context) -> pa.Table:
        rows = there(run)
        if not rows.num_rows:
            return empty(n.schema)
        found = collated(rows.select(names), n.required)
        return relation([*(one_array(c) for c in found.columns), _ones(found.num_rows)])

    return pieces


def _totals(n: Totals) -> Kernel:
    rows, relation, sums = _added_up(n.of), _relation(n.schema), totals(n.type)

    def total(run: Context) -> pa.Table:
        keys, values = sums(rows(run))
        if isinstance(n.type, GroupedType):
            return relation([values, keys, _ones(len(values))])
        return relation([*spread(values, n.type.sum.value), _ones(len(values))])

    return total


def _change_of(n: ChangeOf) -> Kernel:
    state, change, fold = prepared(n.state), prepared(n.change), prepared(n.fold)
    over, schema = n.state.schema, n.schema

    def change_of(run: Context) -> pa.Table:
        before = state(run)
        after = concat([before, change(run)], over)
        run.filled = before
        before = fold(run)
        run.filled = after
        return concat([fold(run), negate(before, schema)], schema)

    return change_of


NODES: dict[type[Physical], Callable[[Any], Kernel]] = {
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
