"""The general linear operator: each row becomes updates, each with a value, a time and a weight.

`map` makes one update, now, with weight 1; `filter` one or none; `map_many` several; `explode`
several with weights. A temporal filter adds the row at one time, and removes it at another. Every
linear operator is a join with a function that returns the updates of each row. Weights multiply,
and the time is the later of the two (Frank McSherry, "Generalizing linear operators").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar, cast

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.base.packages import Column
from stepping_spark.circuit.operators import AsOf, Explode, Filter, Hold, Map, Neg, Temporal
from stepping_spark.expressions.coercion import renamed
from stepping_spark.expressions.expr import Build, Call, Expr, Field, Opaque, PythonCall, whole
from stepping_spark.expressions.functions import row_expr
from stepping_spark.language.primitives import add
from stepping_spark.language.trace import make, row_of
from stepping_spark.rows.atoms import BOOL, TIMES, RowType
from stepping_spark.rows.data import Update, timed
from stepping_spark.rows.types import ListOf, Optional, Struct, unwrap
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
V = TypeVar("V")


def explode(
    a: ZSet[T],
    f: Callable[[T], Iterable[tuple[V, int]] | Column],
    *,
    to: type[tuple[V, int]] | None = None,
    name: str | None = None,
) -> ZSet[V]:
    """Each row becomes the values of `f(row)`, an array of (value, weight); weights multiply.

    A weight may be zero or negative; with a negative one, adding the row removes the value. `f`
    returns a list of tuples, an array column of structs with two fields, or with `st.python` any
    iterable; `to` is the type of a tuple. Linear; keeps no state; a step costs the values of the
    change.

    >>> def query(a: st.ZSet[tuple[str, int]]) -> st.ZSet[str]:
    ...     return st.explode(a, f=lambda row: [(row[0], row[1]), ("all", 1)])
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({("x", 3): 2}),))
    >>> out == st.ZSetPython({"x": 6, "all": 2})
    True
    """
    lists = _lists(a, f, to, tuple, "explode")
    return cast("ZSet[V]", make(Explode(lists), a, name=name))


def join_function(
    a: ZSet[T],
    f: Callable[[T], Iterable[Update[V, Any]] | Column],
    *,
    to: type[Update[V, Any]] | None = None,
    name: str | None = None,
) -> ZSet[V]:
    """Each row becomes the updates that `f(row)` returns: the general linear operator, on changes.

    An `st.Update(value, time, weight)` appears at its time, or at once if that has passed. Weights
    multiply. `f` returns a list of updates, or with `st.python` any iterable (annotated, or
    `to=st.Update[V, time]`). Times are ints (by default the number of the step), dates or
    datetimes, like the `now` of the steps. Linear. State: future updates, by their time. A step
    reads the updates that have become due since the previous step.

    >>> def query(a: st.ZSet[tuple[str, int]]) -> st.ZSet[str]:
    ...     return st.join_function(a, f=lambda row: [
    ...         st.Update(value=row[0], time=row[1]), st.Update(value="late", time=row[1] + 1)])
    >>> reference = st.reference(st.compile(query))
    >>> [dict(reference.step((z,))[0].iter()) for z in (st.ZSetPython({("x", 1): 2}), None)]
    [{'x': 2}, {'late': 2}]
    """
    return cast("ZSet[V]", _joined(a, f, to, name, Hold))


def join_function_as_of(
    a: ZSet[T],
    f: Callable[[T], Iterable[Update[V, Any]] | Column],
    *,
    to: type[Update[V, Any]] | None = None,
    name: str | None = None,
) -> ZSet[V]:
    """The updates of a whole value that are due at the step's `now`: see `st.join_function`."""
    return cast("ZSet[V]", _joined(a, f, to, name, AsOf))


def temporal_filter(
    a: ZSet[T],
    lower: Callable[[T], Any] | None = None,
    upper: Callable[[T], Any] | None = None,
    *,
    name: str | None = None,
) -> ZSet[T]:
    """SELECT * FROM a WHERE lower <= now AND now < upper, kept up to date by changes and by time.

    `now` is the time of the step. A row is present while lower ≤ now < upper; either bound may be
    omitted. A row that arrives after its upper bound never appears, nor does a row that is removed
    before its lower bound. A row with a NULL bound never appears. Bounds are ints (by default the
    number of the step), dates or datetimes, like `now`. Linear: a row is two updates,
    (row, lower, +1) and (row, upper, −1). State: future updates, by their time. A step reads the
    updates that have become due since the previous step.

    Use it for queries that depend on the time. Do not call `datetime.now()` in a bound or in any
    other function of rows: it is called once, when the query is compiled, and its result is a
    constant from then on. Compute the bound from the row, and pass the time to each step as `now=`.

    >>> def query(a: st.ZSet[tuple[str, int]]) -> st.ZSet[tuple[str, int]]:
    ...     return st.temporal_filter(a, upper=lambda row: row[1])
    >>> reference = st.reference(st.compile(query))
    >>> [dict(reference.step((z,))[0].iter()) for z in (st.ZSetPython({("x", 2): 1}), None)]
    [{('x', 2): 1}, {('x', 2): -1}]
    """
    return cast("ZSet[T]", _filtered(a, lower, upper, name, Hold))


