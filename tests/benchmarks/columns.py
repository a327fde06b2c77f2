"""What it saves that the state of a join has only the columns that are read.

    python -m tests.benchmarks.columns --scale 0.3 --sizes 10,1000,10000

A view in Python of TPC-H's orders and lines, as rows with all columns, that sums one column by
another. In turn and in one run: with the columns that the view reads, and with `whole_rows`. A step
takes orders away, and the next one brings them back. The state is in memory; medians.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from tests.tpch.data import generate, table_of
from tests.tpch.tables import LineItem, Order

STEPS = 10


def numbers(orders: st.ZSet[Order], lineitem: st.ZSet[LineItem]) -> st.ZSet[st.Pair[int, int]]:
    sold = st.join(
        orders, lineitem, on_left=lambda o: o.o_orderkey, on_right=lambda line: line.l_orderkey
    )
    return st.group_reduce_flatten(
        sold,
        by=lambda p: p.left.o_custkey,
        zero=int,
        pick_value=lambda p: p.right.l_linenumber,
    )


class View:
    """The view, with its state in memory."""

    def __init__(self, *, whole_rows: bool) -> None:
        graph = st.compile(numbers, whole_rows=whole_rows)
        self.store = st.StoreMemory.from_graph(graph)
        self._stepper: Any = st.Stepper(graph, self.store)
        self.taken: dict[int, list[float]] = {}

    def step(self, size: int, *change: Any) -> None:
        begun = time.perf_counter()
        self._stepper.step(change)
        self.taken.setdefault(size, []).append((time.perf_counter() - begun) * 1e3)


def weighed(rows: pa.Table, row: Any, weight: int) -> Any:
    weights = pa.array([weight] * rows.num_rows, pa.int64())
    return st.ZSetSpark.from_arrow(rows.append_column("weight", weights), row, count="weight")


@click.command(help=__doc__)
@click.option("--scale", default="0.3")
@click.option("--sizes", default="10,1000,10000", help="How many orders change.")
def main(scale: str, sizes: str) -> None:
    source = random.Random(1)
    views = {"read": View(whole_rows=False), "whole rows": View(whole_rows=True)}
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), scale)
        orders, lines = (table_of(Path(folder), name) for name in ("orders", "lineitem"))
    for view in views.values():
        view.step(0, weighed(orders, Order, 1), weighed(lines, LineItem, 1))
    for size in map(int, sizes.split(",")):
        for _ in range(STEPS):
            keys = pa.array(source.sample(range(orders.num_rows), size))
            some = orders.take(keys)
            for weight in (-1, 1):
                for view in views.values():
                    view.step(size, weighed(some, Order, weight), None)
    columns = ["columns", "state, MB", *(f"{n}, ms" if n else "load, ms" for n in view.taken)]
    table = Table(*columns)
    for name, view in views.items():
        medians = (f"{statistics.median(taken):,.1f}" for taken in view.taken.values())
        table.add_row(name, f"{view.store.driver_bytes / 1e6:,.0f}", *medians)
    Console().print(table)


if __name__ == "__main__":
    main()
