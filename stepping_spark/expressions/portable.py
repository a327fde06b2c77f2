"""Expressions that Spark, Arrow and plain Python compute alike, with Spark's xxhash64.

The driver may compute one change and Spark another, and the two must cancel exactly. So these
expressions use only operations that are the same everywhere: integers, and doubles added,
multiplied, divided and rooted in one order. The driver needs no Spark job for them.
"""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from stepping_spark.base.errors import StepError
from stepping_spark.expressions.expr import Expr
from stepping_spark.relations.arrow import one_array
from stepping_spark.relations.hashing import Hashes, words_of
from stepping_spark.relations.sums.overflow import fitting, shifted
from stepping_spark.rows.atoms import FLOAT, INT, LOCAL_DATETIME, Atom, RowType
from stepping_spark.rows.sql_text import Sql, closed, let, literal
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf, unwrap

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


def spark_hash(value: Any, t: RowType, seed: int) -> int:
    """The hash of an encoded value, unsigned. The hash of NULL is the seed."""
    if value is None:
        return seed
    t = unwrap(t)
    if isinstance(t, Struct):
        for name, part in t.fields:
            seed = spark_hash(value[name], part, seed)
        return seed
    if isinstance(t, ListOf | ZSetOf):
        inner = t.inner if isinstance(t, ListOf) else t.item
        for item in value:
            seed = spark_hash(item, inner, seed)
        return seed
    assert isinstance(t, Atom)
    return xxhash.xxh64_intdigest(_bytes(value, t), seed)


def spark_hashes(column: Any, t: RowType, seeds: Hashes) -> Hashes:
    """The hashes of a column's values, each with its own seed."""
    t = unwrap(t)
    if isinstance(t, Struct):
        found = seeds
        for name, part in t.fields:
            found = spark_hashes(pc.struct_field(column, name), part, found)
    elif isinstance(t, Atom) and t.name in _FOUR_BYTES:
        found = _of_four(_numbers(column, np.int32), seeds)
    elif isinstance(t, Atom) and t.name in _EIGHT_BYTES:
        found = _of_eight(_numbers(column, np.int64), seeds)
    elif isinstance(t, Atom) and t.name in _TEXT:
        found = _of_texts(one_array(column).view(pa.binary()), seeds)
    else:
        values = zip(column.to_pylist(), seeds.tolist(), strict=True)
        return np.array([spark_hash(v, t, s) for v, s in values], np.uint64)
    if not column.null_count:
        return found
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), found, seeds)


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
    found = seeds + _P5 + lengths.view(np.uint64)
    for done in (0, 8, 16):
        rows = np.flatnonzero(lengths >= done + 8)
        mixed = _turned(words_at[starts[rows] + done] * _P2, 31) * _P1
        found[rows] = _turned(found[rows] ^ mixed, 27) * _P1 + _P4
    rows = np.flatnonzero(lengths & 4)
    half = words_at[(starts + (lengths & ~7))[rows]] & np.uint64(0xFFFFFFFF)
    found[rows] = _turned(found[rows] ^ (half * _P1), 23) * _P2 + _P3
    for done in (0, 1, 2):
        rows = np.flatnonzero(lengths & 3 > done)
        byte = words_at[(starts + (lengths & ~3) + done)[rows]] & np.uint64(0xFF)
        found[rows] = _turned(found[rows] ^ (byte * _P5), 11) * _P1
    found = _ended(found)
    for i in np.flatnonzero(lengths >= 32).tolist():
        text = texts[i].as_py()  # a NULL may have a length, too
        found[i] = 0 if text is None else xxhash.xxh64_intdigest(text, int(seeds[i]))
    return found


_FEW_TEXTS = 1_000  # each takes 0.1 us, and the operations on arrays 100 in any case


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


EngineColumn = Any  # a pyarrow array


