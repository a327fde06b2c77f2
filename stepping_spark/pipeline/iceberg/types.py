"""Types of Iceberg and of Arrow, and lists of structs, whose values pyiceberg would lose.

pyiceberg reads and writes NULL for a list of structs as an empty list. And it matches the fields of
structs in lists of lists by their names in a file, which differ if a field was renamed, or has a
name that Avro does not allow.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from typing import Any, TypeGuard

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.table import FileScanTask
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from stepping_spark.pipeline.columns import parts_of, plain_type

_ATOMS: dict[pa.DataType, IcebergType] = {
    pa.bool_(): BooleanType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.timestamp("us", "UTC"): TimestamptzType(),
    pa.timestamp("us"): TimestampType(),
}


class NoType(Exception):
    """An error for a column whose type Iceberg lacks; its text is the column's path and type."""


def schema_of(columns: pa.Schema) -> Schema:
    """The columns of a view as a schema of Iceberg. Raises `NoType` for a type that it lacks."""
    ids = itertools.count(1)
    return Schema(*[_field(field, field.name, ids) for field in columns])


def _field(field: pa.Field[Any], path: str, ids: Iterator[int]) -> NestedField:
    number = next(ids)
    return NestedField(number, field.name, _type(field.type, path, ids), not field.nullable)


def _type(t: pa.DataType, path: str, ids: Iterator[int]) -> IcebergType:
    if isinstance(t, pa.StructType):
        if not t.num_fields:
            raise NoType(f"{path} is a struct without fields")
        return StructType(*[_field(field, f"{path}.{field.name}", ids) for field in t])
    if isinstance(t, pa.ListType):
        number = next(ids)
        return ListType(number, _type(t.value_type, f"{path}[]", ids), element_required=False)
    if isinstance(t, pa.Decimal128Type):
        return DecimalType(t.precision, t.scale)
    if t not in _ATOMS:
        raise NoType(f"{path} is a {t}")
    return _ATOMS[t]


def readable(t: pa.DataType) -> pa.DataType:
    """The type in which a source reads `t`: UUIDs are strings, and bytes have no fixed length."""
    if isinstance(t, pa.StructType):
        return pa.struct([field.with_type(readable(field.type)) for field in t])
    if isinstance(t, pa.ListType | pa.LargeListType):
        return pa.list_(t.value_field.with_type(readable(t.value_type)))
    if isinstance(t, pa.UuidType):
        return pa.string()
    return pa.binary() if pa.types.is_fixed_size_binary(t) else plain_type(t)


def converted(column: Any, t: pa.DataType) -> Any:
    """A column of a table cast to its `readable` type, or to a wider one."""
    if not _has_uuids(column.type):
        return column.cast(t)
    return pa.array(map(_with_text_uuids, column.to_pylist()), t)


def _has_uuids(t: pa.DataType) -> bool:
    if isinstance(t, pa.StructType):
        return any(_has_uuids(field.type) for field in t)
    if isinstance(t, pa.ListType | pa.LargeListType):
        return _has_uuids(t.value_type)
    return isinstance(t, pa.UuidType)


def _with_text_uuids(value: Any) -> Any:
    """A Python value with strings in place of UUIDs, at any depth."""
    match value:
        case uuid.UUID():
            return str(value)
        case dict():
            return {name: _with_text_uuids(part) for name, part in value.items()}
        case list():
            return [_with_text_uuids(part) for part in value]
    return value


_ID = b"PARQUET:field_id"


def lost_name(columns: pa.Schema) -> str | None:
    """The path of a field that pyiceberg would lose because of its name, or None."""
    for path, t in _in_lists_of_lists(columns):
        for field in t:
            if make_compatible_name(field.name) != field.name:
                return f"{path}.{field.name}"
    return None


def lost_list(rows: pa.Table) -> str | None:
    """The first column in which a list of structs is NULL, or None."""
    for name in rows.column_names:
        chunks: Any = rows.column(name).chunks
        if any(map(_has_null_list, chunks)):
            return name
    return None


def loss(io: FileIO, task: FileScanTask, schema: Schema) -> str | None:
    """The values of a file that pyiceberg would lose, and the remedy; None if it loses none.

    It reads the columns with lists of structs once more, and no file without such columns.
    """
    columns = schema_to_pyarrow(schema)
    risky = {n: f for f in columns if _has_lists_of_structs(f) for n in (f.name, _number(f))}
    if not risky:
        return None
    path = task.file.file_path
    opened: Any = io.new_input(path).open()
    with opened, pq.ParquetFile(opened) as file:
        for field in file.schema_arrow:
            mine = risky.get(_number(field))
            if mine is None:
                continue
            column = f"column {mine.name} of {path} has"
            if any(_has_null_list(b.column(0)) for b in file.iter_batches(columns=[field.name])):
                return f"{column} NULL for a list of structs; {_INSTEAD}"
            if _names(field) != _names(mine):
                return f"{column} other names for the fields in lists of lists; {_INSTEAD}"
    return None


_INSTEAD = (
    "pyiceberg would read it as empty or NULL without an error: rewrite the file, or read the "
    "table with st.CatalogTable"
)


def _number(field: pa.Field[Any]) -> int | str:
    """The field id of a column, or its name if the file was written without ids."""
    number = (field.metadata or {}).get(_ID)
    return field.name if number is None else int(number)


def _names(field: pa.Field[Any]) -> list[list[str]]:
    return [[f.name for f in t] for _, t in _in_lists_of_lists(pa.schema([field]))]


def _in_lists_of_lists(columns: pa.Schema) -> Iterator[tuple[str, pa.StructType]]:
    """The structs in lists of lists, at any depth, each with its path."""
    for path, t in parts_of(columns):
        if _is_list(t) and _is_list(t.value_type):
            for inside, part in parts_of(pa.schema([pa.field(path, t)])):
                if isinstance(part, pa.StructType):
                    yield inside, part


def _has_lists_of_structs(field: pa.Field[Any]) -> bool:
    parts = [t for _, t in parts_of(pa.schema([field]))]
    return any(_is_list(t) and isinstance(t.value_type, pa.StructType) for t in parts)


def _has_null_list(values: Any) -> bool:
    t = values.type
    if isinstance(t, pa.StructType):
        valid = values.filter(values.is_valid())
        return any(_has_null_list(valid.field(i)) for i in range(t.num_fields))
    if not _is_list(t):
        return False
    if isinstance(t.value_type, pa.StructType) and values.null_count:
        return True
    return _has_null_list(values.flatten())


def _is_list(t: pa.DataType) -> TypeGuard[pa.ListType[Any]]:
    return isinstance(t, pa.ListType | pa.LargeListType)
