"""How a pipeline that follows its sources waits, and how it is asked to stop."""

from __future__ import annotations

import datetime as dt
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from stepping_spark.callsite import user_line
from stepping_spark.errors import InputError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}

_EVERY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?\s*")


class Stopping:
    """Whether to stop: at Ctrl-C, at SIGTERM, or when `ask` was called."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self.signal: int | None = None
        """The signal that asked, if one did."""

    @property
    def asked(self) -> bool:
        """Whether somebody asked."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Stop after the step under way."""
        self._asked.set()

    def wait(self, seconds: float) -> None:
        """Wait, unless somebody asks."""
        self._asked.wait(seconds)

    def listen(self) -> None:
        """Handle the signals, unless `run` was asked to stop already.

        A Spark session that starts in the main thread takes Ctrl-C, so this is called again.
        """
        if threading.current_thread() is threading.main_thread() and not self.asked:
            for number in SIGNALS:
                signal.signal(number, self._heard)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within the block signals ask to stop; a second one does what it did before the block."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Python gives signals to the main thread only
            return
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self.listen()
        try:
            yield
        finally:
            self._restore()

    def _heard(self, number: int, frame: object) -> None:
        self.signal = number
        self._restore()
        self._asked.set()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            if handler is not None:  # none of Python's
                signal.signal(number, handler)


def seconds_of(every: str | float | dt.timedelta) -> float:
    """A time like "10s", "500ms", "5min", "5m" or "1h", a number of seconds, or a timedelta."""
    try:
        return seconds_in(every)
    except ValueError as e:
        raise InputError(f"{user_line()}: every={e}") from None


def seconds_in(every: str | float | dt.timedelta) -> float:
    """The seconds of such a time; a ValueError where it is none."""
    found: float | None = None
    if isinstance(every, dt.timedelta):
        found = every.total_seconds()
    elif isinstance(every, int | float) and not isinstance(every, bool):
        found = float(every)
    elif isinstance(every, str) and (match := _EVERY.fullmatch(every)):
        found = float(match[1]) * UNITS[match[2] or "s"]
    if found is None or not 0 < found < float("inf"):
        wrong = "is not a time to wait" if found is None else "is not a time above 0"
        raise ValueError(
            f'{every!r} {wrong}; write "10s", "500ms", "5min" (or "5m") or "1h", a number of '
            "seconds, or a timedelta"
        )
    return found
