"""A filter on a bounded rank needs only the first rows of each partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from stepping_spark.expressions.expr import Build, Call, Expr, Field, Literal
from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import Delay, Filter, Haitch, Integrate, Map, Top, Window
from stepping_spark.graph.rewrite import Circuit, rewrite
from stepping_spark.physical import WindowCall
from stepping_spark.rows.types import Struct, unwrap

# How a field is compared with a constant, so that the field is at most so much.
AT_MOST = {"<=": 0, "<": -1, "==": 0}
MIRRORED = {">=": "<=", ">": "<", "==": "=="}


def first_of_ranked(graph: Circuit) -> Circuit:
    """Compute a window over the first n rows of partitions, where a filter on a rank keeps those.

    σ_(row_number ≤ n)(W(a)) = σ_(row_number ≤ n)(W(Top_n(a))), and of a rank with all that tie with
    the n-th, if no function of W looks at rows that come later. The filter stays. Saves reading
    partitions: a change reads the buckets of `build_towers`, and the window at most n rows.
    """
    found = _ranked(graph)
    while found is not None:
        windowed, top = found
        first = _of_change(Haitch(top), windowed.inputs[1])
        graph = rewrite(graph, partial(_replace, windowed, _of_change(windowed.operator, first)))
        found = _ranked(graph)
    return graph


def _ranked(graph: Circuit) -> tuple[Vertex, Top] | None:
    """A window of which only a filter on a rank is read, and the first rows that it needs."""
    readers = Counter(i for v in graph.walk() for i in v.inputs)
    readers.update((*graph.outputs, *graph.no_output, *graph.caches.values()))
    readers.update(graph.loops.values())
    for v in graph.walk():
        if isinstance(v.operator, Filter) and isinstance(v.inputs[0].operator, Map):
            (mapped,) = v.inputs
            (windowed,) = mapped.inputs
            if readers[mapped] == readers[windowed] == 1:
                top = _top(v.operator.f, mapped, windowed)
                if top is not None and windowed.inputs[1].operator != Haitch(top):
                    return windowed, top
    return None


def _replace(old: Vertex, new: Vertex, v: Vertex) -> Vertex | None:
    return new if v is old else None


def _of_change(op: object, a: Vertex) -> Vertex:
    assert isinstance(op, Haitch)
    return Vertex(op, Vertex(Delay(), Vertex(Integrate(), a)), a)


def _top(condition: Expr, mapped: Vertex, windowed: Vertex) -> Top | None:
    """The first rows that a condition on what is mapped of a window keeps at most."""
    op, built = windowed.operator, mapped.operator
    assert isinstance(built, Map)
    if not isinstance(op, Haitch) or not isinstance(op.of, Window):
        return None
    if windowed is not _of_change(op, windowed.inputs[1]) or not isinstance(built.f, Build):
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
    """The fields that are at most a constant, where a condition is true."""
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
    """The function of a window whose value a field has."""
    if not isinstance(e, Field) or len(e.path) != 2 or e.path[0] != "right":
        return None
    return window.calls[int(e.path[1][1:]) - 1]


def _looks_back(c: WindowCall, *, ties: bool) -> bool:
    """Whether a function looks only at rows before, and with `ties` also at rows that tie."""
    if c.frame is None:
        return c.kind in ("row_number", "rank", "dense_rank", "lag")
    if c.frame.end is None or c.frame.end > type(c.frame.end)(0):
        return False
    return c.frame.rows or ties
