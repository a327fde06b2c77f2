"""The connection of a store: made again where it was lost, and what is known of the state by it."""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import psycopg

from stepping_spark.errors import StoreUnavailable
from stores.postgres.catalog import Catalog
from stores.postgres.connection import Address, Connection, take_lock
from stores.postgres.last_step import LastStep
from stores.steps import this_process

T = TypeVar("T")


class Session:
    """One connection at a time, for one thread at a time; a writer's holds the lock.

    `check` raises what there is to say where the store is not to be used any more. `make_way` is
    called before a writer takes the lock, and told whether there is a state.
    """

    def __init__(
        self,
        address: Address,
        *,
        writes: bool,
        check: Callable[[], None] = lambda: None,
        make_way: Callable[[Connection, bool], None] = lambda *_: None,
    ) -> None:
        self.address = address
        self.catalog = Catalog(address)
        self.connected = 0
        """How often a connection was made: what one has seen may be gone under the next."""
        self._writes = writes
        self._check = check
        self._make_way = make_way
        self._process = this_process()
        self._turn = threading.RLock()
        self._connection: Connection | None = None
        self._state: LastStep | None = None  # None: to be looked up
        _sessions.add(self)

    @property
    def lost(self) -> bool:
        """Whether there is no connection, as far as is known."""
        return self._connection is None or self._connection.closed

    @contextmanager
    def use(self, what: str) -> Iterator[Connection]:
        """The connection, made again where it was lost; errors say what could not be done."""
        with self._turn:
            if self._connection is None or self._connection.closed:
                connection = self._connect()
            else:
                connection = self._connection
            try:
                with self.address.errors(what):
                    yield connection
            except StoreUnavailable:
                self._check()  # it may have given way
                raise

    def state(self) -> LastStep:
        """What is committed. A writer knows it; a reader looks each time."""
        with self._turn:
            if self._state is not None and not self.lost:
                return self._state
            with self.use("could not be read") as connection:
                found = self.catalog.load(connection)
            self._state = found if self._writes else None
            return found

    @contextmanager
    def committing(self, new: LastStep) -> Iterator[None]:
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
        """End the connection, and with it the lock; in a fork, leave both to their owner."""
        if self._process != this_process():
            return
        with self._turn:
            connection, self._connection, self._state = self._connection, None, None
            if connection is not None:
                connection.close()

    def give_way(self) -> None:
        """Have the lock released at once, also while a thread waits for the server.

        What that thread does fails; the server takes back what it has not committed.
        """
        connection = self._connection
        if connection is not None and not connection.closed:
            with suppress(psycopg.Error, OSError):
                connection.cancel_safe(timeout=2)
            with suppress(psycopg.Error, OSError), _socket_of(connection) as link:
                link.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        """In a fork: release the connection, which else would last as long as the fork does."""
        if self._connection is not None:
            with suppress(psycopg.Error, OSError):
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, self._connection.fileno())
                os.close(nothing)

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None and self._process == this_process():
            connection.close()

    def _connect(self) -> Connection:
        self._check()
        self.close()
        connection = self.address.connect("writer" if self._writes else "reader")
        try:
            with self.address.errors("could not be opened"):
                # Whoever has no right to write is not to hold the lock either.
                there = self.catalog.is_there(connection, writes=self._writes)
                if self._writes:
                    self._make_way(connection, there)
                    take_lock(connection, self.address)
                    self._check()  # it may have given way meanwhile
                    self.catalog.sweep(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self.connected += 1
        return connection


def _socket_of(connection: Connection) -> socket.socket:
    """A handle of its own on the socket of a connection."""
    return socket.socket(fileno=os.dup(connection.fileno()))


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _after_fork() -> None:
    for session in list(_sessions):
        session.leave()
    _sessions.clear()


os.register_at_fork(after_in_child=_after_fork)
