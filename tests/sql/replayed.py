"""Views of others' own test suites, replayed against `st.sql`.

DuckDB holds the tables and executes the changes, in whatever dialect. Each view is stepped with
what changed, and its rows are compared with Spark's answer to the same text on the tables so far. A
view that Spark does not analyse is left out, and so is a state for which Spark raises an error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import sqlglot
from pyspark.errors import AnalysisException, ParseException, PySparkException

from stepping_spark.base.errors import CompileError
from tests.sql.corpus import Maintained, Rows, plain_rows, same, table_in_spark

FILES = ("core", "risingwave", "feldera", "turso", "openivm", "pg_trickle")
TYPES = {
    "VARCHAR": "STRING",
    "HUGEINT": "DECIMAL(38,0)",
    "UBIGINT": "DECIMAL(20,0)",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    "BLOB": "BINARY",
    "INTEGER": "INT",
    "JSON": "STRING",
    "INTERVAL": "INTERVAL DAY TO SECOND",
    "UUID": "STRING",
}
_ANY_ROWS = re.compile(r"(?is)^(?!.*order by).*limit \d+")
"""A text whose first rows are any, as they have no order."""

READ = {"risingwave": "postgres", "calcite": "postgres"}


def ddl_of(t: str) -> str:
    """Spark's type for one of DuckDB."""
    t = t.upper()
    return f"ARRAY<{ddl_of(t[:-2])}>" if t.endswith("[]") else TYPES.get(t, t)


def value_of(value: Any, t: str) -> Any:
    """A value of DuckDB, as Spark and row classes have it."""
    if value is None:
        return None
    if t.endswith("[]"):
        return [value_of(v, t[:-2]) for v in value]
    if ddl_of(t).startswith("DECIMAL") and isinstance(value, int):
        return Decimal(value)
    return str(value) if t.upper() in ("UUID", "JSON") else value


@dataclass(frozen=True)
class View:
    """A view: its text, those of the views that it reads, and the number of the first step."""

    name: str
    text: str
    before: tuple[tuple[str, str], ...]
    since: int

    @property
    def whole(self) -> str:
        """All statements, its own last."""
        statements = [f"CREATE VIEW {name} AS {text}" for name, text in self.before]
        own = f"CREATE VIEW {self.name} AS {self.text}" if self.before else self.text
        return ";\n".join([*statements, own])


class Case:
    """One case: its tables, as DuckDB has them after each step."""

    def __init__(self, told: dict[str, Any], batch: int) -> None:
        self.name = told["name"]
        self._dialect = READ.get(told["dialect"], told["dialect"])
        self._con = duckdb.connect()
        self._con.execute("SET TimeZone='UTC'")
        for s in told["ddl"]:
            self._execute(s)
        self.types = {
            t: [(c["name"], c["type"], c["nullable"]) for c in columns]
            for t, columns in told["tables"].items()
        }
        self._batch = batch
        self._told = told
        self.states = list(self._states())
        self.views = list(self._views())

    @property
    def ddls(self) -> dict[str, str]:
        """The tables, in Spark's DDL."""
        return {
            t: ", ".join(
                f"`{name}` {ddl_of(kind)}{'' if nullable else ' NOT NULL'}"
                for name, kind, nullable in columns
            )
            for t, columns in self.types.items()
        }

    def _execute(self, statement: str) -> None:
        try:
            self._con.execute(statement)
        except duckdb.Error:
            (text,) = sqlglot.transpile(statement, read=self._dialect, write="duckdb")
            self._con.execute(text)

    def _states(self) -> Iterator[tuple[int, dict[str, Rows]]]:
        """After how many statements, and the rows of each table."""
        stops = {v["created_after"] for v in self._told["views"]} | {len(self._told["steps"])}
        within, pending = False, 0
        for k in range(len(self._told["steps"]) + 1):
            if k:
                statement = self._told["steps"][k - 1]
                self._execute(statement)
                pending += 1
                said = statement.lower()
                within = within or said.startswith("begin")
                within = within and not said.startswith(("commit", "rollback", "end"))
            if not within and (not k or k in stops or pending >= self._batch):
                pending = 0
                yield k, {t: self._rows(t) for t in self.types}

    def _rows(self, table: str) -> Rows:
        found = self._con.execute(f'SELECT * FROM "{table}"').fetchall()
        kinds = [kind for _, kind, _ in self.types[table]]
        return Counter(
            tuple(_hashed(value_of(v, t)) for v, t in zip(row, kinds, strict=True)) for row in found
        )

    def _views(self) -> Iterator[View]:
        known: list[View] = []
        for v in self._told["views"]:
            text = v["sql_spark"] or v["sql"]
            before: dict[str, str] = {}
            for other in known:
                if re.search(rf"\b{re.escape(other.name)}\b", text, re.IGNORECASE):
                    before.update(other.before)
                    before[other.name] = other.text
            found = View(v["name"], text, tuple(before.items()), v["created_after"])
            known.append(found)
            yield found


