"""Reads of few rows: the server sends one value per column, and numpy reads it as it is.

COPY and SELECT send one message per row. psycopg and the parser of its text then take longer than
the server. Here an aggregate puts the values of a column together, in their binary form:

- Numbers and times have one width. `IS NOT NULL` of each row tells where they belong.
- Text, numeric and json have their lengths beside them, which is how Arrow holds text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, LiteralString

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from psycopg import errors, sql
from psycopg.pq import TransactionStatus

from stepping_spark.relations.arrow import Array
from stepping_spark.spark.relation import DriverRelation
from stores.postgres.connection import Connection
from stores.postgres.copy import as_written
from stores.postgres.statements import Layout
from stores.postgres.types import FIRST_DAY, LAST_DAY, Leaf, relation_of, value_of

_DAY = 86_400_000_000
_BEGIN = 10_957  # 2000-01-01, from where Postgres counts days and microseconds


@dataclass(frozen=True)
class _Fixed:
    """A type whose values have one width: SQL for the bytes of one, and what numpy makes of them.

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
    """Selects the number of rows, and each column: values, and where or how long they are."""
    chosen: list[sql.Composable] = []
    found: list[sql.Composable] = [sql.SQL("pg_catalog.count(*)")]
    for i, (shown, leaf) in enumerate(layout.shown):
        name = sql.Identifier(f"c{i}")
        chosen.append(sql.SQL("{} AS {}").format(shown, name))
        for part in _parts(leaf):
            value = sql.SQL(part).format(name)
            found.append(sql.SQL("pg_catalog.string_agg({}, ''::bytea)").format(value))
    rows = sql.SQL("SELECT {} FROM {}{} LIMIT {}").format(
        sql.SQL(", ").join(chosen), layout.place, where, sql.Literal(most)
    )
    return sql.SQL("SELECT {} FROM ({}) AS s").format(sql.SQL(", ").join(found), rows).as_bytes()


def _parts(leaf: Leaf) -> tuple[LiteralString, ...]:
    """SQL for the bytes of a value, and for whether it is there or how long it is."""
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
            there = np.frombuffer(next(columns) or b"", np.bool_) if leaf.nullable else None
            yield _of_one_width(values, there, rows, fixed, leaf)


def _of_lengths(values: bytes, lengths: bytes, leaf: Leaf) -> Array:
    """Values with different lengths; -1 is the length of NULL."""
    sizes = np.frombuffer(lengths, ">i4").astype(np.int32)
    known = pa.array(sizes >= 0).buffers()[1]
    offsets = np.concatenate([[0], np.cumsum(np.maximum(sizes, 0))]).astype(np.int32)
    buffers = [known, pa.py_buffer(offsets.tobytes()), pa.py_buffer(values)]
    if leaf.pg == "bytea":
        return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
    return value_of(pa.Array.from_buffers(pa.string(), len(sizes), buffers), leaf)


def _of_one_width(
    values: bytes, there: npt.NDArray[np.bool_] | None, rows: int, fixed: _Fixed, leaf: Leaf
) -> Array:
    """Values with one width; they belong to the rows that are `there`, the others are NULL."""
    found: npt.NDArray[Any] = np.frombuffer(values, fixed.read).astype(fixed.kept)
    if there is None and len(found) != rows:
        raise ValueError(f"{leaf.name} is NULL, and its type, {leaf.type}, has no NULL")
    if fixed.bounds is not None:
        found = found + fixed.begin  # 'infinity' wraps around, and stays out of bounds
        first, last = fixed.bounds
        if len(found) and not first <= found.min() <= found.max() <= last:
            raise ValueError("a time before the year 1 or after the year 9999")
    if there is None:
        return value_of(pa.array(found), leaf)
    placed = np.zeros(rows, found.dtype)
    placed[there] = found
    return value_of(pa.array(placed, mask=~there), leaf)
