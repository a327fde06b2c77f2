"""Exact sums over frames on the driver: differences of sums from the first row on."""

from __future__ import annotations

import decimal
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from stepping_spark.errors import StepError
from stepping_spark.relations.arrow import Array
from stepping_spark.relations.hashes import Numbers
from stepping_spark.rows.atoms import INT_MAX, REST, Atom
from stepping_spark.sums.floats import rest, split, total

Bounds: TypeAlias = tuple[Numbers, Numbers]  # where frames begin, and where they end


def whole_sums(values: Any, t: Atom, start: Numbers, end: Numbers) -> Any:
    """The sums of ints, or of Decimals in units of the last digit, as ints of any size."""
    if pa.types.is_decimal(values.type):
        with decimal.localcontext(decimal.Context(prec=100)):
            units = [int((v or decimal.Decimal(0)).scaleb(t.scale)) for v in values.to_pylist()]
        return _differences(units, start, end)
    found = values.fill_null(0).to_numpy(zero_copy_only=False)
    largest = max(abs(int(found.max(initial=0))), abs(int(found.min(initial=0))))
    if largest * max(len(found), 1) <= INT_MAX:
        so_far = np.append(0, np.cumsum(found))
        return so_far[end] - so_far[start]
    return _differences(found.tolist(), start, end)


def _differences(units: Sequence[int], start: Numbers, end: Numbers) -> Any:
    so_far = np.empty(len(units) + 1, object)
    so_far[0] = 0
    so_far[1:] = list(_so_far(units))
    return so_far[end] - so_far[start]


def _so_far(units: Sequence[int]) -> Any:
    summed = 0
    for n in units:
        summed += n
        yield summed


def check_fits(sums: Any, least: int, most: int, t: Atom, remedy: str) -> None:
    """A `StepError` where a sum is beyond its type."""
    beyond = [n for n in (sums.max(initial=0), sums.min(initial=0)) if not least <= n <= most]
    if beyond:
        raise StepError(f"the sum {beyond[0]} over a frame is beyond {t}; {remedy}")


def float_sums(
    values: Any, t: Atom, frames: Bounds, carried: Mapping[int, int], none: Any
) -> Array:
    """The exact sums of floats, each rounded once: of each bin the sums so far are kept."""
    limbs: dict[int, list[int]] = {}
    for i, v in enumerate(values.to_pylist()):
        if v is not None:
            bin_, limb = split(v)
            limbs.setdefault(bin_, [0] * len(values))[i] = limb
    sums = {
        bin_: (_differences(units, *frames) + carried.get(bin_, 0)).tolist()
        for bin_, units in limbs.items()
    }
    sums |= {b: [n] * len(values) for b, n in carried.items() if b not in sums}
    known: dict[tuple[int, ...], float] = {}
    found = np.zeros(len(values))
    shown = rest if t == REST else total
    for i, parts in enumerate(zip(*sums.values(), strict=True)):
        if parts not in known:
            known[parts] = shown(dict(zip(sums, parts, strict=True)))
        found[i] = known[parts]
    return pa.array(found, mask=none)
