"""A query that changes, beside the new query on a new state: a ratio of one run.

    python -m tests.benchmarks.evolving --scale 1

The view is *orders* of `tests.benchmarks.views`, on TPC-H's tables. It gets one aggregate more,
which joins the kept tables again, and a view that filters it is added. Each round loads the old
query, evolves its state, and loads the new query into a new state, with the same tables; the
numbers of rows are compared. CPU is that of the process and of Spark's.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import click
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from stepping_spark.stepper.evolve.evolution import WHOLE
from tests.benchmarks.peers import workload
from tests.benchmarks.peers.ours import ROWS, Customer, Line, Order, Sold, orders
from tests.benchmarks.peers.spark import session
from tests.benchmarks.took import Took, took


class SoldFor(st.Data):
    custkey: int
    segment: str
    n_lines: int
    revenue: int
    last_order: dt.date
    discount: int


def with_discount(
    customers: st.ZSet[Customer], orders: st.ZSet[Order], lines: st.ZSet[Line]
) -> st.ZSet[SoldFor]:
    """The view with one aggregate more."""
    order = st.Lookup(orders, key=lambda o: o.orderkey, on=lambda row: row[0].orderkey)
    customer = st.Lookup(customers, key=lambda c: c.custkey, on=lambda row: row[1].custkey)
    return st.aggregate(
        st.delta_join(lines, order, customer),
        by=lambda row: (row[2].custkey, row[2].segment),
        into=SoldFor,
        group_size=1_000,
        n_lines=st.agg.count(),
        revenue=st.agg.sum(lambda row: row[0].price * (100 - row[0].discount)),
        last_order=st.agg.max(lambda row: row[1].orderdate),
        discount=st.agg.sum(lambda row: row[0].discount),
    )


def with_large(
    customers: st.ZSet[Customer], orders_: st.ZSet[Order], lines: st.ZSet[Line]
) -> tuple[st.ZSet[Sold], st.ZSet[Sold]]:
    """The view, and a filter of it."""
    sold = orders(customers, orders_, lines)
    return sold, st.filter(sold, f=lambda row: row.n_lines > 150)


CHANGES: dict[str, Callable[..., Any]] = {
    "one aggregate more": with_discount,
    "a view that filters it": with_large,
}


def timed(f: Callable[[], Any]) -> tuple[list[pa.Table], Took]:
    """What a function gives, and what it took; its answer is computed."""
    return took(lambda: [out.to_arrow() for out in f()])


def measure(change: Callable[..., Any], tables: Any, store: str, home: Path) -> tuple[Took, ...]:
    """A load of the view, its evolution, and a load of the query that it becomes."""
    before, after = st.compile(orders), st.compile(change)

    def opened(graph: Any, path: Path, *, create: bool) -> Any:
        if store == "memory":
            return st.StoreMemory.from_graph(graph)
        return st.StoreParquet.from_graph(graph, str(path), create=create, evolve=not create)

    old = opened(before, home / "old", create=True)
    _, load = timed(lambda: st.Stepper(before, old).step(tables))
    if store == "parquet":
        old.close()
        old = opened(after, home / "old", create=False)
    stepper: Any = st.Stepper(after, old, evolve=True)
    whole = [n for n, said in st.evolution(after, old).views.items() if said in WHOLE]
    given, evolved = timed(lambda: stepper.evolve(whole=whole))
    new = opened(after, home / "new", create=True)
    made, anew = timed(lambda: st.Stepper(after, new).step(tables))
    if given[-1].num_rows != made[-1].num_rows:
        raise click.ClickException(f"{given[-1].num_rows} rows, and anew {made[-1].num_rows}")
    for one in (old, new):
        one.close()
    return load, evolved, anew


@click.command(help=__doc__)
@click.option("--scale", default=0.1, show_default=True, help="TPC-H's scale factor")
@click.option("--rounds", default=3, show_default=True, help="the first one warms up")
@click.option("--stores", default="memory,parquet", show_default=True)
@click.option("--change", type=click.Choice(list(CHANGES)), help="only this one")
@click.option("--data", type=click.Path(path_type=Path), help="a directory to keep the tables in")
def main(scale: float, rounds: int, stores: str, change: str | None, data: Path | None) -> None:
    console = Console(width=110)
    with tempfile.TemporaryDirectory(prefix="evolving-") as scratch:
        home = Path(scratch)
        made = workload.make(data or home / "data", scale, [], 0)
        spark = session(home)
        tables = tuple(
            st.ZSetSpark.from_dataframe(spark.read.parquet(f"{made.root}/base/{n}.parquet"), t)
            for n, t in ROWS.items()
        )
        shown = Table(title=f"the view orders at scale {scale:g}; seconds, medians")
        for column in (
            "change",
            "store",
            "evolve",
            "anew",
            "ratio",
            "CPU",
            "CPU anew",
            "CPU ratio",
        ):
            shown.add_column(column, justify="left" if column in ("change", "store") else "right")
        for name, query in CHANGES.items():
            if change not in (None, name):
                continue
            for store in stores.split(","):
                found = []
                for n in range(rounds):
                    at = home / f"{query.__name__}_{store}_{n}"
                    found.append(measure(query, tables, store, at))
                    _, evolved, anew = found[-1]
                    console.print(f"{name}, {store}: {evolved.wall:.3g} s, anew {anew.wall:.3g} s")
                pairs = [(evolved, anew) for _, evolved, anew in found[1:] or found]
                walls = [(e.wall, a.wall, e.wall / a.wall) for e, a in pairs]
                cpus = [(e.cpu, a.cpu, e.cpu / a.cpu) for e, a in pairs]
                columns = (*zip(*walls, strict=True), *zip(*cpus, strict=True))
                cells = [f"{median(column):.3g}" for column in columns]
                shown.add_row(name, store, *cells)
        console.print(shown)
        spark.stop()


if __name__ == "__main__":
    main()
