"""The tables of `jaffle.sql`: their schemas, and a shop that changes them."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pyarrow as pa

_TEXT: Any = pa.string()
_COLUMNS: dict[str, dict[str, Any]] = {
    "raw_customers": {"id": _TEXT, "name": _TEXT},
    "raw_stores": {
        "id": _TEXT,
        "name": _TEXT,
        "opened_at": pa.timestamp("us"),
        "tax_rate": pa.float64(),
    },
    "raw_items": {"id": _TEXT, "order_id": _TEXT, "sku": _TEXT},
    "raw_orders": {
        "id": _TEXT,
        "customer": _TEXT,
        "ordered_at": pa.timestamp("us"),
        "store_id": _TEXT,
        "subtotal": pa.int64(),
        "tax_paid": pa.int64(),
        "order_total": pa.int64(),
    },
    "raw_products": {"sku": _TEXT, "name": _TEXT, "type": _TEXT, "price": pa.int64()},
    "raw_supplies": {
        "id": _TEXT,
        "name": _TEXT,
        "cost": pa.int64(),
        "perishable": pa.bool_(),
        "sku": _TEXT,
    },
}
TABLES = {
    name: pa.schema([pa.field(c, t, nullable=False) for c, t in columns.items()])
    for name, columns in _COLUMNS.items()
}


class Shops:
    """The rows of the tables, by their keys, and random changes of them."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.rows: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in TABLES}
        self._made = 0

    def change(self) -> dict[str, pa.Table]:
        """Some rows come, go and change; gives the change of each table, with counts."""
        counts: dict[str, list[tuple[dict[str, Any], int]]] = {name: [] for name in TABLES}
        for _ in range(self._chance.randrange(1, 12)):
            table = self._chance.choice(list(TABLES))
            there = self.rows[table]
            self._made += 1
            key = f"{table}{self._chance.randrange(8)}"
            if key in there:
                counts[table].append((there.pop(key), -1))
            if self._chance.random() < 0.7:
                there[key] = self._row(table, key)
                counts[table].append((there[key], 1))
        return {
            name: pa.Table.from_pylist([{**r, "_count_": n} for r, n in rows], _counted(name))
            for name, rows in counts.items()
        }

    def table(self, name: str) -> pa.Table:
        """The rows of a table."""
        return pa.Table.from_pylist(list(self.rows[name].values()), TABLES[name])

    def _row(self, table: str, key: str) -> dict[str, Any]:
        chance = self._chance

        def one_of(other: str) -> str:
            return f"{other}{chance.randrange(8)}"

        cents = chance.randrange(100, 2000)
        at = dt.datetime(2024, 1, 1) + dt.timedelta(hours=chance.randrange(3000))
        match table:
            case "raw_customers":
                return {"id": key, "name": f"name {self._made}"}
            case "raw_stores":
                return {"id": key, "name": f"s{self._made}", "opened_at": at, "tax_rate": 0.06}
            case "raw_items":
                return {"id": key, "order_id": one_of("raw_orders"), "sku": one_of("raw_products")}
            case "raw_orders":
                return {
                    "id": key,
                    "customer": one_of("raw_customers"),
                    "ordered_at": at,
                    "store_id": one_of("raw_stores"),
                    "subtotal": cents,
                    "tax_paid": cents // 20,
                    "order_total": cents + cents // 20,
                }
            case "raw_products":
                kind = chance.choice(["jaffle", "beverage", "other"])
                return {"sku": key, "name": f"p{self._made}", "type": kind, "price": cents}
        sku, perishable = one_of("raw_products"), chance.random() < 0.5
        return {"id": key, "name": "x", "cost": cents, "perishable": perishable, "sku": sku}


def _counted(name: str) -> pa.Schema:
    return TABLES[name].append(pa.field("_count_", pa.int64()))
