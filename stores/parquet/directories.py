"""The directories of states, on disks and in object stores, and the file operations in them.

On S3, obstore reads and writes files where it is installed: see `stores.parquet.s3`.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import StoreError, StoreUnavailable
from stores.parquet.s3 import S3, Status, s3_of
from stores.redaction import Uri, uri_of, wrong_with_files, wrong_with_path
from stores.threads import side_by_side

TEMPORARY = "tmp-"
_GLOB = re.compile(r"([\[\]{}*?\\])")


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

    def input(self, name: str, nbytes: int | None = None) -> pa.NativeFile:
        """Open a file to read; with `nbytes`, an object store is not asked for the size."""

    def output(self, name: str) -> pa.NativeFile:
        """A new file to write to; durable once it is closed and synced."""

    def sync(self, names: Sequence[str]) -> None:
        """Make files that were written durable."""

    def create(self, name: str, data: bytes, after: Sequence[str] = ()) -> None:
        """Create a whole, durable file at once, but only when the files `after` are durable.

        Raises `FileExistsError` if the file exists.
        """

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, and replace its content if it exists."""

    def sizes(self, folder: str) -> Mapping[str, int]:
        """The size of each file of a folder, by its name; empty if there is no such folder."""

    def changed(self, folder: str) -> Mapping[str, float]:
        """The time of the last write to each file of a folder, in seconds of the system's clock."""

    def status(self, name: str) -> Status | None:
        """The status of a file; None if it does not exist."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files. Missing files are no error."""

    def for_spark(self, name: str) -> str:
        """A file, as a path for Spark's reader."""


def escaped(path: str) -> str:
    """A path with escapes for the characters that Spark's reader would treat as patterns."""
    return _GLOB.sub(r"\\\1", path)


_ASKING = "claims/asking-links.json"  # tests whether hard links work; swept if left behind
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
        stat = os.stat(self.root)
        return stat.st_dev, stat.st_ino

    @property
    def excludes(self) -> bool:
        # Without hard links, `create` checks that the name is free, and then moves a file there.
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
        is_new = False
        for path in map(self.path, folders):
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
                is_new = True
        if is_new:
            _sync(self.root)
            _sync(os.path.dirname(self.root))

    def path(self, name: str) -> str:
        """The file's path."""
        return os.path.join(self.root, *name.split("/"))

    def read(self, name: str) -> bytes:
        return Path(self.path(name)).read_bytes()

    def input(self, name: str, nbytes: int | None = None) -> pa.NativeFile:
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
            # The file exists already: a failure reported now would be wrong.
            _log.warning("%s: written, but perhaps not yet durable: %s", target, str(e))

    def write(self, name: str, data: bytes) -> None:
        with _temporary(self.path(name), data) as temporary:
            os.replace(temporary, self.path(name))

    def sizes(self, folder: str) -> Mapping[str, int]:
        return {f"{folder}/{n}": stat.st_size for n, stat in _files(self.path(folder))}

    def changed(self, folder: str) -> Mapping[str, float]:
        return {f"{folder}/{n}": stat.st_mtime for n, stat in _files(self.path(folder))}

    def status(self, name: str) -> Status | None:
        with suppress(FileNotFoundError):
            stat = os.lstat(self.path(name))
            return Status(stat.st_size, stat.st_mtime)
        return None

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(self.path(name))

    def for_spark(self, name: str) -> str:
        return "file://" + escaped(self.path(name))