def temporal_filter_as_of(
    a: ZSet[T],
    lower: Callable[[T], Any] | None = None,
    upper: Callable[[T], Any] | None = None,
    *,
    name: str | None = None,
) -> ZSet[T]:
    """The rows of a whole value with lower(row) ≤ now < upper(row): see `st.temporal_filter`."""
    return cast("ZSet[T]", _filtered(a, lower, upper, name, AsOf))


def _lists(a: Any, f: Any, to: Any, cls: type, what: str) -> Expr:
    """The list that the function of an exploding operator returns, with items of a named type."""
    of: Any = list
    item = None if to is None else of[to]
    row = row_of(a, what)
    return row_expr(f, row, to=item, item=to is None, named=partial(_named, cls))


def _named(cls: type, e: Expr) -> Expr:
    """Read structs made by Spark as tuples, or as updates, by the order of their fields."""
    lists = unwrap(e.type)
    item_type = unwrap(lists.inner) if isinstance(lists, ListOf) else None
    if not (isinstance(e, Opaque) and isinstance(item_type, Struct) and item_type.python is dict):
        return e
    value, *other_types = (t for _, t in item_type.fields)
    names = ("value", "time", "weight") if cls is Update else ("_1", "_2")
    if len(names) != 1 + len(other_types):
        return e
    types = (value, *(unwrap(t) for t in other_types))
    t = ListOf(Struct(cls.__name__, tuple(zip(names, types, strict=True)), cls))
    return e.converted(t, None if e.reading is None else renamed(e.reading, t))


def _joined(a: Any, f: Any, to: Any, name: str | None, when: type[Temporal]) -> Any:
    exploding = Explode(_lists(a, f, to, Update, "join_function"))
    if exploding.item.python is not Update:
        raise CompileError(
            f"{user_line()}: join_function takes a function that returns updates, found "
            f"{exploding.f.type}; give [st.Update(value=…, time=…, weight=…), …]"
        )
    _, (_, time), _ = exploding.item.fields
    _checked_time(time, "join_function")
    return _values_at_time(make(exploding, a), name, when)


def _filtered(a: Any, lower: Any, upper: Any, name: str | None, when: type[Temporal]) -> Any:
    if lower is None and upper is None:
        raise CompileError(f"{user_line()}: temporal_filter needs lower=, upper=, or both")
    row = row_of(a, "temporal_filter")
    bounds = {n: _bound(f, row, n) for n, f in (("lower", lower), ("upper", upper)) if f}
    times = {unwrap(e.type) for e in bounds.values()}
    if len(times) > 1:
        text = " and ".join(f"{n} is {e.type}" for n, e in bounds.items())
        raise CompileError(f"{user_line()}: the bounds of temporal_filter differ: {text}")
    (time,) = times
    t = timed(row, time)
    rows = make(Filter(_well_ordered(bounds)), a)

    def at(bound: Expr) -> Any:
        return make(Map(Build(t, (whole(row), _not_null(bound)))), rows)

    removed = make(Neg(), at(bounds["upper"])) if "upper" in bounds else None
    if "lower" in bounds:
        added = at(bounds["lower"])
        return _values_at_time(added if removed is None else add(added, removed), name, when)
    return add(rows, _values_at_time(removed, None, when), name=name)


def _bound(f: Callable[[Any], Any], row: RowType, what: str) -> Expr:
    expr = row_expr(f, row)
    if isinstance(expr, PythonCall):
        raise CompileError(
            f"{user_line()}: {what} of temporal_filter is a st.python function; map the rows "
            "first, with the time as a field"
        )
    _checked_time(expr.type, what)
    return expr


def _checked_time(t: RowType, what: str) -> RowType:
    bare = unwrap(t)
    if bare not in TIMES:
        raise CompileError(
            f"{user_line()}: {what} gives times of type {t}; times are ints, dates or datetimes"
        )
    return bare


def _well_ordered(bounds: dict[str, Expr]) -> Expr:
    """The condition that no bound is NULL, and that the lower one is before the upper one."""
    if len(bounds) == 2:
        nullable = any(isinstance(e.type, Optional) for e in bounds.values())
        t = Optional(BOOL) if nullable else BOOL
        return Call(t, "<", (bounds["lower"], bounds["upper"]))
    (bound,) = bounds.values()
    return Call(BOOL, "isNotNull", (bound,))


def _not_null(bound: Expr) -> Expr:
    """A bound that was checked not to be NULL, with a type that has no NULL."""
    return Call(bound.type.inner, "known", (bound,)) if isinstance(bound.type, Optional) else bound


def _values_at_time(timed_rows: Any, name: str | None, when: type[Temporal]) -> Any:
    """The values of timed rows, at their time."""
    row = cast(Struct, row_of(timed_rows, "a temporal operator"))
    (_, value), (_, time) = row.fields
    come = make(when(time), timed_rows)
    return make(Map(Field(value, ("value",))), come, name=name)
