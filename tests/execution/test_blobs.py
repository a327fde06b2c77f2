"""Blobs: rows that tasks send to each other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as hs

from stepping_spark.relations.blobs import Blob, BlobFile, blob_row, blobs_of

BLOBS = hs.lists(
    hs.tuples(hs.integers(0, 9), hs.integers(-1, 1 << 21), hs.binary(max_size=200)), max_size=6
)


def read(rows: pa.RecordBatch | pa.Table) -> list[Blob]:
    return [(part, tag, held.to_pybytes()) for part, tag, held in blobs_of(rows)]


@given(BLOBS, hs.integers(0, 6), hs.booleans())
def test_blobs_are_read_from_rows_as_they_were_put_there(
    blobs: list[Blob], begin: int, whole: bool
) -> None:
    rows = pa.Table.from_batches([blob_row(*b) for b in blobs], blob_row(0, 0, b"").schema)
    rows = rows.combine_chunks() if whole else rows
    assert read(rows.slice(begin)) == blobs[begin:]
    assert [b for batch in rows.to_batches() for b in read(batch)] == blobs


@given(BLOBS.map(lambda blobs: [b for b in blobs if b[2]]))
def test_blobs_of_a_file_are_aligned_and_not_copied(
    tmp_path_factory: pytest.TempPathFactory, blobs: list[Blob]
) -> None:
    path = Path(tmp_path_factory.mktemp("blobs"), "blobs")
    file = BlobFile.written(str(path), blobs)
    for part in range(10):
        rows = list(file.of_part(part))
        assert [b for x in rows for b in read(x)] == [b for b in blobs if b[0] == part]
        for row in rows:
            ((_, _, held),) = blobs_of(row)
            of_file = row.column("bytes").buffers()[2]
            assert of_file is not None
            assert held.address == of_file.address
            assert held.address % 64 == 0
