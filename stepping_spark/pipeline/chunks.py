"""One version of more rows than a step takes, in pieces that are the same in every process.

Which piece a row is in follows from its hash, so the order in which a source reads does not matter,
and a row that goes is in the piece in which the same row comes. The pieces lie in temporary files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from stepping_spark.base.errors import SourceError
from stepping_spark.pipeline.protocols import Portion, Position
from stepping_spark.relations.hashing import key_hashes
from stepping_spark.rows.schema import COUNT

MOST = 500
"""Pieces of one version: each is an open file while they are made."""


def least_bytes(rows: int, schema: pa.Schema) -> int:
    """The bytes in Arrow that so many rows have at least."""
    bits = sum(_bits(field.type) for field in schema)
    return rows * bits // 8


def _bits(t: pa.DataType) -> int:
    try:
        return t.bit_width
    except ValueError:  # texts, lists and structs; the first two have an offset
        return 0 if pa.types.is_struct(t) else 32


def at_most(tables: Iterator[pa.Table], schema: pa.Schema, portion: Portion) -> pa.Table | None:
    """All rows, in one table; None: they are more than the portion."""
    parts: list[pa.Table] = []
    rows = nbytes = 0
    for table in tables:
        rows, nbytes = rows + table.num_rows, nbytes + table.nbytes
        if not portion.holds(rows, nbytes):
            return None
        parts.append(table)
    return pa.concat_tables([schema.empty_table(), *parts])


class Chunks:
    """The pieces of one version, by number: `n` of them, or so many that a step takes each."""

    def __init__(
        self,
        tables: Iterator[pa.Table],
        schema: pa.Schema,
        *,
        portion: Portion | None = None,
        n: int = 0,
    ) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="stepping-pieces-")
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
                f"{self._scratch.name}: {e}; make room there, name another folder as TMPDIR, or "
                "raise max_bytes and max_rows"
            ) from e

    def read(self, number: int) -> pa.Table:
        """The rows of one piece."""
        return pa.concat_tables([self._schema.empty_table(), *_tables(self._path(number))])

    def close(self) -> None:
        """Remove the files."""
        self._scratch.cleanup()

    def _path(self, name: object) -> Path:
        return Path(self._scratch.name) / f"{name}.arrow"

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
    """Write rows to a file; gives how many they are, and their bytes."""
    rows = nbytes = 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        for table in tables:
            rows, nbytes = rows + table.num_rows, nbytes + table.nbytes
            stream.write_table(table)
    return rows, nbytes


class InPieces:
    """What a source keeps that reads a version of many rows in pieces: those of one version."""

    def __init__(self) -> None:
        self._columns = pa.schema([])
        self._kept: tuple[Position, Chunks] | None = None

    def open(self, columns: pa.Schema) -> None:
        """Say which columns are wanted."""
        self._columns = columns

    def close(self) -> None:
        """Remove temporary files."""
        if self._kept is not None:
            self._kept[1].close()
            self._kept = None

    def _keep(self, at: Position, pieces: Chunks) -> None:
        """Keep the pieces of what comes after a position."""
        InPieces.close(self)
        self._kept = at, pieces

    def _pieces(self, at: Position, n: int, cut: Callable[[], Chunks]) -> Chunks:
        """The pieces of what comes after a position; cut anew where another process cut them."""
        if self._kept is None or self._kept[0] != at or self._kept[1].n != n:
            self._keep(at, cut())
        assert self._kept is not None
        return self._kept[1]


def _tables(path: Path) -> Iterator[pa.Table]:
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield pa.Table.from_batches([batch])
