"""Tells the streams of a circuit that are states from those that are changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, Self

from typing_extensions import TypeVar

from stepping_spark.graph.operators import Arrange, Linearity, Operator, parts_of
from stepping_spark.rows.schema import StreamType


class AnyVertex(Protocol):
    """A vertex of a graph, or of a picture of one."""

    @property
    def operator(self) -> Operator: ...
    @property
    def inputs(self) -> tuple[Self, ...]: ...
    @property
    def type(self) -> StreamType: ...


V = TypeVar("V", bound=AnyVertex)


class States(Generic[V]):
    """The states among the streams of a circuit; `v in states` asks, and the answer is cached.

    A state is the output of an integral or a delay, and a stream made of one: by an operator of
    several streams if any of them is a state, by a join or a look-up if all of them are.
    """

    def __init__(self, loops: Mapping[V, V]) -> None:
        self._loops = loops
        self._known: dict[V, bool] = {}

    def __contains__(self, v: V) -> bool:
        while isinstance(v.operator, Arrange) or v in self._loops:
            v = self._loops[v] if v in self._loops else v.inputs[0]
        if v not in self._known:
            self._known[v] = False  # what a recursion gives back to itself is a change
            self._known[v] = self._is_state(v)
        return self._known[v]

    def _is_state(self, v: V) -> bool:
        op = v.operator
        if op.gives_state:
            return True
        if not op.arity or op.gives_change:
            return False
        matches = parts_of(op)[0].linearity in (Linearity.BILINEAR, Linearity.LOOK_UP)
        return (all if matches else any)(i in self for i in v.inputs)
