"""The first load of a view, by kind of view, beside the plain query and a write of its inputs.

    python -m tests.benchmarks.first_load --scale 0.1 --kinds join,sums

A first load computes the view, and keeps what later steps will read. So it is compared with what
nobody can do without: the view's query in Spark SQL, computed to the end and kept nowhere, and a
write of its input tables as Parquet. All read the same files of TPC-H. Every round makes a new
state; the shortest round counts. Ratios of one run.
"""

from __future__ import annotations

import datetime as dt
import inspect
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from stepping_spark.relations.store import Store
from stepping_spark.spark.session import with_settings
from tests.benchmarks.peers import workload
from tests.benchmarks.peers.ours import Customer, Line, Order
from tests.benchmarks.peers.spark import AS_BY_DEFAULT, session

ROWS: dict[str, type[Any]] = {"customers": Customer, "orders": Order, "lines": Line}
STORES = ("memory", "parquet")


class Sum(st.Data):
    orderkey: int
    n: int
    price: int


class Last(st.Data):
    custkey: int
    orderdate: dt.date


class Numbered(st.Data):
    orderkey: int
    n: int


def discounted(lines: st.ZSet[Line]) -> st.ZSet[Line]:
    return st.filter(lines, lambda row: row.discount > 5)


def joined(
    customers: st.ZSet[Customer], orders: st.ZSet[Order]
) -> st.ZSet[st.Pair[Order, Customer]]:
    return st.join(orders, customers, on_left=lambda o: o.custkey, on_right=lambda c: c.custkey)


def sums(lines: st.ZSet[Line]) -> st.ZSet[Sum]:
    return st.aggregate(
        lines,
        by=lambda row: row.orderkey,
        into=Sum,
        n=st.agg.count(),
        price=st.agg.sum(lambda row: row.price),
    )


def last(group_size: int | None) -> Callable[..., st.ZSet[Last]]:
    def query(orders: st.ZSet[Order]) -> st.ZSet[Last]:
        return st.aggregate(
            orders,
            by=lambda row: row.custkey,
            into=Last,
            group_size=group_size,
            orderdate=st.agg.max(lambda row: row.orderdate),
        )

    return query


def buyers(orders: st.ZSet[Order]) -> st.ZSet[int]:
    return st.distinct(st.map(orders, f=lambda row: row.custkey))


def numbered(orders: st.ZSet[Order]) -> st.ZSet[Numbered]:
    return st.window(
        orders,
        by=lambda row: row.custkey,
        order=lambda row: row.orderdate,
        into=Numbered,
        n=st.win.row_number(),
    )


KINDS: dict[str, tuple[Callable[..., Any], str]] = {
    "filter": (discounted, "SELECT * FROM lines WHERE discount > 5"),
    "join": (joined, "SELECT * FROM orders JOIN customers USING (custkey)"),
    "sums": (sums, "SELECT orderkey, count(*), sum(price) FROM lines GROUP BY orderkey"),
    "max": (last(None), "SELECT custkey, max(orderdate) FROM orders GROUP BY custkey"),
    "max, group_size": (
        last(1_000),
        "SELECT custkey, max(orderdate) FROM orders GROUP BY custkey",
    ),
    "distinct": (buyers, "SELECT DISTINCT custkey FROM orders"),
    "row_number": (
        numbered,
        "SELECT orderkey, row_number() OVER (PARTITION BY custkey ORDER BY orderdate, orderkey) "
        "FROM orders",
    ),
}


def ms(f: Callable[[], object]) -> float:
    begun = time.perf_counter()
    f()
    return (time.perf_counter() - begun) * 1e3


def computed(frame: DataFrame) -> None:
    """Compute all rows of a DataFrame, and keep them nowhere."""
    frame.write.format("noop").mode("overwrite").save()


@dataclass
class Loads:
    """What is loaded, and from where."""

    spark: SparkSession
    tables: dict[str, DataFrame]
    scratch: Path
    local_rows: int

    def plain(self, text: str) -> float:
        """The milliseconds of the query, with Spark's own settings."""
        with with_settings(self.spark, AS_BY_DEFAULT):
            return ms(lambda: computed(self.spark.sql(text)))

    def write(self, names: list[str]) -> float:
        """The milliseconds of a write of tables."""
        to = self.scratch / "written"

        def write() -> None:
            for n in names:
                self.tables[n].write.mode("overwrite").parquet(str(to / n))

        return ms(write)

    def first(self, graph: Any, names: list[str], store: str) -> float:
        """The milliseconds of a first step in a new state."""
        with closing(self._store(graph, store)) as made:
            stepper: Any = st.Stepper(graph, made, local_rows=self.local_rows)
            given = tuple(st.ZSetSpark.from_dataframe(self.tables[n], ROWS[n]) for n in names)
            return ms(lambda: stepper.step(given))

    def _store(self, graph: Any, kind: str) -> Store:
        if kind == "memory":
            return st.StoreMemory.from_graph(graph)
        state = self.scratch / "state"
        shutil.rmtree(state, ignore_errors=True)
        return st.StoreParquet.from_graph(graph, str(state), create=True)


@click.command(help=__doc__)
@click.option("--scale", default=0.1, show_default=True, help="TPC-H's scale factor")
@click.option("--kinds", default=";".join(KINDS), show_default=True, help="by semicolons")
@click.option("--stores", default=",".join(STORES), show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--in-spark", is_flag=True, help="with local_rows=0")
@click.option("--data", type=click.Path(path_type=Path), help="a directory to keep the tables in")
def main(
    scale: float, kinds: str, stores: str, rounds: int, in_spark: bool, data: Path | None
) -> None:
    with tempfile.TemporaryDirectory(prefix="first-load-") as home:
        made = workload.make(data or Path(home, "data"), scale, [], 0)
        spark = session(Path(home))
        tables = {n: spark.read.parquet(str(made.root / "base" / f"{n}.parquet")) for n in ROWS}
        for name, frame in tables.items():
            frame.createOrReplaceTempView(name)
        rows = 0 if in_spark else st.Limits.local_rows
        loads = Loads(spark, tables, Path(home), rows)
        shown = Table("view", "rows", "query, ms", "write, ms")
        for store in stores.split(","):
            shown.add_column(f"{store}, ms")
            shown.add_column("× query and write")
        for kind in kinds.split(";"):
            query, text = KINDS[kind]
            graph: Any = st.compile(query)
            names = list(inspect.signature(query).parameters)
            best: dict[str, float] = {}
            for _ in range(rounds):
                ways = {
                    "query": loads.plain(text),
                    "write": loads.write(names),
                    **{s: loads.first(graph, names, s) for s in stores.split(",")},
                }
                best = {way: min(took, best.get(way, took)) for way, took in ways.items()}
            floor = best["query"] + best["write"]
            cells = [kind, f"{sum(made.rows[n] for n in names):,}"]
            cells += [f"{best['query']:,.0f}", f"{best['write']:,.0f}"]
            for store in stores.split(","):
                cells += [f"{best[store]:,.0f}", f"{best[store] / floor:.2f}"]
            shown.add_row(*cells)
        Console(width=120).print(shown)
        spark.stop()


if __name__ == "__main__":
    main()
