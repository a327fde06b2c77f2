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
    return sorted(numbers)[math.ceil(0.95 * len(numbers)) - 1]


def show(
    console: Console,
    view: str,
    scale: float,
    rows: Mapping[str, int],
    sizes: Sequence[int],
    measured: Mapping[str, Measured],
) -> None:
    """Print what each peer took, and ratios to the others: below 1 it is faster.

    Of a peer that failed on the way there are no numbers: what it gave was not compared.
    """
    counted = ", ".join(f"{n:,} {name}" for name, n in rows.items())
    table = Table(title=f"{view}, scale {scale:g}: {counted}; milliseconds")
    headings = ["K", "peer", "median", "p95", "/ empty job"]
    headings += [f"/ {name}" for name in AGAINST]
    for name in (*headings, "jobs"):
        table.add_column(name, justify="left" if name == "peer" else "right")
    for k in sizes:
        medians = {n: None if m.left_out else median(m.ms.get(k, ())) for n, m in measured.items()}
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
        if m.ms and not m.left_out
    }
    runs.append({"view": view, "scale": scale, "medians": medians})
    results.write_text(json.dumps(runs, indent=1))
    found: list[dict[str, Any]] = runs
    return found


def draw(plot: Path, view: str, runs: Sequence[Mapping[str, Any]]) -> None:
    """Draw the time of a step by the size of the change, for each scale, and by scale, for each."""
    runs = sorted((r for r in runs if r["view"] == view), key=lambda r: r["scale"])
    sizes = sorted({int(k) for r in runs for ms in r["medians"].values() for k in ms})
    names = dict.fromkeys(name for r in runs for name in r["medians"])
    colours = {name: f"C{i}" for i, name in enumerate(names)}
    columns = max(len(runs), len(sizes))
    figure = Figure(figsize=(4 * columns + 2, 8), layout="constrained")
    axes = figure.subplots(2, columns, sharey=True, squeeze=False)
    for axis, r in zip(axes[0], runs, strict=False):
        by_size = {
            name: sorted((float(k), v) for k, v in ms.items()) for name, ms in r["medians"].items()
        }
        _lines(axis, by_size, colours)
        axis.set(title=f"{view}, scale {r['scale']:g}", xlabel="orders that come in a step, K")
    for axis, k in zip(axes[1], sizes, strict=False):
        of_k = {
            n: [(r["scale"], m[str(k)]) for r in runs if str(k) in (m := r["medians"].get(n, {}))]
            for n in names
        }
        _lines(axis, {n: points for n, points in of_k.items() if points}, colours)
        axis.set(title=f"{view}, K = {k:,}", xlabel="scale of the tables")
    for axis in (*axes[0][len(runs) :], *axes[1][len(sizes) :]):
        axis.set_axis_off()
    for axis in axes[:, 0]:
        axis.set(ylabel="a step, ms (median)", yscale="log")
    lines = {line.get_label(): line for axis in axes.flat for line in axis.get_lines()}
    figure.legend([lines[n] for n in names], names, loc="outside right center", fontsize=8)
    figure.savefig(plot, dpi=100)


Points = Sequence[tuple[float, float]]


def _lines(axis: Any, points: Mapping[str, Points], colours: Mapping[str, str]) -> None:
    """A line for each peer, and where recomputing is as fast as a step."""
    for name, of_peer in points.items():
        axis.plot(*zip(*of_peer, strict=True), marker="o", label=name, color=colours[name])
    axis.set_xscale("log")
    for other in ("recomputed", "recomputed:cached", "duck"):
        x = crossing(points.get("ours", ()), points.get(other, ()))
        if x is not None:
            axis.axvline(x, linestyle=":", color="grey")
            shown = f"{x:,.0f}" if x >= 10 else f"{x:.2g}"
            axis.annotate(f"as fast as {other}: {shown}", (x, 0.02), rotation=90,
                          fontsize=7, xycoords=("data", "axes fraction"))  # fmt: skip


def crossing(ours: Points, other: Points) -> float | None:
    """Where one begins to be faster than the other, if that lies between two points of both."""
    theirs = dict(other)
    gaps = [(x, math.log(ms / theirs[x])) for x, ms in ours if x in theirs]
    for (low, before), (high, after) in itertools.pairwise(gaps):
        if before < 0 <= after or after < 0 <= before:
            return float(low * (high / low) ** (before / (before - after)))
    return None
