"""Linear rewrites of streams: functions of rows over kept columns and rows, and sums.

A register often keeps only some columns of a table. A map of the table that reads no others is a
map of the register: π_f(σ_p(x)) = π_f'(σ_p'(π_g(x))), if g keeps the columns that f and p read. A
register may keep only some rows: σ_q(x) = σ_q(σ_p(x)), if q implies p. Two
maps in a row are one: π_f(π_g(x)) = π_f∘g(x). And f(a + b) = f(a) + f(b), f(-a) = -f(a): so a view
that had been π_f(a), and is π_f(a + b) now, changes by π_f(b), whatever a is.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import Add, Filter, Map, Neg, Operator, PrunedMap, RowByRow
from stepping_spark.expressions.expr import (
    Build,
    Call,
    Expr,
    Field,
    Literal,
    NotComposed,
    Opaque,
    field_of,
    replaced,
)
from stepping_spark.rows.schema import VALUE
from stepping_spark.rows.types import Struct

FieldsOf = Mapping[tuple[str, ...], Expr]
"""Functions of another row for fields of a row, by the paths of the fields."""


@dataclass(frozen=True)
class KeptPart:
    """The part of a stream that a kept stream has: rows that meet conditions, and some columns."""

    stream: Vertex
    conditions: tuple[Expr, ...]
    columns: FieldsOf | None  # None: all

    def made_into(self, operators: list[Operator]) -> list[Operator] | None:
        """Operators over the whole stream, as operators over this part; None if it is too small."""
        first = itertools.takewhile(lambda op: isinstance(op, Filter), operators)
        conditions = [c for op in first for c in _conditions(_function(op))]
        if not all(any(map(partial(implies, to=c), conditions)) for c in self.conditions):
            return None
        if self.columns is None:
            return operators
        if all(op.keeps_rows for op in operators):
            return None  # their result has all columns
        return _over(operators, self.columns)


class Narrowing:
    """Finds a kept stream that determines a stream."""

    def __init__(self, kept: Iterable[Vertex]) -> None:
        self._of: dict[Vertex, list[KeptPart]] = {}
        for v in kept:
            for whole, part in _parts_kept(v):
                self._of.setdefault(whole, []).append(part)

    def narrow(self, v: Vertex) -> tuple[Vertex, list[Operator]] | None:
        """A kept stream, and the operators that compute `v` from it; None if there is none."""
        operators: list[Operator] = []
        base = v
        while is_function(base.operator):
            operators.insert(0, base.operator)
            (base,) = base.inputs
            for part in self._of.get(base, ()):
                rest = part.made_into(operators)
                if rest is not None:
                    return part.stream, rest
        return None


def _parts_kept(v: Vertex) -> Iterator[tuple[Vertex, KeptPart]]:
    """The streams of which a kept stream has a part, each with the part."""
    base, conditions = v, list[Expr]()
    columns: FieldsOf | None = None
    if isinstance(base.operator, Map) and is_function(base.operator):
        columns = _columns(base.operator.f)
        (base,) = base.inputs
        yield base, KeptPart(v, (), columns)
    while isinstance(base.operator, Filter) and is_function(base.operator):
        conditions += _conditions(base.operator.f)
        (base,) = base.inputs
        yield base, KeptPart(v, tuple(conditions), columns)


def _conditions(f: Expr) -> Iterator[Expr]:
    """The conditions whose conjunction an expression is."""
    if isinstance(f, Opaque) and f.reading is not None:
        f = f.reading
    if isinstance(f, Call) and f.op == "&":
        for part in f.args:
            yield from _conditions(part)
    else:
        yield f


# For a wanted condition x ∘ b, the conditions x ∘ a that imply it if a compares so with b.
_IMPLIED: Mapping[str, Mapping[str, Callable[[Any, Any], bool]]] = {
    ">=": {">=": operator.ge, ">": operator.ge, "==": operator.ge},
    ">": {">=": operator.gt, ">": operator.ge, "==": operator.gt},
    "<=": {"<=": operator.le, "<": operator.le, "==": operator.le},
    "<": {"<=": operator.lt, "<": operator.le, "==": operator.lt},
}
_ORDERED = (int, Decimal, dt.date, dt.datetime)


def implies(conditions: Expr, to: Expr) -> bool:
    """Whether a known condition implies another one, for every row."""
    if conditions == to:
        return True
    if not (isinstance(conditions, Call) and isinstance(to, Call)):
        return False
    compare = _IMPLIED.get(to.op, {}).get(conditions.op)
    if compare is None or conditions.args[0] != to.args[0]:
        return False
    a, b = conditions.args[1], to.args[1]
    if not (isinstance(a, Literal) and isinstance(b, Literal) and a.type == b.type):
        return False
    if type(a.constant) is not type(b.constant) or type(a.constant) not in _ORDERED:
        return False
    return compare(a.constant, b.constant)


def is_function(op: Operator) -> bool:
    """Whether an operator is a function of each row, without carried columns."""
    return isinstance(op, RowByRow) and not getattr(op, "carried", ())


def composed(v: Vertex) -> Vertex:
    """The stream with successive maps composed into one, as far as possible."""
    chain: list[Operator] = []
    while is_function(v.operator):
        chain.insert(0, v.operator)
        (v,) = v.inputs
    for op in chain:
        before = v.operator
        if isinstance(op, Map) and isinstance(before, Map) and is_function(before):
            try:
                f = _on(op.f, _made_by(before.f))
            except NotComposed:
                v = Vertex(op, v)
            else:
                v = Vertex(Map(f), *v.inputs)
        else:
            v = Vertex(op, v)
    return v


def _made_by(f: Expr) -> FieldsOf:
    """The fields of a function's result."""
    if not isinstance(f, Build):
        return {(VALUE,): f}
    names = [name for name, _ in f.type.fields]  # type: ignore[attr-defined]
    return {(name,): part for name, part in zip(names, f.fields, strict=True)}


