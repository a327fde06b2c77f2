"""Conversion of values to and from Postgres: columns for the fields of rows, moved as text.

A struct becomes one column for each of its parts, named like `left.x`. If it may be NULL, there is
also a boolean column `left`, which is true if it is not NULL. Lists and Z-sets are `jsonb`. Text in
Postgres cannot have the character NUL: it is written as `␀0`, and a `␀` as `␀␀`.
"""

from __future__ import annotations

import codecs
import datetime as dt
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from stepping_spark.base.errors import StoreError
from stepping_spark.relations.arrow import Array, canonical, one_array
from stepping_spark.rows.atoms import BOOL, Atom, RowType
from stepping_spark.rows.schema import Columns, Schema
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf

_PG: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_floating, "double precision"),
    (pa.types.is_string, "text"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_date, "date"),
    (pa.types.is_duration, "interval"),
    (pa.types.is_nested, "jsonb"),
)
_FULL = {"timestamptz": "timestamp with time zone", "timestamp": "timestamp without time zone"}
_UNQUOTED = ("bigint", "boolean", "double precision", "date", "uuid")
"""Types whose text has no character with a meaning in arrays, and which is never 'NULL'."""

_STRING = pa.string()
_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_DAY = 86_400_000_000
FIRST_DAY = (dt.date(1, 1, 1) - dt.date(1970, 1, 1)).days
LAST_DAY = (dt.date(9999, 12, 31) - dt.date(1970, 1, 1)).days
_PARSE = pacsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)


def pg_type(t: pa.DataType) -> str:
    """The type of a column that holds values of an Arrow type."""
    if isinstance(t, pa.Decimal128Type):
        return f"numeric({t.precision},{t.scale})"
    if isinstance(t, pa.TimestampType):
        return "timestamp" if t.tz is None else "timestamptz"
    return next(name for is_one, name in _PG if is_one(t))


def full_name(pg: str) -> str:
    """The server's name for a type."""
    return _FULL.get(pg, pg)


@dataclass(frozen=True)
class ValueColumn:
    """One column of a table: the value at `path` in a row."""

    path: tuple[str, ...]
    type: RowType
    nullable: bool = False

    @property
    def name(self) -> str:
        """The name of the column, unless Postgres does not allow it."""
        return ".".join(self.path)

    @property
    def pg(self) -> str:
        """The Postgres type of the column."""
        is_uuid = isinstance(self.type, Atom) and self.type.name == "UUID"
        return "uuid" if is_uuid else pg_type(self.type.arrow)

    @property
    def csv(self) -> pa.DataType:
        """The Arrow type to read the column's text as."""
        if not isinstance(self.type, Atom) or self.type.name == "bytes":
            return _STRING
        return pa.int64() if self.type.name == "timedelta" else self.type.arrow


def leaves_of(columns: Columns) -> tuple[ValueColumn, ...]:
    """The Postgres columns for these columns of a relation."""
    return tuple(leaf for name, t in columns for leaf in _leaves((name,), t))


def _leaves(path: tuple[str, ...], t: RowType, nullable: bool = False) -> Iterator[ValueColumn]:
    bare = t.inner if isinstance(t, Optional) else t
    inside = nullable or isinstance(t, Optional)
    if not isinstance(bare, Struct):
        yield ValueColumn(path, bare, inside)
        return
    if _may_be_away(t, bare):
        yield ValueColumn(path, BOOL, nullable)
    for name, part in bare.fields:
        yield from _leaves((*path, name), part, inside)


def _may_be_away(t: RowType, struct: Struct) -> bool:
    """Whether a struct has a boolean column; a struct without parts always has one."""
    return t is not struct or not struct.fields


# -- to Postgres


def texts(table: pa.Table, columns: Columns) -> list[Array]:
    """The leaves of these columns as text for Postgres; NULL stays NULL."""
    leaves: list[Array] = []
    for name, t in columns:
        array = one_array(canonical(table.column(name)))
        try:
            parts = list(_parts((name,), array, t, None))
            leaves += [_text(part, leaf) for part, leaf in parts]
        except (ValueError, OverflowError) as e:
            raise StoreError(
                f"column {name!r} has a value that Postgres cannot take: {e}; change the rows"
            ) from e
    return leaves


