"""The additions and outputs of a step, collected until the commit, then merged in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from psycopg import errors, sql

from stepping_spark.base.errors import StepError, StoreError, StoreUnavailable
from stepping_spark.base.packages import DataFrame
from stepping_spark.relations.arrow import concat, consolidate
from stepping_spark.relations.codec import conform
from stepping_spark.relations.relation import DriverRelation, Relation, SparkRelation
from stepping_spark.relations.store import Register
from stores.batches.spark import settle
from stores.postgres.catalog import MADE_BY, Catalog, State
from stores.postgres.connection import Connection
from stores.postgres.copy import put, send, size_of
from stores.postgres.session import PostgresSession
from stores.postgres.statements import ATTEMPT, Layout

_log = logging.getLogger("stepping_spark")

STATEMENT_ROWS = 100_000
"""Rows that are sent to the server along with their statement. Beyond: COPY sends them."""

STATEMENT_BYTES = 16 << 20
"""Bytes of such rows: driver and server hold several copies. Beyond: COPY sends them."""

INDEX_ROWS = 50_000
"""Rows that are added to the index of an empty table. Beyond: the index is rebuilt."""

VACUUM_ROWS = 10_000
"""Rows of an output that a step deletes. Beyond: VACUUM removes them after the commit."""

SCANNED_BYTES = 1 << 20
"""Bytes of an output that each step may scan. Beyond: VACUUM is tried again after a step."""


@dataclass(frozen=True)
class Staged:
    """A large change, in a staging table that workers have written."""

    table: sql.Identifier
    attempts: tuple[int, ...]
    rows: int
    connected: int  # the connection that made it: after a crash the table may be empty


TableChange = pa.Table | Staged


@dataclass
class Changes:
    """The changes of one step to one table, so far."""

    register: str
    layout: Layout
    relations: list[DriverRelation] = field(default_factory=list)
    staged: list[Staged] = field(default_factory=list)

    def table(self) -> pa.Table:
        """The part on the driver, as one consolidated relation."""
        if len(self.relations) == 1:
            return self.relations[0].added_up().table
        schema = self.layout.schema
        return consolidate(concat((part.table for part in self.relations), schema), schema)


def accepted(relation: Relation, register: str, layout: Layout, driver_bytes: int) -> Relation:
    """A change, computed and consolidated; on the driver, if it has at most `driver_bytes`."""
    schema = layout.schema
    if not isinstance(relation, SparkRelation):
        table = conform(relation.fetched().table, schema)
        return DriverRelation(table, schema, relation.consolidated)
    settled = settle(relation, Register(register, schema, layout.key))
    if (settled.nbytes or 0) <= driver_bytes or not schema.columns:
        return settled.fetched()
    return settled


def stage(
    connection: Connection, frame: DataFrame, layout: Layout, catalog: Catalog, connected: int
) -> Staged:
    """Have Spark's workers write a consolidated change to a staging table."""
    table = catalog.staging()
    connection.execute(layout.create_staging(table).as_bytes())
    rows = send(frame, layout, table, catalog.address)
    return Staged(table, tuple(rows), sum(rows.values()), connected)


