"""Columns of small relations: what Arrow can make of expressions, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.expressions.arrow_calls import computed, is_known
from stepping_spark.expressions.derived import Derived
from stepping_spark.expressions.expr import Build, Call, Expr, Field, Literal, Singleton
from stepping_spark.relations.arrow import Array, one_array
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.types import Struct, unwrap

Columns: TypeAlias = list[Array]


def column(e: Expr, table: pa.Table) -> Array | None:
    """The column that an expression is, as far as Arrow can say; None: Spark must evaluate it."""
    if isinstance(e, Literal):
        value = e.type.encode(e.constant, "a constant")
        return pa.array([value] * table.num_rows, e.type.arrow)
    t = unwrap(e.type)
    if isinstance(e, Build) and isinstance(t, Struct):
        parts = [column(p, table) for p in e.fields]
        if any(p is None for p in parts):
            return None
        return struct(parts, t)
    if isinstance(e, Singleton):
        return _singletons(e, table)
    if isinstance(e, Derived):
        known = [column(a, table) for a in e.args]
        return None if any(c is None for c in known) else e.arrow(known)
    if isinstance(e, Call):
        args = [column(a, table) for a in e.args] if is_known(e) else [None]
        return None if any(a is None for a in args) else computed(e, args)
    if not isinstance(e, Field):
        return None
    if not e.path:
        assert isinstance(t, Struct)
        return struct([one_array(table.column(n)) for n, _ in t.fields], t)
    found = one_array(table.column(e.path[0]))
    for part in e.path[1:]:
        found = pc.struct_field(found, part)
    return found


def _singletons(e: Singleton, table: pa.Table) -> Array | None:
    item = column(e.item, table)
    if item is None:
        return None
    rows = len(item)
    lists: Any = e.type.arrow
    items = pa.StructArray.from_arrays(
        [item, pa.array(np.ones(rows, np.int64))], fields=list(lists.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1), pa.int32()), items)


def struct(parts: Sequence[Any], t: Struct) -> Array:
    """One column of rows, from the columns of their fields."""
    fields = [pa.field(n, ft.arrow) for n, ft in t.fields]
    arrays = [p.cast(f.type) if p.type != f.type else p for p, f in zip(parts, fields, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def spread(values: Array, t: RowType) -> Columns:
    """The columns of rows that stand in one column."""
    if not isinstance(t, Struct):
        return [values]
    return [pc.struct_field(values, n) for n, _ in t.fields]
