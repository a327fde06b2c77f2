"""The numbers that README and guide show, as `tests.benchmarks.views` and `.tpch` measured them."""

from __future__ import annotations

import csv
from pathlib import Path

NUMBERS = Path(__file__).with_name("measured.csv")
REFRESHED = Path(__file__).with_name("tpch.csv")
TARGETS = Path(__file__).with_name("targets.csv")


def measured(view: str, scale: str) -> dict[str, dict[int, float]]:
    """Milliseconds of a step by engine, and by the number of changed orders."""
    found: dict[str, dict[int, float]] = {}
    with NUMBERS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if (row["view"], row["scale"]) == (view, scale):
                found.setdefault(row["engine"], {})[int(row["changed"])] = float(row["ms"])
    return found


def refreshed(mode: str) -> dict[str, dict[float, float]]:
    """How many times faster a step is than computing a view of TPC-H again: by query and share.

    `mode` is where steps run, as in `tests.benchmarks.tpch`.
    """
    found: dict[str, dict[float, float]] = {}
    with REFRESHED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["mode"] == mode:
                speed_up = float(row["again"]) / float(row["step"])
                found.setdefault(f"Q{row['query']}", {})[float(row["share"])] = speed_up
    return found


def targets() -> dict[str, tuple[float, float]]:
    """The time or memory of a step by what it is compared with: the ratio, and the target."""
    with TARGETS.open(encoding="utf-8", newline="") as file:
        return {
            row["compared"]: (float(row["ratio"]), float(row["target"]))
            for row in csv.DictReader(file)
        }
