"""Spark's casts in Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute

__all__ = ["CASTS"]

pc: Any = pyarrow.compute


def _string(x: Any) -> Any:
    """Text of ints, booleans, decimals, days, and of local times without zeros at their end."""
    shown = x.cast(pa.string())
    if not pa.types.is_timestamp(x.type):
        return shown
    shown = pc.replace_substring_regex(shown, r"(\.[0-9]*?)0+$", r"\1")
    return pc.replace_substring_regex(shown, r"\.$", "")


def _double(x: Any) -> Any:
    """The nearest floats: Arrow's own cast divides, and may round twice."""
    return pa.array([None if v is None else float(v) for v in x.to_pylist()], pa.float64())


def _bigint(x: Any) -> Any:
    """Whole numbers, cut towards zero. None, or ArrowInvalid, beyond 64 bits: Spark fails there."""
    if pa.types.is_boolean(x.type):
        return x.cast(pa.int64())
    if pa.types.is_decimal(x.type):
        return pc.trunc(x).cast(pa.int64())
    within = pc.and_(pc.greater_equal(x, -(2.0**63)), pc.less(x, 2.0**63))
    if pc.all(within.fill_null(True)).as_py() is False:
        return None
    return pc.trunc(x).cast(pa.int64(), safe=False)


CASTS: dict[str, Callable[[Any], Any]] = {
    "cast_to_string": _string,
    "cast_to_double": _double,
    "cast_to_bigint": _bigint,
    "cast_to_date": lambda x: pc.floor_temporal(x, unit="day").cast(pa.date32()),
    "cast_to_timestamp_ntz": lambda x: x.cast(pa.timestamp("us")),
}
