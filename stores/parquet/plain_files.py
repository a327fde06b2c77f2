"""Plain files: a link is not followed, and a pipe or a device is not waited for."""

from __future__ import annotations

import errno
import os
import stat


class NotPlain(OSError):
    """Something else in the place of a plain file: a link, a directory, a pipe."""


def open_plain(path: str, flags: int) -> int:
    """The handle of a plain file, opened without following a link, or waiting for a pipe."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            check_plain(path, os.lstat(path))
        raise
    try:
        check_plain(path, os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def check_plain(path: str, found: os.stat_result) -> None:
    """A `NotPlain` for anything but a file."""
    if not stat.S_ISREG(found.st_mode):
        raise NotPlain(f"{path} is {kind(found)}, and a plain file is expected there")


def check_one_name(path: str, found: os.stat_result) -> None:
    """A `NotPlain` for a file with other names, under which it would be overwritten too."""
    if found.st_nlink > 1:
        raise NotPlain(
            f"{path} is a file of {found.st_nlink} names (hard links), and would be overwritten "
            f"under the others too; remove {path} while nobody writes, and a new one is made"
        )


def kind(found: os.stat_result) -> str:
    """The kind of a file, in words."""
    kinds = (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISREG, "a file"),
    )
    return next((kind for is_one, kind in kinds if is_one(found.st_mode)), "a device or a socket")
