"""The executable specification: what a circuit means, in plain Python, without Spark.

The values it computes with are those of `reference_values`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, Generic, TypeVar

from typing_extensions import TypeVarTuple

from stepping_spark.errors import (
    FixpointError,
    StepError,
    SteppingError,
    not_there,
    refused_deletion,
)
from stepping_spark.expressions.expr import Expr
from stepping_spark.graph.fixpoint import Fixpoint, named
from stepping_spark.graph.graph import AnyGraph, Graph, Vertex, check_is_graph
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
    Fused,
    Haitch,
    Hold,
    IdentityPrint,
    Input,
    Integrate,
    Join,
    Listed,
    LookUp,
    MakeSet,
    Map,
    MapMany,
    Neg,
    Operator,
    Present,
    Top,
)
from stepping_spark.reference.groups import collate, listed, top
from stepping_spark.reference.values import (
    NOTHING,
    Mark,
    Part,
    Value,
    added,
    check,
    groups_of,
    of_type,
    parts_of,
    read,
    show,
    sum_of,
    total_of,
)
from stepping_spark.rows.data import Pair, weighted
from stepping_spark.rows.grouped import in_groups
from stepping_spark.rows.schema import Accumulated, StreamType
from stepping_spark.zsets.spark import ZSetPython

Ins = TypeVarTuple("Ins")
Out = TypeVar("Out")


def reference(graph: Graph[*Ins, Out]) -> Reference[*Ins, Out]:
    """A plain-Python evaluator of a circuit, with nothing in its state: for tests of circuits.

    Needs no Spark where the functions of rows are operators on fields, or `st.python`; a function
    of Spark in one is a `StepError`. Its `step` takes and gives what `Stepper.step` does, save that
    its outputs are `ZSetPython`s; `caches` has the values of the caches. Computes every vertex at
    every step, on whole values.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(a)
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({"a": 2}),))
    >>> dict(out.iter())
    {'a': 1}
    """
    check_is_graph(graph)
    return Reference(graph)


class Reference(Generic[*Ins, Out]):
    """A circuit and its state: the values that its delays, integrals and differences remember."""

    def __init__(self, graph: Graph[*Ins, Out]) -> None:
        self.graph = graph
        self._order = _order(graph.walk(), graph.loops)
        self._remembered: dict[Vertex, Value] = {}
        self._steps = 0
        self._cached: dict[str, Any] = {name: ZSetPython() for name in graph.caches}

    @property
    def caches(self) -> Mapping[str, Any]:
        """The values of the circuit's caches, by name, at the last step."""
        return self._cached

    def step(self, inputs: Sequence[object], *, now: Any = None) -> tuple[Any, ...]:
        """Feed one change to each input; gives the change, or value, of each output.

        An input is a `ZSetPython`, a `ZSetSpark`, a number, or None for no change; `now` is the
        number of the step, or as given. A step that raises has changed nothing. Raises
        `InputError` for a value that does not fit, `StepError` for a vertex that fails.
        """
        given = self._given(inputs)
        values: dict[Vertex, Value] = {}
        for v in self._order:
            at = place_of(self.graph, v, self._steps + 1 if now is None else now)
            if v in given:
                values[v] = MEANING[Input](at, given[v])
            else:
                args = (
                    [] if isinstance(v.operator, Delay) else [values[s] for s in self._sources(v)]
                )
                if isinstance(v.operator, REMEMBERS):
                    args.append(self._remembered.get(v, NOTHING))
                values[v] = MEANING[type(v.operator)](at, *args)
            check(at.where, v.type, values[v])
        for label, v in self.graph.strict.items():
            missing = [row for row, n in values[v].items() if n > 0]
            if missing:
                raise not_there(missing, f"input {label!r}")
        shown = tuple(self._shown(v, values) for v in self.graph.outputs)
        cached = {name: self._shown(v, values) for name, v in self.graph.caches.items()}
        self._remembered = {
            v: self._remember(v, values) for v in self._order if isinstance(v.operator, REMEMBERS)
        }
        self._cached = cached
        self._steps += 1
        return shown

    def _sources(self, v: Vertex) -> tuple[Vertex, ...]:
        return (self.graph.loops[v],) if isinstance(v.operator, Feedback) else v.inputs

    def _remember(self, v: Vertex, values: Mapping[Vertex, Value]) -> Value:
        if isinstance(v.operator, Integrate):
            return values[v]
        before = self._remembered.get(v, NOTHING)
        if isinstance(v.operator, Fixpoint):
            return _together([values[s] for s in v.inputs], before)
        if isinstance(v.operator, Hold):
            came_out = ((row, -n) for row, n in values[v].items())
            return added((*before.items(), *values[v.inputs[0]].items(), *came_out))
        return values[v.inputs[0]]

    def _shown(self, v: Vertex, values: Mapping[Vertex, Value]) -> Any:
        return show(values[v], v.type, place_of(self.graph, v).where)

    def _given(self, inputs: Sequence[object]) -> dict[Vertex, Value]:
        found = {}
        for v, value, where in self.graph.given(inputs):
            found[v] = read(value, v.type, where)
            if isinstance(v.operator, Input) and v.operator.append_only:
                for row, n in found[v].items():
                    if n < 0:
                        raise refused_deletion(row, n, where)
        return found


