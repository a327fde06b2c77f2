"""TPC-H's 22 queries from SQL beside those by hand, in one run: CPU time of steps and of compiling.

    python -m tests.benchmarks.tpch_in_sql --scale 0.05 --share 0.1

Both views take the same refreshes in turns: orders with their lines go and come back, or offers of
parts, where a query reads neither. A ratio above 1 says that the view from SQL takes longer.
"""

from __future__ import annotations

import inspect
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from stepping_spark.plan.planner import plan_of
from tests.benchmarks.tpch import OFFERS, ORDERS, WEIGHT
from tests.tpch.data import generate, table_of
from tests.tpch.sql import QUERIES
from tests.tpch.tables import TABLES
from tests.tpch.test_tpch import MAINTAINED

MOST = 1.1
"""The ratio that a view from SQL is to keep."""


def cpu(f: Callable[[], object]) -> float:
    """The milliseconds of CPU time of a call."""
    begun = time.process_time()
    f()
    return (time.process_time() - begun) * 1e3


class View:
    """A view and its state."""

    def __init__(self, query: Callable[..., Any]) -> None:
        self.graph: Any = st.compile(query)
        self.own = list(inspect.signature(query).parameters)
        self._stepper: Any = st.Stepper(self.graph, st.StoreMemory.from_graph(self.graph))

    def step(self, rows: dict[str, pa.Table], weight: int) -> float:
        """The CPU time of a step, with its output."""
        changes = [_change(n, rows[n], weight) if n in rows else None for n in self.own]
        return cpu(lambda: self._stepper.step(changes)[0].to_arrow())

    @property
    def registers(self) -> int:
        """How many registers it keeps."""
        return len(plan_of(self.graph).registers)


def _change(name: str, rows: pa.Table, weight: int) -> st.ZSetSpark[Any]:
    weights = pa.array([weight] * rows.num_rows, pa.int64())
    return st.ZSetSpark.from_arrow(rows.append_column(WEIGHT, weights), TABLES[name], count=WEIGHT)


def _gone(
    tables: dict[str, pa.Table], names: list[str], share: float, r: random.Random
) -> dict[str, pa.Table]:
    """The rows of a share of the orders, or of the offers, in per cent."""
    keys = ORDERS if set(ORDERS) & set(names) else OFFERS
    whole = next(iter(keys))
    there = pc.unique(tables[whole][keys[whole]]).to_pylist()
    gone = pa.array(r.sample(there, max(1, round(len(there) * share / 100))), pa.int64())
    return {
        n: tables[n].filter(pc.is_in(tables[n][key], gone)) for n, key in keys.items() if n in names
    }


def compared(
    tables: dict[str, pa.Table], n: int, share: float, rounds: int
) -> tuple[float, float, float, float, int, int]:
    """CPU times of compiling and of a step, by hand and from SQL; and the registers of both."""
    names = list(inspect.signature(MAINTAINED[n]).parameters)
    text = QUERIES[n]
    given: dict[str, Any] = {name: TABLES[name] for name in names}

    def from_sql() -> Any:
        query: Any = st.sql(text, **given)
        return query

    from_sql()  # the first one compiles what the others use
    compiling = cpu(lambda: st.compile(MAINTAINED[n])), cpu(lambda: st.compile(from_sql()))
    views = View(MAINTAINED[n]), View(from_sql())
    for view in views:
        view.step({name: tables[name] for name in names}, 1)
    r = random.Random(1)
    times: tuple[list[float], list[float]] = [], []
    for number in range(rounds + 1):
        rows = _gone(tables, names, share, r)
        for weight in (-1, 1):
            order = (0, 1) if number % 2 else (1, 0)
            for i in order:
                taken = views[i].step(rows, weight)
                if number:
                    times[i].append(taken)
    by_hand, in_sql = (median(t) for t in times)
    return *compiling, by_hand, in_sql, views[0].registers, views[1].registers


@click.command(help=__doc__)
@click.option("--scale", default=0.05, show_default=True, help="TPC-H's scale factor")
@click.option("--share", default=0.1, show_default=True, help="per cent of the orders")
@click.option("--queries", default=",".join(map(str, QUERIES)), show_default=True)
@click.option("--rounds", default=5, show_default=True, help="pairs of refreshes measured")
def main(scale: float, share: float, queries: str, rounds: int) -> None:
    console = Console(width=110)
    shown = Table(title="CPU time, ms: by hand, from SQL")
    for name in ("query", "compile", "from SQL", "step", "from SQL", "ratio", "registers"):
        shown.add_column(name, justify="right")
    with tempfile.TemporaryDirectory(prefix="tpch-") as folder:
        generate(Path(folder), str(scale))
        tables = {name: table_of(Path(folder), name) for name in TABLES}
        ratios = []
        for n in map(int, queries.split(",")):
            hand, sql, step, step_in_sql, kept, kept_in_sql = compared(tables, n, share, rounds)
            ratio = step_in_sql / step
            ratios.append(ratio)
            mark = " !" if ratio > MOST else ""
            cells = (f"{x:,.1f}" for x in (hand, sql, step, step_in_sql))
            shown.add_row(f"Q{n}", *cells, f"{ratio:.2f}{mark}", f"{kept}, {kept_in_sql}")
            console.print(f"Q{n}: {ratio:.2f}", highlight=False)
    console.print(shown)
    console.print(f"median {median(ratios):.2f}, above {MOST}: {sum(x > MOST for x in ratios)}")


if __name__ == "__main__":
    main()
