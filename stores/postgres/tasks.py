"""The state of a Postgres store as Spark's tasks read it, and what they add to it.

A task has a connection of its own. It reads the last committed step: the store's process is the
only one that writes. What it adds goes to staging tables of the step, under a number that no other
attempt has. The store's process merges the rows of those attempts that succeeded.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from psycopg import sql

from stepping_spark.base.errors import StoreError
from stepping_spark.relations.arrow import concat
from stepping_spark.relations.codec import conform
from stepping_spark.relations.relation import DriverRelation, Relation
from stepping_spark.relations.store import AddedRows, Now, Register
from stores.postgres.connection import Address, Connection
from stores.postgres.copy import few_rows, got, put, size_of
from stores.postgres.statements import Layout


@dataclass
class PostgresState:
    """The state before a step, and the staging tables of its registers, by their names."""

    address: Address
    registers: Mapping[str, tuple[Register, Layout]]
    staging: Mapping[str, sql.Identifier]
    most_rows: int  # that a task reads for some keys at once
    most_bytes: int  # of a register that a task reads whole
    step: int
    now: Now
    settings: Mapping[str, str]
    added: list[AddedRows] = field(default_factory=list)
    _open: list[Connection] = field(default_factory=list)

    @contextmanager
    def begun(self) -> Iterator[PostgresState]:
        """The same state for an attempt of a task, with a connection that ends with the block."""
        attempt = replace(self, added=[], _open=[])
        try:
            yield attempt
        finally:
            for connection in attempt._open:
                connection.close()

    def last_step(self) -> int:
        """The number of the last committed step."""
        return self.step

    def last_now(self) -> Now:
        """The `now` of the last committed step."""
        return self.now

    def last_settings(self) -> Mapping[str, str]:
        """The session settings that the state depends on."""
        return self.settings

    def read(self, register: str, keys: Relation | None = None) -> tuple[Relation, ...]:
        """The committed value, as parts that add up to it; with `keys`, only the rows of those."""
        of, layout = self.registers[register]
        where = None
        if keys is not None:
            assert keys.table is not None
            if not keys.table.num_rows:
                return ()
            where = layout.of_keys(conform(keys.table, of.keys))
        with self.address.errors("could not be read by a worker"):
            held = self._read(register, layout, where)
        return () if held.is_empty else (held,)

    def _read(self, register: str, layout: Layout, where: sql.Composed | None) -> DriverRelation:
        connection = self._connection()
        if where is not None:
            few = few_rows(connection, layout, where, self.most_rows)
            if few is not None:
                return few
        elif (size := size_of(connection, layout)[1]) > self.most_bytes:
            raise StoreError(
                f"register {register!r} has {size:,} bytes, and a task reads at most "
                f"{self.most_bytes:,} of it"
            )
        rows = concat(got(connection, layout, where), layout.schema)
        return DriverRelation(rows, layout.schema, consolidated=True)

    def add(self, register: str, change: Relation) -> None:
        """Write the rows of a change to the staging table of the register."""
        assert isinstance(change, DriverRelation)
        _, layout = self.registers[register]
        rows = conform(change.added_up().table, layout.schema)
        if rows.num_rows:
            number = secrets.randbits(62)
            with self.address.errors("could not take rows from a worker"):
                put(self._connection(), layout, [rows], self.staging[register], number)
            self.added.append(AddedRows(register, rows.num_rows, number))

    def _connection(self) -> Connection:
        if not self._open:
            self._open.append(self.address.connect("worker"))
        return self._open[0]
