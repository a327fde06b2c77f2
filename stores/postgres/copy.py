"""Moves rows between Postgres and Arrow: by COPY, by columns of few rows, by Spark's workers.

COPY and SELECT send one message per row. psycopg and the parser of its text then take longer than
the server. Here an aggregate puts the values of a column together, in their binary form:

- Numbers and times have one width. `IS NOT NULL` of each row tells where they belong.
- Text, numeric and json have their lengths beside them, which is how Arrow holds text.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, LiteralString

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from psycopg import errors, sql
from psycopg.pq import TransactionStatus

from stepping_spark.base.errors import StoreCorrupt, StoreError, StoreUnavailable
from stepping_spark.base.packages import DataFrame, SparkSession, raised
from stepping_spark.relations.arrow import Array, concat
from stepping_spark.relations.codec import conform
from stepping_spark.relations.placement import LOOKED_UP_KEYS
from stepping_spark.relations.relation import DriverRelation, Relation, SparkRelation
from stepping_spark.relations.store import AddedRows, Register, Size
from stepping_spark.relations.transfer import column
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.session import first_line, raised_in_worker
from stores.base import BeforeStep, checked_beside
from stores.postgres.catalog import snapshot
from stores.postgres.connection import Address, Connection
from stores.postgres.statements import ATTEMPT, Layout
from stores.postgres.types import (
    FIRST_DAY,
    LAST_DAY,
    ValueColumn,
    csv_of,
    relation_of,
    table_of,
    value_of,
)

LINES = 8 << 20  # bytes of text parsed at a time
ROWS = 50_000  # rows written at a time
TASK_BYTES = 32 << 20
"""Bytes of a table that one of Spark's tasks reads. Beyond: another task reads them."""

_ODD = (
    ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError,
    pa.ArrowException,
)  # fmt: skip
"""The errors raised for values that do not have the types they were written with."""

_ERRORS = {"StoreUnavailable": StoreUnavailable, "StoreCorrupt": StoreCorrupt}


def put(
    connection: Connection,
    layout: Layout,
    tables: Iterable[pa.Table],
    to: sql.Identifier,
    attempt: int | None = None,
) -> int:
    """COPY rows into a table of the layout's columns; return the number of rows.

    The rows get the number of an `attempt`, if the table has a column for it.
    """
    rows, more = 0, () if attempt is None else (ATTEMPT,)
    with connection.cursor().copy(layout.copy_in(to, *more).as_bytes()) as copy:
        for table in tables:
            rows += table.num_rows
            for start in range(0, table.num_rows, ROWS):
                texts = layout.text_columns(part := table.slice(start, ROWS))
                if attempt is not None:
                    numbers = pa.array([str(attempt)] * part.num_rows)
                    texts.insert(len(layout.hashes), numbers)
                copy.write(csv_of(texts))
    return rows


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
        number, names = secrets.randbits(62), schema.arrow.names
        named = (pa.Table.from_batches([b]).rename_columns(names) for b in batches)
        with address.errors("could not take rows from a worker"), address.connect("worker") as own:
            rows = put(own, layout, (conform(table, schema) for table in named), to, number)
        yield pa.RecordBatch.from_pydict({"attempt": [number], "rows": [rows]})

    # mapInArrow does not accept every column name.
    chosen = frame.select(*[column(n).alias(f"c{i}") for i, (n, _) in enumerate(schema.all)])
    with spark_errors(address):
        attempts = chosen.mapInArrow(attempt, "attempt BIGINT, rows BIGINT").toArrow()
    return {r["attempt"]: r["rows"] for r in attempts.to_pylist()}


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


