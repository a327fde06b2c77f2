"""Hashes of composite keys, the same in every process; and equal rows, found by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stepping_spark.relations.arrow import (
    Array,
    are_mostly_different,
    canonical,
    canonical_rows,
    concat,
    consolidate,
    distinct_numbers,
    lengths_of,
    repeated,
    sample,
    without_zeros,
)
from stepping_spark.rows.atoms import INT_MAX, INT_MIN
from stepping_spark.rows.schema import Schema

Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

BLOCK = 1 << 16  # rows at a time, so that they fit a processor's cache

# Arrays of no dimension: for few rows, NumPy computes with them in two thirds of the time.
_ODD = np.array(0x9E3779B97F4A7C15, np.uint64)
_FIRST = np.array(0xBF58476D1CE4E5B9, np.uint64)
_SECOND = np.array(0x94D049BB133111EB, np.uint64)
_27, _30, _31 = (np.array(n, np.uint64) for n in (27, 30, 31))
_NULL = np.uint64(0x2545F4914F6CDD1D)
_EIGHT = np.int64(8)
_WIDTHS = {8 * n: np.dtype(f"<i{n}") for n in (1, 2, 4, 8)}
# Masks that keep the first n bytes of a word.
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


def key_hashes(table: pa.Table, columns: Sequence[str]) -> Hashes:
    """A 64-bit hash of each row's key.

    Keys that are equal in Spark have equal hashes: there is one NaN and one zero, and NULL equals
    NULL. Hashes of different types are not comparable. Stores write these hashes, so the function
    must never change.
    """
    hashes = np.zeros(table.num_rows, np.uint64)
    for i, name in enumerate(columns):
        start = 0
        for chunk in table.column(name).chunks:
            for at in range(0, len(chunk), BLOCK):
                part = chunk if len(chunk) <= BLOCK else chunk.slice(at, BLOCK)
                rows = slice(start, start + len(part))
                hashes[rows] = combined(hashes[rows], hashed(part), i)
                start += len(part)
    return hashes


def bucket_numbers(table: pa.Table, columns: Sequence[str], buckets: int) -> Numbers:
    """The bucket of each row, by the first bits of the hash of these columns.

    `buckets` is a power of two, and at least 2.
    """
    return (key_hashes(table, columns) >> np.uint64(_bits_within(buckets))).astype(np.int64)


def hashes_of_bucket(number: int, buckets: int) -> tuple[int, int]:
    """The least and the greatest hash in a bucket, as signed numbers of 64 bits."""
    bits = _bits_within(buckets)
    ends = np.array([number << bits, (number + 1 << bits) - 1], np.uint64)
    least, greatest = ends.view(np.int64).tolist()
    return least, greatest


def _bits_within(buckets: int) -> int:
    """The number of bits of a hash that do not decide on the bucket."""
    return 65 - buckets.bit_length()


def combined(left: Hashes, right: Hashes, number: int) -> Hashes:
    """The hashes of rows, combined with the hashes of one more column, which has this number.

    Before the first column they are zeros.
    """
    return _mixed(left * _FIRST + right + np.uint64(number) if number else right)


def hashed(array: Any) -> Hashes:
    """The hash of each value of an array."""
    t = array.type
    if pa.types.is_struct(t):
        hashes = np.zeros(len(array), np.uint64)
        for i, part in enumerate(array.flatten()):
            hashes = combined(hashes, hashed(part), i)
    elif pa.types.is_list(t):
        counts = lengths_of(array)
        hashes = _of_sequences(hashed(array.flatten()), counts, _places(counts), counts)
    elif pa.types.is_string(t) or pa.types.is_binary(t):
        hashes = _of_bytes(array)
    elif pa.types.is_decimal(t):
        words = _buffer(array, np.dtype("<u8"), 2).reshape(-1, 2)
        hashes = _mixed(_mixed(words[:, 0].copy()) + words[:, 1])
    elif pa.types.is_boolean(t):
        hashes = _mixed(array.fill_null(False).cast(pa.uint8()).to_numpy().astype(np.uint64))
    else:
        whole = canonical(array) if pa.types.is_floating(t) else array
        numbers = _buffer(whole, _WIDTHS[t.bit_width], 1)
        hashes = _mixed(numbers.astype(np.int64, copy=False).view(np.uint64))
    if array.null_count:
        hashes[~_valid(array)] = _NULL
    return hashes


def _of_bytes(array: Any) -> Hashes:
    """The hashes of strings, as sequences of words of eight bytes."""
    words_at, starts, lengths = words_of(array)
    if lengths.max(initial=0) <= _EIGHT:
        return _of_word(words_at[starts] & _MASKS[lengths], lengths)
    counts = (lengths + 7) // _EIGHT
    places = _places(counts)
    done = places * _EIGHT
    left = np.minimum(lengths.repeat(counts) - done, _EIGHT)
    words = words_at[starts.repeat(counts) + done] & _MASKS[left]
    return _of_sequences(words, counts, places, lengths)


def words_of(array: Any) -> tuple[Hashes, Numbers, Numbers]:
    """The bytes of strings: the eight-byte word at each byte, and each string's start and length.

    The last word of a string also contains bytes that follow it.
    """
    _, offsets_buffer, data = array.buffers()
    if offsets_buffer is None or not len(array):
        none = np.zeros(len(array), np.int64)
        return np.zeros(1, np.uint64), none, none
    narrow = np.frombuffer(offsets_buffer, np.int32)[array.offset :][: len(array) + 1]
    offsets = narrow.astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(end - begin + 8, np.uint8)  # the last word extends beyond the data
    if end > begin:
        padded[: end - begin] = np.frombuffer(data, np.uint8)[begin:end]
    # A word may begin at any byte.
    words_at: Hashes = np.ndarray((len(padded) - 7,), "<u8", buffer=padded, strides=(1,))
    starts: Numbers = offsets[:-1] - begin
    return words_at, starts, offsets[1:] - offsets[:-1]


def _of_sequences(items: Hashes, counts: Numbers, places: Numbers, lengths: Numbers) -> Hashes:
    """The hash of each run of items: the sum of the items' hashes, each mixed with its place.

    Equal items in different places have different hashes then.
    """
    mixed = _mixed(items + places.view(np.uint64) * _FIRST)
    sums = np.zeros(len(mixed) + 1, np.uint64)
    mixed.cumsum(out=sums[1:])
    ends = counts.cumsum()
    return _ended(sums[ends] - sums[ends - counts], lengths)


def _of_word(words: Hashes, lengths: Numbers) -> Hashes:
    """The same as `_of_sequences`, for runs of at most one word, in the first place.

    An empty run has no word.
    """
    mixed = _mixed(words)
    mixed[lengths == 0] = 0
    return _ended(mixed, lengths)


def _ended(sums: Hashes, lengths: Numbers) -> Hashes:
    return _mixed(sums + lengths.view(np.uint64) * _SECOND)


def _places(counts: Numbers) -> Numbers:
    """The places 0, 1, 2 … within each run."""
    ends = counts.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) - (ends - counts).repeat(counts)


def _mixed(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64: every bit of the value affects every bit of the result."""
    z = values + _ODD
    z ^= z >> _30
    z *= _FIRST
    z ^= z >> _27
    z *= _SECOND
    z ^= z >> _31
    return z


