"""Comparisons with ANY and ALL rows of a sub-query, which Spark does not parse: against DuckDB."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import stepping_spark as st
from tests.sql.corpus import Maintained, plain
from tests.sql.shop import TABLES, changes

OPERATORS = ("<", "<=", ">", ">=", "=", "<>")
TEXTS = {
    "shown": "SELECT id, qty {} (SELECT customer FROM customers WHERE score > 1) AS c FROM orders",
    "where": "SELECT id FROM orders WHERE qty {} (SELECT customer FROM customers)",
    "not": "SELECT id FROM orders WHERE NOT qty {} (SELECT qty FROM orders WHERE note = 'a')",
    "with NULLs": "SELECT id FROM orders WHERE qty {} (SELECT qty FROM orders WHERE id < 6)",
    "correlated": """SELECT id FROM orders o WHERE qty {}
        (SELECT i.qty FROM orders i WHERE i.customer = o.customer AND i.id <> o.id)""",
    "or": "SELECT id FROM orders WHERE note = 'a' OR qty {} (SELECT customer FROM customers)",
    "having": """SELECT customer, count(*) AS n FROM orders GROUP BY customer
        HAVING sum(qty) {} (SELECT score FROM customers)""",
    "an empty one": "SELECT id FROM orders WHERE qty {} (SELECT k FROM lists WHERE k > 100)",
}
# Of IN in a select list, Spark has no NULL: "shown" is compared for the other operators.
MEMBERSHIP = ("= ANY", "<> ALL")


def cases() -> Iterator[Any]:
    for name, operator, of in itertools.product(TEXTS, OPERATORS, ("ANY", "ALL")):
        comparison = f"{operator} {of}"
        if name != "shown" or comparison not in MEMBERSHIP:
            few = name in ("shown", "where") or operator in ("<", "=", "<>")
            marks = () if few else pytest.mark.long
            yield pytest.param(name, comparison, id=f"{name}, {comparison}", marks=marks)


@pytest.mark.turn(2)
@pytest.mark.parametrize(("name", "comparison"), [*cases()])
def test_a_comparison_is_that_of_duckdb(name: str, comparison: str) -> None:
    text = TEXTS[name].format(comparison)
    view = Maintained(text, TABLES)
    for change, tables in changes(3, 4):
        view.step(change)
        assert view.left == answered(text, tables)


def answered(text: str, tables: dict[str, Counter[tuple[Any, ...]]]) -> Counter[tuple[Any, ...]]:
    """What DuckDB says of the tables."""
    with duckdb.connect() as database:
        for name, ddl in TABLES.items():
            columns = ddl.replace("STRING", "VARCHAR").replace("ARRAY<INT>", "INT[]")
            database.execute(f"CREATE TABLE {name} ({columns})")
            rows = [list(row) for row in tables[name].elements()]
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                database.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        return Counter(plain(row) for row in database.execute(text).fetchall())


def test_several_columns_are_refused() -> None:
    text = "SELECT id FROM orders WHERE qty > ALL (SELECT id, qty FROM orders)"
    with pytest.raises(st.CompileError, match="1 values are compared with 2 columns"):
        st.sql(text, orders=TABLES["orders"])
