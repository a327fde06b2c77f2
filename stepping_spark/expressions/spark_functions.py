"""Spark's functions that the driver computes: one table of their signatures and kernels.

A kernel computes a column of Arrow from columns and constants, with Spark's result bit for bit. It
returns None, or raises `ArrowInvalid`, if only Spark can compute the result. Kernels of text are in
`text_kernels`, of numbers in `number_kernels`, of days, times and casts here. `spark_to_arrow`
turns calls into expressions. The page *functions of rows* lists the names; a test compares them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute

from stepping_spark.expressions.arrow_kernels import as_floats, one_nan, remainder
from stepping_spark.expressions.number_kernels import (
    absolute,
    are_places,
    ceil,
    counted,
    floor,
    greatest,
    is_months,
    least,
    logarithms,
    logarithms_of,
    logarithms_of_2,
    logarithms_of_10,
    made_date,
    months_later,
    powers,
    powers_of_e,
    quotients,
    rounded,
    rounded_type,
    sign,
    whole_type,
)
from stepping_spark.expressions.text_kernels import (
    are_texts,
    before,
    crc32,
    day,
    extracted,
    float_of_text,
    hashed,
    int_of_text,
    is_group,
    is_index,
    is_part,
    is_separator,
    is_sought,
    is_substitution,
    joined,
    matches,
    part,
    place,
    sounds,
    split,
    substituted,
    translated,
    with_capitals,
)
from stepping_spark.expressions.zones import (
    day_of,
    instants,
    instants_beside,
    local_times,
    shifted,
    whole_units,
)
from stepping_spark.rows.atoms import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    LOCAL_DATETIME,
    STR,
    TIMEDELTA,
    Atom,
    RowType,
)
from stepping_spark.rows.types import ListOf

pc: Any = pyarrow.compute
ArrowFunction = Callable[..., Any]
"""Computes a column from columns and constants; None: ask Spark."""


def _doubted_of(*types: RowType) -> Callable[[RowType], str]:
    """The `nulls` of a form whose result Spark calls nullable for these column types."""
    return lambda t: "doubted" if t in types or (_is_decimal(t) and DECIMALS in types) else "any"


def _is_decimal(t: RowType) -> bool:
    return isinstance(t, Atom) and t.name == "Decimal"


def _has_instants(types: frozenset[RowType], constants: tuple[Any, ...]) -> bool:
    return DATETIME in types


def _has_hours(types: frozenset[RowType], constants: tuple[Any, ...]) -> bool:
    """Whether a format depends on hours: a day's midnight may be in a gap of the clock."""
    return DATETIME in types or "HH" in constants[0] or "mm" in constants[0]


def _always(types: frozenset[RowType], constants: tuple[Any, ...]) -> bool:
    return True


def _never(types: frozenset[RowType], constants: tuple[Any, ...]) -> bool:
    return False


@dataclass(frozen=True)
class Form:
    """A function of Spark that the driver computes: its columns, constants, result and kernel.

    `columns` is the number of columns; 0 is any number, and -1 is all but the last argument. The
    other arguments are constants, which `takes` checks. `nulls` is the case in which Spark calls
    the result nullable: if `any` column is, if `all` are, `always`, or `never`. With `doubted`,
    Spark always calls it nullable, but only NULL yields NULL. The kernel gets instants as local
    times of the session's zone, and days as days. A constant in the place of a column comes as an
    array too. `in_zone` is the kernel that gets the zone as its
    last argument; `needs_zone` selects it by types and constants. `bits` is the width of a whole
    number in Spark: 32 for an INT. If the function is `constant_first`, its first argument is the
    constant that the kernel gets last.
    """

    types: frozenset[RowType]
    kernel: ArrowFunction
    # The type of the result, or a function of the column's type and the constants for it
    given: RowType | Callable[..., RowType] | None = None  # None: the type of the columns
    columns: int = 1
    takes: Callable[..., bool] = lambda *constants: not constants
    nulls: str | Callable[[RowType], str] = "any"
    in_zone: ArrowFunction | None = None
    needs_zone: Callable[[frozenset[RowType], tuple[Any, ...]], bool] = _has_instants
    bits: int = 64
    constant_first: bool = False
    alike: bool = True  # whether all columns have one type


UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mon", "mm"), "month"),
    "week": "week",
}