def _parts(
    path: tuple[str, ...], array: Any, t: RowType, around: Any
) -> Iterator[tuple[Array, ValueColumn]]:
    """The arrays of the leaves; `around` is true for rows whose enclosing struct is not NULL."""
    bare = t.inner if isinstance(t, Optional) else t
    if not isinstance(bare, Struct):
        yield array, ValueColumn(path, bare)
        return
    valid = array.is_valid()
    if _may_be_away(t, bare):
        yield valid, ValueColumn(path, BOOL)
    elif array.null_count:
        lost = pc.invert(valid) if around is None else pc.and_not(around, valid)
        if pc.any(lost).as_py():
            raise ValueError(f"{'.'.join(path)} is NULL, and its type, {bare}, has no NULL")
    for (name, part), values in zip(bare.fields, array.flatten(), strict=True):
        yield from _parts((*path, name), values, part, valid)


def _text(array: Any, leaf: ValueColumn) -> Array:
    """The text of a column."""
    t = leaf.type
    if not isinstance(t, Atom):
        values = array.to_pylist()
        shown = [None if v is None else json.dumps(_json(t, v, _TO)) for v in values]
        return pa.array(shown, _STRING)
    match t.name:
        case "str" | "Enum":
            return escaped(array)
        case "UUID":
            odd = pc.invert(pc.match_substring_regex(array, _UUID))
            if pc.any(odd).as_py():
                first = array.filter(odd)[0].as_py()
                raise ValueError(f"{first!r} is not a UUID in lower case, such as str(uuid) gives")
        case "bytes":
            listed = array.to_pylist()
            return pa.array([None if v is None else f"\\x{v.hex()}" for v in listed], _STRING)
        case "date":
            _check_range(array.cast(pa.int32()), FIRST_DAY, LAST_DAY)
        case "datetime" | "LocalDateTime":
            _check_range(array.cast(pa.int64()), FIRST_DAY * _DAY, (LAST_DAY + 1) * _DAY - 1)
        case "timedelta":
            micros: Any = array.cast(pa.int64()).cast(_STRING)
            with_unit: Any = pc.binary_join_element_wise(micros, " microseconds", "")
            return with_unit  # type: ignore[no-any-return]
    text: Array = array.cast(_STRING)
    return text


def _check_range(numbers: Any, first: int, last: int) -> None:
    bounds: Any = pc.min_max(numbers).as_py()
    if bounds["min"] is not None and not first <= bounds["min"] <= bounds["max"] <= last:
        raise ValueError("a time before the year 1 or after the year 9999")


def csv_of(arrays: Sequence[Array]) -> bytes:
    """Columns of text as lines that COPY reads."""
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(list(arrays), names=[f"c{i}" for i in range(len(arrays))])
    # Quotes distinguish an empty text from NULL.
    options = pacsv.WriteOptions(include_header=False, quoting_style="all_valid")
    pacsv.write_csv(table, sink, options)
    return sink.getvalue().to_pybytes()


def literal_of(text: Any, pg: str) -> str:
    """A column of text as one array of Postgres, in the form that its casts to `pg`[] read."""
    if pg not in _UNQUOTED:
        for mark in ("\\", '"'):
            text = pc.replace_substring(text, mark, f"\\{mark}")
        text = pc.binary_join_element_wise('"', text, '"', "")
    items: Any = pc.fill_null(text, "NULL")
    offsets = pa.array([0, len(items)], pa.int32())
    joined: Any = pc.binary_join(pa.ListArray.from_arrays(offsets, items), ",")
    return f"{{{joined[0].as_py()}}}"


# -- from Postgres


