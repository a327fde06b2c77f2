"""What a Parquet store keeps in memory, and in files, does not grow with the number of steps."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from stores.batches.driver import built
from stores.contract.values import BY_WORD, add, as_it_is, content, keys_relation, relation_of
from stores.parquet import files as parquet_files
from stores.parquet.directories import directory_of
from stores.parquet.files import FileReader, FileWriter, content_of
from stores.parquet.manifest import DATA
from stores.parquet.store import StoreParquet
from tests.cases import ROOT


def test_the_cache_counts_about_what_it_takes() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.stores.cache_sizes"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for line in told.stdout.splitlines():
        case, counted, taken = line.split(";")
        assert 1 / 1.5 < int(counted) / int(taken) < 1.5, case


def step(store: StoreParquet, n: int) -> None:
    """Put three words in the place of others, and read some: the state stays as large."""
    come = [(f"w{(3 * n + i) % 400}", i, 1) for i in range(3)]
    go = [(f"w{(3 * (n - 40) + i) % 400}", i, -1) for i in range(3)] if n > 40 else []
    add(store, BY_WORD, as_it_is, [*come, *go])
    store.commit(n, None)
    wanted = keys_relation(BY_WORD, [(f"w{i}",) for i in range(n % 7, 400, 7)])
    content(store, BY_WORD, wanted)


def test_what_was_read_of_deleted_files_leaves_the_cache(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with (
        StoreParquet(state, [BY_WORD], create=True) as store,
        StoreParquet(state, [BY_WORD], read_only=True) as reader,
    ):
        cached: list[tuple[int, int]] = []
        files: list[int] = []
        for n in range(1, 161):
            step(store, n)
            content(reader, BY_WORD)
            cached.append((store.cached_bytes, reader.cached_bytes))
            files.append(sum(1 for _ in state.rglob("*.*")))
        for before, after in zip(
            zip(*cached[40:80], strict=True), zip(*cached[120:], strict=True), strict=True
        ):
            assert max(after) <= 1.5 * max(before)
        assert max(files[120:]) <= 1.5 * max(files[40:80])


def test_row_groups_that_are_read_together_are_kept_each_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "GROUP_ROWS", 1_000)
    directory = directory_of(tmp_path, None)
    directory.make((DATA,))
    batch = built(relation_of(BY_WORD.schema, [(f"w{i}", i, 1) for i in range(50_000)]), BY_WORD)
    writer = FileWriter(directory, "words", content_of(BY_WORD), 100_000)
    writer.append(batch.table, batch.places)
    written = writer.batch()
    reader = FileReader(directory, 600_000)
    before = pa.total_allocated_bytes()
    groups = reader.groups(reader.all_groups(written), BY_WORD)
    rows = sum(len(group.places) for group in groups)
    del groups
    assert rows == 50_000
    assert 300_000 < reader.cached_bytes <= 600_000
    # Arrow's threads may let go of what they have read a moment later.
    until = time.monotonic() + 10
    while pa.total_allocated_bytes() - before > 1.5 * reader.cached_bytes:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert reader.missing(reader.all_groups(written)) < 50
    kept = reader.cached_bytes
    assert reader.table(written, BY_WORD).num_rows == 50_000  # it is large beside the cache
    assert reader.cached_bytes == kept
