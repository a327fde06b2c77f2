"""Keeps a second writer out: by a lock or a lease, and by generations that writers claim.

A lock refuses a second writer at once, and names the writer. A lock may fail: it was removed, it
has run out, or the file system does not lock. Then generations decide, and no committed step is
lost:

1. A new writer creates `claims/<generation>.json` for the first unclaimed generation: only one
   writer can create a file. The claim records the first manifest of the writer.
2. Then it looks up the newest manifest, and writes the same state as the first manifest of its
   generation, which outranks all manifests that older writers still write.
3. A writer that has written a manifest checks, by its name, whether the claim after its own exists.
   If not, any later claimant finds the manifest in step 2: the step is committed. If it exists, the
   step may not count, and the writer raises an error, and ends.

So nothing depends on the clock or on the lock. A listing must show all files written before it, as
it does in every object store by now. Claims stay for a day after a later one was made.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from stepping_spark.base.errors import StoreCorrupt, StoreLocked
from stepping_spark.rows.boxes import printable
from stores.base import Natural, decoded
from stores.parquet.directories import TEMPORARY, Directory, LocalDirectory
from stores.parquet.manifest import DATA, FOLDER, LAST, FileOrder, name_of, none_is_left, orders
from stores.step_lock import this_process
from stores.threads import side_by_side

CLAIMS = "claims"
KEPT_FOR = 86_400.0
"""Seconds for which a claim stays after a later one, by the file system's clock."""

_CLAIM = re.compile(rf"{CLAIMS}/(\d{{8}})(-\w+)?\.json", re.ASCII)
_LITTER = re.compile(
    rf"{CLAIMS}/(?:{TEMPORARY})?(?:\d{{8}}(?:-\w+)?|asking-\w+)\.json(?:-\w+)?", re.ASCII
)


class _File(Struct, frozen=True):
    begins: tuple[Natural, Natural, Natural]
    written: bool


