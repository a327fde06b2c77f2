"""Streams, by what is linear in them: functions of rows over what is kept of rows, and sums.

A register often keeps some columns of a table only. A map of the same table that reads no others is
a map of what is kept: π_f(σ_p(x)) = π_f'(σ_p'(π_g(x))), if g keeps what f and p read. Likewise two
maps in a row are one: π_f(π_g(x)) = π_f∘g(x). And f(a + b) = f(a) + f(b), f(-a) = -f(a): so a view
that had been π_f(a), and is π_f(a + b) now, changes by π_f(b), whatever a is.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import Add, Map, Neg, Operator
from stepping_spark.expressions.expr import Build, Expr, Field, Literal, Opaque, PythonCall

FieldsOf = Mapping[tuple[str, ...], Expr]
"""For fields of a row, by their paths, what they are, as functions of another row."""


class NotKept(Exception):
    """A function of a row reads what is not kept of the row."""


class Narrowing:
    """Finds, for a stream, a kept one that determines it."""

    def __init__(self, kept: Iterable[Vertex]) -> None:
        self._of: dict[Vertex, list[tuple[Vertex, FieldsOf]]] = {}
        for v in kept:
            if isinstance(v.operator, Map) and not v.operator.carried:
                self._of.setdefault(v.inputs[0], []).append((v, _columns(v.operator.f)))

    def found(self, v: Vertex) -> tuple[Vertex, list[Operator]] | None:
        """A kept stream, and what makes the stream of it; None: there is none."""
        operators: list[Operator] = []
        base = v
        while is_function(base.operator):
            operators.insert(0, base.operator)
            (base,) = base.inputs
            if all(op.keeps_rows for op in operators):
                continue  # all columns of the base are in what it gives
            for kept, columns in self._of.get(base, ()):
                made = _over(operators, columns)
                if made is not None:
                    return kept, made
        return None


def is_function(op: Operator) -> bool:
    """Whether an operator is a function of each row, and carries no columns along."""
    return op.row_by_row and not getattr(op, "carried", ())


def composed(v: Vertex) -> Vertex:
    """The same stream, with one map for several in a row, as far as functions can be composed."""
    chain: list[Operator] = []
    while is_function(v.operator):
        chain.insert(0, v.operator)
        (v,) = v.inputs
    for op in chain:
        before = v.operator
        if isinstance(op, Map) and isinstance(before, Map) and is_function(before):
            try:
                f = _on(op.f, _made_by(before.f))
            except NotKept:
                v = Vertex(op, v)
            else:
                v = Vertex(Map(f), *v.inputs)
        else:
            v = Vertex(op, v)
    return v


def _made_by(f: Expr) -> FieldsOf:
    """The fields of what a function gives."""
    if not isinstance(f, Build):
        return {("_value_",): f}
    names = [name for name, _ in f.type.fields]  # type: ignore[attr-defined]
    return {(name,): part for name, part in zip(names, f.fields, strict=True)}


def _columns(f: Expr) -> FieldsOf:
    """The fields of a row that a map keeps as they are."""
    made = _made_by(f).items()
    return {e.path: Field(e.type, path) for path, e in made if isinstance(e, Field) and e.path}


def _over(operators: Iterable[Operator], columns: FieldsOf) -> list[Operator] | None:
    """The operators over what is kept, up to the first map; what follows reads what that gives."""
    made: list[Operator] = []
    mapped = False
    try:
        for op in operators:
            made.append(op if mapped else _with(op, _on(_function(op), columns)))
            mapped = mapped or not op.keeps_rows
    except NotKept:
        return None
    return made


def _function(op: Operator) -> Any:
    return getattr(op, "f")  # noqa: B009


def _with(op: Operator, f: Expr) -> Operator:
    changes: dict[str, Any] = {"f": f}
    return dataclasses.replace(op, **changes)


def _on(value: Any, columns: FieldsOf) -> Any:
    """An expression over a row, as one over the row that its columns are functions of."""
    match value:
        case Field():
            return _field(value, columns)
        case Literal():
            return value
        case Opaque() if value.reading is not None:
            return _on(value.reading, columns)
        case Opaque() | PythonCall():
            raise NotKept
        case tuple():
            return tuple(_on(part, columns) for part in value)
        case Expr():
            return dataclasses.replace(value, **dict(_parts(value, columns)))
    return value


def _field(field: Field, columns: FieldsOf) -> Expr:
    for n in range(len(field.path), 0, -1):
        found = columns.get(field.path[:n])
        rest = field.path[n:]
        if found is not None and not rest:
            return found
        if isinstance(found, Field):
            return Field(field.type, (*found.path, *rest))
        if isinstance(found, Build):
            return _field(Field(field.type, rest), _made_by(found))
    raise NotKept


def _parts(e: Expr, columns: FieldsOf) -> Iterator[tuple[str, Any]]:
    for f in dataclasses.fields(e):
        if f.init and f.name != "type":
            yield f.name, _on(getattr(e, f.name), columns)


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