@dataclass(frozen=True)
class Derived(Expr):
    """An expression with a third meaning: in Arrow, on the columns of its parts."""

    args: tuple[Expr, ...]

    said: ClassVar[str] = ""
    on_driver: ClassVar[bool] = True

    @property
    def in_session_zone(self) -> bool:
        """Whether the value depends on the time zone of the session."""
        return False

    def __str__(self) -> str:
        return f"{self.said}({', '.join(map(str, self.args))})"

    def parts(self) -> tuple[Expr, ...]:
        return self.args

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        """The values, given the columns of the parts."""
        decoders = [a.type.decode for a in self.args]
        rows = zip(*(c.to_pylist() for c in columns), strict=True)
        found = [self.of(*(d(v) for d, v in zip(decoders, row, strict=True))) for row in rows]
        return pa.array([self.type.encode(v, self.said) for v in found], self.type.arrow)

    def arrow_in(self, columns: Sequence[EngineColumn], zone: dt.tzinfo) -> EngineColumn:
        """The values in a time zone."""
        return self.arrow(columns)

    def value(self, row: Any) -> Any:
        return self.of(*(a.value(row) for a in self.args))

    def of(self, *values: Any) -> Any:
        """The value, given the values of the parts."""
        raise NotImplementedError


@dataclass(frozen=True)
class Bucket(Derived):
    """The number of the bucket of the parts: Spark's xxhash64, modulo a power of two."""

    buckets: int = 1
    said: ClassVar[str] = "bucket"

    def __str__(self) -> str:
        return f"bucket of {self.buckets}"

    def _sql(self, row: str) -> str:
        hashed = ", ".join(a.sql(row) for a in self.args)
        return f"pmod(xxhash64({hashed}), {self.buckets}L)"

    def of(self, *values: Any) -> int:
        seed = SEED
        for a, v in zip(self.args, values, strict=True):
            seed = spark_hash(a.type.encode(v, "a row"), a.type, seed)
        return seed % self.buckets

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        hashes = np.full(len(columns[0]), SEED, np.uint64)
        for a, column in zip(self.args, columns, strict=True):
            hashes = spark_hashes(column, a.type, hashes)
        return pa.array((hashes % np.uint64(self.buckets)).astype(np.int64))


def bucket(parts: Sequence[Expr], buckets: int) -> Bucket:
    """The number of the bucket that the parts of a row fall into."""
    return Bucket(INT, tuple(parts), buckets)


@dataclass(frozen=True)
class Known(Derived):
    """1 if the part is not NULL, else 0."""

    said: ClassVar[str] = "known"

    def _sql(self, row: str) -> str:
        return f"if({self.args[0].sql(row)} IS NULL, 0L, 1L)"

    def of(self, *values: Any) -> int:
        return int(values[0] is not None)

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        return columns[0].is_valid().cast(pa.int64())


def known(e: Expr) -> Expr:
    """1 if the expression is not NULL, else 0."""
    return Known(INT, (e,))


@dataclass(frozen=True)
class Truth(Derived):
    """1 if the part is true, else 0."""

    said: ClassVar[str] = "truth"

    def _sql(self, row: str) -> str:
        return f"if({self.args[0].sql(row)}, 1L, 0L)"

    def of(self, *values: Any) -> int:
        return int(values[0] is True)

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        return columns[0].fill_null(False).cast(pa.int64())


def truth(e: Expr) -> Expr:
    """1 if the expression is true, else 0."""
    return Truth(INT, (e,))


@dataclass(frozen=True)
class Given(Derived):
    """The second part if the first is not zero, else NULL."""

    said: ClassVar[str] = "given"

    def _sql(self, row: str) -> str:
        n, value = (a.sql(row) for a in self.args)
        return f"CASE WHEN {n} <> 0 THEN {value} END"

    def of(self, *values: Any) -> Any:
        return values[1] if values[0] else None

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        unequal: Any = pc.not_equal(columns[0], pa.scalar(0))
        there = unequal.fill_null(False)
        return pc.if_else(there, columns[1], pa.scalar(None, columns[1].type))


def given(n: Expr, value: Expr) -> Expr:
    """The value if `n` is not zero, else NULL."""
    t = value.type if isinstance(value.type, Optional) else Optional(value.type)
    return Given(t, (n, value))


@dataclass(frozen=True)
class Choice(Derived):
    """The second part if the first is true, else the third."""

    said: ClassVar[str] = "choice"

    def _sql(self, row: str) -> str:
        return f"if({', '.join(a.sql(row) for a in self.args)})"

    def value(self, row: Any) -> Any:
        """The value; the part that is not chosen may have none, as `1 / 0` has not."""
        condition, one, other = self.args
        return (one if condition.value(row) is True else other).value(row)

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        condition, one, other = columns
        return pc.if_else(condition.fill_null(False), one, other)


