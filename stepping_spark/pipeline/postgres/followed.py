"""A table that is followed, as the catalogs of Postgres have it: columns, partitions, triggers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from psycopg import sql

from stepping_spark.pipeline.postgres.link import Link, run
from stepping_spark.pipeline.postgres.types import PostgresKind, kinds_of
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
    """A column; `version` changes whenever its definition does."""

    number: int
    name: str
    kind: PostgresKind
    version: str
    virtual: bool
    required: bool
    dimensions: int
    """Of an array, as it was declared; rows may have others."""


@dataclass(frozen=True)
class FollowedMember:
    """The table, or a partition or an inheriting table of it; `file` is where its rows are."""

    oid: int
    place: tuple[str, str]
    kind: str
    cloned: bool
    """Whether it has the triggers of the partitioned table that it is a part of."""
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
    """A table as it is now."""

    oid: int
    key: Sequence[str]
    columns: Sequence[FollowedColumn]
    members: Sequence[FollowedMember]
    triggers: Sequence[Trigger]

    @cached_property
    def with_rows(self) -> list[FollowedMember]:
        """Those that have rows of their own."""
        return [m for m in self.members if m.kind == "r"]

    def state(self, function: int) -> dict[str, Any]:
        """What changes when rows may have changed without a trigger."""
        return {
            "files": {str(m.oid): m.file for m in self.members},
            "versions": {str(c.number): c.version for c in self.columns},
            "triggers": {str(t.oid): t.version for t in self.triggers if t.function == function},
        }


def followed_of(connection: Connection, link: Link) -> Followed:
    """The table of a link. Raises its failure if it is not there, or no table."""
    found = run(connection, _RELATION, link.schema, link.table).fetchone()
    if found is None:
        raise link.failure("it is not there; check the name and schema=")
    oid, kind, key = found
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
    weak = [".".join(m.place) for m in members if not m.durable]
    if weak:
        raise link.failure(
            f"{', '.join(weak)} is unlogged, so that a crash of the server empties it and no "
            f"trigger sees it: ALTER TABLE {weak[0]} SET LOGGED"
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
    """The triggers of these relations, and those that call a function."""
    found = run(connection, _TRIGGERS, [m.oid for m in members], function).fetchall()
    return [
        Trigger(oid, version, relation, (schema, table), *rest)
        for oid, version, relation, schema, table, *rest in found
    ]
