"""Values that go into a step and come out of it, as the relations that they are."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from stepping_spark.codec import conform, encode
from stepping_spark.local_sums import totals
from stepping_spark.relations import consolidate, empty
from stepping_spark.scalars import decode_number, encode_number
from stepping_spark.schema import GroupedType, ScalarType, StreamType, ZSetType
from stepping_spark.store import Held
from stepping_spark.zset import ZSetPython, ZSetSpark
from stepping_spark.zset_python import no_zset


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
    raise no_zset(value, t, where)


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
