"""Merges batches that are in files, slice by slice, into new files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from stepping_spark.relations.hashing import Hashes
from stepping_spark.relations.store import Register
from stores.batches.compaction import MERGED_ROWS
from stores.batches.driver import DriverBatch, settled
from stores.parquet.file_validation import GROUP_ROWS
from stores.parquet.files import FileReader, FileWriter, Group
from stores.parquet.manifest import FileBatch

GREATEST_PLACE = 2**64 - 1

MERGED_HERE_ROWS = 1 << 21
"""Rows that the driver merges in one step, or the store's `driver_rows` if that is larger.

Beyond: Spark merges.
"""

Slices = Iterator[tuple[pa.Table, Hashes, int]]


class Cursor:
    """The rows of a batch in order of place, read on demand.

    Limited to the places from `low` on and before `high`.
    """

    def __init__(
        self,
        batch: FileBatch,
        register: Register,
        reader: FileReader,
        low: int = 0,
        high: int = GREATEST_PLACE + 1,
    ) -> None:
        self._register = register
        self._reader = reader
        self._low, self._high = low, high
        self._groups = self._groups_within(batch)
        self._rows: list[pa.RecordBatch] = []
        self._places: Hashes = np.zeros(0, np.uint64)
        # The rows that were not taken yet, also those outside of the limits: for shares of a slice.
        self.rows_left = sum(file.rows for file in batch.files)

    @property
    def has_more_groups(self) -> bool:
        """Whether some row groups were not read yet."""
        return bool(self._groups)

    @property
    def at_hand(self) -> int:
        """The number of rows that were read, and not returned yet."""
        return len(self._places)

    @property
    def last_place(self) -> int:
        """The greatest place at hand; 0 if no rows are."""
        return int(self._places[-1]) if len(self._places) else 0

    def fill(self, rows: int) -> None:
        """Read until this number of rows is at hand."""
        while self._groups and len(self._places) < rows:
            groups = self._groups[: max((rows - len(self._places)) // GROUP_ROWS, 1)]
            del self._groups[: len(groups)]
            # Merged rows are not read again, so they are not added to the cache.
            for group in self._reader.groups(groups, self._register, keep=False):
                self._append(group)

    def take_before(self, limit: int | None) -> tuple[list[pa.RecordBatch], Hashes]:
        """Remove and return the rows at hand whose place is before the limit, and their places.

        Without a limit, all rows at hand.
        """
        count = len(self._places)
        if limit is not None:
            count = int(np.searchsorted(self._places, np.uint64(limit)))
        batch = DriverBatch(tuple(self._rows), self._places)
        taken = batch.between(0, count), self._places[:count]
        self._rows = batch.between(count, batch.rows)
        self._places = self._places[count:]
        self.rows_left -= count
        return taken

    def _append(self, group: DriverBatch) -> None:
        """Add the rows of a row group within the limits to the rows at hand."""
        begin = int(np.searchsorted(group.places, np.uint64(self._low)))
        end = group.rows
        if self._high <= GREATEST_PLACE:
            end = int(np.searchsorted(group.places, np.uint64(self._high)))
        self._rows += group.between(begin, end)
        self._places = np.concatenate([self._places, group.places[begin:end]])

    def _groups_within(self, batch: FileBatch) -> list[Group]:
        """The row groups that may have rows within the limits, by the bounds of their places."""
        groups: list[Group] = []
        for file in batch.files:
            if file.first < self._high and file.last >= self._low:
                bounds = self._reader.bounds(file)
                groups += (
                    (file, i)
                    for i, (first, last) in enumerate(zip(bounds.firsts, bounds.lasts, strict=True))
                    if int(first) < self._high and int(last) >= self._low
                )
        return groups


def slices(cursors: Sequence[Cursor], register: Register) -> Slices:
    """The rows of all cursors, in order and consolidated, slice by slice.

    Each slice comes with the number of its rows before consolidation.
    """
    schema = register.schema.arrow
    while any(cursor.has_more_groups or cursor.rows_left > 0 for cursor in cursors):
        total_left = sum(max(cursor.rows_left, 0) for cursor in cursors)
        for cursor in cursors:
            cursor.fill(-(-MERGED_ROWS * max(cursor.rows_left, 0) // max(total_left, 1)))
        while True:
            # All rows of one place go into one slice: equal rows are among them.
            limit = min(
                (cursor.last_place for cursor in cursors if cursor.has_more_groups), default=None
            )
            parts = [cursor.take_before(limit) for cursor in cursors]
            places = np.concatenate([p for _, p in parts])
            if len(places) or limit is None:
                break
            for cursor in cursors:
                if cursor.has_more_groups and cursor.last_place == limit:
                    cursor.fill(cursor.at_hand + 1)
        if not len(places):
            return
        rows = pa.Table.from_batches(
            [b for batches, _ in parts for b in batches], schema
        ).combine_chunks()
        yield (*settled(rows, places, register), len(places))


class FileMerge:
    """A merge of neighbouring batches in files into one. It keeps about one slice in memory.

    No manifest names its files until it is complete. If a call has more rows to merge than the
    driver should, `in_spark` merges the whole batches.
    """

    def __init__(
        self,
        batches: Sequence[FileBatch],
        register: Register,
        reader: FileReader,
        writer: FileWriter,
        in_spark: Callable[[], FileBatch],
        driver_rows: int,
    ) -> None:
        self._rows = sum(b.rows for b in batches)
        cursors = [Cursor(b, register, reader) for b in batches]
        self._slices = slices(cursors, register)
        self._reader = reader
        self._writer = writer
        self._in_spark = in_spark
        self._driver_limit = max(driver_rows, MERGED_HERE_ROWS)
        self._last_slice: tuple[pa.Table, Hashes, int] | None = None
        self._slice_count = 0

    def work(self, rows: int) -> tuple[FileBatch, ...] | None:
        """Merge about `rows` more rows. None until it is complete; then the batch, if any."""
        if min(rows, self._rows) > self._driver_limit:
            self._writer.abandon()
            return _or_none(self._in_spark())
        try:
            while rows > 0:
                merged_slice = next(self._slices, None)
                if merged_slice is None:
                    return self._finish()
                self._writer.append(*merged_slice[:2])
                self._last_slice, self._slice_count = merged_slice, self._slice_count + 1
                rows -= merged_slice[2]
        except BaseException:
            self._writer.abandon()
            raise
        return None

    def _finish(self) -> tuple[FileBatch, ...]:
        """The batch of the written files. If it has one slice, the reader keeps its rows."""
        batch = self._writer.batch()
        if self._last_slice is not None and self._slice_count == 1:
            self._reader.keep_small(batch, *self._last_slice[:2])
        return _or_none(batch)


def _or_none(batch: FileBatch) -> tuple[FileBatch, ...]:
    return (batch,) if batch.rows else ()
