"""Operators of groups and window functions, in plain Python."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from stepping_spark.circuit.physical import Frame, Sorting, WindowCall
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.index import Order
from stepping_spark.expressions.lists import at_share
from stepping_spark.expressions.operations import fit
from stepping_spark.reference.values import VertexContext, added
from stepping_spark.relations.sums.floats import rounding_error, split, total
from stepping_spark.rows.atoms import FLOAT, REST, RowType
from stepping_spark.rows.data import Pair
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import Optional, sort_key, unwrap

Rows = Mapping[Any, int]


def groups(
    at: VertexContext, a: Rows, keys: tuple[Expr, ...], order: Order
) -> Iterator[tuple[tuple[Any, ...], list[tuple[Any, int]]]]:
    """For each key, its rows with a positive weight, in order."""
    by_key: dict[tuple[Any, ...], list[tuple[Any, int]]] = {}
    for row, n in a.items():
        if n > 0:
            key = tuple(at.call(k, row) for k in keys)
            by_key.setdefault(key, []).append((row, n))
    (t,) = at.inputs[:1]
    assert isinstance(t, ZSetType)
    for key, rows in by_key.items():
        rows.sort(key=lambda r: rank(r[0], t.row))
        for e, up in reversed(order):  # sorting is stable, so the last part comes first
            by = {row: rank(at.call(e, row), e.type) for row, _ in rows}
            rows.sort(key=lambda r, by=by: by[r[0]], reverse=not up)  # type: ignore[misc]
        yield key, rows


def top(at: VertexContext, a: Rows) -> Rows:
    """The first n rows of each key; with ties, all rows with fewer than n rows before them."""
    op = at.operator
    first: dict[Any, int] = {}
    for _, rows in groups(at, a, op.keys, op.order):
        if op.ties:
            by = {row: [rank(at.call(e, row), e.type) for e, _ in op.order] for row, _ in rows}
            first.update(
                (row, n)
                for i, (row, n) in enumerate(rows)
                if sum(m for other, m in rows[:i] if by[other] != by[row]) < op.n
            )
            continue
        left = op.n
        for row, n in rows:
            if left <= 0:
                break
            first[row] = min(n, left)
            left -= n
    return first


def listed(at: VertexContext, a: Rows) -> Rows:
    """For each key, the list of the values of its rows."""
    op = at.operator
    lists = {}
    for (key,), rows in groups(at, a, (op.key,), op.order):
        items = tuple(at.call(op.item, row) for row, n in rows for _ in range(n))
        lists[Pair(left=items, right=key)] = 1
    return lists


def collate(at: VertexContext, a: Rows) -> Rows:
    """For each key, one row made of its partial results."""
    op = at.operator
    row_type = op.type_of(*at.inputs).row
    pieces: dict[Any, list[Any]] = {}
    for row, n in a.items():
        if n <= 0:
            continue
        key, *parts = row
        cells = pieces.setdefault(key, [None] * len(parts))
        for i, part in enumerate(parts):
            t = row_type.fields[i + 1][1]
            if rank(part, t) > rank(cells[i], t):
                cells[i] = part
    return {
        (key, *parts): 1
        for key, parts in pieces.items()
        if all(p is not None for p in parts[: op.required])
    }


def rank(value: Any, t: RowType) -> Any:
    """The sort key of a value, in Spark's order; None is NULL."""
    return sort_key(None if value is None else t.encode(value, "a value"))


def window(at: VertexContext, a: Any) -> Any:
    """Each row, once per unit of weight, with the results of the window functions."""
    op = at.operator
    order = tuple(part for s in op.sorting for part in s.order)
    elements: list[tuple[Any, int]] = []
    for _, counted in groups(at, a, op.keys, order):
        rows = [row for row, n in counted for _ in range(n)]
        here = _Partition(at, op.sorting, rows)
        results = [_KINDS[c.kind](c, here) for c in op.calls]
        pairs = zip(rows, zip(*results, strict=True), strict=True)
        elements += [(Pair(left=row, right=values), 1) for row, values in pairs]
    return added(elements)


@dataclass
class _Partition:
    """The rows of a partition in order, each once per unit of weight."""

    at: VertexContext
    sorting: tuple[Sorting, ...]
    rows: Sequence[Any]

    def __post_init__(self) -> None:
        self.sorted_by = [[self.at.call(s.expr, row) for s in self.sorting] for row in self.rows]
        self.peers = [
            tuple(rank(v, s.expr.type) for v, s in zip(values, self.sorting, strict=True))
            for values in self.sorted_by
        ]

    def values(self, c: WindowCall, number: int = 0) -> list[Any]:
        """The value of an argument for each row."""
        return [self.at.call(c.args[number], row) for row in self.rows]

    def frame(self, i: int, frame: Frame | None) -> list[int]:
        """The positions of the rows of a frame."""
        assert frame is not None
        within = self._within_rows if frame.rows else self._within_reach
        return [j for j in range(len(self.rows)) if within(i, j, frame)]

    def _within_rows(self, i: int, j: int, frame: Frame) -> bool:
        after = frame.start is None or j >= i + frame.start
        return after and (frame.end is None or j <= i + frame.end)

    def _within_reach(self, i: int, j: int, frame: Frame) -> bool:
        """Whether row j is within a `range` frame of row i; the distance of peers is zero."""
        bounds = ((frame.start, 1), (frame.end, -1))
        return all(b is None or self._is_beyond(i, j, b, side) for b, side in bounds)

    def _is_beyond(self, i: int, j: int, bound: Any, side: int) -> bool:
        """Whether row j is at or after (side 1), or at or before (-1), row i plus the bound."""
        own, other = (self.sorted_by[k][0] if self.sorting else None for k in (i, j))
        if bound == type(bound)(0) or own is None or other is None:
            return self.peers[i] == self.peers[j] or (j > i) == (side > 0)
        (s,) = self.sorting
        turned = 1 if s.ascending else -1
        edge = _number(own) + turned * _number(bound)
        position, limit = (
            rank(x, FLOAT) if isinstance(x, float) else x for x in (_number(other), edge)
        )
        return bool(position >= limit if side * turned > 0 else position <= limit)


