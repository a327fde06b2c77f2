"""Files of a directory of this machine, or of one that it has mounted."""

from __future__ import annotations

import errno
import logging
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from stores.parquet.directory import TEMPORARY, Status, escaped
from stores.pool import side_by_side

_ASKING = "claims/asking-links.json"  # made to see whether there are hard links; swept if left
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

_log = logging.getLogger("stepping_spark")


@dataclass(frozen=True)
class LocalDirectory:
    """A directory of this machine, or one that it has mounted.

    Its files are for this user alone (0600, and 0700 for directories).
    """

    root: str

    @property
    def shown(self) -> str:
        return self.root

    @property
    def identity(self) -> object:
        found = os.stat(self.root)
        return found.st_dev, found.st_ino

    @property
    def excludes(self) -> bool:
        # Where there are no hard links, `create` looks first, and then moves a file there.
        with _temporary(self.path(_ASKING), b"") as source:
            link = f"{source}link"
            try:
                os.link(source, link)
            except OSError as e:
                if e.errno not in _NO_LINKS:
                    raise
                return False
            os.unlink(link)
        return True

    def make(self, folders: Sequence[str]) -> None:
        Path(self.root).mkdir(mode=0o700, parents=True, exist_ok=True)
        made = False
        for path in map(self.path, folders):
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
                made = True
        if made:
            _sync(self.root)
            _sync(os.path.dirname(self.root))

    def path(self, name: str) -> str:
        """The file's path."""
        return os.path.join(self.root, *name.split("/"))

    def read(self, name: str) -> bytes:
        return Path(self.path(name)).read_bytes()

    def input(self, name: str) -> pa.NativeFile:
        return pa.OSFile(self.path(name), "rb")

    def output(self, name: str) -> pa.NativeFile:
        path = self.path(name)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return pa.OSFile(path, "wb")

    def sync(self, names: Sequence[str]) -> None:
        side_by_side(_sync, self._to_sync(names))

    def _to_sync(self, names: Sequence[str]) -> list[str]:
        """Files, and the folders that their names are in."""
        paths = [self.path(n) for n in names]
        return [*paths, *{os.path.dirname(p) for p in paths}]

    def create(self, name: str, data: bytes, after: Sequence[str] = ()) -> None:
        target = self.path(name)
        folder = os.path.dirname(target)
        with _temporary(target, data) as temporary:
            side_by_side(_sync, [temporary, *self._to_sync(after)])
            _link(temporary, target)
        try:
            _sync(folder)
        except OSError as e:
            # The file is there: to report a failure now would be wrong.
            _log.warning("%s: written, but perhaps not yet durable: %s", target, e)

    def write(self, name: str, data: bytes) -> None:
        with _temporary(self.path(name), data) as temporary:
            os.replace(temporary, self.path(name))

    def sizes(self, folder: str) -> Mapping[str, int]:
        return {f"{folder}/{n}": found.st_size for n, found in _files(self.path(folder))}

    def changed(self, folder: str) -> Mapping[str, float]:
        return {f"{folder}/{n}": found.st_mtime for n, found in _files(self.path(folder))}

    def status(self, name: str) -> Status | None:
        with suppress(FileNotFoundError):
            found = os.lstat(self.path(name))
            return Status(found.st_size, found.st_mtime)
        return None

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(self.path(name))

    def for_spark(self, name: str) -> str:
        return "file://" + escaped(self.path(name))


@contextmanager
def _temporary(target: str, data: bytes) -> Iterator[str]:
    """A temporary file beside another, to be linked or moved there. Removed if it is left.

    Its name has that of its target: so it tells of which writer it is.
    """
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f"{TEMPORARY}{name}-{uuid.uuid4().hex}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(data)
        yield temporary
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def _files(path: str) -> Iterator[tuple[str, os.stat_result]]:
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # removed meanwhile
                yield entry.name, entry.stat(follow_symlinks=False)


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _link(source: str, target: str) -> None:
    """Give a complete file its name, atomically. No other file may have it."""
    try:
        os.link(source, target)
    except OSError as e:
        if e.errno not in _NO_LINKS:
            raise
        # A file system without hard links: two may do so at once, see `excludes`.
        if os.path.exists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
        os.rename(source, target)
