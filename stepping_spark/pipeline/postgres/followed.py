"""A followed table in the catalogs of Postgres: its columns, partitions and triggers.

Also its log: `LogFinder` finds it, and checks that it is ours; `LogChecks` whether it is complete.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from psycopg import sql

from stepping_spark.pipeline.postgres.link import Link, run
from stepping_spark.pipeline.postgres.types import PostgresKind, is_compatible, kinds_of
from stepping_spark.pipeline.protocols import ANEW
from stores.postgres.connection import Connection

_RELATION = """
SELECT c.oid::bigint, c.relkind::text, array(
    SELECT a.attname::text FROM pg_catalog.pg_index i
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
    WHERE i.indrelid = c.oid AND i.indisprimary ORDER BY a.attnum)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S', 'c')
"""
_COLUMNS = """
SELECT attnum, attname::text, atttypid::bigint, atttypmod, xmin::text,
    attgenerated = 'v', attnotnull, attndims
FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
"""
_MEMBERS = """
WITH RECURSIVE tree (oid) AS (
    SELECT $1::oid
    UNION SELECT i.inhrelid FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid
)
SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text,
    c.relispartition AND c.oid <> $1::oid, pg_catalog.pg_relation_filenode(c.oid)::bigint,
    pg_catalog.has_table_privilege(c.oid, 'SELECT'), c.relpersistence = 'p'
FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY c.oid
"""
_TRIGGERS = """
SELECT t.oid::bigint, t.xmin::text, t.tgrelid::bigint, n.nspname::text, c.relname::text,
    t.tgname::text, t.tgfoid::bigint, array[f.nspname::text, p.proname::text],
    coalesce(pg_catalog.obj_description(p.oid, 'pg_proc'), ''), t.tgenabled::text,
    t.tgtype & 1 = 1, t.tgparentid <> 0
FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_namespace f ON f.oid = p.pronamespace
WHERE (t.tgrelid = ANY($1::bigint[]::oid[]) OR t.tgfoid = $2::bigint::oid) AND NOT t.tgisinternal
"""

_NO_TABLES = {
    "v": "a view: follow the tables that it reads, and write its query in Python",
    "m": "a materialized view, which no trigger can watch: follow the tables that it reads",
    "f": "a foreign table, whose rows change elsewhere: follow the table on its own server",
}


@dataclass(frozen=True)
class FollowedColumn:
    """A column; `version` changes with its definition."""

    number: int
    name: str
    kind: PostgresKind
    version: str
    virtual: bool
    required: bool
    dimensions: int
    """The declared dimensions of an array; rows may have others."""


@dataclass(frozen=True)
class FollowedMember:
    """The table, or a partition or an inheriting table of it; `file` is the number of its file."""

    oid: int
    place: tuple[str, str]
    kind: str
    cloned: bool
    """Whether it has copies of the triggers of its partitioned table."""
    file: int | None
    readable: bool
    durable: bool

    @property
    def name(self) -> sql.Identifier:
        """Its name in SQL."""
        return sql.Identifier(*self.place)


@dataclass(frozen=True)
class Trigger:
    """A trigger; `version` changes when it is disabled or enabled."""

    oid: int
    version: str
    relation: int
    place: tuple[str, str]
    name: str
    function: int
    called: Sequence[str]
    mark: str
    enabled: str
    each_row: bool
    cloned: bool


@dataclass(frozen=True)
class Followed:
    """The current state of a followed table in the catalogs."""

    oid: int
    key: Sequence[str]
    columns: Sequence[FollowedColumn]
    members: Sequence[FollowedMember]
    triggers: Sequence[Trigger]

    @cached_property
    def with_rows(self) -> list[FollowedMember]:
        """The members that store rows of their own."""
        return [m for m in self.members if m.kind == "r"]

    def state(self, function: int) -> dict[str, Any]:
        """The files and versions that differ if rows may have changed without a trigger."""
        return {
            "files": {str(m.oid): m.file for m in self.members},
            "versions": {str(c.number): c.version for c in self.columns},
            "triggers": {str(t.oid): t.version for t in self.triggers if t.function == function},
        }


def followed_of(connection: Connection, link: Link) -> Followed:
    """The table of a link. Raises the link's failure if it is missing, or cannot be followed."""
    row = run(connection, _RELATION, link.schema, link.table).fetchone()
    if row is None:
        raise link.failure("it is not there; check the name and schema=")
    oid, kind, key = row
    if kind not in "rp":
        raise link.failure(f"it is {_NO_TABLES.get(kind, 'no table: check the name')}")
    members = [
        FollowedMember(o, (schema, name), *rest)
        for o, schema, name, *rest in run(connection, _MEMBERS, oid).fetchall()
    ]
    foreign = [".".join(m.place) for m in members if m.kind == "f"]
    if foreign:
        raise link.failure(
            f"its part {', '.join(foreign)} is {_NO_TABLES['f']}; or follow the other parts one by "
            "one"
        )
    unlogged = [".".join(m.place) for m in members if not m.durable]
    if unlogged:
        raise link.failure(
            f"{', '.join(unlogged)} is unlogged, so that a crash of the server empties it and no "
            f"trigger sees it: ALTER TABLE {unlogged[0]} SET LOGGED"
        )
    kind_of = kinds_of(connection, oid)
    columns = [
        FollowedColumn(number, name, kind_of(of, modifier), *rest)
        for number, name, of, modifier, *rest in run(connection, _COLUMNS, oid).fetchall()
    ]
    return Followed(oid, key, columns, members, triggers_of(connection, members))


