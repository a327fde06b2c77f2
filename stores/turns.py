"""One step at a time: which thread has the step under way."""

from __future__ import annotations

import threading
from collections.abc import Callable

from stepping_spark.errors import StoreLocked

NOT_OPEN = (
    "the store is closed, or was never opened; open it again with from_graph(graph, …) of its class"
)


class Turns:
    """Gives the step of a store to one thread at a time.

    `forget` drops what was added in a step: where one ends, and where a thread that had one died.
    """

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._lock = threading.Lock()
        self._owner: threading.Thread | None = None

    def begin(self) -> None:
        """Make the step under way this thread's, or see that it is.

        A `StoreLocked` where another has a step under way.
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
        if owner is not me:
            self._forget()

    def end(self) -> None:
        """Forget what was added and not committed, and let another thread take the next step."""
        self._forget()
        self._owner = None

    def abort(self) -> None:
        """End the step under way, if it is this thread's."""
        if self._owner is threading.current_thread():
            self.end()
