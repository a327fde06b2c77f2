"""Many small steps in each store: a step's time, memory and the files must not grow with them.

    python -m tests.benchmarks.soak
    python -m tests.benchmarks.soak --stores parquet --steps 2000 --seed 7
    python -m tests.benchmarks.soak --stores memory --steps 2000 --local-rows 0

A view of two joined tables, grouped by region, with a count, a sum, a maximum and a distinct count.
Each step inserts, updates and deletes a few orders, and now and then moves a customer to another
region; the tables stay as large as they were. At the end the cache of the view, and the sum of what
the steps gave, must be what Spark SQL says of the final tables.

Each store runs in a process of its own, one after the other. Printed are the median time of a step,
the resident memory of the process, the JVM's heap after a collection, and what is on disk: Parquet
files, or tables and indexes of Postgres. The exit code is 1 where memory grows by more than 20 MB
for each 1,000 steps after the first tenth, where files or bytes grow, or where the view differs.
"""

from __future__ import annotations

import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import click
import psutil
import psycopg
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from stepping_spark.relations.store import Store
from stepping_spark.spark.session import get_session
from tests.benchmarks.memory import heap
from tests.benchmarks.tables import PER_CUSTOMER, Customer, Order
from tests.postgres_server import PostgresServer

STORES = ("memory", "parquet", "postgres")
REGIONS = 25
MOST_GROWTH = 20.0
"""Megabytes that the process may grow by in 1,000 steps."""

MOST_ON_DISK = 1.5
"""How many times the files and bytes of the first half may be there in the second."""

SAMPLED = 25
"""What is on disk is looked at each so many steps."""


class Region(st.Data):
    region: int
    orders: int
    total: int
    most: int
    customers: int


view = st.Cache[Region](name="regions")


