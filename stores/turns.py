"""One step at a time: which thread has the step under way."""

from __future__ import annotations

import threading

from stepping_spark.errors import StoreLocked


class Turns:
    """Gives the step of a store to one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: threading.Thread | None = None

    def take(self) -> bool:
        """Make the step this thread's, or see that it is; True where it was not before.

        Then what another thread, dead by now, has added is to be forgotten. A `StoreLocked` where
        another has a step under way.
        """
        me = threading.current_thread()
        with self._lock:
            owner = self._owner
            if owner is not None and owner is not me and owner.is_alive():
                raise StoreLocked(
                    f"thread {owner.name!r} has a step under way on this store, and thread "
                    f"{me.name!r} wants one; steps are taken one at a time: wait for the other, "
                    "or give each its own store"
                )
            self._owner = me
            return owner is not me

    def mine(self) -> bool:
        """Whether the step under way is this thread's."""
        return self._owner is threading.current_thread()

    def end(self) -> None:
        """Let another thread take the next step."""
        self._owner = None
