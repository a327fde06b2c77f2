"""What a state in Postgres says of itself, and how it becomes the state of another circuit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import sql

from stepping_spark.plan.difference import Described, described
from stepping_spark.spark.relation import Relation
from stepping_spark.store import Now, Register, Size
from stores.postgres import evolution
from stores.postgres.catalog import Catalog
from stores.postgres.connection import Connection
from stores.postgres.copy import size_on_disk
from stores.postgres.last_step import LastStep, made_by_of
from stores.postgres.session import Session
from stores.postgres.statements import Layout
from stores.registers import Served


class Told:
    """What the store says of its last step and its circuit, and how this is replaced."""

    evolves: bool
    _read_only: bool
    _session: Session
    _catalog: Catalog
    _tables: Served[tuple[Register, Layout]]
    _next: dict[str, tuple[Register, Layout]] | None = None  # of a circuit to evolve to
    _stay: Mapping[str, Layout] = {}  # of the registers that stay then, their tables

    def last_step(self) -> int:
        """The number of the last committed step; 0 before the first."""
        return self._known().step

    def last_now(self) -> Now:
        """The `now` of the last committed step; None before the first."""
        return self._known().now

    def last_offsets(self) -> Mapping[str, int]:
        """The offset of each source of changes at the last committed step."""
        return self._known().offsets

    def last_settings(self) -> Mapping[str, str]:
        """The session settings that the state depends on; empty before they are set."""
        return self._known().settings

    def last_made_by(self) -> tuple[str, ...] | None:
        """The computation of each output of the last committed step; None if it is unknown."""
        return made_by_of(self._known())

    def last_circuit(self) -> str | None:
        """The text of the circuit that took the last committed step; None if it is unknown."""
        self._check_open()
        if self._read_only and not self.evolves:
            return None  # a reader may have no right to the table, and needs it for this only
        return self._session.answer(self._catalog.circuit)

    def described(self) -> Described:
        """The registers of the state, as `Register.describe` gives them, by their names there."""
        return described([register for register, _ in self._tables.all.values()])

    def read_kept(self, name: str) -> tuple[Relation, ...]:
        """All rows of a register, by its name in the state."""
        _, layout = self._tables.all[name]
        return self._read(layout, None)

    def size_kept(self, name: str) -> Size:
        """The size of a register, by its name in the state. Counts the rows."""
        _, layout = self._tables.all[name]
        return self._reader.answer(lambda connection: size_on_disk(connection, layout))

    def evolve(self, registers: Sequence[Register], names: Mapping[str, str]) -> None:
        """In the current step, replace the registers of the state: see `EvolvingStore`."""
        self._begin_step()
        self._stay = {name: self._tables.all[found][1] for name, found in names.items()}
        with self._session.use("could not be looked at") as connection:
            found = evolution.next_layouts(self._catalog, connection, registers, self._stay)
        self._next = {register.name: (register, layout) for register, layout in found}

    def _begin_with(self, circuit: str | None, connection: Connection) -> None:
        """What the transaction of a step begins with."""
        if self._next is not None:
            evolution.evolve(self._catalog, connection, list(self._next.values()), self._stay)
        if circuit is not None:
            evolution.tell(self._catalog, connection, circuit)

    @property
    def _reader(self) -> Session:
        raise NotImplementedError

    def _known(self) -> LastStep:
        raise NotImplementedError

    def _check_open(self) -> None:
        raise NotImplementedError

    def _begin_step(self) -> None:
        raise NotImplementedError

    def _read(self, layout: Layout, where: sql.Composed | None) -> tuple[Relation, ...]:
        raise NotImplementedError
