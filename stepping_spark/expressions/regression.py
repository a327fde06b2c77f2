"""Covariances and lines through pairs of numbers, from exact sums, alike on each engine.

As in Spark, y comes first in SQL's regr_…(y, x). With the mean x̄ of n values, Sxx = Σ(x − x̄)², and
Sxy = Σ(x − x̄)(y − ȳ): n·Sxx is n·Σx² − (Σx)², which loses no digits (`moments`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stepping_spark.expressions.derived import Derived
from stepping_spark.expressions.expr import Expr
from stepping_spark.expressions.moments import centred, centred_sql
from stepping_spark.rows.atoms import FLOAT, NAN
from stepping_spark.rows.sql_text import all_of, closed, let_all
from stepping_spark.rows.types import Optional

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
"""Of which values, squares and products each of them needs the sums."""

_DIVIDED = {"covar_pop": "v.n * v.n", "covar_samp": "v.n * (v.n - 1D)"}


@dataclass(frozen=True)
class Paired(Derived):
    """A covariance, or a number of the line of regression; NULL without rows.

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
        count, *given = values
        if count < self._least:
            return None
        n, rest = float(count), iter(given)
        sums = {name: _take(rest, 1 + len(name)) for name in PAIRED[self.kind]}
        found = {
            name: centred(n, *sums[name[0]], *sums[name[1]], *sums[name])
            for name in self._products()
        }
        if found.get("xx", 1.0) <= 0.0:
            return 0.0 if self.kind == "regr_sxx" else None
        if not all(map(math.isfinite, found.values())):
            return NAN
        return self._of(n, found, sums)

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
        found = f"WHEN {finite} THEN {self._text()} ELSE double('NaN') END"
        none = "0D" if self.kind == "regr_sxx" else "NULL"
        lone = f"WHEN of.xx <= 0D THEN {none} " if "xx" in products else ""
        body = let_all("v", sums, let_all("of", products, f"CASE {lone}{found}"))
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
    """A covariance or a number of a line; `parts` are those of `Paired`."""
    return Paired(Optional(FLOAT), parts, kind)
