"""Sort orders of windows, aggregates and `first_n`: their parts and directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.physical import Sorting
from stepping_spark.expressions.columns import By, Directed
from stepping_spark.expressions.index import Index, key_of
from stepping_spark.language import win
from stepping_spark.language.primitives import KeyFunction
from stepping_spark.rows.atoms import RowType

T = TypeVar("T")

OrderGiven = By[T] | KeyFunction[T] | Sequence[By[T] | KeyFunction[T]] | None


def sorting_of(order: Any, row: RowType, what: str) -> tuple[Sorting, ...]:
    """The parts of an order that a user gave: one, or several in a tuple or list."""
    if order is None:
        return ()
    if isinstance(order, Sorting):
        return (order,)
    if isinstance(order, tuple | list):
        return tuple(s for part in order for s in sorting_of(part, row, what))
    where = f"{user_line()}: {what}"
    if order is win.asc or order is win.desc:
        name = order.__name__
        raise CompileError(
            f"{where}: found st.win.{name} itself; write st.win.{name}(lambda row: …)"
        )
    if not isinstance(order, By):
        return _sortings(order, row, what)
    if order.nulls not in (None, "first", "last"):
        raise CompileError(f"{where}: nulls={order.nulls!r}: expected 'first' or 'last'")
    sortings = _sortings(Index(order.f), row, what, f" in {order}")
    first = order.ascending if order.nulls is None else order.nulls == "first"
    return tuple(Sorting(s.expr, order.ascending, first) for s in sortings)


def _sortings(index: Any, row: RowType, what: str, within: str = "") -> tuple[Sorting, ...]:
    key = key_of(index, row, what, in_order=True)
    parts = zip(key.parts, key.ascending, strict=True)
    return tuple(_sorting(e, up, what, within) for e, up in parts)


def _sorting(e: Any, ascending: bool, what: str, within: str) -> Sorting:
    if not isinstance(e, Directed):
        return Sorting(e, ascending, ascending)
    if within or not ascending:
        raise CompileError(
            f"{user_line()}: {what}: {e}{within or ' in an Index with ascending=False'} has two "
            "directions; leave one out"
        )
    return Sorting(e.of, e.ascending, e.nulls_first)
