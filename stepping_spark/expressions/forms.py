"""The signatures of Spark's functions that the driver computes: their columns and constants.

`readings` makes expressions of them, and `function_kernels` computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from stepping_spark.expressions.function_kernels import (
    PARTS_OF_SECONDS,
    UNITS,
    UNITS_OF_TIME,
    strftime,
)
from stepping_spark.rows.atoms import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    LOCAL_DATETIME,
    STR,
    Atom,
    RowType,
)


@dataclass(frozen=True)
class Form:
    """The signature of a function: its columns, with their types, and its constants.

    `columns` is the number of columns; 0 is any, and -1 is all but the last argument.
    """

    types: frozenset[RowType]
    given: RowType | None = None  # the type of the result; None: that of the columns
    columns: int = 1
    takes: Callable[..., bool] = lambda *constants: not constants
    kernel: str = ""  # if its name is not the function's


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


def _is_piece(*values: Any) -> bool:
    return len(values) == 2 and all(type(v) is int for v in values) and values[0] > 0 <= values[1]


def _is_replaced(*values: Any) -> bool:
    return len(values) == 2 and all(isinstance(v, str) for v in values) and values[0] != ""


def _is_unit(*values: Any) -> bool:
    return _is_text(*values) and values[0].lower() in UNITS


def _is_unit_of_time(*values: Any) -> bool:
    return _is_text(*values) and values[0].lower() in UNITS_OF_TIME


def _is_format(*values: Any) -> bool:
    return _is_text(*values) and bool(values[0]) and strftime(values[0]) is not None


_TEXT = frozenset({STR})
_DAYS: frozenset[RowType] = frozenset({DATE, DATETIME, LOCAL_DATETIME})
_INSTANTS: frozenset[RowType] = frozenset({DATETIME})
_NUMBERS: frozenset[RowType] = frozenset({INT, FLOAT})
CAST = "cast_to_"
DECIMALS = Atom("Decimal", Decimal)
"""Stands for decimals of any digits."""

FORMS: dict[str, Form] = {
    **dict.fromkeys(("upper", "ucase"), Form(_TEXT, kernel="upper")),
    **dict.fromkeys(("lower", "lcase"), Form(_TEXT, kernel="lower")),
    **dict.fromkeys(
        ("length", "len", "char_length", "character_length"), Form(_TEXT, INT, kernel="length")
    ),
    **{n: Form(_TEXT) for n in ("trim", "ltrim", "rtrim")},
    "concat": Form(_TEXT, columns=0),
    **dict.fromkeys(("substring", "substr"), Form(_TEXT, takes=_is_piece, kernel="substring")),
    "concat_ws": Form(_TEXT, columns=-1, takes=_is_text),
    **{n: Form(_TEXT, takes=_is_padding) for n in ("lpad", "rpad")},
    **{n: Form(_TEXT, takes=_is_number) for n in ("left", "right", "repeat")},
    "reverse": Form(_TEXT),
    "md5": Form(_TEXT),
    **dict.fromkeys(("sha", "sha1"), Form(_TEXT, kernel="sha1")),
    "sha2": Form(_TEXT, takes=_is_length_of_hash),
    "crc32": Form(_TEXT, INT),
    "like": Form(_TEXT, BOOL, takes=_is_pattern),
    **{n: Form(_TEXT, BOOL, takes=_is_text) for n in ("startswith", "endswith", "contains")},
    "replace": Form(_TEXT, takes=_is_replaced),
    **{n: Form(_DAYS, INT) for n in ("year", "quarter", "month", "weekofyear", "dayofweek")},
    **{n: Form(_DAYS, INT) for n in ("weekday", "dayofyear")},
    **dict.fromkeys(("day", "dayofmonth"), Form(_DAYS, INT, kernel="day")),
    **{n: Form(_DAYS - {DATE}, INT) for n in ("hour", "minute", "second")},
    "to_date": Form(_INSTANTS, DATE),
    "date_trunc": Form(_INSTANTS, takes=_is_unit_of_time),
    "date_format": Form(frozenset({DATE, DATETIME}), STR, takes=_is_format),
    "trunc": Form(frozenset({DATE}), takes=_is_unit),
    **dict.fromkeys(("datediff", "date_diff"), Form(frozenset({DATE}), INT, 2, kernel="datediff")),
    "last_day": Form(frozenset({DATE})),
    "unix_date": Form(frozenset({DATE}), INT),
    **{n: Form(frozenset({DATETIME}), INT) for n in PARTS_OF_SECONDS},
    "abs": Form(_NUMBERS),
    "isnan": Form(frozenset({FLOAT}), BOOL),
    "sqrt": Form(frozenset({FLOAT})),
    "pmod": Form(frozenset({INT}), columns=2),
    **{n: Form(frozenset({INT}), columns=2) for n in ("&", "|", "^")},
    "try_divide": Form(_NUMBERS, FLOAT, 2),
    **{n: Form(frozenset({INT, DATE}), columns=0) for n in ("greatest", "least")},
    "cast_to_string": Form(frozenset({INT, BOOL, DECIMALS, DATE, LOCAL_DATETIME}), STR),
    "cast_to_double": Form(frozenset({DECIMALS}), FLOAT),
    "cast_to_bigint": Form(frozenset({FLOAT, BOOL, DECIMALS}), INT),
    "cast_to_date": Form(frozenset({LOCAL_DATETIME}), DATE),
    "cast_to_timestamp_ntz": Form(frozenset({DATE}), LOCAL_DATETIME),
}
