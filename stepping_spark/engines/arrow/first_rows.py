"""The rows of a state that the first rows of each key are among, after a change of it.

If the change removes none of the first rows that a key had, the new ones are among those and the
rows that come. So all rows of a key matter only where it removes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.engines.arrow.kernels import Context
from stepping_spark.expressions.arrow import evaluator, values_of
from stepping_spark.physical import Rank
from stepping_spark.relations.arrow import canonical, concat, one_array
from stepping_spark.relations.hashes import Hashes, hashed, key_hashes
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import COUNT
from stepping_spark.rows.types import Struct

Restrict: TypeAlias = Callable[[Context, pa.Table, pa.Table, pa.Table], pa.Table]

_BITS = np.uint64((1 << 20) - 1)
_MOST = 2**62


def restricting(n: Rank) -> Restrict | None:
    """A function of a state, the first rows of that, and its change; None where Spark finds keys.

    Each row of the state is there once. What it gives has the first rows of the state with the
    change, and of each key as many rows before the last of them.
    """
    if not n.keys or evaluator(n.keys[0]) is None:
        return None
    schema, key = n.of.schema, values_of(n.of.schema, n.keys[:1])
    names, depth = [c for c, _ in schema.columns], _depth(n.keys[0].type)

    def keys(run: Context, rows: pa.Table) -> Hashes:
        """Hashes of a part of the key: equal for equal keys, and it does no harm if for others."""
        if not rows.num_rows:
            return np.zeros(0, np.uint64)
        found: Any = one_array(key(rows, run.ask)[0])
        for _ in range(depth):
            found = pc.struct_field(found, [0])
        return hashed(one_array(canonical(found))) & _BITS

    def restrict(run: Context, state: pa.Table, first: pa.Table, change: pa.Table) -> pa.Table:
        if _largest(state) + _largest(change) * change.num_rows > _MOST:
            return state  # first rows do not have all of their weight, which may be too much
        gone = change.filter(pc.less(change.column(COUNT), pa.scalar(0)))
        negative = state.filter(pc.less(state.column(COUNT), pa.scalar(0)))
        if not gone.num_rows:
            return concat([first, negative], schema)
        removed, _ = key_hashes(gone, names)
        there, _ = key_hashes(first, names)
        whole = np.zeros(int(_BITS) + 1, np.bool_)
        whole[keys(run, first)[np.isin(there, removed)]] = True
        parts = [state.filter(pa.array(whole[keys(run, state)]))]
        for rows in (first, negative):
            parts.append(rows.filter(pa.array(~whole[keys(run, rows)])))
        return concat(parts, schema)

    return restrict


def _depth(t: RowType) -> int:
    """How many structs the first part of a key is in."""
    return 1 + _depth(t.fields[0][1]) if isinstance(t, Struct) and t.fields else 0


def _largest(rows: pa.Table) -> int:
    """The largest weight, of whatever sign."""
    bounds: Any = pc.min_max(rows.column(COUNT)).as_py()
    return max(abs(bounds["min"]), abs(bounds["max"])) if rows.num_rows else 0
