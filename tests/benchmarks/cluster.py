"""What a cluster costs: the same steps in threads of one process, and on two workers.

    python -m tests.benchmarks.cluster --rows 1000000

A join of orders and customers: its first load, as Spark jobs; then steps of three orders and one
customer, on the driver and with `local_rows=0`, beside the empty job. Each master is a process of
its own, one after the other. Medians.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import click
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from stepping_spark.spark.session import get_session
from tests.benchmarks.step import Ours

MASTERS = {"threads": "local[2]", "two workers": "local-cluster[2,1,1024]"}
WARM = 10  # steps that are not measured


def measured(rows: int, rounds: int) -> dict[str, float]:
    """Milliseconds of everything, in this process and on the master that it is told."""
    spark = get_session()
    spark.range(1).collect()
    begun = time.perf_counter()
    # The load is one for the workers.
    steps = Ours(spark, rows, st.Limits(local_rows=0, fetched_rows=0))
    found = {"first load": (time.perf_counter() - begun) * 1e3}
    ways: dict[str, Callable[[int], object]] = {
        "empty job": lambda n: spark.range(1).collect(),
        "step": Ours(spark, rows, st.Limits()).step,
        "step, local_rows=0": steps.step,
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for n in range(rounds + WARM):
        for name, way in ways.items():
            begun = time.perf_counter()
            way(n + 1)
            taken[name].append((time.perf_counter() - begun) * 1e3)
    spark.stop()
    return found | {name: statistics.median(ms[WARM:]) for name, ms in taken.items()}


@click.command(help=__doc__)
@click.option("--rows", default=1_000_000, show_default=True, help="orders in the state")
@click.option("--rounds", default=30, show_default=True)
@click.option("--child", is_flag=True, hidden=True)
def main(rows: int, rounds: int, child: bool) -> None:
    """Print the medians, side by side."""
    if child:
        print(json.dumps(measured(rows, rounds)))
        return
    found = {}
    for name, master in MASTERS.items():
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.cluster", "--child", *sys.argv[1:]],
            env={**os.environ, "STEPPING_SPARK_MASTER": master},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found[name] = json.loads(done.stdout.splitlines()[-1])
    one, two = found.values()
    table = Table(title=f"a join, on {rows:,} orders; milliseconds, medians")
    for column in ("", *MASTERS, "ratio"):
        table.add_column(column, justify="right" if column else "left")
    for name in one:
        table.add_row(
            name, f"{one[name]:,.1f}", f"{two[name]:,.1f}", f"{two[name] / one[name]:.2f}"
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
