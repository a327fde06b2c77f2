"""Files on S3, by obstore (`pip install 'stepping-spark[s3]'`), with pyarrow's options.

The file systems of pyarrow cannot create a file only if it does not exist, and send three requests
for a small file.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
    from obstore.store import S3Store
except ImportError:
    INSTALLED = False
else:
    INSTALLED = True


class Status(NamedTuple):
    """The size of a file, and the time of its last write, in seconds of the file system's clock."""

    size: int
    changed: float


_ELSEWHERE = ("role_arn", "anonymous", "tls_ca_file_path")
"""Options of pyarrow that obstore does not have, or treats differently."""

_KEYS_OF_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)

WHOLE_BYTES = 1 << 20
"""Bytes of a file in an object store up to which it is read whole."""
PART_BYTES = 8 << 20
"""Bytes of a file in an object store up to which one request writes it."""


@dataclass(eq=False)
class S3:
    """Operations of obstore on S3, with names `bucket/key`. Failures raise `OSError`."""

    options: dict[str, Any] = field(repr=False)
    _buckets: dict[str, Any] = field(default_factory=dict, repr=False)

    def create(self, path: str, data: bytes) -> None:
        """Create a file. If two writers create it at once, one gets a `FileExistsError`."""
        bucket, key = self._bucket_and_key(path)
        with _failing(path, "created"):
            obstore.put(bucket, key, data, mode="create", use_multipart=False)

    def output(self, path: str) -> pa.NativeFile:
        """A new file to write to, which exists once it is closed."""
        bucket, key = self._bucket_and_key(path)
        with _failing(path, "written"):
            writer = obstore.open_writer(bucket, key, buffer_size=PART_BYTES)
        return pa.PythonFile(_Upload(writer, path), mode="w")

    def read(self, path: str) -> bytes:
        """The bytes of a file, with one request."""
        bucket, key = self._bucket_and_key(path)
        with _failing(path, "read"):
            return bytes(obstore.get(bucket, key).bytes())

    def input(self, path: str, nbytes: int) -> pa.NativeFile:
        """Open a file of `nbytes` bytes to read; a small file is read at once."""
        if nbytes <= WHOLE_BYTES:
            return pa.BufferReader(self.read(path))
        return pa.PythonFile(_Download(*self._bucket_and_key(path), path, nbytes), mode="r")

    def status(self, path: str) -> Status | None:
        """The status of a file; None if it does not exist."""
        bucket, key = self._bucket_and_key(path)
        with suppress(FileNotFoundError), _failing(path, "found"):
            head = obstore.head(bucket, key)
            return Status(head["size"], head["last_modified"].timestamp())
        return None

    def remove(self, root: str, names: Sequence[str]) -> None:
        """Remove files below `root`, a thousand with one request. Missing files are no error."""
        bucket, key = self._bucket_and_key(root)
        if names:
            with _failing(root, "cleared of old files"):
                obstore.delete(bucket, [f"{key}/{name}" for name in names])

    def __getstate__(self) -> dict[str, Any]:
        # A copy on a Spark worker opens connections of its own.
        return {"options": self.options, "_buckets": {}}

    def _bucket_and_key(self, path: str) -> tuple[Any, str]:
        """The bucket of a path, and the key in it."""
        name, _, key = path.partition("/")
        if name not in self._buckets:
            self._buckets[name] = _store(name, self.options)
        return self._buckets[name], key


class _Download(io.RawIOBase):
    """A file of obstore as a Python file: each read is one request. Errors are `OSError`s."""

    def __init__(self, bucket: Any, key: str, path: str, nbytes: int) -> None:
        self._bucket, self._key, self._path, self._nbytes = bucket, key, path, nbytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._nbytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> Any:
        left = max(0, self._nbytes - self._at)
        length = left if size < 0 else min(size, left)
        if length == 0:
            return b""
        with _failing(self._path, "read"):
            part = obstore.get_range(self._bucket, self._key, start=self._at, length=length)
        self._at += len(part)
        return part


class _Upload(io.RawIOBase):
    """A writer of obstore as a Python file. Errors are `OSError`s."""

    def __init__(self, writer: Any, path: str) -> None:
        self._writer, self._path = writer, path

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with _failing(self._path, "written"):
            return int(self._writer.write(bytes(data)))

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _failing(self._path, "written"):
                self._writer.close()


@contextmanager
def _failing(path: str, what: str) -> Iterator[None]:
    """Turn errors of obstore into the errors of a file system."""
    try:
        yield
    except AlreadyExistsError:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
    except (NotFoundError, FileNotFoundError):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    except BaseError as e:
        first_line = str(e).partition("\n")[0]  # the others are for debuggers of obstore
        raise OSError(f"{path} could not be {what}: {first_line}") from None


def s3_of(filesystem: pafs.FileSystem) -> S3 | None:
    """obstore for an S3 file system; None for another one, or if obstore would have no keys."""
    if not INSTALLED or not isinstance(filesystem, pafs.S3FileSystem):
        return None
    options: dict[str, Any] = filesystem.__reduce__()[1][0]  # type: ignore[assignment]
    if any(options.get(name) for name in _ELSEWHERE) or options["proxy_options"].get("host"):
        return None
    if not options["access_key"] and not any(map(os.environ.get, _KEYS_OF_ENVIRONMENT)):
        return None  # pyarrow finds keys where obstore does not look, such as in a profile
    return S3(options)


def _store(bucket: str, options: dict[str, Any]) -> Any:
    given: dict[str, Any] = {
        "region": options["region"],
        "access_key_id": options["access_key"],
        "secret_access_key": options["secret_key"],
        "session_token": options["session_token"],
        "virtual_hosted_style_request": options["force_virtual_addressing"] or None,
    }
    endpoint = options["endpoint_override"]
    if endpoint:
        has_scheme = "://" in endpoint
        endpoint = endpoint if has_scheme else f"{options['scheme'] or 'https'}://{endpoint}"
        given["endpoint"] = endpoint
    return S3Store(
        bucket,
        client_options={"allow_http": endpoint.startswith("http://")},
        **{name: value for name, value in given.items() if value},
    )
