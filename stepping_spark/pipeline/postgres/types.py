"""Values between Arrow and Postgres, as psycopg has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
from psycopg.types.json import Jsonb

from stepping_spark.errors import SteppingError

_KINDS: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_floating, "double precision"),
    (pa.types.is_string, "text"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_date, "date"),
    (pa.types.is_duration, "interval"),
    (pa.types.is_nested, "jsonb"),
)


def pg_type(t: pa.DataType) -> str:
    """The type of a column that holds these values."""
    if isinstance(t, pa.Decimal128Type):
        return f"numeric({t.precision},{t.scale})"
    if isinstance(t, pa.TimestampType):
        return "timestamp" if t.tz is None else "timestamptz"
    return next(name for known, name in _KINDS if known(t))


def arrays_of(
    values: Sequence[Sequence[Any]], columns: pa.Schema, failure: Callable[[str], SteppingError]
) -> list[pa.Array[Any]]:
    """Columns of Python values as arrays of the wanted types."""
    found = []
    for column, field in zip(values, columns, strict=True):
        given = [str(v) for v in column] if any(isinstance(v, UUID) for v in column) else column
        try:
            found.append(pa.array(given, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
            first = next((v for v in column if v is not None), None)
            raise failure(
                f"column {field.name} has values as {first!r}, and the row class takes "
                f"{field.type} ({str(e).splitlines()[0]}); change the row class, or the table"
            ) from e
    return found


def rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows of a table as psycopg takes them."""
    columns = []
    for field in table.schema:
        values = table.column(field.name).to_pylist()
        if pa.types.is_nested(field.type):
            values = [None if v is None else Jsonb(v) for v in values]
        columns.append(values)
    return zip(*columns, strict=True)
