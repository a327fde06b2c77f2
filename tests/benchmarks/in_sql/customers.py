"""The last orders of each customer, and a running sum of them, by hand.

State: the orders, by customer. A step is one query, whose keys, the customers of changed orders,
are broadcast. It adds up the old orders of these customers and the changed ones, and says of each
order whether it was there and whether it is. So one window has the old and the new result of each,
and only what differs is in the change. The state is not exchanged.
"""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame

from tests.benchmarks.in_sql.hand import Hand
from tests.benchmarks.peers.peer import WEIGHT

FIRST = 3
ROWS = "custkey, orderkey, orderdate, cents"
TOUCHED = f"""
    SELECT {ROWS}, sum(old) AS old, sum(new) AS new
    FROM (SELECT /*+ BROADCAST(d) */ o.*, 1L AS old, 1L AS new
          FROM orders o LEFT SEMI JOIN d_orders d ON d.custkey = o.custkey
          UNION ALL
          SELECT {ROWS}, 0L, {WEIGHT} FROM (SELECT * FROM d_orders DISTRIBUTE BY custkey))
    GROUP BY {ROWS}"""


class OfOrders(Hand):
    """A view of the orders of each customer."""

    COLUMNS: ClassVar = {"orders": ("custkey", "orderkey", "orderdate", "cents")}
    CHANGED: ClassVar = {"orders": ("orderkey", "custkey")}
    WHOLE: str
    CHANGE: str

    def load(self) -> pa.Table:
        return self.spark.sql(f"SELECT *, 1L AS {WEIGHT} FROM ({self.WHOLE})").toArrow()

    def delta(self) -> DataFrame:
        return self.spark.sql(self.CHANGE).localCheckpoint()


class First(OfOrders):
    """The last three orders of each customer."""

    WHOLE = f"""
        SELECT {ROWS} FROM (
            SELECT *, row_number() OVER
                          (PARTITION BY custkey ORDER BY orderdate DESC, orderkey DESC) AS n
            FROM orders)
        WHERE n <= {FIRST}"""
    CHANGE = f"""
        SELECT {ROWS}, is_first - was_first AS {WEIGHT} FROM (
            SELECT {ROWS}, if(new > 0 AND sum(new) OVER w <= {FIRST}, 1L, 0L) AS is_first,
                   if(old > 0 AND sum(old) OVER w <= {FIRST}, 1L, 0L) AS was_first
            FROM ({TOUCHED})
            WINDOW w AS (PARTITION BY custkey ORDER BY orderdate DESC, orderkey DESC
                         ROWS UNBOUNDED PRECEDING))
        WHERE is_first <> was_first"""


class Running(OfOrders):
    """Each order with what its customer has paid up to it."""

    WHOLE = """
        SELECT custkey, orderkey, orderdate,
               sum(cents) OVER (PARTITION BY custkey ORDER BY orderdate, orderkey
                                ROWS UNBOUNDED PRECEDING) AS paid
        FROM orders"""
    CHANGE = f"""
        SELECT * FROM (
            SELECT custkey, orderkey, orderdate,
                   stack(2, paid_old, -old, paid_new, new) AS (paid, {WEIGHT})
            FROM (SELECT *, sum(old * cents) OVER w AS paid_old,
                         sum(new * cents) OVER w AS paid_new
                  FROM ({TOUCHED})
                  WINDOW w AS (PARTITION BY custkey ORDER BY orderdate, orderkey
                               ROWS UNBOUNDED PRECEDING))
            WHERE old <> new OR paid_old <> paid_new)
        WHERE {WEIGHT} <> 0"""
