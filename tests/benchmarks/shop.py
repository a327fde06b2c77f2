"""Small steps of ten views of a shop, as a newcomer writes them, beside an empty Spark job.

    python -m tests.benchmarks.shop

The views are those of `examples/shop.py`, and four with functions of Spark, each a circuit of its
own with its state in memory. A step has five orders with two lines each, a return, and some clicks;
one older order goes. There are 40 customers and 20 products. Medians of the last 50 of 150 steps,
and of an empty job after each.
A *question* is a query of Spark's, with or without a job.
"""

from __future__ import annotations

import datetime as dt
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from examples import shop
from examples.shop import Click, Customer, Line, Order, Price, Product, Return
from stepping_spark import functions as F
from tests.benchmarks.peers.spark import session

ZSet = st.ZSet
CUSTOMERS, PRODUCTS = 40, 20


def of_sales(view: Callable[[Any], Any]) -> Callable[..., Any]:
    """The query of a view of what was sold."""

    def query(
        customers: ZSet[Customer], products: ZSet[Product], orders: ZSet[Order], lines: ZSet[Line]
    ) -> Any:
        return view(shop.sold(lines, orders, customers, products))

    return query


def net_revenue(
    customers: ZSet[Customer],
    products: ZSet[Product],
    orders: ZSet[Order],
    lines: ZSet[Line],
    returns: ZSet[Return],
) -> Any:
    return shop.net_revenue(shop.sold(lines, orders, customers, products), returns)


def returned_share(orders: ZSet[Order], returns: ZSet[Return]) -> Any:
    return shop.returned_share(orders, returns)


def sleeping(customers: ZSet[Customer], orders: ZSet[Order]) -> Any:
    return shop.sleeping(customers, orders)


def visits(clicks: ZSet[Click]) -> Any:
    return shop.visits(clicks)


def list_prices(
    customers: ZSet[Customer],
    products: ZSet[Product],
    prices: ZSet[Price],
    orders: ZSet[Order],
    lines: ZSet[Line],
) -> Any:
    return shop.list_prices(shop.sold(lines, orders, customers, products), prices)


VIEWS: dict[str, Callable[..., Any]] = {
    "revenue by month, country, category": of_sales(shop.revenue),
    "the same, net of returns": net_revenue,
    "share of orders with a return": returned_share,
    "best three products, with rank": of_sales(shop.best_products),
    "customers without an order": sleeping,
    "running total by day": of_sales(lambda sales: shop.running_total(shop.daily(sales))),
    "moving average of 7 days": of_sales(lambda sales: shop.moving_average(shop.daily(sales))),
    "visits": visits,
    "list price of each line": list_prices,
    "median value of orders": of_sales(shop.median_value),
}


def months(clicks: ZSet[Click]) -> Any:
    return st.distinct(st.map(clicks, f=lambda c: (c.user, F.trunc(c.at, "month"))))


def words(clicks: ZSet[Click]) -> Any:
    parts = st.map_many(
        clicks,
        f=lambda c: F.transform(
            F.split(F.date_format(c.at, "yyyy-MM-dd HH:mm"), "-"),
            lambda w, i: F.struct(w.alias("_1"), i.alias("_2")),
        ),
        to=tuple[str, int],
    )
    return st.distinct(parts)


def numbers(clicks: ZSet[Click]) -> Any:
    def of(c: Click) -> tuple[int, int, dt.date]:
        return c.user, F.col(F.date_format(c.at, "dd")).cast("int"), F.to_date(c.at)

    return st.distinct(st.map(clicks, f=of))


def firsts(clicks: ZSet[Click]) -> Any:
    return st.distinct(
        st.map(clicks, f=lambda c: (c.user, F.make_date(F.year(c.at), F.month(c.at), F.lit(1))))
    )


MORE: dict[str, Callable[..., Any]] = {
    "the month of an instant": months,
    "parts of a text, with their places": words,
    "casts of text and of instants": numbers,
    "the first day of the month, made of parts": firsts,
}
"""Views with functions of Spark that the driver computes."""


