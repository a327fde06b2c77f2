"""Rows of many files as a DataFrame, which Spark's tasks read: they do not pass the driver."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from stepping_spark.base.errors import SourceError, SteppingError
from stepping_spark.base.packages import DataFrame, SparkSession
from stepping_spark.pipeline.protocols import RETRY
from stepping_spark.relations.transfer import LOCAL
from stepping_spark.spark.session import first_line, runs_here, tasks_at_once, with_settings
from stepping_spark.spark.types import spark_schema_of

PARTS_OF_A_TASK = 4
"""Parts of the files for each task that runs at once, so that a large file delays few others."""


class PartOfFiles(Protocol):
    """Some of the files of a table. It is pickled, and a task reads it."""

    def tables(self) -> Iterator[pa.Table]:
        """The rows, with counts."""
        ...


def may_read(session: SparkSession, address: str) -> bool:
    """Whether tasks of a session reach an address: a path is of this machine alone."""
    is_elsewhere = "://" in address and not address.startswith("file://")
    return is_elsewhere or runs_here(session)


T = TypeVar("T")


def shares_of(files: Sequence[T]) -> list[Sequence[T]]:
    """Files in as many parts as tasks can share."""
    n = min(len(files), PARTS_OF_A_TASK * tasks_at_once())
    return [files[i::n] for i in range(n)]


def frame_of_files(
    session: SparkSession, parts: Sequence[PartOfFiles], schema: pa.Schema, what: str
) -> DataFrame | None:
    """A DataFrame of the rows of files. Each use of it reads the files.

    None if Spark does not have the type of a column. `what` is what could not be read, in the
    `SourceError` of a task.
    """
    try:
        columns = spark_schema_of(schema)
    except KeyError:
        return None
    pickled = pa.array([pickle.dumps(part) for part in parts], pa.binary())
    with with_settings(session, {LOCAL: "0"}):
        frame = session.createDataFrame(pa.table({"part": pickled}), "part BINARY")

    def batches(incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in incoming:
            for part in batch.column(0):
                yield from _read(part.as_py(), schema, what)

    return frame.repartition(len(parts)).mapInArrow(batches, columns)


def _read(part: bytes, schema: pa.Schema, what: str) -> Iterator[pa.RecordBatch]:
    try:
        files: PartOfFiles = pickle.loads(part)
        for table in files.tables():
            yield from table.cast(schema).to_batches()
    except SteppingError:
        raise
    except ImportError as e:
        raise SourceError(
            f"{what} by Spark's Python workers: {first_line(e)}; install it there, or have the "
            "driver read the table in pieces: give the pipeline max_bytes="
        ) from e
    except Exception as e:
        raise SourceError(f"{what}: {first_line(e)}; {RETRY}") from e