def all_rows(
    connection: Connection,
    layout: Layout,
    address: Address,
    driver_bytes: int,
    spark: Callable[[], SparkSession],
) -> Relation:
    """All rows of a table, in the connection's snapshot.

    A table of more than `driver_bytes` becomes a DataFrame, which workers read in parts of
    `TASK_BYTES`. It is computed at once, so later commits do not change it.
    """
    pages, size = size_of(connection, layout)
    if size <= driver_bytes:
        return DriverRelation(concat(got(connection, layout), layout.schema), layout.schema)
    parts = min(max(2, -(-size // TASK_BYTES)), max(pages, 1))
    begins = [pages * i // parts for i in range(parts)]
    row = connection.execute("SELECT pg_catalog.pg_export_snapshot()").fetchone()
    if row is None:
        raise StoreError(f"{address}: the server gave no snapshot to read from; try again")
    fetch = Fetch(address, layout, row[0], begins)
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


@dataclass
class TaskTables(BeforeStep):
    """The state before a step as Spark's tasks read it, and the staging tables they write to.

    A task has a connection of its own. It reads the last committed step: the store's process is the
    only writer. Its additions go to the staging table of a register, under a number that is unique
    to the attempt. The store's process merges the rows of the attempts that succeeded.
    """

    address: Address
    registers: Mapping[str, tuple[Register, Layout]]
    staging: Mapping[str, sql.Identifier]
    most_rows: int  # the most rows that a task reads for some keys at once
    most_bytes: int  # the most bytes of a register that a task reads whole
    _open: list[Connection] = field(default_factory=list)

    @contextmanager
    def attempt(self) -> Iterator[TaskTables]:
        """The same state for an attempt of a task, with a connection that ends with the block."""
        attempt = replace(self, added=[], _open=[])
        try:
            yield attempt
        finally:
            for connection in attempt._open:
                connection.close()

    def read(self, register: str, keys: Relation | None = None) -> tuple[Relation, ...]:
        """The committed value, as parts that add up to it; with `keys`, only the rows of those."""
        of, layout = self.registers[register]
        where = None
        if keys is not None:
            assert keys.table is not None
            if not keys.table.num_rows:
                return ()
            where = layout.of_keys(conform(keys.table, of.keys))
        return self._parts(register, layout, where)

    def read_beside(self, register: str, rows: Relation, buckets: int) -> tuple[Relation, ...]:
        """The rows in the same buckets as some rows."""
        of, layout = self.registers[register]
        return self._parts(register, layout, layout.beside(checked_beside(of, rows), buckets))

    def _parts(
        self, register: str, layout: Layout, where: sql.Composed | None
    ) -> tuple[Relation, ...]:
        with self.address.errors("could not be read by a worker"):
            rows = self._read(register, layout, where)
        return () if rows.is_empty else (rows,)

    def _read(self, register: str, layout: Layout, where: sql.Composed | None) -> DriverRelation:
        connection = self._connection()
        if where is not None:
            few = few_rows(connection, layout, where, self.most_rows)
            if few is not None:
                return few
        elif (size := size_of(connection, layout)[1]) > self.most_bytes:
            raise StoreError(
                f"register {register!r} has {size:,} bytes, and a task reads at most "
                f"{self.most_bytes:,} of it"
            )
        rows = concat(got(connection, layout, where), layout.schema)
        return DriverRelation(rows, layout.schema, consolidated=True)

    def add(self, register: str, change: Relation) -> None:
        """Write the rows of a change to the staging table of the register."""
        assert isinstance(change, DriverRelation)
        _, layout = self.registers[register]
        rows = conform(change.added_up().table, layout.schema)
        if rows.num_rows:
            number = secrets.randbits(62)
            with self.address.errors("could not take rows from a worker"):
                put(self._connection(), layout, [rows], self.staging[register], number)
            self.added.append(AddedRows(register, rows.num_rows, number))

    def _connection(self) -> Connection:
        if not self._open:
            self._open.append(self.address.connect("worker"))
        return self._open[0]


def wanted_keys(keys: Relation, schema: Schema) -> pa.Table | None:
    """The keys as a table; None if Spark has more than `LOOKED_UP_KEYS`."""
    table = keys.table
    if keys.frame is not None:
        table = keys.frame.limit(LOOKED_UP_KEYS + 1).toArrow()
        if table.num_rows > LOOKED_UP_KEYS:
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
    row = connection.execute(
        sql.SQL(
            "SELECT pg_catalog.pg_relation_size({0}) / "
            "current_setting('block_size')::bigint, pg_catalog.pg_table_size({0})"
        )
        .format(name)
        .as_bytes()
    ).fetchone()
    if row is None:
        return 0, 0
    return int(row[0]), int(row[1])


_DAY = 86_400_000_000
_BEGIN = 10_957  # 2000-01-01, from where Postgres counts days and microseconds


@dataclass(frozen=True)
class _Fixed:
    """A type whose values have one width: SQL for the bytes of a value, and numpy's types for them.

    Times are counted from `begin`, and are between `bounds`.
    """

    sent: LiteralString
    read: str
    kept: str
    begin: int = 0
    bounds: tuple[int, int] | None = None


_TIMES = (FIRST_DAY * _DAY, (LAST_DAY + 1) * _DAY - 1)
_FIXED = {
    "boolean": _Fixed("pg_catalog.boolsend({})", "?", "?"),
    "bigint": _Fixed("pg_catalog.int8send({})", ">i8", "i8"),
    "double precision": _Fixed("pg_catalog.float8send({})", ">f8", "f8"),
    "date": _Fixed("pg_catalog.date_send({})", ">i4", "i4", _BEGIN, (FIRST_DAY, LAST_DAY)),
    "timestamptz": _Fixed("pg_catalog.timestamptz_send({})", ">i8", "i8", _BEGIN * _DAY, _TIMES),
    "timestamp": _Fixed("pg_catalog.timestamp_send({})", ">i8", "i8", _BEGIN * _DAY, _TIMES),
    "interval": _Fixed("pg_catalog.int8send({})", ">i8", "i8"),  # shown as microseconds
}


def few_rows(
    connection: Connection, layout: Layout, where: sql.Composable, most: int
) -> DriverRelation | None:
    """The rows of a table that meet a condition; None if there are more than `most`.

    None also if a column is too large for one value of Postgres, which has a gigabyte at most.
    """
    within = connection.info.transaction_status == TransactionStatus.INTRANS
    try:
        # Within a transaction, a savepoint: an error would end the transaction.
        with connection.transaction() if within else nullcontext():
            cursor = connection.cursor(binary=True).execute(_query(layout, where, most + 1))
            ((rows, *columns),) = cursor.fetchall()
    except errors.ProgramLimitExceeded:
        return None
    if rows > most:
        return None
    with as_written(layout.table):
        table = relation_of(_arrays(layout, rows, iter(columns)), layout.schema)
    return DriverRelation(table, layout.schema)


def _query(layout: Layout, where: sql.Composable, most: int) -> bytes:
    """The query of the number of rows, and of each column: its values, and flags or lengths."""
    chosen: list[sql.Composable] = []
    columns: list[sql.Composable] = [sql.SQL("pg_catalog.count(*)")]
    for i, (shown, leaf) in enumerate(layout.shown):
        name = sql.Identifier(f"c{i}")
        chosen.append(sql.SQL("{} AS {}").format(shown, name))
        for part in _parts(leaf):
            value = sql.SQL(part).format(name)
            columns.append(sql.SQL("pg_catalog.string_agg({}, ''::bytea)").format(value))
    rows = sql.SQL("SELECT {} FROM {}{} LIMIT {}").format(
        sql.SQL(", ").join(chosen), layout.place, where, sql.Literal(most)
    )
    return sql.SQL("SELECT {} FROM ({}) AS s").format(sql.SQL(", ").join(columns), rows).as_bytes()


def _parts(leaf: ValueColumn) -> tuple[LiteralString, ...]:
    """SQL for the bytes of a value, and for its length, or for whether it is not NULL."""
    fixed = _FIXED.get(leaf.pg)
    if fixed is not None:
        return (fixed.sent, "pg_catalog.boolsend({} IS NOT NULL)")[: 1 + leaf.nullable]
    if leaf.pg == "bytea":
        return "{}", "pg_catalog.int4send(coalesce(pg_catalog.octet_length({}), -1))"
    return (
        "pg_catalog.textsend({}::text)",
        "pg_catalog.int4send(coalesce(pg_catalog.octet_length({}::text), -1))",
    )


def _arrays(layout: Layout, rows: int, columns: Iterator[bytes | None]) -> Iterator[Array]:
    for _, leaf in layout.shown:
        values = next(columns) or b""  # NULL if there are no rows, or only NULLs
        fixed = _FIXED.get(leaf.pg)
        if fixed is None:
            yield _of_lengths(values, next(columns) or b"", leaf)
        else:
            valid = np.frombuffer(next(columns) or b"", np.bool_) if leaf.nullable else None
            yield _of_one_width(values, valid, rows, fixed, leaf)


def _of_lengths(values: bytes, lengths: bytes, leaf: ValueColumn) -> Array:
    """Values with different lengths; -1 is the length of NULL."""
    sizes = np.frombuffer(lengths, ">i4").astype(np.int32)
    validity = pa.array(sizes >= 0).buffers()[1]
    offsets = np.concatenate([[0], np.cumsum(np.maximum(sizes, 0))]).astype(np.int32)
    buffers = [validity, pa.py_buffer(offsets.tobytes()), pa.py_buffer(values)]
    if leaf.pg == "bytea":
        return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
    return value_of(pa.Array.from_buffers(pa.string(), len(sizes), buffers), leaf)


def _of_one_width(
    values: bytes, valid: npt.NDArray[np.bool_] | None, rows: int, fixed: _Fixed, leaf: ValueColumn
) -> Array:
    """Values with one width; they belong to the rows that are `valid`, the others are NULL."""
    numbers: npt.NDArray[Any] = np.frombuffer(values, fixed.read).astype(fixed.kept)
    if valid is None and len(numbers) != rows:
        raise ValueError(f"{leaf.name} is NULL, and its type, {leaf.type}, has no NULL")
    if fixed.bounds is not None:
        numbers = numbers + fixed.begin  # 'infinity' wraps around, and stays out of bounds
        first, last = fixed.bounds
        if len(numbers) and not first <= numbers.min() <= numbers.max() <= last:
            raise ValueError("a time before the year 1 or after the year 9999")
    if valid is None:
        return value_of(pa.array(numbers), leaf)
    placed = np.zeros(rows, numbers.dtype)
    placed[valid] = numbers
    return value_of(pa.array(placed, mask=~valid), leaf)
