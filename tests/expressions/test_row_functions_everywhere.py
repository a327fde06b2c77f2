"""Random functions of rows in every place where one can stand, in each way that computes them.

A case is a place and a function for each of its holes. What it gives, step by step, must be the
same on the driver and in Spark, with the rules and without, and in plain Python where that can
evaluate the functions: the same rows, or an error of the same kind. Many cases are one circuit, so
that they are few queries. One that fails spoils the step of all: which do is found out on the
driver, by halves, and in the other ways each of them is a circuit of its own.

A difference is shown as `Case(...)`, and with the rows of its steps: both can be pasted.
"""

from __future__ import annotations

import functools
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.language.trace import vertex_of
from stepping_spark.rows.types import Struct, unwrap
from stepping_spark.spark.session import with_settings
from tests.cases import INTERPRETED, Z
from tests.row_function_cases import (
    Changes,
    Row,
    a_function,
    a_row,
    function,
    steps_of,
)
from tests.row_function_places import PLACES, ROW, annotation

# With the rules or without, and how many rows the driver takes in each step.
WAYS = {
    "on the driver": (True, (st.Limits.local_rows, st.Limits.local_rows)),
    "on the driver, as written": (False, (st.Limits.local_rows, st.Limits.local_rows)),
    "in Spark, after the driver": (True, (st.Limits.local_rows, 0)),
    "in Spark, as written, after the driver": (False, (st.Limits.local_rows, 0)),
    "in Spark": (True, (0, 0)),
    "in Spark, as written": (False, (0, 0)),
}
FEW = tuple(WAYS)[:3]
ON_THE_DRIVER = tuple(WAYS)[:2]
IN_SPARK = tuple(WAYS)[2:]
NOT_PYTHON = "plain Python cannot evaluate"
_ERROR_CLASS = re.compile(r"\[([A-Z_]{4,})[.\]]")


@dataclass(frozen=True)
class Case:
    """A place, and the text of a function for each of its holes."""

    place: str
    functions: tuple[str, ...]
    failing: bool = False  # whether functions that fail for some rows may be in it

    def build(self, a: Any, b: Any) -> Any:
        return PLACES[self.place].build(a, b, *map(function, self.functions))


@dataclass(frozen=True)
class Failed:
    """A step that failed, and as far as it is known how."""

    error: str

    @classmethod
    def of(cls, e: st.SteppingError) -> Failed:
        found = _ERROR_CLASS.search(str(e))
        return cls(f"{type(e).__name__} {found[1] if found else ''}".strip())


# Of each step; after those that did not fail, what a cache of it holds.
Outcome: TypeAlias = "list[dict[Any, int] | Failed]"


def query_of(cases: Sequence[Case]) -> tuple[Any, list[Any]]:
    """The circuit of all cases, whose rows have the number of their case, by their type.

    The caches of what it gives, too.
    """
    caches: list[Any] = []

    def query(a: st.ZSet[Row], b: st.ZSet[Row]) -> Any:
        by_type: dict[Any, list[Any]] = {}
        for i, case in enumerate(cases):
            made = narrowed(case.build(a, b))
            tagged = st.map(made, f=functools.partial(_numbered, i))
            by_type.setdefault(vertex_of(tagged, "a test").type, []).append(tagged)
        found = [functools.reduce(st.add, same) for same in by_type.values()]
        for i, (type_, output) in enumerate(zip(by_type, found, strict=True)):
            of: Any = st.Cache.__class_getitem__(annotation(type_.row))  # type: ignore[attr-defined]
            cache = of(name=f"given {i}")
            _ = cache[output](st.integrate)
            caches.append(cache)
        return tuple(found)

    del query.__annotations__["return"]  # it is as many as there are types
    return query, caches


def narrowed(made: Any) -> Any:
    """The numbers of rows instead of the rows: Spark's plans are as large as rows are wide."""
    type_: Any = vertex_of(made, "a test").type
    row = type_.row
    if unwrap(row) == ROW:
        return st.map(made, f=lambda r: r.n)
    fields = row.fields if isinstance(row, Struct) and row.python in (st.Pair, tuple) else ()
    if not fields or any(unwrap(t) != ROW for _, t in fields):
        return made
    if row.python is st.Pair:
        return st.map(made, f=lambda r: (r.left.n, r.right.n))
    return st.map(made, f=lambda r: tuple(r[i].n for i in range(len(fields))))


def _numbered(i: int, row: Any) -> Any:
    return i, row


@functools.lru_cache(16)
def compiled(cases: tuple[Case, ...], optimize: bool) -> tuple[Any, list[Any]]:
    """The circuit, and its caches: the same on the driver and in Spark."""
    query, caches = query_of(cases)
    return st.compile(query, optimize=optimize), caches


