"""Changes of a query that people make: what is kept, what is read again, and that all is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.evolve.evolution import UNKNOWN
from tests.cases import Z
from tests.every_store import MakeStore


class Order(st.Data):
    id: int
    customer: int
    cents: int


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


CUSTOMER = st.Index.pick(Order, lambda o: o.customer)
ID = st.Index.pick(Customer, lambda c: c.id)


def joined(orders: Any, customers: Any) -> Any:
    return st.join(orders, customers, on_left=CUSTOMER, on_right=ID)


def above(least: int) -> Any:
    def query(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> Any:
        return st.filter(joined(orders, customers), f=lambda p: p.left.cents >= least)

    return query


def below(least: int) -> Any:
    def query(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> Any:
        return joined(st.filter(orders, f=lambda o: o.cents >= least), customers)

    return query


def totals(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> Any:
    pairs = joined(orders, customers)
    cents: Any = st.agg.sum(lambda p: p.left.cents)
    return st.aggregate(pairs, by=lambda p: p.right.country, into=Total, cents=cents)


def totals_and_best(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> Any:
    pairs = joined(orders, customers)
    cents: Any = st.agg.sum(lambda p: p.left.cents)
    best: Any = st.agg.max(lambda p: p.left.cents)
    return st.aggregate(pairs, by=lambda p: p.right.country, into=Totals, cents=cents, best=best)


def renamed(bought: st.ZSet[Order], people: st.ZSet[Customer]) -> Any:
    both = joined(bought, people)
    return st.aggregate(
        both, by=lambda x: x.right.country, into=Total, cents=st.agg.sum(lambda y: y.left.cents)
    )


def two_views(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> Any:
    large = above(20)(orders, customers)
    return totals(orders, customers), large


def by_country(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> Any:
    country = st.Index.pick(Customer, lambda c: c.country)
    return st.join(customers, customers, on_left=country, on_right=country)


def reached(least: int) -> Any:
    def query(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> Any:
        some = st.filter(orders, f=lambda o: o.cents >= least)
        edges = st.map(some, f=lambda o: st.Pair(left=o.id, right=o.customer))
        return st.transitive_closure(edges)

    return query


def called(f: Callable[[Order], int]) -> Any:
    def query(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> Any:
        return st.distinct(st.map(orders, f=st.python(f, to=int)))

    return query


def tens(o: Order) -> int:
    return o.cents // 10


def fives(o: Order) -> int:
    return o.cents // 5


@dataclass(frozen=True)
class Case:
    """Two queries, and the inputs that the second needs again of a state of the first."""

    before: Any
    after: Any
    again: tuple[str, ...] = ()
    unknown: bool = False


CASES = {
    "a constant above a join": Case(above(10), above(25)),
    "a constant below a join": Case(below(10), below(25), ("orders",)),
    "a narrower filter above a wider one below": Case(below(0), above(25), ("orders",)),
    "an aggregate more": Case(totals, totals_and_best, unknown=True),
    "an aggregate less": Case(totals_and_best, totals, unknown=True),
    "other names": Case(totals, renamed),
    "an output more": Case(totals, two_views),
    "an output less": Case(two_views, totals),
    "an aggregation of a join": Case(above(0), totals, unknown=True),
    "another key": Case(above(0), by_country, unknown=True),
    "a recursion of other edges": Case(reached(0), reached(25), ("orders",)),
    "another Python function": Case(called(tens), called(fives), ("orders",)),
}

ORDERS = [Order(id=i, customer=i % 4, cents=7 * i % 40) for i in range(12)]
CUSTOMERS = [Customer(id=i, country="cl" if i % 2 else "gh") for i in range(4)]


def outputs(given: Any) -> list[Any]:
    return [out.to_python() for out in given]


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_query_that_somebody_changed(make_store: MakeStore, case: Case) -> None:
    graph = st.compile(case.before)
    store = make_store(graph)
    stepper: Any = st.Stepper(graph, store)
    first = outputs(stepper.step((Z(dict.fromkeys(ORDERS, 1)), Z(dict.fromkeys(CUSTOMERS, 1)))))
    gone = (Z({ORDERS[3]: -1}), Z({CUSTOMERS[2]: -1}))
    views = [a + b for a, b in zip(first, outputs(stepper.step(gone)), strict=True)]
    given = {
        "orders": Z({o: 1 for o in ORDERS if o is not ORDERS[3]}),
        "customers": Z({c: 1 for c in CUSTOMERS if c is not CUSTOMERS[2]}),
    }
    graph = st.compile(case.after)
    store = make_store.reopen(store, graph, evolve=True)
    plan = st.evolution(graph, store)
    assert plan.read_again == case.again, plan
    whole = [name for name, said in plan.views.items() if said == UNKNOWN]
    assert bool(whole) == case.unknown, plan
    stepper = st.Stepper(graph, store, evolve=True)
    if plan.is_needed:
        with pytest.raises(st.StepError, match="evolve"):
            stepper.step((Z(), Z()))
    again = {name: given[name] for name in plan.read_again}
    changes = outputs(stepper.evolve(whole=whole, **again))
    anew: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    wanted = outputs(anew.step(tuple(given.values())))
    for i, (change, want) in enumerate(zip(changes, wanted, strict=True)):
        had = Z() if whole or i >= len(views) else views[i]
        assert had + change == want
    assert not any(outputs(stepper.evolve()))
    step = (Z({Order(id=99, customer=1, cents=39): 1, ORDERS[5]: -1}), Z({CUSTOMERS[0]: -1}))
    assert outputs(stepper.step(step)) == outputs(anew.step(step))


def test_a_constant_above_a_join_reads_what_the_join_has() -> None:
    graph = st.compile(above(10))
    store = st.StoreMemory.from_graph(graph)
    st.Stepper(graph, store).step((Z(dict.fromkeys(ORDERS, 1)), Z(dict.fromkeys(CUSTOMERS, 1))))
    stepper: Any = st.Stepper(st.compile(above(25)), store, evolve=True)
    assert stepper.needed_again() == ()
    stepper.evolve()
    (metrics,) = stepper.metrics
    assert sorted(metrics.inputs.values()) == [len(CUSTOMERS), len(ORDERS)]
    assert (metrics.jobs, dict(metrics.kept)) == (0, {})


def test_an_input_that_is_missing_or_not_needed_is_told() -> None:
    graph = st.compile(below(10))
    store = st.StoreMemory.from_graph(graph)
    st.Stepper(graph, store).step((Z(dict.fromkeys(ORDERS, 1)), Z(dict.fromkeys(CUSTOMERS, 1))))
    stepper: Any = st.Stepper(st.compile(below(20)), store, evolve=True)
    with pytest.raises(st.InputError, match="orders=…"):
        stepper.evolve()
    with pytest.raises(st.InputError, match="orders=…"):
        stepper.evolve(orders=Z(), customers=Z())
    stepper.evolve(orders=Z(dict.fromkeys(ORDERS, 1)))


def test_a_name_that_is_none_and_a_query_that_is_not_compiled_are_told() -> None:
    graph = st.compile(below(10))
    store = st.StoreMemory.from_graph(graph)
    with pytest.raises(st.InputError, match=r"'nope', and the outputs are 'query'"):
        st.evolution(graph, store, whole=["nope"])
    query: Any = below(10)
    with pytest.raises(st.CompileError, match="expected a Graph"):
        st.evolution(query, store)


def test_what_depends_on_the_order_of_steps_is_refused_by_name() -> None:
    def plain(a: st.ZSet[int]) -> st.ZSet[int]:
        return st.distinct(a)

    def delayed(a: st.ZSet[int]) -> st.ZSet[int]:
        return st.distinct(st.delay(a))

    graph = st.compile(plain)
    store = st.StoreMemory.from_graph(graph)
    st.Stepper(graph, store).step((Z({1: 1}),))
    with pytest.raises(st.StoreMismatch, match="the order of the steps"):
        st.Stepper(st.compile(delayed), store, evolve=True)
    assert st.Stepper(graph, store).step((Z({1: 1}),))[0].to_python() == Z()


def test_a_class_that_gets_a_column_is_read_again(make_store: MakeStore) -> None:
    class Old(st.Data):
        id: int
        cents: int

    class New(st.Data):
        id: int
        cents: int
        note: str | None

    def query(row: Any) -> Any:
        def joined(orders: Any) -> Any:
            by = st.Index.pick(row, lambda o: o.id)
            pairs: Any = st.join(orders, orders, on_left=by, on_right=by)
            return st.map(pairs, f=lambda p: p.left.cents)

        joined.__annotations__ = {"orders": st.ZSet[row], "return": st.ZSet[int]}
        return joined

    graph = st.compile(query(Old))
    store = make_store(graph)
    (first,) = outputs(st.Stepper(graph, store).step((Z({Old(id=i, cents=i): 1 for i in (1, 2)}),)))
    graph = st.compile(query(New))
    store = make_store.reopen(store, graph, evolve=True)
    stepper: Any = st.Stepper(graph, store, evolve=True)
    assert stepper.needed_again() == ("orders",)
    rows = {New(id=1, cents=1, note="a"): 1, New(id=2, cents=2, note=None): 1}
    (change,) = outputs(stepper.evolve(orders=Z(rows)))
    assert first + change == Z({1: 1, 2: 1})
    (gone,) = outputs(stepper.step((Z({New(id=1, cents=1, note="a"): -1}),)))
    assert gone == Z({1: -1})


@pytest.mark.usefixtures("spark")  # asked whether one is running
def test_an_evolution_without_spark_keeps_the_settings_of_the_state(make_store: MakeStore) -> None:
    """The session's settings that functions of rows depend on are those of the steps before."""
    settings = {"spark.sql.session.timeZone": "UTC"}
    graph = st.compile(above(10))
    store = make_store(graph)
    store.commit(1, 1, None, {}, settings)
    graph = st.compile(above(25))
    store = make_store.reopen(store, graph, evolve=True)
    stepper: Any = st.Stepper(graph, store, evolve=True)
    stepper.evolve(
        whole=[name for name, said in stepper.evolution.views.items() if said == UNKNOWN]
    )
    assert (store.last_step(), store.last_settings()) == (2, settings)


class Best(st.Data):
    customer: int
    cents: int


def test_the_plan_says_what_goes_and_what_is_read_in_words_of_the_query_before() -> None:
    def totals(of: Any) -> Any:
        def query(orders: st.ZSet[Order]) -> st.ZSet[Best]:
            cents = of(lambda o: o.cents)
            return st.aggregate(orders, by=lambda o: o.customer, into=Best, cents=cents)

        return st.compile(query)

    before, after = totals(st.agg.max), totals(st.agg.sum)
    store = st.StoreMemory.from_graph(before)
    st.iteration(store, before, (Z({Order(id=1, customer=2, cents=3): 1}),))
    assert str(st.evolution(after, store)).splitlines() == [
        "query, at step 1:",
        "  filled: cents = sum(cents) by customer, from rows for cents = max(cents) by customer (1 "
        "row)",
        "  dropped: rows for cents = max(cents) by customer",
        "  dropped: first rows for cents = max(cents) by customer",
        "  view query: changes",
    ]
