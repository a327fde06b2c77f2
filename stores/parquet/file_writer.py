"""Writes rows as Parquet files: in order of place, in row groups of bounded size."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stepping_spark.limits import Limits
from stepping_spark.relations.hashes import Hashes
from stepping_spark.rows.schema import Schema
from stores.parquet.checks import GROUP_BYTES, GROUP_ROWS, Content
from stores.parquet.directory import Directory
from stores.parquet.manifest import DATA, File, FileBatch


def rows_of_file(rows: int, limits: Limits) -> int:
    """The number of rows of each file, for a batch with this number of rows."""
    return max(limits.file_rows, -(-rows // limits.batch_files))


class FileWriter:
    """Writes rows to one file after another. Rows with places come in their order.

    Files do not count until `batch` is called, and are durable after a sync.
    """

    def __init__(self, directory: Directory, stem: str, content: Content, file_rows: int) -> None:
        self._files: list[File] = []
        self._directory = directory
        self._stem = stem
        self._content = content
        self._place = content.place
        self._file_rows = file_rows
        self._waiting: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None
        self._rows = self._first = self._last = 0  # of the file under way
        self._names: list[str] = []

    def append(self, rows: pa.Table, places: Hashes | None) -> None:
        """Add rows that come after those there are."""
        if not rows.num_rows:
            return
        if self._place is not None:
            assert places is not None
            rows = rows.append_column(self._place, pa.array(places))
        self._waiting.append(rows)
        while sum(t.num_rows for t in self._waiting) >= GROUP_ROWS:
            self._write_group()

    def batch(self) -> FileBatch:
        """End, and return the batch that was written."""
        while self._waiting:
            self._write_group()
        self._end_file()
        self._names = []
        return FileBatch(tuple(self._files))

    def abandon(self) -> None:
        """Remove the files, unless the batch was ended."""
        if self._writer is not None:
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
            with suppress(OSError, pa.ArrowException):
                self._sink.close()
        with suppress(OSError):
            self._directory.remove(self._names)

    def _write_group(self) -> None:
        table = pa.concat_tables(self._waiting)
        rows = _rows_of_group(table)
        group, rest = table.slice(0, rows), table.slice(rows)
        self._waiting = [rest] if rest.num_rows else []
        if self._writer is None:
            self._begin_file()
        assert self._writer is not None
        self._writer.write_table(group.combine_chunks(), row_group_size=GROUP_ROWS)
        if self._place is not None:
            ends = group.column(self._place)
            self._first = self._first if self._rows else ends[0].as_py()
            self._last = ends[-1].as_py()
        self._rows += group.num_rows
        if self._rows >= self._file_rows:
            self._end_file()

    def _begin_file(self) -> None:
        name = f"{DATA}/{self._stem}-{uuid.uuid4().hex[:16]}.parquet"
        self._names.append(name)
        self._sink = self._directory.output(name)
        self._writer = pq.ParquetWriter(
            self._sink, self._content.arrow, **_options(self._content.schema, self._place)
        )
        self._rows = self._first = self._last = 0

    def _end_file(self) -> None:
        if self._writer is None:
            return
        self._writer.add_key_value_metadata(self._content.footer(self._names[-1]))
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        self._writer = None
        self._files.append(File(self._names[-1], self._rows, size, self._first, self._last))


def _rows_of_group(table: pa.Table) -> int:
    """The number of rows in a row group, so that it does not take too much memory."""
    rows = min(table.num_rows, GROUP_ROWS)
    while rows > 1 and table.slice(0, rows).nbytes > GROUP_BYTES:
        rows //= 2
    return rows


def _options(schema: Schema, place: str | None) -> dict[str, Any]:
    """How columns are encoded."""
    return {
        "compression": "snappy",
        # Places are hashes in order: what differs from one to the next is all there is to them.
        "use_dictionary": [n for n, _ in schema.columns],
        "column_encoding": {place: "DELTA_BINARY_PACKED"} if place else None,
        # Rows are in no order but that of places: of other columns they would say nothing.
        "write_statistics": [place] if place else False,
        "write_page_checksum": True,
    }
