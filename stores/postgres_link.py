"""Connections to Postgres: where it is, the lock that keeps a second writer out, and errors."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from stepping_spark.errors import StoreError, StoreLocked, StoreUnavailable
from stepping_spark.origin import user_line

Connection = psycopg.Connection[Any]

OLDEST = 15
"""The oldest version of Postgres that has all that is used: MERGE is of this one."""

_URL = "postgresql://user:password@host:5432/database"
_FILES = "a directory, or an object store, is for st.StoreParquet.from_graph(graph, path)"

_SETTINGS = """
SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres';
SET bytea_output = 'hex'; SET extra_float_digits = 1; SET standard_conforming_strings = on;
SET client_min_messages = 'warning'; SET search_path = ''; SET jit = off;
SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;
SET client_connection_check_interval = '5s'; SET random_page_cost = 1.1;
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'
"""
# With the intervals a server notices a writer whose machine is gone, and gives up its lock. What is
# committed is to last, also where a server is told to take it less seriously. By its default a page
# found through an index costs as much as four that are read in turn: then one row in a hundred that
# changes has the server read the whole table.

_HOLDER = """
SELECT a.pid, a.application_name, a.usename, a.client_addr, a.backend_start
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  AND (l.classid::bigint << 32) | l.objid::bigint = $1::bigint
"""


class Address:
    """Where a store is: a database and a schema of it. Shows no password, wherever it is shown."""

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        self._params = _parsed(url)
        self._secrets = sorted(_secrets(url, self._params), key=len, reverse=True)

    def __repr__(self) -> str:
        get = self._params.get
        user = f"{get('user')}@" if get("user") else ""
        port = f":{get('port')}" if get("port") else ""
        host = f"{get('host') or get('hostaddr') or ''}{port}"
        shown = f"postgresql://{user}{host}/{get('dbname') or ''}, schema {self.schema!r}"
        return self._redacted(shown)

    def connect(self, role: str) -> Connection:
        """A new connection, each statement of which is a transaction of its own."""
        params: dict[str, Any] = {"connect_timeout": 10, **self._params}
        params["application_name"] = f"stepping_spark {role}, process {os.getpid()} on {_host()}"
        with self.errors("could not be opened"):
            connection = psycopg.connect(
                **params,
                client_encoding="utf8",
                autocommit=True,
                cursor_factory=psycopg.RawCursor,
            )
            try:
                connection.execute(_SETTINGS)
                self._check_server(connection)
            except BaseException:
                connection.close()
                raise
        return connection

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
        """Make errors of Postgres the store's; no password is in what they say."""
        try:
            yield
        except psycopg.Error as e:
            self.clean(e)
            raise self.error(e, what) from e

    def error(self, e: psycopg.Error, what: str) -> StoreError:
        """The store's error for one of Postgres."""
        said = " ".join(self._redacted(str(e)).split())
        state = e.sqlstate or ""
        away = isinstance(e, psycopg.OperationalError | psycopg.InterfaceError)
        if away or state[:2] in ("08", "53", "57", "58"):
            return StoreUnavailable(
                f"{self}: the store {what}: {said}; what was committed is kept: see to the server "
                "(is it running, reachable, has it room?), and try again"
            )
        if state in ("42501", "25006"):  # no privilege, a read-only database
            return StoreUnavailable(
                f"{self}: the store {what}: {said}; give the user the right to create and write "
                "in the schema, or use another user"
            )
        return StoreError(f"{self}: the store {what}: {said}")

    def clean(self, e: BaseException) -> None:
        """Take the password out of an error that may show it, and out of what it came from."""
        seen: BaseException | None = e
        while seen is not None:
            if any(secret in str(seen) for secret in self._secrets):
                seen.args = (self._redacted(str(seen)),)
            seen = seen.__cause__ or seen.__context__

    def _redacted(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _parsed(url: str) -> dict[str, Any]:
    if not isinstance(url, str):
        raise StoreError(
            f"{user_line()}: expected the URL of a database, found {type(url).__name__}; write "
            f"st.StorePostgres.from_graph(graph, url), {_URL}; {_FILES}"
        )
    try:
        return dict(conninfo_to_dict(url))
    except psycopg.Error:
        pass  # its text quotes the URL, password and all
    raise StoreUnavailable(
        f"{_without_secrets(url)!r} is no address of a Postgres database; give "
        f"{_URL} (other characters than letters and digits in a password as %XX); {_FILES}"
    )


def _without_secrets(url: str) -> str:
    """As much of an address that cannot be parsed as surely holds no password."""
    if re.fullmatch(r"[^:@=]*", url):
        return url
    kind, found, _ = url.partition("://")
    return f"{kind}://…" if found and re.fullmatch(r"\w+", kind) else "what was given"


def _secrets(url: str, params: dict[str, Any]) -> set[str]:
    """The password as it may appear in a text."""
    password = str(params.get("password") or "")
    sslpassword = str(params.get("sslpassword") or "")
    found = set()
    for secret in (password, sslpassword):
        found |= {secret, quote(secret, safe=""), quote(secret)}
    found |= {part for part in re.findall(r":([^:/@]*)@", url) if unquote(part) == password}
    return found - {""}


def _host() -> str:
    return socket.gethostname()


LOCK_TRIES = 20
"""How often a lock is tried, 50 ms apart: that of a killed process takes a moment to go."""


def take_lock(connection: Connection, address: Address) -> None:
    """Keep other writers of the schema out for as long as the connection lives."""
    number = _lock_number(address.schema)
    for tried in range(1, LOCK_TRIES + 1):
        found = connection.execute("SELECT pg_catalog.pg_try_advisory_lock($1)", [number])
        if found.fetchone() == (True,):
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


def holder(connection: Connection, address: Address) -> str | None:
    """Who writes the schema; None: nobody."""
    found = connection.execute(_HOLDER, [_lock_number(address.schema)]).fetchone()
    if found is None:
        return None
    pid, application, user, where, since = found
    named = application or "a connection"
    at = f"from {where}" if where else "over a local socket"
    return f"{named!r} (user {user}, {at}, server process {pid}, since {since:%Y-%m-%d %H:%M:%S})"
