"""Columns that change from one version of a table to another: found in each, and read as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from stepping_spark.rows.names import matched


def found_columns(
    columns: pa.Schema, there: pa.Schema, failure: Callable[[str], Exception]
) -> dict[str, str]:
    """The column of each field, in which all parts of the field are too.

    Raises what `failure` makes of the message: a part that is not there would be read as NULL.
    """
    names = matched(columns, there.names, failure)
    for field in columns:
        name = names[field.name]
        _check_parts(field.type, there.field(there.get_field_index(name)).type, name, failure)
    return names


def _check_parts(
    wanted: pa.DataType, there: pa.DataType, where: str, failure: Callable[[str], Exception]
) -> None:
    if isinstance(wanted, pa.StructType) and isinstance(there, pa.StructType):
        parts, found = pa.schema(list(wanted)), pa.schema(list(there))
        names = matched(parts, found.names, lambda said: failure(f"in column {where} {said}"))
        for part in parts:
            name = names[part.name]
            inner = found.field(found.get_field_index(name)).type
            _check_parts(part.type, inner, f"{where}.{name}", failure)
    elif _is_list(wanted) and _is_list(there):
        _check_parts(wanted.value_type, there.value_type, f"{where}[]", failure)  # type: ignore[attr-defined]


def _is_list(t: pa.DataType) -> bool:
    return isinstance(t, pa.ListType | pa.LargeListType)


def common_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The schema that rows of all these have without loss, for the same columns in one order.

    Raises `ValueError`, which says which column has no such type.
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
        found: pa.DataType = pa.unify_schemas(alone, promote_options="permissive").field(0).type
        if pa.types.is_decimal256(found):
            raise pa.ArrowTypeError
    except pa.ArrowException:
        shown = " and then ".join(map(str, types))
        raise ValueError(f"column {name} is {shown}, and no type holds both") from None
    return found
