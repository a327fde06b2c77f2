"""What Hypothesis feeds to circuits: rows that are hard to tell apart and to add, and steps."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any, TypeAlias

from hypothesis import strategies as hs

from stepping_spark import ZSetPython
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.types import ListOf, Optional, Struct, row_type

Change: TypeAlias = ZSetPython[Any] | int | float | Decimal
Step: TypeAlias = tuple[Change, ...]  # the change of each input


@dataclass(frozen=True)
class Number:
    """An input that is a stream of numbers, not of Z-sets of them."""

    type: type[int] | type[float] | type[Decimal]


# Few values of each type, so that rows meet; those where Spark and Python, or sums, may part.
POOLS: dict[str, Sequence[Any]] = {
    "bool": [False, True],
    "int": [0, 1, 2, 3, -1, 2**40],
    "float": [
        *(0.0, -0.0, 1.0, -1.0, 0.1, 0.3, 1e16, -1e16, 1e308, 5e-324),
        *(float("nan"), float("inf"), float("-inf")),
    ],
    "str": ["Bob", "Sue", "", "bob", "Zoë", "Zoe\u0308", "'\\", "\x0012\n", "/*+ NOW */${x}"],
    "Decimal": [Decimal(x) for x in ("0", "1", "-1", "0.01", "-2.5", "123456789012345.07")],
    "bytes": [b"", b"\0", b"\xff'"],
    "date": [dt.date(1, 1, 1), dt.date(2024, 2, 29)],
    "datetime": [
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
        dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC),
    ],
    "LocalDateTime": [dt.datetime(1582, 10, 10), dt.datetime(2024, 3, 31, 2, 30)],
    "timedelta": [dt.timedelta(0), dt.timedelta(days=-1, microseconds=1)],
    "UUID": [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)],
}
# What floats add up to exactly, so that numbers given by steps may be added up by a test.
NUMBERS: dict[type, Sequence[Any]] = {
    int: POOLS["int"],
    float: [0.0, 1.5, -0.25, 2.0**40],
    Decimal: POOLS["Decimal"],
}
TINY = Decimal("0.000000000000000001")
weights = hs.integers(-2, 3).filter(bool)


def values_of(t: RowType) -> hs.SearchStrategy[Any]:
    """Values of a row type."""
    if isinstance(t, Optional):
        return hs.none() | values_of(t.inner)
    if isinstance(t, ListOf):
        return hs.lists(values_of(t.inner), max_size=3).map(tuple)
    if isinstance(t, Struct):
        return hs.tuples(*(values_of(f) for _, f in t.fields)).map(lambda v: t.build(list(v)))
    assert isinstance(t, Atom)
    if t.name == "Enum":
        return hs.sampled_from(t.python)
    pool = hs.sampled_from(POOLS[t.name])
    return pool | hs.just(TINY) if t.name == "Decimal" and t.scale >= 18 else pool


def zsets_of(rows: Any, max_size: int = 6) -> hs.SearchStrategy[ZSetPython[Any]]:
    """Z-sets of rows of an annotated type, weights of both signs; rows come several times."""
    pairs = hs.tuples(values_of(row_type(rows)), weights)
    return hs.lists(pairs, max_size=max_size).map(ZSetPython)


def changes_of(rows: Any) -> hs.SearchStrategy[Any]:
    """Changes of an input: Z-sets of rows of an annotated type, or numbers."""
    return hs.sampled_from(NUMBERS[rows.type]) if isinstance(rows, Number) else zsets_of(rows)


def streams_of(*rows: Any, max_steps: int = 5) -> hs.SearchStrategy[list[Step]]:
    """Steps of changes, one for each type of rows; at least one step.

    Among the steps are empty ones, ones that take back a part of what came before, and ones that
    delete everything.
    """

    @hs.composite
    def stream(draw: hs.DrawFn) -> list[Step]:
        steps: list[Step] = []
        nothing: Step = tuple(r.type(0) if isinstance(r, Number) else ZSetPython() for r in rows)
        for _ in range(draw(hs.integers(1, max_steps))):
            so_far = add_up(steps, nothing)
            match draw(
                hs.sampled_from(("new", "new", "new", "delete some", "delete all", "empty"))
            ):
                case "new":
                    steps.append(tuple(draw(changes_of(r)) for r in rows))
                case "delete some":
                    steps.append(tuple(draw(_parts_of(z)) for z in so_far))
                case "delete all":
                    steps.append(tuple(-z for z in so_far))
                case _:
                    steps.append(nothing)
        return steps

    return stream()


def _parts_of(z: Change) -> hs.SearchStrategy[Change]:
    if not isinstance(z, ZSetPython):
        return hs.sampled_from((-z, type(z)(0)))
    pairs = sorted(z.iter(), key=repr)
    kept = hs.lists(hs.booleans(), min_size=len(pairs), max_size=len(pairs))
    return kept.map(
        lambda keep: ZSetPython([(r, -n) for (r, n), k in zip(pairs, keep, strict=True) if k])
    )


def add_up(steps: Sequence[Step], nothing: Step) -> Step:
    """The sum of steps, input by input."""
    total = nothing
    for step in steps:
        total = tuple(_sum(a, b) for a, b in zip(total, step, strict=True))
    return total


def _sum(a: Any, b: Any) -> Change:
    with localcontext(prec=60):  # more digits than a Decimal column has
        total: Change = a + b
    return total


def shuffled(steps: Sequence[Step], source: random.Random, many: int) -> list[Step]:
    """The same changes, row by row in another order, in so many steps."""
    dealt: list[list[Any]] = [[_nothing(change) for change in steps[0]] for _ in range(many)]
    for step in steps:
        for i, change in enumerate(step):
            for part in _single(change):
                some = source.choice(dealt)
                some[i] = _sum(some[i], part)
    return [tuple(step) for step in dealt]


def _nothing(change: Change) -> Change:
    return ZSetPython() if isinstance(change, ZSetPython) else type(change)(0)


def _single(change: Change) -> list[Change]:
    """The rows of a Z-set, one by one as often as they count; a number as it is."""
    if not isinstance(change, ZSetPython):
        return [change]
    return [
        ZSetPython({row: 1 if n > 0 else -1}) for row, n in change.iter() for _ in range(abs(n))
    ]
