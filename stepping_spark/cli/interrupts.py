"""Ctrl-C between steps, for programs that are stopped and go on later."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

INTERRUPTED = 130
"""The exit code of what Ctrl-C has ended."""

T = TypeVar("T")


class Stop:
    """Ctrl-C ends a run after the step under way; a second one ends the process at once.

    Neither harms a state. As an exception in the middle of a step, which is what Python makes of
    it, it would also interrupt whatever is being said to Spark, and that makes a page of log.
    """

    def __init__(self) -> None:
        self.asked = False

    def listen(self) -> None:
        """Take Ctrl-C from now on.

        A Spark session that starts in the main thread takes it too: see `during`.
        """
        signal.signal(signal.SIGINT, self)

    def __call__(self, number: int, frame: object) -> None:
        """What happens at Ctrl-C."""
        if self.asked:
            os._exit(INTERRUPTED)
        self.asked = True

    def check(self) -> None:
        """A KeyboardInterrupt, if Ctrl-C was pressed."""
        if self.asked:
            raise KeyboardInterrupt

    def during(self, work: Callable[[], T]) -> T:
        """What a piece of work gives that Ctrl-C need not wait for, such as the start of Spark.

        It is done in another thread: in the main one, PySpark makes Ctrl-C an exception from the
        moment that a session starts, wherever that is just then.
        """
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as e:
                done.set_exception(e)

        threading.Thread(target=run, daemon=True).start()
        while not done.done():
            self.check()
            wait([done], timeout=0.05)
        return done.result()

    def between(self, steps: Sequence[T]) -> UntilStopped[T]:
        """The same steps, for `Stepper.run`, as long as nobody presses Ctrl-C."""
        return UntilStopped(steps, self)


@dataclass(frozen=True)
class UntilStopped(Generic[T]):
    """Steps, with a look at whether to stop before each and at the end."""

    steps: Sequence[T]
    stop: Stop

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[T]:
        for step in self.steps:
            self.stop.check()
            yield step
        self.stop.check()
