"""Evaluates a circuit in plain Python, without Spark: the executable specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Never, TypeVar, overload

from typing_extensions import TypeVarTuple

from stepping_spark.base.errors import not_there, refused_deletion, too_late
from stepping_spark.circuit.graph import Fixpoint, Graph, In, Out, Vertex, check_is_graph
from stepping_spark.circuit.operators import Delay, Expire, Feedback, Hold, Input, Integrate
from stepping_spark.reference.semantics import MEANING, REMEMBERS, together
from stepping_spark.reference.values import (
    NOTHING,
    Value,
    added,
    check,
    order,
    place_of,
    read,
    show,
)
from stepping_spark.zsets.spark import ZSetPython

Outs = TypeVarTuple("Outs")
One = TypeVar("One")


def reference(graph: Graph[In, Out]) -> Reference[In, Out]:
    """A plain-Python evaluator of a circuit, for tests. It starts without state.

    It needs no Spark if the functions of rows are operators on fields, or `st.python` functions; a
    Spark function in one raises `StepError`. Its `step` takes and returns the same as
    `Stepper.step`, except that its outputs are `ZSetPython`s. `caches` has the values of the
    caches. A step computes every vertex, on whole values.

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
        for label, x in self.graph.lateness.items():
            if x.refused and values[x.late]:
                latest = max(values[x.late.inputs[1]], default=None)
                rows = list(values[x.late])
                raise too_late(rows, f"input {label!r}", label, str(x.at), latest, x.said)
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
            return together([values[s] for s in v.inputs], before)
        if isinstance(v.operator, Hold | Expire):
            came_out = ((row, -n) for row, n in values[v].items())
            return added((*before.items(), *values[v.inputs[0]].items(), *came_out))
        return values[v.inputs[0]]

    def _shown(self, v: Vertex, values: Mapping[Vertex, Value]) -> Any:
        return show(values[v], v.type, place_of(self.graph, v).where)

    def _given(self, inputs: Sequence[object]) -> dict[Vertex, Value]:
        found = {}
        named = self.graph.named_inputs
        if not isinstance(inputs, tuple | list) or len(inputs) != len(named):
            raise self.graph.not_given(inputs)
        for (v, where), value in zip(named, inputs, strict=True):
            found[v] = read(value, v.type, where)
            if isinstance(v.operator, Input) and v.operator.append_only:
                for row, n in found[v].items():
                    if n < 0:
                        raise refused_deletion(row, n, where)
        return found
