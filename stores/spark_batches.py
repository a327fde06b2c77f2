"""Batches of a register that are too large for the driver: cached in Spark, partitioned by key."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from operator import and_

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from stepping_spark.atoms import Atom, RowType
from stepping_spark.codec import frame_of
from stepping_spark.errors import StepError, StoreError
from stepping_spark.literals import literal, text
from stepping_spark.relations import canonical
from stepping_spark.schema import Schema
from stepping_spark.spark_types import first_line
from stepping_spark.store import Held, Register
from stepping_spark.types import ListOf, Optional, Struct, ZSetOf, quote

IN_KEYS = 1_000
"""Above so many keys a broadcast is faster than SQL text, and spares the parser's stack."""

BROADCAST_BYTES = 32 << 20


@dataclass(frozen=True, eq=False)
class SparkBatch:
    """Consolidated rows of a register, cached; `nbytes` is about what they would take in Arrow."""

    frame: DataFrame
    register: Register
    rows: int
    nbytes: int

    def at(self, keys: Held) -> DataFrame:
        """The rows that have one of the keys; NULL in a key equals NULL."""
        if isinstance(keys, pa.Table):
            if len(self.register.key) == 1 and keys.num_rows <= IN_KEYS:
                condition = _is_in(keys, self.register)
                if condition is not None:
                    return self.frame.where(condition)
            few = keys.nbytes <= BROADCAST_BYTES
            keys = frame_of(keys, keys_of(self.register), self.frame.sparkSession)
            keys = F.broadcast(keys) if few else keys
        named = [(k, f"_key_{i}_of_read_") for i, k in enumerate(self.register.key)]
        wanted = keys.select(*[column(k).alias(new) for k, new in named])
        same = [column(k).eqNullSafe(column(new)) for k, new in named]
        return self.frame.join(wanted, functools.reduce(and_, same), "left_semi")

    def release(self) -> None:
        """Free the memory; a DataFrame that was read from the batch stays right, but slower."""
        self.frame.unpersist()


def keys_of(register: Register) -> Schema:
    """The relation of keys to read by."""
    types = dict(register.schema.columns)
    return Schema(tuple((k, types[k]) for k in register.key), ())


def column(name: str) -> Column:
    """The column of this very name, whatever stands in it."""
    return F.col(quote(name))


@dataclass(frozen=True)
class Settled:
    """Consolidated rows of a register that Spark has computed, with their number and size."""

    frame: DataFrame
    register: Register
    rows: int
    nbytes: int


def settle(frame: DataFrame, register: Register) -> Settled:
    """Compute a relation once, consolidate it, cut its lineage, and measure it."""
    schema = register.schema
    try:
        if register.key:
            # Equal rows have equal keys: the grouping needs no other exchange.
            frame = frame.repartition(*[column(k) for k in register.key])
        sums = [F.expr(_sum(n, t, register)).alias(n) for n, t in schema.diffs]
        added = frame.groupBy(*[column(n) for n, _ in schema.columns]).agg(*sums)
        there = " OR ".join(f"{quote(n)} <> 0" for n, _ in schema.diffs)
        # On disk, because what is read again and again is cached above it.
        kept = added.where(there).localCheckpoint(True, StorageLevel.DISK_ONLY)
        size = " + ".join(_size(t, quote(n)) for n, t in schema.all)
        measured = kept.selectExpr("count(1) AS rows", f"sum({size}) AS bytes").toArrow()
    except PySparkException as e:
        raise _failed(e, register) from e
    (found,) = measured.to_pylist()
    return Settled(kept, register, found["rows"], found["bytes"] or 0)


def cached(settled: Settled) -> SparkBatch:
    """The batch of settled rows, kept in memory in the order of the key."""
    frame, register = settled.frame, settled.register
    try:
        if register.key:
            frame = frame.sortWithinPartitions(*[column(k) for k in register.key])
        frame = frame.cache()
        frame.count()
    except PySparkException as e:
        raise _failed(e, register) from e
    return SparkBatch(frame, register, settled.rows, settled.nbytes)


def _failed(e: PySparkException, register: Register) -> StepError | StoreError:
    for name, t in register.schema.diffs:
        if _too_large(name, t, register) in str(e):
            return StepError(_too_large(name, t, register))
    return StoreError(
        f"register {register.name!r}: Spark could not compute the rows to keep: {first_line(e)}"
    )


def _too_large(name: str, t: RowType, register: Register) -> str:
    return (
        f"register {register.name!r}: {name} of a row adds up to what is beyond {t.ddl}; feed "
        "fewer or smaller weights"
    )


def _sum(name: str, t: RowType, register: Register) -> str:
    """The sum of a diff, exactly; an error where its column cannot hold it, whatever ANSI says."""
    error = f"raise_error({text(_too_large(name, t, register))})"
    if t.ddl == "BIGINT":
        # The upper and the lower half of the bits are added apart: neither sum can overflow, and
        # both are far cheaper than one of decimals.
        low = f"sum({quote(name)} & 4294967295L)"
        high = f"(sum(shiftright({quote(name)}, 32)) + shiftright({low}, 32))"
        total = f"shiftleft({high}, 32) | ({low} & 4294967295L)"
        fits = f"{high} BETWEEN -2147483648L AND 2147483647L"
        checked = f"CASE WHEN {fits} THEN {total} ELSE {error} END"
    else:
        checked = f"coalesce(try_sum({quote(name)}), {error})"
    return checked if register.schema.columns else f"CASE WHEN count(1) > 0 THEN {checked} END"


def _size(t: RowType, value: str, depth: int = 0) -> str:
    """The bytes that a value takes in Arrow, about, as SQL."""
    return f"coalesce({_known_size(t, value, depth)}, 0L)"


def _known_size(t: RowType, value: str, depth: int) -> str:
    if isinstance(t, Optional):
        return _known_size(t.inner, value, depth)
    if isinstance(t, Struct):
        return " + ".join(_size(f, f"{value}.{quote(n)}", depth) for n, f in t.fields)
    if isinstance(t, ListOf | ZSetOf):
        inner = t.inner if isinstance(t, ListOf) else t.item
        item = _size(inner, f"x{depth}", depth + 1)
        return f"aggregate({value}, 4L, (n{depth}, x{depth}) -> n{depth} + {item})"
    if t.ddl in ("STRING", "BINARY"):
        return f"(octet_length({value}) + 4L)"
    return f"{max(t.arrow.bit_width // 8, 1)}L"


def _is_in(keys: pa.Table, register: Register) -> str | None:
    """The condition that a key of one column is among these; None where SQL has no literals."""
    ((name, t),) = keys_of(register).columns
    bare = t.inner if isinstance(t, Optional) else t
    if not isinstance(bare, Atom):
        return None
    values = canonical(keys.column(name)).to_pylist()
    listed = ", ".join(literal(v, bare) for v in values if v is not None)
    conditions = [f"{quote(name)} IN ({listed})"] if listed else []
    if None in values:
        conditions.append(f"{quote(name)} IS NULL")
    return " OR ".join(conditions) or "false"
