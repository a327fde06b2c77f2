"""A streaming DataFrame of Spark as a source: each of its micro-batches is a batch of the source.

The streaming query runs on a thread of its own. Its `foreachBatch` function offers a batch to the
pipeline, and returns when the step that read it is committed: so Spark's checkpoint never has a
batch that the store does not have.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

import pyarrow as pa

from stepping_spark.callsite import user_line
from stepping_spark.errors import InputError, SourceError, SteppingError
from stepping_spark.packages import DataFrame, SparkSession
from stepping_spark.pipeline.frames import as_fields
from stepping_spark.pipeline.positions import number_of, numbers_of
from stepping_spark.pipeline.protocols import Batch, Change, Portion, Position
from stepping_spark.rows.names import as_in_table
from stepping_spark.spark.arrow_schema import arrow_schema_of
from stepping_spark.spark.session import streaming_query
from stepping_spark.spark.streams import Stream

LOOKS = 0.1
"""A source that waits for a batch checks after so many seconds whether the query has ended."""


class MicroBatches:
    """The micro-batches of a streaming DataFrame, as a source: Kafka, files, tables of catalogs.

    `df` is what `spark.readStream` gives, before `writeStream`. `checkpoint` is the directory in
    which Spark keeps how far the stream is read. Each line of a batch is a row that is added, as
    often as a column `_count_` says, if there is one. `to_zset` is a function from the batch to a
    Z-set for everything else, such as `lambda batch: st.from_change_feed(batch, Order)` for a
    change feed or Debezium's records. `columns` and `on_invalid` are as for `st.DeltaTable`; one
    more job of each batch finds rows that do not fit, unless they are an error.

    Each round of the pipeline reads what is there (`trigger(availableNow=True)`). A batch is a
    step, even without rows; the stream's own options bound its size (`maxFilesPerTrigger`,
    `maxOffsetsPerTrigger`). A batch with more rows than the driver takes stays in Spark. A position
    is (batch, query). The query is identified by its checkpoint, and store and checkpoint belong
    together: a new checkpoint, and one that is older or newer than the store, raises `SourceError`.
    How far the stream is ahead is unknown: `lag` has None.

    Raises `InputError` for a DataFrame that is not a stream, and on Spark Connect, where
    `foreachBatch` runs in another process. Raises `SourceError` if the query fails.

    >>> folder = Path("orders").absolute()
    >>> folder.mkdir()
    >>> _ = (folder / "1.json").write_text('{"_value_": 5}\\n{"_value_": 20}')
    >>> def big(orders: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.filter(orders, f=lambda x: x > 10)
    >>> orders = spark.readStream.schema("_value_ BIGINT").json(str(folder))
    >>> seen = {}
    >>> pipeline = st.Pipeline(
    ...     big,
    ...     store="parquet:state",
    ...     orders=st.MicroBatches(orders, checkpoint=Path("checkpoint").absolute()),
    ...     into={"big": seen.setdefault},
    ... )
    >>> pipeline.run(), seen[1] == st.ZSetPython({20: 1})
    (1, True)
    """

    def __init__(
        self,
        df: DataFrame,
        *,
        checkpoint: str | os.PathLike[str],
        to_zset: Callable[[DataFrame], Change] | None = None,
        columns: Mapping[str, str] | None = None,
        on_invalid: object = "fail",
    ) -> None:
        if not getattr(df, "isStreaming", False):
            raise InputError(
                f"{user_line()}: expected a streaming DataFrame, as spark.readStream gives it, "
                f"found {type(df).__name__}; for rows that are there, give [(1, df)]"
            )
        if not isinstance(df.sparkSession, SparkSession):
            raise InputError(
                f"{user_line()}: st.MicroBatches needs a session that is not Spark Connect: there "
                "foreachBatch runs in another process; use one with a master"
            )
        self.columns = dict(columns or {})
        self.on_invalid = on_invalid
        self._df = df
        self._checkpoint = os.fspath(checkpoint)
        self._to_zset = to_zset

    def __repr__(self) -> str:
        return f"MicroBatches(checkpoint={self._checkpoint!r})"

    def source(self) -> MicroBatchSource:
        """The stream as a source."""
        return MicroBatchSource(self._df, self._checkpoint, self._to_zset)


class _Closed(Exception):
    """Ends a query whose batch was not committed: Spark gives it again."""


class MicroBatchSource:
    """Takes batches from the thread of the streaming query, one at a time."""

    unit = "batch"
    """What the first number of a position counts, as messages say it."""

    def __init__(
        self, df: DataFrame, checkpoint: str, to_zset: Callable[[DataFrame], Change] | None
    ) -> None:
        self._df = df
        self._checkpoint = checkpoint
        self._to_zset = to_zset
        self._columns = pa.schema([])
        self._query: Stream | None = None
        self._changed = threading.Condition()
        # Both threads use these, and only while they hold `_changed`:
        self._committed: tuple[int, int] | None = None
        self._offered: tuple[int, int, DataFrame] | None = None
        self._wrong: SourceError | None = None
        self._closing = False

    def open(self, columns: pa.Schema) -> None:
        """Say which columns are wanted; the query starts when the source is read."""
        self._columns = columns

    def schema(self) -> pa.Schema:
        """The columns of the stream; of what `to_zset` gives, those that are wanted."""
        if self._to_zset is not None:
            return as_in_table(self._columns)
        return arrow_schema_of(self._df.schema)

    def close(self) -> None:
        """End the query; a batch that is not committed comes again."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._query is not None:
            self._query.stop()
        self._query, self._offered, self._closing = None, None, False

    def behind(self, after: Position | None) -> int | None:
        """Unknown: only Spark's source knows."""
        return None

    def confirm(self, position: Position) -> None:
        """Let the query go on: the batch is committed."""
        with self._changed:
            self._release(position)

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The next batch; None where the query has read all that is there."""
        with self._changed:
            self._release(after)
            if self._query is None or not (self._query.runs or self._offered):
                self._query = self._started()
            query = self._query
            while self._offered is None and self._wrong is None and query.runs:
                self._changed.wait(LOOKS)
            if self._offered is None:
                self._check_ended(query)
                return None
            number, key, batch = self._offered
        change: Change
        if self._to_zset is None:
            change = as_fields(batch, self._columns, self._failure)
        else:
            change = self._to_zset(batch)
        return Batch((number, key), (change,), final=True)

    def _release(self, position: Position | None) -> None:
        """Everything up to a position is committed."""
        if position is None:
            self._committed = None
            return
        number, key = numbers_of(position)
        self._committed = number, key
        if self._offered is not None and self._offered[:2] == (number, key):
            self._offered = None
            self._changed.notify_all()

    def _started(self) -> Stream:
        self._wrong = None
        try:
            return Stream(self._df, self._checkpoint, self._take)
        except SteppingError as e:
            raise self._failure(f"the query does not start: {e}") from e

    def _check_ended(self, query: Stream) -> None:
        """Raise what ended a query, if it was an error."""
        wrong, self._wrong = self._wrong, None
        if wrong is not None:
            raise wrong
        error = query.error()
        if error is not None:
            raise self._failure(f"the query ended: {error}")

    def _take(self, batch: DataFrame, number: int) -> None:
        """Offer a batch, and wait until it is committed; on the thread of the query."""
        key = number_of(str(streaming_query(batch)))
        with self._changed:
            if self._committed == (number, key):
                return  # the process ended before the checkpoint had it
            self._wrong = self._out_of_order(number, key)
            if self._wrong is None:
                self._offered = number, key, batch
            self._changed.notify_all()
            if self._wrong is not None:
                raise _Closed
            self._changed.wait_for(lambda: self._offered is None or self._closing)
            if self._offered is not None:
                raise _Closed

    def _out_of_order(self, number: int, key: int) -> SourceError | None:
        """What is wrong with a batch that is not the next one."""
        last, known = (-1, key) if self._committed is None else self._committed
        if known != key:
            return self._failure(
                "this is another streaming query than the one that the store has read: it has "
                "another checkpoint, and would read everything again; give the checkpoint of the "
                "one before, or start with a new store"
            )
        if number != last + 1:
            return self._failure(
                f"the query gives batch {number}, and the next one for the store is {last + 1}: "
                "one of the two is an older copy; bring back the two that belong together, or "
                "start with a new store and a new checkpoint"
            )
        return None

    def _failure(self, said: str) -> SourceError:
        return SourceError(f"the stream with checkpoint {self._checkpoint}: {said}")
