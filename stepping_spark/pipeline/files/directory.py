"""A directory on a disk or on an object store: listing, writing and removing its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs as pafs

from stepping_spark.base.errors import SteppingError
from stepping_spark.pipeline.protocols import KEPT
from stepping_spark.spark.session import first_line

HIDDEN = ("_", ".")
"""Prefixes of the names of files that are ignored, such as unfinished ones."""

SOUGHT = 100  # files, for the message of an error


@dataclass(frozen=True)
class ListedFile:
    """A file in a listing."""

    name: str
    size: int
    time: int


class FilesDirectory:
    """A directory; `failure` makes the error for a reason."""

    def __init__(
        self,
        path: str,
        filesystem: pafs.FileSystem | None,
        failure: Callable[[str], SteppingError],
    ) -> None:
        self.shown = path
        self._failure = failure
        self._given = filesystem
        self._found: tuple[pafs.FileSystem, str] | None = None

    @property
    def place(self) -> tuple[pafs.FileSystem, str]:
        """The file system, and the path in it."""
        if self._found is None:
            with self.trying("it could not be reached", "check the path and the credentials"):
                if self._given is not None:
                    self._found = self._given, self.shown
                elif "://" in self.shown:
                    self._found = pafs.FileSystem.from_uri(self.shown)
                else:
                    self._found = pafs.LocalFileSystem(), os.path.abspath(self.shown)
        return self._found

    def path_of(self, name: str) -> str:
        """The path of a file in the directory."""
        return f"{self.place[1].rstrip('/')}/{name}"

    @contextmanager
    def trying(self, what: str, remedy: str) -> Iterator[None]:
        """Translate errors of files."""
        try:
            yield
        except FileNotFoundError as e:
            raise self._failure(f"{what}: it is not there ({first_line(e)}); {remedy}") from e
        except (OSError, ValueError, pa.ArrowException) as e:
            raise self._failure(f"{what}: {first_line(e)}; {remedy}") from e

    def make(self) -> None:
        """Create the directory if it does not exist."""
        with self.trying("it could not be made", "check the path and the rights"):
            self.place[0].create_dir(self.place[1], recursive=True)

    def is_there(self) -> bool:
        """Whether the directory, or a file of that name, exists."""
        system, path = self.place
        with self.trying("it could not be found", "check the path and the credentials"):
            return system.get_file_info(path).type != pafs.FileType.NotFound

    def files(self, *, only: bool = False) -> list[ListedFile]:
        """The files in it, in the order of their names, without hidden ones.

        `only`: directories in it are an error, because their files would not be read.
        """
        system, path = self.place
        with self.trying("it could not be listed", "create the directory, or check the path"):
            entries = system.get_file_info(pafs.FileSelector(path))
        inner = sorted(
            info.base_name
            for info in entries
            if info.type == pafs.FileType.Directory and not info.base_name.startswith(HIDDEN)
        )
        if only and inner:
            raise self._failure(
                f"it has the directory {inner[0]!r}, and only the files of one directory are read: "
                "those of partitions lack the columns that their directories are named by; write "
                "without partitions, or give a source to each directory"
            )
        return sorted(
            (
                ListedFile(info.base_name, info.size or 0, info.mtime_ns or 0)
                for info in entries
                if info.is_file and not info.base_name.startswith(HIDDEN)
            ),
            key=lambda file: file.name,
        )

    def write(self, name: str, write: Callable[[pa.NativeFile], None]) -> None:
        """Write a file, which appears whole or not at all."""
        system, _ = self.place
        with self.trying(f"{name} could not be written", KEPT):
            local = isinstance(system, pafs.LocalFileSystem)
            draft = self.path_of(f"_{name}" if local else name)
            try:
                with system.open_output_stream(draft) as file:
                    write(file)
                if local:
                    _settle(draft, self.path_of(name))
            except BaseException:
                if local:
                    with suppress(OSError):
                        os.remove(draft)
                raise

    def remove(self, name: str) -> None:
        """Remove a file."""
        with self.trying(f"{name} could not be removed", "check the rights"):
            self.place[0].delete_file(self.path_of(name))


def digest(files: Sequence[ListedFile]) -> int:
    """A digest of names, sizes and times, which differs for other or rewritten files."""
    return _number(f"{file.name} {file.size} {file.time}" for file in files)


def is_digest(number: int, files: Sequence[ListedFile]) -> bool:
    """Whether a number is the digest of these files, with or without times (version 0.1)."""
    return number in (digest(files), _number(f"{file.name} {file.size}" for file in files))


def files_before(number: int, files: Sequence[ListedFile], done: int) -> list[str]:
    """The names of later files that come before others of the first `done`, whose digest this is.

    They are sought among the `SOUGHT` files that were written last.
    """
    by_time = sorted(files, key=lambda file: file.time)
    for late in range(1, min(len(files) - done, SOUGHT) + 1):
        came = set(by_time[-late:])
        others = [file for file in files if file not in came]
        if others[:done] and is_digest(number, others[:done]):
            end = files.index(others[:done][-1])
            return [file.name for file in files[:end] if file in came]
    return []


def _number(lines: Iterable[str]) -> int:
    return int.from_bytes(hashlib.sha256("\n".join(lines).encode()).digest()[:6], "big")


def _settle(draft: str, final: str) -> None:
    """Rename a written file durably, so that it survives a crash of the machine."""
    with open(draft, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(draft, final)
    folder = os.open(os.path.dirname(final), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