def table_of(text: bytes, schema: Schema) -> pa.Table:
    """The relation, from the lines of a COPY of its leaves."""
    if not text:
        return schema.arrow.empty_table()
    leaves = leaves_of(schema.all)
    names = [f"c{i}" for i in range(len(leaves))]
    if text.startswith(codecs.BOM_UTF8):
        text = codecs.BOM_UTF8 + text  # the reader drops the first one
    read = pacsv.read_csv(
        io.BytesIO(text),
        pacsv.ReadOptions(use_threads=False, column_names=names, block_size=len(text) + 1),
        _PARSE,
        pacsv.ConvertOptions(
            column_types={n: leaf.csv for n, leaf in zip(names, leaves, strict=True)},
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    arrays = (value_of(one_array(c), leaf) for c, leaf in zip(read.columns, leaves, strict=True))
    return relation_of(arrays, schema)


def relation_of(arrays: Iterator[Array], schema: Schema) -> pa.Table:
    """The relation, built from the arrays of its leaves."""
    return pa.Table.from_arrays([_built(t, arrays) for _, t in schema.all], schema=schema.arrow)


def value_of(array: Any, leaf: ValueColumn) -> Array:
    """The column of a leaf, from its text, or from numbers that its type counts with."""
    t = leaf.type
    if not isinstance(t, Atom):
        values = [None if v is None else json.loads(v) for v in array.to_pylist()]
        return pa.array([None if v is None else _json(t, v, _FROM) for v in values], t.arrow)
    match t.name:
        case "str" | "Enum":
            return unescaped(array)
        case "bytes":
            listed = array.to_pylist()
            return pa.array([None if v is None else bytes.fromhex(v[2:]) for v in listed], t.arrow)
    column: Array = array.cast(t.arrow)
    return column


def _built(t: RowType, arrays: Iterator[Array]) -> Array:
    """The array of a type, built from the arrays of its leaves."""
    bare = t.inner if isinstance(t, Optional) else t
    if not isinstance(bare, Struct):
        return next(arrays)
    valid: Any = next(arrays) if _may_be_away(t, bare) else None
    parts = [_built(part, arrays) for _, part in bare.fields]
    mask = None if valid is None else pc.invert(valid)
    if not parts:
        values: list[Any] = [{} if is_valid else None for is_valid in valid.to_pylist()]
        return pa.array(values, bare.arrow)
    named = [pa.field(n, part.arrow) for n, part in bare.fields]
    return pa.StructArray.from_arrays(parts, fields=named, mask=mask)


# -- text without NUL

_MARK = "␀"


def escape(text: str) -> str:
    """The text, with NUL escaped."""
    return text.replace(_MARK, _MARK * 2).replace("\0", f"{_MARK}0")


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return re.sub(f"{_MARK}(.)", lambda m: "\0" if m[1] == "0" else _MARK, text)


def escaped(array: Any) -> Array:
    """`escape` of a column."""
    if not (_has(array, "\0") or _has(array, _MARK)):
        return array  # type: ignore[no-any-return]
    return pa.array([None if v is None else escape(v) for v in array.to_pylist()], _STRING)


def unescaped(array: Any) -> Array:
    """`unescape` of a column."""
    if not _has(array, _MARK):
        return array  # type: ignore[no-any-return]
    return pa.array([None if v is None else unescape(v) for v in array.to_pylist()], _STRING)


def _has(array: Any, text: str) -> bool:
    return bool(pc.any(pc.match_substring(array, text)).as_py())


# -- jsonb

_MICROSECOND = dt.timedelta(microseconds=1)
_JSON: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "str": (escape, unescape),
    "Enum": (escape, unescape),
    "float": (lambda v: v if math.isfinite(v) else str(v), float),
    "Decimal": (lambda v: format(v, "f"), Decimal),
    "bytes": (bytes.hex, bytes.fromhex),
    "date": (dt.date.isoformat, dt.date.fromisoformat),
    "datetime": (dt.datetime.isoformat, dt.datetime.fromisoformat),
    "LocalDateTime": (dt.datetime.isoformat, dt.datetime.fromisoformat),
    "timedelta": (lambda v: v // _MICROSECOND, lambda v: v * _MICROSECOND),
}
"""The values of a type as JSON, and back; those of the other types are JSON."""

_TO, _FROM = 0, 1


def _json(t: RowType, value: Any, way: int) -> Any:
    """A value as JSON, or back; numbers that JSON does not have are text there."""
    if value is None:
        return None
    match t:
        case Optional():
            return _json(t.inner, value, way)
        case ListOf():
            return [_json(t.inner, v, way) for v in value]
        case ZSetOf():
            return [_json(t.item, v, way) for v in value]
        case Struct() if way == _TO:
            return {escape(n): _json(part, value[n], way) for n, part in t.fields}
        case Struct():
            return {n: _json(part, value[escape(n)], way) for n, part in t.fields}
        case Atom() if t.name in _JSON:
            return _JSON[t.name][way](value)
    return value