def _buffer(array: Any, dtype: np.dtype[Any], each: int) -> npt.NDArray[Any]:
    """The fixed-width values of an array. Values at NULLs are arbitrary."""
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array) * each, dtype)
    return np.frombuffer(data, dtype)[array.offset * each :][: len(array) * each]


def _valid(array: Array) -> npt.NDArray[np.bool_]:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def consolidate_few_equal(table: pa.Table, schema: Schema) -> pa.Table:
    """The result of `consolidate`, in about half the time if few rows are equal.

    Few are in most relations. If a sample shows many equal rows, it calls `consolidate`.
    """
    if table.num_rows < 2 or not schema.columns:
        return consolidate(table, schema)
    rows, names = table.num_rows, [n for n, _ in schema.columns]
    picked = np.zeros(rows, np.bool_)
    picked[sample(rows)] = True
    # A filter copies only these rows; `take` would first copy all text of a column.
    some = table if picked.all() else table.filter(pa.array(picked))
    hashes = key_hashes(some, names)
    if not are_mostly_different(hashes, rows):
        return consolidate(table, schema)
    if len(hashes) == rows:
        shared = repeated(hashes)
    else:
        shared = repeated(key_hashes(table, _telling(some, names, len(distinct_numbers(hashes)))))
        if shared.any():
            shared[shared] = repeated(key_hashes(table.filter(pa.array(shared)), names))
    equal = consolidate(table.filter(pa.array(shared)), schema)
    others = table.filter(pa.array(~shared)) if shared.any() else table
    others = canonical_rows(others.select(schema.names), schema)
    others = without_zeros(others, schema)
    return concat([others, equal], schema)


def _telling(some: pa.Table, names: Sequence[str], different: int) -> Sequence[str]:
    """As few columns as have so many distinct values in some rows, number columns first."""
    cheap = sorted(names, key=lambda name: not pa.types.is_primitive(some.field(name).type))
    hashes = np.zeros(some.num_rows, np.uint64)
    for i, name in enumerate(cheap):
        hashes = combined(hashes, key_hashes(some, [name]), i)
        if len(distinct_numbers(hashes)) >= different:
            return cheap[: i + 1]
    return cheap


def order_numbers(column: Any, *, ascending: bool, nulls_first: bool) -> Numbers:
    """The values of an order as ints that ascend in its direction. NULLs come first or last."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    whole = column.cast(pa.int64())
    numbers = np.asarray(whole.fill_null(0).to_numpy(zero_copy_only=False))
    numbers = numbers if ascending else ~numbers
    if not whole.null_count:
        return numbers
    nulls = np.asarray(whole.is_null().to_numpy(zero_copy_only=False))
    return np.where(nulls, INT_MIN if nulls_first else INT_MAX, numbers)
