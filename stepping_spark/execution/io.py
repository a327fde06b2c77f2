"""Inputs and outputs of a step as relations, and the answer to a repeated step."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.base.errors import (
    SHOWN_ROWS,
    InputError,
    StoreError,
    not_there,
    refused_deletion,
)
from stepping_spark.base.limits import Limits
from stepping_spark.base.signature import Signature
from stepping_spark.circuit.graph import AnyGraph
from stepping_spark.relations.codec import conform, decode, encode
from stepping_spark.relations.relation import DriverRelation, Relation, SparkRelation
from stepping_spark.relations.sums.arrow import decode_number, encode_number, totals
from stepping_spark.rows.data import Data
from stepping_spark.rows.schema import COUNT, GroupedType, ScalarType, StreamType, ZSetType
from stepping_spark.rows.types import ListOf, Struct, ZSetOf, unwrap
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
    """An input's change as a relation. Raises `InputError` if the value does not fit.

    With a key, a DataFrame is computed in the layout of a register with that key. With `once`, the
    DataFrame is not computed here: a single query of the step reads it, once and whole.
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


def check_grows(relation: Relation, t: ZSetType, where: str) -> None:
    """Refuse a change of an append-only input that deletes rows."""
    negative: Any
    if isinstance(relation, SparkRelation):
        removed = summed(relation).frame.where(f"{COUNT} < 0").limit(1)
        negative = conform(removed.toArrow(), t.schema)
    else:
        assert relation.table is not None
        negative = relation.table.filter(pc.less(relation.table.column(COUNT), pa.scalar(0)))
    if negative.num_rows:
        ((row, n),) = decode(negative.slice(0, 1), t)
        raise refused_deletion(row, n, where)


def check_there(relation: Relation, t: ZSetType, where: str) -> None:
    """Refuse a change that removes absent rows: `relation` has these rows, each once."""
    rows = relation.table
    if relation.frame is not None:
        few = relation.frame.where(f"{COUNT} > 0").limit(SHOWN_ROWS + 1)
        rows = conform(few.toArrow(), t.schema)
    assert rows is not None
    wrong = absent(rows)
    if wrong.num_rows:
        raise not_there([row for row, _ in decode(wrong.slice(0, SHOWN_ROWS + 1), t)], where)


def absent(rows: pa.Table) -> pa.Table:
    """The rows with a positive weight: absent rows that a change deletes."""
    return rows.filter(pc.greater(rows.column(COUNT), pa.scalar(0)))


def answer(relation: Relation, t: StreamType) -> Any:
    """The value of a relation for a user: a Z-set, a number, or a dict of sums by key."""
    if isinstance(t, ScalarType):
        return decode_number(relation.fetched().table, t)
    if isinstance(t, GroupedType):
        keys, sums = totals(t)(relation.fetched().added_up().table)
        decoded = (t.key.decode(k) for k in keys.to_pylist())
        return dict(zip(decoded, map(t.sum.value.decode, sums.to_pylist()), strict=True))
    assert isinstance(t, ZSetType)
    return ZSetSpark(relation, t)


def check_made_by(
    stored: Sequence[str] | None, graph: AnyGraph, step: int, *, beside: Collection[str] = ()
) -> None:
    """Refuse to answer for a committed step that another query took.

    `stored` has the signature of the query of each output, from the store. The step cannot be
    recomputed: it needs the state before it, which is gone. Outputs with the digests in `beside`
    may be missing.
    """
    if stored is None:
        raise StoreError(
            f"step {step} is committed already, and the state does not say which query gave its "
            "outputs: nothing was kept of them, or a version of stepping_spark wrote them that "
            f"did not say it. Go on with step {step + 1}, and read what you need from a cache; or "
            f"repeat step {step} with the version and the query that took it"
        )
    before = [Signature.of_text(text) for text in stored]
    then, now = ([s.digest for s in x if s.digest not in beside] for x in (before, graph.made_by))
    if then != now:
        raise StoreError(
            f"step {step} is committed already, and its outputs came from another query than "
            f"{graph.name} is now:\n"
            + "".join(f"  {line}\n" for line in _differences(before, graph))
            + f"Repeat step {step} with the query that took it, to get its outputs again; or go on "
            f"with this query at step {step + 1}: the outputs of that step are not recomputed"
        )


def _differences(stored: Sequence[Signature], graph: AnyGraph) -> Iterator[str]:
    now = graph.made_by
    if len(stored) != len(now):
        yield f"outputs: {len(stored)} then, {len(now)} now"
    for i, (old, new, v) in enumerate(zip(stored, now, graph.outputs, strict=False)):
        if old.digest == new.digest:
            continue
        if old.words != new.words:
            yield f"output {i}: {old.words} then, {new.words} now ({graph.line(v)})"
        else:
            changed = "of other streams or with another function now"
            yield f"output {i}: {old.words}, {changed} ({graph.line(v)})"
