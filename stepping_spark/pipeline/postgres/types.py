"""Types of columns of Postgres in Arrow, and conversion of values from and to JSON.

A kind is JSON, so that a log can keep it: `["int4"]`, `["numeric", 10, 2]`, `["list", kind]`,
`["row", [[name, kind], …]]`, `["enum", {oid: label}]`, `["json"]`, or `["other", name]` for a type
that Arrow lacks, whose values can be read as text. The text of a `["named", name]`, such as a
`regclass`, changes with the names of other objects, so it cannot be read.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import pyarrow as pa

from stepping_spark.base.errors import cut_short
from stepping_spark.pipeline.postgres.link import run
from stores.postgres.connection import Connection
from stores.postgres.types import full_name, pg_type

PostgresKind: TypeAlias = "list[Any]"

_ARROW: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.uint32(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "text": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "interval": pa.duration("us"),
}
_TEXTS = ("text", "varchar", "bpchar", "name", "char", "uuid", "xml")
_NAMED = (
    "aclitem", "regclass", "regcollation", "regconfig", "regdatabase", "regdictionary",
    "regnamespace", "regoper", "regoperator", "regproc", "regprocedure", "regrole", "regtype",
)  # fmt: skip
_DIGITS = 38

_TYPES = """
WITH RECURSIVE reached (oid) AS (
    SELECT atttypid FROM pg_catalog.pg_attribute
    WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped
    UNION
    SELECT part.oid FROM reached r JOIN pg_catalog.pg_type t ON t.oid = r.oid, LATERAL (
        SELECT t.typelem AS oid WHERE t.typcategory = 'A'
        UNION ALL SELECT t.typbasetype WHERE t.typtype = 'd'
        UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a
        WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) part
)
SELECT t.oid::bigint, t.typname, t.typtype, n.nspname = 'pg_catalog', t.typcategory,
    t.typelem::bigint, t.typbasetype::bigint, t.typtypmod,
    (SELECT pg_catalog.json_object_agg(e.oid, e.enumlabel)
     FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid),
    (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(
         a.attname, a.atttypid::bigint, a.atttypmod) ORDER BY a.attnum)
     FROM pg_catalog.pg_attribute a
     WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped)
