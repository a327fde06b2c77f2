"""What Spark's functions compute, in Arrow: a kernel for each function that `readings` knows."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute

from stepping_spark.expressions.arrow_calls import as_floats, one_nan, remainder
from stepping_spark.expressions.cast_kernels import CASTS

__all__ = ["KERNELS", "PARTS_OF_SECONDS", "UNITS", "UNITS_OF_TIME", "Kernel", "strftime"]

pc: Any = pyarrow.compute
Kernel = Callable[..., Any]
"""Computes a column from columns; None: ask Spark."""

UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mon", "mm"), "month"),
    "week": "week",
}


UNITS_OF_TIME = {**UNITS, "day": "day", "dd": "day", "hour": "hour", "minute": "minute"}


_FORMAT = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M"}


def strftime(pattern: str) -> str | None:
    """A datetime pattern of Spark as one of C; None if a part of it is unknown."""
    found = ""
    while pattern:
        part = next((p for p in _FORMAT if pattern.startswith(p)), pattern[0])
        rest = pattern.removeprefix(part)
        if (part not in _FORMAT and part not in "-/. :") or rest[:1] == part[0]:
            return None
        found, pattern = found + _FORMAT.get(part, part), rest
    return found


def _letters(change: Kernel, x: Any) -> Any:
    """The text with letters changed; None beyond ASCII, where Java has rules of its own."""
    return change(x) if pc.all(pc.string_is_ascii(x)).as_py() is not False else None


def _long(part: Kernel, x: Any) -> Any:
    return part(_local(x)).cast(pa.int64())


def _local(x: Any) -> Any:
    """Instants as local times of UTC."""
    return x.cast(pa.timestamp("us")) if pa.types.is_timestamp(x.type) else x


def _days_between(last: Any, first: Any) -> Any:
    days = [d.cast(pa.int32()).cast(pa.int64()) for d in (last, first)]
    return pc.subtract(*days)


def _divided(a: Any, b: Any) -> Any:
    """The quotient as a float; NULL if the divisor is zero."""
    a, b = as_floats(a), as_floats(b)
    return one_nan(pc.if_else(pc.equal(b, 0.0), pa.scalar(None, pa.float64()), pc.divide(a, b)))


def _positive_remainder(a: Any, b: Any) -> Any:
    found = remainder(a, b)
    return pc.if_else(pc.less(found, 0), remainder(pc.add_checked(found, b), b), found)


def _joined(*columns: Any) -> Any:
    """The texts that are not NULL, with a separator, which comes last."""
    first, *rest, separator = columns
    none = reduce(pc.and_, (pc.is_null(x) for x in (first, *rest)))
    first = pc.if_else(none, "", first)  # Arrow would leave out a row of NULLs alone
    return pc.binary_join_element_wise(first, *rest, separator, null_handling="skip")


def _padded(pad: Kernel, x: Any, width: int, padding: str) -> Any:
    """Text of exactly this many characters."""
    return pc.utf8_slice_codeunits(pad(x, width=width, padding=padding), 0, width)


def _hashed(name: str, x: Any) -> Any:
    """The hash of each text in UTF-8, as hexadecimal digits."""
    made = partial(hashlib.new, name, usedforsecurity=False)
    found = [None if v is None else made(v.encode()).hexdigest() for v in x.to_pylist()]
    return pa.array(found, pa.string())


def _crc32(x: Any) -> Any:
    found = [None if v is None else zlib.crc32(v.encode()) for v in x.to_pylist()]
    return pa.array(found, pa.int64())


def _last_day(x: Any) -> Any:
    months = x.cast(pa.int32()).fill_null(0).to_numpy().astype("datetime64[D]")
    days = (months.astype("datetime64[M]") + 1).astype("datetime64[D]") - 1
    return pa.array(days, mask=x.is_null().to_numpy(zero_copy_only=False)).cast(pa.date32())


PARTS_OF_SECONDS = {"unix_micros": 1, "unix_millis": 1_000, "unix_seconds": 1_000_000}


def _since_1970(of: int, x: Any) -> Any:
    """Whole parts of seconds since 1970, rounded down, before 1970 too."""
    micros = x.cast(pa.int64())
    rest = remainder(micros, pa.scalar(of))
    down = pc.if_else(pc.less(rest, 0), pc.add(rest, of), rest)
    return pc.divide(pc.subtract_checked(micros, down), of)


KERNELS: dict[str, Kernel] = {
    "upper": partial(_letters, pc.utf8_upper),
    "lower": partial(_letters, pc.utf8_lower),
    "length": partial(_long, pc.utf8_length),
    "trim": lambda x: pc.utf8_trim(x, " "),
    "ltrim": lambda x: pc.utf8_ltrim(x, " "),
    "rtrim": lambda x: pc.utf8_rtrim(x, " "),
    "concat": lambda *x: pc.binary_join_element_wise(*x, "", null_handling="emit_null"),
    "substring": lambda x, at, n: pc.utf8_slice_codeunits(x, at - 1, at - 1 + n),
    "concat_ws": _joined,
    "lpad": partial(_padded, pc.utf8_lpad),
    "rpad": partial(_padded, pc.utf8_rpad),
    "left": lambda x, n: pc.utf8_slice_codeunits(x, 0, n),
    "right": lambda x, n: pc.utf8_slice_codeunits(x, -n if n else 2**31 - 1, 2**31 - 1),
    "repeat": pc.binary_repeat,
    "reverse": pc.utf8_reverse,
    "md5": partial(_hashed, "md5"),
    "sha1": partial(_hashed, "sha1"),
    "sha2": lambda x, bits: _hashed(f"sha{bits or 256}", x),
    "crc32": _crc32,
    "like": lambda x, pattern: pc.match_like(x, pattern),
    "startswith": lambda x, text: pc.starts_with(x, text),
    "endswith": lambda x, text: pc.ends_with(x, text),
    "contains": lambda x, text: pc.match_substring(x, text),
    "replace": lambda x, old, new: pc.replace_substring(x, old, new),
    "year": partial(_long, pc.year),
    "quarter": partial(_long, pc.quarter),
    "month": partial(_long, pc.month),
    "weekofyear": partial(_long, pc.iso_week),
    "dayofweek": lambda x: _long(partial(pc.day_of_week, count_from_zero=False, week_start=7), x),
    "weekday": partial(_long, pc.day_of_week),
    "dayofyear": partial(_long, pc.day_of_year),
    "day": partial(_long, pc.day),
    "hour": partial(_long, pc.hour),
    "minute": partial(_long, pc.minute),
    "second": partial(_long, pc.second),
    "trunc": lambda x, unit: pc.floor_temporal(x, unit=UNITS[unit.lower()]),
    "datediff": _days_between,
    "to_date": lambda x: pc.floor_temporal(_local(x), unit="day").cast(pa.date32()),
    "date_trunc": lambda x, unit: pc.floor_temporal(
        _local(x), unit=UNITS_OF_TIME[unit.lower()]
    ).cast(x.type),
    "date_format": lambda x, pattern: pc.strftime(
        x.cast(pa.timestamp("us")), format=strftime(pattern)
    ),
    "last_day": _last_day,
    "unix_date": lambda x: x.cast(pa.int32()).cast(pa.int64()),
    **{name: partial(_since_1970, of) for name, of in PARTS_OF_SECONDS.items()},
    "abs": pc.abs_checked,
    "isnan": lambda x: pc.is_nan(x).fill_null(False),
    "sqrt": lambda x: one_nan(pc.sqrt(x)),
    "pmod": _positive_remainder,
    "&": pc.bit_wise_and,
    "|": pc.bit_wise_or,
    "^": pc.bit_wise_xor,
    "try_divide": _divided,
    "greatest": pc.max_element_wise,
    "least": pc.min_element_wise,
    **CASTS,
}
