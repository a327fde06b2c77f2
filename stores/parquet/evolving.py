"""A state in files that becomes the state of another circuit, within one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stepping_spark.plan.difference import Described
from stepping_spark.spark.relation import Relation
from stepping_spark.store import Register, Size
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


class Evolving:
    """The part of the Parquet store that an `EvolvingStore` is."""

    _committed: Committed
    _reading: Reading
    _tiers: Served[Tiers[FileBatch]]
    _next: Next | None = None

    def last_circuit(self) -> str | None:
        """The text of the circuit that took the last committed step; None if it is unknown."""
        self._reading.current()
        return self._committed.kept.circuit

    def described(self) -> Described:
        """The registers of the state, as `Register.describe` gives them, by their names there."""
        return self._committed.kept.registers

    def read_kept(self, name: str) -> tuple[Relation, ...]:
        """All rows of a register, by its name in the state."""
        return self._reading.whole(self._tiers.all[name].register)

    def size_kept(self, name: str) -> Size:
        """The size of a register, by its name in the state."""
        return size_of(self._reading.batches_of(self._tiers.all[name].register))

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

    def _tiers_of_each(self, registers: Iterable[Register]) -> dict[str, Tiers[FileBatch]]:
        raise NotImplementedError

    def _begin_step(self) -> None:
        raise NotImplementedError
