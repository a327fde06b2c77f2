"""Incremental joins of many tables that store no joined rows."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar, overload

from circuits.joins.outer import outer_join
from stepping_spark.query import lookups
from stepping_spark.query.lookups import Lookup
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")


@overload
def delta_join(base: ZSet[T], a: Lookup[A], /) -> ZSet[tuple[T, A]]: ...
@overload
def delta_join(base: ZSet[T], a: Lookup[A], b: Lookup[B], /) -> ZSet[tuple[T, A, B]]: ...
@overload
def delta_join(
    base: ZSet[T], a: Lookup[A], b: Lookup[B], c: Lookup[C], /
) -> ZSet[tuple[T, A, B, C]]: ...
@overload
def delta_join(
    base: ZSet[T], a: Lookup[A], b: Lookup[B], c: Lookup[C], d: Lookup[D], /
) -> ZSet[tuple[T, A, B, C, D]]: ...
@overload
def delta_join(
    base: ZSet[T], a: Lookup[A], b: Lookup[B], c: Lookup[C], d: Lookup[D], e: Lookup[E], /
) -> ZSet[tuple[T, A, B, C, D, E]]: ...
@overload
def delta_join(
    base: ZSet[T],
    a: Lookup[A],
    b: Lookup[B],
    c: Lookup[C],
    d: Lookup[D],
    e: Lookup[E],
    f: Lookup[F],
    /,
) -> ZSet[tuple[T, A, B, C, D, E, F]]: ...
@overload
def delta_join(
    base: ZSet[Any],
    a: Lookup[Any],
    b: Lookup[Any],
    c: Lookup[Any],
    d: Lookup[Any],
    e: Lookup[Any],
    f: Lookup[Any],
    /,
    *more: Lookup[Any],
) -> ZSet[tuple[Any, ...]]: ...
def delta_join(base: ZSet[Any], *tables: Lookup[Any]) -> ZSet[Any]:
    """The rows of base JOIN table1 ON … JOIN table2 ON …, kept up to date by their changes.

    The change of the join is the sum of one term for each input. The term of an input joins its
    change with the new state of the inputs before it and the old state of those after it (DBSP,
    theorem 3.4, for a product of many). See `stepping_spark.graph.delta_join` for the order of the
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
    """
    at = lookups.conditional(tables)
    if at is None:
        return lookups.joined(base, tables)
    return lookups.around(base, tables, at, delta_join, partial(outer_join, how="left"))
