"""Which rows of small relations have equal keys, on the driver; where they are not too many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.expressions.arrow import Columns
from stepping_spark.relations.arrow import Array, canonical, flat, one_array, row_ids
from stepping_spark.spark import fetch


def join_indices(left: Columns, right: Columns) -> tuple[Array, Array]:
    """The positions of rows whose keys are equal; NULL equals nothing. `FanOut`: too many."""
    names = [f"k{i}" for i in range(len(left))]
    keys = [_comparable(a, b) for a, b in zip(left, right, strict=True)]
    sides = []
    for side, position in ((0, "i"), (1, "j")):
        columns = [k[side] for k in keys]
        rows = pa.array(np.arange(len(columns[0])))
        sides.append(pa.table([*columns, rows], names=[*names, position]))
    if len(left[0]) * len(right[0]) > fetch.most_given():
        fetch.check_few(_pairs(sides, names), "a join")
    joined = sides[0].join(sides[1], keys=names, join_type="inner", use_threads=False)
    return one_array(joined.column("i")), one_array(joined.column("j"))


def _pairs(sides: list[pa.Table], names: list[str]) -> int:
    """How many rows a join gives."""
    counts = [side.group_by(names).aggregate([([], "count_all")]) for side in sides]
    both = counts[0].join(counts[1], keys=names, join_type="inner", right_suffix="_right")
    each: Any = pc.multiply(both.column("count_all"), both.column("count_all_right"))
    return pc.sum(each).as_py() or 0


def _comparable(a: Array, b: Array) -> tuple[Array, Array]:
    """Two columns of keys as such that Arrow can join by."""
    if pa.types.is_duration(a.type):
        return a.cast(pa.int64()), b.cast(pa.int64())
    if not pa.types.is_nested(a.type):
        return one_array(canonical(a)), one_array(canonical(b))
    both = pa.concat_arrays([a, b])
    ids = pa.array(row_ids(flat(canonical(both))), mask=both.is_null().to_numpy(False))
    return ids[: len(a)], ids[len(a) :]
