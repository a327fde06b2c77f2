"""`st.linear`: operators on the values of one step, without regard to the steps before."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, cast

from stepping_spark.agg import Collect
from stepping_spark.atoms import Atom, RowType
from stepping_spark.errors import CompileError
from stepping_spark.expr import Call, Expr, Field, Literal, PythonCall, Singleton, coerce
from stepping_spark.functions import row_expr
from stepping_spark.index import Index, key_of
from stepping_spark.least import Least
from stepping_spark.operations import unwrap
from stepping_spark.operators import Accumulate, Distinct, Flatten, Join, Map
from stepping_spark.origin import user_line
from stepping_spark.primitives import (
    Key,
    add,
    add3,
    beside,
    delay,
    delay_indexed,
    differentiate,
    filter,  # noqa: A004
    haitch,
    identity_print,
    integrate,
    integrate_delay,
    integrate_delay_indexed,
    integrate_indexed,
    make_scalar,
    make_set,
    map,  # noqa: A004
    map_many,
    neg,
)
from stepping_spark.rows import Pair
from stepping_spark.schema import Accumulated, ZSetType
from stepping_spark.trace import make, vertex_of
from stepping_spark.types import Struct, ZSetOf, row_type
from stepping_spark.zset import ZSet, ZSetPython

__all__ = [
    "accumulate",
    "add",
    "add3",
    "count",
    "delay",
    "delay_indexed",
    "differentiate",
    "distinct",
    "filter",
    "flatten",
    "group_reduce_flatten",
    "haitch",
    "identity_print",
    "integrate",
    "integrate_delay",
    "integrate_delay_indexed",
    "integrate_indexed",
    "join",
    "least",
    "make_scalar",
    "make_set",
    "map",
    "map_many",
    "neg",
    "reduce",
]

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
K_co = TypeVar("K_co", covariant=True)


class Grouped(Protocol, Generic[V_co, K_co]):
    """A stream of sums by key; `flatten` makes rows of them."""


def join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    on_left: Key[T],
    on_right: Key[U],
    *,
    name: str | None = None,
) -> ZSet[Pair[T, U]]:
    """The pairs of rows of the two values whose keys are equal; weights multiply.

    Bilinear; NULL keys match nothing. Keeps no state.
    """
    left = key_of(on_left, _row(l, "join"), "on_left of join")
    right = key_of(on_right, _row(r, "join"), "on_right of join")
    return cast("ZSet[Pair[T, U]]", make(Join(left, right), l, r, name=name))


def distinct(a: ZSet[T], *, name: str | None = None) -> ZSet[T]:
    """Every row whose weight in the value is positive, with weight 1."""
    return cast("ZSet[T]", make(Distinct(), a, name=name))


def least(a: ZSet[T], by: Key[T], order: Key[T], *, name: str | None = None) -> ZSet[T]:
    """Of each group of a value the row that comes first in the order, with weight 1.

    The whole row breaks ties. NULL comes before all, NaN after all, as in Spark's ORDER BY.
    """
    row = _row(a, "least")
    keys = key_of(by, row, "by of least"), key_of(order, row, "order of least")
    return cast("ZSet[T]", make(Least(*keys), a, name=name))


def reduce(
    a: ZSet[T],
    zero: Callable[[], V],
    pick_value: Callable[[T], V],
    *,
    name: str | None = None,
) -> ZSet[V]:
    """One row: `zero()` and the sum of `pick_value(row) · weight`, of a value."""
    return make_set(total(a, zero, pick_value), name=name)


def total(a: ZSet[T], zero: Callable[[], V], pick_value: Callable[[T], V]) -> V:
    """The sum of `pick_value(row) · weight` as a stream of numbers (or of one Z-set). Linear."""
    picked, expr = _picked(a, zero, pick_value)
    return cast(V, make(Accumulate(None, expr), picked))


def count(a: ZSet[Any], *, name: str | None = None) -> ZSet[int]:
    """One row: the sum of the weights of a value."""
    return reduce(a, zero=int, pick_value=lambda row: 1, name=name)


def accumulate(
    a: ZSet[T],
    by: Index[T, K] | Callable[[T], K],
    zero: Callable[[], V],
    pick_value: Callable[[T], V],
    *,
    name: str | None = None,
) -> Grouped[V, K]:
    """The sum of `pick_value(row) · weight` of each group of a value. Linear; no state."""
    picked, expr = _picked(a, zero, pick_value)
    key = key_of(by, _row(a, "accumulate"), "by")
    if picked is not a:
        key = type(key)(key.expr.under("left"), key.ascending)
    return cast("Grouped[V, K]", make(Accumulate(key, expr), picked, name=name))


def flatten(g: Grouped[V, K], *, name: str | None = None) -> ZSet[Pair[V, K]]:
    """A row for each group: Pair(left=sum, right=key). A group without rows has none."""
    return cast("ZSet[Pair[V, K]]", make(Flatten(), g, name=name))


def group_reduce_flatten(
    a: ZSet[T],
    by: Index[T, K] | Callable[[T], K],
    zero: Callable[[], V],
    pick_value: Callable[[T], V],
    *,
    name: str | None = None,
) -> ZSet[Pair[V, K]]:
    """A row for each group of a value: Pair(left=sum of `pick_value`, right=key)."""
    return flatten(accumulate(a, by, zero, pick_value), name=name)


def _row(a: object, what: str) -> RowType:
    t = vertex_of(a, what).type
    if not isinstance(t, ZSetType):
        raise CompileError(f"{user_line()}: {what} takes a ZSet, found {t}")
    return t.row


def _picked(a: Any, zero: Callable[[], Any], pick: Callable[[Any], Any]) -> tuple[Any, Expr]:
    """The stream to add up, and what to pick from its rows.

    A Python function is mapped first, the row beside what it gives.
    """
    row = _row(a, "reduce")
    if isinstance(pick, Collect):
        item = row_expr(pick.f, row, to=pick.to)
        if isinstance(item, PythonCall):
            mapped = make(Map(beside(item, row)), a)
            item = Field(item.type, ("right",))
            return mapped, Singleton(ZSetOf(item.type, ZSetPython), item)
        return a, Singleton(ZSetOf(item.type, ZSetPython), item)
    expr = row_expr(pick, row)
    if isinstance(expr, PythonCall):
        mapped = make(Map(beside(expr, row)), a)
        return mapped, _from_zero(Field(expr.type, ("right",)), zero)
    return a, _from_zero(expr, zero)


def _from_zero(expr: Expr, zero: Callable[[], Any]) -> Expr:
    """The picked value, as a value of the type of `zero()`; NULL counts as zero."""
    where = f"{user_line()}: zero"
    if not callable(zero):
        raise CompileError(
            f"{where} should be a function that gives the sum of nothing, found {zero!r}; write "
            f"{type(zero).__name__}, or lambda: {zero!r}"
        )
    start = zero()
    if isinstance(start, ZSetPython):
        if not start.empty():
            raise CompileError(f"{where}: zero() must be empty, found {start!r}")
        return expr
    t = unwrap(expr.type)
    if isinstance(t, Struct):
        if any(v != 0 for v in t.parts(start, where)):
            raise CompileError(f"{where}: zero() must add nothing, found {start!r}")
        return expr
    Accumulated(t).check(f"{user_line()}: pick_value gives {expr}")
    kind: Any = type(start)
    wanted = row_type(kind)
    if isinstance(t, Atom) and t.name == "Decimal" and kind is decimal.Decimal:
        wanted = t
    if start != 0:
        raise CompileError(f"{where}: zero() must add nothing, found {start!r}; add it later")
    if expr.type != t:
        expr = Call(t, "coalesce", (expr, Literal(t, kind(0))))
    return coerce(expr, wanted, f"{user_line()}: pick_value")
