"""Merges the batches of a register by size, a bounded piece of work at each step.

A batch is merged with the older one beside it while that is less than twice as large. So the sizes
of batches double from the newest to the oldest, their number is logarithmic, and a row is rewritten
a logarithmic number of times. A merge of many rows is done in slices, over several steps; its
batches are read as they were until it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from stepping_spark.hashing import Hashes
from stepping_spark.store import Register
from stores.batches import DriverBatch, Growing, settled
from stores.spark_batches import SparkBatch

Batch = DriverBatch | SparkBatch
MergeInSpark = Callable[[Register, Sequence[Batch]], tuple[Batch, ...]]

SLICE = 1 << 16
"""The rows that are merged at a time; a merge of no more is done within one step."""

_log = logging.getLogger("stepping_spark")


class Merge:
    """Neighbouring batches on the driver, on their way to be one."""

    def __init__(self, batches: Sequence[DriverBatch], register: Register) -> None:
        self.batches = tuple(batches)
        self._register = register
        # What is merged, and how far each batch is read: one list, so that an interrupt between
        # two statements cannot part the one from the other.
        self._slices: list[tuple[pa.Table, Hashes, list[int]]] = []

    def work(self, rows: int) -> tuple[DriverBatch, ...] | None:
        """Merge about so many rows more. Once all are: the batch, or none for no rows."""
        while rows > 0:
            reached = self._slices[-1][2] if self._slices else [0] * len(self.batches)
            if all(r == b.rows for r, b in zip(reached, self.batches, strict=True)):
                return self._made()
            ends = self._ends(reached)
            self._slices.append((*self._merged(reached, ends), ends))
            rows -= sum(ends) - sum(reached)
        return None

    def _ends(self, reached: list[int]) -> list[int]:
        """Where the next slice ends in each batch: at one place in the order of all."""
        left = [b.rows - r for b, r in zip(self.batches, reached, strict=True)]
        shares = [-(-SLICE * n // sum(left)) for n in left]
        # The least, so that no batch gives more than its share, whatever its keys are.
        last = min(
            b.places[min(r + share, b.rows) - 1]
            for b, r, share in zip(self.batches, reached, shares, strict=True)
            if share
        )
        return [int(np.searchsorted(b.places, last, side="right")) for b in self.batches]

    def _merged(self, begins: list[int], ends: list[int]) -> tuple[pa.Table, Hashes]:
        cuts = list(zip(self.batches, begins, ends, strict=True))
        parts = [part for b, begin, end in cuts for part in b.between(begin, end)]
        places = np.concatenate([b.places[begin:end] for b, begin, end in cuts])
        return settled(pa.Table.from_batches(parts).combine_chunks(), places, self._register)

    def _made(self) -> tuple[DriverBatch, ...]:
        made = Growing()
        for table, places, _ in self._slices:
            made.append(table, places)
        batch = made.batch()
        return (batch,) if batch.rows else ()


class Tiers:
    """Decides which batches of one register are merged, and when."""

    def __init__(self, register: Register, in_spark: MergeInSpark) -> None:
        self.register = register
        self.rows_merged = 0  # rows written by merges so far
        self._in_spark = in_spark
        self._merges: list[Merge] = []
        self._set_aside: list[Batch] = []  # what failed to merge

    def tend(self, batches: tuple[Batch, ...], rows: int) -> tuple[Batch, ...]:
        """The same register in fewer batches, where a bounded piece of work can have it so.

        A merge under way goes on by `rows` rows, or by a slice if that is more. One that fails is
        logged and not tried again before `compacted`: what is read does not change.
        """
        rows = max(rows, SLICE)
        self._set_aside = [b for b in self._set_aside if b in batches]
        self._merges = [m for m in self._merges if all(b in batches for b in m.batches)]
        for merge in list(self._merges):
            batches = self._advanced(merge, batches, rows)
        while run := self._due(batches):
            on_driver = [b for b in run if isinstance(b, DriverBatch)]
            if len(on_driver) == len(run):
                merge = Merge(on_driver, self.register)
                self._merges.append(merge)
                batches = self._advanced(merge, batches, rows)
            else:
                made = self._tried(run, lambda: self._in_spark(self.register, run))
                batches = self._replaced(batches, run, made)
        return batches

    def compacted(self, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        """The same register in one batch."""
        self._merges, self._set_aside = [], []
        if len(batches) < 2:
            return batches
        on_driver = [b for b in batches if isinstance(b, DriverBatch)]
        made: tuple[Batch, ...] | None
        if len(on_driver) == len(batches):
            made = Merge(on_driver, self.register).work(sum(b.rows for b in batches) + 1)
        else:
            made = self._in_spark(self.register, batches)
        return self._replaced(batches, batches, made)

    def _due(self, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        """The newest run of two or more batches that must be one; none: ()."""
        busy = [*self._set_aside, *(b for m in self._merges for b in m.batches)]
        for newest in reversed(range(len(batches))):
            oldest, total = newest, 0
            while (
                oldest >= 0
                and batches[oldest] not in busy
                and (oldest == newest or batches[oldest].rows < 2 * total)
            ):
                total += batches[oldest].rows
                oldest -= 1
            if newest - oldest > 1:
                return batches[oldest + 1 : newest + 1]
        return ()

    def _advanced(self, merge: Merge, batches: tuple[Batch, ...], rows: int) -> tuple[Batch, ...]:
        made = self._tried(merge.batches, lambda: merge.work(rows))
        if made is not None:
            self._merges.remove(merge)
        return self._replaced(batches, merge.batches, made)

    def _tried(
        self, run: Sequence[Batch], attempt: Callable[[], tuple[Batch, ...] | None]
    ) -> tuple[Batch, ...] | None:
        """What came of a merge; None: nothing yet, or nothing at all."""
        try:
            return attempt()
        except Exception as e:
            self._set_aside += run
            self._merges = [m for m in self._merges if m.batches != tuple(run)]
            _log.warning(
                "register %r: %d batches could not be merged and are kept apart until compact() "
                "is called: %s",
                self.register.name,
                len(run),
                e,
            )
            return None

    def _replaced(
        self, batches: tuple[Batch, ...], run: Sequence[Batch], made: tuple[Batch, ...] | None
    ) -> tuple[Batch, ...]:
        if made is None:
            return batches
        self.rows_merged += sum(b.rows for b in made)
        i = batches.index(run[0])
        return batches[:i] + made + batches[i + len(run) :]
