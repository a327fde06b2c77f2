"""The place of rows in an order of whole numbers, dates or times, as one int for each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from stepping_spark.relations.hashes import Numbers
from stepping_spark.rows.atoms import INT_MAX, INT_MIN


def order_numbers(column: Any, *, ascending: bool, nulls_first: bool) -> Numbers:
    """The values of an order as ints that ascend in its direction. NULLs come first or last."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    whole = column.cast(pa.int64())
    found = np.asarray(whole.fill_null(0).to_numpy(zero_copy_only=False))
    found = found if ascending else ~found
    if not whole.null_count:
        return found
    nulls = np.asarray(whole.is_null().to_numpy(zero_copy_only=False))
    return np.where(nulls, INT_MIN if nulls_first else INT_MAX, found)
