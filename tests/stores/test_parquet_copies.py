"""Large files of a Parquet state, copied to files that are mapped once many keys are looked up."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given

import stepping_spark as st
from stepping_spark.relations.store import Store
from stores.batches import mapped
from stores.batches.driver import DriverBatch
from stores.contract.values import BY_WORD, WHOLE, add, as_it_is, content, keys_relation, row
from stores.parquet import files
from stores.parquet.store import StoreParquet
from tests.cases import constants
from tests.stores.model import Move, hold_against_sums, moves, words
from tests.stores.test_parquet import in_small_parts

LITTLE = 2_000  # bytes of a cache, with room for a few row groups
ROWS = 400


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where copies are: a folder that has nothing else."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with in_small_parts(), constants(copied_rows=4):
        yield folder


def copies(store: StoreParquet) -> int:
    """How many files are copied; each has at least three rows, of some bytes."""
    return len(store._reader._copies._copies)


def word(i: int) -> str:
    return f"w{i}"


def looked_up(store: Store, step: int = 3) -> None:
    """Look up keys all over the register, and hold what is found to what was added."""
    wanted = keys_relation(BY_WORD, [(word(i),) for i in range(0, ROWS, step)])
    expected = {row(word(i), i): (1,) for i in range(0, ROWS, step)}
    found = content(store, BY_WORD, wanted)
    assert expected.items() <= found.items()


def filled(path: Path, cache_bytes: int = LITTLE) -> StoreParquet:
    store = StoreParquet(path, [BY_WORD], create=True, cache_bytes=cache_bytes)
    add(store, BY_WORD, as_it_is, [(word(i), i, 1) for i in range(ROWS)])
    store.commit(1, None)
    return store


@given(made=moves, wanted=words)
def test_what_is_read_is_what_a_dictionary_of_sums_has(
    tmp_path_factory: pytest.TempPathFactory, made: list[Move], wanted: set[str | None]
) -> None:
    path = tmp_path_factory.mktemp("state")

    def opened() -> StoreParquet:
        return StoreParquet(path, [BY_WORD, WHOLE], create=True, cache_bytes=LITTLE)

    def reopen(store: Store) -> Store:
        store.close()
        return opened()

    hold_against_sums(opened(), reopen, made, wanted).close()


def test_files_are_copied_once_they_were_decoded_and_go_with_the_store(
    tmp_path: Path, temporary: Path
) -> None:
    with filled(tmp_path / "state") as store:
        looked_up(store)
        assert not copies(store)  # a state that is read once needs none
        for _ in range(3):
            looked_up(store)
        there = len(list((tmp_path / "state" / "data").iterdir()))
        assert copies(store) == there > 10
        assert store.copied_bytes > 10_000
        decoded = store.cached_bytes
        looked_up(store, 1)
        assert store.cached_bytes == decoded  # nothing was read but copies
        assert not list(temporary.iterdir())  # a process that is killed leaves none
    assert store.copied_bytes == 0


def test_a_copy_goes_when_its_file_leaves_the_state(tmp_path: Path, temporary: Path) -> None:
    with filled(tmp_path / "state") as store:
        for _ in range(4):
            looked_up(store)
        before = copies(store)
        for step in range(2, 30):
            add(store, BY_WORD, as_it_is, [("w1", 10_000 + step, 1)] * 40)
            store.commit(step, None)
        store.compact()
        for step in range(30, 35):
            store.commit(step, None)
        looked_up(store)
        assert copies(store) < before
        for _ in range(4):
            looked_up(store)
        assert copies(store) > 10


def test_reads_of_a_few_keys_make_no_copies(tmp_path: Path, temporary: Path) -> None:
    with constants(rows_per_file=400), filled(tmp_path / "state") as store:
        for i in [*range(0, ROWS, 7), *range(0, ROWS, 7)]:
            wanted = keys_relation(BY_WORD, [(word(i),)])
            assert row(word(i), i) in content(store, BY_WORD, wanted)
        assert not copies(store)
        for _ in range(3):
            looked_up(store)
        assert copies(store) == 1


def test_a_read_copies_no_more_than_it_decodes(tmp_path: Path, temporary: Path) -> None:
    with filled(tmp_path / "state") as store:
        found = [0]
        for _ in range(40):
            looked_up(store, 40)  # 10 row groups of about 34 files
            found.append(copies(store))
        assert max(b - a for a, b in pairwise(found)) <= 4
        assert found[-1] > 4


def test_without_a_cache_there_are_no_copies(tmp_path: Path, temporary: Path) -> None:
    with filled(tmp_path / "state", cache_bytes=0) as store:
        for _ in range(5):
            looked_up(store)
        assert not list(temporary.iterdir())


def test_without_room_for_them_files_are_read_as_before(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=3))
    with filled(tmp_path / "state") as store:
        for _ in range(5):
            looked_up(store)
        assert not copies(store)


@pytest.mark.parametrize("when", ["made", "written"])
def test_a_disk_that_is_full_costs_the_copies_only(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    if when == "made":
        monkeypatch.setattr(tempfile, "mkstemp", full)
    else:
        monkeypatch.setattr(mapped, "save", full)
    with filled(tmp_path / "state") as store:
        for _ in range(5):
            looked_up(store)
        assert not copies(store)
        assert not list(temporary.iterdir())


def test_a_file_whose_rows_do_not_fit_into_memory_is_not_copied(tmp_path: Path) -> None:
    filled(tmp_path / "state").close()
    few = st.Limits(given_bytes=3_000)
    with StoreParquet(tmp_path / "state", [BY_WORD], cache_bytes=LITTLE, limits=few) as store:
        wanted = keys_relation(BY_WORD, [(word(i),) for i in range(0, 30, 3)])
        for _ in range(9):
            content(store, BY_WORD, wanted)
        assert not copies(store)


def test_threads_that_read_make_one_copy_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, nameless = [0], mapped.nameless

    def counted(batch: DriverBatch) -> DriverBatch:
        made[0] += 1
        return nameless(batch)

    monkeypatch.setattr(files, "nameless", counted)
    with filled(tmp_path / "state") as store, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: looked_up(store), range(40)))
        assert made[0] == copies(store) > 10


def test_a_snapshot_reads_copies_of_what_is_merged_away_meanwhile(
    tmp_path: Path, temporary: Path
) -> None:
    with filled(tmp_path / "state") as store:
        for _ in range(4):
            looked_up(store)
        with ThreadPoolExecutor(1) as other, store.snapshot():
            gone = [(word(i), i, -1) for i in range(ROWS)]
            other.submit(step_and_compact, store, gone).result()
            looked_up(store)
        wanted = keys_relation(BY_WORD, [(word(i),) for i in range(ROWS)])
        assert content(store, BY_WORD, wanted) == {}


def step_and_compact(store: StoreParquet, rows: list[tuple[str, int, int]]) -> None:
    add(store, BY_WORD, as_it_is, rows)
    store.commit(2, None)
    store.compact()
