"""The memory of the driver and of its JVM over many steps: it must not grow with their number.

    python -m tests.benchmarks.memory --steps 2000
    python -m tests.benchmarks.memory --steps 2000 --local-rows 0

A view of two joined tables, grouped, with a maximum. Each step puts rows in the place of others,
so that the state stays as large. Printed are the resident memory of this process, and what the
JVM's heap holds after a garbage collection, where there is one.
"""

from __future__ import annotations

import gc
from typing import Any

import click
import psutil
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from tests.benchmarks.tables import Customer, Order


class Region(st.Data):
    region: int
    orders: int
    total: int
    most: int


def query(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> st.ZSet[Region]:
    joined = st.join(orders, customers, on_left=lambda o: o.customer, on_right=lambda c: c.id)
    regions = st.aggregate(
        joined,
        by=lambda p: p.right.region,
        into=Region,
        orders=st.agg.count(),
        total=st.agg.sum(lambda p: p.left.amount),
        most=st.agg.max(lambda p: p.left.amount),
    )
    return regions


def order(i: int, customers: int) -> Order:
    """The order of a number: always the same."""
    return Order(id=i, customer=7 * i % customers, amount=31 * i % 1_009)


def heap() -> int | None:
    """The bytes that the JVM's heap holds after a collection; None where none is running."""
    try:
        spark: Any = SparkSession.active()
    except PySparkRuntimeError:
        return None
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    return int(runtime.totalMemory() - runtime.freeMemory())


@click.command(help=__doc__)
@click.option("--steps", default=2_000, show_default=True)
@click.option("--rows", default=20_000, show_default=True, help="orders in the state")
@click.option("--changed", default=10, show_default=True, help="orders replaced in a step")
@click.option("--local-rows", default=st.Limits.local_rows, show_default=True)
def main(steps: int, rows: int, changed: int, local_rows: int) -> None:
    customers = max(rows // 10, 1)
    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    first = st.ZSetPython((order(i, customers), 1) for i in range(rows))
    known = st.ZSetPython((Customer(id=i, region=i % 25), 1) for i in range(customers))
    stepper.step((first, known))
    shown = {max(steps // 10, 1), steps // 2, steps}
    table = Table(title=f"{changed} of {rows:,} orders replaced in each step")
    for name in ("step", "driver, MB", "JVM heap after GC, MB", "ms"):
        table.add_column(name, justify="right")
    for n in range(1, steps + 1):
        at = range((n - 1) * changed, n * changed)
        change = [(order(rows + i, customers), 1) for i in at]
        change += [(order(i, customers), -1) for i in at]
        stepper.step((st.ZSetPython(change), None))
        if n in shown:
            gc.collect()
            held = heap()
            jvm = "" if held is None else f"{held / 2**20:,.0f}"
            resident = psutil.Process().memory_info().rss / 2**20
            table.add_row(f"{n:,}", f"{resident:,.0f}", jvm, f"{stepper.metrics[-1].ms:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
