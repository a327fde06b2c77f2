"""A connection to the database of a table, made on demand, and again if it was lost."""

from __future__ import annotations

import shlex
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from stepping_spark.base.errors import SteppingError, StoreError
from stores.postgres.connection import Address, Connection

_REMEDIES = {
    "3F000": "create the schema first: CREATE SCHEMA …, or name another one",
    "22": "correct these rows, or the query",
    "23": "correct these rows, or the constraints of the table",
    "42": "somebody has changed it or what belongs to it: see that all is as it was",
    "54": (
        "that is a limit of Postgres: a long text has no place in a key, so use a hash of it; or "
        "write the changes of the view, which need no key: changes=True"
    ),
}
"""What to do about an error of a statement, by its SQLSTATE, or by the class of it."""


class Link:
    """The connection to one table; its errors are of the type `failure`, and show no password."""

    def __init__(
        self, url: str, schema: str, table: str, role: str, failure: type[SteppingError]
    ) -> None:
        self.schema = schema
        self.table = table
        self.name = sql.Identifier(schema, table)
        self._url = url
        self._role = role
        self._error = failure
        self._address: Address | None = None
        self._connection: Connection | None = None
        self._close: Callable[[], object] = lambda: None

    def __str__(self) -> str:
        return f"table {self.table!r} of {self._address or 'a Postgres database'}"

    @property
    def arguments(self) -> str:
        """The table as arguments of `stepping-spark source`, quoted for a shell."""
        url = self._address.url if self._address else "URL"
        words = (url, self.table, "--schema", self.schema)
        return " ".join(map(shlex.quote, words))

    def failure(self, reason: str) -> SteppingError:
        """An error about the table."""
        return self._error(f"{self}: {reason}")

    @contextmanager
    def transaction(self, what: str) -> Iterator[Connection]:
        """A transaction that reads one snapshot; it commits everything or nothing."""
        with self._table_errors():
            connection = self._connected()
            assert self._address is not None
            try:
                with self._address.errors(what), self._refused(what), connection.transaction():
                    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    yield connection
            except StoreError as e:
                if isinstance(e.__cause__, psycopg.errors.SerializationFailure):
                    raise self.failure(
                        f"it {what}, because another pipeline wrote it at the same time; one "
                        "pipeline writes a table: stop the other"
                    ) from e
                raise

    @contextmanager
    def changing(self, what: str) -> Iterator[Connection]:
        """A transaction in which each statement sees the commits before its own begin."""
        with self._table_errors():
            connection = self._connected()
            assert self._address is not None
            with self._address.errors(what), self._refused(what), connection.transaction():
                yield connection

    def close(self) -> None:
        """Close the connection."""
        self._connection = None
        self._close()

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._close()
            self._address = Address(self._url, self.schema, "table")
            self._connection = self._address.connect(self._role)
            self._close = closing = weakref.finalize(self, self._connection.close)
            closing.atexit = False  # a fork that ends must not close it
        return self._connection

    @contextmanager
    def _refused(self, what: str) -> Iterator[None]:
        """Translate errors of statements with a known remedy into errors of the table."""
        try:
            yield
        except psycopg.Error as e:
            state = e.sqlstate or ("22" if isinstance(e, psycopg.DataError) else "")
            remedy = _REMEDIES.get(state) or _REMEDIES.get(state[:2])
            if remedy is None or state == "42501":
                raise
            text = " ".join(str(e).split())
            raise self.failure(f"it {what}: {text}; {remedy}") from e

    @contextmanager
    def _table_errors(self) -> Iterator[None]:
        """Translate errors of connections into errors of the table."""
        try:
            yield
        except StoreError as e:
            raise self._error(f"table {self.table!r}: {e}") from e.__cause__


def run(
    connection: Connection, text: str, *params: Any, **names: sql.Composable
) -> psycopg.Cursor[Any]:
    """Run a statement with names in braces and parameters $1, $2, …; several only without those."""
    return connection.execute(sql.SQL(text).format(**names).as_string(), params or None)


def columns_of(connection: Connection, schema: str, table: str) -> dict[str, str]:
    """The columns of a table with their types; empty if it does not exist."""
    cursor = connection.execute(
        "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) "
        "FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped "
        "ORDER BY a.attnum",
        [schema, table],
    )
    return {str(name): str(kind) for name, kind in cursor.fetchall()}


def database_of(url: str) -> tuple[str, ...]:
    """The host, the port and the database of a URL; the URL alone if it is invalid."""
    try:
        parameters = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return (url,)  # the error is raised when it is opened
    user = parameters.get("user") or ""
    return (
        str(parameters.get("host") or "localhost"),
        str(parameters.get("port") or 5432),
        str(parameters.get("dbname") or user),
    )


def listed(names: list[str], form: Callable[[sql.Identifier], sql.Composable]) -> sql.Composed:
    """The SQL of each column, joined with commas."""
    return sql.SQL(", ").join(form(sql.Identifier(name)) for name in names)
