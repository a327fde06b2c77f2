"""`st.linear`: operators on the values of one step, independent of earlier steps."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.operators import Accumulate, Flatten, Map, Operator
from stepping_spark.circuit.physical import Sorting
from stepping_spark.expressions.coercion import coerce
from stepping_spark.expressions.expr import Call, Expr, Field, Literal, PythonCall, Singleton
from stepping_spark.expressions.functions import row_expr
from stepping_spark.expressions.index import Index, key_of
from stepping_spark.language import algebra
from stepping_spark.language.agg import Collect
from stepping_spark.language.aggregate import MANY, aggregate, check_size
from stepping_spark.language.algebra import beside
from stepping_spark.language.asof_joins import asof_join
from stepping_spark.language.delta_joins import delta_join
from stepping_spark.language.outer_joins import antijoin, cross_join, matching, outer_join, semijoin
from stepping_spark.language.per_group import Grouped, group, is_grouped, per_group, ungrouped
from stepping_spark.language.primitives import (
    KeyFunction,
    add,
    add3,
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
from stepping_spark.language.range_joins import range_join
from stepping_spark.language.sort_orders import OrderGiven, sorting_of
from stepping_spark.language.temporal_filters import explode
from stepping_spark.language.temporal_filters import join_function_as_of as join_function
from stepping_spark.language.temporal_filters import temporal_filter_as_of as temporal_filter
from stepping_spark.language.trace import make, on_streams, row_of, vertex_of
from stepping_spark.language.window import sessions, window
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.data import Pair
from stepping_spark.rows.schema import Accumulated
from stepping_spark.rows.types import Struct, ZSetOf, row_type, unwrap
from stepping_spark.zsets.spark import ZSet, ZSetPython

__all__ = [
    "Grouped",
    "accumulate",
    "add",
    "add3",
    "aggregate",
    "antijoin",
    "asof_join",
    "count",
    "cross_join",
    "delay",
    "delay_indexed",
    "delta_join",
    "differentiate",
    "distinct",
    "except_",
    "explode",
    "filter",
    "first_n",
    "flatten",
    "group",
    "group_reduce_flatten",
    "haitch",
    "identity_print",
    "integrate",
    "integrate_delay",
    "integrate_delay_indexed",
    "integrate_indexed",
    "intersect",
    "join",
    "join_function",
    "make_scalar",
    "make_set",
    "map",
    "map_many",
    "neg",
    "outer_join",
    "per_group",
    "positive_part",
    "range_join",
    "reduce",
    "semijoin",
    "sessions",
    "symmetric_difference",
    "temporal_filter",
    "total",
    "union",
    "window",
]

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")


def join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: KeyFunction[T],
    on_right: KeyFunction[U],
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
    name: str | None = None,
) -> ZSet[Pair[T, U]]:
    """l JOIN r ON on_left = on_right, of the values of one step; weights multiply.

    `ZSet[T]` and `ZSet[U]` to `ZSet[Pair[T, U]]`. Bilinear. NULL keys match nothing, or with
    `null_safe` each other. With `where`, the result has only the pairs for which it is true. Keeps
    no state; a step costs both values. Raises `CompileError` if the two keys have different types.
    """
    arguments = matching(l, r, on_left, on_right, "join", where, null_safe=null_safe)
    return cast("ZSet[Pair[T, U]]", on_streams(algebra.join)(l, r, **arguments, name=name))


def distinct(a: ZSet[T], *, name: str | None = None) -> ZSet[T]:
    """SELECT DISTINCT of a value: every row with a positive weight, with weight 1.

    Keeps no state; a step costs the value.
    """
    return cast("ZSet[T]", on_streams(algebra.distinct)(a, name=name))


def first_n(
    a: ZSet[T],
    order: OrderGiven[T],
    n: int,
    *,
    by: KeyFunction[T] | None = None,
    ties: bool = False,
    group_size: int | None = None,
    name: str | None = None,
) -> ZSet[T]:
    """The first n rows of a value in an order; with `by`, of each group.

    A row of weight 2 counts as two rows, ties are broken by the whole row, and rows without a
    positive weight are ignored. With `ties`, all rows that tie with the n-th are included. Keeps no
    state.
    """
    row = row_of(a, "first_n")
    where = f"{user_line()}: first_n"
    if type(n) is not int or not 1 <= n <= MANY:
        raise CompileError(f"{where}: n should be an int from 1 to {MANY}, found {n!r}")
    check_size(group_size, where)
    keys = () if by is None else key_of(by, row, "`by` of first_n").parts
    first = on_streams(algebra.first_n)(
        a,
        order=_first_by(order, row, where),
        n=n,
        by=keys,
        ties=ties,
        group_size=group_size,
        name=name,
    )
    return cast("ZSet[T]", first)


def _first_by(order: Any, row: RowType, where: str) -> tuple[Sorting, ...]:
    """The order of `first_n`."""
    ordered = sorting_of(order, row, "`order` of first_n")
    if not ordered:
        raise CompileError(
            f"{where}: expected an order, found {order!r}; write lambda row: row.field, or "
            "st.win.desc(lambda row: row.field)"
        )
    return ordered


def reduce(
    a: ZSet[T],
    *,
    zero: Callable[[], V],
    pick_value: Callable[[T], V],
    name: str | None = None,
) -> ZSet[V]:
    """One row: `zero()` plus the sum of `pick_value(row) · weight` over a value.

    See `st.reduce`, the incremental form, for the types that can be added. Keeps no state; a step
    costs the value.
    """
    return make_set(total(a, zero, pick_value), name=name)


def total(a: ZSet[T], zero: Callable[[], V], pick_value: Callable[[T], V]) -> V:
    """The sum of `pick_value(row) · weight`, as a stream of numbers (or of one Z-set).

    Linear. Keeps no state; a step costs the value. `reduce` gives the same as a Z-set of one row.
    """
    picked, expr = _picked(a, zero, pick_value)
    return cast(V, make(Accumulate(None, expr), picked))


def count(a: ZSet[Any], *, name: str | None = None) -> ZSet[int]:
    """One row: the sum of the weights of a value. Keeps no state; a step costs the value."""
    return reduce(a, zero=int, pick_value=lambda row: 1, name=name)


def accumulate(
    a: ZSet[T],
    *,
    by: Index[T, K] | Callable[[T], K],
    zero: Callable[[], V],
    pick_value: Callable[[T], V],
    name: str | None = None,
) -> Grouped[V, K]:
    """The sum of `pick_value(row) · weight` of each group of a value, as a `Grouped`.

    See `st.group_reduce_flatten` for `by`, `zero` and `pick_value`. Linear; keeps no state; a step
    costs the rows of the value.
    """
    picked, expr = _picked(a, zero, pick_value)
    key = key_of(by, row_of(a, "accumulate"), "by")
    if picked is not a:
        key = type(key)(key.expr.under("left"), key.ascending)
    return cast("Grouped[V, K]", make(Accumulate(key, expr), picked, name=name))


@overload
def flatten(g: Grouped[ZSet[T], K], *, name: str | None = None) -> ZSet[Pair[T, K]]: ...
@overload
def flatten(g: Grouped[V, K], *, name: str | None = None) -> ZSet[Pair[V, K]]: ...
def flatten(g: Grouped[Any, Any], *, name: str | None = None) -> ZSet[Any]:
    """Groups as rows: Pair(left=row, right=key) for each row of a group, or for the group's sum.

    A group without rows gives no rows. Linear for groups of rows; keeps no state.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[st.Pair[str, bool]]:
    ...     return st.flatten(st.group(a, by=lambda word: word == "a"))
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({"a": 2}),))
    >>> dict(out.iter())
    {Pair(left='a', right=True): 2}
    """
    t = vertex_of(g, "flatten").type
    operator: Operator = ungrouped(t.row) if is_grouped(t) else Flatten()  # type: ignore[attr-defined]
    return cast("ZSet[Any]", make(operator, g, name=name))


def group_reduce_flatten(
    a: ZSet[T],
    *,
    by: Index[T, K] | Callable[[T], K],
    zero: Callable[[], V],
    pick_value: Callable[[T], V],
    name: str | None = None,
) -> ZSet[Pair[V, K]]:
    """One row for each group of a value: Pair(left=sum of `pick_value`, right=key).

    See `st.group_reduce_flatten`, the incremental form. Keeps no state; a step costs the value.
    """
    return flatten(accumulate(a, by=by, zero=zero, pick_value=pick_value), name=name)


def _picked(a: Any, zero: Callable[[], Any], pick: Callable[[Any], Any]) -> tuple[Any, Expr]:
    """The stream to add up, and the expression to add for each of its rows.

    A Python function is applied first, by a map to pairs of the row and the result.
    """
    row = row_of(a, "reduce")
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


def _nothing(t: Struct) -> str:
    """The text of the row whose fields are all zero."""
    if t.python is tuple:
        return f"({', '.join('0' for _ in t.fields)},)"
    return f"{t.name}({', '.join(f'{n}=0' for n, _ in t.fields)})"


def _from_zero(expr: Expr, zero: Callable[[], Any]) -> Expr:
    """The picked value, as a value of the type of `zero()`; NULL counts as zero."""
    where = f"{user_line()}: zero"
    if not callable(zero):
        raise CompileError(
            f"{where} should be a function that returns the sum of no rows, found {zero!r}; write "
            f"{type(zero).__name__}, or lambda: {zero!r}"
        )
    start = zero()
    if isinstance(start, ZSetPython):
        if not start.empty():
            raise CompileError(f"{where}: zero() must be empty, found {start!r}")
        if not isinstance(expr.type, ZSetOf):
            raise CompileError(
                f"{where} gives a ZSetPython, and pick_value {expr.type}, from {expr}; write "
                "pick_value=st.agg.collect(…) to collect its values"
            )
        return expr
    t = unwrap(expr.type)
    if isinstance(t, Struct):
        if type(start) is not t.python or any(v != 0 for v in t.parts(start, where)):
            raise CompileError(
                f"{where}: pick_value gives {t}, so zero() must be the {t} that adds nothing, "
                f"found {start!r}; write lambda: {_nothing(t)}"
            )
        return expr
    Accumulated(t).check(f"{user_line()}: pick_value gives {expr}")
    kind: Any = type(start)
    sum_type = row_type(kind)
    if isinstance(t, Atom) and t.name == "Decimal" and kind is decimal.Decimal:
        sum_type = t
    if start != 0:
        raise CompileError(f"{where}: zero() must add nothing, found {start!r}; add it later")
    if expr.type != t:
        expr = Call(t, "coalesce", (expr, Literal(t, kind(0))))
    return coerce(expr, sum_type, f"{user_line()}: pick_value")


# SQL's set operations


def union(a: ZSet[T], b: ZSet[T], *, all: bool = False, name: str | None = None) -> ZSet[T]:  # noqa: A002
    """a UNION b, of the values of one step; with `all`, a UNION ALL b, which is `add`.

    See `st.union`. Keeps no state.
    """
    return cast(
        "ZSet[T]", on_streams(algebra.union)(*_two_streams(a, b, "union"), all=all, name=name)
    )


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
    both = _two_streams(a, b, "intersect")
    return cast("ZSet[T]", on_streams(algebra.intersect)(*both, all=all, name=name))


def except_(a: ZSet[T], b: ZSet[T], *, all: bool = False, name: str | None = None) -> ZSet[T]:  # noqa: A002
    """a EXCEPT b, of the values of one step; with `all`, a EXCEPT ALL b.

    See `st.except_`. Keeps no state.
    """
    return cast(
        "ZSet[T]", on_streams(algebra.except_)(*_two_streams(a, b, "except_"), all=all, name=name)
    )


def symmetric_difference(a: ZSet[T], b: ZSet[T], *, name: str | None = None) -> ZSet[T]:
    """The rows that are in exactly one of two values of one step, each once.

    See `st.symmetric_difference`. Keeps no state.
    """
    both = _two_streams(a, b, "symmetric_difference")
    return cast("ZSet[T]", on_streams(algebra.symmetric_difference)(*both, name=name))


def positive_part(a: ZSet[T], *, name: str | None = None) -> ZSet[T]:
    """x⁺ = max(x, 0): every row with a positive weight in the value, with its weight.

    Keeps no state; a step costs the value.
    """
    return cast("ZSet[T]", on_streams(algebra.positive_part)(a, name=name))


def _two_streams(a: ZSet[T], b: ZSet[T], what: str) -> tuple[ZSet[T], ZSet[T]]:
    """The two streams. Raises `CompileError` if one is no stream of Z-sets."""
    for stream in (a, b):
        row_of(stream, what)
    return a, b
