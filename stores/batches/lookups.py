"""Rows of batches by their keys: those that are on the driver, and those in Spark."""

from __future__ import annotations

from collections.abc import Sequence

from stepping_spark.limits import Limits
from stepping_spark.relations.codec import conform
from stepping_spark.spark.placement import ROWS_PER_KEY, is_sent_whole
from stepping_spark.spark.relation import DriverRelation, Relation
from stepping_spark.store import Register
from stores.batches.driver import DriverBatch, wanted_places, wanted_since
from stores.batches.last_step import Batches, driver_bytes_of, whole
from stores.batches.spark import SparkBatch
from stores.registers import checked_since


def at_keys(of: Register, batches: Batches, keys: Relation, limits: Limits) -> tuple[Relation, ...]:
    """The rows of batches that have one of the keys; if Spark has the keys, maybe other rows."""
    if keys.frame is not None:
        here = [b for b in batches if isinstance(b, DriverBatch)]
        rows, nbytes = sum(b.rows for b in here), driver_bytes_of(batches)
        most = max(limits.looked_up_keys, rows // ROWS_PER_KEY)
        sent = len(here) == len(batches) and is_sent_whole(rows, nbytes, limits)
        fetched = None if sent else keys.frame.limit(most + 1).toArrow()
        if fetched is None or fetched.num_rows > most:
            # The reader's join selects among the rows of the driver.
            return tuple(
                b.at(keys, limits) if isinstance(b, SparkBatch) else whole(b, of) for b in batches
            )
        keys = DriverRelation(fetched, of.keys)
    assert keys.table is not None
    keys = DriverRelation(conform(keys.table, of.keys), of.keys)
    if keys.is_empty:
        return ()
    places = wanted_places(keys.table, of)
    found: list[Relation] = []
    for b in batches:
        if isinstance(b, SparkBatch):
            found.append(b.at(keys, limits))
        elif (there := b.at(places)) is not None:
            found.append(DriverRelation(there, of.schema, consolidated=True))
    return tuple(found)


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
