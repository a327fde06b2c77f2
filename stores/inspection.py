"""Inspection of a state without its circuit: the state describes itself.

    state = ParquetState("state")
    print(state.summary().step)
    for problem in state.verify().problems:
        print(problem)

It raises the errors of stores: `StoreUnavailable` if there is no state, `StoreCorrupt` if it cannot
be read at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stepping_spark.base.errors import StoreUnavailable
from stepping_spark.relations.store import Now, Register, Store, now_to_text

LONG = 70
"""Longer descriptions of a register's stream are shown without arguments. In characters."""


@dataclass(frozen=True)
class KeptRegister:
    """A register in a state: its batches, rows and bytes."""

    register: Register
    rows: int
    batches: int
    nbytes: int

    @property
    def words(self) -> str:
        """The stream of the register, for people: without digests, and shortened."""
        text = self.register.sums.shown
        return text if len(text) <= LONG else _outline(text)


@dataclass(frozen=True)
class Summary:
    """The description of a state, by the state itself; `holder` is the process that writes it."""

    place: str
    kept_as: str
    format: int
    fingerprint: str
    step: int
    now: Now
    offsets: Mapping[str, int]
    holder: str | None
    registers: tuple[KeptRegister, ...]

    @property
    def last_now(self) -> str:
        """The `now` of the last step, as text."""
        return (now_to_text(self.now) or "").partition(" ")[2]


@dataclass
class Verification:
    """The problems found in a state, and the parts that were not checked.

    Without problems, all checked parts are as the store wrote them.
    """

    looked_at: str
    remedy: str = "restore the state from a backup, or make a new one"
    problems: list[str] = field(default_factory=list)
    unchecked: str = ""
    """Changes that this check cannot find."""

    @property
    def verdict(self) -> str:
        """The text for a state without problems."""
        if not self.unchecked:
            return "all is as it was written"
        return f"nothing wrong was found; not checked: {self.unchecked}"


class InspectedState(Protocol):
    """A state on disk, or in a database."""

    def summary(self) -> Summary:
        """The summary. Takes no lock, so a writer may be active."""

    def other_writer(self) -> str | None:
        """The other process that writes the state now; None if there is none."""

    def exists(self) -> bool:
        """Whether there is a committed state. Takes no lock."""

    def copy_from(self, source: InspectedState, offsets: Mapping[str, int]) -> None:
        """Make this a copy of the last step of another state, with other offsets for some.

        This place is empty, or holds an unfinished copy. The other state's writer may go on.
        Raises `StoreUnavailable` for a state in another kind of store, or in another database.
        """

    def reader(self, registers: Sequence[Register], *, evolve: bool = False) -> Store | None:
        """A store that reads the state, for a circuit's registers; None if there is no state yet.

        With `evolve`, it may be the state of another circuit.

        Raises the same errors as opening the state for writing, except about the lock, which it
        does not take. It creates nothing.
        """

    def verify(self) -> Verification:
        """Check every row of every step that can be opened. Takes no lock."""

    def compact(self) -> str:
        """Take the lock, and merge batches, without Spark. Returns a note on the result."""

    def rewind(self, to: int) -> None:
        """Take the lock, and go back to an earlier step: the steps after it are dropped.

        Raises `StoreError` for a step that is not kept.
        """


def other_kind(place: str, source: str) -> StoreUnavailable:
    """The error for a copy from files to Postgres, from one database to another, and so on."""
    return StoreUnavailable(
        f"{place}: a state is copied from files to files, or from a schema to another one of the "
        f"same database, and {source} is neither; name such a place for the copy"
    )


def _outline(text: str) -> str:
    """The text without parentheses and their contents."""
    shown, depth = "", 0
    for c in text:
        depth -= c == ")"
        if depth <= 0:
            shown += c
        if c == "(":
            shown += "…" if depth == 0 else ""
            depth += 1
    return shown
