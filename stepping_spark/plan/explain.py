"""`explain`: how each vertex of a circuit takes a step, and the state that it keeps."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stepping_spark.circuit.graph import AnyGraph, Fixpoint, States, Vertex, check_is_graph
from stepping_spark.circuit.operators import (
    Feedback,
    Haitch,
    Input,
    Linearity,
    MakeSet,
    Top,
    Window,
    join_of,
    parts_of,
)
from stepping_spark.circuit.operators.groups import ReducePlan
from stepping_spark.circuit.physical import Nearest, Runs, cut_by, nearby_of, reach_of
from stepping_spark.expressions.expr import Literal
from stepping_spark.passes.expire_state import without_expiry
from stepping_spark.plan.loop import LoopPlan
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.planner import plan_of
from stepping_spark.plan.register_words import columns_left
from stepping_spark.plan.segments import NotInTasks, segments_of
from stepping_spark.plan.step_ir import Read, RegisterPlan, nodes
from stepping_spark.rows.boxes import html_table
from stepping_spark.rows.schema import ScalarType

WHERE = (
    "else each stream runs on the driver or in Spark, by the rows and bytes it reads: see metrics"
)


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
    fused: tuple[str, ...] = ()
    comment: str = ""


@dataclass(frozen=True)
class Explanation:
    """How a circuit takes a step. Printed, it is a page of text.

    `in_tasks` says whether Spark's tasks take a large step as one job, or why not. `columns` has
    the columns of the registers that do not have all columns of their rows.
    """

    name: str
    vertices: tuple[VertexExplained, ...]
    arrangements: tuple[tuple[str, tuple[str, ...]], ...]
    plan: str
    hints: tuple[str, ...] = ()
    reductions: tuple[ReducePlan, ...] = ()
    in_tasks: str = ""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"circuit {self.name}"]
        for v in self.vertices:
            lines.append(f"  {v.path}: {v.type}")
            lines += [f"      -- {line}" for line in v.comment.splitlines()]
            lines.append(f"      {v.operator}, {v.how}  ({v.line})")
            lines += [f"      one vertex of {f}" for f in v.fused]
            lines += [f"      state: {s}" for s in v.state]
            if v.within:
                lines.append(f"      runs within {v.within}")
        lines.append(f"{len(self.arrangements)} registers")
        for name, key in self.arrangements:
            arranged = f"arranged by {', '.join(key)}" if key else "no key"
            columns = f"; only {', '.join(self.columns[name])}" if name in self.columns else ""
            lines.append(f"  {name}: {arranged}{columns}")
        lines += [f"hint: {hint}" for hint in self.hints]
        for reduction in self.reductions:
            lines += str(reduction).splitlines()
        lines += [self.in_tasks, WHERE, "plan"]
        lines += [f"  {line}" for line in self.plan.splitlines()]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The page as tables, for a notebook; the plan of a step is folded."""
        vertices = html_table(
            ("vertex", "operator", "takes a step", "keeps", "line"),
            (False,) * 5,
            [
                (
                    "\n".join(filter(None, (v.path, v.comment))),
                    v.operator,
                    v.how,
                    "\n".join(v.state),
                    v.line,
                )
                for v in self.vertices
            ],
        )
        registers = html_table(
            ("register", "arranged by", "columns"),
            (False, False, False),
            [
                (name, ", ".join(key) or "no key", ", ".join(self.columns.get(name, ("all",))))
                for name, key in self.arrangements
            ],
        )
        hints = "".join(f"<p>hint: {html.escape(hint)}</p>" for hint in self.hints)
        plan = "\n".join([*map(str, self.reductions), self.in_tasks, WHERE, self.plan])
        return (
            f"<div><strong>circuit {html.escape(self.name)}</strong>{vertices}{registers}{hints}"
            f"<details><summary>plan of a step</summary><pre>{html.escape(plan)}</pre></details>"
            "</div>"
        )


