"""Steps of five views in Spark's tasks, beside the same by hand in Spark SQL, all in one session.

    python -m tests.benchmarks.by_hand --scale 1 --sizes 30000,100000 --views q9,q21,first

The views are TPC-H's Q9 and Q21, the last three orders of each customer (`first`), a running sum of
each customer's orders (`window`), and the transitive closure of a graph of as many edges as there
are orders, in components of ten nodes (`reach`). By turns K orders come with their lines and K/2
go, or the other way; for `reach` they are edges. A tenth of all is away at first.

Engines take turns on each change, as those of `tests.benchmarks.fair`: by hand
(`tests/benchmarks/in_sql`), this library in Spark's tasks (`local_rows=0`) and by
default, both with their state in memory, and the query on the tables in Spark's cache, whose rows
are thrown away. CPU is that of all processes. What puts a change into the state by hand is not
timed. At the end the sum of all changes is compared with the query on the final tables. Medians;
the heap is BENCHMARK_HEAP (12g here). A line of `--results` has the scale, the view, K, rows,
engine, milliseconds, those of CPU, and jobs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console

import stepping_spark as st
from stepping_spark.spark.session import JobCounter, with_settings
from tests.benchmarks.in_sql.turnover import Turnover, raw
from tests.benchmarks.in_sql.views import VIEWS, View
from tests.benchmarks.peers import workload
from tests.benchmarks.peers.peer import WEIGHT, Tables
from tests.benchmarks.peers.spark import AS_BY_DEFAULT, HEAP, session
from tests.benchmarks.peers.workload import Workload
from tests.benchmarks.took import Took, took
from tests.benchmarks.turns import BY_DEFAULT, BY_HAND, CACHED, medians, remember, run, shown

IN_TASKS = "in tasks"
LIMITS = {IN_TASKS: st.Limits(local_rows=0), BY_DEFAULT: st.Limits()}


class Ours:
    """A circuit with its state in memory."""

    def __init__(self, spark: SparkSession, view: View, limits: st.Limits, base: Path) -> None:
        graph: Any = st.compile(view.query)
        self._rows, self._store = view.rows, st.StoreMemory.from_graph(graph)
        self._stepper: Any = st.Stepper(graph, self._store, limits=limits)
        tables = (
            st.ZSetSpark.from_dataframe(spark.read.parquet(str(base / f"{name}.parquet")), row)
            for name, row in view.rows.items()
        )
        (self.out,) = self._stepper.step(tuple(tables))

    def step(self, change: Tables) -> None:
        inputs = tuple(
            st.ZSetSpark.from_arrow(change[name], row, count=WEIGHT) if name in change else None
            for name, row in self._rows.items()
        )
        (self.out,) = self._stepper.step(inputs)

    def close(self) -> None:
        self._store.close()


class Engines:
    """All of them, for one view."""

    def __init__(self, spark: SparkSession, view: View, made: Workload, home: Path) -> None:
        self._spark: Any = spark
        self._view, self._made, self._home = view, made, home
        self._kept = 0
        self._hand = view.by_hand(spark, made.root / "base")
        self._out: Any = self._hand.load()
        self._ours = {
            n: Ours(spark, view, limits, made.root / "base") for n, limits in LIMITS.items()
        }
        self._note()

    def names(self) -> list[str]:
        return [BY_HAND, *LIMITS, CACHED]

    def step(self, name: str, change: Tables) -> tuple[int | None, Took]:
        steps: dict[str, Callable[[], None]] = {
            BY_HAND: partial(self._by_hand, change),
            **{n: partial(ours.step, change) for n, ours in self._ours.items()},
            CACHED: self._again,
        }
        with JobCounter(self._spark) as jobs:
            _, taken = took(steps[name])
        return jobs.count, taken

    def keep(self) -> None:
        self._note()
        self._hand.keep()
        self._spark._jvm.System.gc()

    def wrong(self) -> list[str]:
        """The engines of which the sum of all changes is not the query on the final tables."""
        for name in self._made.rows:
            file = self._made.root / "final" / f"{name}.parquet"
            self._spark.read.parquet(str(file)).createOrReplaceTempView(name)
        columns = ", ".join(f'"{c}"' for c in self._view.columns)
        expected = self._view.again(self._spark).toArrow()
        said = []
        with duckdb.connect() as con:
            con.register("expected", expected)
            for name in (BY_HAND, *LIMITS):
                found = con.execute(
                    f"SELECT {columns} FROM ("
                    f"SELECT {columns}, {WEIGHT} FROM '{self._home}/{name}-*.parquet' "
                    f"UNION ALL SELECT {columns}, -1 FROM expected) "
                    f"GROUP BY ALL HAVING sum({WEIGHT}) <> 0"
                ).fetchall()
                if found:
                    said.append(f"{name} ({len(found)} rows)")
        return said

    def close(self) -> None:
        self._hand.close()
        for ours in self._ours.values():
            ours.close()

    def _by_hand(self, change: Tables) -> None:
        self._out = self._hand.step(change)

    def _again(self) -> None:
        with with_settings(self._spark, AS_BY_DEFAULT):
            self._view.again(self._spark).write.format("noop").mode("overwrite").save()

    def _note(self) -> None:
        """Write what the last step of each engine gave."""
        outs = {BY_HAND: self._out if isinstance(self._out, pa.Table) else self._out.toArrow()}
        for name, ours in self._ours.items():
            out = ours.out.to_arrow()
            names = [WEIGHT if n == "_count_" else n for n in out.column_names]
            outs[name] = out.rename_columns(names)
        for name, out in outs.items():
            pq.write_table(out, self._home / f"{name}-{self._kept:04}.parquet")
        self._kept += 1


@click.command(help=__doc__)
@click.option("--scale", default=0.1, show_default=True, help="TPC-H's scale factor")
@click.option("--sizes", default="3000,10000", show_default=True, help="K, by commas")
@click.option("--views", default=",".join(VIEWS), show_default=True)
@click.option("--warm", default=2, show_default=True, help="changes of each size before")
@click.option("--steps", default=4, show_default=True, help="changes of each size measured")
@click.option("--results", type=click.Path(path_type=Path), help="a CSV file to add lines to")
def main(scale: float, sizes: str, views: str, warm: int, steps: int, results: Path | None) -> None:
    os.environ.setdefault(HEAP, "12g")
    console = Console(width=110)
    ks = [int(k) for k in sizes.split(",")]
    order = workload.order_of(ks, [warm] * len(ks), [steps] * len(ks))
    wrong = []
    with tempfile.TemporaryDirectory(prefix="by-hand-") as scratch:
        home = Path(scratch)
        files = raw(home / "raw", scale)
        # Spark loses columns of checkpoints that stand in a query several times.
        spark = session(home, **{"constraintPropagation.enabled": "false"})
        for name in views.split(","):
            view, own = VIEWS[name](), home / name
            made = Turnover(files, own / "data", view.sources).written(scale, order, warm * len(ks))
            engines = Engines(spark, view, made, own)
            found = medians(run(made, engines, console))
            wrong += [f"{name} {said}" for said in engines.wrong()]
            engines.close()
            rows = ", ".join(f"{n:,} {table}" for table, n in made.rows.items())
            console.print(shown(f"{name}, scale {scale:g}: {rows}", found, engines.names()))
            if results is not None:
                remember(results, (f"{scale:g}", name), found)
        spark.stop()
    if wrong:
        raise click.ClickException(f"the query says otherwise of: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
