"""The memory store on the driver: the contract, and its batches against a model."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given

from stepping_spark.base.errors import StepError, StoreError
from stepping_spark.relations.store import Store
from stores.batches.compaction import MERGED_ROWS
from stores.contract.store import StoreContract
from stores.contract.values import (
    BY_WORD,
    WHOLE,
    Create,
    add,
    as_it_is,
    as_table,
    content,
    keys_relation,
    row,
)
from stores.memory import StoreMemory
from tests.cases import MOST, constants
from tests.stores.model import Move, hold_against_sums, moves, torn_reads, words


class TestOnTheDriver(StoreContract):
    @pytest.fixture
    def create(self) -> Create:
        return StoreMemory


@pytest.mark.turn(3)
class TestInSmallSlices(StoreContract):
    """Merges take many steps, and batches are built from many pieces."""

    @pytest.fixture
    def create(self) -> Iterator[Create]:
        with constants(merged_rows=8, sorted_rows=3, piece_rows=1_000):
            yield StoreMemory


# -- batches


@pytest.mark.parametrize("slice_rows", [2, 16, MERGED_ROWS])
@given(made=moves, wanted=words)
def test_what_is_read_is_what_a_dictionary_of_sums_has(
    slice_rows: int, made: list[Move], wanted: set[str | None]
) -> None:
    def same(store: Store) -> Store:
        store.abort()
        return store

    with constants(merged_rows=slice_rows, sorted_rows=2, piece_rows=2 * slice_rows):
        hold_against_sums(StoreMemory([BY_WORD, WHOLE]), same, made, wanted)


@pytest.mark.parametrize("slice_rows", [64, MERGED_ROWS])
def test_a_row_is_rewritten_a_logarithmic_number_of_times(slice_rows: int) -> None:
    store = StoreMemory([BY_WORD])
    with constants(merged_rows=slice_rows):
        for step in range(1, 1_001):
            add(store, BY_WORD, as_it_is, [(f"w{step}", i, 1) for i in range(3)])
            store.commit(step, None)
            assert store.batches(BY_WORD.name) <= 24
    assert 3_000 <= store.rows_written[BY_WORD.name] <= 3_000 * 12


@constants(merged_rows=100)
def test_a_commit_does_a_bounded_piece_of_a_large_merge() -> None:
    store = StoreMemory([BY_WORD])
    for step in (1, 2):
        add(store, BY_WORD, as_it_is, [(f"w{step}", i, 1) for i in range(2_000)])
        store.commit(step, None)
    counts = []
    for step in range(3, 60):
        store.commit(step, None)
        counts.append(store.batches(BY_WORD.name))
    assert counts == sorted(counts, reverse=True)
    assert 35 <= counts.count(2) <= 45
    assert counts[-1] == 1
    assert len(content(store, BY_WORD)) == 4_000


@constants(merged_rows=100)
def test_rows_of_one_key_are_merged_in_pieces_too() -> None:
    store = StoreMemory([BY_WORD])
    for step in (1, 2):
        add(store, BY_WORD, as_it_is, [("w", step * 10_000 + i, 1) for i in range(2_000)])
        store.commit(step, None)
    store.commit(3, None)
    assert store.batches(BY_WORD.name) == 2
    for step in range(4, 60):
        store.commit(step, None)
    assert store.batches(BY_WORD.name) == 1


def test_sums_that_no_column_can_hold_are_kept_apart_and_fail_where_they_are_added_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = StoreMemory([BY_WORD])
    for step in (1, 2):
        add(store, BY_WORD, as_it_is, [("a", 1, MOST)])
        store.commit(step, None)
    with caplog.at_level(logging.WARNING):
        store.commit(3, None)
    assert "words by word" in caplog.text
    caplog.clear()
    for step in range(4, 8):
        add(store, BY_WORD, as_it_is, [("b", step, 1)])
        store.commit(step, None)
    assert not caplog.records
    assert content(store, BY_WORD)[row("a", 1)] == (2 * MOST,)
    with pytest.raises(StepError, match="BIGINT"):
        store.compact()
    add(store, BY_WORD, as_it_is, [("a", 1, -MOST)])
    store.commit(8, None)
    with pytest.raises(StepError, match="BIGINT"):
        add(store, BY_WORD, as_it_is, [("a", 1, MOST), ("a", 1, 1)])
    store.abort()


def test_parts_that_were_read_stay_as_they_were() -> None:
    store = StoreMemory([BY_WORD])
    add(store, BY_WORD, as_it_is, [(f"w{i}", i, 1) for i in range(50)])
    store.commit(1, None)
    parts = store.read(BY_WORD.name)
    before = [as_table(p).to_pylist() for p in parts]
    for step in range(2, 30):
        add(store, BY_WORD, as_it_is, [(f"w{i}", i, -1 if step == 2 else 1) for i in range(50)])
        store.commit(step, None)
    assert [as_table(p).to_pylist() for p in parts] == before


def test_a_register_without_a_key_is_not_read_by_key() -> None:
    store = StoreMemory([WHOLE])
    with pytest.raises(StoreError, match="has none"):
        store.read(WHOLE.name, keys_relation(BY_WORD, [("a",)]))


def test_a_store_that_is_not_open_says_so() -> None:
    with pytest.raises(StoreError, match="never opened; make it"):
        StoreMemory().read("words")


def test_the_step_of_a_thread_that_died_is_forgotten() -> None:
    store = StoreMemory([BY_WORD])
    dying = threading.Thread(target=add, args=(store, BY_WORD, as_it_is, [("a", 1, 1)]))
    dying.start()
    dying.join()
    add(store, BY_WORD, as_it_is, [("b", 1, 1)])
    store.commit(1, None)
    assert content(store, BY_WORD) == {row("b", 1): (1,)}


def test_other_threads_read_while_one_steps() -> None:
    store = StoreMemory([BY_WORD])
    assert not torn_reads(store, steps=79)
