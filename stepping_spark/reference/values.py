"""Values of the executable specification, and the vertices that they belong to.

Every value of a stream is a mapping from parts to nonzero integers, and two values are added part
by part. The parts depend on the type of the stream:

    ZSet[T]              a row: its weight
    int, Decimal         the name of the number: its value, of a Decimal in units of its last digit
    float                the name and a bin of `floats`: the sum of the limbs
    ZSetPython[T]        a row: its count
    a row of numbers     the parts of each field
    Grouped[V, K]        a key, and a part of its sum; a key, and Mark.ROWS: its number of rows
"""

from __future__ import annotations

import decimal
import enum
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from graphlib import TopologicalSorter
from typing import Any

from stepping_spark.base.errors import StepError, SteppingError
from stepping_spark.circuit.graph import AnyGraph, Fixpoint, Vertex, named
from stepping_spark.circuit.operators import Delay, Explode, MapMany
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.operations import fit
from stepping_spark.relations.sums.floats import rounding_error, split, total
from stepping_spark.rows.atoms import INT, INT_MAX, INT_MIN, REST, Atom, RowType
from stepping_spark.rows.schema import Accumulated, GroupedType, ScalarType, StreamType, ZSetType
from stepping_spark.rows.types import Struct, ZSetOf
from stepping_spark.zsets.python import no_zset
from stepping_spark.zsets.spark import ZSetPython, ZSetSpark

Element = Hashable
Value = Mapping[Any, int]


class Mark(enum.Enum):
    """Parts that are not rows or numbers."""

    ROWS = "the number of rows of a group"


LARGEST = 10**38 - 1  # the limit of DECIMAL(38), the type that stores sums
NOTHING: Value = {}


# -- conversion of users' values


def read(value: object, t: StreamType, where: str) -> Value:
    """A user's value. Raises an `InputError` that begins with `where` for a wrong type."""
    if value is None:
        return NOTHING
    if isinstance(t, ScalarType):
        return added(parts_of(of_type(value, t.sum.value, where), t.sum))
    assert isinstance(t, ZSetType)
    if not isinstance(value, ZSetPython | ZSetSpark):
        raise no_zset(value, t, where)
    return added(
        (of_type(row, t.row, where), INT.encode(n, f"{where}, count of {row!r}"))
        for row, n in value.to_python().iter()
    )


def show(value: Value, t: StreamType, where: str) -> Any:
    """The value for users: a ZSetPython, a number, or for groups a dict by key."""
    if isinstance(t, ZSetType):
        return ZSetPython(((row, n) for row, n in value.items()), of=t.row)
    if isinstance(t, ScalarType):
        return total_of(value, t.sum, where, is_change=True)
    assert isinstance(t, GroupedType)
    return {key: total_of(sum_, t.sum, where) for key, sum_ in groups_of(value)}


def added(parts: Iterable[tuple[Element, int]]) -> Value:
    """The sum of parts, without zeros."""
    sums: dict[Element, int] = {}
    for part, n in parts:
        sums[part] = sums.get(part, 0) + n
    return {part: n for part, n in sums.items() if n}


def of_type(value: Any, t: RowType, where: str) -> Any:
    """The value as stored in a column of the type; for example, -0.0 becomes 0.0."""
    return t.decode(t.encode(value, where))


def check(where: str, t: StreamType, value: Value) -> None:
    """Raise an error for values that the columns of the stream's relation cannot store."""
    for part, n in value.items():
        weight = isinstance(t, ZSetType) or isinstance(sum_of(t).value, ZSetOf)
        if weight or (isinstance(part, tuple) and part[1] is Mark.ROWS):
            if not INT_MIN <= n <= INT_MAX:
                raise StepError(
                    f"{where}: the weight {n} of {part!r} is beyond 64 bits; nothing has changed: "
                    "take such changes in with smaller weights"
                )
        elif abs(n) > LARGEST and not _is_halved(t, part):
            raise StepError(
                f"{where}: a sum has more than 38 digits; nothing has changed: add floats, or "
                "Decimals of a smaller scale"
            )


def _is_halved(t: StreamType, part: Element) -> bool:
    """Whether a part of a sum is stored with more than 38 digits."""
    number = part[1] if isinstance(t, GroupedType) and isinstance(part, tuple) else part
    halved = {(name, 0) for name, leaf, _ in sum_of(t).leaves() if leaf.is_halved}
    return number in halved


def sum_of(t: StreamType) -> Accumulated:
    assert isinstance(t, ScalarType | GroupedType)
    return t.sum


# -- sums


