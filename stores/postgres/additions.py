"""What is added in the step under way, until a transaction writes it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from psycopg import errors, sql

from stepping_spark.errors import StoreError, StoreUnavailable
from stepping_spark.limits import Limits
from stepping_spark.spark.relation import Relation
from stores.postgres.changes import Change, Changes, Transaction, accepted, stage
from stores.postgres.connection import Connection
from stores.postgres.last_step import LastStep
from stores.postgres.session import Session
from stores.postgres.statements import Layout


class Additions:
    """The changes of a step, by table: small ones are held here, large ones are staged."""

    def __init__(self, session: Session, driver_bytes: int, limits: Limits) -> None:
        self._session = session
        self._driver_bytes = driver_bytes
        self._limits = limits
        self._changes: dict[str, Changes] = {}

    def add(self, register: str, layout: Layout, change: Relation) -> None:
        """Take a change; a DataFrame is computed here, once."""
        held = accepted(change, register, layout, self._driver_bytes, self._limits)
        changes = self._changes.setdefault(layout.table, Changes(register, layout))
        if held.frame is not None:
            with self._session.use("could not take a change") as connection:
                staged = stage(
                    connection, held.frame, layout, self._session.catalog, self._session.connected
                )
                changes.staged.append(staged)
        elif held.table is not None and held.table.num_rows:
            changes.tables.append(held.table)

    def clear(self) -> None:
        """Forget what was written."""
        self._changes = {}

    def forget(self) -> None:
        """Forget what was not written, and drop what was staged."""
        dropped, self._changes = self._changes, {}
        tables = [staged.table for changes in dropped.values() for staged in changes.staged]
        if tables and not self._session.lost:
            # What stays is swept when the store is opened, or connects, again.
            with suppress(StoreError), self._session.use("could not drop a change") as connection:
                for table in tables:
                    drop = sql.SQL("DROP TABLE IF EXISTS {}").format(table)
                    connection.execute(drop.as_bytes())

    def check_connected(self) -> None:
        """See that large changes are still where they were put."""
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
        old: LastStep,
        new: LastStep,
    ) -> list[Layout]:
        """Write them within one transaction; gives the outputs whose rows it has deleted."""
        changes = list(self._changes.values())
        made = Transaction(connection, self._session.catalog, self._limits, together=True)
        try:
            with connection.transaction():
                made.write(changes, given, old, new)
        except errors.NumericValueOutOfRange:
            # Again, a statement at a time: it fails at the register whose sum it was.
            made = Transaction(connection, self._session.catalog, self._limits, together=False)
            with connection.transaction():
                made.write(changes, given, old, new)
        return made.emptied
