"""What each operator means on the driver: a table from operators to Arrow, for small relations.

A Spark job costs tens of milliseconds before it does anything. Where all that a term reads is few
rows that the driver holds, look-ups, joins and sums are done here. Functions of rows keep Spark's
meaning, because Spark evaluates them, as the projection of a local relation, mostly without a job.
Plain fields, constants and rows made of them need no evaluation at all, and what
`stepping_spark.expressions.arrow_calls` lists is the same in Arrow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.engines.arrow.groups import collated, first, in_order, lists, positions
from stepping_spark.engines.arrow.joins import join_indices
from stepping_spark.expressions.arrow import Columns, column, spread
from stepping_spark.expressions.arrow_calls import is_known
from stepping_spark.expressions.expr import Build, Expr, Field
from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import (
    Accumulate,
    Add,
    Arrange,
    AsOf,
    Collate,
    Distinct,
    Explode,
    Filter,
    Flatten,
    Fused,
    Haitch,
    Hold,
    IdentityPrint,
    Join,
    Listed,
    LookUp,
    MakeSet,
    Map,
    MapMany,
    Neg,
    Operator,
    Order,
    Present,
    Temporal,
    Top,
)
from stepping_spark.plan.terms import Leaf, Node, Term, type_of
from stepping_spark.relations.arrow import (
    Array,
    Ids,
    concat,
    consolidate,
    empty,
    negate,
    one_array,
)
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import (
    COUNT,
    VALUE,
    GroupedType,
    ScalarType,
    Schema,
    StreamType,
)
from stepping_spark.rows.types import Struct, unwrap
from stepping_spark.spark.fetch import FanOut, check_few
from stepping_spark.store import Now
from stepping_spark.sums.arrow import contributions, totals

Rows: TypeAlias = dict[Vertex, tuple[int, int]]
Project = Callable[[pa.Table, Schema, tuple[Expr, ...]], Columns]
Chain = Callable[[pa.Table, StreamType, Sequence[Operator]], pa.Table]


class Failed(Exception):
    """A vertex could not be computed, and which part of it; the cause says why."""

    def __init__(self, vertex: Vertex, part: int) -> None:
        super().__init__(vertex, part)
        self.vertex, self.part = vertex, part


class PartFailed(Exception):
    """A part of a fused operator could not be computed; the cause says why."""

    def __init__(self, part: int) -> None:
        super().__init__(part)
        self.part = part


@dataclass(frozen=True)
class Local:
    """Evaluates terms on the driver."""

    table: Callable[[Leaf], pa.Table]
    project: Project  # asks Spark for the values of expressions that are not plain
    chain: Chain  # asks Spark for what several linear operators make of a relation
    now: Now = None
    rows: Rows = field(default_factory=dict)  # what vertices read and gave, as they are evaluated

    def term(self, t: Term) -> pa.Table:
        """The relation of a term; equal rows may stand in it several times."""
        if not isinstance(t, Node):
            return self.table(t)
        args = [self.term(a) for a in t.args]
        try:
            made = LOCAL[type(t.operator)](self, t.operator, args, [type_of(a) for a in t.args])
        except FanOut:
            raise
        except PartFailed as e:
            raise Failed(t.vertex, e.part) from e.__cause__
        except Exception as e:
            raise Failed(t.vertex, 0) from e
        if t.operator is t.vertex.operator:
            self.rows[t.vertex] = (sum(a.num_rows for a in args), made.num_rows)
        return made

    @staticmethod
    def asks_spark(op: Operator) -> bool:
        """Whether a linear operator has a function that Arrow cannot evaluate."""
        if not isinstance(op, Map | Filter | MapMany | Explode):
            return False
        return not is_known(op.f)

    def values(self, table: pa.Table, schema: Schema, exprs: Sequence[Expr]) -> Columns:
        """The values of expressions over the rows of a relation."""
        found = {e: column(e, table) for e in exprs}
        known = {e: values for e, values in found.items() if values is not None}
        asked = tuple(e for e in found if e not in known)
        if not table.num_rows:
            known.update((e, pa.array([], e.type.arrow)) for e in asked)
        elif asked:
            known.update(zip(asked, self.project(table, schema, asked), strict=True))
        return [known[e] for e in exprs]


def _relation(columns: Sequence[Any], diffs: Sequence[Any], schema: Schema) -> pa.Table:
    arrays = [
        a.cast(f.type) if a.type != f.type else a
        for a, f in zip((*columns, *diffs), schema.arrow, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def _map(ctx: Local, op: Map, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    (a,) = args
    t = op.f.type
    built = isinstance(op.f, Build) and isinstance(t, Struct)  # not one that may be NULL
    parts = op.f.parts() if built else (op.f,)
    values = ctx.values(a, types[0].schema, parts)
    columns = values if built else spread(values[0], t)
    columns = columns + [one_array(a.column(n)) for n, _ in op.carried]
    return _relation(columns, [one_array(a.column(COUNT))], op.type_of(types[0]).schema)


def _filter(ctx: Local, op: Filter, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    (kept,) = ctx.values(args[0], types[0].schema, (op.f,))
    return args[0].filter(kept)  # NULL is dropped


def _map_many(ctx: Local, op: MapMany, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    (a,) = args
    (lists,) = ctx.values(a, types[0].schema, (op.f,))
    item: RowType = unwrap(op.f.type).inner  # type: ignore[attr-defined]
    items, (count, *carried) = _for_each_item(a, lists, op)
    return _relation([*spread(items, item), *carried], [count], op.type_of(types[0]).schema)


def _explode(ctx: Local, op: Explode, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    (a,) = args
    (lists,) = ctx.values(a, types[0].schema, (op.f,))
    items, (count, *carried) = _for_each_item(a, lists, op)
    *parts, weights = (pc.struct_field(items, n) for n, _ in op.item.fields)
    counts = pc.multiply_checked(count, weights)
    columns = parts if len(parts) == 2 else spread(parts[0], op.item.fields[0][1])
    return _relation([*columns, *carried], [counts], op.type_of(types[0]).schema)


def _for_each_item(a: pa.Table, lists: Array, op: MapMany | Explode) -> tuple[Any, Columns]:
    """The items of all lists; and of the rows they are from, the weights, and what is carried."""
    items: Any = pc.list_flatten(lists)
    check_few(len(items), op.name)
    rows = pc.list_parent_indices(lists)
    # The other columns, the lists among them, are not repeated for each item.
    return items, [one_array(a.column(n)).take(rows) for n in (COUNT, *(n for n, _ in op.carried))]


def _add(ctx: Local, op: Add, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    return concat(args, types[0].schema)


def _neg(ctx: Local, op: Neg, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    return negate(args[0], types[0].schema)


def _same(ctx: Local, op: Operator, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    return args[0]


def _join(ctx: Local, op: Join, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    a, b = args
    schemas = [t.schema for t in types]
    left = ctx.values(a, schemas[0], op.left.parts)
    right = ctx.values(b, schemas[1], op.right.parts)
    i, j = join_indices(left, right)
    a, b = a.take(i), b.take(j)
    sides = [_whole(side, t) for side, t in zip((a, b), types, strict=True)]
    counts = pc.multiply_checked(one_array(a.column(COUNT)), one_array(b.column(COUNT)))
    return _relation(sides, [counts], op.type_of(*types).schema)


def _look_up(ctx: Local, op: LookUp, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    known, table = args
    schema = op.type_of(*types).schema
    if not known.num_rows:
        return empty(schema)
    on = ctx.values(known, types[0].schema, op.on)
    i, j = join_indices(on, ctx.values(table, types[1].schema, op.key))
    counts = one_array(known.column(COUNT))
    matched = pc.multiply_checked(counts.take(i), one_array(table.column(COUNT)).take(j))
    row = _whole(known, types[0]) if op.bare else None
    members = [row] if row is not None else [one_array(c) for c in known.columns[:-1]]

    def rows(at: Any, found: Array, weights: Array) -> pa.Table:
        cells = [m.take(at) for m in members]
        return _relation([*cells[: op.place], found, *cells[op.place :]], [weights], schema)

    found = rows(i, _whole(table.take(j), types[1]), matched)
    if not op.left:
        return found
    there = _present(ctx, Present(op.key), [table], types[1:])
    k, _ = join_indices(on, [one_array(c) for c in there.columns[:-1]])
    absent = np.ones(known.num_rows, np.bool_)
    absent[k.to_numpy()] = False
    at: Any = pa.array(np.flatnonzero(absent))
    nulls = pa.nulls(len(at), schema.arrow.field(op.place).type)
    return concat([found, rows(at, nulls, counts.take(at))], schema)


def _present(ctx: Local, op: Present, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    keys = ctx.values(args[0], types[0].schema, op.key)
    schema = op.type_of(types[0]).schema
    known = functools.reduce(pc.and_, [pc.is_valid(k) for k in keys])
    keyed = _relation(keys, [one_array(args[0].column(COUNT))], schema).filter(known)
    return _distinct(ctx, Distinct(), [keyed], [op.type_of(types[0])])


def _whole(table: pa.Table, t: StreamType) -> Array:
    row: RowType = t.row  # type: ignore[attr-defined]
    found = column(Field(row, () if isinstance(row, Struct) else (VALUE,)), table)
    assert found is not None
    return found


def _distinct(ctx: Local, op: Distinct, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    schema = types[0].schema
    summed = consolidate(args[0], schema)
    kept = summed.filter(pc.greater(summed.column(COUNT), pa.scalar(0)))
    ones = pa.array(np.ones(kept.num_rows, np.int64))
    return _relation([one_array(kept.column(n)) for n, _ in schema.columns], [ones], schema)


def _accumulate(
    ctx: Local, op: Accumulate, args: list[pa.Table], types: list[StreamType]
) -> pa.Table:
    exprs = (op.pick,) if op.key is None else (op.pick, op.key.expr)
    picked, *keys = ctx.values(args[0], types[0].schema, exprs)
    counts = one_array(args[0].column(COUNT))
    schema = op.type_of(types[0]).schema
    return contributions(keys, picked, op.pick.type, counts, schema)


def _flatten(ctx: Local, op: Flatten, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    (t,) = types
    assert isinstance(t, GroupedType)
    keys, values = totals(consolidate(args[0], t.schema), t)
    ones = pa.array(np.ones(len(values), np.int64))
    return _relation([values, keys], [ones], op.type_of(t).schema)


def _make_set(ctx: Local, op: MakeSet, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    (t,) = types
    assert isinstance(t, ScalarType)
    _, values = totals(consolidate(args[0], t.schema), t)
    made = op.type_of(t).schema
    return _relation(spread(values, t.sum.value), [pa.array([1], pa.int64())], made)


def _as_of(ctx: Local, op: Temporal, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    (a,) = args
    now: Any = pa.scalar(op.time.encode(ctx.now, "now"), op.time.arrow)
    return a.filter(pc.less_equal(a.column("time"), now))


def _fused(ctx: Local, op: Fused, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    made = op.types(*types)
    asked = [i for i, part in enumerate(op.parts) if ctx.asks_spark(part)]
    done = 0
    while done < len(op.parts):
        if len(asked) > 1 and asked[0] == done:
            # One question to Spark, and not one for each part.
            end = asked[-1] + 1
            try:
                args, types = [ctx.chain(args[0], types[0], op.parts[done:end])], [made[end - 1]]
                done, asked = end, []
                continue
            except FanOut:
                raise
            except Exception:
                asked = []  # which part fails is seen when each is asked by itself
        part = op.parts[done]
        try:
            args, types = [LOCAL[type(part)](ctx, part, args, types)], [made[done]]
        except FanOut:
            raise
        except Exception as e:
            raise PartFailed(done) from e
        done += 1
        asked = [i for i in asked if i >= done]
    return args[0]


def _in_order(
    ctx: Local, keys: Sequence[Expr], order: Order, table: pa.Table, schema: Schema
) -> tuple[pa.Table, Ids, Ids]:
    """The rows that are there, by key and in order; the numbers of their keys; their weights."""
    rows = consolidate(table, schema)
    rows = rows.filter(pc.greater(rows.column(COUNT), pa.scalar(0)))
    if not rows.num_rows:
        return rows, np.zeros(0, np.int64), np.zeros(0, np.int64)
    known = ctx.values(rows, schema, (*keys, *(e for e, _ in order)))
    by, ordered = known[: len(keys)], known[len(keys) :]
    directed = [(c, up) for c, (_, up) in zip(ordered, order, strict=True)]
    at, ids = in_order(by, directed, [rows.column(n) for n, _ in schema.columns])
    rows = rows.take(positions(at))
    return rows, ids[at], np.asarray(rows.column(COUNT).to_numpy(), np.int64)


def _top(ctx: Local, op: Top, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    schema = types[0].schema
    rows, ids, counts = _in_order(ctx, op.keys, op.order, args[0], schema)
    kept = pa.array(first(ids, counts, op.n))
    columns = [one_array(rows.column(n)) for n, _ in schema.columns]
    found = _relation(columns, [kept], schema)
    return found.filter(pc.greater(found.column(COUNT), pa.scalar(0)))


def _listed(ctx: Local, op: Listed, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    schema = types[0].schema
    rows, ids, counts = _in_order(ctx, (op.key,), op.order, args[0], schema)
    keys, items = ctx.values(rows, schema, (op.key, op.item))
    firsts, found = lists(ids, items, counts)
    ones = pa.array(np.ones(len(firsts), np.int64))
    return _relation([found, keys.take(positions(firsts))], [ones], op.type_of(*types).schema)


def _collate(ctx: Local, op: Collate, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    schema = types[0].schema
    rows = consolidate(args[0], schema)
    rows = rows.filter(pc.greater(rows.column(COUNT), pa.scalar(0)))
    made = op.type_of(*types).schema
    if not rows.num_rows:
        return made.arrow.empty_table()
    found = collated(rows.select([n for n, _ in schema.columns]), op.required)
    ones = pa.array(np.ones(found.num_rows, np.int64))
    return _relation([one_array(c) for c in found.columns], [ones], made)


def _haitch(ctx: Local, op: Haitch, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    state, change = args
    of = LOCAL[type(op.of)]
    made = op.of.type_of(types[0]).schema
    after = of(ctx, op.of, [concat([state, change], types[0].schema)], types[:1])
    before = of(ctx, op.of, [state], types[:1])
    return concat([after, negate(before, made)], made)


LOCAL: dict[type[Operator], Callable[[Local, Any, list[pa.Table], list[StreamType]], pa.Table]] = {
    Accumulate: _accumulate,
    Add: _add,
    Arrange: _same,
    AsOf: _as_of,
    Collate: _collate,
    Distinct: _distinct,
    Explode: _explode,
    Filter: _filter,
    Flatten: _flatten,
    Fused: _fused,
    Haitch: _haitch,
    Hold: _as_of,
    IdentityPrint: _same,
    Join: _join,
    Listed: _listed,
    LookUp: _look_up,
    MakeSet: _make_set,
    Map: _map,
    MapMany: _map_many,
    Neg: _neg,
    Present: _present,
    Top: _top,
}
