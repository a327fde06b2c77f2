"""Queries that tests of every evaluator share: on changes, and the same on whole tables.

Their functions of rows are operators on fields, or `st.python`, so that plain Python can evaluate
them.
"""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, cast

from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.language import linear
from tests.cases import Z
from tests.strategies import Number

MAYBE_STR: Any = str | None
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


class Color(enum.Enum):
    RED = "red"
    BLUE = "blau"


class Thing(st.Data):
    """A field of each of the types that Order has not."""

    raw: bytes
    day: dt.date
    at: dt.datetime
    local: st.LocalDateTime
    span: dt.timedelta
    key: uuid.UUID
    color: Color
    flags: list[bool | None]
    both: tuple[int, uuid.UUID]
    user: User
    pair: st.Pair[dt.date, Color]


class Some(st.Data):
    """The same, each perhaps NULL."""

    raw: bytes | None
    day: dt.date | None
    at: dt.datetime | None
    local: st.LocalDateTime | None
    span: dt.timedelta | None
    key: uuid.UUID | None
    color: Color | None
    flags: list[bool | None] | None
    both: tuple[int, uuid.UUID] | None
    user: User | None
    pair: st.Pair[dt.date, Color] | None


BY_USER = st.Index.pick(Order, lambda o: o.user)
BY_NAME = st.Index.pick(User, lambda u: u.name)
BY_USER_AND_RUSH = st.Index.pick(Order, lambda o: (o.user, o.rush), ascending=(False, True))


@dataclass(frozen=True)
class Circuit:
    """A query on streams."""

    name: str
    changes: Callable[..., Any]
    rows: tuple[Any, ...]  # the type of the rows of each input, or Number

    def __str__(self) -> str:
        return self.name

    @property
    def in_spark(self) -> Callable[..., Any]:
        """The same query as Spark is to run it."""
        return self.changes


@dataclass(frozen=True)
class Query(Circuit):
    """A query on changes, and the one on whole tables whose changes it gives."""

    whole: Callable[..., Any]
    of_columns: Callable[..., Any] | None = None  # with functions that plain Python has not

    @property
    def in_spark(self) -> Callable[..., Any]:
        return self.changes if self.of_columns is None else self.of_columns


QUERIES: list[Query] = []
CIRCUITS: list[Circuit] = []  # whose outputs add up to no query on tables
Make = Callable[[Any], Callable[..., Any]]


def on_changes_and_tables(name: str, *rows: Any) -> Callable[[Make], Make]:
    """Register a function that writes the query with the operators of `st`, or of `st.linear`."""

    def register(make: Make) -> Make:
        QUERIES.append(Query(name, make(st), rows, make(linear)))
        return make

    return register


