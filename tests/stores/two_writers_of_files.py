"""Places for the machine of two writers: a directory of this machine, and a simulated bucket."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from stepping_spark.relations.store import Store
from stores import step_lock, threads
from stores.parquet import directories, fencing
from stores.parquet.directories import Directory, LocalDirectory
from stores.parquet.s3 import Status
from stores.parquet.store import StoreParquet
from tests.stores.lives import told
from tests.stores.two_writers import REGISTERS, Process, at, current

SOMEBODY = b'{"pid": 7, "host": "elsewhere", "since": "today", "process": "7-elsewhere"}'
CALLS = ("make", "read", "input", "output", "sync", "create", "write", "sizes", "remove")
MORE_CALLS = ("changed", "status")


class Inline:
    """A pool without threads: what is given to it is done at once, by the process that gives it."""

    def submit(self, f: Callable[..., Any], *args: Any) -> Future[Any]:
        """The result of a call, or what it raised; a process that is killed in it is killed."""
        future: Future[Any] = Future()
        try:
            future.set_result(f(*args))
        except Exception as e:
            future.set_exception(e)
        return future


@contextmanager
def simulated_processes() -> Iterator[None]:
    """Threads of a `Process` are a process to the library; nothing runs beside them."""
    pool = Inline()
    real = step_lock.this_process()

    def this_process() -> str:
        process = current()
        return real if process is None else f"0-{process.name} of {id(process)}"

    with ExitStack() as patches:
        for module in (step_lock, fencing):
            patches.enter_context(mock.patch.object(module, "this_process", this_process))
        patches.enter_context(mock.patch.object(threads, "_pool", return_value=pool))
        yield


@contextmanager
def elsewhere() -> Iterator[None]:
    """What is done here is done by another process."""
    with ExitStack() as patches:
        for module in (step_lock, fencing):
            patch = mock.patch.object(module, "this_process", return_value="0-another")
            patches.enter_context(patch)
        yield


class Here:
    """A directory of this machine. Its locks may do nothing."""

    def __init__(self, *, locking: bool) -> None:
        self._root = tempfile.mkdtemp(prefix="stepping-two-", dir=_memory())
        self.path = os.path.join(self._root, "state")
        self._locking = locking
        self._handles: dict[Process, list[int]] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        with simulated_processes(), ExitStack() as patches:
            for name in CALLS + MORE_CALLS:
                call = told(getattr(LocalDirectory, name), name, at)
                patches.enter_context(mock.patch.object(LocalDirectory, name, call))
            for name in ("_link", "_sync"):
                call = told(getattr(directories, name), name, at)
                patches.enter_context(mock.patch.object(directories, name, call))
            patches.enter_context(mock.patch.object(fcntl, "flock", self._flock()))
            patches.enter_context(mock.patch.object(os, "fsync"))
            yield
        shutil.rmtree(self._root)

    def open_writer(self) -> Store:
        return StoreParquet(self.path, REGISTERS, create=True)

    def open_reader(self) -> Store:
        return StoreParquet(self.path, REGISTERS, read_only=True)

    def break_lock(self) -> None:
        Path(self.path, fencing.LOCK).unlink(missing_ok=True)

    def replace_lock(self) -> bool:
        """The writer, if any, has the lock of a file that is not there any more."""
        file = Path(self.path, fencing.LOCK)
        file.unlink(missing_ok=True)
        file.write_bytes(SOMEBODY)
        return False

    def renewal(self, process: Process) -> None:
        """The system keeps the lock."""

    def kill(self, process: Process) -> None:
        for handle in self._handles.pop(process, ()):
            with _closed_is_fine():
                fcntl.flock(handle, fcntl.LOCK_UN)

    def _flock(self) -> Callable[[int, int], None]:
        real = fcntl.flock

        def flock(handle: int, what: int) -> None:
            if not self._locking:
                return
            real(handle, what)
            process = current()
            if process is not None and what & fcntl.LOCK_EX:
                # One of the machine's own, which stays open when the store's is closed.
                self._handles.setdefault(process, []).append(os.dup(handle))

        return flock


@contextmanager
def _closed_is_fine() -> Iterator[None]:
    try:
        yield
    except OSError as e:
        if e.errno != errno.EBADF:
            raise


def _memory() -> str | None:
    """Where files take no time, if there is such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


