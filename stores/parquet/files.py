"""Rows of a register as Parquet files: written in order of place, read by row groups.

A file of a register has the columns of its schema and one more, `_place_`: see
`stores.batches.driver`. The statistics of that column show which row groups can hold a key,
whatever its type is. Files never change once they are written, so their parts can be cached.

Decoding a row group takes as long as looking up thousands of keys. So once lookups have decoded as
many row groups of a large file as it has, its rows are copied to a mapped file in Arrow's memory
layout: after that, a read touches only the pages with its keys.

There are no bloom filters, and no buckets: places are hashes of keys, and rows are sorted by them,
so that the least and the greatest place of a row group select better than a bloom filter. Three
keys of ten million rows were found by reading 0.08 to 0.29 % of the bytes.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stepping_spark.base.limits import Limits
from stepping_spark.relations.arrow import empty
from stepping_spark.relations.codec import conform
from stepping_spark.relations.hashing import Hashes
from stepping_spark.relations.placement import bytes_given
from stepping_spark.relations.store import Register
from stepping_spark.rows.schema import Schema
from stores.batches.driver import DriverBatch, Ranges
from stores.batches.mapped import joined, nameless
from stores.parquet.directories import Directory, LocalDirectory
from stores.parquet.file_validation import (
    GROUP_BYTES,
    GROUP_ROWS,
    Content,
    Damaged,
    bounds_of,
    check_content,
    check_file,
    check_places,
    opened_file,
    place_column,
    read_rows,
)
from stores.parquet.manifest import DATA, File, FileBatch
from stores.threads import side_by_side

ENTRY_BYTES = 400
"""The approximate overhead of an entry of the cache, in bytes."""

Group: TypeAlias = tuple[File, int]
Part: TypeAlias = int | None
Pick: TypeAlias = Callable[[DriverBatch], pa.Table | None]

GROUPS_AT_ONCE = 128
"""Row groups that are in memory at a time, in addition to the cache, to find keys in them.

Beyond: they are read in several groups, one after the other.
"""

GIVEN_PARTS = 16
"""Parts that such a read of row groups returns. Beyond: they are copied into one."""

ROWS_PER_FILE = 1 << 20
"""Rows of a file. Beyond: another file."""

FILES_PER_BATCH = 64
"""Files of one batch. Beyond: its files have more rows."""

COPIED_ROWS = 1 << 16
"""Rows of a file from which on it may be copied to a mapped file."""

DECODED = 8
"""The approximate limit of the memory that decoding takes, in bytes per byte of a file."""

FEW_GROUPS = 16
"""A read of at most 1/16 of a file's row groups does not count towards a copy of the file."""

COPIED_BYTES = 16 << 30
"""Bytes of such copies, or a quarter of the free space of their disk. Beyond: no more are made."""

CHECKED = -1
"""The cache entry for a file whose footer was checked against the manifest; not a row group."""