def outcomes(cases: Sequence[Case], steps: Sequence[Changes], way: str) -> list[Outcome]:
    """What each case gives in each step."""
    optimize, local_rows = WAYS[way]
    graph, caches = compiled(tuple(cases), optimize)
    store = st.StoreMemory.from_graph(graph)
    steppers = {rows: st.Stepper(graph, store, local_rows=rows) for rows in set(local_rows)}
    found: list[Outcome] = [[] for _ in cases]
    for step, rows in zip(steps, local_rows, strict=True):
        try:
            outputs = steppers[rows].step(step)
        except (st.StepError, st.FixpointError) as e:
            if len(cases) > 1:
                half = len(cases) // 2
                return [
                    x for part in (cases[:half], cases[half:]) for x in outcomes(part, steps, way)
                ]
            found[0].append(Failed.of(e))
            continue
        add_outcomes(found, outputs)
    add_outcomes(found, [cache.zset(store) for cache in caches])
    return found


def add_outcomes(found: list[Outcome], outputs: Sequence[Any]) -> None:
    """What a step gave, to what the steps before gave, by case."""
    rows: list[dict[Any, int]] = [{} for _ in found]
    for output in outputs:
        for (i, row), n in output.iter():
            rows[i][row] = n
    for outcome, given in zip(found, rows, strict=True):
        outcome.append(given)


def expected(case: Case, steps: Sequence[Changes]) -> Outcome | None:
    """What plain Python gives; None where it cannot evaluate a function."""
    reference = st.reference(compiled((case,), True)[0])
    found: list[Outcome] = [[]]
    sum_of_outputs: st.ZSetPython[Any] = Z()
    for step in steps:
        try:
            given = reference.step(step)
        except (st.StepError, st.FixpointError) as e:
            if NOT_PYTHON in str(e):
                return None
            found[0].append(Failed.of(e))
            continue
        add_outcomes(found, given)
        sum_of_outputs = sum_of_outputs + given[0]
    add_outcomes(found, [sum_of_outputs])
    return found[0]


def by_case(
    cases: Sequence[Case], steps: Sequence[Changes], way: str, groups: Sequence[Sequence[Case]]
) -> dict[Case, Outcome]:
    """What each case gives, those of a group in one circuit."""
    found = {
        case: outcome
        for group in groups
        if group
        for case, outcome in zip(group, outcomes(group, steps, way), strict=True)
    }
    assert found.keys() == set(cases)
    return found


def fails(outcome: Outcome) -> bool:
    return any(isinstance(x, Failed) for x in outcome)


def differences(
    cases: Sequence[Case], steps: Sequence[Changes], ways: Sequence[str], counts: Counter[str]
) -> Iterator[str]:
    """Where a case gives something else in one way than in another."""
    groups = [[c for c in cases if not c.failing], [c for c in cases if c.failing]]
    by_way = {ways[0]: by_case(cases, steps, ways[0], groups)}
    good = [c for c in cases if not fails(by_way[ways[0]][c])]
    groups = [good, *([c] for c in cases if fails(by_way[ways[0]][c]))]
    by_way |= {way: by_case(cases, steps, way, groups) for way in ways[1:]}
    for case in cases:
        python = expected(case, steps)
        counts["in plain Python too"] += python is not None
        should = by_way[ways[0]][case] if python is None else python
        counts["that fail"] += fails(should)
        for way in ways:
            found = by_way[way][case]
            if not all(map(functools.partial(agree, python is None), found, should)):
                rows = [[dict(z.iter()) for z in step] for step in steps]
                yield f"{case}\n  {way}: {found}\n  should be: {should}\n  steps: {rows}"


def agree(both_spark: bool, a: Any, b: Any) -> bool:
    """Whether two outcomes are the same; Python's errors have no name that Spark's have too."""
    if isinstance(a, Failed) and isinstance(b, Failed):
        return a == b or (not both_spark and a.error.split()[0] == b.error.split()[0])
    return bool(Z(a) == Z(b)) if isinstance(a, dict) and isinstance(b, dict) else False


def some_cases(source: random.Random, places: Sequence[str]) -> list[Case]:
    """A case for each of the places; of those that the library does not refuse to compile."""
    found: list[Case] = []
    for name in places:
        for _ in range(10):
            failing = source.random() < 0.1
            kinds = PLACES[name].kinds
            texts = tuple(a_function(source, k, failing=failing) for k in kinds)
            case = Case(name, texts, failing)
            try:
                compiled((case,), True)
            except st.CompileError:
                continue
            if case not in found:
                found.append(case)
                break
    return found


