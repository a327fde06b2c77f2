"""Changed views of others: their change, what is read again, and what comes after, in every store.

The cases are data that does not belong to the project: `STEPPING_SPARK_CORPORA` says where.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.pipeline.views import input_names
from stepping_spark.stepper.evolve.evolution import WHOLE
from tests.every_store import MakeStore

CORPORA = os.environ.get("STEPPING_SPARK_CORPORA")
CASES = json.loads(Path(CORPORA, "ivm", "evolve.json").read_text()) if CORPORA else []
TYPES = {"INTEGER": "INT", "VARCHAR": "STRING"}
Bag = Counter[tuple[Any, ...]]

# Views in SQL keep the columns that they read only, so that a state is small. What these cases read
# first is kept with `whole_rows`. "None, if cents is kept with orders", one of them says.
WHOLE_ROWS = {
    "filter narrowed above a join",
    "one aggregate more",
    "another key",
    "a view more on shared streams",
}

# How many registers stay of what `state_kept` names: the sides of joins, rows by a key, edges.
KEPT = {
    "filter narrowed above a join": 1,  # the other side is filled from itself
    "a column more": 1,
    "a column less": 1,
    "one aggregate more": 2,
    "another key": 2,
    "inner join becomes a left one": 2,
    "a view more on shared streams": 3,
    "a view less": 3,
    "a table and a view more": 2,
    "top 2 becomes top 3": 1,
    "a recursion changed": 1,
}

# A column is known by its name. Where a table has another name for it now, the query keeps the
# name, and the source says the other one: columns={"age": "years"}.
RENAMED = {"an input's column that is read is renamed": {"age": "years"}}

pytestmark = [
    pytest.mark.usefixtures("spark"),
    pytest.mark.skipif(not CASES, reason="STEPPING_SPARK_CORPORA does not say where cases are"),
]


class Tables:
    """Tables of DuckDB, with what changed since they were asked last."""

    def __init__(self, statements: list[str]) -> None:
        self.columns: Mapping[str, str] = {}  # as of a source: what a field is called in a table
        self._connection = pytest.importorskip("duckdb").connect()
        self._last: dict[str, Bag] = {}
        for statement in statements:
            self.run(statement)

    def run(self, statement: str) -> None:
        """Execute a statement."""
        self._connection.execute(statement)

    def ddl(self) -> dict[str, str]:
        """The columns of each table, as Spark has them."""
        found = {}
        fields = {column: field for field, column in self.columns.items()}
        for (name,) in self._connection.execute("SHOW TABLES").fetchall():
            columns = self._connection.execute(f'DESCRIBE "{name}"').fetchall()
            found[name] = ", ".join(f"{fields.get(c, c)} {TYPES.get(t, t)}" for c, t, *_ in columns)
        return found

    def rows(self, table: str, columns: str) -> Bag:
        """The rows of a table, of these columns."""
        named = ", ".join(self.columns.get(c, c) for c in columns.split(", "))
        return Counter(self._connection.execute(f'SELECT {named} FROM "{table}"').fetchall())

    def changes(self, columns: Mapping[str, str]) -> dict[str, Bag]:
        """What changed in each table since the last call."""
        before, self._last = self._last, {t: self.rows(t, of) for t, of in columns.items()}
        changed: dict[str, Bag] = {}
        for table, now in self._last.items():
            changed[table] = Counter(now)
            changed[table].subtract(before.get(table, Counter()))
        return changed


class Views:
    """The circuit of views, and the sums of their changes."""

    def __init__(self, views: dict[str, str], ddl: dict[str, str], *, whole_rows: bool) -> None:
        words = set(re.findall(r"\w+", " ".join(views.values())))
        text = ";\n".join(f"CREATE VIEW {name} AS {sql}" for name, sql in views.items())
        tables: dict[str, Any] = {n: columns for n, columns in ddl.items() if n in words}
        self.names = list(views)
        self.graph = dataclasses.replace(
            st.compile(st.sql(text, **tables), whole_rows=whole_rows), called=tuple(views)
        )
        types = zip(input_names(self.graph), self.graph.inputs, strict=True)
        self.types: dict[str, Any] = {name: v.type for name, v in types}
        self.columns = {
            name: ", ".join(n for n, _ in t.schema.columns) for name, t in self.types.items()
        }

    def zset(self, table: str, rows: Bag) -> Any:
        """Rows of a table, as an input takes them."""
        build = self.types[table].row.build
        return st.ZSetPython([(build(list(row)), n) for row, n in rows.items() if n])

    def inputs(self, tables: Tables) -> tuple[Any, ...]:
        """What changed since the last call."""
        return tuple(self.zset(t, rows) for t, rows in tables.changes(self.columns).items())


def bag(change: Any) -> Bag:
    """The rows of a change, without their classes."""
    found: Bag = Counter()
    for row, n in change.to_python().iter():
        found[tuple(getattr(row, "_asdict", lambda row=row: vars(row))().values())] += n
    return found


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_a_changed_view_of_others(make_store: MakeStore, case: dict[str, Any]) -> None:
    tables = Tables([*case["ddl"], *case["steps_before"]])
    whole_rows = case["name"] in WHOLE_ROWS
    views = Views(case["old"], tables.ddl(), whole_rows=whole_rows)
    store = make_store(views.graph)
    stepper: Any = st.Stepper(views.graph, store)
    found: dict[str, Bag] = {}
    for name, out in zip(views.names, stepper.step(views.inputs(tables)), strict=True):
        found[name] = bag(out)
        assert found[name] == Counter(map(tuple, case["old_content"][name]))
    for statement in case.get("alter", []):
        tables.run(statement)
    tables.columns = RENAMED.get(case["name"], {})
    text = case["old"] if tables.columns else case["new"]
    views = Views(text, tables.ddl(), whole_rows=whole_rows)
    store = make_store.reopen(store, views.graph, evolve=True)
    stepper = st.Stepper(views.graph, store, evolve=True)
    plan = st.evolution(views.graph, store)
    assert len(plan.kept) >= KEPT.get(case["name"], 0), plan
    if case["state_kept"].startswith("everything"):
        assert plan.kept, plan
        assert not plan.filled, plan
        assert not plan.dropped, plan
    named = set(re.findall(r"\w+", case["inputs_read"])) or set(views.columns)
    assert set(plan.read_again) <= named, plan
    again = {t: views.zset(t, tables.rows(t, views.columns[t])) for t in plan.read_again}
    whole = [name for name, said in plan.views.items() if said in WHOLE]
    tables.changes(views.columns)
    for name, out in zip(views.names, stepper.evolve(whole=whole, **again), strict=True):
        change = case["change_of_the_view"].get(name)
        if name in whole:
            found[name] = Counter()
        elif name in found:
            assert bag(out) == {tuple(row): n for row, n in change}
        found.setdefault(name, Counter()).update(bag(out))
        assert +found[name] == Counter(map(tuple, case["new_content"][name]))
    for statement, contents in zip(case["steps_after"], case["contents_after"], strict=True):
        tables.run(statement)
        outs = stepper.step(views.inputs(tables))
        for name, out in zip(views.names, outs, strict=True):
            found[name].update(bag(out))
            assert +found[name] == Counter(map(tuple, contents[name])), statement
