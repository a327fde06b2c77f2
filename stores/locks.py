"""One writer at a time: a file lock on a local directory, a claim with a lease elsewhere."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
import time
import uuid
import weakref
from contextlib import suppress
from typing import Protocol

from stepping_spark.errors import StoreLocked
from stores.filesystem import Directory, LocalDirectory
from stores.manifest import FOLDER, orders

LOCK = "lock.json"
CLAIMS = "claims"
LEASE = 60.0
"""Seconds for which a claim holds after it was last renewed."""

TRIES, PAUSE = 3, 0.02  # of a file lock, and the seconds between them

_CLAIM = re.compile(rf"{CLAIMS}/(\d{{8}})-\w+\.json")


class Lock(Protocol):
    """The right to write, from when it is made until it is released, or lost."""

    @property
    def generation(self) -> int | None:
        """The generation of all that this writer writes; None: that of what there is."""

    def renew(self) -> None:
        """Keep the right, before a piece of work; a `StoreLocked` where another has it."""

    def confirm(self) -> None:
        """See that what was just written counts; a `StoreLocked` where another took over."""

    def release(self) -> None:
        """Let another writer in."""


def lock(directory: Directory) -> Lock:
    """Become the writer of a directory; a `StoreLocked` says who is."""
    if isinstance(directory, LocalDirectory):
        return FileLock(directory)
    return Claim(directory)


class FileLock:
    """A lock that the operating system takes back when its process ends, however it does."""

    generation = None

    def __init__(self, directory: LocalDirectory) -> None:
        path = directory.path(LOCK)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        # A store that is forgotten without being closed lets go too.
        self._closing = weakref.finalize(self, os.close, handle)
        try:
            _flock(handle)
        except OSError as e:
            who = os.pread(handle, 4096, 0)
            self._closing()
            if e.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise _locked(directory, who, "close it there, or wait until that process ends") from e
        os.ftruncate(handle, 0)
        os.pwrite(handle, _who(), 0)

    def renew(self) -> None:
        """Nothing: it holds."""

    def confirm(self) -> None:
        """Nothing: nobody can take over."""

    def release(self) -> None:
        """Let another writer in."""
        self._closing()


def _flock(handle: int) -> None:
    """Take the lock; tried again for a moment, because who looks at it holds it for one."""
    for tried in range(1, TRIES + 1):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if tried == TRIES:
                raise
            time.sleep(PAUSE)


class Claim:
    """A claim on an object store, which has no locks: a file that is renewed, and runs out.

    Safe under any timing, as long as what is written is seen by the next listing (so it is in S3,
    GCS and Azure): two that claim at once see each other, and at most one goes on. A writer that
    was too slow to renew may be overtaken; the other has the next generation then, which
    outranks all that the slow one still writes, and the slow one is told so by `confirm`.
    A writer that was killed blocks others until its lease runs out.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        claims = directory.changed(CLAIMS)
        known = [int(m[1]) for m in map(_CLAIM.fullmatch, claims) if m]
        known += [generation for generation, _, _ in orders(directory.sizes(FOLDER))]
        self.generation = max(known, default=0) + 1
        self._name = f"{CLAIMS}/{self.generation:08d}-{uuid.uuid4().hex}.json"
        self._renew()
        claims = directory.changed(CLAIMS)
        now = claims[self._name]  # by the clock that the others' are by
        alive = [c for c, at in claims.items() if c != self._name and at > now - LEASE]
        if alive:
            self.release()
            try:
                who = directory.read(max(alive))
            except FileNotFoundError:  # it gave up as well
                who = b""
            remedy = f"close it there, or wait {LEASE:.0f} seconds after that process has ended"
            raise _locked(directory, who, remedy)
        directory.remove([c for c in claims if c != self._name])

    def renew(self) -> None:
        """Keep the claim, before a piece of work; a `StoreLocked` where another has it."""
        if time.monotonic() - self._renewed > LEASE / 3:
            self.confirm()
            self._renew()

    def confirm(self) -> None:
        """See that nobody took over; a `StoreLocked` if so."""
        claims = self._directory.changed(CLAIMS)
        later = [c for c in claims if (m := _CLAIM.fullmatch(c)) and int(m[1]) > self.generation]
        written = {generation for generation, _, _ in orders(self._directory.sizes(FOLDER))}
        if self._name in claims and not later and max(written, default=0) <= self.generation:
            return
        who = self._directory.read(max(later)) if later else b""
        raise _locked(
            self._directory,
            who,
            f"this writer did not renew its claim for {LEASE:.0f} seconds and was overtaken: its "
            "last step may be lost; open the store again to see",
        )

    def release(self) -> None:
        """Let another writer in."""
        self._directory.remove([self._name])

    def _renew(self) -> None:
        self._directory.write(self._name, _who())
        self._renewed = time.monotonic()


def _who() -> bytes:
    since = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}).encode()


def holder(directory: Directory) -> str | None:
    """Who writes a directory, without getting in the way; None: nobody.

    On an object store somebody who was killed within the last minute seems to write still.
    """
    if not isinstance(directory, LocalDirectory):
        since = time.time() - LEASE
        alive = [c for c, at in directory.changed(CLAIMS).items() if at > since]
        with suppress(FileNotFoundError):  # it was released since
            return _shown(directory.read(max(alive))) if alive else None
        return None
    try:
        handle = os.open(directory.path(LOCK), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _shown(os.pread(handle, 4096, 0))
    finally:
        os.close(handle)
    return None


def _shown(who: bytes) -> str:
    try:
        found = json.loads(who)
        mine = (found["pid"], found["host"]) == (os.getpid(), socket.gethostname())
        own = ", which is this one" if mine else ""
        return f"process {found['pid']} on {found['host']} since {found['since']}{own}"
    except (ValueError, KeyError, TypeError):
        return "another writer"


def _locked(directory: Directory, who: bytes, remedy: str) -> StoreLocked:
    return StoreLocked(f"{directory.shown} is being written by {_shown(who)}: {remedy}")
