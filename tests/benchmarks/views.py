"""A view kept up to date by steps, beside what else would keep it so.

    python -m tests.benchmarks.views --view orders --scale 0.1
    python -m tests.benchmarks.views --view left --peers ours,recomputed,duck,pathway

The tables are TPC-H's: 90 % of the orders are there at first; a change of size K brings the next K
orders with their lines, and deletes K/2 others at random. Every peer is a process of its own, which
has the machine for itself: it ends before the next one begins. With `--turns` all run at once and
take turns on each change, which other work on the machine slows alike, but they share its memory.
What a peer has at the end is compared with what DuckDB says of the final tables. Medians, ratios of
one run. To bring the tables up to date from which a view is computed again is not timed.

Peers: ours, ours:parquet, ours:postgres, by_hand, recomputed, recomputed:cached, duck, pathway,
streaming (insertions only). What only large changes are for, ours:jobs (`local_rows=0`) and
spark_sql_delta (by hand in Spark SQL), is measured by `tests.benchmarks.fair`. A peer that needs
another Python is told so by the environment variable BENCHMARK_PYTHON_ and its name in capitals;
the heap of each JVM is BENCHMARK_HEAP (6g).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
from rich.console import Console

from tests.benchmarks.peers import report, workload
from tests.benchmarks.peers.child import Child
from tests.benchmarks.peers.peer import VIEWS
from tests.benchmarks.peers.workload import Workload

PEERS = (
    "ours,ours:parquet,ours:postgres,by_hand,recomputed,recomputed:cached,duck,pathway,streaming"
)
INSERTS_ONLY = ("streaming",)


def run(made: Workload, peers: list[Child], console: Console) -> None:
    """Take peers through all changes, one change after the other."""
    for peer in peers:
        peer.measured.load = peer.ask("load").get("ms", 0.0)
        console.print(f"{peer.name}: loaded in {peer.measured.load / 1e3:.1f} s")
    for change in made.changes:
        at = change.number % len(peers)
        said = []
        for peer in (*peers[at:], *peers[:at]):  # nobody comes always after the same one
            if change.measured and "ms" in (empty := peer.ask("empty")):
                peer.measured.empty.append(empty["ms"])
            found = peer.ask("step", change.directory)
            if "ms" not in found:
                continue
            said.append(f"{peer.name} {found['ms']:.0f}")
            if change.measured:
                peer.measured.ms.setdefault(change.k, []).append(found["ms"])
                if found["jobs"] is not None:
                    peer.measured.jobs.setdefault(change.k, []).append(found["jobs"])
        console.print(f"{change.number} K={change.k}: {', '.join(sorted(said))}", highlight=False)


def check(made: Workload, view: str, peers: list[Child], directory: Path) -> list[str]:
    """The peers whose view is not what DuckDB says."""
    wrong = []
    for peer in peers:
        result = directory / f"{peer.name.replace(':', '_')}.parquet"
        peer.ask("result", str(result))
        if peer.measured.left_out:
            continue
        only = peer.name.partition(":")[0] in INSERTS_ONLY
        if n := workload.differences(made, view, result, inserts_only=only):
            wrong.append(f"{peer.name} ({n} rows)")
    return wrong


def numbers(_: click.Context, __: click.Parameter, value: str) -> list[int]:
    return [int(n) for n in value.split(",")]


@click.command(help=__doc__)
@click.option("--view", type=click.Choice(list(VIEWS)), default="orders", show_default=True)
@click.option("--scale", default=0.1, show_default=True, help="TPC-H's scale factor")
@click.option("--peers", default=PEERS, show_default=True)
@click.option("--sizes", default="10,1000,10000", callback=numbers, help="K, by commas")
@click.option("--warm", default="20,5,3", callback=numbers, help="changes of each size before")
@click.option("--steps", default="20,10,4", callback=numbers, help="changes of each size measured")
@click.option("--turns", is_flag=True, help="all peers at once, in turns")
@click.option("--timeout", default=600.0, help="seconds that a peer may take for an answer")
@click.option("--data", type=click.Path(path_type=Path), help="a directory to keep the tables in")
@click.option("--plot", type=click.Path(path_type=Path), help="a PNG to draw")
@click.option("--results", type=click.Path(path_type=Path), help="a JSON file of all runs so far")
def main(
    view: str,
    scale: float,
    peers: str,
    sizes: list[int],
    warm: list[int],
    steps: list[int],
    *,
    turns: bool,
    timeout: float,
    data: Path | None,
    plot: Path | None,
    results: Path | None,
) -> None:
    console = Console(width=120)  # also where the output is a file
    with tempfile.TemporaryDirectory(prefix="views-") as scratch:
        home = Path(scratch)
        order = workload.order_of(sizes, warm, steps)
        made = workload.make(data or home / "data", scale, order, sum(warm))
        names = peers.split(",")
        children, wrong = [], []
        for together in [names] if turns else [[name] for name in names]:
            running = [
                Child(name, view, made.root, home / name.replace(":", "_"), timeout)
                for name in together
            ]
            try:
                run(made, running, console)
                wrong += check(made, view, running, home)
            finally:
                for child in running:
                    child.ask("close")
                    child.end()
            children += running
        measured = {c.name: c.measured for c in children}
        report.show(console, view, scale, made.rows, sizes, measured)
        runs = report.remember(results or home / "results.json", view, scale, measured)
        if plot is not None:
            report.draw(plot, view, runs)
    failed = [c.name for c in children if c.measured.failed]
    if wrong or failed:
        said = [f"DuckDB says otherwise of: {', '.join(wrong)}"] if wrong else []
        said += [f"failed, and not compared with DuckDB: {', '.join(failed)}"] if failed else []
        raise click.ClickException("; ".join(said))


if __name__ == "__main__":
    main()
