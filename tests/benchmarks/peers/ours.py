"""stepping_spark: the view as a circuit, in one of its stores.

Variants: "" (the memory store), `jobs` (everything is sent to Spark), `parquet`, `postgres`, and
several, as `jobs:parquet`.
"""

from __future__ import annotations

import datetime as dt
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

import stepping_spark as st
from stepping_spark.relations.store import Store
from tests.benchmarks.peers.peer import COLUMNS, WEIGHT, CannotDo, Tables, Way, summed
from tests.benchmarks.peers.spark import session
from tests.postgres_server import PostgresServer


class Customer(st.Data):
    custkey: int
    segment: str


class Order(st.Data):
    orderkey: int
    custkey: int
    orderdate: dt.date


class Line(st.Data):
    orderkey: int
    linenumber: int
    price: int
    discount: int


class Sold(st.Data):
    custkey: int
    segment: str
    n_lines: int
    revenue: int
    last_order: dt.date


class Listed(st.Data):
    custkey: int
    segment: str
    orderkey: int | None
    orderdate: dt.date | None
    linenumber: int | None
    price: int | None


ROWS: dict[str, type[Any]] = {"customers": Customer, "orders": Order, "lines": Line}


def orders(
    customers: st.ZSet[Customer], orders: st.ZSet[Order], lines: st.ZSet[Line]
) -> st.ZSet[Sold]:
    order = st.Lookup(orders, key=lambda o: o.orderkey, on=lambda row: row[0].orderkey)
    customer = st.Lookup(customers, key=lambda c: c.custkey, on=lambda row: row[1].custkey)
    joined = st.delta_join(lines, order, customer)
    sold = st.aggregate(
        joined,
        by=lambda row: (row[2].custkey, row[2].segment),
        into=Sold,
        group_size=1_000,
        n_lines=st.agg.count(),
        revenue=st.agg.sum(lambda row: row[0].price * (100 - row[0].discount)),
        last_order=st.agg.max(lambda row: row[1].orderdate),
    )
    return sold


def left(
    customers: st.ZSet[Customer], orders: st.ZSet[Order], lines: st.ZSet[Line]
) -> st.ZSet[Listed]:
    order = st.Lookup(orders, key=lambda o: o.custkey, on=lambda row: row[0].custkey, how="left")
    line = st.Lookup(lines, key=lambda a: a.orderkey, on=lambda row: row[1].orderkey, how="left")
    joined = st.delta_join(customers, order, line)
    listed = st.map(
        joined,
        f=lambda row: Listed(
            custkey=row[0].custkey,
            segment=row[0].segment,
            orderkey=row[1].orderkey,
            orderdate=row[1].orderdate,
            linenumber=row[2].linenumber,
            price=row[2].price,
        ),
    )
    return listed


QUERIES = {"orders": orders, "left": left}


class Peer(Way):
    """A circuit and its store; the view is the sum of what the steps gave."""

    def __init__(self, view: str, directory: Path, variant: str) -> None:
        self._view = view
        self._spark = session(directory)
        self._ends = ExitStack()
        self._graph: Any = st.compile(QUERIES[view])
        said = variant.split(":")
        store = self._store(directory, said[-1])
        rows = 0 if "jobs" in said else st.Limits.local_rows
        self._stepper: Any = st.Stepper(self._graph, store, local_rows=rows)
        self._out: Any = None
        self._outs: list[pa.Table] = []

    def _store(self, directory: Path, variant: str) -> Store:
        if variant in ("", "jobs"):
            return st.StoreMemory.from_graph(self._graph)
        if variant == "parquet":
            return st.StoreParquet.from_graph(self._graph, str(directory / "state"), create=True)
        if variant == "postgres":
            # A quarter of the memory of a small server, as the manual of Postgres advises.
            server = self._ends.enter_context(PostgresServer(shared_buffers="1GB"))
            return st.StorePostgres.from_graph(self._graph, server.url, schema="view", create=True)
        raise CannotDo(f"there is no variant {variant!r}")

    def load(self, tables: Tables) -> None:
        frames = (
            st.ZSetSpark.from_dataframe(self._spark.createDataFrame(tables[n]), t)
            for n, t in ROWS.items()
        )
        (self._out,) = self._stepper.step(tuple(frames))
        self.keep()

    def step(self, change: Tables) -> int | None:
        inputs = tuple(
            st.ZSetSpark.from_arrow(change[n], t, count=WEIGHT) if n in change else None
            for n, t in ROWS.items()
        )
        (self._out,) = self._stepper.step(inputs)
        jobs: int | None = self._stepper.metrics[-1].jobs
        return jobs

    def keep(self) -> None:
        self._outs.append(self._out.to_arrow())

    def result(self) -> pa.Table:
        return summed(self._outs, COLUMNS[self._view], "_count_")

    def empty_job(self) -> None:
        self._spark.range(1).collect()

    def close(self) -> None:
        self._spark.stop()
        self._ends.close()
