"""Connections to Postgres: its address, the lock against a second writer, and errors."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import StoreCorrupt, StoreError, StoreLocked, StoreUnavailable
from stores.redaction import EXAMPLE, FILES, UNCLEAR, wrong_with_names, wrong_with_postgres

Connection = psycopg.Connection[Any]

OLDEST = 15
"""The oldest supported version of Postgres: the first with MERGE."""

LONGEST_NAME = 63
"""The length of the longest name in Postgres, in bytes; it truncates longer ones."""

PAGE = "docs/guide/security.md (installed as share/doc/stepping-spark/security.md) has the SQL"

_NOT_PARSED = (
    "this is not an address of a Postgres database that psycopg can read, and it is not shown here "
    "because it may hold a password; see that its parameters have the names that libpq gives "
    f"them, and that each has a value, as in {EXAMPLE}?sslmode=require; {FILES}"
)
_SCHEMA_APART = (
    "this address of a Postgres database has schema=…, which psycopg cannot read; leave it out, "
    "and give the name of the schema apart: --schema NAME, or schema= in Python and in TOML"
)
_SERVER = "check the server (is it running, can it be reached, is its disk full?)"
_PORTS = re.compile(r"(\d{1,5}(,\d{0,5})*)?")

_SETTINGS = """
SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres';
SET bytea_output = 'hex'; SET extra_float_digits = 1; SET standard_conforming_strings = on;
SET client_min_messages = 'warning'; SET search_path = ''; SET jit = off;
SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;
SET client_connection_check_interval = '5s'; SET random_page_cost = 0.5;
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off';
SET row_security = off
"""
# The intervals let a server notice that a writer's machine is gone, and release its lock. Commits
# are synchronous even if the server's default is not, to be durable. By default Postgres costs a
# page found through an index like four pages of a sequential scan; then a change of one row in a
# hundred makes it read the whole table. Rows are looked up in the order of the index and, but for
# those that later steps added, of the table: most pages were read just before. Without row
# security, a table whose policy hides rows is an error, and no table with fewer rows.

_OTHER_TABLES = ("42P01", "42703", "42804", "42809", "42846", "42883")
"""SQLSTATEs of missing tables, columns or operators, and of types that do not fit."""

_HOLDER = """
SELECT a.pid, a.application_name, a.usename, a.client_addr, a.backend_start
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  AND (l.classid::bigint << 32) | l.objid::bigint = $1::bigint
"""
_IDENTITY = """
SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()), current_setting('port'),
    (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()),
    extract(epoch FROM pg_catalog.pg_postmaster_start_time())::text
"""
# A copy of a server's files has the same identifier, and on another machine maybe the same port.


class Address:
    """The address of a store: a database and a schema. It never shows its password.

    `what` is the word for the store in errors.
    """

    def __init__(self, url: str, schema: str, what: str = "store") -> None:
        self._what = what
        _check_schema(schema)
        self.schema = schema
        self._params = _parsed(url)

    def __repr__(self) -> str:
        return f"{self.url}, schema {self.schema!r}"

    @property
    def url(self) -> str:
        """The database as a URL, without the password and other options."""
        get = self._params.get
        user = f"{get('user')}@" if get("user") else ""
        port = f":{get('port')}" if get("port") else ""
        host = f"{get('host') or get('hostaddr') or ''}{port}"
        service = f"?service={get('service')}" if get("service") else ""
        return f"postgresql://{user}{host}/{get('dbname') or ''}{service}"

    def connect(self, role: str) -> Connection:
        """Open a connection in autocommit mode."""
        params = {"connect_timeout": 10, **self._params, "client_encoding": "utf8"}
        params["application_name"] = f"stepping_spark {role}, process {os.getpid()} on {_host()}"
        connection = self._connected(params)
        try:
            with self.errors("could not be opened"):
                connection.execute(_SETTINGS)
                self._check_server(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connected(self, params: Mapping[str, Any]) -> Connection:
        try:
            return psycopg.connect(**params, autocommit=True, cursor_factory=psycopg.RawCursor)
        except psycopg.Error as e:
            refused, text, remedy = type(e), str(e), _remedy_where_refused(e)
        except UnicodeError as e:  # from psycopg's lookup of the host
            refused, text = psycopg.OperationalError, f"the host has no name for a network: {e}"
            remedy = _SERVER
        # Outside of `except`, and from a new error: the old one has the connection's password.
        raise self._unavailable("could not be opened", text, remedy) from refused(text)

    def _check_server(self, connection: Connection) -> None:
        version = connection.info.server_version // 10_000
        if version < OLDEST:
            raise StoreUnavailable(
                f"{self}: the server is Postgres {version}; {OLDEST} or newer is needed"
            )
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreUnavailable(
                f"{self}: the database has the encoding {encoding}, which cannot hold all text; "
                "use one that was made with ENCODING 'UTF8'"
            )

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Turn errors of Postgres into errors of the store."""
        try:
            yield
        except psycopg.Error as e:
            raise self.error(e, what) from e

    def error(self, e: psycopg.Error, what: str) -> StoreError:
        """The store's error for one of Postgres."""
        text = " ".join(str(e).split())
        state = e.sqlstate or ""
        if state[:2] == "54":  # program limit exceeded: psycopg takes it for an OperationalError
            return StoreError(
                f"{self}: the {self._what} {what}: {text}; that is a limit of Postgres, as for a "
                "long text in a key: keep a hash of it, or use another store"
            )
        away = isinstance(e, psycopg.OperationalError | psycopg.InterfaceError)
        if away or state[:2] in ("08", "53", "57", "58"):
            return self._unavailable(what, text, _SERVER)
        if state in ("42501", "25006"):  # insufficient privilege, read-only database
            return StoreUnavailable(
                f"{self}: the {self._what} {what}: {text}; give the user the right, or use another "
                f"user: {PAGE}, for those who write and for those who read"
            )
        if state in _OTHER_TABLES:
            return StoreCorrupt(
                f"{self}: the {self._what} {what}: {text}; its tables are not as they were made: "
                "restore the schema from a backup"
            )
        return StoreError(f"{self}: the {self._what} {what}: {text}")

    def _unavailable(self, what: str, text: str, remedy: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self}: the {self._what} {what}: {' '.join(text.split())}; what was committed is "
            f"kept: {remedy}, and try again"
        )


