"""The tables that store the outputs of the last step."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from psycopg import sql

from stepping_spark.errors import StoreError
from stepping_spark.limits import Limits
from stepping_spark.spark.relation import Relation
from stores.postgres.changes import Change, accepted, stage
from stores.postgres.connection import Connection
from stores.postgres.copy import size_of
from stores.postgres.last_step import MADE_BY
from stores.postgres.session import Session
from stores.postgres.statements import Layout

SMALL_BYTES = 1 << 20  # of an output; each step scans it


class Outputs:
    """The tables of the outputs of steps, in order."""

    def __init__(self, session: Session, driver_bytes: int, limits: Limits) -> None:
        self.layouts: tuple[Layout, ...] = ()
        self._session = session
        self._driver_bytes = driver_bytes
        self._limits = limits
        self._emptied: dict[str, Layout] = {}  # large ones whose deleted rows still take space

    def described(self, made_by: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The descriptions of the outputs."""
        return [
            {
                "table": layout.described,
                "schema": layout.schema.kinds,
                **({} if made_by is None else {MADE_BY: made_by[i]}),
            }
            for i, layout in enumerate(self.layouts)
        ]

    def given(
        self, connection: Connection, outputs: Sequence[Relation] | None
    ) -> list[tuple[Layout, Change]] | None:
        """The outputs of a step, with their tables."""
        if outputs is None:
            return None
        if len(outputs) != len(self.layouts):
            raise StoreError(
                f"the step gave {len(outputs)} outputs, and the store was opened for "
                f"{len(self.layouts)}; open it with the schemas of the outputs"
            )
        given: list[tuple[Layout, Change]] = []
        for layout, held in zip(self.layouts, outputs, strict=True):
            kept = accepted(held, layout.table, layout, self._driver_bytes, self._limits)
            if kept.frame is not None:
                connected = self._session.connected
                staged = stage(connection, kept.frame, layout, self._session.catalog, connected)
                given.append((layout, staged))
            elif kept.table is not None:
                given.append((layout, kept.table))
        return given

    def reclaim(self, emptied: Sequence[Layout]) -> None:
        """VACUUM large outputs, so that later steps do not scan their deleted rows again.

        A step writes its rows behind those that it deletes, so the file shrinks after the next
        step. This step is committed already; errors are ignored.
        """
        self._emptied.update({layout.table: layout for layout in emptied})
        if not self._emptied:
            return
        with suppress(StoreError), self._session.use("could not be compacted") as connection:
            for layout in list(self._emptied.values()):
                connection.execute(sql.SQL("VACUUM {}").format(layout.place).as_bytes())
                if size_of(connection, layout)[1] < SMALL_BYTES:
                    del self._emptied[layout.table]
