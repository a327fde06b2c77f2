"""What each operator means on the driver: a table from operators to Arrow, for small relations.

A Spark job costs tens of milliseconds before it does anything. Where all that a term reads is few
rows that the driver holds, look-ups, joins and sums are done here. Functions of rows keep Spark's
meaning, because Spark evaluates them, as the projection of a local relation: one small job. Plain
fields, constants and rows made of them need no evaluation at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.atoms import RowType
from stepping_spark.expr import Build, Expr, Field, Literal, Singleton
from stepping_spark.least import Least
from stepping_spark.local_sums import contributions, totals
from stepping_spark.lower import type_of
from stepping_spark.operations import unwrap
from stepping_spark.operators import (
    Accumulate,
    Add,
    Arrange,
    Distinct,
    Filter,
    Flatten,
    Haitch,
    IdentityPrint,
    Join,
    MakeSet,
    Map,
    MapMany,
    Neg,
    Operator,
)
from stepping_spark.relations import (
    Array,
    canonical,
    concat,
    consolidate,
    flat,
    negate,
    one_array,
    row_ids,
)
from stepping_spark.schema import (
    COUNT,
    VALUE,
    GroupedType,
    ScalarType,
    Schema,
    StreamType,
    columns_of,
)
from stepping_spark.terms import Leaf, Node, Term
from stepping_spark.types import Struct

Columns: TypeAlias = list[Array]
Project = Callable[[pa.Table, Schema, tuple[Expr, ...]], Columns]


@dataclass(frozen=True)
class Local:
    """Evaluates terms on the driver."""

    table: Callable[[Leaf], pa.Table]
    project: Project  # asks Spark for the values of expressions that are not plain

    def term(self, t: Term) -> pa.Table:
        """The relation of a term; equal rows may stand in it several times."""
        if not isinstance(t, Node):
            return self.table(t)
        args = [self.term(a) for a in t.args]
        return LOCAL[type(t.operator)](self, t.operator, args, [type_of(a) for a in t.args])

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


def column(e: Expr, table: pa.Table) -> Array | None:
    """The column that a plain expression is; None for one that must be evaluated."""
    if isinstance(e, Literal):
        value = e.type.encode(e.constant, "a constant")
        return pa.array([value] * table.num_rows, e.type.arrow)
    t = unwrap(e.type)
    if isinstance(e, Build) and isinstance(t, Struct):
        parts = [column(p, table) for p in e.fields]
        if any(p is None for p in parts):
            return None
        return struct(parts, t)
    if isinstance(e, Singleton):
        return _singletons(e, table)
    if not isinstance(e, Field):
        return None
    if not e.path:
        assert isinstance(e.type, Struct)
        return struct([one_array(table.column(n)) for n, _ in e.type.fields], e.type)
    found = one_array(table.column(e.path[0]))
    for part in e.path[1:]:
        found = pc.struct_field(found, part)
    return found


def _singletons(e: Singleton, table: pa.Table) -> Array | None:
    item = column(e.item, table)
    if item is None:
        return None
    rows = len(item)
    lists: Any = e.type.arrow
    items = pa.StructArray.from_arrays(
        [item, pa.array(np.ones(rows, np.int64))], fields=list(lists.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1), pa.int32()), items)


def struct(parts: Sequence[Any], t: Struct) -> Array:
    """One column of rows, from the columns of their fields."""
    fields = [pa.field(n, ft.arrow) for n, ft in t.fields]
    arrays = [p.cast(f.type) if p.type != f.type else p for p, f in zip(parts, fields, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def join_indices(left: Columns, right: Columns) -> tuple[Array, Array]:
    """The positions of rows whose keys are equal; NULL equals nothing."""
    names = [f"k{i}" for i in range(len(left))]
    keys = [_comparable(a, b) for a, b in zip(left, right, strict=True)]
    sides = []
    for side, position in ((0, "i"), (1, "j")):
        columns = [k[side] for k in keys]
        rows = pa.array(np.arange(len(columns[0])))
        sides.append(pa.table([*columns, rows], names=[*names, position]))
    joined = sides[0].join(sides[1], keys=names, join_type="inner", use_threads=False)
    return one_array(joined.column("i")), one_array(joined.column("j"))


def _comparable(a: Array, b: Array) -> tuple[Array, Array]:
    """Two columns of keys as such that Arrow can join by."""
    if pa.types.is_duration(a.type):
        return a.cast(pa.int64()), b.cast(pa.int64())
    if not pa.types.is_nested(a.type):
        return one_array(canonical(a)), one_array(canonical(b))
    both = pa.concat_arrays([a, b])
    ids = pa.array(row_ids(flat(canonical(both))), mask=both.is_null().to_numpy(False))
    return ids[: len(a)], ids[len(a) :]


def _relation(columns: Sequence[Any], diffs: Sequence[Any], schema: Schema) -> pa.Table:
    arrays = [
        a.cast(f.type) if a.type != f.type else a
        for a, f in zip((*columns, *diffs), schema.arrow, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def spread(values: Array, t: RowType) -> Columns:
    """The columns of rows that stand in one column."""
    if not isinstance(t, Struct):
        return [values]
    return [pc.struct_field(values, n) for n, _ in t.fields]


def _map(ctx: Local, op: Map, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    (a,) = args
    t = op.f.type
    built = isinstance(op.f, Build) and isinstance(t, Struct)  # not one that may be NULL
    parts = op.f.parts() if built else (op.f,)
    values = ctx.values(a, types[0].schema, parts)
    columns = values if built else spread(values[0], t)
    return _relation(columns, [one_array(a.column(COUNT))], Schema(columns_of(t)))


def _filter(ctx: Local, op: Filter, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    (kept,) = ctx.values(args[0], types[0].schema, (op.f,))
    return args[0].filter(kept)  # NULL is dropped


def _map_many(ctx: Local, op: MapMany, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    (a,) = args
    (lists,) = ctx.values(a, types[0].schema, (op.f,))
    row: RowType = op.type_of(types[0]).row  # type: ignore[attr-defined]
    parents = pc.list_parent_indices(lists)
    counts = one_array(a.column(COUNT)).take(parents)
    return _relation(spread(pc.list_flatten(lists), row), [counts], Schema(columns_of(row)))


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


def _least(ctx: Local, op: Least, args: list[pa.Table], types: list[StreamType]) -> pa.Table:
    there = _distinct(ctx, Distinct(), args, types)
    keys = ctx.values(there, types[0].schema, (*op.by.parts, *op.order.parts))
    rows = [there.column(n).to_pylist() for n, _ in types[0].schema.columns]
    by, order = (
        [k.to_pylist() for k in part]
        for part in (keys[: len(op.by.parts)], keys[len(op.by.parts) :])
    )
    return there.take(pa.array(op.firsts(by, order, rows), pa.int64()))


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
    Distinct: _distinct,
    Filter: _filter,
    Flatten: _flatten,
    Haitch: _haitch,
    IdentityPrint: _same,
    Join: _join,
    Least: _least,
    MakeSet: _make_set,
    Map: _map,
    MapMany: _map_many,
    Neg: _neg,
}
