"""An upper bound of the bytes of a table's rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.relations.arrow import one_array


def widest_row(table: pa.Table) -> int:
    """The bytes of a row with the longest value of each column; no row is wider."""
    return sum(_widest(one_array(column)) for column in table.columns) if table.num_rows else 0


def _widest(values: Any) -> int:
    t = values.type
    if not len(values):
        return 0
    if pa.types.is_struct(t):
        return sum(map(_widest, values.flatten()))
    if pa.types.is_list(t):
        return int(pc.max(pc.list_value_length(values)).as_py() or 0) * _widest(values.flatten())
    if pa.types.is_string(t) or pa.types.is_binary(t):
        return int(pc.max(pc.binary_length(values)).as_py() or 0) + 4
    return max(int(t.bit_width) // 8, 1)
