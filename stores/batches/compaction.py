"""Merges the batches of a register by size; `BatchStore` is the common base of their stores.

A batch is merged with the next older one while that is less than twice as large. So the sizes of
batches double from the newest to the oldest, their number is logarithmic, and a row is rewritten a
logarithmic number of times. A merge of many rows is done in slices, over several steps. Until it is
complete, reads use the old batches.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from stepping_spark.base.errors import StepError, StoreCorrupt, StoreError, StoreUnavailable
from stepping_spark.relations.hashing import Hashes
from stepping_spark.relations.store import Register, Size
from stores.base import BaseStore
from stores.batches.driver import DriverBatch, Growing, settled
from stores.threads import merged_later

MERGED_ROWS = 1 << 16
"""Rows of a slice of a merge, and the least that a step merges. Beyond: later steps."""

_log = logging.getLogger("stepping_spark")


class Counted(Protocol):
    """Anything with a number of rows."""

    @property
    def rows(self) -> int:
        """The number of rows."""


class Sized(Counted, Protocol):
    """A batch, as seen by the tiers."""

    @property
    def nbytes(self) -> int:
        """The size of the batch in bytes."""


def size_of(batches: Sequence[Sized]) -> Size:
    """The size of the batches of a register."""
    return Size(len(batches), sum(b.rows for b in batches), sum(b.nbytes for b in batches))


B = TypeVar("B", bound=Sized)
NewBatch = TypeVar("NewBatch", covariant=True)


class Work(Protocol[NewBatch]):
    """A merge in progress."""

    def work(self, rows: int) -> tuple[NewBatch, ...] | None:
        """Merge about `rows` more rows. None until it is complete; then the batch, if any."""


class Merge:
    """A merge of adjacent batches on the driver."""

    def __init__(self, batches: Sequence[DriverBatch], register: Register) -> None:
        self.batches = tuple(batches)
        self._register = register
        # The merged rows, and the positions reached in each batch. They are in one list, so that an
        # interrupt between two statements cannot leave them inconsistent.
        self._slices: list[tuple[pa.Table, Hashes, list[int]]] = []

    def work(self, rows: int) -> tuple[DriverBatch, ...] | None:
        """Merge about `rows` more rows. None until it is complete; then the batch, if any."""
        while rows > 0:
            reached = self._slices[-1][2] if self._slices else [0] * len(self.batches)
            if all(r == b.rows for r, b in zip(reached, self.batches, strict=True)):
                return self._as_one_batch()
            ends = self._ends(reached)
            self._slices.append((*self._merge_slice(reached, ends), ends))
            rows -= sum(ends) - sum(reached)
        return None

    def _ends(self, reached: list[int]) -> list[int]:
        """The end of the next slice in each batch, at the same place in all of them."""
        rows_left = [b.rows - r for b, r in zip(self.batches, reached, strict=True)]
        if sum(rows_left) <= MERGED_ROWS:
            return [b.rows for b in self.batches]
        shares = [-(-MERGED_ROWS * n // sum(rows_left)) for n in rows_left]
        # The least place, so that each batch contributes at most its share, up to equal places.
        last_place = min(
            b.places[min(r + share, b.rows) - 1]
            for b, r, share in zip(self.batches, reached, shares, strict=True)
            if share
        )
        return [int(np.searchsorted(b.places, last_place, side="right")) for b in self.batches]

    def _merge_slice(self, begins: list[int], ends: list[int]) -> tuple[pa.Table, Hashes]:
        """The rows between these positions of each batch, in order and consolidated."""
        cuts = list(zip(self.batches, begins, ends, strict=True))
        parts = [part for b, begin, end in cuts for part in b.between(begin, end)]
        places = np.concatenate([b.places[begin:end] for b, begin, end in cuts])
        return settled(pa.Table.from_batches(parts).combine_chunks(), places, self._register)

    def _as_one_batch(self) -> tuple[DriverBatch, ...]:
        """The merged slices as one batch; () if all rows cancelled out."""
        builder = Growing()
        for table, places, _ in self._slices:
            builder.append(table, places)
        batch = builder.batch()
        return (batch,) if batch.rows else ()


class AtOnce(Generic[B]):
    """A merge without slices."""

    def __init__(self, merge: Callable[[], tuple[B, ...]]) -> None:
        self._merge = merge

    def work(self, rows: int) -> tuple[B, ...]:
        """Merge all rows, however many there are."""
        return self._merge()


class Tiers(Generic[B]):
    """Decides when to merge which batches of one register; `start` begins a merge."""

    def __init__(
        self, register: Register, start: Callable[[Register, Sequence[B]], Work[B]]
    ) -> None:
        self.register = register
        self.rows_written = 0
        """The rows written so far, by changes and by merges."""
        self._start = start
        self._merges: list[tuple[tuple[B, ...], Work[B]]] = []
        self._set_aside: list[B] = []  # batches that failed to merge
        self._put_off: list[B] = []  # batches to retry at the next step
        self._tended: tuple[B, ...] = ()  # the batches that the last `tend` returned
        # After an interrupt, a merging thread may still run that nobody waits for.
        self._lock = threading.RLock()

    def is_due(self, batches: tuple[B, ...]) -> bool:
        """Whether `tend` has work: batches are new, a merge is in progress, or was put off."""
        return batches is not self._tended or bool(self._merges or self._put_off)

    def tend(self, batches: tuple[B, ...], rows: int) -> tuple[B, ...]:
        """Do a bounded amount of merging, and return the batches, possibly fewer.

        A merge in progress advances by `rows` rows, or by a slice if that is more. A merge that
        fails is logged, and not tried again before `compact`, or if the store was not reachable,
        before the next step; reads are not affected. Damaged batches, or a fault in the merge
        itself, raise an error: a damaged state must not be used until its older steps are gone.
        """
        rows = max(rows, MERGED_ROWS)
        with self._lock:
            self._put_off = []
            if self._set_aside:
                self._set_aside = [b for b in self._set_aside if b in batches]
            if self._merges:
                self._merges = [m for m in self._merges if all(b in batches for b in m[0])]
                for run, merge in list(self._merges):
                    batches = self._advance(run, merge, batches, rows)
            while due := self._due(batches):
                merge = self._start(self.register, due)
                self._merges.append((due, merge))
                batches = self._advance(due, merge, batches, rows)
            self._tended = batches
            return batches

    def exchange(self, moved: Mapping[B, B]) -> None:
        """Replace batches by others with the same rows, also in merges in progress."""

        def exchanged(batches: Iterable[B]) -> tuple[B, ...]:
            return tuple(moved.get(b, b) for b in batches)

        with self._lock:
            self._merges = [(exchanged(run), merge) for run, merge in self._merges]
            self._set_aside, self._put_off = (
                [*exchanged(self._set_aside)],
                [*exchanged(self._put_off)],
            )
            self._tended = exchanged(self._tended)

    def count_added(self, batches: Sequence[B]) -> None:
        """Count the rows of a change that was committed, which are in these batches."""
        for b in batches:
            self.rows_written += b.rows

    def compact(self, batches: tuple[B, ...]) -> tuple[B, ...]:
        """Merge all batches of the register into one, however large they are, and return it.

        Gives up merges in progress. Batches that failed to merge before are tried again.
        """
        with self._lock:
            self._merges, self._set_aside = [], []
            if len(batches) < 2:
                return batches
            result = self._start(self.register, batches).work(sum(b.rows for b in batches) + 1)
            return self._replace_run(batches, batches, result)

    def _due(self, batches: tuple[B, ...]) -> tuple[B, ...]:
        """The newest run of two or more batches to merge, or () if there is none."""
        busy = [*self._set_aside, *self._put_off]
        for run, _ in self._merges:
            busy += run
        sizes = [b.rows for b in batches]
        for newest in reversed(range(len(batches))):
            oldest, total = newest, 0
            while (
                oldest >= 0
                and batches[oldest] not in busy
                and (oldest == newest or sizes[oldest] < 2 * total)
            ):
                total += sizes[oldest]
                oldest -= 1
            if newest - oldest > 1:
                return batches[oldest + 1 : newest + 1]
        return ()

    def _advance(
        self, run: tuple[B, ...], merge: Work[B], batches: tuple[B, ...], rows: int
    ) -> tuple[B, ...]:
        """Merge about `rows` more rows of a run; returns the batches after that.

        Ends the merge if it is complete or fails.
        """
        result, over = None, True
        try:
            result = merge.work(rows)
            over = result is not None
        except StoreCorrupt:
            raise
        except (StepError, StoreError, OSError) as e:
            later = isinstance(e, StoreUnavailable | OSError)
            (self._put_off if later else self._set_aside).extend(run)
            _log.warning(
                "register %r: %d batches could not be merged and are kept apart until %s: %s",
                self.register.name,
                len(run),
                "the next step" if later else "compact() is called",
                e,
            )
        finally:
            if over:
                self._merges = [m for m in self._merges if m[1] is not merge]
        return self._replace_run(batches, run, result)

    def _replace_run(
        self, batches: tuple[B, ...], run: Sequence[B], result: tuple[B, ...] | None
    ) -> tuple[B, ...]:
        if result is None:
            return batches
        self.rows_written += sum(b.rows for b in result)
        i = batches.index(run[0])
        return batches[:i] + result + batches[i + len(run) :]


P = TypeVar("P")


class BatchStore(BaseStore[Tiers[B], P], Generic[B, P]):
    """A store of batches of type B."""

    _names_in_state: Mapping[str, str] = {}
    """The registers that stay in the next circuit, by its names, with their names in the state."""
    _merging: Future[Mapping[str, tuple[B, ...]]] | None = None
    """The merge of batches in another thread, while tasks take the step under way.

    If the step fails, the next one collects the result.
    """
    _merging_rows = 0
    """The rows of each register that the merge in the other thread may process.

    The next step counts them as merged already. 0 if there was no such merge.
    """

    @abstractmethod
    def _batches(self) -> Mapping[str, tuple[B, ...]]:
        """The committed batches of registers, by their names in the state."""

    @abstractmethod
    def _merge(self, register: Register, run: Sequence[B]) -> Work[B]:
        """A merge of adjacent batches."""

    @abstractmethod
    def _replace(self, name: str, new: tuple[B, ...]) -> None:
        """Replace the batches of a register by equivalent ones."""

    def merge_meanwhile(self, rows: int) -> None:
        """Merge batches in another thread, while tasks take a step that changes so many rows."""
        self._begin_step()
        if self._merging is None and self._next is None:
            self._merging_rows = max(4 * rows, MERGED_ROWS)
            self._merging = merged_later(
                partial(self._tend_all, self._batches(), self._merging_rows)
            )

    def _tend_all(
        self, batches: Mapping[str, tuple[B, ...]], rows: int
    ) -> Mapping[str, tuple[B, ...]]:
        """Tend all registers; returns their batches, possibly fewer. Another thread calls it."""
        return {n: tiers.tend(batches.get(n, ()), rows) for n, tiers in self._registers.all.items()}

    def _wait_for_merging(self) -> None:
        """Wait until the other thread has finished its merge."""
        merging = self._merging
        if merging is not None:
            wait([merging])

    def _end_merging(self) -> None:
        """Wait for the merge of the other thread, and use its batches. Raises its error."""
        merging = self._merging
        if merging is None:
            return
        wait([merging])
        self._merging = None
        if merging.exception() is not None:
            self._merging_rows = 0
        for name, batches in merging.result().items():
            self._replace(name, batches)

    def _tend(
        self, batches: Mapping[str, tuple[B, ...]], added: Mapping[str, Sequence[Counted]]
    ) -> None:
        """Merge batches faster than rows are added, so that they cannot pile up.

        For each row that the step adds to a register, it merges four. The rows that another thread
        has merged already count. `batches` are the committed batches, before the step.
        """
        merged, self._merging_rows = self._merging_rows, 0
        for name, tiers in self._registers.all.items():
            before = batches.get(name, ())
            if tiers.is_due(before):
                rows = 4 * sum([x.rows for x in added.get(name, ())]) - merged
                if rows > 0 or not merged:
                    self._replace(name, tiers.tend(before, rows))

    @property
    def rows_written(self) -> Mapping[str, int]:
        """By register: the rows written so far, by changes and by merges."""
        return {n: tiers.rows_written for n, tiers in self._registers.all.items()}

    def batches(self, register: str) -> int:
        """The number of batches of the register."""
        return len(self._batches_of(self._entry(register).register))

    def size(self, register: str) -> Size:
        """The size of the register, by its batches."""
        return size_of(self._batches_of(self._entry(register).register))

    def size_kept(self, name: str) -> Size:
        """The size of a register, by its name in the state."""
        return size_of(self._batches().get(name, ()))

    def evolve(self, registers: Sequence[Register], names: Mapping[str, str]) -> None:
        """In the current step, replace the registers of the state: see `EvolvingStore`."""
        self._begin_step()
        self._end_merging()  # the merge uses the old names of registers
        self._merging_rows = 0
        self._next = self._tiers_of_each(registers)
        self._names_in_state = dict(names)

    def _batches_of(self, register: Register) -> tuple[B, ...]:
        return self._batches().get(register.name, ())

    def _before_step(self, batches: Mapping[str, tuple[B, ...]]) -> Mapping[str, tuple[B, ...]]:
        """The batches of the registers that remain after this step, without its additions."""
        if self._next is None:
            return batches
        return {
            name: batches.get(name_in_state, ())
            for name, name_in_state in self._names_in_state.items()
        }

    def _finish_step(self, added: Mapping[str, tuple[B, ...]]) -> None:
        """Finish a committed step: use the registers of the next circuit, and count its batches."""
        if self._next is not None:
            self._registers.replace(self._next)
            self._next = None
        for name, batches in added.items():
            self._registers.all[name].count_added(batches)

    def _tiers_of_each(self, registers: Iterable[Register]) -> dict[str, Tiers[B]]:
        return {r.name: Tiers(r, self._merge) for r in registers}
