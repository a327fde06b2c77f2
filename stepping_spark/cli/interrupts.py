"""Ctrl-C between steps, for programs that are stopped and continue later."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

INTERRUPTED = 130
"""The exit code after Ctrl-C."""

T = TypeVar("T")


class Stop:
    """Makes Ctrl-C end a run after the current step; a second one ends the process at once.

    Neither damages a state. By default Python raises an exception in the middle of the step. That
    would also interrupt a call to Spark, which then logs a page of errors.
    """

    def __init__(self) -> None:
        self.asked = False

    def listen(self) -> None:
        """Handle Ctrl-C from now on.

        A Spark session that starts in the main thread replaces the handler: see `during`.
        """
        signal.signal(signal.SIGINT, self)

    def __call__(self, number: int, frame: object) -> None:
        """The signal handler."""
        if self.asked:
            os._exit(INTERRUPTED)
        self.asked = True

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C was pressed."""
        if self.asked:
            raise KeyboardInterrupt

    def during(self, work: Callable[[], T]) -> T:
        """Run work for which Ctrl-C should not wait, such as the start of Spark; return its result.

        The work runs in another thread. If a session starts in the main thread, PySpark turns
        Ctrl-C into an exception from then on, at any point of the program.
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
        """The same steps, for `Stepper.run`, until Ctrl-C is pressed."""
        return UntilStopped(steps, self)


@dataclass(frozen=True)
class UntilStopped(Generic[T]):
    """Steps, with a check for Ctrl-C before each and at the end."""

    steps: Sequence[T]
    stop: Stop

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[T]:
        for step in self.steps:
            self.stop.check()
            yield step
        self.stop.check()
