"""States that keep all rows although their inputs have a lateness, and the reasons."""

from __future__ import annotations

from collections.abc import Iterator

from stepping_spark.graph.graph import AnyGraph, Vertex
from stepping_spark.graph.operators import Haitch, InTime, Join, LookUp, Operator, Window
from stepping_spark.graph.settling import frees_of, in_key, is_kept, is_state_of, met_by, summed
from stepping_spark.graph.states import States
from stepping_spark.graph.watermarks import Bounds, Known

UNKNOWN = "nothing is known of how late its rows come: no field that it has is the time of an input"


def kept_whole(graph: AnyGraph) -> Iterator[tuple[Vertex, str]]:
    """The vertices that keep all rows of such an input, each with the reason."""
    if not graph.lateness:
        return
    late = _Late(graph)
    for v in graph.walk():  # inputs come first, so that nothing goes deep
        late.look_at(v)
        why = late.why(v)
        if why:
            yield v, why


class _Late:
    def __init__(self, graph: AnyGraph) -> None:
        self.graph = graph
        self.known, self.states = Known(graph.loops), States(graph.loops)
        self._depends: dict[Vertex, bool] = {}

    def look_at(self, v: Vertex) -> None:
        """Learn what is known of a vertex, when that is known of its inputs."""
        self.depends(v)
        self.known.of(v)

    def why(self, v: Vertex) -> str:
        """Why the state that a vertex reads keeps all rows; "" where it does not, or has none."""
        op = v.operator
        if isinstance(op, Haitch):
            reasons = map(self._of_state, op.of.folds, v.inputs[::2], v.inputs[1::2])
            return next(filter(None, reasons), "")
        if isinstance(op, Join):
            return self._of_join(op, *v.inputs)
        if isinstance(op, LookUp) and v.inputs[1] in self.states:
            a = summed(v.inputs[1])
            return "a delta join looks up rows of any time" if a and self.depends(a) else ""
        return ""

    def _of_state(self, fold: Operator, state: Vertex, change: Vertex) -> str:
        wrapped = is_state_of(state, change)
        if wrapped is None or not self.depends(wrapped[0]):
            return ""
        a, negated = wrapped
        bounds = self.known.of(a)
        if not bounds:
            return UNKNOWN
        if in_key(fold, a, bounds) is not None:
            return "the circuit is not optimized"
        if not isinstance(fold, Window) or negated:
            return f"its key has no {_shown(bounds)}"
        found = [frees_of(fold, b) for b in bounds]
        reasons = [why for why in found if isinstance(why, str)]
        return reasons[0] if len(reasons) == len(found) else "the circuit is not optimized"

    def _of_join(self, op: Join, left: Vertex, right: Vertex) -> str:
        for state, change, on, key in (
            (left, right, op.left.parts, op.right.parts),
            (right, left, op.right.parts, op.left.parts),
        ):
            a = summed(state)
            if a is None or change in self.states or is_kept(a) or not self.depends(a):
                continue
            bounds = self.known.of(change)
            if met_by(on, key, bounds) is not None:
                return "the circuit is not optimized"
            side = "left" if state is left else "right"
            if not bounds:
                return f"nothing is known of how late the rows come that the {side} side is met by"
            return f"its key has no {_shown(bounds)} of the rows that the {side} side is met by"
        return ""

    def depends(self, v: Vertex) -> bool:
        """Whether a stream is made of an input that has a lateness."""
        if v not in self._depends:
            self._depends[v] = False  # what a loop gives back is made of what is around it
            inputs = (self.graph.loops[v],) if v in self.graph.loops else v.inputs
            found = isinstance(v.operator, InTime) or any(map(self.depends, inputs))
            self._depends[v] = found
        return self._depends[v]


def _shown(bounds: Bounds) -> str:
    return " or ".join(dict.fromkeys(str(b.value) for b in bounds))