UNITS_BETWEEN: dict[str, tuple[str, int]] = {
    "microsecond": ("microsecond", 1),
    "millisecond": ("microsecond", 1_000),
    "second": ("microsecond", 1_000_000),
    "minute": ("microsecond", 60_000_000),
    "hour": ("microsecond", 3_600_000_000),
    "day": ("day", 1),
    "week": ("day", 7),
    "month": ("month", 1),
    "quarter": ("month", 3),
    "year": ("month", 12),
}
"""Units of time, as multiples of three of them."""

UNITS_OF_TIME = {**UNITS, "day": "day", "dd": "day", "hour": "hour", "minute": "minute"}
_FORMAT = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M"}


def strftime(pattern: str) -> str | None:
    """A datetime pattern of Spark as one of C; None if a part of it is unknown."""
    result = ""
    while pattern:
        part = next((p for p in _FORMAT if pattern.startswith(p)), pattern[0])
        rest = pattern.removeprefix(part)
        if (part not in _FORMAT and part not in "-/. :") or rest[:1] == part[0]:
            return None
        result, pattern = result + _FORMAT.get(part, part), rest
    return result


def _letters(change: ArrowFunction, x: Any) -> Any:
    """The text with changed letters; None beyond ASCII, where Java has its own rules."""
    return change(x) if pc.all(pc.string_is_ascii(x)).as_py() is not False else None


def _like_in_any_case(x: Any, pattern: str) -> Any:
    lower = _letters(pc.utf8_lower, x)
    return None if lower is None else pc.match_like(lower, pattern.lower())


def _long(part: ArrowFunction, x: Any) -> Any:
    return part(x).cast(pa.int64())


def _days(x: Any) -> Any:
    """The days of local times; days are unchanged."""
    return day_of(x) if pa.types.is_timestamp(x.type) else x


def _days_between(last: Any, first: Any) -> Any:
    days = [_days(d).cast(pa.int32()).cast(pa.int64()) for d in (last, first)]
    return pc.subtract(*days)


def _divided(a: Any, b: Any) -> Any:
    """The quotient as a float; NULL if the divisor is zero."""
    a, b = as_floats(a), as_floats(b)
    return one_nan(pc.if_else(pc.equal(b, 0.0), pa.scalar(None, pa.float64()), pc.divide(a, b)))


def _positive_remainder(a: Any, b: Any) -> Any:
    rest = remainder(a, b)
    return pc.if_else(pc.less(rest, 0), remainder(pc.add_checked(rest, b), b), rest)


def _joined(*columns: Any) -> Any:
    """The non-NULL texts, joined with a separator, which is the last argument."""
    first, *rest, separator = columns
    none = reduce(pc.and_, (pc.is_null(x) for x in (first, *rest)))
    first = pc.if_else(none, "", first)  # Arrow would leave out a row of NULLs alone
    return pc.binary_join_element_wise(first, *rest, separator, null_handling="skip")


def _padded(pad: ArrowFunction, x: Any, width: int, padding: str) -> Any:
    """Text of exactly this many characters."""
    return pc.utf8_slice_codeunits(pad(x, width=width, padding=padding), 0, width)


def _last_day(x: Any) -> Any:
    x = _days(x)
    months = x.cast(pa.int32()).fill_null(0).to_numpy().astype("datetime64[D]")
    days = (months.astype("datetime64[M]") + 1).astype("datetime64[D]") - 1
    return pa.array(days, mask=x.is_null().to_numpy(zero_copy_only=False)).cast(pa.date32())


def _since_1970(of: int, x: Any) -> Any:
    """Whole parts of seconds since 1970, rounded down, before 1970 too."""
    micros = x.cast(pa.int64())
    rest = remainder(micros, pa.scalar(of))
    down = pc.if_else(pc.less(rest, 0), pc.add(rest, of), rest)
    return pc.divide(pc.subtract_checked(micros, down), of)


def _instant_at(of: int, x: Any) -> Any:
    """The instants that are so many units of time after 1970 began."""
    began = pa.scalar(0, pa.timestamp("us", "UTC"))
    return shifted(began, pc.multiply_checked(x, of).cast(pa.duration("us")))


def _truncated_time(x: Any, unit: str, zone: dt.tzinfo) -> Any:
    """The instant at which the unit of a time began; local times and days are instants first."""
    moments = _instants(x, zone)
    unit = UNITS_OF_TIME[unit.lower()]
    began = pc.floor_temporal(local_times(moments, zone), unit=unit)
    if unit in ("day", "hour", "minute", "second"):
        return instants_beside(began, moments, zone)
    return instants(began, zone)