class Claim:
    """The right to write a generation, until a later generation is claimed."""

    def __init__(self, directory: Directory, who: dict[str, object]) -> None:
        self._directory = directory
        self._who = {**who, "claim": uuid.uuid4().hex}
        claimed = _generations(directory.changed(CLAIMS))
        written = [(order[0], name_of(order)) for order in orders(directory.sizes(FOLDER))]
        last, its_name = max(claimed + written, default=(0, ""))
        self._check_is_number(last + 1, its_name)
        self.generation = last + 1
        if not directory.excludes:
            self._check_alone()
        while not self._created():
            self._check_is_number(self.generation + 1, self.name)
            self.generation += 1

    @property
    def name(self) -> str:
        """The name of its file."""
        return _name(self.generation)

    def begins_with(self, order: FileOrder, *, written: bool) -> None:
        """Record the first manifest, before and after it is written."""
        self._directory.write(self.name, self._text(begins=order, written=written))

    def overtaken_by(self) -> bytes | None:
        """The writer that claimed or wrote after this one; None if there is none."""
        later = _name(self.generation + 1)
        if not is_claimed(self._directory, self.generation + 1):
            written = orders(self._directory.sizes(FOLDER))
            if all(generation <= self.generation for generation, _, _ in written):
                return None
        with suppress(FileNotFoundError):
            return self._directory.read(later)
        return b""

    def known_orders(self) -> list[FileOrder]:
        """The manifests of earlier generations, the oldest first."""
        earlier = self._earlier()
        last = earlier[-1][0] if earlier else 0
        claimed = (g for g, _ in _generations(self._directory.changed(CLAIMS)))
        asked = [g for g in claimed if last < g < self.generation]
        begun = max((o for o in side_by_side(self._begun_by, asked) if o is not None), default=None)
        if begun is None:
            return earlier
        earlier = self._earlier()  # the manifest may have been written since the first listing
        if not earlier:
            raise none_is_left(self._directory.shown)
        if earlier[-1] < begun:
            raise self._older(earlier[-1], begun)
        return earlier

    def _earlier(self) -> list[FileOrder]:
        return [o for o in orders(self._directory.sizes(FOLDER)) if o[0] < self.generation]

    def _older(self, last: FileOrder, gone: FileOrder) -> StoreCorrupt:
        """The error if manifests are missing that later writers have written."""
        return StoreCorrupt(
            f"{self._directory.shown}: {_name(gone[0])} says that {name_of(gone)} was written, and "
            f"it is gone: the last manifest is {name_of(last)}, of step {last[1]}; {FOLDER}/ may "
            f"be of an older copy than {CLAIMS}/: restore both, and {DATA}/, from one copy; or, to "
            f"go on after step {last[1]} and lose those after it, remove {CLAIMS}/ while nobody "
            "writes"
        )

    def _check_is_number(self, generation: int, after: str) -> None:
        """Raise `StoreCorrupt` if there is no next generation."""
        if generation > LAST[0]:
            raise StoreCorrupt(
                f"{self._directory.shown}: there is {after}, and no writer can come after it; "
                f"writers count from 1, so somebody else has put it there: remove {after}"
            )

    def after(self, order: FileOrder) -> FileOrder | None:
        """The manifest that the writer wrote after this one; None if this is its last."""
        generation, step, revision = order
        following = (generation, step + 1, 0), (generation, step, revision + 1)
        return next(filter(self._is_there, following), None)

    def sweep(self) -> None:
        """Remove old claims, and the files of unfinished attempts to claim."""
        changed = self._directory.changed(CLAIMS)
        mine = self._directory.status(self.name)
        if mine is not None:
            until = mine.changed - KEPT_FOR
            old = [n for n, at in changed.items() if at < until and n != self.name]
            self._directory.remove(filter(_LITTER.fullmatch, old))

    def _created(self) -> bool:
        text = self._text()
        try:
            self._directory.create(self.name, text)
        except FileExistsError:
            # After a lost response, a retry of the file system finds the file of its first attempt.
            with suppress(FileNotFoundError):
                return self._directory.read(self.name) == text
            return False
        return True

    def _check_alone(self) -> None:
        """Check that no other writer claims now, on file systems where two could create one file.

        Each writer writes a file of its own, and then lists: of two at least one sees the other.
        """
        mine = f"{CLAIMS}/{self.generation:08d}-{uuid.uuid4().hex}.json"
        self._directory.write(mine, self._text())
        generations = _generations(self._directory.changed(CLAIMS))
        if any(generation >= self.generation and name != mine for generation, name in generations):
            self._directory.remove([mine])
            raise StoreLocked(
                f"{self._directory.shown}: another writer is opening the state at this moment; "
                "wait until it has ended, and open it again"
            )

    def _begun_by(self, generation: int) -> FileOrder | None:
        """The first manifest that a writer has written, according to its claim; None if none was.

        An unreadable claim counts as one whose writer has written nothing.
        """
        with suppress(FileNotFoundError, ValueError):
            claim = decoded(self._directory.read(_name(generation)), _File)
            if claim.begins[0] == generation and claim.written:
                return claim.begins
        return None

    def _is_there(self, order: FileOrder) -> bool:
        return self._directory.status(name_of(order)) is not None

    def _text(self, **more: object) -> bytes:
        return json.dumps({**self._who, **more}).encode()


def is_claimed(directory: Directory, generation: int) -> bool:
    """Whether somebody has claimed a generation."""
    return directory.status(_name(generation)) is not None


def _name(generation: int) -> str:
    return f"{CLAIMS}/{generation:08d}.json"


def _generations(names: Iterable[str]) -> list[tuple[int, str]]:
    """The claimed generations in a listing, each with the name of its file."""
    return [(int(m[1]), n) for n in names if (m := _CLAIM.fullmatch(n))]


LOCK = "lock.json"
LEASE_FILE = f"{CLAIMS}/lease.json"
LEASE = 60.0
"""Seconds for which a lease holds after it was last renewed, by the object store's clock."""

LET_GO = "this store has given up the lock; open it again"
LONGEST = 255  # characters of the name of a host, or of a time, that messages show
TRIES, PAUSE = 3, 0.02  # of a file lock, and the seconds between them

_log = logging.getLogger("stepping_spark")


class _Who(Struct, frozen=True):
    pid: Natural
    host: str
    since: str
    process: str = ""


class Lock(Protocol):
    """Keeps other writers out, until it is released or lost."""

    def keep(self, check: Callable[[], None]) -> None:
        """Check that the lock still holds, or raise `StoreLocked`.

        If it does not, `check` first raises its error if there is a later writer; then a lost one
        may be taken again.
        """

    def release(self) -> None:
        """Let another writer in. A second call does nothing, nor does a call in a fork."""


