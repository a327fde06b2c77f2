"""Whose the log of a table is: its names, the mark that it is ours, and the note on it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from psycopg import sql

from stepping_spark.pipeline.postgres.followed import Followed
from stepping_spark.pipeline.postgres.kinds import Kind
from stepping_spark.pipeline.postgres.link import Link, run
from stores.postgres.connection import Connection

LOG = "_changes"
EMPTIED = "_emptied"  # as long as the other suffix
MARK = "stepping_spark: a log of changes"
TRIMS = "stepping_spark.trims"
"""The setting of a transaction that may remove rows of a log."""
_COLUMNS = ["_id", "_xid", "_shape", "_part", "_count_", "_row"]

_FOUND = """
SELECT c.oid::bigint, c.relkind::text, pg_catalog.obj_description(c.oid, 'pg_class'), array(
    SELECT attname::text FROM pg_catalog.pg_attribute
    WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2
"""
_FUNCTION_FOUND = """
SELECT p.oid::bigint, pg_catalog.obj_description(p.oid, 'pg_proc')
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = $1 AND p.proname = $2 AND p.pronargs = 0
"""
_TAKEN = """
SELECT 'type' FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE n.nspname = $1 AND t.typname = $2 AND t.typrelid = 0 AND t.typcategory <> 'A'
"""


@dataclass(frozen=True)
class Note:
    """What the comment on a log says.

    `shapes` are the columns of the table at each installation: its oid, and number, name and kind
    of each column. Lines up to `first` belong to installations before the last shape; `mended` is
    the last line of the last installation.
    """

    oid: int = field(compare=False)
    name: list[str]
    shapes: list[tuple[int, list[tuple[int, str, Kind]]]]
    first: int
    mended: int
    state: dict[str, Any]


def log_of(schema: str, table: str) -> sql.Identifier:
    """The name of a table's log, and of its function."""
    return sql.Identifier(schema, table + LOG)


def _names_of(schema: str, table: str) -> dict[str, sql.Composable]:
    """The names of the log, its function and its triggers."""
    log = log_of(schema, table)
    return {
        "log": log,
        "name": sql.Literal(log.as_string()),
        "rows": sql.Identifier(table + LOG),
        "whole": sql.Identifier(table + EMPTIED),
    }


class Marks:
    """What is there of the log of one table, and whether it is ours."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.names = _names_of(link.schema, link.table)

    def note(self, connection: Connection) -> Note | None:
        """The log's note; None if there is no log. What is not ours is an error."""
        found = run(connection, _FOUND, self._link.schema, self._link.table + LOG).fetchone()
        if found is None:
            return None
        oid, kind, comment, columns = found
        if kind != "r" or not str(comment).startswith(MARK) or columns != _COLUMNS:
            raise self._taken("table" if kind in "rp" else "view" if kind in "vm" else "relation")
        said = json.loads(comment.removeprefix(MARK))
        return Note(oid=oid, **said)

    def _taken(self, what: str) -> Exception:
        return self._link.failure(
            f"its log of changes has the name {self._link.table + LOG}, and there is a {what} of "
            f"that name that is no such log; nothing was changed. Give the {what.split()[0]} "
            "another name, or the table that is followed, since the log has no other name. (Only "
            "if an earlier version of stepping_spark made it as its log, remove it.)"
        )

    def function(self, connection: Connection) -> int | None:
        """The oid of our function; an error if a function of that name is not ours."""
        name = self._link.table + LOG
        found = run(connection, _FUNCTION_FOUND, self._link.schema, name).fetchone()
        if found is not None and not str(found[1]).startswith(MARK):
            raise self._taken("function")
        return None if found is None else int(found[0])

    def check_names(self, connection: Connection, table: Followed) -> None:
        """Refuse names that the application has; and a table that another log of ours follows."""
        function = self.function(connection)
        taken = run(connection, _TAKEN, self._link.schema, self._link.table + LOG).fetchone()
        if taken is not None:
            raise self._taken(str(taken[0]))
        ours = (self._link.table + LOG, self._link.table + EMPTIED)
        for trigger in table.triggers:
            if trigger.name in ours and trigger.function != function:
                raise self._taken(f"trigger of {'.'.join(trigger.place)}")
            if trigger.mark.startswith(MARK) and trigger.function != function:
                old = sql.Identifier(*trigger.called).as_string()
                new = self.names["rows"].as_string()
                raise self._link.failure(
                    f"its changes are written to {old}, as the table was renamed or moved, or is "
                    f"part of another one that is followed. Go on with that log: ALTER TABLE {old} "
                    f"RENAME TO {new}; ALTER FUNCTION {old}() RENAME TO {new}; (and SET SCHEMA, "
                    "where the schema is another), then install again: "
                    f"{self.again}. Or remove it: DROP FUNCTION {old}() CASCADE; DROP TABLE {old}"
                )

    @property
    def again(self) -> str:
        """How a user installs again."""
        return (
            f"stepping-spark source install --again URL {self._link.table} --schema "
            f"{self._link.schema}, or st.Postgres(…).install(again=True)"
        )
