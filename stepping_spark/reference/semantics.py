"""The meaning of each operator in plain Python, and a circuit that steps with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Generic, Never, TypeVar, overload

from typing_extensions import TypeVarTuple

from stepping_spark.base.errors import FixpointError, not_there, refused_deletion, too_late
from stepping_spark.circuit.graph import Fixpoint, Graph, In, Out, Vertex, check_is_graph
from stepping_spark.circuit.operators import (
    Accumulate,
    Add,
    Arrange,
    AsOf,
    BucketedTop,
    Collate,
    Collated,
    Delay,
    Differentiate,
    Distinct,
    Expire,
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
    InTime,
    Join,
    Listed,
    LookUp,
    MakeSet,
    Map,
    MapMany,
    Neg,
    Nothing,
    Operator,
    PositivePart,
    Present,
    PrunedMap,
    Settled,
    Top,
    Touched,
    Window,
)
from stepping_spark.expressions.expr import Expr, units_of
from stepping_spark.reference.values import (
    NOTHING,
    Element,
    Mark,
    Value,
    VertexContext,
    added,
    check,
    groups_of,
    order,
    parts_of,
    place_of,
    read,
    show,
    sum_of,
    total_of,
)
from stepping_spark.reference.windows import collate, listed, top, window
from stepping_spark.rows.data import Pair, weighted
from stepping_spark.rows.schema import Accumulated, GroupedType, in_groups
from stepping_spark.rows.types import unwrap
from stepping_spark.zsets.spark import ZSetPython


def _is_before(
    at: VertexContext, value: Expr, row: Any, greatest: Sequence[Value], distances: Sequence[int]
) -> bool:
    """Whether a row's value is before the greatest time of each input minus its distance."""
    row_time, t = at.call(value, row), unwrap(value.type)
    if row_time is None:
        return False
    latest = [max((units_of(time, t) for time in times), default=None) for times in greatest]
    return all(
        x is not None and units_of(row_time, t) < x - d
        for x, d in zip(latest, distances, strict=True)
    )


def in_time(at: VertexContext, a: Value, greatest: Value) -> Value:
    """The rows of a change from the watermark on, or if the operator is `late`, the others."""
    op = at.operator

    def is_late(row: Any) -> bool:
        if at.call(op.at, row) is None:
            return True
        return _is_before(at, op.at, row, (greatest,), (op.lateness,))

    return {row: n for row, n in a.items() if is_late(row) is op.late}


def expire(at: VertexContext, a: Value, *rest: Value) -> Value:
    """The rows before the watermarks, among the rows of a change and the pending rows."""
    *greatest, rows = rest
    op, every = at.operator, added((*rows.items(), *a.items()))
    is_grouped = isinstance(at.inputs[0], GroupedType)

    def is_passed(row: Any) -> bool:
        probe = SimpleNamespace(_key_=row[0]) if is_grouped else row
        return _is_before(at, op.value, probe, greatest, op.distances)

    return {row: n for row, n in every.items() if is_passed(row)}


def touched(at: VertexContext, a: Value, passed: Value) -> Value:
    """The rows of both streams, each with the number of its stream."""
    return {(row, i): n for i, value in enumerate((a, passed)) for row, n in value.items()}


def settled(at: VertexContext, state: Value, a: Value, _: Value, *greatest: Value) -> Value:
    """The rows whose results no future row can change, and that no future row needs."""
    op = at.operator
    inner = dataclasses.replace(at, operator=op.window)
    elements = []
    for pair, n in window(inner, added((*state.items(), *a.items()))).items():
        if all(
            _is_before(at, value, pair, greatest, [d + further for d in op.distances])
            for value, further in op.free
        ):
            elements.append((pair.left, n))
    return added(elements)


def _unchanged(at: VertexContext, a: Value) -> Value:
    return a


def _add(at: VertexContext, a: Value, b: Value) -> Value:
    return added((*a.items(), *b.items()))


def _neg(at: VertexContext, a: Value) -> Value:
    return {part: -n for part, n in a.items()}


def _subtract(at: VertexContext, a: Value, b: Value) -> Value:
    return _add(at, a, _neg(at, b))


def _print(at: VertexContext, a: Value) -> Value:
    print(f"{at.operator.label}: {show(a, at.inputs[0], at.where)!r}")
    return a


def _map(at: VertexContext, a: Value) -> Value:
    carried = at.operator.carried
    return added((in_groups(at.call(at.operator.f, row), row, carried), n) for row, n in a.items())


def _filter(at: VertexContext, a: Value) -> Value:
    return {row: n for row, n in a.items() if at.call(at.operator.f, row) is True}


def _map_many(at: VertexContext, a: Value) -> Value:
    return added(
        (in_groups(item, row, at.operator.carried), n)
        for row, n in a.items()
        for item in at.call(at.operator.f, row) or ()
    )


def _explode(at: VertexContext, a: Value) -> Value:
    return added(
        (in_groups(value, row, at.operator.carried), n * weight)
        for row, n in a.items()
        for value, weight in weighted(at.call(at.operator.f, row))
    )


