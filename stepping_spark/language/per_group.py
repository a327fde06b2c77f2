"""`group` and `per_group`: a circuit that runs for each group, as operators that carry its key.

Nothing loops over groups. Most operators do the same on rows with a group key. Operators that add
up rows do so per group, and a join matches rows of the same group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.graph import Fixpoint, Vertex
from stepping_spark.circuit.operators import (
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
    Placeholder,
    PositivePart,
    Top,
    Window,
)
from stepping_spark.expressions.expr import Build, Expr, Field, PythonCall
from stepping_spark.expressions.index import Key, key_of
from stepping_spark.language.primitives import KeyFunction
from stepping_spark.language.trace import Stream, make, row_of, tracer, vertex_of
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.schema import VALUE, Carrying, Columns, ZSetType, carrying, columns_of
from stepping_spark.rows.types import Optional, Struct, tuple_of
from stepping_spark.zsets.spark import ZSet

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


T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")


V_co = TypeVar("V_co", covariant=True)
K_co = TypeVar("K_co", covariant=True)


class Grouped(Protocol, Generic[V_co, K_co]):
    """A stream of rows or sums `V` by key `K`, made by `group` and `linear.accumulate`.

    `flatten` turns it into rows; `per_group` runs a circuit on the rows of each group. A group
    exists while it has rows, even if its sum is zero.

    >>> def query(a: st.ZSet[tuple[str, int]]) -> st.ZSet[st.Pair[int, str]]:
    ...     by_name: st.Grouped[int, str] = st.linear.accumulate(
    ...         a, by=lambda row: row[0], zero=int, pick_value=lambda row: row[1])
    ...     return st.linear.flatten(by_name)
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({("x", 2): 3}),))
    >>> dict(out.iter())
    {Pair(left=6, right='x'): 1}
    """


def group(a: ZSet[T], by: KeyFunction[T], *, name: str | None = None) -> Grouped[ZSet[T], Any]:
    """The rows, grouped by key, for `per_group` and `flatten`.

    Linear; keeps no state; a step costs the rows of the change. Rows with a NULL key are one group.

    >>> def query(a: st.ZSet[tuple[str, int]]) -> st.ZSet[st.Pair[tuple[str, int], str]]:
    ...     return st.flatten(st.group(a, by=lambda row: row[0]))
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({("x", 2): 3}),))
    >>> dict(out.iter())
    {Pair(left=('x', 2), right='x'): 3}
    """
    row = row_of(a, "group")
    key = key_of(by, row, "by of group")
    if isinstance(key.expr, PythonCall):
        raise CompileError(f"{user_line()}: group by a st.python function: map the rows first")
    column = f"_group_{tracer().nesting + 1}_"
    return cast("Grouped[ZSet[T], Any]", make(grouped(row, key, column), a, name=name))


class PerGroup:
    """`per_group[g](f)`: runs the circuit `f` on the rows of each group of `g`.

    `f` is called once, with the stream of one group's rows, and returns a stream. Its operators are
    then lifted to work on all groups at once. It may use every operator on streams of rows, also
    groups of groups, and may join with streams from outside. A reduction gives one row for each
    group that has rows. State: that of the operators of `f`, by their keys and the group's key. A
    step costs the work of these operators for the groups of the change. Raises `CompileError` for
    operators that cannot be lifted (a cache, a temporal operator, recursion).

    >>> def query(a: st.ZSet[tuple[str, int]]) -> st.ZSet[st.Pair[int, str]]:
    ...     g = st.group(a, by=lambda row: row[0])
    ...     numbers = st.per_group[g](lambda s: st.distinct(st.map(s, f=lambda row: row[1])))
    ...     return st.flatten(numbers)
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({("x", 2): 3}),))
    >>> dict(out.iter())
    {Pair(left=2, right='x'): 1}
    """

    def __getitem__(
        self, g: Grouped[ZSet[T], K]
    ) -> Callable[[Callable[[ZSet[T]], ZSet[U]]], Grouped[ZSet[U], K]]:
        def lifted(f: Callable[[ZSet[T]], ZSet[U]]) -> Grouped[ZSet[U], K]:
            return cast("Grouped[ZSet[U], K]", _lifted(g, f))

        return lifted


per_group = PerGroup()


def _lifted(g: Any, f: Callable[..., Any]) -> Stream:
    current, source, line = tracer(), vertex_of(g, "per_group"), user_line()
    if not is_grouped(source.type):
        raise CompileError(
            f"{line}: per_group takes groups, found {source.type}; make them: "
            "st.per_group[st.group(a, by=…)](f)"
        )
    row: Any = row_of(g, "per_group")
    *rest, column = row.carried
    inner = carrying(row.inner, tuple(rest))
    placeholder = current.make(Placeholder(current.nesting, ZSetType(inner)), (), None)
    loops, outputs, caches = dict(current.loops), list(current.no_output), set(current.caches)
    current.nesting += 1
    try:
        given = f(placeholder)
    finally:
        current.nesting -= 1
    result = vertex_of(given, "per_group")
    if set(current.caches) != caches:
        raise CompileError(f"{line}: a cache inside per_group; keep what st.flatten gives instead")
    lifting = _Lifting(source, placeholder.vertex, column, line, set(loops))
    made = lifting.of(result)
    if not lifting.depends(result):
        raise CompileError(f"{line}: what per_group gives does not depend on the group; use it")
    for v in current.no_output[len(outputs) :]:
        outputs.append(lifting.of(v))
    current.no_output[:] = outputs
    lifting.connect()
    return Stream(made, current)


class _Lifting:
    """Lifts the vertices that were made from a placeholder."""

    def __init__(
        self, source: Vertex, placeholder: Vertex, column: Any, line: Any, old_loops: set[Vertex]
    ) -> None:
        self.current = tracer()
        self.new: dict[Vertex, Vertex] = {placeholder: source}
        self.line = line
        self.column = column
        self.old_loops = old_loops
        self.known: dict[Vertex, bool] = {placeholder: True}

    def depends(self, v: Vertex) -> bool:
        """Whether a vertex is computed from the group's rows."""
        if v not in self.known:
            inside = v in self.current.loops and v not in self.old_loops
            self.known[v] = inside or any(map(self.depends, v.inputs))
        return self.known[v]

    def of(self, v: Vertex) -> Vertex:
        """The lifted vertex, for all groups."""
        if not self.depends(v):
            return v
        if v not in self.new:
            if isinstance(v.operator, Feedback):
                self.new[v] = self._feedback(v)
            else:
                self.new[v] = self._vertex(v)
        return self.new[v]

    def connect(self) -> None:
        """Connect the lifted loops; this may need further vertices."""
        pending = [v for v in self.current.loops if v not in self.old_loops]
        for leaf in pending:
            if leaf in self.new:
                self.current.loops[self.new[leaf]] = self.of(self.current.loops[leaf])
            del self.current.loops[leaf]

    def _vertex(self, v: Vertex) -> Vertex:
        lifted = tuple(map(self.depends, v.inputs))
        inputs = tuple(map(self.of, v.inputs))
        made = self.current.made[v]

        def make(operator: Operator, *sources: Vertex) -> Vertex:
            found = Vertex(operator, *sources)
            self.current.made.setdefault(found, made)
            return found

        try:
            found = Lift(self.column, make).vertex(v, inputs, lifted)
        except CompileError as e:
            raise CompileError(f"{made.line}: {e} (in per_group of {self.line})") from None
        if v in self.current.names:
            self.current.names.setdefault(found, self.current.names[v])
        return found

    def _feedback(self, v: Vertex) -> Vertex:
        assert isinstance(v.type, ZSetType)
        found = Vertex(
            Feedback(
                len(self.current.loops) + len(self.current.unconnected),
                ZSetType(carrying(v.type.row, (self.column,))),
            )
        )
        self.current.made[found] = self.current.made[v]
        return found