FROM reached r JOIN pg_catalog.pg_type t ON t.oid = r.oid
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
"""


def kinds_of(connection: Connection, table: int) -> Callable[[int, int], PostgresKind]:
    """A function from the oid and the modifier of a type in the table to its kind."""
    types = {row[0]: row[1:] for row in run(connection, _TYPES, table).fetchall()}

    def kind(oid: int, modifier: int) -> PostgresKind:
        name, sort, built_in, category, item, base, base_modifier, labels, parts = types[oid]
        if sort == "d":
            return kind(base, base_modifier)
        if sort == "e":
            return ["enum", labels or {}]
        if sort == "c":
            return ["row", [[n, kind(part, m)] for n, part, m in parts or ()]]
        if category == "A" and item:
            return ["list", kind(item, modifier)]
        if sort == "b" and built_in:
            return _base(name, modifier)
        return ["text"] if sort == "b" and category == "S" else ["other", name]

    return kind


def _base(name: str, modifier: int) -> PostgresKind:
    if name == "numeric" and modifier >= 0:
        scale = (((modifier - 4) & 0x7FF) ^ 1024) - 1024
        digits = ((modifier - 4) >> 16) & 0xFFFF
        digits, scale = max(digits, scale) - min(scale, 0), max(scale, 0)
        return ["numeric", digits, scale] if digits <= _DIGITS else ["numeric"]
    if name in ("json", "jsonb"):
        return ["json"]
    if name in _TEXTS:
        return ["text"]
    if name in _NAMED:
        return ["named", name]
    return [name] if name in _ARROW or name == "numeric" else ["other", name]


def is_compatible(old: PostgresKind, new: PostgresKind) -> bool:
    """Whether values of the old kind are still valid: the kinds are equal up to new enum labels."""
    if old[0] == "enum" == new[0]:
        return all(new[1].get(oid) == label for oid, label in old[1].items())
    if old[0] == "list" == new[0]:
        return is_compatible(old[1], new[1])
    if old[0] == "row" == new[0]:
        parts = zip(old[1], new[1], strict=False)
        same = all(a[0] == b[0] and is_compatible(a[1], b[1]) for a, b in parts)
        return same and len(old[1]) == len(new[1])
    return old == new


def arrow_of(
    kind: PostgresKind, preferred: pa.DataType | None = None, *, inside: bool = False
) -> pa.DataType:
    """The Arrow type of a kind.

    If a kind allows several types, it is the `preferred` one if possible: any Decimal for a numeric
    without digits, text or a nested type for JSON, and text for types that Arrow lacks.
    """
    name = kind[0]
    if name == "list":
        item = preferred.value_type if isinstance(preferred, pa.ListType) else None
        deeper = isinstance(item, pa.ListType) and kind[1][0] not in ("list", "json")
        return pa.list_(arrow_of(kind if deeper else kind[1], item, inside=True))
    if name == "row":
        fields = preferred if isinstance(preferred, pa.StructType) else ()
        field_types = {f.name.lower(): f.type for f in fields}
        return pa.struct(
            [(n, arrow_of(part, field_types.get(n.lower()), inside=True)) for n, part in kind[1]]
        )
    if name == "numeric":
        if len(kind) > 1:
            return pa.decimal128(kind[1], kind[2])
        free = isinstance(preferred, pa.Decimal128Type)
        return preferred if free and preferred is not None else pa.decimal128(_DIGITS, 18)
    if name == "json":
        if preferred is not None and pa.types.is_nested(preferred):
            return preferred
        return _opaque("json") if inside else pa.string()
    if name == "other" and preferred is not None and pa.types.is_string(preferred):
        return pa.string()
    if name in ("other", "named"):
        return _opaque(kind[1])
    return pa.string() if name == "enum" else _ARROW[name]


def suited(kind: PostgresKind, dimensions: int = 0) -> pa.DataType:
    """The Arrow type of a kind in a row class: text for types that Arrow lacks."""
    name = kind[0]
    if name == "other":
        return pa.string()
    if name == "row":
        return pa.struct([(n, suited(part)) for n, part in kind[1]])
    if name != "list":
        return arrow_of(kind)
    list_type = pa.list_(arrow_of(kind[1], suited(kind[1]), inside=True))
    for _ in range(dimensions - 1):
        list_type = pa.list_(list_type)
    return list_type


def is_exact(kind: PostgresKind) -> bool:
    """Whether a value is read as its JSON text."""
    return bool(kind[0] == "json")


def _opaque(name: str) -> pa.DataType:
    return pa.opaque(pa.null(), type_name=name, vendor_name="PostgreSQL")


# -- values


class JsonNumber(str):
    """The text of a number in JSON, distinct from a string of the same characters."""

    __slots__ = ()


DECODER = json.JSONDecoder(parse_int=JsonNumber, parse_float=JsonNumber)
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")  # JSON has them as strings
_BY_TEXT: tuple[Callable[[Any], bool], ...] = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_date, pa.types.is_timestamp,
    pa.types.is_string,
)  # fmt: skip


def array_of(values: Sequence[Any], t: pa.DataType) -> tuple[pa.Array[Any], Mapping[int, str]]:
    """Values of JSON as an array, and the reasons of values that do not fit, by index.

    A value that does not fit is NULL in the array. Lists and structs are JSON texts.
    """
    try:
        if any(is_type(t) for is_type in _BY_TEXT):
            return pa.array(values, pa.string()).cast(t), {}
        if pa.types.is_boolean(t):
            return pa.array(values, t), {}
        if pa.types.is_decimal(t):  # Arrow's own cast of text wraps around where it overflows
            return pa.array([None if v is None else Decimal(v) for v in values], t), {}
    except (pa.ArrowException, TypeError, UnicodeError, InvalidOperation):
        pass  # a value does not fit: find it below
    items: list[Any] = []
    wrong: dict[int, str] = {}
    for i, item in enumerate(values):
        value = None
        try:
            if item is not None:
                value = _value(_parsed(item) if pa.types.is_nested(t) else item, t)
        except (ValueError, OverflowError, RecursionError) as e:
            wrong[i] = str(e)
        items.append(value)
    return pa.array(items, t), wrong


def _parsed(text: str) -> Any:
    return DECODER.decode(text)


def _value(item: Any, t: pa.DataType) -> Any:
    """A value that Arrow accepts for the type; raises `ValueError` if it does not fit."""
    if item is None:
        return None
    if isinstance(t, pa.ListType):
        if not isinstance(item, list):
            raise _unfit(item, t)
        return [_value(v, t.value_type) for v in item]
    if isinstance(t, pa.StructType):
        if not isinstance(item, dict):
            raise _unfit(item, t)
        return {f.name: _value(item.get(f.name), f.type) for f in t}
    try:
        value = _atom(item, t)
        pa.scalar(value, t)
    except (pa.ArrowException, ValueError, OverflowError, InvalidOperation, TypeError) as e:
        raise _unfit(item, t) from e
    return value


def _atom(item: Any, t: pa.DataType) -> Any:
    if pa.types.is_boolean(t) or isinstance(item, bool):
        if pa.types.is_boolean(t) and isinstance(item, bool):
            return item
        raise _unfit(item, t)
    if not isinstance(item, str):
        raise _unfit(item, t)
    number = pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t)
    text_too = t == pa.uint32() or item in _NO_NUMBERS
    if isinstance(item, JsonNumber) != number and not (number and text_too):
        raise _unfit(item, t)
    if pa.types.is_integer(t):
        return int(item)
    if pa.types.is_floating(t):
        return _float(item)
    if pa.types.is_decimal(t):
        return Decimal(item)
    if pa.types.is_date(t):
        return dt.date.fromisoformat(item)
    if isinstance(t, pa.TimestampType):
        at = dt.datetime.fromisoformat(item)
        if (at.tzinfo is None) != (t.tz is None) or len(item) < len("2024-05-01T10"):
            raise _unfit(item, t)
        return at
    if pa.types.is_duration(t):
        return span_of(item)
    if pa.types.is_binary(t):
        if not item.startswith("\\x"):
            raise _unfit(item, t)
        return bytes.fromhex(item[2:])
    if pa.types.is_string(t):
        return str(item)
    raise _unfit(item, t)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value) and text not in _NO_NUMBERS:
        raise ValueError("the number is beyond those of a float")
    if text.lstrip("-").isdigit() and Decimal(text) not in (Decimal(value), Decimal(str(value))):
        raise ValueError("the integer is beyond those that a float holds exactly")
    return value


_SPAN = re.compile(
    r"(?:(?P<days>[+-]?\d+) days? ?)?"
    r"(?:(?P<sign>[+-]?)(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d)(?:\.(?P<rest>\d+))?)?"
)


def span_of(text: str) -> dt.timedelta:
    """The span of an interval in the text form of Postgres; intervals with months do not fit."""
    match = _SPAN.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"{text!r} is no span of days and seconds")
    part = {name: int(match[name] or 0) for name in ("days", "hours", "minutes", "seconds")}
    micros = int((match["rest"] or "").ljust(6, "0")[:6])
    time = dt.timedelta(
        hours=part["hours"], minutes=part["minutes"], seconds=part["seconds"], microseconds=micros
    )
    return dt.timedelta(days=part["days"]) + (-time if match["sign"] == "-" else time)


def _unfit(item: Any, t: pa.DataType) -> ValueError:
    text = repr(str(item) if isinstance(item, JsonNumber) else item)
    return ValueError(f"{cut_short(text)} does not fit {t}")


_ALSO: Mapping[str, tuple[str, ...]] = {
    "bigint": ("integer", "smallint", "numeric"),
    "text": ("character varying", "uuid"),
}
"""Other types of existing columns that hold the same values, or refuse them."""


def type_name(t: pa.DataType) -> str:
    """The name in Postgres of the column type for these values."""
    return full_name(pg_type(t))


def holds(column: str, t: pa.DataType) -> bool:
    """Whether a column of this type can hold such values without loss."""
    expected = type_name(t)
    if isinstance(t, pa.Decimal128Type):
        digits, _, scale = column.removeprefix("numeric(").rstrip(")").partition(",")
        return column == "numeric" or (
            column.startswith("numeric(") and int(digits) >= t.precision and int(scale) == t.scale
        )
    return column == expected or column in _ALSO.get(expected, ())


class Unfit(ValueError):
    """A value that Postgres cannot hold."""


def rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows of a table for psycopg; raises `Unfit` for a value that Postgres cannot hold."""
    columns = [_values(field, table.column(field.name)) for field in table.schema]
    return zip(*columns, strict=True)


