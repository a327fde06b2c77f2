"""TPC-H's 22 queries under refreshes: a step of a view, beside computing it again.

    python -m tests.benchmarks.tpch --scale 0.1 --shares 0.01,0.1,1,10,50 --queries 1,3,18
    python -m tests.benchmarks.tpch --scale 1 --shares 1 --modes spark --rounds 2

A refresh of a share takes so many of the orders away with their lines, and the next one brings
them back. A query that reads neither loses offers of parts (`partsupp`) instead. `driver` is the
library as it comes, `spark` has Spark's tasks compute every step; both keep their state in memory.
Beside it is the same text in Spark SQL, on tables in Spark's cache, in the same process. A view is
compared with what Spark computes while the largest refresh is away. Medians; a speed-up is a ratio
of one run.
"""

from __future__ import annotations

import csv
import inspect
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.dataset import dataset
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from tests.tpch.data import generate, table_of
from tests.tpch.sql import QUERIES
from tests.tpch.tables import TABLES
from tests.tpch.test_tpch import MAINTAINED

MODES = {"driver": st.Limits(), "spark": st.Limits(local_rows=0)}
ORDERS = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
OFFERS = {"partsupp": "ps_partkey"}
WEIGHT = "_n_"
Views = dict[str, pa.Table]


@dataclass(frozen=True)
class Measured:
    """One cell: a query, how it was maintained, the share that changed, and milliseconds."""

    query: int
    mode: str
    share: float
    step: float
    again: float

    @property
    def speed_up(self) -> float:
        """How many times faster the step is."""
        return self.again / self.step


def ms(f: Callable[[], object]) -> float:
    begun = time.perf_counter()
    f()
    return (time.perf_counter() - begun) * 1e3


class Refreshes:
    """The tables, what of them changes, and where changes are kept, all as files.

    At scale 1 the tables have 2 GB in memory, beside those in Spark's cache.
    """

    def __init__(self, spark: SparkSession, folder: Path, scale: float) -> None:
        generate(folder, str(scale))
        self.spark = spark
        self.folder = folder
        self._chance = random.Random(1)
        for name in TABLES:
            pq.write_table(table_of(folder, name), self._file(name))
            self.define(name)

    def _file(self, name: str, of: str = "whole") -> str:
        return str(self.folder / f"{of}-{name}.parquet")

    def define(self, name: str, without: pa.Table | None = None) -> None:
        """Let Spark have a table in its cache by its name: all of it, or without some rows."""
        file = self._file(name)
        self.spark.catalog.dropTempView(name)
        if without is not None:
            key = (ORDERS | OFFERS)[name]
            left = dataset(file).scanner(filter=~pc.field(key).isin(without[key].unique()))
            file = self._file(name, "left")
            with pq.ParquetWriter(file, left.projected_schema) as writer:
                for batch in left.to_batches():
                    writer.write_batch(batch)
        frame = self.spark.read.parquet(file).cache()
        frame.count()
        frame.createOrReplaceTempView(name)

    def of(self, names: Sequence[str], share: float) -> Views:
        """The rows of some tables that a refresh of a share, in per cent, takes away."""
        keys = ORDERS if set(ORDERS) & set(names) else OFFERS
        changed = {n: k for n, k in keys.items() if n in names}
        whole = next(iter(keys))
        there = pq.read_table(self._file(whole), columns=[keys[whole]])[0].unique().to_pylist()
        gone = self._chance.sample(there, max(1, round(len(there) * share / 100)))
        wanted = pa.array(gone, pa.int64())
        return {
            name: dataset(self._file(name)).to_table(filter=pc.field(key).isin(wanted))
            for name, key in changed.items()
        }

    def change(self, name: str, rows: pa.Table, weight: int, mode: str) -> st.ZSetSpark[Any]:
        """Rows with a weight, as a user would have them: a table, or a DataFrame of a file."""
        weights = pa.array([weight] * rows.num_rows, pa.int64())
        weighed = rows.append_column(WEIGHT, weights)
        if mode == "driver":
            return st.ZSetSpark.from_arrow(weighed, TABLES[name], count=WEIGHT)
        file = str(self.folder / f"change-{name}-{weight}.parquet")
        pq.write_table(weighed, file)
        frame = self.spark.read.parquet(file)
        return st.ZSetSpark.from_dataframe(frame, TABLES[name], count=WEIGHT)


