"""First rows of groups: buckets of large ones; for streams that only grow, only the first rows."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from functools import partial

from stepping_spark.circuit.graph import (
    AnyCircuit,
    Origin,
    Path,
    Vertex,
    adopt,
    inner_origin,
    is_positive,
    rewrite,
)
from stepping_spark.circuit.operators import (
    BucketedTop,
    Delay,
    Feedback,
    Filter,
    Haitch,
    Integrate,
    Map,
    Top,
    Window,
    buckets_of,
)
from stepping_spark.circuit.physical import WindowCall
from stepping_spark.expressions.expr import Build, Call, Expr, Field, Literal
from stepping_spark.rows.types import Struct, unwrap


def keep_only_first(graph: AnyCircuit) -> AnyCircuit:
    """Keep only the first rows of a stream that only grows: saves the register of all rows.

    H_Top(z⁻¹I(a), a) = y,  y = H_Top(z⁻¹I(y), a),  if a has no negative weights: a row that is not
    among the first n once never is again.
    """
    vertex = _growing(graph)
    while vertex is not None:
        number = 1 + max((_number(leaf) for leaf in graph.loops), default=-1)
        leaf = Vertex(Feedback(number, vertex.type))
        own = Vertex(vertex.operator, _before(leaf), vertex.inputs[1])
        graph = rewrite(graph, partial(_replace, vertex, own))
        graph = dataclasses.replace(graph, loops={**graph.loops, leaf: own})
        vertex = _growing(graph)
    return graph


def _growing(graph: AnyCircuit) -> Vertex | None:
    """The next vertex of first rows over changes that only insert; None if there is none left."""
    vertices = (v for v in graph.walk() if _is_of_change(v) and is_positive(v.inputs[1]))
    return next(vertices, None)


def _replace(old: Vertex, new: Vertex, v: Vertex) -> Vertex | None:
    return new if v is old else None


def _number(leaf: Vertex) -> int:
    assert isinstance(leaf.operator, Feedback)
    return leaf.operator.number


def put_in_buckets(graph: AnyCircuit) -> AnyCircuit:
    """Make a change of a large group read a bucket of it, and not the whole group.

    H_Top(z⁻¹I(a), a) = H_Top(z⁻¹I(b), b),  b = B(z⁻¹I(a), a), where B is the change of rows that
    have the first rows of each group, or of each bucket of a large one (`BucketedTop`):
    Top(I(b)) = Top(I(a)). It does not pay for groups that `group_size` says to be small.
    """
    while vertices := _bare(graph):
        origins = dict(graph.origins)
        built: dict[Vertex, Vertex] = {}
        for bare, buckets in vertices.items():
            top, a, own = _top_of(bare), bare.inputs[1], origins[bare]
            change = Vertex(BucketedTop(top, buckets), _before(a), a)
            path = Path((*own.path.scope, f"{own.path.parts[-1]}_of_{buckets}"))
            origins[change] = Origin(path, own.line, inner=True, view=own.view)
            for i in change.inputs:
                adopt(i, inner_origin(origins[change], i), origins)
            built[bare] = _of_change(top, change)
        graph = rewrite(dataclasses.replace(graph, origins=origins), built.get)
    return graph


def _bare(graph: AnyCircuit) -> dict[Vertex, int]:
    """The vertices to put in buckets that do not depend on another such vertex, and the numbers.

    They are replaced together: one rewrite for each takes too long in a circuit of many views.
    """
    vertices: dict[Vertex, int] = {}
    above: set[Vertex] = set()
    for v in graph.walk():
        if not above.isdisjoint(v.inputs):
            above.add(v)
        elif (buckets := _buckets(v)) is not None:
            vertices[v] = buckets
            above.add(v)
    return vertices


def _buckets(v: Vertex) -> int | None:
    """The number of buckets of the large groups of a vertex; None if it has none, or is in them."""
    if not _is_of_change(v) or isinstance(v.inputs[1].operator, BucketedTop):
        return None
    top = _top_of(v)
    return buckets_of(top.group_size, top.n)


def _top_of(v: Vertex) -> Top:
    h = v.operator
    assert isinstance(h, Haitch) and isinstance(h.of, Top)
    return h.of


def _of_change(top: Top, a: Vertex) -> Vertex:
    return Vertex(Haitch(top), _before(a), a)


def _before(a: Vertex) -> Vertex:
    """The sum of the earlier changes."""
    return Vertex(Delay(), Vertex(Integrate(), a))


def _is_of_change(v: Vertex) -> bool:
    """Whether a vertex is H_Top(z⁻¹I(a), a)."""
    h = v.operator
    return isinstance(h, Haitch) and isinstance(h.of, Top) and v is _of_change(h.of, v.inputs[1])


# Comparisons of a field with a constant n, by which the field is at most n plus this number.
AT_MOST = {"<=": 0, "<": -1, "==": 0}
MIRRORED = {">=": "<=", ">": "<", "==": "=="}


def first_of_ranked(graph: AnyCircuit) -> AnyCircuit:
    """Compute a window over the first n rows of partitions, if a filter on a rank keeps only these.

    σ_(row_number ≤ n)(W(a)) = σ_(row_number ≤ n)(W(Top_n(a))), for a rank including ties with the
    n-th row, if no function of W looks at later rows. The filter stays. Saves reading partitions: a
    change reads what `put_in_buckets` reads, and the window at most n rows.
    """
    ranked = _ranked(graph)
    while ranked is not None:
        windowed, top = ranked
        first = _on_changes(Haitch(top), windowed.inputs[1])
        graph = rewrite(graph, partial(_replace, windowed, _on_changes(windowed.operator, first)))
        ranked = _ranked(graph)
    return graph


def _ranked(graph: AnyCircuit) -> tuple[Vertex, Top] | None:
    """A window whose only reader is a filter on a rank, and the first rows that it needs."""
    readers = Counter(i for v in graph.walk() for i in v.inputs)
    readers.update((*graph.outputs, *graph.no_output, *graph.caches.values()))
    readers.update(graph.loops.values())
    for v in graph.walk():
        if isinstance(v.operator, Filter) and isinstance(v.inputs[0].operator, Map):
            (mapped,) = v.inputs
            (windowed,) = mapped.inputs
            if readers[mapped] == readers[windowed] == 1:
                top = _first_rows(v.operator.f, mapped, windowed)
                if top is not None and windowed.inputs[1].operator != Haitch(top):
                    return windowed, top
    return None


def _on_changes(op: object, a: Vertex) -> Vertex:
    assert isinstance(op, Haitch)
    return Vertex(op, _before(a), a)


def _first_rows(condition: Expr, mapped: Vertex, windowed: Vertex) -> Top | None:
    """The first rows to which a condition on the mapped result of a window is limited."""
    op, built = windowed.operator, mapped.operator
    assert isinstance(built, Map)
    if not isinstance(op, Haitch) or not isinstance(op.of, Window):
        return None
    if windowed is not _on_changes(op, windowed.inputs[1]) or not isinstance(built.f, Build):
        return None
    window, t = op.of, unwrap(built.f.type)
    assert isinstance(t, Struct)
    named = dict(zip((n for n, _ in t.fields), built.f.fields, strict=True))
    order = tuple(part for s in window.sorting for part in s.order)
    for path, n in _bounds(condition):
        e = named.get(path[0]) if len(path) == 1 else None
        call = _call(e, window)
        if call is None or call.kind not in ("row_number", "rank") or n < 1:
            continue
        ties = call.kind == "rank"
        if all(_looks_back(c, ties=ties) for c in window.calls):
            return Top(window.keys, order, n, ties)
    return None


def _bounds(condition: Expr) -> Iterator[tuple[tuple[str, ...], int]]:
    """The fields that a condition limits to at most a constant, with the constants."""
    if not isinstance(condition, Call):
        return
    if condition.op == "&":
        for part in condition.args:
            yield from _bounds(part)
    elif condition.op in AT_MOST or condition.op in MIRRORED:
        op, (a, b) = condition.op, condition.args
        if isinstance(a, Literal):
            op, a, b = MIRRORED.get(op, ""), b, a
        is_of_field = isinstance(a, Field) and isinstance(b, Literal) and type(b.constant) is int
        if op in AT_MOST and is_of_field:
            yield a.path, b.constant + AT_MOST[op]  # type: ignore[attr-defined]


def _call(e: Expr | None, window: Window) -> WindowCall | None:
    """The window function whose result a field is; None for another expression."""
    if not isinstance(e, Field) or len(e.path) != 2 or e.path[0] != "right":
        return None
    return window.calls[int(e.path[1][1:]) - 1]


def _looks_back(c: WindowCall, *, ties: bool) -> bool:
    """Whether a function looks only at previous rows, and with `ties` also at rows that tie."""
    if c.frame is None:
        return c.kind in ("row_number", "rank", "dense_rank", "lag")
    if c.frame.end is None or c.frame.end > type(c.frame.end)(0):
        return False
    return c.frame.rows or ties
