"""The Parquet store on a local directory: the contract, and what can happen to files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from pyspark.sql import SparkSession

from stepping_spark.relations.store import Register, Store
from stores.contract.store import StoreContract
from stores.contract.values import (
    BY_WORD,
    WHOLE,
    Create,
    Reopen,
    add,
    as_it_is,
    content,
    keys_relation,
    row,
)
from stores.parquet import file_validation, files, merges
from stores.parquet.store import StoreParquet
from tests.cases import constants
from tests.stores.model import Move, hold_against_sums, moves, words


@pytest.fixture(autouse=True)
def no_warnings(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Merges that fail are logged: here none may."""
    yield
    assert not caplog.get_records("call")


@pytest.fixture
def places(tmp_path: Path) -> dict[int, Path]:
    """Where each store is, by its id."""
    return {}


@pytest.fixture
def made(tmp_path: Path, places: dict[int, Path]) -> Create:
    def create(registers: Sequence[Register]) -> Store:
        path = tmp_path / uuid4().hex
        store = StoreParquet(path, registers, create=True)
        places[id(store)] = path
        return store

    return create


class TestOnALocalPath(StoreContract):
    @pytest.fixture
    def create(self, made: Create) -> Create:
        return made

    def test_what_cancels_to_zero_leaves_no_batch(self, create: Create) -> None:
        store = create([BY_WORD])
        for step, weight in enumerate((1, -1), 1):
            add(store, BY_WORD, as_it_is, [("a", 1, weight), ("b", 2, weight)])
            store.commit(step, None)
        store.compact()
        assert store.batches(BY_WORD.name) == 0

    @pytest.fixture
    def rival(self, places: dict[int, Path]) -> Reopen:
        return lambda store, registers: StoreParquet(places[id(store)], registers)

    @pytest.fixture
    def reopen(self, rival: Reopen) -> Reopen:
        def again(store: Store, registers: Sequence[Register]) -> Store:
            store.close()
            return rival(store, registers)

        return again


@contextmanager
def in_small_parts() -> Iterator[None]:
    """Merges take many steps, batches have many files, and these many row groups."""
    with (
        pytest.MonkeyPatch.context() as patch,
        constants(merged_rows=8, rows_per_file=12, groups_at_once=3, given_parts=1),
    ):
        for module in (files, merges):
            patch.setattr(module, "GROUP_ROWS", 4)
        yield


@pytest.fixture
def small_parts() -> Iterator[None]:
    with in_small_parts():
        yield


@given(made=moves, wanted=words)
@pytest.mark.parametrize("cache_bytes", [0, 10**9])
def test_what_is_read_is_what_a_dictionary_of_sums_has(
    tmp_path_factory: pytest.TempPathFactory,
    cache_bytes: int,
    made: list[Move],
    wanted: set[str | None],
) -> None:
    with in_small_parts():
        path = tmp_path_factory.mktemp("state")

        def reopen(store: Store) -> Store:
            store.close()
            return opened(path, cache_bytes)

        hold_against_sums(opened(path, cache_bytes), reopen, made, wanted).close()


def opened(path: Path, cache_bytes: int) -> StoreParquet:
    return StoreParquet(path, [BY_WORD, WHOLE], create=True, cache_bytes=cache_bytes)


def test_a_row_is_rewritten_a_logarithmic_number_of_times(
    tmp_path: Path, small_parts: None
) -> None:
    with StoreParquet(tmp_path / "state", [BY_WORD], create=True) as store:
        for step in range(1, 301):
            add(store, BY_WORD, as_it_is, [(f"w{step}", i, 1) for i in range(3)])
            store.commit(step, None)
            assert store.batches(BY_WORD.name) <= 20
        assert 900 <= store.rows_written[BY_WORD.name] <= 900 * 10
        assert len(content(store, BY_WORD)) == 900


@pytest.mark.spark
def test_keys_all_over_a_large_batch_are_found_without_spark(
    tmp_path: Path, spark: SparkSession
) -> None:
    rows = [(f"w{i}", i, 1) for i in range(4 * file_validation.GROUP_ROWS)]
    path = tmp_path / "state"
    with StoreParquet(path, [BY_WORD], create=True, driver_rows=100) as store:
        add(store, BY_WORD, as_it_is, rows)
        store.commit(1, None)
    wanted = keys_relation(BY_WORD, [(w,) for w, _, _ in rows[::7]])
    most = 2 * file_validation.GROUP_ROWS
    with (
        constants(always_searched=most, searched_rows=most),
        StoreParquet(path, [BY_WORD], driver_rows=100) as store,
    ):
        (found,) = store.read(BY_WORD.name, wanted)
        assert found.frame is not None  # rather than to read four row groups
        for word, _, _ in rows[::999]:
            store.read(BY_WORD.name, keys_relation(BY_WORD, [(word,)]))
        parts = store.read(BY_WORD.name, wanted)  # all of which are in memory by now
        assert all(part.table is not None for part in parts)
        assert content(store, BY_WORD, wanted) == {row(w, n): (1,) for w, n, _ in rows[::7]}


def test_a_merge_under_way_is_given_up_when_the_store_is_closed(
    tmp_path: Path, small_parts: None
) -> None:
    for step in range(1, 8):
        with StoreParquet(tmp_path / "state", [BY_WORD], create=True) as store:
            add(store, BY_WORD, as_it_is, [(f"w{step}", i, 1) for i in range(40)])
            store.commit(step, None)
    with StoreParquet(tmp_path / "state", [BY_WORD]) as store:
        assert len(content(store, BY_WORD)) == 280
        named = {f.name for f in (tmp_path / "state" / "data").iterdir()}
        assert named
        for step in range(8, 90):
            store.commit(step, None)
        assert store.batches(BY_WORD.name) == 1
        assert len(content(store, BY_WORD)) == 280
