"""Tables of TPC-H, the changes that are made to them, and the answers that every peer must give."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.benchmarks.peers.peer import COLUMNS, VIEWS

HELD_BACK = 0.1  # of the orders, which come in later
SEED = 20
SOURCES = {
    "customers": ("customer", "c_custkey AS custkey, c_mktsegment AS segment"),
    "orders": ("orders", "o_orderkey AS orderkey, o_custkey AS custkey, o_orderdate AS orderdate"),
    "lines": (
        "lineitem",
        "l_orderkey AS orderkey, CAST(l_linenumber AS BIGINT) AS linenumber, "
        "CAST(l_extendedprice * 100 AS BIGINT) AS price, "
        "CAST(l_discount * 100 AS BIGINT) AS discount",
    ),
}
OF_ORDERS = ("orders", "lines")


@dataclass(frozen=True)
class Change:
    """A change of the tables: K orders come and K/2 go, with their lines."""

    number: int
    k: int
    measured: bool  # or only there to warm up
    directory: str


@dataclass(frozen=True)
class Workload:
    """Where everything is: `base`, a directory for each change, `final` and `final_inserts`."""

    root: Path
    scale: float
    rows: dict[str, int]
    changes: tuple[Change, ...]


def order_of(sizes: Sequence[int], warm: Sequence[int], steps: Sequence[int]) -> list[int]:
    """The sizes of the changes, those that warm up first; the rest evenly mixed."""
    first = [k for k, n in zip(sizes, warm, strict=True) for _ in range(n)]
    rest = [((i + 0.5) / n, k) for k, n in zip(sizes, steps, strict=True) for i in range(n)]
    return first + [k for _, k in sorted(rest)]


def make(root: Path, scale: float, sizes: Sequence[int], warm_up: int) -> Workload:
    """Write a workload below `root`; the tables of TPC-H are made once and kept there."""
    raw = _raw(root, scale)
    home = root / f"scale{scale:g}"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    with duckdb.connect() as con:
        for name, (file, columns) in SOURCES.items():
            con.execute(
                f"CREATE TABLE {name} AS SELECT {columns} FROM '{raw}/{file}.parquet'"
            ).fetchall()
        return _Writer(con, home, scale).written(sizes, warm_up)


def _raw(root: Path, scale: float) -> Path:
    raw = root / f"tpch{scale:g}"
    if not (raw / "lineitem.parquet").exists():
        program = Path(sys.executable).with_name("tpchgen-cli")
        tables = ",".join(file for file, _ in SOURCES.values())
        arguments = ["parquet", "-s", f"{scale:g}", "--output-dir", str(raw), "--tables", tables]
        raw.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(program), *arguments], check=True, stdout=subprocess.DEVNULL)
    return raw


Keys = npt.NDArray[np.int64]  # rows of (key in TPC-H, what is added to make it another order)


class _Writer:
    """Decides which orders come and go, and writes them."""

    def __init__(self, con: duckdb.DuckDBPyConnection, home: Path, scale: float) -> None:
        self._con, self._home, self._scale = con, home, scale
        self._random = np.random.default_rng(SEED)
        found = con.execute("SELECT orderkey FROM orders ORDER BY 1").fetchnumpy()["orderkey"]
        shuffled = self._random.permutation(np.asarray(found, np.int64))
        self._apart = int(shuffled.max()) + 1
        held_back = int(len(shuffled) * HELD_BACK)
        self._to_come, self._there = shuffled[:held_back], _orders(shuffled[held_back:], 0)

    def written(self, sizes: Sequence[int], warm_up: int) -> Workload:
        rows = self._tables("base", self._there)
        every = [self._there]
        coming = self._coming()
        changes = []
        for i, k in enumerate(sizes):
            come = np.array([next(coming) for _ in range(k)], np.int64).reshape(-1, 2)
            at = self._random.choice(len(self._there), k // 2, replace=False)
            go = self._there[at]
            self._there = np.concatenate([np.delete(self._there, at, axis=0), come])
            every.append(come)
            directory = f"{i:04}_{k}"
            for name in OF_ORDERS:
                self._write(
                    f"{directory}/{name}",
                    f"SELECT *, 1 AS weight FROM ({self._text(name, come, 'come')}) "
                    f"UNION ALL SELECT *, -1 FROM ({self._text(name, go, 'go')})",
                )
            changes.append(Change(i, k, i >= warm_up, directory))
        self._tables("final", self._there)
        self._tables("final_inserts", np.concatenate(every))
        (self._home / "plan.json").write_text(json.dumps([c.k for c in changes]))
        return Workload(self._home, self._scale, rows, tuple(changes))

    def _coming(self) -> Iterator[tuple[int, int]]:
        """The orders held back; once they are used up the same again, under other keys."""
        again = 0
        while True:
            yield from ((int(k), again) for k in self._to_come)
            again += self._apart

    def _tables(self, directory: str, orders: Keys) -> dict[str, int]:
        self._write(f"{directory}/customers", "SELECT * FROM customers ORDER BY 1")
        for name in OF_ORDERS:
            self._write(f"{directory}/{name}", self._text(name, orders, "chosen") + " ORDER BY 1")
        return {name: self._count(self._home / directory / f"{name}.parquet") for name in SOURCES}

    def _count(self, file: Path) -> int:
        found = self._con.execute(f"SELECT count(*) FROM '{file}'").fetchall()[0]
        return int(found[0])

    def _text(self, name: str, orders: Keys, view: str) -> str:
        self._con.register(
            view, pa.table([pa.array(c) for c in orders.T.copy()], names=["k", "apart"])
        )
        return (
            f"SELECT t.* REPLACE (t.orderkey + apart AS orderkey) FROM {name} t "
            f"JOIN {view} ON t.orderkey = k"
        )

    def _write(self, path: str, query: str) -> None:
        file = self._home / f"{path}.parquet"
        file.parent.mkdir(exist_ok=True)
        self._con.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet)").fetchall()


def _orders(keys: Keys, apart: int) -> Keys:
    return np.column_stack([keys, np.full(len(keys), apart, np.int64)])


def differences(workload: Workload, view: str, result: Path, *, inserts_only: bool) -> int:
    """How many rows of a result DuckDB does not find in the final tables, or the other way."""
    final = workload.root / ("final_inserts" if inserts_only else "final")
    columns = ", ".join(COLUMNS[view])
    with duckdb.connect() as con:
        for name in SOURCES:
            con.execute(f"CREATE VIEW {name} AS SELECT * FROM '{final}/{name}.parquet'").fetchall()
        con.execute(f"CREATE TABLE expected AS SELECT {columns} FROM ({VIEWS[view]})").fetchall()
        con.execute(f"CREATE TABLE found AS SELECT {columns} FROM '{result}'").fetchall()
        counted = con.execute(
            "SELECT count(*) FROM ((FROM expected EXCEPT ALL FROM found) UNION ALL "
            "(FROM found EXCEPT ALL FROM expected))"
        ).fetchall()[0]
    return int(counted[0])
