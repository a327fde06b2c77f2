"""Queries, and what people make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import stepping_spark as st


class Order(st.Data):
    id: int
    customer: int
    cents: int


class Noted(st.Data):
    id: int
    customer: int
    cents: int
    note: str | None


class Customer(st.Data):
    id: int
    country: str


class Total(st.Data):
    country: str
    cents: int


class Totals(st.Data):
    country: str
    cents: int
    best: int


class Spent(st.Data):
    customer: int
    cents: int


CUSTOMER = st.Index.pick(Order, lambda o: o.customer)
ID = st.Index.pick(Customer, lambda c: c.id)
Orders = st.ZSet[Order]
Customers = st.ZSet[Customer]


def joined(orders: Any, customers: Any) -> Any:
    return st.join(orders, customers, on_left=CUSTOMER, on_right=ID)


def above(least: int) -> Any:
    def query(orders: Orders, customers: Customers) -> Any:
        return st.filter(joined(orders, customers), f=lambda p: p.left.cents >= least)

    return query


def below(least: int) -> Any:
    def query(orders: Orders, customers: Customers) -> Any:
        return joined(st.filter(orders, f=lambda o: o.cents >= least), customers)

    return query


def totals_of(pairs: Any) -> Any:
    cents: Any = st.agg.sum(lambda p: p.left.cents)
    return st.aggregate(pairs, by=lambda p: p.right.country, into=Total, cents=cents)


def totals(orders: Orders, customers: Customers) -> Any:
    return totals_of(joined(orders, customers))


def totals_said_otherwise(orders: Orders, customers: Customers) -> Any:
    both = joined(orders, customers)
    return st.aggregate(
        both, by=lambda x: x.right.country, into=Total, cents=st.agg.sum(lambda y: y.left.cents)
    )


def totals_of_other_inputs(bought: Orders, people: Customers) -> Any:
    return totals(bought, people)


def totals_and_best(orders: Orders, customers: Customers) -> Any:
    cents: Any = st.agg.sum(lambda p: p.left.cents)
    best: Any = st.agg.max(lambda p: p.left.cents)
    pairs = joined(orders, customers)
    return st.aggregate(pairs, by=lambda p: p.right.country, into=Totals, cents=cents, best=best)


def totals_by_customer(orders: Orders, customers: Customers) -> Any:
    cents: Any = st.agg.sum(lambda p: p.left.cents)
    pairs = joined(orders, customers)
    return st.aggregate(pairs, by=lambda p: p.left.customer, into=Spent, cents=cents)


def two_views(orders: Orders, customers: Customers) -> Any:
    sums = totals(orders, customers)
    large = above(20)(orders, customers)
    return sums, large


def with_totals(orders: Orders, customers: Customers) -> Any:
    pairs = joined(orders, customers)
    return st.join(
        pairs, totals(orders, customers), on_left=lambda p: p.right.country, on_right=COUNTRY
    )


def with_returns(orders: Orders, customers: Customers, returns: Orders) -> Any:
    back = st.map(returns, f=lambda o: o.id)
    pairs = joined(orders, customers)
    return st.antijoin(pairs, back, on_left=lambda p: p.left.id, on_right=lambda n: n)


COUNTRY = st.Index.pick(Total, lambda t: t.country)


def ids(orders: Orders) -> Any:
    return st.map(orders, f=lambda o: o.id)


def ids_of_both(orders: Orders, returns: Orders) -> Any:
    back = st.map(returns, f=lambda o: Order(id=o.customer, customer=o.id, cents=o.cents))
    return st.map(st.add(orders, back), f=lambda o: o.id)


def ids_without(f: Callable[[Order], int]) -> Any:
    def query(orders: Orders, returns: Orders) -> Any:
        return st.add(ids(orders), st.neg(st.map(returns, f=f)))

    return query


def by_country(orders: Orders, customers: Customers) -> Any:
    country = st.Index.pick(Customer, lambda c: c.country)
    return st.join(customers, customers, on_left=country, on_right=country)


def of_a_view(view: Callable[[Any], Any]) -> Any:
    """A view, and one that reads it."""

    def query(orders: Orders, customers: Customers) -> Any:
        large = view(orders)
        sums = totals(large, customers)
        return large, sums

    return query


def at_least(least: int) -> Callable[[Any], Any]:
    return lambda orders: st.filter(orders, f=lambda o: o.cents >= least)


def dearest(orders: Any) -> Any:
    return st.first_n(orders, lambda o: o.cents, 1, by=lambda o: o.customer)


def reached(least: int) -> Any:
    def query(orders: Orders, customers: Customers) -> Any:
        some = st.filter(orders, f=lambda o: o.cents >= least)
        edges = st.map(some, f=lambda o: st.Pair(left=o.id, right=o.customer))
        return st.transitive_closure(edges)

    return query


def called(f: Callable[[Order], int]) -> Any:
    def query(orders: Orders, customers: Customers) -> Any:
        return st.distinct(st.map(orders, f=st.python(f, to=int)))

    return query


def tens(o: Order) -> int:
    return o.cents // 10


def fives(o: Order) -> int:
    return o.cents // 5


def pairs_of(row: Any) -> Any:
    """The cents of orders with equal ids; a side of the join keeps whole rows."""

    def query(orders: Any, customers: Any) -> Any:
        by = st.Index.pick(row, lambda o: o.id)
        pairs: Any = st.join(orders, orders, on_left=by, on_right=by)
        return st.map(pairs, f=lambda p: p.left.cents)

    query.__annotations__ = {"orders": st.ZSet[row], "customers": Customers, "return": Any}
    return query


@dataclass(frozen=True)
class Case:
    """Two queries; `plans.txt` has what makes the second of a state of the first."""

    before: Any
    after: Any
    inputs: Mapping[str, str] = field(default_factory=dict)  # other names of tables


CASES = {
    "other words for the same": Case(totals, totals_said_otherwise),
    "other names of inputs": Case(
        totals, totals_of_other_inputs, inputs={"bought": "orders", "people": "customers"}
    ),
    "a constant above a join": Case(above(10), above(25)),
    "a narrower filter below a join": Case(below(10), below(25)),
    "a wider filter below a join": Case(below(25), below(10)),
    "a narrower filter above a wider one below": Case(below(0), above(25)),
    "an aggregate more": Case(totals, totals_and_best),
    "an aggregate less": Case(totals_and_best, totals),
    "an aggregation of a join": Case(above(0), totals),
    "a join more": Case(totals, with_totals),
    "a join with an input more": Case(above(10), with_returns),
    "an input less": Case(with_returns, above(10)),
    "a branch of a sum more": Case(ids, ids_of_both),
    "another branch that is subtracted": Case(
        ids_without(lambda o: o.id), ids_without(lambda o: o.customer)
    ),
    "an output more": Case(totals, two_views),
    "an output less": Case(two_views, totals),
    "another key": Case(totals, totals_by_customer),
    "a join by another key": Case(above(0), by_country),
    "a column more": Case(pairs_of(Order), pairs_of(Noted)),
    "a column less": Case(pairs_of(Noted), pairs_of(Order)),
    "a constant in a view that others read": Case(of_a_view(at_least(10)), of_a_view(at_least(25))),
    "a view that others read replaced": Case(of_a_view(at_least(10)), of_a_view(dearest)),
    "a recursion of other edges": Case(reached(0), reached(25)),
    "another Python function": Case(called(tens), called(fives)),
    "two changes at once": Case(two_views, of_a_view(at_least(25))),
}
