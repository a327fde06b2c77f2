"""Tables that Spark's tasks read and write, so that rows do not pass the driver."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from stepping_spark.base.errors import SourceError, SteppingError
from stepping_spark.base.packages import DataFrame, SparkSession, raised
from stepping_spark.pipeline.changes import Rewritten, TableForm
from stepping_spark.pipeline.columns import check_years, conformed
from stepping_spark.pipeline.protocols import RETRY
from stepping_spark.pipeline.reporting import log
from stepping_spark.relations.blobs import (
    DDL,
    blob_row,
    blobs_of,
    cut,
    gathered,
    in_parts,
    packed,
    unpacked,
)
from stepping_spark.relations.codec import conform
from stepping_spark.relations.relation import SparkRelation
from stepping_spark.relations.transfer import LOCAL
from stepping_spark.rows.names import as_in_table, to_table
from stepping_spark.rows.schema import COUNT, Schema
from stepping_spark.spark.session import (
    first_line,
    is_cancelled,
    raised_by_java,
    runs_here,
    tasks_at_once,
    with_settings,
)
from stepping_spark.spark.types import spark_schema_of
from stepping_spark.zsets.spark import ZSetSpark

PARTS_OF_A_TASK = 4
"""Parts per concurrent task, so that one large file delays few others."""


class PartOfFiles(Protocol):
    """Some of the files of a table. It is pickled, and a task reads it."""

    def tables(self) -> Iterator[pa.Table]:
        """The rows, with counts."""
        ...


def may_read(session: SparkSession, address: str) -> bool:
    """Whether tasks of a session can reach an address: a local path needs tasks on this machine."""
    is_elsewhere = "://" in address and not address.startswith("file://")
    return is_elsewhere or runs_here(session)


T = TypeVar("T")


def shares_of(files: Sequence[T]) -> list[Sequence[T]]:
    """The files, dealt into `PARTS_OF_A_TASK` parts for each concurrent task, or fewer."""
    n = min(len(files), PARTS_OF_A_TASK * tasks_at_once())
    return [files[i::n] for i in range(n)]


def frame_of_files(
    session: SparkSession, parts: Sequence[PartOfFiles], schema: pa.Schema, what: str
) -> DataFrame | None:
    """A DataFrame of the rows of files. Each use of it reads the files.

    None if Spark lacks the type of a column. `what` names the failure in a task's `SourceError`.
    """
    try:
        columns = spark_schema_of(schema)
    except KeyError:
        return None

    def batches(incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in _tables(incoming, what):
            yield from conformed(table, schema).to_batches()

    return _a_task_each(session, parts).mapInArrow(batches, columns)


def _a_task_each(session: SparkSession, parts: Sequence[PartOfFiles]) -> DataFrame:
    """A DataFrame with one pickled part per row, spread over as many tasks."""
    pickled = pa.array([pickle.dumps(part) for part in parts], pa.binary())
    with with_settings(session, {LOCAL: "0"}):
        frame = session.createDataFrame(pa.table({"part": pickled}), "part BINARY")
    return frame.repartition(len(parts))


def _tables(incoming: Iterator[pa.RecordBatch], what: str) -> Iterator[pa.Table]:
    """The rows of the parts of a task."""
    try:
        for batch in incoming:
            for part in batch.column(0):
                files: PartOfFiles = pickle.loads(part.as_py())
                yield from files.tables()
    except SteppingError:
        raise
    except ImportError as e:
        raise SourceError(
            f"{what} by Spark's Python workers: {first_line(e)}; install it there, or have the "
            "driver read the table in pieces: give the pipeline max_bytes="
        ) from e
    except Exception as e:
        raise SourceError(f"{what}: {first_line(e)}; {RETRY}") from e


WRITTEN_BYTES = 256 << 20
"""The most bytes of a change in Spark that the driver writes; tasks write a larger one."""

REWRITTEN = 8
"""Tasks rewrite a table of at most this many bytes for each byte of the change.

Of a larger table the driver rewrites the files that contain a key of the change.
"""

UNPACKED = 4
"""The estimated bytes in memory for each byte of a data file."""

_PART_BYTES = 64 << 20
"""The approximate bytes of the rows that a task writes at once."""

_THERE = 1
"""The tag of the table's old rows."""


