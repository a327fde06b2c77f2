"""Incremental joins: inner, semi, anti and outer joins, and joins of many tables.

Each but `half_join` is D ∘ Q ∘ I, where Q is the function of the same name in `st.linear`, and the
optimizer rewrites it by the bilinear rule, D(I(l) ⋈ I(r)) = I(l) ⋈ r + l ⋈ z⁻¹I(r) (DBSP, theorem
3.4), and the chain rule (proposition 3.2).

For a type checker, the row of the optional side of an outer join is `R | Any`: an R, or None if
there is no match. A function of the pair may use its fields as they are; they are NULL if there is
no match.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from circuits.lifting import incremental
from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.language import linear
from stepping_spark.language.primitives import KeyFunction
from stepping_spark.rows.data import Pair
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
U = TypeVar("U")

join = incremental(
    linear.join,
    """The rows of l JOIN r ON on_left = on_right, kept up to date by the changes of l and r.

    D(I(l) ⋈ I(r)) = I(l) ⋈ r + l ⋈ z⁻¹I(r)  (DBSP, theorem 3.4). `ZSet[T]` and `ZSet[U]` to
    `ZSet[Pair[T, U]]`: left and right are two rows with equal keys. A key is a function of the row,
    or a `st.Index`. Weights multiply. NULL keys match nothing, or with `null_safe=True` each other
    (SQL's <=>). `where`, a function of the `Pair`, is a further condition on the pairs.

    State: both inputs, each arranged by its key. A step reads the keys of the change from both.
    Raises `CompileError` if the two keys have different types.

    >>> def query(a: st.ZSet[str], b: st.ZSet[tuple[str, int]]) -> st.ZSet[int]:
    ...     pairs = st.join(a, b, on_left=lambda name: name, on_right=lambda row: row[0])
    ...     return st.map(pairs, f=lambda p: p.right[1])
    >>> step = st.reference(st.compile(query)).step
    >>> _ = step((st.ZSetPython({"x": 1, "y": 1}), None))
    >>> (out,) = step((None, st.ZSetPython({("x", 7): 2, ("z", 8): 1})))
    >>> dict(out.iter())
    {7: 2}
    """,
)

semijoin = incremental(
    linear.semijoin,
    """The rows of l LEFT SEMI JOIN r, those with a match in r, kept up to date by their changes.

    l ⋉ r = π_left(l ⋈ distinct(keys of r)). Its parts are incremental (DBSP, theorem 3.4 and
    proposition 4.7), so it is incremental too (proposition 3.2, the chain rule). The result has
    rows of l with the weights of l, however many rows of r match: ZSet[L]. NULL keys match nothing,
    or with `null_safe` each other. A row is added with its first match, and removed with its last.
    State: l arranged by its key, and the number of rows of r for each key. A step reads the keys of
    the change from both.

    `where`, a function of a `Pair`, is a further condition of a match. Then l ⋉ r is l − l ▷ r, and
    state and cost are those of `antijoin`. Raises `CompileError` if the two keys have different
    types.

    >>> def query(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.semijoin(a, b, on_left=lambda x: x, on_right=lambda x: x)
    >>> step = st.ZSetPython({1: 2, 2: 1}), st.ZSetPython({1: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {1: 2}
    """,
)

antijoin = incremental(
    linear.antijoin,
    """The rows of l LEFT ANTI JOIN r, those without a match in r, kept up to date by their changes.

    l ▷ r = l − l ⋉ r, which is linear in its parts. The result has rows of l with the weights of l:
    ZSet[L]. A row with a NULL key has no match, as with NOT EXISTS in SQL, and passes without a
    lookup; with `null_safe`, NULL matches NULL. A row is removed when its first match is added, and
    returns when its last match is removed. State, cost and errors are those of `semijoin`.

    `where`, a function of a `Pair`, is a further condition of a match. Then l ▷ r is
    (l − π_left(l ⋈ r where …))⁺, for tables, which have no negative weights. State: both inputs,
    arranged by their keys, and that difference by the whole row. A step costs the rows of the
    change, and the rows that match them.

    >>> def query(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.antijoin(a, b, on_left=lambda x: x, on_right=lambda x: x)
    >>> step = st.ZSetPython({1: 2, 2: 1}), st.ZSetPython({1: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {2: 1}
    """,
)

outer_join = incremental(
    linear.outer_join,
    """The rows of l LEFT, RIGHT or FULL OUTER JOIN r ON …, kept up to date by their changes.

    A left join is l ⋈ r + null(l − l ⋉ r), and likewise for the right side. Rows without a match
    are taken from l itself, not from the join: l − left(l ⋈ r) would have negative weights if a row
    has two matches. `how`: "left" returns ZSet[Pair[L, R | None]], "right" ZSet[Pair[L | None, R]],
    "full" ZSet[Pair[L | None, R | None]]. NULL keys match nothing; their rows are paired with None,
    and are not gathered on one worker. With `null_safe` they match each other. `where`, a function
    of the `Pair`, is a further condition of the match, as in SQL's ON: a row is paired with None if
    it meets the condition with no row of equal key. The rows without a match are then
    (l − π_left(l ⋈ r where …))⁺, as in `antijoin`, and are stored by the whole row.

    State: both sides, arranged by their keys, and for each side that is preserved the number of
    rows of each key of the other side. A step reads the keys of the change from all of these.
    Raises `CompileError` if the two keys have different types, or for another `how`.

    >>> def query(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[st.Pair[int, int | None]]:
    ...     return st.outer_join(a, b, on_left=lambda x: x, on_right=lambda x: x)
    >>> step = st.ZSetPython({1: 2, 2: 1}), st.ZSetPython({1: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> out == st.ZSetPython({st.Pair(left=1, right=1): 2, st.Pair(left=2, right=None): 1})
    True
    """,
)

cross_join = incremental(
    linear.cross_join,
    """The rows of l CROSS JOIN r, kept up to date by their changes.

    Use it if one side has one row or a few: a scalar subquery, a table of rates, limits. It is a
    join by a key that all rows share: ZSet[Pair[L, R]]. With `how="left"` a row of l without a
    match is paired with None, ZSet[Pair[L, R | None]], as for a scalar subquery that may have no
    row. `where`, a function of the `Pair`, is a condition of the match. State: both inputs. A step
    reads all of r for a change of l, and all of l for a change of r. For rows that lie in intervals
    see `st.range_join`. Raises `CompileError` for another `how`.

    >>> def query(prices: st.ZSet[int], least: st.ZSet[int]) -> st.ZSet[int]:
    ...     pairs = st.cross_join(prices, least, where=lambda p: p.left >= p.right)
    ...     return st.map(pairs, f=lambda p: p.left)
    >>> step = st.ZSetPython({1: 1, 5: 2}), st.ZSetPython({3: 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {5: 2}
    """,
)

range_join = incremental(
    linear.range_join,
    """The rows of l JOIN r ON at BETWEEN low AND high, kept up to date by their changes.

    ZSet[Pair[L, R]]; with `how="left"` a row of l that lies in no interval is paired with None.
    `at`, `low` and `high` have one type: `int`, `float`, `Decimal`, `date`, `datetime` or
    `LocalDateTime`. NULL lies in no interval. `bounds` says which ends belong to the interval. With
    `on_left` and `on_right`, rows must also have equal keys. `where`, a function of the `Pair`, is
    a further condition. For a join by inequalities without an interval, see `st.cross_join`.

    It joins by bands of this `width` (a number, or a timedelta): an interval is in every band that
    it touches, and a point is in one. Choose a width of about the length of an interval. Intervals
    of more than 64 bands are in one extra band with all points: they are compared with every point.
    State: l twice, and r once for each of its bands, by band. A step reads the bands of its rows.
    Raises `CompileError` for values of different types, or of types without bands.

    >>> def query(a: st.ZSet[int], b: st.ZSet[tuple[int, int]]) -> st.ZSet[int]:
    ...     pairs = st.range_join(a, b, at=lambda n: n, low=lambda i: i[0], high=lambda i: i[1],
    ...                           width=10)
    ...     return st.map(pairs, f=lambda p: p.left)
    >>> step = st.ZSetPython({5: 1, 25: 2}), st.ZSetPython({(20, 31): 1, (7, 25): 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {25: 4}
    """,
)

delta_join = incremental(
    linear.delta_join,
    """The rows of base JOIN table1 ON … JOIN table2 ON …, kept up to date by their changes.

    The change of the join is the sum of one term for each input. The term of an input joins its
    change with the new state of the inputs before it and the old state of those after it (DBSP,
    theorem 3.4, for a product of many). `stepping_spark.circuit.delta_join` says the order of the
    lookups in a term. Rows are tuples, ZSet[tuple[B, R1, R2, …]], with `R | None` for a left
    lookup. Weights multiply. A left lookup returns the match, or None if no row has the key or the
    key is NULL (such rows are not gathered on one worker).

    State: the inputs only, and no joined rows. Each input is arranged by the keys of its lookups:
    its own key, and the keys that later lookups read from it. For each term, a step reads the rows
    that match its change; for a left lookup also the rows of the changed keys. A left lookup with a
    condition is an `st.outer_join`; it stores the join of everything before it, by its key. Raises
    `CompileError` for a lookup whose key is not made of fields and operators on them, or has no
    part that is read from one input alone.

    >>> def query(facts: st.ZSet[tuple[str, int]], users: st.ZSet[tuple[int, str]]) -> st.ZSet[
    ...     tuple[tuple[str, int], tuple[int, str]]
    ... ]:
    ...     user = st.Lookup(users, key=lambda u: u[0], on=lambda row: row[0][1])
    ...     return st.delta_join(facts, user)
    >>> step = st.ZSetPython({("tea", 1): 1}), st.ZSetPython({(1, "Ann"): 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {(('tea', 1), (1, 'Ann')): 1}
    """,
)


def half_join(
    change: ZSet[T],
    r: ZSet[U],
    *,
    on_left: KeyFunction[T],
    on_right: KeyFunction[U],
    state: Literal["new", "old"] = "new",
    where: Callable[[Pair[T, U]], object] | None = None,
    null_safe: bool = False,
) -> ZSet[Pair[T, U]]:
    """The rows of change JOIN r ON …; later changes of r do not update them.

    It is one term of the bilinear rule: change ⋈ I(r), or change ⋈ z⁻¹I(r) if `state` is "old",
    with r as it was before the step. Delta joins are sums of such terms. Rows are Pair(left, right)
    with equal keys, and weights multiply: ZSet[Pair[L, R]]. Only rows of `change` produce output.
    NULL keys match nothing, or with `null_safe` each other. `where` is a further condition on the
    pairs. State: r arranged by its key, and nothing of `change`. A step reads the keys of the
    change. Raises `CompileError` if the keys have different types, or for another `state`.

    >>> def query(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[st.Pair[int, int]]:
    ...     return st.half_join(a, b, on_left=lambda x: x, on_right=lambda x: x, state="old")
    >>> reference = st.reference(st.compile(query))
    >>> one = st.ZSetPython({1: 1})
    >>> [out.empty() for step in ((one, one), (None, one), (one, None))
    ...     for out in reference.step(step)]
    [True, True, False]
    """
    if state not in ("new", "old"):
        raise CompileError(f"{user_line()}: state={state!r} of a half_join; it is 'new' or 'old'")
    state_of_right = linear.integrate(r) if state == "new" else linear.integrate_delay(r)
    return linear.join(
        change, state_of_right, on_left=on_left, on_right=on_right, where=where, null_safe=null_safe
    )
