"""A store that has nothing, for a first step that fills the registers of another store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from stepping_spark.rows.schema import Schema
from stepping_spark.spark.relation import Relation
from stepping_spark.store import Now, Register, Store


class NoState:
    """A store that has nothing, for the step that fills another one's registers."""

    def __init__(self, store: Store, filled: Mapping[str, str]) -> None:
        self._store, self._filled = store, filled

    def open(self, registers: Sequence[Register], outputs: Sequence[Schema] = ()) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing to close."""

    def last_step(self) -> int:
        """No step was taken."""
        return 0

    def last_now(self) -> Now:
        """No step was taken."""
        return None

    def last_offsets(self) -> Mapping[str, int]:
        """Nothing was read."""
        return {}

    def last_settings(self) -> Mapping[str, str]:
        """Those of the store that is filled."""
        return self._store.last_settings()

    def last_outputs(self) -> tuple[Relation, ...] | None:
        """No step was taken."""
        return None

    def last_made_by(self) -> tuple[str, ...] | None:
        """No step was taken."""
        return None

    def read(self, register: str, keys: Relation | None = None) -> tuple[Relation, ...]:
        """Nothing is kept."""
        return ()

    def snapshot(self) -> AbstractContextManager[Store]:
        """Nothing is kept."""
        return nullcontext(self)

    def add(self, register: str, change: Relation) -> None:
        """Add to the register that this one fills, if it fills any."""
        filled = self._filled.get(register)
        if filled is not None:
            self._store.add(filled, change)

    def commit(
        self,
        step: int,
        now: Now,
        outputs: Sequence[Relation] | None = None,
        offsets: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        made_by: Sequence[str] | None = None,
    ) -> None:
        """The store that is filled commits."""

    def abort(self) -> None:
        """The store that is filled aborts."""

    def compact(self) -> None:
        """Nothing is kept."""

    def batches(self, register: str) -> int:
        """Nothing is kept."""
        return 0
