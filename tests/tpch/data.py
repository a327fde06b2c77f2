"""TPC-H's tables as `tpchgen-cli` makes them, and changes of them: what was there at each step."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import stepping_spark as st
from tests.tpch.tables import TABLES

SCALE = "0.01"
NEW, OLD = 120, 120  # orders that come, and that go
CENT = Decimal("0.01")
Row = dict[str, Any]


def generate(folder: Path, scale: str = SCALE) -> None:
    """Write the tables as Parquet files."""
    program = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent))
    program = program or shutil.which("tpchgen-cli")
    assert program is not None, "pip install -e '.[test]' brings tpchgen-cli"
    command = [program, "parquet", "-s", scale, "-q", "--output-dir", str(folder)]
    subprocess.run(command, check=True)


@dataclass(frozen=True)
class Refresh:
    """The rows of each table that go, and those that come."""

    name: str
    gone: dict[str, list[Row]]
    come: dict[str, list[Row]]

    def change(self, table: str) -> st.ZSetPython[Any] | None:
        """The change of a table; None: there is none."""
        weighed = [(r, -1) for r in self.gone.get(table, [])]
        weighed += [(r, 1) for r in self.come.get(table, [])]
        return st.ZSetPython([(TABLES[table](**r), n) for r, n in weighed]) if weighed else None


KEYS = {
    "supplier": ("s_suppkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "customer": ("c_custkey",),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}


class Tables:
    """The tables before the first refresh, and after each, in Parquet files."""

    def __init__(self, folder: Path) -> None:
        generate(folder)
        self.folder = folder
        self.refreshes: list[Refresh] = []
        self._now = {name: table_of(folder, name) for name in TABLES}
        chance = random.Random(1)
        there: list[Any] = self._now["orders"]["o_orderkey"].to_pylist()
        keys = chance.sample(there, NEW + OLD)
        new = self._orders(keys[:NEW])
        self._apply(Refresh("without what comes first", gone=new, come={}))
        self._refresh(Refresh("orders with their lines come", gone={}, come=new))
        self._refresh(Refresh("orders with their lines go", self._orders(keys[NEW:]), come={}))
        self._refresh(updates(self._now, chance))

    def file(self, at: int, table: str) -> str:
        """Where a table is, as it was after so many refreshes."""
        return str(self.folder / f"{table}-{at}.parquet")

    def _orders(self, keys: list[int]) -> dict[str, list[Row]]:
        """Orders, with their lines."""
        wanted = pa.array(keys, pa.int64())
        found = {}
        for name, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            table = self._now[name]
            found[name] = table.filter(pc.is_in(table[key], wanted)).to_pylist()
        return found

    def _refresh(self, r: Refresh) -> None:
        self.refreshes.append(r)
        self._apply(r)

    def _apply(self, r: Refresh) -> None:
        for name, table in self._now.items():
            come = pa.Table.from_pylist(r.come.get(name, []), schema=table.schema)
            self._now[name] = pa.concat_tables([_without(table, r.gone.get(name), name), come])
            pq.write_table(self._now[name], self.file(len(self.refreshes), name))


def table_of(folder: Path, name: str) -> pa.Table:
    """A table, its whole numbers 64 bits wide."""
    table = pq.read_table(folder / f"{name}.parquet")
    plain: dict[pa.DataType, pa.DataType] = {pa.int32(): pa.int64(), pa.string_view(): pa.string()}
    return table.cast(
        pa.schema([pa.field(f.name, plain.get(f.type, f.type)) for f in table.schema])
    )


def _without(table: pa.Table, rows: list[Row] | None, name: str) -> pa.Table:
    if not rows:
        return table
    key = KEYS[name]
    gone = {tuple(r[k] for k in key) for r in rows}
    there = zip(*(table[k].to_pylist() for k in key), strict=True)
    return table.filter(pa.array([k not in gone for k in there]))


# Of each table, how many rows are updated, and how.
UPDATES: dict[str, tuple[int, dict[str, Any]]] = {
    "customer": (
        60,
        {
            "c_acctbal": lambda x: Decimal("9000.00") - x,
            "c_mktsegment": lambda x: "BUILDING" if x != "BUILDING" else "MACHINERY",
            "c_nationkey": lambda x: (x + 1) % 25,
            "c_phone": lambda x: f"{(int(x[:2]) + 1 - 10) % 25 + 10}{x[2:]}",
        },
    ),
    "supplier": (
        30,
        {
            "s_acctbal": lambda x: x + 1,
            "s_nationkey": lambda x: 20 if x % 2 else 2,  # Saudi Arabia, Brazil
            "s_comment": lambda x: f"Customer {x} Complaints",
        },
    ),
    "part": (
        80,
        {
            "p_type": lambda x: x.replace("STEEL", "BRASS").replace("MEDIUM", "PROMO"),
            "p_size": lambda x: 15 if x % 2 else 5,
            "p_name": lambda x: f"forest {x} green",
            "p_container": lambda x: "MED BOX",
            "p_brand": lambda x: "Brand#23",
        },
    ),
    "partsupp": (
        300,
        {"ps_supplycost": lambda x: (x / 2).quantize(CENT), "ps_availqty": lambda x: x // 9 + 1},
    ),
    "orders": (
        100,
        {
            "o_orderpriority": lambda x: "1-URGENT",
            "o_comment": lambda x: f"{x} special requests",
        },
    ),
    "lineitem": (
        300,
        {
            "l_quantity": lambda x: x + 40 if x > 25 else x,
            "l_extendedprice": lambda x: x * 2,
            "l_discount": lambda x: Decimal("0.06"),
            "l_shipmode": lambda x: "AIR",
            "l_shipinstruct": lambda x: "DELIVER IN PERSON",
        },
    ),
}


def updates(tables: dict[str, pa.Table], chance: random.Random) -> Refresh:
    """Prices, addresses, names and the like of some rows of each table."""
    gone, come = {}, {}
    for name, (many, how) in UPDATES.items():
        rows = tables[name].to_pylist()
        gone[name] = chance.sample(rows, many)
        come[name] = [
            {n: how[n](v) if n in how and chance.random() < 0.7 else v for n, v in row.items()}
            for row in gone[name]
        ]
    return Refresh("rows of each table are updated", gone, come)
