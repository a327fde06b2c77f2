"""What each node means on the driver, as a kernel; and the evaluation of a plan's terms.

The nodes of a plan are prepared once. Each function here looks at its node and gives a kernel,
which the steps run: schemas, names and expressions are known to it by then.

A Spark job costs tens of milliseconds before it does anything. Where all that a term reads is few
rows that the driver holds, look-ups, joins and sums are done here. Functions of rows keep Spark's
meaning, because Spark evaluates them, as the projection of a local relation, mostly without a job.
Plain fields, constants and rows made of them need no evaluation at all, and what
`stepping_spark.expressions.arrow_kernels` lists is the same in Arrow.

A term is prepared once, as the nodes that it is made of are, and run by each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    Positive,
    Project,
    Rank,
    Union,
    Unnest,
    Where,
    Windowed,
)
from stepping_spark.execution.arrow.eager import Eager, eager, sums_at_once
from stepping_spark.execution.arrow.folds import FOLDS, FoldKernel, join_indices, most_given
from stepping_spark.execution.arrow.kernels import Context, Kernel, NeedsPrefix
from stepping_spark.execution.arrow.window_delta import cut_of
from stepping_spark.expressions.arrow_evaluator import relation_of, spread, values_of
from stepping_spark.expressions.arrow_kernels import Arrays
from stepping_spark.plan.step_ir import Apply, Leaf, Term
from stepping_spark.relations.arrow import concat, empty, negate, one_array
from stepping_spark.relations.relation import FanOut
from stepping_spark.relations.sums.arrow import contributions
from stepping_spark.rows.atoms import INT_MIN
from stepping_spark.rows.schema import COUNT, StreamType


def prepared(n: Physical) -> Kernel:
    """What gives the relation of a tree of nodes; rows may stand in it several times."""
    return NODES[type(n)](n, *map(prepared, n.inputs))


def _argument(n: Argument) -> Kernel:
    return lambda run: run.args[n.number]


def _hole(n: Hole) -> Kernel:
    return lambda run: run.filled[n.number]


def _project(n: Project, rows: Kernel) -> Kernel:
    values, relation = values_of(n.of.schema, n.exprs), relation_of(n.schema)
    diffs = [d for d, _ in n.schema.diffs]
    split = [(c.expr.type, c.spread) for c in n.cells]

    def project(run: Context) -> pa.Table:
        table = rows(run)
        columns: Arrays = []
        for (t, is_spread), found in zip(split, values(table, run.ask), strict=True):
            columns += spread(found, t) if is_spread else [found]
        return relation([*columns, *[table.column(d) for d in diffs]])

    return project


def _where(n: Where, rows: Kernel) -> Kernel:
    values = values_of(n.schema, (n.condition,))

    def where(run: Context) -> pa.Table:
        table = rows(run)
        (kept,) = values(table, run.ask)
        return table.filter(kept)  # NULL is dropped

    return where


def _due(n: Due, rows: Kernel) -> Kernel:
    def due(run: Context) -> pa.Table:
        table = rows(run)
        now: Any = pa.scalar(n.time.encode(run.now, "now"), n.time.arrow)
        return table.filter(pc.less_equal(table.column("time"), now))

    return due


def _before(n: BelowGreatest, rows: Kernel, greatest: Kernel) -> Kernel:
    values = values_of(n.schema, (n.value,))
    ((column, _),) = n.greatest.schema.columns

    def before(run: Context) -> pa.Table:
        table, known = rows(run), greatest(run)
        if not known.num_rows:
            return table if n.others else table.slice(0, 0)
        limit = int(_numbers(one_array(known.column(column))).max()) - n.distance
        (found,) = values(table, run.ask)
        is_before = np.asarray(found.is_valid()) & (_numbers(found) < max(limit, INT_MIN))
        return table.filter(pa.array(~is_before if n.others else is_before))

    return before


def _numbers(times: Any) -> Any:
    """Times as numbers, in the units that distances have; of NULL any."""
    if pa.types.is_date32(times.type):
        times = times.cast(pa.int32())
    return times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)


def _unnest(n: Unnest, rows: Kernel) -> Kernel:
    values, relation = values_of(n.of.schema, (n.lists,)), relation_of(n.schema)
    carried = [c for c, _ in n.carried]

    def unnest(run: Context) -> pa.Table:
        table = rows(run)
        (found,) = values(table, run.ask)
        items: Any = pc.list_flatten(found)
        if len(items) > (most := most_given(run.limits, len(items), table.select(carried))):
            raise FanOut.of(len(items), n.name, most)
        parents = pc.list_parent_indices(found)
        # The other columns, the lists among them, are not repeated for each item.
        beside = [one_array(table.column(c)).take(parents) for c in carried]
        counts: Any = one_array(table.column(COUNT)).take(parents)
        if n.weight is not None:
            counts = _product(counts, _at(items, n.weight))
        return relation([*(_at(items, p) for p in n.paths), *beside, counts])

    return unnest


def _at(items: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        items = pc.struct_field(items, name)
    return items


def _union(n: Union, *parts: Kernel) -> Kernel:
    schema = n.schema
    return lambda run: concat([part(run) for part in parts], schema)


def _no_rows(n: NoRows) -> Kernel:
    rows = empty(n.schema)
    return lambda run: rows


def _negate(n: Negate, rows: Kernel) -> Kernel:
    schema = n.schema
    return lambda run: negate(rows(run), schema)


def _equi_join(n: EquiJoin, left: Kernel, right: Kernel) -> Kernel:
    left_key = values_of(n.left.schema, n.left_key)
    right_key = values_of(n.right.schema, n.right_key)
    of_side = [[i for i, (s, _) in enumerate(n.cells) if s == side] for side in (0, 1)]
    cells = [
        values_of(side.schema, [n.cells[i][1] for i in found])
        for side, found in zip(n.inputs, of_side, strict=True)
    ]
    schema, relation = n.schema, relation_of(n.schema)

    def equi_join(run: Context) -> pa.Table:
        sides = [left(run), right(run)]
        if not (sides[0].num_rows and sides[1].num_rows):
            return empty(schema)
        keys = left_key(sides[0], run.ask), right_key(sides[1], run.ask)
        pairs = sides[0].num_rows * sides[1].num_rows
        found = join_indices(*keys, most_given(run.limits, pairs, *sides))
        columns: list[Any] = [None] * len(n.cells)
        counts = []
        for side, at in enumerate(found):
            matched = sides[side].take(at)
            for i, values in zip(of_side[side], cells[side](matched, run.ask), strict=True):
                columns[i] = values
            counts.append(matched.column(COUNT))
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


def _anti_join(n: AntiJoin, left: Kernel, right: Kernel) -> Kernel:
    key = values_of(n.left.schema, n.key)
    names = [c for c, _ in n.right.schema.columns]

    def anti_join(run: Context) -> pa.Table:
        rows, others = left(run), right(run)
        if not (rows.num_rows and others.num_rows):
            return rows
        keys = [one_array(others.column(c)) for c in names]
        at, _ = join_indices(key(rows, run.ask), keys, run.limits.given_rows)
        absent = np.ones(rows.num_rows, np.bool_)
        absent[at.to_numpy()] = False
        return rows.filter(pa.array(absent))

    return anti_join


def _contributions(n: Contributions, rows: Kernel) -> Kernel:
    schema = n.schema
    exprs = (n.pick,) if n.key is None else (n.pick, n.key.expr)
    values, contribute = values_of(n.of.schema, exprs), contributions(n.pick.type, schema)
    at_once = sums_at_once(n.pick, None if n.key is None else n.key.expr, n.type, n.of.schema)

    def contributed(run: Context) -> pa.Table:
        table = rows(run)
        if at_once is not None and table.num_rows >= run.limits.eager_rows:
            made = at_once(table, one_array(table.column(COUNT)), run.ask)
            if made is not None:
                run.made_once = made
                return made
        picked, *keys = values(table, run.ask)
        return contribute(keys, picked, one_array(table.column(COUNT)))

    return contributed


def _fold(kernel: Callable[..., FoldKernel], n: Fold, rows: Kernel) -> Kernel:
    fold = kernel(n)
    return lambda run: fold(run, ((1, rows(run)),))


def _change_of(n: ChangeOf, state: Kernel, change: Kernel) -> Kernel:
    fold, over = FOLDS[type(n.fold)](n.fold), n.state.schema

    def difference(run: Context, old: pa.Table, more: pa.Table) -> pa.Table:
        return fold(run, ((1, concat([old, more], over)), (-1, old)))

    selects = isinstance(n.fold, Rank | Positive)

    def change_of_fold(run: Context) -> pa.Table:
        old = state(run)
        made = difference(run, old, change(run))
        if selects and not old.num_rows:
            run.made_once = made
        return made

    if not isinstance(n.fold, Windowed):
        return change_of_fold
    cut, schema = cut_of(n.fold, over), n.schema

    def change_of_windows(run: Context) -> pa.Table:
        found = []
        for old, more, carried in cut(state(run), change(run), run):
            run.carried = carried
            found.append(difference(run, old, more))
        run.carried = {}
        return concat(found, schema)

    return change_of_windows


def _collated_change(n: CollatedChange, *inputs: Kernel) -> Kernel:
    schema, pieces = n.schema, prepared(n.pieces)
    parts = [(FOLDS[type(part.fold)](part.fold), part.state.schema) for part in n.parts]

    def collated_change(run: Context) -> pa.Table:
        given = [rows(run) for rows in inputs]
        olds, news = [], []
        for (fold, over), state, more in zip(parts, given[::2], given[1::2], strict=True):
            olds.append(fold(run, ((1, state),)))
            news.append(fold(run, ((1, concat([state, more], over)),)))
        run.filled = olds
        old = pieces(run)
        run.filled = news
        return concat([pieces(run), negate(old, schema)], schema)

    return collated_change


NODES: dict[type[Physical], Callable[..., Kernel]] = {
    AntiJoin: _anti_join,
    Argument: _argument,
    BelowGreatest: _before,
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
    """A vertex, and the part of it, that could not be computed. The cause has the reason."""

    def __init__(self, vertex: Vertex, part: int) -> None:
        super().__init__(vertex, part)
        self.vertex, self.part = vertex, part


@dataclass
class Evaluation:
    """The inputs of an evaluation: relations and context."""

    table: Callable[[Leaf], pa.Table]
    chain: Chain  # asks Spark for what several linear operators make of a relation
    context: Context
    rows: RowCounts = field(
        default_factory=dict
    )  # what vertices read and gave, as they are evaluated
    notes: list[str] = field(default_factory=list)  # on how that was done


Compute: TypeAlias = Callable[[Evaluation], pa.Table]


def compute(t: Term, *, eagerly: bool = False) -> Compute:
    """A function that computes a term. Its result may have equal rows several times.

    `eagerly`: many rows of a side of a join are added up before they are joined.
    """
    if not isinstance(t, Apply):
        return methodcaller("table", t)
    early = eager(t) if eagerly else None
    if early is not None:
        return _eagerly(t, early, compute(t))
    args, parts = [compute(a, eagerly=eagerly) for a in t.args], _parts(t)
    is_told = t.operator is t.vertex.operator

    def node(run: Evaluation) -> pa.Table:
        tables = [arg(run) for arg in args]
        made = parts(run, tables)
        if is_told:
            run.rows[t.vertex] = (sum(map(len, tables)), len(made))
        return made

    return node


def _eagerly(t: Apply, early: Eager, pair_by_pair: Compute) -> Compute:
    """A function that computes a term eagerly, or pair by pair if that is not possible."""

    def node(run: Evaluation) -> pa.Table:
        found = early(run.table, run.context.ask, run.context.limits)
        if found is None:
            return pair_by_pair(run)
        made, joined = found
        run.notes.append(str(joined))
        run.rows[t.vertex] = (joined.rows, len(made))
        return made

    return node


def _parts(t: Apply) -> Callable[[Evaluation, list[pa.Table]], pa.Table]:
    """A function that applies the operators of a vertex, one after the other."""
    kernels = list(map(prepared, t.trees))
    asked, last = t.asked

    def parts(run: Evaluation, tables: list[pa.Table]) -> pa.Table:
        first, done = asked, 0
        while done < len(kernels):
            try:
                if done == first:  # one question to Spark, and not one for each part
                    tables = [_chained(run, t, first, last, tables[0])]
                    done = last
                else:
                    run.context.args = tables
                    tables = [kernels[done](run.context)]
                done += 1
            except (FanOut, NeedsPrefix):
                raise
            except Exception as e:
                if done != first:
                    raise Failed(t.vertex, done) from e
                first = -1  # which part fails is seen when each is asked by itself
        return tables[0]

    return parts


def _chained(run: Evaluation, t: Apply, first: int, last: int, table: pa.Table) -> pa.Table:
    """Applies several operators to a relation in one query of Spark."""
    types = t.types
    for p in t.parts[:first]:
        types = (p.type_of(*types),)
    return run.chain(table, types[0], t.parts[first : last + 1])
