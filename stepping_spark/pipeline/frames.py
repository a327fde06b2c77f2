"""DataFrames that a source gives: under the names of the row class."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from stepping_spark.packages import DataFrame
from stepping_spark.packages import functions as F
from stepping_spark.rows.names import matched, refuse_feed
from stepping_spark.rows.schema import COUNT, VALUE
from stepping_spark.rows.types import quote


def as_fields(
    frame: DataFrame, columns: pa.Schema, failure: Callable[[str], Exception]
) -> DataFrame:
    """The wanted columns under the names of the fields, and `_count_` where it is none of them.

    Raises what `failure` makes of the message where a column is missing, and for a change feed.
    """
    names = _matched(columns, frame.columns, failure)
    refuse_feed(frame.columns, names, failure)
    kept = [F.col(quote(column)).alias(field) for field, column in names.items()]
    if COUNT in frame.columns and COUNT not in names.values():
        kept.append(F.col(COUNT))
    return frame.select(*kept)


def _matched(
    columns: pa.Schema, there: list[str], failure: Callable[[str], Exception]
) -> dict[str, str]:
    others = [name for name in there if name != COUNT]
    if columns.names == [VALUE] and len(others) == 1:
        return {VALUE: others[0]}  # a single column is the value, whatever its name
    return matched(columns, there, failure)
