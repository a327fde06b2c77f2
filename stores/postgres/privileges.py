"""Checks the owners of a state's tables, and the rights of this role, before they are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from psycopg import sql

from stepping_spark.base.errors import StoreUnavailable
from stores.postgres.connection import PAGE, Address, Connection
from stores.postgres.statements import Layout

_SCHEMA = """
SELECT current_user, has_schema_privilege(oid, 'USAGE'), has_schema_privilege(oid, 'CREATE'),
    current_setting('transaction_read_only') = 'on'
FROM pg_catalog.pg_namespace WHERE nspname = $1
"""

_DATABASE = """
SELECT current_user, has_database_privilege(current_database(), 'CREATE')
    OR EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1),
    current_setting('transaction_read_only') = 'on'
"""

_TABLES = """
SELECT current_user, c.relname, pg_get_userbyid(c.relowner),
    pg_has_role(c.relowner, 'USAGE') AND pg_has_role(c.relowner, current_user, 'MEMBER'),
    has_table_privilege(c.oid, 'SELECT'),
    (SELECT coalesce(json_agg(json_build_array(
         a.attname, format_type(a.atttypid, a.atttypmod)) ORDER BY a.attnum), '[]')
     FROM pg_catalog.pg_attribute a
     WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    (SELECT coalesce(json_object_agg(x.relname, json_build_array(i.indisvalid, array(
         SELECT a.attname FROM unnest(i.indkey) WITH ORDINALITY AS k (number, place)
         JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
         ORDER BY k.place))), '{}')
     FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
     WHERE i.indrelid = c.oid)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = ANY($2::text[]) AND c.relkind = 'r' ORDER BY c.relname
"""


@dataclass(frozen=True)
class Found:
    """A table, as described by the system catalogs."""

    name: str
    owner: str
    mine: bool
    """Whether its owner and this role can act as each other, so that both can alter its tables."""
    readable: bool
    columns: Sequence[Sequence[str]]
    indexes: Mapping[str, Sequence[Any]]
    """By name: whether the index is valid, and its columns."""

    def differs(self, expected: Sequence[tuple[str, str]]) -> str | None:
        """A text if its columns and types differ from the expected ones; None if they do not."""
        columns = [(name, t) for name, t in self.columns]
        if columns == list(expected):
            return None
        return f"has the columns {_columns_text(columns)}, not {_columns_text(expected)}"

    def without_index(self, layout: Layout) -> str | None:
        """The problem of the index for lookups, with the SQL to recreate it; None if it is fine."""
        again = f"; DROP INDEX IF EXISTS {layout.index_place}; {layout.index.as_string()}"
        name = layout.index_name
        if name not in self.indexes:
            return f"the index {name!r} of its table, by which keys are found, is missing{again}"
        if self.indexes[name] != [True, list(layout.hashes)]:
            return f"the index {name!r} of its table is not valid, or not of the hashes{again}"
        return None


def problems_of(layout: Layout, tables: Mapping[str, Found]) -> Iterator[str]:
    """The problems of a register's table that show without reading rows."""
    table = tables.get(layout.table)
    if table is None:
        yield f"its table {layout.table!r} is missing"
        return
    differs = table.differs(layout.types)
    if differs is not None:
        yield f"its table {layout.table!r} {differs}"
        return
    without = table.without_index(layout)
    if without is not None:
        yield without


@dataclass(frozen=True)
class Guard:
    """Checks that a role may read or write tables, before it does."""

    connection: Connection
    address: Address
    writes: bool

    def check_schema(self) -> None:
        """Refuse a schema that this role may not use."""
        row = self.connection.execute(_SCHEMA, [self.address.schema]).fetchone()
        if row is None:
            return
        user, usage, create, reads_only = row
        if not usage:
            raise self._lacks(user, "the right USAGE on the schema")
        if not self.writes:
            return
        self._check_not_read_only(reads_only)
        if not create:
            raise self._lacks(user, "the right CREATE on the schema")

    def check_may_create(self) -> None:
        """Refuse a role that may not create the schema, if there is none."""
        ((user, create, reads_only),) = self.connection.execute(
            _DATABASE, [self.address.schema]
        ).fetchall()
        self._check_not_read_only(reads_only)
        if not create:
            role = sql.Identifier(user).as_string()
            raise StoreUnavailable(
                f"{self.address}: there is no such schema, and user {user!r} may not make one; "
                f"have its owner make it: CREATE SCHEMA {self._schema} AUTHORIZATION {role}; {PAGE}"
            )

    def _check_not_read_only(self, reads_only: bool) -> None:
        if reads_only:
            raise StoreUnavailable(
                f"{self.address}: transaction_read_only is on, as on a standby server: nothing can "
                "be written; use another server or role, or open the store with read_only=True"
            )

    def check(self, names: Sequence[str]) -> dict[str, Found]:
        """The tables among these that exist. Raises an error if this role may not use one."""
        tables = {}
        rows = self.connection.execute(_TABLES, [self.address.schema, [*names]])
        for user, *described in rows.fetchall():
            table = Found(*described)
            tables[table.name] = table
            if self.writes and not table.mine:
                raise StoreUnavailable(
                    f"{self.address}: table {table.name!r} belongs to {table.owner!r}, and only "
                    f"its owner writes a state, which {user!r} is not: connect as {table.owner!r}, "
                    f"or as a member of it {_as(table.owner)}; or open the store with "
                    f"read_only=True; {PAGE}"
                )
            if not table.readable:
                raise self._lacks(user, f"the right SELECT on table {table.name!r}")
        return tables

    def _lacks(self, user: str, what: str) -> StoreUnavailable:
        """The error for a missing privilege, with the SQL that grants it."""
        role = sql.Identifier(user).as_string()
        remedy = (
            f"the writer owns the schema and its tables: ALTER SCHEMA {self._schema} OWNER TO "
            f"{role}; to read only, open the store with read_only=True"
            if self.writes
            else f"GRANT USAGE ON SCHEMA {self._schema} TO {role}; GRANT SELECT ON ALL TABLES IN "
            f"SCHEMA {self._schema} TO {role}"
        )
        return StoreUnavailable(
            f"{self.address}: user {user!r} has not {what}, which is needed to "
            f"{'write' if self.writes else 'read'} the state; {remedy}; {PAGE}"
        )

    @property
    def _schema(self) -> str:
        return sql.Identifier(self.address.schema).as_string()


def _as(role: str) -> str:
    """The part of an address with which a member of a role connects as this role."""
    quoted = quote(f"-crole={role}".replace("\\", "\\\\").replace(" ", "\\ "), safe="-")
    return f"with ?options={quoted} in the address"


def _columns_text(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {t}" for name, t in columns)
