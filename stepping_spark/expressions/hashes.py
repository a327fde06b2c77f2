"""Spark's hashes of values, by Python and by NumPy: `xxhash64` of 64 bits, and `hash` of 32 bits.

The second is Murmur3. The hash of several values is computed one by one: each hash is the seed of
the next.
"""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from stepping_spark.relations.arrow import one_array
from stepping_spark.relations.hashing import Hashes, words_of
from stepping_spark.rows.atoms import Atom

SEED = 42  # Spark's initial seed
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_EXACT = decimal.Context(prec=100)
# xxHash's primes, and the number of bytes of each type of number.
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_FOUR_BYTES = ("bool", "date")
_EIGHT_BYTES = ("int", "float", "datetime", "LocalDateTime", "timedelta")
_TEXT = ("str", "UUID", "Enum", "bytes")


def spark_hash(value: Any, t: Atom, seed: int) -> int:
    """The hash of an encoded value, unsigned. The hash of NULL is the seed."""
    return seed if value is None else xxhash.xxh64_intdigest(_bytes(value, t), seed)


def spark_hashes(column: Any, t: Atom, seeds: Hashes) -> Hashes:
    """The hashes of a column's values, each with its own seed."""
    if t.name in _FOUR_BYTES:
        hashes = _of_four(_numbers(column, np.int32), seeds)
    elif t.name in _EIGHT_BYTES:
        hashes = _of_eight(_numbers(column, np.int64), seeds)
    elif t.name in _TEXT:
        hashes = _of_texts(one_array(column).view(pa.binary()), seeds)
    else:
        values = zip(column.to_pylist(), seeds.tolist(), strict=True)
        return np.array([spark_hash(v, t, s) for v, s in values], np.uint64)
    if not column.null_count:
        return hashes
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), hashes, seeds)


def _numbers(column: Any, to: type[np.integer[Any]]) -> npt.NDArray[Any]:
    """The bits of numbers. The bits at NULLs are arbitrary."""
    if pa.types.is_floating(column.type):
        floats = column.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # one zero
        floats[np.isnan(floats)] = np.nan  # one NaN
        return np.asarray(floats.view(np.int64))
    width: Any = pa.int32() if to is np.int32 else pa.int64()
    if column.type != width:
        is_bits = pa.types.is_primitive(column.type) and column.type.bit_width == width.bit_width
        column = one_array(column).view(width) if is_bits else column.cast(width)
    if column.null_count:
        column = column.fill_null(0)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _of_eight(values: npt.NDArray[np.int64], seeds: Hashes) -> Hashes:
    mixed = _turned(values.view(np.uint64) * _P2, 31) * _P1
    return _ended(_turned((seeds + _P5 + np.uint64(8)) ^ mixed, 27) * _P1 + _P4)


def _of_four(values: npt.NDArray[np.int32], seeds: Hashes) -> Hashes:
    mixed = values.view(np.uint32).astype(np.uint64) * _P1
    return _ended(_turned((seeds + _P5 + np.uint64(4)) ^ mixed, 23) * _P2 + _P3)


def _of_texts(texts: Any, seeds: Hashes) -> Hashes:
    """The hashes of texts: up to 31 bytes with vectorised xxHash, few or longer ones one by one."""
    if len(texts) <= _FEW_TEXTS:
        pairs = zip(texts.to_pylist(), seeds.tolist(), strict=True)
        ones = [0 if text is None else xxhash.xxh64_intdigest(text, seed) for text, seed in pairs]
        return np.array(ones, np.uint64)
    words_at, starts, lengths = words_of(texts)
    hashes = seeds + _P5 + lengths.view(np.uint64)
    for done in (0, 8, 16):
        rows = np.flatnonzero(lengths >= done + 8)
        mixed = _turned(words_at[starts[rows] + done] * _P2, 31) * _P1
        hashes[rows] = _turned(hashes[rows] ^ mixed, 27) * _P1 + _P4
    rows = np.flatnonzero(lengths & 4)
    half = words_at[(starts + (lengths & ~7))[rows]] & np.uint64(0xFFFFFFFF)
    hashes[rows] = _turned(hashes[rows] ^ (half * _P1), 23) * _P2 + _P3
    for done in (0, 1, 2):
        rows = np.flatnonzero(lengths & 3 > done)
        byte = words_at[(starts + (lengths & ~3) + done)[rows]] & np.uint64(0xFF)
        hashes[rows] = _turned(hashes[rows] ^ (byte * _P5), 11) * _P1
    hashes = _ended(hashes)
    for i in np.flatnonzero(lengths >= 32).tolist():
        text = texts[i].as_py()  # a NULL may have a length, too
        hashes[i] = 0 if text is None else xxhash.xxh64_intdigest(text, int(seeds[i]))
    return hashes


_FEW_TEXTS = 1_000  # each takes 0.1 us, and the operations on arrays at least 100 us


def _turned(values: Hashes, by: int) -> Hashes:
    return (values << np.uint64(by)) | (values >> np.uint64(64 - by))


