"""Paths of tables: a message may show them, so they hold no password."""

from __future__ import annotations

import os
import posixpath
from urllib.parse import unquote

import pyarrow.fs as pafs

from stepping_spark.callsite import user_line
from stepping_spark.errors import InputError
from stores.urls import uri_of, wrong_with_files


def same_path(path: str, filesystem: object = None) -> tuple[object, ...]:
    """A text that is equal for two spellings of the same path."""
    if filesystem is not None and not isinstance(filesystem, pafs.LocalFileSystem):
        return filesystem, posixpath.normpath(path)
    scheme, there, rest = path.partition("://")
    if not there:
        return ("file", os.path.realpath(path))
    if scheme == "file":
        return ("file", os.path.realpath(unquote(rest)))
    scheme = "s3" if scheme in ("s3a", "s3n") else scheme
    return (scheme, posixpath.normpath(rest))


def checked_path(path: str | os.PathLike[str], secrets: str) -> str:
    """The path as text; an InputError where it holds a user or a password: `secrets` takes them."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"{user_line()}: expected a path or a URI, found {type(path).__name__}")
    text = os.fspath(path)
    uri = uri_of(text)
    wrong = wrong_with_files(text)
    if uri is not None and (uri.user or uri.more) and "://" in text:
        wrong = f"{uri}: the URI of a table has no user, password or parameters; give {secrets}"
    if wrong is not None:
        raise InputError(f"{user_line()}: {wrong}")
    return text
