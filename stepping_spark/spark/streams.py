"""Streaming queries that give each micro-batch to a function, as far as there is something to read.

`SparkSession.streams` and their errors are PySpark's public interface; the error of a query that
does not start may come from Java alone.
"""

from __future__ import annotations

from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from stepping_spark.errors import SteppingError
from stepping_spark.spark.errors import first_line

__all__ = ["Stream"]


class Stream:
    """A query that reads what is there and ends (`trigger(availableNow=True)`).

    `take` gets each batch with its number, on another thread. Raises `SteppingError` where Spark
    does not start the query.
    """

    def __init__(
        self, df: DataFrame, checkpoint: str, take: Callable[[DataFrame, int], None]
    ) -> None:
        writer = df.writeStream.foreachBatch(take).trigger(availableNow=True)
        try:
            self._query: StreamingQuery = writer.option("checkpointLocation", checkpoint).start()
        except (PySparkException, Py4JError) as e:
            raise SteppingError(first_line(e)) from e

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._query.isActive

    def stop(self) -> None:
        """End it; a batch whose function has not returned comes again."""
        self._query.stop()

    def error(self) -> str | None:
        """Why it has ended, in a line; None: it has read what there was."""
        found = self._query.exception()
        return None if found is None else first_line(found)
