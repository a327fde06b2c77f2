"""The standard deviation of sums of squares, as exact as doubles allow, and the same everywhere.

A square of a double is the sum of two: x² = p + e, exactly (T. J. Dekker, 1971). Sums of each are
exact, and so is that of x; what rounding leaves over of them is known too. So n·Σx² − (Σx)² loses
none of its digits to cancellation, as long as the squares are within a double's range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from stepping_spark.expressions.derived import Derived
from stepping_spark.expressions.expr import Expr
from stepping_spark.rows.atoms import FLOAT, NAN
from stepping_spark.rows.sql_text import closed, let
from stepping_spark.rows.types import Optional

SPLIT = 134217729.0  # 2**27 + 1
LARGE = 1e150  # beyond it a square may overflow, and its rest is not known


def square_rest(x: float, p: float) -> float:
    """x² − p, where p is x² rounded; 0 where x is large, or no number."""
    if not abs(x) < LARGE:
        return 0.0
    c = SPLIT * x
    high = c - (c - x)
    low = x - high
    return ((high * high - p) + 2.0 * (high * low)) + low * low


def square_rest_sql(x: str, p: str) -> str:
    """The same in SQL, of two names."""
    rest = closed(f"((high * high - {p}) + 2D * (high * low)) + low * low")
    body = let("high", f"c - (c - {x})", let("low", f"{x} - high", rest))
    return f"if(abs({x}) < {LARGE}D, {let('c', f'{SPLIT}D * {x}', body)}, 0D)"


@dataclass(frozen=True)
class Square(Derived):
    """The square of a float, rounded."""

    said: ClassVar[str] = "square"

    def _sql(self, row: str) -> str:
        return let("x", self.args[0].sql(row), "x * x")

    def of(self, *values: Any) -> Any:
        (x,) = values
        return None if x is None else x * x


@dataclass(frozen=True)
class SquareRest(Derived):
    """What rounding leaves over of the square of a float."""

    said: ClassVar[str] = "square_rest"

    def _sql(self, row: str) -> str:
        x = self.args[0].sql(row)
        body = let("p", "x * x", square_rest_sql("x", "p"))
        return let("x", x, f"if(x IS NULL, CAST(NULL AS DOUBLE), {body})")

    def of(self, *values: Any) -> Any:
        (x,) = values
        return None if x is None else square_rest(x, x * x)


@dataclass(frozen=True)
class Deviation(Derived):
    """√((Σx² − (Σx)²/n) / (n − 1)), NULL for n < 2, NaN where a sum is not finite.

    The parts: n; Σx and its rest; the sum of the rounded squares and its rest; that of their rests.
    """

    said: ClassVar[str] = "stddev"

    def of(self, *values: Any) -> Any:
        count, s, s_rest, p, p_rest, e = values
        if count < 2:
            return None
        n = float(count)
        a, b = n * p, s * s
        a_rest = _product_rest(n, p, a)
        small = (a_rest - square_rest(s, b)) + (n * p_rest + n * e - 2.0 * (s * s_rest))
        t = (a - b) + small
        if not math.isfinite(t):
            return NAN
        return math.sqrt((t if t > 0.0 else 0.0) / (n * (n - 1.0)))

    def _sql(self, row: str) -> str:
        count, s, s_rest, p, p_rest, e = (x.sql(row) for x in self.args)
        small = closed(
            f"({_product_rest_sql('n', 'p', 'a')} - {square_rest_sql('s', 'b')}) + "
            "(n * p_rest + n * e - 2D * (s * s_rest))"
        )
        root = "sqrt(if(t > 0D, t, 0D) / (n * (n - 1D)))"
        body = let(
            "t", f"(a - b) + {small}", f"if(abs(t) < double('Infinity'), {root}, double('NaN'))"
        )
        body = let("a", "n * p", let("b", "s * s", body))
        for name, text in (("e", e), ("p_rest", p_rest), ("p", p), ("s_rest", s_rest), ("s", s)):
            body = let(name, text, body)
        body = let("n", f"CAST({count} AS DOUBLE)", body)
        return f"CASE WHEN {count} >= 2 THEN {body} END"


def _product_rest(x: float, y: float, p: float) -> float:
    """x · y − p, where p is x · y rounded; 0 where y is large, or no number."""
    if not abs(y) < LARGE * LARGE:
        return 0.0
    c, d = SPLIT * x, SPLIT * y
    high, top = c - (c - x), d - (d - y)
    low, rest = x - high, y - top
    return (((high * top - p) + high * rest) + low * top) + low * rest


def _product_rest_sql(x: str, y: str, p: str) -> str:
    """The same in SQL, of names."""
    found = closed(f"(((high * top - {p}) + high * rest) + low * top) + low * rest")
    body = let("low", f"{x} - high", let("rest", f"{y} - top", found))
    body = let("high", f"c - (c - {x})", let("top", f"d - (d - {y})", body))
    body = let("c", f"{SPLIT}D * {x}", let("d", f"{SPLIT}D * {y}", body))
    return f"if(abs({y}) < {LARGE * LARGE!r}D, {body}, 0D)"


def square(x: Expr) -> Expr:
    """The square of a float, rounded."""
    return Square(x.type, (x,))


def square_left(x: Expr) -> Expr:
    """What rounding leaves over of the square of a float."""
    return SquareRest(x.type, (x,))


def deviation(parts: tuple[Expr, ...]) -> Expr:
    """The sample standard deviation, from what `Deviation` takes."""
    return Deviation(Optional(FLOAT), parts)
