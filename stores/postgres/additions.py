"""The additions of the current step, until a transaction writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from psycopg import errors, sql

from stepping_spark.errors import StoreError, StoreUnavailable
from stepping_spark.limits import Limits
from stepping_spark.spark.relation import DriverRelation, Relation
from stores.postgres.changes import Change, Changes, Transaction, accepted, stage
from stores.postgres.connection import Connection
from stores.postgres.last_step import State
from stores.postgres.session import Session
from stores.postgres.statements import Layout


class Additions:
    """The changes of a step, by table: small ones in memory, large ones in staging tables."""

    def __init__(self, session: Session, driver_bytes: int, limits: Limits) -> None:
        self._session = session
        self._driver_bytes = driver_bytes
        self._limits = limits
        self._changes: dict[str, Changes] = {}

    def add(self, register: str, layout: Layout, change: Relation) -> None:
        """Add a change; a DataFrame is computed here, once."""
        held = accepted(change, register, layout, self._driver_bytes, self._limits)
        changes = self._changes.setdefault(layout.table, Changes(register, layout))
        if held.frame is not None:
            with self._session.use("could not take a change") as connection:
                staged = stage(
                    connection, held.frame, layout, self._session.catalog, self._session.connected
                )
                changes.staged.append(staged)
        elif isinstance(held, DriverRelation) and held.table.num_rows:
            changes.held.append(held)

    def clear(self) -> None:
        """Forget the changes, after they were written."""
        self._changes = {}

    def forget(self) -> None:
        """Discard the changes, and drop their staging tables."""
        dropped, self._changes = self._changes, {}
        tables = [staged.table for changes in dropped.values() for staged in changes.staged]
        if tables and not self._session.lost:
            # Remaining tables are swept when the store is opened or reconnects.
            with suppress(StoreError), self._session.use("could not drop a change") as connection:
                for table in tables:
                    drop = sql.SQL("DROP TABLE IF EXISTS {}").format(table)
                    connection.execute(drop.as_bytes())

    def check_connected(self) -> None:
        """Check that the staging tables are still those of this connection."""
        staged = [s for changes in self._changes.values() for s in changes.staged]
        if any(s.connected != self._session.connected for s in staged):
            raise StoreUnavailable(
                f"{self._session.address}: the connection was lost since a change was added, and "
                "the change with it; nothing was committed: step again"
            )

    def write(
        self,
        connection: Connection,
        given: Sequence[tuple[Layout, Change]],
        old: State,
        new: State,
        before: Callable[[Connection], None],
    ) -> list[Layout]:
        """Write the changes in one transaction; return the outputs with many deleted rows.

        The transaction begins with `before`.
        """
        changes = list(self._changes.values())
        made = Transaction(connection, self._session.catalog, self._limits, together=True)
        try:
            with connection.transaction():
                before(connection)
                made.write(changes, given, old, new)
        except errors.NumericValueOutOfRange:
            # Repeat it with single statements, so that it fails at the register with the overflow.
            made = Transaction(connection, self._session.catalog, self._limits, together=False)
            with connection.transaction():
                before(connection)
                made.write(changes, given, old, new)
        return made.emptied