def explain(graph: AnyGraph) -> Explanation:
    """An explanation of a circuit: for each vertex its line, how it takes a step, and its state.

    It also has the registers that a store keeps, with their keys, the plan of each `aggregate`,
    hints at probable mistakes, and the plan of a step: its stages, and the reads of each. Each step
    decides where a stream runs: on the driver or in Spark, whichever is estimated to be faster for
    the rows and bytes that it reads, or the whole step as one job of Spark's tasks, if they can
    compute it. The step's metrics have the reason. `print` it, or use `vertices`, `arrangements`,
    `columns`, `reductions`, `hints`, `in_tasks` and `plan`. Runs nothing.

    >>> def query(a: st.ZSet[tuple[int, str]], b: st.ZSet[int]) -> st.ZSet[str]:
    ...     pairs = st.join(a, b, on_left=lambda a: a[0], on_right=lambda b: b)
    ...     return st.map(pairs, f=lambda p: p.left[1])
    >>> st.explain(st.compile(query)).arrangements
    (('query.a by _1', ('_1',)), ('query.b by _value_', ('_value_',)))
    """
    check_is_graph(graph, "; write st.explain(st.compile(query))")
    hints = _hints(graph)
    plan = plan_of(graph)
    graph = plan.graph  # with some vertices fused
    within = {v: m for stage in plan.stages for m in stage.streams for v in m.inner}
    full, windows = _read_in_full(plan), _reads_of_windows(plan)
    explained = []
    for v in graph.walk():
        host = within.get(v)
        explained.append(
            VertexExplained(
                path=str(graph.paths[v]),
                line=str(graph.line(v)),
                type=str(v.type),
                operator=v.operator.name,
                how=_how(v, full) + windows.get(v, ""),
                state=_state(v, plan),
                within=str(plan.names[host.vertex][0]) if host else "",
                fused=tuple(f"{o.path} ({o.line})" for o in graph.origins[v].parts),
                comment=graph.comment(v),
            )
        )
        loop = plan.loops.get(v)
        if loop is not None and loop.path == graph.paths[v]:
            explained += _body(loop)
    registers = tuple((r.name, r.key) for r in plan.registers)
    return Explanation(
        graph.name,
        tuple(explained),
        registers,
        str(plan),
        hints,
        graph.reductions,
        _in_tasks(plan),
        {s.register.name: tuple(left) for s in plan.states if (left := columns_left(s.change))},
    )


def _in_tasks(plan: Plan) -> str:
    try:
        cut = segments_of(plan)
    except NotInTasks as e:
        return f"a step in which all inputs change is no job of Spark's tasks: {e}"
    exchanges = len(cut.segments) - 1
    times = {0: "exchanges no rows", 1: "exchanges rows once"}
    many = times.get(exchanges, f"exchanges rows up to {exchanges} times")
    uncut = ", ".join(sorted(str(plan.names[v][0]) for v in cut.uncut))
    alone = f"; one task computes {uncut} for all keys" if uncut else ""
    return f"a large step is one job of Spark's tasks, if that is faster; it {many}{alone}"


def _hints(graph: AnyGraph) -> tuple[str, ...]:
    """Hints: parts of a circuit that are probably a mistake, or expensive."""
    states = States(graph.loops)
    crossed = (v for v in graph.walk() if _has_no_key(v))
    lines = dict.fromkeys(graph.line(v) for v in crossed)
    every = tuple(
        f"a join by a constant ({line}) reads all of one side for each change of the other; keep "
        "one of them small, or join by a key or a range (st.join, st.range_join)"
        for line in lines
    )
    vertices = ((graph.paths[v], graph.line(v), why) for v, why in without_expiry(graph))
    every += tuple(
        f"what {path} reads ({line}) keeps all rows, whatever the watermark, because {why}"
        for path, line, why in vertices
    )
    return every + tuple(
        f"cache {name!r} keeps the last change only, as {graph.paths[v]} is not an integral; for "
        "all rows so far: cache[a](lambda a: st.integrate(a))"
        for name, v in graph.caches.items()
        if _undelayed(v) not in states
    )


def _has_no_key(v: Vertex) -> bool:
    """Whether a vertex joins all rows of one side with all rows of the other."""
    join = join_of(v.operator)
    return join is not None and all(isinstance(e, Literal) for e in join.left.parts)


def _undelayed(v: Vertex) -> Vertex:
    """The stream below a delay: the delay of a change is not a state either."""
    while v.operator.same_stream:
        (v,) = v.inputs
    return v


