"""Draws the plots of the README and of the guide, from the numbers in measured.csv, tpch.csv
and targets.csv.

    python -m tests.benchmarks.plot

`tests.benchmarks.views` and `.tpch` measure the first two. This only draws: milliseconds of a step
by the size of the change, for one view of TPC-H at scale 1; and for all its queries, how many times
faster a step is than computing the view again.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from tests.benchmarks.measured import SCALES, measured, medians, refreshed, targets
from tests.cases import ROOT

mpl.use("Agg")  # no window

PICTURE = ROOT / "docs" / "guide" / "measured.png"
REFRESHES = ROOT / "docs" / "guide" / "tpch.png"
TARGETS = ROOT / "docs" / "guide" / "targets.png"
VIEW, SCALE = "orders", "1"

# What is drawn, how it is called there, its colour, and how far its label is moved, in points.
LINES = {
    "Spark again": ("Spark, recomputed", "#8c959f", -7),
    "streaming": ("Structured Streaming\n(insertions only)", "#bf8700", 12),
    "DuckDB again": ("DuckDB, recomputed", "#57606a", -10),
    "by hand": ("PySpark, written by hand\nfor this view", "#cf222e", 9),
    "Postgres": ("stepping_spark, Postgres", "#8250df", 3),
    "Parquet": ("stepping_spark, Parquet", "#1f883d", 1),
    "memory": ("stepping_spark, memory", "#0969da", -4),
}


def draw(to: Path) -> None:
    figure, axes = plt.subplots(figsize=(7.6, 3.9), dpi=160)
    for engine, points in measured(VIEW, SCALE).items():
        if engine not in LINES:
            continue
        label, colour, moved = LINES[engine]
        ours = "stepping" in label
        sizes = sorted(points)
        times = [points[size] for size in sizes]
        axes.plot(sizes, times, "o-", color=colour, linewidth=2.4 if ours else 1.4, markersize=4)
        axes.annotate(
            label,
            (sizes[-1], times[-1]),
            xytext=(7, moved),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=8,
            weight="bold" if ours else "normal",
        )
    axes.set(xscale="log", yscale="log", xlim=(8, 11_000))
    axes.set_xticks([10, 1_000, 10_000], ["10", "1,000", "10,000"])
    axes.set_yticks([10, 100, 1_000], ["10", "100", "1,000"])
    axes.minorticks_off()
    axes.grid(color="#d0d7de", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("orders that change in a step")
    title = "Milliseconds for a view of TPC-H at scale 1 (lower is better)"
    axes.set_title(title, fontsize=10, loc="left")
    figure.subplots_adjust(left=0.09, right=0.74, bottom=0.13, top=0.91)
    figure.savefig(to)


def draw_refreshes(to: Path) -> None:
    """A thin line for each query, and a thick one for the median of them; that in Spark, too."""
    found = refreshed("driver")
    shares = sorted({share for of in found.values() for share in of})
    figure, axes = plt.subplots(figsize=(7.6, 3.9), dpi=160)
    for of in found.values():
        axes.plot(shares, [of[s] for s in shares], "-", color="#8c959f", linewidth=0.8, alpha=0.7)
    middle = list(medians("driver").values())
    axes.plot(shares, middle, "o-", color="#0969da", linewidth=2.4, markersize=4)
    _name(axes, "median of the\n22 queries\n(memory)", (shares[0], middle[0]), "#0969da")
    some, there = zip(*medians("spark").items(), strict=True)
    axes.plot(some, there, "s-", color="#bf8700", linewidth=2.4, markersize=4)
    name = f"everything\nin Spark\n(scale {SCALES['spark']})"
    _name(axes, name, (some[0], there[0]), "#bf8700", va="bottom")
    axes.axhline(1, color="#cf222e", linewidth=1, linestyle="--")
    axes.set(xscale="log", yscale="log", xlim=(0.0018, 70))
    axes.set_xticks(shares, [f"{s:g} %" for s in shares])
    axes.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.minorticks_off()
    axes.grid(color="#d0d7de", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("orders that change in a step")
    title = "TPC-H at scale 0.1: times faster than Spark SQL on cached tables (higher is better)"
    axes.set_title(title, fontsize=10, loc="left")
    figure.subplots_adjust(left=0.07, right=0.97, bottom=0.13, top=0.91)
    figure.savefig(to)


def _name(axes: Axes, name: str, at: tuple[float, float], color: str, va: str = "center") -> None:
    """The name of a line, on the left of its first point."""
    axes.annotate(
        name,
        at,
        xytext=(-6, 0),
        textcoords="offset points",
        ha="right",
        va=va,
        color=color,
        fontsize=8,
        weight="bold",
    )


def draw_targets(to: Path) -> None:
    """A bar for each ratio, and a line where its target is."""
    found = list(targets().items())[::-1]
    height = 0.75 + 0.27 * len(found)
    figure, axes = plt.subplots(figsize=(7.6, height), dpi=160)
    for at, (_, (ratio, target)) in enumerate(found):
        axes.plot([target, target], [at - 0.42, at + 0.42], color="#1f2328", linewidth=1.6)
        if ratio is None:
            continue
        colour = "#0969da" if ratio <= target else "#bf8700"
        axes.barh(at, ratio, height=0.56, color=colour)
        axes.annotate(
            f"{ratio:g}",
            (max(ratio, target), at),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=colour,
            weight="bold",
        )
    names = [f"{step}: {other}" for (step, other), _ in found]
    axes.set_yticks(range(len(found)), names, fontsize=8)
    axes.set(xscale="log", xlim=(0.008, 60), ylim=(-0.6, len(found) - 0.4))
    axes.set_xticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
    axes.minorticks_off()
    axes.grid(axis="x", color="#d0d7de", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    title = "A step, as a multiple of what it is compared with (lower is better; | is the target)"
    figure.suptitle(title, fontsize=9, x=0.01, ha="left")
    figure.subplots_adjust(left=0.5, right=0.97, bottom=0.35 / height, top=1 - 0.4 / height)
    figure.savefig(to)


if __name__ == "__main__":
    draw(PICTURE)
    draw_refreshes(REFRESHES)
    draw_targets(TARGETS)
