"""Rows of a register as Parquet files: written in order of place, read by row groups.

A file of a register has the columns of its schema and one more, `_place_`: see `stores.batches`.
The statistics of that column say which row groups can hold a key, whatever its type is. Files
never change once they are written, so what was read of one may be kept.

There are no bloom filters, and no buckets: places are hashes of keys, and rows are sorted by them,
so that the least and the greatest place of a row group say more than a bloom filter would. Three
keys of ten million rows were found by reading 0.08 to 0.29 % of the bytes.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stepping_spark.codec import conform
from stepping_spark.hashing import Hashes
from stepping_spark.relations import empty
from stepping_spark.schema import Schema
from stepping_spark.store import Register
from stores.batches import DriverBatch, ends_of
from stores.filesystem import Directory, LocalDirectory, side_by_side
from stores.manifest import File, FileBatch

DATA = "data"
GROUP_ROWS = 1 << 13
"""The rows of a row group: what is read at least to find a key in a large file."""

GROUPS_AT_ONCE = 128
"""The row groups that are in memory at a time, beside the cache, to find keys in them."""

MANY_PARTS = 16
"""Above so many, relations are sooner copied into one than handed on."""

FILE_ROWS = 1 << 20
"""The rows of a file, or more where a batch would have many files."""

MOST_FILES = 64

Group: TypeAlias = tuple[File, int]


def place_column(schema: Schema) -> str:
    """The name of the column of places: one that the schema does not have."""
    name = "_place_"
    while name in (n.lower() for n, _ in schema.all):
        name += "_"
    return name


def rows_of_file(rows: int) -> int:
    """How many rows the files of a batch of so many have."""
    return max(FILE_ROWS, -(-rows // MOST_FILES))


# -- writing


class FileWriter:
    """Writes rows to one file after another: those that have places come in their order.

    What is written counts for nothing until `batch`, and is durable once it is synced.
    """

    def __init__(
        self, directory: Directory, stem: str, schema: Schema, file_rows: int, *, places: bool
    ) -> None:
        self._files: list[File] = []
        self._directory = directory
        self._stem = stem
        self._place = place_column(schema) if places else None
        self._schema = schema
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
        """End; gives what was written."""
        if self._waiting:
            self._write_group()
        self._end_file()
        self._names = []
        return FileBatch(tuple(self._files))

    def abandon(self) -> None:
        """Remove what was written, unless it has ended well."""
        if self._writer is not None:
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
            with suppress(OSError, pa.ArrowException):
                self._sink.close()
        with suppress(OSError):
            self._directory.remove(self._names)

    def _write_group(self) -> None:
        table = pa.concat_tables(self._waiting)
        group, rest = table.slice(0, GROUP_ROWS), table.slice(GROUP_ROWS)
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
        schema = self._schema.arrow
        if self._place is not None:
            schema = schema.append(pa.field(self._place, pa.uint64()))
        self._writer = pq.ParquetWriter(self._sink, schema, **_options(self._schema, self._place))
        self._rows = self._first = self._last = 0

    def _end_file(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        self._writer = None
        self._files.append(File(self._names[-1], self._rows, size, self._first, self._last))


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


# -- reading


class Cache:
    """What was read last, up to a number of bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[object, tuple[object, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.nbytes = 0

    def get(self, key: object) -> object | None:
        """What is kept under a key."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: object, value: object, nbytes: int) -> None:
        """Keep something, and drop what was not asked for the longest time."""
        with self._lock:
            _, before = self._kept.pop(key, (None, 0))
            self._kept[key] = (value, nbytes)
            self.nbytes += nbytes - before
            while self.nbytes > self._most:
                _, (_, freed) = self._kept.popitem(last=False)
                self.nbytes -= freed


@dataclass(frozen=True, eq=False)
class Bounds:
    """The least and the greatest place of each row group of a file; what else it says of them."""

    firsts: Hashes
    lasts: Hashes
    metadata: pq.FileMetaData | None = None


class Damaged(Exception):
    """A file that is not there, or cannot be read as what it was written as."""


class FileReader:
    """Reads files of a directory, and keeps what it has read in a cache."""

    def __init__(self, directory: Directory, cache_bytes: int) -> None:
        self.directory = directory
        self._cache = Cache(cache_bytes)

    def table(self, batch: FileBatch, register: Register) -> pa.Table:
        """All rows of a batch."""
        found = self.groups(self.all_groups(batch), register)
        return pa.concat_tables([g.table for g in found]) if found else empty(register.schema)

    def plain(self, batch: FileBatch, schema: Schema) -> pa.Table:
        """All rows of a batch that has no places."""
        tables = side_by_side(lambda f: self._load(f, None, None), batch.files)
        return conform(pa.concat_tables(tables), schema) if tables else empty(schema)

    def all_groups(self, batch: FileBatch) -> list[Group]:
        """The row groups of a batch, in order."""
        return [(f, i) for f in batch.files for i in range(len(self.bounds(f).firsts))]

    def wanted(self, batch: FileBatch, keys: Hashes) -> list[Group]:
        """The row groups that may have rows with these keys (as `wanted_places` gives them)."""
        ends = ends_of(keys)
        found: list[Group] = []
        for f in batch.files:
            at = int(np.searchsorted(ends, np.uint64(f.first)))
            if at < len(keys) and int(keys[at]) <= f.last:
                bounds = self.bounds(f)
                begins = np.searchsorted(ends, bounds.firsts)
                hit = begins < np.searchsorted(keys, bounds.lasts, side="right")
                found += ((f, int(i)) for i in np.flatnonzero(hit))
        return found

    def missing(self, groups: Sequence[Group]) -> int:
        """How many row groups would have to be read from files."""
        return sum(self._cache.get((f.name, i)) is None for f, i in groups)

    def at(
        self, groups: Sequence[Group], keys: Hashes, register: Register, most: int
    ) -> list[pa.Table] | None:
        """The rows of row groups that have one of the keys, not many groups at a time in memory.

        None where there are more than `most`.
        """
        found: list[pa.Table] = []
        rows = 0
        for i in range(0, len(groups), GROUPS_AT_ONCE):
            some = self.groups(groups[i : i + GROUPS_AT_ONCE], register)
            parts = [part for g in some if (part := g.at(keys)) is not None]
            found += (
                [pa.concat_tables(parts).combine_chunks()] if len(parts) > MANY_PARTS else parts
            )
            rows += sum(part.num_rows for part in parts)
            if rows > most:
                return None
        return found

    def groups(
        self, wanted: Sequence[Group], register: Register, *, keep: bool = True
    ) -> list[DriverBatch]:
        """The rows of row groups, each in order of place."""
        found: dict[Group, DriverBatch] = {}
        missing: dict[File, list[int]] = {}
        for f, i in wanted:
            kept = self._cache.get((f.name, i))
            if isinstance(kept, DriverBatch):
                found[f, i] = kept
            else:
                missing.setdefault(f, []).append(i)

        def load(f: File) -> list[DriverBatch]:
            metadata = self.bounds(f).metadata
            if metadata is None:
                return list(_cut(self._load(f, None, None), [f.rows], register))
            table = self._load(f, missing[f], metadata)
            sizes = [metadata.row_group(i).num_rows for i in missing[f]]
            return list(_cut(table, sizes, register))

        for f, loaded in zip(missing, side_by_side(load, list(missing)), strict=True):
            for i, rows in zip(missing[f], loaded, strict=True):
                found[f, i] = rows
                if keep:
                    self.keep((f, i), rows)
        return [found[g] for g in wanted]

    def keep(self, group: Group, rows: DriverBatch) -> None:
        """Keep the rows of a row group."""
        self._cache.put((group[0].name, group[1]), rows, rows.nbytes)

    def keep_small(self, batch: FileBatch, rows: pa.Table, places: Hashes) -> None:
        """Keep the rows of a batch that was just written, if it has but one row group."""
        if 0 < batch.rows <= GROUP_ROWS and len(batch.files) == 1:
            pieces = tuple(rows.combine_chunks().to_batches())
            self.keep((batch.files[0], 0), DriverBatch(pieces, places))

    def bounds(self, f: File) -> Bounds:
        """What the file says of its row groups; one with few rows has one."""
        if f.rows <= GROUP_ROWS:
            return Bounds(np.array([f.first], np.uint64), np.array([f.last], np.uint64))
        kept = self._cache.get(f.name)
        if isinstance(kept, Bounds):
            return kept
        with self.opened(f) as opened:
            metadata = opened.metadata
        column = metadata.num_columns - 1
        groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
        statistics = (g.column(column).statistics for g in groups)
        ends = np.array([(s.min, s.max) for s in statistics if s is not None], np.uint64)
        bounds = Bounds(ends[:, 0].copy(), ends[:, 1].copy(), metadata)
        # In memory metadata takes some times of what it takes in the file.
        self._cache.put(f.name, bounds, 8 * metadata.serialized_size)
        return bounds

    def _load(
        self, f: File, groups: Sequence[int] | None, metadata: pq.FileMetaData | None
    ) -> pa.Table:
        with self.opened(f, metadata) as opened:
            return opened.read() if groups is None else opened.read_row_groups(list(groups))

    @contextmanager
    def opened(self, f: File, metadata: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
        """A file to read from; a `Damaged` says what is wrong with it, also while it is read."""
        try:
            with (
                self.directory.input(f.name) as source,
                pq.ParquetFile(
                    source, metadata=metadata, page_checksum_verification=True
                ) as opened,
            ):
                yield opened
        except FileNotFoundError as e:
            raise Damaged(f"{f.name} is missing") from e
        except (pa.ArrowInvalid, EOFError) as e:
            raise Damaged(f"{f.name} cannot be read as Parquet: {e}") from e
        except OSError as e:
            # What is wrong within a file is an OSError too, which no system call has given.
            if e.errno is None and isinstance(self.directory, LocalDirectory):
                raise Damaged(f"{f.name} cannot be read as Parquet: {e}") from e
            raise


def _cut(table: pa.Table, sizes: Sequence[int], register: Register) -> Iterator[DriverBatch]:
    """The rows of row groups, each on its own."""
    places = table.column(place_column(register.schema)).to_numpy()
    rows = conform(table, register.schema)
    start = 0
    for size in sizes:
        part = rows.slice(start, size).combine_chunks()
        yield DriverBatch(tuple(part.to_batches()), places[start : start + size])
        start += size