def _body(loop: LoopPlan) -> Iterator[VertexExplained]:
    """The vertices that a recursion iterates."""
    for v in loop.body.walk():
        if not isinstance(v.operator, Input):
            path, line = loop.names[v]
            registers = (s.register for s in loop.states if s.change is v)
            state = tuple(f"{r.name}, by {', '.join(r.key)}, by iteration" for r in registers)
            how = "fed back" if isinstance(v.operator, Feedback) else _how(v, {})
            yield VertexExplained(
                str(path), str(line), str(v.type), v.operator.name, how, state, str(loop.path)
            )


def _how(v: Vertex, full: dict[Vertex, str]) -> str:
    if isinstance(v.operator, Input):
        return "given at each step"
    if isinstance(v.operator, Fixpoint):
        return "recursive: iterates on changes until there are none left"
    if v in full and not v.operator.gives_state:
        return f"recomputed in full: it reads all of {full[v]}"
    if v.operator.how:
        return v.operator.how
    if isinstance(v.operator, Haitch) and isinstance(v.operator.of, Window):
        return f"not linear: recomputed for the partitions of the change, {_part(v.operator.of)}"
    if isinstance(v.operator, Haitch) or v.operator.linearity is Linearity.PER_KEY:
        return "not linear: recomputed for the keys of the change"
    return str(parts_of(v.operator)[0].linearity.value)


def _part(op: Window) -> str:
    """The text on the part of a large partition that the driver computes; Spark computes all."""
    near = nearby_of(op.sorting, op.calls)
    if isinstance(near, Runs):
        gap = f"from one gap of more than {near.gap} before the change to the next after it"
        return f"{gap}; in Spark's jobs whole"
    if isinstance(near, Nearest):
        return "up to the next row on each side that may be found; in Spark's jobs whole"
    reach = reach_of(op.sorting, op.calls)
    if isinstance(reach, str):
        return f"whole, because {reach}"
    looks = [f"{n} rows" for n in (reach.back + reach.forward,) if n]
    looks += [str(far) for far in (reach.far_back, reach.far_forward) if far]
    before = f", and {' and '.join(looks)} before it" if looks else ""
    return f"from the first row of the change on{before}; in Spark's jobs whole"


def _reads_of_windows(plan: Plan) -> dict[Vertex, str]:
    """For windows that compute a part of a partition, a text on the part that they read."""
    texts: dict[Vertex, str] = {}
    for n in (n for stage in plan.stages for m in stage.streams for n in nodes(m.term)):
        op = n.operator.of if isinstance(n.operator, Haitch) else None
        if not isinstance(op, Window) or not isinstance(read := n.args[0], Read):
            continue
        if read.cut is not None:
            order = plan.state_of(read).order
            text = "; reads only the end of a partition, if an earlier step has read the rest"
            other = f"; reads the partition whole, as it is kept by {order}"
            texts[n.vertex] = text if order == read.cut.sorting[0] else other
        elif cut_by(op.keys, op.sorting, op.calls) is not None:
            texts[n.vertex] = "; reads the partition whole"
    return texts


def _read_in_full(plan: Plan) -> dict[Vertex, str]:
    """The vertices that read a whole register of more than one row, with that register."""
    registers: dict[Vertex, str] = {}
    for stage in plan.stages:
        for m in stage.streams:
            for n in nodes(m.term):
                for leaf in m.leaves_of(n):
                    if isinstance(leaf, Read) and not leaf.by and not leaf.due:
                        state = plan.state_of(leaf)
                        if not _is_one_row(state.change):
                            registers.setdefault(n.vertex, f"{state.register.name!r}")
    return registers


def _is_one_row(change: Vertex) -> bool:
    """Whether a register has at most one row: a number, or the greatest time."""
    if isinstance(change.operator, Haitch) and isinstance(change.operator.of, Top):
        top = change.operator.of
        return top.n == 1 and not top.ties and all(isinstance(e, Literal) for e in top.keys)
    source = change.inputs[0].operator if change.inputs else None
    return isinstance(source, MakeSet) or isinstance(change.type, ScalarType)


def _state(v: Vertex, plan: Plan) -> tuple[str, ...]:
    """The registers that store the value of a vertex."""
    change = plan.summed.get(v)
    return tuple(_register_text(s) for s in plan.states if s.change is change)


def _register_text(state: RegisterPlan) -> str:
    name, by = state.register.name, f"by {', '.join(state.register.key)}"
    return name if not state.register.key or name.endswith(by) else f"{name}, {by}"
