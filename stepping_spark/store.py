"""What a store is: it keeps registers between steps, and a register only grows by addition."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeAlias, runtime_checkable

from stepping_spark.rows.schema import Schema
from stepping_spark.spark.relation import Relation


@dataclass(frozen=True)
class Register:
    """The state of one stream: the sum of all its changes.

    With a key it is an arrangement: `key` names the columns by which it is read. A key that is
    computed, or lies inside a struct, has columns of its own in the schema (`_key_1_`, …).
    `sums` says what stream it is the sum of: an operator with its arguments, then a digest of all
    that leads to it. `why` says what it is kept for, where the query does not show it.
    """

    name: str
    schema: Schema
    key: tuple[str, ...] = ()
    sums: str = ""
    why: str = field(default="", compare=False)

    @cached_property
    def keys(self) -> Schema:
        """The relation of keys to read by."""
        types = dict(self.schema.columns)
        return Schema(tuple((k, types[k]) for k in self.key), ())

    def describe(self) -> dict[str, object]:
        """What must be the same for old state to be of use, as JSON has it."""
        return {
            **self.schema.kinds,
            "key": list(self.key),
            "sums": self.sums,
        }

    @classmethod
    def described(cls, name: str, said: object) -> Register:
        """The register that `describe` says this of; a ValueError where it is no description."""
        match said:
            case {"key": [*key], "sums": str() as sums}:
                schema = Schema.of_kinds(said)
                names = [n for n, _ in schema.columns]
                missing = [k for k in key if k not in names]
                if missing:
                    raise ValueError(f"its key {missing[0]!r} is not one of its columns")
                if len(set(key)) < len(key):
                    raise ValueError("its key has a column twice")
                return cls(name, schema, tuple(key), sums)
        raise ValueError("a register that does not say its key and what it is the sum of")


def fingerprint(registers: Sequence[Register]) -> str:
    """A digest of the registers of a circuit: the same in every process."""
    return fingerprint_of({r.name: r.describe() for r in registers})


def fingerprint_of(described: Mapping[str, Mapping[str, object]]) -> str:
    """The same, of what `Register.describe` says of each register, by its name."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


Now: TypeAlias = "int | float | str | dt.date | dt.datetime | None"
# By the name of the type; a datetime is a date too, so it comes before.
_NOWS: dict[type[object], Callable[[str], Now]] = {
    int: int,
    float: float,
    str: str,
    dt.datetime: dt.datetime.fromisoformat,
    dt.date: dt.date.fromisoformat,
}


def now_to_text(now: Now) -> str | None:
    """A `now` as text that `now_from_text` reads, in any process; a TypeError for another type."""
    if now is None:
        return None
    for t in _NOWS:
        if isinstance(now, t) and not isinstance(now, bool):
            shown = now.isoformat() if isinstance(now, dt.date) else str(now)
            return f"{t.__name__} {shown}"
    raise TypeError(f"{type(now).__name__}, not an int, float, str, date or datetime")


def now_from_text(text: str | None) -> Now:
    """What `now_to_text` was given."""
    if text is None:
        return None
    kind, shown = text.split(" ", 1)
    (read,) = (read for t, read in _NOWS.items() if t.__name__ == kind)
    return read(shown)


class Store(Protocol):
    """Keeps registers between steps. What is added in step n shows after commit(n), or never.

    One step: any number of `read`s (of what was committed before it) and `add`s, then `commit`,
    or `abort`. A failed `commit` leaves the store as before the step.

    >>> def steps_taken(store: st.Store) -> int:
    ...     return store.last_step()
    >>> steps_taken(st.StoreMemory([]))
    0
    """

    def open(self, registers: Sequence[Register], outputs: Sequence[Schema] = ()) -> None:
        """Get ready to serve these registers, and to keep outputs of these schemas.

        `StoreMismatch` names the registers that differ from those of the state. Outputs may
        differ: then what the last step gave cannot be had. A store that is open stays so.
        """

    def close(self) -> None:
        """Forget the step under way and let another writer in; a second call does nothing.

        A closed store serves nothing more: all but `abort` is a `StoreError` that says so. What
        outlives its process can then be opened again, as another object.
        """

    def last_step(self) -> int:
        """The number of the last committed step; 0 before the first."""

    def last_now(self) -> Now:
        """The `now` of the last committed step; None before the first."""

    def last_offsets(self) -> Mapping[str, int]:
        """How far each source of changes was read at the last committed step."""

    def last_settings(self) -> Mapping[str, str]:
        """Settings of the session that what is kept depends on; empty before they are given."""

    def last_outputs(self) -> tuple[Relation, ...] | None:
        """What the last committed step gave, as `commit` was told; None where it was not kept."""

    def last_made_by(self) -> tuple[str, ...] | None:
        """What computed each output of the last committed step, as `commit` was told.

        None where it was not told, as by versions that did not keep it.
        """

    def read(self, register: str, keys: Relation | None = None) -> tuple[Relation, ...]:
        """The committed value, in parts of the register's schema that add up to it.

        No parts: empty. With keys (a relation with the register's key columns, of distinct keys,
        no diffs): at least the rows with one of them. NULL in a key equals NULL, as rows do: who
        wants SQL's meaning asks for no such key.
        """

    def snapshot(self) -> AbstractContextManager[Store]:
        """Within the block, what this thread reads of the store is of one committed step.

        That is the last one when the block begins, whoever commits meanwhile, in this process or
        another; other threads do not notice. The thread cannot step within the block, and a block
        within it is of the same step. How long it may last is up to the class of the store.
        """

    def add(self, register: str, change: Relation) -> None:
        """Add a change (a relation of the register's schema) in the step under way.

        A `SparkRelation` that `is_settled` as the register needs it is kept as it is.
        """

    def commit(
        self,
        step: int,
        now: Now,
        outputs: Sequence[Relation] | None = None,
        offsets: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        made_by: Sequence[str] | None = None,
    ) -> None:
        """Make the additions of the step under way durable and visible, all at once.

        With them go the step's number, its `now`, what it gave (a relation for each output, of
        the schema said to `open`; None: nothing to keep), how far its sources were read, the
        settings of the session that its functions of rows depend on (None: as before), and what
        in the query computed each output (None: unknown).
        """

    def abort(self) -> None:
        """Forget the additions of the step under way."""

    def compact(self) -> None:
        """Merge what can be merged; changes nothing that can be read."""

    def batches(self, register: str) -> int:
        """How many parts the register is kept in."""


@dataclass(frozen=True)
class Size:
    """How large a register is: its parts, the rows in them as they are stored, their bytes."""

    batches: int
    rows: int
    nbytes: int


@runtime_checkable
class SizedStore(Protocol):
    """A store that can say how large its registers are; reports ask for it."""

    def size(self, register: str) -> Size:
        """How large a register is after the last committed step."""


def register_name(cache: str) -> str:
    """The name of the register that a cache reads."""
    return f"cache.{cache}"
