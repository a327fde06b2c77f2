"""Relations that Spark computes once for a step, and that a register keeps as they are.

The result is cut from its lineage and has each row once. It is partitioned by the register's key.
So neither the next queries nor the store need an exchange to join or group by that key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepping_spark.errors import StepError
from stepping_spark.packages import DataFrame, StorageLevel, raised
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.measure import Measured, column, measure
from stepping_spark.spark.relation import SparkRelation
from stepping_spark.spark.wide import packed, unpacked
from stepping_spark.sums.overflow import beyond


def settle(
    relation: SparkRelation,
    key: Sequence[str],
    whose: str,
    *,
    level: StorageLevel | None = None,
    tests: Sequence[tuple[str, str]] = (),
) -> SparkRelation:
    """Compute a relation once, consolidate it, cut its lineage, and measure it.

    `level` is the storage level; by default it is memory, as far as there is room. Errors of Spark
    are raised unchanged. A sum that does not fit its column raises a StepError that begins with
    `whose`.
    """
    schema, frame = relation.schema, relation.frame
    if 0 < len(key) < len(schema.columns):
        # Equal rows have equal keys, so the grouping needs no other exchange.
        frame = frame.repartition(*[column(k) for k in key])

    said = too_large(whose)
    there = frame
    if not relation.consolidated or relation.partitioned_by != tuple(key):
        there = SparkRelation(frame, schema).added_up(said).frame
    try:
        kept, measured = _computed(there, schema, tests, level)
    except raised.PySparkException as e:
        for name, t in schema.diffs:
            if said(name, t) in str(e):
                raise StepError(said(name, t)) from e
        raise
    return SparkRelation(
        kept,
        schema,
        consolidated=True,
        partitioned_by=tuple(key),
        rows=measured.rows,
        nbytes=measured.nbytes,
        nulls=measured.nulls,
    )


def too_large(whose: str) -> Callable[[str, RowType], str]:
    """The text of the error of a sum that does not fit its column; it begins with `whose`."""
    return lambda name, t: f"{whose}: {beyond(name, t)}"


def kept_apart(relation: SparkRelation, tests: Sequence[tuple[str, str]] = ()) -> SparkRelation:
    """The relation as it is, computed once, cut from its lineage and measured."""
    kept, measured = _computed(relation.frame, relation.schema, tests)
    return SparkRelation(
        kept,
        relation.schema,
        relation.consolidated,
        rows=measured.rows,
        nbytes=measured.nbytes,
        nulls=measured.nulls,
    )


def _computed(
    frame: DataFrame,
    schema: Schema,
    tests: Sequence[tuple[str, str]],
    level: StorageLevel | None = None,
) -> tuple[DataFrame, Measured]:
    """The rows of a DataFrame, cut from its lineage, and their measure: computed in one job.

    The job that measures reads every row, so it also computes and stores them.
    """
    small = packed(frame, schema)
    stored = small.localCheckpoint(False) if level is None else small.localCheckpoint(False, level)
    kept = unpacked(stored, schema)
    return kept, measure(kept, schema, tests)
