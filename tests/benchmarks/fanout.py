"""One changed row of a dimension that joins many facts, aggregated above, beside a recomputation.

    python -m tests.benchmarks.fanout --facts 200000,1000000,2000000 --stores memory,parquet

One customer has nearly all facts. A step changes the customer's country, name or both, so that
each fact leaves one joined row and gets another. DuckDB computes the whole view again from tables
in its memory, with as many threads as there are cores. The rounds take turns, in one process; the
median counts. Beside the time that passed stands that of the processor, which says more where other
programs run: DuckDB uses all cores, and a step mostly one.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import duckdb
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import stepping_spark as st

STORES = ("memory", "parquet")
CUSTOMERS, DAYS, CENTS = 1_000, 365, 100_000


class Fact(st.Data):
    id: int
    customer: int
    day: int
    cents: int
    price: float


class Customer(st.Data):
    id: int
    name: str
    country: str


class Sum(st.Data):
    country: str
    orders: int
    cents: int
    mean: float | None


class Daily(st.Data):
    name: str
    day: int
    orders: int
    cents: int


class Price(st.Data):
    country: str
    price: float


class Extremes(st.Data):
    country: str
    cents: int
    least: int
    most: int


def joined(facts: st.ZSet[Fact], customers: st.ZSet[Customer]) -> st.ZSet[st.Pair[Fact, Customer]]:
    return st.join(facts, customers, on_left=lambda f: f.customer, on_right=lambda c: c.id)


def sums(facts: st.ZSet[Fact], customers: st.ZSet[Customer]) -> st.ZSet[Sum]:
    return st.aggregate(
        joined(facts, customers),
        by=lambda p: p.right.country,
        into=Sum,
        orders=st.agg.count(),
        cents=st.agg.sum(lambda p: p.left.cents),
        mean=st.agg.avg(lambda p: p.left.cents),
    )


def daily(facts: st.ZSet[Fact], customers: st.ZSet[Customer]) -> st.ZSet[Daily]:
    known = st.filter(joined(facts, customers), lambda p: (p.left.day > 5) & (p.right.name != ""))
    return st.aggregate(
        known,
        by=lambda p: (p.right.name, p.left.day),
        into=Daily,
        orders=st.agg.count(),
        cents=st.agg.sum(lambda p: p.left.cents),
    )


def prices(facts: st.ZSet[Fact], customers: st.ZSet[Customer]) -> st.ZSet[Price]:
    return st.aggregate(
        joined(facts, customers),
        by=lambda p: p.right.country,
        into=Price,
        price=st.agg.sum(lambda p: p.left.price),
    )


def extremes(facts: st.ZSet[Fact], customers: st.ZSet[Customer]) -> st.ZSet[Extremes]:
    return st.aggregate(
        joined(facts, customers),
        by=lambda p: p.right.country,
        into=Extremes,
        cents=st.agg.sum(lambda p: p.left.cents),
        least=st.agg.min(lambda p: p.left.day),
        most=st.agg.max(lambda p: p.left.day),
    )


OF = "FROM facts f JOIN customers c ON f.customer = c.id"
VIEWS: dict[str, tuple[Callable[..., Any], str]] = {
    "sums": (
        sums,
        f"SELECT country, count(*), sum(cents)::BIGINT, avg(cents) {OF} GROUP BY country",
    ),
    "daily": (
        daily,
        f"SELECT name, day, count(*), sum(cents)::BIGINT {OF} WHERE day > 5 AND name <> '' "
        "GROUP BY name, day",
    ),
    "prices": (prices, f"SELECT country, fsum(price) {OF} GROUP BY country"),
    "extremes": (
        extremes,
        f"SELECT country, sum(cents)::BIGINT, min(day), max(day) {OF} GROUP BY country",
    ),
}


def tables(facts: int) -> tuple[pa.Table, pa.Table]:
    """The tables: a tenth as many facts more are of the other customers."""
    chance = np.random.default_rng(7)
    n = facts + facts // 10
    customer = np.zeros(n, np.int64)
    customer[facts:] = chance.integers(1, CUSTOMERS, n - facts)
    cents = chance.integers(0, CENTS, n)
    of_facts: dict[str, Any] = {
        "id": np.arange(n),
        "customer": customer,
        "day": chance.integers(0, DAYS, n),
        "cents": cents,
        "price": cents / 100,
    }
    shuffled = chance.permutation(n)  # DuckDB would compress a column of one value away
    of_facts = {name: column[shuffled] for name, column in of_facts.items()}
    ids = np.arange(CUSTOMERS)
    of_customers: dict[str, Any] = {
        "id": ids,
        "name": [f"name {i}" for i in ids],
        "country": [f"country {i % 40}" for i in ids],
    }
    return pa.table(of_facts), pa.table(of_customers)


def timed(f: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds that passed, and those of the processor."""
    begun, used = time.perf_counter(), time.process_time()
    f()
    return (time.perf_counter() - begun) * 1e3, (time.process_time() - used) * 1e3