class ReadCache:
    """The most recently used parts of files, up to a number of bytes.

    A part is the number of a row group, None for the bounds of all row groups, or `CHECKED`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str, Part], tuple[object, int]] = OrderedDict()
        self._parts: dict[str, set[Part]] = {}
        self._lock = threading.Lock()
        self.nbytes = 0

    def is_large(self, nbytes: int) -> bool:
        """Whether so many bytes of files would fill much of the cache: rows take more in memory."""
        return nbytes > self._most // 16

    def get(self, name: str, part: Part) -> object | None:
        """The cached part of a file."""
        with self._lock:
            if (name, part) not in self._kept:
                return None
            self._kept.move_to_end((name, part))
            return self._kept[name, part][0]

    def put(self, name: str, part: Part, value: object, nbytes: int) -> None:
        """Add a part, and drop the least recently used parts."""
        with self._lock:
            self._drop(name, part)
            self._kept[name, part] = (value, nbytes + ENTRY_BYTES)
            self._parts.setdefault(name, set()).add(part)
            self.nbytes += nbytes + ENTRY_BYTES
            while self.nbytes > self._most:
                self._drop(*next(iter(self._kept)))

    def keep_only(self, names: AbstractSet[str]) -> None:
        """Drop the parts of all other files."""
        with self._lock:
            for name in self._parts.keys() - names:
                for part in tuple(self._parts[name]):
                    self._drop(name, part)

    def drop_groups(self, name: str) -> None:
        """Drop the row groups of a file."""
        with self._lock:
            for part in [p for p in self._parts.get(name, ()) if p not in (None, CHECKED)]:
                self._drop(name, part)

    def _drop(self, name: str, part: Part) -> None:
        entry = self._kept.pop((name, part), None)
        if entry is not None:
            self.nbytes -= entry[1]
            self._parts[name].remove(part)
            if not self._parts[name]:
                del self._parts[name]


class Copies:
    """Copies of large files in which keys are often looked up: mapped, in Arrow's memory layout.

    The mapped files have no names, so they disappear with their reader, or once the state drops
    their file, even if the process is killed.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._copies: dict[str, DriverBatch] = {}
        self._decoded = Counter[str]()  # row groups, by file
        self._made: set[str] = set()  # files that were copied, are being copied, or had no room
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """The bytes of all copies."""
        return sum(copy.nbytes for copy in list(self._copies.values()))

    def get(self, name: str) -> DriverBatch | None:
        """The copy of a file."""
        return self._copies.get(name)

    def are_due(self, name: str, missing: int, groups: int) -> bool:
        """Whether to copy a file with `groups` row groups, before a read decodes `missing` of them.

        True once: when more row groups were decoded than it has. Reads of few do not count.
        """
        if not self._most or name in self._made or missing * FEW_GROUPS <= groups:
            return False
        with self._lock:
            self._decoded[name] += missing
            if self._decoded[name] <= groups or name in self._made:
                return False
            self._made.add(name)
            return True

    def add(self, name: str, rows: DriverBatch) -> DriverBatch:
        """The rows of a file, in a copy if there is room for it."""
        try:
            free = shutil.disk_usage(tempfile.gettempdir()).free
            if self.nbytes + rows.nbytes > min(self._most, free // 4):
                return rows
            copy = nameless(rows)
        except OSError:  # the disk is full, or there is no folder for it
            self._most = 0
            return rows
        self._copies[name] = copy
        return copy

    def keep_only(self, names: AbstractSet[str]) -> None:
        """Drop the copies of all other files."""
        with self._lock:
            self._made &= names
            for name in [n for n in {**self._copies, **self._decoded} if n not in names]:
                self._decoded.pop(name, None)
                self._copies.pop(name, None)

    def close(self) -> None:
        """Drop all copies, and make no more."""
        self._most = 0
        self._copies = {}


@dataclass(frozen=True, eq=False)
class Bounds:
    """The least and the greatest place of each row group of a file, and the file's metadata."""

    firsts: Hashes
    lasts: Hashes
    metadata: pq.FileMetaData | None = None


class FileReader:
    """Reads files of a directory, and caches their parts."""

    def __init__(self, directory: Directory, cache_bytes: int) -> None:
        self.directory = directory
        self._cache = ReadCache(cache_bytes)
        self._copies = Copies(COPIED_BYTES if cache_bytes else 0)

    @property
    def cached_bytes(self) -> int:
        """The approximate memory of the cache."""
        return self._cache.nbytes

    @property
    def copied_bytes(self) -> int:
        """The bytes of files that are copied and mapped."""
        return self._copies.nbytes

    def keep_only(self, names: AbstractSet[str]) -> None:
        """Drop the cached parts and copies of all other files, which were merged or deleted."""
        self._cache.keep_only(names)
        self._copies.keep_only(names)

    def close(self) -> None:
        """Remove the copies of files."""
        self._copies.close()

    def table(self, batch: FileBatch, register: Register) -> pa.Table:
        """All rows of a batch. A large one is not cached: it would evict parts read by key."""
        if self._cache.is_large(batch.nbytes):
            tables = side_by_side(lambda f: self._whole(f, register), batch.files)
        else:
            tables = [g.table for g in self.groups(self.all_groups(batch), register)]
        return pa.concat_tables(tables) if tables else empty(register.schema)

    def _whole(self, f: File, register: Register) -> pa.Table:
        """All rows of a file of a register."""
        table = self.load(f, None, None, content_of(register))
        places = table.column(place_column(register.schema)).to_numpy()
        check_places(f, places, f.first, f.last)
        return conform(table, register.schema)

    def plain(self, batch: FileBatch, content: Content) -> pa.Table:
        """All rows of a batch that has no places."""
        tables = side_by_side(lambda f: self.load(f, None, None, content), batch.files)
        schema = content.schema
        return conform(pa.concat_tables(tables), schema) if tables else empty(schema)

    def all_groups(self, batch: FileBatch) -> list[Group]:
        """The row groups of a batch, in order."""
        return [(f, i) for f in batch.files for i in range(len(self.bounds(f).firsts))]

    def groups_with(self, batch: FileBatch, wanted: Ranges) -> list[Group]:
        """The row groups that may have rows in some ranges of places."""
        keys, ends = wanted
        candidates: list[Group] = []
        for f in batch.files:
            at = int(np.searchsorted(ends, np.uint64(f.first)))
            if at < len(keys) and int(keys[at]) <= f.last:
                bounds = self.bounds(f)
                begins = np.searchsorted(ends, bounds.firsts)
                hit = begins < np.searchsorted(keys, bounds.lasts, side="right")
                candidates += ((f, int(i)) for i in np.flatnonzero(hit))
        return candidates

    def missing(self, groups: Sequence[Group]) -> int:
        """The number of row groups that are neither cached nor copied."""
        copied = self._copies.get
        return sum(not copied(f.name) and self._cache.get(f.name, i) is None for f, i in groups)

    def at(
        self, groups: Sequence[Group], pick: Pick, register: Register, limits: Limits
    ) -> list[pa.Table] | None:
        """The rows that `pick` selects from row groups; reads a limited number of them at a time.

        None if these are more rows or bytes than the driver may read by key, by the limits.
        """
        tables: list[pa.Table] = []
        rows = nbytes = 0
        most, most_bytes = limits.given_rows, bytes_given(limits)
        for some in self._read(groups, register, most_bytes):
            parts = [part for g in some if (part := pick(g)) is not None]
            if len(parts) > GIVEN_PARTS:
                parts = [pa.concat_tables(parts).combine_chunks()]
            rows += sum(part.num_rows for part in parts)
            nbytes += sum(part.nbytes for part in parts)
            tables += parts
            if rows > most or nbytes > most_bytes:
                return None
        return tables

    def _read(
        self, groups: Sequence[Group], register: Register, most_bytes: int
    ) -> Iterator[list[DriverBatch]]:
        """The rows of row groups, some at a time; all rows of a file that has a copy.

        `most_bytes` limits the memory for decoding a file.
        """
        wanted: dict[File, list[Group]] = {}
        for group in groups:
            wanted.setdefault(group[0], []).append(group)
        left: list[Group] = []
        most = len(groups)  # so that copies take about as long as decoding the wanted groups
        for f, of_file in wanted.items():
            copy: DriverBatch | None = self._copies.get(f.name)
            if copy is None and f.rows >= COPIED_ROWS and f.nbytes * DECODED <= most_bytes:
                missing, every = self.missing(of_file), len(self.bounds(f).firsts)
                if most > 0 and self._copies.are_due(f.name, missing, every):
                    most -= every
                    copy = self._copied(f, register)
            if copy is None:
                left += of_file
            else:
                yield [copy]
        for i in range(0, len(left), GROUPS_AT_ONCE):
            yield self.groups(left[i : i + GROUPS_AT_ONCE], register)

    def _copied(self, f: File, register: Register) -> DriverBatch:
        """All rows of a file, in a copy if there is room for it."""
        rows = joined(self.groups(self.all_groups(FileBatch((f,))), register, keep=False))
        self._cache.drop_groups(f.name)
        return self._copies.add(f.name, rows)

    def groups(
        self, wanted: Sequence[Group], register: Register, *, keep: bool = True
    ) -> list[DriverBatch]:
        """The rows of row groups, each in order of place."""
        batch_of: dict[Group, DriverBatch] = {}
        missing: dict[File, list[int]] = {}
        for f, i in wanted:
            cached = self._cache.get(f.name, i)
            if isinstance(cached, DriverBatch):
                batch_of[f, i] = cached
            else:
                missing.setdefault(f, []).append(i)

        content = content_of(register)

        def load(f: File) -> list[DriverBatch]:
            bounds = self.bounds(f)
            metadata = bounds.metadata
            if metadata is None:
                sizes, table = [f.rows], self.load(f, None, None, content)
            else:
                sizes = [metadata.row_group(i).num_rows for i in missing[f]]
                table = self.load(f, missing[f], metadata, content)
            loaded = list(_cut(table, sizes, register))
            for i, rows in zip(missing[f], loaded, strict=True):
                check_places(f, rows.places, int(bounds.firsts[i]), int(bounds.lasts[i]))
            return loaded

        for f, loaded in zip(missing, side_by_side(load, list(missing)), strict=True):
            for i, rows in zip(missing[f], loaded, strict=True):
                batch_of[f, i] = rows
                if keep:
                    self.keep((f, i), rows)
        return [batch_of[g] for g in wanted]

    def keep(self, group: Group, rows: DriverBatch) -> None:
        """Cache the rows of a row group."""
        self._cache.put(group[0].name, group[1], rows, rows.nbytes)

    def keep_small(self, batch: FileBatch, rows: pa.Table, places: Hashes) -> None:
        """Cache the rows of a batch that was just written, if it has a single row group."""
        if 0 < batch.rows <= GROUP_ROWS and len(batch.files) == 1:
            pieces = tuple(rows.combine_chunks().to_batches())
            self.keep((batch.files[0], 0), DriverBatch(pieces, places))

    def bounds(self, f: File) -> Bounds:
        """The bounds of the row groups of a file; a file with few rows has a single one."""
        if f.rows <= GROUP_ROWS:
            return Bounds(np.array([f.first], np.uint64), np.array([f.last], np.uint64))
        cached = self._cache.get(f.name, None)
        if isinstance(cached, Bounds):
            return cached
        with self._source(f) as source:
            metadata = opened_file(source).metadata
            check_file(f, metadata)
            bounds = Bounds(*bounds_of(f, metadata), metadata)
        # In memory metadata takes twelve times its size in the file.
        self._cache.put(f.name, None, bounds, 12 * metadata.serialized_size)
        return bounds

    def metadata(self, f: File, content: Content) -> pq.FileMetaData:
        """The metadata of a file, after a check against its description."""
        with self._source(f) as source:
            opened = opened_file(source)
            check_file(f, opened.metadata)
            check_content(f, opened, content)
            return opened.metadata

    def check(self, f: File, content: Content) -> None:
        """Raise `Damaged` if the footer does not match the file's description."""
        if self._cache.get(f.name, CHECKED) is None:
            self.metadata(f, content)
            self._cache.put(f.name, CHECKED, True, 0)

    def load(
        self,
        f: File,
        groups: Sequence[int] | None,
        metadata: pq.FileMetaData | None,
        content: Content,
    ) -> pa.Table:
        """The rows of some row groups of a file, or of all; `metadata` is given if it is known."""
        with self._source(f) as source:
            return read_rows(source, f, groups, metadata, content)

    @contextmanager
    def _source(self, f: File) -> Iterator[pa.NativeFile]:
        """An open file. Errors while it is read become `Damaged`."""
        try:
            with self.directory.input(f.name, f.nbytes) as source:
                yield source
        except FileNotFoundError as e:
            raise Damaged(f"{f.name} is missing") from e
        except (pa.ArrowException, EOFError, ValueError, OverflowError) as e:
            raise Damaged(f"{f.name} cannot be read as Parquet: {e}") from e
        except OSError as e:
            # Errors about the content of a file are OSErrors too, without an errno.
            if e.errno is None and isinstance(self.directory, LocalDirectory):
                raise Damaged(f"{f.name} cannot be read as Parquet: {e}") from e
            raise


def content_of(register: Register) -> Content:
    """The content of the files of a register."""
    name = register.stored_as or register.name
    return Content(f"register {name!r}", register.schema, places=True)


def output_content(number: int, schema: Schema) -> Content:
    """The content of the files of an output."""
    return Content(f"output {number}", schema, places=False)


def _cut(table: pa.Table, sizes: Sequence[int], register: Register) -> Iterator[DriverBatch]:
    """The rows of row groups, each on its own."""
    places = table.column(place_column(register.schema)).to_numpy()
    rows = conform(table, register.schema)
    start = 0
    for size in sizes:
        part = rows.slice(start, size)
        if len(sizes) > 1:  # a copy: a part of the whole would keep all of it in memory
            part = part.take(np.arange(size))
        own = places[start : start + size].copy()
        yield DriverBatch(tuple(part.combine_chunks().to_batches()), own)
        start += size


def rows_of_file(rows: int) -> int:
    """The number of rows of each file, for a batch with this number of rows."""
    return max(ROWS_PER_FILE, -(-rows // FILES_PER_BATCH))


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
        """Add rows after the previous ones."""
        if not rows.num_rows:
            return
        if self._place is not None:
            assert places is not None
            rows = rows.append_column(self._place, pa.array(places))
        self._waiting.append(rows)
        while sum(t.num_rows for t in self._waiting) >= GROUP_ROWS:
            self._write_group()

    def batch(self) -> FileBatch:
        """End the last file, and return the batch of all files."""
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
    """The options for Parquet's writer: compression, encodings and statistics."""
    return {
        "compression": "snappy",
        # Places are sorted hashes: the differences of neighbours compress best.
        "use_dictionary": [n for n, _ in schema.columns],
        "column_encoding": {place: "DELTA_BINARY_PACKED"} if place else None,
        # Rows are in the order of places only: statistics of other columns would be useless.
        "write_statistics": [place] if place else False,
        "write_page_checksum": True,
    }
