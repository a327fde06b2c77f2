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

    The result has a row `into` for each row of `a`, as often as it counts. Its fields are filled by
    the window functions with their names (see `st.win`), by functions of the row, and the others by
    the row's fields with the same names. `order` is a function of the row, a `st.Index`,
    `st.win.asc` or `st.win.desc`, or several of them in a tuple; NULL comes first in ascending
    order, as in Spark. For descending order write `st.win.desc(lambda a: a.x)`, or `lambda a:
    a.x.desc()` as in PySpark. Ties are broken by the whole row, so equal rows give the same answer
    every time. `fields` has functions by names that are those of arguments. A row without a
    positive weight is absent.

    A function may be over partitions or an order of its own: `st.win.rank().over(by=…, order=…)`.
    Those with the same ones share a window. Each further window is over the results of the one
    before, keeps them by its own key, and reads the partitions of all rows that changed there.

    The result for a row depends on its partition alone, so the optimizer makes H(z⁻¹I(a), a) of it.
    It keeps the input, arranged by `by`. A step reads the partitions of its rows, and gives the
    rows for which something changes. On the driver, a step that touches few partitions finds the
    first row that changes, and computes from there on, with as many rows before it as functions
    look back to. If an earlier step of the same `st.Stepper` has read the partition, it reads only
    its end, from some rows before that step's change on. A change further back reads the whole
    partition again. This works for `row_number`, `rank`, `lag`, `lead`, frames that end at a number
    of rows or a distance, and counts and sums from the first row on, in the order of ints, dates or
    times. Other functions (`dense_rank`, `ntile`, IGNORE NULLS, frames up to the last row) read the
    whole partition, as all functions do in Spark's jobs; `st.explain` says which. To keep only the
    first rows of each partition, use `st.first_n`, which reads less.

    Raises `CompileError` if fields and functions do not fit, `StepError` for a sum beyond its type.

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
    where: None = None,
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
    where: None = None,
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
    where: None = None,
) -> ZSet[Any]:
    """The changes of each row of `l` beside the row of `r` at the nearest time: D(asof(I l, I r)).

    It looks at the rows of `r` with the same key. "backward" takes the last one that is not later,
    "forward" the first that is not earlier, and "nearest" the nearer of the two, or the earlier one
    if both are equally near; none that is further away than `tolerance`. This is
    `pandas.merge_asof`, and DuckDB's ASOF JOIN. If several rows have the same time, it takes the
    last by the whole row, or looking forward the first. `how="inner"` omits rows of `l` that find
    nothing; with "left" they come with None. A row whose key or time is NULL finds nothing and is
    not found; a row without a positive weight is absent. There is no `where`: a filter of `r` is a
    condition on the rows to be found, as in SQL's ON, and a filter of the result one on those that
    were found, as in WHERE.

    Keys are functions of the row, or a `st.Index`. Times are of any type that has an order;
    "nearest" and a tolerance need a type that has distances. Distances of times are timedeltas,
    those of dates timedeltas or numbers of days.

    It is a window over the rows of both sides, so the optimizer makes H(z⁻¹I, change) of it. It
    keeps both sides, arranged together by the key; a step reads the rows of both sides that have
    the keys of its rows, and on the driver computes those up to the next row on each side that may
    be found. Of rows that an earlier step has read, it reads only the last ones, as `st.window`
    does. Raises `CompileError` if keys or times of the two sides have different
    types.

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
        left, right, on_left, on_right, at_left, at_right, direction, tolerance, how, where
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

    A session is a set of rows of one key, each at most `gap` after the one before, by `at`: a time,
    a date or a number. `gap` is a timedelta, for dates also a number of days, for numbers a number.
    `start` and `end` are the times of the first and the last row; a row whose time is NULL is in no
    session. A row that is added between two sessions merges them; when it is removed they are two
    again. To count sessions or sum them up, group by the key and `start`.

    It is a window in the order of time, so the optimizer makes H(z⁻¹I(a), a) of it. It keeps the
    input, arranged by `by`. A step reads the rows of the keys that its rows have, or the last of
    them, as `st.window` does; on the driver it computes the sessions that its rows are in. It gives
    the rows whose session changed. Raises
    `CompileError` for times that have no distance, and for a gap of another type.

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
