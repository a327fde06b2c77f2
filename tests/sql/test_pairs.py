"""Ten circuits from SQL and by hand: both keep the same state, and have the same picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.plan.planner import plan_of


class Order(st.Data):
    id: int
    customer: int
    cents: int
    day: int


class Customer(st.Data):
    customer: int
    country: str


class Total(st.Data):
    customer: int
    total: int | None


class Daily(st.Data):
    day: int
    most: int | None


class Priced(st.Data):
    id: int
    cents: int


class Bought(st.Data):
    id: int
    customer: int


class Dated(st.Data):
    id: int
    customer: int
    day: int


class Number(st.Data):
    value: int


class Named(st.Data):
    id: int
    country: str


class Placed(st.Data):
    id: int
    place: int


Orders = st.ZSet[Order]
Customers = st.ZSet[Customer]


def filtered(orders: Orders) -> st.ZSet[Number]:
    large = st.filter(orders, f=lambda o: o.cents > 5)
    return st.map(large, f=lambda o: Number(value=o.id))


def summed(orders: Orders) -> st.ZSet[Total]:
    total: Any = st.agg.sum(lambda o: o.cents)
    return st.aggregate(orders, by=lambda o: o.customer, into=Total, total=total)


def joined(orders: Orders, customers: Customers) -> st.ZSet[Named]:
    bought = st.map(orders, f=lambda o: Bought(id=o.id, customer=o.customer))
    pairs = st.join(bought, customers, on_left=lambda o: o.customer, on_right=lambda c: c.customer)
    return st.map(pairs, f=lambda p: Named(id=p.left.id, country=p.right.country))


def greatest(orders: Orders) -> st.ZSet[Daily]:
    most: Any = st.agg.max(lambda o: o.cents)
    return st.aggregate(orders, by=lambda o: o.day, into=Daily, most=most)


def distinct(orders: Orders) -> st.ZSet[Number]:
    return st.distinct(st.map(orders, f=lambda o: Number(value=o.customer)))


def united(orders: Orders, customers: Customers) -> st.ZSet[Number]:
    return st.add(
        st.map(orders, f=lambda o: Number(value=o.customer)),
        st.map(customers, f=lambda c: Number(value=c.customer)),
    )


def with_match(orders: Orders, customers: Customers) -> st.ZSet[Bought]:
    bought = st.map(orders, f=lambda o: Bought(id=o.id, customer=o.customer))
    key = lambda row: row.customer  # noqa: E731
    return st.semijoin(bought, customers, on_left=key, on_right=key)


def without_match(orders: Orders, customers: Customers) -> st.ZSet[Number]:
    bought = st.map(orders, f=lambda o: Bought(id=o.id, customer=o.customer))
    key = lambda row: row.customer  # noqa: E731
    found = st.antijoin(bought, customers, on_left=key, on_right=key)
    return st.map(found, f=lambda o: Number(value=o.id))


def first(orders: Orders) -> st.ZSet[Number]:
    priced = st.map(orders, f=lambda o: Priced(id=o.id, cents=o.cents))
    found = st.first_n(priced, order=st.win.desc(lambda o: o.cents), n=3)
    return st.map(found, f=lambda o: Number(value=o.id))


def numbered(orders: Orders) -> st.ZSet[Placed]:
    dated = st.map(orders, f=lambda o: Dated(id=o.id, customer=o.customer, day=o.day))
    return st.window(
        dated,
        by=lambda o: o.customer,
        order=lambda o: o.day,
        into=Placed,
        place=st.win.row_number(),
    )


TABLES: dict[str, Any] = {"orders": Order, "customers": Customer}
PAIRS: dict[str, tuple[Callable[..., Any], type[st.Data], str]] = {
    "filter": (filtered, Number, "SELECT id AS value FROM orders WHERE cents > 5"),
    "sum": (
        summed,
        Total,
        "SELECT customer, sum(cents) AS total FROM orders GROUP BY customer",
    ),
    "join": (joined, Named, "SELECT id, country FROM orders JOIN customers USING (customer)"),
    "max": (greatest, Daily, "SELECT day, max(cents) AS most FROM orders GROUP BY day"),
    "distinct": (distinct, Number, "SELECT DISTINCT customer AS value FROM orders"),
    "union": (
        united,
        Number,
        "SELECT customer AS value FROM orders UNION ALL SELECT customer FROM customers",
    ),
    "semijoin": (
        with_match,
        Bought,
        "SELECT id, customer FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE "
        "c.customer = o.customer)",
    ),
    "antijoin": (
        without_match,
        Number,
        "SELECT id AS value FROM orders o WHERE NOT EXISTS (SELECT 1 FROM customers c WHERE "
        "c.customer = o.customer)",
    ),
    "first rows": (first, Number, "SELECT id AS value FROM orders ORDER BY cents DESC LIMIT 3"),
    "window": (
        numbered,
        Placed,
        "SELECT id, row_number() OVER (PARTITION BY customer ORDER BY day) AS place FROM orders",
    ),
}


def registers(graph: Any) -> Counter[Any]:
    """What a circuit keeps: the types of the columns, and the keys."""
    return Counter(
        (tuple(str(t) for _, t in r.schema.all), len(r.key)) for r in plan_of(graph).registers
    )


def shapes(graph: Any) -> Counter[str]:
    """The operators that a picture shows."""
    return Counter(v.operator.name for v in graph.walk())


@pytest.mark.parametrize("name", PAIRS)
def test_a_circuit_from_sql_is_the_one_by_hand(name: str) -> None:
    query, cls, text = PAIRS[name]
    by_hand = st.compile(query)
    from_sql = st.compile(st.sql(text, to=cls, **TABLES))
    assert shapes(from_sql) == shapes(by_hand)
    assert registers(from_sql) == registers(by_hand)
