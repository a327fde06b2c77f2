"""The rows of a state that the first rows of each key are among, before a change and after it.

A change that removes m rows of a key leaves n of its first n + m rows. So no others matter, however
many rows the key has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.engines.arrow.groups import by_numbers, foremost, key_ids, positions, ranks
from stepping_spark.expressions.arrow import Ask, Values, evaluator, values_of
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.index import Order
from stepping_spark.relations.arrow import Array, Ids, concat, one_array
from stepping_spark.rows.schema import COUNT, Schema

Parts: TypeAlias = Sequence[pa.Table]
Restrict: TypeAlias = Callable[[Parts, pa.Table, int, bool], list[pa.Table]]
Kept: TypeAlias = npt.NDArray[np.bool_]

_MOST = 2**62


class _Asked(Exception):
    """Only Spark can evaluate an expression over these rows: all of them are kept."""


def restricting(schema: Schema, keys: Sequence[Expr], order: Order, n: int) -> Restrict | None:
    """A function that gives the rows of each part of a state that matter.

    Its arguments are the parts, the change, in how many entries of the parts a row may occur, and
    whether the session is in UTC. None if only Spark can evaluate the keys or the order.
    """
    exprs = [*keys, *(e for e, _ in order)]
    if any(evaluator(e) is None for e in exprs):
        return None
    key_of, order_of = values_of(schema, keys), values_of(schema, [e for e, _ in order])
    ascending = [up for _, up in order]

    def restrict(parts: Parts, change: pa.Table, often: int, in_utc: bool) -> list[pa.Table]:
        state = concat(parts, schema)
        if _largest(state) + _largest(change) * change.num_rows > _MOST:
            return list(parts)  # a weight may be beyond 64 bits, which is an error
        try:
            ask = Ask(_asked, in_utc)
            ids, wanted = _wanted(state, change, key_of, ask, n, often)
            columns = zip(order_of(state, ask), ascending, strict=True)
            kept = _kept(state, ids, wanted, list(columns))
        except _Asked:
            return list(parts)
        ends = np.cumsum([len(p) for p in parts])[:-1]
        return [p.filter(pa.array(k)) for p, k in zip(parts, np.split(kept, ends), strict=True)]

    return restrict


def _wanted(
    state: pa.Table, change: pa.Table, key_of: Values, ask: Ask, n: int, often: int
) -> tuple[Ids, Ids]:
    """The number of each row's key, and how many rows of each key matter.

    A negative weight -w removes one row, which may have several entries in the state: at most w of
    them, and no more than there may be.
    """
    rows = state.num_rows
    gone = change.filter(pc.less(change.column(COUNT), pa.scalar(0)))
    both = zip(key_of(state, ask), key_of(gone, ask), strict=True)
    keys = [one_array(pa.chunked_array([a, b], a.type)) for a, b in both]
    ids = key_ids(keys) if keys else np.zeros(rows + gone.num_rows, np.int64)
    removed = np.append(_removed(state, often), _removed(gone, often))
    return ids[:rows], n + np.bincount(ids, removed).astype(np.int64)


def _removed(rows: pa.Table, often: int) -> Ids:
    counts = _counts(rows)
    return np.where(counts < -often, often, -np.minimum(counts, 0))


def _kept(state: pa.Table, ids: Ids, wanted: Ids, order: Sequence[tuple[Array, bool]]) -> Kept:
    """Which rows to keep: the first ones of each key, with those that equal them by the order.

    Rows of negative weight are kept too, as they may cancel out with rows that come.
    """
    there = _counts(state) > 0
    kept = ~there
    single = wanted[ids] == 1
    for at, find in (
        (np.flatnonzero(there & single), foremost),
        (np.flatnonzero(there & ~single), lambda of, by: _first(of, wanted, by)),
    ):
        if len(at):
            taken = [(c.take(positions(at)), up) for c, up in order]
            kept[at[find(ids[at], taken)]] = True
    return kept


def _first(ids: Ids, wanted: Ids, order: Sequence[tuple[Array, bool]]) -> Ids:
    """The positions of rows before which there are fewer rows of their key than are wanted."""
    by = [ids, *(r if up else ~r for column, up in order for r in ranks(column))]
    at, differs = by_numbers(by)
    begins = np.diff(ids[at], prepend=-1) != 0
    place = np.arange(len(at))
    key, peers = (np.maximum.accumulate(np.where(b, place, 0)) for b in (begins, differs))
    return np.asarray(at[peers - key < wanted[ids[at]]], np.int64)


def _counts(rows: pa.Table) -> Ids:
    return np.asarray(rows.column(COUNT).to_numpy(), np.int64)


def _largest(rows: pa.Table) -> int:
    """The largest absolute weight."""
    counts = _counts(rows)
    return max(abs(int(counts.min())), abs(int(counts.max()))) if len(counts) else 0


def _asked(*_: object) -> list[Array]:
    raise _Asked
