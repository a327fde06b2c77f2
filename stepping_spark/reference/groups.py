"""The operators of groups, in plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.index import Order
from stepping_spark.reference.vertices import VertexContext
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.data import Pair
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import sort_key

Rows = Mapping[Any, int]


def groups(
    at: VertexContext, a: Rows, keys: tuple[Expr, ...], order: Order
) -> Iterator[tuple[tuple[Any, ...], list[tuple[Any, int]]]]:
    """For each key, its rows with a positive weight, in order."""
    found: dict[tuple[Any, ...], list[tuple[Any, int]]] = {}
    for row, n in a.items():
        if n > 0:
            key = tuple(at.call(k, row) for k in keys)
            found.setdefault(key, []).append((row, n))
    (t,) = at.inputs[:1]
    assert isinstance(t, ZSetType)
    for key, rows in found.items():
        rows.sort(key=lambda r: rank(r[0], t.row))
        for e, up in reversed(order):  # sorting is stable, so the last part comes first
            by = {row: rank(at.call(e, row), e.type) for row, _ in rows}
            rows.sort(key=lambda r, by=by: by[r[0]], reverse=not up)  # type: ignore[misc]
        yield key, rows


def top(at: VertexContext, a: Rows) -> Rows:
    """The first n rows of each key; with ties, all rows with fewer than n rows before them."""
    op = at.operator
    found: dict[Any, int] = {}
    for _, rows in groups(at, a, op.keys, op.order):
        if op.ties:
            by = {row: [rank(at.call(e, row), e.type) for e, _ in op.order] for row, _ in rows}
            found.update(
                (row, n)
                for i, (row, n) in enumerate(rows)
                if sum(m for other, m in rows[:i] if by[other] != by[row]) < op.n
            )
            continue
        left = op.n
        for row, n in rows:
            if left <= 0:
                break
            found[row] = min(n, left)
            left -= n
    return found


def listed(at: VertexContext, a: Rows) -> Rows:
    """For each key, the list of the values of its rows."""
    op = at.operator
    found = {}
    for (key,), rows in groups(at, a, (op.key,), op.order):
        items = tuple(at.call(op.item, row) for row, n in rows for _ in range(n))
        found[Pair(left=items, right=key)] = 1
    return found


def collate(at: VertexContext, a: Rows) -> Rows:
    """For each key, one row made of its partial results."""
    op = at.operator
    made = op.type_of(*at.inputs).row
    pieces: dict[Any, list[Any]] = {}
    for row, n in a.items():
        if n <= 0:
            continue
        key, *parts = row
        known = pieces.setdefault(key, [None] * len(parts))
        for i, part in enumerate(parts):
            t = made.fields[i + 1][1]
            if rank(part, t) > rank(known[i], t):
                known[i] = part
    return {
        (key, *parts): 1
        for key, parts in pieces.items()
        if all(p is not None for p in parts[: op.required])
    }


def rank(value: Any, t: RowType) -> Any:
    """The sort key of a value, in Spark's order; None is NULL."""
    return sort_key(None if value is None else t.encode(value, "a value"))