class Trade:
    """The changes of the tables, a step after the other."""

    def __init__(self) -> None:
        self._chance = random.Random(7)
        self._number = 0
        self._there: list[tuple[Order, list[Line]]] = []

    def step(self) -> tuple[dt.date, dict[str, Any]]:
        """The day of the next step, and what changes."""
        day = shop.START + dt.timedelta(days=self._number // 2)
        rows: dict[str, list[tuple[Any, int]]] = {name: [] for name in shop.TABLES}
        if not self._number:
            rows["customers"] = [
                (Customer(id=i, country=("PT", "DE", "GH", "CL")[i % 4]), 1)
                for i in range(CUSTOMERS)
            ]
            rows["products"] = [
                (Product(id=i, category=f"category {i % 4}"), 1) for i in range(PRODUCTS)
            ]
            rows["prices"] = [
                (Price(product=i, since=day, cents=100 + i), 1) for i in range(PRODUCTS)
            ]
        if self._there:
            order, lines = self._there.pop(self._chance.randrange(len(self._there)))
            rows["orders"].append((order, -1))
            rows["lines"] += [(line, -1) for line in lines]
        for i in range(5):
            self._buy(5 * self._number + i, day, rows)
        minutes = self._chance.sample(range(1_440), 8)
        noon = dt.datetime.combine(day, dt.time(), dt.UTC)
        rows["clicks"] = [
            (Click(user=m % 7, at=noon + dt.timedelta(minutes=m, seconds=self._number)), 1)
            for m in minutes
        ]
        self._number += 1
        return day, {name: st.ZSetPython(changes) for name, changes in rows.items()}

    def _buy(self, id: int, day: dt.date, rows: dict[str, list[tuple[Any, int]]]) -> None:  # noqa: A002
        order = Order(id=id, customer=self._chance.randrange(CUSTOMERS), placed=day)
        lines = [
            Line(order=id, no=no, product=product, qty=1 + no, cents=100 + product)
            for no, product in enumerate(self._chance.sample(range(PRODUCTS), 2))
        ]
        self._there.append((order, lines))
        rows["orders"].append((order, 1))
        rows["lines"] += [(line, 1) for line in lines]
        if id % 5 == 0:
            rows["returns"].append((Return(order=id, no=0, qty=1, day=day), 1))


def ms(f: Callable[[], object]) -> float:
    begun = time.perf_counter()
    f()
    return (time.perf_counter() - begun) * 1e3


@click.command(help=__doc__)
@click.option("--steps", default=150, show_default=True)
@click.option("--measured", default=50, show_default=True, help="of the steps, the last ones")
def main(steps: int, measured: int) -> None:
    with tempfile.TemporaryDirectory(prefix="shop-") as home:
        spark = session(Path(home))
        shown = Table("view", "a step, ms", "an empty job, ms", "ratio", "questions")
        for name, query in {**VIEWS, **MORE}.items():
            graph: Any = st.compile(query)
            stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph))
            trade, took, empty, questions = Trade(), [], [], 0
            for number in range(steps):
                day, changes = trade.step()
                given = tuple(changes[label] for _, label in _inputs(graph))
                took.append(ms(lambda: stepper.step(given, now=day)))  # noqa: B023
                empty.append(ms(lambda: spark.range(1).collect()))
                if number >= steps - measured:
                    questions += stepper.metrics[-1].queries
            step, job = (statistics.median(times[-measured:]) for times in (took, empty))
            cells = [f"{step:.1f}", f"{job:.1f}", f"{step / job:.2f}", f"{questions / measured:g}"]
            shown.add_row(name, *cells)
        Console(width=120).print(shown)
        spark.stop()


def _inputs(graph: Any) -> list[tuple[Any, str]]:
    """The inputs of a circuit, with the names of their tables."""
    return [(v, v.operator.label) for v, _ in graph.named_inputs]


if __name__ == "__main__":
    main()
