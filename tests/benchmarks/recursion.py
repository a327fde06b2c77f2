"""A step of a transitive closure, measured beside computing the closure again.

    python -m tests.benchmarks.recursion --clusters 10,100 --chain 100

For each graph one edge comes, and goes again: our step on the driver and with `local_rows=0`, a
semi-naive closure in Spark from the cached edges, and networkx. Medians; the rows that our step
read, and how many pairs it changed. The random graphs are the same cluster, many times beside each
other, so that the effect of the edge stays the same while the closure grows.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import click
import networkx as nx
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from stepping_spark.plan.metrics import StepMetrics
from stepping_spark.spark.session import JobCounter, get_session

Edge = tuple[int, int]
Link = st.Pair[int, int]
CLUSTER = (20, 30)  # nodes and edges


def query(edges: st.ZSet[Link]) -> st.ZSet[Link]:
    closure = st.transitive_closure(edges, max_iterations=10_000)
    return closure


@dataclass(frozen=True)
class Case:
    """A graph, and the edge that comes and goes."""

    name: str
    edges: frozenset[Edge]
    edge: Edge


def clusters(n: int) -> Case:
    """The same random graph, n times."""
    rng = random.Random(20)
    nodes, edges = CLUSTER
    one = {(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(edges)}
    many = frozenset((a + i * nodes, b + i * nodes) for a, b in one for i in range(n))
    closure = set(nx.transitive_closure(nx.DiGraph(sorted(one))).edges)
    missing = next((a, b) for a in range(nodes) for b in range(nodes) if (a, b) not in closure)
    return Case(f"{n} random clusters", many, missing)


def chain(n: int, at: int) -> Case:
    """A chain without one of its edges."""
    whole = {(i, i + 1) for i in range(n)}
    return Case(f"chain of {n}, edge {at}", frozenset(whole - {(at, at + 1)}), (at, at + 1))


@dataclass
class Timed:
    """What one way took, at the edge that comes (False) and at the one that goes (True)."""

    ms: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    jobs: list[int] = field(default_factory=list)
    steps: dict[bool, StepMetrics] = field(default_factory=dict)
    changed: int = 0


def our_steps(case: Case, local_rows: int, rounds: int) -> Timed:
    """Load the graph, then let the edge come and go."""
    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    loaded = st.ZSetPython((st.Pair(left=a, right=b), 1) for a, b in case.edges)
    st.Stepper(graph, stepper.store).step((loaded,))
    timed = Timed()
    row = st.Pair(left=case.edge[0], right=case.edge[1])
    for i in range(rounds + 1):
        for goes in (False, True):
            (out,) = stepper.step((st.ZSetPython({row: -1 if goes else 1}),))
            m = stepper.metrics[-1]
            if i:  # the first is slower
                timed.ms[goes].append(m.ms)
            timed.jobs.append(m.jobs or 0)
            timed.steps[goes] = m
            timed.changed = sum(1 for _ in out.to_python().iter())
    return timed


def in_spark(spark: SparkSession, case: Case) -> DataFrame:
    """The closure, semi-naively: only pairs that are new are joined again."""
    edges = spark.createDataFrame(sorted({*case.edges, case.edge}), "a long, b long")
    edges = edges.localCheckpoint().cache()
    known = new = edges.distinct().localCheckpoint()
    while new.count():
        starts = edges.selectExpr("a AS m", "b AS c")
        longer = new.join(starts, on=F.expr("b = m")).selectExpr("a", "c AS b")
        new = longer.distinct().join(known, on=["a", "b"], how="leftanti").localCheckpoint()
        known = known.unionAll(new).localCheckpoint()
    return known


def in_networkx(case: Case) -> int:
    """The number of pairs of the closure."""
    g: nx.DiGraph[int] = nx.DiGraph([*case.edges, case.edge])
    return int(nx.transitive_closure(g).number_of_edges())


def again(f: Callable[[], object], spark: SparkSession, rounds: int) -> Timed:
    """What computing the whole takes."""
    timed = Timed()
    for _ in range(rounds):
        with JobCounter(spark) as jobs:
            begun = time.perf_counter()
            f()
            timed.ms[False].append((time.perf_counter() - begun) * 1e3)
        timed.jobs.append(jobs.count or 0)
    return timed


@click.command()
@click.option("--clusters", "copies", default="10,100", show_default=True)
@click.option("--chain", "length", default=100, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(copies: str, length: int, rounds: int) -> None:
    """Print the medians, side by side."""
    spark = get_session()
    cases = [clusters(int(n)) for n in copies.split(",")]
    cases += [chain(length, length - 1), chain(length, length // 2)]
    table = Table(title="one edge comes and goes; milliseconds, medians")
    for name in ("graph", "pairs", "way", "in", "out", "jobs", "iterations", "rows", "changed"):
        table.add_column(name, justify="left" if name in ("graph", "way") else "right")
    for case in cases:
        pairs = in_networkx(case)
        ways = {
            "a step": our_steps(case, st.Limits.local_rows, rounds),
            "a step, local_rows=0": our_steps(case, 0, 1),
            "again in Spark": again(partial(in_spark, spark, case), spark, 1),
            "again in networkx": again(partial(in_networkx, case), spark, rounds),
        }
        for way, timed in ways.items():
            table.add_row(case.name, f"{pairs:,}", way, *_cells(timed))
        table.add_section()
    Console(width=130).print(table)


def _cells(timed: Timed) -> tuple[str, ...]:
    ms = [f"{statistics.median(timed.ms[goes]):.0f}" if timed.ms[goes] else "" for goes in timed.ms]
    jobs = f"{statistics.median(timed.jobs):g}"
    if not timed.steps:
        return (*ms, jobs, "", "", "")
    iterations, rows = [], []
    for m in timed.steps.values():
        iterations.append(str(sum(m.iterations.values())))
        rows.append(f"{sum(v.rows_in or 0 for v in m.vertices.values() if v.how == 'loop'):,}")
    return (*ms, jobs, " / ".join(iterations), " / ".join(rows), f"{timed.changed:,}")


if __name__ == "__main__":
    main()
