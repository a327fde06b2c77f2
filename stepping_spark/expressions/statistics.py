"""Deviations, correlations, covariances and regressions, from exact sums, equal on each engine.

A product of doubles is exactly the sum of two doubles: x·y = p + e (T. J. Dekker, 1971). The sums
of p and of e are exact, and so are those of x and y; their rounding errors are known too. So
n·Σxy − Σx·Σy loses no digits to cancellation, if the products are within a double's range.

A "rest" is the rounding error of a double: the exact value minus the rounded one.

As in Spark, y comes first in SQL's regr_…(y, x). With the mean x̄ of n values, Sxx = Σ(x − x̄)², and
Sxy = Σ(x − x̄)(y − ȳ): n·Sxx is n·Σx² − (Σx)², which loses no digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.portable import Derived
from stepping_spark.rows.atoms import FLOAT, NAN, RowType
from stepping_spark.rows.sql_text import all_of, closed, let, let_all
from stepping_spark.rows.types import Optional

SPLIT = 134217729.0  # 2**27 + 1
LARGE = 1e150  # beyond it a square may overflow, and its rest is unknown


def square_rest(x: float, p: float) -> float:
    """x² − p, where p is x² rounded; 0 if x is large or not a number."""
    if not abs(x) < LARGE:
        return 0.0
    c = SPLIT * x
    high = c - (c - x)
    low = x - high
    return ((high * high - p) + 2.0 * (high * low)) + low * low


def square_rest_sql(x: str, p: str) -> str:
    """`square_rest` in SQL, for two names."""
    rest = closed(f"((high * high - {p}) + 2D * (high * low)) + low * low")
    body = let("high", f"c - (c - {x})", let("low", f"{x} - high", rest))
    return f"if(abs({x}) < {LARGE}D, {let('c', f'{SPLIT}D * {x}', body)}, 0D)"


@dataclass(frozen=True)
class Square(Derived):
    """The square of a float, rounded."""

    label: ClassVar[str] = "square"

    def _sql(self, row: str) -> str:
        return let("x", self.args[0].sql(row), "x * x")

    def of(self, *values: Any) -> Any:
        (x,) = values
        return None if x is None else x * x


@dataclass(frozen=True)
class SquareRest(Derived):
    """The rounding error of the square of a float."""

    label: ClassVar[str] = "square_rest"

    def _sql(self, row: str) -> str:
        x = self.args[0].sql(row)
        body = let("p", "x * x", square_rest_sql("x", "p"))
        return let("x", x, f"if(x IS NULL, CAST(NULL AS DOUBLE), {body})")

    def of(self, *values: Any) -> Any:
        (x,) = values
        return None if x is None else square_rest(x, x * x)


@dataclass(frozen=True)
class Times(Derived):
    """The product of two floats, rounded."""

    label: ClassVar[str] = "times"

    def _sql(self, row: str) -> str:
        return " * ".join(a.sql(row) for a in self.args)

    def of(self, *values: Any) -> Any:
        x, y = values
        return None if x is None or y is None else x * y


@dataclass(frozen=True)
class TimesRest(Derived):
    """The rounding error of the product of two floats; 0 if one of them is large."""

    label: ClassVar[str] = "times_rest"

    def _sql(self, row: str) -> str:
        x, y = (a.sql(row) for a in self.args)
        body = let("p", "v.x * v.y", _times_rest_sql("v.x", "v.y", "p"))
        none = "if(v.x IS NULL OR v.y IS NULL, CAST(NULL AS DOUBLE), "
        return let_all("v", {"x": x, "y": y}, f"{none}{body})")

    def of(self, *values: Any) -> Any:
        x, y = values
        return None if x is None or y is None else _times_rest(x, y, x * y)


@dataclass(frozen=True)
class Deviation(Derived):
    """√((Σx² − (Σx)²/n) / (n − 1)); NULL for n < 2, NaN if a sum is not finite.

    With `population` the divisor is n, and the result NULL for n < 1. Without `root` it is the
    variance. The parts: n; Σx and its rest; the sum of the rounded squares and its rest; the sum of
    the squares' own rests.
    """

    population: bool = False
    root: bool = True

    def __str__(self) -> str:
        name = ("var", "stddev")[self.root] + ("_samp", "_pop")[self.population]
        return f"{name}({', '.join(map(str, self.args))})"

    @property
    def _least(self) -> int:
        return 1 if self.population else 2

    def of(self, *values: Any) -> Any:
        count, s, s_rest, p, p_rest, e = values
        if count < self._least:
            return None
        n = float(count)
        a, b = n * p, s * s
        a_rest = _product_rest(n, p, a)
        small = (a_rest - square_rest(s, b)) + (n * p_rest + n * e - 2.0 * (s * s_rest))
        t = (a - b) + small
        if not math.isfinite(t):
            return NAN
        variance = (t if t > 0.0 else 0.0) / (n * n if self.population else n * (n - 1.0))
        return math.sqrt(variance) if self.root else variance

    def _sql(self, row: str) -> str:
        count, s, s_rest, p, p_rest, e = (x.sql(row) for x in self.args)
        small = closed(
            f"({_product_rest_sql('n', 'p', 'a')} - {square_rest_sql('s', 'b')}) + "
            "(n * p_rest + n * e - 2D * (s * s_rest))"
        )
        by = "n * n" if self.population else "n * (n - 1D)"
        variance = closed(f"if(t > 0D, t, 0D) / ({by})")
        if self.root:
            variance = closed(f"sqrt({variance})")
        body = let(
            "t", f"(a - b) + {small}", f"if(abs(t) < double('Infinity'), {variance}, double('NaN'))"
        )
        body = let("a", "n * p", let("b", "s * s", body))
        for name, text in (("e", e), ("p_rest", p_rest), ("p", p), ("s_rest", s_rest), ("s", s)):
            body = let(name, text, body)
        body = let("n", f"CAST({count} AS DOUBLE)", body)
        return f"CASE WHEN {count} >= {self._least} THEN {body} END"


@dataclass(frozen=True)
class Correlation(Derived):
    """(n·Σxy − Σx·Σy) / √((n·Σx² − (Σx)²) · (n·Σy² − (Σy)²)); NULL if a value is the only one.

    NaN if a sum is not finite. The parts: n; Σx and its rest; Σy and its rest; then three parts
    each for the squares of x, the squares of y, and the products: the sum of the rounded ones, its
    rest, and the sum of their own rests.
    """

    label: ClassVar[str] = "corr"

    def of(self, *values: Any) -> Any:
        count, x, x_rest, y, y_rest, *products = values
        if count < 2:
            return None
        n, xs, ys = float(count), (x, x_rest), (y, y_rest)
        of_xx = centred(n, *xs, *xs, *products[:3])
        of_yy = centred(n, *ys, *ys, *products[3:6])
        of_xy = centred(n, *xs, *ys, *products[6:])
        if of_xx <= 0.0 or of_yy <= 0.0:
            return None
        if not all(map(math.isfinite, (of_xx, of_yy, of_xy))):
            return NAN
        quotient = of_xy / (math.sqrt(of_xx) * math.sqrt(of_yy))
        return min(max(quotient, -1.0), 1.0)

    def _sql(self, row: str) -> str:
        count, *texts = (a.sql(row) for a in self.args)
        sums = {"n": f"CAST({count} AS DOUBLE)"}
        sums.update((f"s{i}", text) for i, text in enumerate(texts))
        _, *names = (f"v.{name}" for name in sums)
        xs, ys, products = names[:2], names[2:4], names[4:]
        squares = {
            "xx": centred_sql(*xs, *xs, *products[:3]),
            "yy": centred_sql(*ys, *ys, *products[3:6]),
            "xy": centred_sql(*xs, *ys, *products[6:]),
        }
        finite = all_of(f"abs(of.{name}) < double('Infinity')" for name in squares)
        quotient = "greatest(least(of.xy / (sqrt(of.xx) * sqrt(of.yy)), 1D), -1D)"
        body = (
            "CASE WHEN of.xx <= 0D OR of.yy <= 0D THEN NULL "
            f"WHEN {finite} THEN {quotient} ELSE double('NaN') END"
        )
        return f"CASE WHEN {count} >= 2 THEN {let_all('v', sums, let_all('of', squares, body))} END"


def centred(
    n: float, x: float, x_rest: float, y: float, y_rest: float, p: float, p_rest: float, e: float
) -> float:
    """n·Σxy − Σx·Σy."""
    a, b = n * p, x * y
    small = (_product_rest(n, p, a) - _times_rest(x, y, b)) + (
        n * p_rest + n * e - (x * y_rest + y * x_rest)
    )
    return (a - b) + small


def centred_sql(x: str, x_rest: str, y: str, y_rest: str, p: str, p_rest: str, e: str) -> str:
    """`centred` in SQL, for names; the number of rows has the name `v.n`."""
    small = closed(
        f"({_product_rest_sql('v.n', p, 'm.a')} - {_times_rest_sql(x, y, 'm.b')}) + "
        f"(v.n * {p_rest} + v.n * {e} - ({x} * {y_rest} + {y} * {x_rest}))"
    )
    return let_all("m", {"a": f"v.n * {p}", "b": f"{x} * {y}"}, f"(m.a - m.b) + {small}")


def _times_rest(x: float, y: float, p: float) -> float:
    """x · y − p, where p is x · y rounded; 0 if one of them is large or not a number."""
    return _product_rest(x, y, p) if abs(x) < LARGE and abs(y) < LARGE else 0.0


def _times_rest_sql(x: str, y: str, p: str) -> str:
    """`_times_rest` in SQL, for names."""
    small = all_of([f"abs({x}) < {LARGE}D", f"abs({y}) < {LARGE}D"])
    return f"if({small}, {_product_rest_sql(x, y, p)}, 0D)"


def _product_rest(x: float, y: float, p: float) -> float:
    """x · y − p, where p is x · y rounded; 0 if y is large or not a number."""
    if not abs(y) < LARGE * LARGE:
        return 0.0
    c, d = SPLIT * x, SPLIT * y
    high, top = c - (c - x), d - (d - y)
    low, rest = x - high, y - top
    return (((high * top - p) + high * rest) + low * top) + low * rest


def _product_rest_sql(x: str, y: str, p: str) -> str:
    """`_product_rest` in SQL, for names."""
    low, rest = closed(f"{x} - h.high"), closed(f"{y} - h.top")
    last = closed(f"(((h.high * h.top - {p}) + h.high * k.rest) + k.low * h.top) + k.low * k.rest")
    body = let_all("k", {"low": low, "rest": rest}, last)
    body = let_all("h", {"high": "g.c - (g.c - g.x)", "top": "g.d - (g.d - g.y)"}, body)
    body = let_all("g", {"c": f"{SPLIT}D * {x}", "d": f"{SPLIT}D * {y}", "x": x, "y": y}, body)
    return f"if(abs({y}) < {LARGE * LARGE!r}D, {body}, 0D)"


def square(x: Expr) -> Expr:
    """The square of a float, rounded."""
    return Square(x.type, (x,))


def square_left(x: Expr) -> Expr:
    """The rounding error of the square of a float."""
    return SquareRest(x.type, (x,))


def times(x: Expr, y: Expr) -> Expr:
    """The product of two floats, rounded."""
    return Times(_of_both(x, y), (x, y))


def times_left(x: Expr, y: Expr) -> Expr:
    """The rounding error of the product of two floats."""
    return TimesRest(_of_both(x, y), (x, y))


def _of_both(x: Expr, y: Expr) -> RowType:
    return x.type if isinstance(x.type, Optional) else y.type


def deviation(parts: tuple[Expr, ...], *, population: bool = False, root: bool = True) -> Expr:
    """The standard deviation, or the variance; for `parts` see `Deviation`."""
    return Deviation(Optional(FLOAT), parts, population, root)


def correlation(parts: tuple[Expr, ...]) -> Expr:
    """The correlation; for `parts` see `Correlation`."""
    return Correlation(Optional(FLOAT), parts)


PAIRED: Mapping[str, tuple[str, ...]] = {
    "covar_pop": ("x", "y", "xy"),
    "covar_samp": ("x", "y", "xy"),
    "regr_intercept": ("x", "y", "xx", "xy"),
    "regr_r2": ("x", "y", "xx", "yy", "xy"),
    "regr_slope": ("x", "y", "xx", "xy"),
    "regr_sxx": ("x", "xx"),
    "regr_sxy": ("x", "y", "xy"),
    "regr_syy": ("y", "yy"),
}
"""The values, squares and products whose sums each function needs."""

_DIVIDED = {"covar_pop": "v.n * v.n", "covar_samp": "v.n * (v.n - 1D)"}


@dataclass(frozen=True)
class Paired(Derived):
    """A covariance, or a number of the regression line; NULL without rows.

    NaN if a sum is not finite. A line needs two values of x, and a sample's covariance two rows:
    without them they are NULL. The parts: n; for x and y the sum and its rest; for the squares and
    the products the sum of the rounded ones, its rest, and the sum of their own rests.
    """

    kind: str = "covar_pop"

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.args))})"

    @property
    def _least(self) -> int:
        return 2 if self.kind == "covar_samp" else 1

    def _products(self) -> list[str]:
        return [name for name in PAIRED[self.kind] if len(name) == 2]

    def of(self, *values: Any) -> Any:
        count, *rest_of_values = values
        if count < self._least:
            return None
        n, rest = float(count), iter(rest_of_values)
        sums = {name: _take(rest, 1 + len(name)) for name in PAIRED[self.kind]}
        products = {
            name: centred(n, *sums[name[0]], *sums[name[1]], *sums[name])
            for name in self._products()
        }
        if products.get("xx", 1.0) <= 0.0:
            return 0.0 if self.kind == "regr_sxx" else None
        if not all(map(math.isfinite, products.values())):
            return NAN
        return self._of(n, products, sums)

    def _of(self, n: float, of: Mapping[str, float], sums: Mapping[str, list[float]]) -> float:
        match self.kind:
            case "covar_pop":
                return of["xy"] / (n * n)
            case "covar_samp":
                return of["xy"] / (n * (n - 1.0))
            case "regr_slope":
                return of["xy"] / of["xx"]
            case "regr_intercept":
                return (sums["y"][0] - of["xy"] / of["xx"] * sums["x"][0]) / n
            case "regr_r2":
                if of["yy"] <= 0.0:
                    return 1.0
                r = of["xy"] / (math.sqrt(of["xx"]) * math.sqrt(of["yy"]))
                return min(r * r, 1.0)
            case "regr_syy":
                return max(of["yy"], 0.0) / n
        return of[self.kind[-2:]] / n  # regr_sxx, regr_sxy

    def _sql(self, row: str) -> str:
        count, *texts = (a.sql(row) for a in self.args)
        sums, rest = {"n": f"CAST({count} AS DOUBLE)"}, iter(texts)
        names: dict[str, list[str]] = {}
        for name in PAIRED[self.kind]:
            of_name = {f"{name}{i}": text for i, text in enumerate(_take(rest, 1 + len(name)))}
            sums |= of_name
            names[name] = [f"v.{n}" for n in of_name]
        products = {
            name: centred_sql(*names[name[0]], *names[name[1]], *names[name])
            for name in self._products()
        }
        finite = all_of(f"abs(of.{name}) < double('Infinity')" for name in products)
        branch = f"WHEN {finite} THEN {self._text()} ELSE double('NaN') END"
        none = "0D" if self.kind == "regr_sxx" else "NULL"
        lone = f"WHEN of.xx <= 0D THEN {none} " if "xx" in products else ""
        body = let_all("v", sums, let_all("of", products, f"CASE {lone}{branch}"))
        return f"CASE WHEN {count} >= {self._least} THEN {body} END"

    def _text(self) -> str:
        slope = closed("of.xy / of.xx")
        match self.kind:
            case "covar_pop" | "covar_samp":
                return closed(f"of.xy / ({_DIVIDED[self.kind]})")
            case "regr_slope":
                return slope
            case "regr_intercept":
                return closed(f"(v.y0 - {slope} * v.x0) / v.n")
            case "regr_r2":
                r = "of.xy / (sqrt(of.xx) * sqrt(of.yy))"
                squared = let_all("p", {"r": r}, "least(p.r * p.r, 1D)")
                return f"CASE WHEN of.yy <= 0D THEN 1D ELSE {squared} END"
            case "regr_syy":
                return closed("greatest(of.yy, 0D) / v.n")
        return closed(f"of.{self.kind[-2:]} / v.n")


def _take(rest: Iterator[Any], n: int) -> list[Any]:
    return [next(rest) for _ in range(n)]


def paired(kind: str, parts: tuple[Expr, ...]) -> Expr:
    """A covariance, or a number of the regression line; for `parts` see `Paired`."""
    return Paired(Optional(FLOAT), parts, kind)
