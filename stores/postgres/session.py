"""The connection of a store, reopened after a loss, and the state that it last saw."""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import psycopg

from stepping_spark.base.errors import StoreUnavailable
from stores.postgres.catalog import Catalog, State
from stores.postgres.connection import Address, Connection, take_lock
from stores.step_lock import this_process

T = TypeVar("T")


class PostgresSession:
    """One connection at a time, used by one thread at a time; a writer's connection has the lock.

    `check` raises an error if the store must not be used any more. `make_way` is called before a
    writer takes the lock; its second argument is whether there is a state.
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
        """The number of connections so far: staging tables of one may be lost in the next."""
        self._writes = writes
        self._check = check
        self._make_way = make_way
        self._process = this_process()
        self._turn = threading.RLock()
        self._connection: Connection | None = None
        self._close: Callable[[], object] = lambda: None
        self._state: State | None = None  # None: not known
        _sessions.add(self)

    @property
    def lost(self) -> bool:
        """Whether the connection is known to be lost, or was not made yet."""
        return self._connection is None or self._connection.closed

    @contextmanager
    def use(self, what: str) -> Iterator[Connection]:
        """The connection, reopened if it was lost; `what` names the failed operation in errors."""
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

    def state(self) -> State:
        """The last committed step. A writer remembers it; a reader queries it each time."""
        with self._turn:
            if self._state is not None and not self.lost:
                return self._state
            with self.use("could not be read") as connection:
                last = self.catalog.load(connection)
            self._state = last if self._writes else None
            return last

    @contextmanager
    def committing(self, new: State) -> Iterator[None]:
        """The block that commits `new`. After an error the state is queried again."""
        with self._turn:
            self._state = None
            yield
            self._state = new

    def answer(self, question: Callable[[Connection], T]) -> T:
        """The result of a query. Reconnects once after a loss, if the state has not changed."""
        with self._turn:
            before = self._state
            try:
                with self.use("could not be read") as connection:
                    return question(connection)
            except StoreUnavailable:
                if self._connection is None or not self._connection.closed:
                    raise
            now = self.state()
            if before is not None and now.last.step != before.last.step:
                raise StoreUnavailable(
                    f"{self.address}: the connection was lost, and the state is at step "
                    f"{now.last.step} by now, not at {before.last.step}: step again"
                )
            with self.use("could not be read") as connection:
                return question(connection)

    def close(self) -> None:
        """Close the connection, and release the lock; in a fork, leave both to the parent."""
        if self._process != this_process():
            return
        with self._turn:
            self._connection, self._state = None, None
            self._close()

    def give_way(self) -> None:
        """Release the lock at once, even while a thread waits for the server.

        That thread's operation fails, and the server rolls back its transaction.
        """
        connection = self._connection
        if connection is not None and not connection.closed:
            with suppress(psycopg.Error, OSError):
                connection.cancel_safe(timeout=2)
            with suppress(psycopg.Error, OSError), _socket_of(connection) as link:
                link.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        """In a fork: drop the inherited connection, which would stay open as long as the fork."""
        if self._connection is not None:
            with suppress(psycopg.Error, OSError):
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, self._connection.fileno())
                os.close(nothing)

    def _connect(self) -> Connection:
        self._check()
        self.close()
        connection = self.address.connect("writer" if self._writes else "reader")
        try:
            with self.address.errors("could not be opened"):
                # A role without the right to write must not take the lock.
                exists = self.catalog.is_there(connection, writes=self._writes)
                if self._writes:
                    self._make_way(connection, exists)
                    take_lock(connection, self.address)
                    self._check()  # it may have given way meanwhile
                    self.catalog.sweep(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._close = weakref.finalize(self, _close, connection, self._process)
        self.connected += 1
        return connection


def _close(connection: Connection, process: str) -> None:
    if process == this_process():
        connection.close()


def _socket_of(connection: Connection) -> socket.socket:
    """A duplicate handle of a connection's socket."""
    return socket.socket(fileno=os.dup(connection.fileno()))


_sessions: weakref.WeakSet[PostgresSession] = weakref.WeakSet()


def _after_fork() -> None:
    for session in list(_sessions):
        session.leave()
    _sessions.clear()


os.register_at_fork(after_in_child=_after_fork)
