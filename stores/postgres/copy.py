"""Moves rows between Postgres and Arrow, through the driver or with Spark's workers."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from psycopg import sql

from stepping_spark.errors import StoreCorrupt, StoreError, StoreUnavailable
from stepping_spark.packages import DataFrame, SparkSession, raised
from stepping_spark.relations.arrow import concat
from stepping_spark.relations.codec import conform
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.errors import first_line, raised_in_worker
from stepping_spark.spark.measure import column
from stepping_spark.spark.relation import DriverRelation, Relation, SparkRelation
from stepping_spark.store import Size
from stores.postgres.catalog import snapshot
from stores.postgres.connection import Address, Connection
from stores.postgres.statements import ATTEMPT, Layout
from stores.postgres.types import csv_of, table_of

LINES = 8 << 20  # bytes of text parsed at a time
ROWS = 50_000  # rows written at a time

_ODD = (
    ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError,
    pa.ArrowException,
)  # fmt: skip
"""The errors raised for values that do not have the types they were written with."""

_ERRORS = {"StoreUnavailable": StoreUnavailable, "StoreCorrupt": StoreCorrupt}


def put(connection: Connection, layout: Layout, table: pa.Table, to: sql.Identifier) -> None:
    """COPY rows into a table of the layout's columns."""
    with connection.cursor().copy(layout.copy_in(to).as_bytes()) as copy:
        for start in range(0, table.num_rows, ROWS):
            copy.write(csv_of(layout.text_columns(table.slice(start, ROWS))))


def got(
    connection: Connection, layout: Layout, where: sql.Composable | None = None
) -> Iterator[pa.Table]:
    """The rows of a table, from a COPY."""
    return copied(connection, layout.copy_out(where), layout.schema, layout.table)


def copied(
    connection: Connection, query: sql.Composed, schema: Schema, table: str
) -> Iterator[pa.Table]:
    """The result of a COPY, in pieces."""
    lines: list[bytes] = []
    size = 0
    with connection.cursor().copy(query.as_bytes()) as copy:
        for line in copy:  # one message per row
            lines.append(bytes(line))
            size += len(line)
            if size >= LINES:
                yield _rows_of(lines, schema, table)
                lines, size = [], 0
    if lines:
        yield _rows_of(lines, schema, table)


def _rows_of(lines: Sequence[bytes], schema: Schema, table: str) -> pa.Table:
    with as_written(table):
        return table_of(b"".join(lines), schema)


@contextmanager
def as_written(table: str) -> Iterator[None]:
    """Raise `StoreCorrupt` for values of a table that do not have the types of their register."""
    try:
        yield
    except _ODD as e:
        raise StoreCorrupt(
            f"table {table!r} has a value that its register cannot have: "
            f"{type(e).__name__}: {e}; somebody has changed it: restore the schema from a backup"
        ) from e


# -- with Spark's workers


def send(frame: DataFrame, layout: Layout, to: sql.Identifier, address: Address) -> dict[int, int]:
    """COPY the rows of a DataFrame into a staging table; return the number of rows per attempt.

    A retried task has a new attempt number. Use only the rows of the returned attempts.
    """
    schema = layout.schema

    def attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, rows = secrets.randbits(62), 0
        statement = layout.copy_in(to, ATTEMPT).as_bytes()
        with address.errors("could not take rows from a worker"):
            connection = address.connect("worker")
            with connection, connection.cursor().copy(statement) as copy:
                for batch in batches:
                    named = pa.Table.from_batches([batch]).rename_columns(schema.arrow.names)
                    table = conform(named, schema)
                    texts = layout.text_columns(table)
                    at = len(layout.hashes)
                    texts.insert(at, pa.array([str(number)] * len(table)))
                    copy.write(csv_of(texts))
                    rows += len(table)
        yield pa.RecordBatch.from_pydict({"attempt": [number], "rows": [rows]})

    # mapInArrow does not accept every column name.
    chosen = frame.select(*[column(n).alias(f"c{i}") for i, (n, _) in enumerate(schema.all)])
    with spark_errors(address):
        told = chosen.mapInArrow(attempt, "attempt BIGINT, rows BIGINT").toArrow()
    return {r["attempt"]: r["rows"] for r in told.to_pylist()}


