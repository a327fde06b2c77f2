"""Caches: each can be read by its name, whatever else the circuit keeps, in every store."""

from __future__ import annotations

from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.base.errors import CompileError
from tests.every_store import MakeStore

ONE, TWO = st.Cache[int](name="one"), st.Cache[int](name="two")


def same_stream(a: st.ZSet[int]) -> st.ZSet[int]:
    total = st.integrate(a)
    _ = ONE[a](lambda _: total)
    _ = TWO[a](lambda _: total)
    return a


def equal_functions(a: st.ZSet[int]) -> st.ZSet[int]:
    _ = ONE[a](lambda a: st.integrate(a))
    _ = TWO[a](lambda a: st.integrate(a))
    return a


def one_key(a: st.ZSet[int]) -> st.ZSet[int]:
    for cache in (ONE, TWO):
        _ = cache[a](lambda a: st.integrate_indexed(a, indexes=(lambda n: n,)))
    return a


def keys_in_another_order(a: st.ZSet[st.Pair[int, int]]) -> st.ZSet[int]:
    pairs = [st.Cache[st.Pair[int, int]](name=name) for name in ("one", "two")]
    left, right = (lambda p: p.left), (lambda p: p.right)
    _ = pairs[0][a](lambda a: st.integrate_indexed(a, indexes=(left, right)))
    _ = pairs[1][a](lambda a: st.integrate_indexed(a, indexes=(right, left)))
    return st.map(a, f=lambda p: p.left)


def last_change(a: st.ZSet[int]) -> st.ZSet[int]:
    _ = ONE[a](lambda a: a)
    _ = TWO[a](lambda a: a)
    return a


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize(
    "query", [same_stream, equal_functions, one_key, keys_in_another_order, last_change]
)
def test_two_caches_of_one_value_can_both_be_read(
    make_store: MakeStore, query: Any, optimize: bool
) -> None:
    graph = st.compile(query, optimize=optimize)
    pairs = query is keys_in_another_order
    row = st.Pair[int, int] if pairs else int
    caches = [st.Cache[row](name=name) for name in ("one", "two")]  # type: ignore[valid-type]
    store = make_store(graph)
    expected: dict[Any, int] = {}
    for step in ({1: 1, 2: 2}, {2: -2, 3: 1}):
        change = {st.Pair(left=n, right=-n) if pairs else n: w for n, w in step.items()}
        st.iteration(store, graph, (st.ZSetPython(change),))
        expected = {} if query is last_change else expected
        expected = {r: expected.get(r, 0) + change.get(r, 0) for r in {**expected, **change}}
        store = make_store.reopen(store, graph)
        for cache in caches:
            assert dict(cache.zset(store).to_python().iter()) == {
                r: n for r, n in expected.items() if n
            }


@pytest.mark.parametrize("name", ["_staging_orders", f"_staging_{'0' * 32}", "_output_1_"])
def test_a_cache_cannot_be_named_as_the_tables_of_a_store_are(name: str) -> None:
    cache = st.Cache[int](name=name)

    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        _ = cache[a](lambda a: st.integrate(a))
        return a

    with pytest.raises(CompileError, match=rf"test_cache.*{name}.*give it another name="):
        st.compile(query)
