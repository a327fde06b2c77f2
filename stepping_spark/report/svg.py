"""The picture of a circuit as SVG that a page can colour, fold and show in dark mode.

Graphviz lays out boxes, frames and arrows; the colours are left to the page's style sheet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from stepping_spark.drawing.picture import LEVELS, Picture, Shape, picture_of
from stepping_spark.drawing.render import drawn
from stepping_spark.errors import SteppingError
from stepping_spark.graph.graph import AnyGraph

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
    found: dict[str, Drawing] = {}
    try:
        for level, title in LEVELS.items():
            picture = picture_of(graph, level)
            made = _drawing(picture, level, title)
            found.setdefault(made.svg, made)  # a small circuit looks the same at several levels
    except SteppingError as e:
        return [], str(e)
    return list(found.values()), ""


def _drawing(picture: Picture, level: int, title: str) -> Drawing:
    root = ElementTree.fromstring(drawn(picture))
    told = Boxes(level, title)
    shapes = {box.id: box for box in picture.boxes}
    ends = {f"{a.tail}->{a.head}": a for a in picture.arrows}
    numbers = {box.id: i for i, box in enumerate(picture.boxes)}
    told.boxes.extend(map(_told, picture.boxes))
    scopes = _scopes(picture)
    frames, arrows, boxes = [], [], []
    for g in root.iter(f"{_SVG}g"):
        name, kind = _title(g), g.get("class")
        if kind == "cluster":
            number = len(told.frames)
            told.frames.append({"scope": scopes[name]})
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
            label = quoteattr(" ".join(shapes[name].lines))
            boxes.append(
                f'<g class="box k-{shapes[name].kind}" data-box="{number}" tabindex="0" '
                f'role="button" aria-label={label}>{"".join(_inner(g))}</g>'
            )
    (outer,) = (g for g in root.iter(f"{_SVG}g") if g.get("class") == "graph")
    size = [float(n) for n in str(root.get("viewBox")).split()]
    svg = (
        f'<svg data-width="{size[2]:.0f}" data-height="{size[3]:.0f}" role="group" '
        f"aria-label={quoteattr(picture.title)}>"
        f'<g class="all"><g transform={quoteattr(str(outer.get("transform")))}>'
        f"{''.join([*frames, *arrows, *boxes])}</g></g></svg>"
    )
    return Drawing(told, svg)


def _told(box: Shape) -> dict[str, object]:
    return {"kind": box.kind, "label": box.lines[0], "paths": list(box.stands_for),
            "scope": list(box.scope)}  # fmt: skip


def _scopes(picture: Picture) -> Mapping[str, list[str]]:
    """The functions around the content of a frame, by the frame's name in the drawing."""
    found = {}
    for box in picture.boxes:
        for i in range(1, len(box.scope) + 1):
            found[f"cluster_{'/'.join(box.scope[:i])}"] = list(box.scope[:i])
    return found


def _title(g: ElementTree.Element) -> str:
    return g.findtext(f"{_SVG}title") or ""


def _inner(g: ElementTree.Element) -> Iterator[str]:
    """The shapes and texts of a group, without colours, fonts and links."""
    for e in _leaves(g):
        tag = e.tag.removeprefix(_SVG)
        if tag in _SHAPES:
            hollow = ' class="hollow"' if e.get("fill") == "none" else ""
            kept = "".join(
                f" {name}={quoteattr(_rounded(str(e.get(name))))}"
                for name in _GEOMETRY
                if e.get(name) is not None
            )
            yield f"<{tag}{kept}{hollow}/>"
        elif tag == "text":
            x, y = _rounded(str(e.get("x"))), _rounded(str(e.get("y")))
            yield f'<text x="{x}" y="{y}">{escape("".join(e.itertext()))}</text>'


def _leaves(g: ElementTree.Element) -> Iterable[ElementTree.Element]:
    for e in g:
        if e.tag in (f"{_SVG}g", f"{_SVG}a"):
            yield from _leaves(e)
        else:
            yield e


def _rounded(geometry: str) -> str:
    """The same, with coordinates rounded to a tenth of a point."""
    return _DECIMAL.sub(lambda n: f"{float(n[0]):.1f}".removesuffix(".0"), geometry)
