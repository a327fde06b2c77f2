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

LAST = 2**64 - 1  # the greatest place

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
        high: int = LAST + 1,
    ) -> None:
        self._register = register
        self._reader = reader
        self._low, self._high = low, high
        self._groups = self._within(batch)
        self._rows: list[pa.RecordBatch] = []
        self._places: Hashes = np.zeros(0, np.uint64)
        self.left = sum(f.rows for f in batch.files)  # about

    @property
    def more(self) -> bool:
        """Whether some row groups were not read yet."""
        return bool(self._groups)

    @property
    def at_hand(self) -> int:
        """The number of rows that were read, and not returned yet."""
        return len(self._places)

    @property
    def last(self) -> int:
        """The greatest place at hand; 0 if no rows are."""
        return int(self._places[-1]) if len(self._places) else 0

    def fill(self, rows: int) -> None:
        """Read until this number of rows is at hand."""
        while self._groups and len(self._places) < rows:
            some = self._groups[: max((rows - len(self._places)) // GROUP_ROWS, 1)]
            del self._groups[: len(some)]
            # Merged rows are not read again, so they are not added to the cache.
            for group in self._reader.groups(some, self._register, keep=False):
                self._take(group)

    def below(self, limit: int | None) -> tuple[list[pa.RecordBatch], Hashes]:
        """The rows at hand whose place is before the limit; without a limit, all."""
        count = len(self._places)
        if limit is not None:
            count = int(np.searchsorted(self._places, np.uint64(limit)))
        at_hand = DriverBatch(tuple(self._rows), self._places)
        taken = at_hand.between(0, count), self._places[:count]
        self._rows = at_hand.between(count, at_hand.rows)
        self._places = self._places[count:]
        self.left -= count
        return taken

    def _take(self, group: DriverBatch) -> None:
        begin = int(np.searchsorted(group.places, np.uint64(self._low)))
        end = group.rows
        if self._high <= LAST:
            end = int(np.searchsorted(group.places, np.uint64(self._high)))
        self._rows += group.between(begin, end)
        self._places = np.concatenate([self._places, group.places[begin:end]])

    def _within(self, batch: FileBatch) -> list[Group]:
        groups: list[Group] = []
        for f in batch.files:
            if f.first < self._high and f.last >= self._low:
                bounds = self._reader.bounds(f)
                groups += (
                    (f, i)
                    for i, (a, b) in enumerate(zip(bounds.firsts, bounds.lasts, strict=True))
                    if int(a) < self._high and int(b) >= self._low
                )
        return groups


def slices(cursors: Sequence[Cursor], register: Register) -> Slices:
    """The rows of all cursors, in order and consolidated, slice by slice.

    Each slice comes with the number of its rows before consolidation.
    """
    schema = register.schema.arrow
    while any(c.more or c.left > 0 for c in cursors):
        total = sum(max(c.left, 0) for c in cursors)
        for c in cursors:
            c.fill(-(-MERGED_ROWS * max(c.left, 0) // max(total, 1)))
        while True:
            # All rows of one place go into one slice: equal rows are among them.
            limit = min((c.last for c in cursors if c.more), default=None)
            parts = [c.below(limit) for c in cursors]
            places = np.concatenate([p for _, p in parts])
            if len(places) or limit is None:
                break
            for c in cursors:
                if c.more and c.last == limit:
                    c.fill(c.at_hand + 1)
        if not len(places):
            return
        rows = pa.Table.from_batches([b for bs, _ in parts for b in bs], schema).combine_chunks()
        yield (*settled(rows, places, register), len(places))


class FileMerge:
    """A merge of neighbouring batches in files into one.

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
        self._most_here = max(driver_rows, MERGED_HERE_ROWS)
        self._newest: tuple[pa.Table, Hashes, int] | None = None
        self._number = 0  # of slices

    def work(self, rows: int) -> tuple[FileBatch, ...] | None:
        """Merge about `rows` more rows. None until it is complete; then the batch, if any."""
        if min(rows, self._rows) > self._most_here:
            self._writer.abandon()
            return _or_none(self._in_spark())
        try:
            while rows > 0:
                merged = next(self._slices, None)
                if merged is None:
                    return self._merged()
                self._writer.append(*merged[:2])
                self._newest, self._number = merged, self._number + 1
                rows -= merged[2]
        except BaseException:
            self._writer.abandon()
            raise
        return None

    def _merged(self) -> tuple[FileBatch, ...]:
        batch = self._writer.batch()
        if self._newest is not None and self._number == 1:
            self._reader.keep_small(batch, *self._newest[:2])
        return _or_none(batch)


def _or_none(batch: FileBatch) -> tuple[FileBatch, ...]:
    return (batch,) if batch.rows else ()
