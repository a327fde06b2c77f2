"""Values of Arrow as Postgres takes them."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from stores.postgres.types import full_name, pg_type

_ALSO: Mapping[str, tuple[str, ...]] = {
    "bigint": ("integer", "smallint", "numeric"),
    "text": ("character varying", "uuid"),
}
"""Types of columns that somebody else made, which hold such values or refuse them."""


def type_name(t: pa.DataType) -> str:
    """The type of a column that holds these values, as Postgres calls it."""
    return full_name(pg_type(t))


def holds(column: str, t: pa.DataType) -> bool:
    """Whether a column of this type holds such values, without a conversion that loses any."""
    wanted = type_name(t)
    if isinstance(t, pa.Decimal128Type):
        digits, _, scale = column.removeprefix("numeric(").rstrip(")").partition(",")
        return column == "numeric" or (
            column.startswith("numeric(") and int(digits) >= t.precision and int(scale) == t.scale
        )
    return column == wanted or column in _ALSO.get(wanted, ())


class Unfit(ValueError):
    """A value that Postgres cannot hold."""


def rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows of a table as psycopg takes them; Unfit for a value that Postgres cannot hold."""
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
    return repr(text if len(text) < 100 else text[:100] + "…")


def json_of(value: Any) -> str:
    """A value as JSON, in the way of Postgres' `to_jsonb`: what JSON does not have is text."""
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
    """A span of time as Postgres writes an interval."""
    minutes, seconds = divmod(span.seconds, 60)
    micros = f".{span.microseconds:06}".rstrip("0").rstrip(".")
    time = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}{micros}"
    days = f"{span.days} day{'' if span.days == 1 else 's'}"
    if not span.days:
        return time
    if span == dt.timedelta(days=span.days):
        return days
    return f"{days} {'+' if span.days < 0 else ''}{time}"
