"""A table of Postgres as a sink: a step's rows and its number, in one transaction.

Before a step is committed, `staging` stages its rows and compares them with the table. After the
commit they are written from the staging tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from psycopg import sql

from stepping_spark.base.errors import SinkError
from stepping_spark.pipeline.changes import STEP, feed_schema, fields_of_key
from stepping_spark.pipeline.postgres.link import Link, columns_of, listed, run
from stepping_spark.pipeline.postgres.staging import SAME, STEPS, StagedRows, Staging
from stepping_spark.pipeline.postgres.types import holds, type_name
from stepping_spark.pipeline.protocols import REFRESHED, REMOVED
from stepping_spark.rows.names import as_in_table, column_of
from stepping_spark.rows.schema import COUNT
from stepping_spark.zsets.spark import ZSetSpark
from stores.postgres.connection import LONGEST_NAME, Connection

MOST_KEYS = 32
MOST_COLUMNS = 1600
COUNTED = 1_000_000
"""Up to this size the rows of a table are counted at its opening; a larger one must have a row."""

_OF_SYSTEM = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")


@dataclass(frozen=True)
class Noted:
    """The entry of a table in `STEPS`; older versions of the package wrote no rows and number.

    The number is the oid of the table, which stays when it is renamed.
    """

    name: str
    owner: str
    step: int
    rows: int | None
    number: int | None


class PostgresSink:
    """Writes the steps of one view. The row of its table in `STEPS` is locked while it writes."""

    def __init__(
        self, url: str, schema: str, table: str, key: Sequence[str], *, changes: bool
    ) -> None:
        self._link = Link(url, schema, table, "sink", SinkError)
        self._steps = sql.Identifier(schema, STEPS)
        self._given_key = list(key)
        self._key = list(key)
        self._feed = changes
        self._columns = pa.schema([])
        self._owner = ""
        self._staging = Staging(self._link, self._columns, (), feed=changes)
        self._staged: StagedRows | None = None
        self._where = f"table {table!r}"
        self.is_removed = False  # somebody removed the table after a step of this owner
        self.anew = None if changes else False

    def open(self, columns: pa.Schema, owner: str) -> None:
        """Create the table, or check that it belongs to this owner."""
        self._begin(columns, owner)
        with self._link.changing("could not be made") as connection:
            # Concurrent processes that create the same table wait for each other.
            run(connection, "SELECT pg_catalog.pg_advisory_xact_lock(7023, 1)")
            run(
                connection,
                "CREATE TABLE IF NOT EXISTS {steps} "
                "(name text PRIMARY KEY, owner text NOT NULL, step bigint NOT NULL, rows bigint, "
                "number bigint)",
                steps=self._steps,
            )
            in_table = columns_of(connection, self._link.schema, STEPS)
            for name in ("rows", "number"):
                if name not in in_table:
                    text = f"ALTER TABLE {{steps}} ADD COLUMN {name} bigint"
                    run(connection, text, steps=self._steps)
            noted = self._claim(connection)
            self.is_removed = self._was_removed(connection, noted)
            if self.is_removed:
                return  # it is restored, or filled
            if not self._check_table(connection, noted):
                self._make(connection)
            self._become_owner(connection, noted)

    def look(self, columns: pa.Schema, owner: str) -> int:
        """Raise the errors of `open`, and create nothing; returns the owner's last step."""
        self._begin(columns, owner)
        with self._link.transaction("could not be looked at") as connection:
            counted = columns_of(connection, self._link.schema, STEPS)
            noted = self._noted(connection) if counted else None
            self.is_removed = self._was_removed(connection, noted)
            if not self._check_table(connection, noted) or not counted:
                self._check_may_create(connection)
            return self._checked(noted) if noted is not None and noted.step else 0

    def _begin(self, columns: pa.Schema, owner: str) -> None:
        """Set the columns under their names in the table; refuse names that no table can have."""
        key = fields_of_key(self._given_key, columns, self._where)
        self._columns, self._owner = as_in_table(columns), owner
        self._key = [column_of(columns.field(name)) for name in key]
        self._staging = Staging(self._link, columns, key, feed=self._feed)
        self._staged = None
        names = self._schema.names
        double = sorted({name for name in names if names.count(name) > 1})
        if double:
            raise self._link.failure(
                f"it would have two columns {', '.join(double)}, of the view or added to it; "
                "rename the field, or give its column another name: columns={field: name}"
            )
        long = [name for name in names if len(name.encode()) > LONGEST_NAME or "\0" in name]
        if long or set(_OF_SYSTEM) & set(names):
            raise self._link.failure(
                f"Postgres has no column of the name {(long or set(_OF_SYSTEM) & set(names))}: "
                f"names have up to {LONGEST_NAME} bytes, and are not {', '.join(_OF_SYSTEM)}; "
                "rename the field, or give its column another name: columns={field: name}"
            )
        if len(names) > MOST_COLUMNS or len(self._key) > MOST_KEYS:
            raise self._link.failure(
                f"it would have {len(names)} columns, {len(self._key)} of them in its key, and "
                f"Postgres allows {MOST_COLUMNS}, and {MOST_KEYS} in a key; write fewer"
            )

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def last_step(self) -> int | None:
        """The last step of this owner. Raises SinkError if its table was removed."""
        with self._link.changing("could not be looked at") as connection:
            noted = self._claim(connection)
            if self.is_removed and noted is not None:
                self._check_rows(connection, noted, 1)
            return self._checked(noted)

    def prepare(self, step: int, change: ZSetSpark[Any]) -> None:
        """Stage the rows of a step; raises an error if the table would refuse them.

        It changes no table, but creates a removed table again, as the step has all its rows.
        """
        with self._link.changing("cannot take the rows of the step") as connection:
            if self.is_removed:
                self._claim(connection)
                self._make(connection)
                self._become_owner(connection, None)
            self._check_kept(connection)
            self._staged = self._staging.stage(connection, step, change, anew=bool(self.anew))
        self.is_removed = False

    def write(self, step: int, change: ZSetSpark[Any]) -> None:
        """Write the rows of a step, with its number."""
        with self._link.changing("could not be written") as connection:
            self._check_kept(connection)
            staged = self._staged
            if staged is None or not self._staging.has(connection, staged, step, change):
                staged = self._staging.stage(connection, step, change, anew=bool(self.anew))
            if self.anew:
                run(connection, "DELETE FROM {table}", table=self._link.name)
                text = "UPDATE {steps} SET rows = 0 WHERE name = $1"
                run(connection, text, self._link.table, steps=self._steps)
            more = self._staging.write(connection, staged)
            text = "UPDATE {steps} SET step = $1, rows = rows + $2 WHERE name = $3"
            run(connection, text, step, more, self._link.table, steps=self._steps)
        self._staged = None

    # -- the owner

    def _claim(self, connection: Connection) -> Noted | None:
        """The entry of the table, locked until the transaction ends."""
        return self._noted(connection, "FOR UPDATE")

    def _noted(self, connection: Connection, lock: str = "") -> Noted | None:
        """The entry under the table's name; or of this owner, if the table was renamed.

        An entry of another owner does not count if its table was dropped.
        """
        number = "(pg_catalog.to_jsonb(s) ->> 'number')::bigint"
        text = (
            f"SELECT name, owner, step, (pg_catalog.to_jsonb(s) ->> 'rows')::bigint, {number} "
            "FROM {steps} s WHERE (name = $1 AND (owner = $2 "
            f"OR coalesce({number} IN (SELECT oid::bigint FROM pg_catalog.pg_class), true))) "
            f"OR (owner = $2 AND {number} = pg_catalog.to_regclass($3)::oid::bigint) "
            f"ORDER BY name = $1 DESC LIMIT 1 {lock}"
        )
        arguments = (self._link.table, self._owner, self._link.name.as_string())
        row = run(connection, text, *arguments, steps=self._steps).fetchone()
        return None if row is None else Noted(*row)

    def _become_owner(self, connection: Connection, noted: Noted | None) -> None:
        """Register as the owner of a table without steps; else update its name and number."""
        text = "SELECT pg_catalog.to_regclass($1)::oid::bigint"
        ((number,),) = run(connection, text, self._link.name.as_string()).fetchall()
        if noted is not None and noted.step:
            self._checked(noted)
            names = {"steps": self._steps, "table": self._link.name}
            if noted.rows is None:
                text = "UPDATE {steps} SET rows = (SELECT count(*) FROM {table}) WHERE name = $1"
                run(connection, text, noted.name, **names)
            if (noted.name, noted.number) != (self._link.table, number):
                text = "UPDATE {steps} SET name = $1, number = $2 WHERE name = $3"
                run(connection, text, self._link.table, number, noted.name, **names)
            return
        text = (
            "INSERT INTO {steps} (name, owner, step, rows, number) VALUES ($1, $2, 0, 0, $3) "
            "ON CONFLICT (name) DO UPDATE "
            "SET owner = excluded.owner, step = 0, rows = 0, number = excluded.number"
        )
        run(connection, text, self._link.table, self._owner, number, steps=self._steps)

    def _checked(self, noted: Noted | None) -> int:
        if noted is None or noted.owner != self._owner:
            raise self._link.failure(
                "another pipeline or view writes it"
                + ("" if noted is None else f", and has written step {noted.step}")
                + ", or this pipeline has lost its state; give another table; or, to write this "
                "one again, drop it, and run with --evolve (in Python, evolve=True)"
            )
        return noted.step

    # -- the rows

    def _was_removed(self, connection: Connection, noted: Noted | None) -> bool:
        """Whether the table has steps of this owner, but does not exist any more."""
        if noted is None or not noted.step:
            return False
        in_table = columns_of(connection, self._link.schema, self._link.table)
        return not in_table and self._checked(noted) > 0

    def _check_table(self, connection: Connection, noted: Noted | None) -> bool:
        """Whether the table exists; refuse one that is not of this view, or has lost rows."""
        in_table = columns_of(connection, self._link.schema, self._link.table)
        if in_table:
            self._check_columns(in_table)
        if noted is not None and noted.step:
            self._checked(noted)
            # Old rows of a feed may be removed by those who have read them.
            self._check_rows(connection, noted, 1 if self._feed else COUNTED)
        elif in_table:
            self._check_empty(connection)
        return bool(in_table)

    def _check_kept(self, connection: Connection) -> None:
        """Lock the entry; refuse a table of another owner, a missing one, or an emptied one."""
        noted = self._claim(connection)
        self._checked(noted)
        assert noted is not None
        self._check_rows(connection, noted, 1)

    def _check_rows(self, connection: Connection, noted: Noted, most: int) -> None:
        """Refuse a table that was dropped, or that has fewer rows than were written, or none."""
        expected = 0 if self.anew else noted.rows or 0
        name = self._link.name.as_string()
        ((oid,),) = run(connection, "SELECT pg_catalog.to_regclass($1)", name).fetchall()
        if oid is None:
            raise self._link.failure(
                f"it is not there, and step {noted.step} was written to it: somebody has dropped "
                "or moved it to another schema; restore it; or run with --evolve (in Python, "
                "evolve=True), which makes it anew and fills it"
            )
        least = expected if expected <= most else min(expected, 1)
        text = "SELECT count(*) FROM (SELECT FROM {table} LIMIT $1) t"
        ((rows,),) = run(connection, text, least, table=self._link.name).fetchall()
        if rows < least:
            raise self._link.failure(
                f"of {expected:,} rows that it got up to step {noted.step}, {rows:,} are there: "
                "somebody else has removed rows, for example by TRUNCATE; restore them, or "
                + (REFRESHED if self.anew is False else REMOVED)
            )

    def _check_may_create(self, connection: Connection) -> None:
        text = "SELECT pg_catalog.has_schema_privilege($1, 'CREATE')"
        ((may,),) = connection.execute(text, [self._link.schema]).fetchall()
        if not may:
            raise self._link.failure(
                f"this user may not make tables in the schema {self._link.schema}; "
                "GRANT CREATE ON SCHEMA to it, or give another schema"
            )

    def _check_empty(self, connection: Connection) -> None:
        ((has_rows,),) = run(
            connection, "SELECT EXISTS (SELECT FROM {table})", table=self._link.name
        ).fetchall()
        if has_rows:
            raise self._link.failure(
                "it has rows that no pipeline wrote; give a table that is not there, or an empty "
                "one"
            )

    def _check_columns(self, in_table: dict[str, str]) -> None:
        names = self._schema.names
        if set(in_table) != set(names):
            raise self._link.failure(
                f"it has the columns {', '.join(in_table)}, and the view is written as "
                f"{', '.join(names)}; give another table, or {REMOVED}"
            )
        for field in self._schema:
            if not holds(in_table[field.name], field.type):
                raise self._link.failure(
                    f"its column {field.name} is {in_table[field.name]}, and the view is written "
                    f"as {type_name(field.type)}; give another table, or {REMOVED}"
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
                sql.SQL(type_name(f.type)),
                sql.SQL("" if f.nullable else " NOT NULL"),
            )
            for f in self._schema
        ]
        if self._key and not self._feed:
            key = listed(self._key, lambda c: c)
            parts.append(sql.SQL("UNIQUE NULLS NOT DISTINCT ({})").format(key))
        text = "CREATE TABLE {table} ({parts})"
        run(connection, text, table=self._link.name, parts=sql.SQL(", ").join(parts))
        if self._feed:
            run(connection, f"CREATE INDEX ON {{table}} ({STEP})", table=self._link.name)
        elif not self._key:
            names = listed(self._columns.names, lambda c: c)
            run(
                connection,
                f"CREATE INDEX ON {{table}} ({SAME})",
                table=self._link.name,
                names=names,
            )