class View:
    """A query's text: a view that is maintained, and what Spark computes again."""

    def __init__(self, tables: Refreshes, n: int, mode: str) -> None:
        self._tables, self.n, self._mode = tables, n, mode
        wanted: dict[str, Any] = {
            name: TABLES[name] for name in inspect.signature(MAINTAINED[n]).parameters
        }
        query: Any = st.sql(QUERIES[n], **wanted)
        self._names = list(inspect.signature(query).parameters)
        graph: Any = st.compile(query)
        self._store = st.StoreMemory.from_graph(graph)
        self._stepper: Any = st.Stepper(graph, self._store, limits=MODES[mode])
        whole = [self._frame(name) for name in self._names]
        (out,) = self._stepper.step(whole)
        self._outs = [out.to_arrow()]

    def _frame(self, name: str) -> st.ZSetSpark[Any]:
        return st.ZSetSpark.from_dataframe(self._tables.spark.table(name), TABLES[name])

    def refreshed(self, share: float) -> Views:
        """What a refresh of this share takes away."""
        return self._tables.of(self._names, share)

    def step(self, rows: Views, weight: int) -> float:
        """The milliseconds of a step, its output fetched."""
        changes = [
            self._tables.change(n, rows[n], weight, self._mode) if n in rows else None
            for n in self._names
        ]
        return ms(lambda: self._outs.append(self._stepper.step(changes)[0].to_arrow()))

    def again(self) -> float:
        """The milliseconds of the query's text. Adaptive execution is off, which is faster here."""
        return ms(lambda: self._tables.spark.sql(QUERIES[self.n]).toArrow())

    def check(self, gone: Views) -> None:
        """Compare the view with the query's text, on tables without these rows."""
        tables = self._tables
        for name, rows in gone.items():
            tables.define(name, without=rows)
        view: Counter[tuple[Any, ...]] = Counter()
        for out in self._outs:
            for *row, n in zip(*(c.to_pylist() for c in out.columns), strict=True):
                view[tuple(row)] += n
        try:
            fields = [f"`{name}`" for name in self._outs[0].column_names if name != "_count_"]
            wanted = tables.spark.sql(QUERIES[self.n]).select(*fields).collect()
        finally:
            for name in gone:
                tables.define(name)
        if +view != Counter(map(tuple, wanted)):
            raise click.ClickException(f"Q{self.n}, {self._mode}: the view is not what SQL gives")

    def close(self) -> None:
        """Give up the state."""
        self._store.close()


def measured(
    tables: Refreshes, n: int, mode: str, shares: Sequence[float], rounds: int
) -> list[Measured]:
    """All shares of one query in one mode."""
    view, found = View(tables, n, mode), []
    try:
        again = [view.again() for _ in range(rounds + 2)][2:]
        for share in shares:
            times: list[float] = []
            for number in range(rounds + 1):
                rows = view.refreshed(share)
                went = view.step(rows, -1)
                if share == max(shares) and not number:
                    view.check(rows)
                came = view.step(rows, 1)
                again.append(view.again())
                if number:  # the first compiles what the others run
                    times += (went, came)
            found.append(Measured(n, mode, share, median(times), median(again)))
    finally:
        view.close()
    return found


def shown(found: Sequence[Measured], shares: Sequence[float]) -> Table:
    """The speed-ups, a line for each query and mode, and their medians."""
    table = Table(title="speed-up of a step over computing the view again")
    for name in ("query", "where", "again, ms", *(f"{s:g} %" for s in shares)):
        table.add_column(name, justify="right")
    for query, mode in dict.fromkeys((m.query, m.mode) for m in found):
        of = [m for m in found if (m.query, m.mode) == (query, mode)]
        cells = [f"{m.speed_up:,.2g}" for m in of]
        table.add_row(f"Q{query}", mode, f"{of[-1].again:,.0f}", *cells)
    table.add_section()
    for mode in dict.fromkeys(m.mode for m in found):
        every = [[m.speed_up for m in found if (m.mode, m.share) == (mode, s)] for s in shares]
        table.add_row("median", mode, "", *(f"{median(of):,.2g}" for of in every))
    return table


def _numbers(_: object, __: object, text: str) -> list[float]:
    return [float(x) for x in text.split(",")]


@click.command(help=__doc__)
@click.option("--scale", default=0.1, show_default=True, help="TPC-H's scale factor")
@click.option("--queries", default=",".join(map(str, QUERIES)), show_default=True)
@click.option("--shares", default="0.01,0.1,1,10,50", callback=_numbers, help="per cent")
@click.option("--modes", default=",".join(MODES), show_default=True)
@click.option("--rounds", default=3, show_default=True, help="pairs of refreshes measured")
@click.option("--results", type=click.Path(path_type=Path), help="a CSV file to add lines to")
def main(
    scale: float,
    queries: str,
    shares: list[float],
    modes: str,
    rounds: int,
    results: Path | None,
) -> None:
    console = Console(width=110)
    found: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="tpch-") as folder:
        tables = Refreshes(st.get_session(), Path(folder), scale)
        for n in map(int, queries.split(",")):
            for mode in modes.split(","):
                made = measured(tables, n, mode, shares, rounds)
                found += made
                said = ", ".join(f"{m.share:g} %: {m.step:,.0f}" for m in made)
                console.print(f"Q{n} {mode}: {said}; again {made[-1].again:,.0f}", highlight=False)
                if results is not None:
                    with results.open("a", encoding="utf-8", newline="") as file:
                        csv.writer(file, lineterminator="\n").writerows(
                            (
                                f"{scale:g}",
                                m.query,
                                m.mode,
                                f"{m.share:g}",
                                round(m.step),
                                round(m.again),
                            )
                            for m in made
                        )
    console.print(shown(found, shares))


if __name__ == "__main__":
    main()