class Transaction:
    """Writes the changes of one step, within a transaction of a connection."""

    def __init__(self, connection: Connection, catalog: Catalog, *, together: bool) -> None:
        self._connection = connection
        self._catalog = catalog
        self._together = together
        self._expected: list[tuple[str, Any, int]] = []
        self._emptied: list[tuple[Layout, Any]] = []

    @property
    def emptied(self) -> list[Layout]:
        """The outputs with many deleted rows, which slow reads down until a VACUUM."""
        return [layout for layout, cursor in self._emptied if cursor.rowcount > VACUUM_ROWS]

    def write(
        self,
        changes: Sequence[Changes],
        outputs: Sequence[tuple[Layout, TableChange]],
        old: State,
        new: State,
    ) -> None:
        """Write everything; all small changes go to the server in one message."""
        small = self._merge_large(changes)
        if new.outputs != old.outputs:
            layouts = [layout for layout, _ in outputs]
            self._catalog.make_outputs(self._connection, old, layouts)
        large = [
            (layout, self._staged(layout, relation))
            for layout, relation in outputs
            if isinstance(relation, Staged) or self._is_large(relation)
        ]
        with self._connection.pipeline() if self._together else nullcontext():
            # Rows come in the order of the index, so it is best, whatever a cached generic plan
            # assumes. The server unnests their arrays in `work_mem`.
            self._connection.execute("SET LOCAL enable_seqscan = off")
            self._connection.execute("SET LOCAL work_mem = '64MB'")
            self._expect("", self._catalog.save(self._connection, old, new), 1)
            for change, table in small:
                with self._blame(change.register):
                    self._merge(change.register, change.layout, table)
            for layout, relation in outputs:
                self._emptied.append((layout, self._connection.execute(layout.empty)))
                if (
                    not isinstance(relation, Staged)
                    and relation.num_rows
                    and not self._is_large(relation)
                ):
                    self._insert(layout, relation)
        for layout, staged in large:
            self._insert_staged(layout, staged)
        self._check()

    def _merge_large(self, changes: Sequence[Changes]) -> list[tuple[Changes, pa.Table]]:
        """Merge the changes that are too large for a statement; return the rest."""
        for change in changes:
            for staged in change.staged:
                with self._blame(change.register):
                    self._merge_staged(change.layout, staged)
        small = []
        for change in changes:
            table = change.table()
            many = table.num_rows > INDEX_ROWS
            if self._is_large(table) or (many and self._is_empty(change.layout)):
                with self._blame(change.register):
                    self._merge_staged(change.layout, self._staged(change.layout, table))
            elif table.num_rows:
                small.append((change, table))
        return small

    def _is_large(self, table: pa.Table) -> bool:
        return table.num_rows > STATEMENT_ROWS or table.nbytes > STATEMENT_BYTES

    def _is_empty(self, layout: Layout) -> bool:
        any_row = sql.SQL("SELECT 1 FROM {} LIMIT 1").format(layout.place)
        return self._connection.execute(any_row.as_bytes()).fetchone() is None

    def _merge(self, register: str, layout: Layout, table: pa.Table) -> None:
        arrays = layout.array_columns(table)
        cursor = self._connection.execute(layout.merge_parameters, arrays, prepare=True)
        self._expect(register, cursor, table.num_rows)

    def _insert(self, layout: Layout, table: pa.Table) -> None:
        arrays = layout.array_columns(table)
        self._connection.execute(layout.insert_parameters, arrays, prepare=True)

    def _staged(self, layout: Layout, relation: TableChange) -> Staged:
        if isinstance(relation, Staged):
            return relation
        table = self._catalog.staging()
        self._connection.execute(layout.create_staging(table).as_bytes())
        put(self._connection, layout, [relation], table)
        return Staged(table, (0,), relation.num_rows, 0)

    def _merge_staged(self, layout: Layout, staged: Staged) -> None:
        run = self._connection.execute
        place = layout.place
        run("SET LOCAL work_mem = '64MB'; SET LOCAL maintenance_work_mem = '256MB'")
        if staged.rows > INDEX_ROWS and self._is_empty(layout):
            run(layout.drop_index.as_bytes())
            cursor = run(layout.insert(_source(staged), order=True).as_bytes())
            run(layout.index.as_bytes())
            run(sql.SQL("ANALYZE {}").format(place).as_bytes())
        else:
            run(sql.SQL("ANALYZE {}").format(staged.table).as_bytes())
            cursor = run(layout.merge(_source(staged)).as_bytes())
        self._expect(layout.table, cursor, staged.rows)
        run(sql.SQL("DROP TABLE {}").format(staged.table).as_bytes())

    def _insert_staged(self, layout: Layout, staged: Staged) -> None:
        cursor = self._connection.execute(layout.insert(_source(staged)).as_bytes())
        self._expect(layout.table, cursor, staged.rows)
        self._connection.execute(sql.SQL("DROP TABLE {}").format(staged.table).as_bytes())

    def _expect(self, what: str, cursor: Any, rows: int) -> None:
        self._expected.append((what, cursor, rows))

    def _check(self) -> None:
        """Check the row counts of all statements before the commit."""
        for what, cursor, rows in self._expected:
            if cursor.rowcount != rows:
                raise StoreUnavailable(
                    f"{self._catalog.address}: {what or 'the step'}: {rows} rows were to be "
                    f"written, and {cursor.rowcount} were; somebody else has changed the tables, "
                    "or the server has lost the prepared rows: nothing was committed, step again"
                )

    @contextmanager
    def _blame(self, register: str) -> Iterator[None]:
        """Name the register of an overflow; for statements sent together it is unknown."""
        try:
            yield
        except errors.NumericValueOutOfRange as e:
            if self._connection.info.pipeline_status:
                raise
            raise StepError(
                f"register {register!r}: a sum of its rows is beyond what its column can hold: "
                f"{e}; feed fewer or smaller weights"
            ) from e


def _source(staged: Staged) -> sql.Composed:
    listed = ",".join(map(str, staged.attempts))
    return sql.SQL("(SELECT * FROM {} WHERE {} = ANY({}::bigint[])) AS s").format(
        staged.table, sql.Identifier(ATTEMPT), sql.Literal(f"{{{listed}}}")
    )


