"""The view *orders* maintained by hand in Spark SQL only: the driver computes nothing.

State is in Spark's cache, partitioned and sorted by key: the three tables, and how much each
customer bought on each day. What has changed since lies beside it. It is folded into the state
once it is half as large, or is many pieces.

A step is two queries. The first joins the changes with the tables, and adds up by customer and
day; its result is kept, partitioned by customer as the state is. The second makes the old and the
new rows of the view in one pass over the days of those customers, without an exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from stepping_spark.spark.session import count_jobs
from tests.benchmarks.peers.peer import COLUMNS, TABLES, WEIGHT, CannotDo, Tables
from tests.benchmarks.peers.spark import session

BROADCAST_ROWS = 400_000
FOLDED_AT = 0.5
MOST_PIECES = 8
KEY = {"customers": "custkey", "orders": "orderkey", "lines": "orderkey", "days": "custkey"}
CHANGED = ("orders", "lines")
COLUMNS_OF = {
    "orders": ("orderkey", "custkey", "orderdate"),
    "lines": ("orderkey", "linenumber", "price", "discount"),
    "days": ("custkey", "orderdate"),
}
SUMS_OF = {"orders": (WEIGHT,), "lines": (WEIGHT,), "days": ("n_lines", "revenue")}

DAYS = f"""
    SELECT custkey, orderdate, sum(n) AS n_lines, sum(n * amount) AS revenue FROM (
        SELECT * FROM (
            SELECT {{hint}} d.custkey, d.orderdate, d.{WEIGHT} * l.{WEIGHT} AS n,
                   l.price * (100 - l.discount) AS amount
            FROM all_lines l JOIN d_orders d ON l.orderkey = d.orderkey
            UNION ALL
            SELECT {{hint}} o.custkey, o.orderdate, o.{WEIGHT} * d.{WEIGHT} AS n,
                   d.price * (100 - d.discount) AS amount
            FROM (SELECT * FROM all_orders UNION ALL SELECT * FROM d_orders) o
            JOIN d_lines d ON o.orderkey = d.orderkey)
        DISTRIBUTE BY custkey)
    GROUP BY custkey, orderdate HAVING n_lines <> 0 OR revenue <> 0"""
VIEW = f"""
    WITH days AS (
        SELECT custkey, orderdate, sum(n_lines) AS n, sum(revenue) AS r,
               sum(if(is_new, 0L, n_lines)) AS old_n, sum(if(is_new, 0L, revenue)) AS old_r
        FROM (SELECT a.*, false AS is_new
              FROM all_days a LEFT SEMI JOIN d_days USING (custkey)
              UNION ALL SELECT *, true AS is_new FROM d_days)
        GROUP BY custkey, orderdate),
    sold AS (
        SELECT custkey, sum(n) AS n, sum(r) AS r, max(orderdate) FILTER (WHERE n <> 0) AS last,
               sum(old_n) AS old_n, sum(old_r) AS old_r,
               max(orderdate) FILTER (WHERE old_n <> 0) AS old_last
        FROM days GROUP BY custkey)
    SELECT * FROM (
        SELECT custkey, segment,
               stack(2, old_n, old_r, old_last, -1L, n, r, last, 1L)
                   AS (n_lines, revenue, last_order, {WEIGHT})
        FROM sold JOIN customers USING (custkey))
    WHERE n_lines <> 0"""
WHOLE = """
    SELECT custkey, orderdate, count(*) AS n_lines, sum(price * (100 - discount)) AS revenue
    FROM orders JOIN lines USING (orderkey) GROUP BY custkey, orderdate"""
RESULT = """
    SELECT custkey, segment, sum(n_lines) AS n_lines, sum(revenue) AS revenue,
           max(orderdate) AS last_order
    FROM (SELECT custkey, orderdate, sum(n_lines) AS n_lines, sum(revenue) AS revenue
          FROM all_days GROUP BY custkey, orderdate HAVING n_lines <> 0)
    JOIN customers USING (custkey) GROUP BY custkey, segment"""


class Peer:
    """State in Spark's cache, and what has been added to it."""

    def __init__(self, view: str, directory: Path, variant: str) -> None:
        if view != "orders":
            raise CannotDo("it is written by hand for the view orders only")
        # Spark loses columns of checkpoints that stand in a query several times.
        self._spark = session(directory, **{"constraintPropagation.enabled": "false"})
        self._state: dict[str, DataFrame] = {}
        self._rows: dict[str, int] = {}
        self._over: dict[str, pa.Table] = {}  # of orders and lines
        self._pieces: list[DataFrame] = []  # of days
        self.change = pa.table({})

    def load(self, tables: Tables) -> None:
        for name in TABLES:
            frame = self._spark.createDataFrame(tables[name])
            weighted = frame if name == "customers" else frame.selectExpr("*", f"1L AS {WEIGHT}")
            self._cache(name, weighted)
        self._cache("days", self._spark.sql(WHOLE))
        self._name_all()
        self.result()

    def step(self, change: Tables) -> int | None:
        with count_jobs(self._spark) as jobs:
            self._step({name: _wide(change[name], name) for name in CHANGED})
        return jobs.count

    def keep(self) -> None:
        pass

    def result(self) -> pa.Table:
        return self._spark.sql(RESULT).toArrow().select(COLUMNS["orders"])

    def empty_job(self) -> None:
        self._spark.range(1).collect()

    def close(self) -> None:
        self._spark.stop()

    def _step(self, change: Tables) -> None:
        for name, table in change.items():
            self._spark.createDataFrame(table).createOrReplaceTempView(f"d_{name}")
        few = sum(t.num_rows for t in change.values()) <= BROADCAST_ROWS
        text = DAYS.format(hint="/*+ BROADCAST(d) */" if few else "")
        days = self._spark.sql(text).localCheckpoint()
        days.createOrReplaceTempView("d_days")
        self.change = self._spark.sql(VIEW).toArrow()
        for name, table in change.items():
            parts = [self._over[name], table] if name in self._over else [table]
            self._over[name] = pa.concat_tables(parts)
            if self._over[name].num_rows > FOLDED_AT * self._rows[name]:
                self._fold(name, [self._spark.createDataFrame(self._over.pop(name))])
        self._pieces.append(days)
        if len(self._pieces) > MOST_PIECES:
            self._fold("days", self._pieces)
            self._pieces = []
        self._name_all()

    def _name_all(self) -> None:
        """The tables and what lies beside them, called `all_` and the table's name."""
        for name in CHANGED:
            over = [self._spark.createDataFrame(self._over[name])] if name in self._over else []
            _union([self._state[name], *over]).createOrReplaceTempView(f"all_{name}")
        _union([self._state["days"], *self._pieces]).createOrReplaceTempView("all_days")

    def _cache(self, name: str, frame: DataFrame) -> None:
        key = KEY[name]
        cached = frame.repartition(key).sortWithinPartitions(key).localCheckpoint().cache()
        self._rows[name] = cached.count()
        if name in self._state:
            self._state[name].unpersist()
        self._state[name] = cached
        cached.createOrReplaceTempView(name)

    def _fold(self, name: str, added: Sequence[DataFrame]) -> None:
        _union([self._state[name], *added]).createOrReplaceTempView("both")
        keys = ", ".join(COLUMNS_OF[name])
        sums = ", ".join(f"sum({c}) AS {c}" for c in SUMS_OF[name])
        some = " OR ".join(f"{c} <> 0" for c in SUMS_OF[name])
        text = f"SELECT {keys}, {sums} FROM both GROUP BY {keys} HAVING {some}"
        self._cache(name, self._spark.sql(text))


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    first, *others = frames
    for frame in others:
        first = first.unionByName(frame)
    return first


def _wide(table: pa.Table, name: str) -> pa.Table:
    """The columns of the state, with weights as wide as Spark adds them up."""
    at = table.schema.get_field_index(WEIGHT)
    wide = table.set_column(at, WEIGHT, table.column(WEIGHT).cast(pa.int64()))
    return wide.select([*COLUMNS_OF[name], WEIGHT])
