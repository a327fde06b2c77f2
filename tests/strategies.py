"""What Hypothesis feeds to circuits: rows that are hard to tell apart and to add, and steps."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from hypothesis import strategies as hs

from stepping_spark import ZSetPython
from stepping_spark.atoms import Atom, RowType
from stepping_spark.types import ListOf, Optional, Struct, row_type

Step: TypeAlias = tuple[ZSetPython[Any], ...]  # the change of each input

# Few values of each type, so that rows meet; those where Spark and Python, or sums, may part.
POOLS: dict[str, Sequence[Any]] = {
    "bool": [False, True],
    "int": [0, 1, 2, 3, -1, 2**40],
    "float": [
        *(0.0, -0.0, 1.0, -1.0, 0.1, 0.3, 1e16, -1e16, 1e308, 5e-324),
        *(float("nan"), float("inf"), float("-inf")),
    ],
    "str": ["Bob", "Sue", "", "bob", "Zoë", "Zoe\u0308", "'\\"],
    "Decimal": [Decimal(x) for x in ("0", "1", "-1", "0.01", "-2.5", "123456789012345.07")],
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
    pool = hs.sampled_from(POOLS[t.name])
    return pool | hs.just(TINY) if t.name == "Decimal" and t.scale >= 18 else pool


def zsets_of(rows: Any, max_size: int = 6) -> hs.SearchStrategy[ZSetPython[Any]]:
    """Z-sets of rows of an annotated type, weights of both signs; rows come several times."""
    pairs = hs.tuples(values_of(row_type(rows)), weights)
    return hs.lists(pairs, max_size=max_size).map(ZSetPython)


def streams_of(*rows: Any, max_steps: int = 5) -> hs.SearchStrategy[list[Step]]:
    """Steps of changes, one for each type of rows; at least one step.

    Among the steps are empty ones, ones that take back a part of what came before, and ones that
    delete everything.
    """

    @hs.composite
    def stream(draw: hs.DrawFn) -> list[Step]:
        steps: list[Step] = []
        nothing: Step = tuple(ZSetPython() for _ in rows)
        for _ in range(draw(hs.integers(1, max_steps))):
            so_far = add_up(steps, nothing)
            match draw(
                hs.sampled_from(("new", "new", "new", "delete some", "delete all", "empty"))
            ):
                case "new":
                    steps.append(tuple(draw(zsets_of(r)) for r in rows))
                case "delete some":
                    steps.append(tuple(draw(_parts_of(z)) for z in so_far))
                case "delete all":
                    steps.append(tuple(-z for z in so_far))
                case _:
                    steps.append(nothing)
        return steps

    return stream()


def _parts_of(z: ZSetPython[Any]) -> hs.SearchStrategy[ZSetPython[Any]]:
    pairs = sorted(z.iter(), key=repr)
    kept = hs.lists(hs.booleans(), min_size=len(pairs), max_size=len(pairs))
    return kept.map(
        lambda keep: ZSetPython([(r, -n) for (r, n), k in zip(pairs, keep, strict=True) if k])
    )


def add_up(steps: Sequence[Step], nothing: Step) -> Step:
    """The sum of steps, input by input."""
    total = nothing
    for step in steps:
        total = tuple(a + b for a, b in zip(total, step, strict=True))
    return total


def shuffled(steps: Sequence[Step], source: random.Random, many: int) -> list[Step]:
    """The same changes, row by row in another order, in so many steps."""
    width = len(steps[0])
    dealt: list[list[list[tuple[Any, int]]]] = [[[] for _ in range(width)] for _ in range(many)]
    for step in steps:
        for i, z in enumerate(step):
            for row, n in z.iter():
                for _ in range(abs(n)):
                    source.choice(dealt)[i].append((row, 1 if n > 0 else -1))
    return [tuple(ZSetPython(pairs) for pairs in step) for step in dealt]
