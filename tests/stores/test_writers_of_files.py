"""One writer of a Parquet state: locks that fail, forks, the same process twice, odd files."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import re
import shutil
import signal
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from stepping_spark.base.errors import StoreCorrupt, StoreError, StoreLocked, StoreMismatch
from stores.contract.values import BY_WORD, WHOLE, add, as_it_is, content
from stores.memory import StoreMemory
from stores.parquet import directories, fencing
from stores.parquet.directories import LocalDirectory
from stores.parquet.fencing import Claim
from stores.parquet.manifest import Log, Manifest
from stores.parquet.store import StoreParquet
from tests.stores.two_writers_of_files import Bucket, elsewhere

REGISTERS = [BY_WORD]
PATIENCE = 60


def step(store: StoreParquet | StoreMemory, word: str) -> None:
    add(store, BY_WORD, as_it_is, [(word, 1, 1)])
    store.commit(store.last_step() + 1, None)


def words(store: StoreParquet | StoreMemory) -> set[str]:
    return {r[1][1].decode() for r in content(store, BY_WORD)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A state after two steps: a and b."""
    with StoreParquet(tmp_path / "state", REGISTERS, create=True) as store:
        for word in "ab":
            step(store, word)
    return tmp_path / "state"


# -- locks that fail


def steps_elsewhere(path: Path, letters: str) -> None:
    """Another process opens the state, takes steps, and closes it."""
    with elsewhere(), StoreParquet(path, REGISTERS) as store:
        for word in letters:
            step(store, word)


def test_a_writer_whose_lock_file_was_removed_is_told_once_another_writes(path: Path) -> None:
    slow = StoreParquet(path, REGISTERS)
    step(slow, "c")
    (path / "lock.json").unlink()
    with elsewhere():
        fast = StoreParquet(path, REGISTERS)
    with pytest.raises(StoreLocked, match=r"is being written by process \d+ on"):
        step(slow, "lost")
    with elsewhere():
        for word in "defghi":  # so that the manifest that the slow one would write is swept
            step(fast, word)
        fast.close()
    with pytest.raises(StoreLocked, match=r"overtaken.*open it again to see"):
        step(slow, "lost")
    slow.close()
    with StoreParquet(path, REGISTERS, read_only=True) as store:
        assert words(store) == set("abcdefghi")


def test_where_locks_do_nothing_the_writer_that_was_overtaken_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    slow = StoreParquet(path, REGISTERS)
    add(slow, BY_WORD, as_it_is, [("lost", 1, 1)])
    steps_elsewhere(path, "defghi")
    with pytest.raises(StoreLocked, match=r"overtaken.*open it again to see"):
        slow.commit(3, None)
    slow.close()
    monkeypatch.undo()
    with StoreParquet(path, REGISTERS, read_only=True) as store:
        assert words(store) == set("abdefghi")


def test_a_lock_file_that_was_removed_is_made_again_at_the_next_step(path: Path) -> None:
    with StoreParquet(path, REGISTERS) as store:
        (path / "lock.json").unlink()
        step(store, "c")
        with elsewhere(), pytest.raises(StoreLocked):
            StoreParquet(path, REGISTERS)
        step(store, "d")


def test_a_writer_that_was_overtaken_keeps_nobody_out(path: Path) -> None:
    slow = StoreParquet(path, REGISTERS)
    (path / "lock.json").unlink()
    steps_elsewhere(path, "c")
    for _ in range(2):
        with pytest.raises(StoreLocked, match=r"overtaken.*open it again to see"):
            step(slow, "lost")
        steps_elsewhere(path, "d")
    slow.close()
    steps_elsewhere(path, "e")