def _instants(x: Any, zone: dt.tzinfo) -> Any:
    """Days, local times and instants as instants."""
    if pa.types.is_timestamp(x.type) and x.type.tz is not None:
        return x
    return instants(x.cast(pa.timestamp("us")), zone)


def _whole_units(start: Any, end: Any, unit: str, zone: dt.tzinfo) -> Any:
    """The number of whole units between the local times of two days, local times or instants."""
    first, last = (local_times(_instants(x, zone), zone) for x in (start, end))
    return whole_units(first, last, UNITS_BETWEEN[unit.lower()])


def _formatted(x: Any, pattern: str) -> Any:
    return pc.strftime(x.cast(pa.timestamp("us")), format=strftime(pattern))


def _formatted_in(x: Any, pattern: str, zone: dt.tzinfo) -> Any:
    return _formatted(local_times(_instants(x, zone), zone), pattern)


def _only_in_zone(*_: Any) -> Any:
    """The kernel without a zone, of a function that always needs one; never called."""


# Casts


def _string(x: Any) -> Any:
    """Text of ints, booleans, decimals, days, and of local times without zeros at their end."""
    if pa.types.is_decimal(x.type) and x.type.scale > 6:  # Arrow shows some with an exponent
        return pa.array([None if v is None else f"{v:f}" for v in x.to_pylist()], pa.string())
    shown = x.cast(pa.string())
    if not pa.types.is_timestamp(x.type):
        return shown
    shown = pc.replace_substring_regex(shown, r"(\.[0-9]*?)0+$", r"\1")
    return pc.replace_substring_regex(shown, r"\.$", "")


def _double(x: Any) -> Any:
    return float_of_text(x) if pa.types.is_string(x.type) else as_floats(x)


def _date(x: Any) -> Any:
    return day(x) if pa.types.is_string(x.type) else _days(x)


def _bigint(x: Any) -> Any:
    """Whole numbers, cut towards zero. None, or ArrowInvalid, beyond 64 bits: Spark fails there."""
    if pa.types.is_boolean(x.type):
        return x.cast(pa.int64())
    if pa.types.is_string(x.type):
        return int_of_text(x)
    if pa.types.is_decimal(x.type):
        p, s = x.type.precision, x.type.scale
        wide = x.cast(pa.decimal256(p + 1, s)) if p == s else x  # Arrow wants room for a digit
        return pc.trunc(wide).cast(pa.int64())
    within = pc.and_(pc.greater_equal(x, -(2.0**63)), pc.less(x, 2.0**63))
    if pc.all(within.fill_null(True)).as_py() is False:
        return None
    return pc.trunc(x).cast(pa.int64(), safe=False)


# Checks of the constants of functions


def _is_padding(*values: Any) -> bool:
    return (
        len(values) == 2 and _is_number(values[0]) and _is_text(values[1]) and len(values[1]) == 1
    )


def _is_number(*values: Any) -> bool:
    return len(values) == 1 and type(values[0]) is int and 0 <= values[0] <= 1_000


def _is_length_of_hash(*values: Any) -> bool:
    return len(values) == 1 and values[0] in (0, 224, 256, 384, 512)


def _is_text(*values: Any) -> bool:
    return len(values) == 1 and isinstance(values[0], str)


def _is_pattern(*values: Any) -> bool:
    return _is_text(*values) and "\\" not in values[0]


def _is_pattern_of_ascii(*values: Any) -> bool:
    return _is_pattern(*values) and values[0].isascii()


def _is_piece(*values: Any) -> bool:
    return len(values) == 2 and all(type(v) is int for v in values) and values[0] > 0 <= values[1]


def _is_replaced(*values: Any) -> bool:
    return len(values) == 2 and all(isinstance(v, str) for v in values) and values[0] != ""


def _is_unit(*values: Any) -> bool:
    return _is_text(*values) and values[0].lower() in UNITS


def _is_unit_of_time(*values: Any) -> bool:
    return _is_text(*values) and values[0].lower() in UNITS_OF_TIME


def _is_unit_between(*values: Any) -> bool:
    return _is_text(*values) and values[0].lower() in UNITS_BETWEEN


def _is_format(*values: Any) -> bool:
    return _is_text(*values) and bool(values[0]) and strftime(values[0]) is not None