# -- a bucket


@dataclass(eq=False)
class Bucket(Directory):
    """Files of an object store: each appears whole, at once."""

    files: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    now: float = 0.0

    shown = "s3://simulated"
    excludes = True

    @property
    def identity(self) -> object:
        return self

    def make(self, folders: Sequence[str]) -> None:
        pass

    def read(self, name: str) -> bytes:
        at("read")
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self.files[name][0]

    def input(self, name: str, nbytes: int | None = None) -> pa.NativeFile:
        return pa.BufferReader(self.read(name))

    def output(self, name: str) -> pa.NativeFile:
        at("output")
        sink: Any = _Sink(self, name)
        return pa.PythonFile(sink, "w")

    def sync(self, names: Sequence[str]) -> None:
        pass

    def create(self, name: str, data: bytes, after: Sequence[str] = ()) -> None:
        at("before create")
        if name in self.files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self.put(name, data)
        at("after create")

    def write(self, name: str, data: bytes) -> None:
        at("before write")
        self.put(name, data)
        at("after write")

    def put(self, name: str, data: bytes) -> None:
        """Let there be a file."""
        self.now += 0.001
        self.files[name] = data, self.now

    def sizes(self, folder: str) -> Mapping[str, int]:
        return {n: len(self.files[n][0]) for n in self._listed(folder)}

    def changed(self, folder: str) -> Mapping[str, float]:
        return {n: self.files[n][1] for n in self._listed(folder)}

    def status(self, name: str) -> Status | None:
        at("asked for")
        found = self.files.get(name)
        return None if found is None else Status(len(found[0]), found[1])

    def remove(self, names: Iterable[str]) -> None:
        for name in list(names):
            at("remove")
            self.files.pop(name, None)

    def for_spark(self, name: str) -> str:
        raise NotImplementedError("no large batches here")

    def _listed(self, folder: str) -> list[str]:
        at("list")
        return [n for n in self.files if n.rpartition("/")[0] == folder]


class _Sink:
    """A file of a bucket, which is there once it is closed."""

    closed = False

    def __init__(self, bucket: Bucket, name: str) -> None:
        self._bucket = bucket
        self._name = name
        self._data = bytearray()

    def write(self, data: Any) -> int:
        self._data += memoryview(data)
        return len(data)

    def tell(self) -> int:
        return len(self._data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            process = current()
            if process is None or not process.dead:
                self._bucket.put(self._name, bytes(self._data))


class Leases:
    """The leases of processes on an object store, which are renewed when the machine says so."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._leases: dict[Process, fencing.Lease] = {}

    def replace_lock(self) -> bool:
        """Somebody writes a lease of its own over the one that is there."""
        self._directory.write(fencing.LEASE_FILE, SOMEBODY)
        return True

    def renewal(self, process: Process) -> Callable[[], object] | None:
        """What the thread of its lease does; none while the process is in the midst of it."""
        lease = self._leases.get(process)
        return None if lease is None or lease._writing.locked() else lease.renew

    def kill(self, process: Process) -> None:
        """Its leases are renewed no more."""
        self._leases.pop(process, None)

    def renewing(self, lease: fencing.Lease) -> Callable[[], object]:
        """Takes the place of what starts the thread."""
        process = current()
        if process is not None:
            self._leases[process] = lease
        return lambda: None


class InBucket(Leases):
    """A simulated object store."""

    def __init__(self) -> None:
        self.bucket = Bucket()
        super().__init__(self.bucket)

    @contextmanager
    def watched(self) -> Iterator[None]:
        with (
            simulated_processes(),
            mock.patch.object(fencing, "renewing", self.renewing),
            mock.patch("stores.parquet.store.directory_of", return_value=self.bucket),
        ):
            yield

    def open_writer(self) -> Store:
        return StoreParquet("simulated", REGISTERS, create=True)

    def open_reader(self) -> Store:
        return StoreParquet("simulated", REGISTERS, read_only=True)

    def break_lock(self) -> None:
        """The lease runs out, because it was not renewed."""
        self.bucket.now += 2 * fencing.LEASE
