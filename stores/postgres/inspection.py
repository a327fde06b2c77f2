"""Inspects a state in Postgres, and compares its tables with their descriptions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from psycopg import sql

from stepping_spark.base.errors import StoreError, StoreUnavailable
from stepping_spark.relations.arrow import Array
from stepping_spark.relations.store import Register
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.schema import Schema
from stores.base import read_registers
from stores.inspection import InspectedState, KeptRegister, Summary, Verification, other_kind
from stores.postgres.catalog import CIRCUIT, FORMAT, REGISTERS, STORE, Catalog, Table, snapshot
from stores.postgres.connection import Address, Connection, holder, identity, take_lock
from stores.postgres.copy import copied, size_on_disk
from stores.postgres.privileges import Found, problems_of
from stores.postgres.session import PostgresSession
from stores.postgres.statements import Layout
from stores.postgres.store import StorePostgres
from stores.postgres.types import escape
from stores.step_lock import is_written_here

_SCHEMAS = """
SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = $1 AND c.relkind = 'r' ORDER BY 1
"""


class PostgresState:
    """The state in a schema of a database."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._address = Address(url, schema)

    def summary(self) -> Summary:
        """The summary of the state: its description, and the sizes of its tables."""
        with self._looking() as (connection, catalog):
            tables = self._tables(connection, catalog)
            registers = self._registers(tables)
            state = catalog.load(connection)
            tables_there = catalog.look(connection, tables, len(state.outputs), writes=False)
            return Summary(
                repr(self._address),
                "Postgres tables",
                FORMAT,
                catalog.fingerprint(connection),
                state.last.step,
                state.last.now,
                state.last.offsets,
                holder(connection, self._address),
                tuple(
                    _register_size(
                        connection, r, catalog.layout(r, tables[r.name].name), tables_there
                    )
                    for r in registers
                ),
            )

    def other_writer(self) -> str | None:
        """The connection of another process that writes the state now; None if there is none."""
        with (
            closing(self._address.connect("reader")) as connection,
            self._address.errors("could not be looked at"),
        ):
            if is_written_here(identity(connection, self._address)):
                return None
            return holder(connection, self._address)

    def exists(self) -> bool:
        """Whether there is a committed state."""
        with (
            closing(self._address.connect("reader")) as connection,
            self._address.errors("could not be looked at"),
        ):
            return Catalog(self._address).is_there(connection, writes=False)

    def copy_from(self, source: InspectedState, offsets: Mapping[str, int]) -> None:
        """Make this a copy of another state, with other offsets for some."""
        if not isinstance(source, PostgresState):
            raise other_kind(repr(self._address), source.summary().place)
        with source._looking() as (connection, catalog):
            source._tables(connection, catalog)  # raises an error if there is no state
        _duplicate(source._address, self._address, offsets)

    def reader(
        self, registers: Sequence[Register], *, evolve: bool = False
    ) -> StorePostgres | None:
        """A store that reads the state; None if there is no state and a writer can make one."""
        catalog = Catalog(self._address)
        with (
            closing(self._address.connect("reader")) as connection,
            self._address.errors("could not be opened"),
        ):
            if not catalog.is_there(connection, writes=True):
                catalog.check_may_create(connection)
                return None
            described = catalog.registers(connection) if evolve else registers
            catalog.layouts(connection, described, create=False, writes=True)
        return StorePostgres(
            self._url, registers, schema=self._address.schema, read_only=True, evolve=evolve
        )

    def verify(self) -> Verification:
        """Compare tables, columns, indexes and views with the description; then check each row."""
        with self._looking() as (connection, catalog):
            tables = self._tables(connection, catalog)
            registers = self._registers(tables)
            state = catalog.load(connection)
            tables_there = catalog.look(connection, tables, len(state.outputs), writes=False)
            verification = Verification(
                f"{len(tables):,} tables of registers",
                unchecked="weights that somebody has changed, and rows put in or taken out by SQL",
            )
            verification.problems += catalog.wrong_fingerprint(connection, tables)
            relations = catalog.relations(connection)
            for register in registers:
                table = tables[register.name]
                check = TableCheck(connection, catalog.layout(register, table.name), tables_there)
                label = f"register {register.name!r}"
                if table.view is not None and table.view not in relations:
                    verification.problems.append(f"{label}: its view {table.view!r} is missing")
                verification.problems += (f"{label}: {what}" for what in check.problems())
            for i in range(1, len(state.outputs) + 1):
                if f"_output_{i}_" not in tables_there:
                    verification.problems.append(f"output {i}: its table '_output_{i}_' is missing")
            return verification

    def compact(self) -> str:
        """VACUUM the tables, to reclaim the space of deleted rows."""
        with self._looking() as (connection, catalog):
            registers = self._registers(self._tables(connection, catalog))
        with StorePostgres(self._url, registers, schema=self._address.schema) as store:
            store.compact()
        return "The room of rows that are gone is free for new rows of the same table."

    def rewind(self, to: int) -> None:
        """Refuse: the tables have the last step only."""
        raise StoreError(
            f"{self._address}: a state in Postgres has its last step only; restore the schema "
            "from a backup, or start with a new store"
        )

    @contextmanager
    def _looking(self) -> Iterator[tuple[Connection, Catalog]]:
        """A connection that reads one committed state."""
        session = PostgresSession(self._address, writes=False)
        try:
            with session.use("could not be looked at") as connection, snapshot(connection):
                yield connection, session.catalog
        finally:
            session.close()

    def _tables(self, connection: Connection, catalog: Catalog) -> Mapping[str, Table]:
        if not catalog.is_there(connection, writes=False):
            relations = catalog.relations(connection)
            others = [repr(name) for (name,) in connection.execute(_SCHEMAS, [STORE]).fetchall()]
            text = f"it has no table {STORE}" if relations else "it is empty, or not there"
            raise StoreUnavailable(
                f"{self._address}: there is no state in this schema: {text}; "
                + (
                    f"of this database, these have one: {', '.join(others)}"
                    if others
                    else "no schema of this database has one: see that it is the right one"
                )
            )
        return catalog.tables(connection)

    def _registers(self, tables: Mapping[str, Table]) -> list[Register]:
        described = {name: table.described for name, table in sorted(tables.items())}
        return read_registers(described, f"{self._address}")