def test_where_there_are_no_hard_links_two_writers_do_not_get_one_claim(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*_: object) -> None:
        raise OSError(errno.EPERM, "no links")

    both, looked = threading.Barrier(2, timeout=2), threading.local()
    real = os.path.exists

    def exists(name: str) -> bool:
        """Both writers look whether a claim is there before one of them makes it."""
        found = real(name)
        if "claims" in str(name) and not hasattr(looked, "once"):
            looked.once = True
            with suppress(threading.BrokenBarrierError):
                both.wait()
        return found

    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(os.path, "exists", exists)
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    got: list[int] = []

    def claim() -> None:
        with suppress(StoreLocked):
            got.append(Claim(LocalDirectory(str(path)), {}).generation)

    threads = [threading.Thread(target=claim) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(got) == len(set(got))
    monkeypatch.setattr(os.path, "exists", real)
    with StoreParquet(path, REGISTERS) as store:
        step(store, "c")
    steps_elsewhere(path, "d")
    with StoreParquet(path, REGISTERS, read_only=True) as store:
        assert words(store) == set("abcd")


@pytest.mark.parametrize("links", [True, False])
def test_whether_a_directory_has_hard_links_is_seen_and_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def no_link(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links")

    if not links:
        monkeypatch.setattr(os, "link", no_link)
    before = sorted(path.rglob("*"))
    assert LocalDirectory(str(path)).excludes == links
    assert sorted(path.rglob("*")) == before


# -- a lock that is kept and released at once


def test_a_lock_that_is_released_while_it_is_kept_stays_released(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fencing.FileLock(LocalDirectory(str(path)))
    (path / "lock.json").unlink()
    there, go = threading.Event(), threading.Event()
    real = fencing._flock

    def waits(handle: int) -> None:
        there.set()
        assert go.wait(PATIENCE)
        real(handle)

    monkeypatch.setattr(fencing, "_flock", waits)
    keeping = threading.Thread(target=lock.keep, args=(lambda: None,))
    keeping.start()
    assert there.wait(PATIENCE)
    releasing = threading.Thread(target=lock.release)
    releasing.start()
    releasing.join(0.1)
    go.set()
    for thread in (keeping, releasing):
        thread.join(PATIENCE)
    steps_elsewhere(path, "c")
    with pytest.raises(StoreLocked, match="has given up the lock"):
        lock.keep(lambda: None)


def test_a_store_that_another_overtakes_while_it_opens_keeps_nobody_out(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fencing.FileLock

    def overtaken(directory: LocalDirectory) -> fencing.FileLock:
        monkeypatch.setattr(fencing, "FileLock", real)
        StoreParquet(path, REGISTERS).close()
        return real(directory)

    monkeypatch.setattr(fencing, "FileLock", overtaken)
    with pytest.raises(StoreLocked, match=r"has opened this state again, at test_writers"):
        StoreParquet(path, REGISTERS)
    steps_elsewhere(path, "c")


# -- leases


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An object store whose leases are renewed by hand."""
    monkeypatch.setattr(fencing, "renewing", lambda _: lambda: None)
    return Bucket()


def test_a_lease_that_another_held_stays_lost_once_that_one_is_closed(bucket: Bucket) -> None:
    slow = fencing.Lease(bucket)
    bucket.now += 2 * fencing.LEASE
    with elsewhere():
        fast = fencing.Lease(bucket)
        slow.renew()
        fast.release()
    slow.renew()
    assert fencing.holder(bucket) is None
    with pytest.raises(StoreLocked, match="open the store again, once"):
        slow.keep(lambda: None)
    with elsewhere():
        fencing.Lease(bucket).release()


def test_a_renewal_that_runs_while_the_store_is_closed_leaves_no_lease(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = fencing.Lease(bucket)
    there, go = threading.Event(), threading.Event()
    real = bucket.write

    def write(name: str, data: bytes) -> None:
        there.set()
        assert go.wait(PATIENCE)
        real(name, data)

    monkeypatch.setattr(bucket, "write", write)
    renewal = threading.Thread(target=lease.renew)
    renewal.start()
    assert there.wait(PATIENCE)
    closing = threading.Thread(target=lease.release)
    closing.start()
    closing.join(0.1)
    go.set()
    for thread in (renewal, closing):
        thread.join(PATIENCE)
    assert fencing.LEASE_FILE not in bucket.files
    lease.renew()
    assert fencing.LEASE_FILE not in bucket.files
    with pytest.raises(StoreLocked, match="has given up the lock"):
        lease.keep(lambda: None)


# -- readers


def test_a_reader_that_opens_the_state_while_its_writer_goes_on_finds_a_later_step(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Log.check

    def goes_on(log: Log, manifest: Manifest) -> None:
        """The writer goes on between the reading of a manifest and the look at its files."""
        monkeypatch.setattr(Log, "check", real)
        with elsewhere(), StoreParquet(path, REGISTERS) as writer:
            for word in "cdef":
                step(writer, word)
                writer.compact()
        real(log, manifest)

    monkeypatch.setattr(Log, "check", goes_on)
    with StoreParquet(path, REGISTERS, read_only=True) as store:
        assert words(store) == set("abcdef")


# -- edited states


def older_copy(path: Path) -> None:
    """Put back manifests and data of a copy, and leave the claims that were made since."""
    copies = {name: path.parent / name for name in ("manifests", "data")}
    for name, copy in copies.items():
        shutil.copytree(path / name, copy)
    for word in ("c", "d"):
        steps_elsewhere(path, word)
    for name, copy in copies.items():
        shutil.rmtree(path / name)
        copy.rename(path / name)


def test_manifests_that_are_older_than_claims_are_refused_each_time_and_say_what_to_do(
    path: Path,
) -> None:
    older_copy(path)
    said = r"claims/00000003\.json says that manifests/00000003-000000000003-.*gone: the last .* 2;"
    for _ in range(3):
        with pytest.raises(StoreCorrupt, match=said):
            StoreParquet(path, REGISTERS)
    shutil.rmtree(path / "claims")
    with StoreParquet(path, REGISTERS) as store:
        assert words(store) == set("ab")
        step(store, "e")
    steps_elsewhere(path, "f")


@pytest.mark.parametrize("folder", ["claims", "manifests"])
def test_a_number_that_no_writer_can_come_after_is_told_by_the_file_that_has_it(
    path: Path, folder: str
) -> None:
    name = "99999999.json" if folder == "claims" else "99999999-000000000002-0000.json"
    planted = path / folder / name
    planted.write_text("{}")
    if folder == "manifests":
        text = max((path / folder).glob("0*")).read_text()
        body = {**json.loads(text)["manifest"], "generation": 99_999_999}
        digest = sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        planted.write_text(json.dumps({"manifest": body, "sha256": digest}))
    with pytest.raises(
        StoreCorrupt, match=rf"there is {folder}/{name}, and no .*: remove {folder}"
    ):
        StoreParquet(path, REGISTERS)
    planted.unlink()
    steps_elsewhere(path, "c")


def test_a_claim_just_before_the_last_number_is_told_at_the_next_opening(path: Path) -> None:
    (path / "claims" / "99999997.json").write_text("{}")
    steps_elsewhere(path, "cd")
    steps_elsewhere(path, "e")
    with pytest.raises(StoreCorrupt, match=r"there is manifests/99999999-.*, and no writer can"):
        StoreParquet(path, REGISTERS)


def test_a_manifest_that_names_a_file_elsewhere_is_corrupt_and_nothing_is_removed(
    path: Path,
) -> None:
    victim = path.parent / "victim"
    victim.write_text("mine")
    for manifest in (path / "manifests").iterdir():
        text = manifest.read_text()
        whole = json.loads(text)
        for batches in whole["manifest"]["registers"].values():
            batches[0][0]["name"] = "data/../../victim"
        body = json.dumps(whole["manifest"], sort_keys=True).encode()
        whole["sha256"] = sha256(body).hexdigest()
        manifest.write_text(json.dumps(whole))
    for read_only in (True, False):
        with pytest.raises(StoreCorrupt, match=r"matching regex .*\.name`"):
            StoreParquet(path, REGISTERS, read_only=read_only)
    assert victim.read_text() == "mine"


def test_the_sweeper_removes_files_of_a_state_only(path: Path) -> None:
    mine = [path / "data" / name for name in ("notes.txt", "a b.parquet")]
    for file in mine:
        file.write_text("mine")
    litter = path / "data" / "0000-x.parquet"
    litter.write_text("half")
    StoreParquet(path, REGISTERS).close()
    assert [file.exists() for file in [*mine, litter]] == [True, True, False]


def test_of_old_claims_only_those_of_a_state_are_removed(path: Path) -> None:
    folder = path / "claims"
    kept = ["notes.txt", "00000000.json.bak", "tmp-notes", "copy of 00000000.json", "lease.json"]
    litter = [
        "00000000.json",
        "00000000-4a.json",
        "tmp-00000000.json-4a",
        "asking-4a.json",
        "tmp-asking-links.json-4alink",
    ]
    long_ago = time.time() - 3 * 86_400
    for name in [*kept, *litter]:
        (folder / name).write_text("mine")
        os.utime(folder / name, (long_ago, long_ago))
    StoreParquet(path, REGISTERS).close()
    there = {p.name for p in folder.iterdir()}
    assert {*kept, *litter} & there == set(kept)


def test_the_files_of_a_state_are_for_its_user_alone(path: Path) -> None:
    old = os.umask(0)
    try:
        with StoreParquet(path.parent / "other", REGISTERS, create=True) as store:
            for word in "abcd":
                step(store, word)
    finally:
        os.umask(old)
    every = [path.parent / "other", *(path.parent / "other").rglob("*")]
    modes = {(p.is_dir(), oct(stat.S_IMODE(p.stat().st_mode))) for p in every}
    assert modes == {(True, "0o700"), (False, "0o600")}


# -- the same process again


def test_the_same_process_takes_over_and_the_store_before_says_so(path: Path) -> None:
    old = StoreParquet(path, REGISTERS)
    step(old, "c")
    add(old, BY_WORD, as_it_is, [("never", 1, 1)])
    new = StoreParquet(path, REGISTERS)
    uses: list[Callable[[], object]] = [
        old.last_step,
        lambda: words(old),
        lambda: old.commit(4, None),
        old.compact,
        lambda: old.open(REGISTERS),
    ]
    for use in uses:
        with pytest.raises(StoreLocked, match=r"again, at test_writers_of_files\.py:\d+.*: use it"):
            use()
    step(new, "d")
    old.abort()
    old.close()
    step(new, "e")
    assert words(new) == set("abcde")
    new.close()


def test_a_store_that_cannot_be_opened_takes_over_nothing(path: Path) -> None:
    with StoreParquet(path, REGISTERS) as store:
        described, manifest = path / "registers.json", max((path / "manifests").iterdir())
        for file, said in ((described, "is not of this state"), (manifest, "is damaged")):
            text = file.read_text()
            file.write_text(text.replace('"length"', '"width"').replace("sha256", "sha"))
            with pytest.raises(StoreCorrupt, match=said):
                StoreParquet(path, REGISTERS)
            file.write_text(text)
        with pytest.raises(StoreMismatch):
            StoreParquet(path, [WHOLE])
        with pytest.raises(StoreError, match="step 7 is not kept"):
            StoreParquet(path, REGISTERS, at_step=7)
        step(store, "c")
        StoreParquet(path, REGISTERS, read_only=True).close()
        step(store, "d")


@pytest.mark.parametrize("moment", ["output", "sync", "create", "_link"])
def test_a_thread_in_the_middle_of_a_step_is_told_when_another_store_takes_over(
    path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    old = StoreParquet(path, REGISTERS)
    there, go = threading.Event(), threading.Event()
    owner: Any = directories if moment == "_link" else LocalDirectory
    if moment == "sync":
        owner, moment = directories, "_sync"
    real = getattr(owner, moment)
    said: list[object] = []

    def waits(*args: Any) -> Any:
        if not there.is_set():
            there.set()
            assert go.wait(PATIENCE)
        return real(*args)

    def takes_a_step() -> None:
        try:
            step(old, "c")
        except StoreLocked as e:
            said.append(str(e))
        else:
            said.append("committed")

    monkeypatch.setattr(owner, moment, waits)
    thread = threading.Thread(target=takes_a_step)
    thread.start()
    assert there.wait(PATIENCE)
    new = StoreParquet(path, REGISTERS)
    step(new, "d")
    go.set()
    thread.join()
    assert "has opened this state again" in str(said[0])
    old.close()
    step(new, "e")
    assert words(new) == set("abde")
    new.close()
    with StoreParquet(path, REGISTERS) as store:
        assert words(store) == set("abde")


# -- forks


def in_fork(work: Callable[[], object]) -> str:
    """What comes of something in a fork of this process, which may not take long."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            said = str(work())
        except BaseException as e:
            said = f"{type(e).__name__}: {e}"
        os.write(theirs, said.encode())
        os._exit(0)
    os.close(theirs)
    with open(ours) as answer:
        timer = threading.Timer(PATIENCE, os.kill, (pid, 9))
        timer.start()
        said = answer.read()
        timer.cancel()
    os.waitpid(pid, 0)
    return said


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("memory", [False, True])
def test_a_fork_that_uses_the_store_of_its_parent_is_told_and_harms_nothing(
    path: Path, memory: bool
) -> None:
    store = StoreMemory(REGISTERS) if memory else StoreParquet(path, REGISTERS)
    add(store, BY_WORD, as_it_is, [("c", 1, 1)])
    said = rf"StoreError: .*process {os.getpid()} has opened this store, and process \d+, a fork"
    uses: list[Callable[[], object]] = [
        lambda: step(store, "x"),
        lambda: words(store),
        lambda: store.commit(3, None),
        store.compact,
    ]
    for use in uses:
        found = in_fork(use)
        assert re.match(said, found), found
    assert in_fork(store.abort) == in_fork(store.close) == "None"
    store.commit(store.last_step() + 1, None)
    assert "c" in words(store)
    store.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_may_open_the_state_itself_once_its_parent_has_closed_it(path: Path) -> None:
    store = StoreParquet(path, REGISTERS)
    step(store, "c")

    def opens() -> str:
        with StoreParquet(path, REGISTERS) as mine:
            for word in "xyz":
                step(mine, word)
            return "".join(sorted(words(mine)))

    assert f"process {os.getpid()} on" in in_fork(opens)
    store.close()
    assert in_fork(opens) == "abcxyz"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_closing_releases_the_lock_also_while_a_fork_lives(path: Path) -> None:
    store = StoreParquet(path, REGISTERS)
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(theirs)
        os.read(ours, 1)  # until its parent has ended this pipe
        os._exit(0)
    try:
        with elsewhere(), pytest.raises(StoreLocked):
            StoreParquet(path, REGISTERS)
        store.close()
        steps_elsewhere(path, "c")
    finally:
        os.close(theirs)
        os.waitpid(pid, 0)
        os.close(ours)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_writer_that_is_killed_keeps_nobody_out_by_a_fork_that_lives_on(path: Path) -> None:
    """As a worker of multiprocessing does, or of a web server."""
    ours, theirs = os.pipe()
    writer = os.fork()
    if not writer:
        store = StoreParquet(path, REGISTERS)
        fork = os.fork()
        if fork:
            step(store, "c")
            os.write(theirs, f"{fork}\n".encode())
        while True:
            time.sleep(PATIENCE)
    fork = int(os.read(ours, 20))
    try:
        with pytest.raises(StoreLocked, match=rf"process {writer} on"):
            StoreParquet(path, REGISTERS)
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        os.kill(fork, 0)  # it lives
        with StoreParquet(path, REGISTERS) as store:
            assert words(store) == set("abc")
    finally:
        os.kill(fork, signal.SIGKILL)
        os.close(ours)
        os.close(theirs)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_that_ends_does_not_close_a_file_of_its_own(path: Path) -> None:
    """The handle of the lock is free in the fork, and the system gives its number again."""
    store: StoreParquet | None = StoreParquet(path, REGISTERS)

    def ends() -> str:
        nonlocal store
        mine = [os.open(os.devnull, os.O_RDONLY) for _ in range(30)]
        store = None
        gc.collect()
        return str(all(os.fstat(handle) for handle in mine))

    assert in_fork(ends) == "True"
    assert store is not None
    store.close()
