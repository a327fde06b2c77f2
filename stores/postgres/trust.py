"""Checks the owners of a state's tables, and the code they could run, before they are read.

A view, a rule, a trigger, a policy, or an index expression runs its maker's code with the rights of
the reader. The system catalogs list all of these, and reading them runs no code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from psycopg import sql

from stepping_spark.errors import StoreCorrupt, StoreUnavailable
from stepping_spark.rows.sql_text import Sql, any_of
from stores.postgres.connection import PAGE, Address, Connection
from stores.postgres.statements import Layout


def _trusted(owner: str) -> Sql:
    """The condition that an owner gains nothing from running code with this role's rights.

    The owner is this role, or a member of it. It does not help that this role is a member of the
    owner: the creator of a role can add members to it. Users who trust the owner can connect as it
    (SET ROLE).
    """
    return any_of([f"{owner} = me.oid", f"pg_has_role({owner}, me.oid, 'MEMBER')"])


_WITH = """
WITH me AS (
    SELECT c.oid, c.rolsuper OR s.rolsuper AS super
    FROM pg_catalog.pg_roles c, pg_catalog.pg_roles s
    WHERE c.rolname = current_user AND s.rolname = session_user
), space AS (
    SELECT n.oid, d.datdba, n.nspacl,
        CASE WHEN n.nspowner = 'pg_database_owner'::regrole THEN d.datdba ELSE n.nspowner END
        AS owner
    FROM pg_catalog.pg_namespace n, pg_catalog.pg_database d
    WHERE n.nspname = $1 AND d.datname = current_database()
)
"""

_SPACE = (
    _WITH
    + f"""
SELECT current_user, pg_get_userbyid(space.owner),
    {any_of([_trusted("space.owner"), "NOT me.super AND space.owner = space.datdba"])},
    has_schema_privilege(space.oid, 'USAGE'), has_schema_privilege(space.oid, 'CREATE'),
    current_setting('transaction_read_only') = 'on'
FROM me, space
"""
)

_DATABASE = """
SELECT current_user, has_database_privilege(current_database(), 'CREATE')
    OR EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1),
    current_setting('transaction_read_only') = 'on'
"""

# An index with only built-in functions (OIDs below 16384) is harmless, since they are immutable. So
# are an index of a table that this role owns, and a trigger with a function that this role owns.
_TABLES = (
    _WITH
    + f"""
SELECT current_user, me.super, c.relname, c.relkind::text, pg_get_userbyid(c.relowner),
    {_trusted("c.relowner")}, c.relowner = space.owner,
    pg_has_role(c.relowner, 'USAGE'), has_table_privilege(c.oid, 'SELECT'),
    (SELECT coalesce(json_agg(json_build_array(
         a.attname, format_type(a.atttypid, a.atttypmod)) ORDER BY a.attnum), '[]')
     FROM pg_catalog.pg_attribute a
     WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    (SELECT coalesce(json_object_agg(x.relname, json_build_array(i.indisvalid, array(
         SELECT a.attname FROM unnest(i.indkey) WITH ORDINALITY AS k (number, place)
         JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
         ORDER BY k.place))), '{{}}')
     FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
     WHERE i.indrelid = c.oid),
    array(
        SELECT format('the rule %I', rulename)
        FROM pg_catalog.pg_rewrite WHERE ev_class = c.oid AND c.relkind = 'r'
        UNION ALL SELECT format('the trigger %I, whose function belongs to %I', t.tgname,
            pg_get_userbyid(f.proowner))
        FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc f ON f.oid = t.tgfoid
        WHERE $3::boolean AND t.tgrelid = c.oid AND NOT t.tgisinternal
        AND NOT pg_has_role(f.proowner, me.oid, 'MEMBER')
        UNION ALL SELECT 'row-level security' WHERE c.relrowsecurity
        UNION ALL SELECT format('the policy %I', polname)
        FROM pg_catalog.pg_policy WHERE polrelid = c.oid
        UNION ALL SELECT format('the constraint %I', conname)
        FROM pg_catalog.pg_constraint WHERE conrelid = c.oid AND contype IN ('c', 'f', 'x')
        UNION ALL SELECT format('the index %I, which calls a function', x.relname)
        FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
        WHERE i.indrelid = c.oid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)
        AND NOT pg_has_role(c.relowner, me.oid, 'MEMBER') AND EXISTS (
            SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::regclass
            AND d.objid = x.oid AND d.refclassid <> 'pg_catalog.pg_class'::regclass
            AND d.refobjid >= 16384 AND d.refclassid <> 'pg_catalog.pg_constraint'::regclass)
        UNION ALL SELECT format('the statistics %I of an expression', stxname)
        FROM pg_catalog.pg_statistic_ext WHERE stxrelid = c.oid AND stxexprs IS NOT NULL
        UNION ALL SELECT format('the inheritance from or to %s', CASE WHEN inhrelid = c.oid
            THEN inhparent ELSE inhrelid END::regclass)
        FROM pg_catalog.pg_inherits WHERE c.oid IN (inhrelid, inhparent)
        UNION ALL SELECT format('the computed column %I', attname)
        FROM pg_catalog.pg_attribute
        WHERE attrelid = c.oid AND (attgenerated <> '' OR attidentity <> '')
        UNION ALL SELECT format('the default of column %I', a.attname)
        FROM pg_catalog.pg_attrdef d JOIN pg_catalog.pg_attribute a
        ON a.attrelid = d.adrelid AND a.attnum = d.adnum
        WHERE d.adrelid = c.oid AND a.attgenerated = '' AND pg_get_expr(d.adbin, d.adrelid) <> '0'
        UNION ALL SELECT format('the type of column %I', a.attname)
        FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = c.oid AND a.attnum > 0
        AND (t.typtype <> 'b' OR t.typnamespace <> 'pg_catalog'::regnamespace)
    )
