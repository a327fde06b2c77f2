"""What no store can do without: writing a change, and looking up keys, as written by hand."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Protocol

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tests.benchmarks.tables import Tables


class Floor(Protocol):
    """The customers of some tables, kept where a store keeps its state."""

    def write(self, change: pa.Table) -> None:
        """Write a change of orders, to last."""

    def look_up(self, customers: list[int]) -> int:
        """How many customers with these ids there are."""


def customers_of(tables: Tables) -> pa.Table:
    """The customers, in order of id."""
    ids = np.arange(tables.customers)
    return pa.table({"id": pa.array(ids), "region": pa.array(ids % 5)})


class InMemory:
    """Rows in order of id; a change is appended to a list."""

    def __init__(self, tables: Tables) -> None:
        self._rows = customers_of(tables)
        self._ids = self._rows.column("id").to_numpy()
        self._changes: list[pa.Table] = []

    def write(self, change: pa.Table) -> None:
        self._changes.append(change)

    def look_up(self, customers: list[int]) -> int:
        at = np.searchsorted(self._ids, customers)
        return self._rows.take(at).num_rows


class InParquet:
    """One file in order of id; a change is a file of its own."""

    def __init__(self, tables: Tables, directory: Path) -> None:
        self._directory = directory
        self._number = itertools.count()
        self._file = directory / "customers.parquet"
        pq.write_table(customers_of(tables), self._file, row_group_size=8_192)
        self._rows = ds.dataset(self._file)

    def write(self, change: pa.Table) -> None:
        path = self._directory / f"{next(self._number)}.parquet"
        pq.write_table(change, path)
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)

    def look_up(self, customers: list[int]) -> int:
        return self._rows.to_table(filter=ds.field("id").isin(customers)).num_rows


class InPostgres:
    """A table with an index; a change is a COPY of its own."""

    def __init__(self, tables: Tables, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute("DROP TABLE IF EXISTS customers, orders")
        self._connection.execute(
            "CREATE TABLE customers AS SELECT id, id % 5 AS region "
            f"FROM generate_series(0, {tables.customers - 1}) AS id"
        )
        self._connection.execute("CREATE INDEX ON customers (id)")
        self._connection.execute("CREATE TABLE orders (id bigint, customer bigint, amount bigint)")
        self._connection.execute("ANALYZE customers")

    def write(self, change: pa.Table) -> None:
        with (
            self._connection.cursor() as cursor,
            cursor.copy("COPY orders (id, customer, amount) FROM STDIN") as copy,
        ):
            columns = (change.column(n).to_pylist() for n in ("id", "customer", "amount"))
            for row in zip(*columns, strict=True):
                copy.write_row(row)

    def look_up(self, customers: list[int]) -> int:
        query = "SELECT id, region FROM customers WHERE id = ANY(%s)"
        return len(self._connection.execute(query, [customers]).fetchall())
