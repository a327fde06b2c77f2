"""A view in a pipeline, from Delta tables to a Delta table: its first load, and small steps after.

    python -m tests.benchmarks.pipelines --scales 0.1,1 --vectors

The view is *orders* of `tests.benchmarks.views`, with the defaults of `st.Pipeline`, a Parquet
store and a sink by key, by merges or with deletion vectors. Each scale is a process of its own. A
small step brings ten orders with their lines, and takes five away. CPU times are those of the
process and of those that it started, Java's too, so that other work on the machine changes them
little. State and view are the bytes of files that a step writes below the store, and below the
table of the view. *Plain* is the view's query in Spark SQL on the same files, written as Parquet.
At the end the table is compared with what DuckDB says of the final tables. With `--memory
4000000000`, a control group holds the pipeline to 4 GB, as a container would.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import stepping_spark as st
from tests.benchmarks.control_groups import with_memory
from tests.benchmarks.peers import workload
from tests.benchmarks.peers.ours import Customer, Line, Order, orders
from tests.benchmarks.peers.peer import VIEWS
from tests.benchmarks.peers.spark import session
from tests.benchmarks.took import took

FEED = {"delta.enableChangeDataFeed": "true"}
ROWS: dict[str, type[Any]] = {"customers": Customer, "orders": Order, "lines": Line}
K = 10
WARM = 3


def files_in(directory: Path) -> dict[Path, int]:
    """The files below a directory, and their bytes."""
    return {p: p.stat().st_size for p in directory.rglob("*") if p.is_file()}


def measured(step: Callable[[], object], *directories: Path) -> dict[str, float]:
    """How long something takes, in wall and CPU seconds, and the bytes that it writes."""
    before = [files_in(d) for d in directories]
    _, spent = took(step)
    written = [
        sum(size for path, size in files_in(d).items() if path not in old)
        for d, old in zip(directories, before, strict=True)
    ]
    return {
        "wall": spent.wall,
        "cpu": spent.cpu,
        **{d.name: n for d, n in zip(directories, written, strict=True)},
    }


def made(base: Path, lake: Path) -> None:
    """Write the tables as Delta tables."""
    for name in ROWS:
        table = pq.read_table(base / f"{name}.parquet")
        deltalake.write_deltalake(lake / name, table, configuration=FEED)


def changed(change: Path, lake: Path) -> None:
    """Bring a change into the Delta tables: rows that go, then rows that come."""
    for name in workload.OF_ORDERS:
        rows = pq.read_table(change / f"{name}.parquet")
        weights = rows.column("weight").to_numpy()
        gone = rows.filter(weights < 0).column("orderkey").unique().to_pylist()
        table = deltalake.DeltaTable(lake / name)
        if gone:
            table.delete(f"orderkey IN ({', '.join(map(str, gone))})")
        deltalake.write_deltalake(table, rows.filter(weights > 0).drop(["weight"]), mode="append")


def pipeline(home: Path, *, vectors: bool) -> st.Pipeline:
    """The view's pipeline."""
    sources = {name: st.DeltaTable(home / "lake" / name) for name in ROWS}
    key = ("custkey", "segment")
    sink = st.DeltaTable(home / "view", key=key, deletion_vectors=vectors)
    return st.Pipeline(orders, store=f"parquet:{home / 'state'}", sources=sources, into=sink)


def run(root: Path, scale: float, steps: int, *, vectors: bool) -> dict[str, Any]:
    """One scale: the first load, the steps, and the check."""
    work = workload.make(root, scale, [K] * (WARM + steps), WARM)
    home = work.root
    made(home / "base", home / "lake")
    view = pipeline(home, vectors=vectors)
    found: dict[str, Any] = {"scale": scale, "rows": sum(work.rows.values())}
    found["load"] = measured(view.run, home / "state", home / "view")
    rows = []
    for change in work.changes:
        changed(home / change.directory, home / "lake")
        row = measured(view.run, home / "state", home / "view")
        if change.measured:
            rows.append(row)
    found["steps"] = {name: statistics.median(r[name] for r in rows) for name in rows[0]}
    view.close()
    result = home / "result.parquet"
    rows_of_view = pa.RecordBatchReader.from_stream(deltalake.DeltaTable(home / "view").scan())
    pq.write_table(rows_of_view.read_all(), result)
    found["wrong"] = workload.differences(work, "orders", result, inserts_only=False)
    return found


def plain(root: Path, scale: float) -> dict[str, float]:
    """The query in Spark SQL, written as Parquet, in a session that has run it once."""
    home = root / f"scale{scale:g}"
    with tempfile.TemporaryDirectory() as directory:
        spark = session(Path(directory), **{"adaptive.enabled": "true"})
        for name in ROWS:
            spark.read.parquet(
                *deltalake.DeltaTable(home / "lake" / name).file_uris()
            ).createOrReplaceTempView(name)

        def query() -> None:
            spark.sql(VIEWS["orders"]).write.mode("overwrite").parquet(f"{directory}/out")

        query()
        found = measured(query)
        spark.stop()
    return found


@click.command(help=__doc__)
@click.option("--scales", default="0.1,1", show_default=True, help="TPC-H's scale factors")
@click.option("--steps", default=20, show_default=True, help="measured steps")
@click.option("--keep", type=click.Path(path_type=Path), help="a directory for the tables")
@click.option("--vectors", is_flag=True, help="write the view with deletion vectors")
@click.option("--child", is_flag=True, hidden=True)
@click.option("--without-plain", is_flag=True, help="leave Spark out")
@click.option("--memory", type=int, help="bytes for the pipeline's processes; this takes root")
def main(
    scales: str,
    steps: int,
    keep: Path | None,
    *,
    vectors: bool,
    child: bool,
    without_plain: bool,
    memory: int | None,
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = keep or Path(scratch)
        if child:
            print(json.dumps(run(root, float(scales), steps, vectors=vectors)))
            return
        table = Table(
            "scale",
            "rows",
            "load, s",
            "CPU s",
            "plain, s",
            "CPU s",
            "step, ms",
            "CPU ms",
            "state, KB",
            "view, KB",
            "wrong",
            "peak, MB",
        )
        for scale in map(float, scales.split(",")):
            arguments = [
                sys.executable,
                "-m",
                "tests.benchmarks.pipelines",
                "--child",
                "--scales",
                str(scale),
                "--steps",
                str(steps),
                "--keep",
                str(root),
                *(["--vectors"] if vectors else []),
            ]
            with with_memory(memory) if memory else nullcontext() as container:
                command = arguments if container is None else container.of(arguments)
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                peak = "" if container is None else f"{container.peak >> 20:,}"
            told = json.loads(done.stdout.splitlines()[-1])
            other = (
                {"wall": float("nan"), "cpu": float("nan")} if without_plain else plain(root, scale)
            )
            load, step = told["load"], told["steps"]
            table.add_row(
                f"{scale:g}",
                f"{told['rows']:,}",
                *(f"{x:.1f}" for x in (load["wall"], load["cpu"], other["wall"], other["cpu"])),
                f"{step['wall'] * 1e3:.0f}",
                f"{step['cpu'] * 1e3:.0f}",
                f"{step['state'] / 1e3:,.0f}",
                f"{step['view'] / 1e3:,.0f}",
                str(told["wrong"]),
                peak,
            )
        Console(width=120).print(table)


if __name__ == "__main__":
    main()
