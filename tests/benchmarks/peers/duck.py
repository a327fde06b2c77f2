"""DuckDB, which computes the view again after each change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tests.benchmarks.peers.peer import TABLES, VIEWS, Tables, Way, parts

KEYS = {"customers": ("custkey",), "orders": ("orderkey",), "lines": ("orderkey", "linenumber")}


class Peer(Way):
    """Tables in memory, changed in place; the view comes out as an Arrow table."""

    def __init__(self, view: str, directory: Path, variant: str) -> None:
        self._view = VIEWS[view]
        self._con = duckdb.connect()
        self._con.execute("SET threads = 2").fetchall()
        self._result = pa.table({})

    def load(self, tables: Tables) -> None:
        for name in TABLES:
            self._con.register("given", tables[name])
            self._con.execute(f"CREATE TABLE {name} AS SELECT * FROM given").fetchall()
        self._recompute()

    def prepare(self, change: Tables) -> None:
        for name in change:
            come, go = parts(change, name)
            self._con.register("come", come)
            self._con.register("go", go)
            same = " AND ".join(f"{name}.{k} = go.{k}" for k in KEYS[name])
            self._con.execute(f"DELETE FROM {name} USING go WHERE {same}").fetchall()
            self._con.execute(f"INSERT INTO {name} SELECT * FROM come").fetchall()

    def step(self, change: Tables) -> None:
        self._recompute()

    def result(self) -> pa.Table:
        return self._result

    def empty_job(self) -> None:
        self._con.execute("SELECT 1").fetchall()

    def close(self) -> None:
        self._con.close()

    def _recompute(self) -> None:
        made: Any = self._con.execute(self._view).to_arrow_table()
        self._result = made
