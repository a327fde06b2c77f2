"""Stores on a Postgres server, each in a schema of its own, closed in the end."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from stepping_spark.store import Register, Store
from stores.postgres import DRIVER_BYTES, StorePostgres


class Stores:
    """Makes stores, and opens what they keep again."""

    def __init__(self, url: str, driver_bytes: int = DRIVER_BYTES) -> None:
        self.url = url
        self._driver_bytes = driver_bytes
        self._schemas: dict[Store, str] = {}

    def create(self, registers: Sequence[Register]) -> StorePostgres:
        """A new store."""
        return self.open(f"s {uuid4().hex}", registers, create=True)

    def rival(self, store: Store, registers: Sequence[Register]) -> StorePostgres:
        """Another store on what one keeps, while that is open."""
        return self.open(self._schemas[store], registers)

    def reopen(self, store: Store, registers: Sequence[Register]) -> StorePostgres:
        """The same, when it is closed."""
        store.close()
        return self.rival(store, registers)

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