class Share(Protocol):
    """The work of a sink for a part of the keys. It is pickled, and a task does it."""

    @property
    def form(self) -> TableForm:
        """The form in which the table stores the view."""
        ...

    @property
    def step(self) -> int:
        """The number of the step."""
        ...

    def write(self, rewritten: Rewritten) -> list[object]:
        """Write data files; returns the entries that the commit needs for them."""
        ...


def large_change(change: ZSetSpark[Any], address: str) -> SparkRelation | None:
    """The rows of a change if tasks write it: Spark has them, and they exceed `WRITTEN_BYTES`."""
    rows = change.in_spark_if_many(WRITTEN_BYTES)
    return rows if rows is not None and may_read(rows.frame.sparkSession, address) else None


def is_rewritten(change: SparkRelation, nbytes: int) -> bool:
    """Whether a table with data files of `nbytes` is small enough to be rewritten as a whole.

    A change this large has keys of nearly all files.
    """
    return nbytes <= REWRITTEN * (change.nbytes or 0)


def write_by_tasks(
    change: SparkRelation, share: Share, old_files: Sequence[PartOfFiles], nbytes: int, what: str
) -> list[Any] | None:
    """Rewrite a table with the rows after a change, each task for a part of the keys.

    `old_files` are the files of the table, of about `nbytes` in memory; without files it gets
    the rows of the change only. Returns the results of `Share.write` of all tasks; None if tasks
    failed, with a warning in the log that begins with `what`: workers may lack a package or access
    to the table. Their files then belong to no version. Raises the `SinkError` of a task that found
    rows which the table cannot store.
    """
    session = change.frame.sparkSession
    parts = max(tasks_at_once(), ((change.nbytes or 0) + nbytes) // _PART_BYTES)
    schema = change.schema
    named = change.frame.toDF(*[f"c{i}" for i in range(len(schema.all))])
    blobs = named.mapInArrow(partial(_cut_change, share, schema, parts), DDL)
    if old_files:
        old = _a_task_each(session, old_files).mapInArrow(
            partial(_cut_there, share, parts, what), DDL
        )
        blobs = blobs.unionAll(old)
    written = in_parts(blobs, parts).mapInArrow(partial(_write, share), "result BINARY")
    try:
        results = [pickle.loads(x.as_py()) for x in written.toArrow().column(0)]
    except (raised.PySparkException, raised_by_java.Py4JJavaError) as e:
        if is_cancelled(e):
            raise
        results = [first_line(e)]
    for error in (x for x in results if isinstance(x, SteppingError)):
        raise error
    for why in (x for x in results if isinstance(x, str)):
        log.warning("%s, and the driver writes it: %s", what, why)
        return None
    return [file for files in results for file in files]


def _cut_change(
    share: Share, schema: Schema, parts: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of a change as blobs, by the part of their keys."""
    columns = share.form.columns
    for table in gathered(batches):
        rows = conform(table.rename_columns(schema.arrow.names), schema)
        keys = to_table(rows.drop_columns([COUNT]), columns).cast(as_in_table(columns))
        for part, piece in cut(rows, keys, share.form.order, parts):
            yield from (blob_row(part, 0, b) for b in packed(piece))


def _cut_there(
    share: Share, parts: int, what: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of files as blobs, by the part of their keys."""
    for table in _tables(batches, what):
        rows = table.select(share.form.schema.names).cast(share.form.schema)
        for part, piece in cut(rows, rows, share.form.order, parts):
            yield from (blob_row(part, _THERE, b) for b in packed(piece))


def _write(share: Share, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task's parts of the keys."""
    blobs_by_part: dict[int, tuple[list[Any], list[Any]]] = {}
    for batch in batches:
        for part, tag, blob in blobs_of(batch):
            blobs_by_part.setdefault(part, ([], []))[tag].append(blob)
    for came, old in blobs_by_part.values():
        yield pa.record_batch({"result": [pickle.dumps(_written(share, came, old))]})


def _written(share: Share, came: list[Any], old: list[Any]) -> object:
    """The result for a part of the keys: its files, an error about rows, or another failure."""
    form = share.form
    old_rows = unpacked(old) if old else form.schema.empty_table()
    try:
        if not came:
            return share.write(Rewritten(old_rows, ()))
        change = unpacked(came)
        check_years(change, form.where)
        return share.write(form.rewritten(change, old_rows, share.step))
    except SteppingError as e:
        return e
    except Exception as e:
        return first_line(e)
