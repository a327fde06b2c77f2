"""Snapshots: within one, all reads of a thread see the same committed step."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from stepping_spark.errors import StoreError

P = TypeVar("P")


class Pins(Generic[P]):
    """The step that each thread has pinned. Other threads are not affected."""

    def __init__(self) -> None:
        self._of_thread = threading.local()
        self._lock = threading.Lock()
        self.held = 0
        """How many there are, in all threads."""

    @property
    def pinned(self) -> P | None:
        """The step that this thread has pinned; None outside of a snapshot."""
        found: P | None = getattr(self._of_thread, "pinned", None)
        return found

    @contextmanager
    def pin(self, what: P) -> Iterator[None]:
        """Pin a step within the block."""
        around = self.pinned
        self._of_thread.pinned = what
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)
            self._of_thread.pinned = around

    def _count(self, more: int) -> None:
        with self._lock:
            self.held += more

    def check_none(self) -> None:
        """Raise an error for a change of the store within a snapshot of it."""
        if self.pinned is not None:
            raise StoreError(
                "a step cannot be taken within `with store.snapshot():`, which is a view of the "
                "steps before it; leave the block first, or step in another thread"
            )
