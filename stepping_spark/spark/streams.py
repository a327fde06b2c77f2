"""Streaming queries that pass each micro-batch to a function, until all available data is read.

`SparkSession.streams` and the errors of its queries are PySpark's public interface. If a query does
not start, the error may come from Java alone.
"""

from __future__ import annotations

from collections.abc import Callable

from stepping_spark.errors import SteppingError
from stepping_spark.packages import DataFrame, raised
from stepping_spark.spark.errors import first_line, raised_by_java

__all__ = ["Stream"]


class Stream:
    """A query that reads the available data and ends (`trigger(availableNow=True)`).

    `take` gets each batch with its number, on another thread. Raises `SteppingError` if Spark
    cannot start the query.
    """

    def __init__(
        self, df: DataFrame, checkpoint: str, take: Callable[[DataFrame, int], None]
    ) -> None:
        writer = df.writeStream.foreachBatch(take).trigger(availableNow=True)
        try:
            self._query = writer.option("checkpointLocation", checkpoint).start()
        except (raised.PySparkException, raised_by_java.Py4JError) as e:
            raise SteppingError(first_line(e)) from e

    @property
    def runs(self) -> bool:
        """Whether the query is still running."""
        return self._query.isActive

    def stop(self) -> None:
        """Stop the query. A batch whose function has not returned is delivered again."""
        self._query.stop()

    def error(self) -> str | None:
        """Why the query failed, in a line; None if it has read all available data."""
        found = self._query.exception()
        return None if found is None else first_line(found)
