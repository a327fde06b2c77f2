"""Single steps without an explicit stepper: `iteration`, and `actions` by input."""

from __future__ import annotations

from typing import Any, Generic, Never, TypeVar, overload

from typing_extensions import TypeVarTuple

from stepping_spark.base.limits import Limits, checked_limits
from stepping_spark.circuit.graph import AnyGraph, Graph, In, Out
from stepping_spark.execution.io import check_one_by_one
from stepping_spark.plan.planner import plan_of
from stepping_spark.relations.store import Now, Store
from stepping_spark.stepper.stepper import Stepper
from stepping_spark.zsets.spark import ZSet, ZSetPython

Outs = TypeVarTuple("Outs")
One = TypeVar("One")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


@overload
def iteration(
    store: Store,
    graph: Graph[In, Never],
    inputs: In,
    *,
    step: int | None = None,
    now: Now = None,
    limits: Limits | None = None,
) -> tuple[Any, ...]: ...
@overload
def iteration(  # type: ignore[overload-overlap]
    store: Store,
    graph: Graph[In, tuple[*Outs]],
    inputs: In,
    *,
    step: int | None = None,
    now: Now = None,
    limits: Limits | None = None,
) -> tuple[*Outs]: ...
@overload
def iteration(
    store: Store,
    graph: Graph[In, One],
    inputs: In,
    *,
    step: int | None = None,
    now: Now = None,
    limits: Limits | None = None,
) -> tuple[One]: ...
def iteration(
    store: Store,
    graph: AnyGraph,
    inputs: Any,
    *,
    step: int | None = None,
    now: Now = None,
    limits: Limits | None = None,
) -> Any:
    """Take one step: a tuple of changes in, a tuple of changes (or values) out.

    It calls `Stepper.step`, which describes the inputs, the errors, and `step` and `now`. The
    compiled plan is kept with the graph. `limits` is as for `Stepper`.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(a)
    >>> graph = st.compile(query)
    >>> store = st.StoreMemory.from_graph(graph)
    >>> (out,) = st.iteration(store, graph, (st.ZSetPython({"a": 2}),))
    >>> out == st.ZSetPython({"a": 1})
    True
    """
    return _stepper_of(graph, store, limits).step(inputs, step=step, now=now)


def _stepper_of(
    graph: Graph[In, Out], store: Store, limits: Limits | None = None
) -> Stepper[In, Out]:
    """The stepper of a graph, a store and limits; the same object for the same arguments."""
    plan_of(graph)  # raises an error for anything but a graph
    limits = checked_limits(limits)
    stepper = graph.memo.get("stepper")
    if not isinstance(stepper, Stepper) or stepper.store is not store or stepper.limits != limits:
        stepper = graph.memo["stepper"] = Stepper(graph, store, limits=limits)
    return stepper


class Action(Generic[T, Out]):
    """Changes to one input, each a step of its own; `actions` makes one for each input.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(a)
    >>> graph = st.compile(query)
    >>> (words,) = st.actions(st.StoreMemory.from_graph(graph), graph)
    >>> words.insert("x", "x") == st.ZSetPython({"x": 1})
    True
    """

    def __init__(self, stepper: Stepper[Any, Out], number: int) -> None:
        self._stepper = stepper
        self._number = number

    def insert(self, *rows: T) -> Out:
        """Add rows. Returns the output, or a tuple of outputs if the query has several."""
        return self._change([(row, 1) for row in rows])

    def remove(self, *rows: T) -> Out:
        """Remove rows. Returns what `insert` returns."""
        return self._change([(row, -1) for row in rows])

    def replace(self, old: T, new: T) -> Out:
        """Replace one row by another. Returns what `insert` returns."""
        return self._change([(old, -1), (new, 1)])

    def _change(self, rows: list[tuple[T, int]]) -> Out:
        graph = self._stepper.graph
        v = graph.inputs[self._number]
        check_one_by_one((row for row, _ in rows), v.type, f"input {graph.paths[v].parts[-1]!r}")
        inputs: list[object] = [None] * len(graph.inputs)
        inputs[self._number] = ZSetPython(rows)
        outputs: Any = self._stepper.step(inputs)
        answer: Out = outputs[0] if graph.single else outputs
        return answer


@overload
def actions(  # type: ignore[overload-overlap]
    store: Store, graph: Graph[Never, Out], *, limits: Limits | None = None
) -> tuple[Action[Any, Out], ...]: ...
@overload
def actions(
    store: Store,
    graph: Graph[tuple[ZSet[A] | None], Out],
    *,
    limits: Limits | None = None,
) -> tuple[Action[A, Out]]: ...
@overload
def actions(
    store: Store,
    graph: Graph[tuple[ZSet[A] | None, ZSet[B] | None], Out],
    *,
    limits: Limits | None = None,
) -> tuple[Action[A, Out], Action[B, Out]]: ...
@overload
def actions(
    store: Store,
    graph: Graph[tuple[ZSet[A] | None, ZSet[B] | None, ZSet[C] | None], Out],
    *,
    limits: Limits | None = None,
) -> tuple[Action[A, Out], Action[B, Out], Action[C, Out]]: ...
@overload
def actions(
    store: Store,
    graph: Graph[tuple[ZSet[A] | None, ZSet[B] | None, ZSet[C] | None, ZSet[D] | None], Out],
    *,
    limits: Limits | None = None,
) -> tuple[Action[A, Out], Action[B, Out], Action[C, Out], Action[D, Out]]: ...
@overload
def actions(
    store: Store, graph: Graph[Any, Out], *, limits: Limits | None = None
) -> tuple[Action[Any, Out], ...]: ...
def actions(store: Store, graph: AnyGraph, *, limits: Limits | None = None) -> Any:
    """For each input, a handle to insert, remove and replace rows, one step per call.

    `insert(*rows)`, `remove(*rows)` and `replace(old, new)` return the output of the query, or a
    tuple of outputs if it has several. They raise what `Stepper.step` raises. `limits` is as for
    `Stepper`.

    >>> def query(a: st.ZSet[str], b: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.add(a, b)
    >>> graph = st.compile(query)
    >>> a, b = st.actions(st.StoreMemory.from_graph(graph), graph)
    >>> b.insert("x", "y") == st.ZSetPython({"x": 1, "y": 1})
    True
    >>> b.replace("x", "z") == st.ZSetPython({"x": -1, "z": 1})
    True
    """
    stepper = _stepper_of(graph, store, limits)
    return tuple(Action(stepper, i) for i in range(len(graph.inputs)))