def triggers_of(
    connection: Connection, members: Sequence[FollowedMember], function: int = 0
) -> list[Trigger]:
    """The triggers of these relations, and the triggers that call a function."""
    rows = run(connection, _TRIGGERS, [m.oid for m in members], function).fetchall()
    return [
        Trigger(oid, version, relation, (schema, table), *rest)
        for oid, version, relation, schema, table, *rest in rows
    ]


LOG = "_changes"
EMPTIED = "_emptied"  # as long as the other suffix
MARK = "stepping_spark: a log of changes"
TRIMS = "stepping_spark.trims"
"""The setting of a transaction that may remove rows of a log."""
_LOG_COLUMNS = ["_id", "_xid", "_shape", "_part", "_count_", "_row"]

_LOG_FOUND = """
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
_TYPE_OF_THE_NAME = """
SELECT 'type' FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE n.nspname = $1 AND t.typname = $2 AND t.typrelid = 0 AND t.typcategory <> 'A'
"""


LogShape: TypeAlias = tuple[int, list[tuple[int, str, PostgresKind]]]
"""The oid of a table, and the number, name and kind of each of its columns."""


@dataclass(frozen=True)
class Note:
    """The content of the comment on a log.

    `shapes` are the columns of the table at each installation. Lines up to `first` belong to
    installations before the last shape; `mended` is the last line of the last installation.
    """

    oid: int = field(compare=False)
    name: list[str]
    shapes: list[LogShape]
    first: int
    mended: int
    state: dict[str, Any]


def log_of(schema: str, table: str) -> sql.Identifier:
    """The name of a table's log, and of its function."""
    return sql.Identifier(schema, table + LOG)


def _names_of(schema: str, table: str) -> dict[str, sql.Composable]:
    """The SQL names of the log, its function and its triggers."""
    log = log_of(schema, table)
    return {
        "log": log,
        "name": sql.Literal(log.as_string()),
        "rows": sql.Identifier(table + LOG),
        "whole": sql.Identifier(table + EMPTIED),
    }


