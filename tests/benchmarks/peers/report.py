"""What was measured, as tables and as a plot."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from tests.benchmarks.peers.child import Measured

AGAINST = ("by_hand", "recomputed", "duck")  # what ratios are given to


def median(numbers: Sequence[float]) -> float | None:
    """The median, if there are numbers."""
    return statistics.median(numbers) if numbers else None


def p95(numbers: Sequence[float]) -> float:
    """What 95 % of the numbers are no more than."""
    return sorted(numbers)[min(len(numbers) - 1, round(0.95 * len(numbers)))]


def show(
    console: Console,
    view: str,
    scale: float,
    rows: Mapping[str, int],
    sizes: Sequence[int],
    measured: Mapping[str, Measured],
) -> None:
    """Print what each peer took, and ratios to the others: below 1 it is faster."""
    counted = ", ".join(f"{n:,} {name}" for name, n in rows.items())
    table = Table(title=f"{view}, scale {scale:g}: {counted}; milliseconds")
    headings = ["K", "peer", "median", "p95", "/ empty job"]
    headings += [f"/ {name}" for name in AGAINST]
    for name in (*headings, "jobs"):
        table.add_column(name, justify="left" if name == "peer" else "right")
    for k in sizes:
        medians = {name: median(m.ms.get(k, ())) for name, m in measured.items()}
        for name, m in measured.items():
            ms = medians[name]
            if ms is None:
                continue
            empty = median(m.empty) if m.jobs else None
            jobs = median(m.jobs.get(k, ()))
            table.add_row(
                f"{k:,}", name, f"{ms:.1f}", f"{p95(m.ms[k]):.1f}", _ratio(ms, empty),
                *(_ratio(ms, medians.get(other)) for other in AGAINST),
                "" if jobs is None else f"{jobs:g}",
            )  # fmt: skip
        table.add_section()
    console.print(table)
    whole = Table(title="whole runs")
    for name in ("peer", "load, s", "peak memory, MB", "empty job, ms"):
        whole.add_column(name, justify="left" if name == "peer" else "right")
    for name, m in measured.items():
        if m.left_out:
            console.print(f"{name} is left out: {m.left_out}", markup=False)
            continue
        empty = median(m.empty)
        shown = "" if empty is None else f"{empty:.1f}"
        whole.add_row(name, f"{m.load / 1e3:.1f}", f"{m.peak_bytes / 2**20:,.0f}", shown)
    console.print(whole)


def _ratio(ms: float, other: float | None) -> str:
    return "" if other is None else f"{ms / other:.3g}"


def remember(
    results: Path, view: str, scale: float, measured: Mapping[str, Measured]
) -> list[dict[str, Any]]:
    """Add a run's medians to a JSON file; gives all that is there now, one per view and scale."""
    known = json.loads(results.read_text()) if results.exists() else []
    runs = [r for r in known if (r["view"], r["scale"]) != (view, scale)]
    medians = {
        name: {str(k): statistics.median(ms) for k, ms in m.ms.items()}
        for name, m in measured.items()
        if m.ms
    }
    runs.append({"view": view, "scale": scale, "medians": medians})
    results.write_text(json.dumps(runs, indent=1))
    found: list[dict[str, Any]] = runs
    return found


def draw(plot: Path, view: str, runs: Sequence[Mapping[str, Any]]) -> None:
    """Draw the time of a step by the size of the change, a picture for each scale, and by scale."""
    runs = sorted((r for r in runs if r["view"] == view), key=lambda r: r["scale"])
    sizes = sorted({int(k) for r in runs for ms in r["medians"].values() for k in ms})
    names = dict.fromkeys(name for r in runs for name in r["medians"])
    colours = {name: f"C{i}" for i, name in enumerate(names)}
    figure = Figure(figsize=(4 * (len(runs) + 1) + 2, 4.5), layout="constrained")
    axes = figure.subplots(1, len(runs) + 1, sharey=True)
    for axis, r in zip(axes, runs, strict=False):
        for name, ms in r["medians"].items():
            points = sorted((int(k), v) for k, v in ms.items())
            axis.plot(*zip(*points, strict=True), marker="o", label=name, color=colours[name])
        for other in ("recomputed:cached", "duck"):
            k = crossing(r["medians"].get("ours", {}), r["medians"].get(other, {}))
            if k is not None:
                axis.axvline(k, linestyle=":", color="grey")
                axis.annotate(f"as fast as {other}: K={k:,.0f}", (k, 0.02), rotation=90,
                              fontsize=7, xycoords=("data", "axes fraction"))  # fmt: skip
        axis.set(title=f"{view}, scale {r['scale']:g}", xlabel="orders that come in a step, K")
        axis.set_xscale("log")
    _by_scale(axes[-1], runs, str(sizes[0]), colours)
    axes[0].set(ylabel="a step, ms (median)", yscale="log")
    lines = {line.get_label(): line for axis in axes for line in axis.get_lines()}
    figure.legend([lines[n] for n in names], names, loc="outside right center", fontsize=8)
    figure.savefig(plot, dpi=120)


def _by_scale(
    axis: Any, runs: Sequence[Mapping[str, Any]], k: str, colours: Mapping[str, str]
) -> None:
    for name, colour in colours.items():
        medians = [(r["scale"], r["medians"].get(name, {}).get(k)) for r in runs]
        points = [(scale, ms) for scale, ms in medians if ms is not None]
        if points:
            axis.plot(*zip(*points, strict=True), marker="o", label=name, color=colour)
    axis.set(title=f"K = {k}", xlabel="scale of the tables", xscale="log")


def crossing(ours: Mapping[str, float], other: Mapping[str, float]) -> float | None:
    """The size of change from which the other is faster, where that lies between two sizes."""
    sizes = sorted(int(k) for k in ours if k in other)
    for low, high in itertools.pairwise(sizes):
        gap = [math.log(ours[str(k)] / other[str(k)]) for k in (low, high)]
        if gap[0] < 0 <= gap[1]:
            return float(low * (high / low) ** (-gap[0] / (gap[1] - gap[0])))
    return None
