"""Cases that catch wrong versions of an operator, where no other test has them by name."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

import pytest

import stepping_spark as st
from tests.cases import Z

both = pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "as written"])


def outputs(query: Callable[..., Any], *steps: Any, optimize: bool) -> list[Any]:
    """What each step gives."""
    reference = st.reference(st.compile(query, optimize=optimize))
    return [out for step in steps for out in reference.step(step)]


Interval = tuple[str, int, int]


def present(rows: st.ZSet[Interval]) -> st.ZSet[str]:
    there = st.temporal_filter(rows, lower=lambda row: row[1], upper=lambda row: row[2])
    return st.map(there, f=lambda row: row[0])


@both
def test_temporal_a_row_that_is_inserted_after_upper_is_never_there(optimize: bool) -> None:
    steps = [(None,), (None,), (Z({("late", 1, 2): 1}),), (None,), (None,)]
    assert outputs(present, *steps, optimize=optimize) == [Z()] * 5


@both
def test_temporal_a_row_that_is_deleted_before_lower_is_never_there(optimize: bool) -> None:
    row = ("early", 3, 5)
    steps = [(Z({row: 1}),), (Z({row: -1}),), (None,), (None,), (None,), (None,)]
    assert outputs(present, *steps, optimize=optimize) == [Z()] * 6


@both
def test_temporal_weights_multiply_and_the_later_time_counts(optimize: bool) -> None:
    rows = Z({("old", 1, 4): 2, ("new", 3, 9): -1})
    found = outputs(present, (None,), (rows,), (None,), (None,), optimize=optimize)
    assert found == [Z(), Z({"old": 2}), Z({"new": -1}), Z({"old": -2})]


@both
def test_distinct_is_not_left_out_after_a_subtraction(optimize: bool) -> None:
    def query(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[int]:
        return st.distinct(st.add(st.distinct(a), st.neg(st.distinct(b))))

    steps = [(Z({1: 1, 2: 1}), Z({2: 1, 3: 1})), (None, Z({2: -1, 3: -1}))]
    assert outputs(query, *steps, optimize=optimize) == [Z({1: 1}), Z({2: 1})]


@both
def test_a_string_in_another_normal_form_is_another_key(optimize: bool) -> None:
    def query(a: st.ZSet[str], b: st.ZSet[str]) -> st.ZSet[st.Pair[str, str]]:
        return st.join(a, b, on_left=lambda s: s, on_right=lambda s: s)

    composed, apart = "Zoë", unicodedata.normalize("NFD", "Zoë")
    found = outputs(query, (Z({composed: 1}), Z({composed: 1, apart: 1})), optimize=optimize)
    assert found == [Z({st.Pair(left=composed, right=composed): 1})]


@pytest.mark.driver
def test_a_python_function_is_called_once_for_a_row_and_step() -> None:
    called: list[str] = []

    def length(word: str) -> int:
        called.append(word)
        return len(word)

    def query(words: st.ZSet[str]) -> tuple[st.ZSet[int], st.ZSet[int], st.ZSet[int]]:
        lengths = st.map(words, f=st.python(length))
        return lengths, st.distinct(lengths), st.count(lengths)

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    stepper.step((Z({"a": 2, "bb": 1}),))
    assert sorted(called) == ["a", "bb"]
    stepper.step((Z({"a": -1, "ccc": 1}),))
    assert sorted(called) == ["a", "a", "bb", "ccc"]
