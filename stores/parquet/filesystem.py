"""Finds the directory for a path or a URI, and words its errors."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from stepping_spark.callsite import user_line
from stepping_spark.errors import StoreError, StoreUnavailable
from stores.parquet.conditional import creator_for
from stores.parquet.directory import Directory
from stores.parquet.local_directory import LocalDirectory
from stores.parquet.object_directory import ObjectDirectory
from stores.urls import Uri, uri_of, wrong_with_files, wrong_with_path

_PARQUET = "parquet:"


def directory_of(path: str | os.PathLike[str], filesystem: pafs.FileSystem | None) -> Directory:
    """The directory of a path, a `file://` URI, or a URI of an object store.

    With a filesystem the path is one of that, without a scheme; it may have passwords of its own.
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
        return ObjectDirectory(filesystem, text.strip("/"), scheme, creator_for(filesystem))
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
        found, root = pafs.FileSystem.from_uri(f"s3{text[3:]}" if uri.scheme == "s3a" else text)
        return ObjectDirectory(found, root.strip("/"), uri.scheme, creator_for(found))
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
        return "let this user write there"
    if e.errno in (errno.ENOTDIR, errno.EEXIST):
        return "give the path of a directory, or of none yet"
    return "check that it can be reached"
