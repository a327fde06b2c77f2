"""A port of nine views of SQL, as a user would write it: its length, and its answers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

import stepping_spark as st
from tests.pipeline import jaffle
from tests.pipeline.jaffle_tables import TABLES, Shops

HERE = Path(__file__).parent
VIEWS = (
    *("stg_customers", "stg_locations", "stg_order_items", "stg_orders", "stg_products"),
    *("stg_supplies", "order_items", "orders", "customers"),
)


def lines(path: Path) -> int:
    """The lines that are neither empty nor a comment, nor the docstring of one line."""
    begins = ("#", "--", '"""')
    text = path.read_text(encoding="utf-8").splitlines()
    return sum(bool(line.strip()) and not line.lstrip().startswith(begins) for line in text)


def test_the_queries_are_about_as_long_as_the_sql() -> None:
    """Finding 33."""
    assert lines(HERE / "jaffle.py") <= 1.1 * lines(HERE / "jaffle.sql")


@pytest.mark.spark
def test_the_views_are_those_of_the_sql_after_each_change(spark: Any) -> None:
    shops = Shops(7)
    items: dict[str, list[Any]] = {name: [] for name in TABLES}
    views: dict[str, Counter[Any]] = {name: Counter() for name in VIEWS}

    def into(view: str) -> Any:
        def add(step: int, change: Any) -> None:
            for row, n in change.iter():
                views[view][row] += n

        return add

    pipeline = st.Pipeline(
        {name: getattr(jaffle, name) for name in VIEWS},
        store="memory",
        sources=items,
        into={name: into(name) for name in VIEWS},
    )
    text = (HERE / "jaffle.sql").read_text(encoding="utf-8")
    for step in range(1, 26):
        for name, change in shops.change().items():
            items[name].append((step, change))
        pipeline.run()
        database = duckdb.connect()
        for name in TABLES:
            database.register(name, shops.table(name))
        database.execute(text)
        for name in VIEWS:
            table = database.sql(f"SELECT * FROM {name}").arrow().read_all()
            wanted = Counter(tuple(sorted(row.items())) for row in table.to_pylist())
            found = Counter(
                {
                    tuple(sorted((f, getattr(row, f)) for f in table.column_names)): n
                    for row, n in views[name].items()
                    if n
                }
            )
            assert found == wanted, (step, name)
