"""Stores on a Postgres server, each in a schema of its own, closed in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock
from urllib.parse import quote
from uuid import uuid4
from weakref import WeakSet

import psycopg
from psycopg import sql

from stepping_spark.relations.store import Register, Store
from stores import step_lock
from stores.postgres.store import DRIVER_BYTES, StorePostgres
from tests.postgres_server import PostgresServer


def role(server: PostgresServer, name: str, rights: str = "") -> str:
    """The URL by which a new role connects to a server; `{0}` in the SQL of its rights is its name.

    `rights` are run as the superuser of the tests.
    """
    named = f"{name} {uuid4().hex[:8]}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        ident, password = sql.Identifier(named), sql.Literal(server.password)
        make = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(ident, password)
        connection.execute(make)
        if rights:
            connection.execute(sql.SQL(rights).format(ident))
    return server.url.replace("//stepping:", f"//{quote(named)}:")


@contextmanager
def as_another_process() -> Iterator[None]:
    """A store that is opened meanwhile does not know of those that are open here."""
    with mock.patch.object(step_lock, "_writers", WeakSet()):
        yield


class Stores:
    """Makes stores, and opens what they keep again."""

    def __init__(self, url: str, driver_bytes: int = DRIVER_BYTES) -> None:
        self.url = url
        self._driver_bytes = driver_bytes
        self._schemas: dict[Store, str] = {}

    def create(self, registers: Sequence[Register], *, url: str | None = None) -> StorePostgres:
        """A new store."""
        return self.open(f"s {uuid4().hex}", registers, create=True, url=url)

    def again(self, store: Store, registers: Sequence[Register]) -> StorePostgres:
        """Another store on what one keeps, while that is open."""
        return self.open(self._schemas[store], registers)

    def rival(self, store: Store, registers: Sequence[Register]) -> StorePostgres:
        """The same, as another process opens it: no store of this one gives way."""
        with as_another_process():
            return self.again(store, registers)

    def reopen(self, store: Store, registers: Sequence[Register]) -> StorePostgres:
        """The same, when it is closed."""
        store.close()
        return self.again(store, registers)

    def schema(self, store: Store) -> str:
        """Where a store is."""
        return self._schemas[store]

    def open(
        self,
        schema: str,
        registers: Sequence[Register],
        *,
        create: bool = False,
        read_only: bool = False,
        url: str | None = None,
    ) -> StorePostgres:
        """A store in a schema."""
        store = StorePostgres(
            url or self.url,
            registers,
            schema=schema,
            create=create,
            read_only=read_only,
            driver_bytes=self._driver_bytes,
        )
        self._schemas[store] = schema
        return store

    def close(self) -> None:
        """Close them all."""
        for store in self._schemas:
            store.close()
