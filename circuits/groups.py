"""SQL's DISTINCT, ORDER BY with LIMIT, and GROUP BY, as incremental operators.

Each is D ∘ Q ∘ I, where Q is the function of the same name in `st.linear`. If Q computes each key
from the rows of that key alone, the optimizer rewrites it to H(z⁻¹I, change).
"""

from __future__ import annotations

from circuits.lifting import incremental
from stepping_spark.language import linear

distinct = incremental(
    linear.distinct,
    """The rows of SELECT DISTINCT * FROM a, kept up to date by the changes of a.

    D(distinct(I(a))) = H(z⁻¹I(a), a)  (DBSP, proposition 4.7). `ZSet[T]` to `ZSet[T]`: a row has
    weight 1 if its weight in the integral is positive. State: the input, arranged by the whole row.
    A step reads the rows of the change.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(a)
    >>> step = st.reference(st.compile(query)).step
    >>> outs = [step((st.ZSetPython({"x": n}),))[0] for n in (2, 1, -3)]
    >>> [dict(out.iter()) for out in outs]
    [{'x': 1}, {}, {'x': -1}]
    """,
)

first_n = incremental(
    linear.first_n,
    """The first n rows by an order, of `a` or of each group, kept up to date by the changes of a.

    This is SELECT * FROM a ORDER BY order LIMIT n, and with `by` the same in each group:
    D(first_n(I(a))). A row of weight 2 counts as two rows, and ties are broken by the whole row.
    `order` is as in `st.window`; for descending order write `st.win.desc(lambda a: a.x)`,
    `lambda a: a.x.desc()`, or a `st.Index` with `ascending=False`. NULL comes first and NaN last,
    the reverse in descending order, as in Spark. Rows without a positive weight are ignored. With
    `ties=True`, all rows that tie with the n-th are included: those with RANK() <= n. For the rank
    itself, use `st.window` on the result.

    The state has all rows by group, and the first n of each. A step reads the groups of the changed
    rows. The first n rows of a table are the first n of the first n of its parts: once a group has
    more than 1,024 rows, the state has the first n of each of its b buckets, by a hash of the row
    (256 for n = 1, and about √(65,536 / n) for more). A step reads the buckets of the changed rows,
    and the first n of all: in a group of N rows about N / b + 2 · n · b. Groups of at most
    4 · n · b rows have no buckets. For an append-only input it stores and reads only the first n.

    `group_size` is the approximate number of rows in the largest group. Up to 1,024, the state has
    only the rows by group. Beyond, large groups have about √(group_size / n) buckets, at least 16
    and at most 4,096. The result is correct even if the number is wrong.

    Raises `CompileError` if the order does not fit, or if n is not a number of rows.

    >>> def query(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.first_n(a, st.Index.identity(int, ascending=False), 2)
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({1: 1, 2: 1, 3: 1}),))
    >>> out == st.ZSetPython({3: 1, 2: 1})
    True
    """,
)

aggregate = incremental(
    linear.aggregate,
    """The rows of SELECT by, aggregates FROM a GROUP BY by, kept up to date by the changes of a.

    This is D(aggregate(I(a))). `into` is a `Data` with a field of the same name for each aggregate,
    and a field for each part of the key: the one with the same name, or else the remaining fields,
    in order. Without `into`, the rows have the parts of the key and the aggregates by their names,
    and a class that is made: see `st.row`. `fields` has further aggregates by field name, for the
    names that are arguments of this function (`by`, `into`, `fields`, `group_size`). Fields have
    the types of Spark SQL: see `st.agg`. A group without rows has no row in the result; a group
    whose sum is zero has one. Without a key (`by=None`) there is one row from the first step on. If
    there are no rows, a count is 0 and everything else is NULL, so those fields must be `X | None`.

    Aggregates of one kind are computed together. Those of different kinds are computed separately
    and joined by key. `st.explain` prints the plan, and the state of each part:

    - accumulable: count, sum, avg, stddev, variance, corr, covar_pop, covar_samp, `regr_…`,
      bool_and, bool_or. State: the counts and sums, by key. A step costs its rows, and reads the
      groups that they touch.
    - distinct: count_distinct, sum_distinct, avg_distinct. State: the values by key and value, and
      their counts and sums by key.
    - hierarchical: min, max, any_value, arg_min, arg_max, first_n. State: all rows, and the first
      ones of groups or buckets, as in `st.first_n`. For append-only inputs only the first rows.
      mode: the same, over the number of occurrences of each value.
    - basic: collect, collect_list, string_agg, median, percentile, skewness, kurtosis, bit_xor.
      State: all values, by key. A step costs the sizes of the groups that it touches. collect_set,
      bit_and, bit_or, and string_agg with `distinct=True`: the same, with the distinct values and
      their counts.

    `group_size` is the approximate number of rows in the largest group, as in `st.first_n`.

    `by` may also be `st.rollup`, `st.cube` or `st.grouping_sets`: several keys, as in SQL.

    Raises `CompileError` if fields and aggregates do not fit, and `StepError` if a sum overflows
    its type.

    >>> class Summary(st.Data):
    ...     user: str
    ...     orders: int
    ...     least: float
    >>> def query(orders: st.ZSet[tuple[str, float]]) -> st.ZSet[Summary]:
    ...     return st.aggregate(orders, by=lambda o: o[0], into=Summary,
    ...                         orders=st.agg.count(), least=st.agg.min(lambda o: o[1]))
    >>> change = st.ZSetPython({("Ann", 2.5): 1, ("Ann", 0.5): 2})
    >>> (out,) = st.reference(st.compile(query)).step((change,))
    >>> dict(out.iter())
    {Summary(user='Ann', orders=3, least=0.5): 1}
    """,
)

