"""What a step costs in each store: time and bytes, beside the floor, and over many steps.

    python -m tests.benchmarks.stores --rows 1000000,10000000 --changes 10,1000,100000

A join of orders and customers, of which a step changes some orders: they come, and go with the
next step; as a DataFrame where they are many. All stores in turn, in one run. Written are the bytes
of Parquet files and their manifest, or of Postgres's log. The floor writes the change alone, and
looks up its customers in one table with an index. Then: three changed rows on a small and a large
state in Parquet, and what share of its bytes they read; many steps in a row; and how often a row is
written in small steps.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import click
import psycopg
import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from stepping_spark.spark.session import get_session
from tests.benchmarks.floors import Floor, InMemory, InParquet, InPostgres
from tests.benchmarks.tables import Order, Tables, query
from tests.postgres_server import PostgresServer

STORES = ("memory", "parquet", "postgres")
MANY = 10_000  # rows of a change that come as a DataFrame


@dataclass(frozen=True)
class Where:
    """Where stores are made."""

    spark: SparkSession
    directory: Path
    url: str

    @contextmanager
    def bench(self, kind: str, rows: int) -> Iterator[Bench]:
        """A loaded store of a kind, with its floor."""
        tables = Tables(rows)
        graph = st.compile(query)
        with tempfile.TemporaryDirectory(dir=self.directory) as place, ExitStack() as ends:
            path = Path(place)
            store: Any
            floor: Floor
            if kind == "memory":
                store, floor = st.StoreMemory.from_graph(graph), InMemory(tables)
            elif kind == "parquet":
                store = st.StoreParquet.from_graph(graph, path / "state", create=True)
                floor = InParquet(tables, path)
            else:
                store = st.StorePostgres.from_graph(graph, self.url, schema=path.name, create=True)
                floor = InPostgres(tables, self.url)
            ends.callback(store.close)
            stepper: Any = st.Stepper(graph, store)
            tables.load(self.spark, stepper)
            store.compact()
            yield Bench(kind, self.spark, tables, stepper, floor, path / "state", self.url)
            if kind == "postgres":
                with psycopg.connect(self.url) as connection:
                    connection.execute(f'DROP SCHEMA "{path.name}" CASCADE')


@dataclass
class Bench:
    """A store that is stepped and measured."""

    kind: str
    spark: SparkSession
    tables: Tables
    stepper: Any
    floor: Floor
    path: Path
    url: str
    taken: int = 0
    there: dict[int, list[Order]] = field(default_factory=dict)

    def change(self, n: int) -> tuple[list[Order], int]:
        """Orders that come, or those of the last time that go."""
        gone = self.there.pop(n, None)
        if gone is not None:
            return gone, -1
        first = self.tables.rows + self.taken * 100_003
        orders = [
            Order(id=first + i, customer=7919 * (first + i) % self.tables.customers, amount=i)
            for i in range(n)
        ]
        self.there[n] = orders
        return orders, 1

    def step(self, n: int) -> Cost:
        """Change so many orders."""
        orders, weight = self.change(n)
        self.taken += 1
        given = self.given(orders, weight)
        before, read = self.written(), bytes_read()
        begun = time.perf_counter()
        (out,) = self.stepper.step((given, None))
        ms = (time.perf_counter() - begun) * 1e3
        read = bytes_read() - read
        assert not out.empty()
        return Cost(ms, self.written() - before + self.manifest, read)

    def reopened(self, *, cache_bytes: int) -> st.StoreParquet:
        """Go on with a store that keeps so much of what it has read."""
        self.stepper.store.close()
        graph = self.stepper.graph
        store = st.StoreParquet.from_graph(graph, self.path, cache_bytes=cache_bytes)
        self.stepper = st.Stepper(graph, store)
        return store

    def given(self, orders: list[Order], weight: int) -> Any:
        """A change of orders, as the size of it suggests."""
        if len(orders) < MANY:
            return st.ZSetPython((o, weight) for o in orders)
        rows = pa.table({n: [getattr(o, n) for o in orders] for n in ("id", "customer", "amount")})
        frame = self.spark.createDataFrame(
            rows.append_column("w", pa.array([weight] * len(orders)))
        )
        return st.ZSetSpark.from_dataframe(frame, Order, count="w")

    def by_hand(self, n: int) -> tuple[float, float]:
        """The milliseconds of writing so many orders, and of looking up their customers."""
        first = self.tables.rows + self.taken * 100_003
        ids = list(range(first, first + n))
        keys = [7919 * i % self.tables.customers for i in ids]
        change = pa.table({"id": ids, "customer": keys, "amount": ids})
        begun = time.perf_counter()
        self.floor.write(change)
        wrote = time.perf_counter()
        assert self.floor.look_up(keys)
        return (wrote - begun) * 1e3, (time.perf_counter() - wrote) * 1e3

    def written(self) -> int:
        """The bytes written so far."""
        store = self.stepper.store
        if isinstance(store, st.StoreParquet):
            return store.bytes_written
        if isinstance(store, st.StorePostgres):
            return log_position(self.url)
        return 0

    @property
    def manifest(self) -> int:
        """The bytes of the manifest that each step writes, in Parquet."""
        found = sorted((self.path / "manifests").glob("*.json"))
        return found[-1].stat().st_size if found else 0

    @property
    def size(self) -> int:
        """The bytes of all files of state."""
        return sum(f.stat().st_size for f in (self.path / "data").iterdir())


@dataclass(frozen=True)
class Cost:
    """What a step took."""

    ms: float
    written: int
    read: int


def log_position(url: str) -> int:
    """How many bytes Postgres has written to its log."""
    with psycopg.connect(url) as connection:
        query = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
        found = connection.execute(query).fetchone()
    assert found is not None
    return int(found[0])


def bytes_read() -> int:
    """How many bytes this process has read, of files and of everything else."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def by_size(where: Where, sizes: Sequence[int], changes: Sequence[int], rounds: int) -> Table:
    """Each store, size of state and size of change."""
    table = Table(title="a step; medians")
    for name in (
        *("rows of state", "store", "changed", "ms", "KB written", "write alone, ms"),
        *("look-up alone, ms", "/ floor"),
    ):
        table.add_column(name, justify="left" if name == "store" else "right")
    for rows in sizes:
        with ExitStack() as ends:
            benches = [ends.enter_context(where.bench(kind, rows)) for kind in STORES]
            for n in changes:
                costs: dict[str, list[Cost]] = {b.kind: [] for b in benches}
                floors: dict[str, list[tuple[float, float]]] = {b.kind: [] for b in benches}
                few = rounds if n < MANY else max(rounds // 5, 2)
                for i in range(few + 2):
                    for b in benches:
                        cost, floor = b.step(n), b.by_hand(n)
                        if i >= 2:  # the first ones are slower
                            costs[b.kind].append(cost)
                            floors[b.kind].append(floor)
                for kind, found in costs.items():
                    ms, kb = median([c.ms for c in found]), median([c.written for c in found]) / 1e3
                    write, look = (median([f[i] for f in floors[kind]]) for i in (0, 1))
                    table.add_row(
                        f"{rows:,}", kind, f"{n:,}", f"{ms:.1f}", f"{kb:,.0f}" if kb else "",
                        f"{write:.1f}", f"{look:.1f}", f"{ms / (write + look):.1f}",
                    )  # fmt: skip
            table.add_section()
    return table


def three_rows(where: Where, sizes: Sequence[int], rounds: int) -> Table:
    """Three changed rows in Parquet, on a small and on a large state."""
    table = Table(title="three changed rows, in Parquet; medians")
    for name in ("rows of state", "cache", "ms", "/ smallest", "bytes read", "of the state"):
        table.add_column(name, justify="right")
    with ExitStack() as ends:
        benches = [ends.enter_context(where.bench("parquet", n)) for n in sizes]
        for cache in ("as it comes", "none"):
            costs: list[list[Cost]] = [[] for _ in benches]
            for i in range(rounds + 5):
                for b, found in zip(benches, costs, strict=True):
                    b.there.clear()  # other customers each time
                    cost = b.step(3)
                    if i >= 5:
                        found.append(cost)
            smallest = median([c.ms for c in costs[0]])
            for b, found in zip(benches, costs, strict=True):
                ms, read = median([c.ms for c in found]), median([c.read for c in found])
                table.add_row(
                    f"{b.tables.rows:,}", cache, f"{ms:.1f}", f"{ms / smallest:.2f}",
                    f"{read:,.0f}", f"{read / b.size:.2%}",
                )  # fmt: skip
            table.add_section()
            for b in benches:
                ends.callback(b.reopened(cache_bytes=0).close)
    return table


def in_a_row(where: Where, rows: int, steps: int) -> Table:
    """Many steps in a row, in which rows come and stay."""
    table = Table(title=f"{steps} steps of 10 rows in a row, on {rows:,}; medians")
    for name in ("store", "first ten, ms", "last ten, ms", "last / first", "least of each"):
        table.add_column(name, justify="left" if name == "store" else "right")
    with ExitStack() as ends:
        benches = [ends.enter_context(where.bench(kind, rows)) for kind in STORES]
        ms: dict[str, list[float]] = {b.kind: [] for b in benches}
        for i in range(steps + 20):
            for b in benches:
                b.there.clear()
                cost = b.step(10)
                if i >= 20:
                    ms[b.kind].append(cost.ms)
    for kind, found in ms.items():
        first, last = found[:10], found[-10:]
        table.add_row(
            kind, f"{median(first):.1f}", f"{median(last):.1f}",
            f"{median(last) / median(first):.2f}", f"{min(first):.1f}, {min(last):.1f}",
        )  # fmt: skip
    return table


def amplification(where: Where, steps: int) -> Table:
    """How often a row is written, where steps are small."""
    table = Table(title="write amplification, steps of 10 rows on an empty state")
    for name in ("steps", "store", "rows written / added", "KB written a step", "KB of a change"):
        table.add_column(name, justify="left" if name == "store" else "right")
    marks = [steps // 8, steps // 4, steps // 2, steps]
    with ExitStack() as ends:
        benches = [ends.enter_context(where.bench(kind, 0)) for kind in STORES]
        begun = {b.kind: b.written() for b in benches}
        bytes_so_far: dict[str, int] = dict.fromkeys(begun, 0)
        for step in range(1, steps + 1):
            for b in benches:
                b.there.clear()
                bytes_so_far[b.kind] += b.step(10).written
            if step not in marks:
                continue
            for b in benches:
                store = b.stepper.store
                ratio = ""
                if not isinstance(store, st.StorePostgres):
                    written = max(store.rows_written.values())
                    ratio = f"{written / (10 * step):.2f}"
                kb = bytes_so_far[b.kind] / step / 1e3
                # An order in the register, one with its customer in the output.
                of_change = 10 * 8 * (4 + 6) / 1e3
                table.add_row(
                    f"{step:,}", b.kind, ratio, f"{kb:,.1f}" if kb else "", f"{of_change:.1f}"
                )
            table.add_section()
    return table


PARTS = ("amplification", "in a row", "three rows", "by size")


@click.command()
@click.option("--rows", default="1000000,10000000", show_default=True, help="Of state.")
@click.option("--changes", default="10,1000,100000", show_default=True, help="Rows of a step.")
@click.option("--small", default=10_000, show_default=True, help="Rows of a small state.")
@click.option("--rounds", default=20, show_default=True)
@click.option("--steps", default=300, show_default=True, help="Of those in a row.")
@click.option("--small-steps", default=1_000, show_default=True)
@click.option("--only", type=click.Choice(PARTS), multiple=True, default=PARTS)
def main(
    rows: str,
    changes: str,
    small: int,
    rounds: int,
    steps: int,
    small_steps: int,
    only: tuple[str, ...],
) -> None:
    """Print the medians, side by side."""
    spark = get_session()
    sizes, ns = ([int(x) for x in text.split(",")] for text in (rows, changes))
    console = Console(width=120)
    with tempfile.TemporaryDirectory() as directory, PostgresServer(fsync=True) as server:
        where = Where(spark, Path(directory), server.url)
        parts: dict[str, Callable[[], Table]] = {
            "amplification": lambda: amplification(where, small_steps),
            "in a row": lambda: in_a_row(where, min(sizes), steps),
            "three rows": lambda: three_rows(where, [small, max(sizes)], rounds),
            "by size": lambda: by_size(where, sizes, ns, rounds),
        }
        for name in only:
            console.print(parts[name]())


if __name__ == "__main__":
    main()