def _number(value: Any) -> Any:
    """A value as a number: days, microseconds, or the number itself."""
    match value:
        case dt.datetime():
            epoch = dt.datetime(1970, 1, 1, tzinfo=value.tzinfo and dt.UTC)
            return (value - epoch) // dt.timedelta(microseconds=1)
        case dt.date():
            return value.toordinal()
        case dt.timedelta():
            return value // dt.timedelta(microseconds=1)
        case decimal.Decimal():
            return Fraction(value)
    return value


def _of_order(f: Callable[[int, _Partition], Any]) -> Callable[[WindowCall, _Partition], list[Any]]:
    return lambda c, here: [f(i, here) for i in range(len(here.rows))]


def _rank_at(i: int, here: _Partition) -> int:
    return 1 + here.peers.index(here.peers[i])


def _dense_rank_at(i: int, here: _Partition) -> int:
    return len(dict.fromkeys(here.peers[: i + 1]))


def _percent_rank_at(i: int, here: _Partition) -> float:
    return (_rank_at(i, here) - 1) / max(len(here.rows) - 1, 1)


def _cume_dist_at(i: int, here: _Partition) -> float:
    last = max(j for j, p in enumerate(here.peers) if p == here.peers[i])
    return (last + 1) / len(here.rows)


def _ntile(c: WindowCall, here: _Partition) -> list[int]:
    each, longer = divmod(len(here.rows), c.n)
    sizes = [each + (tile < longer) for tile in range(min(c.n, len(here.rows)))]
    return [tile for tile, size in enumerate(sizes, 1) for _ in range(size)]


def _shifted(c: WindowCall, here: _Partition) -> list[Any]:
    values = here.values(c)
    results = []
    for i in range(len(values)):
        others = values[:i][::-1] if c.kind == "lag" else values[i + 1 :]
        if c.ignore_nulls:
            others = [v for v in others if v is not None]
        default = here.at.call(c.args[1], here.rows[i]) if len(c.args) > 1 else None
        results.append(others[c.n - 1] if len(others) >= c.n else default)
    return results


def _framed(f: Callable[[WindowCall, list[Any]], Any]) -> Callable[..., list[Any]]:
    """Apply `f` to the values in the frame of each row; without an argument, to the rows."""

    def of_each(c: WindowCall, here: _Partition) -> list[Any]:
        values = here.values(c) if c.args else list(here.rows)
        return [f(c, [values[j] for j in here.frame(i, c.frame)]) for i in range(len(values))]

    return of_each


def _picked(c: WindowCall, values: list[Any]) -> Any:
    if c.ignore_nulls:
        values = [v for v in values if v is not None]
    n = len(values) if c.kind == "last_value" else c.n
    return values[n - 1] if 1 <= n <= len(values) else None


def _count(c: WindowCall, values: list[Any]) -> int:
    return sum(not c.args or v is not None for v in values)


def _extreme(c: WindowCall, values: list[Any]) -> Any:
    valid = [v for v in values if v is not None]
    pick = min if c.kind == "min" else max
    return pick(valid, key=lambda v: rank(v, unwrap(c.type)), default=None)


def _sum(c: WindowCall, values: list[Any]) -> Any:
    valid = [v for v in values if v is not None]
    if not valid and isinstance(c.type, Optional):
        return None
    if unwrap(c.type) in (FLOAT, REST):
        limbs: dict[int, int] = {}
        for bin_, limb in map(split, valid):
            limbs[bin_] = limbs.get(bin_, 0) + limb
        return rounding_error(limbs) if unwrap(c.type) == REST else total(limbs)
    with decimal.localcontext(decimal.Context(prec=100)):
        return fit(sum(valid), c.type, "the sum over a frame")


def _percentile(c: WindowCall, values: list[Any]) -> float | None:
    valid = sorted((v for v in values if v is not None), key=lambda v: rank(v, FLOAT))
    return at_share(len(valid), valid.__getitem__, c.share)


def _session(c: WindowCall, here: _Partition) -> list[Any]:
    """For each row, the first or the last time of its session."""
    times = [at for (at,) in here.sorted_by]
    runs: list[list[Any]] = []
    for at in times:
        if runs and _number(at) <= _number(runs[-1][-1]) + _number(c.gap):
            runs[-1].append(at)
        else:
            runs.append([at])
    return [run[0 if c.kind == "session_start" else -1] for run in runs for _ in run]


_KINDS: dict[str, Callable[[WindowCall, _Partition], list[Any]]] = {
    "count": _framed(_count),
    "cume_dist": _of_order(_cume_dist_at),
    "dense_rank": _of_order(_dense_rank_at),
    "first_value": _framed(_picked),
    "lag": _shifted,
    "last_value": _framed(_picked),
    "lead": _shifted,
    "max": _framed(_extreme),
    "min": _framed(_extreme),
    "nth_value": _framed(_picked),
    "ntile": _ntile,
    "percentile": _framed(_percentile),
    "percent_rank": _of_order(_percent_rank_at),
    "rank": _of_order(_rank_at),
    "row_number": _of_order(lambda i, here: i + 1),
    "session_end": _session,
    "session_start": _session,
    "sum": _framed(_sum),
}
