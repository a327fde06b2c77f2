"""The numbers that README and guide show, as `tests.benchmarks.views` measured them."""

from __future__ import annotations

import csv
from pathlib import Path

NUMBERS = Path(__file__).with_name("measured.csv")


def measured(view: str, scale: str) -> dict[str, dict[int, float]]:
    """Milliseconds of a step by engine, and by the number of changed orders."""
    found: dict[str, dict[int, float]] = {}
    with NUMBERS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if (row["view"], row["scale"]) == (view, scale):
                found.setdefault(row["engine"], {})[int(row["changed"])] = float(row["ms"])
    return found
