"""The committed state of the memory store: batches of registers, on the driver or in Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stepping_spark.limits import Limits
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.relation import DriverRelation, Relation
from stepping_spark.store import Register
from stores.base import LastStep
from stores.batches.driver import DriverBatch, wanted_since
from stores.batches.spark import SparkBatch
from stores.registers import checked_since

Batch = DriverBatch | SparkBatch
Batches = tuple[Batch, ...]


@dataclass(frozen=True)
class MemoryState:
    """The committed state, and the step that committed it."""

    last: LastStep = field(default_factory=LastStep)
    batches: Mapping[str, Batches] = field(default_factory=dict)
    outputs: tuple[Relation, ...] | None = None
    schemas: tuple[Schema, ...] = ()  # of the outputs
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


def at_since(
    of: Register, batches: Batches, keys: Relation, since: Sequence[int], limits: Limits
) -> tuple[Relation, ...]:
    """The rows of keys from a position in the order on; from Spark, all rows of the keys."""
    order, table = checked_since(of, keys)
    places, numbers = wanted_since(table, since, of)
    found: list[Relation] = []
    for b in batches:
        if isinstance(b, SparkBatch):
            found.append(b.at(DriverRelation(table, of.keys), limits))
        elif (there := b.since(places, numbers, order)) is not None:
            found.append(DriverRelation(there, of.schema, consolidated=True))
    return tuple(found)
