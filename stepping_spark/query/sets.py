"""SQL's unions, intersections and differences, of the values of one step."""

from __future__ import annotations

from typing import TypeVar, cast

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.graph.operators import Distinct, PositivePart
from stepping_spark.query.primitives import add, neg
from stepping_spark.query.trace import make, row_of
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")


def union(a: ZSet[T], b: ZSet[T], *, all: bool = False, name: str | None = None) -> ZSet[T]:  # noqa: A002
    """a UNION b, of the values of one step; with `all`, a UNION ALL b, which is `add`.

    See `st.union`. Keeps no state.
    """
    check_sets(a, b, "union")
    if all:
        return add(a, b, name=name)
    return cast("ZSet[T]", make(Distinct(), add(a, b), name=name))


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
    check_sets(a, b, "intersect")
    if all:
        return add(a, neg(positive_part(add(a, neg(b)))), name=name)
    return cast("ZSet[T]", make(Distinct(), intersect(a, b, all=True), name=name))


def except_(a: ZSet[T], b: ZSet[T], *, all: bool = False, name: str | None = None) -> ZSet[T]:  # noqa: A002
    """a EXCEPT b, of the values of one step; with `all`, a EXCEPT ALL b.

    See `st.except_`. Keeps no state.
    """
    check_sets(a, b, "except_")
    if not all:
        a, b = (cast("ZSet[T]", make(Distinct(), x)) for x in (a, b))
    return positive_part(add(a, neg(b)), name=name)


def positive_part(a: ZSet[T], *, name: str | None = None) -> ZSet[T]:
    """x⁺ = max(x, 0): every row with a positive weight in the value, with its weight.

    Keeps no state; a step costs the value.
    """
    return cast("ZSet[T]", make(PositivePart(), a, name=name))


def check_sets(a: object, b: object, what: str) -> None:
    """Raise `CompileError` unless both are streams of the same row type."""
    rows = row_of(a, what), row_of(b, what)
    if rows[0] != rows[1]:
        raise CompileError(
            f"{user_line()}: {what} takes two ZSets of the same rows, found {rows[0]} and "
            f"{rows[1]}; map one to the rows of the other"
        )