def _values(field: pa.Field[Any], column: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
        if pa.types.is_nested(field.type):
            return [None if v is None else json_of(v) for v in values]
    except (ValueError, OverflowError) as e:
        raise Unfit(f"column {field.name}: {e}") from e
    if pa.types.is_string(field.type):
        for value in values:
            if value is not None and "\0" in value:
                raise Unfit(f"column {field.name}: {_NUL.format(_short(value))}")
    return values


_NUL = "{} has the character NUL, which no text in Postgres can have; remove it, or use bytes"


def _short(text: str) -> str:
    return repr(cut_short(text))


def json_of(value: Any) -> str:
    """A value as JSON, like Postgres' `to_jsonb`: values that JSON lacks are strings."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case dict():
            return f"{{{', '.join(f'{_text(n)}: {json_of(v)}' for n, v in value.items())}}}"
        case list():
            return f"[{', '.join(map(json_of, value))}]"
        case float() if math.isnan(value):
            return '"NaN"'
        case float() if math.isinf(value):
            return '"Infinity"' if value > 0 else '"-Infinity"'
        case Decimal():
            return format(value, "f")
        case int() | float():
            return repr(value)
        case bytes():
            return _text(f"\\x{value.hex()}")
        case dt.timedelta():
            return _text(span_text(value))
        case dt.datetime():
            micros = f".{value.microsecond:06}"
            return _text(value.isoformat().replace(micros, micros.rstrip("0")))
        case dt.date():
            return _text(value.isoformat())
    return _text(str(value))


def _text(value: str) -> str:
    if "\0" in value:
        raise Unfit(_NUL.format(_short(value)))
    return json.dumps(value, ensure_ascii=False)


def span_text(span: dt.timedelta) -> str:
    """A span of time in the text form of an interval of Postgres."""
    minutes, seconds = divmod(span.seconds, 60)
    micros = f".{span.microseconds:06}".rstrip("0").rstrip(".")
    time = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}{micros}"
    days = f"{span.days} day{'' if span.days == 1 else 's'}"
    if not span.days:
        return time
    if span == dt.timedelta(days=span.days):
        return days
    return f"{days} {'+' if span.days < 0 else ''}{time}"