def _join(at: VertexContext, a: Value, b: Value) -> Value:
    matches = at.matches(at.operator.right.parts, b)
    return added(
        (Pair(left=left, right=right), m * n)
        for key, (left, m) in at.keys(at.operator.left.parts, a)
        for right, n in matches.get(key, ())
    )


def _look_up(at: VertexContext, a: Value, b: Value) -> Value:
    op = at.operator
    matches = at.matches(op.key, b)
    elements: list[tuple[Element, int]] = []
    for key, (row, m) in at.keys(op.on, a):
        members = (row,) if op.bare else row
        before, after = members[: op.place], members[op.place :]
        matching = matches.get(key, []) if key is not None else []
        elements += [((*before, right, *after), m * n) for right, n in matching]
        if op.left and sum(n for _, n in matching) <= 0:
            elements.append(((*before, None, *after), m))
    return added(elements)


def _present(at: VertexContext, a: Value) -> Value:
    matches = at.matches(at.operator.key, a)
    return {key: 1 for key, rows in matches.items() if sum(n for _, n in rows) > 0}


def _distinct(at: VertexContext, a: Value) -> Value:
    return {row: 1 for row, n in a.items() if n > 0}


def _positive_part(at: VertexContext, a: Value) -> Value:
    return {row: n for row, n in a.items() if n > 0}


def _accumulate(at: VertexContext, a: Value) -> Value:
    op = at.operator
    sum_ = Accumulated(op.pick.type)
    parts: list[tuple[Element, int]] = []
    for row, n in a.items():
        picked = [(part, m * n) for part, m in parts_of(at.call(op.pick, row), sum_)]
        if op.key is None:
            parts += picked
        else:
            key = at.call(op.key.expr, row)
            parts += [((key, part), m) for part, m in (*picked, (Mark.ROWS, n))]
    return added(parts)


def _nothing(at: VertexContext) -> Value:
    return NOTHING


def _make_set(at: VertexContext, a: Value) -> Value:
    return {total_of(a, sum_of(at.inputs[0]), at.where): 1}


def _flatten(at: VertexContext, a: Value) -> Value:
    sum_ = sum_of(at.inputs[0])
    return {Pair(left=total_of(parts, sum_, at.where), right=key): 1 for key, parts in groups_of(a)}


def _as_of(at: VertexContext, a: Value) -> Value:
    return {row: n for row, n in a.items() if row.time <= at.now}


def _hold(at: VertexContext, a: Value, held_back: Value) -> Value:
    return _as_of(at, _add(at, held_back, a))


def _fused(at: VertexContext, *values: Value) -> Value:
    types = at.inputs
    for part, result_type in zip(at.operator.parts, at.operator.types(*types), strict=True):
        inner = dataclasses.replace(at, operator=part, inputs=types)
        values, types = (MEANING[type(part)](inner, *values),), (result_type,)
    return values[0]


def _haitch(at: VertexContext, *values: Value) -> Value:
    inner = dataclasses.replace(at, operator=at.operator.of, inputs=at.inputs[::2])
    of, states, changes = MEANING[type(inner.operator)], values[::2], values[1::2]
    after = (_add(at, state, more) for state, more in zip(states, changes, strict=True))
    return _subtract(at, of(inner, *after), of(inner, *states))


def _bucketed_top(at: VertexContext, state: Value, change: Value) -> Value:
    """The change of the first rows: no group is in buckets."""
    return _haitch(dataclasses.replace(at, operator=Haitch(at.operator.top)), state, change)


def _collated(at: VertexContext, *values: Value) -> Value:
    op, pieces, types = at.operator, NOTHING, at.inputs
    for part, value, t in zip(op.parts, values, at.inputs, strict=True):
        given, types = (value,), (t,)
        for operator in part:
            inner = dataclasses.replace(at, operator=operator, inputs=types)
            given, types = (MEANING[type(operator)](inner, *given),), (operator.type_of(*types),)
        pieces = _add(at, pieces, *given)
    collating = dataclasses.replace(at, operator=Collate(op.required), inputs=types)
    return collate(collating, pieces)


def _fixpoint(at: VertexContext, *args: Value) -> Value:
    """The fixpoint of the inputs' sums, minus the fixpoint of their previous sums."""
    *changes, before = args
    op = at.operator
    return _subtract(at, _iterated(at, op, together(changes, before)), _iterated(at, op, before))


def together(inputs: Sequence[Value], before: Value) -> Value:
    """The sums of several streams as one value; each part gets the number of its stream."""
    numbered = ((i, part, n) for i, value in enumerate(inputs) for part, n in value.items())
    return added((*before.items(), *(((i, part), n) for i, part, n in numbered)))


def _iterated(at: VertexContext, op: Fixpoint, sums: Value) -> Value:
    """The limit of ∅, R(∅), R(R(∅)) …"""
    body = op.body
    inputs: list[dict[Any, int]] = [{} for _ in body.inputs]
    for (i, part), n in sums.items():
        inputs[i][part] = n
    values: dict[Vertex, Value] = dict.fromkeys(body.loops, NOTHING)
    values.update(zip(body.inputs, inputs, strict=True))
    around = set(values)
    steps = [
        v for v in order(body.walk(), dict.fromkeys(body.loops, body.inputs[0])) if v not in around
    ]
    for _ in range(op.max_iterations):
        for v in steps:
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


