"""Kernels, and the context that they run in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from stepping_spark.base.limits import DEFAULT, Limits
from stepping_spark.circuit.physical import WindowCall
from stepping_spark.expressions.arrow_evaluator import Ask
from stepping_spark.relations.arrow import concat
from stepping_spark.relations.relation import DriverRelation
from stepping_spark.relations.store import Now
from stepping_spark.rows.schema import Schema

PartitionKey: TypeAlias = tuple[Any, ...]
Carried: TypeAlias = Mapping[WindowCall, Any]


@dataclass(frozen=True)
class Prefix:
    """What is known of the rows of a partition that come before a place in its order.

    `last` is the place of the last of them; None where there are none. `carried` is their count, or
    their sum, for each function that has it.
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


class NeedsPrefix(Exception):
    """A change matters to rows that were not read."""


@dataclass
class Context:
    """The context that kernels run in."""

    ask: Ask  # has Spark evaluate expressions that are not plain
    now: Now = None
    limits: Limits = DEFAULT
    args: Sequence[DriverRelation] = ()
    prefixes: Prefixes | None = None  # of the partitions of a window's state
    filled: Sequence[DriverRelation] = ()  # what stands for holes, within the change of a fold
    carried: Carried = field(default_factory=dict)  # of rows that were left out of that


Kernel: TypeAlias = Callable[[Context], DriverRelation]


def sum_of(parts: Sequence[DriverRelation], schema: Schema) -> DriverRelation:
    """The sum of relations; a single one that has rows is as consolidated as it was."""
    tables: list[pa.Table] = []
    once = True
    for p in parts:
        if p.table.num_rows:
            once = p.consolidated and not tables
            tables.append(p.table)
    return DriverRelation(concat(tables, schema), schema, once)
