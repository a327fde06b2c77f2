"""One step at a time: which thread has the step under way, and that none begins once closed."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

from stepping_spark.errors import StoreError, StoreLocked

NOT_OPEN = "the store was never opened; make it with from_graph(graph, …) of its class"


def check_is_next(step: int, last: int) -> None:
    """Refuse to commit a step that is not the next one."""
    if step != last + 1:
        raise StoreError(
            f"step {step} cannot be committed: the last committed step is {last}, so that the "
            f"next is {last + 1}; the store is as it was before"
        )


class Closing(ABC):
    """A store that a `with` block closes at its end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Let go of what it holds; it serves nothing after that."""


class Turns:
    """Gives the step of a store to one thread at a time, until the store is closed.

    `forget` drops what was added in a step: where one ends, and where a thread that had one died.
    `closed` is what there is to say of a store that is.
    """

    def __init__(self, forget: Callable[[], None], closed: str) -> None:
        self._forget = forget
        self._said = closed
        self._closed = False
        self._lock = threading.Lock()
        self._owner: threading.Thread | None = None

    def begin(self) -> None:
        """Make the step under way this thread's, or see that it is.

        A `StoreLocked` where another has a step under way.
        """
        me = threading.current_thread()
        with self._lock:
            self.check_open()
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

    def check_open(self) -> None:
        """A `StoreError` once the store is closed."""
        if self._closed:
            raise StoreError(self._said)

    def close(self) -> None:
        """End the step under way, whosever it is; there is none after it."""
        with self._lock:
            self._closed = True
        self.end()

    def end(self) -> None:
        """Forget what was added and not committed, and let another thread take the next step."""
        self._forget()
        self._owner = None

    def abort(self) -> None:
        """End the step under way, if it is this thread's."""
        if self._owner is threading.current_thread():
            self.end()
