"""The rounds of a pipeline, their retries, and waiting and stopping."""

from __future__ import annotations

import datetime as dt
import re
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError, SinkError
from stepping_spark.pipeline.inputs import Feed, Taken, position_text
from stepping_spark.pipeline.outputs import Outlet, deliver
from stepping_spark.pipeline.protocols import STATE, Batch, Portion, offsets_of, without
from stepping_spark.pipeline.reporting import Reporting, StepReport, rows_of
from stepping_spark.relations.store import Now, Store
from stepping_spark.rows.atoms import DATE, DATETIME, LOCAL_DATETIME, RowType, is_time
from stepping_spark.stepper.stepper import Stepper
from stepping_spark.zsets.spark import ZSetSpark

R = TypeVar("R")

CLOCKS: dict[RowType, Callable[[], dt.date]] = {
    DATE: lambda: dt.datetime.now(dt.UTC).date(),
    DATETIME: lambda: dt.datetime.now(dt.UTC),
    LOCAL_DATETIME: lambda: dt.datetime.now(dt.UTC).replace(tzinfo=None),
}
"""The time of this machine, in UTC, for each type of times in a query."""


@dataclass(frozen=True)
class Rounds:
    """Takes the rounds of a pipeline. `rejecting` are the inputs with a view of misfits.

    `state_path` is the path of a state that can be rewound by a step. `by_tasks` means that Spark's
    tasks may read more rows than the portion, as the user has not limited it.
    """

    feeds: Sequence[Feed]
    outlets: Sequence[Outlet]
    rejecting: Sequence[str]
    portion: Portion
    now: Callable[[], Now] | None
    reporting: Reporting
    state_path: str | None
    by_tasks: bool = False

    def take(self, stepper: Stepper[Any, Any], state: int) -> tuple[bool, bool]:
        """Read the new changes and take a step; returns whether it read and whether it stepped.

        `state` is the number of the state.
        """
        begun = time.perf_counter()
        portion = self.portion
        if self.by_tasks:
            portion = replace(portion, tasks=stepper.session_of_tasks)
        taken = [feed.take(portion) for feed in self.feeds]
        batches = [t.batch for t in taken]
        read = any(batch is not None for batch in batches)
        misfits = {f.name: t.misfits for f, t in zip(self.feeds, taken, strict=True) if t.misfits}
        # The position is committed, so that the same misfits are not read and counted again.
        final = bool(misfits) or any(batch is not None and batch.final for batch in batches)
        nothing = all(t.change is None and t.rejected is None for t in taken)
        now = self.time_of(stepper.times, stepper.store)
        constant = stepper.graph.has_constants and not stepper.store.last_step()
        same_time = now in (None, stepper.store.last_now())
        if not final and not constant and nothing and same_time:
            self._advance(batches)
            return read, False
        outputs = stepper.step(
            self._changes(taken),
            now=now,
            offsets=self._offsets(stepper.store, batches, state),
            before_commit=self._prepare,
        )
        before = [position_text(feed.position) for feed in self.feeds]
        self._advance(batches)
        step = stepper.store.last_step()
        rows = deliver(step, outputs, self.outlets, self.state_path)
        for feed in self.feeds:
            feed.confirm()
        self.reporting.tell(
            StepReport(
                step,
                tuple(
                    (feed.name, old, position_text(feed.position))
                    for feed, old, batch in zip(self.feeds, before, batches, strict=True)
                    if batch is not None
                ),
                tuple(0 if t.change is None else rows_of(t.change) for t in taken),
                tuple(rows) if rows else None,
                (time.perf_counter() - begun) * 1e3,
                misfits,
            )
        )
        return read, True

    def reset_positions(self, store: Store) -> None:
        """Reset the positions of sources to the committed ones, after a failed step."""
        offsets = store.last_offsets()
        for feed in self.feeds:
            feed.position = feed.position_in(offsets)

    def time_of(self, times: Collection[RowType], store: Store) -> Now:
        """The time of a step: of `now`, or of this machine, if the query compares with times.

        `times` are the types of these times. If the machine's clock has gone back, it is the time
        of the last step.
        """
        if self.now is not None:
            return self.now()
        t = next((t for t in times if t in CLOCKS), None)
        if t is None:
            return None
        now, before = CLOCKS[t](), store.last_now()
        return max(now, before) if isinstance(before, dt.date) and is_time(before, t) else now

    def _changes(self, taken: Sequence[Taken]) -> list[ZSetSpark[Any] | None]:
        """The changes of the circuit's inputs: first of the query's inputs, then misfits."""
        rejected = {feed.name: t.rejected for feed, t in zip(self.feeds, taken, strict=True)}
        return [t.change for t in taken] + [rejected[name] for name in self.rejecting]

    def _prepare(self, step: int, outputs: tuple[Any, ...]) -> dict[str, int]:
        """Let the sinks check a step before it is committed; returns their offsets."""
        offsets = {}
        for outlet in self.outlets:
            offsets.update(outlet.prepare(step, outputs[outlet.number]))
        return offsets

    def _advance(self, batches: Sequence[Batch | None]) -> None:
        for feed, batch in zip(self.feeds, batches, strict=True):
            if batch is not None:
                feed.position = batch.position

    def _offsets(self, store: Store, batches: Sequence[Batch | None], state: int) -> dict[str, int]:
        """The offsets of a step: positions of sources, and the last step of each sink."""
        offsets = without(store.last_offsets(), [feed.name for feed in self.feeds])
        offsets[STATE] = state
        for feed, batch in zip(self.feeds, batches, strict=True):
            position = feed.position if batch is None else batch.position
            if position is not None:
                offsets.update(offsets_of(feed.name, position))
        for outlet in self.outlets:
            offsets.update(outlet.next_offsets)
        return offsets


