"""The Postgres store: state in the tables of a schema, one transaction per step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Self, TypeVar

from psycopg import sql

from stepping_spark.base.errors import StoreUnavailable
from stepping_spark.base.limits import Limits, checked_limits
from stepping_spark.base.packages import SparkSession
from stepping_spark.circuit.graph import AnyGraph
from stepping_spark.plan.difference import Described, described, names_in
from stepping_spark.plan.planner import registers_of
from stepping_spark.relations.placement import bytes_given
from stepping_spark.relations.relation import Relation
from stepping_spark.relations.store import AddedRows, Register, Size, fingerprint
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.session import get_session
from stores.base import (
    BaseStore,
    LastStep,
    Served,
    check_are_registers,
    checked_beside,
    checked_since,
    no_key,
)
from stores.postgres.catalog import (
    CIRCUIT,
    REGISTERS,
    STORE,
    TABLES,
    Catalog,
    State,
    layout_of,
    snapshot,
)
from stores.postgres.changes import Additions, Outputs
from stores.postgres.connection import Address, Connection, identity
from stores.postgres.copy import TaskTables, all_rows, few_rows, size_on_disk, wanted_keys
from stores.postgres.session import PostgresSession
from stores.postgres.statements import Layout, identifier
from stores.step_lock import Pins, Turns


def tell(catalog: Catalog, connection: Connection, circuit: str) -> None:
    """Replace the stored text of the circuit."""
    table = catalog.sql(f"CREATE TABLE IF NOT EXISTS {{}} ({TABLES[CIRCUIT]})", CIRCUIT)
    connection.execute(table.as_bytes())
    connection.execute(catalog.sql("DELETE FROM {}", CIRCUIT).as_bytes())
    connection.execute(catalog.sql("INSERT INTO {} VALUES ($1)", CIRCUIT).as_bytes(), [circuit])


def evolve(
    catalog: Catalog,
    connection: Connection,
    registers: Sequence[tuple[Register, Layout]],
    name_in_state: Mapping[str, Layout],
) -> None:
    """Make these the registers of the state, within a transaction.

    Kept registers keep their tables, the tables of removed registers are dropped, and the other
    registers get new ones.
    """
    stay = {layout.table for layout in name_in_state.values()}
    tables = catalog.tables(connection).values()
    tables_by_name = {table.name: table for table in tables if table.name in stay}
    for table in tables:
        if table.name not in stay:
            if table.view is not None:
                connection.execute(catalog.sql("DROP VIEW IF EXISTS {}", table.view).as_bytes())
            connection.execute(catalog.sql("DROP TABLE IF EXISTS {}", table.name).as_bytes())
    connection.execute(catalog.sql("DELETE FROM {}", REGISTERS).as_bytes())
    taken = catalog.relations(connection)
    for register, layout in registers:
        old = tables_by_name.get(layout.table)
        if old is None:
            view = catalog.make(connection, register, layout, taken)
        else:
            view = old.view
            catalog.comment(connection, register, layout)
        catalog.note(connection, register, layout, view)
    update = catalog.sql("UPDATE {} SET fingerprint = $1", STORE)
    connection.execute(update.as_bytes(), [fingerprint([r for r, _ in registers])])


def next_layouts(
    catalog: Catalog,
    connection: Connection,
    registers: Sequence[Register],
    kept: Mapping[str, Layout],
) -> list[tuple[Register, Layout]]:
    """The registers of a circuit with their tables: the ones that are kept, and new ones."""
    tables = catalog.tables(connection).values()
    stay = {layout.table for layout in kept.values()}
    gone = [table for table in tables if table.name not in stay]
    taken = catalog.relations(connection) - {t.name for t in gone} - {t.view or "" for t in gone}
    return [
        (r, catalog.layout(r, kept[r.name].table if r.name in kept else identifier(r.name, taken)))
        for r in registers
    ]


T = TypeVar("T")


class Pinned(PostgresSession):
    """A separate connection, in a transaction that sees the state at its start."""

    def __init__(self, address: Address) -> None:
        super().__init__(address, writes=False)
        with self.use("could not be read") as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._seen = self.catalog.load(connection)  # the first query fixes the snapshot

    def state(self) -> State:
        """The last step when the snapshot was taken."""
        return self._seen

    def answer(self, question: Callable[[Connection], T]) -> T:
        """The result of a query. A lost connection is an error: the snapshot is lost with it."""
        if self.lost:
            raise StoreUnavailable(
                f"{self.address}: the connection of the snapshot of step {self._seen.last.step} "
                "was lost; leave the block, and take another snapshot"
            )
        with self.use("could not be read") as connection:
            return question(connection)


@contextmanager
def pinned(address: Address) -> Iterator[Pinned]:
    """A snapshot for the duration of the block."""
    session = Pinned(address)
    try:
        yield session
    finally:
        session.close()


DRIVER_BYTES = 64 << 20


class StorePostgres(BaseStore[tuple[Register, Layout], Pinned]):
    """Stores registers as tables of a Postgres database, in a schema of their own.

    `url` is `postgresql://user:password@host:port/database`; messages never show the password.
    `create=True` creates the schema and its tables if they do not exist. A step is one transaction.
    One process writes at a time: an advisory lock keeps others out, with `StoreLocked`. The lock
    ends with its connection, so the connection must not go through a pool that shares it. If the
    same process opens the state again, the new store takes over, and the old one raises errors. A
    fork cannot use the store. With `read_only` there is no lock, and each read sees the last
    committed step. Needs Postgres 15 or newer, and psycopg, also on Spark's workers.

    A writer owns the tables; a reader needs USAGE and SELECT. Those who may write to the schema are
    trusted: see `docs/guide/security.md`, installed as `share/doc/stepping-spark/security.md`.

    Others may read the tables with SQL, but must not write to them:

    - A cache named `receipts` is the view `receipts`: the columns of its rows, and `_count_`.
    - Each register is a table with the register's name (that of a cache: `"cache.receipts"`): the
      columns of its rows, hashes to look up keys, and the diffs (weights and sums). Rows whose
      diffs are zero are absent. A part `x` of a struct `left` is the column `left.x`. A struct that
      may be NULL has a boolean column `left`, which is true if it is not NULL. Lists are `jsonb`.
      Text has `␀0` for the character NUL, which Postgres cannot store, and `␀␀` for `␀`.
    - A name longer than the 63 bytes that Postgres allows is cut and gets a digest. `_registers_`
      has the table of each register, and comments have the full names of columns.
    - `_store_` has one row: the last step, its `now`, and the offsets of the sources.
      `_output_1_`, … are the outputs of that step.

    A read or a change of more than `driver_bytes` goes through Spark's workers, which connect to
    the database themselves, all with one snapshot. `spark` is the session for that: by default the
    active one, or a local one that is started when needed. `limits` bounds the reads: see
    `st.Limits`.

    Any thread may read the committed state. A step belongs to the thread that adds first: until it
    commits or aborts, other threads that add or commit get `StoreLocked`.

    >>> from urllib.parse import quote
    >>> url = f"postgresql://user:{quote(password)}@host/db"             # doctest: +SKIP
    >>> store = st.StorePostgres.from_graph(graph, url, schema="flights", create=True)
    ... # doctest: +SKIP
    """

    def __init__(
        self,
        url: str,
        registers: Sequence[Register] | None = None,
        *,
        schema: str = "stepping_spark",
        create: bool = False,
        read_only: bool = False,
        driver_bytes: int = DRIVER_BYTES,
        spark: SparkSession | None = None,
        limits: Limits | None = None,
        evolve: bool = False,
    ) -> None:
        self.evolves = evolve
        self._limits = checked_limits(limits)
        self._address = Address(url, schema)
        self._create = create
        self._read_only = read_only
        self._driver_bytes = driver_bytes
        self._spark = spark
        self._turns = Turns(
            self._forget,
            f"{self._address}: the store is closed; open it again with "
            "st.StorePostgres.from_graph(graph, url, schema=…)",
            shown=repr(self._address),
            give_way=lambda: self._session.give_way(),
        )
        self._session = PostgresSession(
            self._address,
            writes=not read_only,
            check=self._turns.check_open,
            make_way=self._take_over,
        )
        self._catalog = self._session.catalog
        self._opening: Sequence[Register] = ()  # of the circuit that opens the store
        self._registers: Served[tuple[Register, Layout]] = Served()
        self._stay: Mapping[str, Layout] = {}  # of registers that the next circuit keeps
        self._outputs = Outputs(self._session, driver_bytes)
        self._added = Additions(self._session, driver_bytes)
        self._pins: Pins[Pinned] = Pins()
        if registers is not None:
            self.open(registers)

    @classmethod
    def from_graph(
        cls,
        graph: AnyGraph,
        url: str,
        *,
        schema: str = "stepping_spark",
        create: bool = False,
        read_only: bool = False,
        driver_bytes: int = DRIVER_BYTES,
        spark: SparkSession | None = None,
        limits: Limits | None = None,
        evolve: bool = False,
    ) -> Self:
        """Open the store of a circuit, in a schema of a database.

        See the class for the arguments. Raises `StoreUnavailable` if there is no store and `create`
        is false, or if the server cannot be reached; `StoreMismatch` if the state is that of
        another circuit; `StoreLocked` if another process writes it.
        """
        return cls(
            url,
            registers_of(graph),
            schema=schema,
            create=create,
            read_only=read_only,
            driver_bytes=driver_bytes,
            spark=spark,
            limits=limits,
            evolve=evolve,
        )

    def __repr__(self) -> str:
        return f"<StorePostgres {self._address!r}>"

    # -- opening

    def open(self, registers: Sequence[Register], outputs: Sequence[Schema] = ()) -> None:
        """Open these registers. Raises `StoreMismatch` with the registers that differ."""
        check_are_registers(registers, "st.StorePostgres.from_graph(graph, url)")
        self._turns.begin()
        try:
            if not self._registers.is_open:
                self._open(registers)
            else:
                self._registers.serve(names_in(self.described(), registers, evolves=self.evolves))
            self._outputs.layouts = self._catalog.output_layouts(outputs)
        finally:
            self._turns.end()

    def _take_over(self, connection: Connection, there: bool) -> None:
        """Take the state over from another store of this process, before the lock is taken.

        If this store cannot open the state, the other one keeps it. After a reconnection of this
        store, the other one keeps it, too.
        """
        state = identity(connection, self._address)
        if self._registers.is_open:
            self._turns.go_on(state)
            return
        if there and not self.evolves:
            self._catalog.layouts(connection, self._opening, create=False, writes=True)
        self._turns.take_over(state)

    def _open(self, registers: Sequence[Register]) -> None:
        self._opening = registers
        create = self._create and not self._read_only
        try:
            with self._session.use("could not be opened") as connection:
                described = list(registers)
                writes = not self._read_only
                if self.evolves and self._catalog.is_there(connection, writes=writes):
                    described, create = self._catalog.registers(connection), False
                layouts = self._catalog.layouts(connection, described, create=create, writes=writes)
            self._session.state()
        except BaseException:
            self._session.close()  # do not keep others out
            raise
        self._registers.open({r.name: (r, layouts[r.name]) for r in described})
        self._registers.serve(names_in(self.described(), registers, evolves=self.evolves))

    def close(self) -> None:
        """Drop the current step and release the lock."""
        self._turns.close()
        self._registers.close()
        self._session.close()

    # -- the committed state

    def last_outputs(self) -> tuple[Relation, ...] | None:
        """The output of the last committed step; None if it was not kept."""
        self._check_open()

        def found(connection: Connection) -> tuple[Relation, ...] | None:
            with snapshot(connection):
                state = self._catalog.load(connection)
                described = [layout_of(output) for output in state.outputs]
                if not state.outputs_kept or described != self._outputs.described():
                    return None
                return tuple(self._whole(connection, layout) for layout in self._outputs.layouts)

        return self._reader.answer(found)

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """Within the block, this thread reads the last committed step as of the block's start.

        The block is a transaction on a separate connection. While it runs, the server keeps rows
        that others delete, and a writer that has to rewrite a table waits. Keep the block short.
        """
        self._check_open()
        if self._pins.pinned is not None:
            yield self
            return
        with pinned(self._address) as session, self._pins.pin(session):
            yield self

    def last_circuit(self) -> str | None:
        """The text of the circuit that took the last committed step; None if it is unknown."""
        self._check_open()
        if self._read_only and not self.evolves:
            return None  # a reader may have no right to the table, and needs it for this only
        return self._session.answer(self._catalog.circuit)

    def described(self) -> Described:
        """The registers of the state, as `Register.describe` gives them, by their names there."""
        return described([register for register, _ in self._registers.all.values()])

    def read_kept(self, name: str) -> tuple[Relation, ...]:
        """All rows of a register, by its name in the state."""
        return self._read(self._registers.all[name][1], None)

    def size_kept(self, name: str) -> Size:
        """The size of a register, by its name in the state. Counts the rows."""
        _, layout = self._registers.all[name]
        return self._reader.answer(lambda connection: size_on_disk(connection, layout))

    @property
    def _reader(self) -> PostgresSession:
        return self._pins.pinned or self._session

    def batches(self, register: str) -> int:
        """The number of parts of the register: always 1, its table."""
        self._entry(register)
        return 1

    def size(self, register: str) -> Size:
        """The size of the register's table, with its indexes. Counts the rows."""
        _, layout = self._entry(register)
        return self._reader.answer(lambda connection: size_on_disk(connection, layout))

    # -- a step

    def read(self, register: str, keys: Relation | None = None) -> tuple[Relation, ...]:
        """The committed value, as parts that add up to it; with `keys`, only the rows of those.

        A read by keys returns few rows on the driver. Spark's workers read the rows if the keys are
        a large DataFrame, or if a few keys have very many rows.
        """
        of, layout = self._entry(register)
        if keys is None:
            return self._read(layout, None)
        if not of.key:
            raise no_key(of)
        wanted = wanted_keys(keys, of.keys)
        if wanted is None:
            return self._read(layout, None)
        return self._read(layout, layout.of_keys(wanted)) if wanted.num_rows else ()

    def read_since(
        self, register: str, keys: Relation, since: Sequence[int]
    ) -> tuple[Relation, ...]:
        """The rows of keys from a position in the order on, by an index lookup."""
        of, layout = self._entry(register)
        _, wanted = checked_since(of, keys)
        return self._read(layout, layout.since(wanted, since))

    def read_beside(self, register: str, rows: Relation, buckets: int) -> tuple[Relation, ...]:
        """The rows in the same buckets as some rows, by an index lookup for each bucket."""
        of, layout = self._entry(register)
        return self._read(layout, layout.beside(checked_beside(of, rows), buckets))

    def evolve(self, registers: Sequence[Register], names: Mapping[str, str]) -> None:
        """In the current step, replace the registers of the state: see `EvolvingStore`."""
        self._begin_step()
        self._stay = {
            name: self._registers.all[name_in_state][1] for name, name_in_state in names.items()
        }
        with self._session.use("could not be looked at") as connection:
            tables = next_layouts(self._catalog, connection, registers, self._stay)
        self._next = {register.name: (register, layout) for register, layout in tables}

    def _read(self, layout: Layout, where: sql.Composed | None) -> tuple[Relation, ...]:
        """The rows of a table that meet a condition; all of its rows if these are too many."""

        def found(connection: Connection) -> Relation:
            if where is not None:
                most = min(self._limits.given_rows, self._limits.fetched_rows)
                few = few_rows(connection, layout, where, most)
                if few is not None:
                    return few
            with snapshot(connection):
                return self._whole(connection, layout, None if where is None else 0)

        answer = self._reader.answer(found)
        return () if answer.is_empty else (answer,)

    def add(self, register: str, change: Relation) -> None:
        """Add a change in the current step; a DataFrame is computed here, once."""
        _, layout = self._entry(register)
        self._begin_step()
        self._added.add(register, layout, change)

    def serves_tasks(self, *, here: bool) -> bool:
        """Tasks reach the server from any machine."""
        return True

    def for_tasks(self) -> TaskTables:
        """The state for tasks, which connect to the server themselves."""
        self._begin_step()
        served = self._registers.by_name
        staging = self._added.for_tasks(layout for _, layout in served.values())
        limits = self._limits
        return TaskTables(
            self._address,
            dict(served),
            {name: staging[layout.table] for name, (_, layout) in served.items()},
            min(limits.given_rows, limits.fetched_rows),
            bytes_given(limits),
            last=self._last(),
        )

    def merge_meanwhile(self, rows: int) -> None:
        """Tables have nothing to merge."""

    def add_written(self, register: str, added: Sequence[AddedRows]) -> None:
        """Add the rows that attempts of tasks have written, in the current step."""
        _, layout = self._entry(register)
        self._begin_step()
        self._added.add_attempts(register, layout, {int(str(x.written)): x.rows for x in added})

    def _commit(
        self, last: LastStep, outputs: Sequence[Relation] | None, circuit: str | None
    ) -> None:
        old = self._session.state()
        with self._session.use("could not commit the step") as connection:
            staged_outputs = self._outputs.with_tables(connection, outputs)
            if staged_outputs is None:
                new = State(replace(last, made_by=None), old.outputs)
            else:
                new = State(last, self._outputs.described(last.made_by), outputs_kept=True)
            self._added.check_connected()
            with self._session.committing(new):
                before = partial(self._begin_with, circuit)
                emptied = self._added.write(connection, staged_outputs or [], old, new, before)
            self._added.clear()
            if self._next is not None:
                self._registers.replace(self._next)
                self._next = None
        self._outputs.reclaim(emptied)

    def _begin_with(self, circuit: str | None, connection: Connection) -> None:
        """Begin the transaction of a step: evolve the registers, and store the circuit."""
        if self._next is not None:
            evolve(self._catalog, connection, list(self._next.values()), self._stay)
        if circuit is not None:
            tell(self._catalog, connection, circuit)

    def compact(self) -> None:
        """VACUUM the tables, to reclaim the space of deleted rows. Readers see no difference."""
        self._begin_step()
        layouts = (*(its for _, its in self._registers.all.values()), *self._outputs.layouts)
        try:
            with self._session.use("could not be compacted") as connection:
                for layout in layouts:
                    self._catalog.vacuum(connection, layout)
        finally:
            self._turns.end()

    def _forget(self) -> None:
        self._next = None
        self._added.forget()

    # -- registers and their tables

    def _last(self) -> LastStep:
        self._check_open()
        return self._reader.state().last

    def _check_open(self) -> None:
        self._turns.check_open()
        self._registers.check_open()

    def _whole(self, connection: Connection, layout: Layout, most: int | None = None) -> Relation:
        most = self._driver_bytes if most is None else most
        return all_rows(connection, layout, self._address, most, self._spark_session)

    def _spark_session(self) -> SparkSession:
        if self._spark is None:
            self._spark = get_session()
        return self._spark
