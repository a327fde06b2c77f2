"""Tables of which a part comes and goes: as many rows at the end as at first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.peers.peer import WEIGHT
from tests.benchmarks.peers.workload import SEED, Change, Workload
from tests.tpch.data import generate
from tests.tpch.tables import TABLES

AWAY = 0.1  # of all orders or edges, at first
NARROW = {"lineitem": "l_linenumber", "orders": "o_shippriority", "part": "p_size",
          "partsupp": "ps_availqty"}  # fmt: skip
NODES = 10  # of a component of the graph
EDGES = 1_500_000  # at scale 1, as many as there are orders


@dataclass(frozen=True)
class Source:
    """A table: a query of the raw tables, and by which expression of it rows come and go."""

    text: str
    key: str | None = None


def raw(home: Path, scale: float) -> Path:
    """Write the tables of TPC-H, and the edges of a graph, as Parquet files."""
    home.mkdir(parents=True)
    generate(home, f"{scale:g}")
    pq.write_table(graph(round(EDGES * scale / NODES)), home / "edges.parquet")
    return home


def graph(components: int) -> pa.Table:
    """Edges of components of ten nodes.

    An edge leads to each node but the first, from one of the three before it, so that a path has
    up to nine. A tenth of the edges is a second way to a node, and one component of a hundred has a
    cycle.
    """
    random = np.random.default_rng(SEED)
    first = np.arange(components) * NODES
    starts, ends = [], []
    for node in range(1, NODES):
        back = random.integers(1, min(node, 3) + 1, components)
        starts.append(first + node - back)
        ends.append(first + node)
    second = random.integers(4, NODES, components)
    starts.append(first + second - 4)
    ends.append(first + second)
    starts.append(first[::100] + NODES - 1)
    ends.append(first[::100])
    ends_of = {"left": starts, "right": ends}
    return pa.table({name: pa.array(np.concatenate(of)) for name, of in ends_of.items()})


Keys = npt.NDArray[np.int64]


class Turnover:
    """Some tables, what is there of them, and what is away."""

    def __init__(self, raw: Path, home: Path, sources: Mapping[str, Source]) -> None:
        self._home, self._sources = home, sources
        self._con = duckdb.connect()
        for name in (*TABLES, "edges"):
            narrow = NARROW.get(name)
            wide = f"REPLACE (CAST({narrow} AS BIGINT) AS {narrow})" if narrow else ""
            self._sql(f"CREATE VIEW raw_{name} AS SELECT * {wide} FROM '{raw}/{name}.parquet'")
        self._random = np.random.default_rng(SEED)
        whole = next(s for s in sources.values() if s.key is not None)
        keys = f"SELECT DISTINCT {whole.key} AS k FROM ({whole.text}) ORDER BY 1"
        found = np.asarray(self._con.execute(keys).fetchnumpy()["k"], np.int64)
        mixed = self._random.permutation(found)
        away = round(len(mixed) * AWAY)
        self._away, self._there = mixed[:away], mixed[away:]

    def written(self, scale: float, sizes: Sequence[int], warm_up: int) -> Workload:
        """Write the tables at first, each change, and the tables at the end.

        By turns K keys come and K/2 go, or the other way.
        """
        rows = self._whole("base")
        changes, times = [], Counter[int]()
        for i, k in enumerate(sizes):
            some = (k, k // 2) if times[k] % 2 == 0 else (k // 2, k)
            times[k] += 1
            come, go = self._turn(*some)
            directory = f"{i:04}_{k}"
            for name, source in self._sources.items():
                if source.key is not None:
                    texts = [
                        f"SELECT *, CAST({n} AS BIGINT) AS {WEIGHT} FROM ({self._of(source, keys)})"
                        for n, keys in ((1, come), (-1, go))
                    ]
                    self._write(directory, name, " UNION ALL ".join(texts))
            changes.append(Change(i, k, i >= warm_up, directory))
        self._whole("final")
        self._con.close()
        return Workload(self._home, scale, rows, tuple(changes))

    def _turn(self, come: int, go: int) -> tuple[Keys, Keys]:
        """Those that were away for longest come, and some go."""
        coming, self._away = self._away[:come], self._away[come:]
        assert len(coming) == come, "fewer are away than are to come: take a smaller K"
        at = self._random.choice(len(self._there), go, replace=False)
        going = self._there[at]
        self._there = np.concatenate([np.delete(self._there, at), coming])
        self._away = np.concatenate([self._away, going])
        return coming, going

    def _whole(self, directory: str) -> dict[str, int]:
        rows = {}
        for name, source in self._sources.items():
            text = source.text if source.key is None else self._of(source, self._there)
            rows[name] = self._write(directory, name, text)
        return rows

    def _of(self, source: Source, keys: Keys) -> str:
        """The rows of some keys."""
        name = f"keys_{len(keys)}_{keys[0]}"
        self._con.register(name, pa.table({"k": pa.array(keys)}))
        return f"SELECT * FROM ({source.text}) WHERE {source.key} IN (SELECT k FROM {name})"

    def _write(self, directory: str, name: str, text: str) -> int:
        file = self._home / directory / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        return self._sql(f"COPY ({text}) TO '{file}' (FORMAT parquet)")

    def _sql(self, text: str) -> int:
        found = self._con.execute(text).fetchall()
        return int(found[0][0]) if found else 0