def _register_size(
    connection: Connection, register: Register, layout: Layout, tables: Mapping[str, Found]
) -> KeptRegister:
    """The size of a register; zero if its table is missing."""
    if layout.table not in tables:
        return KeptRegister(register, 0, 0, 0)
    size = size_on_disk(connection, layout)
    return KeptRegister(register, size.rows, size.batches, size.nbytes)


@dataclass(frozen=True)
class TableCheck:
    """Checks the table of a register."""

    connection: Connection
    layout: Layout
    there: Mapping[str, Found]

    def problems(self) -> Iterator[str]:
        """All problems of the table."""
        yield from problems_of(self.layout, self.there)
        table = self.there.get(self.layout.table)
        if table is not None and table.differs(self.layout.types) is None:
            what = f"its table {self.layout.table!r} has"
            yield from (f"{what} {n:,} rows {wrong}" for n, wrong in self._of_rows())

    def _of_rows(self) -> Iterator[tuple[int, str]]:
        """For each kind of problem, the number of rows that have it."""
        for n, what in (
            (self._count(" OR ", "{} IS NULL"), "with NULL as a weight"),
            (self._count(" AND ", "{} = 0"), "with a weight of zero"),
            (self._equal(), "that are equal to others, and not added to them"),
            (self._astray(), "whose hashes are not those of their key, so that it is not found"),
        ):
            if n:
                yield n, what

    def _count(self, joined: str, condition: str) -> int:
        """The number of rows whose diffs meet a condition."""
        each = [sql.SQL(condition).format(c.ident) for c in self.layout.diffs]
        return self._number(
            sql.SQL("SELECT count(*) FROM {} WHERE {}").format(
                self.layout.place,
                sql.SQL(joined).join(each),
            )
        )

    def _equal(self) -> int:
        names = [*map(sql.Identifier, self.layout.hashes), *(c.ident for c in self.layout.columns)]
        return self._number(
            sql.SQL(
                "SELECT coalesce(sum(n - 1), 0)::bigint FROM "
                "(SELECT count(*) AS n FROM {} GROUP BY {} HAVING count(*) > 1) AS several"
            ).format(self.layout.place, sql.SQL(", ").join(names))
        )

    def _number(self, query: sql.Composed) -> int:
        ((number,),) = self.connection.execute(query.as_bytes()).fetchall()
        return int(number)

    def _astray(self) -> int:
        """The number of rows with a wrong hash, which a lookup would not find."""
        of = self.layout
        hashes = tuple((name, INT) for name in of.hashes)
        schema = Schema(hashes + of.schema.columns, of.schema.diffs)
        wrong = 0
        for table in copied(self.connection, of.copy_with_hashes, schema, of.table):
            wrong += _differing(table.select(list(of.hashes)), of.hash_columns(table))
        return wrong