# The table

DECIMALS = Atom("Decimal", Decimal)
"""Stands for decimals of any digits."""
LISTS, TEXTS = Atom("list", list), Atom("list[str]", list)
"""Stand for lists of any items, and for lists of text."""
_TEXT: frozenset[RowType] = frozenset({STR})
_LOCAL_TIMES: frozenset[RowType] = frozenset({DATETIME, LOCAL_DATETIME})
_DAYS: frozenset[RowType] = _LOCAL_TIMES | {DATE}
_DATE: frozenset[RowType] = frozenset({DATE})
_INSTANTS: frozenset[RowType] = frozenset({DATETIME})
_ORDERED: frozenset[RowType] = frozenset(
    {INT, FLOAT, DECIMALS, STR, BYTES, BOOL, DATE, DATETIME, LOCAL_DATETIME, TIMEDELTA}
)
_INTS: frozenset[RowType] = frozenset({INT})
_FLOATS: frozenset[RowType] = frozenset({FLOAT})
_NUMBERS: frozenset[RowType] = _INTS | _FLOATS | {DECIMALS}
_OF_LOCAL = _doubted_of(LOCAL_DATETIME)
CAST, TRY_CAST = "cast_to_", "try_cast_to_"

FORMS: dict[str, Form] = {
    # text
    "upper": Form(_TEXT, partial(_letters, pc.utf8_upper)),
    "lower": Form(_TEXT, partial(_letters, pc.utf8_lower)),
    "length": Form(_TEXT, partial(_long, pc.utf8_length), INT, bits=32),
    "octet_length": Form(_TEXT | {BYTES}, partial(_long, pc.binary_length), INT, bits=32),
    "trim": Form(_TEXT, lambda x: pc.utf8_trim(x, " ")),
    "ltrim": Form(_TEXT, lambda x: pc.utf8_ltrim(x, " ")),
    "rtrim": Form(_TEXT, lambda x: pc.utf8_rtrim(x, " ")),
    "concat": Form(
        _TEXT,
        lambda *x: pc.binary_join_element_wise(*x, "", null_handling="emit_null"),
        columns=0,
    ),
    "concat_ws": Form(
        _TEXT, _joined, columns=-1, takes=_is_text, nulls="never", constant_first=True
    ),
    "substring": Form(
        _TEXT, lambda x, at, n: pc.utf8_slice_codeunits(x, at - 1, at - 1 + n), takes=_is_piece
    ),
    "left": Form(_TEXT, lambda x, n: pc.utf8_slice_codeunits(x, 0, n), takes=_is_number),
    "right": Form(
        _TEXT,
        lambda x, n: pc.utf8_slice_codeunits(x, -n if n else 2**31 - 1, 2**31 - 1),
        takes=_is_number,
        nulls="doubted",
    ),
    "lpad": Form(_TEXT, partial(_padded, pc.utf8_lpad), takes=_is_padding),
    "rpad": Form(_TEXT, partial(_padded, pc.utf8_rpad), takes=_is_padding),
    "repeat": Form(_TEXT, pc.binary_repeat, takes=_is_number),
    "reverse": Form(_TEXT, pc.utf8_reverse),
    "replace": Form(_TEXT, lambda x, a, b: pc.replace_substring(x, a, b), takes=_is_replaced),
    "like": Form(_TEXT, lambda x, pattern: pc.match_like(x, pattern), BOOL, takes=_is_pattern),
    "ilike": Form(_TEXT, _like_in_any_case, BOOL, takes=_is_pattern_of_ascii),
    "startswith": Form(_TEXT, lambda x, t: pc.starts_with(x, t), BOOL, takes=_is_text),
    "endswith": Form(_TEXT, lambda x, t: pc.ends_with(x, t), BOOL, takes=_is_text),
    "contains": Form(_TEXT, lambda x, t: pc.match_substring(x, t), BOOL, takes=_is_text),
    "md5": Form(_TEXT, partial(hashed, "md5")),
    "sha1": Form(_TEXT, partial(hashed, "sha1")),
    "sha2": Form(
        _TEXT,
        lambda x, bits: hashed(f"sha{bits or 256}", x),
        takes=_is_length_of_hash,
        nulls="doubted",
    ),
    "crc32": Form(_TEXT, crc32, INT),
    "rlike": Form(_TEXT, matches, BOOL, takes=lambda *v: is_group(*v, 0)),
    "regexp_extract": Form(_TEXT, extracted, takes=is_group),
    "regexp_replace": Form(_TEXT, substituted, takes=is_substitution),
    "split": Form(_TEXT, split, ListOf(STR), takes=is_separator),
    "split_part": Form(_TEXT, part, takes=is_part, nulls="doubted"),
    "substring_index": Form(_TEXT, before, takes=is_index),
    "locate": Form(_TEXT, place, INT, takes=is_sought, bits=32, constant_first=True),
    "instr": Form(_TEXT, place, INT, takes=is_sought, bits=32),
    "translate": Form(_TEXT, translated, takes=are_texts),
    "initcap": Form(_TEXT, with_capitals),
    "array_join": Form(frozenset({TEXTS}), joined, STR, takes=_is_text),
    "size": Form(frozenset({LISTS, TEXTS}), partial(_long, pc.list_value_length), INT, bits=32),
    "soundex": Form(_TEXT, sounds),
    # dates, local times and instants
    "year": Form(_DAYS, partial(_long, pc.year), INT, nulls=_OF_LOCAL, bits=32),
    "quarter": Form(_DAYS, partial(_long, pc.quarter), INT, nulls=_OF_LOCAL, bits=32),
    "month": Form(_DAYS, partial(_long, pc.month), INT, nulls=_OF_LOCAL, bits=32),
    "weekofyear": Form(_DAYS, partial(_long, pc.iso_week), INT, nulls=_OF_LOCAL, bits=32),
    "day": Form(_DAYS, partial(_long, pc.day), INT, nulls=_OF_LOCAL, bits=32),
    "dayofyear": Form(_DAYS, partial(_long, pc.day_of_year), INT, nulls=_OF_LOCAL, bits=32),
    "dayofweek": Form(
        _DAYS,
        partial(_long, partial(pc.day_of_week, count_from_zero=False, week_start=7)),
        INT,
        nulls=_OF_LOCAL,
        bits=32,
    ),
    "weekday": Form(_DAYS, partial(_long, pc.day_of_week), INT, nulls=_OF_LOCAL, bits=32),
    "hour": Form(_LOCAL_TIMES, partial(_long, pc.hour), INT, bits=32),
    "minute": Form(_LOCAL_TIMES, partial(_long, pc.minute), INT, bits=32),
    "second": Form(_LOCAL_TIMES, partial(_long, pc.second), INT, bits=32),
    "to_date": Form(_DAYS | _TEXT, _date, DATE, nulls=_doubted_of(LOCAL_DATETIME, STR)),
    "date_trunc": Form(
        _DAYS,
        _only_in_zone,
        DATETIME,
        takes=_is_unit_of_time,
        nulls="doubted",
        in_zone=_truncated_time,
        needs_zone=_always,
        constant_first=True,
    ),
    "date_format": Form(
        _DAYS, _formatted, STR, takes=_is_format, in_zone=_formatted_in, needs_zone=_has_hours
    ),
    "trunc": Form(
        _DAYS,
        lambda x, unit: pc.floor_temporal(_days(x), unit=UNITS[unit.lower()]),
        DATE,
        takes=_is_unit,
        nulls="doubted",
    ),
    "datediff": Form(_DAYS, _days_between, INT, 2, nulls=_OF_LOCAL, bits=32),
    "timestampdiff": Form(
        _DAYS,
        _only_in_zone,
        INT,
        2,
        takes=_is_unit_between,
        in_zone=_whole_units,
        needs_zone=_always,
        constant_first=True,
        alike=False,
    ),
    "last_day": Form(_DAYS, _last_day, DATE, nulls=_OF_LOCAL),
    "add_months": Form(
        _DAYS, lambda x, n: months_later(_days(x), n), DATE, takes=is_months, nulls=_OF_LOCAL
    ),
    "make_date": Form(_INTS, made_date, DATE, 3),
    "unix_date": Form(_DATE, lambda x: x.cast(pa.int32()).cast(pa.int64()), INT, bits=32),
    "unix_micros": Form(_INSTANTS, partial(_since_1970, 1), INT, needs_zone=_never),
    "unix_millis": Form(_INSTANTS, partial(_since_1970, 1_000), INT, needs_zone=_never),
    "unix_seconds": Form(_INSTANTS, partial(_since_1970, 1_000_000), INT, needs_zone=_never),
    "timestamp_micros": Form(_INTS, partial(_instant_at, 1), DATETIME),
    "timestamp_millis": Form(_INTS, partial(_instant_at, 1_000), DATETIME),
    "timestamp_seconds": Form(_INTS, partial(_instant_at, 1_000_000), DATETIME),
    # numbers
    "abs": Form(_NUMBERS, absolute),
    "isnan": Form(_FLOATS, lambda x: pc.is_nan(x).fill_null(False), BOOL, nulls="never"),
    "sqrt": Form(_NUMBERS, lambda x: one_nan(pc.sqrt(as_floats(x))), FLOAT, nulls="doubted"),
    "pmod": Form(_INTS, _positive_remainder, columns=2, nulls="doubted"),
    "&": Form(_INTS, pc.bit_wise_and, columns=2),
    "|": Form(_INTS, pc.bit_wise_or, columns=2),
    "^": Form(_INTS, pc.bit_wise_xor, columns=2),
    "try_divide": Form(_INTS | _FLOATS, _divided, FLOAT, 2, nulls="always"),
    "div": Form(_INTS, quotients, INT, 2, nulls="doubted"),
    "greatest": Form(_ORDERED, greatest, columns=0, nulls="all", needs_zone=_never),
    "least": Form(_ORDERED, least, columns=0, nulls="all", needs_zone=_never),
    "round": Form(_NUMBERS, rounded, rounded_type, takes=are_places, nulls="doubted"),
    "floor": Form(_NUMBERS, floor, whole_type, nulls="doubted"),
    "ceil": Form(_NUMBERS, ceil, whole_type, nulls="doubted"),
    "signum": Form(_NUMBERS, sign, FLOAT, nulls="doubted"),
    "exp": Form(_NUMBERS, powers_of_e, FLOAT, nulls="doubted"),
    "power": Form(_NUMBERS, powers, FLOAT, 2, alike=False),
    "ln": Form(_NUMBERS, logarithms, FLOAT, nulls="always"),
    "log2": Form(_NUMBERS, logarithms_of_2, FLOAT, nulls="always"),
    "log10": Form(_NUMBERS, logarithms_of_10, FLOAT, nulls="always"),
    "log": Form(_NUMBERS, logarithms_of, FLOAT, 2, nulls="always", alike=False),
    "sequence": Form(_INTS, counted, ListOf(INT), 2),
    # casts
    "cast_to_string": Form(
        frozenset({INT, BOOL, DECIMALS, DATE, LOCAL_DATETIME, DATETIME}), _string, STR
    ),
    "cast_to_double": Form(frozenset({DECIMALS, STR}), _double, FLOAT, nulls=_doubted_of(STR)),
    "cast_to_bigint": Form(
        frozenset({FLOAT, BOOL, DECIMALS, STR}),
        _bigint,
        INT,
        nulls=_doubted_of(FLOAT, STR, DECIMALS),
    ),
    "cast_to_date": Form(_LOCAL_TIMES | _TEXT, _date, DATE, nulls=_doubted_of(LOCAL_DATETIME, STR)),
    "cast_to_timestamp_ntz": Form(
        frozenset({DATE, DATETIME}),
        lambda x: x.cast(pa.timestamp("us")),
        LOCAL_DATETIME,
        nulls=_doubted_of(DATE),
    ),
    "cast_to_timestamp": Form(
        frozenset({DATE, LOCAL_DATETIME}),
        _only_in_zone,
        DATETIME,
        in_zone=_instants,
        needs_zone=_always,
    ),
    "try_cast_to_double": Form(_TEXT, partial(float_of_text, is_try=True), FLOAT, nulls="always"),
    "try_cast_to_bigint": Form(_TEXT, partial(int_of_text, is_try=True), INT, nulls="always"),
    "try_cast_to_date": Form(_TEXT, partial(day, is_try=True), DATE, nulls="always"),
}

ALSO_CALLED = {
    "ucase": "upper",
    "lcase": "lower",
    **dict.fromkeys(("len", "char_length", "character_length"), "length"),
    "substr": "substring",
    "sha": "sha1",
    "dayofmonth": "day",
    "sign": "signum",
    "ceiling": "ceil",
    "regexp_like": "rlike",
    "regexp": "rlike",
    "position": "locate",
    "array_size": "size",
    "cardinality": "size",
    "date_diff": "datediff",
    "pow": "power",
}
"""Other names of functions."""
