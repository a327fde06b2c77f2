"""What a way to keep a view up to date must be able to do, to be measured beside others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

TABLES = ("customers", "orders", "lines")
WEIGHT = (
    "weight"  # a column of the tables of a change: 1 for a row that comes, -1 for one that goes
)

Tables: TypeAlias = Mapping[str, pa.Table]

# DuckDB and Spark both take these. Money is whole numbers, so that sums are exact everywhere.
VIEWS = {
    "orders": """
        SELECT custkey, segment, count(*) AS n_lines,
               CAST(sum(price * (100 - discount)) AS BIGINT) AS revenue,
               max(orderdate) AS last_order
        FROM customers JOIN orders USING (custkey) JOIN lines USING (orderkey)
        GROUP BY custkey, segment""",
    "left": """
        SELECT custkey, segment, o.orderkey, orderdate, linenumber, price
        FROM customers c LEFT JOIN orders o USING (custkey)
             LEFT JOIN lines l ON l.orderkey = o.orderkey""",
}
COLUMNS = {
    "orders": ("custkey", "segment", "n_lines", "revenue", "last_order"),
    "left": ("custkey", "segment", "orderkey", "orderdate", "linenumber", "price"),
}


class CannotDo(Exception):
    """A peer cannot maintain this view, or not here; the text says why."""


class Way(Protocol):
    """A view, and a way to keep it up to date.

    It is made with the name of the view, a directory of its own, and its variant ("" if none).
    """

    def load(self, tables: Tables) -> None:
        """Take in the tables as they are at first, and compute the view."""

    def prepare(self, change: Tables) -> None:
        """Bring the tables up to date from which the view is computed again; not timed."""
        return

    def step(self, change: Tables) -> int | None:
        """Bring the view up to date with a change; the Spark jobs that it took, where that is told.

        This is what is timed: from Arrow tables to a view, or a change of it, that can be read.
        """

    def keep(self) -> None:
        """Note what the last step gave, if `result` needs it; not timed."""
        return

    def result(self) -> pa.Table:
        """The whole view, with the columns of `COLUMNS`."""

    def empty_job(self) -> None:
        """The least that the engine can do: for Spark an empty job."""

    def close(self) -> None:
        """Stop whatever runs."""


def parts(change: Tables, name: str) -> tuple[pa.Table, pa.Table]:
    """The rows of a table that come, and those that go."""
    table = change[name]
    weights = table.column(WEIGHT).to_numpy()
    rows = table.drop_columns([WEIGHT])
    return rows.filter(pa.array(weights > 0)), rows.filter(pa.array(weights < 0))


def summed(changes: Sequence[pa.Table], columns: Sequence[str], weight: str) -> pa.Table:
    """The rows of a view, from its changes since it was empty."""
    every = pa.concat_tables(changes, promote_options="permissive")
    found = every.group_by(list(columns)).aggregate([(weight, "sum")])
    counts = found.column(f"{weight}_sum").to_numpy()
    assert (counts >= 0).all()
    return found.select(list(columns)).take(np.repeat(np.arange(len(counts)), counts))
