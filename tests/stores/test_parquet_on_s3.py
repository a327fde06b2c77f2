"""The Parquet store on an object store: the contract, and two writers that cannot see locks."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock
from uuid import uuid4

import pyarrow.fs as pafs
import pytest
from moto.server import ThreadedMotoServer

from stepping_spark.base.errors import StoreCorrupt, StoreLocked, StoreUnavailable
from stepping_spark.relations.store import Register, Store
from stores.contract.store import StoreContract
from stores.contract.values import BY_WORD, WHOLE, Create, Reopen, add, as_it_is, content, row
from stores.parquet import fencing
from stores.parquet import s3 as obstore_on_s3
from stores.parquet.directories import ObjectDirectory, directory_of
from stores.parquet.fencing import CLAIMS, Claim
from stores.parquet.inspection import ParquetState
from stores.parquet.store import StoreParquet
from tests.stores.lives import told
from tests.stores.test_two_writers import run
from tests.stores.two_writers import at
from tests.stores.two_writers_of_files import (
    CALLS,
    MORE_CALLS,
    Leases,
    elsewhere,
    simulated_processes,
)

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


@pytest.mark.turn(3)
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


@contextmanager
def requests() -> Iterator[list[str]]:
    """The requests that the server gets within the block: their methods."""
    log, found = logging.getLogger("werkzeug"), list[str]()
    before, propagates = log.level, log.propagate

    class Counting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    counting = Counting()
    log.addHandler(counting)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield found
    finally:
        log.removeHandler(counting)
        log.setLevel(before)
        log.propagate = propagates


def test_a_small_step_takes_few_requests(s3: pafs.FileSystem, path: str) -> None:
    # Files of rows and the manifest are written, old files removed, and two see who else writes.
    steps = 12
    with opened(s3, path) as store:
        for i in range(5):
            step(store, f"before {i}")
        with requests() as found:
            for i in range(steps):
                step(store, f"word {i}")
    assert 2 * steps <= len(found) <= 6 * steps, found


@pytest.mark.parametrize("whole_bytes", [0, obstore_on_s3.WHOLE_BYTES])
def test_files_are_read_without_asking_for_their_size(
    s3: pafs.FileSystem, path: str, monkeypatch: pytest.MonkeyPatch, whole_bytes: int
) -> None:
    monkeypatch.setattr(obstore_on_s3, "WHOLE_BYTES", whole_bytes)
    with opened(s3, path) as store:
        for word in "abc":
            step(store, word)
    with StoreParquet(path, [BY_WORD], read_only=True, filesystem=s3) as store:
        with requests() as found:
            assert content(store, BY_WORD) == words("abc")
        of_rows = [line for line in found if "/data/" in line]
        assert of_rows
        assert not [line for line in of_rows if "HEAD" in line]
        if whole_bytes:
            assert len(of_rows) == store.batches(BY_WORD.name)


def test_a_file_that_is_shorter_than_it_was_is_damaged(
    s3: pafs.FileSystem, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore_on_s3, "WHOLE_BYTES", 0)
    with opened(s3, path) as store:
        step(store, "a")
    (file,) = s3.get_file_info(pafs.FileSelector(f"{path}/data"))
    with StoreParquet(path, [BY_WORD], read_only=True, filesystem=s3) as store:
        with s3.open_output_stream(file.path) as cut:
            cut.write(b"PAR1")
        with pytest.raises(StoreCorrupt, match=r"data/.*cannot be read as Parquet"):
            content(store, BY_WORD)


def test_who_holds_a_store_is_told(s3: pafs.FileSystem, path: str) -> None:
    said = pytest.raises(StoreLocked, match=r"process \d+ on .* since.*or wait 60 seconds")
    with opened(s3, path), elsewhere(), said:
        opened(s3, path)


def words(of: str) -> dict[Any, tuple[int, ...]]:
    """The content of the register, with these letters as its words."""
    return {row(w, 1): (1,) for w in of}


@pytest.mark.parametrize("to_files", [False, True], ids=["to S3", "to files"])
def test_a_state_is_copied_while_its_writer_goes_on(
    s3: pafs.FileSystem, path: str, tmp_path: Path, *, to_files: bool
) -> None:
    to = str(tmp_path / "copy") if to_files else f"{path} copy"
    system = None if to_files else s3
    copied = ParquetState(to, filesystem=system)
    with opened(s3, path) as store:
        step(store, "a")
        copied.copy_from(ParquetState(path, filesystem=s3), {"of the copy": 7})
        step(store, "b")
        with StoreParquet(to, [BY_WORD], filesystem=system) as copy:
            assert copy.last_offsets() == {"of the copy": 7}
            assert content(copy, BY_WORD) == words("a")
            step(copy, "c")
            assert content(copy, BY_WORD) == words("ac")
        assert content(store, BY_WORD) == words("ab")
    assert copied.verify().problems == []


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_lease_does_not_depend_on_the_clock_of_those_who_look_at_it(
    s3: pafs.FileSystem, path: str, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    with opened(s3, path) as store, monkeypatch.context() as patch:
        for name in ("time", "monotonic"):
            clock = getattr(time, name)
            patch.setattr(time, name, lambda clock=clock: clock() + 3600 * hours)
        assert f"process {os.getpid()} on" in str(ParquetState(path, filesystem=s3).summary())
        with elsewhere(), pytest.raises(StoreLocked):
            opened(s3, path)
        step(store, "a")


def test_a_lease_runs_out_and_the_writer_that_was_overtaken_cannot_commit(
    s3: pafs.FileSystem, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = opened(s3, path)
    step(slow, "a")
    with elsewhere():
        with monkeypatch.context() as patch:
            patch.setattr(fencing, "LEASE", -60.0)
            fast = opened(s3, path)
        step(fast, "b")
    for _ in range(2):
        with pytest.raises(StoreLocked, match="overtaken"):
            step(slow, "lost")
    with elsewhere():
        step(fast, "c")
        fast.close()
    with pytest.raises(StoreLocked, match="overtaken"):
        step(slow, "lost")
    slow.close()
    with opened(s3, path) as store:
        assert content(store, BY_WORD) == words("abc")
        assert store.last_step() == 3


def test_a_lease_is_renewed_while_a_store_is_open_also_after_an_error_and_not_after(
    s3: pafs.FileSystem, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []
    read = ObjectDirectory.read

    def fails_once(directory: ObjectDirectory, name: str) -> bytes:
        if name == fencing.LEASE_FILE and not failed:
            failed.append(name)
            raise OSError("the network is down")
        return read(directory, name)

    monkeypatch.setattr(fencing, "LEASE", 0.3)
    others = set(threading.enumerate())
    store = opened(s3, path)
    directory = directory_of(path, s3)
    before = directory.status(fencing.LEASE_FILE)
    monkeypatch.setattr(ObjectDirectory, "read", fails_once)
    until = time.monotonic() + 20
    while directory.status(fencing.LEASE_FILE) == before:
        assert time.monotonic() < until, "it was not renewed"
        time.sleep(0.05)
    assert failed
    renewers = [t for t in threading.enumerate() if t.name == "stepping-spark-lease"]
    renewers = [t for t in renewers if t not in others]
    assert renewers
    store.close()
    assert directory.status(fencing.LEASE_FILE) is None
    for thread in renewers:
        thread.join(20)
        assert not thread.is_alive()


def test_a_lease_that_is_removed_is_made_again_and_a_store_that_is_collected_renews_none(
    s3: pafs.FileSystem,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also after a renewal that failed, though the handler of the log keeps its record."""

    def fails(*_: object) -> NoReturn:
        raise OSError("the network is down")

    monkeypatch.setattr(fencing, "LEASE", 0.3)
    others = set(threading.enumerate())
    store = opened(s3, path)
    directory = directory_of(path, s3)
    directory.remove([fencing.LEASE_FILE])
    until = time.monotonic() + 20
    while directory.status(fencing.LEASE_FILE) is None:
        assert time.monotonic() < until, "it was not made again"
        time.sleep(0.05)
    begun = set(threading.enumerate()) - others
    renewers = [t for t in begun if t.name == "stepping-spark-lease"]
    assert len(renewers) == 1
    monkeypatch.setattr(ObjectDirectory, "read", fails)
    while not any("the network is down" in r.getMessage() for r in caplog.records):
        assert time.monotonic() < until, "no renewal failed"
        time.sleep(0.05)
    del store
    gc.collect()
    for thread in renewers:
        thread.join(20)
        assert not thread.is_alive()


