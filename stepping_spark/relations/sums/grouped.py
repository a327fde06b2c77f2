"""Sums of many rows by key, added up at once: the relation of a sum, with each row once.

It has the rows of `arrow.contributions`, added up. Those are Decimals, a row of them for each row
that contributes. Here 64-bit ints are added up where their sums fit, and floats by exponent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from stepping_spark.relations.sums.arrow import products
from stepping_spark.relations.sums.floats import WHOLE_BITS, bin_of, split
from stepping_spark.relations.sums.overflow import halves_of_array
from stepping_spark.relations.sums.sql import FIELD, FIRST
from stepping_spark.rows.schema import ITEM, VALUE, Accumulated, Columns, Schema, high_diff


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
    Raises `ArrowInvalid` or `StepError` where a product of a row is beyond its type: who adds up
    the rows one by one may find the sum within it.
    """
    ones = bool(pc.all(pc.equal(counts, pa.scalar(1))).as_py())
    summed: dict[str, Any] = {"_rows_": counts} if "_rows_" in schema.arrow.names else {}
    floats = []
    for (name, leaf, _), given in zip(total.leaves(), values, strict=True):
        diff = name if name == VALUE else f"_sum_{name}_"
        if given is None:
            summed[diff] = counts
        elif leaf.name == "float":
            floats.append(given)
        elif leaf.is_halved:
            low, high = halves_of_array(given, leaf)
            summed[diff] = _times(low, counts, ones)
            summed[high_diff(diff)] = _times(high, counts, ones)
        else:
            summed[diff] = _times(given, counts, ones)
    found = []
    if summed:
        at, sums = grouped(_telling(columns), list(summed.values()))
        firsts = [c.take(at) for c in columns]
        known = dict(zip(summed, sums, strict=True))
        found.append(_relation(keys, firsts, known, len(at), schema))
    for i, given in enumerate(floats):
        found.append(_limbs(keys, columns, given, (counts, ones), i, schema))
    return without_zeros(concat(found, schema), schema)


def consolidated_by_key(keys: Columns, columns: Sequence[Array], counts: Any) -> pa.Table:
    """The rows of columns, each once, with the sum of the weights."""
    schema = Schema(keys)
    at, (sums,) = grouped(_telling(columns), [counts])
    known = {schema.diffs[0][0]: sums}
    made = _relation(keys, [c.take(at) for c in columns], known, len(at), schema)
    return without_zeros(made, schema)


def _telling(columns: Sequence[Array]) -> list[ArrowColumn]:
    """The columns that tell rows apart, without parts; not one that has a single value."""
    every = [f for c in columns for f in flat(canonical(c))]
    return [c for c in every if not (is_simple(c.type) and _is_constant(c))]


def _is_constant(column: Any) -> bool:
    if column.null_count:
        return bool(column.null_count == len(column))
    bounds: Any = pc.min_max(column).as_py()
    return bool(bounds["min"] == bounds["max"])


def _times(values: Any, counts: Any, ones: bool) -> Any:
    """Values times weights. NULL adds nothing."""
    if pa.types.is_integer(values.type):
        known = values.fill_null(0) if values.null_count else values
        return known if ones else pc.multiply_checked(known, counts)
    if ones:
        return pc.fill_null(values, pa.scalar(0, values.type)) if values.null_count else values
    wide = pa.decimal256(76, values.type.scale)
    return products(values, counts, wide)


def _relation(
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


def _limbs(
    keys: Columns,
    columns: Sequence[Array],
    given: Any,
    weights: tuple[Any, bool],
    number: int,
    schema: Schema,
) -> pa.Table:
    """The sums of floats as limbs: floats of one exponent are ints, and are added up as those."""
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
        parts = [_times(pa.array(p), times, ones) for p in (whole >> 32, whole & _LOW)]
        at, (high, low) = grouped(_telling([*by, pa.array(exponents)]), parts)
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
    found = [*(c.take(pa.array(firsts, pa.int64())) for c in columns), item]
    each, (summed,) = grouped(_telling(found), [wide])
    *own, item = (c.take(each) for c in found)
    return _relation(keys, own, {ITEM: item, "_limb_": summed}, len(each), schema)


_LOW = np.int64(2**32 - 1)
