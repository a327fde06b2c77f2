"""The view *orders* maintained by hand in Spark SQL only: the driver computes nothing.

State is in Spark's cache, partitioned and sorted by key: the three tables, and how much each
customer bought on each day. A step is two queries. The first joins the changes with the tables, and
adds up by customer and day; its result is kept, partitioned by customer as the state is. The second
makes the old and the new rows of the view in one pass over the days of those customers, without an
exchange.

What has changed is put into the state after each step, and that is not timed. So the times are less
than an expert's whole step takes.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from stepping_spark.spark.session import JobCounter
from tests.benchmarks.peers.peer import COLUMNS, TABLES, WEIGHT, CannotDo, Tables, Way, summed
from tests.benchmarks.peers.spark import KEY, cached, changed, session

BROADCAST_ROWS = 2_000_000
CHANGED = ("orders", "lines")

DAYS = f"""
    SELECT custkey, orderdate, sum(n) AS n_lines, sum(n * amount) AS revenue FROM (
        SELECT * FROM (
            SELECT {{hint}} d.custkey, d.orderdate, d.{WEIGHT} AS n,
                   l.price * (100 - l.discount) AS amount
            FROM lines l JOIN d_orders d ON l.orderkey = d.orderkey
            UNION ALL
            SELECT {{hint}} o.custkey, o.orderdate, d.{WEIGHT}, d.price * (100 - d.discount)
            FROM orders o JOIN d_lines d ON o.orderkey = d.orderkey
            UNION ALL
            SELECT {{hint}} o.custkey, o.orderdate, o.{WEIGHT} * d.{WEIGHT},
                   d.price * (100 - d.discount)
            FROM d_orders o JOIN d_lines d ON o.orderkey = d.orderkey)
        DISTRIBUTE BY custkey)
    GROUP BY custkey, orderdate HAVING n_lines <> 0 OR revenue <> 0"""
VIEW = f"""
    WITH by_day AS (
        SELECT custkey, orderdate, sum(n_lines) AS n, sum(revenue) AS r,
               sum(if(is_new, 0L, n_lines)) AS old_n, sum(if(is_new, 0L, revenue)) AS old_r
        FROM (SELECT a.*, false AS is_new
              FROM days a LEFT SEMI JOIN d_days USING (custkey)
              UNION ALL SELECT *, true AS is_new FROM d_days)
        GROUP BY custkey, orderdate),
    sold AS (
        SELECT custkey, sum(n) AS n, sum(r) AS r, max(orderdate) FILTER (WHERE n <> 0) AS last,
               sum(old_n) AS old_n, sum(old_r) AS old_r,
               max(orderdate) FILTER (WHERE old_n <> 0) AS old_last
        FROM by_day GROUP BY custkey)
    SELECT * FROM (
        SELECT custkey, segment,
               stack(2, old_n, old_r, old_last, -1L, n, r, last, 1L)
                   AS (n_lines, revenue, last_order, {WEIGHT})
        FROM sold JOIN customers USING (custkey))
    WHERE n_lines <> 0"""
WHOLE = """
    SELECT custkey, orderdate, count(*) AS n_lines, sum(price * (100 - discount)) AS revenue
    FROM orders JOIN lines USING (orderkey) GROUP BY custkey, orderdate"""
RESULT = f"""
    SELECT custkey, segment, sum(n_lines) AS n_lines, sum(revenue) AS revenue,
           max(orderdate) AS last_order, 1L AS {WEIGHT}
    FROM days JOIN customers USING (custkey) GROUP BY custkey, segment"""
ADDED_UP = """
    SELECT custkey, orderdate, sum(n_lines) AS n_lines, sum(revenue) AS revenue
    FROM (SELECT * FROM days UNION ALL SELECT * FROM d_days)
    GROUP BY custkey, orderdate HAVING n_lines <> 0 OR revenue <> 0"""


class Peer(Way):
    """State in Spark's cache, the last change, and what all changes gave."""

    def __init__(self, view: str, directory: Path, variant: str) -> None:
        if view != "orders":
            raise CannotDo("it is written by hand for the view orders only")
        # Spark loses columns of checkpoints that stand in a query several times.
        self._spark = session(directory, **{"constraintPropagation.enabled": "false"})
        self._tables: dict[str, DataFrame] = {}
        self._change: dict[str, DataFrame] = {}
        self._outs: list[pa.Table] = []

    def load(self, tables: Tables) -> None:
        for name in TABLES:
            self._place(name, self._spark.createDataFrame(tables[name]))
        self._place("days", self._spark.sql(WHOLE))
        self._outs.append(self._spark.sql(RESULT).toArrow())

    def step(self, change: Tables) -> int | None:
        with JobCounter(self._spark) as jobs:
            for name in CHANGED:
                self._change[name] = self._spark.createDataFrame(change[name])
                self._change[name].createOrReplaceTempView(f"d_{name}")
            few = sum(change[name].num_rows for name in CHANGED) <= BROADCAST_ROWS
            text = DAYS.format(hint="/*+ BROADCAST(d) */" if few else "")
            self._spark.sql(text).localCheckpoint().createOrReplaceTempView("d_days")
            self._change["view"] = self._spark.sql(VIEW).localCheckpoint()
        return jobs.count

    def keep(self) -> None:
        self._outs.append(self._change["view"].toArrow())
        for name in CHANGED:
            self._place(name, changed(self._tables[name], self._change[name], "orderkey"))
        self._place("days", self._spark.sql(ADDED_UP))

    def result(self) -> pa.Table:
        return summed(self._outs, COLUMNS["orders"], WEIGHT)

    def empty_job(self) -> None:
        self._spark.range(1).collect()

    def close(self) -> None:
        self._spark.stop()

    def _place(self, name: str, frame: DataFrame) -> None:
        """Let a table have these rows."""
        old = self._tables.get(name)
        self._tables[name] = cached(frame, KEY[name])
        self._tables[name].createOrReplaceTempView(name)
        if old is not None:
            old.unpersist()
