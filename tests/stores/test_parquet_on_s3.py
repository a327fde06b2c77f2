"""The Parquet store on an object store: the contract, and two writers that cannot see locks."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from uuid import uuid4

import pyarrow.fs as pafs
import pytest
from moto.server import ThreadedMotoServer

from stepping_spark.errors import StoreLocked, StoreUnavailable
from stepping_spark.store import Register, Store
from stores import locks
from stores.contract import StoreContract
from stores.contract_rows import BY_WORD, Create, Reopen, add, as_it_is, content, row
from stores.parquet import StoreParquet
from stores.parquet_inspection import ParquetState

SECRET = "not to be shown"


@pytest.fixture(scope="module")
def s3() -> Iterator[pafs.FileSystem]:
    """An S3 of this process, with the bucket `bucket`."""
    # It would log each request, and the contract takes what is logged for trouble.
    requests = logging.getLogger("werkzeug")
    level = requests.level
    requests.setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = ThreadedMotoServer(port=0, verbose=False)
        server.start()
    host, port = server.get_host_and_port()
    filesystem = pafs.S3FileSystem(
        access_key="key",
        secret_key=SECRET,
        region="us-east-1",
        scheme="http",
        endpoint_override=f"{host}:{port}",
        allow_bucket_creation=True,
    )
    filesystem.create_dir("bucket")
    yield filesystem
    server.stop()
    requests.setLevel(level)


class TestOnS3(StoreContract):
    commits = 40

    @pytest.fixture
    def paths(self) -> dict[int, str]:
        return {}

    @pytest.fixture
    def create(self, s3: pafs.FileSystem, paths: dict[int, str]) -> Create:
        def made(registers: Sequence[Register]) -> Store:
            path = f"bucket/{uuid4().hex}"
            store = StoreParquet(path, registers, create=True, filesystem=s3)
            paths[id(store)] = path
            return store

        return made

    @pytest.fixture
    def rival(self, s3: pafs.FileSystem, paths: dict[int, str]) -> Reopen:
        return lambda store, registers: StoreParquet(paths[id(store)], registers, filesystem=s3)

    @pytest.fixture
    def reopen(self, rival: Reopen) -> Reopen:
        def again(store: Store, registers: Sequence[Register]) -> Store:
            store.close()
            return rival(store, registers)

        return again


def opened(s3: pafs.FileSystem, path: str) -> StoreParquet:
    return StoreParquet(path, [BY_WORD], create=True, filesystem=s3)


def step(store: StoreParquet, word: str) -> None:
    add(store, BY_WORD, as_it_is, [(word, 1, 1)])
    store.commit(store.last_step() + 1, None)


@pytest.fixture
def path() -> str:
    return f"bucket/{uuid4().hex}"


def test_who_holds_a_store_is_told(s3: pafs.FileSystem, path: str) -> None:
    with opened(s3, path), pytest.raises(StoreLocked, match=r"process \d+ on .* since"):
        opened(s3, path)


def test_a_claim_runs_out_and_the_writer_that_was_overtaken_cannot_commit(
    s3: pafs.FileSystem, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = opened(s3, path)
    step(slow, "a")
    monkeypatch.setattr(locks, "LEASE", -60.0)
    with opened(s3, path) as fast:
        monkeypatch.undo()
        step(fast, "b")
        for _ in range(2):
            with pytest.raises(StoreLocked, match="overtaken"):
                step(slow, "lost")
        step(fast, "c")
    with pytest.raises(StoreLocked, match="overtaken"):
        step(slow, "lost")
    slow.close()
    with opened(s3, path) as store:
        assert content(store, BY_WORD) == {row(w, 1): (1,) for w in "abc"}
        assert store.last_step() == 3


def test_a_state_is_looked_at_beside_its_writer_and_compacted_after_it(
    s3: pafs.FileSystem, path: str
) -> None:
    state = ParquetState(path, filesystem=s3)
    with pytest.raises(StoreUnavailable, match=r"no registers\.json, and nothing else"):
        state.summary()
    with StoreParquet(path, [BY_WORD], create=True, filesystem=s3) as store:
        for step in range(1, 4):
            add(store, BY_WORD, as_it_is, [(f"w{step}", step, 1)])
            store.commit(step, None)
        found = state.summary()
        assert (found.step, f"process {os.getpid()} on " in str(found.holder)) == (3, True)
        assert state.verify().problems == []
        with pytest.raises(StoreLocked):
            state.compact()
    assert state.summary().holder is None
    state.compact()
    ((kept,), problems) = state.summary().registers, state.verify().problems
    assert (kept.rows, kept.batches, problems) == (3, 1, [])
    with StoreParquet(path, [BY_WORD], filesystem=s3) as store:
        assert len(content(store, BY_WORD)) == 3


def test_a_reader_follows_a_writer(s3: pafs.FileSystem, path: str) -> None:
    with (
        opened(s3, path) as writer,
        StoreParquet(path, [BY_WORD], read_only=True, filesystem=s3) as reader,
    ):
        for i in range(12):
            step(writer, f"w{i}")
            assert len(content(reader, BY_WORD)) == i + 1


def test_files_of_steps_long_past_are_removed(s3: pafs.FileSystem, path: str) -> None:
    with opened(s3, path) as store:
        for i in range(12):
            step(store, f"w{i}")
    found = s3.get_file_info(pafs.FileSelector(path, recursive=True))
    assert len([i for i in found if i.type == pafs.FileType.File]) < 20


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_secrets_are_not_shown(s3: pafs.FileSystem, path: str, scheme: str) -> None:
    uri = (
        f"{scheme}://key:{SECRET.replace(' ', '%20')}@{path}"
        "?scheme=http&endpoint_override=localhost:1&region=us-east-1"
    )
    with pytest.raises(StoreUnavailable) as caught:
        StoreParquet(uri, [BY_WORD])
    shown = str(caught.value) + repr(StoreParquet(uri)) + repr(caught.value.__cause__)
    assert path in shown
    assert SECRET not in shown
    assert SECRET.replace(" ", "%20") not in shown
    with pytest.raises(StoreUnavailable) as caught:
        StoreParquet(f"nothing://key:{SECRET}@{path}")
    assert SECRET not in f"{caught.value!r}{caught.value.__cause__!r}"
