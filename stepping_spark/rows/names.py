"""The names of columns: the column in a table for each field of a row.

A field has the name of its attribute in Python, and its column in somebody else's table may have
any other name: `Annotated[str, st.Column("Sample Number")]`. The metadata of an Arrow field have
the other name, at any depth.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from stepping_spark.rows.atoms import Column, RowType
from stepping_spark.rows.schema import CHANGE
from stepping_spark.rows.types import ListOf, Optional, Struct, unwrap

_KEY = b"column"


def columns_said(row: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of a row class whose annotation names another column, each with the column."""
    field_of: dict[str, str] = {}
    for name, annotation in fields.items():
        for column in _column_marks(annotation):
            if column.name != name:
                yield name, column.name
            other = field_of.setdefault(column.name, name)
            if other != name:
                raise TypeError(
                    f"{row}: fields {other!r} and {name!r} are both column {column.name!r}; leave "
                    "one out, or name another column"
                )


def _column_marks(annotation: Any) -> Iterator[Column]:
    """The `Column` of an annotation, also beside None: `Annotated[int, st.Column("n")] | None`."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        yield from (a for a in args[1:] if isinstance(a, Column))
        yield from _column_marks(args[0])
    elif origin in (typing.Union, types.UnionType):
        for arg in args:
            yield from _column_marks(arg)


def as_named(table: pa.Schema, source: object) -> pa.Schema:
    """The columns of a table with the names of `columns=` of the table, for a query.

    A column whose name another column then has is left out.
    """
    columns = getattr(source, "columns", None)
    if not isinstance(columns, Mapping):
        return table
    fields = {column: field for field, column in columns.items() if column in table.names}
    fields_there = [f for f in table if f.name in fields or f.name not in fields.values()]
    return pa.schema([f.with_name(fields.get(f.name, f.name)) for f in fields_there])


def columns_of(columns: pa.Schema) -> list[tuple[str, str]]:
    """The fields of a row in Arrow, each with its column."""
    return [(field.name, column_of(field)) for field in columns]


def column_of(field: pa.Field[Any]) -> str:
    """The name of a field's column in a table: from its metadata, or else its own name."""
    name = (field.metadata or {}).get(_KEY)
    return field.name if name is None else name.decode()


def arrow_field(name: str, t: RowType, column: str | None = None) -> pa.Field[Any]:
    """A field of a row in Arrow, nullable if its type has None, with the names of its columns.

    `column` is the name of the column, if it differs from the field's.
    """
    metadata = None if column in (None, name) else {_KEY: str(column).encode()}
    return pa.field(name, _arrow(t), nullable=isinstance(t, Optional), metadata=metadata)


def arrow_schema(
    columns: Iterable[tuple[str, RowType]], names: Mapping[str, str] | None = None
) -> pa.Schema:
    """The fields of a row in Arrow; `names` has the columns with other names than their fields."""
    return pa.schema([arrow_field(n, t, (names or {}).get(n)) for n, t in columns])


def _arrow(t: RowType) -> pa.DataType:
    bare = unwrap(t)
    if isinstance(bare, ListOf):
        inner = arrow_field("item", bare.inner).with_nullable(True)
        return pa.list_(inner)
    if isinstance(bare, Struct):
        fields = [arrow_field(n, f, bare.column_names.get(n)) for n, f in bare.fields]
        return pa.struct([f.with_nullable(True) for f in fields])
    return bare.arrow


def as_in_table(columns: pa.Schema) -> pa.Schema:
    """The columns with their names in the table, at any depth."""
    return pa.schema([_as_in_table(field) for field in columns])


def _as_in_table(field: pa.Field[Any]) -> pa.Field[Any]:
    return pa.field(column_of(field), type_in_table(field.type), nullable=field.nullable)


def type_in_table(t: pa.DataType) -> pa.DataType:
    """A type with the names of its fields in the table, at any depth."""
    if isinstance(t, pa.StructType):
        return pa.struct([_as_in_table(field) for field in t])
    if isinstance(t, pa.ListType):
        return pa.list_(_as_in_table(t.value_field))
    return t


def to_table(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Rows with the names of the table instead of the names of the fields, at any depth.

    `rows` has these columns, and perhaps others, such as `_count_`, which stay unchanged.
    """
    arrays, fields = [], []
    for name in rows.column_names:
        i = columns.get_field_index(name)
        column: Any = rows.column(name)
        if i < 0:
            fields.append(rows.schema.field(name))
        else:
            field = _as_in_table(columns.field(i))
            fields.append(field)
            if pa.types.is_nested(field.type):
                column = _viewed(column, field.type)
        arrays.append(column)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _viewed(column: Any, t: Any) -> Any:
    return pa.chunked_array([chunk.view(t) for chunk in column.chunks], t)


def matched(
    columns: pa.Schema, names: Iterable[str], failure: Callable[[str], Exception]
) -> dict[str, str]:
    """The column of a table for each field, by the field's name.

    It is the column of exactly this name, or else the only one that differs in case. Raises the
    error that `failure` makes if a column is missing or is there twice, or if two candidates differ
    only in case.
    """
    names = list(names)
    exact = set(names)
    by_field: dict[str, str] = {}
    missing = []
    for field in columns:
        column = column_of(field)
        if column in exact:
            by_field[field.name] = column
            continue
        candidates = [name for name in dict.fromkeys(names) if name.lower() == column.lower()]
        if len(candidates) > 1:
            raise failure(
                f"field {field.name} is column {column!r}, and there are "
                f"{' and '.join(map(repr, candidates))}, which differ in case only; say which one: "
                f"{field.name}: Annotated[…, st.Column({candidates[0]!r})]"
            )
        if candidates:
            by_field[field.name] = candidates[0]
        else:
            missing.append(column)
    if missing:
        raise failure(
            f"there is no column {', '.join(missing)}; the columns are "
            f"{', '.join(names) or 'none'}; change the row class or the text, or the table; a "
            "field may have a column of another name: columns={field: name}, or "
            "Annotated[…, st.Column(name)]"
        )
    for column in by_field.values():
        if names.count(column) > 1:
            raise failure(f"there are two columns {column!r}; rename one, or leave one out")
    return by_field


def refuse_feed(
    present: Iterable[str], columns: Mapping[str, str], failure: Callable[[str], Exception]
) -> None:
    """Refuse a change feed as a table of whole rows; `columns` has the columns of fields."""
    for name in present:
        if name.lower() == CHANGE and name not in columns.values():
            raise failure(
                f"column {name!r} is not one of the fields, and rows that a change feed deletes "
                "would be added; read the feed with st.from_change_feed, or drop the column"
            )
