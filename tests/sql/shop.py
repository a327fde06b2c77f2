"""Tables of a shop with random changes, for views in SQL that are held to Spark's own answers."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

Rows = Counter[tuple[Any, ...]]


def queries() -> dict[str, str]:
    """The texts of queries.sql, by their names."""
    parts = (Path(__file__).with_name("queries.sql").read_text()).split("\n--- ")[1:]
    return {name: text.strip() for name, text in (part.split("\n", 1) for part in parts)}


TABLES = {
    "orders": "id BIGINT NOT NULL, customer INT, amount DECIMAL(8,2), qty INT, placed DATE, "
    "note STRING",
    "customers": "customer INT NOT NULL, name STRING, country STRING, score DOUBLE",
    "items": "order_id BIGINT, product STRING, price DECIMAL(6,2)",
    "lists": "k INT NOT NULL, xs ARRAY<INT>",
}
"""Spark DDL of each table."""


def _some(r: random.Random, *values: Any) -> Any:
    return r.choice((None, *values))


def _orders(r: random.Random) -> tuple[Any, ...]:
    amount = _some(r, Decimal("0.50"), Decimal("9.99"), Decimal("10.00"), Decimal("-3.25"))
    placed = _some(r, *(dt.date(2026, 1, 1) + dt.timedelta(days=d) for d in range(0, 90, 13)))
    return (r.randrange(30), _some(r, 1, 2, 3, 4), amount, _some(r, 0, 1, 2, 5), placed,
            _some(r, "a", "b", "", "gift"))  # fmt: skip


def _customers(r: random.Random) -> tuple[Any, ...]:
    return (r.randrange(1, 6), _some(r, "Ann", "Bob", "bob"), _some(r, "AT", "DE", "FR"),
            _some(r, 0.5, 1.0, 2.25))  # fmt: skip


def _items(r: random.Random) -> tuple[Any, ...]:
    return (
        _some(r, *range(0, 30, 3)),
        _some(r, "tea", "cup"),
        _some(r, Decimal("1.00"), Decimal("2.50")),
    )


def _lists(r: random.Random) -> tuple[Any, ...]:
    return (r.randrange(4), _some(r, (), (1,), (1, 2, 2), (3, None)))


_MADE = {"orders": _orders, "customers": _customers, "items": _items, "lists": _lists}
_SIZES = {"orders": 24, "customers": 7, "items": 16, "lists": 6}

Change = dict[str, dict[tuple[Any, ...], int]]


def changes(seed: int, steps: int) -> Iterator[tuple[Change, dict[str, Rows]]]:
    """The changes of each step, and the tables after it; one step empties a table."""
    r = random.Random(seed)
    now: dict[str, Rows] = {name: Counter() for name in TABLES}
    for step in range(steps):
        change: Change = {}
        emptied = r.choice(list(TABLES)) if step == steps - 2 else None
        for name, make in _MADE.items():
            if step and r.random() < 0.2:
                continue
            diff: Counter[tuple[Any, ...]] = Counter()
            for row, n in now[name].items():
                if name == emptied or r.random() < 0.3:
                    diff[row] -= n
            for _ in range(r.randint(1, _SIZES[name])):
                diff[make(r)] += r.choice((1, 1, 2))
            change[name] = {row: n for row, n in diff.items() if n}
            for row, n in change[name].items():
                now[name][row] += n
        yield (
            change,
            {name: Counter({k: n for k, n in rows.items() if n}) for name, rows in now.items()},
        )
