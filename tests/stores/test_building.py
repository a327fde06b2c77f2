"""Large changes that another thread sorts: a step that fails, ends early, or comes late."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stepping_spark.base.errors import StepError, StoreError
from stepping_spark.relations.relation import DriverRelation
from stepping_spark.relations.store import Register, Store
from stores import threads
from stores.batches import driver
from stores.contract.values import BY_WORD, WORDS, content, relation_of, row
from stores.memory import StoreMemory
from stores.parquet.store import StoreParquet

MANY = relation_of(WORDS, [(f"word {i}", i, 1) for i in range(20_000)])


@pytest.fixture(params=["memory", "parquet"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store
    if request.param == "memory":
        made = StoreMemory([BY_WORD])
    else:
        made = StoreParquet(tmp_path / "state", [BY_WORD], create=True)
    yield made
    made.close()


def test_a_failure_to_sort_ends_the_step_at_its_commit(store: Store) -> None:
    wrong = relation_of(WORDS, [("a", 1, 2**62), *([("b", 1, 1)] * 20_000), ("a", 1, 2**62)])
    store.add(BY_WORD.name, wrong)
    with pytest.raises(StepError):
        store.commit(1, None)
    assert store.last_step() == 0
    store.add(BY_WORD.name, MANY)
    store.commit(1, None)
    assert len(content(store, BY_WORD)) == 20_000


def test_a_store_that_is_closed_while_it_sorts_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closes(*given: Any) -> driver.DriverBatch:
        made = built(*given)
        store.close()
        return made

    built = driver.built
    monkeypatch.setattr(driver, "built", closes)
    store.add(BY_WORD.name, MANY)
    with pytest.raises(StoreError, match="closed"):
        store.commit(1, None)


def test_a_store_that_is_closed_before_it_sorts_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close() -> None:
        store.close()
        go_on.set()

    go_on = threading.Event()
    with ThreadPoolExecutor(1) as busy:
        monkeypatch.setattr(threads, "_sorters", lambda: busy)
        busy.submit(go_on.wait)
        store.add(BY_WORD.name, MANY)
        closing = threading.Timer(0.2, close)
        closing.start()
        with pytest.raises(StoreError, match="closed"):
            store.commit(1, None)
        closing.join()


def test_an_aborted_step_sorts_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def counted(change: DriverRelation, register: Register) -> driver.DriverBatch:
        begun.append(register.name)
        return built(change, register)

    built = driver.built
    monkeypatch.setattr(driver, "built", counted)
    go_on = threading.Event()
    with ThreadPoolExecutor(1) as busy:
        monkeypatch.setattr(threads, "_sorters", lambda: busy)
        busy.submit(go_on.wait)
        store.add(BY_WORD.name, MANY)
        store.abort()
        go_on.set()
    assert not begun
    monkeypatch.undo()
    store.add(BY_WORD.name, relation_of(WORDS, [("a", 1, 1)]))
    store.commit(1, None)
    assert content(store, BY_WORD) == {row("a", 1): (1,)}


@pytest.mark.parametrize("which", ["_pool", "_sorters"])
def test_a_step_is_taken_while_the_interpreter_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    monkeypatch.setattr(threads, which, lambda: ended)
    store.add(BY_WORD.name, MANY)
    store.commit(1, None)
    assert len(content(store, BY_WORD)) == 20_000


def test_what_another_thread_raises_is_raised_where_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    begin: Callable[[Callable[[], int]], Any]
    for begin in (threads.later, threads.sorted_later):
        assert begin(lambda: 7).result() == 7
        with monkeypatch.context() as patch:
            patch.setattr(threads, "_pool", lambda: ended)
            patch.setattr(threads, "_sorters", lambda: ended)
            failing = begin(lambda: 1 // 0)
        with suppress(ZeroDivisionError):
            failing.result()
            raise AssertionError("no error")
