"""The executable specification: what a circuit means, in plain Python, without Spark.

Every value of a stream is a mapping from parts to integers that are not zero, and two values are
added part by part. What the parts are depends on the type of the stream:

    ZSet[T]              a row: its weight
    int, Decimal         the name of the number: its value, of a Decimal in units of its last digit
    float                the name and a bin of `floats`: the sum of the limbs
    ZSetPython[T]        a row: its count
    a row of numbers     the parts of each field
    Grouped[V, K]        a key, and a part of its sum; a key, and Mark.ROWS: how many rows it has
"""

from __future__ import annotations

import dataclasses
import decimal
import enum
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from graphlib import TopologicalSorter
from typing import Any, Generic, TypeVar

from typing_extensions import TypeVarTuple

from stepping_spark.atoms import INT, INT_MAX, INT_MIN, REST, Atom, RowType
from stepping_spark.errors import InputError, StepError, SteppingError, refused_deletion
from stepping_spark.expr import Expr
from stepping_spark.floats import rest, split, total
from stepping_spark.graph import Graph, Vertex
from stepping_spark.index import Key
from stepping_spark.operations import fit
from stepping_spark.operators import (
    Accumulate,
    Add,
    Arrange,
    Delay,
    Differentiate,
    Distinct,
    Feedback,
    Filter,
    Flatten,
    Haitch,
    IdentityPrint,
    Input,
    Integrate,
    Join,
    MakeSet,
    Map,
    MapMany,
    Neg,
    Operator,
)
from stepping_spark.reducers import Collate, Listed, Top
from stepping_spark.reference_reducers import collate, listed, top
from stepping_spark.rows import Pair
from stepping_spark.schema import Accumulated, GroupedType, ScalarType, StreamType, ZSetType
from stepping_spark.types import Struct, ZSetOf
from stepping_spark.zset import ZSetPython, ZSetSpark

Ins = TypeVarTuple("Ins")
Out = TypeVar("Out")

Part = Hashable
Value = Mapping[Any, int]


class Mark(enum.Enum):
    """Parts that are not rows or numbers."""

    ROWS = "the number of rows of a group"


LARGEST = 10**38 - 1  # what sums are kept as, a DECIMAL(38), holds no more
NOTHING: Value = {}


def reference(graph: Graph[*Ins, Out]) -> Reference[*Ins, Out]:
    """A plain-Python evaluator of a circuit, with nothing in its state.

    Needs no Spark where the functions of rows are operators on fields, or `st.python`. Computes
    every vertex at every step, on whole values: for tests of circuits.

    >>> st.reference(graph).step((st.ZSetPython({"a": 1}),))        # doctest: +SKIP
    """
    return Reference(graph)


class Reference(Generic[*Ins, Out]):
    """A circuit and its state: the values that its delays, integrals and differences remember."""

    def __init__(self, graph: Graph[*Ins, Out]) -> None:
        self.graph = graph
        self._order = _order(graph.walk(), graph.loops)
        self._remembered: dict[Vertex, Value] = {}
        self._cached: dict[str, Any] = {name: ZSetPython() for name in graph.caches}

    @property
    def caches(self) -> Mapping[str, Any]:
        """The values of the circuit's caches, by name, at the last step."""
        return self._cached

    def step(self, inputs: Sequence[object]) -> tuple[Any, ...]:
        """Feed one change to each input; gives the change, or value, of each output.

        An input is a `ZSetPython`, a `ZSetSpark`, a number, or None for no change. A step that
        raises has changed nothing. Raises `InputError` for a value that does not fit, `StepError`
        for a vertex that fails.
        """
        given = self._given(inputs)
        values: dict[Vertex, Value] = {}
        for v in self._order:
            at = self._place(v)
            if v in given:
                values[v] = MEANING[Input](at, given[v])
            else:
                args = (
                    [] if isinstance(v.operator, Delay) else [values[s] for s in self._sources(v)]
                )
                if isinstance(v.operator, REMEMBERS):
                    args.append(self._remembered.get(v, NOTHING))
                values[v] = MEANING[type(v.operator)](at, *args)
            _check(at.where, v.type, values[v])
        shown = tuple(self._shown(v, values) for v in self.graph.outputs)
        cached = {name: self._shown(v, values) for name, v in self.graph.caches.items()}
        self._remembered = {
            v: values[v] if isinstance(v.operator, Integrate) else values[v.inputs[0]]
            for v in self._order
            if isinstance(v.operator, REMEMBERS)
        }
        self._cached = cached
        return shown

    def _sources(self, v: Vertex) -> tuple[Vertex, ...]:
        return (self.graph.loops[v],) if isinstance(v.operator, Feedback) else v.inputs

    def _place(self, v: Vertex) -> Place:
        where = f"{self.graph.paths[v]} ({self.graph.line(v)})"
        return Place(v.operator, tuple(s.type for s in v.inputs), where)

    def _shown(self, v: Vertex, values: Mapping[Vertex, Value]) -> Any:
        return show(values[v], v.type, self._place(v).where)

    def _given(self, inputs: Sequence[object]) -> dict[Vertex, Value]:
        found = {}
        for v, value, where in self.graph.given(inputs):
            found[v] = read(value, v.type, where)
            if isinstance(v.operator, Input) and v.operator.append_only:
                for row, n in found[v].items():
                    if n < 0:
                        raise refused_deletion(row, n, where)
        return found