@dataclass(frozen=True)
class Fetch:
    """Reads pages of a table on a worker, in an exported snapshot."""

    address: Address
    layout: Layout
    snapshot: str
    begins: Sequence[int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_numpy():
                yield from self._part(int(part))

    def _part(self, part: int) -> Iterator[pa.RecordBatch]:
        ends = [*self.begins[1:], 2**32 - 1]
        where = sql.SQL(" WHERE ctid >= {}::tid AND ctid < {}::tid").format(
            sql.Literal(f"({self.begins[part]},0)"), sql.Literal(f"({ends[part]},0)")
        )
        with self.address.errors("could not be read by a worker"):
            connection = self.address.connect("worker")
            with connection, snapshot(connection):
                name = sql.Literal(self.snapshot)
                connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(name).as_bytes())
                for table in got(connection, self.layout, where):
                    yield from table.to_batches()


def whole(
    connection: Connection,
    layout: Layout,
    address: Address,
    driver_bytes: int,
    part_bytes: int,
    spark: Callable[[], SparkSession],
) -> Relation:
    """All rows of a table, in the connection's snapshot.

    A table of more than `driver_bytes` becomes a DataFrame, which workers read in parts of
    `part_bytes`. It is computed at once, so later commits do not change it.
    """
    pages, size = size_of(connection, layout)
    if size <= driver_bytes:
        return DriverRelation(concat(got(connection, layout), layout.schema), layout.schema)
    parts = min(max(2, -(-size // part_bytes)), max(pages, 1))
    begins = [pages * i // parts for i in range(parts)]
    found = connection.execute("SELECT pg_catalog.pg_export_snapshot()").fetchone()
    if found is None:
        raise StoreError(f"{address}: the server gave no snapshot to read from; try again")
    fetch = Fetch(address, layout, found[0], begins)
    numbers = spark().range(0, parts, 1, parts)
    with spark_errors(address):
        frame = numbers.mapInArrow(fetch.__call__, layout.schema.ddl).localCheckpoint()
    return SparkRelation(frame, layout.schema)


@contextmanager
def spark_errors(address: Address) -> Iterator[None]:
    """Raise the error of a worker instead of Spark's."""
    try:
        yield
    except raised.PySparkException as e:
        kind, text = raised_in_worker(e) or ("", f"{address}: Spark failed: {first_line(e)}")
        raise _ERRORS.get(kind, StoreError)(text) from e


def wanted_keys(keys: Relation, schema: Schema, most: int) -> pa.Table | None:
    """The keys as a table; None if there are more than `most`."""
    table = keys.table
    if keys.frame is not None:
        table = keys.frame.limit(most + 1).toArrow()
        if table.num_rows > most:
            return None
    assert table is not None
    return conform(table, schema)


def size_on_disk(connection: Connection, layout: Layout) -> Size:
    """The number of rows of a table, by a count, and its bytes with its indexes."""
    place = layout.place.as_string()
    ((rows,),) = connection.execute(f"SELECT count(*) FROM {place}").fetchall()
    size = "SELECT pg_catalog.pg_total_relation_size(pg_catalog.to_regclass($1))"
    ((nbytes,),) = connection.execute(size, [place]).fetchall()
    return Size(1, rows, nbytes)


def size_of(connection: Connection, layout: Layout) -> tuple[int, int]:
    """The number of pages of a table, and its bytes with TOAST."""
    name = sql.Literal(layout.place.as_string())
    found = connection.execute(
        sql.SQL(
            "SELECT pg_catalog.pg_relation_size({0}) / "
            "current_setting('block_size')::bigint, pg_catalog.pg_table_size({0})"
        )
        .format(name)
        .as_bytes()
    ).fetchone()
    if found is None:
        return 0, 0
    return int(found[0]), int(found[1])