def query(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> st.ZSet[Region]:
    joined = st.join(orders, customers, on_left=lambda o: o.customer, on_right=lambda c: c.id)
    regions = st.aggregate(
        joined,
        by=lambda p: p.right.region,
        into=Region,
        orders=st.agg.count(),
        total=st.agg.sum(lambda p: p.left.amount * (1 + p.right.region)),
        most=st.agg.max(lambda p: p.left.amount),
        customers=st.agg.count_distinct(lambda p: p.left.customer),
    )
    _ = view[regions](lambda regions: st.integrate(regions))
    return regions


IN_SQL = """
    SELECT region, count(*), sum(amount * (1 + region)), max(amount), count(DISTINCT customer)
      FROM soaked_orders JOIN soaked_customers ON customer = soaked_customers.id GROUP BY region
"""

Change = tuple[st.ZSetPython[Order], st.ZSetPython[Customer]]


class Changing:
    """The two tables, and random changes of a few rows that leave them as large as they are."""

    def __init__(self, rows: int, seed: int) -> None:
        self._random = random.Random(seed)
        self._next = rows
        self._known = max(rows // PER_CUSTOMER, REGIONS)
        self.orders = [self._order(i) for i in range(rows)]
        self.customers = [Customer(id=i, region=i % REGIONS) for i in range(self._known)]

    def whole(self) -> Change:
        """All rows of both tables."""
        return (
            st.ZSetPython((o, 1) for o in self.orders),
            st.ZSetPython((c, 1) for c in self.customers),
        )

    def change(self) -> Change:
        """Two orders come, two are changed, two go; one customer in eight steps moves."""
        orders: Counter[Order] = Counter()
        for _ in range(2):
            self._replace(orders, self._order(self._next))
            self._next += 1
        for _ in range(2):
            at = self._random.randrange(len(self.orders))
            self._replace(orders, self._order(self.orders[at].id), at)
        customers: Counter[Customer] = Counter()
        if not self._random.randrange(8):
            at = self._random.randrange(self._known)
            moved = Customer(id=at, region=self._random.randrange(REGIONS))
            customers[self.customers[at]] -= 1
            customers[moved] += 1
            self.customers[at] = moved
        return st.ZSetPython(orders.items()), st.ZSetPython(customers.items())

    def in_sql(self, spark: SparkSession) -> set[tuple[int, ...]]:
        """The view, as Spark SQL has it."""
        spark.createDataFrame(
            [(o.id, o.customer, o.amount) for o in self.orders],
            "id long, customer long, amount long",
        ).createOrReplaceTempView("soaked_orders")
        spark.createDataFrame(
            [(c.id, c.region) for c in self.customers], "id long, region long"
        ).createOrReplaceTempView("soaked_customers")
        return {tuple(row) for row in spark.sql(IN_SQL).collect()}

    def _replace(self, change: Counter[Order], new: Order, at: int | None = None) -> None:
        at = self._random.randrange(len(self.orders)) if at is None else at
        change[self.orders[at]] -= 1
        change[new] += 1
        self.orders[at] = new

    def _order(self, i: int) -> Order:
        return Order(
            id=i,
            customer=self._random.randrange(self._known),
            amount=self._random.randrange(1_000),
        )


@dataclass(frozen=True)
class OnDisk:
    """How many files there are, or tables and indexes, and their bytes."""

    files: int = 0
    nbytes: int = 0


@dataclass(frozen=True)
class Mark:
    """How things are after so many steps."""

    step: int
    ms: float
    resident: float
    heap: int | None
    on_disk: OnDisk


@dataclass
class Soaked:
    """What became of a store."""

    kind: str
    marks: list[Mark] = field(default_factory=list)
    on_disk: list[OnDisk] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def grown(self) -> float:
        """The megabytes by which memory grew in 1,000 steps, after the first mark."""
        first, last = self.marks[0], self.marks[-1]
        return 1e3 * (last.resident - first.resident) / max(last.step - first.step, 1)

    def complaints(self) -> Iterator[str]:
        """What is not as it should be."""
        if self.grown > MOST_GROWTH:
            yield f"{self.kind}: memory grows by {self.grown:.1f} MB in 1,000 steps"
        warm = self.on_disk[len(self.on_disk) // 10 :]
        halves = warm[: len(warm) // 2], warm[len(warm) // 2 :]
        for what, of in (("files", _files), ("bytes", _bytes)):
            before, after = (max(map(of, half), default=0) for half in halves)
            if after > MOST_ON_DISK * before:
                yield f"{self.kind}: {before:,} {what} on disk at most, later {after:,}"
        yield from (f"{self.kind}: {said}" for said in self.wrong)


def _files(there: OnDisk) -> int:
    return there.files


def _bytes(there: OnDisk) -> int:
    return there.nbytes


def in_directory(path: Path) -> OnDisk:
    """The files of a Parquet store: of its state, and its manifests."""
    sizes: list[int] = []
    for folder in ("data", "manifests"):
        for f in (path / folder).iterdir():
            with suppress(FileNotFoundError):  # the store removes files in the background
                sizes.append(f.stat().st_size)
    return OnDisk(len(sizes), sum(sizes))


def in_postgres(url: str, schema: str) -> OnDisk:
    """The tables of a Postgres store, and their indexes."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT count(*), sum(pg_table_size(oid))::bigint FROM pg_class "
            "WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'i')",
            [schema],
        ).fetchone()
    assert found is not None
    return OnDisk(*found)


@contextmanager
def opened(kind: str, graph: Any) -> Iterator[tuple[Store, Callable[[], OnDisk]]]:
    """A new store of a kind, and what asks how much it has on disk."""
    with ExitStack() as ends:
        if kind == "memory":
            yield ends.enter_context(closing(st.StoreMemory.from_graph(graph))), OnDisk
        elif kind == "parquet":
            path = Path(ends.enter_context(tempfile.TemporaryDirectory())) / "state"
            parquet = st.StoreParquet.from_graph(graph, path, create=True)
            yield ends.enter_context(closing(parquet)), lambda: in_directory(path)
        else:
            # As often as a server does by default: what it clears away is part of the answer.
            server = PostgresServer(fsync=True, autovacuum_naptime="1min")
            ends.enter_context(server)
            postgres = st.StorePostgres.from_graph(graph, server.url, schema="soak", create=True)
            yield ends.enter_context(closing(postgres)), lambda: in_postgres(server.url, "soak")


def resident() -> float:
    """The megabytes of memory that this process has."""
    return float(psutil.Process().memory_info().rss) / 2**20


def soaked(kind: str, steps: int, rows: int, seed: int, local_rows: int) -> Soaked:
    """Take the steps with a new store, in this process."""
    graph: Any = st.compile(query)
    changing = Changing(rows, seed)
    found = Soaked(kind)
    given: st.ZSetPython[Region] = st.ZSetPython()
    with opened(kind, graph) as (store, on_disk):
        stepper: Any = st.Stepper(graph, store, local_rows=local_rows)
        (given,) = stepper.step(changing.whole())
        ms: list[float] = []
        for n in range(1, steps + 1):
            change = changing.change()
            begun = time.perf_counter()
            (out,) = stepper.step(change)
            ms.append((time.perf_counter() - begun) * 1e3)
            given = given + out
            if n % SAMPLED == 0:
                found.on_disk.append(on_disk())
            if n % max(steps // 10, 1) == 0:
                mark = Mark(n, median(ms), resident(), heap(), on_disk())
                said = f"{kind}, step {n:,}: {mark.ms:.1f} ms, {mark.resident:.1f} MB"
                click.echo(said, err=True)
                found.marks.append(mark)
                ms.clear()
        expected = Counter(changing.in_sql(get_session()))
        for what, rows_of in (("the cache", view.zset(store)), ("the sum of the outputs", given)):
            if {_fields(r): n for r, n in rows_of.iter()} != expected:
                found.wrong.append(f"{what} is not what Spark SQL says of the final tables")
    return found


def _fields(r: Region) -> tuple[int, ...]:
    return r.region, r.orders, r.total, r.most, r.customers


def shown(found: Sequence[Soaked]) -> Table:
    """All marks of all stores."""
    table = Table(title="small steps in a row; medians of milliseconds")
    for name in ("store", "step", "ms", "process, MB", "JVM heap, MB", "files", "KB on disk"):
        table.add_column(name, justify="left" if name == "store" else "right")
    for soaked_store in found:
        for mark in soaked_store.marks:
            there = mark.on_disk
            table.add_row(
                soaked_store.kind, f"{mark.step:,}", f"{mark.ms:.1f}", f"{mark.resident:,.0f}",
                "" if mark.heap is None else f"{mark.heap / 2**20:,.0f}",
                f"{there.files:,}", f"{there.nbytes / 1e3:,.0f}",
            )  # fmt: skip
        table.add_section()
    return table


def in_a_process_of_its_own(kind: str, *how: int) -> Soaked:
    """The same as `soaked`, where nothing else has taken memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(soaked, (kind, *how))


@click.command(help=__doc__)
@click.option("--stores", default=",".join(STORES), show_default=True)
@click.option("--steps", default=10_000, show_default=True)
@click.option("--rows", default=2_000, show_default=True, help="Orders in the state.")
@click.option("--seed", default=0, show_default=True)
@click.option("--local-rows", default=st.Limits.local_rows, show_default=True)
def main(stores: str, steps: int, rows: int, seed: int, local_rows: int) -> None:
    console = Console(width=100)
    found: list[Soaked] = []
    for kind in stores.split(","):
        found.append(in_a_process_of_its_own(kind, steps, rows, seed, local_rows))
        console.print(shown(found[-1:]))
    if complaints := [said for store in found for said in store.complaints()]:
        raise click.ClickException("; ".join(complaints))


if __name__ == "__main__":
    main()
