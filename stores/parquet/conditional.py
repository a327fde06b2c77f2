"""Conditional puts: a file is created in an object store only if there is none with its name.

pyarrow's file systems have none, so this goes by obstore (`pip install 'stepping-spark[s3]'`), with
what the pyarrow file system was made with.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import Any

import pyarrow.fs as pafs

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError
    from obstore.store import S3Store
except ImportError:
    INSTALLED = False
else:
    INSTALLED = True

_ELSEWHERE = ("role_arn", "anonymous", "tls_ca_file_path")
"""Options of pyarrow's that obstore has not, or has otherwise."""

_KEYS_OF_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


@dataclass(eq=False)
class Creator:
    """Creates files on S3. If two writers create the same file at once, only one succeeds."""

    options: dict[str, Any] = field(repr=False)
    _buckets: dict[str, Any] = field(default_factory=dict, repr=False)

    def create(self, path: str, data: bytes) -> None:
        """Create the file `bucket/key`, or raise `FileExistsError`."""
        bucket, _, key = path.partition("/")
        try:
            obstore.put(self._bucket(bucket), key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        except BaseError as e:
            raise OSError(f"{path} could not be created: {e}") from None

    def __getstate__(self) -> dict[str, Any]:
        # Where it is sent to a worker of Spark's, it connects anew.
        return {"options": self.options, "_buckets": {}}

    def _bucket(self, name: str) -> Any:
        if name not in self._buckets:
            self._buckets[name] = _store(name, self.options)
        return self._buckets[name]


def creator_for(filesystem: pafs.FileSystem) -> Creator | None:
    """The creator of files for a file system; None if it has no exclusive creation."""
    if not INSTALLED or not isinstance(filesystem, pafs.S3FileSystem):
        return None
    options: dict[str, Any] = filesystem.__reduce__()[1][0]  # type: ignore[assignment]
    if any(options.get(name) for name in _ELSEWHERE) or options["proxy_options"].get("host"):
        return None
    if not options["access_key"] and not any(map(os.environ.get, _KEYS_OF_ENVIRONMENT)):
        return None  # pyarrow finds keys where obstore does not look, such as in a profile
    return Creator(options)


def _store(bucket: str, options: dict[str, Any]) -> Any:
    given: dict[str, Any] = {
        "region": options["region"],
        "access_key_id": options["access_key"],
        "secret_access_key": options["secret_key"],
        "session_token": options["session_token"],
        "virtual_hosted_style_request": options["force_virtual_addressing"] or None,
    }
    scheme = options["scheme"] or "https"
    if options["endpoint_override"]:
        given["endpoint"] = f"{scheme}://{options['endpoint_override']}"
    return S3Store(
        bucket,
        client_options={"allow_http": scheme == "http"},
        **{name: value for name, value in given.items() if value},
    )
