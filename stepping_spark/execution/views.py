"""The relations that a query refers to: small ones stand in its text, large ones are views."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TypeAlias

import pyarrow as pa

from stepping_spark.engines.spark.rendering import DerivedTable
from stepping_spark.engines.spark.text import consolidated, names
from stepping_spark.limits import Limits
from stepping_spark.packages import DataFrame, SparkSession
from stepping_spark.rows.literals import literal
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import quote
from stepping_spark.spark.relation import Relation, on_driver
from stepping_spark.spark.send import frame_of
from stepping_spark.spark.session import in_session

_NUMBERS = itertools.count(1)

Sent: TypeAlias = dict[tuple[int, str], tuple[pa.Table, DataFrame]]
"""Tables as DataFrames, by the table's identity and its schema in Spark."""


class Sources:
    """Named relations for the queries of one step; `drop` them at its end."""

    def __init__(
        self, spark: Callable[[], SparkSession], limits: Limits, now: str = "NULL"
    ) -> None:
        self._limits = limits
        self._spark = spark
        self.now = now
        """The time of the step, as a literal."""
        self._inline: dict[str, str] = {}
        self._views: list[str] = []

    def name(self, kind: str) -> str:
        """A name that no other relation of this process has."""
        return f"{kind}_{next(_NUMBERS)}"

    def define(
        self,
        name: str,
        parts: tuple[Relation, ...],
        schema: Schema,
        *,
        added_up: bool = False,
        sent: Sent | None = None,
    ) -> None:
        """Give the sum of some relations a name; `added_up` consolidates equal rows.

        `sent` are tables that were sent under other names: one that has two is sent once.
        """
        frames = [p.frame for p in parts if p.frame is not None]
        table = on_driver(parts, schema)
        if not frames and is_inline(table, schema, self._limits):
            self._inline[name] = inline(table, schema)
            return
        if table.num_rows:
            sent, key = {} if sent is None else sent, (id(table), schema.ddl)
            if key not in sent:
                sent[key] = table, frame_of(table, schema, self._spark())
            frames.append(sent[key][1])
        self._inline.pop(name, None)
        if len(frames) == 1:
            self._view(name, frames[0])
            return
        single = []
        for i, frame in enumerate(frames):
            self._view(f"{name}_part{i}", frame)
            single.append(f"SELECT {names(schema.all)} FROM {name}_part{i}")
        union = " UNION ALL ".join(single)
        self._inline[name] = consolidated(union, schema, few=False) if added_up else union

    def derive(self, d: DerivedTable) -> None:
        """Add Columns that SQL text cannot say to a query's."""
        frame = self.sql(d.query.text, d.query.uses)
        self._view(d.name, frame.select("*", *[c.alias(n) for n, c in d.columns]))

    def sql(self, text: str, uses: Iterable[str]) -> DataFrame:
        """The DataFrame of a query over these of the named relations."""
        used = [(n, self._inline[n]) for n in sorted(uses) if n in self._inline]
        if used:
            text = f"WITH {', '.join(f'{n} AS ({q})' for n, q in used)} {text}"
        return self._spark().sql(text)

    def drop(self) -> None:
        """Forget all names."""
        for name in self._views:
            self._spark().catalog.dropTempView(name)
        self._views.clear()
        self._inline.clear()

    def _view(self, name: str, frame: DataFrame) -> None:
        in_session(frame, self._spark()).createOrReplaceTempView(name)
        self._views.append(name)


def is_inline(table: pa.Table, schema: Schema, limits: Limits) -> bool:
    """Whether a relation is small enough to stand in a query's text."""
    cells = table.num_rows * sum(_cells(t.arrow) for _, t in schema.all)
    return cells <= limits.inline_cells and table.nbytes <= limits.inline_bytes


def _cells(t: pa.DataType) -> int:
    if pa.types.is_struct(t):
        return sum(_cells(f.type) for f in t)
    return 4 if pa.types.is_list(t) else 1


def inline(table: pa.Table, schema: Schema) -> str:
    """A small relation as the text of a query."""
    columns = names(schema.all)
    if not table.num_rows:
        nothing = ", ".join(f"CAST(NULL AS {t.ddl}) AS {quote(n)}" for n, t in schema.all)
        return f"SELECT {nothing} WHERE false"
    rows = ", ".join(
        f"({', '.join(literal(row[n], t) for n, t in schema.all)})" for row in table.to_pylist()
    )
    return f"SELECT {columns} FROM VALUES {rows} AS t({columns})"
