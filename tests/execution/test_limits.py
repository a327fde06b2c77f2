"""Limits: what they may be, how they are given, and whose are in force."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stores.contract.values import BY_WORD, add, as_it_is, keys_relation
from tests.cases import Z


def distinct(a: st.ZSet[int]) -> st.ZSet[int]:
    return st.distinct(a)


def new() -> tuple[Any, st.StoreMemory]:
    graph = st.compile(distinct)
    return graph, st.StoreMemory.from_graph(graph)


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(st.Limits)])
@pytest.mark.parametrize("wrong", [-1, 2.0, True, None, "100"])
def test_a_limit_that_is_no_number_is_refused(name: str, wrong: object) -> None:
    given: Any = {name: wrong}
    with pytest.raises(st.InputError, match=rf"{name}={wrong!r}: expected a number of \w+"):
        st.Limits(**given)


def test_what_zero_does_is_told() -> None:
    with pytest.raises(st.InputError, match=r"local_rows=-1: .* 0 sends everything to Spark"):
        st.Limits(local_rows=-1)
    assert st.Limits(local_rows=0).local_rows == 0


def test_a_name_that_is_no_limit_is_refused_with_those_that_are() -> None:
    wrong: Any = {"local_rows": 7, "cut_rows": 7}
    with pytest.raises(
        st.InputError,
        match=r"test_limits\.py:\d+.*: expected local_rows, task_rows, .*, eager_rows, "
        r"found cut_rows; leave it out",
    ):
        st.Limits(**wrong)
    with pytest.raises(st.InputError, match="found cut_rows; leave it out"):
        dataclasses.replace(st.Limits(), **wrong)
    assert pickle.loads(pickle.dumps(st.Limits(local_rows=7))) == st.Limits(local_rows=7)


def test_each_limit_says_what_it_counts_and_what_is_beyond_it() -> None:
    (found,) = ast.parse(inspect.getsource(st.Limits)).body
    assert isinstance(found, ast.ClassDef)
    said = {}
    for field, text in zip(found.body, found.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(field.target, ast.Name)
            said[field.target.id] = ast.literal_eval(text.value)
    assert list(said) == [f.name for f in dataclasses.fields(st.Limits)]
    for name, text in said.items():
        assert "Beyond" in text, name


def test_local_rows_is_short_for_the_limit() -> None:
    graph, store = new()
    assert st.Stepper(graph, store).limits == st.Limits()
    assert st.Stepper(graph, store, local_rows=7).limits == st.Limits(local_rows=7)
    both = st.Stepper(graph, store, local_rows=7, limits=st.Limits(local_rows=7, eager_rows=1))
    assert both.limits.eager_rows == 1
    with pytest.raises(
        st.InputError, match=r"test_limits\.py:\d+.*local_rows=8, and limits= says local_rows=7"
    ):
        st.Stepper(graph, store, local_rows=8, limits=st.Limits(local_rows=7))


def test_what_is_no_limits_is_refused(tmp_path: Path) -> None:
    graph, store = new()
    wrong: Any = {"local_rows": 7}
    for give in (
        lambda: st.Stepper(graph, store, limits=wrong),
        lambda: st.iteration(store, graph, (None,), limits=wrong),
        lambda: st.actions(store, graph, limits=wrong),
        lambda: st.StoreMemory.from_graph(graph, limits=wrong),
        lambda: st.StoreParquet.from_graph(graph, tmp_path / "s", create=True, limits=wrong),
    ):
        with pytest.raises(st.InputError, match=r"expected st\.Limits, found dict; write limits="):
            give()


def test_a_step_goes_by_the_limits_that_it_is_taken_with() -> None:
    graph, store = new()
    (one,) = st.iteration(store, graph, (Z({1: 2}),), limits=st.Limits(local_rows=50))
    (two,) = st.iteration(store, graph, (Z({2: 2}),))
    stepper = graph.memo["stepper"]
    assert isinstance(stepper, st.Stepper)
    assert stepper.limits == st.Limits()
    (insert_one,) = st.actions(store, graph, limits=st.Limits(local_rows=50))
    assert insert_one.insert(3) == Z({3: 1})
    assert (one, two) == (Z({1: 1}), Z({2: 1}))
    stepper = graph.memo["stepper"]
    assert isinstance(stepper, st.Stepper)
    assert stepper.limits == st.Limits(local_rows=50)


def test_a_store_goes_by_its_own_limits(tmp_path: Path, spark: SparkSession) -> None:
    in_spark: list[bool] = []
    for limits in (st.Limits(given_rows=1), None):
        path = tmp_path / str(len(in_spark))
        with st.StoreParquet(path, [BY_WORD], create=True, spark=spark, limits=limits) as store:
            add(store, BY_WORD, as_it_is, [("a", 1, 1), ("b", 1, 1)])
            store.commit(1, None)
            (rows,) = store.read(BY_WORD.name, keys_relation(BY_WORD, [("a",), ("b",)]))
            in_spark.append(rows.frame is not None)
    assert in_spark == [True, False]
