"""Ctrl-C between steps, for programs that are stopped and go on later."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
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
        """Take Ctrl-C from now on. A Spark session takes it when it starts: then say so again."""
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