def check(places: Sequence[str], seed: int, ways: Sequence[str]) -> None:
    """Compare a case for each of the places; in every third seed there are owed rows."""
    source = random.Random(seed)
    cases, counts = some_cases(source, places), Counter[str]()
    steps = steps_of(source, owed=seed % 3 == 2)
    assert len(cases) >= len(places) * 0.75
    found = list(differences(cases, steps, ways, counts))
    print(f"{len(cases)} cases, seed {seed}; {dict(counts)}; {len(found)} differences")
    assert not found, shown(found)


def shown(found: Sequence[str]) -> str:
    """The first few differences."""
    return f"{len(found)} differences:\n" + "\n".join(found[:3])


@pytest.fixture(scope="module", autouse=True)
def without_generated_code(spark: SparkSession) -> Iterator[None]:
    with with_settings(spark, INTERPRETED):
        yield


# Each was read together with what stood beside it in a query.
CONDITIONS = (
    "(r.x > 0) & (r.y > 0)",
    "(r.x > 1) | (r.y > 0)",
    "~(r.x > 0)",
    "r.x == 1",
    "r.x.between(0, 1)",
    "r.t.isNull()",
    "r.s.isin('a', 'AB')",
    "r.y.eqNullSafe(1)",
    "(r.t.isNull(), r.x)",
    "-r.x",
)
BY_KEY = ("join", "semijoin", "delta join, left")


@pytest.mark.turn(3)
@pytest.mark.parametrize("place", BY_KEY)
def test_a_key_that_is_a_condition_is_not_read_with_what_stands_beside_it(place: str) -> None:
    cases = [Case(place, (key,)) for key in CONDITIONS]
    found = list(differences(cases, steps_of(random.Random(1)), FEW, Counter()))
    assert not found, shown(found)


@pytest.mark.turn(6, number=5)
def test_a_key_of_a_decimal_and_a_constant_has_the_type_that_spark_gives_it() -> None:
    cases = [
        Case("delta join of three", (f"st.Pair(left=r.x, right={of})", "r.b"))
        for of in ("r.d * 2", "100 - r.d", "r.d / 3", "r.d % 7", "r.d + r.x")
    ]
    found = list(differences(cases, steps_of(random.Random(1)), FEW, Counter()))
    assert not found, shown(found)


@pytest.mark.slow
@pytest.mark.turn(6)
@pytest.mark.parametrize("part", range(6))
def test_a_function_in_each_place_gives_the_same_in_spark_as_on_the_driver(part: int) -> None:
    check(list(PLACES)[part::6], 0, FEW)


@pytest.mark.turn(3)
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_function_in_each_place_gives_the_same_on_the_driver_as_in_python(seed: int) -> None:
    check(list(PLACES), seed, ON_THE_DRIVER)


def in_order(zset: Any, f: Any, keys: set[Any] | None) -> list[Any]:
    """The keys, rows and counts, or that it failed; as text, in which NaN is NaN."""
    try:
        return [repr(found) for found in zset.iter_by_index(f, match_keys=keys)]
    except st.SteppingError as e:
        return [type(e).__name__]


def check_order(seed: int, functions: int) -> None:
    """Compare what Python and Spark give in the order of a function, and for some of its keys."""
    source = random.Random(seed)
    python = Z([(a_row(source, n), source.choice([1, 2, -1])) for n in range(12)])
    spark = st.ZSetSpark.from_dataframe(python.to_dataframe(), Row, count="_count_")
    compared = 0
    while compared < functions:
        text = a_function(source, "key")
        try:
            keys = {key for key, _, _ in python.iter_by_index(function(text))}
        except st.SteppingError as e:
            if NOT_PYTHON in str(e):
                continue
            keys = set()
        compared += 1
        some = set(source.sample(sorted(keys, key=repr), min(2, len(keys))))
        for wanted in (None, some):
            should = in_order(python, function(text), wanted)
            assert in_order(spark, function(text), wanted) == should, (text, wanted, python)


@pytest.mark.turn(3)
def test_rows_come_by_a_function_in_spark_as_in_python() -> None:
    check_order(1, 6)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_rows_come_by_many_functions_in_spark_as_in_python(seed: int) -> None:
    check_order(seed, 30)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 250))
def test_many_functions_give_the_same_in_every_way(seed: int) -> None:
    source = random.Random(seed)
    # Those that take many queries in Spark come less often.
    weights = [1 if re.search("fixpoint|outer|optional", name) else 4 for name in PLACES]
    check(source.choices(list(PLACES), weights, k=40), seed, (*ON_THE_DRIVER, IN_SPARK[seed % 4]))
