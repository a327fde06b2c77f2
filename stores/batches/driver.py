"""Batches of a register on the driver: rows in the order of a hash, found by bisection.

The place of a row is one 64-bit number: its upper bits are from the hash of the row's key, its
lower bits from the hash of the other columns. So the rows of a key are contiguous, equal rows are
adjacent, and a register can be sliced and merged in pieces even if all rows have the same key.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stepping_spark.base.errors import StoreError
from stepping_spark.relations.arrow import canonical_rows, consolidate, distinct_numbers, nonzero
from stepping_spark.relations.codec import conform
from stepping_spark.relations.hashing import Hashes, key_hashes
from stepping_spark.relations.relation import DriverRelation
from stepping_spark.relations.store import PLACE, Ordering, Register
from stores.threads import sorted_later

Positions = npt.NDArray[np.int64]

SORTED_ROWS = 1 << 14
"""Rows of a change that are consolidated all at once.

Beyond: piece by piece, in order, and in another thread while the step goes on.
"""

PIECE_ROWS = 1 << 20
"""Rows of such a piece, which is copied at once. Beyond: another piece."""

BATCH_BYTES = 700
ARRAY_BYTES = 800
"""The approximate overhead of a batch, and of each of its arrays, without their buffers."""

_MANY = 4_096
"""Rows per key from which on they are returned as slices: one piece of each column per key."""

_OTHER_BITS = np.uint64(64 - 24)  # of the hash of the other columns, which places leave out
_REST = np.uint64((1 << 24) - 1)
_KEY = ~_REST


class Ranges(NamedTuple):
    """Ranges of places that do not overlap, in order: the least and the greatest place of each."""

    begins: Hashes
    ends: Hashes


@dataclass(frozen=True, eq=False)
class DriverBatch:
    """Consolidated rows of a register, in the order of `places`, which has one entry per row."""

    pieces: tuple[pa.RecordBatch, ...]
    places: Hashes

    @cached_property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.places)

    @cached_property
    def nbytes(self) -> int:
        """The approximate memory. For few rows, most of it is overhead of objects."""
        size = BATCH_BYTES + self.places.nbytes
        for p in self.pieces:
            arrays = sum([_arrays(t) if t.num_fields else 1 for t in p.schema.types])
            size += ARRAY_BYTES * arrays + p.get_total_buffer_size()
        return size

    @cached_property
    def table(self) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches(self.pieces)

    def at(self, wanted: Ranges) -> pa.Table | None:
        """The rows in some ranges of places; None if there are none.

        Costs a bisection for each range, and a copy of the rows found. Many rows of few ranges are
        not copied.
        """
        rows, (keys, ends) = len(self.places), wanted
        if not len(keys) or not rows:
            return None
        if len(keys) == 1 and keys[0] <= self.places[0] and self.places[-1] <= ends[0]:
            return self.table
        if len(keys) > rows:
            near = slice(
                ends.searchsorted(self.places[0]),
                keys.searchsorted(self.places[-1], side="right"),
            )
            keys, ends = keys[near], ends[near]
        begins = self.places.searchsorted(keys)
        counts = self.places.searchsorted(ends, side="right") - begins
        if not np.count_nonzero(counts):
            return None
        total = int(counts.sum())
        if total == rows:
            return self.table
        if total >= _MANY * len(keys):
            ranges = zip(begins.tolist(), (begins + counts).tolist(), strict=True)
            return pa.Table.from_batches(
                [p for begin, end in ranges for p in self.between(begin, end)]
            )
        shift = begins - (counts.cumsum() - counts)
        return self._rows_at(np.arange(total) + shift.repeat(counts))

    def since(self, wanted: Ranges, since: Sequence[int], order: Ordering) -> pa.Table | None:
        """The rows of `at` from a position in the order on; `since` has one position per range."""
        parts = []
        for begin, last, place in zip(*wanted, since, strict=True):
            at = int(np.searchsorted(self.places, begin))
            end = int(np.searchsorted(self.places, last, side="right"))
            for piece in self.between(at, end):
                parts.append(at + np.flatnonzero(order.numbers(piece) >= place))
                at += piece.num_rows
        positions = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        return self._rows_at(np.sort(positions)) if len(positions) else None

    def between(self, begin: int, end: int) -> list[pa.RecordBatch]:
        """The rows at these positions, without a copy."""
        if len(self.pieces) == 1:
            return [self.pieces[0].slice(begin, end - begin)] if begin < end else []
        parts = []
        for piece, start in zip(self.pieces, self._starts, strict=True):
            low, high = max(begin - int(start), 0), min(end - int(start), piece.num_rows)
            if low < high:
                parts.append(piece.slice(low, high - low))
        return parts

    def _rows_at(self, positions: Positions) -> pa.Table:
        if len(self.pieces) == 1:
            return pa.Table.from_batches([self.pieces[0].take(positions)])
        cuts = np.searchsorted(positions, self._starts)
        ends = np.append(cuts[1:], len(positions))
        return pa.Table.from_batches(
            [
                piece.take(pa.array(positions[a:b] - start))
                for piece, start, a, b in zip(self.pieces, self._starts, cuts, ends, strict=True)
                if a < b
            ]
        )

    @cached_property
    def _starts(self) -> Positions:
        """The position of the first row of each piece."""
        sizes = np.array([p.num_rows for p in self.pieces], np.int64)
        return np.cumsum(sizes) - sizes


def wanted_places(keys: pa.Table, register: Register) -> Ranges:
    """The places of the rows of keys."""
    begins = distinct_numbers(key_hashes(keys, register.key) & _KEY)
    return Ranges(begins, begins | _REST)


def wanted_buckets(rows: pa.Table, register: Register, buckets: int) -> Ranges:
    """The places of the rows in the same bucket, of `buckets` of the same key, as one of some."""
    of_bucket = _REST >> np.uint64(buckets.bit_length() - 1)
    begins = distinct_numbers(places_of(rows, register) & ~of_bucket)
    return Ranges(begins, begins | of_bucket)


def wanted_since(
    keys: pa.Table, since: Sequence[int], register: Register
) -> tuple[Ranges, Sequence[int]]:
    """The places of `wanted_places`, each with a first position: the least, if keys share it."""
    hashes = key_hashes(keys, register.key)
    least: dict[int, int] = {}
    for place, number in zip((hashes & _KEY).tolist(), since, strict=True):
        least[place] = min(number, least.get(place, number))
    places = sorted(least)
    begins = np.array(places, np.uint64)
    return Ranges(begins, begins | _REST), [least[p] for p in places]


def places_of(table: pa.Table, register: Register) -> Hashes:
    """The place of each row."""
    places = key_hashes(table, register.key or [n for n, _ in register.schema.columns]) & _KEY
    if register.other_columns:
        places |= key_hashes(table, register.other_columns) >> _OTHER_BITS
    return places


def built(change: DriverRelation, register: Register) -> DriverBatch:
    """The batch of a relation, whose rows may be in any order and not consolidated."""
    table = conform(change.table, register.schema)
    if table.num_rows <= SORTED_ROWS:
        known = change.consolidated and change.schema == register.schema
        return ordered(table if known else consolidate(table, register.schema), register)
    table = canonical_rows(table, register.schema)
    places = places_of(table, register)
    order = np.argsort(places)
    places = places[order]
    builder = Growing()
    begin = 0
    while begin < len(order):
        last = places[min(begin + PIECE_ROWS, len(order)) - 1]
        end = int(np.searchsorted(places, last, side="right"))
        rows = table.take(order[begin:end])
        builder.append(*settled(rows, places[begin:end], register))
        begin = end
    return builder.batch()


class Building:
    """The batch of a change whose rows the driver has: another thread sorts many rows.

    NumPy and Arrow do the work without the interpreter's lock, so the step computes meanwhile.
    """

    def __init__(self, change: DriverRelation, register: Register) -> None:
        build = partial(built, change, register)
        many = change.table.num_rows > SORTED_ROWS
        self._made: DriverBatch | Future[DriverBatch] = sorted_later(build) if many else build()

    @property
    def batch(self) -> DriverBatch:
        """The batch, once it is built. Raises the error if that failed."""
        if isinstance(self._made, Future):
            try:
                self._made = self._made.result()
            except CancelledError:
                raise StoreError(
                    "another thread has closed the store, or ended this step, while its rows were "
                    "sorted; open the store again, and repeat the step"
                ) from None
        return self._made

    def drop(self) -> None:
        """Cancel the build of the batch, unless it has begun."""
        if isinstance(self._made, Future):
            self._made.cancel()


def ordered(table: pa.Table, register: Register) -> DriverBatch:
    """The batch of consolidated rows, which may be in any order."""
    places = places_of(table, register)
    if len(places) > 1:
        order = places.argsort()
        table, places = table.take(order), places[order]
    return DriverBatch(tuple(_few_pieces(table)), places)


class Growing:
    """Builds a batch piece by piece, in order."""

    def __init__(self) -> None:
        self.pieces: list[pa.RecordBatch] = []
        self.places: list[Hashes] = []

    def append(self, rows: pa.Table, places: Hashes) -> None:
        """Add rows behind the existing ones."""
        self.pieces += _few_pieces(rows)
        self.places.append(places)

    def batch(self) -> DriverBatch:
        """The rows so far."""
        places = np.concatenate(self.places) if self.places else np.zeros(0, np.uint64)
        return DriverBatch(tuple(self.pieces), places)


def settled(table: pa.Table, places: Hashes, register: Register) -> tuple[pa.Table, Hashes]:
    """The rows in order and consolidated, and their places.

    Equal rows have the same place, so only rows that share their place are compared.
    """
    order = places.argsort(kind="stable")  # linear for a few sorted runs
    by = places[order]
    same = by[1:] == by[:-1]
    if same.any():
        shared = np.append(same, False) | np.append(False, same)
        again = table.take(order[shared])
        numbers = pa.array(by[shared].view(np.int64))
        again = consolidate(again.append_column(PLACE, numbers), register.placed)
        own = again.column(PLACE).to_numpy().view(np.uint64)
        at = np.append(order[~shared], np.arange(len(own)) + len(places))
        table = pa.concat_tables([table, again.select(register.schema.names)])
        places = np.append(by[~shared], own)
        order = places.argsort(kind="stable")
        order, by = at[order], places[order]
        table, places = table.take(order), by
    elif (order[1:] < order[:-1]).any():
        table, places = table.take(order), by
    mask = nonzero(table, register.schema)
    return (table, places) if mask is None else (table.filter(pa.array(mask)), places[mask])


def _arrays(t: pa.DataType) -> int:
    """The number of arrays in a column of this type."""
    return 1 + sum(_arrays(t.field(i).type) for i in range(t.num_fields))


def _few_pieces(table: pa.Table) -> list[pa.RecordBatch]:
    """The rows in as few pieces as their columns allow."""
    return table.combine_chunks().to_batches() if table.num_rows else []
