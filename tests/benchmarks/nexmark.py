"""Nexmark's queries by events per second: each by itself, steps of so many events, state in memory.

    python -m tests.benchmarks.nexmark --events 20000 --step 2000 --queries 0,4,9

The first step is left out: it compiles what Spark runs. Beside it, where `--recompute` is given,
is what Spark SQL takes to compute the view anew once, of all events.
"""

from __future__ import annotations

import time
from typing import Any

import click
from rich.console import Console

import stepping_spark as st
from tests.against_sql import in_spark
from tests.nexmark.events import TABLES, Events
from tests.nexmark.sql import QUERIES
from tests.nexmark.test_nexmark import together


def seconds_of(n: int, steps: list[Any]) -> list[float]:
    """What each step of a query takes."""
    graph: Any = st.compile(together((n,)))
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    found = []
    for change in steps:
        start = time.perf_counter()
        (out,) = stepper.step(change)
        out.to_python()
        found.append(time.perf_counter() - start)
    return found


def recomputed(n: int) -> float:
    """What Spark SQL takes for the whole view."""
    start = time.perf_counter()
    st.get_session().sql(QUERIES[n]).collect()
    return time.perf_counter() - start


@click.command(help=__doc__)
@click.option("--events", default=20_000, show_default=True)
@click.option("--step", default=2_000, show_default=True)
@click.option("--queries", default=",".join(map(str, QUERIES)), show_default=True)
@click.option("--recompute", is_flag=True)
def main(events: int, step: int, queries: str, recompute: bool) -> None:
    console = Console()
    *steps, _ = Events(seed=1).steps(*[step] * (events // step))
    if recompute:
        for i, (name, row) in enumerate(TABLES.items()):
            rows = [r for change in steps for r, _ in change[i].iter()]
            in_spark(st.get_session(), rows, row).createOrReplaceTempView(name)
    for n in map(int, queries.split(",")):
        _, *warm = seconds_of(n, steps)
        said = f"q{n}: {step * len(warm) / sum(warm):,.0f} events/s"
        if recompute:
            said += f"; recomputed once of all in {recomputed(n):.2f} s"
        console.print(said, highlight=False)


if __name__ == "__main__":
    main()
