"""Bands of values: a point lies in one band, an interval in each band that it touches."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from stepping_spark.expressions.derived import Derived, widened
from stepping_spark.expressions.expr import Expr, whole
from stepping_spark.rows.atoms import FLOAT, INT, Atom, RowType
from stepping_spark.rows.data import Pair, pair_of
from stepping_spark.rows.literals import literal
from stepping_spark.rows.sql_text import all_of, closed, let_all
from stepping_spark.rows.types import ListOf, unwrap

MOST_BANDS = 64  # the most bands of an interval; a wider one is compared with every point
WIDE = -(2**63) + 1  # the band of wider intervals and of every point; all others are above it
FARTHEST = 2**52  # floats beyond this band, or its negative, are put into it

MICROSECOND = dt.timedelta(microseconds=1)
_UNITS: Mapping[str, tuple[Callable[[Any], int], str]] = {
    "int": (lambda v: v, "{0}"),
    "date": (lambda v: v.toordinal() - 719163, "CAST(unix_date({0}) AS BIGINT)"),
    "datetime": (
        lambda v: (v - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // MICROSECOND,
        "unix_micros({0})",
    ),
    "LocalDateTime": (
        lambda v: (v - dt.datetime(1970, 1, 1)) // MICROSECOND,
        "unix_date(CAST({0} AS DATE)) * 86400000000L + (hour({0}) * 60L + minute({0})) * 60000000L"
        " + CAST(extract(SECOND FROM {0}) * 1000000BD AS BIGINT)",
    ),
}
BANDED = ("int", "float", "Decimal", "date", "datetime", "LocalDateTime")


@dataclass(frozen=True)
class Bands(Derived):
    """The row with the number of each of its bands: a list of Pair(left=row, right=number).

    The parts: the row; the first and the last value of an interval (a point has the same value
    twice). NULL lies in no band.
    """

    width: int | float = 1
    point: bool = False
    said: ClassVar[str] = "bands"

    def __str__(self) -> str:
        return f"bands of {self.width} of {', '.join(map(str, dict.fromkeys(self.args[1:])))}"

    @property
    def _of(self) -> Atom:
        t = unwrap(self.args[1].type)
        assert isinstance(t, Atom)
        return t

    def band(self, value: Any) -> int:
        """The number of the band of a value."""
        if self._of != FLOAT:
            return max(_UNITS[self._of.name][0](value) // int(self.width), WIDE + 1)
        found = value / self.width
        if found != found or found >= FARTHEST:
            return FARTHEST
        return -FARTHEST if found <= -FARTHEST else math.floor(found)

    def of(self, *values: Any) -> Any:
        row, low, high = values
        if low is None or high is None:
            return ()
        first, last = self.band(low), self.band(high)
        if self.point:
            numbers: tuple[int, ...] = (first, WIDE)
        elif last - first >= MOST_BANDS:
            numbers = (WIDE,)
        else:
            numbers = tuple(range(first, last + 1))
        return tuple(Pair(left=row, right=n) for n in numbers)

    def _band_sql(self, value: str) -> str:
        if self._of != FLOAT:
            unit = closed(_UNITS[self._of.name][1].format(value))
            width = f"{int(self.width)}L"
            found = closed(f"{unit} DIV {width} - if({unit} % {width} < 0, 1L, 0L)")
            return f"greatest({found}, {WIDE + 1}L)"
        share = closed(f"{value} / {literal(float(self.width), FLOAT)}")
        far = f"{FARTHEST}L"
        return (
            f"CASE WHEN isnan({share}) OR {share} >= {far} THEN {far} "
            f"WHEN {share} <= -{far} THEN -{far} ELSE floor({share}) END"
        )

    def _sql(self, row: str) -> str:
        of_row, low, high = (a.sql(row) for a in self.args)
        bands = {"first": self._band_sql(low), "last": self._band_sql(high)}
        numbers = f"array(v.first, {WIDE}L)"
        if not self.point:
            numbers = (
                f"CASE WHEN CAST(v.last AS DECIMAL(20, 0)) - v.first >= {MOST_BANDS} "
                f"THEN array({WIDE}L) "
                "WHEN v.first <= v.last THEN sequence(v.first, v.last) END"
            )
        rows = f"transform({let_all('v', bands, numbers)}, b -> {_pair(of_row)})"
        none = f"CAST(array() AS {self.type.ddl})"
        known = all_of([f"{low} IS NOT NULL", f"{high} IS NOT NULL"])
        return f"coalesce(if({known}, CAST({rows} AS {self.type.ddl}), {none}), {none})"


def _pair(row: str) -> str:
    return f"named_struct('left', {row}, 'right', b)"


def bands(row: RowType, low: Expr, high: Expr, width: int | float, *, point: bool) -> Bands:
    """The bands of a row that is an interval or a point; see `Bands`."""
    t = unwrap(low.type)
    # Casting Decimals to float keeps their order.
    if isinstance(t, Atom) and t.name == "Decimal":
        low, high = widened(low, FLOAT), widened(high, FLOAT)
    return Bands(ListOf(pair_of(row, INT)), (whole(row), low, high), width, point)
