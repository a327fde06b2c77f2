"""Aggregates of the list of a group's values: the same in Spark, Arrow and Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.expressions.derived import Column, Derived
from stepping_spark.expressions.expr import Expr
from stepping_spark.rows.atoms import FLOAT, STR
from stepping_spark.rows.literals import literal, text
from stepping_spark.rows.sql_text import Sql, let
from stepping_spark.rows.types import ListOf, Optional, unwrap

Numbers = Any  # a numpy array


@dataclass(frozen=True)
class _OfList(Derived):
    """A value computed from the non-NULL items of a list. A NULL list counts as empty."""

    def _known(self, row: str) -> str:
        return f"filter({self.args[0].sql(row)}, v -> v IS NOT NULL)"

    def of(self, *values: Any) -> Any:
        return self.of_known([v for v in values[0] or () if v is not None])

    def of_known(self, values: list[Any]) -> Any:
        """The result for these values."""
        raise NotImplementedError


@dataclass(frozen=True)
class Compact(_OfList):
    """The list of the non-NULL items."""

    said: ClassVar[str] = "collect_list"

    def _sql(self, row: str) -> str:
        return f"coalesce({self._known(row)}, CAST(array() AS {self.type.ddl}))"

    def of_known(self, values: list[Any]) -> Any:
        return tuple(values)

    def arrow(self, columns: Sequence[Column]) -> Column:
        kept, _, ends = _known_values(columns[0])
        return pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), kept)


@dataclass(frozen=True)
class Joined(_OfList):
    """The non-NULL strings of a list, joined with a separator; NULL if there are none."""

    separator: str = ""
    said: ClassVar[str] = "string_agg"

    def _sql(self, row: str) -> str:
        strings = f"array_join(l, {text(self.separator)})"
        return let("l", self._known(row), f"CASE WHEN size(l) > 0 THEN {strings} END")

    def of_known(self, values: list[Any]) -> Any:
        return self.separator.join(values) if values else None


@dataclass(frozen=True)
class Percentile(_OfList):
    """The percentile at `share` (0 to 1) of a list of sorted floats; NULL if there are none.

    Between two values it is interpolated, as in Spark's percentile.
    """

    share: float = 0.5
    said: ClassVar[str] = "percentile"

    def __str__(self) -> str:
        return f"percentile({self.args[0]}, {self.share})"

    def _sql(self, row: str) -> str:
        return at_share_sql(self._known(row), self.share)

    def of_known(self, values: list[Any]) -> Any:
        return at_share(len(values), values.__getitem__, self.share)

    def arrow(self, columns: Sequence[Column]) -> Column:
        kept, begins, ends = _known_values(columns[0])
        some = np.flatnonzero(ends > begins)
        found = np.zeros(len(begins))
        if len(some):
            numbers = np.asarray(kept.to_numpy(zero_copy_only=False), np.float64)
            at = (ends[some] - begins[some] - 1) * self.share
            down, up = np.floor(at), np.ceil(at)
            low, high = (numbers[begins[some] + x.astype(np.int64)] for x in (down, up))
            with np.errstate(invalid="ignore", over="ignore"):
                between = low + (high - low) * (at - down)
            same = (low == high) | (np.isnan(low) & np.isnan(high))
            found[some] = np.where(same, low, between)
        return pa.array(found, pa.float64(), mask=ends == begins)


def at_share(n: int, value: Callable[[int], float], share: float) -> float | None:
    """The percentile at `share` of `n` sorted values; None if there are none."""
    if not n:
        return None
    at = (n - 1) * share
    low, high = value(math.floor(at)), value(math.ceil(at))
    if low == high or (low != low and high != high):
        return low
    return low + (high - low) * (at - math.floor(at))


def at_share_sql(items: str, share: float) -> Sql:
    """The percentile at `share` of a sorted list, in SQL."""
    between = "if(low = high, low, low + (high - low) * (at - floor(at)))"
    body = let("low", _item("floor(at)"), let("high", _item("ceil(at)"), between))
    body = let("at", f"(size(l) - 1) * {literal(share, FLOAT)}", body)
    return let("l", items, f"CASE WHEN size(l) > 0 THEN {body} END")


def _item(at: str) -> str:
    return f"element_at(l, CAST({at} AS INT) + 1)"


def _known_values(lists: Column) -> tuple[Column, Numbers, Numbers]:
    """The non-NULL items of all lists together, and where each list begins and ends in them."""
    flat: Any = pc.list_flatten(lists)  # a NULL list has no items
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0).to_numpy(), np.int64)
    edges = np.append(0, np.cumsum(lengths))
    there = np.append(0, np.cumsum(flat.is_valid().to_numpy(zero_copy_only=False)))
    begins, ends = there[edges[:-1]], there[edges[1:]]
    return flat.drop_null(), begins.astype(np.int64), ends.astype(np.int64)


def compact(items: Expr) -> Expr:
    """The list without NULLs."""
    lists = unwrap(items.type)
    assert isinstance(lists, ListOf)
    return Compact(ListOf(unwrap(lists.inner)), (items,))


def joined(items: Expr, separator: str, nullable: bool) -> Expr:
    """The strings of a list, joined with a separator."""
    return Joined(Optional(STR) if nullable else STR, (items,), separator)


def percentile(items: Expr, share: float, nullable: bool) -> Expr:
    """The percentile at `share` of a list of sorted floats."""
    return Percentile(Optional(FLOAT) if nullable else FLOAT, (items,), share)