def _remedy_where_refused(e: psycopg.Error) -> str:
    """The remedy for a refused connection.

    Such an error has no SQLSTATE, and the server may use another language for its text. Then the
    remedy depends on whether the server asked for a password.
    """
    text = str(e)
    if "does not exist" in text:
        return "check the user and the database in the address, or create what is not there"
    if e.pgconn is not None and e.pgconn.needs_password:
        return f"give the user's password, in a password file (PGPASSFILE) or as in {EXAMPLE}"
    if "authentication failed" in text or (e.pgconn is not None and e.pgconn.used_password):
        return "check the user, the password and the database: the server has refused them"
    if "pg_hba.conf" in text:
        return "let the server's pg_hba.conf take this user from this host"
    return _SERVER


def _check_schema(schema: object) -> None:
    """Refuse names that Postgres truncates: two of them could become one state with two locks."""
    if isinstance(schema, str) and 0 < len(schema.encode()) <= LONGEST_NAME and "\0" not in schema:
        return
    shown = f"{schema!r}, of {len(schema.encode())} bytes" if isinstance(schema, str) else schema
    raise StoreError(
        f"{user_line()}: a schema of Postgres has a name of 1 to {LONGEST_NAME} bytes, no NUL; "
        f"found {shown}; give another name as schema="
    )


def _parsed(url: str) -> dict[str, Any]:
    """The parameters of an address; no part of the password is in any other parameter."""
    if not isinstance(url, str):
        raise StoreError(
            f"{user_line()}: expected the URL of a database, found {type(url).__name__}; write "
            f"st.StorePostgres.from_graph(graph, url), {EXAMPLE}; {FILES}"
        )
    wrong = wrong_with_postgres(url)
    if wrong is not None:
        raise StoreUnavailable(f"{user_line()}: {wrong}")
    try:
        params = dict(conninfo_to_dict(url))
    except psycopg.Error:
        wrong = _SCHEMA_APART if re.search("[?&]schema=", url) else _NOT_PARSED
    else:
        wrong = wrong_with_names(params)
        if wrong is None and _PORTS.fullmatch(str(params.get("port", ""))):
            return params
        wrong = wrong or UNCLEAR
    # Outside of `except`: libpq's error quotes the URL with its password.
    raise StoreUnavailable(wrong)


def _host() -> str:
    return socket.gethostname()


LOCK_TRIES = 20
"""The number of attempts, 50 ms apart: a killed process holds its lock for a moment."""


def take_lock(connection: Connection, address: Address) -> None:
    """Lock the schema against other writers until the connection ends."""
    number = _lock_number(address.schema)
    for tried in range(1, LOCK_TRIES + 1):
        cursor = connection.execute("SELECT pg_catalog.pg_try_advisory_lock($1)", [number])
        if cursor.fetchone() == (True,):
            return
        if tried < LOCK_TRIES:
            time.sleep(0.05)
    who = holder(connection, address) or "another connection"
    raise StoreLocked(
        f"{address}: {who} is writing this state; one process writes at a time: stop that one, or "
        "open the store with read_only=True"
    )


def _lock_number(schema: str) -> int:
    digest = hashlib.sha256(f"stepping_spark {schema}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def identity(connection: Connection, address: Address) -> object:
    """The identity of a state, the same for every address, role or socket that reaches it.

    It changes when the server restarts.
    """
    ((server, port, database, started),) = connection.execute(_IDENTITY).fetchall()
    return server, port, database, started, address.schema


def holder(connection: Connection, address: Address) -> str | None:
    """The connection that writes the schema now; None if there is none."""
    row = connection.execute(_HOLDER, [_lock_number(address.schema)]).fetchone()
    if row is None:
        return None
    pid, application, user, where, since = row
    named = application or "a connection"
    text = f"{named!r} (user {user}, "
    if since is None:  # others' details are hidden from this role
        return f"{text}server process {pid}; more is shown to a role with pg_read_all_stats)"
    at = f"from {where}" if where else "over a local socket"
    return f"{text}{at}, server process {pid}, since {since:%Y-%m-%d %H:%M:%S})"
