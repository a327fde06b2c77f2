"""Sums as relations, on the driver: what each row contributes, and what that amounts to."""

from __future__ import annotations

import decimal
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.errors import StepError
from stepping_spark.relations.arrow import Array, one_array
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.schema import COUNT, VALUE, Accumulated, GroupedType, ScalarType, Schema
from stepping_spark.rows.types import Struct, ZSetOf, sort_key
from stepping_spark.sums.floats import split
from stepping_spark.sums.python import total_of
from stepping_spark.sums.sql import FIELD, FIRST


def contributions(
    keys: list[Array], picked: Array, t: RowType, counts: Array, schema: Schema
) -> pa.Table:
    """The relation of the sum, by key, of what rows contribute; see `sums`."""
    total = Accumulated(t)
    n = len(counts)
    base: dict[str, Any] = {"_rows_": counts}
    tables = []
    floats = 0
    for name, leaf, _ in total.leaves():
        values = picked if name == VALUE else pc.struct_field(picked, name)
        diff = name if name == VALUE else f"_sum_{name}_"
        if leaf.name == "float":
            tables.append(_limbs(keys, values, counts, floats, schema))
            floats += 1
        else:
            base[diff] = _products(values, counts, schema.arrow.field(diff).type)
    if isinstance(t, ZSetOf):
        tables.append(_items(keys, picked, counts, schema))
    return pa.concat_tables([_filled(keys, base, n, schema), *tables])


def _filled(keys: list[Array], known: dict[str, Any], n: int, schema: Schema) -> pa.Table:
    """A relation with zeros for diffs, and NULL for the item, where nothing is known."""
    arrays = []
    for f in schema.arrow:
        if f.name == "_key_":
            arrays.append(keys[0].cast(f.type) if keys[0].type != f.type else keys[0])
        elif f.name in known:
            arrays.append(known[f.name])
        elif f.name == "_item_":
            arrays.append(pa.nulls(n, f.type))
        else:
            arrays.append(pa.repeat(pa.scalar(0, f.type), n))
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def _products(values: Array, counts: Array, t: pa.DataType) -> Array:
    """Values times weights, exactly; NULL adds nothing."""
    if pa.types.is_int64(values.type):
        try:
            known: Array = values.fill_null(0)
            return pc.multiply_checked(known, counts).cast(t)
        except pa.ArrowInvalid:
            pass  # beyond 64 bits: below with Python's ints
    with decimal.localcontext(decimal.Context(prec=100)):
        products = [decimal.Decimal(v or 0) * n for v, n in _pairs(values, counts)]
    try:
        return pa.array(products, t)
    except pa.ArrowInvalid:
        raise StepError(
            f"a sum is beyond {t}; use a Decimal of a smaller scale, or smaller weights"
        ) from None


def _pairs(values: Array, counts: Array) -> Iterable[tuple[Any, Any]]:
    return zip(values.to_pylist(), counts.to_pylist(), strict=True)


def _limbs(
    keys: list[Array], values: Array, counts: Array, number: int, schema: Schema
) -> pa.Table:
    kept, items, limbs = [], [], []
    for i, (v, n) in enumerate(_pairs(values, counts)):
        if v is not None:
            bin_, limb = split(v)
            kept.append(i)
            items.append(number * FIELD + FIRST + bin_)
            limbs.append(decimal.Decimal(limb * n))
    fields = schema.arrow
    known = {
        "_item_": pa.array(items, fields.field("_item_").type),
        "_limb_": pa.array(limbs, fields.field("_limb_").type),
    }
    return _filled([k.take(pa.array(kept, pa.int64())) for k in keys], known, len(kept), schema)


def _items(keys: list[Array], picked: Array, counts: Array, schema: Schema) -> pa.Table:
    parents = pc.list_parent_indices(picked)
    flat = pc.list_flatten(picked)
    t = schema.arrow.field("_item_").type
    item = pa.StructArray.from_arrays([pc.struct_field(flat, "_value_")], fields=[t.field(0)])
    weights = pc.multiply_checked(pc.struct_field(flat, "_count_"), counts.take(parents))
    known = {"_item_": item, COUNT: weights}
    return _filled([k.take(parents) for k in keys], known, len(parents), schema)


def totals(table: pa.Table, t: GroupedType | ScalarType) -> tuple[Array, Array]:
    """The keys of the groups, and their sums; without a key, one sum, zero where nothing is.

    `table` is consolidated, so without items a group is one row.
    """
    key_type = t.key if isinstance(t, GroupedType) else None
    keyed = key_type is not None
    if keyed and t.sum.item is None:
        table = table.filter(pc.not_equal(table.column("_rows_"), pa.scalar(0)))
        return _one(table, "_key_"), _shown(table, t.sum)
    groups: dict[Any, tuple[Any, list[dict[str, Any]]]] = {} if keyed else {(): (None, [])}
    for row in table.to_pylist():
        key = row.get("_key_")
        groups.setdefault(sort_key(key) if keyed else (), (key, []))[1].append(row)
    alive = [
        (key, rows)
        for key, rows in groups.values()
        if not keyed or sum(r["_rows_"] for r in rows) != 0
    ]
    values = [t.sum.value.encode(total_of(rows, t.sum), "a sum") for _, rows in alive]
    shown = pa.array(values, t.sum.value.arrow)
    if key_type is None:
        return pa.nulls(1), shown
    return pa.array([k for k, _ in alive], key_type.arrow), shown


def _one(table: pa.Table, name: str) -> Array:
    return one_array(table.column(name))


def _shown(table: pa.Table, total: Accumulated) -> Array:
    parts = []
    for name, leaf, _ in total.leaves():
        diff = _one(table, name if name == VALUE else f"_sum_{name}_")
        parts.append(_cast(diff, leaf))
    if isinstance(total.value, Struct):
        fields = [pa.field(n, ft.arrow) for n, ft in total.value.fields]
        return pa.StructArray.from_arrays(parts, fields=fields)
    return parts[0]


def _cast(diff: Array, leaf: Atom) -> Array:
    try:
        return diff.cast(leaf.arrow)
    except pa.ArrowInvalid as e:
        raise StepError(
            f"a sum is beyond {leaf}: {e}; use a wider type, such as Decimal for int"
        ) from None
