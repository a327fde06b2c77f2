"""Sources that Spark reads: streaming DataFrames, and tables of a catalog with a change feed.

The streaming query runs on a thread of its own. Its `foreachBatch` function offers a batch to the
pipeline, and returns when the step that read it is committed: so Spark's checkpoint never has a
batch that the store lacks.

`SparkSession.streams` and the errors of its queries are PySpark's public interface. If a query does
not start, the error may be of Py4J only.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError, SourceError, SteppingError
from stepping_spark.base.packages import DataFrame, SparkSession, raised
from stepping_spark.base.packages import functions as F
from stepping_spark.base.packages import types as T
from stepping_spark.pipeline.protocols import (
    RETRY,
    Batch,
    Change,
    Portion,
    Position,
    number_of,
    numbers_of,
    texts_given,
)
from stepping_spark.rows.names import as_in_table, matched, refuse_feed
from stepping_spark.rows.schema import COUNT, VALUE
from stepping_spark.rows.types import quote
from stepping_spark.spark.session import first_line, get_session, raised_by_java, streaming_query
from stepping_spark.spark.types import arrow_schema_of
from stepping_spark.zsets.from_change_feed import counted_changes


def as_fields(
    frame: DataFrame, columns: pa.Schema, failure: Callable[[str], Exception]
) -> DataFrame:
    """The wanted columns with the names of the fields, and `_count_` if it is no field.

    Raises the error that `failure` makes for a missing column, and for a change feed.
    """
    names = _matched(columns, frame.columns, failure)
    refuse_feed(frame.columns, names, failure)
    selected = [F.col(quote(column)).alias(field) for field, column in names.items()]
    if COUNT in frame.columns and COUNT not in names.values():
        selected.append(F.col(COUNT))
    return frame.select(*selected)


def _matched(
    columns: pa.Schema, in_table: list[str], failure: Callable[[str], Exception]
) -> dict[str, str]:
    others = [name for name in in_table if name != COUNT]
    if columns.names == [VALUE] and len(others) == 1:
        return {VALUE: others[0]}  # a single column is the value, whatever its name
    return matched(columns, in_table, failure)


VERSION = "_commit_version"


class CatalogTable:
    """A table of a Spark catalog that offers changes, as a source: `CatalogTable("lake.orders")`.

    Needs Spark 4.2 or newer, and a catalog that implements `TableCatalog.loadChangelog`, as Delta's
    connector for Spark does. `name` is an argument for `spark.read.table`. It reads the rows of the
    table at `version`, then the changes of each later version (`spark.read.changes`). The catalog
    must still be able to read this version. `spark` is the session, by default the active one.

    Versions are increasing whole numbers: `_commit_version` is the position. Each round lists the
    new versions by a Spark job. Several versions may be one step; one version is not cut into
    pieces, and more rows than the driver holds stay in Spark. A table that was dropped and created
    again is not detected. `lag` counts versions that changed rows. `columns` and `on_invalid` are
    as for `st.DeltaTable`; one more job finds rows that do not fit, unless they are an error.

    Raises `SourceError`, which names the table.

    >>> def big(orders: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.filter(orders, f=lambda x: x > 10)
    >>> table = st.CatalogTable("lake.orders", version=7)
    >>> pipeline = st.Pipeline(big, store="parquet:state", orders=table, into={"big": print})
    >>> table
    CatalogTable('lake.orders')
    """

    def __init__(
        self,
        name: str,
        *,
        version: int = 0,
        spark: SparkSession | None = None,
        columns: Mapping[str, str] | None = None,
        on_invalid: object = "fail",
    ) -> None:
        if not isinstance(name, str) or not name:
            raise InputError(
                f"{user_line()}: expected the name of a table, as 'lake.orders', found {name!r}"
            )
        if not isinstance(version, int) or isinstance(version, bool) or version < 0:
            raise InputError(
                f"{user_line()}: version={version!r}: expected the number of the version that is "
                "read first, from 0 on"
            )
        self.name = name
        self.columns = texts_given("columns", columns)
        self.on_invalid = on_invalid
        self._version = version
        self._spark = spark

    def __repr__(self) -> str:
        return f"CatalogTable({self.name!r})"

    @property
    def identity(self) -> tuple[object, ...]:
        """A value that is equal for two objects of the same table."""
        return ("catalog", self.name)

    def source(self) -> CatalogSource:
        """The table as a source."""
        return CatalogSource(self.name, self._version, self._spark)


class CatalogSource:
    """Reads the changes after a version; a position is the last version that is read."""

    lengths = (1,)
    unit = "version"
    """The unit of the first number of a position, for messages."""

    def __init__(self, name: str, version: int, spark: SparkSession | None) -> None:
        self._name = name
        self._version = version
        self._spark = spark
        self._columns = pa.schema([])

    def open(self, columns: pa.Schema) -> None:
        """Set the wanted columns."""
        self._columns = columns

    def schema(self) -> pa.Schema:
        """The columns of the table."""
        with self._trying("its columns cannot be read"):
            return arrow_schema_of(self._session.table(self._name).schema)

    def close(self) -> None:
        """Nothing to do: the source does not own the session."""

    def look(self, after: Position | None, portion: Portion) -> None:
        """Refuse a missing table, and a catalog without changes."""
        self._after(self._version if after is None else numbers_of(after)[0])

    def behind(self, after: Position | None) -> int | None:
        """The number of unread versions that changed rows."""
        before = self._version if after is None else numbers_of(after)[0]
        return len(self._versions(before, None)) + (after is None)

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The rows at the first version, then the changes of later ones."""
        if after is None:
            return Batch(self._version, (self._as_fields(self._rows()),))
        before = numbers_of(after)[0]
        versions = self._versions(before, portion.versions)
        if not versions:
            return None
        rows, n = 0, 0
        for _, count in versions:
            rows += count
            if n and portion.rows is not None and rows > portion.rows:
                break
            n += 1
        to = versions[n - 1][0]
        changes = self._after(before).where(F.col(VERSION) <= to)
        return Batch(to, (self._as_fields(counted_changes(changes)),), n)

    def _as_fields(self, frame: DataFrame) -> DataFrame:
        return as_fields(frame, self._columns, self._failure)

    def _rows(self) -> DataFrame:
        with self._trying(f"its rows at version {self._version} cannot be read"):
            return self._session.read.option("versionAsOf", self._version).table(self._name)

    def _versions(self, before: int, most: int | None) -> list[tuple[int, int]]:
        """The versions after one that changed rows, in order, with the number of changes."""
        changes = self._after(before)
        with self._trying(f"its versions after {before} cannot be listed"):
            counted = changes.groupBy(VERSION).count().orderBy(VERSION)
            rows = (counted if most is None else counted.limit(most)).collect()
        return [(int(version), int(count)) for version, count in rows]

    def _after(self, before: int) -> DataFrame:
        """The changes after a version.

        The range begins with this version, which exists: a catalog may refuse a range that begins
        after the newest one. Spark need not remove rows that were only copied: their counts cancel
        out.
        """
        with self._trying(f"its changes from version {before} on cannot be read"):
            session = self._session
            reader = session.read.option("deduplicationMode", "none")
            if not hasattr(reader, "changes"):
                raise self._failure(
                    f"its changes need Spark 4.2 or newer, found {session.version}; read it as "
                    "st.DeltaTable(path), or as st.MicroBatches(spark.readStream.table(name), …) "
                    "if rows only come"
                )
            changes = reader.option("startingVersion", before).changes(self._name)
            kind = changes.schema[VERSION].dataType
        if not isinstance(kind, T.IntegralType):
            raise self._failure(
                f"its versions are of type {kind.simpleString()}, and only whole numbers that grow "
                "can be followed; read it as st.MicroBatches(spark.readStream.changes(name), …)"
            )
        return changes.where(F.col(VERSION) > before)

    @property
    def _session(self) -> SparkSession:
        return self._spark or get_session()

    @contextmanager
    def _trying(self, what: str) -> Iterator[None]:
        """Translate errors of Spark."""
        try:
            yield
        except (raised.PySparkException, raised_by_java.Py4JError) as e:
            raise self._failure(f"{what}: {first_line(e)}; {RETRY}") from e

    def _failure(self, reason: str) -> SourceError:
        return SourceError(f"table {self._name}: {reason}")


__all__ = ["MicroBatchQuery"]


class MicroBatchQuery:
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
        """The error of a failed query, in a line; None if it has read all available data."""
        failure = self._query.exception()
        return None if failure is None else first_line(failure)


LOOKS = 0.1
"""The seconds after which a source that waits for a batch checks whether the query has ended."""


class MicroBatches:
    """The micro-batches of a streaming DataFrame, as a source: Kafka, files, tables of catalogs.

    `df` is the DataFrame of `spark.readStream`, before `writeStream`. `checkpoint` is the directory
    in which Spark keeps the position of the stream. Each line of a batch is an inserted row, with
    the count in a column `_count_`, if it has one. `to_zset` is a function from the batch to a
    Z-set for other streams, such as `lambda batch: st.from_change_feed(batch, Order)` for a change
    feed or Debezium's records. `columns` and `on_invalid` are as for `st.DeltaTable`; one more job
    of each batch finds rows that do not fit, unless they are an error.

    Each round of the pipeline reads the available data (`trigger(availableNow=True)`). A batch is a
    step, even without rows; the stream's own options bound its size (`maxFilesPerTrigger`,
    `maxOffsetsPerTrigger`). A batch with more rows than the driver holds stays in Spark. A position
    is (batch, query). The query is identified by its checkpoint, and store and checkpoint belong
    together: a new checkpoint, and one that is older or newer than the store, raises `SourceError`.
    The lag is unknown: `lag` has None.

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
                f"{user_line()}: expected a streaming DataFrame from spark.readStream, "
                f"found {type(df).__name__}; for rows that are there, give [(1, df)]"
            )
        if not isinstance(df.sparkSession, SparkSession):
            raise InputError(
                f"{user_line()}: st.MicroBatches needs a session that is not Spark Connect: there "
                "foreachBatch runs in another process; use one with a master"
            )
        self.columns = texts_given("columns", columns)
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
    """Ends a query whose batch was not committed: Spark delivers it again."""


class MicroBatchSource:
    """Takes batches from the thread of the streaming query, one at a time."""

    lengths = (2,)
    unit = "batch"
    """The unit of the first number of a position, for messages."""

    def __init__(
        self, df: DataFrame, checkpoint: str, to_zset: Callable[[DataFrame], Change] | None
    ) -> None:
        self._df = df
        self._checkpoint = checkpoint
        self._to_zset = to_zset
        self._columns = pa.schema([])
        self._query: MicroBatchQuery | None = None
        self._changed = threading.Condition()
        # Both threads use these, and only while they hold `_changed`:
        self._committed: tuple[int, int] | None = None
        self._offered: tuple[int, int, DataFrame] | None = None
        self._wrong: SourceError | None = None
        self._closing = False

    def open(self, columns: pa.Schema) -> None:
        """Set the wanted columns; the query starts when the source is read."""
        self._columns = columns

    def schema(self) -> pa.Schema:
        """The columns of the stream; with `to_zset`, the wanted columns."""
        if self._to_zset is not None:
            return as_in_table(self._columns)
        return arrow_schema_of(self._df.schema)

    def close(self) -> None:
        """End the query; a batch that is not committed is delivered again."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._query is not None:
            self._query.stop()
        self._query, self._offered, self._closing = None, None, False

    def behind(self, after: Position | None) -> int | None:
        """None: the lag is unknown here."""
        return None

    def confirm(self, position: Position) -> None:
        """Let the query continue: the batch is committed."""
        with self._changed:
            self._release(position)

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The next batch; None if the query has read all available data."""
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
        """Note that everything up to a position is committed, and release its batch."""
        if position is None:
            self._committed = None
            return
        number, key = numbers_of(position)
        self._committed = number, key
        if self._offered is not None and self._offered[:2] == (number, key):
            self._offered = None
            self._changed.notify_all()

    def _started(self) -> MicroBatchQuery:
        self._wrong = None
        try:
            return MicroBatchQuery(self._df, self._checkpoint, self._take)
        except SteppingError as e:
            raise self._failure(f"the query does not start: {e}") from e

    def _check_ended(self, query: MicroBatchQuery) -> None:
        """Raise the error that ended a query, if any."""
        wrong, self._wrong = self._wrong, None
        if wrong is not None:
            raise wrong
        error = query.error()
        if error is not None:
            raise self._failure(f"the query ended: {error}")

    def _take(self, batch: DataFrame, number: int) -> None:
        """Offer a batch, and wait until it is committed; runs on the thread of the query."""
        key = number_of(str(streaming_query(batch)))
        with self._changed:
            if self._committed == (number, key):
                return  # the process ended after the commit, before the checkpoint
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
        """The error about a batch that is not the next one, or None."""
        last, committed_key = (-1, key) if self._committed is None else self._committed
        if committed_key != key:
            return self._failure(
                "this is another streaming query than the one that the store has read: it has "
                "another checkpoint, and would read everything again; give the checkpoint of the "
                "one before, or start with a new store"
            )
        if number != last + 1:
            return self._failure(
                f"the query returns batch {number}, and the next one for the store is {last + 1}: "
                "one of the two is an older copy; bring back the two that belong together, or "
                "start with a new store and a new checkpoint"
            )
        return None

    def _failure(self, reason: str) -> SourceError:
        return SourceError(f"the stream with checkpoint {self._checkpoint}: {reason}")
