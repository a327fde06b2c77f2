"""Rows that Spark's tasks send to each other as blobs.

A blob is a row of a DataFrame: the number of a part of the keys, a tag for the kind of its rows,
and the rows in Arrow's format. Spark exchanges blobs by the number of the part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from stepping_spark.base.packages import DataFrame
from stepping_spark.relations.hashing import key_hashes

Blob: TypeAlias = tuple[int, int, Any]

DDL = "part INT NOT NULL, tag INT NOT NULL, bytes BINARY NOT NULL"
"""The columns of a DataFrame of blobs."""

_TYPES = {"part": pa.int32(), "tag": pa.int32(), "bytes": pa.binary()}
SCHEMA = pa.schema([pa.field(name, t, nullable=False) for name, t in _TYPES.items()])

BLOB_ROWS = 1 << 17
"""The most rows of a blob."""

_ALIGNED = 64
"""The alignment of blobs in a file, in bytes, which is Arrow's alignment of buffers."""

_HALF = np.uint64(32)


def cut(
    rows: pa.Table, keys: pa.Table, names: Sequence[str], parts: int
) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each part of the keys, by the hash of some columns of `keys`, row by row."""
    hashes = key_hashes(keys, names)
    numbers = ((hashes >> _HALF) * np.uint64(parts) >> _HALF).astype(np.uint16)
    ordered = rows.take(np.argsort(numbers, kind="stable"))
    at = 0
    for part, count in enumerate(np.bincount(numbers, minlength=parts).tolist()):
        if count:
            yield part, ordered.slice(at, count)
        at += count


def packed(table: pa.Table) -> Iterator[Any]:
    """Rows as the bytes of blobs."""
    for at in range(0, table.num_rows, BLOB_ROWS):
        rows = table.slice(at, BLOB_ROWS)
        # A growing sink would copy its content again and again.
        size = pa.MockOutputStream()
        _write(rows, size)
        blob = pa.allocate_buffer(size.size())
        _write(rows, pa.FixedSizeBufferWriter(blob))
        yield blob


def _write(rows: pa.Table, sink: Any) -> None:
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)


def unpacked(blobs: Iterable[Any]) -> pa.Table:
    """The rows of blobs."""
    return pa.concat_tables([pa.ipc.open_stream(b).read_all() for b in blobs])


def blob_row(part: int, tag: int, data: Any) -> pa.RecordBatch:
    """A blob as a row, without a copy of its bytes."""
    data = pa.py_buffer(data)
    ends = pa.array([0, data.size], pa.int32()).buffers()[1]
    rows = pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])
    numbers = [pa.array([n], pa.int32()) for n in (part, tag)]
    return pa.RecordBatch.from_arrays([*numbers, rows], schema=SCHEMA)


def blobs_of(rows: pa.RecordBatch | pa.Table) -> Iterator[Blob]:
    """The blobs in rows. Only unaligned blobs are copied."""
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    for batch in filter(len, batches):
        parts, tags, binary = map(batch.column, SCHEMA.names)
        ends: Any
        _, ends, data = binary.buffers()
        assert data is not None
        begin, *stops = np.frombuffer(ends, np.int32)[binary.offset :][: len(binary) + 1].tolist()
        numbers = (column.to_numpy().tolist() for column in (parts, tags))
        for part, tag, stop in zip(*numbers, stops, strict=True):
            blob = data.slice(begin, stop - begin)
            yield part, tag, pa.py_buffer(bytes(blob)) if blob.address % _ALIGNED else blob
            begin = stop


@dataclass(frozen=True)
class BlobFile:
    """Blobs in a file that tasks of this machine map, without going through Spark.

    `places` has, for each part of the keys, the tag, the first byte, and the bytes of each blob.
    """

    path: str
    places: Mapping[int, Sequence[tuple[int, int, int]]]

    @classmethod
    def written(cls, path: str, blobs: Iterable[Blob]) -> BlobFile:
        """Write blobs to a new file."""
        places: dict[int, list[tuple[int, int, int]]] = {}
        with pa.OSFile(path, "wb") as sink:
            for part, tag, data in blobs:
                sink.write(bytes(-sink.tell() % _ALIGNED))
                places.setdefault(part, []).append((tag, sink.tell(), memoryview(data).nbytes))
                sink.write(data)
        return cls(path, places)

    def of_part(self, part: int) -> Iterator[pa.RecordBatch]:
        """The blobs of a part of the keys, as rows."""
        with pa.memory_map(self.path) as source:
            for tag, at, nbytes in self.places.get(part, ()):
                source.seek(at)
                yield blob_row(part, tag, source.read_buffer(nbytes))


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches as fewer tables, so that blobs of their rows are large."""
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(b.num_rows for b in some) >= BLOB_ROWS:
            yield pa.Table.from_batches(some)
            some = []
    if some:
        yield pa.Table.from_batches(some)


def in_parts(frame: DataFrame, parts: int) -> DataFrame:
    """The blobs, repartitioned so that all blobs of a part of the keys are in one task."""
    if hasattr(frame, "repartitionById"):  # since Spark 4.1
        return frame.repartitionById(parts, "part")
    return frame.repartition(parts, "part")
