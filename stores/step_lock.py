"""Turns and snapshots: who may take a step, and reads that all see one committed step."""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Generic, Self, TypeVar

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import StoreError, StoreLocked

NOT_OPEN = "the store was never opened; make it with from_graph(graph, …) of its class"

_STARTED = uuid.uuid4().hex


def this_process() -> str:
    """The identity of this process. A fork has another one."""
    return f"{os.getpid()}-{_STARTED}"


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
        """Release the state. The store cannot be used after that."""


class Turns:
    """Gives the step of a store to one thread at a time, until the store is closed.

    `forget` discards the additions of a step, when it ends, or if its thread has died. `closed` is
    the error message of a closed store, and `shown` is the store's name in messages. `give_way`
    releases the lock of a writer, when another store of its process takes over. Any thread may call
    it, even during a step: it must not wait for the step.
    """

    def __init__(
        self,
        forget: Callable[[], None],
        closed: str,
        *,
        shown: str = "the store",
        give_way: Callable[[], None] | None = None,
    ) -> None:
        self._forget = forget
        self._said = closed
        self.shown = shown
        self._give_way = give_way
        self._closed = False
        self._overtaken: str | None = None
        self._lock = threading.Lock()
        self._owner: threading.Thread | None = None
        self._process = this_process()
        self._pid = os.getpid()
        self._writes: object = None  # the identity of the state that the store writes
        self._opened = ""  # the line that opened the store

    def begin(self) -> None:
        """Start a step in this thread, unless the thread is in one already.

        Raises `StoreLocked` if another thread is in a step.
        """
        me = threading.current_thread()
        self.check_open()  # before the lock: in a fork, it may never be released
        if self._owner is me:
            return
        with self._lock:
            self.check_open()
            owner = self._owner
            if owner is not None and owner.is_alive():
                raise StoreLocked(
                    f"thread {owner.name!r} has a step under way on this store, and thread "
                    f"{me.name!r} wants one; steps are taken one at a time: wait for the other, "
                    "or give each its own store"
                )
            self._owner = me
        self._forget()

    @property
    def at_home(self) -> bool:
        """Whether this is the process that made the store, and not a fork of it."""
        return self._pid == os.getpid()

    def check_open(self) -> None:
        """Raise `StoreError` if closed or in a fork, and `StoreLocked` if another took over."""
        if self._pid != os.getpid():
            raise StoreError(
                f"{self.shown}: process {self._pid} has opened this store, "
                f"and process {os.getpid()}, a fork of it, cannot use it; open the state in this "
                "process (with read_only=True while the other writes), or fork before it is opened"
            )
        if self._overtaken is not None:
            raise StoreLocked(self._overtaken)
        if self._closed:
            raise StoreError(self._said)

    def take_over(self, state: object) -> None:
        """Become the only store of this process that writes a state; another one gives way.

        The commits of the other store stay, its current step is lost, and its methods raise errors
        from now on. Call this last before taking the lock, when no other check can fail any more.
        Raises `StoreLocked` if this store was taken over itself.
        """
        with _writers_lock:
            self.check_open()
            others = self._others(state)
            self._writes, self._opened = state, f"at {user_line()}"
            _writers.add(self)
        for other in others:
            other._is_overtaken(self._opened)

    def go_on(self, state: object) -> None:
        """Continue to write after a reconnection; the identity of the state may have changed.

        Raises `StoreLocked` if this process has opened the state in another store meanwhile.
        """
        with _writers_lock:
            others = self._others(state)
            if not others:
                self._writes = state
        for other in others:
            self._is_overtaken(other._opened)
        self.check_open()

    def _others(self, state: object) -> list[Turns]:
        return [t for t in _writers if t is not self and t._is_of(state, self._process)]

    def _is_of(self, state: object, process: str) -> bool:
        return self._process == process and self._writes == state and not self._closed

    def _is_overtaken(self, where: str) -> None:
        self._overtaken = (
            f"{self.shown}: this process has opened this state again, {where}; that store has "
            "taken over from this one: use it, and close this one (what this one had committed is "
            "kept, and a step under way is not)"
        )
        if self._give_way is not None:
            self._give_way()

    def close(self) -> None:
        """End the current step of any thread, and allow no further ones."""
        if not self.at_home:
            self._closed = True
            return
        with self._lock:
            self._closed = True
        self.end()

    def end(self) -> None:
        """Discard uncommitted additions, and let any thread take the next step."""
        if self.at_home:
            self._forget()
            self._owner = None

    def abort(self) -> None:
        """End the current step, if it belongs to this thread."""
        if self._owner is threading.current_thread():
            self.end()


_writers: weakref.WeakSet[Turns] = weakref.WeakSet()
_writers_lock = threading.Lock()


def is_written_here(state: object) -> bool:
    """Whether an open store of this process writes a state; another store may take over."""
    with _writers_lock:
        return any(turns._is_of(state, this_process()) for turns in _writers)


def _after_fork() -> None:
    global _writers_lock
    _writers_lock = threading.Lock()
    _writers.clear()


os.register_at_fork(after_in_child=_after_fork)


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
        step: P | None = getattr(self._of_thread, "pinned", None)
        return step

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
