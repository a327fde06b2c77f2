"""SQL's UNION, INTERSECT and EXCEPT as incremental operators, with SQL's NULLs and multiplicities.

Two rows are equal if all their fields are equal; NULL equals NULL, and NaN equals NaN. x⁺ is
max(x, 0), row by row. The inputs are changes of tables: in their sum no row has a negative weight.
"""

from __future__ import annotations

from circuits.lifting import incremental
from stepping_spark.language import linear

union = incremental(
    linear.union,
    """The rows of a UNION b, or with `all` of a UNION ALL b, kept up to date by their changes.

    a UNION b is distinct(a + b); a UNION ALL b is `st.add`. Both streams and the result have one
    type. State: the number of occurrences of each row in both inputs together, by the whole row;
    with `all` none. A step costs the rows of the change. Raises `CompileError` if the streams have
    different types.

    >>> def query(a: st.ZSet[int | None], b: st.ZSet[int | None]) -> st.ZSet[int | None]:
    ...     return st.union(a, b)
    >>> step = st.ZSetPython({1: 2, None: 1}), st.ZSetPython({None: 1, 3: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> out == st.ZSetPython({1: 1, None: 1, 3: 1})
    True
    """,
)

intersect = incremental(
    linear.intersect,
    """The rows of a INTERSECT b, or with `all` of a INTERSECT ALL b, kept up to date by changes.

    a INTERSECT b is distinct(min(a, b)), where min(a, b) = a − (a − b)⁺. a INTERSECT ALL b is
    min(a, b): the weight of a row is the smaller one of its two weights. Both streams and the
    result have one type. State: a − b by the whole row, and without `all` the common rows. A step
    costs the rows of the change. Raises `CompileError` if the streams have different types.

    >>> def query(a: st.ZSet[int | None], b: st.ZSet[int | None]) -> st.ZSet[int | None]:
    ...     return st.intersect(a, b, all=True)
    >>> step = st.ZSetPython({1: 2, None: 3}), st.ZSetPython({None: 2, 3: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {None: 2}
    """,
)

except_ = incremental(
    linear.except_,
    """The rows of a EXCEPT b, or with `all` of a EXCEPT ALL b, kept up to date by their changes.

    a EXCEPT b is (distinct(a) − distinct(b))⁺. a EXCEPT ALL b is (a − b)⁺: the weight of a row is
    its weight in `a` minus its weight in `b`, if that is positive. Both streams and the result have
    one type. State: the difference by the whole row, and without `all` the weight of each row in a,
    and in b. A step costs the rows of the change. Raises `CompileError` if the streams have
    different types.

    >>> def query(a: st.ZSet[int | None], b: st.ZSet[int | None]) -> st.ZSet[int | None]:
    ...     return st.except_(a, b)
    >>> step = st.ZSetPython({1: 2, None: 3}), st.ZSetPython({None: 1, 3: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {1: 1}
    """,
)

symmetric_difference = incremental(
    linear.symmetric_difference,
    """The rows that are in exactly one of two tables, each once, kept up to date by changes.

    With s = distinct(a) + distinct(b), it is 2·distinct(s) − s: a row of both has weight 2 in s. In
    SQL, (a EXCEPT b) UNION ALL (b EXCEPT a). Both streams and the result have one type. State: the
    weight of each row in a, in b, and in s. A step costs the rows of the change. Raises
    `CompileError` if the streams have different types.

    >>> def query(a: st.ZSet[int | None], b: st.ZSet[int | None]) -> st.ZSet[int | None]:
    ...     return st.symmetric_difference(a, b)
    >>> step = st.ZSetPython({1: 2, None: 3}), st.ZSetPython({None: 1, 3: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> out == st.ZSetPython({1: 1, 3: 1})
    True
    """,
)
