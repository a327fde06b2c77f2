"""The transitive closure of a graph by hand, for edges that come and go; it may have cycles.

State: the edges and the pairs of the closure, both by their first node. The starts that a change
touches are those of changed edges, and all that led to one of them. What the others reach stays.
So a step finds the touched starts, and then the edges that leave them now. It squares the relation
of touched nodes that lead to touched ones until it stays the same, which takes as many queries as
the logarithm of the longest path. The first edge to a node that is not touched brings all that is
known of that node. What differs from the old pairs of the touched starts is the change.
"""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.benchmarks.in_sql.hand import Hand
from tests.benchmarks.peers.peer import WEIGHT

# What is exchanged last is kept as it is partitioned; after a union Spark forgets it.
TOUCHED = """
    SELECT left FROM (
        SELECT * FROM (
            SELECT /*+ BROADCAST(d) */ p.left
            FROM pairs p LEFT SEMI JOIN d_edges d ON d.left = p.right
            UNION ALL SELECT left FROM d_edges)
        DISTRIBUTE BY left)
    GROUP BY left"""
LEAVING = f"""
    SELECT /*+ BROADCAST(t) */ e.left, e.right, t.left IS NOT NULL AS inside
    FROM (SELECT left, right FROM (
              SELECT * FROM (
                  SELECT /*+ SHUFFLE_HASH(t) */ e.left, e.right, 1L AS {WEIGHT}
                  FROM edges e LEFT SEMI JOIN touched t ON t.left = e.left
                  UNION ALL SELECT * FROM d_edges)
              DISTRIBUTE BY left)
          GROUP BY left, right HAVING sum({WEIGHT}) > 0) e
         LEFT JOIN touched t ON t.left = e.right"""
SQUARE = """
    SELECT left, right FROM (
        SELECT * FROM (
            SELECT left, right FROM paths
            UNION ALL
            SELECT /*+ SHUFFLE_HASH(b) */ a.left, b.right
            FROM paths a JOIN paths b ON b.left = a.right)
        DISTRIBUTE BY left)
    GROUP BY left, right"""
OUTSIDE = """
    SELECT left, right FROM leaving WHERE NOT inside
    UNION ALL
    SELECT /*+ BROADCAST(e) */ e.left, p.right
    FROM leaving e JOIN pairs p ON p.left = e.right WHERE NOT inside"""
CHANGE = f"""
    SELECT left, right, max(is_now) - max(was) AS {WEIGHT} FROM (
        SELECT * FROM (
            SELECT left, right, 1L AS is_now, 0L AS was FROM paths
            UNION ALL
            SELECT /*+ SHUFFLE_HASH(o) */ i.left, o.right, 1L, 0L
            FROM (SELECT left, right FROM paths UNION ALL SELECT left, left FROM touched) i
                 JOIN ({OUTSIDE}) o ON o.left = i.right
            UNION ALL
            SELECT /*+ SHUFFLE_HASH(t) */ p.left, p.right, 0L, 1L
            FROM pairs p LEFT SEMI JOIN touched t ON t.left = p.left)
        DISTRIBUTE BY left)
    GROUP BY left, right HAVING max(is_now) <> max(was)"""


class Reach(Hand):
    """All pairs of nodes with a path from one to the other."""

    COLUMNS: ClassVar = {"edges": ("left", "right")}
    CHANGED: ClassVar = {"edges": ("left", "right")}

    def load(self) -> pa.Table:
        self.place("pairs", closure(self.spark), "left")
        return self.spark.sql(f"SELECT *, 1L AS {WEIGHT} FROM pairs").toArrow()

    def delta(self) -> DataFrame:
        for name, text in (("touched", TOUCHED), ("leaving", LEAVING)):
            # The query that reads it first computes it.
            self.spark.sql(text).localCheckpoint(eager=False).createOrReplaceTempView(name)
        inside = self.spark.sql("SELECT left, right FROM leaving WHERE inside")
        squared(inside).createOrReplaceTempView("paths")
        changed = self.spark.sql(CHANGE).localCheckpoint()
        changed.createOrReplaceTempView("d_pairs")
        return changed

    def keep(self) -> None:
        added = (
            f"SELECT left, right FROM (SELECT *, 1L AS {WEIGHT} FROM pairs "
            f"UNION ALL SELECT * FROM d_pairs) GROUP BY left, right HAVING sum({WEIGHT}) > 0"
        )
        self.place("pairs", self.spark.sql(added), "left")
        super().keep()


def squared(edges: DataFrame) -> DataFrame:
    """The pairs with a path of these edges: paths of twice the length, until there are no more."""
    before, now = 0, edges.count()
    while now > before:
        edges.createOrReplaceTempView("paths")
        edges = edges.sparkSession.sql(SQUARE).localCheckpoint(eager=False)
        before, now = now, edges.count()
    return edges


def closure(spark: SparkSession) -> DataFrame:
    """The pairs of the view `edges`."""
    return squared(spark.table("edges"))
