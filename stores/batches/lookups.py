"""Lookups in the batches of the memory store: the rows of keys, from the driver and from Spark."""

from __future__ import annotations

from collections.abc import Sequence

from stepping_spark.limits import Limits
from stepping_spark.relations.codec import conform
from stepping_spark.spark.placement import ROWS_PER_KEY, SENT_WHOLE
from stepping_spark.spark.relation import DriverRelation, Relation
from stepping_spark.store import Register
from stores.batches.driver import DriverBatch, wanted_places, wanted_since
from stores.batches.last_step import Batches, whole
from stores.batches.spark import SparkBatch
from stores.registers import checked_since


def at_keys(
    register: Register, batches: Batches, keys: Relation, limits: Limits
) -> tuple[Relation, ...]:
    """The rows of batches that have one of the keys."""
    if keys.frame is not None:
        here = sum(b.rows for b in batches if isinstance(b, DriverBatch))
        if _is_sent_whole(batches, limits):
            return tuple(whole(b, register) for b in batches)
        # The reader is in Spark, and what is found on the driver is sent there.
        most = max(limits.looked_up_keys, here // ROWS_PER_KEY)
        fetched = keys.frame.limit(most + 1).toArrow()
        if fetched.num_rows > most:
            # Most rows on the driver will be needed: return all, and let the reader's join select.
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


def _is_sent_whole(batches: Batches, limits: Limits) -> bool:
    """Whether sending all rows takes less time than the job that fetches the keys of a reader."""
    rows, nbytes = sum(b.rows for b in batches), driver_bytes(batches)
    on_driver = all(isinstance(b, DriverBatch) for b in batches)
    few = rows <= SENT_WHOLE * limits.looked_up_keys
    return on_driver and few and nbytes <= limits.broadcast_bytes


def at_since(
    register: Register, batches: Batches, keys: Relation, since: Sequence[int], limits: Limits
) -> tuple[Relation, ...]:
    """The rows of keys from a position in the order on; from Spark, all rows of the keys."""
    order, table = checked_since(register, keys)
    places, numbers = wanted_since(table, since, register)
    found: list[Relation] = []
    for b in batches:
        if isinstance(b, SparkBatch):
            found.append(b.at(DriverRelation(table, register.keys), limits))
        elif (rows := b.since(places, numbers, order)) is not None:
            found.append(DriverRelation(rows, register.schema, consolidated=True))
    return tuple(found)


def driver_bytes(batches: Batches) -> int:
    """The memory of the batches on the driver."""
    return sum(b.nbytes for b in batches if isinstance(b, DriverBatch))