def parts_of(value: Any, sum_: Accumulated) -> Iterator[tuple[Element, int]]:
    """The parts of a number, of a row of numbers, or of a Z-set; NULL adds nothing."""
    if value is None:
        return
    if isinstance(sum_.value, ZSetOf):
        yield from value.iter()
        return
    numbers = sum_.value.parts(value, "a sum") if isinstance(sum_.value, Struct) else [value]
    for (name, t, _), x in zip(sum_.leaves(), numbers, strict=True):
        if x is None:
            continue
        if t.name == "float":
            bin_, limb = split(x)
            yield (name, bin_), limb
        else:
            yield (name, 0), int(Fraction(x) * 10**t.scale)


def total_of(value: Value, sum_: Accumulated, where: str, *, is_change: bool = False) -> Any:
    """The number, row of numbers or Z-set with these parts.

    The change of a Decimal may have more digits than a Decimal in a row.
    """
    if isinstance(sum_.value, ZSetOf):
        return sum_.value.build(value.items())
    numbers: dict[str, dict[int, int]] = {}
    for (name, bin_), n in value.items():
        numbers.setdefault(name, {})[bin_] = n
    totals = [
        _number(numbers.get(name, {}), t, where, is_change and t.is_halved)
        for name, t, _ in sum_.leaves()
    ]
    return sum_.value.build(totals) if isinstance(sum_.value, Struct) else totals[0]


def _number(bins: Mapping[int, int], t: Atom, where: str, any_size: bool) -> Any:
    if t.name == "float":
        return rounding_error(bins) if t == REST else total(bins)
    units = bins.get(0, 0)
    exact = units if t.name == "int" else decimal.Decimal(units).scaleb(-t.scale, _DIGITS)
    return exact if any_size else fit(exact, t, f"{where}: the sum")


_DIGITS = decimal.Context(prec=100)


def groups_of(value: Value) -> Iterator[tuple[Element, Value]]:
    """The key of each group with rows, and the parts of its sum."""
    groups: dict[Element, dict[Element, int]] = {}
    for (key, part), n in value.items():
        groups.setdefault(key, {})[part] = n
    for key, parts in groups.items():
        if parts.pop(Mark.ROWS, 0):
            yield key, parts


def order(vertices: Iterable[Vertex], loops: Mapping[Vertex, Vertex]) -> tuple[Vertex, ...]:
    """The vertices, each after the ones whose value of this step it needs; a delay needs none."""
    needs: TopologicalSorter[Vertex] = TopologicalSorter()
    for v in vertices:
        sources = (loops[v],) if v in loops else v.inputs
        needs.add(v, *(() if isinstance(v.operator, Delay) else sources))
    return tuple(needs.static_order())


@dataclass(frozen=True)
class VertexContext:
    """The parts of a vertex that the meaning of its operator depends on."""

    operator: Any
    inputs: tuple[StreamType, ...]
    where: str
    now: Any = None

    def call(self, f: Expr, row: Any) -> Any:
        """The result of a row function. If it fails, the `StepError` shows the row."""
        try:
            value = f.value(row)
            if isinstance(self.operator, MapMany | Explode) and value is not None:
                value = list(value)
            return of_type(value, f.type, "its value")
        except Exception as e:
            cause = str(e) if isinstance(e, SteppingError) else f"{type(e).__name__}: {e}"
            raise StepError(
                f"{self.where}: {f} failed for the row {row!r}: {cause}; nothing has changed: mend "
                "the row or the function, and step again"
            ) from e

    def keys(
        self, key: Sequence[Expr], value: Value
    ) -> Iterator[tuple[tuple[Element, ...] | None, tuple[Any, int]]]:
        """The rows and weights, each with its key; the key is None if a part of it is NULL."""
        for row, n in value.items():
            parts = tuple(self.call(part, row) for part in key)
            yield None if None in parts else parts, (row, n)

    def matches(self, key: Sequence[Expr], value: Value) -> dict[Element, list[tuple[Any, int]]]:
        """The rows and weights by key, without keys that have a NULL part."""
        by_key: dict[Element, list[tuple[Any, int]]] = {}
        for parts, row in self.keys(key, value):
            if parts is not None:
                by_key.setdefault(parts, []).append(row)
        return by_key


def place_of(graph: AnyGraph, v: Vertex, now: Any = None) -> VertexContext:
    """The context of a vertex of a circuit."""
    where = f"{graph.paths[v]} ({graph.line(v)})"
    op = named(v.operator, graph) if isinstance(v.operator, Fixpoint) else v.operator
    return VertexContext(op, tuple(s.type for s in v.inputs), where, now)