def _hashed(value: Any) -> Any:
    return tuple(map(_hashed, value)) if isinstance(value, list) else value


def replay(case: Case, spark: Any) -> Iterator[tuple[str, str]]:
    """What is said of each view of a case, in a word, and the details."""
    for view in case.views:
        try:
            in_spark(spark, case, view, {t: Counter() for t in case.types})
        except (AnalysisException, ParseException) as e:
            yield "not Spark's", f"{view.name}: {str(e)[:150]}"
            continue
        except PySparkException:
            pass  # an error of some value: the states tell
        if _ANY_ROWS.search(view.text):
            yield "not determined", view.name
            continue
        try:
            yield _replayed(case, view, spark)
        except CompileError as e:
            yield "refused", f"{view.name}: {' | '.join(str(e).splitlines())[:400]}"
        except Exception as e:
            yield "CRASHED", f"{view.name}: {type(e).__name__}: {str(e)[:600]}\n    {view.whole}"


def in_spark(spark: Any, case: Case, view: View, tables: Mapping[str, Rows]) -> Rows:
    """What Spark answers."""
    for name, rows in tables.items():
        table_in_spark(spark, rows, case.ddls[name]).createOrReplaceTempView(name)
    for name, text in view.before:
        spark.sql(text).createOrReplaceTempView(name)
    return plain_rows(spark.sql(view.text))


def _replayed(case: Case, view: View, spark: Any) -> tuple[str, str]:
    maintained = Maintained(view.whole, case.ddls)
    before: dict[str, Rows] = {t: Counter() for t in case.types}
    compared = 0
    for k, now in case.states:
        if k < view.since:
            continue
        change = {
            t: {
                r: now[t][r] - before[t][r] for r in now[t] | before[t] if now[t][r] != before[t][r]
            }
            for t in case.types
        }
        before = now
        try:
            wanted = in_spark(spark, case, view, now)
        except PySparkException as e:
            return ("right", "") if compared else ("Spark fails", f"{view.name}: {str(e)[:150]}")
        maintained.step(change)
        compared += 1
        if not same(maintained.left, wanted) and _sorted(maintained.left) != _sorted(wanted):
            more, fewer = maintained.left - wanted, wanted - maintained.left
            return "WRONG", (
                f"{view.name} after {k}: {view.whole}\n"
                f"    ours {list(more.items())[:3]}\n   spark {list(fewer.items())[:3]}"
            )
    return "right", ""


def _sorted(rows: Rows) -> Rows:
    """The rows, with lists and texts with commas in one order: without ORDER BY it is nobody's."""
    return Counter({tuple(map(_in_order, row)): n for row, n in rows.items()})


def _in_order(value: Any) -> Any:
    if isinstance(value, str) and "," in value:
        return ",".join(sorted(value.split(",")))
    return tuple(sorted(value, key=repr)) if isinstance(value, tuple) else value
