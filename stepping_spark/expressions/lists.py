"""Aggregates of the list of a group's values: the same in Spark, Arrow and Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_, xor
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.portable import Derived, EngineColumn
from stepping_spark.rows.atoms import FLOAT, INT, NAN, STR
from stepping_spark.rows.sql_text import Sql, any_of, closed, let, literal, text
from stepping_spark.rows.types import ListOf, Optional, unwrap

NumberList = Any  # a numpy array


@dataclass(frozen=True)
class _OfList(Derived):
    """A value computed from the non-NULL items of a list. A NULL list counts as empty."""

    def _valid_items(self, row: str) -> str:
        return f"filter({self.args[0].sql(row)}, v -> v IS NOT NULL)"

    def of(self, *values: Any) -> Any:
        return self.of_known([v for v in values[0] or () if v is not None])

    def of_known(self, values: list[Any]) -> Any:
        """The result for these values."""
        raise NotImplementedError


@dataclass(frozen=True)
class Compact(_OfList):
    """The list of the non-NULL items."""

    label: ClassVar[str] = "collect_list"

    def _sql(self, row: str) -> str:
        return f"coalesce({self._valid_items(row)}, CAST(array() AS {self.type.ddl}))"

    def of_known(self, values: list[Any]) -> Any:
        return tuple(values)

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        kept, _, ends = _known_values(columns[0])
        return pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), kept)


@dataclass(frozen=True)
class Joined(_OfList):
    """The non-NULL strings of a list, joined with a separator; NULL if there are none."""

    separator: str = ""
    label: ClassVar[str] = "string_agg"

    def _sql(self, row: str) -> str:
        strings = f"array_join(l, {text(self.separator)})"
        return let("l", self._valid_items(row), f"CASE WHEN size(l) > 0 THEN {strings} END")

    def of_known(self, values: list[Any]) -> Any:
        return self.separator.join(values) if values else None


@dataclass(frozen=True)
class Percentile(_OfList):
    """The percentile at `share` (0 to 1) of a list of sorted floats; NULL if there are none.

    Between two values it is interpolated, as in Spark's percentile.
    """

    share: float = 0.5
    label: ClassVar[str] = "percentile"

    def __str__(self) -> str:
        return f"percentile({self.args[0]}, {self.share})"

    def _sql(self, row: str) -> str:
        return at_share_sql(self._valid_items(row), self.share)

    def of_known(self, values: list[Any]) -> Any:
        return at_share(len(values), values.__getitem__, self.share)

    def arrow(self, columns: Sequence[EngineColumn]) -> EngineColumn:
        kept, begins, ends = _known_values(columns[0])
        some = np.flatnonzero(ends > begins)
        results = np.zeros(len(begins))
        if len(some):
            numbers = np.asarray(kept.to_numpy(zero_copy_only=False), np.float64)
            at = (ends[some] - begins[some] - 1) * self.share
            down, up = np.floor(at), np.ceil(at)
            low, high = (numbers[begins[some] + x.astype(np.int64)] for x in (down, up))
            with np.errstate(invalid="ignore", over="ignore"):
                between = low + (high - low) * (at - down)
            same = (low == high) | (np.isnan(low) & np.isnan(high))
            results[some] = np.where(same, low, between)
        return pa.array(results, pa.float64(), mask=ends == begins)


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


def _known_values(lists: EngineColumn) -> tuple[EngineColumn, NumberList, NumberList]:
    """The non-NULL items of all lists together, and the begin and end of each list in them."""
    flat: Any = pc.list_flatten(lists)  # a NULL list has no items
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0).to_numpy(), np.int64)
    edges = np.append(0, np.cumsum(lengths))
    counts = np.append(0, np.cumsum(flat.is_valid().to_numpy(zero_copy_only=False)))
    begins, ends = counts[edges[:-1]], counts[edges[1:]]
    return flat.drop_null(), begins.astype(np.int64), ends.astype(np.int64)


@dataclass(frozen=True)
class Shape(_OfList):
    """The skewness or, with `fourth`, the kurtosis of a list of sorted floats, as in Spark.

    The deviations from the mean are added in the order of the list, so that each engine gives the
    same bits. NULL if there are no values, or if all are equal; NaN if one is not finite.
    """

    fourth: bool = False

    def __str__(self) -> str:
        return f"{'kurtosis' if self.fourth else 'skewness'}({self.args[0]})"

    def of_known(self, values: list[Any]) -> Any:
        if not values:
            return None
        n, mean = float(len(values)), 0.0
        for v in values:
            mean = mean + v / n
        second = high = 0.0
        for v in values:
            d = v - mean
            second = second + d * d
            high = high + (d * d * (d * d) if self.fourth else d * d * d)
        if not math.isfinite(second):
            return NAN
        if second == 0.0 or values[0] == values[-1]:
            return None
        if self.fourth:
            return n * (high / second) / second - 3.0
        return math.sqrt(n) * (high / second) / math.sqrt(second)

    def _sql(self, row: str) -> str:
        n = "CAST(size(l) AS DOUBLE)"
        mean = f"aggregate(l, 0D, (s, v) -> s + v / {n})"
        power = "d * d * (d * d)" if self.fourth else "d * d * d"
        moved = "named_struct('second', s.second + d * d, 'high', s.high + " + power + ")"
        added = f"aggregate(transform(l, v -> v - mean), {_NO_POWERS}, (s, d) -> {moved})"
        if self.fourth:
            moment = closed(f"{n} * (s.high / s.second) / s.second - 3D")
        else:
            moment = closed(f"sqrt({n}) * (s.high / s.second) / sqrt(s.second)")
        same = any_of(["s.second = 0D", "element_at(l, 1) = element_at(l, -1)"])
        finite = closed("abs(s.second) < double('Infinity')")
        shown = f"CASE WHEN NOT {finite} THEN double('NaN') WHEN NOT {same} THEN {moment} END"
        body = let("mean", mean, let("s", added, shown))
        return let("l", self._valid_items(row), f"CASE WHEN size(l) > 0 THEN {body} END")


_NO_POWERS = "named_struct('second', 0D, 'high', 0D)"
_BITWISE: dict[str, Callable[[int, int], int]] = {"&": and_, "|": or_, "^": xor}


@dataclass(frozen=True)
class Bits(_OfList):
    """The ints of a list, combined bit by bit; NULL if there are none."""

    operator: str = "&"

    def __str__(self) -> str:
        name = {"&": "bit_and", "|": "bit_or", "^": "bit_xor"}[self.operator]
        return f"{name}({self.args[0]})"

    def of_known(self, values: list[Any]) -> Any:
        return reduce(_BITWISE[self.operator], values) if values else None

    def _sql(self, row: str) -> str:
        start = -1 if self.operator == "&" else 0
        combined = f"aggregate(l, CAST({start} AS BIGINT), (s, v) -> s {self.operator} v)"
        return let("l", self._valid_items(row), f"CASE WHEN size(l) > 0 THEN {combined} END")


def shape(items: Expr, *, fourth: bool) -> Expr:
    """The skewness or the kurtosis of a list of sorted floats."""
    return Shape(Optional(FLOAT), (items,), fourth)


def bits(items: Expr, operator: str, nullable: bool) -> Expr:
    """The ints of a list, combined by `&`, `|` or `^`."""
    return Bits(Optional(INT) if nullable else INT, (items,), operator)


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