def _columns(f: Expr) -> FieldsOf:
    """The fields of a row that a map copies."""
    return {e.path: Field(e.type, path) for path, e in _copied(f, ()) if e.path}


def _copied(f: Expr, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Field]]:
    """The fields that a function copies, each with its path in the result."""
    if isinstance(f, Field):
        yield path or (VALUE,), f
    elif isinstance(f, Build) and isinstance(f.type, Struct):
        for (name, _), part in zip(f.type.fields, f.fields, strict=True):
            yield from _copied(part, (*path, name))


def _over(operators: Iterable[Operator], columns: FieldsOf) -> list[Operator] | None:
    """The operators over kept columns; those after the first map stay unchanged."""
    above: list[Operator] = []
    mapped = False
    try:
        for op in operators:
            above.append(op if mapped else _with(op, _on(_function(op), columns)))
            mapped = mapped or not op.keeps_rows
    except NotComposed:
        return None
    return above


def _function(op: Operator) -> Any:
    return getattr(op, "f")  # noqa: B009


def _with(op: Operator, f: Expr) -> Operator:
    if isinstance(op, PrunedMap):
        return Map(f)
    changes: dict[str, Any] = {"f": f}
    return dataclasses.replace(op, **changes)


def _on(e: Expr, columns: FieldsOf) -> Expr:
    """An expression over a row, as an expression over the row from which its columns come."""
    return replaced(e, lambda f: _field(f, columns))


def _field(f: Field, columns: FieldsOf) -> Expr:
    for n in range(len(f.path), 0, -1):
        column = columns.get(f.path[:n])
        if column is not None:
            return field_of(column, f.path[n:], f.type)
    raise NotComposed


Terms = list[tuple[Vertex, int]]
"""Streams with their coefficients in a sum."""


def less(now: Vertex, was: Vertex) -> Terms:
    """The terms of the difference of two streams, without common terms."""
    terms = [(now, 1), (was, -1)]
    terms = _cancelled(terms, (part for v, n in terms for part in _summands(v, n)))
    return _cancelled(terms, (part for v, n in terms for part in _distributed(v, n)))


def _cancelled(terms: Terms, parts: Iterable[tuple[Vertex, int]]) -> Terms:
    """The parts of terms, added up; the original terms if no parts cancel out."""
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
    """The terms of which a stream is the sum."""
    terms: Terms = []
    pending = [(v, often)]
    while pending:
        part, n = pending.pop()
        if isinstance(part.operator, Add):
            pending += [(i, n) for i in part.inputs]
        elif isinstance(part.operator, Neg):
            pending.append((part.inputs[0], -n))
        else:
            terms.append((part, n))
    return terms


def _distributed(v: Vertex, often: int) -> Terms:
    """The terms of which a stream is the sum, after distributing functions over sums."""
    terms: Terms = []
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
            terms.append((part, n))
    return terms
