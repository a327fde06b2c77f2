"""Queries that tests of every evaluator share: on changes, and the same on whole tables.

Their functions of rows are operators on fields, or `st.python`, so that plain Python can evaluate
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, cast

import stepping_spark as st
from stepping_spark import linear

Z = st.ZSetPython
Cents = Annotated[Decimal, st.Precision(20, 2)]


class Order(st.Data):
    id: int
    user: str | None
    amount: float
    price: Decimal
    n: int | None
    rush: bool


class User(st.Data):
    name: str | None
    city: str
    limit: float | None
    budget: Cents


class Sums(st.Data):
    n: int | None
    amount: float
    price: Decimal
    budget: float


class Line(st.Data):
    order: int
    city: str
    over: bool | None
    left: Decimal


BY_USER = st.Index.pick(Order, lambda o: o.user)
BY_NAME = st.Index.pick(User, lambda u: u.name)
BY_USER_AND_RUSH = st.Index.pick(Order, lambda o: (o.user, o.rush), ascending=(False, True))


@dataclass(frozen=True)
class Query:
    """A query on changes, and the one on whole tables whose changes it gives."""

    name: str
    changes: Callable[..., Any]
    whole: Callable[..., Any]
    rows: tuple[Any, ...]  # the type of the rows of each input

    def __str__(self) -> str:
        return self.name


QUERIES: list[Query] = []
Make = Callable[[Any], Callable[..., Any]]


def on_changes_and_tables(name: str, *rows: Any) -> Callable[[Make], Make]:
    """Register a function that writes the query with the operators of `st`, or of `st.linear`."""

    def register(make: Make) -> Make:
        QUERIES.append(Query(name, make(st), make(linear), rows))
        return make

    return register


# -- linear operators


@on_changes_and_tables("filter and map", Order)
def filter_and_map(_: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[tuple[str | None, float]]:
        kept = st.filter(a, f=lambda o: (o.amount > 1) | (cast(Any, o.n) < 0))
        return st.map(kept, f=lambda o: (o.user, o.amount * 2))

    return query


@on_changes_and_tables("map many", Order)
def map_many(_: Any) -> Callable[..., Any]:
    def letters(o: Order) -> list[str]:
        return list(o.user or "")

    def query(a: st.ZSet[Order]) -> st.ZSet[str]:
        return st.map_many(a, f=st.python(letters))

    return query


@on_changes_and_tables("functions in Python", Order)
def python_functions(_: Any) -> Callable[..., Any]:
    def initial(o: Order) -> str | None:
        return o.user[:1] if o.user is not None else None

    def query(a: st.ZSet[Order]) -> st.ZSet[str | None]:
        kept = st.filter(a, f=st.python(lambda o: o.id % 2 == 1, to=bool))
        return st.map(kept, f=st.python(initial))

    return query


@on_changes_and_tables("sums of streams", Order, Order)
def sums_of_streams(_: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order], b: st.ZSet[Order]) -> st.ZSet[Order]:
        return st.add3(a, st.neg(b), st.add(a, a))

    return query


@on_changes_and_tables("several outputs", Order)
def several_outputs(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> tuple[st.ZSet[int], st.ZSet[Order], st.ZSet[str | None]]:
        users: st.ZSet[str | None] = st.map(a, f=lambda o: o.user)
        return ops.count(a), a, ops.distinct(users)

    return query


# -- joins


@on_changes_and_tables("join", Order, User)
def join(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order], b: st.ZSet[User]) -> st.ZSet[st.Pair[Order, User]]:
        joined: st.ZSet[st.Pair[Order, User]] = ops.join(a, b, on_left=BY_USER, on_right=BY_NAME)
        return joined

    return query


@on_changes_and_tables("join by two fields", Order, Order)
def join_by_two_fields(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order], b: st.ZSet[Order]) -> st.ZSet[st.Pair[Order, Order]]:
        by = BY_USER_AND_RUSH
        joined: st.ZSet[st.Pair[Order, Order]] = ops.join(a, b, on_left=by, on_right=by)
        return joined

    return query


@on_changes_and_tables("join by a computed float", Order, User)
def join_by_float(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order], b: st.ZSet[User]) -> st.ZSet[st.Pair[Order, User]]:
        joined: st.ZSet[st.Pair[Order, User]] = ops.join(
            a, b, on_left=lambda o: o.amount * -1, on_right=lambda u: u.limit
        )
        return joined

    return query


@on_changes_and_tables("join with itself", Order)
def join_with_itself(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[st.Pair[Order, Order]]:
        joined: st.ZSet[st.Pair[Order, Order]] = ops.join(a, a, on_left=BY_USER, on_right=BY_USER)
        return joined

    return query


@on_changes_and_tables("join by whole rows", Order, Order)
def join_by_whole_rows(ops: Any) -> Callable[..., Any]:
    def query(
        a: st.ZSet[Order], b: st.ZSet[Order]
    ) -> st.ZSet[st.Pair[st.Pair[Order, Order], Order]]:
        twice = ops.join(a, b, on_left=lambda o: o, on_right=st.Index.identity(Order))
        joined: st.ZSet[st.Pair[st.Pair[Order, Order], Order]] = ops.join(
            twice, a, on_left=lambda p: p.right, on_right=lambda o: o
        )
        return joined

    return query


@on_changes_and_tables("join of a number with a field", Order)
def join_of_a_number(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[st.Pair[Order, int]]:
        ids: st.ZSet[int] = st.map(a, f=lambda o: o.id + 1)
        joined: st.ZSet[st.Pair[Order, int]] = ops.join(
            a, ids, on_left=lambda o: o.id, on_right=lambda n: n
        )
        return joined

    return query


@on_changes_and_tables("join of three", Order, User, Order)
def join_of_three(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order], b: st.ZSet[User], c: st.ZSet[Order]) -> st.ZSet[Line]:
        two = ops.join(a, b, on_left=BY_USER, on_right=BY_NAME)
        three = ops.join(two, c, on_left=lambda p: p.left.id, on_right=lambda o: o.id)
        lines: st.ZSet[Line] = ops.map(
            three,
            f=lambda p: Line(
                order=p.right.id,
                city=p.left.right.city,
                over=p.left.left.amount > p.left.right.limit,
                left=p.left.right.budget - p.left.left.id,
            ),
        )
        return lines

    return query


# -- distinct


@on_changes_and_tables("distinct", Order)
def distinct(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[Order]:
        kept: st.ZSet[Order] = ops.distinct(a)
        return kept

    return query


@on_changes_and_tables("distinct floats", Order)
def distinct_floats(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[float]:
        kept: st.ZSet[float] = ops.distinct(st.map(a, f=lambda o: o.amount * -1))
        return kept

    return query


@on_changes_and_tables("distinct of a join of distincts", Order, User)
def distinct_of_join(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order], b: st.ZSet[User]) -> st.ZSet[tuple[bool, str]]:
        users = ops.distinct(b)
        joined = ops.join(ops.distinct(a), users, on_left=BY_USER, on_right=BY_NAME)
        seen: st.ZSet[tuple[bool, str]] = ops.distinct(
            st.map(joined, f=lambda p: (p.left.rush, p.right.city))
        )
        return seen

    return query


# -- the first row of each group


def _least(by: Any, order: Any) -> Make:
    def make(ops: Any) -> Callable[..., Any]:
        def query(a: st.ZSet[Order]) -> st.ZSet[Order]:
            if ops is linear:
                return linear.least(a, by=by, order=order)
            return st.differentiate(linear.least(st.integrate(a), by=by, order=order))

        return query

    return make


on_changes_and_tables("least float of each user", Order)(_least(BY_USER, lambda o: o.amount))
on_changes_and_tables("least by two, one of them descending", Order)(
    _least(
        lambda o: o.rush,
        st.Index.pick(Order, lambda o: (o.n, o.user), ascending=(False, True)),
    )
)


# -- sums: of each kind, over the whole and by key


def _no_sums() -> Sums:
    return Sums(n=0, amount=0.0, price=Decimal(0), budget=0.0)


def _sums(o: Order) -> Sums:
    return Sums(n=o.n, amount=o.amount, price=o.price, budget=o.amount * 3)


SUMS: dict[str, tuple[Any, Callable[[], Any], Callable[[Order], Any]]] = {
    "ints": (int, lambda: 0, lambda o: o.id * 3),
    "ints or NULL": (int, lambda: 0, lambda o: o.n),
    "floats": (float, lambda: 0.0, lambda o: o.amount),
    "Decimals": (Decimal, lambda: Decimal(0), lambda o: o.price),
    "rows of numbers": (Sums, _no_sums, _sums),
    "rows": (Z[Order], Z, st.agg.collect(lambda o: o)),
    "values": (Z[str | None], Z, st.agg.collect(lambda o: o.user)),
    "floats of Python": (float, lambda: 0.0, st.python(lambda o: o.amount / 3, to=float)),
}


def _reduce(kind: str) -> Make:
    v, zero, pick = SUMS[kind]

    def make(ops: Any) -> Callable[..., Any]:
        def query(a: st.ZSet[Order]) -> Any:
            return ops.reduce(a, zero=zero, pick_value=pick)

        return annotated(query, generic(st.ZSet, v))

    return make


def _grouped(kind: str, key: Any, by: Any) -> Make:
    v, zero, pick = SUMS[kind]

    def make(ops: Any) -> Callable[..., Any]:
        def query(a: st.ZSet[Order]) -> Any:
            return ops.group_reduce_flatten(a, by=by, zero=zero, pick_value=pick)

        return annotated(query, generic(st.ZSet, generic(st.Pair, (v, key))))

    return make


def generic(cls: Any, arguments: Any) -> Any:
    """cls[arguments], where those are known only now."""
    return cls[arguments]


def annotated(query: Callable[..., Any], gives: Any) -> Callable[..., Any]:
    """The query, its return annotated with a type that is known only now."""
    query.__annotations__["return"] = gives
    return query


for _kind in SUMS:
    on_changes_and_tables(f"reduce {_kind}", Order)(_reduce(_kind))
    on_changes_and_tables(f"group {_kind} by user", Order)(_grouped(_kind, str | None, BY_USER))
on_changes_and_tables("group floats by float", Order)(
    _grouped("floats", float, lambda o: o.amount * -1)
)
on_changes_and_tables("group Decimals by user and rush", Order)(
    _grouped("Decimals", tuple[str | None, bool], BY_USER_AND_RUSH)
)


@on_changes_and_tables("count", Order)
def count(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[int]:
        counted: st.ZSet[int] = ops.count(a)
        return counted

    return query


@on_changes_and_tables("groups of a join, grouped again", Order, User)
def groups_of_groups(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order], b: st.ZSet[User]) -> st.ZSet[st.Pair[int, float]]:
        joined = ops.join(a, b, on_left=BY_USER, on_right=BY_NAME)
        by_city = ops.group_reduce_flatten(
            joined, by=lambda p: p.right.city, zero=float, pick_value=lambda p: p.left.amount
        )
        how_often: st.ZSet[st.Pair[int, float]] = ops.group_reduce_flatten(
            by_city, by=lambda g: g.left, zero=int, pick_value=lambda g: 1
        )
        return how_often

    return query
