"""Files of a prefix of an object store, through pyarrow.fs."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.fs as pafs

from stores.parquet.conditional import Creator
from stores.parquet.directory import Status, escaped
from stores.pool import side_by_side


@dataclass(frozen=True)
class ObjectDirectory:
    """A prefix of an object store. Files are durable and complete as soon as others see them.

    pyarrow has no exclusive creation: on S3 `create` goes by obstore, where that is installed, and
    is exclusive. Elsewhere it looks first, and `excludes` is False (see `stores.parquet.claims`).
    """

    filesystem: pafs.FileSystem = field(repr=False)
    root: str
    scheme: str
    creator: Creator | None = field(default=None, repr=False, compare=False)

    @property
    def shown(self) -> str:
        return f"{self.scheme}://{self.root}"

    @property
    def identity(self) -> object:
        return self

    @property
    def excludes(self) -> bool:
        return self.creator is not None

    def make(self, folders: Sequence[str]) -> None:
        pass

    def read(self, name: str) -> bytes:
        with self.input(name) as source:
            return source.read()

    def input(self, name: str) -> pa.NativeFile:
        return self.filesystem.open_input_file(f"{self.root}/{name}")

    def output(self, name: str) -> pa.NativeFile:
        return self.filesystem.open_output_stream(f"{self.root}/{name}", compression=None)

    def sync(self, names: Sequence[str]) -> None:
        pass

    def create(self, name: str, data: bytes, after: Sequence[str] = ()) -> None:
        if self.creator is not None:
            self.creator.create(f"{self.root}/{name}", data)
            return
        if self.status(name) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self.write(name, data)

    def write(self, name: str, data: bytes) -> None:
        with self.output(name) as sink:
            sink.write(data)

    def sizes(self, folder: str) -> Mapping[str, int]:
        return {f"{folder}/{i.base_name}": i.size for i in self._listed(folder)}

    def changed(self, folder: str) -> Mapping[str, float]:
        return {f"{folder}/{i.base_name}": (i.mtime_ns or 0) / 1e9 for i in self._listed(folder)}

    def status(self, name: str) -> Status | None:
        found = self.filesystem.get_file_info(f"{self.root}/{name}")
        if found.type != pafs.FileType.File:
            return None
        return Status(found.size, (found.mtime_ns or 0) / 1e9)

    def remove(self, names: Iterable[str]) -> None:
        def one(name: str) -> None:
            with suppress(FileNotFoundError):
                self.filesystem.delete_file(f"{self.root}/{name}")

        side_by_side(one, list(names))

    def for_spark(self, name: str) -> str:
        scheme = "s3a" if self.scheme == "s3" else self.scheme
        return f"{scheme}://" + escaped(f"{self.root}/{name}")

    def _listed(self, folder: str) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(f"{self.root}/{folder}".rstrip("/"), allow_not_found=True)
        found = self.filesystem.get_file_info(selector)
        return [i for i in found if i.type == pafs.FileType.File]
