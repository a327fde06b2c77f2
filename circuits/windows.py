"""Rows and the rows around them in an order, lifted to changes: D ∘ Q ∘ I for Q per partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, overload

from stepping_spark.expressions.index import Index
from stepping_spark.query import linear
from stepping_spark.query.asof import Direction, How
from stepping_spark.query.orders import OrderGiven
from stepping_spark.query.primitives import Key
from stepping_spark.query.win import WindowFunction
from stepping_spark.rows.data import Pair, Session
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
U = TypeVar("U")
A = TypeVar("A")
R = TypeVar("R")


def window(
    a: ZSet[T],
    *,
    by: Index[T, Any] | Callable[[T], Any] | None = None,
    order: OrderGiven[T] = None,
    into: type[R],
    fields: Mapping[str, WindowFunction[T] | Callable[[T], Any]] | None = None,
    **functions: WindowFunction[T] | Callable[[T], Any],
) -> ZSet[R]:
    """The changes of SELECT *, f(…) OVER (PARTITION BY by ORDER BY order) FROM a: D(window(I(a))).

    A row `into` for each row of `a`, and for each time that it counts. Fields are filled by the
    window functions of their names (see `st.win`), by functions of the row, and the others by the
    row's fields of the same names. `order` is a function of the row, a `st.Index`, `st.win.asc` or
    `st.win.desc`, or several of them in a tuple; NULL comes first where it ascends, as in Spark.
    To descend write `st.win.desc(lambda a: a.x)`, or `lambda a: a.x.desc()` as in PySpark.
    Ties go by the whole row, so that the same rows give the same answer every time. `fields` has
    functions by names that are those of arguments. A row without a positive weight is not there.

    What a row is given depends on its partition alone, so the optimizer makes H(z⁻¹I(a), a) of it:
    keeps the input, arranged by `by`; a step reads the partitions that its rows are in, and gives
    the rows for which something changes. The state has no order within a partition. But on the
    driver a step that touches few of them looks for the first place that changes, and computes from
    there on, with as many rows before it as functions look back to: so it is for `row_number`,
    `rank`, `lag`, `lead`, frames that end at a number of rows or a distance, and counts and sums
    from the first row on, in the order of ints, dates or times. Other functions (`dense_rank`,
    `ntile`, IGNORE NULLS, frames up to the last row) take the whole partition, as all do in Spark's
    jobs; `st.explain` says which it is. To keep the first rows of each partition only, use
    `st.first_n`, which reads less.

    Raises `CompileError` where fields and functions do not fit, `StepError` for a sum beyond its
    type.

    >>> class Sale(st.Data):
    ...     shop: str
    ...     day: int
    ...     amount: int
    >>> class Row(st.Data):
    ...     shop: str
    ...     day: int
    ...     so_far: int
    ...     before: int | None
    >>> def query(sales: st.ZSet[Sale]) -> st.ZSet[Row]:
    ...     return st.window(
    ...         sales, by=lambda s: s.shop, order=lambda s: s.day, into=Row,
    ...         so_far=st.win.sum(lambda s: s.amount, rows=(None, 0)),
    ...         before=st.win.lag(lambda s: s.amount))
    >>> step = st.reference(st.compile(query)).step
    >>> _ = step((st.ZSetPython({Sale(shop="A", day=1, amount=5): 1}),))
    >>> (out,) = step((st.ZSetPython({Sale(shop="A", day=2, amount=7): 1}),))
    >>> dict(out.iter())
    {Row(shop='A', day=2, so_far=12, before=5): 1}
    """
    integrated = linear.integrate(a)
    windowed = linear.window(integrated, by, order, into, fields=fields, **functions)
    differentiated = linear.differentiate(windowed)
    return differentiated


@overload
def asof_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: Key[T],
    on_right: Key[U],
    at_left: Key[T],
    at_right: Key[U],
    direction: Direction = "backward",
    tolerance: Any = None,
    how: Literal["inner"] = "inner",
) -> ZSet[Pair[T, U]]: ...
@overload
def asof_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: Key[T],
    on_right: Key[U],
    at_left: Key[T],
    at_right: Key[U],
    direction: Direction = "backward",
    tolerance: Any = None,
    how: Literal["left"],
) -> ZSet[Pair[T, U | Any]]: ...
def asof_join(
    l: ZSet[T],  # noqa: E741 - the reference library's name
    r: ZSet[U],
    *,
    on_left: Key[T],
    on_right: Key[U],
    at_left: Key[T],
    at_right: Key[U],
    direction: Direction = "backward",
    tolerance: Any = None,
    how: How = "inner",
) -> ZSet[Any]:
    """The changes of each row of `l` beside the row of `r` at the nearest time: D(asof(I l, I r)).

    Of the rows of `r` with the same key: "backward" the last one that is not later, "forward" the
    first that is not earlier, "nearest" the nearer of the two, of two as near the earlier one; and
    none that is further away than `tolerance`. As `pandas.merge_asof` and DuckDB's ASOF JOIN have
    it. Of several rows at one time it is the last by the whole row, and the first looking forward.
    `how="inner"` leaves out rows of `l` that find nothing; with "left" they stand beside None.
    A row whose key or time is NULL finds nothing, and is not found; one without a positive weight
    is not there.

    Keys are functions of the row, or a `st.Index`; times are of any type that has an order, for
    "nearest" and a tolerance of one that has distances: of times those are timedeltas, of dates
    timedeltas or numbers of days.

    It is a window over the rows of both sides, so the optimizer makes H(z⁻¹I, change) of it: keeps
    both sides, arranged together by the key; a step reads the rows of both sides that have the keys
    of its rows. Raises `CompileError` where keys and times of the two sides are of different types.

    >>> def query(
    ...     orders: st.ZSet[tuple[str, int]], prices: st.ZSet[tuple[str, int, float]]
    ... ) -> st.ZSet[tuple[int, float]]:
    ...     priced = st.asof_join(
    ...         orders, prices, on_left=lambda o: o[0], on_right=lambda p: p[0],
    ...         at_left=lambda o: o[1], at_right=lambda p: p[1])
    ...     return st.map(priced, f=lambda p: (p.left[1], p.right[2]))
    >>> step = st.reference(st.compile(query)).step
    >>> _ = step((st.ZSetPython({("tea", 5): 1}), st.ZSetPython({("tea", 1, 2.5): 1})))
    >>> (out,) = step((None, st.ZSetPython({("tea", 4, 3.0): 1})))
    >>> out == st.ZSetPython({(5, 2.5): -1, (5, 3.0): 1})
    True
    """
    left, right = linear.integrate(l), linear.integrate(r)
    joined = linear.asof_join(
        left, right, on_left, on_right, at_left, at_right, direction, tolerance, how
    )
    differentiated = linear.differentiate(joined)
    return differentiated


def sessions(
    a: ZSet[T],
    *,
    by: Index[T, Any] | Callable[[T], Any] | None = None,
    at: Index[T, A] | Callable[[T], A],
    gap: Any,
) -> ZSet[Session[T, A]]:
    """The changes of the rows with the start and the end of their session: D(sessions(I(a))).

    A session is the rows of one key of which each is at most `gap` after the one before, by `at`:
    a time, a date or a number. `gap` is a timedelta, of dates also a number of days, of numbers a
    number. `start` and `end` are the times of the first and of the last row; a row whose time is
    NULL is in no session. A row that comes between two sessions makes them one, and they are two
    again when it goes. Group by the key and `start` to count sessions, or to sum them up.

    It is a window in the order of time, so the optimizer makes H(z⁻¹I(a), a) of it: keeps the
    input, arranged by `by`; a step reads the rows of the keys that its rows have, and gives those
    whose session has changed. Raises `CompileError` for times that have no distance, and for a gap
    that is none of theirs.

    >>> def query(clicks: st.ZSet[tuple[str, int]]) -> st.ZSet[tuple[int, int]]:
    ...     found = st.sessions(clicks, by=lambda c: c[0], at=lambda c: c[1], gap=30)
    ...     return st.distinct(st.map(found, f=lambda s: (s.start, s.end)))
    >>> step = st.reference(st.compile(query)).step
    >>> (out,) = step((st.ZSetPython({("Ann", 10): 1, ("Ann", 70): 1}),))
    >>> out == st.ZSetPython({(10, 10): 1, (70, 70): 1})
    True
    >>> (out,) = step((st.ZSetPython({("Ann", 40): 1}),))
    >>> out == st.ZSetPython({(10, 10): -1, (70, 70): -1, (10, 70): 1})
    True
    """
    integrated = linear.integrate(a)
    found = linear.sessions(integrated, by, at, gap)
    differentiated = linear.differentiate(found)
    return differentiated