def lock(directory: Directory) -> Lock:
    """Become the writer of a directory, or raise a `StoreLocked` that names the writer."""
    if isinstance(directory, LocalDirectory):
        return FileLock(directory)
    return Lease(directory)


def who() -> dict[str, object]:
    """The description of this process for other ones."""
    since = time.strftime("%Y-%m-%d %H:%M:%S %z")
    at = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
    return {**at, "process": this_process(), "writer": uuid.uuid4().hex}


def holder(directory: Directory) -> str | None:
    """The writer of a directory, without disturbing it; None if there is none.

    On an object store, a writer that was killed within the last minute still seems to write.
    """
    if isinstance(directory, LocalDirectory):
        return _holder_of_file(directory)
    with suppress(FileNotFoundError):
        lease = _lease(directory)
        return _writer_text(lease) if _is_alive(directory) else None
    return None


# -- a local directory


class FileLock:
    """A lock that the operating system releases when its process ends.

    The system keeps it as long as any process has the handle. So a fork closes its copy at once:
    one that outlives a killed writer keeps nobody out.
    """

    def __init__(self, directory: LocalDirectory) -> None:
        self._directory = directory
        self._released = False
        self._changing = threading.RLock()  # otherwise it could be taken again after its release
        self._take()

    def keep(self, check: Callable[[], None]) -> None:
        """Take the lock again if its file was removed or replaced, or raise `StoreLocked`."""
        with self._changing:
            is_held = self._letting_go.alive and _is_file_of(self._path, self._handle)
            if is_held and not self._released:
                return
            check()
            if self._released:
                raise locked(self._directory, b"", LET_GO)
            self._letting_go()
            self._take()

    def release(self) -> None:
        """Let another writer in."""
        with self._changing:
            self._released = True
            self._letting_go()

    @property
    def _path(self) -> str:
        return self._directory.path(LOCK)

    def _take(self) -> None:
        while True:
            self._handle = _locked_handle(self._directory)
            # A store that is garbage collected without being closed releases the lock too.
            self._letting_go = weakref.finalize(self, _let_go, self._handle, this_process())
            if _is_file_of(self._path, self._handle):
                break
            self._letting_go()  # it was replaced before it was locked
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, json.dumps(who()).encode(), 0)


def _locked_handle(directory: LocalDirectory) -> int:
    path = directory.path(LOCK)
    with _handles_lock:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _handles.add(handle)
    try:
        _flock(handle)
    except OSError as e:
        try:
            text = os.pread(handle, 4096, 0)
        finally:
            _close(handle)
        if e.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        raise locked(directory, text, "close it there, or wait until that process ends") from e
    return handle


def _flock(handle: int) -> None:
    """Take the lock, with retries: a process that looks for the holder has it for a moment."""
    for tried in range(1, TRIES + 1):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if tried == TRIES:
                raise
            time.sleep(PAUSE)


def _let_go(handle: int, process: str) -> None:
    """Unlock; in a fork, leave the lock to its owner."""
    if process == this_process():
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
    _close(handle)


def _close(handle: int) -> None:
    """Close a handle, once; a fork has closed it already."""
    with _handles_lock:
        if handle in _handles:
            _handles.remove(handle)
            os.close(handle)


_handles: set[int] = set()
"""The open lock files of this process. A fork inherits them, and closes them before anything."""
_handles_lock = threading.RLock()  # reentrant: a finalizer may run while its thread holds it


def _after_fork() -> None:
    for handle in _handles:
        os.close(handle)
    _handles.clear()
    _handles_lock.release()


os.register_at_fork(
    before=_handles_lock.acquire,
    after_in_parent=_handles_lock.release,
    after_in_child=_after_fork,
)


def _is_file_of(path: str, handle: int) -> bool:
    """Whether a path and a handle refer to the same file."""
    mine = os.fstat(handle)
    try:
        theirs = os.lstat(path)
    except FileNotFoundError:
        return False
    return (theirs.st_dev, theirs.st_ino) == (mine.st_dev, mine.st_ino)


