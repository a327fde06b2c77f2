"""Values that go into a step and come out of it, as the relations that they are."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.errors import SHOWN_ROWS, InputError, not_there, refused_deletion
from stepping_spark.limits import DEFAULT, Limits
from stepping_spark.relations.codec import conform, decode, encode
from stepping_spark.rows.data import Data
from stepping_spark.rows.schema import COUNT, GroupedType, ScalarType, StreamType, ZSetType
from stepping_spark.rows.types import ListOf, Struct, ZSetOf, unwrap
from stepping_spark.spark.relation import DriverRelation, Relation, SparkRelation
from stepping_spark.sums.arrow import totals
from stepping_spark.sums.python import decode_number, encode_number
from stepping_spark.zsets.from_dataframe import summed
from stepping_spark.zsets.python import class_of, no_zset
from stepping_spark.zsets.spark import ZSetPython, ZSetSpark


def held_input(
    value: object,
    t: StreamType,
    where: str,
    limits: Limits,
    key: Sequence[str] | None = None,
    *,
    once: bool = False,
) -> Relation:
    """An input's change as a relation; an InputError where it does not fit.

    With a key, a DataFrame is computed as a register with that key will have it. `once` says that
    one query of the step reads it, once and whole, so that it may be computed there.
    """
    if value is None:
        return DriverRelation.empty(t.schema)
    if isinstance(t, ScalarType):
        return DriverRelation(encode_number(value, t, where), t.schema)
    assert isinstance(t, ZSetType)
    if isinstance(value, ZSetPython):
        return DriverRelation(encode(value.iter(), t, where), t.schema)
    if isinstance(value, ZSetSpark):
        if once:
            return value.checked_when_read(t, where, limits)
        return value.checked(t, where, limits, key)
    raise no_zset(value, t, where)


def check_one_by_one(rows: Iterable[object], t: StreamType, where: str) -> None:
    """Refuse a collection instead of a row, unless rows are collections themselves."""
    if not isinstance(t, ZSetType) or isinstance(unwrap(t.row), ListOf | ZSetOf):
        return
    of_tuples = isinstance(t.row, Struct) and t.row.python is tuple
    for row in rows:
        one = isinstance(row, str | bytes | enum.Enum | Data) or (
            of_tuples and isinstance(row, tuple)
        )
        if isinstance(row, Iterable | ZSetPython | ZSetSpark) and not one:
            raise InputError(
                f"{where}: rows are given one by one, found {class_of(row)}; write insert(*rows), "
                "or take a step with a Z-set of them"
            )


def check_grows(held: Relation, t: ZSetType, where: str) -> None:
    """Refuse a change of an append-only input that takes rows away."""
    negative: Any
    if isinstance(held, SparkRelation):
        found = summed(held).frame.where(f"{COUNT} < 0").limit(1)
        negative = conform(found.toArrow(), t.schema)
    else:
        assert held.table is not None
        negative = held.table.filter(pc.less(held.table.column(COUNT), pa.scalar(0)))
    if negative.num_rows:
        ((row, n),) = decode(negative.slice(0, 1), t)
        raise refused_deletion(row, n, where)


def check_there(held: Relation, t: ZSetType, where: str) -> None:
    """Refuse a change that removes what is absent: `held` has those rows, each once."""
    rows = held.table
    if held.frame is not None:
        found = held.frame.where(f"{COUNT} > 0").limit(SHOWN_ROWS + 1)
        rows = conform(found.toArrow(), t.schema)
    assert rows is not None
    wrong = rows.filter(pc.greater(rows.column(COUNT), pa.scalar(0)))
    if wrong.num_rows:
        raise not_there([row for row, _ in decode(wrong.slice(0, SHOWN_ROWS + 1), t)], where)


def answer(held: Relation, t: StreamType) -> Any:
    """What a relation is to a user: a Z-set, a number, or a dict of sums by key."""
    if isinstance(t, ScalarType):
        return decode_number(held.fetched(DEFAULT).table, t)
    if isinstance(t, GroupedType):
        keys, sums = totals(t)(held.fetched(DEFAULT).added_up().table)
        decoded = (t.key.decode(k) for k in keys.to_pylist())
        return dict(zip(decoded, map(t.sum.value.decode, sums.to_pylist()), strict=True))
    assert isinstance(t, ZSetType)
    return ZSetSpark(held, t)