def on_streams(name: str, *rows: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a query whose values belong to their steps."""

    def register(query: Callable[..., Any]) -> Callable[..., Any]:
        CIRCUITS.append(Circuit(name, query, rows))
        return query

    return register


def generic(cls: Any, arguments: Any) -> Any:
    """cls[arguments], where those are known only now."""
    return cls[arguments]


def annotated(query: Callable[..., Any], gives: Any) -> Callable[..., Any]:
    """The query, its return annotated with a type that is known only now."""
    query.__annotations__["return"] = gives
    return query


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


@on_changes_and_tables("lists", Order)
def lists(_: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[int | None]:
        f: Any = lambda o: [o.id, o.n, o.id + 1]  # noqa: E731
        return st.map_many(a, f=f)

    return query


@on_changes_and_tables("explode", Order)
def explode(_: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[tuple[str | None, bool]]:
        f: Any = lambda o: [((o.user, o.rush), o.id % 3), ((o.user, True), -2)]  # noqa: E731
        return st.explode(a, f=f)

    return query


@on_changes_and_tables("explode in Python", Order)
def explode_in_python(_: Any) -> Callable[..., Any]:
    def letters(o: Order) -> list[tuple[str, int]]:
        return [(letter, i - 1) for i, letter in enumerate(o.user or "")]

    def query(a: st.ZSet[Order]) -> st.ZSet[str]:
        return st.explode(a, f=st.python(letters))

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


# -- semijoins and outer joins


@on_changes_and_tables("semijoin", Order, User)
def semijoin(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order], b: st.ZSet[User]) -> st.ZSet[Order]:
        kept: st.ZSet[Order] = ops.semijoin(a, b, on_left=BY_USER, on_right=BY_NAME)
        return kept

    return query


@on_changes_and_tables("antijoin by two fields", Order, Order)
def antijoin(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order], b: st.ZSet[Order]) -> st.ZSet[Order]:
        by = BY_USER_AND_RUSH
        kept: st.ZSet[Order] = ops.antijoin(a, b, on_left=by, on_right=by)
        return kept

    return query


@on_changes_and_tables("antijoin of values by themselves", Order, User)
def antijoin_of_values(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order], b: st.ZSet[User]) -> st.ZSet[float]:
        amounts: st.ZSet[float] = st.map(a, f=lambda o: o.amount * -1)
        kept: st.ZSet[float] = ops.antijoin(
            amounts, b, on_left=lambda x: x, on_right=lambda u: u.limit
        )
        return kept

    return query


@on_changes_and_tables("semijoin by whole rows", Order, Order)
def semijoin_by_rows(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order], b: st.ZSet[Order]) -> st.ZSet[Order]:
        kept: st.ZSet[Order] = ops.semijoin(a, b, on_left=lambda o: o, on_right=lambda o: o)
        return kept

    return query


def _outer(how: str, gives: Any) -> Make:
    def make(ops: Any) -> Callable[..., Any]:
        def query(a: st.ZSet[Order], b: st.ZSet[User]) -> Any:
            return ops.outer_join(a, b, on_left=BY_USER, on_right=BY_NAME, how=how)

        return annotated(query, gives)

    return make


for _how, _gives in (
    ("left", st.ZSet[st.Pair[Order, User | None]]),
    ("right", st.ZSet[st.Pair[Order | None, User]]),
    ("full", st.ZSet[st.Pair[Order | None, User | None]]),
):
    on_changes_and_tables(f"{_how} join", Order, User)(_outer(_how, _gives))


@on_changes_and_tables("full join of values with those of a left join", Order)
def full_join_of_values(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[st.Pair[str | None, str | None]]:
        numbers: st.ZSet[int | None] = st.map(a, f=lambda o: o.n)
        users: st.ZSet[tuple[int, str | None]] = st.map(a, f=lambda o: (o.id, o.user))
        some = ops.outer_join(numbers, users, on_left=lambda n: n, on_right=lambda r: r[0])
        named: st.ZSet[str | None] = st.map(some, f=lambda p: p.right[1])
        own: st.ZSet[str | None] = st.map(a, f=lambda o: o.user)
        joined: st.ZSet[st.Pair[str | None, str | None]] = ops.outer_join(
            named, own, on_left=lambda s: s, on_right=lambda s: s, how="full"
        )
        return joined

    return query


@on_changes_and_tables("joins on NULL, and with conditions", Order, User)
def joins_with_conditions(ops: Any) -> Callable[..., Any]:
    def below(p: Any) -> Any:
        return p.left.amount < p.right.limit

    def query(
        a: st.ZSet[Order], b: st.ZSet[User]
    ) -> tuple[
        st.ZSet[st.Pair[Order | None, User | None]],
        st.ZSet[st.Pair[Order, int | None]],
        st.ZSet[st.Pair[Order, User]],
    ]:
        on: Any = {"on_left": BY_USER, "on_right": BY_NAME}
        many = st.filter(ops.count(b), f=lambda n: n > 2)
        return (
            ops.outer_join(a, b, **on, how="full", null_safe=True, where=below),
            ops.cross_join(a, many, how="left"),
            ops.range_join(
                a,
                b,
                at=lambda o: o.amount,
                low=lambda u: u.limit,
                high=lambda u: u.limit + 1,
                width=1,
            ),
        )

    return query


# -- delta joins


@on_changes_and_tables("delta join", Order, User, Order)
def delta_join(ops: Any) -> Callable[..., Any]:
    def query(
        a: st.ZSet[Order], b: st.ZSet[User], c: st.ZSet[Order]
    ) -> st.ZSet[tuple[Order, User, Order]]:
        joined: st.ZSet[tuple[Order, User, Order]] = ops.delta_join(
            a,
            st.Lookup(b, key=BY_NAME, on=lambda row: row[0].user),
            st.Lookup(c, key=lambda o: o.user, on=lambda row: row[1].city),
        )
        return joined

    return query


@on_changes_and_tables("delta join of a table with itself", Order)
def delta_join_with_itself(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[tuple[Order, Order | None, Order]]:
        joined: st.ZSet[tuple[Order, Order | None, Order]] = ops.delta_join(
            a,
            st.Lookup(a, key=lambda o: o.id, on=lambda row: row[0].n, how="left"),
            st.Lookup(a, key=lambda o: o.user, on=lambda row: row[0].user),
        )
        return joined

    return query


@on_changes_and_tables("left delta join", Order, User, Order, User)
def left_delta_join(ops: Any) -> Callable[..., Any]:
    def query(
        a: st.ZSet[Order], b: st.ZSet[User], c: st.ZSet[Order], d: st.ZSet[User]
    ) -> st.ZSet[tuple[Order, User | None, Order | None, User | None]]:
        joined: st.ZSet[tuple[Order, User | None, Order | None, User | None]] = ops.delta_join(
            a,
            st.Lookup(b, key=BY_NAME, on=lambda row: row[0].user, how="left"),
            st.Lookup(c, key=BY_USER, on=lambda row: row[1].city, how="left"),
            st.Lookup(d, key=lambda u: u.limit, on=lambda row: row[2].amount, how="left"),
        )
        return joined

    return query


@on_changes_and_tables("delta join of values, by parts of several", Order, User, Order)
def delta_join_by_parts(ops: Any) -> Callable[..., Any]:
    def query(
        a: st.ZSet[Order], b: st.ZSet[User], c: st.ZSet[Order]
    ) -> st.ZSet[tuple[Order, str | None, Order | None, str | None]]:
        names: st.ZSet[str | None] = st.map(b, f=lambda u: u.name)
        joined: st.ZSet[tuple[Order, str | None, Order | None, str | None]] = ops.delta_join(
            a,
            st.Lookup(names, key=lambda n: n, on=lambda row: row[0].user, how="left"),
            st.Lookup(
                c,
                key=lambda o: (o.user, o.rush, o.n),
                on=lambda row: (row[1], row[0].rush, row[0].id + 0),
                how="left",
            ),
            st.Lookup(names, key=lambda n: (n, n), on=lambda row: (row[2].user, row[0].user)),
        )
        return joined

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
            first: st.ZSet[Order] = ops.first_n(a, order, 1, by=by)
            return first

        return query

    return make


on_changes_and_tables("least float of each user", Order)(_least(BY_USER, lambda o: o.amount))
on_changes_and_tables("least by two, one of them descending", Order)(
    _least(
        lambda o: o.rush,
        st.Index.pick(Order, lambda o: (o.n, o.user), ascending=(False, True)),
    )
)


# -- unions, intersections, differences


@on_changes_and_tables("unions, intersections and differences", Order, Order)
def sets_of_rows(ops: Any) -> Callable[..., Any]:
    def query(
        a: st.ZSet[Order], b: st.ZSet[Order]
    ) -> tuple[
        st.ZSet[Order],
        st.ZSet[str | None],
        st.ZSet[Order],
        st.ZSet[str | None],
        st.ZSet[Order],
        st.ZSet[float],
        st.ZSet[str | None],
    ]:
        names: list[st.ZSet[str | None]] = [st.map(x, f=lambda o: o.user) for x in (a, b)]
        amounts: list[st.ZSet[float]] = [st.map(x, f=lambda o: o.amount * -1) for x in (a, b)]
        return (
            ops.union(a, b),
            ops.intersect(*names),
            ops.intersect(a, b, all=True),
            ops.except_(*names),
            ops.except_(a, b, all=True),
            ops.union(ops.except_(*amounts), amounts[0], all=True),
            ops.symmetric_difference(*names),
        )

    return query


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


# -- numbers


@on_changes_and_tables("numbers", Order, Number(int), Number(float), Number(Decimal))
def numbers(_: Any) -> Callable[..., Any]:
    def query(
        a: st.ZSet[Order], n: int, x: float, d: Decimal
    ) -> tuple[int, float, Decimal, int, st.ZSet[int]]:
        ids: int = st.make_scalar(a, pick_value=lambda o: o.id)
        halves: float = st.make_scalar(a, pick_value=lambda o: o.id * 0.5)
        prices = st.make_scalar(a, pick_value=lambda o: o.price)
        rushed: int = st.make_scalar(st.map(a, f=st.python(lambda o: int(o.rush), to=int)))
        more = st.add(n, ids)
        return more, st.add3(x, st.neg(halves), x), st.add(d, prices), rushed, st.map(a, f=_id)

    return query


def _id(o: Order) -> int:
    return o.id


@on_streams("delays, integrals and differences of numbers", *map(Number, (int, float, Decimal)))
def streams_of_numbers(
    n: int, x: float, d: Decimal
) -> tuple[int, float, Decimal, int, float, Decimal, st.ZSet[float], st.ZSet[int]]:
    sums = st.integrate(x)
    return (
        st.delay(n),
        st.delay(st.delay(x)),
        st.integrate_delay(d),
        st.differentiate(n),
        st.add(st.delay(sums), st.neg(x)),
        st.differentiate(st.differentiate(d)),
        st.make_set(sums),
        st.integrate(st.make_set(st.delay(n))),
    )


@on_streams("loops of numbers", *map(Number, (int, float, Decimal)))
def loops_of_numbers(n: int, x: float, d: Decimal) -> tuple[int, float, Decimal]:
    with st.feedback(int) as y:
        doubled = st.add3(n, y, y)
        y.connect(st.delay(doubled))
    with st.feedback(float) as z:
        negated = st.add(x, st.neg(z))
        z.connect(st.delay(negated))
    with st.feedback(Decimal) as w:
        late = st.delay(st.add(d, w))
        w.connect(st.delay(late))
    return doubled, negated, late


# -- streams of Z-sets


@on_streams("delays, integrals and differences", Order)
def delays_and_integrals(
    a: st.ZSet[Order],
) -> tuple[
    st.ZSet[Order],
    st.ZSet[Order],
    st.ZSet[Order],
    st.ZSet[Order],
    st.ZSet[Order],
    st.ZSet[Order],
]:
    by_id = st.Index.pick(Order, lambda o: o.id)
    return (
        st.identity_print(st.delay(st.delay(a)), "the step before the last"),
        st.delay_indexed(a, indexes=(BY_USER, by_id)),
        st.differentiate(a),
        st.differentiate(st.delay(st.integrate(a))),
        st.integrate_indexed(st.filter(a, f=lambda o: o.rush), indexes=(BY_USER,)),
        st.add(st.integrate(st.integrate(a)), st.neg(st.integrate_delay(a))),
    )


@on_streams("joins and sums of delays", Order, User)
def joins_of_delays(
    a: st.ZSet[Order], b: st.ZSet[User]
) -> tuple[
    st.ZSet[st.Pair[Order, User]],
    st.ZSet[st.Pair[float, str | None]],
    st.ZSet[st.Pair[Decimal, str | None]],
    st.ZSet[st.ZSetPython[str | None]],
    st.ZSet[Order],
]:
    late = st.delay_indexed(a, indexes=(BY_USER,))
    known = st.integrate_delay_indexed(b, indexes=(BY_NAME,))
    joined = linear.join(late, known, on_left=BY_USER, on_right=BY_NAME)
    sums = st.group_reduce_flatten(
        st.differentiate(a), by=BY_USER, zero=float, pick_value=lambda o: o.amount
    )
    groups = linear.accumulate(a, by=BY_USER, zero=Decimal, pick_value=lambda o: o.price)
    names = linear.total(a, zero=Z, pick_value=st.agg.collect(lambda o: o.user))
    return (
        joined,
        sums,
        linear.flatten(st.delay(groups)),
        st.make_set(st.delay(names)),
        st.haitch(st.add(st.integrate_delay(a), late), st.neg(a)),
    )


@on_streams("loops", Order)
def loops(a: st.ZSet[Order]) -> tuple[st.ZSet[Order], st.ZSet[Order], st.ZSet[str | None]]:
    with st.feedback(st.ZSet[Order]) as y:
        summed = st.add(a, y)
        y.connect(st.delay(summed))
    with st.feedback(st.ZSet[Order]) as z:
        seen = linear.distinct(st.add(a, st.filter(z, f=lambda o: o.rush)))
        z.connect(st.delay(seen))
    with st.feedback(st.ZSet[str | None]) as w:
        users: st.ZSet[str | None] = st.map(a, f=lambda o: o.user)
        late = st.delay(st.add(st.neg(w), users))
        w.connect(late)
    return summed, seen, late


# -- fields of every type


@on_changes_and_tables("fields of every type", Thing, Some)
def fields_of_every_type(ops: Any) -> Callable[..., Any]:
    def query(
        a: st.ZSet[Thing], b: st.ZSet[Some]
    ) -> tuple[
        st.ZSet[Thing],
        st.ZSet[st.Pair[Thing, Some]],
        st.ZSet[st.Pair[Some, Thing]],
        st.ZSet[st.Pair[st.ZSetPython[Some], tuple[dt.timedelta | None, uuid.UUID | None]]],
        st.ZSet[tuple[uuid.UUID, Color, User]],
    ]:
        parts = st.map(a, f=lambda t: (t.both[1], t.pair.right, t.user))
        return (
            ops.distinct(a),
            ops.join(
                a,
                b,
                on_left=lambda t: (t.raw, t.day, t.at),
                on_right=lambda t: (t.raw, t.day, t.at),
            ),
            ops.join(
                b, a, on_left=lambda t: (t.key, t.color), on_right=lambda t: (t.key, t.pair.right)
            ),
            ops.group_reduce_flatten(
                b, by=lambda t: (t.span, t.key), zero=Z, pick_value=st.agg.collect(lambda t: t)
            ),
            ops.distinct(parts),
        )

    return query


# -- functions that only Spark has, beside operators


class Words(st.Data):
    """What plain Python makes of an order, for the functions that Spark has."""

    order: Order
    lower: str | None
    length: int | None
    size: float


def _words(o: Order) -> Words:
    length = None if o.user is None else len(o.user)
    lower = None if o.user is None else o.user.lower()
    return Words(order=o, lower=lower, length=length, size=abs(o.amount))


def _texts(o: Order) -> list[str]:
    return [] if o.n is None else [str(o.id), str(o.n)]


class Functions(st.Data):
    lower: str | None
    twice: float


Of = tuple[
    st.ZSet[Functions],
    st.ZSet[str],
    st.ZSet[st.Pair[Order, Order]],
    st.ZSet[st.Pair[float, int | None]],
]


def of_columns(ops: Any) -> Callable[..., Any]:
    def texts(o: Any) -> Any:
        return F.when(o.n.isNotNull(), F.array(o.id.cast("string"), o.n.cast("string")))

    def query(a: st.ZSet[Order]) -> Of:
        rushed: st.ZSet[Order] = st.filter(
            a, f=lambda o: o.rush | (F.length(cast(Any, o.user)) > 3)
        )
        joined: st.ZSet[st.Pair[Order, Order]] = ops.join(
            a, rushed, on_left=lambda o: F.lower(o.user), on_right=lambda o: F.lower(o.user)
        )
        sums: st.ZSet[st.Pair[float, int | None]] = ops.group_reduce_flatten(
            a,
            by=lambda o: F.length(o.user).cast("bigint"),
            zero=float,
            pick_value=lambda o: F.abs(o.amount) * 2,
        )
        mapped = st.map(
            a,
            f=lambda o: Functions(lower=cast(Any, F.lower(cast(Any, o.user))), twice=o.amount * 2),
        )
        return mapped, st.map_many(a, f=texts, to=str), joined, sums

    return query


def in_plain_python(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> Of:
        words = st.map(a, f=st.python(_words))
        rushed = st.filter(words, f=lambda w: w.order.rush | (cast(Any, w.length) > 3))
        joined = ops.join(words, rushed, on_left=lambda w: w.lower, on_right=lambda w: w.lower)
        pairs: st.ZSet[st.Pair[Order, Order]] = st.map(
            joined, f=lambda p: st.Pair(left=p.left.order, right=p.right.order)
        )
        sums: st.ZSet[st.Pair[float, int | None]] = ops.group_reduce_flatten(
            words, by=lambda w: w.length, zero=float, pick_value=lambda w: w.size * 2
        )
        mapped = st.map(words, f=lambda w: Functions(lower=w.lower, twice=w.order.amount * 2))
        return mapped, st.map_many(a, f=st.python(_texts)), pairs, sums

    return query


QUERIES.append(
    Query(
        "functions of columns",
        in_plain_python(st),
        (Order,),
        in_plain_python(linear),
        of_columns(st),
    )
)


# -- the first rows


@on_changes_and_tables("first n", Order)
def first_n(ops: Any) -> Callable[..., Any]:
    index = st.Index.pick(Order, lambda o: (o.amount, o.n), ascending=(False, True))

    def query(a: st.ZSet[Order]) -> st.ZSet[Order]:
        first: st.ZSet[Order] = ops.first_n(a, index, 3)
        return first

    return query


@on_changes_and_tables("first n of each user", Order)
def first_n_of_each(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[Order]:
        first: st.ZSet[Order] = ops.first_n(a, lambda o: o.price * 2, 2, by=BY_USER)
        return first

    return query


@on_changes_and_tables("first n with ties", Order)
def first_n_with_ties(ops: Any) -> Callable[..., Any]:
    index = st.Index.pick(Order, lambda o: o.n, ascending=False)

    def query(a: st.ZSet[Order]) -> st.ZSet[Order]:
        first: st.ZSet[Order] = ops.first_n(a, index, 3, ties=True)
        return first

    return query


@on_changes_and_tables("first n with ties of each user", Order)
def first_n_with_ties_of_each(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[Order]:
        first: st.ZSet[Order] = ops.first_n(
            a, lambda o: o.amount, 2, by=BY_USER, ties=True, group_size=100
        )
        return first

    return query


class Placed(st.Data):
    id: int
    number: int
    so_far: float
    around: float | None
    last: int | None
    before: str | None
    rush_before: bool


@on_changes_and_tables("windows of rows of each user", Order)
def windows_of_rows(ops: Any) -> Callable[..., Any]:
    user: Callable[[Any], Any] = st.python(lambda o: o.user, to=MAYBE_STR)

    def query(a: st.ZSet[Order]) -> st.ZSet[Placed]:
        placed: st.ZSet[Placed] = ops.window(
            a,
            by=lambda o: o.user,
            order=lambda o: o.rush,
            into=Placed,
            number=st.win.row_number(),
            so_far=st.win.sum(lambda o: o.amount, rows=(None, 0)),
            around=st.win.avg(lambda o: o.n, rows=(-1, 1)),
            last=st.win.last_value(lambda o: o.n, rows=(None, 0), ignore_nulls=True),
            before=st.win.lag(user),
            rush_before=st.win.lag(lambda o: o.rush, 2, default=False),
        )
        return placed

    return query


class Ranked(st.Data):
    user: str | None
    cheap: bool
    rank: int
    dense: int
    percent: float
    share: float
    third: int
    near: Decimal | None
    rows: int
    least: float | None
    first: int
    second: int | None
    last: str | None


@on_changes_and_tables("windows by distance, of all rows", Order)
def windows_by_distance(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[Ranked]:
        ranked: st.ZSet[Ranked] = ops.window(
            a,
            by=None,
            order=st.win.desc(lambda o: o.n, nulls="first"),
            into=Ranked,
            cheap=lambda o: o.price < 1,
            rank=st.win.rank(),
            dense=st.win.dense_rank(),
            percent=st.win.percent_rank(),
            share=st.win.cume_dist(),
            third=st.win.ntile(3),
            near=st.win.sum(lambda o: o.price, range=(-1, 2)),
            rows=st.win.count(range=(None, 1)),
            least=st.win.min(lambda o: o.amount, range=(1, 2)),
            first=st.win.first_value(lambda o: o.id),
            second=st.win.nth_value(lambda o: o.n, 2, range=(0, None)),
            last=st.win.last_value(lambda o: o.user, range=(0, 0), ignore_nulls=True),
        )
        return ranked

    return query


class Timely(st.Data):
    raw: bytes | None
    days: int
    at_most: dt.datetime | None
    local: int
    floats: float
    next: dt.timedelta | None


@on_changes_and_tables("windows by dates and times", Some)
def windows_by_time(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Some]) -> st.ZSet[Timely]:
        day = ops.window(
            ops.map(a, f=lambda s: (s.raw, s.day, s.at, s.local, s.span)),
            by=lambda s: s[0],
            order=lambda s: s[1],
            into=Dated,
            days=st.win.count(range=(-1, dt.timedelta(days=700_000))),
        )
        at = ops.window(
            day,
            by=lambda s: s.raw,
            order=st.win.asc(lambda s: s.at, nulls="last"),
            into=Timed,
            at_most=st.win.max(lambda s: s.at, range=(None, dt.timedelta(days=1))),
        )
        timely: st.ZSet[Timely] = ops.window(
            at,
            by=None,
            order=lambda s: s.local,
            into=Timely,
            local=st.win.count(range=(-dt.timedelta(days=200_000), 0)),
            floats=lambda s: s.days * 0.5,
            next=st.win.lead(lambda s: s.span, ignore_nulls=True),
        )
        return timely

    return query


class Dated(st.Data):
    raw: bytes | None
    days: int
    day: dt.date | None
    at: dt.datetime | None
    local: st.LocalDateTime | None
    span: dt.timedelta | None


class Timed(st.Data):
    raw: bytes | None
    days: int
    at_most: dt.datetime | None
    local: st.LocalDateTime | None
    span: dt.timedelta | None


class Numbered(st.Data):
    row: Order
    number: int
    total: float | None


@on_changes_and_tables("windows per group", Order)
def windows_per_group(ops: Any) -> Callable[..., Any]:
    def of_each(s: st.ZSet[Order]) -> st.ZSet[Numbered]:
        numbered: st.ZSet[Numbered] = ops.window(
            s,
            by=lambda o: o.rush,
            order=(lambda o: o.n, st.win.desc(lambda o: o.amount)),
            into=Numbered,
            row=lambda o: o,
            number=st.win.row_number(),
            total=st.win.sum(lambda o: o.amount, rows=(-2, -1)),
        )
        return numbered

    def query(a: st.ZSet[Order]) -> st.ZSet[st.Pair[Numbered, str | None]]:
        g = ops.group(a, by=lambda o: o.user)
        flat: st.ZSet[st.Pair[Numbered, str | None]] = ops.flatten(ops.per_group[g](of_each))
        return flat

    return query


@on_changes_and_tables("as-of join that keeps what finds nothing", Order, User)
def asof_left(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order], b: st.ZSet[User]) -> st.ZSet[st.Pair[Order, User | None]]:
        joined: st.ZSet[st.Pair[Order, User | None]] = ops.asof_join(
            a,
            b,
            on_left=BY_USER,
            on_right=BY_NAME,
            at_left=lambda o: o.amount,
            at_right=lambda u: u.limit,
            how="left",
        )
        return joined

    return query


@on_changes_and_tables("as-of join with the nearest that is near enough", Order, Order)
def asof_nearest(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order], b: st.ZSet[Order]) -> st.ZSet[st.Pair[Order, Order]]:
        joined: st.ZSet[st.Pair[Order, Order]] = ops.asof_join(
            a,
            b,
            on_left=lambda o: (o.rush, o.user),
            on_right=lambda o: (o.rush, o.user),
            at_left=lambda o: o.n,
            at_right=lambda o: o.id,
            direction="nearest",
            tolerance=2,
        )
        return joined

    return query


@on_changes_and_tables("as-of join of each group, forward", Order)
def asof_per_group(ops: Any) -> Callable[..., Any]:
    def of_each(s: st.ZSet[Order]) -> st.ZSet[st.Pair[Order, int]]:
        return cast(
            "st.ZSet[st.Pair[Order, int]]",
            ops.asof_join(
                s,
                ops.map(ops.filter(s, f=lambda o: o.rush), f=lambda o: o.id),
                on_left=lambda o: o.id,
                on_right=lambda n: n,
                at_left=lambda o: o.n,
                at_right=lambda n: n,
                direction="forward",
            ),
        )

    def query(a: st.ZSet[Order]) -> st.ZSet[st.Pair[st.Pair[Order, int], str | None]]:
        g = ops.group(a, by=lambda o: o.user)
        return cast(
            "st.ZSet[st.Pair[st.Pair[Order, int], str | None]]",
            ops.flatten(ops.per_group[g](of_each)),
        )

    return query


@on_changes_and_tables("sessions by user", Order)
def sessions_by_user(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[st.Session[Order, int]]:
        found: st.ZSet[st.Session[Order, int]] = ops.sessions(
            a, by=BY_USER, at=lambda o: o.n, gap=1
        )
        return found

    return query


@on_changes_and_tables("sessions by local time, of each group", Some)
def sessions_per_group(ops: Any) -> Callable[..., Any]:
    def of_each(s: Any) -> Any:
        return ops.sessions(s, by=None, at=lambda s: s[2], gap=dt.timedelta(days=170_000))

    def query(a: st.ZSet[Some]) -> Any:
        rows = ops.map(a, f=lambda s: (s.raw, s.day, s.local))
        return ops.flatten(ops.per_group[ops.group(rows, by=lambda s: s[0])](of_each))

    return query


@on_changes_and_tables("first n by whole rows, of each pair of a join", Order, User)
def first_n_of_join(ops: Any) -> Callable[..., Any]:
    index = st.Index.pick(st.Pair[Order, User], lambda p: p.left, ascending=False)

    def query(a: st.ZSet[Order], b: st.ZSet[User]) -> st.ZSet[st.Pair[Order, User]]:
        joined = ops.join(a, b, on_left=BY_USER, on_right=BY_NAME)
        first: st.ZSet[st.Pair[Order, User]] = ops.first_n(
            joined, index, 1, by=lambda p: (p.left.rush, p.right.limit)
        )
        return first

    return query


@on_changes_and_tables("first n of floats of the first n", Order)
def first_n_of_first(ops: Any) -> Callable[..., Any]:
    def query(a: st.ZSet[Order]) -> st.ZSet[float]:
        some = ops.first_n(a, lambda o: o.id, 4)
        amounts: st.ZSet[float] = st.map(some, f=lambda o: o.amount * -1)
        first: st.ZSet[float] = ops.first_n(amounts, lambda x: x, 2)
        return first

    return query


# -- aggregates


class ByUser(st.Data):
    user: str | None
    orders: int
    known: int
    total: float
    mean: float | None
    price: Annotated[Decimal, st.Precision(38, 22)]


class Least(st.Data):
    rush: bool
    least: int | None
    best: Order


class Overall(st.Data):
    total: int | None
    users: int
    cheap: list[Decimal]


class Values(st.Data):
    user: str | None
    which: int
    median: float
    often: int | None


class Kinds(st.Data):
    n: int | None
    rush: bool
    prices: Decimal
    ids: Z[int]
    late: str | None


def _aggregated(name: str, gives: Any, by: Any, **aggregates: Any) -> None:
    def make(ops: Any) -> Callable[..., Any]:
        def query(a: st.ZSet[Order]) -> Any:
            return ops.aggregate(a, by, gives, **aggregates)

        return annotated(query, generic(st.ZSet, gives))

    on_changes_and_tables(name, Order)(make)


_aggregated(
    "aggregates that add up",
    ByUser,
    lambda o: o.user,
    orders=st.agg.count(),
    known=st.agg.count(lambda o: o.n),
    total=st.agg.sum(lambda o: o.amount),
    mean=st.agg.avg(lambda o: o.n),
    price=st.agg.avg(lambda o: o.price),
)
_aggregated(
    "aggregates that are the least, or the greatest",
    Least,
    lambda o: o.rush,
    group_size=2_000,
    least=st.agg.min(lambda o: o.n),
    best=st.agg.arg_max(lambda o: o.amount),
)
_aggregated(
    "aggregates without a key",
    Overall,
    None,
    total=st.agg.sum(lambda o: o.n),
    users=st.agg.count_distinct(lambda o: o.user),
    cheap=st.agg.first_n(lambda o: o.price, 2, lambda o: o.price),
)
_aggregated(
    "aggregates of all values, by grouping sets",
    Values,
    st.rollup(lambda o: o.user),
    which=st.agg.grouping_id(),
    median=st.agg.median(lambda o: o.amount),
    often=st.agg.mode(lambda o: o.n),
)
_aggregated(
    "aggregates of several kinds, by two fields",
    Kinds,
    lambda o: (o.rush, o.n),
    prices=st.agg.sum_distinct(lambda o: o.price),
    ids=st.agg.collect(lambda o: o.id),
    late=st.agg.arg_min(lambda o: o.n, st.python(lambda o: o.user, to=MAYBE_STR)),
)
