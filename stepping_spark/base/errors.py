"""The errors of the library, as one tree of exceptions.

    SteppingError
    ├── CompileError        a query, or a function of rows in it, cannot become a circuit
    ├── InputError          a value given to a step does not fit the circuit's input
    ├── StoreError          the state could not be read or written
    │   ├── StoreMismatch       it belongs to another circuit
    │   ├── StoreLocked         somebody else is writing it
    │   ├── StoreCorrupt        the stored data is damaged
    │   └── StoreUnavailable    it cannot be reached, or does not exist
    ├── StepError           a vertex failed while a step ran
    ├── FixpointError       a recursion did not end
    ├── SourceError         a table that a pipeline follows could not be read
    └── SinkError           a table that a pipeline writes a view to could not be written

Every message has the problem, its place, the wrong value, and the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "CompileError",
    "FixpointError",
    "InputError",
    "SinkError",
    "SourceError",
    "StepError",
    "SteppingError",
    "StoreCorrupt",
    "StoreError",
    "StoreLocked",
    "StoreMismatch",
    "StoreUnavailable",
]


class SteppingError(Exception):
    """The root of every error this library raises on purpose."""

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:  # tracebacks name an error as users import it
            cls.__module__ = "stepping_spark"


class CompileError(SteppingError):
    """A query, or a function of rows in it, cannot become a circuit."""


class InputError(SteppingError):
    """A value given to a step does not fit the input of the circuit."""


class StoreError(SteppingError):
    """The state could not be read or written."""


class StoreMismatch(StoreError):
    """The state belongs to another circuit, or was written by another version."""


class StoreLocked(StoreError):
    """Another writer holds the state."""


class StoreCorrupt(StoreError):
    """The stored data is damaged."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, or does not exist."""


class StepError(SteppingError):
    """A vertex failed while a step ran; the store is as it was before the step."""


class FixpointError(SteppingError):
    """A recursion did not end within `max_iterations`."""


class SourceError(SteppingError):
    """A table that a pipeline reads could not be read; the state is as it was before."""


class SinkError(SteppingError):
    """A table that a pipeline writes could not be written, or others have changed it.

    The step is committed in the store, and its output is kept: the next run writes it.
    """


SHOWN = 200  # the most characters of a value in a message


def short(value: object) -> str:
    """A value for a message: its text and its class."""
    return f"{cut_short(repr(value))} ({type(value).__name__})"


def cut_short(text: str, most: int = SHOWN) -> str:
    """The beginning of a text for a message."""
    return text if len(text) <= most else text[:most] + "…"


def refused_deletion(row: object, count: int, where: str) -> InputError:
    """The error for a change that deletes a row of an append-only input."""
    return InputError(
        f"{where}: append-only, and the change has the count {count} for {row!r}; leave it out, or "
        "compile the query without append_only for this input, with a store of its own"
    )


SHOWN_ROWS = 3


def not_there(rows: Sequence[object], where: str) -> InputError:
    """The error for a change of a strict input that deletes absent rows."""
    shown = ", ".join(map(repr, rows[:SHOWN_ROWS])) + (", …" if len(rows) > SHOWN_ROWS else "")
    return InputError(
        f"{where}: strict, and the change removes rows that are not there, or removes them more "
        f"often than they are there: {shown}. The store is as it was before the step: leave them "
        "out of the change; or compile the query without strict for this input, with a store of "
        "its own"
    )


def too_late(
    rows: Sequence[object], where: str, label: str, at: str, greatest: object, lateness: str
) -> InputError:
    """The error for a change with rows from before the watermark, or without a time."""
    shown = ", ".join(map(repr, rows[:SHOWN_ROWS])) + (", …" if len(rows) > SHOWN_ROWS else "")
    watermark = "there is none yet, so NULL is the only time that is late"
    if greatest is not None:
        watermark = f"it is {lateness!r} before {greatest}, the greatest time of the steps before"
    return InputError(
        f"{where}: the change has rows that come too late, because {at} is NULL or before the "
        f"watermark ({watermark}): {shown}. The store is as it was before the step: leave these "
        f"rows out of the change; or have the query return st.late({label}), which is then given "
        "them; or compile it with a greater lateness, with a store of its own"
    )
