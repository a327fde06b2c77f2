"""The connection of a store: made anew where it was lost, and what is known of the state by it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from stepping_spark.errors import StoreUnavailable
from stores.postgres_catalog import Catalog, State
from stores.postgres_link import Address, Connection, take_lock

T = TypeVar("T")


class Session:
    """One connection at a time, for one thread at a time; a writer's holds the lock."""

    def __init__(self, address: Address, *, writes: bool) -> None:
        self.address = address
        self.catalog = Catalog(address)
        self.connected = 0
        """How often a connection was made: what one has seen may be gone under the next."""
        self._writes = writes
        self._turn = threading.RLock()
        self._connection: Connection | None = None
        self._state: State | None = None  # None: to be looked up

    @property
    def lost(self) -> bool:
        """Whether there is no connection, as far as is known."""
        return self._connection is None or self._connection.closed

    @contextmanager
    def use(self, what: str) -> Iterator[Connection]:
        """The connection, made anew where it was lost; errors say what could not be done."""
        with self._turn:
            if self._connection is None or self._connection.closed:
                connection = self._connect()
            else:
                connection = self._connection
            with self.address.errors(what):
                yield connection

    def state(self) -> State:
        """What is committed. A writer knows it; a reader looks each time."""
        with self._turn:
            if self._state is not None and not self.lost:
                return self._state
            with self.use("could not be read") as connection:
                found = self.catalog.load(connection)
            self._state = found if self._writes else None
            return found

    @contextmanager
    def committing(self, new: State) -> Iterator[None]:
        """What makes the state a new one; after an error it is looked up which it is."""
        with self._turn:
            self._state = None
            yield
            self._state = new

    def answer(self, question: Callable[[Connection], T]) -> T:
        """What a connection answers; one that was lost is made again, if nothing has changed."""
        with self._turn:
            before = self._state
            try:
                with self.use("could not be read") as connection:
                    return question(connection)
            except StoreUnavailable:
                if self._connection is None or not self._connection.closed:
                    raise
            now = self.state()
            if before is not None and now.step != before.step:
                raise StoreUnavailable(
                    f"{self.address}: the connection was lost, and the state is at step "
                    f"{now.step} by now, not at {before.step}: step again"
                )
            with self.use("could not be read") as connection:
                return question(connection)

    def close(self) -> None:
        """End the connection, and with it the lock."""
        with self._turn:
            connection, self._connection, self._state = self._connection, None, None
            if connection is not None:
                connection.close()

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.close()

    def _connect(self) -> Connection:
        self.close()
        connection = self.address.connect("writer" if self._writes else "reader")
        try:
            with self.address.errors("could not be opened"):
                if self._writes:
                    take_lock(connection, self.address)
                    self.catalog.sweep(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self.connected += 1
        return connection
