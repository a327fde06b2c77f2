"""The kernel of each node on the driver, and the evaluation of a plan's terms.

The nodes of a plan are prepared once. Each function here returns the kernel of a node, which the
steps run: its schemas, names and expressions are already resolved.

A Spark job costs tens of milliseconds before it does anything. If a term reads only few rows, all
on the driver, its look-ups, joins and sums run here. Functions of rows keep Spark's meaning,
because Spark evaluates them, as the projection of a local relation, mostly without a job. Plain
fields, constants and rows of them need no evaluation, and the functions in
`stepping_spark.expressions.arrow_kernels` have the same results in Arrow.

A term is prepared once, like its nodes, and run by each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import methodcaller
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.base.errors import StepError
from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import Operator
from stepping_spark.circuit.physical import (
    AntiJoin,
    Argument,
    BelowGreatest,
    BucketedRank,
    ChangeOf,
    CollatedChange,
    Contributions,
    Due,
    EquiJoin,
    Fold,
    Hole,
    Negate,
    NoRows,
    Physical,
    Project,
    Union,
    Unnest,
    Where,
    Windowed,
)
from stepping_spark.execution.arrow.buckets import bucketed_kernel
from stepping_spark.execution.arrow.eager import Eager, eager, sums_at_once
from stepping_spark.execution.arrow.folds import FOLDS, FoldKernel, join_indices, most_given
from stepping_spark.execution.arrow.kernels import (
    NO_NOTES,
    Context,
    Kernel,
    NeedsPrefix,
    StateNotes,
    sum_of,
)
from stepping_spark.execution.arrow.window_delta import cut_of
from stepping_spark.expressions.arrow_evaluator import relation_of, spread, values_of
from stepping_spark.expressions.arrow_kernels import Arrays
from stepping_spark.expressions.expr import Field
from stepping_spark.plan.step_ir import Apply, Leaf, Read, Term, type_of
from stepping_spark.relations.arrow import concat, negate, one_array
from stepping_spark.relations.relation import DriverRelation, FanOut
from stepping_spark.relations.sums.arrow import contributions
from stepping_spark.rows.atoms import INT_MIN
from stepping_spark.rows.schema import COUNT, Schema, StreamType


def prepared(n: Physical) -> Kernel:
    """The kernel of a tree of nodes; its result need not be consolidated."""
    return NODES[type(n)](n, *map(prepared, n.inputs))


def _argument(n: Argument) -> Kernel:
    return lambda run: run.args[n.number]


def _hole(n: Hole) -> Kernel:
    return lambda run: run.filled[n.number]


def _project(n: Project, rows: Kernel) -> Kernel:
    schema, relation = n.schema, relation_of(n.schema)
    names = _columns_picked(n)
    if names is not None:
        return lambda run: _picked(rows(run), names, schema)
    values = values_of(n.of.schema, n.exprs)
    diffs = [d for d, _ in n.schema.diffs]
    split = [(c.expr.type, c.spread) for c in n.cells]

    def project(run: Context) -> DriverRelation:
        table = rows(run).table
        columns: Arrays = []
        for (t, is_spread), column in zip(split, values(table, run.ask), strict=True):
            columns += spread(column, t) if is_spread else [column]
        return DriverRelation(relation([*columns, *[table.column(d) for d in diffs]]), schema)

    return project


def _columns_picked(n: Project) -> list[str] | None:
    """The columns that a projection picks; None if it computes one, or takes a row apart."""
    types = dict(n.of.schema.columns)
    names = []
    for cell, (_, t) in zip(n.cells, n.schema.columns, strict=False):
        e = cell.expr
        if not isinstance(e, Field) or len(e.path) != 1 or cell.spread:
            return None
        if e.path[0] not in types or types[e.path[0]].arrow != t.arrow:
            return None
        names.append(e.path[0])
    return [*names, *(d for d, _ in n.schema.diffs)]


def _picked(rows: DriverRelation, names: Sequence[str], schema: Schema) -> DriverRelation:
    columns = list(map(rows.table.column, names))
    table = pa.Table.from_arrays(columns, schema=schema.arrow)
    return DriverRelation(table, schema, rows.consolidated and table.num_rows == 1)


def _where(n: Where, rows: Kernel) -> Kernel:
    values = values_of(n.schema, (n.condition,))

    def where(run: Context) -> DriverRelation:
        relation = rows(run)
        (mask,) = values(relation.table, run.ask)
        return relation.filter(mask)

    return where


def _due(n: Due, rows: Kernel) -> Kernel:
    def due(run: Context) -> DriverRelation:
        relation = rows(run)
        now: Any = pa.scalar(n.time.encode(run.now, "now"), n.time.arrow)
        return relation.filter(pc.less_equal(relation.table.column("time"), now))

    return due


def _before(n: BelowGreatest, rows: Kernel, greatest: Kernel) -> Kernel:
    values = values_of(n.schema, (n.value,))
    ((column, _),) = n.greatest.schema.columns

    def before(run: Context) -> DriverRelation:
        relation, greatest_rows = rows(run), greatest(run).table
        if not greatest_rows.num_rows:
            return relation if n.others else DriverRelation.empty(relation.schema)
        limit = int(_numbers(one_array(greatest_rows.column(column))).max()) - n.distance
        (array,) = values(relation.table, run.ask)
        is_before = np.asarray(array.is_valid()) & (_numbers(array) < max(limit, INT_MIN))
        return relation.filter(pa.array(~is_before if n.others else is_before))

    return before


def _numbers(times: Any) -> Any:
    """Times as numbers in the units of distances; NULL becomes 0."""
    if pa.types.is_date32(times.type):
        times = times.cast(pa.int32())
    return times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)


def _unnest(n: Unnest, rows: Kernel) -> Kernel:
    schema, relation = n.schema, relation_of(n.schema)
    values = values_of(n.of.schema, (n.lists,))
    carried = [c for c, _ in n.carried]

    def unnest(run: Context) -> DriverRelation:
        table = rows(run).table
        (lists,) = values(table, run.ask)
        items: Any = pc.list_flatten(lists)
        if len(items) > (most := most_given(run.limits, len(items), table.select(carried))):
            raise FanOut.of(len(items), n.name, most)
        parents = pc.list_parent_indices(lists)
        # Only the carried columns are repeated for each item.
        beside = [one_array(table.column(c)).take(parents) for c in carried]
        counts: Any = one_array(table.column(COUNT)).take(parents)
        if n.weight is not None:
            counts = _product(counts, _column_at(items, n.weight))
        columns = [*(_column_at(items, p) for p in n.paths), *beside, counts]
        return DriverRelation(relation(columns), schema)

    return unnest


def _column_at(items: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        items = pc.struct_field(items, name)
    return items


def _union(n: Union, *parts: Kernel) -> Kernel:
    schema = n.schema
    return lambda run: sum_of([part(run) for part in parts], schema)


def _no_rows(n: NoRows) -> Kernel:
    rows = DriverRelation.empty(n.schema)
    return lambda run: rows


def _negate(n: Negate, rows: Kernel) -> Kernel:
    schema = n.schema

    def negated(run: Context) -> DriverRelation:
        relation = rows(run)
        return DriverRelation(negate(relation.table, schema), schema, relation.consolidated)

    return negated


def _equi_join(n: EquiJoin, left: Kernel, right: Kernel) -> Kernel:
    left_key = values_of(n.left.schema, n.left_key)
    right_key = values_of(n.right.schema, n.right_key)
    of_side = [[i for i, (s, _) in enumerate(n.cells) if s == side] for side in (0, 1)]
    cells = [
        values_of(side.schema, [n.cells[i][1] for i in numbers])
        for side, numbers in zip(n.inputs, of_side, strict=True)
    ]
    schema, relation = n.schema, relation_of(n.schema)

    def equi_join(run: Context) -> DriverRelation:
        sides = [left(run).table, right(run).table]
        if not (sides[0].num_rows and sides[1].num_rows):
            return DriverRelation.empty(schema)
        keys = left_key(sides[0], run.ask), right_key(sides[1], run.ask)
        pairs = sides[0].num_rows * sides[1].num_rows
        indices = join_indices(*keys, most_given(run.limits, pairs, *sides))
        columns: list[Any] = [None] * len(n.cells)
        counts = []
        for side, at in enumerate(indices):
            matched = sides[side].take(at)
            for i, values in zip(of_side[side], cells[side](matched, run.ask), strict=True):
                columns[i] = values
            counts.append(matched.column(COUNT))
        return DriverRelation(relation([*columns, _product(*counts)]), schema)

    return equi_join


def _product(a: Any, b: Any) -> Any:
    """The products of weights. Raises a `StepError` if one is beyond BIGINT."""
    try:
        return pc.multiply_checked(a, b)
    except pa.ArrowInvalid:
        raise StepError(
            "the product of two weights is beyond BIGINT; feed rows with smaller weights"
        ) from None


def _anti_join(n: AntiJoin, left: Kernel, right: Kernel) -> Kernel:
    key = values_of(n.left.schema, n.key)
    names = [c for c, _ in n.right.schema.columns]

    def anti_join(run: Context) -> DriverRelation:
        relation, others = left(run), right(run).table
        rows = relation.table
        if not (rows.num_rows and others.num_rows):
            return relation
        keys = [one_array(others.column(c)) for c in names]
        at, _ = join_indices(key(rows, run.ask), keys, run.limits.given_rows)
        absent = np.ones(rows.num_rows, np.bool_)
        absent[at.to_numpy()] = False
        return relation.filter(pa.array(absent))

    return anti_join


def _contributions(n: Contributions, rows: Kernel) -> Kernel:
    schema = n.schema
    exprs = (n.pick,) if n.key is None else (n.pick, n.key.expr)
    values, contribute = values_of(n.of.schema, exprs), contributions(n.pick.type, schema)
    at_once = sums_at_once(n.pick, None if n.key is None else n.key.expr, n.type, n.of.schema)

    def contributed(run: Context) -> DriverRelation:
        table = rows(run).table
        counts = one_array(table.column(COUNT))
        if at_once is not None and table.num_rows >= run.limits.eager_rows:
            result = at_once(table, counts, run.ask)
            if result is not None:
                return DriverRelation(result, schema, consolidated=True)
        picked, *keys = values(table, run.ask)
        return DriverRelation(contribute(keys, picked, counts), schema)

    return contributed


def _fold(kernel: Callable[..., FoldKernel], n: Fold, rows: Kernel) -> Kernel:
    fold = kernel(n)
    return lambda run: fold(run, rows(run))


def _change_of(n: ChangeOf, state: Kernel, change: Kernel) -> Kernel:
    fold, over, schema = FOLDS[type(n.fold)](n.fold), n.state.schema, n.schema
    if not isinstance(n.fold, Windowed):
        return lambda run: fold(run, state(run), change(run))
    cut = cut_of(n.fold, over)

    def change_of_windows(run: Context) -> DriverRelation:
        changes = []
        for old, more, carried in cut(state(run), change(run), run):
            run.carried = carried
            changes.append(fold(run, old, more))
        run.carried = {}
        # Each change has the rows of other keys.
        once = all(rows.consolidated for rows in changes)
        return DriverRelation(concat([rows.table for rows in changes], schema), schema, once)

    return change_of_windows


def _collated_change(n: CollatedChange, *inputs: Kernel) -> Kernel:
    schema, pieces = n.schema, prepared(n.pieces)
    parts = [(FOLDS[type(p.fold)](p.fold), p.state.schema) for p in n.parts]

    def collated_change(run: Context) -> DriverRelation:
        relations = [rows(run) for rows in inputs]
        olds, news = [], []
        for (fold, over), state, more in zip(parts, relations[::2], relations[1::2], strict=True):
            olds.append(fold(run, state))
            news.append(fold(run, sum_of([state, more], over)))
        run.filled = olds
        old = negate(pieces(run).table, schema)
        run.filled = news
        return DriverRelation(concat([pieces(run).table, old], schema), schema)

    return collated_change


NODES: dict[type[Physical], Callable[..., Kernel]] = {
    AntiJoin: _anti_join,
    Argument: _argument,
    BelowGreatest: _before,
    BucketedRank: bucketed_kernel,
    ChangeOf: _change_of,
    CollatedChange: _collated_change,
    Contributions: _contributions,
    Due: _due,
    EquiJoin: _equi_join,
    Hole: _hole,
    Negate: _negate,
    NoRows: _no_rows,
    Project: _project,
    Union: _union,
    Unnest: _unnest,
    Where: _where,
    **{node: partial(_fold, kernel) for node, kernel in FOLDS.items()},
}


RowCounts: TypeAlias = dict[Vertex, tuple[int, int]]
Chain = Callable[[pa.Table, StreamType, Sequence[Operator]], pa.Table]


class Failed(Exception):
    """The error of a vertex, and of its part with this number. The cause has the reason."""

    def __init__(self, vertex: Vertex, part: int) -> None:
        super().__init__(vertex, part)
        self.vertex, self.part = vertex, part


@dataclass
class Evaluation:
    """The inputs of an evaluation: relations and context."""

    leaf: Callable[[Leaf], DriverRelation]
    chain: Chain  # applies several linear operators to a relation, with Spark
    context: Context
    state_notes: Mapping[Leaf, StateNotes]  # by the state that is read
    rows: RowCounts = field(default_factory=dict)  # in and out of vertices
    notes: list[str] = field(default_factory=list)  # on the way of the evaluation


Compute: TypeAlias = Callable[[Evaluation], DriverRelation]


def compute(t: Term, *, eagerly: bool = False) -> Compute:
    """A function that computes a term. Its result may contain equal rows several times.

    With `eagerly`, many rows of a side of a join are added up before the join.
    """
    if not isinstance(t, Apply):
        return methodcaller("leaf", t)
    early = eager(t) if eagerly else None
    if early is not None:
        return _eagerly(t, early, compute(t))
    args, parts = [compute(a, eagerly=eagerly) for a in t.args], _parts(t)
    state = t.args[0] if isinstance(t.args[0], Read) else None

    def node(run: Evaluation) -> DriverRelation:
        parts_given, rows = [], 0
        for arg in args:
            parts_given.append(arg(run))
            rows += parts_given[-1].table.num_rows
        notes = NO_NOTES if state is None else run.state_notes.get(state, NO_NOTES)
        run.context.state_notes = notes
        result = parts(run, parts_given)
        if t.is_of_vertex:
            run.rows[t.vertex] = (rows, result.table.num_rows)
        return result

    return node


def _eagerly(t: Apply, early: Eager, pair_by_pair: Compute) -> Compute:
    """A function that computes a term eagerly, or pair by pair if that is not possible."""

    schema = type_of(t).schema

    def node(run: Evaluation) -> DriverRelation:
        result = early(lambda x: run.leaf(x).table, run.context.ask, run.context.limits)
        if result is None:
            return pair_by_pair(run)
        table, joined = result
        run.notes.append(str(joined))
        run.rows[t.vertex] = (joined.rows, len(table))
        return DriverRelation(table, schema)

    return node


def _parts(t: Apply) -> Callable[[Evaluation, list[DriverRelation]], DriverRelation]:
    """A function that applies the operators of a vertex, one after the other."""
    kernels = list(map(prepared, t.trees))
    asked, last = t.spark_parts

    def parts(run: Evaluation, relations: list[DriverRelation]) -> DriverRelation:
        first, done = asked, 0
        while done < len(kernels):
            try:
                if done == first:  # one query of Spark for these parts, and not one for each
                    table = _chained(run, t, first, last, relations[0].table)
                    relations, done = [DriverRelation(table, t.trees[last].schema)], last
                else:
                    run.context.args = relations
                    relations = [kernels[done](run.context)]
                done += 1
            except (FanOut, NeedsPrefix):
                raise
            except Exception as e:
                if done != first:
                    raise Failed(t.vertex, done) from e
                first = -1  # to find the part that fails, query each by itself
        return relations[0]

    return parts


def _chained(run: Evaluation, t: Apply, first: int, last: int, table: pa.Table) -> pa.Table:
    """The result of several operators on a relation, by one query of Spark."""
    types = t.types
    for p in t.parts[:first]:
        types = (p.type_of(*types),)
    return run.chain(table, types[0], t.parts[first : last + 1])
