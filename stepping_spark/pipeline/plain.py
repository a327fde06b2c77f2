"""Arrow columns and types as the rest knows them: without views, dictionaries and large offsets."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def plain(column: Any) -> Any:
    """The column with plain strings: hashes and files do not support string views."""
    return column.cast(plain_type(column.type))


def plain_field(field: pa.Field[Any], name: str) -> pa.Field[Any]:
    """A field of this name, with the plain type."""
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