RETRIES = 10
"""Attempts in a row that may fail before `run(every=…)` ends with the error."""

LONGEST_PAUSE = 60.0
"""The longest pause between two attempts, in seconds."""

_LASTING_CLASSES = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
_TRANSIENT_CLASSES = {
    "psycopg": ("OperationalError", "InterfaceError"),
    "obstore": ("GenericError",),
    "pyiceberg": ("ServerError", "ServiceUnavailableError", "RESTError"),
}
"""Transient errors of packages that may not be installed, by the packages."""

_MISSING_TABLE = ("TableNotFoundError", "NoSuchTableError")
"""The errors of deltalake and pyiceberg for a missing table."""

_TRANSIENT_STATES = ("08", "40", "53", "57", "58")
"""Classes of SQLSTATEs after which the same statement may succeed later."""


def is_transient(error: BaseException, *, was_there: bool = False) -> bool:
    """Whether an error may pass by itself: a lost connection, a server that does not answer.

    `was_there` means that all tables existed before: a missing one may come back.
    """
    causes = list(_causes(error))
    return any(map(_may_pass, causes)) or (was_there and any(map(_is_missing_table, causes)))


def of_each(
    outlets: Iterable[Outlet],
    result_of: Callable[[Outlet], R],
    look: Callable[[Outlet], R] | None = None,
) -> list[R]:
    """The result of each sink; an error has the messages of all sinks that refuse.

    With `look`, the sinks after one that refuses are only looked at.
    """
    results, errors = [], list[SinkError]()
    for outlet in outlets:
        try:
            results.append((look if errors and look else result_of)(outlet))
        except SinkError as e:
            if is_transient(e):
                raise
            errors.append(e)
    if len(errors) > 1:
        refused = "".join(f"\n- {e}" for e in errors)
        raise SinkError(f"{len(errors)} sinks refuse what they are to be written:{refused}")
    if errors:
        raise errors[0]
    return results


def pause_after(failures: int) -> float:
    """The seconds to wait after so many failed attempts in a row."""
    return float(min(LONGEST_PAUSE, 2 ** (failures - 1)))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _is_missing_table(error: BaseException) -> bool:
    return isinstance(error, FileNotFoundError) or type(error).__name__ in _MISSING_TABLE


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return not isinstance(error, _LASTING_CLASSES)
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return state[:2] in _TRANSIENT_STATES
    return any(
        c.__name__ in _TRANSIENT_CLASSES.get(c.__module__.partition(".")[0], ())
        for c in type(error).__mro__
    )


SIGNALS = (signal.SIGINT, signal.SIGTERM)
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}

_EVERY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?\s*")


class Stopping:
    """A request to stop: by Ctrl-C, by SIGTERM, or by `ask`."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self.signal: int | None = None
        """The signal that requested the stop, or None."""

    @property
    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Stop after the step under way."""
        self._asked.set()

    def wait(self, seconds: float) -> None:
        """Wait, until a stop is requested."""
        self._asked.wait(seconds)

    def listen(self) -> None:
        """Handle the signals, unless `run` was asked to stop already.

        A Spark session that starts in the main thread replaces the handler of Ctrl-C, so `run`
        calls this again.
        """
        if threading.current_thread() is threading.main_thread() and not self.requested:
            for number in SIGNALS:
                signal.signal(number, self._handle)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A context in which the first signal requests a stop; then the old handlers are back."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Python delivers signals to the main thread only
            return
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self.listen()
        try:
            yield
        finally:
            self._restore()

    def _handle(self, number: int, frame: object) -> None:
        self.signal = number
        self._restore()
        self._asked.set()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            if handler is not None:  # a handler that is not of Python
                signal.signal(number, handler)


def seconds_of(every: str | float | dt.timedelta) -> float:
    """A time like "10s", "500ms", "5min", "5m" or "1h", a number of seconds, or a timedelta."""
    try:
        return seconds_in(every)
    except ValueError as e:
        raise InputError(f"{user_line()}: every={e}") from None


def seconds_in(every: str | float | dt.timedelta) -> float:
    """The seconds of such a time; raises `ValueError` for other values."""
    seconds: float | None = None
    if isinstance(every, dt.timedelta):
        seconds = every.total_seconds()
    elif isinstance(every, int | float) and not isinstance(every, bool):
        seconds = float(every)
    elif isinstance(every, str) and (match := _EVERY.fullmatch(every)):
        seconds = float(match[1]) * UNITS[match[2] or "s"]
    if seconds is None or not 0 < seconds < float("inf"):
        wrong = "is not a time to wait" if seconds is None else "is not a time above 0"
        raise ValueError(
            f'{every!r} {wrong}; write "10s", "500ms", "5min" (or "5m") or "1h", a number of '
            "seconds, or a timedelta"
        )
    return seconds