def _differing(described: pa.Table, wanted: Sequence[Array]) -> int:
    """The number of rows that differ in any of the columns."""
    differs = np.zeros(described.num_rows, np.bool_)
    for have, want in zip(described.columns, wanted, strict=True):
        differs |= have.to_numpy() != want.cast(pa.int64()).to_numpy()
    return int(differs.sum())


def _duplicate(source: Address, to: Address, offsets: Mapping[str, int]) -> None:
    """Copy a state, with other offsets for some, in one transaction. Its writer may go on."""
    with closing(to.connect("writer")) as connection, to.errors("could not be made a copy"):
        with closing(source.connect("reader")) as other:
            is_same = identity(connection, to) == identity(other, to)
        if not is_same:
            raise StoreUnavailable(
                f"{to}: a state is copied to another schema of the same database, and {source} is "
                "in another one; name a schema of that database for the copy"
            )
        take_lock(connection, to)
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            _copy(connection, Catalog(source), Catalog(to), offsets)


def _copy(connection: Connection, source: Catalog, to: Catalog, offsets: Mapping[str, int]) -> None:
    tables = source.tables(connection)
    state = source.load(connection)
    registers = source.registers(connection)
    circuit = source.circuit(connection)
    to.make_tables(connection)
    for table in (STORE, CIRCUIT) if circuit is not None else (STORE,):
        connection.execute(_all_rows(source.address, to.address, table).as_bytes())
    connection.execute(
        to.sql("UPDATE {} SET offsets = $1::json", STORE).as_bytes(),
        [json.dumps({**state.last.offsets, **offsets})],
    )
    taken = {*to.relations(connection), *(table.name for table in tables.values())}
    for register in registers:
        name = tables[register.name].name
        layout = to.layout(register, name)
        names = [*map(sql.Identifier, layout.hashes), *(c.ident for c in layout.all_columns)]
        rows = _all_rows(source.address, to.address, name, sql.SQL(", ").join(names))
        view = to.make(connection, register, layout, taken, rows)
        connection.execute(
            sql.SQL(
                'INSERT INTO {} SELECT register, "table", $1, described, columns FROM {} '
                "WHERE register = $2"
            )
            .format(*_places(source.address, to.address, REGISTERS))
            .as_bytes(),
            [view, escape(register.name)],
        )
    for i in range(1, len(state.outputs) + 1):
        name = f"_output_{i}_"
        here, to_place = _places(source.address, to.address, name)
        connection.execute(
            sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(here, to_place).as_bytes()
        )
        connection.execute(_all_rows(source.address, to.address, name).as_bytes())


def _places(source: Address, to: Address, table: str) -> tuple[sql.Identifier, sql.Identifier]:
    """A table of the copy, and of the state that is copied."""
    return sql.Identifier(to.schema, table), sql.Identifier(source.schema, table)


def _all_rows(
    source: Address, to: Address, table: str, columns: sql.Composable | None = None
) -> sql.Composed:
    """Copies the rows of a table; without columns, of one whose columns have the same order."""
    here, to_place = _places(source, to, table)
    listed = sql.SQL("*") if columns is None else columns
    named = sql.SQL("") if columns is None else sql.SQL(" ({})").format(columns)
    return sql.SQL("INSERT INTO {}{} SELECT {} FROM {}").format(here, named, listed, to_place)
