"""Random tables for TPC-H, TPC-DS and Nexmark, with the constants of each query in them."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from tests.sql.corpus import Change, Rows, folder, queries

FACTS = {
    *("store_sales", "store_returns", "catalog_sales", "catalog_returns", "web_sales"),
    *("web_returns", "inventory", "lineitem", "partsupp"),
}
"""The tables whose first column is no key."""

_OF_NEXMARK = ("auction", "bidder", "id", "seller", "category")

KEYS, DAYS = range(1, 7), range(1, 26)
_COLUMN = re.compile(r"(\w+) (\w+(?:\((\d+), ?(\d+)\))?)")


NEXMARK = {
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
    "dateTime TIMESTAMP_NTZ, extra STRING",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, "
    "dateTime TIMESTAMP_NTZ, expires TIMESTAMP_NTZ, seller BIGINT, category BIGINT, extra STRING",
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, "
    "state STRING, dateTime TIMESTAMP_NTZ, extra STRING",
}


def nexmark() -> list[dict[str, Any]]:
    """The queries of Nexmark that Spark takes: the SELECT of each INSERT."""
    found = []
    for q in queries("nexmark"):
        if q["spark"]:
            (text,) = re.findall(r"(?is)insert into \w+\s+(.*?);?\s*$", q["sql"])
            names = [t for t in NEXMARK if re.search(rf"(?i)\b{t}\b", text)]
            found.append({**q, "sql": text, "tables": names})
    return found


def tables(benchmark: str) -> dict[str, str]:
    """The tables of a benchmark, in Spark's DDL."""
    if benchmark == "nexmark":
        return NEXMARK
    found: dict[str, str] = json.loads((folder() / "tpc_tables.json").read_text())[benchmark]
    return found


class Values:
    """Values for the columns of a query's tables: few keys, and what the query compares with."""

    def __init__(self, text: str, seed: int) -> None:
        self._rng = random.Random(seed)
        self._texts = [*re.findall(r"'([^']*)'", text), "other", "AA"]
        numbers = [int(n) for n in re.findall(r"\b\d+\b", text) if len(n) < 9]
        self._years = [n for n in numbers if 1900 < n < 2100] or [1999, 2000]
        self._numbers = [n for n in numbers if n < 1900] + [1, 2, 3]
        days = [dt.date.fromisoformat(d) for d in re.findall(r"\b\d{4}-\d\d-\d\d\b", text)]
        self._days = days or [dt.date(year, 2, 1) for year in self._years]

    def row(self, ddl: str) -> tuple[Any, ...]:
        """A row of a table."""
        return tuple(self._value(*m.groups()) for m in map(_COLUMN.match, ddl.split(", ")) if m)

    def _value(self, name: str, kind: str, _: str | None, scale: str | None) -> Any:
        rng = self._rng
        if rng.random() < 0.08 and name not in ("d_date_sk", "t_time_sk"):
            return None
        if kind.startswith("DECIMAL"):
            return Decimal(rng.randrange(0, 20_000)).scaleb(-int(scale or 0))
        if kind == "STRING":
            return rng.choice(self._texts)
        if kind == "DATE":
            return rng.choice(self._days) + dt.timedelta(days=rng.randrange(-40, 40))
        if kind.startswith("TIMESTAMP"):
            day = rng.choice(self._days)
            return dt.datetime(day.year, day.month, day.day, rng.randrange(24))
        if name.endswith(("_sk", "key", "_number")) or name in _OF_NEXMARK:
            return rng.choice(DAYS if name.endswith(("date_sk", "time_sk")) else KEYS)
        if "year" in name:
            return rng.choice(self._years) + rng.choice([0, 0, 0, 1])
        if "moy" in name or "qoy" in name or "dom" in name:
            return rng.randrange(1, 13)
        return rng.choice(self._numbers) + rng.choice([0, 0, 1])


def streams(
    query: Mapping[str, Any], ddls: Mapping[str, str], steps: int, rows: int = 30
) -> Iterator[tuple[Change, dict[str, Rows]]]:
    """The changes of each step, with deletions, and the tables after it."""
    values = Values(query["sql"], seed=len(query["sql"]))
    rng = random.Random(query["name"])
    now: dict[str, Rows] = {name: Counter() for name in query["tables"]}
    for step in range(steps):
        change: dict[str, dict[tuple[Any, ...], int]] = {}
        for name, there in now.items():
            made = Counter(
                values.row(_split(ddls[name])) for _ in range(rows if not step else rows // 5)
            )
            for row in rng.sample([*there], len(there) // 6):
                made[row] -= 1
            if name not in FACTS:
                made = _with_one_of_each_key(there, made)
            change[name] = {row: n for row, n in made.items() if n}
            now[name] = Counter({r: n for r in there | made if (n := there[r] + made[r]) > 0})
        yield change, {name: Counter(there) for name, there in now.items()}


def _with_one_of_each_key(there: Rows, change: Rows) -> Rows:
    """The change without rows whose key, the first column, is there already, or is NULL."""
    keys = {row[0] for row in there if there[row] + change[row] > 0} | {None}
    found: Rows = Counter()
    for row, n in change.items():
        if n < 0:
            found[row] = n
        elif row[0] not in keys:
            keys.add(row[0])
            found[row] = 1
    return found


def _split(ddl: str) -> str:
    """The DDL with no space within a type."""
    return re.sub(r"\((\d+), (\d+)\)", r"(\1,\2)", ddl)
