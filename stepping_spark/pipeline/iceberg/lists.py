"""Lists of structs: pyiceberg loses some of their values without an error, so these are refused.

It has a NULL in place of which there is a list of structs read, and written, as an empty list. And
it matches the fields of structs in lists of lists by their names in a file, which are other ones
where a field was renamed, or has a name that Avro does not allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.table import FileScanTask, Table

from stepping_spark.pipeline.writable import parts_of

_ID = b"PARQUET:field_id"


def lost_name(columns: pa.Schema) -> str | None:
    """The path of a field that would be lost by its name; None: there is none."""
    for path, t in _in_lists_of_lists(columns):
        for field in t:
            if make_compatible_name(field.name) != field.name:
                return f"{path}.{field.name}"
    return None


def lost_list(rows: pa.Table) -> str | None:
    """The column in which a list of structs is NULL; None: none is."""
    for name in rows.column_names:
        chunks: Any = rows.column(name).chunks
        if any(map(_has_null_list, chunks)):
            return name
    return None


def loss(table: Table, task: FileScanTask, wanted: Schema) -> str | None:
    """What pyiceberg would lose of a file, and what would do; None: nothing.

    It reads the columns that have lists of structs once more, and nothing where there are none.
    """
    columns = schema_to_pyarrow(wanted)
    risky = {n: f for f in columns if _has_lists_of_structs(f) for n in (f.name, _number(f))}
    if not risky:
        return None
    path = task.file.file_path
    opened: Any = table.io.new_input(path).open()
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
    """The number of a column, or its name where files were written without numbers."""
    number = (field.metadata or {}).get(_ID)
    return field.name if number is None else int(number)


def _names(field: pa.Field[Any]) -> list[list[str]]:
    return [[f.name for f in t] for _, t in _in_lists_of_lists(pa.schema([field]))]


def _in_lists_of_lists(columns: pa.Schema) -> Iterator[tuple[str, pa.StructType]]:
    """The structs in lists of lists, at any depth, each with its path."""
    for path, t in parts_of(columns):
        if _is_list(t) and _is_list(t.value_type):
            for inside, found in parts_of(pa.schema([pa.field(path, t)])):
                if isinstance(found, pa.StructType):
                    yield inside, found


def _has_lists_of_structs(field: pa.Field[Any]) -> bool:
    parts = [t for _, t in parts_of(pa.schema([field]))]
    return any(_is_list(t) and isinstance(t.value_type, pa.StructType) for t in parts)


def _has_null_list(values: Any) -> bool:
    t = values.type
    if isinstance(t, pa.StructType):
        there = values.filter(values.is_valid())
        return any(_has_null_list(there.field(i)) for i in range(t.num_fields))
    if not _is_list(t):
        return False
    if isinstance(t.value_type, pa.StructType) and values.null_count:
        return True
    return _has_null_list(values.flatten())


def _is_list(t: pa.DataType) -> TypeGuard[pa.ListType[Any]]:
    return isinstance(t, pa.ListType | pa.LargeListType)