def _order(vertices: Iterable[Vertex], loops: Mapping[Vertex, Vertex]) -> tuple[Vertex, ...]:
    """The vertices, each after those whose value of this step it needs; a delay needs none."""
    needs: TopologicalSorter[Vertex] = TopologicalSorter()
    for v in vertices:
        sources = (loops[v],) if v in loops else v.inputs
        needs.add(v, *(() if isinstance(v.operator, Delay) else sources))
    return tuple(needs.static_order())


# -- values, from and for users


def read(value: object, t: StreamType, where: str) -> Value:
    """A user's value; an InputError that begins with `where` if it is not of the type."""
    if value is None:
        return NOTHING
    if isinstance(t, ScalarType):
        return added(_parts_of(_of_type(value, t.sum.value, where), t.sum))
    assert isinstance(t, ZSetType)
    if not isinstance(value, ZSetPython | ZSetSpark):
        raise InputError(
            f"{where}: expected {t}, found {type(value).__name__}; give a st.ZSetPython, a "
            "st.ZSetSpark, or None for no change"
        )
    return added(
        (_of_type(row, t.row, where), INT.encode(n, f"{where}, count of {row!r}"))
        for row, n in value.to_python().iter()
    )


def show(value: Value, t: StreamType, where: str) -> Any:
    """The value as users see it: a ZSetPython, or a number; of groups, a dict by key."""
    if isinstance(t, ZSetType):
        return ZSetPython(((row, n) for row, n in value.items()), of=t.row)
    if isinstance(t, ScalarType):
        return _total(value, t.sum, where)
    assert isinstance(t, GroupedType)
    return {key: _total(sum_, t.sum, where) for key, sum_ in _groups(value)}


def added(parts: Iterable[tuple[Part, int]]) -> Value:
    """The sum of parts; zeros vanish."""
    sums: dict[Part, int] = {}
    for part, n in parts:
        sums[part] = sums.get(part, 0) + n
    return {part: n for part, n in sums.items() if n}


def _of_type(value: Any, t: RowType, where: str) -> Any:
    """The value as a column of the type holds it, such as one zero of both."""
    return t.decode(t.encode(value, where))


def _check(where: str, t: StreamType, value: Value) -> None:
    """Refuse what the columns of the stream's relation cannot hold."""
    for part, n in value.items():
        weight = isinstance(t, ZSetType) or isinstance(_sum_of(t).value, ZSetOf)
        if weight or (isinstance(part, tuple) and part[1] is Mark.ROWS):
            if not INT_MIN <= n <= INT_MAX:
                raise StepError(
                    f"{where}: the weight {n} of {part!r} is beyond 64 bits; nothing has changed: "
                    "take such changes in with smaller weights"
                )
        elif abs(n) > LARGEST:
            raise StepError(
                f"{where}: a sum has more than 38 digits; nothing has changed: add floats, or "
                "Decimals of a smaller scale"
            )


def _sum_of(t: StreamType) -> Accumulated:
    assert isinstance(t, ScalarType | GroupedType)
    return t.sum


# -- sums


def _parts_of(value: Any, sum_: Accumulated) -> Iterator[tuple[Part, int]]:
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


def _total(value: Value, sum_: Accumulated, where: str) -> Any:
    """The number, row of numbers or Z-set that the parts add up to."""
    if isinstance(sum_.value, ZSetOf):
        return sum_.value.build(value.items())
    numbers: dict[str, dict[int, int]] = {}
    for (name, bin_), n in value.items():
        numbers.setdefault(name, {})[bin_] = n
    totals = [_number(numbers.get(name, {}), t, where) for name, t, _ in sum_.leaves()]
    return sum_.value.build(totals) if isinstance(sum_.value, Struct) else totals[0]


def _number(bins: Mapping[int, int], t: Atom, where: str) -> Any:
    if t.name == "float":
        return rest(bins) if t == REST else total(bins)
    units = bins.get(0, 0)
    exact = units if t.name == "int" else decimal.Decimal(units).scaleb(-t.scale, _DIGITS)
    return fit(exact, t, f"{where}: the sum")


_DIGITS = decimal.Context(prec=100)