class Additions:
    """The changes of a step, by table: small ones in memory, large ones in staging tables."""

    def __init__(self, session: PostgresSession, driver_bytes: int) -> None:
        self._session = session
        self._driver_bytes = driver_bytes
        self._changes: dict[str, Changes] = {}
        self._for_tasks: dict[str, sql.Identifier] = {}  # staging tables, by the names of tables

    def for_tasks(self, layouts: Iterable[Layout]) -> Mapping[str, sql.Identifier]:
        """New staging tables for the additions of tasks, by the names of the registers' tables."""
        tables = {layout.table: (layout, self._session.catalog.staging()) for layout in layouts}
        create = sql.SQL("; ").join(layout.create_staging(x) for layout, x in tables.values())
        with self._session.use("could not take a change") as connection:
            self._drop_unused(connection)  # the tables of failed tasks
            self._for_tasks = {table: staging for table, (_, staging) in tables.items()}
            connection.execute(create.as_bytes())
        return self._for_tasks

    def add_attempts(self, register: str, layout: Layout, rows: Mapping[int, int]) -> None:
        """Add the rows that these attempts of tasks have written to a staging table."""
        changes = self._changes.setdefault(layout.table, Changes(register, layout))
        staging = self._for_tasks.pop(layout.table)
        connected = self._session.connected
        changes.staged.append(Staged(staging, tuple(rows), sum(rows.values()), connected))

    def add(self, register: str, layout: Layout, change: Relation) -> None:
        """Add a change; a DataFrame is computed here, once."""
        relation = accepted(change, register, layout, self._driver_bytes)
        changes = self._changes.setdefault(layout.table, Changes(register, layout))
        if relation.frame is not None:
            with self._session.use("could not take a change") as connection:
                staged = stage(
                    connection,
                    relation.frame,
                    layout,
                    self._session.catalog,
                    self._session.connected,
                )
                changes.staged.append(staged)
        elif isinstance(relation, DriverRelation) and relation.table.num_rows:
            changes.relations.append(relation)

    def clear(self) -> None:
        """Forget the changes, after they were written."""
        self._changes, self._for_tasks = {}, {}

    def forget(self) -> None:
        """Discard the changes, and drop their staging tables."""
        changes = self._changes.values()
        tables = [*self._for_tasks.values(), *(s.table for c in changes for s in c.staged)]
        self.clear()
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
        outputs: Sequence[tuple[Layout, TableChange]],
        old: State,
        new: State,
        before: Callable[[Connection], None],
    ) -> list[Layout]:
        """Write the changes in one transaction; return the outputs with many deleted rows.

        The transaction begins with `before`.
        """
        changes = list(self._changes.values())
        transaction = Transaction(connection, self._session.catalog, together=True)
        try:
            with connection.transaction():
                before(connection)
                self._drop_unused(connection)
                transaction.write(changes, outputs, old, new)
        except errors.NumericValueOutOfRange:
            # Repeat it with single statements, so that it fails at the register with the overflow.
            transaction = Transaction(connection, self._session.catalog, together=False)
            with connection.transaction():
                before(connection)
                self._drop_unused(connection)
                transaction.write(changes, outputs, old, new)
        return transaction.emptied

    def _drop_unused(self, connection: Connection) -> None:
        """Drop the staging tables to which no task has added."""
        if self._for_tasks:
            listed = sql.SQL(", ").join(self._for_tasks.values())
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(listed).as_bytes())


class Outputs:
    """The tables of the outputs of steps, in order."""

    def __init__(self, session: PostgresSession, driver_bytes: int) -> None:
        self.layouts: tuple[Layout, ...] = ()
        self._session = session
        self._driver_bytes = driver_bytes
        self._emptied: dict[str, Layout] = {}  # large ones whose deleted rows still take space
        self._has_warned = False

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

    def with_tables(
        self, connection: Connection, outputs: Sequence[Relation] | None
    ) -> list[tuple[Layout, TableChange]] | None:
        """The outputs of a step, with their tables."""
        if outputs is None:
            return None
        if len(outputs) != len(self.layouts):
            raise StoreError(
                f"the step gave {len(outputs)} outputs, and the store was opened for "
                f"{len(self.layouts)}; open it with the schemas of the outputs"
            )
        staged_outputs: list[tuple[Layout, TableChange]] = []
        for layout, relation in zip(self.layouts, outputs, strict=True):
            rows = accepted(relation, layout.table, layout, self._driver_bytes)
            if rows.frame is not None:
                connected = self._session.connected
                staged = stage(connection, rows.frame, layout, self._session.catalog, connected)
                staged_outputs.append((layout, staged))
            elif rows.table is not None:
                staged_outputs.append((layout, rows.table))
        return staged_outputs

    def reclaim(self, emptied: Sequence[Layout]) -> None:
        """VACUUM large outputs, so that later steps do not scan their deleted rows again.

        A step writes its rows behind those that it deletes, so the file shrinks after the next
        step. This step is committed already, so an error is only a warning, which is given once.
        """
        self._emptied.update({layout.table: layout for layout in emptied})
        if not self._emptied:
            return
        try:
            with self._session.use("could not be compacted") as connection:
                for layout in list(self._emptied.values()):
                    connection.execute(sql.SQL("VACUUM {}").format(layout.place).as_bytes())
                    if size_of(connection, layout)[1] < SCANNED_BYTES:
                        del self._emptied[layout.table]
        except StoreError as e:
            if not self._has_warned:
                self._has_warned = True
                _log.warning("the tables of the last outputs could not be compacted: %s", str(e))