def _order(vertices: Iterable[Vertex], loops: Mapping[Vertex, Vertex]) -> tuple[Vertex, ...]:
    """The vertices, each after those whose value of this step it needs; a delay needs none."""
    needs: TopologicalSorter[Vertex] = TopologicalSorter()
    for v in vertices:
        sources = (loops[v],) if v in loops else v.inputs
        needs.add(v, *(() if isinstance(v.operator, Delay) else sources))
    return tuple(needs.static_order())


# -- operators


@dataclass(frozen=True)
class Place:
    """A vertex, as far as the meaning of its operator depends on it."""

    operator: Any
    inputs: tuple[StreamType, ...]
    where: str
    now: Any = None

    def call(self, f: Expr, row: Any) -> Any:
        """What a row function gives for a row; a StepError that shows the row where it fails."""
        try:
            value = f.value(row)
            if isinstance(self.operator, MapMany | Explode) and value is not None:
                value = list(value)
            return of_type(value, f.type, "its value")
        except Exception as e:
            found = str(e) if isinstance(e, SteppingError) else f"{type(e).__name__}: {e}"
            raise StepError(
                f"{self.where}: {f} failed for the row {row!r}: {found}; nothing has changed: mend "
                "the row or the function, and step again"
            ) from e

    def keys(
        self, key: Sequence[Expr], value: Value
    ) -> Iterator[tuple[tuple[Part, ...] | None, tuple[Any, int]]]:
        """The rows and weights, each with its key; None for a key that has a NULL part."""
        for row, n in value.items():
            parts = tuple(self.call(part, row) for part in key)
            yield None if None in parts else parts, (row, n)

    def matches(self, key: Sequence[Expr], value: Value) -> dict[Part, list[tuple[Any, int]]]:
        """The rows and weights by key; none that has a NULL part."""
        found: dict[Part, list[tuple[Any, int]]] = {}
        for parts, row in self.keys(key, value):
            if parts is not None:
                found.setdefault(parts, []).append(row)
        return found


def place_of(graph: AnyGraph, v: Vertex, now: Any = None) -> Place:
    """A vertex of a circuit."""
    where = f"{graph.paths[v]} ({graph.line(v)})"
    op = named(v.operator, graph) if isinstance(v.operator, Fixpoint) else v.operator
    return Place(op, tuple(s.type for s in v.inputs), where, now)


def _same(at: Place, a: Value) -> Value:
    return a


def _add(at: Place, a: Value, b: Value) -> Value:
    return added((*a.items(), *b.items()))


def _neg(at: Place, a: Value) -> Value:
    return {part: -n for part, n in a.items()}


def _subtract(at: Place, a: Value, b: Value) -> Value:
    return _add(at, a, _neg(at, b))


def _print(at: Place, a: Value) -> Value:
    print(f"{at.operator.label}: {show(a, at.inputs[0], at.where)!r}")
    return a


def _map(at: Place, a: Value) -> Value:
    carried = at.operator.carried
    return added((in_groups(at.call(at.operator.f, row), row, carried), n) for row, n in a.items())


def _filter(at: Place, a: Value) -> Value:
    return {row: n for row, n in a.items() if at.call(at.operator.f, row) is True}


def _map_many(at: Place, a: Value) -> Value:
    return added(
        (in_groups(item, row, at.operator.carried), n)
        for row, n in a.items()
        for item in at.call(at.operator.f, row) or ()
    )


def _explode(at: Place, a: Value) -> Value:
    return added(
        (in_groups(value, row, at.operator.carried), n * weight)
        for row, n in a.items()
        for value, weight in weighted(at.call(at.operator.f, row))
    )


def _join(at: Place, a: Value, b: Value) -> Value:
    matches = at.matches(at.operator.right.parts, b)
    return added(
        (Pair(left=left, right=right), m * n)
        for key, (left, m) in at.keys(at.operator.left.parts, a)
        for right, n in matches.get(key, ())
    )


def _look_up(at: Place, a: Value, b: Value) -> Value:
    op = at.operator
    matches = at.matches(op.key, b)
    found: list[tuple[Part, int]] = []
    for key, (row, m) in at.keys(op.on, a):
        known = (row,) if op.bare else row
        before, after = known[: op.place], known[op.place :]
        there = matches.get(key, []) if key is not None else []
        found += [((*before, right, *after), m * n) for right, n in there]
        if op.left and sum(n for _, n in there) <= 0:
            found.append(((*before, None, *after), m))
    return added(found)


