"""Rows of a DataFrame by a key: those that another DataFrame lists, or all others."""

from __future__ import annotations

import functools
import operator

from stepping_spark.packages import Column, DataFrame
from stepping_spark.packages import functions as F
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.schema import Columns
from stepping_spark.spark.measure import column


def matching(
    frame: DataFrame, wanted: DataFrame, key: Columns, *, among: bool = True, small: bool = False
) -> DataFrame:
    """The rows of a DataFrame whose key is in `wanted`, or is not if `among` is False.

    `wanted` has the columns of the key, with or without others. NULL matches NULL. Spark
    broadcasts `wanted` if it is `small`.
    """
    renamed = [(f"_m{i}_", n, t) for i, (n, t) in enumerate(key)]
    wanted = wanted.select(*[column(n).alias(m) for m, n, _ in renamed])
    same = functools.reduce(operator.and_, (_same(column(n), F.col(m), t) for m, n, t in renamed))
    if small:
        wanted = F.broadcast(wanted)
    return frame.join(wanted, same, "leftsemi" if among else "leftanti")


def _same(left: Column, right: Column, t: RowType) -> Column:
    """Whether two values are the same.

    Spark looks up `<=>` by two columns, the value and whether it is NULL. A join of many rows takes
    twice as long as with one. So values that are never NULL are compared by `=`.
    """
    return left == right if isinstance(t, Atom) else left.eqNullSafe(right)
