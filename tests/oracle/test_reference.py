"""The plain-Python evaluator: each operator's meaning, and circuits against whole tables."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

import stepping_spark as st
from stepping_spark.circuit import graph as fixpoint
from stepping_spark.circuit import operators
from stepping_spark.language import linear
from stepping_spark.reference.semantics import MEANING
from tests.cases import ROOT, A, B, Z
from tests.queries import CIRCUITS, QUERIES, Circuit, Query
from tests.strategies import Step, add_up, shuffled, streams_of

NAN = float("nan")


class Maybe(st.Data):
    k: int | None
    f: float | None = None


class Two(st.Data):
    n: int
    f: float


BOB, JEFF = A(x=1, name="Bob"), A(x=2, name="Jeff")
BY_A = st.Index.pick(A, lambda a: a.name)
BY_B = st.Index.pick(B, lambda b: b.name)

every_query = pytest.mark.parametrize("query", QUERIES, ids=str)
every_circuit = pytest.mark.parametrize("circuit", CIRCUITS, ids=str)
both = pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "as written"])


def run(query: Callable[..., Any], *steps: Sequence[object], optimize: bool = True) -> list[Any]:
    """The outputs of each step: the one output, or a tuple of them."""
    graph = compiled(query, optimize)
    reference = st.reference(graph)
    given = [reference.step(step) for step in steps]
    return [g[0] for g in given] if graph.single else given


@functools.cache
def compiled(query: Callable[..., Any], optimize: bool) -> st.Graph[Any, Any]:
    return st.compile(query, optimize=optimize)


@functools.cache
def incremental(query: Query) -> Callable[..., Any]:
    return st.incrementalize(query.whole)


def test_every_operator_has_a_meaning() -> None:
    defined = {
        c
        for module in (operators, fixpoint)
        for c in vars(module).values()
        if inspect.isclass(c)
        and issubclass(c, operators.Operator)
        and not c.__name__.startswith("_")
    }
    # What is common to several is none itself; the leaves of a body, and of a circuit per group,
    # have a value given, or are replaced.
    common = {operators.Operator, operators.Temporal, operators.ByWatermark, operators.Placeholder}
    common |= {operators.Same, operators.KeepsSigns, operators.GivesSets, operators.RowByRow}
    common |= {fixpoint.Recursive, fixpoint.Outside}
    assert set(MEANING) == defined - common


# -- the operators


def test_delay_gives_the_value_of_the_step_before() -> None:
    def query(a: st.ZSet[str]) -> st.ZSet[str]:
        return st.delay(a)

    assert run(query, (Z({"first": 1}),), (Z({"second": 1}),), (None,), (None,)) == [
        Z(),
        Z({"first": 1}),
        Z({"second": 1}),
        Z(),
    ]


@both
def test_integrate_gives_the_sum_of_all_values(optimize: bool) -> None:
    def query(a: st.ZSet[str]) -> st.ZSet[str]:
        return st.integrate(a)

    steps = [(Z({"a": 1}),), (Z({"b": -1}),), (Z({"a": 4}),)]
    found = run(query, *steps, optimize=optimize)
    assert found == [Z({"a": 1}), Z({"a": 1, "b": -1}), Z({"a": 5, "b": -1})]


@both
def test_differentiate_gives_the_value_less_the_one_before(optimize: bool) -> None:
    def query(a: st.ZSet[str]) -> st.ZSet[str]:
        return st.differentiate(a)

    steps = [(Z({"a": 1}),), (Z({"a": 1, "b": -1}),), (Z({"a": 5, "b": -1}),)]
    found = run(query, *steps, optimize=optimize)
    assert found == [Z({"a": 1}), Z({"b": -1}), Z({"a": 4})]


def test_integrate_delay_gives_the_sum_before_the_step() -> None:
    def query(a: st.ZSet[str]) -> st.ZSet[str]:
        return st.integrate_delay_indexed(a, indexes=(st.Index.identity(str),))

    assert run(query, (Z({"a": 1}),), (Z({"a": 2}),), (None,)) == [Z(), Z({"a": 1}), Z({"a": 3})]


@both
def test_the_dumb_join_gives_the_changes_of_the_join(optimize: bool) -> None:
    def query(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[st.Pair[A, B]]:
        a_integrated = st.integrate(a)
        b_integrated = st.integrate(b)
        joined = linear.join(a_integrated, b_integrated, on_left=BY_A, on_right=BY_B)
        return st.differentiate(joined)

    three, four = (st.Pair(left=BOB, right=B(y=y, name="Bob")) for y in (3, 4))
    steps = [
        (Z({BOB: 1, JEFF: 1}), Z({B(y=3, name="Bob"): 1})),
        (Z(), Z({B(y=4, name="Bob"): 2})),
        (Z({BOB: -1}), Z()),
    ]
    found = run(query, *steps, optimize=optimize)
    assert found == [Z({three: 1}), Z({four: 2}), Z({three: -1, four: -2})]


def test_a_loop_reads_this_steps_value_of_what_it_is_connected_to() -> None:
    def query(a: st.ZSet[str]) -> st.ZSet[str]:
        with st.feedback(cast(Any, st.ZSet[str])) as doubled:
            added: st.ZSet[str] = st.add3(a, doubled, doubled)
            doubled.connect(st.delay(added))
        return added

    assert run(query, (Z({"a": 1}),), (None,), (Z({"a": -4}),)) == [Z({"a": 1}), Z({"a": 2}), Z()]


def test_map_adds_up_rows_that_become_one() -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[str]:
        return st.map(a, f=lambda r: r.name)

    rows = Z({BOB: 2, A(x=9, name="Bob"): 3, JEFF: 1, A(x=7, name="Jeff"): -1})
    assert run(query, (rows,)) == [Z({"Bob": 5})]


def test_map_many_counts_repeats_and_makes_nothing_of_nothing() -> None:
    def letters(word: str) -> list[str]:
        return list(word)

    def query(a: st.ZSet[str]) -> st.ZSet[str]:
        return st.map_many(a, f=st.python(letters))

    assert run(query, (Z({"aba": 2, "b": -1, "": 5}),)) == [Z({"a": 4, "b": 1})]


def test_filter_keeps_what_is_true_and_null_is_not() -> None:
    def query(a: st.ZSet[Maybe]) -> st.ZSet[Maybe]:
        return st.filter(a, f=lambda r: cast(Any, r.k) > 1)

    rows = Z({Maybe(k=None): 1, Maybe(k=1): 1, Maybe(k=2): -3})
    assert run(query, (rows,)) == [Z({Maybe(k=2): -3})]


def test_null_keys_match_nothing_and_nan_matches_nan_and_zeros_are_one() -> None:
    def query(a: st.ZSet[Maybe], b: st.ZSet[Maybe]) -> st.ZSet[st.Pair[Maybe, Maybe]]:
        return st.join(a, b, on_left=lambda r: (r.k, r.f), on_right=lambda r: (r.k, r.f))

    def rows(zero: float) -> st.ZSetPython[Maybe]:
        pairs = [(None, None), (None, 1.0), (1, None), (1, NAN), (2, zero), (3, 1.0)]
        return Z({Maybe(k=k, f=f): 2 for k, f in pairs})

    (joined,) = run(query, (rows(0.0), rows(-0.0)))
    assert {(p.left.k, n) for p, n in joined.iter()} == {(1, 4), (2, 4), (3, 4)}


def test_a_join_with_itself_multiplies_weights() -> None:
    def query(a: st.ZSet[int]) -> st.ZSet[st.Pair[int, int]]:
        return st.join(a, a, on_left=lambda r: r, on_right=lambda r: r)

    one = st.Pair(left=1, right=1)
    found = run(query, (Z({1: 2}),), (Z({1: 1}),), (Z({1: -3}),))
    assert found == [Z({one: 4}), Z({one: 5}), Z({one: -9})]


def test_distinct_and_haitch_tell_of_rows_that_come_and_go() -> None:
    def query(a: st.ZSet[str]) -> tuple[st.ZSet[str], st.ZSet[str]]:
        return st.distinct(a), st.haitch(st.integrate_delay(a), a)

    steps = [(Z({"a": 2, "b": -1}),), (Z({"a": -1, "b": 2}),), (Z({"a": -1}),)]
    for found in zip(*run(query, *steps), strict=True):
        assert list(found) == [Z({"a": 1}), Z({"b": 1}), Z({"a": -1})]


def test_numbers_flow_as_streams() -> None:
    def query(a: int, b: float, c: Decimal) -> tuple[int, float, Decimal, st.ZSet[int]]:
        return st.integrate(a), st.neg(st.integrate(b)), st.delay(c), st.make_set(a)

    assert run(query, (3, 1e16, Decimal("1.5")), (-3, 1.0, 2), (None, -1e16, None)) == [
        (3, -1e16, Decimal(0), Z({3: 1})),
        (0, -1e16, Decimal("1.5"), Z({-3: 1})),
        (0, -1.0, Decimal(2), Z({0: 1})),
    ]


@both
def test_a_large_float_does_not_swallow_a_small_one(optimize: bool) -> None:
    def query(a: st.ZSet[float]) -> st.ZSet[float]:
        return st.reduce(a, zero=float, pick_value=lambda x: x)

    steps = [(Z({1e16: 1}),), (Z({1.0: 1}),), (Z({1e16: -1}),)]
    found = run(query, *steps, optimize=optimize)
    assert found == [Z({1e16: 1}), Z(), Z({1e16: -1, 1.0: 1})]


def test_a_reduction_has_one_row_from_the_first_step_on() -> None:
    def query(a: st.ZSet[str]) -> st.ZSet[int]:
        return st.count(a)

    found = run(query, (None,), (Z({"a": 2, "b": 1}),), (Z({"a": -2, "b": -1}),), (None,))
    assert found == [Z({0: 1}), Z({0: -1, 3: 1}), Z({3: -1, 0: 1}), Z()]


def test_a_group_is_there_while_it_has_rows() -> None:
    def query(a: st.ZSet[Maybe]) -> st.ZSet[st.Pair[int, float | None]]:
        return st.group_reduce_flatten(
            a, by=lambda r: r.f, zero=int, pick_value=lambda r: cast(int, r.k)
        )

    def group(total: int, key: float | None = 1.0) -> st.Pair[int, float | None]:
        return st.Pair(left=total, right=key)

    plus, minus, null = Maybe(k=5, f=1.0), Maybe(k=-5, f=1.0), Maybe(k=None, f=None)
    steps = [(Z({plus: 1, null: 1}),), (Z({minus: 1}),), (Z({plus: -1, minus: -1}),)]
    assert run(query, *steps) == [
        Z({group(5): 1, group(0, None): 1}),
        Z({group(5): -1, group(0): 1}),
        Z({group(0): -1}),
    ]


def test_groups_of_rows_may_hold_any_row() -> None:
    def query(a: st.ZSet[str]) -> st.ZSet[st.Pair[st.ZSetPython[str], bool]]:
        return st.group_reduce_flatten(
            a, by=lambda s: s == "c", zero=Z, pick_value=st.agg.collect(lambda s: s)
        )

    (found,) = run(query, (Z({"a": 1, "rows": 2, "c": -1}),))
    group: Callable[..., Any] = st.Pair
    assert found == Z(
        {
            group(left=Z({"a": 1, "rows": 2}), right=False): 1,
            group(left=Z({"c": -1}), right=True): 1,
        }
    )


def test_rows_of_numbers_are_added_field_by_field() -> None:
    def query(a: st.ZSet[Two]) -> st.ZSet[Two]:
        return st.reduce(a, zero=lambda: Two(n=0, f=0.0), pick_value=lambda r: r)

    (found,) = run(query, (Z({Two(n=1, f=0.5): 2, Two(n=4, f=-1.0): 1}),))
    assert found == Z({Two(n=6, f=0.0): 1})


def test_identity_print_prints_its_value_at_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    def query(a: st.ZSet[str], n: int) -> tuple[st.ZSet[str], int]:
        return st.identity_print(a, "words"), st.identity_print(n, "number")

    z = Z({"a": 1})
    assert run(query, (z, 7)) == [(z, 7)]
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(
        f"words: {z!r}\nnumber: 7".splitlines()
    )


def test_a_cache_can_be_looked_at() -> None:
    cache = st.Cache[str](name="words")

    def query(a: st.ZSet[str]) -> st.ZSet[str]:
        _ = cache[a](lambda a: st.integrate(a))
        return a

    reference = st.reference(st.compile(query))
    assert reference.caches["words"] == Z()
    reference.step((Z({"a": 1}),))
    reference.step((Z({"b": 1}),))
    assert reference.caches["words"] == Z({"a": 1, "b": 1})


def test_a_chain_may_be_long() -> None:
    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        for _ in range(3000):
            a = st.neg(a)
        return a

    assert run(query, (Z({1: 1}),), optimize=False) == [Z({1: 1})]


# -- errors


def test_a_step_that_fails_changes_nothing() -> None:
    def query(a: st.ZSet[int]) -> tuple[st.ZSet[int], st.ZSet[float]]:
        return st.integrate(a), st.map(a, f=lambda x: 1 / x)

    reference = st.reference(st.compile(query))
    reference.step((Z({1: 1}),))
    with pytest.raises(st.StepError, match=r"map .*test_reference.py.*1 / _value_.*row 0: div"):
        reference.step((Z({2: 1, 0: 1}),))
    assert reference.step((None,)) == (Z({1: 1}), Z())


def test_a_python_function_that_raises_is_named_with_its_row() -> None:
    def careless(word: str) -> int:
        return int(word)

    def query(a: st.ZSet[str]) -> st.ZSet[int]:
        return st.map(a, f=st.python(careless))

    reference = st.reference(st.compile(query))
    with pytest.raises(st.StepError, match=r"careless failed for the row 'x': ValueError") as e:
        reference.step((Z({"1": 1, "x": 1}),))
    assert isinstance(e.value.__cause__, ValueError)


def test_a_python_function_that_gives_another_type_is_refused() -> None:
    def query(a: st.ZSet[str]) -> st.ZSet[int]:
        return st.map(a, f=st.python(lambda word: cast(Any, word), to=int))

    with pytest.raises(st.StepError, match=r"row 'x': its value: expected int, found 'x' \(str\)"):
        run(query, (Z({"x": 1}),))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Z({2**61: 8}), "the sum = .*beyond 64 bits"),
        (Z({2**62 + 1: 1}), "beyond 64 bits"),
        (Z({1: 2**62}), "the weight 9223372036854775808 of .*beyond 64 bits"),
    ],
)
def test_what_does_not_fit_64_bits_is_an_error(change: Any, message: str) -> None:
    def query(a: st.ZSet[int]) -> tuple[st.ZSet[int], st.ZSet[int], st.ZSet[int]]:
        doubled = st.map(a, f=lambda x: x + x)
        return st.add(a, a), doubled, st.reduce(a, zero=int, pick_value=lambda x: x)

    reference = st.reference(st.compile(query))
    with pytest.raises(st.StepError, match=message):
        reference.step((change,))
    assert reference.step((None,))[2] == Z({0: 1})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((Z(),), r"has 2 inputs \(people, limit\), found 1 value"),
        ((Z(), 1, None), r"has 2 inputs \(people, limit\), found 3 value"),
        (Z(), r"takes a tuple .* \(people, limit\), found ZSetPython"),
        (([BOB], 1), r"input 'people': expected ZSet\[A\], found list"),
        ((Z({"Bob": 1}), 1), r"input 'people': expected A, found 'Bob' \(str\)"),
        ((Z({A(x=cast(Any, "1"), name="Bob"): 1}), 1), r"input 'people', field 'x': expected int"),
        ((Z({A(x=2**63, name="Bob"): 1}), 1), r"input 'people', field 'x': .*beyond the 64 bits"),
        ((Z({BOB: 2**63}), 1), r"input 'people', count of A\(.*\): .*beyond the 64 bits"),
        ((Z(), 1.5), r"input 'limit': expected int, found 1.5 \(float\)"),
        ((Z(), Z()), r"input 'limit': expected int, found .*ZSetPython"),
    ],
)
def test_an_input_that_does_not_fit_is_named(inputs: Any, message: str) -> None:
    def query(people: st.ZSet[A], limit: int) -> tuple[st.ZSet[A], int]:
        return st.integrate(people), st.integrate(limit)

    reference = st.reference(st.compile(query))
    reference.step((Z({BOB: 1}), 1))
    with pytest.raises(st.InputError, match=f"(?s){message}"):
        reference.step(inputs)
    assert reference.step((None, None)) == (Z({BOB: 1}), 1)


def test_what_only_spark_can_evaluate_is_refused_with_the_remedy(spark: object) -> None:
    from pyspark.sql import functions as F

    def query(a: st.ZSet[str]) -> st.ZSet[str]:
        return st.map(a, f=lambda s: cast(Any, F.base64(cast(Any, s))), to=str)

    with pytest.raises(st.StepError, match=r"plain Python cannot evaluate .* st\.python"):
        run(query, (Z({"a": 1}),))


# -- the oracle


def outputs(given: Any) -> tuple[Any, ...]:
    return given if isinstance(given, tuple) else (given,)


def summed(found: Sequence[Any]) -> tuple[Any, ...]:
    """The sum of each output over the steps."""
    return add_up([outputs(f) for f in found[1:]], outputs(found[0]))


def on_the_whole(query: Query, steps: Sequence[Step]) -> tuple[Any, ...]:
    """What the query on tables gives for the sum of the changes."""
    (found,) = run(query.whole, add_up(steps[1:], steps[0]), optimize=False)
    return outputs(found)


@every_query
@settings(max_examples=10)
@given(data=hs.data())
def test_the_sum_of_outputs_is_the_query_on_the_sum_of_inputs(
    query: Query, data: hs.DataObject
) -> None:
    steps = data.draw(streams_of(*query.rows))
    found = run(query.changes, *steps)
    assert summed(found) == on_the_whole(query, steps)
    assert found == run(query.changes, *steps, optimize=False)


@every_circuit
@given(data=hs.data())
def test_rules_do_not_change_what_a_circuit_gives(circuit: Circuit, data: hs.DataObject) -> None:
    steps = data.draw(streams_of(*circuit.rows))
    assert run(circuit.changes, *steps) == run(circuit.changes, *steps, optimize=False)


@every_query
@pytest.mark.turn(2)
@settings(max_examples=10)
@given(data=hs.data())
def test_a_query_on_tables_is_made_one_on_changes(query: Query, data: hs.DataObject) -> None:
    steps = data.draw(streams_of(*query.rows))
    found = run(incremental(query), *steps)
    assert found == run(query.changes, *steps)
    assert found == run(incremental(query), *steps, optimize=False)


@every_query
@pytest.mark.turn(2)
@settings(max_examples=10)
@given(data=hs.data(), seed=hs.integers(0, 2**32), many=hs.integers(1, 6))
def test_it_does_not_matter_how_changes_are_dealt_into_steps(
    query: Query, data: hs.DataObject, seed: int, many: int
) -> None:
    steps = data.draw(streams_of(*query.rows))
    expected = summed(run(query.changes, *steps))
    at_once = [add_up(steps[1:], steps[0])]
    assert summed(run(query.changes, *at_once)) == expected
    dealt = shuffled(steps, random.Random(seed), many)
    assert summed(run(query.changes, *dealt)) == expected


def test_no_java_is_needed() -> None:
    code = """
        import stepping_spark as st
        from pyspark import SparkContext
        from tests.queries import CIRCUITS, QUERIES

        for query in (*QUERIES, *CIRCUITS):
            for f in (query.changes, getattr(query, "whole", query.changes)):
                reference = st.reference(st.compile(f))
                reference.step(tuple(None for _ in query.rows))
        assert SparkContext._gateway is None
        """
    run = subprocess.run(
        [sys.executable, "-c", inspect.cleandoc(code)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": os.devnull},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr


@both
def test_a_row_that_is_made_of_constants_is_of_its_class_like_any_other(optimize: bool) -> None:
    def query(a: st.ZSet[Maybe]) -> st.ZSet[Maybe]:
        return st.add(a, st.map(a, f=lambda r: Maybe(k=1, f=r.f)))

    one = Maybe(k=None)
    found = run(query, (Z({one: 1}),), optimize=optimize)
    assert found == [Z({one: 1, Maybe(k=1): 1})]


@both
def test_a_date_is_moved_by_whole_days(optimize: bool) -> None:
    def query(a: st.ZSet[dt.date]) -> st.ZSet[tuple[dt.date, dt.date, dt.date]]:
        two = dt.timedelta(days=2)
        return st.map(a, f=lambda day: (day + two, two + day, day - two))

    (found,) = run(query, (Z({dt.date(2024, 2, 28): 1}),), optimize=optimize)
    march = dt.date(2024, 3, 1)
    assert found == Z({(march, march, dt.date(2024, 2, 26)): 1})
