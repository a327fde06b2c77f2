"""The Parquet store on a local directory: the contract, and what can happen to files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepping_spark.errors import StoreError
from stepping_spark.schema import Schema
from stepping_spark.store import Held, Register, Store
from stores import file_merges, parquet_files, tiers
from stores.contract import StoreContract
from stores.contract_rows import BY_WORD, WHOLE, Create, Reopen, add, content, keys_table, row
from stores.parquet import StoreParquet


def as_it_is(table: pa.Table, _: Schema) -> Held:
    return table


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


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merges take many steps, and batches have many files and row groups."""
    make_small(monkeypatch)


def make_small(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tiers, "SLICE", 8)
    patch.setattr(parquet_files, "GROUP_ROWS", 4)
    patch.setattr(file_merges, "GROUP_ROWS", 4)
    patch.setattr(parquet_files, "FILE_ROWS", 12)


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
        st.tuples(st.just("commit"), st.booleans()),
        st.tuples(st.sampled_from(["abort", "compact", "reopen"]), st.none()),
    ),
    max_size=40,
)


@given(moves=moves, wanted=st.sets(st.sampled_from([None, "", "a", "b", "c", "d"])))
@pytest.mark.parametrize("cache_bytes", [0, 10**9])
def test_what_is_read_is_what_a_dictionary_of_sums_has(
    tmp_path_factory: pytest.TempPathFactory,
    cache_bytes: int,
    moves: list[tuple[str, Any]],
    wanted: set[str | None],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        path = tmp_path_factory.mktemp("state")
        store = opened(path, cache_bytes)
        committed: dict[Any, int] = {}
        pending: dict[Any, int] = {}
        for what, value in moves:
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
                store.close()
                store = opened(path, cache_bytes)
            else:
                store.abort()
            if what == "compact":
                store.compact()
            pending = {}
            expected = {key: (n,) for key, n in committed.items() if n}
            assert content(store, WHOLE) == content(store, BY_WORD) == expected
            asked, _ = keys_table(BY_WORD, [(w,) for w in wanted])
            words = {row(w)[1] for w in wanted}
            assert {k: n for k, n in expected.items() if k[1] in words}.items() <= content(
                store, BY_WORD, asked
            ).items()
        store.close()


def opened(path: Path, cache_bytes: int) -> StoreParquet:
    return StoreParquet(path, [BY_WORD, WHOLE], create=True, cache_bytes=cache_bytes)


def test_a_row_is_rewritten_a_logarithmic_number_of_times(
    tmp_path: Path, small_slices: None
) -> None:
    with StoreParquet(tmp_path / "state", [BY_WORD], create=True) as store:
        for step in range(1, 301):
            add(store, BY_WORD, as_it_is, [(f"w{step}", i, 1) for i in range(3)])
            store.commit(step, None)
            assert store.batches(BY_WORD.name) <= 20
        assert 900 <= store.rows_written[BY_WORD.name] <= 900 * 10
        assert len(content(store, BY_WORD)) == 900


def test_a_merge_under_way_is_given_up_when_the_store_is_closed(
    tmp_path: Path, small_slices: None
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
