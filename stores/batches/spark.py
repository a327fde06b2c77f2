"""Batches of a register too large for the driver: cached in Spark, partitioned by key."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from stepping_spark.base.errors import StoreError
from stepping_spark.base.limits import Limits
from stepping_spark.base.packages import DataFrame, StorageLevel, raised
from stepping_spark.relations import relation
from stepping_spark.relations.arrow import canonical
from stepping_spark.relations.relation import Relation, SparkRelation
from stepping_spark.relations.store import Register
from stepping_spark.relations.transfer import column, matching
from stepping_spark.rows.atoms import Atom
from stepping_spark.rows.sql_text import literal
from stepping_spark.rows.types import Optional, quote
from stepping_spark.spark.session import first_line

LISTED_KEYS = 1_000
"""Keys that are listed in a condition on rows in Spark. Beyond: a broadcast join."""


@dataclass(frozen=True, eq=False)
class SparkBatch:
    """Consolidated, cached rows of a register; `nbytes` is their approximate size in Arrow."""

    frame: DataFrame
    register: Register
    rows: int
    nbytes: int

    @property
    def relation(self) -> SparkRelation:
        """All rows."""
        return SparkRelation(
            self.frame,
            self.register.schema,
            consolidated=True,
            partitioned_by=self.register.key,
            rows=self.rows,
            nbytes=self.nbytes,
        )

    def at(self, keys: Relation, limits: Limits) -> SparkRelation:
        """The rows that have one of the keys; NULL in a key equals NULL."""
        return SparkRelation(self._at(keys, limits), self.register.schema, consolidated=True)

    def _at(self, keys: Relation, limits: Limits) -> DataFrame:
        here = keys.table
        # For more keys a broadcast join is faster than SQL text, and cannot overflow the parser.
        if here is not None and len(self.register.key) == 1 and len(here) <= LISTED_KEYS:
            condition = _is_in(here, self.register)
            if condition is not None:
                return self.frame.where(condition)
        wanted = keys.in_spark(lambda: self.frame.sparkSession).frame
        small = here is not None and here.nbytes <= limits.broadcast_bytes
        return matching(self.frame, wanted, self.register.keys.columns, small=small)

    def release(self) -> None:
        """Free the memory. DataFrames read from the batch stay correct, but become slower."""
        self.frame.unpersist()


def settle(change: SparkRelation, register: Register) -> SparkRelation:
    """A relation in the form in which a register stores it; computed here, unless it was before."""
    if change.is_settled(register.schema, register.key):
        return change
    try:
        # On disk, because frequently read rows are cached on top of it.
        return relation.settle(
            SparkRelation(
                change.frame.select(*[column(n) for n, _ in register.schema.all]), register.schema
            ),
            register.key,
            f"register {register.name!r}",
            level=StorageLevel.DISK_ONLY,
        )
    except raised.PySparkException as e:
        raise _failed(e, register) from e


def cached(settled: SparkRelation, register: Register) -> SparkBatch:
    """The batch of settled rows, cached in memory in key order."""
    frame = settled.frame
    assert settled.rows is not None and settled.nbytes is not None
    try:
        if register.key:
            frame = frame.sortWithinPartitions(*[column(k) for k in register.key])
        frame = frame.cache()
        frame.count()
    except raised.PySparkException as e:
        raise _failed(e, register) from e
    return SparkBatch(frame, register, settled.rows, settled.nbytes)


def _failed(e: raised.PySparkException, register: Register) -> StoreError:
    return StoreError(
        f"register {register.name!r}: Spark could not compute the rows to keep: {first_line(e)}"
    )


def _is_in(keys: pa.Table, register: Register) -> str | None:
    """The condition that a one-column key is one of these; None for types without SQL literals."""
    ((name, t),) = register.keys.columns
    bare = t.inner if isinstance(t, Optional) else t
    if not isinstance(bare, Atom):
        return None
    values = canonical(keys.column(name)).to_pylist()
    listed = ", ".join(literal(v, bare) for v in values if v is not None)
    conditions = [f"{quote(name)} IN ({listed})"] if listed else []
    if None in values:
        conditions.append(f"{quote(name)} IS NULL")
    return " OR ".join(conditions) or "false"
