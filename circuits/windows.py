"""Window functions, as-of joins and sessions as incremental operators.

Each is D ∘ Q ∘ I, for a Q that computes each partition from its own rows alone.
"""

from __future__ import annotations

from circuits.lifting import incremental
from stepping_spark.language import linear

window = incremental(
    linear.window,
    """SELECT *, f(…) OVER (PARTITION BY by ORDER BY order) FROM a, kept up to date by changes of a.

    This is D(window(I(a))). The result has a row `into` for each row of `a`, with the same weight.
    A field of `into` is the window function of its name (see `st.win`), the function of the row of
    its name, or else the row's field of its name. Without `into`, the rows have the fields of the
    row and the functions by their names, and a class that is made: see `st.row`. `order` is a
    function of the row, a `st.Index`, `st.win.asc` or `st.win.desc`, or several of them in a tuple.
    NULL comes first in ascending order, as in Spark. For descending order write `st.win.desc(lambda
    a: a.x)`, or `lambda a: a.x.desc()` as in PySpark. Ties are broken by the whole row, so the
    result is deterministic.
    `fields` has the functions whose names are arguments of this function. Rows without a positive
    weight are ignored.

    A function can have its own partitions or order: `st.win.rank().over(by=…, order=…)`. Functions
    with the same partitions and order share a window. Each further window takes the results of the
    previous one, stores them by its own key, and reads the partitions of all rows that changed
    there.

    The result for a row depends on its partition alone, so the optimizer rewrites it to
    H(z⁻¹I(a), a). State: the input, arranged by `by`. A step reads the partitions of its rows, and
    returns the result rows that change. On the driver, a step that touches few partitions finds the
    first row that changes, and computes from there on, with as many rows before it as the functions
    look back to. If an earlier step of the same `st.Stepper` has read the partition, it reads only
    the end, from some rows before that step's change on. A change further back reads the whole
    partition again. This works for `row_number`, `rank`, `lag`, `lead`, frames that end at a number
    of rows or a distance, and counts and sums from the first row on, in the order of ints, dates or
    times. Other functions (`dense_rank`, `ntile`, IGNORE NULLS, frames up to the last row) read the
    whole partition, as all functions do in Spark jobs; `st.explain` says which. If you need only
    the first rows of each partition, use `st.first_n`, which reads less.

    Raises `CompileError` if fields and functions do not fit, and `StepError` if a sum overflows its
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
    """,
)

asof_join = incremental(
    linear.asof_join,
    """l ASOF JOIN r: each row of `l` with the row of `r` at the nearest time, kept up to date.

    This is D(asof(I l, I r)), as in `pandas.merge_asof` and DuckDB's ASOF JOIN. Among the rows of
    `r` with the same key, "backward" takes the last one that is not later, and "forward" the first
    one that is not earlier. "nearest" takes the nearer one of these two, or the earlier one if both
    are equally near. No row further away than `tolerance` matches. If several rows have the same
    time, it takes the last one by the whole row, or with "forward" the first one. `how="inner"`
    omits rows of `l` without a match; with "left" they are paired with None. A row with a NULL key
    or time matches nothing. Rows without a positive weight are ignored. There is no `where`: to
    filter the candidates, as SQL's ON does, filter `r`; to filter the matches, as WHERE does,
    filter the result.

    Keys are functions of the row, or a `st.Index`. Times may have any type with an order; "nearest"
    and a tolerance need a type with distances. Distances of times are timedeltas, those of dates
    timedeltas or numbers of days.

    It is a window over the rows of both sides, so the optimizer rewrites it to H(z⁻¹I, change).
    State: both sides, arranged together by the key. A step reads the rows of both sides with the
    keys of its rows. On the driver it computes only the rows up to the next possible match on each
    side, and reads only the end of a key's rows if an earlier step has read them, as `st.window`
    does. Raises `CompileError` if the keys or the times of the two sides have different types.

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
    """,
)

sessions = incremental(
    linear.sessions,
    """The rows of `a` with the start and the end of their session, kept up to date by changes.

    This is D(sessions(I(a))). A session is a set of rows with one key, each at most `gap` after the
    previous one, by `at`: a time, a date or a number. `gap` is a timedelta, for dates also a number
    of days, for numbers a number. `start` and `end` are the times of the session's first and last
    row. A row whose time is NULL is in no session. A row added between two sessions can merge them;
    its removal splits them again. To count sessions or sum over them, group by the key and `start`.

    It is a window in the order of time, so the optimizer rewrites it to H(z⁻¹I(a), a). State: the
    input, arranged by `by`. A step reads the rows with the keys of its rows, or only the last of
    them, as `st.window` does. On the driver it computes only the sessions of its rows. It returns
    the rows whose session changed. Raises `CompileError` for times without a distance, and for a
    gap of another type.

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
    """,
)