class LogFinder:
    """Finds the log of one table and its function, and checks that they are ours by comments."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.names = _names_of(link.schema, link.table)

    def note(self, connection: Connection) -> Note | None:
        """The log's note; None if there is no log. Raises an error if the relation is not ours."""
        row = run(connection, _LOG_FOUND, self._link.schema, self._link.table + LOG).fetchone()
        if row is None:
            return None
        oid, kind, comment, columns = row
        if kind != "r" or not str(comment).startswith(MARK) or columns != _LOG_COLUMNS:
            raise self._name_error(
                "table" if kind in "rp" else "view" if kind in "vm" else "relation"
            )
        content = json.loads(comment.removeprefix(MARK))
        return Note(oid=oid, **content)

    def _name_error(self, what: str) -> Exception:
        return self._link.failure(
            f"its log of changes has the name {self._link.table + LOG}, and a {what} of that name "
            f"exists that is no such log; nothing was changed. Give the {what.split()[0]} "
            "another name, or the table that is followed, since the log has no other name. (Only "
            "if an earlier version of stepping_spark made it as its log, remove it.)"
        )

    def function(self, connection: Connection) -> int | None:
        """The oid of the log's function, or None. Raises an error if it is not ours."""
        name = self._link.table + LOG
        row = run(connection, _FUNCTION_FOUND, self._link.schema, name).fetchone()
        if row is not None and not str(row[1]).startswith(MARK):
            raise self._name_error("function")
        return None if row is None else int(row[0])

    def check_names(self, connection: Connection, table: Followed) -> None:
        """Refuse names that the application uses, and a table that another log of ours follows."""
        function = self.function(connection)
        holder = run(
            connection, _TYPE_OF_THE_NAME, self._link.schema, self._link.table + LOG
        ).fetchone()
        if holder is not None:
            raise self._name_error(str(holder[0]))
        ours = (self._link.table + LOG, self._link.table + EMPTIED)
        for trigger in table.triggers:
            if trigger.name in ours and trigger.function != function:
                raise self._name_error(f"trigger of {'.'.join(trigger.place)}")
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
        """The commands with which a user installs again."""
        return (
            f"stepping-spark source install --again {self._link.arguments}, or "
            "st.Postgres(…).install(again=True)"
        )


_KEEPING_TRIGGER = """
SELECT tgenabled::text FROM pg_catalog.pg_trigger
WHERE tgrelid = $1::bigint::oid AND tgfoid = $2::bigint::oid AND tgnargs > 0
ORDER BY tgenabled = 'A' DESC
"""


