"""A store that keeps each register in batches, which merge by size."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from stepping_spark.limits import Limits
from stepping_spark.store import Register, Size
from stores.base import BaseStore
from stores.batches.tiers import Sized, Tiers, Work, size_of

B = TypeVar("B", bound=Sized)
P = TypeVar("P")


class BatchStore(BaseStore[Tiers[B], P], Generic[B, P]):
    """A store of batches of type B."""

    _limits: Limits
    _stay: Mapping[str, str] = {}
    """Of the registers that stay in the next circuit, their names in the state."""

    @abstractmethod
    def _batches(self) -> Mapping[str, tuple[B, ...]]:
        """The committed batches of registers, by their names in the state."""

    @abstractmethod
    def _merge(self, register: Register, run: Sequence[B]) -> Work[B]:
        """A merge of adjacent batches."""

    @property
    def rows_written(self) -> Mapping[str, int]:
        """By register: the rows written so far, by changes and by merges."""
        return {n: tiers.rows_written for n, tiers in self._registers.all.items()}

    def batches(self, register: str) -> int:
        """The number of batches of the register."""
        return len(self._batches_of(self._entry(register).register))

    def size(self, register: str) -> Size:
        """The size of the register, by its batches."""
        return size_of(self._batches_of(self._entry(register).register))

    def size_kept(self, name: str) -> Size:
        """The size of a register, by its name in the state."""
        return size_of(self._batches().get(name, ()))

    def evolve(self, registers: Sequence[Register], names: Mapping[str, str]) -> None:
        """In the current step, replace the registers of the state: see `EvolvingStore`."""
        self._begin_step()
        self._next = self._tiers_of_each(registers)
        self._stay = dict(names)

    def _batches_of(self, register: Register) -> tuple[B, ...]:
        return self._batches().get(register.name, ())

    def _before_step(self) -> Mapping[str, tuple[B, ...]]:
        """The batches of the registers that this step leaves, without its additions."""
        batches = self._batches()
        if self._next is None:
            return batches
        return {name: batches.get(kept, ()) for name, kept in self._stay.items()}

    def _stepped(self, added: Mapping[str, tuple[B, ...]]) -> None:
        """End a step that was committed, with the batches that it has added."""
        if self._next is not None:
            self._registers.replace(self._next)
            self._next = None
        for name, batches in added.items():
            self._registers.all[name].added(batches)

    def _tiers_of_each(self, registers: Iterable[Register]) -> dict[str, Tiers[B]]:
        return {r.name: Tiers(r, self._merge, self._limits) for r in registers}
