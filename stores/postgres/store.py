"""The Postgres store: state as tables of a schema, one transaction for each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Self, TypeVar

import pyarrow as pa
from psycopg import errors, sql
from pyspark.sql import DataFrame, SparkSession
from typing_extensions import TypeVarTuple

from stepping_spark.errors import StoreError, StoreUnavailable
from stepping_spark.graph.graph import Graph
from stepping_spark.limits import Limits, checked_limits
from stepping_spark.plan.planner import registers_of
from stepping_spark.relations.arrow import concat
from stepping_spark.relations.codec import conform
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.session import get_session
from stepping_spark.store import Held, Now, Register
from stores.batches.spark import keys_of
from stores.postgres.catalog import MADE_BY, State, layout_of, made_by_of, snapshot
from stores.postgres.changes import Change, Changes, Transaction, accepted, stage
from stores.postgres.connection import Address, Connection, identity
from stores.postgres.copy import got, size_of, whole
from stores.postgres.session import Session
from stores.postgres.snapshot import Pinned, pinned
from stores.postgres.statements import Layout
from stores.registers import Served, check_are_registers, check_has_key, described, matched
from stores.snapshots import Pins
from stores.steps import Closing, Turns, check_is_next

Ins = TypeVarTuple("Ins")
Out = TypeVar("Out", covariant=True)

DRIVER_BYTES = 64 << 20
SMALL_BYTES = 1 << 20  # of an output, which is read through at each step


class StorePostgres(Closing):
    """Keeps registers as tables of a Postgres database, in a schema of their own.

    `url` is `postgresql://user:password@host:port/database`; it is never shown with its password.
    `create=True` makes the schema and what is in it, where they are not there. A step is one
    transaction. One process writes at a time: an advisory lock, which ends with its connection,
    keeps others out with a `StoreLocked`; so the connection must not go through a pool that
    shares it. The process that opens the state again takes over, and the old store says so; a fork
    cannot use the store. With `read_only` there is no lock, and each read is of what is committed
    by then. Needs Postgres 15 or newer, and psycopg, also where Spark's workers run.

    Who writes owns the schema and its tables, and is no superuser; who reads needs USAGE and
    SELECT. What others have made is refused where it would run their code: `docs/security.md`,
    installed as `share/doc/stepping-spark/security.md`.

    Anybody may read the tables with SQL, and nobody else may write to them:

    - A cache named `receipts` is the view `receipts`: the columns of its rows, and `_count_`.
    - Each register is a table by the name of the register (that of a cache: `"cache.receipts"`),
      with the columns of its rows, hashes by which keys are found, and the diffs. Rows whose diffs
      are zero are not there. A part `x` of a struct `left` is the column `left.x`; a struct that
      may be NULL has a column `left` which says whether it is there. Lists are `jsonb`. Text has
      `␀0` for the character NUL, which Postgres has not, and `␀␀` for `␀`.
    - A name longer than the 63 bytes that Postgres takes is cut and gets a digest; `_registers_`
      says which register is in which table, and comments what a column is called.
    - `_store_` is one row: the last step, its `now`, and how far sources were read;
      `_output_1_`, … are what the step gave.

    A read or a change of more than `driver_bytes` goes by way of Spark's workers, which connect
    to the database themselves, all to one snapshot of it. `spark` is the session for that: by
    default the active one, or else a local one that is started when it is needed. `limits` are
    those of what it reads and writes at once: see `st.Limits`.

    Any thread may read what is committed. A step belongs to the thread that adds first: until it
    commits or aborts, another that adds or commits gets a `StoreLocked`.

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
    ) -> None:
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
        self._session = Session(
            self._address,
            writes=not read_only,
            check=self._turns.check_open,
            make_way=self._take_over,
        )
        self._catalog = self._session.catalog
        self._opening: Sequence[Register] = ()  # of the circuit that opens it
        self._tables: Served[tuple[Register, Layout]] = Served()
        self._outputs: tuple[Layout, ...] = ()
        self._added: dict[str, Changes] = {}
        self._pins: Pins[Pinned] = Pins()
        self._emptied: dict[str, Layout] = {}  # large outputs whose rows are deleted, not removed
        if registers is not None:
            self.open(registers)

    @classmethod
    def from_graph(
        cls,
        graph: Graph[*Ins, Out],
        url: str,
        *,
        schema: str = "stepping_spark",
        create: bool = False,
        read_only: bool = False,
        driver_bytes: int = DRIVER_BYTES,
        spark: SparkSession | None = None,
        limits: Limits | None = None,
    ) -> Self:
        """The store of a circuit, in a schema of a database.

        See the class for the arguments. Raises `StoreUnavailable` where there is none and `create`
        is not said, or the server cannot be reached, `StoreMismatch` where it is another circuit's,
        `StoreLocked` where another process writes it.
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
        )

    def __repr__(self) -> str:
        return f"<StorePostgres {self._address!r}>"

    # -- opening

    def open(self, registers: Sequence[Register], outputs: Sequence[Schema] = ()) -> None:
        """Get ready to serve these registers; a `StoreMismatch` names those that differ."""
        check_are_registers(registers, "st.StorePostgres.from_graph(graph, url)")
        self._turns.begin()
        try:
            if not self._tables.is_open:
                self._open(registers)
            else:
                kept = described([register for register, _ in self._tables.all.values()])
                self._tables.serve(matched(kept, registers))
            self._outputs = self._catalog.output_layouts(outputs)
        finally:
            self._turns.end()

    def _take_over(self, connection: Connection, there: bool) -> None:
        """Have another store of this process give way, before the lock is taken by the first use.

        A state that this one cannot open is left to the other. Where the connection is made again,
        the other is the one that goes on.
        """
        state = identity(connection, self._address)
        if self._tables.is_open:
            self._turns.go_on(state)
            return
        if there:
            self._catalog.layouts(connection, self._opening, create=False, writes=True)
        self._turns.take_over(state)

    def _open(self, registers: Sequence[Register]) -> None:
        self._opening = registers
        create = self._create and not self._read_only
        try:
            with self._session.use("could not be opened") as connection:
                layouts = self._catalog.layouts(
                    connection, registers, create=create, writes=not self._read_only
                )
            self._session.state()
        except BaseException:
            self._session.close()  # whoever can open it is not to be kept out
            raise
        self._tables.open({r.name: (r, layouts[r.name]) for r in registers})
        self._tables.serve({r.name: r.name for r in registers})

    def close(self) -> None:
        """Forget the step under way and let another writer in."""
        self._turns.close()
        self._tables.close()
        self._session.close()

    # -- what is committed

    def last_step(self) -> int:
        """The number of the last committed step; 0 before the first."""
        return self._known().step

    def last_now(self) -> Now:
        """The `now` of the last committed step; None before the first."""
        return self._known().now

    def last_offsets(self) -> Mapping[str, int]:
        """How far each source of changes was read at the last committed step."""
        return self._known().offsets

    def last_settings(self) -> Mapping[str, str]:
        """Settings of the session that what is kept depends on; empty before they are given."""
        return self._known().settings

    def last_outputs(self) -> tuple[Held, ...] | None:
        """What the last committed step gave; None where it was not kept."""
        self._check_open()

        def found(connection: Connection) -> tuple[Held, ...] | None:
            with snapshot(connection):
                state = self._catalog.load(connection)
                described = [layout_of(said) for said in state.outputs]
                if not state.outputs_kept or described != self._described_outputs():
                    return None
                return tuple(self._whole(connection, layout) for layout in self._outputs)

        return self._reader.answer(found)

    def last_made_by(self) -> tuple[str, ...] | None:
        """What computed each output of the last committed step; None where it was not told."""
        return made_by_of(self._known())

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """Within the block, this thread reads the step that is the last one when it begins.

        It is a transaction, on a connection of its own, that sees what was committed then for as
        long as it lasts. Meanwhile the server keeps the rows that others delete, and a writer that
        has to make a table anew waits: let the block be short.
        """
        self._check_open()
        if self._pins.pinned is not None:
            yield self
            return
        with pinned(self._address) as session, self._pins.pin(session):
            yield self

    @property
    def _reader(self) -> Session:
        return self._pins.pinned or self._session

    def batches(self, register: str) -> int:
        """How many parts the register is kept in: one table."""
        self._layout(register)
        return 1

    # -- a step

    def read(self, register: str, keys: Held | None = None) -> tuple[Held, ...]:
        """The committed value, in parts that add up to it; with keys, the rows that have one.

        By key, what is found comes to the driver, if it is not many rows. The keys of a large
        DataFrame, and few keys of very many rows, select all rows, which Spark's workers fetch.
        """
        layout = self._layout(register)
        wanted = None if keys is None else self._wanted(register, keys)

        def found(connection: Connection) -> Held:
            if wanted is not None:
                most = sql.SQL(" LIMIT {}").format(sql.Literal(self._limits.given_rows + 1))
                rows = concat(got(connection, layout, layout.of_keys(wanted) + most), layout.schema)
                if rows.num_rows <= self._limits.given_rows:
                    return rows
            with snapshot(connection):
                return self._whole(connection, layout, None if wanted is None else 0)

        if wanted is not None and not wanted.num_rows:
            return ()
        held = self._reader.answer(found)
        return () if isinstance(held, pa.Table) and not held.num_rows else (held,)

    def add(self, register: str, change: Held) -> None:
        """Add a change in the step under way; a DataFrame is computed here, once."""
        layout = self._layout(register)
        self._check_writable()
        self._turns.begin()
        held = accepted(change, register, layout, self._driver_bytes, self._limits)
        changes = self._added.setdefault(layout.table, Changes(register, layout))
        if isinstance(held, DataFrame):
            with self._session.use("could not take a change") as connection:
                staged = stage(connection, held, layout, self._catalog, self._session.connected)
                changes.staged.append(staged)
        elif held.num_rows:
            changes.tables.append(held)

    def commit(
        self,
        step: int,
        now: Now,
        outputs: Sequence[Held] | None = None,
        offsets: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        made_by: Sequence[str] | None = None,
    ) -> None:
        """Make the additions of the step durable and visible, in one transaction.

        Where the connection is lost while it ends, `last_step` tells whether it was committed.
        """
        self._check_writable()
        self._turns.begin()
        try:
            old = self._known()
            check_is_next(step, old.step)
            with self._session.use("could not commit the step") as connection:
                given = self._given(connection, outputs)
                new = State(
                    step,
                    now,
                    old.offsets if offsets is None else dict(offsets),
                    old.outputs if given is None else self._described_outputs(made_by),
                    given is not None,
                    old.settings if settings is None else dict(settings),
                )
                self._check_connected()
                with self._session.committing(new):
                    emptied = self._write(connection, given or [], old, new)
                self._added = {}
            self._reclaim(emptied)
        finally:
            self._turns.end()

    def _write(
        self,
        connection: Connection,
        given: Sequence[tuple[Layout, Change]],
        old: State,
        new: State,
    ) -> list[Layout]:
        changes = list(self._added.values())
        made = Transaction(connection, self._catalog, self._limits, together=True)
        try:
            with connection.transaction():
                made.write(changes, given, old, new)
        except errors.NumericValueOutOfRange:
            # Again, a statement at a time: it fails at the register whose sum it was.
            made = Transaction(connection, self._catalog, self._limits, together=False)
            with connection.transaction():
                made.write(changes, given, old, new)
        return made.emptied

    def _reclaim(self, emptied: Sequence[Layout]) -> None:
        """Have the server forget the rows of a large output, which each step would look at again.

        What a step gives comes behind the rows that it deletes: those are gone from the file after
        the next step. This one is committed, whatever becomes of that.
        """
        self._emptied.update({layout.table: layout for layout in emptied})
        if not self._emptied:
            return
        with suppress(StoreError), self._session.use("could not be compacted") as connection:
            for layout in list(self._emptied.values()):
                connection.execute(sql.SQL("VACUUM {}").format(layout.place).as_bytes())
                if size_of(connection, layout)[1] < SMALL_BYTES:
                    del self._emptied[layout.table]

    def _given(
        self, connection: Connection, outputs: Sequence[Held] | None
    ) -> list[tuple[Layout, Change]] | None:
        """What a step gave, with the tables for it."""
        if outputs is None:
            return None
        if len(outputs) != len(self._outputs):
            raise StoreError(
                f"the step gave {len(outputs)} outputs, and the store was opened for "
                f"{len(self._outputs)}; open it with the schemas of the outputs"
            )
        given: list[tuple[Layout, Change]] = []
        for layout, held in zip(self._outputs, outputs, strict=True):
            kept = accepted(held, layout.table, layout, self._driver_bytes, self._limits)
            if isinstance(kept, DataFrame):
                connected = self._session.connected
                staged = stage(connection, kept, layout, self._catalog, connected)
                given.append((layout, staged))
            else:
                given.append((layout, kept))
        return given

    def abort(self) -> None:
        """Forget the additions of the step under way, if it is this thread's."""
        self._turns.abort()

    def compact(self) -> None:
        """Have the server reclaim the room of rows that are gone; changes nothing to be read."""
        self._check_writable()
        self._turns.begin()
        try:
            with self._session.use("could not be compacted") as connection:
                for layout in (*(its for _, its in self._tables.all.values()), *self._outputs):
                    there = sql.SQL("SELECT to_regclass({})").format(
                        sql.Literal(layout.place.as_string())
                    )
                    if connection.execute(there.as_bytes()).fetchone() != (None,):
                        vacuum = sql.SQL("VACUUM (ANALYZE) {}").format(layout.place)
                        connection.execute(vacuum.as_bytes())
        finally:
            self._turns.end()

    # -- one step at a time

    def _forget(self) -> None:
        dropped, self._added = self._added, {}
        tables = [staged.table for changes in dropped.values() for staged in changes.staged]
        if tables and not self._session.lost:
            # What stays is swept when the store is opened, or connects, again.
            with suppress(StoreError), self._session.use("could not drop a change") as connection:
                for table in tables:
                    drop = sql.SQL("DROP TABLE IF EXISTS {}").format(table)
                    connection.execute(drop.as_bytes())

    def _check_connected(self) -> None:
        """See that large changes are still where they were put."""
        staged = [s for changes in self._added.values() for s in changes.staged]
        if any(s.connected != self._session.connected for s in staged):
            raise StoreUnavailable(
                f"{self._address}: the connection was lost since a change was added, and the "
                "change with it; nothing was committed: step again"
            )

    # -- what is asked for

    def _known(self) -> State:
        self._check_open()
        return self._reader.state()

    def _check_open(self) -> None:
        self._turns.check_open()
        self._tables.check_open()

    def _check_writable(self) -> None:
        self._check_open()
        if self._read_only:
            raise StoreError(
                f"{self._address}: the store is open with read_only=True; open it without, to step"
            )
        self._pins.check_none()

    def _layout(self, register: str) -> Layout:
        self._check_open()
        _, layout = self._tables.of(register)
        return layout

    def _wanted(self, register: str, keys: Held) -> pa.Table | None:
        """The keys as a table; None for too many."""
        of, _ = self._tables.of(register)
        check_has_key(of)
        if isinstance(keys, DataFrame):
            keys = keys.limit(self._limits.looked_up_keys + 1).toArrow()
            if keys.num_rows > self._limits.looked_up_keys:
                return None
        return conform(keys, keys_of(of))

    def _whole(
        self, connection: Connection, layout: Layout, driver_bytes: int | None = None
    ) -> Held:
        most = self._driver_bytes if driver_bytes is None else driver_bytes
        return whole(
            connection, layout, self._address, most, self._limits.part_bytes, self._spark_session
        )

    def _described_outputs(self, made_by: Sequence[str] | None = None) -> list[object]:
        return [
            {
                "table": layout.described,
                "schema": layout.schema.kinds,
                **({} if made_by is None else {MADE_BY: made_by[i]}),
            }
            for i, layout in enumerate(self._outputs)
        ]

    def _spark_session(self) -> SparkSession:
        if self._spark is None:
            self._spark = get_session()
        return self._spark
