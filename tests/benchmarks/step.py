"""A small step of a join, measured beside an empty Spark job, a hand-written query and recomputing.

    python -m tests.benchmarks.step --rows 10000,1000000,10000000

For each size of the state, in turn and in one run: `spark.range(1).collect()`; the step's join by
hand, as one SQL query on cached state sorted by key; our step on the driver and, with
`local_rows=0`, as Spark jobs; and the whole join computed again. Three changed rows on one side,
one on the other. Medians, and ratios to the empty job and the hand-written query.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from stepping_spark.spark.session import JobCounter, get_session
from tests.benchmarks.peers import report
from tests.benchmarks.tables import Customer, Order, Tables, query


@dataclass
class Timed:
    """A way to do it, and the milliseconds and jobs of each round."""

    run: Callable[[int], object]
    ms: list[float] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)


class Ours:
    """Our step on a state of so many orders."""

    def __init__(
        self, spark: SparkSession, rows: int, limits: st.Limits, store: Any = None
    ) -> None:
        self.tables = Tables(rows)
        graph = st.compile(query)
        self.stepper = st.Stepper(graph, store or st.StoreMemory.from_graph(graph), limits=limits)
        self.tables.load(spark, self.stepper)

    def step(self, n: int) -> None:
        orders, customers = changes(n, self.tables)
        (out,) = self.stepper.step((st.ZSetPython(orders), st.ZSetPython(customers)))
        assert not out.empty()


def changes(n: int, tables: Tables) -> tuple[list[tuple[Order, int]], list[tuple[Customer, int]]]:
    """Three changed orders, and one changed customer."""
    rows, customers = tables.rows, tables.customers
    k = 7 * n % customers
    other = (k + 3) % customers
    orders = [
        (Order(id=rows + n, customer=k, amount=n), 1),
        (Order(id=rows + n, customer=other, amount=n), 1),
        (Order(id=n % customers, customer=n % customers, amount=n % customers % 97), -1),
    ]
    return orders, [(Customer(id=other, region=100 + n), 1)]


class ByHand:
    """The same step as an expert writes it: one query, on cached tables sorted by key."""

    def __init__(self, spark: SparkSession, rows: int) -> None:
        self.spark, self.tables = spark, Tables(rows)
        for name, key, text in (
            ("hand_orders", "customer", self.tables.orders_in_sql),
            ("hand_customers", "id", self.tables.customers_in_sql),
        ):
            text = f"SELECT *, 1L AS n FROM ({text})"
            frame = spark.sql(text).repartitionByRange(2, key).sortWithinPartitions(key)
            cached = frame.localCheckpoint().cache()
            cached.count()
            cached.createOrReplaceTempView(name)

    def step(self, n: int) -> None:
        orders, customers = changes(n, self.tables)
        o = ", ".join(f"({r.id}L, {r.customer}L, {r.amount}L, {w}L)" for r, w in orders)
        c = ", ".join(f"({r.id}L, {r.region}L, {w}L)" for r, w in customers)
        o_keys = ", ".join(str(r.customer) for r, _ in orders)
        c_keys = ", ".join(str(r.id) for r, _ in customers)
        self.spark.sql(f"""
            WITH o AS (SELECT * FROM VALUES {o} AS t(id, customer, amount, n)),
                 c AS (SELECT * FROM VALUES {c} AS t(id, region, n)),
                 old_o AS (SELECT * FROM hand_orders WHERE customer IN ({c_keys})),
                 old_c AS (SELECT * FROM hand_customers WHERE id IN ({o_keys}))
            SELECT o.id, customer, amount, c.region, o.n * c.n AS n
              FROM (SELECT * FROM old_o UNION ALL SELECT * FROM o) o JOIN c ON customer = c.id
            UNION ALL
            SELECT o.id, customer, amount, c.region, o.n * c.n AS n
              FROM o JOIN old_c c ON customer = c.id
        """).toArrow()

    def recompute(self, n: int) -> None:
        joined = self.spark.sql(
            "SELECT o.*, c.region FROM hand_orders o JOIN hand_customers c ON customer = c.id"
        )
        joined.write.format("noop").mode("overwrite").save()


def measure(spark: SparkSession, rows: int, rounds: int) -> dict[str, Timed]:
    """Every way in turn, round by round."""
    by_hand = ByHand(spark, rows)
    ways = {
        "empty job": Timed(lambda n: spark.range(1).collect()),
        "by hand, one query": Timed(by_hand.step),
        "our step": Timed(Ours(spark, rows, st.Limits()).step),
        "our step, local_rows=0": Timed(Ours(spark, rows, st.Limits(local_rows=0)).step),
    }
    for n in range(rounds + 20):
        for way in ways.values():
            with JobCounter(spark) as jobs:
                begun = time.perf_counter()
                way.run(n + 1)
                ms = (time.perf_counter() - begun) * 1e3
            if n >= 20:  # the first ones are slower, while the JVM warms up
                way.ms.append(ms)
                way.jobs.append(jobs.count or 0)
    again = Timed(by_hand.recompute)
    for n in range(3):
        begun = time.perf_counter()
        again.run(n)
        again.ms.append((time.perf_counter() - begun) * 1e3)
    ways["recompute"] = again
    for name in ("hand_orders", "hand_customers"):
        spark.catalog.uncacheTable(name)
    return ways


@click.command()
@click.option("--rows", default="10000,1000000,10000000", show_default=True)
@click.option("--rounds", default=30, show_default=True)
def main(rows: str, rounds: int) -> None:
    """Print the medians, side by side."""
    spark = get_session()
    table = Table(title="a step of three and one changed rows; milliseconds, medians")
    for name in ("rows of state", "way", "ms", "p95", "/ empty job", "/ by hand", "jobs"):
        table.add_column(name, justify="left" if name == "way" else "right")
    ours: dict[int, float] = {}
    for n in (int(r) for r in rows.split(",")):
        ways = measure(spark, n, rounds)
        empty, hand = (statistics.median(ways[w].ms) for w in ("empty job", "by hand, one query"))
        ours[n] = statistics.median(ways["our step"].ms)
        for way, timed in ways.items():
            ms = statistics.median(timed.ms)
            p95 = report.p95(timed.ms)
            jobs = f"{statistics.median(timed.jobs):g}" if timed.jobs else ""
            table.add_row(
                f"{n:,}", way, f"{ms:.1f}", f"{p95:.1f}", f"{ms / empty:.2f}", f"{ms / hand:.2f}",
                jobs,
            )  # fmt: skip
        table.add_section()
    console = Console()
    console.print(table)
    if len(ours) > 1:
        small, large = min(ours), max(ours)
        console.print(f"our step, {large:,} rows to {small:,}: {ours[large] / ours[small]:.2f}")


if __name__ == "__main__":
    main()
