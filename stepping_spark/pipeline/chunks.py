"""A version with too many rows for one step, cut into pieces that all processes cut alike.

The hash of a row determines its piece. So the order of reading does not matter, and the deletion
and the insertion of the same row fall into one piece. The pieces are temporary files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from stepping_spark.base.errors import SourceError
from stepping_spark.base.scratch import ScratchFolder
from stepping_spark.pipeline.protocols import Portion, Position
from stepping_spark.relations.hashing import key_hashes
from stepping_spark.rows.schema import COUNT

MOST = 500
"""The most pieces of one version: while they are made, each is an open file."""


def least_bytes(rows: int, schema: pa.Schema) -> int:
    """A lower bound of the bytes of so many rows in Arrow."""
    bits = sum(_bits(field.type) for field in schema)
    return rows * bits // 8


def _bits(t: pa.DataType) -> int:
    try:
        return t.bit_width
    except ValueError:  # texts, lists and structs; the first two have an offset
        return 0 if pa.types.is_struct(t) else 32


def at_most(tables: Iterator[pa.Table], schema: pa.Schema, portion: Portion) -> pa.Table | None:
    """All rows, in one table; None if they exceed the portion."""
    parts: list[pa.Table] = []
    rows = nbytes = 0
    for table in tables:
        rows, nbytes = rows + table.num_rows, nbytes + table.nbytes
        if not portion.holds(rows, nbytes):
            return None
        parts.append(table)
    return pa.concat_tables([schema.empty_table(), *parts])


class Chunks:
    """The numbered pieces of one version: `n` of them, or enough that each fits the portion."""

    def __init__(
        self,
        tables: Iterator[pa.Table],
        schema: pa.Schema,
        *,
        portion: Portion | None = None,
        n: int = 0,
    ) -> None:
        self._scratch = ScratchFolder()
        self._schema = schema
        try:
            if portion is not None:
                whole = self._path("whole")
                rows, nbytes = _spooled(tables, schema, whole)
                tables, n = _tables(whole), min(MOST, portion.pieces(rows, nbytes))
            self.n = n
            self._cut(tables)
        except BaseException as e:
            self.close()
            if not isinstance(e, OSError):
                raise
            raise SourceError(
                f"a version of many rows is read in pieces, which could not be written to "
                f"{self._scratch.path}: {e}; make room there, name another folder as TMPDIR, or "
                "raise max_bytes and max_rows"
            ) from e

    def read(self, number: int) -> pa.Table:
        """The rows of one piece."""
        return pa.concat_tables([self._schema.empty_table(), *_tables(self._path(number))])

    def close(self) -> None:
        """Remove the files."""
        self._scratch.remove()

    def _path(self, name: object) -> Path:
        return self._scratch.path / f"{name}.arrow"

    def _cut(self, tables: Iterator[pa.Table]) -> None:
        names = [name for name in self._schema.names if name != COUNT]
        with ExitStack() as files:
            writers = [
                files.enter_context(pa.OSFile(str(self._path(i)), "wb")) for i in range(self.n)
            ]
            streams = [
                files.enter_context(pa.ipc.new_stream(file, self._schema)) for file in writers
            ]
            for table in tables:
                hashes = key_hashes(table, names)
                numbers = hashes % np.uint64(self.n)
                for i in np.unique(numbers):
                    streams[int(i)].write_table(table.filter(pa.array(numbers == i)))


def _spooled(tables: Iterator[pa.Table], schema: pa.Schema, path: Path) -> tuple[int, int]:
    """Write rows to a file; returns their number and their bytes."""
    rows = nbytes = 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        for table in tables:
            rows, nbytes = rows + table.num_rows, nbytes + table.nbytes
            stream.write_table(table)
    return rows, nbytes


class InPieces:
    """Base of sources that read a large version in pieces; it keeps the pieces of one version."""

    def __init__(self) -> None:
        self._columns = pa.schema([])
        self._kept: tuple[Position, Chunks] | None = None

    def open(self, columns: pa.Schema) -> None:
        """Set the wanted columns."""
        self._columns = columns

    def close(self) -> None:
        """Remove temporary files."""
        if self._kept is not None:
            self._kept[1].close()
            self._kept = None

    def _keep(self, at: Position, pieces: Chunks) -> None:
        """Keep the pieces of the rows after a position."""
        InPieces.close(self)
        self._kept = at, pieces

    def _pieces(self, at: Position, n: int, cut: Callable[[], Chunks]) -> Chunks:
        """The pieces of the rows after a position; cut again if this process has not kept them."""
        if self._kept is None or self._kept[0] != at or self._kept[1].n != n:
            self._keep(at, cut())
        assert self._kept is not None
        return self._kept[1]


def _tables(path: Path) -> Iterator[pa.Table]:
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield pa.Table.from_batches([batch])
