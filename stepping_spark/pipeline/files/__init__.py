"""Directories of files as sources and sinks: `st.Files`.

`source` reads files that are added, in the `formats` Parquet, JSON and CSV; `sink` writes Parquet;
`directory` lists and writes, on a disk or on an object store.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pyarrow.fs as pafs

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError, short
from stepping_spark.pipeline.files.formats import FORMATS
from stepping_spark.pipeline.files.sink import FilesSink
from stepping_spark.pipeline.files.source import FilesSource
from stepping_spark.pipeline.protocols import (
    checked_path,
    flag_given,
    names_given,
    one_given,
    same_path,
    texts_given,
)

__all__ = ["Files"]

ORDERS = ("name", "time")


class Files:
    """A directory of files, as a source or as a sink: `st.Files("landing/orders", "json")`.

    `path` is a directory, a URI of pyarrow (`s3://bucket/orders`), or a path in `filesystem`.

    **As a source** it reads the rows of files that are added to the directory, in the order of
    their names, or with `order="time"` in the order in which they were written. `kind` is
    `"parquet"`, `"json"` (one object per line) or `"csv"` (with a header, commas between fields,
    and double quotes around a field that contains commas or line breaks; an empty field is an empty
    text if its type is `str` or `str | None`, and otherwise NULL). Rows are only added, so the
    query may be compiled with `append_only`. Columns that the row class does not have are not read.
    A field with `| None` is NULL in the rows of files without its column, if the last file or one
    of the first twenty has it. In text, an int has no fraction, a `datetime` has a zone (`Z` or an
    offset), and a `st.LocalDateTime` has none. `columns={field: column}` maps fields to columns
    with other names.
    `on_invalid` decides about lines that do not fit the input: `"fail"`, `"drop"`, or a sink, which
    gets them as `st.Rejected`.

    Names that begin with `_` or `.` are ignored: write a file under such a name and rename it, so
    that it appears whole. Subdirectories are not read; they raise `SourceError`. Spark's file names
    have no order (`part-00000-…` with a UUID): read what Spark writes with `order="time"`, and run
    the pipeline while no Spark job writes there, because the files of a job appear one after
    another. A file that is rewritten or removed after it was read, or a new file that sorts before
    files that were read, raises `SourceError`. `lag` counts files.

    **As a sink** it writes a Parquet file for each step that changed the view, `step-….parquet`:
    the whole view after the step, at the cost of the whole view. The newest file is the view; the
    one before it stays for readers. With `changes=True` the file has the changes of the step, with
    `_change_type` and `_step`, like `st.DeltaTable`, and with `key` one row for each key. A file
    appears whole, and its name has the step. Files of other writers raise `SinkError`.

    >>> Path("landing").mkdir()
    >>> lines = '{"id": 1, "note": "a"}\\n{"id": 2, "note": "b"}\\n'
    >>> _ = Path("landing/1.json").write_text(lines)
    >>> class Note(st.Data):
    ...     id: int
    ...     note: str
    >>> def notes(notes: st.ZSet[Note]) -> st.ZSet[str]:
    ...     return st.map(notes, f=lambda n: n.note)
    >>> landing, out = st.Files("landing", "json"), st.Files("out")
    >>> pipeline = st.Pipeline(notes, store="memory", notes=landing, into={"notes": out})
    >>> pipeline.run()
    1
    >>> (file,) = Path("out").iterdir()
    >>> sorted(row["_value_"] for row in pq.read_table(file).to_pylist())
    ['a', 'b']
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: str = "parquet",
        *,
        order: str = "name",
        key: str | Sequence[str] = (),
        changes: bool = False,
        columns: Mapping[str, str] | None = None,
        on_invalid: object = "fail",
        filesystem: pafs.FileSystem | None = None,
    ) -> None:
        if filesystem is not None and not isinstance(filesystem, pafs.FileSystem):
            raise InputError(
                f"{user_line()}: filesystem=: expected a file system of pyarrow, found "
                f"{short(filesystem)}"
            )
        self.path = checked_path(path, "filesystem=")
        self.kind = one_given("kind", kind, FORMATS)
        self.order = one_given("order", order, ORDERS)
        self.key = names_given("key", key)
        self.changes = flag_given("changes", changes)
        self.columns = texts_given("columns", columns)
        self.on_invalid = on_invalid
        self._filesystem = filesystem

    def __repr__(self) -> str:
        return f"Files({self.path!r}, {self.kind!r})"

    @property
    def identity(self) -> tuple[object, ...]:
        """A value that is equal for two objects of the same directory."""
        return same_path(self.path, self._filesystem)

    def source(self) -> FilesSource:
        """The files as a source."""
        return FilesSource(self.path, self.kind, self.order, self._filesystem)

    def sink(self) -> FilesSink:
        """The directory as a sink."""
        if self.kind != "parquet":
            raise InputError(
                f"{user_line()}: {self!r} is a sink, and views are written as Parquet; leave "
                f"{self.kind!r} out"
            )
        return FilesSink(self.path, self.key, self._filesystem, changes=self.changes)
