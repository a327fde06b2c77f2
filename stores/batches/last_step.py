"""The committed state of the memory store: batches of registers, on the driver or in Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stepping_spark.rows.schema import Schema
from stepping_spark.spark.relation import DriverRelation, Relation
from stepping_spark.store import Now, Register
from stores.batches.driver import DriverBatch
from stores.batches.spark import SparkBatch

Batch = DriverBatch | SparkBatch
Batches = tuple[Batch, ...]


@dataclass(frozen=True)
class LastStep:
    """The committed state, and the step that committed it."""

    step: int = 0
    now: Now = None
    batches: Mapping[str, Batches] = field(default_factory=dict)
    outputs: tuple[Relation, ...] | None = None
    schemas: tuple[Schema, ...] = ()  # of the outputs
    offsets: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    made_by: tuple[str, ...] | None = None
    circuit: str | None = None


def whole(batch: Batch, register: Register) -> Relation:
    """All rows of a batch."""
    if isinstance(batch, SparkBatch):
        return batch.relation
    return DriverRelation(batch.table, register.schema, consolidated=True)


def release(batches: Sequence[Batch]) -> None:
    """Free the batches in Spark's cache."""
    for b in batches:
        if isinstance(b, SparkBatch):
            b.release()


def driver_bytes_of(batches: Batches) -> int:
    """The memory of the batches on the driver."""
    return sum([b.nbytes for b in batches if isinstance(b, DriverBatch)])
