"""Compares many numbers by their slots in a table, which is faster than a sort or a dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ids = npt.NDArray[np.int64]

_SAMPLE = 1 << 14
_TIMES = 5  # as many values as rows: with fewer, too many rows are equal by chance

_ODD = np.uint64(0x9E3779B97F4A7C15)  # whose products differ in their upper bits


def positions(numbers: Ids) -> Ids:
    """For each number the position of one that is equal, the same for all equal ones.

    Most are found by their slot in a table, where the last one that came has its position. The
    others have slots that are taken, and are found by a dictionary.
    """
    slots = _slots(numbers.view(np.uint64))
    table = np.empty(slots.max() + 1, np.int32)
    table[slots] = np.arange(len(numbers), dtype=np.int32)
    found = table[slots].astype(np.int64)
    rest = np.flatnonzero(numbers[found] != numbers)
    if len(rest):
        codes = encoded(pa.array(numbers[rest]))
        last = np.empty(codes.max() + 1, np.int64)
        last[codes] = rest
        found[rest] = last[codes]
    return found


def codes_of(array: Any) -> Ids:
    """A number below the length for each value of an array. Only equal values have the same."""
    if pa.types.is_integer(array.type) and not array.null_count:
        return below_length(np.asarray(array.to_numpy(), np.int64))
    return encoded(array)


def below_length(numbers: Ids) -> Ids:
    """The same for numbers, of which there is at least one."""
    least, most = int(numbers.min()), int(numbers.max())
    return numbers - least if most - least < len(numbers) else positions(numbers)


def encoded(array: Any) -> Ids:
    """A number for each distinct value of an array, from 0."""
    indices = array.dictionary_encode(null_encoding="encode").indices
    return np.asarray(indices.to_numpy(zero_copy_only=False), np.int64)


def sample(rows: int) -> Ids:
    """The positions of some rows: half stand together, as equal rows may, and half are spread."""
    if rows <= _SAMPLE:
        return np.arange(rows)
    half = _SAMPLE // 2
    return np.append(np.arange(half), np.arange(half, rows, -(-(rows - half) // half)))


def are_mostly_different(some: npt.NDArray[Any], rows: int) -> bool:
    """Whether so few of all rows are equal that `repeated` takes less time than a dictionary.

    `some` are the numbers of a sample. Of s rows with N values, about s²/2N are equal to others.
    """
    equal = len(some) - len(np.unique(some))
    return 2 * _TIMES * rows * equal < len(some) ** 2


def repeated(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Which hashes occur more than once. Only those that share a slot of a table are sorted."""
    slots, at = _slots(hashes), np.arange(len(hashes), dtype=np.int32)
    table = np.empty(slots.max() + 1, np.int32)
    table[slots] = at
    taken = np.zeros(len(table), np.bool_)
    taken[slots[table[slots] != at]] = True
    some = np.flatnonzero(taken[slots])
    order = some[np.argsort(hashes[some])]
    first = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    found = np.zeros(len(hashes), np.bool_)
    found[order[first]] = found[order[first + 1]] = True
    return found


def _slots(numbers: npt.NDArray[np.uint64]) -> Ids:
    """A slot for each number, in a table with two to four times as many slots as numbers."""
    bits = len(numbers).bit_length() + 1
    return ((numbers * _ODD) >> np.uint64(64 - bits)).view(np.int64)
