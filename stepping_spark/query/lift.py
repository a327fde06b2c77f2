"""Lifts a circuit to run per group: its operators work on rows that carry their group's key.

Nothing loops over groups. Most operators do the same on rows with a group key. Operators that add
up rows do so per group, and a join matches rows of the same group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stepping_spark.errors import CompileError
from stepping_spark.expressions.expr import Build, Expr, Field
from stepping_spark.expressions.index import Key
from stepping_spark.graph.fixpoint import Fixpoint
from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import (
    Accumulate,
    Add,
    Arrange,
    AsOf,
    Collate,
    Delay,
    Differentiate,
    Distinct,
    Explode,
    Feedback,
    Filter,
    Flatten,
    Haitch,
    Hold,
    IdentityPrint,
    Integrate,
    Join,
    Listed,
    LookUp,
    MakeSet,
    Map,
    MapMany,
    Neg,
    Operator,
    PositivePart,
    Top,
    Window,
)
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.grouped import Carrying, carrying
from stepping_spark.rows.schema import VALUE, Columns, ZSetType, columns_of
from stepping_spark.rows.types import Optional, Struct, tuple_of

Make = Callable[..., Vertex]


_CALLED: Mapping[type[Operator], str] = {
    AsOf: "st.linear.temporal_filter",
    Fixpoint: "a recursion, such as st.fixpoint,",
    Hold: "st.temporal_filter, or st.join_function,",
    LookUp: "st.delta_join, or st.half_join,",
}
"""The users' names for operators that cannot be lifted."""


@dataclass(frozen=True)
class Lift:
    """Lifts vertices to one level of groups; `column` is the name and type of the group key."""

    column: tuple[str, RowType]
    make: Make  # records the vertex of an operator and its inputs

    @property
    def columns(self) -> Columns:
        """The columns that rows carry."""
        return (self.column,)

    @property
    def key(self) -> Expr:
        """The group key of a row."""
        name, t = self.column
        return Field(t, (name,))

    def vertex(self, v: Vertex, inputs: tuple[Vertex, ...], lifted: tuple[bool, ...]) -> Vertex:
        """The vertex on its new inputs; `lifted` says which of them are per group."""
        rule = LIFT.get(type(v.operator))
        if rule is None:
            called = _CALLED.get(type(v.operator), v.operator.name)
            raise CompileError(
                f"{called} cannot be used per group; do it before st.group, or with what "
                "st.flatten gives"
            )
        if not all(lifted) and not isinstance(v.operator, Join):
            raise CompileError(
                f"{v.operator.name} of a stream per group and one that is not: the other would "
                "count once in each group; group it by the same key, or join with it"
            )
        return rule(self, v, inputs, lifted)


def _same(lift: Lift, v: Vertex, inputs: tuple[Vertex, ...], lifted: tuple[bool, ...]) -> Vertex:
    return lift.make(v.operator, *inputs)


def _carry(lift: Lift, v: Vertex, inputs: tuple[Vertex, ...], lifted: tuple[bool, ...]) -> Vertex:
    op: Any = v.operator
    return lift.make(dataclasses.replace(op, carried=op.carried + lift.columns), *inputs)


def _join(lift: Lift, v: Vertex, inputs: tuple[Vertex, ...], lifted: tuple[bool, ...]) -> Vertex:
    """Join rows of the same group, also of the NULL group; a pair is in the group of its rows."""
    op: Any = v.operator
    left, right = op.left, op.right
    if all(lifted):
        left, right = _with_group(left, lift), _with_group(right, lift)
    joined = lift.make(Join(left, right), *inputs)
    sides = [
        _whole(t.row, side)  # type: ignore[attr-defined]
        for t, side in zip((i.type for i in v.inputs), ("left", "right"), strict=True)
    ]
    name, t = lift.column
    group = Field(t, ("left" if lifted[0] else "right", name))
    pair = pair_of(*(e.type for e in sides))
    row = carrying(pair, lift.columns)
    return lift.make(Map(Build(row, (*sides, group))), joined)


def _with_group(key: Key, lift: Lift) -> Key:
    group = lift.key
    if isinstance(group.type, Optional):  # a struct is never NULL; structs of NULL are equal
        group = Build(Struct("tuple", (("_1", group.type),), tuple), (group,))
    return _longer(key.parts, group, key.ascending)


def _longer(parts: tuple[Expr, ...], group: Expr, ascending: tuple[bool, ...]) -> Key:
    every = (*parts, group)
    fields = tuple((f"_{i}", e.type) for i, e in enumerate(every, 1))
    return Key(Build(Struct("tuple", fields, tuple), every), (*ascending, True))


def _whole(row: RowType, side: str) -> Expr:
    """The row on one side of a pair, without its group."""
    if isinstance(row, Struct):
        return Build(row, tuple(Field(t, (side, n)) for n, t in row.fields))
    return Field(row, (side, VALUE))


def _accumulate(
    lift: Lift, v: Vertex, inputs: tuple[Vertex, ...], lifted: tuple[bool, ...]
) -> Vertex:
    """A total becomes a sum per group; a sum per key becomes a sum per key and group."""
    op: Any = v.operator
    key = Key(lift.key) if op.key is None else _longer((op.key.expr,), lift.key, (True,))
    return lift.make(Accumulate(key, op.pick), *inputs)


def _make_set(
    lift: Lift, v: Vertex, inputs: tuple[Vertex, ...], lifted: tuple[bool, ...]
) -> Vertex:
    """One row per group, with its number; a group without rows has none."""
    flat = lift.make(Flatten(), *inputs)
    number: RowType = v.type.row  # type: ignore[attr-defined]
    return lift.make(Map(_numbers(lift, number, ("right",))), flat)


