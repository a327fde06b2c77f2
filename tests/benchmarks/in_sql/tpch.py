"""TPC-H's Q9 and Q21 by hand, for changes of orders and lines."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from tests.benchmarks.in_sql.hand import Hand
from tests.benchmarks.peers.peer import WEIGHT

ORDERS = {"orders": ("o_orderkey",), "lineitem": ("l_orderkey",)}


class Q9(Hand):
    """Sums by nation and year, which are linear.

    State: what a supplier takes for a green part, and of which nation it is; the lines of these
    parts with their profit, by order; the view, with the number of lines in each sum. A step is one
    query. New lines get their profits by a join with the costs, which are broadcast. Their
    broadcast profits are joined with the orders, and the broadcast changes of the orders with the
    old profits. All is added up, with the view, in one exchange of sums.
    """

    COLUMNS: ClassVar = {
        "lineitem": ("l_orderkey", "l_partkey", "l_suppkey", "l_quantity", "l_extendedprice",
                     "l_discount"),
        "orders": ("o_orderkey", "o_orderdate"),
        "part": ("p_partkey", "p_name"),
        "supplier": ("s_suppkey", "s_nationkey"),
        "partsupp": ("ps_partkey", "ps_suppkey", "ps_supplycost"),
        "nation": ("n_nationkey", "n_name"),
    }  # fmt: skip
    CHANGED: ClassVar = ORDERS

    COSTS = """
        SELECT ps_partkey, ps_suppkey, n_name AS nation, ps_supplycost
        FROM partsupp JOIN part ON p_partkey = ps_partkey JOIN supplier ON s_suppkey = ps_suppkey
             JOIN nation ON n_nationkey = s_nationkey
        WHERE p_name LIKE '%green%'"""
    PROFITS = f"""
        SELECT /*+ BROADCAST(c) */ l_orderkey, nation, {{weight}} AS {WEIGHT},
               l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
        FROM {{lines}} JOIN costs c ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey"""
    SUMS = f"""
        SELECT nation, year(o_orderdate) AS o_year, sum(n) AS n, sum(n * amount) AS sum_profit
        FROM (SELECT /*+ BROADCAST(o) */ nation, o_orderdate, o.{WEIGHT} * p.{WEIGHT} AS n, amount
              FROM profits p JOIN d_orders o ON o_orderkey = l_orderkey
              UNION ALL
              SELECT /*+ BROADCAST(p) */ nation, o_orderdate, o.{WEIGHT} * p.{WEIGHT}, amount
              FROM (SELECT *, 1L AS {WEIGHT} FROM orders UNION ALL SELECT * FROM d_orders) o
                   JOIN d_profits p ON o_orderkey = l_orderkey)
        GROUP BY nation, o_year"""
    CHANGE = f"""
        SELECT * FROM (
            SELECT nation, o_year,
                   stack(2, old_n, old_profit, -1L, n, profit, 1L) AS (n, sum_profit, {WEIGHT})
            FROM (SELECT nation, o_year, sum(n) AS n, sum(sum_profit) AS profit,
                         sum(n) FILTER (WHERE is_old) AS old_n,
                         sum(sum_profit) FILTER (WHERE is_old) AS old_profit
                  FROM (SELECT *, true AS is_old FROM view
                        UNION ALL SELECT *, false FROM ({SUMS}))
                  GROUP BY nation, o_year HAVING bool_or(NOT is_old)))
        WHERE n <> 0"""
    AFTER = f"""
        SELECT nation, o_year, sum(n) AS n, sum(sum_profit) AS sum_profit
        FROM (SELECT * FROM view UNION ALL SELECT * FROM ({SUMS}))
        GROUP BY nation, o_year HAVING n <> 0"""
    WHOLE = f"""
        SELECT nation, year(o_orderdate) AS o_year, sum({WEIGHT}) AS n, sum(amount) AS sum_profit
        FROM profits JOIN orders ON o_orderkey = l_orderkey GROUP BY nation, o_year"""

    def load(self) -> pa.Table:
        self.place("costs", self.spark.sql(self.COSTS), "ps_partkey")
        profits = self.PROFITS.format(lines="lineitem", weight="1L")
        self.place("profits", self.spark.sql(profits), "l_orderkey")
        self.place("view", self.spark.sql(self.WHOLE), "nation", "o_year")
        return self.spark.sql(f"SELECT *, 1L AS {WEIGHT} FROM view").toArrow()

    def delta(self) -> pa.Table:
        profits = self.PROFITS.format(lines="d_lineitem", weight=WEIGHT)
        self.spark.sql(profits).createOrReplaceTempView("d_profits")
        return self.spark.sql(self.CHANGE).toArrow()

    def keep(self) -> None:
        self.place("view", self.spark.sql(self.AFTER), "nation", "o_year")
        added = self.spark.sql(
            f"SELECT l_orderkey, nation, sum({WEIGHT}) AS {WEIGHT}, amount "
            "FROM (SELECT * FROM profits UNION ALL SELECT * FROM d_profits) "
            f"GROUP BY l_orderkey, nation, amount HAVING {WEIGHT} <> 0"
        )
        self.place("profits", added, "l_orderkey")
        super().keep()


class Q21(Hand):
    """Counts by supplier, of what is computed again for the orders that a change touches.

    State: the orders that wait, each with the one supplier that it waits for; their number by
    supplier. A step is one query. The keys of touched orders are broadcast to the lines. Old and
    new lines of these orders are exchanged once, and added up by order: the least and the greatest
    supplier of all and of the late ones say whether it waits. What was known of these orders is
    taken away. The first hundred before and after follow from the numbers, which are few.
    """

    COLUMNS: ClassVar = {
        "lineitem": ("l_orderkey", "l_suppkey", "l_commitdate", "l_receiptdate"),
        "orders": ("o_orderkey", "o_orderstatus"),
        "supplier": ("s_suppkey", "s_name", "s_nationkey"),
        "nation": ("n_nationkey", "n_name"),
    }
    CHANGED: ClassVar = ORDERS

    WAITS = f"""
        SELECT /*+ BROADCAST(w) */ l_orderkey, s_name, n * {WEIGHT} AS numwait
        FROM ({{orders}}) o JOIN (
            SELECT /*+ BROADCAST(saudi) */ l_orderkey, s_name, n
            FROM (SELECT l_orderkey, min(late) AS late, sum(n) FILTER (WHERE late IS NOT NULL) AS n
                  FROM (SELECT l_orderkey, l_suppkey, sum({WEIGHT}) AS n,
                               if(is_late, l_suppkey, NULL) AS late
                        FROM (SELECT *, l_receiptdate > l_commitdate AS is_late FROM ({{lines}}))
                        GROUP BY l_orderkey, l_suppkey, is_late HAVING n > 0)
                  GROUP BY l_orderkey
                  HAVING min(l_suppkey) <> max(l_suppkey) AND min(late) = max(late))
                 JOIN saudi ON s_suppkey = late) w ON o_orderkey = l_orderkey
        WHERE o_orderstatus = 'F'"""
    TOUCHED = "SELECT o_orderkey AS k FROM d_orders UNION SELECT l_orderkey FROM d_lineitem"
    ALL: ClassVar = {
        "orders": f"SELECT *, 1L AS {WEIGHT} FROM orders",
        "lines": f"SELECT *, 1L AS {WEIGHT} FROM lineitem",
    }
    NEW: ClassVar = {
        "orders": f"{ALL['orders']} UNION ALL SELECT * FROM d_orders",
        "lines": (
            f"SELECT * FROM (SELECT /*+ BROADCAST(t) */ l.*, 1L AS {WEIGHT} "
            "FROM lineitem l LEFT SEMI JOIN touched t ON k = l_orderkey "
            "UNION ALL SELECT * FROM d_lineitem) DISTRIBUTE BY l_orderkey"
        ),
    }
    D_WAITS = f"""
        SELECT * FROM ({WAITS.format(**NEW)})
        UNION ALL
        SELECT /*+ BROADCAST(t) */ l_orderkey, s_name, -numwait
        FROM waits LEFT SEMI JOIN touched t ON k = l_orderkey"""
    CHANGE = f"""
        SELECT s_name, stack(2, old_n, if(old_place <= 100 AND old_n > 0, -1L, 0L),
                                n, if(place <= 100 AND n > 0, 1L, 0L)) AS (numwait, {WEIGHT})
        FROM (SELECT *, row_number() OVER (ORDER BY n DESC, s_name) AS place,
                     row_number() OVER (ORDER BY old_n DESC, s_name) AS old_place
              FROM (SELECT s_name, sum(numwait) AS n,
                           coalesce(sum(numwait) FILTER (WHERE is_old), 0L) AS old_n
                    FROM (SELECT s_name, numwait, true AS is_old FROM counts
                          UNION ALL SELECT s_name, numwait, false FROM d_waits)
                    GROUP BY s_name))"""

    def load(self) -> pa.Table:
        saudi = (
            "SELECT s_suppkey, s_name FROM supplier JOIN nation ON n_nationkey = s_nationkey "
            "WHERE n_name = 'SAUDI ARABIA'"
        )
        self.place("saudi", self.spark.sql(saudi), "s_suppkey")
        self._placed(self.WAITS.format(**self.ALL))
        first = f"SELECT *, 1L AS {WEIGHT} FROM counts ORDER BY numwait DESC, s_name LIMIT 100"
        return self.spark.sql(first).toArrow()

    def delta(self) -> pa.Table:
        self.spark.sql(self.TOUCHED).createOrReplaceTempView("touched")
        self.spark.sql(self.D_WAITS).createOrReplaceTempView("d_waits")
        return self.spark.sql(f"SELECT * FROM ({self.CHANGE}) WHERE {WEIGHT} <> 0").toArrow()

    def keep(self) -> None:
        self._placed("SELECT * FROM waits UNION ALL SELECT * FROM d_waits")
        super().keep()

    def _placed(self, waits: str) -> None:
        added = (
            f"SELECT l_orderkey, s_name, sum(numwait) AS numwait FROM ({waits}) "
            "GROUP BY l_orderkey, s_name HAVING numwait <> 0"
        )
        self.place("waits", self.spark.sql(added), "l_orderkey")
        counts = "SELECT s_name, sum(numwait) AS numwait FROM waits GROUP BY s_name"
        self.place("counts", self.spark.sql(counts), "s_name")
