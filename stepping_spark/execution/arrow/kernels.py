"""Kernels, and the context that they run in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stepping_spark.base.limits import DEFAULT, Limits
from stepping_spark.circuit.physical import WindowCall
from stepping_spark.expressions.arrow_evaluator import Ask
from stepping_spark.relations.arrow import concat
from stepping_spark.relations.relation import DriverRelation
from stepping_spark.relations.store import Now
from stepping_spark.rows.schema import Schema

Mask = npt.NDArray[np.bool_]
PartitionKey: TypeAlias = tuple[Any, ...]
Carried: TypeAlias = Mapping[WindowCall, Any]


@dataclass(frozen=True)
class Prefix:
    """A summary of the rows of a partition before a place in its order.

    `last` is the place of the last such row; None if there are none. `carried` has their count or
    their sum, for each function that needs it.
    """

    place: int
    last: int | None
    carried: Carried


@dataclass
class Prefixes:
    """The prefixes of partitions of which a table lacks the first rows.

    Earlier steps computed the `old` ones. This step adds the `new` ones.
    """

    old: Mapping[PartitionKey, Prefix] = field(default_factory=dict)
    new: dict[PartitionKey, Prefix] = field(default_factory=dict)


@dataclass(frozen=True)
class StateNotes:
    """What the read of a state tells its kernel, beside the rows."""

    prefixes: Prefixes | None = None  # of the partitions of a window
    in_buckets: Mask | None = None
    """Which rows of the change are in groups that are in buckets; None if none is."""


NO_NOTES = StateNotes()


class NeedsPrefix(Exception):
    """Signal: a change affects rows that were not read."""


@dataclass
class Context:
    """The context that kernels run in."""

    ask: Ask  # evaluates other than plain expressions, with Spark
    now: Now = None
    limits: Limits = DEFAULT
    args: Sequence[DriverRelation] = ()
    state_notes: StateNotes = NO_NOTES  # of the state that the kernel reads
    filled: Sequence[DriverRelation] = ()  # the relations in holes, within the change of a fold
    carried: Carried = field(default_factory=dict)  # counts and sums of rows that were left out


Kernel: TypeAlias = Callable[[Context], DriverRelation]


def sum_of(parts: Sequence[DriverRelation], schema: Schema) -> DriverRelation:
    """The sum of relations; consolidated if only one has rows, and that one is consolidated."""
    tables: list[pa.Table] = []
    once = True
    for p in parts:
        if p.table.num_rows:
            once = p.consolidated and not tables
            tables.append(p.table)
    return DriverRelation(concat(tables, schema), schema, once)
