"""Finds NULLs where a type has none: a function of rows may return one against its type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from stepping_spark.relations.arrow import one_array
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import Optional, Struct, quote


def null_field(table: pa.Table, schema: Schema) -> str | None:
    """The first field that is NULL in some row, and has no `| None` in its type; None: no such."""
    for name, t in schema.columns:
        found = _null_in(one_array(table.column(name)), t, name)
        if found is not None:
            return found
    return None


def _null_in(array: Any, t: RowType, name: str) -> str | None:
    if isinstance(t, Optional):
        t = t.inner
        if isinstance(t, Struct) and array.null_count:
            array = array.drop_null()
    elif array.null_count:
        return name
    if isinstance(t, Struct):
        for (field, inner), part in zip(t.fields, array.flatten(), strict=True):
            found = _null_in(part, inner, f"{name}.{field}")
            if found is not None:
                return found
    return None


def null_tests(schema: Schema) -> list[tuple[str, str]]:
    """The fields without `| None` in their type, each with the SQL that says it is NULL."""
    return [test for n, t in schema.columns for test in _tests(quote(n), t, n, "")]


def _tests(value: str, t: RowType, name: str, there: str) -> Iterator[tuple[str, str]]:
    if isinstance(t, Optional):
        t = t.inner
        there += f"{value} IS NOT NULL AND "
    else:
        yield name, f"{there}{value} IS NULL"
    if isinstance(t, Struct):
        for field, inner in t.fields:
            yield from _tests(f"{value}.{quote(field)}", inner, f"{name}.{field}", there)
