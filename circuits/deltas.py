"""Joins that arrange nothing but their inputs, lifted to changes."""

from __future__ import annotations

from typing import Any, Literal, TypeVar, cast

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.graph.delta_join import DeltaJoin
from stepping_spark.query import linear, lookups
from stepping_spark.query.lookups import Lookup
from stepping_spark.query.primitives import Key
from stepping_spark.query.trace import make
from stepping_spark.rows.data import Pair
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
U = TypeVar("U")


def half_join(
    change: ZSet[T],
    r: ZSet[U],
    *,
    on_left: Key[T],
    on_right: Key[U],
    state: Literal["new", "old"] = "new",
) -> ZSet[Pair[T, U]]:
    """One term of the bilinear rule: change ⋈ I(r), or change ⋈ z⁻¹I(r) where `state` is "old".

    Rows are Pair(left, right) whose keys are equal, weights multiplied: ZSet[Pair[L, R]]. It
    answers to rows of `change` only: those of r that come later make no pairs with it. NULL keys
    match nothing. Keeps r arranged by its key, and nothing of `change`. A step reads the keys of
    the change. Raises `CompileError` where the keys are not of one type, or for another `state`.
    The operator is that of seed 001, by which delta joins are made.

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
    if state == "new":
        known = linear.integrate_indexed(r, indexes=(on_right,))
    else:
        known = linear.integrate_delay_indexed(r, indexes=(on_right,))
    return linear.join(change, known, on_left=on_left, on_right=on_right)


def delta_join(base: ZSet[Any], *tables: Lookup[Any]) -> ZSet[Any]:
    """The changes of a join of many: the sum, over its inputs, of what a change of each one does.

    The term of an input reads the new state of the inputs before it, and the old state of those
    after (DBSP, theorem 3.4, for a product of many). See `stepping_spark.graph.delta_join` for the
    way each term takes. Rows are tuples, ZSet[tuple[B, R1, R2, …]], of a left lookup with `R |
    None`; weights multiply. A left lookup has a match, or None: where nothing has the key, and
    where the key is NULL, which no worker gathers.
    Keeps the inputs only, each arranged by the keys that it is looked up by: its own, and those
    that later lookups read from it. Nothing that is joined is kept. A step reads, for each term,
    the rows that its change leads to; of a left lookup also the rows of the keys that change.
    Raises `CompileError` for a lookup whose key is not made of fields and operators on them, or of
    which no part is read from one input alone.

    >>> def query(facts: st.ZSet[tuple[str, int]], users: st.ZSet[tuple[int, str]]) -> st.ZSet[
    ...     tuple[tuple[str, int], tuple[int, str]]
    ... ]:
    ...     user = st.Lookup(users, key=lambda u: u[0], on=lambda row: row[0][1])
    ...     return st.delta_join(facts, user)
    >>> step = st.ZSetPython({("tea", 1): 1}), st.ZSetPython({(1, "Ann"): 1})
    >>> (out,) = st.reference(st.compile(query)).step(step)
    >>> dict(out.iter())
    {(('tea', 1), (1, 'Ann')): 1}
    """
    operators = lookups.operators_of(base, tables)
    changes: list[Any] = [base, *(t.r for t in tables)]
    rows = [lookups.row_of(a) for a in changes]
    integrals: list[Any] = [linear.integrate(a) for a in changes]
    joined: Any = DeltaJoin[Any](rows, operators, changes, integrals, make).change()
    return cast("ZSet[Any]", joined)