def choice(condition: Expr, one: Expr, other: Expr) -> Expr:
    """One value if a condition is true, else another. Their types are equal except for NULL."""
    t = other.type if isinstance(other.type, Optional) else one.type
    return Choice(t, (condition, one, other))


_NTZ_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


@dataclass(frozen=True)
class Slid(Derived):
    """The last time that is not later, of those each `slide` microseconds; then `shift` later.

    One of these times is `offset` microseconds after the epoch. So begins and ends a window of
    time.
    """

    slide: int = 1
    offset: int = 0
    shift: int = 0
    said: ClassVar[str] = "slid"

    def _moved(self, micros: Any) -> Any:
        return micros - (micros - self.offset) % self.slide + self.shift

    def _sql(self, row: str) -> str:
        x = self.args[0].sql(row)
        moved = closed(f"m - pmod(m - {self.offset}L, {self.slide}L) + {self.shift}L")
        if unwrap(self.type) == LOCAL_DATETIME:
            seconds = "hour(x) * 3600L + minute(x) * 60L"
            micros = closed(
                f"unix_date(CAST(x AS DATE)) * 86400000000L + ({seconds}) * 1000000L + "
                "CAST(extract(SECOND FROM x) * 1000000 AS BIGINT)"
            )
            span = f"make_dt_interval(0, 0, 0, CAST(({moved}) / 1000000BD AS DECIMAL(18,6)))"
            return let("x", x, str(let("m", micros, f"{_NTZ_EPOCH} + {span}")))
        return let("m", f"unix_micros({x})", f"timestamp_micros({moved})")

    def of(self, *values: Any) -> Any:
        (v,) = values
        if v is None:
            return None
        epoch = _EPOCH.replace(tzinfo=v.tzinfo and dt.UTC)
        return epoch + self._moved((v - epoch) // _MICROSECOND) * _MICROSECOND

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        (x,) = columns
        micros = np.asarray(x.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
        moved = pa.array(self._moved(micros), mask=np.asarray(x.is_null()))
        return moved.cast(self.type.arrow)


def slid(e: Expr, slide: int, offset: int, shift: int) -> Expr:
    """The begin or the end of a window of time."""
    return Slid(e.type, (e,), slide, offset, shift)


_BITS = {8: "TINYINT", 16: "SMALLINT", 32: "INT"}


@dataclass(frozen=True)
class Narrowed(Derived):
    """An int that must fit fewer bits. A greater one is an error, as in Spark's integers."""

    bits: int = 32
    said: ClassVar[str] = "narrowed"

    def _sql(self, row: str) -> str:
        return f"CAST(CAST({self.args[0].sql(row)} AS {_BITS[self.bits]}) AS BIGINT)"

    def of(self, *values: Any) -> Any:
        (v,) = values
        if v is not None and not self._fits(v, v):
            raise StepError(f"{self.args[0]} = {v}: beyond the {self.bits} bits of Spark's type")
        return v

    def _fits(self, least: int, most: int) -> bool:
        beyond = 1 << (self.bits - 1)
        return -beyond <= least and most < beyond

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        (x,) = columns
        bounds: Any = pc.min_max(x).as_py()
        if bounds["min"] is None or self._fits(bounds["min"], bounds["max"]):
            return x
        return None  # Spark raises the error


def narrowed(e: Expr, bits: int) -> Expr:
    """An int that must fit the bits."""
    return e if bits == 64 else Narrowed(e.type, (e,), bits)


@dataclass(frozen=True)
class Otherwise(Derived):
    """The part, or an encoded constant if the part is NULL."""

    constant: Any = None
    said: ClassVar[str] = "otherwise"

    def _sql(self, row: str) -> str:
        return f"coalesce({self.args[0].sql(row)}, {literal(self._encoded(), self.type)})"

    def _encoded(self) -> Any:
        return self.type.encode(self.constant, "a constant")

    def of(self, *values: Any) -> Any:
        return self.constant if values[0] is None else values[0]


@dataclass(frozen=True)
class Widened(Derived):
    """An int as a Decimal of 38 digits, or any number as a float."""

    said: ClassVar[str] = "widened"

    def _sql(self, row: str) -> str:
        return f"CAST({self.args[0].sql(row)} AS {self.type.ddl})"

    def of(self, *values: Any) -> Any:
        (v,) = values
        if v is None:
            return None
        return float(v) if self.type.ddl == "DOUBLE" else decimal.Decimal(v)

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        (x,) = columns
        if not pa.types.is_integer(x.type):
            return super().arrow(columns)
        return x.cast(unwrap(self.type).arrow, safe=False)  # a float may be the nearest one


def widened(e: Expr, t: Atom) -> Expr:
    """A number converted to a wider type."""
    if unwrap(e.type) == t:
        return e
    return Widened(Optional(t) if isinstance(e.type, Optional) else t, (e,))


@dataclass(frozen=True)
class Mean(Derived):
    """A sum divided by a count. Floats and ints give a float, Decimals the exact mean, rounded.

    As in Spark's avg, the mean of Decimals has four more digits, and halves are rounded away from
    zero.
    """

    said: ClassVar[str] = "mean"

    @property
    def _scales(self) -> tuple[int, int]:
        summed, shown = unwrap(self.args[0].type), unwrap(self.type)
        assert isinstance(summed, Atom) and isinstance(shown, Atom)
        return summed.scale, shown.scale

    def of(self, *values: Any) -> Any:
        total, n = values
        if total is None or n == 0:
            return None
        if unwrap(self.type) == FLOAT:
            return float(total) / float(n)
        with decimal.localcontext(_EXACT):
            units = decimal.Decimal(1).scaleb(-self._scales[1])
            # 100 digits: more than rounding halves can need
            exact = decimal.Decimal(total) / n
            return exact.quantize(units, rounding=decimal.ROUND_HALF_UP)

    def _sql(self, row: str) -> str:
        total, n = (a.sql(row) for a in self.args)
        if unwrap(self.type) == FLOAT:
            return f"CASE WHEN {n} <> 0 THEN CAST({total} AS DOUBLE) / CAST({n} AS DOUBLE) END"
        have, want = self._scales
        return _decimal_mean(total, n, have, want - have, unwrap(self.type))


def _decimal_mean(total: Sql, n: Sql, scale: int, more: int, t: RowType) -> str:
    """A decimal of that scale divided by a BIGINT, with `more` digits, rounded half up.

    A quotient of Spark's decimals may keep only six digits after the point, and is rounded twice. A
    product may lose digits as well. So this divides as on paper: first the digits above 10**19,
    then those below, then the new ones, and each remainder is carried on. Strings move the point.
    """
    wide, ten = "DECIMAL(38, 0)", "10000000000000000000BD"
    step = f"CAST(1{'0' * more}BD AS {wide})"

    def whole(a: str, b: str) -> str:
        return f"CAST(({a} - {a} % {b}) / {b} AS {wide})"

    last = closed(f"{whole('f', 'm')} + if(f % m * 2BD >= m, 1BD, 0BD)")
    digits = f"CAST((h * {ten} + {whole('r', 'm')}) * {step} + {last} AS {wide})"
    body = let("f", f"CAST((r % m) * {step} AS {wide})", digits)
    body = let("r", f"CAST((u_high % m) * {ten} + u % {ten} AS {wide})", body)
    body = let("h", whole("u_high", "m"), body)
    body = let("u_high", whole("u", ten), body)
    body = let("m", f"abs(CAST({n} AS DECIMAL(20, 0)))", body)
    body = let("u", shifted("trim(LEADING '-' FROM x)", scale), body)
    sign = f"if(startswith(x, '-') = ({n} < 0), '', '-')"
    point = closed(f"length(d) - {scale + more}")
    shown = f"TRY_CAST(concat({sign}, left(d, {point}), '.', substring(d, {point} + 1)) AS {t.ddl})"
    found = let("d", f"concat('{'0' * (scale + more + 1)}', {body})", shown)
    found = fitting(found, t, f"a mean is beyond {t}")
    text = f"CAST({total} AS STRING)"
    return f"CASE WHEN {text} IS NOT NULL AND {n} <> 0 THEN {let('x', text, found)} END"
