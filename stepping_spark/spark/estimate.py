"""What Spark knows and plans of a DataFrame that it has not computed.

Private in PySpark: `DataFrame._jdf`, because no public method gives a plan and its statistics.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from stepping_spark.packages import DataFrame
from stepping_spark.spark.errors import raised_by_java

_UNKNOWN = 2**62
_ROW_BY_ROW = ("Filter", "Project")
# A leaf of another kind may stand for anything, as a batch of a stream or an uncomputed cache.
_READS = ("DataSourceV2ScanRelation", "LocalRelation", "LogicalRelation", "Range")


def scanned_bytes(frame: DataFrame) -> int | None:
    """The bytes that Spark would read for a DataFrame that only reads, filters and projects.

    Such a DataFrame costs little to compute twice. Files count as they are on the disk. None: it
    also joins, groups, sorts or calls Python; or Spark does not know, as of a database or of Python
    objects, or does not tell, as with Spark Connect.
    """
    with suppress(AttributeError, raised_by_java.Py4JError):
        node: Any = frame._jdf.queryExecution().optimizedPlan()
        while node.nodeName() in _ROW_BY_ROW:
            node = node.child()
        if node.nodeName() in _READS:
            nbytes = int(node.stats().sizeInBytes())
            return None if nbytes >= _UNKNOWN else nbytes
    return None


def is_same_again(frame: DataFrame) -> bool:
    """Whether all expressions of a DataFrame give the same each time, as Spark knows them."""
    with suppress(AttributeError, raised_by_java.Py4JError):
        return bool(frame._jdf.queryExecution().optimizedPlan().deterministic())
    return False


def times_planned(frame: DataFrame, text: str) -> int:
    """How often a text stands in Spark's plan for a DataFrame."""
    plan: str = frame._jdf.queryExecution().optimizedPlan().toString()
    return plan.count(text)