# These get their state as the last argument: an integral its own previous value, a hold and an
# expiry the pending rows, a fixpoint the previous sums of its inputs, the others the previous value
# of their input.
REMEMBERS = (Delay, Differentiate, Expire, Fixpoint, Hold, Integrate)

MEANING: dict[type[Operator], Callable[..., Value]] = {
    Accumulate: _accumulate,
    Add: _add,
    Arrange: _unchanged,
    AsOf: _as_of,
    BucketedTop: _bucketed_top,
    Collate: collate,
    Collated: _collated,
    Delay: _unchanged,
    Differentiate: _subtract,
    Distinct: _distinct,
    Feedback: _unchanged,
    Expire: expire,
    Explode: _explode,
    Filter: _filter,
    Fixpoint: _fixpoint,
    Flatten: _flatten,
    Fused: _fused,
    Haitch: _haitch,
    Hold: _hold,
    IdentityPrint: _print,
    Input: _unchanged,
    InTime: in_time,
    Integrate: _add,
    Join: _join,
    Listed: listed,
    LookUp: _look_up,
    MakeSet: _make_set,
    Map: _map,
    MapMany: _map_many,
    PrunedMap: _map,
    Neg: _neg,
    Nothing: _nothing,
    PositivePart: _positive_part,
    Present: _present,
    Settled: settled,
    Top: top,
    Touched: touched,
    Window: window,
}


Outs = TypeVarTuple("Outs")
One = TypeVar("One")


def reference(graph: Graph[In, Out]) -> Reference[In, Out]:
    """A plain-Python evaluator of a circuit, for tests. It starts without state.

    It needs no Spark. It evaluates operators on fields, `st.python` functions, and the functions of
    `pyspark.sql.functions` that the driver computes; another one raises `StepError`. Its `step`
    takes and returns the same as `Stepper.step`, except that its outputs are `ZSetPython`s.
    `caches` has the values of the caches. A step computes every vertex, on whole values.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(a)
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({"a": 2}),))
    >>> dict(out.iter())
    {'a': 1}
    """
    check_is_graph(graph)
    return Reference(graph)


class Reference(Generic[In, Out]):
    """A circuit and its state: the values stored by its delays, integrals and differences."""

    def __init__(self, graph: Graph[In, Out]) -> None:
        self.graph = graph
        self._order = order(graph.walk(), graph.loops)
        self._remembered: dict[Vertex, Value] = {}
        self._steps = 0
        self._cached: dict[str, Any] = {name: ZSetPython() for name in graph.caches}

    @property
    def caches(self) -> Mapping[str, Any]:
        """The values of the circuit's caches, by name, at the last step."""
        return self._cached

    @overload  # checkers use this overload for queries that return Any
    def step(self: Reference[In, Never], inputs: In, *, now: Any = None) -> tuple[Any, ...]: ...
    @overload
    def step(  # type: ignore[overload-overlap]
        self: Reference[In, tuple[*Outs]], inputs: In, *, now: Any = None
    ) -> tuple[*Outs]: ...
    @overload
    def step(self: Reference[In, One], inputs: In, *, now: Any = None) -> tuple[One]: ...
    def step(self, inputs: Any, *, now: Any = None) -> Any:
        """Take one change for each input, and return the change or value of each output.

        An input is a `ZSetPython`, a `ZSetSpark`, a number, or None for no change. `now` is by
        default the number of the step. A step that raises an error changes nothing. Raises
        `InputError` for a value of the wrong type, and `StepError` if a vertex fails.
        """
        given = self._values_of(inputs)
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
        for label, x in self.graph.lateness.items():
            if x.refused and values[x.late]:
                latest = max(values[x.late.inputs[1]], default=None)
                rows = list(values[x.late])
                raise too_late(rows, f"input {label!r}", label, str(x.at), latest, x.said)
        shown = tuple(self._value_of(v, values) for v in self.graph.outputs)
        cached = {name: self._value_of(v, values) for name, v in self.graph.caches.items()}
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
            return together([values[s] for s in v.inputs], before)
        if isinstance(v.operator, Hold | Expire):
            came_out = ((row, -n) for row, n in values[v].items())
            return added((*before.items(), *values[v.inputs[0]].items(), *came_out))
        return values[v.inputs[0]]

    def _value_of(self, v: Vertex, values: Mapping[Vertex, Value]) -> Any:
        return show(values[v], v.type, place_of(self.graph, v).where)

    def _values_of(self, inputs: Sequence[object]) -> dict[Vertex, Value]:
        values = {}
        named = self.graph.named_inputs
        if not isinstance(inputs, tuple | list) or len(inputs) != len(named):
            raise self.graph.not_given(inputs)
        for (v, where), value in zip(named, inputs, strict=True):
            values[v] = read(value, v.type, where)
            if isinstance(v.operator, Input) and v.operator.append_only:
                for row, n in values[v].items():
                    if n < 0:
                        raise refused_deletion(row, n, where)
        return values
