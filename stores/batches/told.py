"""What a state in memory says of itself, and how it becomes the state of another circuit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stepping_spark.plan.difference import Described, described
from stepping_spark.spark.relation import Relation
from stepping_spark.store import Register, Size
from stores.batches.last_step import Batch, LastStep, whole
from stores.batches.tiers import Tiers, size_of
from stores.registers import Served


class Told:
    """What the store says of its last step and its registers, and how these are replaced."""

    evolves: bool = False
    _tiers: Served[Tiers[Batch]]
    _next: dict[str, Tiers[Batch]] | None = None  # of a circuit that this step evolves to
    _comes_from: Mapping[str, str] = {}  # of the registers that stay then, their names so far

    def last_made_by(self) -> tuple[str, ...] | None:
        """The computation of each output of the last committed step; None if it is unknown."""
        return self._known().made_by

    def last_circuit(self) -> str | None:
        """The text of the circuit that took the last committed step; None if it is unknown."""
        return self._known().circuit

    def described(self) -> Described:
        """The registers of the state, as `Register.describe` gives them, by their names there."""
        return described([tiers.register for tiers in self._tiers.all.values()])

    def batches(self, register: str) -> int:
        """The number of batches of the register."""
        of = self._tiers_of(register).register
        return len(self._known().batches.get(of.name, ()))

    def size(self, register: str) -> Size:
        """The size of the register, in memory on the driver or in Spark."""
        return size_of(self._known().batches.get(self._tiers_of(register).register.name, ()))

    @property
    def rows_written(self) -> Mapping[str, int]:
        """By register: the rows written so far, by changes and by merges."""
        return {n: tiers.rows_written for n, tiers in self._tiers.all.items()}

    def read_kept(self, name: str) -> tuple[Relation, ...]:
        """All rows of a register, by its name in the state."""
        of = self._tiers.all[name].register
        return tuple(whole(b, of) for b in self._known().batches.get(name, ()))

    def size_kept(self, name: str) -> Size:
        """The size of a register, by its name in the state."""
        return size_of(self._known().batches.get(name, ()))

    def evolve(self, registers: Sequence[Register], names: Mapping[str, str]) -> None:
        """In the current step, replace the registers of the state: see `EvolvingStore`."""
        self._begin_step()
        self._next = self._tiers_of_each(registers)
        self._comes_from = dict(names)

    def _known(self) -> LastStep:
        raise NotImplementedError

    def _tiers_of(self, register: str) -> Tiers[Batch]:
        raise NotImplementedError

    def _tiers_of_each(self, registers: Iterable[Register]) -> dict[str, Tiers[Batch]]:
        raise NotImplementedError

    def _begin_step(self) -> None:
        raise NotImplementedError