group_reduce_flatten = incremental(
    linear.group_reduce_flatten,
    """The rows of SELECT sum(pick_value), by FROM a GROUP BY by, kept up to date by changes.

    This is D(flatten(I(Σ_key pick_value(row) · weight))). `ZSet[T]` to `ZSet[Pair[V, K]]`: left is
    the sum, right is the key. `by` is a function of the row, or a `st.Index`; NULL is a key of its
    own. A group without rows has no row in the result; a group whose sum is zero has one. `zero`
    and `pick_value` are as in `reduce`.

    Summing by key is linear, and flattening depends on each key alone, so the optimizer rewrites it
    to H(z⁻¹I, change). State: the number of rows and the sum of each key. A step reads the keys of
    the change. Raises `CompileError` for values that cannot be added, and for a key that is a
    `st.python` function.

    >>> class Sale(st.Data):
    ...     shop: str
    ...     amount: int
    >>> def query(sales: st.ZSet[Sale]) -> st.ZSet[st.Pair[int, str]]:
    ...     return st.group_reduce_flatten(
    ...         sales, by=lambda s: s.shop, zero=int, pick_value=lambda s: s.amount)
    >>> step = st.reference(st.compile(query)).step
    >>> _ = step((st.ZSetPython({Sale(shop="A", amount=3): 2}),))
    >>> (out,) = step((st.ZSetPython({Sale(shop="A", amount=4): 1}),))
    >>> out == st.ZSetPython({st.Pair(left=6, right="A"): -1, st.Pair(left=10, right="A"): 1})
    True
    """,
)

reduce = incremental(
    linear.reduce,
    """The row of SELECT sum(pick_value) FROM a, kept up to date by the changes of a.

    This is D(make_set(I(Σ pick_value(row) · weight)))  (DBSP, section 7.2). `ZSet[T]` to `ZSet[V]`.
    There is one row from the first step on; it is `zero()` while `a` is empty. `pick_value` returns
    an int, a float or a Decimal, a row of these (added field by field), or a `ZSetPython`
    (`st.agg.collect`). NULL counts as zero. Floats are added exactly, so a deletion subtracts
    exactly the number that was added. State: the sum, and the row with it. A step costs the rows of
    the change. Raises `CompileError` for values that cannot be added, and for a `zero` that is not
    zero.

    >>> def query(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.reduce(a, zero=int, pick_value=lambda x: x)
    >>> step = st.reference(st.compile(query)).step
    >>> outs = [step((change,))[0] for change in (st.ZSetPython({5: 2}), st.ZSetPython({5: -1}))]
    >>> outs == [st.ZSetPython({10: 1}), st.ZSetPython({10: -1, 5: 1})]
    True
    """,
)

count = incremental(
    linear.count,
    """The row of SELECT count(*) FROM a, kept up to date by the changes of a.

    A row counts as often as its weight: this is `reduce` with 1 for each row. `ZSet[T]` to
    `ZSet[int]`, with one row from the first step on. State: the number. A step costs the rows of
    the change.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[int]:
    ...     return st.count(a)
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({"x": 2, "y": 1}),))
    >>> dict(out.iter())
    {3: 1}
    """,
)
