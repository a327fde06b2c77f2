"""`explain`: what each vertex of a circuit costs, and what it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stepping_spark.body import Fixpoint
from stepping_spark.graph import AnyGraph, Vertex
from stepping_spark.loops import Loop
from stepping_spark.operators import (
    Delay,
    Differentiate,
    Feedback,
    Haitch,
    Input,
    Integrate,
    Linearity,
    MakeSet,
)
from stepping_spark.plan import Plan, plan_of
from stepping_spark.schema import ScalarType
from stepping_spark.terms import Read, nodes


@dataclass(frozen=True)
class VertexExplained:
    """One vertex: how it works on a step, and the registers that it reads or adds to."""

    path: str
    line: str
    type: str
    operator: str
    how: str
    state: tuple[str, ...]
    within: str


@dataclass(frozen=True)
class Explanation:
    """What a circuit does at a step. Printed, it is a page of text."""

    name: str
    vertices: tuple[VertexExplained, ...]
    arrangements: tuple[tuple[str, tuple[str, ...]], ...]
    plan: str

    def __str__(self) -> str:
        lines = [f"circuit {self.name}"]
        for v in self.vertices:
            lines.append(f"  {v.path}: {v.type}")
            lines.append(f"      {v.operator}, {v.how}  ({v.line})")
            lines += [f"      state: {s}" for s in v.state]
            if v.within:
                lines.append(f"      runs within {v.within}")
        lines.append(f"{len(self.arrangements)} registers")
        for name, key in self.arrangements:
            lines.append(f"  {name}: " + (f"arranged by {', '.join(key)}" if key else "no key"))
        lines.append("plan")
        lines += [f"  {line}" for line in self.plan.splitlines()]
        return "\n".join(lines)

    __repr__ = __str__


def explain(graph: AnyGraph) -> Explanation:
    """Per vertex: its line, whether it is linear, bilinear or recomputed in full, and its state.

    Then the registers that a store keeps, with the key that each is arranged by, and the plan of a
    step: its stages, and what each one reads.
    """
    plan = plan_of(graph)
    within = {v: m for stage in plan.stages for m in stage.members for v in m.inner}
    full = _read_in_full(plan)
    explained = []
    for v in graph.walk():
        host = within.get(v)
        explained.append(
            VertexExplained(
                path=str(graph.paths[v]),
                line=str(graph.line(v)),
                type=str(v.type),
                operator=v.operator.name,
                how=_how(v, full),
                state=_state(v, plan),
                within=str(plan.names[host.vertex][0]) if host else "",
            )
        )
        loop = plan.loops.get(v)
        if loop is not None and loop.path == graph.paths[v]:
            explained += _body(loop)
    registers = tuple((r.name, r.key) for r in plan.registers)
    return Explanation(graph.name, tuple(explained), registers, str(plan))


def _body(loop: Loop) -> Iterator[VertexExplained]:
    """The vertices that a recursion iterates."""
    for v in loop.body.walk():
        if not isinstance(v.operator, Input):
            path, line = loop.names[v]
            kept = (s.register for s in loop.states if s.change is v)
            state = tuple(f"{r.name}, by {', '.join(r.key)}, by iteration" for r in kept)
            how = "fed back" if isinstance(v.operator, Feedback) else _how(v, {})
            yield VertexExplained(
                str(path), str(line), str(v.type), v.operator.name, how, state, str(loop.path)
            )


def _how(v: Vertex, full: dict[Vertex, str]) -> str:
    if isinstance(v.operator, Input):
        return "an input"
    if isinstance(v.operator, Fixpoint):
        return "recursive: iterates on changes until nothing is due"
    if v in full and not isinstance(v.operator, Integrate | Delay):
        return f"recomputed in full: it reads all of {full[v]}"
    if isinstance(v.operator, Haitch) or v.operator.linearity is Linearity.PER_KEY:
        return "not linear: recomputed for the keys of the change"
    return str(v.operator.linearity.value)


def _read_in_full(plan: Plan) -> dict[Vertex, str]:
    """The vertices that read a whole register, and which; those of one row do not count."""
    found: dict[Vertex, str] = {}
    for stage in plan.stages:
        for m in stage.members:
            for n in nodes(m.term):
                for leaf in m.leaves_of(n):
                    if isinstance(leaf, Read) and leaf.by is None:
                        state = plan.state_of(leaf)
                        if not _is_one_row(state.change):
                            found.setdefault(n.vertex, f"{state.register.name!r}")
    return found


def _is_one_row(change: Vertex) -> bool:
    """Whether a register never holds more than the row of a number."""
    made = change.inputs[0].operator if change.inputs else None
    return isinstance(made, MakeSet) or isinstance(change.type, ScalarType)


def _state(v: Vertex, plan: Plan) -> tuple[str, ...]:
    if not isinstance(v.operator, Integrate | Delay | Differentiate):
        return ()
    shown = []
    for s in plan.states:
        summed = v.inputs[0]
        if isinstance(v.operator, Delay) and isinstance(summed.operator, Integrate):
            summed = summed.inputs[0]
        elif isinstance(v.operator, Differentiate):
            summed = v
        if s.change is summed:
            by = ", ".join(s.register.key)
            shown.append(f"{s.register.name}" + (f", by {by}" if by else ""))
    return tuple(shown)