def _groups(value: Value) -> Iterator[tuple[Part, Value]]:
    """The groups that have rows: the key, and the parts of the sum."""
    groups: dict[Part, dict[Part, int]] = {}
    for (key, part), n in value.items():
        groups.setdefault(key, {})[part] = n
    for key, parts in groups.items():
        if parts.pop(Mark.ROWS, 0):
            yield key, parts


# -- operators


@dataclass(frozen=True)
class Place:
    """A vertex, as far as the meaning of its operator depends on it."""

    operator: Any
    inputs: tuple[StreamType, ...]
    where: str

    def call(self, f: Expr, row: Any) -> Any:
        """What a row function gives for a row; a StepError that shows the row where it fails."""
        try:
            value = f.value(row)
            if isinstance(self.operator, MapMany) and value is not None:
                value = list(value)
            return _of_type(value, f.type, "its value")
        except Exception as e:
            found = str(e) if isinstance(e, SteppingError) else f"{type(e).__name__}: {e}"
            raise StepError(
                f"{self.where}: {f} failed for the row {row!r}: {found}; nothing has changed: mend "
                "the row or the function, and step again"
            ) from e

    def keys(self, key: Key, value: Value) -> Iterator[tuple[Part, tuple[Any, int]]]:
        """The rows and weights, each with its key; none for a key that has a NULL part."""
        for row, n in value.items():
            parts = tuple(self.call(part, row) for part in key.parts)
            if None not in parts:
                yield parts, (row, n)


def _same(at: Place, a: Value) -> Value:
    return a


def _add(at: Place, a: Value, b: Value) -> Value:
    return added((*a.items(), *b.items()))


def _neg(at: Place, a: Value) -> Value:
    return {part: -n for part, n in a.items()}


def _subtract(at: Place, a: Value, b: Value) -> Value:
    return _add(at, a, _neg(at, b))


def _print(at: Place, a: Value) -> Value:
    print(f"{at.operator.label}: {show(a, at.inputs[0], at.where)!r}")
    return a


def _map(at: Place, a: Value) -> Value:
    return added((at.call(at.operator.f, row), n) for row, n in a.items())


def _filter(at: Place, a: Value) -> Value:
    return {row: n for row, n in a.items() if at.call(at.operator.f, row) is True}


def _map_many(at: Place, a: Value) -> Value:
    return added((item, n) for row, n in a.items() for item in at.call(at.operator.f, row) or ())


def _join(at: Place, a: Value, b: Value) -> Value:
    matches: dict[Part, list[tuple[Any, int]]] = {}
    for key, found in at.keys(at.operator.right, b):
        matches.setdefault(key, []).append(found)
    return added(
        (Pair(left=left, right=right), m * n)
        for key, (left, m) in at.keys(at.operator.left, a)
        for right, n in matches.get(key, ())
    )


def _distinct(at: Place, a: Value) -> Value:
    return {row: 1 for row, n in a.items() if n > 0}


def _accumulate(at: Place, a: Value) -> Value:
    op = at.operator
    sum_ = Accumulated(op.pick.type)
    parts: list[tuple[Part, int]] = []
    for row, n in a.items():
        picked = [(part, m * n) for part, m in _parts_of(at.call(op.pick, row), sum_)]
        if op.key is None:
            parts += picked
        else:
            key = at.call(op.key.expr, row)
            parts += [((key, part), m) for part, m in (*picked, (Mark.ROWS, n))]
    return added(parts)


def _make_set(at: Place, a: Value) -> Value:
    return {_total(a, _sum_of(at.inputs[0]), at.where): 1}


def _flatten(at: Place, a: Value) -> Value:
    sum_ = _sum_of(at.inputs[0])
    return {Pair(left=_total(parts, sum_, at.where), right=key): 1 for key, parts in _groups(a)}


def _haitch(at: Place, state: Value, change: Value) -> Value:
    inner = dataclasses.replace(at, operator=at.operator.of)
    of = MEANING[type(inner.operator)]
    return _subtract(at, of(inner, _add(at, state, change)), of(inner, state))


# These get what they remember of the steps before as their last argument: an integral its own
# value, the others the value of their input.
REMEMBERS = (Delay, Differentiate, Integrate)

MEANING: dict[type[Operator], Callable[..., Value]] = {
    Accumulate: _accumulate,
    Add: _add,
    Arrange: _same,
    Collate: collate,
    Delay: _same,
    Differentiate: _subtract,
    Distinct: _distinct,
    Feedback: _same,
    Filter: _filter,
    Flatten: _flatten,
    Haitch: _haitch,
    IdentityPrint: _print,
    Input: _same,
    Integrate: _add,
    Join: _join,
    Listed: listed,
    MakeSet: _make_set,
    Map: _map,
    MapMany: _map_many,
    Neg: _neg,
    Top: top,
}