@contextmanager
def _temporary(target: str, data: bytes) -> Iterator[str]:
    """A temporary file beside its target, to be linked or moved there. Removed if left behind.

    Its name contains the name of the target, and so identifies the writer.
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
        # A file system without hard links: two writers may do this at once, see `excludes`.
        if os.path.exists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
        os.rename(source, target)


@dataclass(frozen=True)
class ObjectDirectory:
    """A prefix of an object store. Files are durable and complete as soon as others see them.

    On S3 obstore writes and removes, where it is installed. pyarrow has no exclusive creation:
    without obstore `create` looks first, and `excludes` is False (see `stores.parquet.fencing`).
    """

    filesystem: pafs.FileSystem = field(repr=False)
    root: str
    scheme: str
    s3: S3 | None = field(default=None, repr=False, compare=False)

    @property
    def shown(self) -> str:
        return f"{self.scheme}://{self.root}"

    @property
    def identity(self) -> object:
        return self

    @property
    def excludes(self) -> bool:
        return self.s3 is not None

    def make(self, folders: Sequence[str]) -> None:
        pass

    def read(self, name: str) -> bytes:
        if self.s3 is not None:
            return self.s3.read(f"{self.root}/{name}")
        with self.input(name) as source:
            return source.read()

    def input(self, name: str, nbytes: int | None = None) -> pa.NativeFile:
        path = f"{self.root}/{name}"
        if self.s3 is not None and nbytes is not None:
            return self.s3.input(path, nbytes)
        return self.filesystem.open_input_file(path)

    def output(self, name: str) -> pa.NativeFile:
        path = f"{self.root}/{name}"
        if self.s3 is not None:
            return self.s3.output(path)
        return self.filesystem.open_output_stream(path, compression=None)

    def sync(self, names: Sequence[str]) -> None:
        pass

    def create(self, name: str, data: bytes, after: Sequence[str] = ()) -> None:
        if self.s3 is not None:
            self.s3.create(f"{self.root}/{name}", data)
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
        if self.s3 is not None:
            return self.s3.status(f"{self.root}/{name}")
        info = self.filesystem.get_file_info(f"{self.root}/{name}")
        if info.type != pafs.FileType.File:
            return None
        return Status(info.size, (info.mtime_ns or 0) / 1e9)

    def remove(self, names: Iterable[str]) -> None:
        if self.s3 is not None:
            self.s3.remove(self.root, list(names))
            return
        for name in names:  # one by one: this is no hurry, and runs in the pool of threads
            with suppress(FileNotFoundError):
                self.filesystem.delete_file(f"{self.root}/{name}")

    def for_spark(self, name: str) -> str:
        scheme = "s3a" if self.scheme == "s3" else self.scheme
        return f"{scheme}://" + escaped(f"{self.root}/{name}")

    def _listed(self, folder: str) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(f"{self.root}/{folder}".rstrip("/"), allow_not_found=True)
        entries = self.filesystem.get_file_info(selector)
        return [i for i in entries if i.type == pafs.FileType.File]


_PARQUET = "parquet:"


def directory_of(path: str | os.PathLike[str], filesystem: pafs.FileSystem | None) -> Directory:
    """The directory of a path, a `file://` URI, or a URI of an object store.

    With a `filesystem` the path belongs to it and has no scheme; the file system may hold secrets.
    """
    if not isinstance(path, str | os.PathLike):
        raise StoreError(
            f"{user_line()}: expected a path or a URI, found {type(path).__name__}; write "
            "st.StoreParquet.from_graph(graph, path)"
        )
    text = os.fspath(path)
    if text.startswith(_PARQUET):
        raise StoreUnavailable(
            f"{user_line()}: {_PARQUET} says on a command line what kind of store a path is of; "
            "here the path alone is expected: leave it out, or write ./ before a directory of "
            "that name"
        )
    wrong = wrong_with_files(text) or (wrong_with_path(text) if filesystem is not None else None)
    if wrong is not None:
        raise StoreUnavailable(f"{user_line()}: {wrong}")
    if filesystem is not None and not isinstance(filesystem, pafs.LocalFileSystem):
        scheme = {"gcs": "gs", "abfs": "abfss"}.get(filesystem.type_name, filesystem.type_name)
        return ObjectDirectory(filesystem, text.strip("/"), scheme, s3_of(filesystem))
    uri = uri_of(text)
    if uri is None:
        return LocalDirectory(os.path.abspath(text))
    if uri.scheme == "file":
        return LocalDirectory(os.path.abspath(unquote(uri.path)))
    return _of_object_store(text, uri)


def _of_object_store(text: str, uri: Uri) -> Directory:
    """The prefix of an object store that a URI names."""
    try:
        _check_has_no_key(uri)
        filesystem, root = pafs.FileSystem.from_uri(
            f"s3{text[3:]}" if uri.scheme == "s3a" else text
        )
        return ObjectDirectory(filesystem, root.strip("/"), uri.scheme, s3_of(filesystem))
    except pa.ArrowException:
        wrong = (
            "pyarrow cannot open a file system of this URI; give one that "
            "`pyarrow.fs.FileSystem.from_uri` takes (s3://bucket/path, gs://…, abfss://…, "
            "file:///…), or filesystem="
        )
    except OSError:
        wrong = (
            "pyarrow could not reach this file system; check the network, the name of the bucket, "
            "and the parameters of the URI (?region=…), or give filesystem="
        )
    # Outside of `except`: pyarrow's error holds the whole URI, and that may hold a password.
    raise StoreUnavailable(f"a store on {uri}: {wrong}")


def _check_has_no_key(uri: Uri) -> None:
    """Refuse a key that pyarrow would not use: it looks for others, and may end the process."""
    if uri.scheme.lower() in ("abfs", "abfss") and ":" in uri.user:
        raise StoreUnavailable(
            f"a store on {uri}: pyarrow takes no account key from a URI; leave it out, and give "
            "filesystem=pyarrow.fs.AzureFileSystem(account, account_key=…), with container/path as "
            "the path"
        )


@contextmanager
def reaching(shown: str, purpose: str) -> Iterator[None]:
    """Turn errors of the system into one `StoreUnavailable` with the remedy."""
    try:
        yield
    except OSError as e:
        why = e.strerror or str(e)
        raise StoreUnavailable(
            f"{shown}: could not {purpose}: {why}; nothing that was committed is lost: "
            f"{_remedy(e)}, and try again"
        ) from e


def _remedy(e: OSError) -> str:
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room on the disk"
    if e.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "let this user read and write there"
    if e.errno in (errno.ENOTDIR, errno.EEXIST):
        return "give the path of a directory, or of none yet"
    return "check that it can be reached"