def _ended(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))


def _bytes(value: Any, t: Atom) -> bytes:
    """The bytes that Spark hashes for a value."""
    match t.name:
        case "int":
            return struct.pack("<q", value)
        case "float":
            return struct.pack("<d", float("nan") if value != value else value + 0.0)
        case "bool":
            return struct.pack("<i", value)
        case "date":
            return struct.pack("<i", value.toordinal() - _EPOCH.toordinal())
        case "datetime" | "LocalDateTime":
            naive = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
            return struct.pack("<q", (naive - _EPOCH) // _MICROSECOND)
        case "timedelta":
            return struct.pack("<q", value // _MICROSECOND)
        case "Decimal":
            units = int(value.scaleb(t.scale, _EXACT))
            if t.precision <= 18:
                return struct.pack("<q", units)
            bits = (units if units >= 0 else ~units).bit_length() + 1
            return units.to_bytes((bits + 7) // 8, "big", signed=True)
        case "bytes":
            return bytes(value)
    return str(value).encode()


# Murmur3

Hashes32 = npt.NDArray[np.uint32]
_C1, _C2, _C3 = (np.uint32(c) for c in (0xCC9E2D51, 0x1B873593, 0xE6546B64))
_M1, _M2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_LONG = 64
"""Texts of more bytes are hashed one by one: most are short."""


def murmurs(column: Any, t: Atom, seeds: Hashes32) -> Hashes32:
    """The 32-bit hashes of a column's values, each with its own seed, which is the hash of NULL."""
    if t.name in _FOUR_BYTES:
        hashes = _murmurs_of_words(_numbers(column, np.int32), seeds)
    elif t.name in _EIGHT_BYTES:
        hashes = _murmurs_of_words(_numbers(column, np.int64), seeds)
    elif t.name in _TEXT:
        hashes = _murmurs_of_texts(one_array(column).view(pa.binary()), seeds)
    else:
        values = zip(column.to_pylist(), seeds, strict=True)
        hashes = np.array([s if v is None else _murmur(_bytes(v, t), s) for v, s in values], "u4")
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), hashes, seeds)


def _murmurs_of_words(numbers: npt.NDArray[Any], seeds: Hashes32) -> Hashes32:
    words = np.ascontiguousarray(numbers).view(np.uint32).reshape(len(numbers), -1)
    hashes = seeds
    for i in range(words.shape[1]):
        hashes = _stirred(hashes, words[:, i])
    return _finished(hashes, np.full(len(hashes), numbers.itemsize))


def _murmurs_of_texts(texts: Any, seeds: Hashes32) -> Hashes32:
    words_at, starts, lengths = words_of(texts)
    hashes = seeds.copy()
    for done in range(0, min(lengths.max(initial=0), _LONG) - 3, 4):
        rows = np.flatnonzero(lengths >= done + 4)
        hashes[rows] = _stirred(hashes[rows], words_at[starts[rows] + done].astype(np.uint32))
    for done in (0, 1, 2):
        rows = np.flatnonzero(lengths & 3 > done)
        byte = words_at[(starts + (lengths & ~3) + done)[rows]].astype(np.int8)
        hashes[rows] = _stirred(hashes[rows], byte.astype(np.int32).view(np.uint32))
    hashes = _finished(hashes, lengths)
    for i in np.flatnonzero(lengths > _LONG).tolist():
        text = texts[i].as_py()  # a NULL may have a length, too
        hashes[i] = 0 if text is None else _murmur(text, seeds[i])
    return hashes


def _murmur(data: bytes, seed: np.uint32) -> np.uint32:
    """The hash of bytes: words of four, then the last bytes, each as a signed number."""
    whole = len(data) & ~3
    words = np.frombuffer(data[:whole], "<u4").tolist()
    words += [b - 256 if b > 127 else b for b in data[whole:]]
    bits = int(seed)
    for word in words:
        mixed = word * int(_C1) & _32
        mixed = (mixed << 15 | mixed >> 17) * int(_C2) & _32
        bits ^= mixed
        bits = ((bits << 13 | bits >> 19) * 5 + int(_C3)) & _32
    (ended,) = _finished(np.array([bits], np.uint32), np.array([len(data)]))
    return np.uint32(ended)


_32 = 0xFFFFFFFF


def _stirred(hashes: Hashes32, words: Hashes32) -> Hashes32:
    mixed = words * _C1
    mixed = (mixed << np.uint32(15) | mixed >> np.uint32(17)) * _C2
    hashes = hashes ^ mixed
    return (hashes << np.uint32(13) | hashes >> np.uint32(19)) * np.uint32(5) + _C3


def _finished(hashes: Hashes32, lengths: npt.NDArray[Any]) -> Hashes32:
    hashes = hashes ^ lengths.astype(np.uint32)
    hashes = (hashes ^ hashes >> np.uint32(16)) * _M1
    hashes = (hashes ^ hashes >> np.uint32(13)) * _M2
    return hashes ^ hashes >> np.uint32(16)