def _numbers(lift: Lift, number: RowType, group: tuple[str, ...]) -> Expr:
    if isinstance(number, Struct):
        fields: tuple[Expr, ...] = tuple(Field(t, ("left", n)) for n, t in number.fields)
    else:
        fields = (Field(number, ("left",)),)
    row = carrying(number, lift.columns)
    return Build(row, (*fields, Field(lift.column[1], group)))


def _flatten(lift: Lift, v: Vertex, inputs: tuple[Vertex, ...], lifted: tuple[bool, ...]) -> Vertex:
    return _key_apart(lift, v, lift.make(v.operator, *inputs))


def _key_apart(lift: Lift, v: Vertex, made: Vertex) -> Vertex:
    """Turn Pair(value, (key, group)) into Pair(value, key), carrying the group."""
    pair: Any = v.type.row  # type: ignore[attr-defined]
    (_, left), (_, right) = pair.fields
    parts = (Field(left, ("left",)), Field(right, ("right", "_1")))
    group = Field(lift.column[1], ("right", "_2"))
    return lift.make(Map(Build(carrying(pair, lift.columns), (*parts, group))), made)


def _listed(lift: Lift, v: Vertex, inputs: tuple[Vertex, ...], lifted: tuple[bool, ...]) -> Vertex:
    op: Any = v.operator
    key = _longer((op.key,), lift.key, (True,)).expr
    return _key_apart(lift, v, lift.make(dataclasses.replace(op, key=key), *inputs))


def _collate(lift: Lift, v: Vertex, inputs: tuple[Vertex, ...], lifted: tuple[bool, ...]) -> Vertex:
    """Combine the partial results by key and group."""
    _, t = lift.column
    rows: Any = v.inputs[0].type.row  # type: ignore[attr-defined]
    key, *pieces = (Field(ft, (n,)) for n, ft in rows.fields)
    both = _longer((key,), lift.key, (True,)).expr
    together = Build(tuple_of((both.type, *(e.type for e in pieces))), (both, *pieces))
    collated = lift.make(v.operator, lift.make(Map(together), *inputs))
    made: Any = v.type.row  # type: ignore[attr-defined]
    (_, key_type), *kept = made.fields
    parts = (Field(key_type, ("_1", "_1")), *(Field(ft, (n,)) for n, ft in kept))
    row = Build(carrying(made, lift.columns), (*parts, Field(t, ("_1", "_2"))))
    return lift.make(Map(row), collated)


def _haitch(lift: Lift, v: Vertex, inputs: tuple[Vertex, ...], lifted: tuple[bool, ...]) -> Vertex:
    op: Any = v.operator
    if isinstance(op.of, Top):
        return lift.make(Haitch(_top_of(lift, op.of)), *inputs)
    rule = _flatten if isinstance(op.of, Flatten) else _same
    return rule(lift, v, inputs, lifted)


def _top(lift: Lift, v: Vertex, inputs: tuple[Vertex, ...], lifted: tuple[bool, ...]) -> Vertex:
    op: Any = v.operator
    return lift.make(_top_of(lift, op), *inputs)


def _window(lift: Lift, v: Vertex, inputs: tuple[Vertex, ...], lifted: tuple[bool, ...]) -> Vertex:
    """A window per partition and group; the pair of a row and its results is in the row's group."""
    op: Any = v.operator
    made = lift.make(dataclasses.replace(op, keys=(*op.keys, lift.key)), *inputs)
    pair: Any = v.type.row  # type: ignore[attr-defined]
    (_, row), (_, results) = pair.fields
    name, t = lift.column
    parts = (_whole(row, "left"), Field(results, ("right",)), Field(t, ("left", name)))
    return lift.make(Map(Build(carrying(pair, lift.columns), parts)), made)


def _top_of(lift: Lift, op: Top) -> Top:
    return dataclasses.replace(op, keys=(*op.keys, lift.key))


LIFT: dict[type[Operator], Callable[[Lift, Vertex, tuple[Vertex, ...], tuple[bool, ...]], Vertex]]
LIFT = {
    Accumulate: _accumulate,
    Add: _same,
    Arrange: _same,
    Collate: _collate,
    Delay: _same,
    Differentiate: _same,
    Distinct: _same,
    Explode: _carry,
    Feedback: _same,
    Filter: _same,
    Flatten: _flatten,
    Haitch: _haitch,
    IdentityPrint: _same,
    Integrate: _same,
    Join: _join,
    Listed: _listed,
    MakeSet: _make_set,
    Map: _carry,
    MapMany: _carry,
    Neg: _same,
    PositivePart: _same,
    Top: _top,
    Window: _window,
}


def grouped(row: RowType, key: Key, name: str) -> Map:
    """The map that adds the group key to each row."""
    columns = columns_of(row)
    parts = tuple(Field(t, (n,)) for n, t in columns)
    return Map(Build(carrying(row, ((name, key.type),)), (*parts, key.expr)))


def ungrouped(row: RowType) -> Map:
    """The map from each row of a group to Pair(left=row, right=key)."""
    assert isinstance(row, Carrying)
    *rest, (name, t) = row.carried
    inner = carrying(row.inner, tuple(rest))
    whole: Expr = Field(inner, () if isinstance(inner, Struct) else (VALUE,))
    return Map(Build(pair_of(inner, t), (whole, Field(t, (name,)))))


def is_grouped(t: object) -> bool:
    """Whether the rows of a stream carry a group."""
    return isinstance(t, ZSetType) and isinstance(t.row, Carrying)
