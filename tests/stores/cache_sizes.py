"""Fills caches of a Parquet store's reader; prints what they count, and what they truly take.

    python -m tests.stores.cache_sizes

A process of its own: elsewhere, memory that others have freed would be used again.
"""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from stepping_spark.relations.store import Register
from stores.batches.driver import DriverBatch, Ranges, built
from stores.contract.values import BY_WORD, MIXED, mixed_row, relation_of
from stores.parquet.directories import directory_of
from stores.parquet.files import FileReader
from stores.parquet.manifest import File

BY_NUMBER = Register("mixed by number", MIXED, ("i",))
WARM = 300
"""Entries before the first look at memory: what Python and Arrow need in any case."""


def few(rows: int) -> DriverBatch:
    """Rows of a word and a number."""
    return built(relation_of(BY_WORD.schema, [(f"w{i}", i, 1) for i in range(rows)]), BY_WORD)


def mixed(rows: int) -> DriverBatch:
    """Rows of many types, some of them nested."""
    return built(relation_of(MIXED, [(*mixed_row(i), 1) for i in range(rows)]), BY_NUMBER)


CASES = {
    "three rows": (few(3), 15_000),
    "ten rows of many types": (mixed(10), 5_000),
    "a thousand rows": (few(1_000), 1_500),
}


def measured(directory: Path, one: DriverBatch, entries: int) -> tuple[FileReader, int, int]:
    """A reader with copies of a batch, each looked at once; the bytes it counts, and takes."""
    reader = FileReader(directory_of(directory, None), 1 << 40)
    every = pa.array(np.arange(one.rows), pa.int64())
    counted = taken = 0
    for i in range(WARM + entries):
        if i == WARM:
            gc.collect()
            counted, taken = reader.cached_bytes, psutil.Process().memory_info().rss
        batch = DriverBatch(tuple(p.take(every) for p in one.pieces), one.places.copy())
        batch.at(Ranges(batch.places[:1], batch.places[:1]))
        reader.keep((File(f"data/{i:016d}.parquet", batch.rows, 0, 0, 0), 0), batch)
    gc.collect()
    taken = psutil.Process().memory_info().rss - taken
    return reader, reader.cached_bytes - counted, taken


def main() -> None:
    """Print a line for each case: its name, the bytes that the cache counts, and those it takes."""
    with tempfile.TemporaryDirectory() as place:
        readers = []  # what they take must not be used again
        for case, (one, entries) in CASES.items():
            reader, counted, taken = measured(Path(place), one, entries)
            readers.append(reader)
            print(case, counted, taken, sep=";")


if __name__ == "__main__":
    main()
