"""What the stores have in common: a record of the last step, registers by name, and commits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from stepping_spark.base.errors import StoreError
from stepping_spark.relations.relation import Relation
from stepping_spark.relations.store import Now
from stores.registers import Served
from stores.step_lock import Closing, Pins, Turns

E = TypeVar("E")
P = TypeVar("P")


@dataclass(frozen=True)
class LastStep:
    """The last committed step: all that a store says of it, beside its registers and outputs."""

    step: int = 0
    now: Now = None
    offsets: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    made_by: tuple[str, ...] | None = None

    def next(
        self,
        step: int,
        now: Now,
        offsets: Mapping[str, int] | None,
        settings: Mapping[str, str] | None,
        made_by: Sequence[str] | None,
    ) -> LastStep:
        """The step after this one: see `Store.commit`. Raises `StoreError` for another number."""
        if step != self.step + 1:
            raise StoreError(
                f"step {step} cannot be committed: the last committed step is {self.step}, so that "
                f"the next is {self.step + 1}; the store is as it was before"
            )
        return LastStep(
            step,
            now,
            self.offsets if offsets is None else dict(offsets),
            self.settings if settings is None else dict(settings),
            None if made_by is None else tuple(made_by),
        )


class BaseStore(Closing, Generic[E, P]):
    """A store whose registers have entries of type E, and whose snapshots pin a P."""

    evolves: bool = False
    _read_only: bool = False
    _turns: Turns
    _pins: Pins[P]
    _registers: Served[E]
    _next: dict[str, E] | None = None
    """The entries of the circuit that the step under way evolves to."""

    @abstractmethod
    def _last(self) -> LastStep:
        """The last committed step, or the one that this thread has pinned."""

    @abstractmethod
    def _commit(
        self, last: LastStep, outputs: Sequence[Relation] | None, circuit: str | None
    ) -> None:
        """Make the additions of the step visible: see `commit`."""

    def last_step(self) -> int:
        """The number of the last committed step; 0 before the first."""
        return self._last().step

    def last_now(self) -> Now:
        """The `now` of the last committed step; None before the first."""
        return self._last().now

    def last_offsets(self) -> Mapping[str, int]:
        """The offset of each source of changes at the last committed step."""
        return self._last().offsets

    def last_settings(self) -> Mapping[str, str]:
        """The session settings that the state depends on; empty before they are set."""
        return self._last().settings

    def last_made_by(self) -> tuple[str, ...] | None:
        """The computation of each output of the last committed step; None if it is unknown."""
        return self._last().made_by

    def commit(
        self,
        step: int,
        now: Now,
        outputs: Sequence[Relation] | None = None,
        offsets: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        made_by: Sequence[str] | None = None,
        circuit: str | None = None,
    ) -> None:
        """Make the additions of the step durable and visible, all at once.

        After an error none of them are, and the same step may be made again. If the connection to a
        store is lost meanwhile, `last_step` tells whether the step was committed.
        """
        self._begin_step()
        try:
            self._commit(self._last().next(step, now, offsets, settings, made_by), outputs, circuit)
        finally:
            self._turns.end()

    def abort(self) -> None:
        """Discard the additions of the current step, if it belongs to this thread."""
        self._turns.abort()

    def _begin_step(self) -> None:
        if self._read_only or self._pins.held or not self._registers.is_open:
            self._turns.check_open()
            if self._read_only:
                raise StoreError(
                    f"{self._turns.shown} was opened with read_only=True; open it without, to write"
                )
            self._registers.check_open()
            self._pins.check_none()
        self._turns.begin()

    def _entry(self, register: str) -> E:
        """The entry of a register, by its name in a circuit."""
        self._turns.check_open()
        if self._next is not None and register in self._next:
            return self._next[register]
        entry = self._registers.by_name.get(register)
        return self._registers.of(register) if entry is None else entry
