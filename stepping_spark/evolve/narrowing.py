"""Streams that a kept stream determines, as it has the columns that they read.

A register often keeps some columns of a table only. A map of the same table that reads no others is
a map of what is kept: π_f(σ_p(x)) = π_f'(σ_p'(π_g(x))), if g keeps what f and p read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stepping_spark.expressions.expr import Build, Expr, Field, Literal, Opaque, PythonCall
from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import Map, Operator

Columns = Mapping[tuple[str, ...], Field]
"""For fields of a row, by their paths, the fields of what is kept of it."""


class NotKept(Exception):
    """A function of a row reads what is not kept of the row."""


class Narrowing:
    """Finds, for a stream, a kept one that determines it."""

    def __init__(self, kept: Iterable[Vertex]) -> None:
        self._of: dict[Vertex, list[tuple[Vertex, Columns]]] = {}
        for v in kept:
            if isinstance(v.operator, Map) and not v.operator.carried:
                self._of.setdefault(v.inputs[0], []).append((v, _columns(v.operator.f)))

    def found(self, v: Vertex) -> tuple[Vertex, list[Operator]] | None:
        """A kept stream, and what makes the stream of it; None: there is none."""
        operators: list[Operator] = []
        base = v
        while base.operator.row_by_row and not _carries(base.operator):
            operators.insert(0, base.operator)
            (base,) = base.inputs
            if all(op.keeps_rows for op in operators):
                continue  # all columns of the base are in what it gives
            for kept, columns in self._of.get(base, ()):
                made = _over(operators, columns)
                if made is not None:
                    return kept, made
        return None


def _carries(op: Operator) -> bool:
    return bool(getattr(op, "carried", ()))


def _columns(f: Expr) -> Columns:
    """The fields of a row that a map keeps as they are."""
    if isinstance(f, Field):
        return {f.path: Field(f.type, ("_value_",))} if f.path else {}
    if not isinstance(f, Build):
        return {}
    names = [name for name, _ in f.type.fields]  # type: ignore[attr-defined]
    parts = zip(names, f.fields, strict=True)
    return {p.path: Field(p.type, (n,)) for n, p in parts if isinstance(p, Field) and p.path}


def _over(operators: Iterable[Operator], columns: Columns) -> list[Operator] | None:
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


def _on(value: Any, columns: Columns) -> Any:
    """An expression over a row, as one over what is kept of the row."""
    match value:
        case Field():
            for n in range(len(value.path), 0, -1):
                kept = columns.get(value.path[:n])
                if kept is not None:
                    return Field(value.type, (*kept.path, *value.path[n:]))
            raise NotKept
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


def _parts(e: Expr, columns: Columns) -> Iterator[tuple[str, Any]]:
    for f in dataclasses.fields(e):
        if f.init and f.name != "type":
            yield f.name, _on(getattr(e, f.name), columns)
