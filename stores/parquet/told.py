"""What a state in files says of itself, and how it becomes the state of another circuit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stepping_spark.limits import Limits
from stepping_spark.plan.difference import Described
from stepping_spark.spark.relation import Relation
from stepping_spark.store import Now, Register, Size, now_from_text
from stores.batches.tiers import Tiers, size_of
from stores.parquet.commits import Committed
from stores.parquet.kept import Kept
from stores.parquet.manifest import FileBatch
from stores.parquet.reading import Batches, Reading
from stores.registers import Served


@dataclass(frozen=True)
class Next:
    """The registers of a circuit that a state evolves to; `names` has those that stay."""

    kept: Kept
    names: Mapping[str, str]
    tiers: dict[str, Tiers[FileBatch]]

    def batches(self, live: Mapping[str, Batches]) -> dict[str, Batches]:
        """What the registers have of the state."""
        return {name: live.get(found, ()) for name, found in self.names.items()}


class Told:
    """What the Parquet store says of its last step and its circuit, and how this is replaced."""

    _limits: Limits
    _committed: Committed
    _reading: Reading
    _tiers: Served[Tiers[FileBatch]]
    _next: Next | None = None

    def last_step(self) -> int:
        """The number of the last committed step; 0 before the first."""
        return self._reading.current()[0].step

    def last_now(self) -> Now:
        """The `now` of the last committed step; None before the first."""
        return now_from_text(self._reading.current()[0].now)

    def last_offsets(self) -> Mapping[str, int]:
        """How far each source of changes was read at the last committed step."""
        return self._reading.current()[0].offsets

    def last_settings(self) -> Mapping[str, str]:
        """The session's settings that the state depends on; empty before they are given."""
        return self._reading.current()[0].settings

    def last_made_by(self) -> tuple[str, ...] | None:
        """What computed each output of the last committed step; None if that is unknown."""
        return self._reading.current()[0].made_by

    def last_circuit(self) -> str | None:
        """The text of the circuit that took the last committed step; None if it is unknown."""
        self._reading.current()
        return self._committed.kept.circuit

    def described(self) -> Described:
        """The registers of the state, as `Register.describe` gives them, by their names there."""
        return self._committed.kept.registers

    def read_kept(self, name: str) -> tuple[Relation, ...]:
        """All rows of a register, by its name in the state."""
        return self._reading.whole(self._tiers.all[name].register, self._limits.local_rows)

    def size_kept(self, name: str) -> Size:
        """The size of a register, by its name in the state."""
        return size_of(self._reading.batches_of(self._tiers.all[name].register))

    def batches(self, register: str) -> int:
        """How many batches the register is kept in."""
        return len(self._reading.batches_of(self._tiers_of(register).register))

    def size(self, register: str) -> Size:
        """The size of the register, by its files."""
        return size_of(self._reading.batches_of(self._tiers_of(register).register))

    def evolve(self, registers: Sequence[Register], names: Mapping[str, str]) -> None:
        """In the current step, replace the registers of the state: see `EvolvingStore`."""
        self._begin_step()
        kept = self._committed.kept.evolved(registers, names)
        self._next = Next(kept, dict(names), self._tiers_of_each(map(kept.of, registers)))

    @property
    def _kept(self) -> Kept:
        """What the state says of itself, or will say after the step under way."""
        return self._committed.kept if self._next is None else self._next.kept

    def _evolving(self, register: str) -> Tiers[FileBatch] | None:
        """A register of the circuit that the step under way evolves to."""
        return None if self._next is None else self._next.tiers.get(register)

    def _tiers_of(self, register: str) -> Tiers[FileBatch]:
        raise NotImplementedError

    def _tiers_of_each(self, registers: Iterable[Register]) -> dict[str, Tiers[FileBatch]]:
        raise NotImplementedError

    def _begin_step(self) -> None:
        raise NotImplementedError
