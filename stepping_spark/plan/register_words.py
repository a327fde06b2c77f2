"""What a register holds, in words of the user's query: "orders by customer"."""

from __future__ import annotations

from stepping_spark.graph.graph import AnyGraph, Vertex
from stepping_spark.graph.operators import Accumulate, Haitch, Input, parts_of
from stepping_spark.graph.reduce_plan import ReducePlan
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.terms import State

SUMS = "accumulable"
"""How the kind of a reduction begins whose state is sums."""


def words_of(plan: Plan) -> dict[str, str]:
    """For each register, by its name, what it holds."""
    return {s.register.name: _words(s, plan.graph) for s in plan.states}


def _words(state: State, graph: AnyGraph) -> str:
    v = state.change
    key = ", ".join(n for n in state.register.key if not n.startswith("_key_"))
    by = f" by {key}" if key else ""
    if isinstance(v.operator, Input):
        return f"{v.operator.label}{by}"
    if v in graph.origins:
        reduction = _reduction(v, graph)
        if reduction is not None:
            return _of_reduction(v, reduction)
        return f"{'.'.join(graph.paths[v].parts[1:])}{by} ({graph.line(v)})"
    return state.register.name


def _reduction(v: Vertex, graph: AnyGraph) -> ReducePlan | None:
    """The aggregation that a vertex was made for; None: none, or several on its line."""
    made = [r for r in graph.reductions if r.line == graph.line(v)]
    return made[0] if len(made) == 1 else None


def _of_reduction(v: Vertex, plan: ReducePlan) -> str:
    """The aggregates that need a vertex's sum, and their key."""
    sums = any(isinstance(op, Accumulate) for op in parts_of(v.operator))
    parts = [p for p in plan.parts if p.kind.startswith(SUMS) == sums] or list(plan.parts)
    aggregates = ", ".join(a for part in parts for a in part.aggregates)
    rows = "" if sums else "first rows for " if isinstance(v.operator, Haitch) else "rows for "
    return f"{rows}{aggregates}{f' by {plan.by}' if plan.by else ''}"
