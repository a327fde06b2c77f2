"""Numbers (and rows of numbers, and Z-sets) of streams, converted to relations and back."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from stepping_spark.errors import StepError
from stepping_spark.rows.atoms import REST, Atom
from stepping_spark.rows.schema import (
    COUNT,
    VALUE,
    Accumulated,
    ScalarType,
    high_diff,
)
from stepping_spark.rows.types import Struct, ZSetOf
from stepping_spark.sums.floats import rest, split, total
from stepping_spark.sums.halves import halves, joined
from stepping_spark.sums.sql import DECIMALS, FIELD, FIRST, SMALLER

_EXACT = decimal.Context(prec=100)


def encode_number(value: Any, t: ScalarType, where: str) -> pa.Table:
    """The relation that holds a number. Raises InputError if it does not have the type."""
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
            yield {"_item_": {"value": item["_value_"]}, COUNT: item["_count_"]}
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
    """The number that a relation holds: the sum of its rows."""
    return total_of(table.to_pylist(), t.sum, is_change=True)


def total_of(rows: list[dict[str, Any]], sum_: Accumulated, *, is_change: bool = False) -> Any:
    """The total of the rows of a sum's relation.

    The change of a Decimal may have more digits than a Decimal that is a value of a row.
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
        return rest(limbs) if t == REST else total(limbs)
    diff = name if name == VALUE else f"_sum_{name}_"
    if t.is_halved:
        found = joined(_added(rows, diff), _added(rows, high_diff(diff)), t)
        if not is_change and len(found.as_tuple().digits) > t.precision:
            raise StepError(f"a sum is beyond {t}: {found}; {SMALLER}")
        return found
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
