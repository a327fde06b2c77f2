"""A store that has nothing, for a first step that fills the registers of another store."""

from __future__ import annotations

from collections.abc import Mapping

from stepping_spark.spark.relation import Relation
from stepping_spark.store import Now, StepStore


class NoState:
    """A store before its first step, which adds to another one: `filled` has the names there."""

    def __init__(self, store: StepStore, filled: Mapping[str, str]) -> None:
        self._store, self._filled = store, filled

    def last_step(self) -> int:
        """No step was taken."""
        return 0

    def last_now(self) -> Now:
        """No step was taken."""
        return None

    def last_settings(self) -> Mapping[str, str]:
        """The settings of the store that is filled."""
        return self._store.last_settings()

    def read(self, register: str, keys: Relation | None = None) -> tuple[Relation, ...]:
        """Nothing is kept."""
        return ()

    def add(self, register: str, change: Relation) -> None:
        """Add to the register that this one fills, if it fills any."""
        filled = self._filled.get(register)
        if filled is not None:
            self._store.add(filled, change)
