"""A snapshot of a Postgres schema: one transaction, which sees one committed step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from stepping_spark.errors import StoreUnavailable
from stores.postgres.connection import Address, Connection
from stores.postgres.last_step import State
from stores.postgres.session import Session

T = TypeVar("T")


class Pinned(Session):
    """A separate connection, in a transaction that sees the state at its start."""

    def __init__(self, address: Address) -> None:
        super().__init__(address, writes=False)
        with self.use("could not be read") as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._seen = self.catalog.load(connection)  # the first query fixes the snapshot

    def state(self) -> State:
        """The last step when the snapshot was taken."""
        return self._seen

    def answer(self, question: Callable[[Connection], T]) -> T:
        """The result of a query. A lost connection is an error: the snapshot is lost with it."""
        if self.lost:
            raise StoreUnavailable(
                f"{self.address}: the connection of the snapshot of step {self._seen.last.step} "
                "was lost; leave the block, and take another snapshot"
            )
        with self.use("could not be read") as connection:
            return question(connection)


@contextmanager
def pinned(address: Address) -> Iterator[Pinned]:
    """A snapshot for the duration of the block."""
    session = Pinned(address)
    try:
        yield session
    finally:
        session.close()
