"""Temporary folders that are removed even if their process is killed: by the next one."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

_PREFIX = "stepping-scratch-"


class ScratchFolder:
    """A temporary folder of this process, until `remove` is called or the object is gone.

    The process holds a lock on the folder. A killed process loses its locks, so the next process of
    the user that makes such a folder sees that nobody needs the old one, and removes it. Where the
    file system has no such locks, it stays.
    """

    def __init__(self) -> None:
        _remove_abandoned(tempfile.gettempdir())
        # Under this name, no other process looks at the folder before it is locked.
        unlocked = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
        handle = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.path = unlocked.rename(unlocked.with_name(unlocked.name.removeprefix(".")))
        self.remove = weakref.finalize(self, _remove, self.path, handle, os.getpid())


def _remove(folder: Path, handle: int, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


@functools.cache
def _remove_abandoned(directory: str) -> None:
    """Remove the folders of killed processes of this user, once in a process."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):
                    _remove_if_unlocked(entry.path)


def _remove_if_unlocked(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(handle).st_uid == os.getuid():
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