def _present(at: Place, a: Value) -> Value:
    matches = at.matches(at.operator.key, a)
    return {key: 1 for key, rows in matches.items() if sum(n for _, n in rows) > 0}


def _distinct(at: Place, a: Value) -> Value:
    return {row: 1 for row, n in a.items() if n > 0}


def _accumulate(at: Place, a: Value) -> Value:
    op = at.operator
    sum_ = Accumulated(op.pick.type)
    parts: list[tuple[Part, int]] = []
    for row, n in a.items():
        picked = [(part, m * n) for part, m in parts_of(at.call(op.pick, row), sum_)]
        if op.key is None:
            parts += picked
        else:
            key = at.call(op.key.expr, row)
            parts += [((key, part), m) for part, m in (*picked, (Mark.ROWS, n))]
    return added(parts)


def _make_set(at: Place, a: Value) -> Value:
    return {total_of(a, sum_of(at.inputs[0]), at.where): 1}


def _flatten(at: Place, a: Value) -> Value:
    sum_ = sum_of(at.inputs[0])
    return {Pair(left=total_of(parts, sum_, at.where), right=key): 1 for key, parts in groups_of(a)}


def _as_of(at: Place, a: Value) -> Value:
    return {row: n for row, n in a.items() if row.time <= at.now}


def _hold(at: Place, a: Value, held_back: Value) -> Value:
    return _as_of(at, _add(at, held_back, a))


def _fused(at: Place, *values: Value) -> Value:
    types = at.inputs
    for part, made in zip(at.operator.parts, at.operator.types(*types), strict=True):
        inner = dataclasses.replace(at, operator=part, inputs=types)
        values, types = (MEANING[type(part)](inner, *values),), (made,)
    return values[0]


def _haitch(at: Place, state: Value, change: Value) -> Value:
    inner = dataclasses.replace(at, operator=at.operator.of)
    of = MEANING[type(inner.operator)]
    return _subtract(at, of(inner, _add(at, state, change)), of(inner, state))


def _fixpoint(at: Place, *args: Value) -> Value:
    """The fixpoint of the inputs' sums, less that of what they were before."""
    *changes, before = args
    op = at.operator
    return _subtract(at, _iterated(at, op, _together(changes, before)), _iterated(at, op, before))


def _together(inputs: Sequence[Value], before: Value) -> Value:
    """The sums of several streams as one value: each part with the number of its stream."""
    numbered = ((i, part, n) for i, value in enumerate(inputs) for part, n in value.items())
    return added((*before.items(), *(((i, part), n) for i, part, n in numbered)))


def _iterated(at: Place, op: Fixpoint, sums: Value) -> Value:
    """The limit of ∅, R(∅), R(R(∅)) …"""
    body = op.body
    inputs: list[dict[Any, int]] = [{} for _ in body.inputs]
    for (i, part), n in sums.items():
        inputs[i][part] = n
    values: dict[Vertex, Value] = dict.fromkeys(body.loops, NOTHING)
    values.update(zip(body.inputs, inputs, strict=True))
    given = set(values)
    order = [
        v for v in _order(body.walk(), dict.fromkeys(body.loops, body.inputs[0])) if v not in given
    ]
    for _ in range(op.max_iterations):
        for v in order:
            place = place_of(body, v)
            values[v] = MEANING[type(v.operator)](place, *(values[i] for i in v.inputs))
            check(place.where, v.type, values[v])
        if all(values[leaf] == values[v] for leaf, v in body.loops.items()):
            return values[body.outputs[op.number]]
        values.update({leaf: values[v] for leaf, v in body.loops.items()})
    if not sums:
        return NOTHING
    raise FixpointError(
        op.endless(at.where, {str(body.paths[v]): len(values[v]) for v in body.outputs})
    )


# These get what they remember of the steps before as their last argument: an integral its own
# value, a hold what is still to come, a fixpoint the sums of its inputs, the others the value of
# their input.
REMEMBERS = (Delay, Differentiate, Fixpoint, Hold, Integrate)

MEANING: dict[type[Operator], Callable[..., Value]] = {
    Accumulate: _accumulate,
    Add: _add,
    Arrange: _same,
    AsOf: _as_of,
    Collate: collate,
    Delay: _same,
    Differentiate: _subtract,
    Distinct: _distinct,
    Feedback: _same,
    Explode: _explode,
    Filter: _filter,
    Fixpoint: _fixpoint,
    Flatten: _flatten,
    Fused: _fused,
    Haitch: _haitch,
    Hold: _hold,
    IdentityPrint: _print,
    Input: _same,
    Integrate: _add,
    Join: _join,
    Listed: listed,
    LookUp: _look_up,
    MakeSet: _make_set,
    Map: _map,
    MapMany: _map_many,
    Neg: _neg,
    Present: _present,
    Top: top,
}
