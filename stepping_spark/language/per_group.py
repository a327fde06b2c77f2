"""`group` and `per_group`: a circuit that runs for each group, as operators that carry its key.

Nothing loops over groups. Most operators do the same on rows with a group key. Operators that add
up rows do so per group, and a join matches rows of the same group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.graph import Fixpoint, Vertex
from stepping_spark.circuit.operators import (
    AsOf,
    Feedback,
    Hold,
    Linearity,
    LookUp,
    Map,
    Operator,
    Placeholder,
)
from stepping_spark.expressions.expr import Build, Field, PythonCall, whole
from stepping_spark.expressions.index import Key, key_of
from stepping_spark.language.primitives import KeyFunction
from stepping_spark.language.trace import Stream, make, row_of, tracer, vertex_of
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.schema import Carrying, ZSetType, carrying, columns_of
from stepping_spark.zsets.spark import ZSet

_CALLED: Mapping[type[Operator], str] = {
    AsOf: "st.linear.temporal_filter",
    Fixpoint: "a recursion, such as st.fixpoint,",
    Hold: "st.temporal_filter, or st.join_function,",
    LookUp: "st.delta_join, or st.half_join,",
}
"""The users' names for operators that cannot be lifted."""


def grouped(row: RowType, key: Key, name: str) -> Map:
    """The map that adds the group key to each row."""
    columns = columns_of(row)
    parts = tuple(Field(t, (n,)) for n, t in columns)
    return Map(Build(carrying(row, ((name, key.type),)), (*parts, key.expr)))


def ungrouped(row: RowType) -> Map:
    """The map from each row of a group to Pair(left=row, right=key)."""
    assert isinstance(row, Carrying)
    *outer, (name, t) = row.carried
    inner = carrying(row.inner, tuple(outer))
    return Map(Build(pair_of(inner, t), (whole(inner), Field(t, (name,)))))


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
    *outer, column = row.carried
    inner = carrying(row.inner, tuple(outer))
    placeholder = current.make(Placeholder(current.nesting, ZSetType(inner)), (), None)
    loops, outputs, caches = dict(current.loops), list(current.no_output), set(current.caches)
    current.nesting += 1
    running = set(current.labels)
    try:
        returned = f(placeholder)
    finally:
        current.nesting -= 1
    current.name_streams([frame for frame in current.labels if frame not in running])
    result = vertex_of(returned, "per_group")
    if set(current.caches) != caches:
        raise CompileError(
            f"{line}: a cache inside per_group; keep the result of st.flatten instead"
        )
    lifting = _Lifting(source, placeholder.vertex, column, line, set(loops))
    vertex = lifting.of(result)
    if not lifting.depends(result):
        raise CompileError(
            f"{line}: the result of per_group does not depend on the group; use the group in it"
        )
    for v in current.no_output[len(outputs) :]:
        outputs.append(lifting.of(v))
    current.no_output[:] = outputs
    lifting.connect()
    return Stream(vertex, current)


class _Lifting:
    """Lifts the vertices that were made from a placeholder."""

    def __init__(
        self, source: Vertex, placeholder: Vertex, column: Any, line: Any, old_loops: set[Vertex]
    ) -> None:
        self.current = tracer()
        self.new: dict[Vertex, Vertex] = {placeholder: source}
        self.line = line
        self.group = Field(column[1], (column[0],))
        self.columns = (column,)
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
        op, entry = v.operator, self.current.entries[v]
        grouped = tuple(map(self.depends, v.inputs))
        inputs = tuple(map(self.of, v.inputs))
        operators = op.lifted(self.group, [i.type for i in v.inputs], grouped)
        refused = ""
        if not operators:
            refused = (
                f"{_CALLED.get(type(op), op.name)} cannot be used per group; do it before "
                "st.group, or with what st.flatten gives"
            )
        elif not all(grouped) and op.linearity is not Linearity.BILINEAR:
            refused = (
                f"{op.name} of a stream per group and one that is not: the other would count once "
                "in each group; group it by the same key, or join with it"
            )
        if refused:
            raise CompileError(f"{entry.line}: {refused} (in per_group of {self.line})")
        for operator in operators:
            vertex = Vertex(operator, *inputs)
            self.current.entries.setdefault(vertex, entry)
            inputs = (vertex,)
        if v in self.current.names:
            self.current.names.setdefault(vertex, self.current.names[v])
        return vertex

    def _feedback(self, v: Vertex) -> Vertex:
        assert isinstance(v.type, ZSetType)
        leaf = Vertex(
            Feedback(
                len(self.current.loops) + len(self.current.unconnected),
                ZSetType(carrying(v.type.row, self.columns)),
            )
        )
        self.current.entries[leaf] = self.current.entries[v]
        return leaf
