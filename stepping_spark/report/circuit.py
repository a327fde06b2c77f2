"""Describes the vertices and registers of a plan, for the readers of a report."""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from stepping_spark.callsite import Line
from stepping_spark.graph.graph import AnyGraph, Vertex
from stepping_spark.plan.explain import Explanation, explain
from stepping_spark.plan.plan import Plan
from stepping_spark.store import Register

FULL = "recomputed in full"
MOST_LINES = 12  # per statement
MOST_CODE = 600  # characters per statement


@dataclass
class VertexTold:
    """A vertex: its source line, how a step computes it, and the registers with its sum."""

    path: str
    operator: str
    type: str
    where: str
    code: str
    how: str = ""
    within: str = ""
    stage: int | None = None
    registers: list[int] = field(default_factory=list)
    is_input: bool = False


@dataclass
class RegisterTold:
    """A register: the stream that it sums, and the columns of its key."""

    name: str
    key: list[str]
    of: str
    why: str


@dataclass
class CircuitTold:
    """A circuit, as planned."""

    name: str
    vertices: list[VertexTold]
    registers: list[RegisterTold]
    in_full: list[tuple[str, str]]
    hints: list[str]


def circuit_of(graph: AnyGraph, plan: Plan) -> CircuitTold:
    """The description of a circuit for the page. Runs nothing."""
    explained = explain(graph)
    lines = {str(path): line for path, line in plan.names.values()}
    lines |= {str(graph.paths[v]): graph.line(v) for v in graph.walk()}
    inputs = {str(graph.paths[v]) for v in graph.inputs}
    told = {
        str(graph.paths[v]): _vertex(
            str(graph.paths[v]), v.operator.name, str(v.type), graph.line(v)
        )
        for v in graph.walk()
    }
    for found in explained.vertices:
        line = lines.get(found.path, Line("<unknown>", 0, "<unknown>"))
        one = told.setdefault(found.path, _vertex(found.path, found.operator, found.type, line))
        one.how, one.within = found.how, found.within
    for one in told.values():
        one.is_input = one.path in inputs
    _place(told, plan)
    registers = [RegisterTold(r.name, list(r.key), of, r.why) for r, of in _registers(plan)]
    for path, numbers in _kept(plan).items():
        if path in told:
            told[path].registers = numbers
    return CircuitTold(
        graph.name, list(told.values()), registers, _in_full(explained), list(explained.hints)
    )


def _vertex(path: str, operator: str, type_: str, line: Line) -> VertexTold:
    return VertexTold(path, operator, type_, str(line), code_of(line))


def code_of(line: Line) -> str:
    """The source of the statement that begins at a line, if its file still exists."""
    lines = linecache.getlines(line.file)[line.number - 1 : line.number - 1 + MOST_LINES]
    for end in range(1, len(lines) + 1):
        text = textwrap.dedent("".join(lines[:end])).strip("\n")
        try:
            ast.parse(text)
        except SyntaxError:
            continue
        return _short(text)
    return _short(lines[0].strip()) if lines else ""


def _short(text: str) -> str:
    return text if len(text) <= MOST_CODE else f"{text[: MOST_CODE - 1]}…"


def _place(told: dict[str, VertexTold], plan: Plan) -> None:
    """Set the stage in which each vertex is computed, and the vertex that includes it."""
    for number, stage in enumerate(plan.stages, 1):
        for m in stage.streams:
            path, line = plan.names[m.vertex]
            host = str(path)
            if host not in told:  # made by the plan, like a delay's change
                made = _vertex(host, m.vertex.operator.name, str(m.vertex.type), line)
                told[host] = replace(made, how="computed for a register")
            for v in (m.vertex, *m.inner):
                paths = [str(plan.names[v][0])] if v in plan.names else []
                of = plan.graph.origins.get(v)
                for origin in of.parts if of is not None else ():
                    paths.append(str(origin.path))
                for one in (told[p] for p in paths if p in told):
                    one.stage = number
                    one.within = one.within or ("" if one.path == host else host)
                    one.how = one.how or told[host].how


def _registers(plan: Plan) -> Iterator[tuple[Register, str]]:
    """The registers, each with the path of the stream that it sums."""
    for s in plan.states:
        yield s.register, str(plan.names[s.change][0])
    for loop in dict.fromkeys(plan.loops.values()):
        for s in loop.states:
            yield s.register, str(loop.names[s.change][0])


def _kept(plan: Plan) -> dict[str, list[int]]:
    """By path: the numbers of the registers that store a vertex, or that it is added to."""
    found: dict[str, list[int]] = {}
    numbers = {r.name: i for i, (r, _) in enumerate(_registers(plan))}
    by_change: dict[Vertex, list[int]] = {}
    for s in plan.states:
        by_change.setdefault(s.change, []).append(numbers[s.register.name])
    for v in plan.graph.walk():
        change = plan.summed.get(v)
        if change is not None and change in by_change:
            found[str(plan.graph.paths[v])] = by_change[change]
    shown = {n for numbers_of in found.values() for n in numbers_of}
    for register, of in _registers(plan):  # not the value of any vertex, as in recursion
        number = numbers[register.name]
        if number not in shown:
            found.setdefault(of, []).append(number)
    return found


def _in_full(explained: Explanation) -> list[tuple[str, str]]:
    """The vertices whose cost is that of the tables, not that of the change, and why."""
    return [(v.path, v.how) for v in explained.vertices if v.how.startswith(FULL)]
