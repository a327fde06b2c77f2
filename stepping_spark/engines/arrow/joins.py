"""Joins of small relations on the driver, if the result is not too large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.expressions.arrow import Arrays
from stepping_spark.limits import Limits
from stepping_spark.relations.arrow import (
    FEW,
    Array,
    canonical,
    comparable,
    flat,
    is_simple,
    one_array,
    row_ids,
)
from stepping_spark.spark.fetch import FanOut


def most_given(limits: Limits, *tables: pa.Table) -> int:
    """The rows that a computation may give, if each is as wide as the average rows of its tables.

    Those of a join are rows of both tables.
    """
    width = sum(t.nbytes // t.num_rows for t in tables if t.num_rows)
    return min(limits.given_rows, limits.given_bytes // max(width, 1))


def join_indices(left: Arrays, right: Arrays, most: int) -> tuple[Array, Array]:
    """The positions of rows whose keys are equal; NULL equals nothing.

    `FanOut` where they are more than `most`.
    """
    if len(left[0]) + len(right[0]) <= FEW and all(is_simple(k.type) for k in (*left, *right)):
        return _few_indices(left, right, most)
    names = [f"k{i}" for i in range(len(left))]
    keys = [_comparable(a, b) for a, b in zip(left, right, strict=True)]
    sides = []
    for side, position in ((0, "i"), (1, "j")):
        columns = [k[side] for k in keys]
        rows = pa.array(np.arange(len(columns[0])))
        sides.append(pa.table([*columns, rows], names=[*names, position]))
    if len(left[0]) * len(right[0]) > most and (pairs := _pairs(sides, names, most)) > most:
        raise FanOut.of(pairs, "a join", most)
    joined = sides[0].join(sides[1], keys=names, join_type="inner", use_threads=False)
    return one_array(joined.column("i")), one_array(joined.column("j"))


def _few_indices(left: Arrays, right: Arrays, most: int) -> tuple[Array, Array]:
    """The same for few rows: a dictionary is made before Arrow has begun."""
    places: dict[tuple[Any, ...], list[int]] = {}
    for j, key in enumerate(zip(*map(comparable, right), strict=True)):
        if None not in key:
            places.setdefault(key, []).append(j)
    found: tuple[list[int], list[int]] = ([], [])
    for i, key in enumerate(zip(*map(comparable, left), strict=True)):
        at = places.get(key, ())
        found[0].extend([i] * len(at))
        found[1].extend(at)
    if len(found[0]) > most:
        raise FanOut.of(len(found[0]), "a join", most)
    return pa.array(found[0], pa.int64()), pa.array(found[1], pa.int64())


def _pairs(sides: list[pa.Table], names: list[str], most: int) -> int:
    """How many rows a join gives; it may be an upper bound, if that is no more than `most`."""
    small, large = sorted(sides, key=len)
    counted = small.group_by(names).aggregate([([], "count_all")])
    greatest = pc.max(counted.column("count_all")).as_py() or 0
    if greatest * large.num_rows <= most:
        return int(greatest * large.num_rows)
    counts = large.group_by(names).aggregate([([], "count_all")])
    both = counts.join(counted, keys=names, join_type="inner", right_suffix="_right")
    each: Any = pc.multiply(both.column("count_all"), both.column("count_all_right"))
    return pc.sum(each).as_py() or 0


def _comparable(a: Array, b: Array) -> tuple[Array, Array]:
    """Two columns of keys, in types that Arrow can join."""
    if pa.types.is_duration(a.type):
        return a.cast(pa.int64()), b.cast(pa.int64())
    if not pa.types.is_nested(a.type):
        return one_array(canonical(a)), one_array(canonical(b))
    both = pa.concat_arrays([a, b])
    ids = pa.array(row_ids(flat(canonical(both))), mask=both.is_null().to_numpy(False))
    return ids[: len(a)], ids[len(a) :]