def _holder_of_file(directory: LocalDirectory) -> str | None:
    try:
        handle = os.open(directory.path(LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _writer_text(os.pread(handle, 4096, 0))
    finally:
        os.close(handle)
    return None


# -- an object store


class Lease:
    """A file that names the writer. A thread renews it as long as the lease is held.

    A lease that was not renewed for a minute has run out. Only the object store's clock counts: it
    dates the lease, and a probe file that is written to read the current time.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._process = this_process()
        self._text = json.dumps(who()).encode()
        self._lost = self._released = False
        self._writing = threading.Lock()
        self._take()
        self._stop_renewing = renewing(self)

    def keep(self, check: Callable[[], None]) -> None:
        """Raise `StoreLocked` if another writer has held the lease, even if it has ended since.

        Sends no request to the object store: the thread that renews the lease notices its loss.
        """
        if self._released or self._lost:
            check()
        if self._released:
            raise locked(self._directory, b"", LET_GO)
        if self._lost:
            lease = b""
            with suppress(OSError):
                lease = _lease(self._directory)
            remedy = "open the store again, once that one is closed"
            raise locked(self._directory, lease, remedy)

    def renew(self) -> None:
        """Renew the lease, or make a removed one again. A lost or released lease stays so."""
        with self._writing:
            if self._lost or self._released:
                return
            with suppress(FileNotFoundError):
                self._lost = _lease(self._directory) != self._text
            if not self._lost:
                self._directory.write(LEASE_FILE, self._text)

    def release(self) -> None:
        """Let another writer in."""
        if self._process != this_process():
            return
        self._stop_renewing()
        # A renewal under way ends first, and later renewals do nothing.
        with self._writing, suppress(FileNotFoundError):
            self._released = True
            if _lease(self._directory) == self._text:
                self._directory.remove([LEASE_FILE])

    def _take(self) -> None:
        try:
            self._directory.create(LEASE_FILE, self._text)
            return
        except FileExistsError:
            pass
        with suppress(FileNotFoundError):  # it was released since
            lease = _lease(self._directory)
            if _process_of(lease) != self._process and _is_alive(self._directory):
                remedy = f"close it there, or wait {LEASE:.0f} seconds after that process ended"
                raise locked(self._directory, lease, remedy)
        self._directory.write(LEASE_FILE, self._text)


def _lease(directory: Directory) -> bytes:
    """The content of the lease."""
    return directory.read(LEASE_FILE)


def _is_alive(directory: Directory) -> bool:
    """Whether the lease was renewed within `LEASE` seconds; True if this user may not write."""
    asking = f"{CLAIMS}/asking-{uuid.uuid4().hex}.json"
    try:
        directory.write(asking, b"{}")
        now = directory.status(asking)
        directory.remove([asking])
    except PermissionError:
        now = None
    renewed = directory.status(LEASE_FILE)
    return renewed is not None and (now is None or renewed.changed > now.changed - LEASE)


def renewing(lease: Lease) -> Callable[[], object]:
    """Start a thread that renews a lease until it is collected; returns the function to stop it."""
    stop = threading.Event()
    lease_ref = weakref.ref(lease)
    threading.Thread(
        target=_renew, args=(lease_ref, stop), name="stepping-spark-lease", daemon=True
    ).start()
    return weakref.finalize(lease, stop.set)


def _renew(lease_ref: weakref.ref[Lease], stop: threading.Event) -> None:
    while not stop.wait(LEASE / 3):
        lease = lease_ref()
        if lease is None:
            return
        try:
            lease.renew()
        except Exception as e:  # the next attempt may succeed
            # Log text, not the error: a kept log record would keep its frames, and so the lease.
            _log.warning("a lease could not be renewed, and will be tried again: %s", str(e))
        del lease


# -- messages


def locked(directory: Directory, note: bytes, remedy: str) -> StoreLocked:
    """The error that names the writer and the remedy."""
    return StoreLocked(f"{directory.shown} is being written by {_writer_text(note)}: {remedy}")


def _writer_text(text: bytes) -> str:
    """The writer, for a message. The text may have been edited."""
    try:
        writer = decoded(text, _Who)
    except ValueError:
        return "another writer"
    mine = (writer.pid, writer.host) == (os.getpid(), socket.gethostname())
    own = ", which is this one" if mine else ""
    return f"process {writer.pid} on {_line(writer.host)} since {_line(writer.since)}{own}"


def _line(text: str) -> str:
    return printable(text[:LONGEST])


def _process_of(text: bytes) -> str | None:
    with suppress(ValueError):
        return decoded(text, _Who).process
    return None
