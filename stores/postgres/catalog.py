"""The tables in a Postgres schema that describe a state: its registers, step and outputs."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from psycopg import sql
from psycopg.pq import TransactionStatus

from stepping_spark.base.errors import StoreCorrupt, StoreMismatch, StoreUnavailable
from stepping_spark.plan.difference import matched
from stepping_spark.relations.store import (
    Register,
    fingerprint,
    fingerprint_of,
    now_from_text,
    now_to_text,
    register_name,
)
from stepping_spark.rows.schema import Schema
from stores.base import LastStep, Natural, decoded, read_registers
from stores.postgres.connection import Address, Connection
from stores.postgres.privileges import Found, Guard, problems_of
from stores.postgres.statements import STAGED, Layout, Statement, identifier
from stores.postgres.types import escape, unescape

MADE_BY = "made_by"


@dataclass(frozen=True)
class State:
    """The last committed step, and the tables of its outputs."""

    last: LastStep
    outputs: Sequence[Mapping[str, Any]]  # of each, its schema, columns and computation
    outputs_kept: bool = False


def layout_of(output: Mapping[str, Any]) -> Mapping[str, Any]:
    """The description of an output, without its computation."""
    return {key: value for key, value in output.items() if key != MADE_BY}


@dataclass(frozen=True)
class Table:
    """The description of a register: its table, its view, its schema and its columns."""

    name: str
    view: str | None
    described: Mapping[str, Any]
    columns: list[list[str]]


class _Step(Struct, frozen=True):
    step: Natural
    now: str | None
    offsets: dict[str, int]
    outputs: list[dict[str, Any]]
    outputs_kept: bool
    settings: dict[str, str]


class _Register(Struct, frozen=True):
    register: str
    table: str
    view: str | None
    described: dict[str, Any]
    columns: list[tuple[str, str, str]]


def state_of(row: str) -> State:
    """The last step, from a row of `_store_` as JSON. Raises `ValueError` if it is not valid."""
    of = decoded(row, _Step)
    now = None if of.now is None else now_from_text(unescape(of.now))
    made_by = [output.get(MADE_BY) for output in of.outputs]
    signatures = None if None in made_by or not of.outputs_kept else tuple(map(str, made_by))
    return State(
        LastStep(of.step, now, of.offsets, of.settings, signatures), of.outputs, of.outputs_kept
    )


def table_of(row: str) -> tuple[str, Table]:
    """The name of a register, and its description, from a row of `_registers_` as JSON."""
    of = decoded(row, _Register)
    return unescape(of.register), Table(
        of.table, of.view, of.described, list(map(list, of.columns))
    )


FORMAT = 3
STORE, REGISTERS, CIRCUIT = "_store_", "_registers_", "_circuit_"

TABLES = {
    STORE: (
        "format int NOT NULL, fingerprint text NOT NULL, step bigint NOT NULL, now text, "
        "offsets json NOT NULL, outputs json NOT NULL, outputs_kept boolean NOT NULL, "
        "settings json NOT NULL"
    ),
    REGISTERS: (
        'register text PRIMARY KEY, "table" text NOT NULL, "view" text, described json NOT NULL, '
        "columns json NOT NULL"
    ),
    CIRCUIT: "circuit text NOT NULL",
}
_COMPUTED = re.compile(r"_key_\d+_|_order_")


class _Format(Struct, frozen=True):
    format: int


class _Fingerprint(Struct, frozen=True):
    fingerprint: str


class _Circuit(Struct, frozen=True):
    circuit: str


@dataclass(frozen=True)
class Catalog:
    """The tables that describe a state: `_store_` and `_registers_`."""

    address: Address

    def layouts(
        self, connection: Connection, registers: Sequence[Register], *, create: bool, writes: bool
    ) -> dict[str, Layout]:
        """The tables of the registers. Creates them if there is no store and `create` is true.

        Raises `StoreMismatch` with the registers that differ from those of the state, and
        `StoreCorrupt` with the tables that were altered, as far as this shows without reading rows.
        """
        if not self.is_there(connection, writes=writes):
            if not create:
                raise StoreUnavailable(
                    f"{self.address}: there is no store; create it with create=True, or check the "
                    "database and the schema"
                )
            with connection.transaction():
                self._create(connection, registers)
        with snapshot(connection):  # a writer may be replacing output tables
            return self._layouts(connection, registers, writes=writes)

    def _layouts(
        self, connection: Connection, registers: Sequence[Register], *, writes: bool
    ) -> dict[str, Layout]:
        tables = self.check_registers(connection, registers)
        outputs = len(self.load(connection).outputs)
        tables_there = self.look(connection, tables, outputs, writes=writes)
        layouts = {r.name: self.layout(r, tables[r.name].name) for r in registers}
        for name, layout in layouts.items():
            if layout.described != tables[name].columns:
                raise StoreMismatch(
                    f"register {name!r}: the table has the columns "
                    f"{_columns_text(tables[name].columns)}, the circuit "
                    f"{_columns_text(layout.described)}; use the state with the circuit that it "
                    "was made for, or make a new store for this one"
                )
        self._check_tables(connection, registers, layouts, outputs, tables_there)
        return layouts

    def check_registers(
        self, connection: Connection, registers: Sequence[Register]
    ) -> dict[str, Table]:
        """The description of each register, by the circuit's name for it.

        Raises `StoreMismatch` if the state has other registers.
        """
        tables = self.tables(connection)
        for wrong in self.wrong_fingerprint(connection, tables):
            raise StoreCorrupt(f"{self.address}: {wrong}; restore the schema from a backup")
        names = matched({name: table.described for name, table in tables.items()}, registers)
        return {name: tables[in_state] for name, in_state in names.items()}

    def registers(self, connection: Connection) -> list[Register]:
        """The registers of the state, whose rows have no classes."""
        described = {name: table.described for name, table in self.tables(connection).items()}
        return read_registers(described, f"{self.address}")

    def is_there(self, connection: Connection, *, writes: bool) -> bool:
        """Whether the schema has a state. Raises an error if this role may not read or write it."""
        guard = Guard(connection, self.address, writes)
        guard.check_schema()
        return STORE in guard.check([STORE, REGISTERS])

    def check_may_create(self, connection: Connection) -> None:
        """Raise an error if this role may not create a state."""
        Guard(connection, self.address, writes=True).check_may_create()

    def look(
        self, connection: Connection, tables: Mapping[str, Table], outputs: int, *, writes: bool
    ) -> dict[str, Found]:
        """The actual tables of registers and outputs, checked before any of them is read."""
        names = [table.name for table in tables.values()]
        names += [f"_output_{i}_" for i in range(1, outputs + 1)]
        return Guard(connection, self.address, writes).check(names)

    def wrong_fingerprint(
        self, connection: Connection, described: Mapping[str, Table]
    ) -> Iterator[str]:
        """The problem if the described registers do not have the digest in `_store_`."""
        original = self.fingerprint(connection)
        digest = fingerprint_of({name: table.described for name, table in described.items()})
        if original != digest:
            yield (
                f"table {REGISTERS} is not of this state: it describes {digest}, and {STORE} says "
                f"{original}"
            )

    def _check_tables(
        self,
        connection: Connection,
        registers: Sequence[Register],
        layouts: Mapping[str, Layout],
        outputs: int,
        tables_there: Mapping[str, Found],
    ) -> None:
        wrong = [
            f"register {name!r}: {problem}"
            for name, layout in layouts.items()
            for problem in problems_of(layout, tables_there)
        ]
        wrong += [
            f"output {i}: its table '_output_{i}_' is missing"
            for i in range(1, outputs + 1)
            if f"_output_{i}_" not in tables_there
        ]
        if wrong:
            listed = "".join(f"  {problem}\n" for problem in wrong)
            raise StoreCorrupt(
                f"{self.address}: somebody has changed tables of the state:\n{listed}"
                "Restore the schema from a backup, or make a new state."
            )

    def tables(self, connection: Connection) -> dict[str, Table]:
        """The description of each register. Raises `StoreMismatch` for another format version."""
        self._check_format(connection)
        rows = self._rows(connection, REGISTERS)
        with self.believed(REGISTERS):
            tables = dict(map(table_of, rows))
        return tables

    def output_layouts(self, outputs: Sequence[Schema]) -> tuple[Layout, ...]:
        """The tables of the outputs of the last step."""
        return tuple(
            Layout(self.address.schema, f"_output_{i}_", schema, hashed=False)
            for i, schema in enumerate(outputs, 1)
        )

    def staging(self) -> sql.Identifier:
        """The name of a new staging table, for a large change."""
        return sql.Identifier(self.address.schema, f"_staging_{uuid.uuid4().hex}")

    # -- the state

    def load(self, connection: Connection) -> State:
        """The last committed step."""
        with self.believed(STORE):
            return state_of(self._only(connection, STORE))

    def fingerprint(self, connection: Connection) -> str:
        """The digest of the state's registers, as stored in `_store_`."""
        with self.believed(STORE):
            return decoded(self._only(connection, STORE), _Fingerprint).fingerprint

    def circuit(self, connection: Connection) -> str | None:
        """The text of the circuit of the last step; None if an earlier version did not keep it."""
        if CIRCUIT not in Guard(connection, self.address, writes=False).check([CIRCUIT]):
            return None
        with self.believed(CIRCUIT):
            rows = self._rows(connection, CIRCUIT)
            return decoded(self._only(connection, CIRCUIT), _Circuit).circuit if rows else None

    def _rows(self, connection: Connection, table: str) -> list[str]:
        """The rows of a table, each as JSON."""
        query = self.sql("SELECT row_to_json(t)::text FROM {} AS t", table)
        return [row for (row,) in connection.execute(query.as_bytes()).fetchall()]

    def _only(self, connection: Connection, table: str) -> str:
        """The only row of a table, as JSON."""
        rows = self._rows(connection, table)
        if len(rows) != 1:
            raise ValueError(f"it has {'more rows' if rows else 'no row'}, and must have one")
        return rows[0]

    @contextmanager
    def believed(self, table: str) -> Iterator[None]:
        """Turn a `ValueError` about a table's content into `StoreCorrupt`."""
        try:
            yield
        except ValueError as e:
            raise StoreCorrupt(
                f"{self.address}: table {table} is damaged, or somebody has changed it: {e}; "
                "restore the schema from a backup"
            ) from None

    def save(self, connection: Connection, old: State, new: State) -> Any:
        """Replace the last step `old` by `new`; the cursor's row count is 0 if it was not `old`."""
        query = self.sql(
            "UPDATE {} SET step = $1, now = $2, offsets = $3::json, outputs = $4::json, "
            "outputs_kept = $5, settings = $6::json WHERE step = $7",
            STORE,
        )
        last = new.last
        now = now_to_text(last.now)
        return connection.execute(
            query.as_bytes(),
            [
                last.step,
                None if now is None else escape(now),
                json.dumps(dict(last.offsets)),
                json.dumps(new.outputs),
                new.outputs_kept,
                json.dumps(dict(last.settings)),
                old.last.step,
            ],
        )

    def make_outputs(self, connection: Connection, old: State, new: Sequence[Layout]) -> None:
        """Replace the tables of the outputs by new ones."""
        for i in range(len(old.outputs)):
            connection.execute(self.sql("DROP TABLE IF EXISTS {}", f"_output_{i + 1}_").as_bytes())
        for layout in new:
            connection.execute(layout.create.as_bytes())

    def sweep(self, connection: Connection) -> None:
        """Drop staging tables left behind by steps that were never committed."""
        mine = connection.execute(
            "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
            "ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r' "
            "AND pg_catalog.pg_has_role(c.relowner, 'USAGE')",
            [self.address.schema],
        )
        for (name,) in mine.fetchall():
            if STAGED.fullmatch(name):
                connection.execute(self.sql("DROP TABLE IF EXISTS {}", name).as_bytes())

    def vacuum(self, connection: Connection, layout: Layout) -> None:
        """VACUUM a table, if it exists, to reclaim the space of deleted rows."""
        regclass = sql.SQL("SELECT to_regclass({})").format(sql.Literal(layout.place.as_string()))
        if connection.execute(regclass.as_bytes()).fetchone() != (None,):
            vacuum = sql.SQL("VACUUM (ANALYZE) {}").format(layout.place)
            connection.execute(vacuum.as_bytes())

    # -- creating it

    def _create(self, connection: Connection, registers: Sequence[Register]) -> None:
        self.make_tables(connection)
        connection.execute(
            self.sql("INSERT INTO {} VALUES ($1, $2, 0, NULL, '{{}}', '[]', false, '{{}}')", STORE),
            [FORMAT, fingerprint(registers)],
        )
        taken = self.relations(connection)
        layouts = [self.layout(r, identifier(r.name, taken)) for r in registers]
        for register, layout in zip(registers, layouts, strict=True):
            view = self.make(connection, register, layout, taken)
            self.note(connection, register, layout, view)

    def make_tables(self, connection: Connection) -> None:
        """Create the schema, if it is not there, and the tables that describe a state."""
        # `IF NOT EXISTS` needs the CREATE privilege even if the schema exists.
        schema_exists = connection.execute(
            "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", [self.address.schema]
        )
        if schema_exists.fetchone() is None:
            name = sql.Identifier(self.address.schema)
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(name).as_bytes())
        for table, columns in TABLES.items():
            connection.execute(self.sql(f"CREATE TABLE {{}} ({columns})", table).as_bytes())

    def note(
        self, connection: Connection, register: Register, layout: Layout, view: str | None
    ) -> None:
        """Insert the description of a register and its table into `_registers_`."""
        connection.execute(
            self.sql("INSERT INTO {} VALUES ($1, $2, $3, $4::json, $5::json)", REGISTERS),
            [
                escape(register.name),
                layout.table,
                view,
                json.dumps(register.describe()),
                json.dumps(layout.described),
            ],
        )

    def comment(self, connection: Connection, register: Register, layout: Layout) -> None:
        """Comment on the table of a register, and on columns with cut names."""
        what = f"register {register.name!r}: the sum of {register.sums or 'changes'}"
        for statement in layout.comments(what):
            connection.execute(statement.as_bytes())

    def make(
        self,
        connection: Connection,
        register: Register,
        layout: Layout,
        taken: set[str],
        rows: Statement | None = None,
    ) -> str | None:
        """Create the table of a register, and the view of a cache; return the name of the view.

        `rows` is a statement that fills the table.
        """
        for statement in (layout.create, *([] if rows is None else [rows]), layout.index):
            connection.execute(statement.as_bytes())
        self.comment(connection, register, layout)
        prefix = register_name("")
        if not register.name.startswith(prefix):
            return None
        view = identifier(register.name.removeprefix(prefix), taken)
        computed = [n for n, _ in register.schema.columns if _COMPUTED.fullmatch(n)]
        connection.execute(layout.view(view, computed).as_bytes())
        return view

    def layout(self, register: Register, table: str) -> Layout:
        """The layout of a register's table."""
        of = register
        return Layout(self.address.schema, table, of.schema, of.key, order=of.order)

    def _check_format(self, connection: Connection) -> None:
        with self.believed(STORE):
            version = decoded(self._only(connection, STORE), _Format).format
        if version != FORMAT:
            raise StoreMismatch(
                f"{self.address}: the state has the format {version}, and this version of "
                f"stepping_spark reads {FORMAT}; use the version that wrote it"
            )

    def relations(self, connection: Connection) -> set[str]:
        """The names of all tables, views and indexes of the schema."""
        cursor = connection.execute(
            "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
            "ON n.oid = c.relnamespace WHERE n.nspname = $1",
            [self.address.schema],
        )
        return {name for (name,) in cursor}

    def sql(self, text: str, table: str) -> Statement:
        """A statement about a table of the schema; `{}` in the text stands for the table."""
        place = sql.Identifier(self.address.schema, table)
        return sql.SQL(text).format(place)


@contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """Read one committed state in this block, whatever others commit; may be inside a snapshot."""
    if connection.info.transaction_status == TransactionStatus.INTRANS:
        yield
        return
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


def _columns_text(columns: Sequence[Sequence[str]]) -> str:
    return ", ".join(f"{name} {t}" for name, _, t in columns)
