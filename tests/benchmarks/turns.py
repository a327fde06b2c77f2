"""Engines in one Spark session that take turns on each change, and a table of their times."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Protocol

from rich.console import Console
from rich.table import Table

from tests.benchmarks.peers.peer import Tables
from tests.benchmarks.peers.worker import tables_of
from tests.benchmarks.peers.workload import Workload
from tests.benchmarks.took import Took

BY_HAND, BY_DEFAULT, CACHED = "by hand", "by default", "query, cached"


@dataclass(frozen=True)
class Step:
    """What one engine took for one change of size K, which has so many rows."""

    k: int
    engine: str
    rows: int
    took: Took
    jobs: int


class Engines(Protocol):
    """Those that take turns."""

    def names(self) -> list[str]:
        """What they are called."""

    def step(self, name: str, change: Tables) -> tuple[int | None, Took]:
        """Take one engine through a change; its jobs, and what it took."""

    def keep(self) -> None:
        """Put the change where the next step needs it; not timed."""


def run(made: Workload, engines: Engines, console: Console) -> list[Step]:
    """Take all engines through all changes, one change after the other."""
    found = []
    names = engines.names()
    for change in made.changes:
        rows = tables_of(made.root / change.directory)
        at = change.number % len(names)
        said = []
        for name in (*names[at:], *names[:at]):  # nobody comes always after the same one
            jobs, taken = engines.step(name, rows)
            said.append(f"{name} {taken.wall * 1e3:.0f}")
            if change.measured:
                many = sum(t.num_rows for t in rows.values())
                found.append(Step(change.k, name, many, taken, jobs or 0))
        engines.keep()
        console.print(f"{change.number} K={change.k}: {', '.join(said)}", highlight=False)
    return found


def medians(found: Sequence[Step]) -> list[Step]:
    """One for each K and engine."""
    by: dict[tuple[int, str], list[Step]] = {}
    for step in found:
        by.setdefault((step.k, step.engine), []).append(step)
    return [
        Step(
            k,
            engine,
            round(median(s.rows for s in of)),
            Took(median(s.took.wall for s in of), median(s.took.cpu for s in of)),
            round(median(s.jobs for s in of)),
        )
        for (k, engine), of in by.items()
    ]


def shown(title: str, found: Sequence[Step], names: Sequence[str]) -> Table:
    """The times, and what they are beside those by hand: below 1 is faster."""
    table = Table(title=title)
    for name in ("K", "rows", "engine", "ms", "/ by hand", "CPU, ms", "/ by hand", "jobs"):
        table.add_column(name, justify="left" if name == "engine" else "right")
    of = {(s.k, s.engine): s for s in found}
    for k in dict.fromkeys(s.k for s in found):
        hand = of[k, BY_HAND].took
        for s in (of[k, name] for name in names):
            table.add_row(
                f"{k:,}", f"{s.rows:,}", s.engine,
                f"{s.took.wall * 1e3:,.0f}", f"{s.took.wall / hand.wall:.2f}",
                f"{s.took.cpu * 1e3:,.0f}", f"{s.took.cpu / hand.cpu:.2f}", str(s.jobs),
            )  # fmt: skip
        table.add_section()
    return table


def remember(results: Path, of: Sequence[str], found: Sequence[Step]) -> None:
    """Add lines to a CSV file: what all have in common, then a step as in `fair.csv`."""
    with results.open("a", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        for s in found:
            times = (round(seconds * 1e3) for seconds in (s.took.wall, s.took.cpu))
            lines.writerow((*of, s.k, s.rows, s.engine, *times, s.jobs))
