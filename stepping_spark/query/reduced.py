"""The plan of an aggregation as vertices: the reductions, and the join of their results."""

from __future__ import annotations

import dataclasses
from typing import Any

from stepping_spark.expressions.derived import known
from stepping_spark.expressions.expr import Build, Expr, Field, Literal, whole
from stepping_spark.expressions.index import Key
from stepping_spark.graph.operators import (
    Accumulate,
    Add,
    Collate,
    Distinct,
    Flatten,
    Listed,
    MakeSet,
    Map,
    Top,
)
from stepping_spark.query.grouping import Groups
from stepping_spark.query.reduce_planner import Planner
from stepping_spark.query.reductions import ONE, First, Frequent, Gathered, Reduction, Sums
from stepping_spark.query.trace import Stream, make
from stepping_spark.rows.atoms import INT, RowType
from stepping_spark.rows.types import Optional, Struct, tuple_of


def collated(a: Any, groups: Groups | None, planner: Planner) -> Stream:
    """Rows with the key and the result of each reduction."""
    made = [_reduced(a, groups, r, planner.group_size) for r in planner.reductions]
    key_type = INT if groups is None else groups.type
    types = [piece.type for _, _, piece in made]
    if len(made) == 1:
        ((stream, key_expr, piece),) = made
        return make(Map(Build(tuple_of((key_type, *types)), (key_expr, piece))), stream)
    optional = [Optional(t) for t in types]
    rows = tuple_of((key_type, *optional))
    total: Stream | None = None
    for i, (stream, key_expr, piece) in enumerate(made):
        pieces = [
            dataclasses.replace(piece, type=t) if i == j else Literal(t, None)
            for j, t in enumerate(optional)
        ]
        mapped = make(Map(Build(rows, (key_expr, *pieces))), stream)
        total = mapped if total is None else make(Add(), total, mapped)
    required = sum(planner.keyed or r.always for r in planner.reductions)
    return make(Collate(required), total)


def _reduced(
    a: Any, groups: Groups | None, r: Reduction, group_size: int | None
) -> tuple[Stream, Expr, Expr]:
    """The result rows of a reduction, and the expressions for their key and their result."""
    keys: tuple[Expr, ...] = (Literal(INT, 0),) if groups is None else groups.keys
    types = tuple_of((keys[0].type, *(e.type for e in r.args)))
    rows, *others = (make(Map(Build(types, (key, *r.args))), a) for key in keys)
    for other in others:
        rows = make(Add(), rows, other)
    own = Field(keys[0].type, ("_1",))
    if isinstance(r, First):
        return _first(rows, own, r, group_size)
    if isinstance(r, Gathered):
        if r.distinct:
            rows = make(Distinct(), rows)
        return _listed(rows, own, r)
    if isinstance(r, Frequent):
        return _most_frequent(rows, own, r, group_size)
    if isinstance(r, Sums) and r.distinct:
        rows = make(Distinct(), rows)
    pick = r.pick
    accumulated = make(Accumulate(None if groups is None else Key(own), pick), rows)
    if groups is None:
        made = make(MakeSet(), accumulated)
        kept: Expr = _as_built(pick.type)
        key_kept: Expr = keys[0]
    else:
        made = make(Flatten(), accumulated)
        kept, key_kept = Field(pick.type, ("left",)), Field(groups.type, ("right",))
    if not isinstance(r, Sums):
        kept = Build(tuple_of((pick.type,)), (kept,))
    return made, key_kept, kept


def _as_built(t: RowType) -> Expr:
    """The row itself, rebuilt from its fields."""
    if not isinstance(t, Struct):
        return whole(t)
    return Build(t, tuple(Field(ft, (n,)) for n, ft in t.fields))


def _first(rows: Stream, key: Field, r: First, group_size: int | None) -> tuple[Stream, Expr, Expr]:
    first = make(Top((key,), r.order, r.n, group_size=group_size), rows)
    if not r.listed:
        return first, key, Build(tuple_of(e.type for e in r.values), r.values)
    return _listed(first, key, r)


def _listed(rows: Stream, key: Field, r: First | Gathered) -> tuple[Stream, Expr, Expr]:
    """For each key, the list of the values of its rows."""
    (item,) = r.values
    operator = Listed(key, r.order, item)
    t = operator.list_type
    made = make(operator, rows)
    return made, Field(key.type, ("right",)), Build(tuple_of((t,)), (Field(t, ("left",)),))


def _most_frequent(
    rows: Stream, key: Field, r: Frequent, group_size: int | None
) -> tuple[Stream, Expr, Expr]:
    """The most frequent value; NULL only if there is no other."""
    (value,) = r.values
    both = tuple_of((key.type, value.type))
    each = Key(Build(both, (key, value)), (True, True))
    counted = make(Flatten(), make(Accumulate(each, ONE), rows))
    own, found = Field(key.type, ("right", "_1")), Field(value.type, ("right", "_2"))
    order = ((known(found), False), (Field(INT, ("left",)), False), (found, True))
    first = make(Top((own,), order, 1, group_size=group_size), counted)
    return first, own, Build(tuple_of((found.type,)), (found,))
