"""The columns that the state of joins has: those that are read, and no others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.expressions.fingerprint import read_in_text
from stepping_spark.plan.planner import plan_of
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.types import Optional, row_type
from tests.cases import Z


class Order(st.Data):
    id: int
    customer: int
    cents: int
    note: str | None


class Customer(st.Data):
    id: int
    country: str
    name: str


class Country(st.Data):
    code: str
    label: str
    size: int


class Payment(st.Data):
    id: int
    paid: str


class Met(st.Data):
    order: Order
    customer: Customer


Orders: TypeAlias = st.ZSet[Order]
Customers: TypeAlias = st.ZSet[Customer]
Countries: TypeAlias = st.ZSet[Country]


def joined(orders: Any, customers: Any) -> Any:
    return st.join(orders, customers, on_left=lambda o: o.customer, on_right=lambda c: c.id)


def summed(rows: Any, by: Any, cents: Any) -> Any:
    return st.group_reduce_flatten(rows, by=by, zero=int, pick_value=cents)


def totals(orders: Orders, customers: Customers) -> Any:
    return summed(joined(orders, customers), lambda p: p.right.country, lambda p: p.left.cents)


def filtered(orders: Orders, customers: Customers) -> Any:
    large = st.filter(orders, f=lambda o: o.cents > 3)
    return st.map(joined(large, customers), f=lambda p: p.right.name)


def of_a_map(orders: Orders, customers: Customers) -> Any:
    met = st.map(joined(orders, customers), f=lambda p: Met(order=p.left, customer=p.right))
    kept = st.filter(met, f=lambda m: m.order.cents != 2)
    return summed(kept, lambda m: m.customer.name, lambda m: m.order.id)


def twice(orders: Orders, customers: Customers, countries: Countries) -> Any:
    met = joined(orders, customers)
    both = st.join(met, countries, on_left=lambda p: p.right.country, on_right=lambda c: c.code)
    return st.map(both, f=lambda p: (p.left.left.cents, p.right.label))


def at_once(orders: Orders, customers: Customers, countries: Countries) -> Any:
    rows = st.delta_join(
        orders,
        st.Lookup(customers, on=lambda row: row[0].customer, key=lambda c: c.id),
        st.Lookup(countries, on=lambda row: row[1].country, key=lambda c: c.code),
    )
    return st.map(rows, f=lambda r: (r[0].cents, r[2].label))


def padded(orders: Orders, customers: Customers, *, how: Any) -> Any:
    return st.outer_join(
        orders, customers, on_left=lambda o: o.customer, on_right=lambda c: c.id, how=how
    )


def left(orders: Orders, customers: Customers) -> Any:
    met = padded(orders, customers, how="left")
    return st.map(met, f=lambda p: (p.left.cents, p.right.country))


def left_or_else(orders: Orders, customers: Customers) -> Any:
    met = padded(orders, customers, how="left")
    known = st.filter(met, f=lambda p: F.coalesce(p.right.country, F.lit("a")) != "b")
    return st.map(known, f=lambda p: (p.left.cents, F.upper(p.right.country)))


def right(orders: Orders, customers: Customers) -> Any:
    met = padded(orders, customers, how="right")
    return st.map(met, f=lambda p: (p.left.cents, p.right.country))


def full(orders: Orders, customers: Customers) -> Any:
    met = padded(orders, customers, how="full")
    return st.map(met, f=lambda p: (p.left.cents, p.right.country))


def left_of_left(orders: Orders, customers: Customers, countries: Countries) -> Any:
    met = padded(orders, customers, how="left")
    both = st.outer_join(
        met, countries, on_left=lambda p: p.right.country, on_right=lambda c: c.code
    )
    return st.map(both, f=lambda p: (p.left.left.cents, p.left.right.name, p.right.label))


def padded_or_not(orders: Orders, customers: Customers) -> Any:
    """One reader needs the whole row that may be NULL, and a join only one column of it."""
    met = padded(orders, customers, how="left")
    again = st.join(met, customers, on_left=lambda p: p.left.id, on_right=lambda c: c.id)
    wide = st.map(met, f=lambda p: p.right)
    return wide, st.map(again, f=lambda p: (p.left.right.country, p.right.name))


def rows_that_may_be_null(orders: Orders, customers: Customers) -> Any:
    rows = st.map(padded(orders, customers, how="left"), f=lambda p: p.right)
    some = st.filter(rows, f=lambda c: F.coalesce(F.lower(c.country), F.lit("a")) == "a")
    again = st.join(some, orders, on_left=lambda c: c.id, on_right=lambda o: o.customer)
    return some, st.map(again, f=lambda p: (p.left.name, p.right.cents))


def null_rows_in_a_tuple(orders: Orders, customers: Customers) -> Any:
    rows = st.map(padded(orders, customers, how="left"), f=lambda p: p.right)
    pairs = st.map(rows, f=lambda c: (c, 1))
    return st.map(pairs, f=lambda t: t[0].name), st.count(pairs)


def at_arrival(orders: Orders, customers: Customers) -> Any:
    met = st.half_join(
        orders, customers, on_left=lambda o: o.customer, on_right=lambda c: c.id, state="old"
    )
    return st.map(met, f=lambda p: p.right.name)


def fed_back(orders: Orders, customers: Customers) -> Any:
    with st.feedback(Customers) as before:
        before.connect(st.delay(st.add(before, customers)))
    met = st.linear.join(orders, before, on_left=lambda o: o.customer, on_right=lambda c: c.id)
    return st.map(met, f=lambda p: p.right.name)


def sums_too(orders: Orders, customers: Customers) -> Any:
    """The sum of an input is an output, and has a register of whole rows."""
    return st.integrate(customers), totals(orders, customers)


def every_column(orders: Orders, customers: Customers) -> Any:
    return st.map(joined(orders, customers), f=lambda p: F.to_json(F.struct("*")))


def left_at_once(orders: Orders, customers: Customers, countries: Countries) -> Any:
    rows = st.delta_join(
        orders,
        st.Lookup(customers, on=lambda row: row[0].customer, key=lambda c: c.id, how="left"),
        st.Lookup(countries, on=lambda row: row[1].country, key=lambda c: c.code, how="left"),
    )
    return st.map(rows, f=lambda r: (r[0].cents, r[1].country, r[2].label))


def counted(orders: Orders, customers: Customers) -> Any:
    return st.count(joined(orders, customers))


def semi(orders: Orders, customers: Customers) -> Any:
    some = st.semijoin(orders, customers, on_left=lambda o: o.customer, on_right=lambda c: c.id)
    return st.map(some, f=lambda o: o.cents)


def two_views(orders: Orders, customers: Customers) -> Any:
    met = joined(orders, customers)
    return st.map(met, f=lambda p: p.left.cents), st.map(met, f=lambda p: p.left.id)


def with_itself(orders: Orders) -> Any:
    pairs = st.join(orders, orders, on_left=lambda o: o.customer, on_right=lambda o: o.id)
    return st.map(pairs, f=lambda p: (p.left.cents, p.right.cents))


def added(orders: Orders, others: Orders, customers: Customers) -> Any:
    return st.map(joined(st.add(orders, others), customers), f=lambda p: p.left.cents)


def of_spark(orders: Orders, customers: Customers) -> Any:
    return st.map(joined(orders, customers), f=lambda p: F.upper(p.right.name))


def summed_by_spark(orders: Orders, customers: Customers) -> Any:
    """Spark reads the name of a customer, and not the other columns."""
    met = joined(orders, customers)
    return summed(met, lambda p: F.lower(F.soundex(p.right.name)), lambda p: p.left.cents)


def whole_pairs(orders: Orders, customers: Customers) -> Any:
    return joined(orders, customers)


def by_python(orders: Orders, customers: Customers) -> Any:
    named: Any = st.python(lambda p: p.left.note or "", to=str)
    return st.map(joined(orders, customers), f=named)


def stored_anyway(orders: Orders, customers: Customers) -> Any:
    last: Any = st.window(
        orders, by=lambda o: o.customer, order=lambda o: o.id, place=st.win.row_number()
    )
    return last, totals(orders, customers)


ORDER, CUSTOMER = {"id", "customer", "cents", "note"}, {"id", "country", "name"}
# The query, and the columns of registers of rows. Of rows of which none is read, the first stays.
KEPT: list[tuple[Callable[..., Any], dict[str, set[str]]]] = [
    (totals, {"orders by customer": {"customer", "cents"}, "customers by id": {"id", "country"}}),
    (filtered, {"large by customer": {"customer"}, "customers by id": {"id", "name"}}),
    (of_a_map, {"orders by customer": {"id", "customer", "cents"},
                "customers by id": {"id", "name"}}),
    (counted, {"orders by customer": {"id", "customer"}, "customers by id": {"id"}}),
    (two_views, {"orders by customer": {"id", "customer", "cents"}, "customers by id": {"id"}}),
    (with_itself, {"orders by customer": {"id", "customer", "cents"},
                   "orders by id": {"id", "customer", "cents"}}),
    (left, {"orders by customer": {"customer", "cents"}, "customers by id": {"id", "country"}}),
    (left_or_else, {"orders by customer": {"customer", "cents"},
                    "customers by id": {"id", "country"}}),
    (right, {"orders by customer": {"customer", "cents"}, "customers by id": {"id", "country"}}),
    (full, {"orders by customer": {"customer", "cents"}, "customers by id": {"id", "country"}}),
    (of_spark, {"orders by customer": {"customer"}, "customers by id": {"id", "name"}}),
    (summed_by_spark, {"orders by customer": {"customer", "cents"},
                       "customers by id": {"id", "name"}}),
    (whole_pairs, {"orders by customer": ORDER, "customers by id": CUSTOMER}),
    (at_arrival, {"customers by id": {"id", "name"}}),
    (by_python, {"orders by customer": ORDER, "customers by id": CUSTOMER}),
    (stored_anyway, {"orders by customer": ORDER, "customers by id": {"id", "country"}}),
]  # fmt: skip
QUERIES = [
    *(query for query, _ in KEPT), twice, at_once, semi, added,
    left_of_left, padded_or_not, rows_that_may_be_null, null_rows_in_a_tuple, left_at_once,
    fed_back, sums_too, every_column,
]  # fmt: skip


def columns(graph: Any) -> dict[str, set[str]]:
    """The columns of the registers of rows of inputs, without computed keys."""
    registers = {r.name.removeprefix(f"{graph.name}."): r for r in plan_of(graph).registers}
    return {
        name: {n for n, _ in r.schema.columns if not n.startswith("_")}
        for name, r in registers.items()
    }


@pytest.mark.parametrize(("query", "kept"), KEPT, ids=[query.__name__ for query, _ in KEPT])
def test_a_join_keeps_the_columns_that_are_read(
    query: Callable[..., Any], kept: dict[str, set[str]]
) -> None:
    found = columns(st.compile(query))
    assert {name: found[name] for name in kept} == kept


@pytest.mark.spark
def test_a_function_of_spark_has_the_identity_that_it_had(spark: Any) -> None:
    """States of earlier versions have columns whose names are within others: `id` in `paid`."""

    def paid(payments: st.ZSet[Payment]) -> Any:
        return st.distinct(st.map(payments, f=lambda p: F.soundex(p.paid)))

    (register,) = plan_of(st.compile(paid)).registers
    assert str(register.sums) == "map [soundex(`paid`)] 4227bf67377415d8 by row"


@pytest.mark.spark
def test_an_asterisk_in_a_function_of_spark_needs_all_columns(spark: Any) -> None:
    found = columns(st.compile(every_column))
    assert (found["orders by customer"], found["customers by id"]) == (ORDER, CUSTOMER)


def test_whole_rows_are_kept_if_the_query_is_compiled_so() -> None:
    for query in (totals, counted, two_views):
        found = columns(st.compile(query, whole_rows=True))
        assert found["orders by customer"] == ORDER
        assert found["customers by id"] == CUSTOMER


def test_an_explanation_lists_the_columns_that_are_left() -> None:
    explained = st.explain(st.compile(totals))
    assert explained.columns == {
        "totals.orders by customer": ("customer", "cents"),
        "totals.customers by id": ("id", "country"),
    }
    assert "arranged by customer; only customer, cents\n" in str(explained)
    assert st.explain(st.compile(totals, whole_rows=True)).columns == {}


def test_joins_of_joins_keep_what_the_last_reader_needs() -> None:
    found = columns(st.compile(twice))
    assert found["orders by customer"] == {"customer", "cents"}
    assert found["customers by id"] == {"id", "country"}
    assert found["countries by code"] == {"code", "label"}
    found = columns(st.compile(at_once))
    assert found["customers by id"] == {"id", "country"}
    assert found["countries by code"] == {"code", "label"}
    assert all("note" not in of for of in found.values())


@pytest.mark.parametrize("query", [totals, of_a_map, summed_by_spark, of_spark, counted])
def test_a_column_that_is_left_out_is_no_part_of_the_identity_of_a_stream(
    query: Callable[..., Any],
) -> None:
    """So the sums above a join stay if a changed query reads more of its inputs."""
    graphs = [st.compile(query, whole_rows=whole_rows) for whole_rows in (False, True)]
    narrow, whole = ([str(r.sums) for r in plan_of(graph).registers] for graph in graphs)
    assert narrow == whole


def test_a_state_with_more_columns_is_refused_or_becomes_one_without_them(tmp_path: Path) -> None:
    ann = Customer(id=1, country="de", name="Ann")
    tea = Order(id=1, customer=1, cents=2, note=None)
    narrow, whole = (st.compile(totals, whole_rows=whole_rows) for whole_rows in (False, True))
    with st.StoreParquet.from_graph(whole, tmp_path / "state", create=True) as store:
        st.Stepper(whole, store).step((Z({tea: 1}), Z({ann: 1})))
    with pytest.raises(st.StoreMismatch) as e:
        st.StoreParquet.from_graph(narrow, tmp_path / "state")
    assert "has a column that the query does not read: 'id', 'note'. If the state was" in str(
        e.value
    )
    with st.StoreParquet.from_graph(whole, tmp_path / "state") as store:
        assert store.last_step() == 1
    with st.StoreParquet.from_graph(narrow, tmp_path / "state", evolve=True) as store:
        stepper: Any = st.Stepper(narrow, store, evolve=True)
        assert not any(out.to_python() for out in stepper.evolve())
        (out,) = stepper.step((Z({tea: -1}), None))
        assert out.to_python() == Z({st.Pair(left=2, right="de"): -1})
    with st.StoreParquet.from_graph(narrow, tmp_path / "state") as store:
        assert store.last_step() == 3


ROW = (("id", INT), ("left", row_type(Order)), ("right", Optional(row_type(Customer))))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("upper(`left`.`note`)", ["left.note"]),
        ("concat(`left`.`note`, `left`.`id`)", ["left.id", "left.note"]),
        ("`id` + `left`.`id`", ["id", "left.id"]),
        ("upper(left.note)", ["left"]),
        ("upper(LEFT.note)", ["left"]),
        ("upper(`LEFT`.`note`)", ["left"]),
        ("upper(`left`.`none`)", ["left"]),
        ("coalesce(`right`.`name`, 'x')", ["right.name"]),
        ("`right`.`name`.`more`", ["right"]),
        ("struct(*)", ["id", "left", "right"]),
        ("struct(unresolvedstar())", ["id", "left", "right"]),
        ("xxhash64(/* all */ * )", ["id", "left", "right"]),
        ("struct(* EXCEPT (left))", ["id", "left", "right"]),
        ("concat('`', soundex(right.name), '`')", ["id", "left", "right"]),
        ("`id` * 2 * `left`.`id`", ["id", "left.id"]),
        ("struct(left.*)", ["id", "left", "right"]),
        ("now()", []),
    ],
)
def test_the_parts_of_a_row_that_an_expression_of_spark_reads(text: str, read: list[str]) -> None:
    assert [".".join(path) for path, _ in read_in_text(text, ROW)] == read


def test_two_registers_of_a_stream_with_other_columns_are_told_apart() -> None:
    """A sum of a map, and a map of a sum, are one stream, and have two registers."""

    def short(o: Any) -> Any:
        return st.row(customer=o.customer, cents=o.cents, note=o.note)

    def noted(orders: Any, customers: Any) -> Any:
        return st.map(joined(st.map(orders, f=short), customers), f=lambda p: p.left.note)

    def on_tables(orders: Any, customers: Any) -> Any:
        rows = st.map(orders, f=short)
        met: Any = st.linear.join(
            rows, customers, on_left=lambda o: o.customer, on_right=lambda c: c.id
        )
        return st.map(met, f=lambda p: p.left.cents)

    def both(orders: Orders, customers: Customers) -> Any:
        return st.incrementalize(on_tables)(orders, customers), noted(orders, customers)

    def second(orders: Orders, customers: Customers) -> Any:
        return st.map(noted(orders, customers), f=lambda note: (note, 1))

    old: Any = st.compile(both)
    new: Any = st.compile(second)
    kept = [*columns(old).values()]
    assert {"customer", "cents"} in kept
    assert {"customer", "note"} in kept
    assert len({str(r.sums) for r in plan_of(old).registers}) < len(kept)
    tea = Order(id=1, customer=1, cents=2, note="x")
    store = st.StoreMemory.from_graph(old)
    st.Stepper(old, store).step((Z({tea: 1}), Z({Customer(id=1, country="de", name="Ann"): 1})))
    stepper: Any = st.Stepper(new, store, evolve=True)
    (change,) = stepper.evolve(whole=["second"])
    assert dict(change.to_python().iter()) == {("x", 1): 1}
    (change,) = stepper.step((Z({tea: -1}), None))
    assert dict(change.to_python().iter()) == {("x", 1): -1}


def test_a_condition_of_an_outer_join_may_change() -> None:
    """The evolution composes maps of rows that may be NULL with maps that make them NULL."""

    def met(least: int) -> Any:
        def query(orders: Orders, customers: Customers) -> Any:
            rows = st.outer_join(
                orders,
                customers,
                on_left=lambda o: o.customer,
                on_right=lambda c: c.id,
                where=lambda p: p.left.cents > least,
            )
            return st.map(rows, f=lambda p: (p.left.cents, p.right.name))

        return query

    ann = Customer(id=1, country="de", name="Ann")
    tea, milk = (Order(id=i, customer=1, cents=i, note=None) for i in (1, 2))
    for narrow in (False, True), (True, False), (False, False):
        old, new = (st.compile(met(n), whole_rows=w) for n, w in enumerate(narrow))
        store = st.StoreMemory.from_graph(old)
        st.Stepper(old, store).step((Z({tea: 1, milk: 1}), Z({ann: 1})))
        rows = {"orders": Z({tea: 1, milk: 1}), "customers": Z({ann: 1})}
        again = {name: rows[name] for name in st.evolution(new, store).read_again}
        stepper: Any = st.Stepper(new, store, evolve=True)
        (change,) = stepper.evolve(**again)
        assert dict(change.to_python().iter()) == {(1, "Ann"): -1, (1, None): 1}


ids, texts = some.integers(0, 2), some.sampled_from(["a", "b"])
orders = some.builds(Order, id=ids, customer=ids, cents=ids, note=texts | some.none())
customers = some.builds(Customer, id=ids, country=texts, name=texts)
countries = some.builds(Country, code=texts, label=texts, size=ids)
ROWS = {Order: orders, Customer: customers, Country: countries}


def changes(rows: Any) -> Any:
    """Changes of rows, with deletions."""
    counts = some.integers(-2, 2).filter(bool)
    return some.dictionaries(rows, counts, max_size=4).map(st.ZSetPython)


@functools.cache
def compiled(query: Callable[..., Any], *, whole_rows: bool) -> Any:
    return st.compile(query, whole_rows=whole_rows)


@pytest.mark.turn(2)
@pytest.mark.spark
@pytest.mark.parametrize("query", QUERIES, ids=[query.__name__ for query in QUERIES])
@settings(max_examples=10, deadline=None)
@given(data=some.data())
def test_the_changes_are_those_of_the_query_as_written(
    query: Callable[..., Any], spark: Any, data: Any
) -> None:
    graph, whole = (compiled(query, whole_rows=whole_rows) for whole_rows in (False, True))
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    plain: Any = st.Stepper(whole, st.StoreMemory.from_graph(whole))
    inputs: Any = graph.inputs
    rows = [ROWS[v.type.row.python] for v in inputs]
    for _ in range(3):
        step = tuple(data.draw(changes(of)) for of in rows)
        outs, wanted = (
            x if isinstance(x, tuple) else (x,) for x in (stepper.step(step), plain.step(step))
        )
        assert [o.to_python() for o in outs] == [o.to_python() for o in wanted]
