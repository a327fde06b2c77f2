"""A step that is repeated after the query has changed: no other query's outputs answer it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.plan.planner import plan_of
from stepping_spark.relations.relation import DriverRelation
from tests.every_store import InFiles, MakeStore

NUMBERS = st.ZSetPython({1: 1, 2: 1, 3: 1})


def query_of(*views: Callable[[st.ZSet[int]], st.ZSet[int]], optimize: bool = True) -> Any:
    """A graph that keeps the same state whatever its views are."""

    def query(numbers: st.ZSet[int]) -> Any:
        kept = st.distinct(numbers)
        return tuple(view(kept) for view in views)

    return st.compile(query, optimize=optimize)


def filtered(kept: st.ZSet[int]) -> st.ZSet[int]:
    return st.filter(kept, f=lambda x: x > 1)


def filtered_anew(kept: st.ZSet[int]) -> st.ZSet[int]:
    return st.filter(kept, f=lambda x: x > 2)


def below_a_map(kept: st.ZSet[int]) -> st.ZSet[int]:
    return st.map(filtered(kept), f=lambda x: x + 1)


def below_another_map(kept: st.ZSet[int]) -> st.ZSet[int]:
    return st.map(filtered_anew(kept), f=lambda x: x + 1)


def in_python(kept: st.ZSet[int]) -> st.ZSet[int]:
    return st.map(kept, f=st.python(lambda x: x + 1, to=int))


def otherwise_in_python(kept: st.ZSet[int]) -> st.ZSet[int]:
    return st.map(kept, f=st.python(lambda x: x + 2, to=int))


def looped(kept: st.ZSet[int]) -> st.ZSet[int]:
    with st.feedback(st.ZSet[int]) as y:
        y.connect(st.delay(st.filter(st.add(kept, y), f=lambda x: x > 1)))
    return st.add(kept, y)


def otherwise_looped(kept: st.ZSet[int]) -> st.ZSet[int]:
    with st.feedback(st.ZSet[int]) as y:
        y.connect(st.delay(st.filter(st.add(kept, y), f=lambda x: x > 2)))
    return st.add(kept, y)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param((filtered,), (filtered_anew,), r"0: filter .* > 1\] then.* > 2\] now", id="f"),
        pytest.param(
            (below_a_map,), (below_another_map,), "0: map .* of other streams", id="before a map"
        ),
        pytest.param(
            (in_python,), (otherwise_in_python,), "0: map .* with another function", id="Python"
        ),
        pytest.param((filtered,), (filtered, below_a_map), "1 then, 2 now", id="an output more"),
        pytest.param((filtered, below_a_map), (filtered,), "2 then, 1 now", id="an output less"),
    ],
)
def test_the_last_step_is_not_answered_for_a_query_that_did_not_take_it(
    spark: object, make_store: MakeStore, before: Any, after: Any, said: str
) -> None:
    old, new = query_of(*before), query_of(*after)
    store = make_store(old)
    first = st.Stepper(old, store).step((NUMBERS,), step=1)
    again = make_store.reopen(store, new)
    with pytest.raises(st.StoreError, match=said) as caught:
        st.Stepper(new, again).step((NUMBERS,), step=1)
    assert "step 2" in str(caught.value)
    assert again.last_step() == 1
    last = make_store.reopen(again, old)
    assert st.Stepper(old, last).step((NUMBERS,), step=1) == first


def test_what_is_fed_back_counts_too() -> None:
    old, new, same = query_of(looped), query_of(otherwise_looped), query_of(looped)
    assert old.made_by == same.made_by != new.made_by


def test_the_rules_of_the_optimizer_do_not_make_another_query_of_it(spark: object) -> None:
    def query(numbers: st.ZSet[int]) -> st.ZSet[int]:
        return filtered(st.map(numbers, f=lambda x: x + 1))

    plain, optimized = (st.compile(query, optimize=optimize) for optimize in (False, True))
    store = st.StoreMemory.from_graph(plain)
    first = st.Stepper(plain, store).step((NUMBERS,), step=1)
    assert st.Stepper(optimized, store).step((NUMBERS,), step=1) == first


def test_a_step_of_a_state_that_does_not_say_who_took_it_is_not_answered(
    spark: object, make_store: MakeStore
) -> None:
    graph = query_of(filtered)
    store = make_store(graph)
    stepper = st.Stepper(graph, store)
    stepper.step((NUMBERS,), step=1)
    plan = plan_of(graph)
    store.commit(2, 2, [DriverRelation.empty(plan.output_schemas[0])])  # as versions before did
    with pytest.raises(st.StoreError, match=r"does not say which query gave its outputs.*step 3"):
        stepper.step((NUMBERS,), step=2)
    stepper.step((st.ZSetPython({5: 1}),), step=3)
    assert stepper.step((None,), step=3) == (st.ZSetPython({5: 1}),)


def test_a_manifest_of_a_version_that_did_not_keep_the_query_can_still_be_opened(
    spark: object, tmp_path: Path
) -> None:
    graph = query_of(filtered)
    make_store = InFiles(tmp_path)
    store = make_store(graph)
    st.Stepper(graph, store).step((NUMBERS,), step=1)
    (newest,) = tmp_path.glob("*/manifests/*-000000000001-*.json")
    body = json.loads(newest.read_text())["manifest"]
    del body["made_by"]
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    newest.write_text(json.dumps({"manifest": body, "sha256": digest}))
    again = make_store.reopen(store, graph)
    assert again.last_step() == 1
    with pytest.raises(st.StoreError, match="does not say which query"):
        st.Stepper(graph, again).step((NUMBERS,), step=1)
    st.Stepper(graph, again).step((NUMBERS,), step=2)
    make_store.close()
