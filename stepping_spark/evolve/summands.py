"""Streams as sums, to see what two queries have in common.

Functions of rows are linear: f(a + b) = f(a) + f(b), and f(-a) = -f(a). So a view that had been
π_f(a), and is π_f(a + b) now, changes by π_f(b), whatever a is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import Add, Neg, Operator
from stepping_spark.evolve.narrowing import composed, is_function

Terms = list[tuple[Vertex, int]]
"""Streams, and how often each is added."""


def less(now: Vertex, was: Vertex) -> Terms:
    """The terms of a stream less another, without what both have."""
    terms = [(now, 1), (was, -1)]
    terms = _cancelled(terms, (part for v, n in terms for part in _summands(v, n)))
    return _cancelled(terms, (part for v, n in terms for part in _distributed(v, n)))


def _cancelled(terms: Terms, parts: Iterable[tuple[Vertex, int]]) -> Terms:
    """The parts of terms, each once; the terms, if no parts cancel out."""
    counts: Counter[Vertex] = Counter()
    first: dict[Vertex, Vertex] = {}
    cancels = False
    for v, n in parts:
        same = composed(v)
        first.setdefault(same, v)
        cancels = cancels or counts[same] * n < 0
        counts[same] += n
    return [(first[v], n) for v, n in counts.items() if n] if cancels else terms


def _summands(v: Vertex, often: int) -> Terms:
    """The streams that a stream is the sum of."""
    found: Terms = []
    pending = [(v, often)]
    while pending:
        part, n = pending.pop()
        if isinstance(part.operator, Add):
            pending += [(i, n) for i in part.inputs]
        elif isinstance(part.operator, Neg):
            pending.append((part.inputs[0], -n))
        else:
            found.append((part, n))
    return found


def _distributed(v: Vertex, often: int) -> Terms:
    """The same, with functions of sums as sums of functions."""
    found: Terms = []
    pending: list[tuple[Vertex, int, tuple[Operator, ...]]] = [(v, often, ())]
    while pending:
        part, n, above = pending.pop()
        if is_function(part.operator):
            pending.append((part.inputs[0], n, (part.operator, *above)))
        elif isinstance(part.operator, Add):
            pending += [(i, n, above) for i in part.inputs]
        elif isinstance(part.operator, Neg):
            pending.append((part.inputs[0], -n, above))
        else:
            for op in above:
                part = Vertex(op, part)
            found.append((part, n))
    return found