class LogChecks:
    """Checks whether the log of one table may be incomplete."""

    def __init__(self, link: Link, finder: LogFinder) -> None:
        self._link = link
        self._finder = finder

    def check(
        self, connection: Connection, note: Note, table: Followed, columns: Sequence[str]
    ) -> None:
        """Raise an error if the log may lack changes of rows.

        `columns` are the columns that are read; other columns may be added, dropped and renamed.
        """
        self.check_kept(connection, note)
        self._check_table(note, table)
        self._check_columns(note, table, columns)
        self._check_members(connection, note, table)
        self._check_triggers(connection, note, table)
        text = (
            "SELECT _row #>> '{{}}' FROM {log} "
            "WHERE _count_ = 0 AND _row IS NOT NULL AND _id > $1 LIMIT 1"
        )
        lost = run(connection, text, note.mended, **self._finder.names).fetchone()
        if lost is not None:
            raise self._broken(f"what happened to it could not be written to its log: {lost[0]}")

    def check_kept(self, connection: Connection, note: Note) -> None:
        """Raise an error if rows of the log may have been removed, which cannot be mended."""
        row = run(
            connection, _KEEPING_TRIGGER, note.oid, self._finder.function(connection) or 0
        ).fetchone()
        if row is None or row[0] != "A":
            raise self._link.failure(
                "the trigger that keeps the rows of its log of changes was dropped or disabled, as "
                "pg_restore --disable-triggers does, so rows of the log may have been removed or "
                f"changed: uninstall the log and install it again, and {ANEW}"
            )

    def renamed_for_a_while(self, column: str) -> Exception:
        """The error for a line that was written while a wanted column had another name."""
        return self._broken(f"its column {column} had another name when rows of it were logged")

    def _broken(self, doubt: str) -> Exception:
        return self._link.failure(
            f"{doubt}. So its log of changes may lack rows. Install it again: "
            f"{self._finder.again}. That adds the missing changes to the log, and pipelines go on"
        )

    def _check_table(self, note: Note, table: Followed) -> None:
        if table.oid != note.shapes[-1][0]:
            raise self._broken(
                "it is another table than the one whose changes are logged: it was dropped and "
                "made again, restored, or swapped by renames"
            )
        if note.name != [self._link.schema, self._link.table]:
            raise self._broken(f"it was renamed or moved; it was {'.'.join(note.name)}")

    def check_renamed(self, note: Note, table: Followed, columns: Sequence[str]) -> None:
        """Raise an error if a wanted column of the table was renamed."""
        oid, before = note.shapes[-1]
        names = {name.lower() for name in columns} - {c.name.lower() for c in table.columns}
        now = {c.number: c.name for c in table.columns}
        for number, name, _ in before:
            if oid == table.oid and name.lower() in names and number in now:
                raise self._link.failure(
                    f"there is no column {name}; the columns are {', '.join(now.values())}: it was "
                    f"renamed to {now[number]}. Say so, with st.Column in the row class or "
                    f"columns={{field: {now[number]!r}}}, and install the log again, so that "
                    f"pipelines go on: {self._finder.again}"
                )

    def _check_columns(self, note: Note, table: Followed, columns: Sequence[str]) -> None:
        before = {number: (name, kind) for number, name, kind in note.shapes[-1][1]}
        files, versions = note.state["files"], note.state["versions"]
        rewritten = any(m.file != files.get(str(m.oid), m.file) for m in table.members)
        for column in (c for c in table.columns if c.name in columns):
            at = f"its column {column.name}"
            if column.virtual:
                raise self._link.failure(
                    f"{at} is generated and virtual, so that no trigger sees its values; compute "
                    "it in the query, or make it STORED"
                )
            if column.number not in before:
                raise self._broken(f"{at} was added after the log was made")
            name, kind = before[column.number]
            if name != column.name:
                raise self._broken(f"{at} was renamed; it was {name}")
            if not is_compatible(kind, column.kind):
                raise self._broken(f"{at} has another type than before")
            if rewritten and column.version != versions.get(str(column.number)):
                raise self._broken(
                    f"{at} was altered and the table was written anew, perhaps by ALTER COLUMN … "
                    "TYPE … USING"
                )

    def _check_members(self, connection: Connection, note: Note, table: Followed) -> None:
        files = note.state["files"]
        missing = len(set(files) - {str(m.oid) for m in table.members})
        if missing:
            raise self._broken(f"{missing} of its parts were detached or dropped")
        for member in table.with_rows:
            if str(member.oid) not in files and self._has_other_rows(connection, note, member):
                raise self._broken(
                    f"its part {'.'.join(member.place)}, which came after the log was made, has "
                    "other rows than its log says: it was attached with rows, or had a TRUNCATE"
                )

    def _has_other_rows(self, connection: Connection, note: Note, member: FollowedMember) -> bool:
        """Whether a part that is newer than the installation has other rows than the log."""
        name = ".".join(member.place)
        if not member.readable:
            raise self._link.failure(
                f"its part {name} came after the log was made, and this user may not read it, "
                f"to compare it with the log: GRANT SELECT ON {name}; or install again: "
                f"{self._finder.again}"
            )
        text = (
            "SELECT (SELECT count(*) FROM ONLY {on}) "
            "<> (SELECT coalesce(sum(_count_), 0) FROM {log} "
            "WHERE _part = $1 AND (_id > $2 OR _row IS NULL))"
        )
        cursor = run(
            connection, text, member.oid, note.mended, on=member.name, **self._finder.names
        )
        return bool(cursor.fetchall()[0][0])

    def _check_triggers(self, connection: Connection, note: Note, table: Followed) -> None:
        function = self._finder.function(connection)
        ours = [t for t in table.triggers if t.function == function]
        files, versions = note.state["files"], {str(t.oid): t.version for t in ours}
        at = {(t.relation, t.each_row) for t in ours if t.enabled == "A"}
        whole = all(
            (m.oid, True) in at
            and ((m.oid, False) in at or m.kind == "p" or str(m.oid) not in files)
            for m in table.members
        )
        noted = note.state["triggers"].items()
        if not whole or any(versions.get(oid) != version for oid, version in noted):
            raise self._broken(
                "the triggers that write its log were dropped, disabled or changed, as "
                "ALTER TABLE … DISABLE TRIGGER, pg_restore and an upgrade of the server do"
            )
