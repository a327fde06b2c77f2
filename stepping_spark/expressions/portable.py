"""Expressions with equal results in Spark, Arrow and plain Python, also of Spark's hashes.

The driver may compute one change and Spark another, and the two must cancel exactly. So these
expressions use only operations that are the same everywhere: integers, and doubles added,
multiplied, divided and rooted in one order. The driver needs no Spark job for them.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.base.errors import StepError
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.hashes import SEED, murmurs, spark_hashes
from stepping_spark.relations.sums.overflow import fitting, shifted
from stepping_spark.rows.atoms import DATE, FLOAT, INT, LOCAL_DATETIME, Atom, RowType
from stepping_spark.rows.sql_text import Sql, closed, let, literal
from stepping_spark.rows.types import Optional, unwrap

_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_EXACT = decimal.Context(prec=100)

EngineColumn = Any  # a pyarrow array


@dataclass(frozen=True)
class Derived(Expr):
    """An expression that Arrow can compute too, from the columns of its parts."""

    args: tuple[Expr, ...]

    label: ClassVar[str] = ""
    on_driver: ClassVar[bool] = True

    @property
    def in_session_zone(self) -> bool:
        """Whether the value depends on the time zone of the session."""
        return False

    def __str__(self) -> str:
        return f"{self.label}({', '.join(map(str, self.args))})"

    def parts(self) -> tuple[Expr, ...]:
        return self.args

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        """The values, given the columns of the parts."""
        decoders = [a.type.decode for a in self.args]
        rows = zip(*(c.to_pylist() for c in columns), strict=True)
        values = [self.of(*(d(v) for d, v in zip(decoders, row, strict=True))) for row in rows]
        return pa.array([self.type.encode(v, self.label) for v in values], self.type.arrow)

    def arrow_in(self, columns: Sequence[EngineColumn], zone: dt.tzinfo) -> EngineColumn:
        """The values in a time zone."""
        return self.arrow(columns)

    def value(self, row: Any) -> Any:
        return self.of(*(a.value(row) for a in self.args))

    def of(self, *values: Any) -> Any:
        """The value, given the values of the parts."""
        raise NotImplementedError


@dataclass(frozen=True)
class Hashed(Derived):
    """Spark's `hash` of values, or its `xxhash64`.

    It depends on the width of whole numbers: `narrow` is true for parts that are an INT in Spark.
    """

    name: str = "hash"
    narrow: tuple[bool, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"

    def _sql(self, row: str) -> str:
        parts = zip(self.args, self.narrow, strict=True)
        shown = (f"CAST({a.sql(row)} AS INT)" if narrow else a.sql(row) for a, narrow in parts)
        return f"CAST({self.name}({', '.join(shown)}) AS BIGINT)"

    def of(self, *values: Any) -> Any:
        pairs = zip(self.args, values, strict=True)
        columns = [pa.array([a.type.encode(v, self.name)], a.type.arrow) for a, v in pairs]
        return self.arrow(columns)[0].as_py()

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        is_wide = self.name == "xxhash64"
        hashes: Any = np.full(len(columns[0]), SEED, np.uint64 if is_wide else np.uint32)
        for a, narrow, column in zip(self.args, self.narrow, columns, strict=True):
            # A DATE has the bits of an INT
            t, part = (DATE, column.cast(pa.int32())) if narrow else (unwrap(a.type), column)
            assert isinstance(t, Atom)
            hashes = spark_hashes(part, t, hashes) if is_wide else murmurs(part, t, hashes)
        return pa.array(hashes.view(np.int64 if is_wide else np.int32).astype(np.int64))


def hashed(name: str, args: Sequence[Expr], narrow: Sequence[bool]) -> Hashed | None:
    """Spark's `hash` or `xxhash64` of values; None for values within others, as lists are."""
    if not args or not all(isinstance(unwrap(a.type), Atom) for a in args):
        return None
    return Hashed(INT, tuple(args), name, tuple(narrow))


@dataclass(frozen=True)
class Known(Derived):
    """1 if the part is not NULL, else 0."""

    label: ClassVar[str] = "known"

    def __str__(self) -> str:
        return f"{self.args[0]} IS NOT NULL"

    def _sql(self, row: str) -> str:
        return f"if({self.args[0].sql(row)} IS NULL, 0L, 1L)"

    def of(self, *values: Any) -> int:
        return int(values[0] is not None)

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        return columns[0].is_valid().cast(pa.int64())


def one_if_known(e: Expr) -> Expr:
    """1 if the expression is not NULL, else 0."""
    return Known(INT, (e,))


@dataclass(frozen=True)
class Truth(Derived):
    """1 if the part is true, else 0."""

    label: ClassVar[str] = "truth"

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

    label: ClassVar[str] = "given"

    def _sql(self, row: str) -> str:
        n, value = (a.sql(row) for a in self.args)
        return f"CASE WHEN {n} <> 0 THEN {value} END"

    def of(self, *values: Any) -> Any:
        return values[1] if values[0] else None

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        unequal: Any = pc.not_equal(columns[0], pa.scalar(0))
        differs = unequal.fill_null(False)
        return pc.if_else(differs, columns[1], pa.scalar(None, columns[1].type))


def if_nonzero(n: Expr, value: Expr) -> Expr:
    """The value if `n` is not zero, else NULL."""
    t = value.type if isinstance(value.type, Optional) else Optional(value.type)
    return Given(t, (n, value))


@dataclass(frozen=True)
class Choice(Derived):
    """The second part if the first is true, else the third."""

    label: ClassVar[str] = "choice"

    def _sql(self, row: str) -> str:
        return f"if({', '.join(a.sql(row) for a in self.args)})"

    def value(self, row: Any) -> Any:
        """The value; the part that is not chosen is not evaluated: it may fail, such as `1 / 0`."""
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
    """The latest multiple of `slide` microseconds that is not later than a time, plus `shift`.

    Multiples are counted from `offset` microseconds after the epoch. This is the begin or the end
    of a window of time.
    """

    slide: int = 1
    offset: int = 0
    shift: int = 0
    label: ClassVar[str] = "slid"

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
    """An int that must fit fewer bits. A larger one is an error, as in Spark's integers."""

    bits: int = 32
    label: ClassVar[str] = "narrowed"

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
    label: ClassVar[str] = "otherwise"

    def _sql(self, row: str) -> str:
        return f"coalesce({self.args[0].sql(row)}, {literal(self._encoded(), self.type)})"

    def _encoded(self) -> Any:
        return self.type.encode(self.constant, "a constant")

    def of(self, *values: Any) -> Any:
        return self.constant if values[0] is None else values[0]


@dataclass(frozen=True)
class Widened(Derived):
    """An int as a Decimal of 38 digits, or any number as a float."""

    label: ClassVar[str] = "widened"

    def __str__(self) -> str:
        return f"CAST({self.args[0]} AS {self.type.ddl})"

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
    """A sum divided by a count: for floats and ints a float, for Decimals the exact mean, rounded.

    As in Spark's avg, the mean of Decimals has four more digits, and halves are rounded away from
    zero.
    """

    label: ClassVar[str] = "mean"

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
    then the lower digits, then the new ones, carrying each remainder. Strings move the point.
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
    mean = let("d", f"concat('{'0' * (scale + more + 1)}', {body})", shown)
    mean = fitting(mean, t, f"a mean is beyond {t}")
    text = f"CAST({total} AS STRING)"
    return f"CASE WHEN {text} IS NOT NULL AND {n} <> 0 THEN {let('x', text, mean)} END"
