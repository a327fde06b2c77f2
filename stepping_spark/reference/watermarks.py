"""The operators of watermarks, in plain Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from stepping_spark.expressions.clock import units_of
from stepping_spark.expressions.expr import Expr
from stepping_spark.reference.values import Value, added
from stepping_spark.reference.vertices import VertexContext
from stepping_spark.reference.windows import window
from stepping_spark.rows.schema import GroupedType
from stepping_spark.rows.types import unwrap


def _is_before(
    at: VertexContext, value: Expr, row: Any, greatest: Sequence[Value], distances: Sequence[int]
) -> bool:
    """Whether a row's value is before the greatest time of each input minus its distance."""
    found, t = at.call(value, row), unwrap(value.type)
    if found is None:
        return False
    latest = [max((units_of(time, t) for time in times), default=None) for times in greatest]
    return all(
        x is not None and units_of(found, t) < x - d for x, d in zip(latest, distances, strict=True)
    )


def in_time(at: VertexContext, a: Value, greatest: Value) -> Value:
    """The rows of a change from the watermark on, or if the operator is `late`, the others."""
    op = at.operator

    def is_late(row: Any) -> bool:
        if at.call(op.at, row) is None:
            return True
        return _is_before(at, op.at, row, (greatest,), (op.lateness,))

    return {row: n for row, n in a.items() if is_late(row) is op.late}


def expire(at: VertexContext, a: Value, *rest: Value) -> Value:
    """The rows behind the watermarks, among those of a change and the stored ones."""
    *greatest, kept = rest
    op, every = at.operator, added((*kept.items(), *a.items()))
    is_grouped = isinstance(at.inputs[0], GroupedType)

    def is_passed(row: Any) -> bool:
        known = SimpleNamespace(_key_=row[0]) if is_grouped else row
        return _is_before(at, op.value, known, greatest, op.distances)

    return {row: n for row, n in every.items() if is_passed(row)}


def touched(at: VertexContext, a: Value, passed: Value) -> Value:
    """The rows of both streams, each with the number of its stream."""
    return {(row, i): n for i, value in enumerate((a, passed)) for row, n in value.items()}


def settled(at: VertexContext, state: Value, a: Value, _: Value, *greatest: Value) -> Value:
    """The rows whose results no future row can change, and that no future row needs."""
    op = at.operator
    inner = dataclasses.replace(at, operator=op.window)
    found = []
    for pair, n in window(inner, added((*state.items(), *a.items()))).items():
        if all(
            _is_before(at, value, pair, greatest, [d + further for d in op.distances])
            for value, further in op.free
        ):
            found.append((pair.left, n))
    return added(found)
