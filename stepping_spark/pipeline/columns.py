"""Columns of tables: checks of names and types, and types that differ between versions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from stepping_spark.base.errors import SinkError
from stepping_spark.relations.arrow import Array, lengths_of, one_array
from stepping_spark.rows.names import column_of, matched
from stepping_spark.zsets.from_arrow import cast_or_null

pc: Any = pyarrow.compute


def plain(column: Any) -> Any:
    """The column with plain strings: hashes and files do not support string views."""
    return column.cast(plain_type(column.type))


def plain_field(field: pa.Field[Any], name: str) -> pa.Field[Any]:
    """A field with this name and the plain type."""
    return pa.field(name, plain_type(field.type))


def plain_type(t: pa.DataType) -> pa.DataType:
    """The type without views and dictionaries, at any depth."""
    if isinstance(t, pa.DictionaryType):
        return plain_type(t.value_type)
    if isinstance(t, pa.StructType):
        return pa.struct([plain_field(field, field.name) for field in t])
    if isinstance(t, pa.ListType | pa.LargeListType | pa.ListViewType):
        return pa.list_(plain_field(t.value_field, t.value_field.name))
    if pa.types.is_string_view(t) or pa.types.is_large_string(t):
        return pa.string()
    if pa.types.is_binary_view(t) or pa.types.is_large_binary(t):
        return pa.binary()
    return t


def conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns of a schema, by their names; absent ones are NULL."""
    values: list[Any] = [
        rows.column(f.name).cast(f.type)
        if f.name in rows.column_names
        else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    return pa.table(values, schema=schema)


def parquet_file(opened: Any, **options: Any) -> pq.ParquetFile:
    """A Parquet file of any writer.

    Spark writes times as INT96 by default. Arrow would take them as nanoseconds of 64 bits, and
    return another time for a year before 1678 or after 2262.
    """
    return pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", **options)


def parts_of(columns: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    """All types in columns, at any depth, each with its path of names."""
    for field in columns:
        yield from _parts(field.name, field.type)


def _parts(path: str, t: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    yield path, t
    if isinstance(t, pa.StructType):
        for field in t:
            yield from _parts(f"{path}.{field.name}", field.type)
    elif isinstance(t, pa.ListType | pa.LargeListType):
        yield from _parts(f"{path}[]", t.value_type)


def check_names(columns: pa.Schema, added: Iterable[str], where: str) -> None:
    """Refuse columns whose names differ only in upper and lower case.

    `added` are the names of further columns of the table.
    """
    levels = [("", [*columns.names, *added])]
    for path, t in parts_of(columns):
        if isinstance(t, pa.StructType):
            levels.append((f"{path}.", [field.name for field in t]))
    for path, names in levels:
        seen: dict[str, str] = {}
        for name in names:
            if name.lower() in seen:
                raise SinkError(
                    f"{where}: {path}{seen[name.lower()]} and {path}{name} would be one column; "
                    "give one of the fields another: columns={field: name}"
                )
            seen[name.lower()] = name


def check_same(in_table: pa.Schema, in_view: pa.Schema, where: str, anew: str) -> None:
    """Refuse an existing table whose columns differ from those of the view."""
    if set(in_table.names) != set(in_view.names):
        raise SinkError(
            f"{where}: the table has the columns {', '.join(in_table.names)}, and the view is "
            f"written as {', '.join(in_view.names)}; {anew}"
        )
    for field in in_view:
        column = in_table.field(in_table.get_field_index(field.name))
        if bare_type(column.type) != bare_type(field.type) or (
            field.nullable and not column.nullable
        ):
            raise SinkError(
                f"{where}: column {field.name} is {_type_text(column)} in the table, and "
                f"{_type_text(field)} in the view; {anew}"
            )


def bare_type(t: pa.DataType) -> pa.DataType:
    """A type without the names of list items and without NOT NULL, which do not affect rows."""
    if isinstance(t, pa.StructType):
        return pa.struct([pa.field(f.name, bare_type(f.type)) for f in t])
    if isinstance(t, pa.ListType | pa.LargeListType):
        return pa.list_(pa.field("item", bare_type(t.value_type)))
    return plain_type(t)


def _type_text(field: pa.Field[Any]) -> str:
    return f"{bare_type(field.type)}{'' if field.nullable else ' NOT NULL'}"


def check_years(rows: pa.Table, where: str) -> None:
    """Refuse dates and times outside the years 1 to 9999, which other readers may not support."""
    for name in rows.column_names:
        chunks: Any = rows.column(name).chunks
        value = next((v for chunk in chunks if (v := _beyond(chunk)) is not None), None)
        if value is not None:
            raise SinkError(
                f"{where}: column {name} has {value}, which is not in the years 1 to 9999; leave "
                "such rows out of the view"
            )


def _beyond(values: Any) -> str | None:
    """The text of a date or time outside the years 1 to 9999, at any depth; None without one."""
    t = values.type
    if pa.types.is_struct(t) or pa.types.is_list(t):
        parts = values.flatten() if pa.types.is_struct(t) else [values.flatten()]
        return next((value for p in parts if (value := _beyond(p)) is not None), None)
    if pa.types.is_date32(t):
        least, most = dt.date.min, dt.date.max
    elif pa.types.is_timestamp(t):
        zone = None if t.tz is None else dt.UTC
        least, most = dt.datetime.min.replace(tzinfo=zone), dt.datetime.max.replace(tzinfo=zone)
    else:
        return None
    ends = pc.less(values, pa.scalar(least, t)), pc.greater(values, pa.scalar(most, t))
    wrong = values.filter(pc.or_(*ends))
    if not len(wrong):
        return None
    number = wrong.slice(0, 1).view(pa.int32() if pa.types.is_date32(t) else pa.int64())[0]
    return f"{t} {number} since 1970"


def found_columns(
    columns: pa.Schema, in_table: pa.Schema, failure: Callable[[str], Exception]
) -> dict[str, str]:
    """The column of each field; the column also has all nested parts of the field.

    Otherwise raises the error that `failure` makes: a missing part would be read as NULL.
    """
    names = matched(columns, in_table.names, failure)
    for field in columns:
        name = names[field.name]
        _check_parts(field.type, in_table.field(in_table.get_field_index(name)).type, name, failure)
    return names


def _check_parts(
    expected: pa.DataType, in_table: pa.DataType, where: str, failure: Callable[[str], Exception]
) -> None:
    if isinstance(expected, pa.StructType) and isinstance(in_table, pa.StructType):
        parts, fields = pa.schema(list(expected)), pa.schema(list(in_table))
        names = matched(parts, fields.names, lambda reason: failure(f"in column {where} {reason}"))
        for part in parts:
            name = names[part.name]
            inner = fields.field(fields.get_field_index(name)).type
            _check_parts(part.type, inner, f"{where}.{name}", failure)
    elif _is_list(expected) and _is_list(in_table):
        _check_parts(expected.value_type, in_table.value_type, f"{where}[]", failure)  # type: ignore[attr-defined]


def with_parts(column: pa.Field[Any], field: pa.Field[Any]) -> pa.Field[Any]:
    """A column that also has the parts of structs of its field, at any depth."""
    t, wanted = column.type, field.type
    if isinstance(t, pa.StructType) and isinstance(wanted, pa.StructType):
        parts = {part.name.lower(): part for part in t}
        for part in wanted:
            name = column_of(part)
            there = parts.get(name.lower())
            missing = pa.field(name, plain_type(part.type))
            parts[name.lower()] = missing if there is None else with_parts(there, part)
        return column.with_type(pa.struct(list(parts.values())))
    if _is_list(t) and _is_list(wanted):
        return column.with_type(pa.list_(with_parts(t.value_field, wanted.value_field)))
    return column


def _is_list(t: pa.DataType) -> bool:
    return isinstance(t, pa.ListType | pa.LargeListType)


def common_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The schema that holds rows of all schemas without loss; their columns are in the same order.

    Raises `ValueError` with the name of a column that has no such type.
    """
    first, *others = schemas
    fields = []
    for i, field in enumerate(first):
        types = list(dict.fromkeys([field.type, *(schema.field(i).type for schema in others)]))
        fields.append(field.with_type(types[0] if len(types) == 1 else _common(field.name, types)))
    return pa.schema(fields)


def _common(name: str, types: Sequence[pa.DataType]) -> pa.DataType:
    texts = [pa.types.is_string(t) for t in types]
    try:
        if any(texts) and not all(texts):
            raise pa.ArrowTypeError
        alone: list[Any] = [pa.schema([pa.field("x", t)]) for t in types]
        data_type: pa.DataType = pa.unify_schemas(alone, promote_options="permissive").field(0).type
        if pa.types.is_decimal256(data_type):
            raise pa.ArrowTypeError
    except pa.ArrowException:
        types_text = " and then ".join(map(str, types))
        raise ValueError(f"column {name} is {types_text}, and no type holds both") from None
    return data_type


def first_typed(schemas: Iterable[pa.Schema], *, wider: bool = False) -> pa.Schema:
    """The columns of schemas, each with its first type that is more than NULL.

    With `wider`, a later type may be one that has the values of both: 1 and 2.5 are doubles.
    """
    columns: dict[str, Any] = {}
    for field in (field for schema in schemas for field in schema):
        known = columns.get(field.name)
        if known is None or is_unknown(known):
            columns[field.name] = field.type
        elif wider and field.type != known:
            both = [pa.schema([(field.name, t)]) for t in (known, field.type)]
            with suppress(pa.ArrowInvalid, pa.ArrowTypeError):
                unified = pa.unify_schemas(both, promote_options="permissive")
                columns[field.name] = unified.field(0).type
    return pa.schema(list(columns.items()))


def is_unknown(t: Any) -> bool:
    """Whether a type, or a part of it, is that of NULLs alone."""
    if isinstance(t, pa.StructType):
        return any(is_unknown(f.type) for f in t)
    return is_unknown(t.value_type) if isinstance(t, pa.ListType) else bool(pa.types.is_null(t))


def held_types(texts: pa.Table, inferred: pa.Schema) -> pa.Schema:
    """The inferred types, if they have all values of their columns; of times, else with a zone.

    A column with another value is a text, because its rows would be refused. An empty text is NULL.
    """
    held: dict[str, Any] = {}
    for f, array in zip(inferred, map(one_array, texts.columns), strict=True):
        some = array
        if pa.types.is_string(array.type):
            some = array.filter(pc.not_equal(array, ""))
        types = (_in_zone(f.type, None), _in_zone(f.type, "UTC"), array.type)
        held[f.name] = next(t for t in types if _holds(t, some))
    return pa.schema(list(held.items()))


def _holds(t: Any, array: Array) -> bool:
    """Whether a type has all values of an array."""
    if pa.types.is_null(t):
        return array.null_count == len(array)
    try:
        return not len([*valued(array, t)[1]])
    except pa.ArrowNotImplementedError:  # as of a time of a day
        return False


def _in_zone(t: Any, zone: str | None) -> Any:
    """A type with times in a zone, at any depth."""
    if isinstance(t, pa.StructType):
        return pa.struct([f.with_type(_in_zone(f.type, zone)) for f in t])
    if isinstance(t, pa.ListType):
        return pa.list_(_in_zone(t.value_type, zone))
    return pa.timestamp("us", zone) if pa.types.is_timestamp(t) else t


def valued(array: Any, t: Any) -> tuple[Array, Iterable[int]]:
    """Values cast to a type, at any depth, and the indices of values outside the type."""
    if array.type == t:
        return array, ()
    if isinstance(t, pa.StructType):
        parts = [valued(part, f.type) for part, f in zip(array.flatten(), t, strict=True)]
        structs: Any = pa.StructArray.from_arrays(
            [values for values, _ in parts], fields=list(t), mask=array.is_null()
        )
        return structs, sorted({i for _, at in parts for i in at})
    if isinstance(t, pa.ListType):
        items, at = valued(array.flatten(), t.value_type)
        ends = lengths_of(array).cumsum()
        offsets = pa.array([0, *ends.tolist()], pa.int32())
        lists: Any = pa.ListArray.from_arrays(offsets, items, type=t, mask=array.is_null())
        return lists, np.searchsorted(ends, np.asarray(list(at), np.int64), side="right").tolist()
    return cast_or_null(array, t)
