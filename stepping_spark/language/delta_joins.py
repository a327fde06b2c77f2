"""`st.Lookup`, one table of a delta join; its operator; and the join of the values of a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.delta_join import inputs_of, reached, within
from stepping_spark.circuit.operators import LookUp
from stepping_spark.expressions.functions import row_expr
from stepping_spark.expressions.index import Key, key_of, keys_where_null_is_equal
from stepping_spark.language.outer_joins import outer_join
from stepping_spark.language.primitives import KeyFunction, filter, map  # noqa: A004
from stepping_spark.language.trace import make, row_of
from stepping_spark.rows.types import Optional, tuple_of, unwrap
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
U = TypeVar("U")
Found = TypeVar("Found", covariant=True)  # for type checkers: `U | Any` if it may be None
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")


@dataclass(frozen=True)
class Lookup(Generic[Found]):
    """A table in which a `delta_join` looks rows up.

    `key` is the key of its rows: a function of a row, or an `st.Index`. `on` is the key to look up:
    a function of the tuple of all rows found so far, where `row[0]` is the row of the base,
    `row[1]` the row of the first lookup, and so on. Both may be tuples of several parts. `how` is
    "inner" or "left"; a left lookup keeps tuples without a match, with None for this table. With
    `null_safe=True`, NULL matches NULL. `where` is a further condition: a function of the tuple
    that includes the row found here. In a left lookup only rows for which it is true match, as with
    ON in SQL; the tuples of the lookups before it are then stored, by its key.

    >>> def query(a: st.ZSet[tuple[str, int]], b: st.ZSet[int]) -> st.ZSet[
    ...     tuple[tuple[str, int], int | None]
    ... ]:
    ...     table = st.Lookup(b, key=lambda n: n, on=lambda row: row[0][1], how="left")
    ...     return st.delta_join(a, table)
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({("x", 2): 1}), None))
    >>> dict(out.iter())
    {(('x', 2), None): 1}
    """

    r: ZSet[Any]
    key: KeyFunction[Any]
    on: Callable[[Any], Any]
    how: Literal["inner", "left"] = "inner"
    null_safe: bool = False
    where: Callable[[Any], object] | None = None

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Lookup[U],
            r: ZSet[U],
            key: KeyFunction[U],
            on: Callable[[Any], Any],
            how: Literal["inner"] = "inner",
            null_safe: bool = False,
            where: Callable[[Any], object] | None = None,
        ) -> None: ...
        @overload
        def __init__(
            self: Lookup[U | Any],
            r: ZSet[U],
            key: KeyFunction[U],
            on: Callable[[Any], Any],
            how: Literal["left"],
            null_safe: bool = False,
            where: Callable[[Any], object] | None = None,
        ) -> None: ...
        def __init__(self, *given: Any, **named: Any) -> None: ...


@overload
def delta_join(base: ZSet[T], a: Lookup[A], /, *, name: str | None = None) -> ZSet[tuple[T, A]]: ...
@overload
def delta_join(
    base: ZSet[T], a: Lookup[A], b: Lookup[B], /, *, name: str | None = None
) -> ZSet[tuple[T, A, B]]: ...
@overload
def delta_join(
    base: ZSet[T], a: Lookup[A], b: Lookup[B], c: Lookup[C], /, *, name: str | None = None
) -> ZSet[tuple[T, A, B, C]]: ...
@overload
def delta_join(
    base: ZSet[T],
    a: Lookup[A],
    b: Lookup[B],
    c: Lookup[C],
    d: Lookup[D],
    /,
    *,
    name: str | None = None,
) -> ZSet[tuple[T, A, B, C, D]]: ...
@overload
def delta_join(
    base: ZSet[T],
    a: Lookup[A],
    b: Lookup[B],
    c: Lookup[C],
    d: Lookup[D],
    e: Lookup[E],
    /,
    *,
    name: str | None = None,
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
    *,
    name: str | None = None,
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
    name: str | None = None,
) -> ZSet[tuple[Any, ...]]: ...
def delta_join(base: ZSet[Any], *lookups: Lookup[Any], name: str | None = None) -> ZSet[Any]:
    """base JOIN table1 ON … JOIN table2 ON …, of the values of one step: tuples (base, r1, r2, …).

    A left lookup without a match gives None. Keeps no state. Raises `CompileError` in the same
    cases as `st.delta_join`.
    """
    at = _conditional(lookups)
    if at is not None:
        return _around(base, lookups, at)
    joined: Any = base
    operators = _operators_of(base, lookups)
    for n, (operator, lookup) in enumerate(zip(operators, lookups, strict=True), 1):
        joined = make(operator, joined, lookup.r, name=name if n == len(lookups) else None)
    return _chosen(joined, lookups)


def _conditional(lookups: Sequence[object]) -> int | None:
    """The position of the first left lookup with a condition; None if there is none."""
    for at, x in enumerate(lookups):
        if isinstance(x, Lookup) and x.how == "left" and x.where is not None:
            return at
    return None


def _around(base: ZSet[Any], lookups: Sequence[Lookup[Any]], at: int) -> ZSet[Any]:
    """The tuples of lookups where the one at position `at` is a left lookup with a condition.

    With a condition, whether a tuple has a match depends on the whole tuple, not on its key alone.
    So the lookups before it are joined first, their tuples are joined with its table by an outer
    join, and the lookups after it are joined to those.
    """
    before, lookup, after = lookups[:at], lookups[at], lookups[at + 1 :]
    joined: Any = delta_join(base, *before) if before else map(base, f=lambda row: (row,))
    where = lookup.where
    assert where is not None
    pairs = outer_join(
        joined,
        lookup.r,
        on_left=lookup.on,
        on_right=lookup.key,
        where=lambda p: where((*(p.left[i] for i in range(at + 1)), p.right)),
        null_safe=lookup.null_safe,
    )
    tuples = map(pairs, f=lambda p: (*(p.left[i] for i in range(at + 1)), p.right))
    if not after:
        return tuples

    def flat(row: Any, more: int) -> tuple[Any, ...]:
        return (*(row[0][i] for i in range(at + 2)), *(row[i] for i in range(1, more + 1)))

    moved = [
        _over(x, partial(flat, more=n), partial(flat, more=n + 1)) for n, x in enumerate(after)
    ]
    return map(delta_join(tuples, *moved), f=partial(flat, more=len(after)))


def _over(
    lookup: Lookup[Any], for_key: Callable[[Any], Any], for_where: Callable[[Any], Any]
) -> Lookup[Any]:
    """A lookup for tuples of another form; the functions convert them to the form that it reads."""
    on, where = lookup.on, lookup.where
    moved = None if where is None else lambda row: where(for_where(row))
    return dataclasses.replace(lookup, on=lambda row: on(for_key(row)), where=moved)


def _chosen(joined: ZSet[Any], lookups: Sequence[Lookup[Any]]) -> ZSet[Any]:
    """The tuples for which the conditions of all lookups are true."""
    for lookup in lookups:
        if lookup.where is not None:
            joined = filter(joined, lookup.where)
    return joined


def _operators_of(base: object, lookups: Sequence[Lookup[Any]]) -> list[LookUp]:
    """The operators of a join's lookups. Raises `CompileError` for lookups it does not support."""
    if not lookups:
        raise CompileError(f"{user_line()}: delta_join needs at least one st.Lookup to look up in")
    members = [row_of(base, "delta_join")]
    operators: list[LookUp] = []
    for place, lookup in enumerate(lookups, 1):
        if not isinstance(lookup, Lookup):
            raise CompileError(
                f"{user_line()}: delta_join takes a stream and then lookups, found {lookup!r}; "
                "write st.Lookup(table, key=…, on=…)"
            )
        if lookup.how not in ("inner", "left"):
            raise CompileError(
                f"{user_line()}: how={lookup.how!r} of a Lookup; it is 'inner' or 'left'"
            )
        if type(lookup.null_safe) is not bool:
            raise CompileError(
                f"{user_line()}: null_safe={lookup.null_safe!r} of a Lookup; it is True or False"
            )
        left = lookup.how == "left"
        row = row_of(lookup.r, "delta_join")
        looked_for = Key(row_expr(lookup.on, tuple_of(members)))
        looked_for = Key(looked_for.expr, (True,) * len(looked_for.parts))
        by = key_of(lookup.key, row, f"key of lookup {place}")
        if lookup.null_safe:
            looked_for, by = keys_where_null_is_equal(looked_for, by)
        on, key = looked_for.parts, by.parts
        lefts = {i for i, op in enumerate(operators, 1) if op.left}
        if lookup.null_safe and any(inputs_of(part) & lefts for part in on):
            raise CompileError(
                f"{user_line()}: null_safe of lookup {place}, which reads a left one before it: no "
                "key leads back to the rows that have None there; st.join that table with what the "
                "lookups before it give"
            )
        reached(on, lefts)
        for part in key:
            inputs_of(part.under("_1"))
        if place == 1:  # here the base is not in a tuple yet
            on = tuple(within(part, members[0]) for part in on)
        operators.append(LookUp(on, key, place, left=left, optional=left, bare=place == 1))
        members.append(Optional(unwrap(row)) if left else row)
    return operators
