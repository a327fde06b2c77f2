"""Relations that Spark computes once for a step, and that a register keeps as they are.

What is computed is cut from its lineage, has each row once, and the rows of a key of the register
beside each other: so the queries that read it next need no exchange to join or to group by that
key, and neither does the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stepping_spark.errors import StepError
from stepping_spark.limits import Limits
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.sql_text import closed
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf, quote
from stepping_spark.sums.overflow import nonzero, total


@dataclass(frozen=True)
class Measured:
    """How many rows a relation has, and about what they would take in Arrow."""

    rows: int
    nbytes: int
    nulls: tuple[str, ...] = ()  # those of some fields that are NULL, though they never should be


@dataclass(frozen=True)
class Settled:
    """A relation that Spark has computed: each row once, partitioned by a key."""

    frame: DataFrame
    schema: Schema
    key: tuple[str, ...]
    measured: Measured


# What is known of a DataFrame does not hold it: else it, and what Spark keeps of it, would stay.
_SETTLED: WeakKeyDictionary[DataFrame, tuple[Schema, tuple[str, ...], Measured]]
_SETTLED = WeakKeyDictionary()


def settled_by(frame: DataFrame, schema: Schema, key: Sequence[str]) -> Settled | None:
    """What is known of a DataFrame that was settled by this key; None where it was not."""
    found = _SETTLED.get(frame)
    if found is None or found[:2] != (schema, tuple(key)):
        return None
    return Settled(frame, *found)


def settle(
    frame: DataFrame,
    schema: Schema,
    key: Sequence[str],
    whose: str,
    *,
    level: StorageLevel | None = None,
    tests: Sequence[tuple[str, str]] = (),
) -> Settled:
    """Compute a relation once, consolidate it, cut its lineage, and measure it.

    `level` is where it is kept: by default in memory, as far as there is some. An error of Spark
    is raised as it is; a sum that its column cannot hold is a StepError, which begins with `whose`.
    """
    if 0 < len(key) < len(schema.columns):
        # Equal rows have equal keys: the grouping needs no other exchange.
        frame = frame.repartition(*[column(k) for k in key])
    grouped = bool(schema.columns)
    sums = [
        F.expr(total(quote(n), t, _too_large(n, t, whose), grouped=grouped)).alias(n)
        for n, t in schema.diffs
    ]
    added = frame.groupBy(*[column(n) for n, _ in schema.columns]).agg(*sums)
    there = added.where(nonzero(schema))
    try:
        kept = there.localCheckpoint() if level is None else there.localCheckpoint(True, level)
    except PySparkException as e:
        for name, t in schema.diffs:
            if _too_large(name, t, whose) in str(e):
                raise StepError(_too_large(name, t, whose)) from e
        raise
    known = (schema, tuple(key), measure(kept, schema, tests))
    _SETTLED[kept] = known
    return Settled(kept, *known)


def measure(frame: DataFrame, schema: Schema, tests: Sequence[tuple[str, str]] = ()) -> Measured:
    """Count the rows of a DataFrame that Spark has computed, and those that tests find."""
    size = " + ".join(_size(t, quote(n)) for n, t in schema.all)
    nulls = [f"count_if({test}) AS n{i}" for i, (_, test) in enumerate(tests)]
    found = frame.selectExpr("count(1) AS rows", f"sum({size}) AS bytes", *nulls).first()
    assert found is not None
    wrong = tuple(name for i, (name, _) in enumerate(tests) if found[f"n{i}"])
    return Measured(found["rows"], found["bytes"] or 0, wrong)


def fetched(frame: DataFrame, schema: Schema, measured: Measured, limits: Limits) -> pa.Table:
    """The rows of a DataFrame that Spark has computed, on the driver; in several goes, if large.

    Spark has what a task gives three or four times in memory until it is sent: a heap that is
    large enough for the rest must do for that too.
    """
    pieces = -(-measured.nbytes // limits.piece_bytes)
    if pieces < 2 or not schema.columns:
        return frame.toArrow()
    piece = F.pmod(F.xxhash64(*[column(n) for n, _ in schema.columns]), F.lit(pieces))
    return pa.concat_tables([frame.where(piece == i).toArrow() for i in range(pieces)])


def column(name: str) -> Column:
    """The column of this very name, whatever stands in it."""
    return F.col(quote(name))


def _too_large(name: str, t: RowType, whose: str) -> str:
    return (
        f"{whose}: {name} of a row adds up to what is beyond {t.ddl}; feed fewer or smaller weights"
    )


def _size(t: RowType, value: str, depth: int = 0) -> str:
    """The bytes that a value takes in Arrow, about, as SQL."""
    return f"coalesce({_known_size(t, value, depth)}, 0L)"


def _known_size(t: RowType, value: str, depth: int) -> str:
    if isinstance(t, Optional):
        return _known_size(t.inner, value, depth)
    if isinstance(t, Struct):
        sizes = (_size(f, f"{value}.{quote(n)}", depth) for n, f in t.fields)
        return closed(" + ".join(sizes))
    if isinstance(t, ListOf | ZSetOf):
        inner = t.inner if isinstance(t, ListOf) else t.item
        item = _size(inner, f"x{depth}", depth + 1)
        return f"aggregate({value}, 4L, (n{depth}, x{depth}) -> n{depth} + {item})"
    if t.ddl in ("STRING", "BINARY"):
        return closed(f"octet_length({value}) + 4L")
    return f"{max(t.arrow.bit_width // 8, 1)}L"
