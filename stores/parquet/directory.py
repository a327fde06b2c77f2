"""The file operations that the Parquet store needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

TEMPORARY = "tmp-"
_GLOB = re.compile(r"([\[\]{}*?\\])")


class Status(NamedTuple):
    """The size of a file, and when it was last written, in seconds of the file system's clock."""

    size: int
    changed: float


class Directory(Protocol):
    """Files by name, `folder/file`. Failures raise `OSError`."""

    @property
    def shown(self) -> str:
        """The name for messages, without passwords."""

    @property
    def identity(self) -> object:
        """Equal for two directories with the same files, as far as that is known."""

    @property
    def excludes(self) -> bool:
        """Whether `create` is exclusive: if two create a file at once, only one succeeds."""

    def make(self, folders: Sequence[str]) -> None:
        """Make the directory and these folders in it, if they do not exist."""

    def read(self, name: str) -> bytes:
        """The bytes of a small file."""

    def input(self, name: str) -> pa.NativeFile:
        """Open a file to read."""

    def output(self, name: str) -> pa.NativeFile:
        """A new file to write to; durable once it is closed and synced."""

    def sync(self, names: Sequence[str]) -> None:
        """Make files that were written durable."""

    def create(self, name: str, data: bytes, after: Sequence[str] = ()) -> None:
        """Make a whole, durable file at once, and only after those others are durable.

        A `FileExistsError` where it is there already.
        """

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, and replace its content if it exists."""

    def sizes(self, folder: str) -> Mapping[str, int]:
        """The size of each file of a folder, by its name; empty if there is no such folder."""

    def changed(self, folder: str) -> Mapping[str, float]:
        """When each file of a folder was last written, in seconds of the file system's clock."""

    def status(self, name: str) -> Status | None:
        """The status of a file; None if it does not exist."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files. Missing files are no error."""

    def for_spark(self, name: str) -> str:
        """A file, as a path for Spark's reader."""


def escaped(path: str) -> str:
    """A path with the characters escaped that Spark's reader takes for patterns."""
    return _GLOB.sub(r"\\\1", path)
