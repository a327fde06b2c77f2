"""Batches of a register, some of them on the driver and some in Spark: what is read of them."""

from __future__ import annotations

from collections.abc import Sequence

from stepping_spark.limits import Limits
from stepping_spark.relations.codec import conform
from stepping_spark.spark.relation import DriverRelation, Relation
from stepping_spark.store import Register
from stores.batches.driver import DriverBatch, wanted_places, wanted_since
from stores.batches.spark import SparkBatch
from stores.registers import checked_since

Batch = DriverBatch | SparkBatch
Batches = tuple[Batch, ...]


def at_keys(
    register: Register, batches: Batches, keys: Relation, limits: Limits
) -> tuple[Relation, ...]:
    """The rows of batches that have one of the keys."""
    if keys.frame is not None:
        fetched = keys.frame.limit(limits.looked_up_keys + 1).toArrow()
        if fetched.num_rows > limits.looked_up_keys:
            # Most of what the driver has will be wanted: the reader's own join sorts it out.
            return tuple(
                b.at(keys, limits) if isinstance(b, SparkBatch) else whole(b, register)
                for b in batches
            )
        keys = DriverRelation(fetched, register.keys)
    assert keys.table is not None
    table = conform(keys.table, register.keys)
    if not table.num_rows:
        return ()
    keys, places = DriverRelation(table, register.keys), wanted_places(table, register)
    found: list[Relation] = []
    for b in batches:
        if isinstance(b, SparkBatch):
            found.append(b.at(keys, limits))
        elif (rows := b.at(places)) is not None:
            found.append(DriverRelation(rows, register.schema, consolidated=True))
    return tuple(found)


def at_since(
    register: Register, batches: Batches, keys: Relation, since: Sequence[int], limits: Limits
) -> tuple[Relation, ...]:
    """The rows of keys from a place in the order on; of a batch in Spark, all of these keys."""
    order, table = checked_since(register, keys)
    places, numbers = wanted_since(table, since, register)
    found: list[Relation] = []
    for b in batches:
        if isinstance(b, SparkBatch):
            found.append(b.at(DriverRelation(table, register.keys), limits))
        elif (rows := b.since(places, numbers, order)) is not None:
            found.append(DriverRelation(rows, register.schema, consolidated=True))
    return tuple(found)


def whole(batch: Batch, register: Register) -> Relation:
    """All rows of a batch."""
    if isinstance(batch, SparkBatch):
        return batch.relation
    return DriverRelation(batch.table, register.schema, consolidated=True)


def driver_bytes(batches: Batches) -> int:
    """The memory that those batches take that the driver holds."""
    return sum(b.nbytes for b in batches if isinstance(b, DriverBatch))


def release(batches: Sequence[Batch]) -> None:
    """Free what Spark keeps of batches."""
    for b in batches:
        if isinstance(b, SparkBatch):
            b.release()
