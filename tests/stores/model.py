"""A model of a store: a dictionary of sums. What a store reads is held against it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import strategies as st

from stepping_spark.base.errors import StoreError
from stepping_spark.relations.store import Store
from stores.contract.values import (
    BY_WORD,
    WHOLE,
    Content,
    add,
    as_it_is,
    content,
    keys_relation,
    row,
)

Move: TypeAlias = tuple[str, Any]

rows = st.lists(
    st.tuples(
        st.sampled_from([None, "", "a", "b", "c"]),
        st.integers(0, 40),
        st.integers(-3, 3).filter(bool),
    ),
    max_size=30,
)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("add"), rows),
        st.tuples(st.just("commit"), st.booleans()),  # whether the number of the step is right
        st.tuples(st.sampled_from(["abort", "compact", "reopen"]), st.none()),
    ),
    max_size=50,
)
words = st.sets(st.sampled_from([None, "", "a", "b", "c", "d"]))


def hold_against_sums(
    store: Store, reopen: Callable[[Store], Store], made: list[Move], wanted: set[str | None]
) -> Store:
    """Make the moves, and compare all reads, whole and by some words, after each; gives the store.

    The store has the registers `BY_WORD` and `WHOLE`. `reopen` gives up a store for another one.
    """
    committed: dict[Any, int] = {}
    pending: dict[Any, int] = {}
    for what, value in made:
        if what == "add":
            for register in (BY_WORD, WHOLE):
                add(store, register, as_it_is, value)
            for word, length, n in value:
                key = row(word, length)
                pending[key] = pending.get(key, 0) + n
            continue
        if what == "commit" and value:
            store.commit(store.last_step() + 1, None)
            for key, n in pending.items():
                committed[key] = committed.get(key, 0) + n
        elif what == "commit":
            with pytest.raises(StoreError):
                store.commit(store.last_step() + 2, None)
        elif what == "reopen":
            store = reopen(store)
        else:
            store.abort()
        if what == "compact":
            store.compact()
        pending = {}
        _compare(store, {key: (n,) for key, n in committed.items() if n}, wanted)
    return store


def _compare(store: Store, expected: Content, wanted: set[str | None]) -> None:
    assert content(store, WHOLE) == content(store, BY_WORD) == expected
    asked = keys_relation(BY_WORD, [(w,) for w in wanted])
    found = content(store, BY_WORD, asked)
    words = {row(w)[1] for w in wanted}
    assert {k: n for k, n in expected.items() if k[1] in words}.items() <= found.items()
    assert found.items() <= expected.items()


def torn_reads(store: Store, steps: int) -> list[int]:
    """How many counts another thread saw at once, where each step adds one to all words."""
    torn: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            counts = {n for (n,) in content(store, BY_WORD).values()}
            if len(counts) > 1:
                torn.append(len(counts))

    reader = threading.Thread(target=look)
    reader.start()
    for step in range(1, steps + 1):
        add(store, BY_WORD, as_it_is, [(w, 1, 1) for w in "abcdefgh"])
        store.commit(step, None)
    done.set()
    reader.join()
    return torn
