"""A table of Postgres as a sink: a step's rows and its number in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from psycopg import sql

from stepping_spark.errors import SinkError
from stepping_spark.pipeline.changes import (
    STEP,
    by_key,
    check_key,
    feed_of,
    feed_schema,
    not_unique,
)
from stepping_spark.pipeline.postgres.link import Link, columns_of, listed, run
from stepping_spark.pipeline.postgres.types import pg_type, rows_of
from stepping_spark.rows.schema import COUNT
from stepping_spark.zsets.spark import ZSetSpark
from stores.postgres.connection import Connection

STEPS = "stepping_spark_steps"
"""The table of a schema that says, for each table of views, whose it is and its last step."""


class PostgresSink:
    """Writes the steps of one view. The row of its table in `STEPS` is locked while it writes."""

    def __init__(
        self, url: str, schema: str, table: str, key: Sequence[str], *, changes: bool
    ) -> None:
        self._link = Link(url, schema, table, "sink", SinkError)
        self._steps = sql.Identifier(schema, STEPS)
        self._key = list(key)
        self._feed = changes
        self._columns = pa.schema([])
        self._owner = ""
        self._where = f"table {table!r}"

    def open(self, columns: pa.Schema, owner: str) -> None:
        """Make the table, or see that it is this owner's."""
        check_key(self._key, columns, self._where)
        self._columns, self._owner = columns, owner
        with self._link.changing("could not be made") as connection:
            # Two that make the same table at once wait for each other.
            run(connection, "SELECT pg_catalog.pg_advisory_xact_lock(7023, 1)")
            run(
                connection,
                "CREATE TABLE IF NOT EXISTS {steps} "
                "(name text PRIMARY KEY, owner text NOT NULL, step bigint NOT NULL)",
                steps=self._steps,
            )
            found = self._claim(connection)
            there = columns_of(connection, self._link.schema, self._link.table)
            if not there:
                self._make(connection)
            else:
                self._check_columns(there)
                if found is None or found[1] == 0:
                    self._check_empty(connection)
            self._own(connection, found)

    def look(self, columns: pa.Schema, owner: str) -> int:
        """Refuse what `open` refuses, and make nothing; gives the last step of the owner."""
        check_key(self._key, columns, self._where)
        self._columns, self._owner = columns, owner
        with self._link.transaction("could not be looked at") as connection:
            there = columns_of(connection, self._link.schema, self._link.table)
            counted = columns_of(connection, self._link.schema, STEPS)
            if not there or not counted:
                self._check_may_create(connection)
            found = self._noted(connection) if counted else None
            if there:
                self._check_columns(there)
                if found is None or found[1] == 0:
                    self._check_empty(connection)
            return self._checked(found) if found is not None and found[1] else 0

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def last_step(self) -> int | None:
        """The last step of this owner."""
        with self._link.changing("could not be looked at") as connection:
            found = self._claim(connection)
            return self._checked(found)

    def write(self, step: int, change: ZSetSpark[Any]) -> None:
        """Write the rows of a step, with its number."""
        rows = change.to_arrow()
        with self._link.changing("could not be written") as connection:
            self._checked(self._claim(connection))
            if self._feed:
                self._copy(connection, self._link.name, feed_of(rows, step, self._key, self._where))
            elif self._key:
                self._by_key(connection, rows)
            else:
                self._by_count(connection, rows)
            run(
                connection,
                "UPDATE {steps} SET step = $1 WHERE name = $2",
                step,
                self._link.table,
                steps=self._steps,
            )

    # -- whose it is

    def _claim(self, connection: Connection) -> tuple[str, int] | None:
        """The owner and the step of the table, locked until the transaction ends."""
        return self._noted(connection, "FOR UPDATE")

    def _noted(self, connection: Connection, lock: str = "") -> tuple[str, int] | None:
        text = f"SELECT owner, step FROM {{steps}} WHERE name = $1 {lock}"
        found = run(connection, text, self._link.table, steps=self._steps).fetchone()
        return None if found is None else (str(found[0]), int(found[1]))

    def _own(self, connection: Connection, found: tuple[str, int] | None) -> None:
        """Be the owner of a table that has no step yet."""
        if found is not None and found[1]:
            self._checked(found)
            return
        text = (
            "INSERT INTO {steps} VALUES ($1, $2, 0) "
            "ON CONFLICT (name) DO UPDATE SET owner = excluded.owner"
        )
        run(connection, text, self._link.table, self._owner, steps=self._steps)

    def _checked(self, found: tuple[str, int] | None) -> int:
        if found is None or found[0] != self._owner:
            raise self._link.failure(
                "another pipeline writes it"
                + ("" if found is None else f", and has written step {found[1]}")
                + ", or this pipeline has lost its state; give another table; or, to write this "
                f"one again, drop it and its row in {STEPS}, and start with a new store"
            )
        return found[1]

    def _check_may_create(self, connection: Connection) -> None:
        text = "SELECT pg_catalog.has_schema_privilege($1, 'CREATE')"
        ((may,),) = connection.execute(text, [self._link.schema]).fetchall()
        if not may:
            raise self._link.failure(
                f"this user may not make tables in the schema {self._link.schema}; "
                "GRANT CREATE ON SCHEMA to it, or give another schema"
            )

    def _check_empty(self, connection: Connection) -> None:
        ((some,),) = run(
            connection, "SELECT EXISTS (SELECT FROM {table})", table=self._link.name
        ).fetchall()
        if some:
            raise self._link.failure(
                "it has rows that no pipeline wrote; give a table that is not there, or an empty "
                "one"
            )

    def _check_columns(self, there: dict[str, str]) -> None:
        wanted = self._schema.names
        if set(there) != set(wanted):
            raise self._link.failure(
                f"it has the columns {', '.join(there)}, and the view is written as "
                f"{', '.join(wanted)}; give another table"
            )

    # -- the table

    @property
    def _schema(self) -> pa.Schema:
        if self._feed:
            return feed_schema(self._columns)
        if self._key:
            return self._columns
        return pa.schema([*self._columns, pa.field(COUNT, pa.int64(), nullable=False)])

    def _make(self, connection: Connection) -> None:
        parts = [
            sql.SQL("{} {}{}").format(
                sql.Identifier(f.name),
                sql.SQL(pg_type(f.type)),
                sql.SQL("" if f.nullable else " NOT NULL"),
            )
            for f in self._schema
        ]
        if not self._feed:
            unique = self._key or self._columns.names
            parts.append(
                sql.SQL("UNIQUE NULLS NOT DISTINCT ({})").format(listed(unique, lambda c: c))
            )
        text = "CREATE TABLE {table} ({parts})"
        run(connection, text, table=self._link.name, parts=sql.SQL(", ").join(parts))
        if self._feed:
            run(connection, f"CREATE INDEX ON {{table}} ({STEP})", table=self._link.name)
        elif not self._key:
            text = f"CREATE INDEX ON {{table}} ({COUNT}) WHERE {COUNT} = 0"
            run(connection, text, table=self._link.name)

    def _copy(self, connection: Connection, to: sql.Identifier, rows: pa.Table) -> None:
        names = listed(rows.schema.names, lambda c: c)
        text = sql.SQL("COPY {} ({}) FROM STDIN").format(to, names).as_bytes()
        with connection.cursor().copy(text) as copy:
            for row in rows_of(rows):
                copy.write_row(row)

    def _staged(self, connection: Connection, rows: pa.Table) -> sql.Identifier:
        """The rows in a table that ends with the transaction."""
        name = sql.Identifier("pg_temp", "stepping_step")
        run(connection, "DROP TABLE IF EXISTS {name}", name=name)
        text = "CREATE TEMPORARY TABLE {name} (LIKE {table}) ON COMMIT DROP"
        run(connection, text, name=sql.Identifier("stepping_step"), table=self._link.name)
        self._copy(connection, name, rows)
        return name

    def _by_key(self, connection: Connection, change: pa.Table) -> None:
        found = by_key(change, self._key, self._where)
        same = sql.SQL(" AND ").join(
            sql.SQL(
                "t.{0} IS NOT DISTINCT FROM s.{0}"
                if self._columns.field(name).nullable
                else "t.{0} = s.{0}"
            ).format(sql.Identifier(name))
            for name in self._key
        )
        setting = listed(self._columns.names, lambda c: sql.SQL("{0} = s.{0}").format(c))
        names = {"table": self._link.name, "same": same, "set": setting}
        if found.gone.num_rows:
            names["s"] = self._staged(connection, found.gone)
            done = run(connection, "DELETE FROM {table} t USING {s} s WHERE {same}", **names)
            self._check_all(done.rowcount, found.gone.num_rows)
        if found.changed.num_rows:
            names["s"] = self._staged(connection, found.changed)
            text = "UPDATE {table} t SET {set} FROM {s} s WHERE {same}"
            self._check_all(run(connection, text, **names).rowcount, found.changed.num_rows)
        if found.came.num_rows:
            names["s"] = self._staged(connection, found.came)
            text = "SELECT s.* FROM {s} s JOIN {table} t ON {same} LIMIT 1"
            double = run(connection, text, **names).fetchone()
            if double is not None:
                at = dict(zip(self._columns.names, double, strict=False))
                raise not_unique(self._where, self._key, {n: at.get(n) for n in self._key})
            self._copy(connection, self._link.name, found.came)

    def _by_count(self, connection: Connection, change: pa.Table) -> None:
        staged = self._staged(connection, change)
        names = listed(self._columns.names, lambda c: c)
        text = (
            f"INSERT INTO {{table}} AS t ({{names}}, {COUNT}) SELECT {{names}}, {COUNT} FROM {{s}} "
            f"ON CONFLICT ({{names}}) DO UPDATE SET {COUNT} = t.{COUNT} + excluded.{COUNT}"
        )
        run(connection, text, table=self._link.name, names=names, s=staged)
        run(connection, f"DELETE FROM {{table}} WHERE {COUNT} = 0", table=self._link.name)

    def _check_all(self, done: int, wanted: int) -> None:
        if done != wanted:
            raise self._link.failure(
                f"of {wanted} rows that the step changes, {done} are there: somebody else has "
                "changed its rows. Nobody else may write a table that a pipeline writes: restore "
                f"what was there; or drop it and its row in {STEPS}, and start with a new store"
            )
