"""The vertices and registers of a plan, and its picture, for the readers of a report.

Graphviz lays out boxes, frames and arrows; the colours are left to the page's style sheet.
"""

from __future__ import annotations

import ast
import linecache
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from xml.etree import ElementTree

from stepping_spark.base.callsite import Line
from stepping_spark.base.errors import SteppingError
from stepping_spark.base.packages import saxutils
from stepping_spark.circuit.graph import AnyGraph, Vertex
from stepping_spark.plan.explain import Explanation, explain
from stepping_spark.plan.plan import Plan
from stepping_spark.relations.store import Register
from stepping_spark.report.picture import LEVELS, Picture, PictureBox, picture_of
from stepping_spark.report.render import drawn

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
    vertices = {
        str(graph.paths[v]): _vertex(
            str(graph.paths[v]), v.operator.name, str(v.type), graph.line(v)
        )
        for v in graph.walk()
    }
    for vertex in explained.vertices:
        line = lines.get(vertex.path, Line("<unknown>", 0, "<unknown>"))
        description = vertices.setdefault(
            vertex.path, _vertex(vertex.path, vertex.operator, vertex.type, line)
        )
        description.how, description.within = vertex.how, vertex.within
    for description in vertices.values():
        description.is_input = description.path in inputs
    _place(vertices, plan)
    registers = [RegisterTold(r.name, list(r.key), of, r.why) for r, of in _registers(plan)]
    for path, numbers in _registers_by_path(plan).items():
        if path in vertices:
            vertices[path].registers = numbers
    return CircuitTold(
        graph.name, list(vertices.values()), registers, _in_full(explained), list(explained.hints)
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


def _place(vertices: dict[str, VertexTold], plan: Plan) -> None:
    """Set the stage in which each vertex is computed, and the vertex that includes it."""
    for number, stage in enumerate(plan.stages, 1):
        for m in stage.streams:
            path, line = plan.names[m.vertex]
            host = str(path)
            if host not in vertices:  # made by the plan, like a delay's change
                vertex = _vertex(host, m.vertex.operator.name, str(m.vertex.type), line)
                vertices[host] = replace(vertex, how="computed for a register")
            for v in (m.vertex, *m.inner):
                paths = [str(plan.names[v][0])] if v in plan.names else []
                of = plan.graph.origins.get(v)
                for origin in of.parts if of is not None else ():
                    paths.append(str(origin.path))
                for description in (vertices[p] for p in paths if p in vertices):
                    description.stage = number
                    description.within = description.within or (
                        "" if description.path == host else host
                    )
                    description.how = description.how or vertices[host].how


def _registers(plan: Plan) -> Iterator[tuple[Register, str]]:
    """The registers, each with the path of the stream that it sums."""
    for s in plan.states:
        yield s.register, str(plan.names[s.change][0])
    for loop in dict.fromkeys(plan.loops.values()):
        for s in loop.states:
            yield s.register, str(loop.names[s.change][0])


def _registers_by_path(plan: Plan) -> dict[str, list[int]]:
    """The numbers of the registers that store a vertex, or to which it is added, by its path."""
    by_path: dict[str, list[int]] = {}
    numbers = {r.name: i for i, (r, _) in enumerate(_registers(plan))}
    by_change: dict[Vertex, list[int]] = {}
    for s in plan.states:
        by_change.setdefault(s.change, []).append(numbers[s.register.name])
    for v in plan.graph.walk():
        change = plan.summed.get(v)
        if change is not None and change in by_change:
            by_path[str(plan.graph.paths[v])] = by_change[change]
    used_numbers = {n for numbers_of in by_path.values() for n in numbers_of}
    for register, of in _registers(plan):  # not the value of any vertex, as in recursion
        number = numbers[register.name]
        if number not in used_numbers:
            by_path.setdefault(of, []).append(number)
    return by_path


def _in_full(explained: Explanation) -> list[tuple[str, str]]:
    """The vertices whose cost grows with the tables, not with the change, and the reasons."""
    return [(v.path, v.how) for v in explained.vertices if v.how.startswith(FULL)]


_SVG = "{http://www.w3.org/2000/svg}"
_SHAPES = ("path", "polygon", "ellipse", "polyline")
_GEOMETRY = ("d", "points", "cx", "cy", "rx", "ry")
_DECIMAL = re.compile(r"-?\d+\.\d+")


@dataclass(frozen=True)
class Boxes:
    """The vertex paths and function names behind a picture's boxes and frames."""

    level: int
    title: str
    boxes: list[dict[str, object]] = field(default_factory=list)
    frames: list[dict[str, object]] = field(default_factory=list)


@dataclass(frozen=True)
class Drawing:
    """A picture for a page: the SVG, and the vertex paths of each box, by number."""

    told: Boxes
    svg: str


def drawings_of(graph: AnyGraph) -> tuple[list[Drawing], str]:
    """The pictures of a circuit at each level of detail; or none, and the reason."""
    by_svg: dict[str, Drawing] = {}
    try:
        for level, title in LEVELS.items():
            picture = picture_of(graph, level)
            drawing = _drawing(picture, level, title)
            by_svg.setdefault(
                drawing.svg, drawing
            )  # a small circuit looks the same at several levels
    except SteppingError as e:
        return [], str(e)
    return list(by_svg.values()), ""


def _drawing(picture: Picture, level: int, title: str) -> Drawing:
    root = ElementTree.fromstring(drawn(picture))
    description = Boxes(level, title)
    shapes = {box.id: box for box in picture.boxes}
    ends = {f"{a.tail}->{a.head}": a for a in picture.arrows}
    numbers = {box.id: i for i, box in enumerate(picture.boxes)}
    description.boxes.extend(map(_box_as_json, picture.boxes))
    scopes = _scopes(picture)
    frames, arrows, boxes = [], [], []
    for g in root.iter(f"{_SVG}g"):
        name, kind = _title(g), g.get("class")
        if kind == "cluster":
            number = len(description.frames)
            description.frames.append({"scope": scopes[name]})
            frames.append(f'<g class="frame" data-frame="{number}">{"".join(_inner(g))}</g>')
        elif kind == "edge" and name in ends:
            arrow = ends[name]
            more = " state" * arrow.state + " back" * arrow.back
            arrows.append(
                f'<g class="arrow{more}" data-from="{numbers[arrow.tail]}" '
                f'data-to="{numbers[arrow.head]}">{"".join(_inner(g))}</g>'
            )
        elif kind == "node" and name in shapes:
            number = numbers[name]
            label = saxutils.quoteattr(" ".join(shapes[name].lines))
            boxes.append(
                f'<g class="box k-{shapes[name].kind}" data-box="{number}" tabindex="0" '
                f'role="button" aria-label={label}>{"".join(_inner(g))}</g>'
            )
    (outer,) = (g for g in root.iter(f"{_SVG}g") if g.get("class") == "graph")
    size = [float(n) for n in str(root.get("viewBox")).split()]
    svg = (
        f'<svg data-width="{size[2]:.0f}" data-height="{size[3]:.0f}" role="group" '
        f"aria-label={saxutils.quoteattr(picture.title)}>"
        f'<g class="all"><g transform={saxutils.quoteattr(str(outer.get("transform")))}>'
        f"{''.join([*frames, *arrows, *boxes])}</g></g></svg>"
    )
    return Drawing(description, svg)


def _box_as_json(box: PictureBox) -> dict[str, object]:
    return {"kind": box.kind, "label": box.lines[0], "paths": list(box.stands_for),
            "scope": list(box.scope)}  # fmt: skip


def _scopes(picture: Picture) -> Mapping[str, list[str]]:
    """The functions around the content of a frame, by the frame's name in the drawing."""
    scopes = {}
    for box in picture.boxes:
        for i in range(1, len(box.scope) + 1):
            scopes[f"cluster_{'/'.join(box.scope[:i])}"] = list(box.scope[:i])
    return scopes


def _title(g: ElementTree.Element) -> str:
    return g.findtext(f"{_SVG}title") or ""


def _inner(g: ElementTree.Element) -> Iterator[str]:
    """The shapes and texts of a group, without colours, fonts and links."""
    for e in _leaves(g):
        tag = e.tag.removeprefix(_SVG)
        if tag in _SHAPES:
            hollow = ' class="hollow"' if e.get("fill") == "none" else ""
            inner = "".join(
                f" {name}={saxutils.quoteattr(_rounded(str(e.get(name))))}"
                for name in _GEOMETRY
                if e.get(name) is not None
            )
            yield f"<{tag}{inner}{hollow}/>"
        elif tag == "text":
            x, y = _rounded(str(e.get("x"))), _rounded(str(e.get("y")))
            yield f'<text x="{x}" y="{y}">{saxutils.escape("".join(e.itertext()))}</text>'


def _leaves(g: ElementTree.Element) -> Iterable[ElementTree.Element]:
    for e in g:
        if e.tag in (f"{_SVG}g", f"{_SVG}a"):
            yield from _leaves(e)
        else:
            yield e


def _rounded(geometry: str) -> str:
    """The geometry with coordinates rounded to a tenth of a point."""
    return _DECIMAL.sub(lambda n: f"{float(n[0]):.1f}".removesuffix(".0"), geometry)
