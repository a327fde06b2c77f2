"""Sums as relations, in Arrow and in plain Python: contributions of rows, and their totals.

`sums_by_key` returns the sums of many rows: the result of `contributions`, added up. The latter has
a row of Decimals for each contributing row. The former adds up 64-bit ints if their sums fit, and
floats by exponent.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.base.errors import StepError
from stepping_spark.relations.arrow import (
    Array,
    ArrowColumn,
    canonical,
    concat,
    flat,
    grouped,
    is_simple,
    one_array,
    without_zeros,
)
from stepping_spark.relations.sums.floats import (
    TOO_LARGE,
    WHOLE_BITS,
    bin_of,
    rounding_error,
    split,
    total,
)
from stepping_spark.relations.sums.overflow import halves, halves_of_array, joined, joined_array
from stepping_spark.relations.sums.sql import DECIMALS, FIELD, FIRST, SMALLER, wider
from stepping_spark.rows.atoms import REST, Atom, RowType
from stepping_spark.rows.schema import (
    COUNT,
    ITEM,
    VALUE,
    Accumulated,
    Columns,
    GroupedType,
    ScalarType,
    Schema,
    high_diff,
)
from stepping_spark.rows.types import Struct, ZSetOf, sort_key

_EXACT = decimal.Context(prec=100)


def encode_number(value: Any, t: ScalarType, where: str) -> pa.Table:
    """The relation of a number. Raises `InputError` if the value does not have the type."""
    schema = t.schema
    rows = list(_rows(value, t.sum, where))
    columns = [[r.get(n, _absent(n)) for r in rows] for n, _ in schema.all]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema.arrow, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def _absent(name: str) -> Any:
    return None if name == "_item_" else 0


def _rows(value: Any, sum_: Accumulated, where: str) -> Iterator[dict[str, Any]]:
    if isinstance(sum_.value, ZSetOf):
        for item in sum_.value.encode(value, where):
            yield {"_item_": {"value": item[VALUE]}, COUNT: item["_count_"]}
        return
    base: dict[str, Any] = {}
    floats = 0
    for (name, t, _), part in zip(sum_.leaves(), _parts(value, sum_, where), strict=True):
        number = t.encode(part, where)
        if t.name == "float":
            bin_, limb = split(number)
            yield {"_item_": floats * FIELD + FIRST + bin_, "_limb_": limb}
            floats += 1
        else:
            diff = name if name == VALUE else f"_sum_{name}_"
            if t.is_halved:
                base[diff], base[high_diff(diff)] = halves(number, t)
            else:
                base[diff] = number
    if base:
        yield base


def _parts(value: Any, sum_: Accumulated, where: str) -> list[Any]:
    return sum_.value.parts(value, where) if isinstance(sum_.value, Struct) else [value]


def decode_number(table: pa.Table, t: ScalarType) -> Any:
    """The number of a relation: the sum of its rows."""
    return total_of(table.to_pylist(), t.sum, is_change=True)


def total_of(rows: list[dict[str, Any]], sum_: Accumulated, *, is_change: bool = False) -> Any:
    """The total of the rows of a sum's relation.

    The change of a Decimal may have more digits than a Decimal in a row.
    """
    if isinstance(sum_.value, ZSetOf):
        items = ((r["_item_"]["value"], r[COUNT]) for r in rows if r["_item_"] is not None)
        inner = sum_.value.inner
        return sum_.value.build((inner.decode(v), n) for v, n in items)
    parts = [_leaf(rows, sum_, name, leaf, is_change) for name, leaf, _ in sum_.leaves()]
    return sum_.value.build(parts) if isinstance(sum_.value, Struct) else parts[0]


def _leaf(
    rows: list[dict[str, Any]], sum_: Accumulated, name: str, t: Atom, is_change: bool
) -> Any:
    if t.name == "float":
        first = sum_.floats.index(name) * FIELD
        limbs: dict[int, int] = {}
        for r in rows:
            item = r["_item_"]
            if item is not None and first <= item < first + FIELD:
                bin_ = item - first - FIRST
                limbs[bin_] = limbs.get(bin_, 0) + int(r["_limb_"])
        return rounding_error(limbs) if t == REST else total(limbs)
    diff = name if name == VALUE else f"_sum_{name}_"
    if t.is_halved:
        number = joined(_added(rows, diff), _added(rows, high_diff(diff)), t)
        if not is_change and len(number.as_tuple().digits) > t.precision:
            raise StepError(f"a sum is beyond {t}: {number}; {SMALLER}")
        return number
    summed = _added(rows, diff)
    with decimal.localcontext(_EXACT):
        shown = summed.quantize(decimal.Decimal(1).scaleb(-t.scale))
    if t.name == "int":
        if not -(2**63) <= summed < 2**63:
            raise StepError(f"the sum {summed} is beyond the 64 bits of an int; {DECIMALS}")
        return int(summed)
    return shown


def _added(rows: list[dict[str, Any]], diff: str) -> decimal.Decimal:
    with decimal.localcontext(_EXACT):
        return sum((r[diff] for r in rows), decimal.Decimal(0))


_INT = pa.decimal256(19, 0)
Contribute: TypeAlias = Callable[[list[Array], Array, Array], pa.Table]
TotalOf: TypeAlias = Callable[[pa.Table], tuple[Array, Array]]


def contributions(t: RowType, schema: Schema) -> Contribute:
    """A function that computes the relation of a sum, by key, from the rows that contribute.

    Its arguments are the keys, the values to be summed, which have type `t`, and the weights. See
    `sums`.
    """
    leaves = Accumulated(t).leaves()
    diffs = [name if name == VALUE else f"_sum_{name}_" for name, _, _ in leaves]
    types = [schema.arrow.field(d).type if d in schema.arrow.names else None for d in diffs]

    def contribute(keys: list[Array], picked: Array, counts: Array) -> pa.Table:
        base: dict[str, Any] = {"_rows_": counts}
        tables = []
        floats = 0
        for (name, leaf, _), diff, wide in zip(leaves, diffs, types, strict=True):
            values = picked if name == VALUE else pc.struct_field(picked, name)
            if leaf.is_halved:
                low, high = halves_of_array(values, leaf)
                base[diff] = products(low, counts, schema.arrow.field(diff).type)
                upper = high_diff(diff)
                base[upper] = products(high, counts, schema.arrow.field(upper).type)
            elif wide is None:
                tables.append(_limbs(keys, values, counts, floats, schema))
                floats += 1
            else:
                base[diff] = products(values, counts, wide)
        if isinstance(t, ZSetOf):
            tables.append(_items(keys, picked, counts, schema))
        filled = _filled(keys, base, len(counts), schema)
        return pa.concat_tables([filled, *tables]) if tables else filled

    return contribute


def _filled(keys: list[Array], columns: dict[str, Any], n: int, schema: Schema) -> pa.Table:
    """A relation of the known columns, with zeros for other diffs and NULL for the item."""
    arrays = []
    for f in schema.arrow:
        if f.name == "_key_":
            arrays.append(keys[0].cast(f.type) if keys[0].type != f.type else keys[0])
        elif f.name in columns:
            arrays.append(columns[f.name])
        elif f.name == "_item_":
            arrays.append(pa.nulls(n, f.type))
        else:
            arrays.append(pa.repeat(pa.scalar(0, f.type), n))
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def products(values: Array, counts: Array, t: pa.DataType) -> Array:
    """Values times weights, exactly. NULL adds nothing."""
    if pa.types.is_int64(values.type):
        try:
            filled: Array = values.fill_null(0) if values.null_count else values
            return pc.multiply_checked(filled, counts).cast(t)
        except pa.ArrowInvalid:
            values = values.cast(_INT)  # beyond 64 bits
    filled_values: Any = pc.fill_null(cast(Any, values), decimal.Decimal(0))
    wide = filled_values.cast(pa.decimal256(filled_values.type.precision, filled_values.type.scale))
    try:
        array: Array = pc.multiply(wide, counts.cast(_INT)).cast(t)
        return array
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
    try:
        limb = pa.array(limbs, fields.field("_limb_").type)
    except pa.ArrowInvalid:
        raise StepError(TOO_LARGE) from None
    columns = {"_item_": pa.array(items, fields.field("_item_").type), "_limb_": limb}
    return _filled([k.take(pa.array(kept, pa.int64())) for k in keys], columns, len(kept), schema)


def _items(keys: list[Array], picked: Array, counts: Array, schema: Schema) -> pa.Table:
    parents = pc.list_parent_indices(picked)
    flat = pc.list_flatten(picked)
    t = schema.arrow.field("_item_").type
    item = pa.StructArray.from_arrays([pc.struct_field(flat, VALUE)], fields=[t.field(0)])
    weights = pc.multiply_checked(pc.struct_field(flat, "_count_"), counts.take(parents))
    columns = {"_item_": item, COUNT: weights}
    return _filled([k.take(parents) for k in keys], columns, len(parents), schema)


def totals(t: GroupedType | ScalarType) -> TotalOf:
    """A function that computes the keys of groups and their sums from a consolidated table.

    Without a key there is one sum, which is zero for an empty table.
    """
    shown = _total_of_row(t.sum)
    if not isinstance(t, GroupedType) or t.sum.item is not None:
        return lambda table: _of_items(table, t)

    def total(table: pa.Table) -> tuple[Array, Array]:
        has_rows = one_array(table.column("_rows_")).to_numpy() != 0
        if np.count_nonzero(has_rows) < len(has_rows):
            table = table.filter(pa.array(has_rows))
        return one_array(table.column("_key_")), shown(table)  # a group is one row

    return total


def _of_items(table: pa.Table, t: GroupedType | ScalarType) -> tuple[Array, Array]:
    """The keys of the groups and their sums, for sums of several rows or without a key."""
    key_type = t.key if isinstance(t, GroupedType) else None
    keyed = key_type is not None
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


def _total_of_row(total: Accumulated) -> Callable[[pa.Table], Array]:
    """A function that computes the sums of groups of one row each."""
    leaves = [(n if n == VALUE else f"_sum_{n}_", leaf) for n, leaf, _ in total.leaves()]
    struct = total.value if isinstance(total.value, Struct) else None
    fields = [pa.field(n, ft.arrow) for n, ft in struct.fields] if struct else []

    def shown(table: pa.Table) -> Array:
        parts = [_total(table, name, leaf) for name, leaf in leaves]
        return pa.StructArray.from_arrays(parts, fields=fields) if struct else parts[0]

    return shown


def _total(table: pa.Table, diff: str, leaf: Atom) -> Array:
    try:
        if leaf.is_halved:
            return joined_array(table.column(diff), table.column(high_diff(diff)), leaf)
        return one_array(table.column(diff)).cast(leaf.arrow)
    except pa.ArrowInvalid as e:
        remedy = SMALLER if leaf.is_halved else wider(leaf)
        raise StepError(f"a sum is beyond {leaf}: {e}; {remedy}") from None


def sums_by_key(
    keys: Columns,
    columns: Sequence[Array],
    values: Sequence[Any],
    counts: Any,
    total: Accumulated,
    schema: Schema,
) -> pa.Table:
    """The sums of values, times their weights, of the rows of each key.

    There are values for each leaf of the total; ints may stand for Decimals, and None for ones.
    Raises `ArrowInvalid` or `StepError` if a product of a row is beyond its type, although the sum,
    added up row by row, may fit.
    """
    ones = bool(pc.all(pc.equal(counts, pa.scalar(1))).as_py())
    summed: dict[str, Any] = {"_rows_": counts} if "_rows_" in schema.arrow.names else {}
    floats = []
    for (name, leaf, _), column in zip(total.leaves(), values, strict=True):
        diff = name if name == VALUE else f"_sum_{name}_"
        if column is None:
            summed[diff] = counts
        elif leaf.name == "float":
            floats.append(column)
        elif leaf.is_halved:
            low, high = halves_of_array(column, leaf)
            summed[diff] = _times_counts(low, counts, ones)
            summed[high_diff(diff)] = _times_counts(high, counts, ones)
        else:
            summed[diff] = _times_counts(column, counts, ones)
    parts = []
    if summed:
        at, sums = grouped(_telling_columns(columns), list(summed.values()))
        firsts = [c.take(at) for c in columns]
        by_name = dict(zip(summed, sums, strict=True))
        parts.append(_relation_of_sums(keys, firsts, by_name, len(at), schema))
    for i, column in enumerate(floats):
        parts.append(_limbs_by_key(keys, columns, column, (counts, ones), i, schema))
    return without_zeros(concat(parts, schema), schema)


def consolidated_by_key(keys: Columns, columns: Sequence[Array], counts: Any) -> pa.Table:
    """The distinct rows of columns, with the sums of their weights."""
    schema = Schema(keys)
    at, (sums,) = grouped(_telling_columns(columns), [counts])
    known = {schema.diffs[0][0]: sums}
    table = _relation_of_sums(keys, [c.take(at) for c in columns], known, len(at), schema)
    return without_zeros(table, schema)


def _telling_columns(columns: Sequence[Array]) -> list[ArrowColumn]:
    """The flat columns that distinguish rows, without columns of a single value."""
    every = [f for c in columns for f in flat(canonical(c))]
    return [c for c in every if not (is_simple(c.type) and _is_constant(c))]


def _is_constant(column: Any) -> bool:
    if column.null_count:
        return bool(column.null_count == len(column))
    bounds: Any = pc.min_max(column).as_py()
    return bool(bounds["min"] == bounds["max"])


def _times_counts(values: Any, counts: Any, ones: bool) -> Any:
    """Values times weights. NULL adds nothing."""
    if pa.types.is_integer(values.type):
        filled = values.fill_null(0) if values.null_count else values
        return filled if ones else pc.multiply_checked(filled, counts)
    if ones:
        return pc.fill_null(values, pa.scalar(0, values.type)) if values.null_count else values
    wide = pa.decimal256(76, values.type.scale)
    return products(values, counts, wide)


def _relation_of_sums(
    keys: Columns, columns: Sequence[Any], known: dict[str, Any], n: int, schema: Schema
) -> pa.Table:
    """A relation of keys and the known columns, with zeros for other diffs and NULL for the item.

    Raises `ArrowInvalid` for a sum that is beyond the type of its diff.
    """
    own = {name: column for (name, _), column in zip(keys, columns, strict=True)} | known
    arrays = []
    for f in schema.arrow:
        column = own.get(f.name)
        if column is None:
            none = pa.nulls(n, f.type) if f.name == ITEM else pa.repeat(pa.scalar(0, f.type), n)
            arrays.append(none)
        else:
            whole = one_array(column)
            arrays.append(whole if whole.type == f.type else whole.cast(f.type))
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def _limbs_by_key(
    keys: Columns,
    columns: Sequence[Array],
    given: Any,
    weights: tuple[Any, bool],
    number: int,
    schema: Schema,
) -> pa.Table:
    """The sums of floats as limbs: floats of one exponent are added up as ints."""
    counts, ones = weights
    values = given.to_numpy(zero_copy_only=False)
    finite = np.isfinite(values)  # NULL is NaN there
    items: list[int] = []
    limbs: list[int] = []
    firsts: list[int] = []
    if finite.any():
        of_finite, by, times = values, list(columns), counts
        if not finite.all():
            of_finite, kept = values[finite], pa.array(finite)
            by, times = [c.filter(kept) for c in columns], counts.filter(kept)
        fractions, exponents = np.frexp(of_finite)
        whole = np.ldexp(fractions, WHOLE_BITS).astype(np.int64)
        parts = [_times_counts(pa.array(p), times, ones) for p in (whole >> 32, whole & _LOW)]
        at, (high, low) = grouped(_telling_columns([*by, pa.array(exponents)]), parts)
        rows = np.asarray(at.to_numpy(), np.int64)
        firsts += np.flatnonzero(finite)[rows].tolist()
        sums = zip(exponents[rows].tolist(), high.to_pylist(), low.to_pylist(), strict=True)
        for exponent, upper, lower in sums:
            bin_, limb = bin_of((int(upper) << 32) + int(lower), exponent)
            items.append(bin_)
            limbs.append(limb)
    others = ~finite
    if others.any():
        others &= np.asarray(given.is_valid())
    for i in np.flatnonzero(others).tolist():
        bin_, limb = split(float(values[i]))
        items.append(bin_)
        limbs.append(limb * counts[i].as_py())
        firsts.append(i)
    item: Any = pa.array([number * FIELD + FIRST + b for b in items], pa.int64())
    wide = pa.array(limbs, pa.decimal256(76, 0))
    arrays = [*(c.take(pa.array(firsts, pa.int64())) for c in columns), item]
    each, (summed,) = grouped(_telling_columns(arrays), [wide])
    *own, item = (c.take(each) for c in arrays)
    return _relation_of_sums(keys, own, {ITEM: item, "_limb_": summed}, len(each), schema)


_LOW = np.int64(2**32 - 1)
