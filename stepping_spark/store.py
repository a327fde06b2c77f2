"""What a store is: it keeps registers between steps, and a register only grows by addition."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from stepping_spark.schema import Schema

# A relation is held where its size puts it: a small one on the driver, a large one in Spark.
# Either way it has the columns of its schema, in order; equal rows may stand in it several
# times, and their diffs count together.
Held = pa.Table | DataFrame


@dataclass(frozen=True)
class Register:
    """The state of one stream: the sum of all its changes.

    With a key it is an arrangement: `key` names the columns by which it is read. A key that is
    computed, or lies inside a struct, has columns of its own in the schema (`_key_1_`, …).
    """

    name: str
    schema: Schema
    key: tuple[str, ...] = ()

    def describe(self) -> dict[str, object]:
        """What must be the same for old state to be of use."""
        return {"schema": self.schema.ddl, "key": list(self.key)}


def fingerprint(registers: Sequence[Register]) -> str:
    """A digest of the registers of a circuit: the same in every process."""
    described = {r.name: r.describe() for r in registers}
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


class Store(Protocol):
    """Keeps registers between steps. What is added in step n shows after commit(n), or never.

    One step: any number of `read`s (of what was committed before it) and `add`s, then `commit`,
    or `abort`. A failed `commit` leaves the store as before the step.
    """

    def open(self, registers: Sequence[Register]) -> None:
        """Get ready to serve these registers; `StoreMismatch` names those that differ."""

    def last_step(self) -> int:
        """The number of the last committed step; 0 before the first."""

    def last_now(self) -> object:
        """The `now` of the last committed step; None before the first."""

    def read(self, register: str, keys: Held | None = None) -> tuple[Held, ...]:
        """The committed value, in parts that add up to it; no parts: empty.

        With keys (a relation with the register's key columns, of distinct keys, no diffs): at
        least the rows with one of them. NULL in a key equals NULL, as rows do: who wants SQL's
        meaning asks for no such key.
        """

    def add(self, register: str, change: Held) -> None:
        """Add a change (a relation of the register's schema) in the step under way."""

    def commit(self, step: int, now: object) -> None:
        """Make the additions of the step under way durable and visible, all at once."""

    def abort(self) -> None:
        """Forget the additions of the step under way."""

    def compact(self) -> None:
        """Merge what can be merged; changes nothing that can be read."""

    def batches(self, register: str) -> int:
        """How many parts the register is kept in."""