@dataclass
class Ours:
    """A view that is stepped."""

    stepper: Any
    renamed: int = 0
    view: st.ZSetPython[Any] = field(default_factory=st.ZSetPython)

    def load(self, facts: pa.Table, customers: pa.Table) -> None:
        """Take the first step, and one of a few facts, so that the state has several batches."""
        given = st.ZSetSpark.from_arrow(facts, Fact), st.ZSetSpark.from_arrow(customers, Customer)
        self._take(given)
        few = [Fact(id=-1 - i, customer=0, day=7, cents=i, price=i / 100) for i in range(10)]
        self._take((st.ZSetPython(dict.fromkeys(few, 1)), None))
        self._take((st.ZSetPython(dict.fromkeys(few, -1)), None))

    def rename(self) -> None:
        """Change the customer's name and country."""
        old, new = (
            Customer(id=0, name=f"name {i}", country=f"country {i % 40}")
            for i in (self.renamed, self.renamed + 1)
        )
        self.renamed += 1
        self._take((None, st.ZSetPython({old: -1, new: 1})))

    def _take(self, given: tuple[Any, ...]) -> None:
        (out,) = self.stepper.step(given)
        self.view = self.view + out

    def how(self) -> str:
        """Where the last step computed its streams."""
        ran = self.stepper.metrics[-1].vertices.values()
        return ", ".join(sorted({v.how for v in ran if v.within is None and v.rows_out != 0}))


@contextmanager
def ours(kind: str, query: Callable[..., Any]) -> Iterator[Ours]:
    """A view with a new state."""
    graph: Any = st.compile(query)
    with tempfile.TemporaryDirectory(prefix="fanout-") as home:
        store: Any = (
            st.StoreMemory.from_graph(graph)
            if kind == "memory"
            else st.StoreParquet.from_graph(graph, Path(home) / "state", create=True)
        )
        try:
            yield Ours(st.Stepper(graph, store))
        finally:
            store.close()


@click.command(help=__doc__)
@click.option("--facts", default="200000,1000000,2000000", show_default=True)
@click.option("--stores", default=",".join(STORES), show_default=True)
@click.option("--views", default=",".join(VIEWS), show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(facts: str, stores: str, views: str, rounds: int) -> None:
    shown = Table(
        "view", "facts", "store", "DuckDB, ms", "CPU", "a step, ms", "CPU", "ratio", "of CPU", "in"
    )
    for name in views.split(","):
        query, text = VIEWS[name]
        for n in map(int, facts.split(",")):
            given = tables(n)
            duck = duckdb.connect()
            for label, table in zip(("facts", "customers"), given, strict=True):
                duck.register("given", table)
                duck.execute(f"CREATE TABLE {label} AS SELECT * FROM given")
                duck.unregister("given")
            for kind in stores.split(","):
                with ours(kind, query) as view:
                    view.load(*given)
                    theirs, mine = in_turn(view, duck, text, rounds)
                    shown.add_row(
                        name,
                        f"{n:,}",
                        kind,
                        *(f"{x:.0f}" for x in (*theirs, *mine)),
                        *(f"{m / t:.1f}" for m, t in zip(mine, theirs, strict=True)),
                        view.how(),
                    )
    Console(width=120).print(shown)


def in_turn(view: Ours, duck: Any, text: str, rounds: int) -> tuple[list[float], list[float]]:
    """What DuckDB and a step take, each after the other."""
    again, steps = [], []
    for _ in range(rounds):
        steps.append(timed(view.rename))
        duck.execute(
            "UPDATE customers SET name = ?, country = ? WHERE id = 0",
            [f"name {view.renamed}", f"country {view.renamed % 40}"],
        )
        again.append(timed(lambda: duck.execute(text).fetchall()))
    check(view, duck.execute(text).fetchall())
    return medians(again), medians(steps)


def medians(times: list[tuple[float, float]]) -> list[float]:
    return [statistics.median(of) for of in zip(*times, strict=True)]


def check(view: Ours, rows: list[tuple[Any, ...]]) -> None:
    """Stop if the view has other rows than DuckDB."""
    found = sorted(tuple(row.__dict__.values()) for row, _ in view.view.iter())
    for mine, theirs in zip(found, sorted(rows), strict=True):
        for a, b in zip(mine, theirs, strict=True):
            if a != b and not (isinstance(a, float) and abs(a - b) <= 1e-9 * abs(a)):
                raise SystemExit(f"the view has {mine}, DuckDB {theirs}")


if __name__ == "__main__":
    main()