def test_of_many_that_create_a_file_at_once_one_succeeds(
    s3: pafs.FileSystem, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = directory_of(path, s3)
    monkeypatch.setattr(ObjectDirectory, "status", lambda *_: None)  # who looks sees none
    made: list[bytes] = []

    def makes(number: int) -> None:
        with suppress(FileExistsError):
            directory.create("claims/one.json", b"%d" % number)
            made.append(b"%d" % number)

    threads = [threading.Thread(target=makes, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert directory.excludes
    assert made == [directory.read("claims/one.json")]


def test_without_obstore_two_that_open_at_once_see_each_other(
    s3: pafs.FileSystem, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore_on_s3, "INSTALLED", False)
    assert not directory_of(path, s3).excludes
    with opened(s3, path) as store:
        step(store, "a")
    checks = Claim._check_alone
    others: list[StoreLocked] = []

    def checks_beside(claim: Claim) -> None:
        """Another writer claims at the moment at which this one does."""
        if not others:
            others.append(StoreLocked())
            directory_of(path, s3).write(f"{CLAIMS}/{claim.generation:08d}-another.json", b"{}")
        checks(claim)

    monkeypatch.setattr(Claim, "_check_alone", checks_beside)
    with pytest.raises(StoreLocked, match="another writer is opening the state at this moment"):
        opened(s3, path)
    with opened(s3, path) as store:
        step(store, "b")
        assert store.last_step() == 2


class OnS3(Leases):
    """The place of a state on S3."""

    def __init__(self, filesystem: pafs.FileSystem) -> None:
        super().__init__(directory_of(f"bucket/{uuid4().hex}", filesystem))

    @contextmanager
    def watched(self) -> Iterator[None]:
        with simulated_processes(), ExitStack() as patches:
            for name in (*CALLS, *MORE_CALLS):
                call = told(getattr(ObjectDirectory, name), name, at)
                patches.enter_context(mock.patch.object(ObjectDirectory, name, call))
            patches.enter_context(mock.patch.object(fencing, "renewing", self.renewing))
            directory_of = "stores.parquet.store.directory_of"
            patches.enter_context(mock.patch(directory_of, return_value=self._directory))
            yield

    def open_writer(self) -> Store:
        return StoreParquet("s3", [BY_WORD, WHOLE], create=True)

    def open_reader(self) -> Store:
        return StoreParquet("s3", [BY_WORD, WHOLE], read_only=True)

    def break_lock(self) -> None:
        self._directory.remove([fencing.LEASE_FILE])


def test_of_several_writers_each_step_that_was_reported_is_in_the_state(
    s3: pafs.FileSystem,
) -> None:
    assert run(lambda: OnS3(s3), 2, 15).counts["step, done"] > 2


@pytest.mark.long
def test_of_several_writers_each_step_that_was_reported_is_in_the_state_for_long(
    s3: pafs.FileSystem,
) -> None:
    print(run(lambda: OnS3(s3), 30, 40).counts)


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
        with elsewhere(), pytest.raises(StoreLocked):
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


@pytest.mark.parametrize("has_scheme", [False, True])
def test_an_endpoint_may_have_its_scheme(s3: Any, path: str, has_scheme: bool) -> None:
    endpoint = s3.__reduce__()[1][0]["endpoint_override"]
    override = f"http://{endpoint}" if has_scheme else f"{endpoint}&scheme=http"
    uri = f"s3://key:secret@{path}?region=us-east-1&endpoint_override={override}"
    with StoreParquet(uri, [BY_WORD], create=True) as store:
        step(store, "a")
        assert len(content(store, BY_WORD)) == 1


def test_an_endpoint_that_nobody_answers_at_is_an_error_of_one_line(path: str) -> None:
    place = "region=us-east-1&scheme=http&endpoint_override=localhost:1"
    with pytest.raises(
        StoreUnavailable, match=r"http://localhost:1/.* check that it can be r"
    ) as e:
        StoreParquet(f"s3://key:secret@{path}?{place}", [BY_WORD])
    assert "\n" not in str(e.value)


@pytest.mark.turn(2)
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
