"""A state, looked at without the circuit that it was made for: it says of itself what it is.

    state = ParquetState("state")
    print(state.summary().step)
    for problem in state.verify().problems:
        print(problem)

An error is one of those of the stores: `StoreUnavailable` where there is no state, `StoreCorrupt`
where it cannot be read at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stepping_spark.store import Now, Register, Store, now_to_text
from stores.registers import in_words

LONG = 70
"""Characters of what a register is the sum of, from which on its arguments are left out."""


@dataclass(frozen=True)
class Kept:
    """A register as it is kept: in how many batches, with how many rows, and what they take."""

    register: Register
    rows: int
    batches: int
    nbytes: int

    @property
    def words(self) -> str:
        """What it is the sum of, for people: no digests, and what is long in outline."""
        told = in_words(self.register.sums)
        return told if len(told) <= LONG else _outline(told)


@dataclass(frozen=True)
class Summary:
    """What a state is, as far as it says so itself; `holder` is who writes it now."""

    place: str
    kept_as: str
    format: int
    fingerprint: str
    step: int
    now: Now
    offsets: Mapping[str, int]
    holder: str | None
    registers: tuple[Kept, ...]

    @property
    def last_now(self) -> str:
        """The `now` of the last step, as text."""
        return (now_to_text(self.now) or "").partition(" ")[2]


@dataclass
class Verification:
    """What a look at all that is kept has found; no problems: what was looked at
    is as it was written."""

    looked_at: str
    remedy: str = "restore the state from a backup, or make a new one"
    problems: list[str] = field(default_factory=list)
    unchecked: str = ""
    """What somebody may have changed, and no look would find."""

    @property
    def verdict(self) -> str:
        """What there is to say where no problem was found."""
        if not self.unchecked:
            return "all is as it was written"
        return f"nothing wrong was found; not checked: {self.unchecked}"


class InspectedState(Protocol):
    """A state on disk, or in a database."""

    def summary(self) -> Summary:
        """What it is; takes no lock, and may be asked for while somebody writes."""

    def holder(self) -> str | None:
        """Who writes it now; None: nobody."""

    def reader(self, registers: Sequence[Register]) -> Store | None:
        """A store that reads it, for a circuit's registers; None: there is none, and may be one.

        Raises what opening it to write would raise, but for the lock, which it does not take. It
        makes nothing.
        """

    def verify(self) -> Verification:
        """Look at every row of every step that can be opened. Takes no lock."""

    def compact(self) -> str:
        """Take the lock, and merge what can be merged, without Spark; a note on what that means."""


def _outline(text: str) -> str:
    """The text without what stands in parentheses."""
    shown, depth = "", 0
    for c in text:
        depth -= c == ")"
        if depth <= 0:
            shown += c
        if c == "(":
            shown += "…" if depth == 0 else ""
            depth += 1
    return shown
