"""Descriptions of the contents of registers, in words of the user's query."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from stepping_spark.circuit.graph import AnyGraph, Vertex
from stepping_spark.circuit.operators import (
    Accumulate,
    Add,
    Expire,
    Filter,
    Haitch,
    Hold,
    Input,
    Map,
    Neg,
    parts_of,
)
from stepping_spark.circuit.operators.groups import ReducePlan
from stepping_spark.circuit.operators.linear import only_projects
from stepping_spark.expressions.expr import Build, Expr, Field
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.step_ir import RegisterPlan
from stepping_spark.rows.schema import VALUE, ZSetType
from stepping_spark.rows.types import Struct

SUMS = "accumulable"
"""The first word of the kind of a reduction whose state is sums."""


def words_of(plan: Plan, *, lines: bool = True) -> dict[str, str]:
    """The contents of each register, by its name; with or without the lines of the query.

    Registers with the same contents in words have their names behind them.
    """
    words = {s.register.name: _words(s, plan.graph, lines=lines) for s in plan.states}
    often = Counter(words.values())
    return {name: text if often[text] == 1 else f"{text} [{name}]" for name, text in words.items()}


def _words(state: RegisterPlan, graph: AnyGraph, *, lines: bool) -> str:
    v = state.change
    key = [n for n in state.register.key if not n.startswith("_key_")]
    if isinstance(v.operator, Input):
        return f"{v.operator.label}{_by(', '.join(key))}"
    vertex = _held_back(v)
    if vertex is not None and vertex in graph.origins:
        return f"{_rows_of(vertex)} {_WAITING[type(vertex.operator)]}" + (
            f" ({graph.line(vertex)})" if lines else ""
        )
    if v not in graph.origins:
        return state.register.name
    aggregation = _aggregation(v, graph)
    if aggregation is not None and (_is_state(v) or not _is_result(v, graph)):
        use = _kept_for(v, aggregation)
        if use is not None:
            return use
    called = graph.paths[v].parts[1:]
    line = f" ({graph.line(v)})" if lines else ""
    picked = _source(v, graph) if aggregation or _UNNAMED.fullmatch(called[-1]) else None
    if picked is None:
        return f"{'.'.join(called)}{_by(', '.join(key))}{line}"
    some, source, columns = picked
    by = _by(", ".join(columns.get(n, n) for n in key))
    if isinstance(source.operator, Input):
        listed = f" ({', '.join(columns.values())})" if columns else ""
        return f"{some}{source.operator.label}{listed}{by}{line}"
    aggregation = _aggregation(source, graph)
    assert aggregation is not None
    results = ", ".join(a for part in aggregation.parts for a in part.aggregates)
    return f"{some}results of {results}{_by(aggregation.by)}{by and ','}{by}"


_WAITING = {Hold: "whose time is to come", Expire: "that no watermark has passed yet"}
"""The words for the rows that an operator holds back."""


def _held_back(v: Vertex) -> Vertex | None:
    """The vertex that holds rows back, if `v` is its input minus its output."""
    if isinstance(v.operator, Add) and isinstance(v.inputs[-1].operator, Neg):
        (source,) = v.inputs[-1].inputs
        return source if type(source.operator) in _WAITING else None
    return None


def _rows_of(v: Vertex) -> str:
    """The input whose rows a vertex holds back: "some orders"; "rows" for several inputs."""
    while v.inputs and not isinstance(v.operator, Input):
        v = v.inputs[0]
        if len(v.inputs) > 1:
            return "rows"
    return f"some {v.operator.label}" if isinstance(v.operator, Input) else "rows"


_UNNAMED = re.compile(r"(map|filter)(_\d+)?")
"""The names of vertices that the query does not name."""


def _source(v: Vertex, graph: AnyGraph) -> tuple[str, Vertex, Mapping[str, str]] | None:
    """The input, or the vertex of an aggregation, from which a vertex picks rows and columns.

    Preceded by "some " if rows are picked, and followed by the picked columns with their original
    names. None if the vertex does more than that.
    """
    columns: Mapping[str, str] = {}
    some = ""
    while not isinstance(v.operator, Input) and not _is_result(v, graph):
        for op in reversed(parts_of(v.operator)):
            if isinstance(op, Filter):
                some = "some "
            elif isinstance(op, Map) and only_projects(op):
                columns = _named(op.f) if columns.keys() <= {VALUE} else columns
            else:
                return None
        (v,) = v.inputs
    return some, v, columns


def _named(f: Expr) -> dict[str, str]:
    """The columns that a function of rows picks; members of a tuple with the fields' names."""
    if isinstance(f, Field):
        return {VALUE: str(f)}
    if isinstance(f, Build) and isinstance(f.type, Struct) and f.type.python is tuple:
        return {n: str(e) for (n, _), e in zip(f.type.fields, f.fields, strict=True)}
    return {name: name for name, _ in ZSetType(f.type).schema.columns}


def _aggregation(v: Vertex, graph: AnyGraph) -> ReducePlan | None:
    """The aggregation that a vertex was made for; None if there is none."""
    scope = graph.origins[v].path.scope if v in graph.origins else ()
    return next((r for r in graph.reductions if r.scope == scope), None)


def _is_state(v: Vertex) -> bool:
    """Whether a vertex of an aggregation sums values, or finds first rows."""
    return _is_summed(v) or isinstance(v.operator, Haitch)


def _is_summed(v: Vertex) -> bool:
    return any(isinstance(op, Accumulate) for op in parts_of(v.operator))


def _is_result(v: Vertex, graph: AnyGraph) -> bool:
    """Whether a vertex of an aggregation is, or is computed from, the aggregation's state."""
    aggregation = _aggregation(v, graph)
    pending = [v] if aggregation is not None else []
    while pending:
        of = pending.pop()
        if _aggregation(of, graph) is aggregation:
            if _is_state(of):
                return True
            pending += of.inputs
    return False


def _kept_for(v: Vertex, plan: ReducePlan) -> str | None:
    """The aggregates that need a vertex's state, and their key; None if there are none."""
    sums = _is_summed(v)
    parts = [p for p in plan.parts if p.kind.startswith(SUMS) == sums]
    aggregates = ", ".join(a for part in parts for a in part.aggregates)
    rows = "" if sums else "first rows for " if isinstance(v.operator, Haitch) else "rows for "
    return f"{rows}{aggregates}{_by(plan.by)}" if parts else None


def _by(key: str) -> str:
    return f" by {key}" if key else ""
