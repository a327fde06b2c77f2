"""Values that go into a step and come out of it, as the relations that they are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from stepping_spark.codec import conform, decode, encode
from stepping_spark.errors import InputError, refused_deletion
from stepping_spark.local_sums import totals
from stepping_spark.relations import consolidate, empty
from stepping_spark.scalars import decode_number, encode_number
from stepping_spark.schema import COUNT, GroupedType, ScalarType, StreamType, ZSetType
from stepping_spark.store import Held
from stepping_spark.zset import ZSetPython, ZSetSpark


def held_input(value: object, t: StreamType, where: str) -> Held:
    """An input's change as a relation; an InputError where it does not fit."""
    if value is None:
        return empty(t.schema)
    if isinstance(t, ScalarType):
        return encode_number(value, t, where)
    assert isinstance(t, ZSetType)
    if isinstance(value, ZSetPython):
        return encode(value.iter(), t, where)
    if isinstance(value, ZSetSpark):
        return value.checked(t, where)
    remedy = "a st.ZSetPython, a st.ZSetSpark, or None for no change"
    if isinstance(value, DataFrame):
        remedy = "st.ZSetSpark.from_dataframe(df, T)"
    raise InputError(f"{where}: expected {t}, found {type(value).__name__}; give {remedy}")


def check_grows(held: Held, t: ZSetType, where: str) -> None:
    """Refuse a change of an append-only input that takes rows away."""
    negative: Any
    if isinstance(held, DataFrame):
        negative = conform(held.where(f"{COUNT} < 0").limit(1).toArrow(), t.schema)
    else:
        negative = held.filter(pc.less(held.column(COUNT), pa.scalar(0)))
    if negative.num_rows:
        ((row, n),) = decode(negative.slice(0, 1), t)
        raise refused_deletion(row, n, where)


def answer(held: Held, t: StreamType) -> Any:
    """What a relation is to a user: a Z-set, a number, or a dict of sums by key."""
    if isinstance(t, ScalarType):
        table = conform(held.toArrow(), t.schema) if isinstance(held, DataFrame) else held
        return decode_number(table, t)
    if isinstance(t, GroupedType):
        table = conform(held.toArrow(), t.schema) if isinstance(held, DataFrame) else held
        keys, sums = totals(consolidate(table, t.schema), t)
        decoded = (t.key.decode(k) for k in keys.to_pylist())
        return dict(zip(decoded, map(t.sum.value.decode, sums.to_pylist()), strict=True))
    assert isinstance(t, ZSetType)
    return ZSetSpark(held, t)
