"""SQL's unions, intersections and differences, of the values of one step."""

from __future__ import annotations

from typing import TypeVar, cast

from stepping_spark.algebra import sets
from stepping_spark.query.trace import on_streams, row_of
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")


def union(a: ZSet[T], b: ZSet[T], *, all: bool = False, name: str | None = None) -> ZSet[T]:  # noqa: A002
    """a UNION b, of the values of one step; with `all`, a UNION ALL b, which is `add`.

    See `st.union`. Keeps no state.
    """
    return cast("ZSet[T]", on_streams(sets.union)(*_both(a, b, "union"), all=all, name=name))


def intersect(
    a: ZSet[T],
    b: ZSet[T],
    *,
    all: bool = False,  # noqa: A002
    name: str | None = None,
) -> ZSet[T]:
    """a INTERSECT b, of the values of one step; with `all`, a INTERSECT ALL b.

    See `st.intersect`. Keeps no state.
    """
    both = _both(a, b, "intersect")
    return cast("ZSet[T]", on_streams(sets.intersect)(*both, all=all, name=name))


def except_(a: ZSet[T], b: ZSet[T], *, all: bool = False, name: str | None = None) -> ZSet[T]:  # noqa: A002
    """a EXCEPT b, of the values of one step; with `all`, a EXCEPT ALL b.

    See `st.except_`. Keeps no state.
    """
    return cast("ZSet[T]", on_streams(sets.except_)(*_both(a, b, "except_"), all=all, name=name))


def positive_part(a: ZSet[T], *, name: str | None = None) -> ZSet[T]:
    """x⁺ = max(x, 0): every row with a positive weight in the value, with its weight.

    Keeps no state; a step costs the value.
    """
    return cast("ZSet[T]", on_streams(sets.positive_part)(a, name=name))


def _both(a: ZSet[T], b: ZSet[T], what: str) -> tuple[ZSet[T], ZSet[T]]:
    """The two streams. Raises `CompileError` if one is no stream of Z-sets."""
    for stream in (a, b):
        row_of(stream, what)
    return a, b