FROM me, space, pg_catalog.pg_class c
WHERE c.relnamespace = space.oid AND c.relname = ANY($2::text[]) ORDER BY c.relname
"""
)

_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "p": "a partitioned table",
    "S": "a sequence",
    "c": "a type",
    "i": "an index",
}


@dataclass(frozen=True)
class Found:
    """A table, as described by the system catalogs."""

    name: str
    kind: str
    owner: str
    trusted: bool
    owns_schema: bool
    mine: bool
    readable: bool
    columns: Sequence[Sequence[str]]
    indexes: Mapping[str, Sequence[Any]]
    """By name: whether the index is valid, and its columns."""
    foreign: Sequence[str]
    """Objects that run code when the table is read or written, and are not the store's own."""

    @property
    def odd(self) -> Iterator[str]:
        """The reasons why a store cannot have made this table."""
        if self.kind != "r":
            yield f"is {_KINDS.get(self.kind, 'no table')}, and no table"
        else:
            yield from (f"has {what}" for what in self.foreign)

    def differs(self, expected: Sequence[tuple[str, str]]) -> str | None:
        """How its columns and types differ from the expected ones; None if they do not."""
        found = [(name, t) for name, t in self.columns]
        if found == list(expected):
            return None
        return f"has the columns {_shown(found)}, not {_shown(expected)}"

    def without_index(self, layout: Layout) -> str | None:
        """What is wrong with the index for lookups, and the SQL to recreate it; None if nothing."""
        again = f"; DROP INDEX IF EXISTS {layout.index_place}; {layout.index.as_string()}"
        name = layout.index_name
        if name not in self.indexes:
            return f"the index {name!r} of its table, by which keys are found, is missing{again}"
        if self.indexes[name] != [True, list(layout.hashes)]:
            return f"the index {name!r} of its table is not valid, or not of the hashes{again}"
        return None


def problems_of(layout: Layout, found: Mapping[str, Found]) -> Iterator[str]:
    """The problems of a register's table that show without reading rows."""
    table = found.get(layout.table)
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
    """Checks that reading or writing a table is safe and allowed, before it happens."""

    connection: Connection
    address: Address
    writes: bool

    def check_schema(self) -> None:
        """Refuse a schema that this role may not use; a writer also refuses an untrusted owner.

        The owner of a schema can replace its tables.
        """
        row = self.connection.execute(_SPACE, [self.address.schema]).fetchone()
        if row is None:
            return
        user, owner, trusted, usage, create, reads_only = row
        if not usage:
            raise self._lacks(user, "the right USAGE on the schema")
        if not self.writes:
            return
        self._check_not_read_only(reads_only)
        if not create:
            raise self._lacks(user, "the right CREATE on the schema")
        if not trusted:
            raise StoreUnavailable(
                f"{self.address}: the schema belongs to {owner!r}, who could have {user!r} run "
                f"code with its rights: if you trust that role, write as it is, {_as(owner)}; or "
                f"have the schema transferred, ALTER SCHEMA … OWNER TO …; {PAGE}"
            )

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
        """Those of these tables that exist. Raises an error if one is unsafe or not allowed."""
        found = {}
        rows = self.connection.execute(_TABLES, [self.address.schema, [*names], self.writes])
        for user, superuser, *said in rows.fetchall():
            table = Found(*said)
            found[table.name] = table
            odd = ", and ".join(table.odd)
            if odd:
                raise StoreCorrupt(
                    f"{self.address}: {table.name!r} {odd}: using it could run code of others "
                    "with your rights, so it was not used; drop what is not the store's, or "
                    "restore the schema from a backup"
                )
            self._check_owner(table, user, superuser)
        return found

    def _check_owner(self, table: Found, user: str, superuser: bool) -> None:
        said = f"{self.address}: table {table.name!r} belongs to {table.owner!r}"
        if superuser and not table.trusted:
            raise StoreUnavailable(
                f"{said}, and you are {user!r}, with the rights of a superuser: a table of another "
                f"role could run code with them; connect as {table.owner!r}, or, to read, as any "
                "role that is not a superuser"
            )
        if self.writes and not table.mine:
            raise StoreUnavailable(
                f"{said}, and only its owner writes a state, which {user!r} is not: connect as "
                f"{table.owner!r}, or as a member of it, {_as(table.owner)}; or open the store "
                f"with read_only=True; {PAGE}"
            )
        if not (table.trusted or table.owns_schema):
            raise StoreUnavailable(
                f"{said}, who is neither a role of {user!r} nor the owner of the schema: see who "
                f"made it, and have it made over, ALTER TABLE … OWNER TO …; {PAGE}"
            )
        if not table.readable:
            raise self._lacks(user, f"the right SELECT on table {table.name!r}")

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
    """How a member of a role connects as this role."""
    quoted = quote(f"-crole={role}".replace("\\", "\\\\").replace(" ", "\\ "), safe="-")
    return f"with ?options={quoted} in the address"


def _shown(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {t}" for name, t in columns)
