"""Batches that are too large for the driver: written, merged and read by Spark.

Tasks write and merge with pyarrow, so their files equal those of the driver; the packages of this
project must be installed where tasks run. Spark's own reader reads the files, except in tasks that
take a whole step, which look up keys.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pyarrow as pa
from msgspec.structs import asdict

from stepping_spark.base.errors import StoreError, StoreUnavailable
from stepping_spark.base.packages import DataFrame, SparkSession, raised
from stepping_spark.base.packages import functions as F
from stepping_spark.relations.codec import conform
from stepping_spark.relations.hashing import Hashes
from stepping_spark.relations.store import Register
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.session import first_line
from stores.batches.driver import DriverBatch, Ranges, places_of
from stores.batches.mapped import TaskReads, joined, load, save
from stores.parquet.directories import Directory
from stores.parquet.file_validation import Content, place_column
from stores.parquet.files import (
    ROWS_PER_FILE,
    FileReader,
    FileWriter,
    content_of,
    rows_of_file,
)
from stores.parquet.manifest import File, FileBatch
from stores.parquet.merges import GREATEST_PLACE, Cursor, slices

_WRITTEN = "name STRING, rows BIGINT, nbytes BIGINT, first STRING, last STRING"
_TEXT: pa.DataType = pa.string()
_NUMBER: pa.DataType = pa.int64()
_LISTED = pa.schema(
    # Places as text: Spark has no unsigned integers.
    {"name": _TEXT, "rows": _NUMBER, "nbytes": _NUMBER, "first": _TEXT, "last": _TEXT}
)
_RAISED = re.compile(r"[A-Za-z_][\w.]*: ")
_SIGN = np.uint64(1 << 63)
_BUCKETS = 1 << 16
"""The ranges that places are cut into; they have about equal rows, because places are hashes."""


def read(
    files: Sequence[File], schema: Schema, directory: Directory, spark: SparkSession
) -> DataFrame:
    """The rows of files, as a lazy DataFrame."""
    paths = [directory.for_spark(f.name) for f in files]
    try:
        # pyarrow writes dates in the proleptic calendar, which current versions of Spark use too.
        reader = spark.read.schema(schema.ddl).option("datetimeRebaseMode", "CORRECTED")
        return reader.parquet(*paths)
    except raised.PySparkException as e:
        raise StoreUnavailable(
            f"{directory.shown}: Spark cannot read {len(paths)} files, of which the first is "
            f"{paths[0]}: {first_line(e)}; see that Spark has what it needs to read from there "
            "(for s3a: hadoop-aws, and the endpoint and keys in its configuration)"
        ) from e


def write(
    frame: DataFrame, rows: int, register: Register, directory: Directory, stem: str
) -> FileBatch:
    """Write the batch of consolidated rows; `rows` is their approximate number."""
    place = place_column(register.schema)
    parts = -(-rows // rows_of_file(rows))
    bucket = f"(shiftright({place}, 48) + {_BUCKETS // 2})"
    types = ", ".join(f"c{i} {t.ddl}" for i, (_, t) in enumerate(register.schema.all))
    placed = _numbered(frame).mapInArrow(_Places(register, place), f"{types}, {place} BIGINT")
    if hasattr(placed, "repartitionById"):  # since Spark 4.1
        number = F.expr(f"CAST({bucket} * {parts} DIV {_BUCKETS} AS INT)")
        placed = placed.repartitionById(parts, number)
    else:  # Spark computes the rows twice, to find the ranges first
        placed = placed.repartitionByRange(parts, place)
    task = _Write(content_of(register), directory, stem, rows_of_file(rows))
    written = placed.sortWithinPartitions(place).mapInArrow(task, _WRITTEN)
    return _written(written, f"register {register.name!r}")


def write_plain(frame: DataFrame, content: Content, directory: Directory, stem: str) -> FileBatch:
    """Write the batch of an output: rows without places, unchanged."""
    task = _Write(content, directory, stem, ROWS_PER_FILE)
    return _written(_numbered(frame).mapInArrow(task, _WRITTEN), "an output")


def merge(
    batches: Sequence[FileBatch],
    register: Register,
    reader: FileReader,
    stem: str,
    spark: SparkSession,
) -> FileBatch:
    """Merge batches into one: each task merges a range of places."""
    rows = sum(b.rows for b in batches)
    cuts = _cuts(batches, reader, -(-rows // rows_of_file(rows)))
    task = _Merge(tuple(batches), register, reader.directory, stem, rows, cuts)
    ranges = spark.range(0, len(cuts) - 1, 1, len(cuts) - 1)
    return _written(ranges.mapInArrow(task, _WRITTEN), f"register {register.name!r}")


def _cuts(batches: Sequence[FileBatch], reader: FileReader, parts: int) -> list[int]:
    """Places that cut the rows of batches into parts of about equal size."""
    bounds = [reader.bounds(f) for b in batches for f in b.files]
    firsts = np.sort(np.concatenate([b.firsts for b in bounds]))
    inner = {int(firsts[len(firsts) * i // parts]) for i in range(1, parts)}
    return [0, *sorted(inner - {0}), GREATEST_PLACE + 1]


def _numbered(frame: DataFrame) -> DataFrame:
    """The DataFrame with columns c0, c1, …: mapInArrow reads a dot in a name as a field access."""
    return frame.toDF(*[f"c{i}" for i in range(len(frame.columns))])


def _table(batch: pa.RecordBatch, schema: Schema) -> pa.Table:
    """The rows of a batch with numbered columns, renamed; further columns are left out."""
    table = pa.Table.from_batches([batch]).select(range(len(schema.all)))
    return conform(table.rename_columns(schema.arrow.names), schema)


def _written(tasks: DataFrame, whose: str) -> FileBatch:
    try:
        listed = tasks.toArrow().to_pylist()
    except raised.PySparkException as e:
        kind = StoreError if "StepError" in str(e) else StoreUnavailable
        raise kind(
            f"{whose}: Spark could not write its files: {_reason(e)}; nothing that was "
            "committed is lost: correct that, and try again"
        ) from e
    files = [File(**{**f, "first": int(f["first"]), "last": int(f["last"])}) for f in listed]
    return FileBatch(tuple(sorted(files, key=lambda f: (f.first, f.last))))


def _reason(e: raised.PySparkException) -> str:
    """The error of a task: the last one in its trace."""
    raised = [line for line in str(e).splitlines() if _RAISED.match(line)]
    return raised[-1] if raised else first_line(e)


RecordBatches = Iterator[pa.RecordBatch]


class _Places:
    """Adds the place of each row, as a signed number in the same order."""

    def __init__(self, register: Register, column: str) -> None:
        self._register = register
        self._column = column

    def __call__(self, batches: RecordBatches) -> RecordBatches:
        for batch in batches:
            table = _table(batch, self._register.schema)
            places = (places_of(table, self._register) ^ _SIGN).view(np.int64)
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(places)], names=[*batch.schema.names, self._column]
            )


class _Write:
    """Writes the rows of a partition."""

    def __init__(self, content: Content, directory: Directory, stem: str, file_rows: int) -> None:
        self._content = content
        self._directory = directory
        self._stem = stem
        self._file_rows = file_rows

    def __call__(self, batches: RecordBatches) -> RecordBatches:
        content = self._content
        writer = FileWriter(self._directory, self._stem, content, self._file_rows)
        try:
            for batch in batches:
                places: Hashes | None = None
                if content.place is not None:
                    places = batch.column(content.place).to_numpy().view(np.uint64) ^ _SIGN
                writer.append(_table(batch, content.schema), places)
            yield _files_as_rows(writer, self._directory)
        except BaseException:
            writer.abandon()
            raise


class _Merge:
    """Merges the rows between two places, for each number of a range."""

    def __init__(
        self,
        batches: tuple[FileBatch, ...],
        register: Register,
        directory: Directory,
        stem: str,
        rows: int,
        cuts: list[int],
    ) -> None:
        self._batches = batches
        self._register = register
        self._directory = directory
        self._stem = stem
        self._file_rows = rows_of_file(rows)
        self._cuts = cuts

    def __call__(self, batches: RecordBatches) -> RecordBatches:
        for batch in batches:
            for i in batch.column(0).to_numpy():
                yield self._merged(self._cuts[i], self._cuts[i + 1])

    def _merged(self, low: int, high: int) -> pa.RecordBatch:
        reader = FileReader(self._directory, 0)
        cursors = [Cursor(b, self._register, reader, low, high) for b in self._batches]
        content = content_of(self._register)
        writer = FileWriter(self._directory, self._stem, content, self._file_rows)
        try:
            for rows, places, _ in slices(cursors, self._register):
                writer.append(rows, places)
            return _files_as_rows(writer, self._directory)
        except BaseException:
            writer.abandon()
            raise


def _files_as_rows(writer: FileWriter, directory: Directory) -> pa.RecordBatch:
    """The files that a task has made durable, as rows for the driver."""
    batch = writer.batch()
    directory.sync(batch.names)
    rows = [{**asdict(f), "first": str(f.first), "last": str(f.last)} for f in batch.files]
    return pa.RecordBatch.from_pylist(rows, _LISTED)


_LATER = 60.0
"""Seconds for which a copy stays whose file is not in the state: a task may just have made it."""


@dataclass
class TaskFiles(TaskReads):
    """The state in Parquet files.

    Decoding a row group takes as long as looking up thousands of keys. So the first task on a
    machine that reads a file copies its rows, in Arrow's memory layout, to the directory that Spark
    makes for workers, and removes when they end.
    """

    directory: Directory | None = None
    stems: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def attempt(self) -> Iterator[Self]:
        """The state for an attempt of a task; removes old copies of files that are not in it."""
        wanted = {self.path_of(f) for files in self.files.values() for f in files}
        before = time.time() - _LATER
        for entry in os.scandir(self._folder):
            with suppress(OSError):
                if entry.path not in wanted and entry.stat().st_mtime < before:
                    os.unlink(entry.path)
        with super().attempt() as state:
            yield state

    @property
    def _folder(self) -> str:
        assert self.directory is not None
        name = hashlib.sha256(str(self.directory.identity).encode()).hexdigest()[:16]
        above = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).partition(",")[0]
        folder = os.path.join(above, f"stepping-spark-{name}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return folder

    def may_have(self, file: File, wanted: Ranges) -> bool:
        """Whether one of the ranges of places can overlap the range of the file."""
        at = int(np.searchsorted(wanted.ends, np.uint64(file.first)))
        return at < len(wanted.begins) and int(wanted.begins[at]) <= file.last

    def path_of(self, file: File) -> str:
        """The path of the copy of a file."""
        return os.path.join(self._folder, f"{os.path.basename(file.name)}.arrow")

    def opened(self, path: str, file: File, register: Register) -> DriverBatch:
        """The batch in a file; copies the file if no task has done so."""
        if not os.path.exists(path):
            assert self.directory is not None
            reader = FileReader(self.directory, 0)
            groups = reader.all_groups(FileBatch((file,)))
            self._copy(path, joined(reader.groups(groups, register, keep=False)))
        return load(path)

    def written(self, batch: DriverBatch, register: Register) -> tuple[File, ...]:
        """Write a batch; returns its files. A single file is also copied to the worker's disk."""
        assert self.directory is not None
        rows = rows_of_file(batch.rows)
        stem = self.stems[register.name]
        writer = FileWriter(self.directory, stem, content_of(register), rows)
        try:
            writer.append(batch.table, batch.places)
            files = writer.batch().files
        except BaseException:
            writer.abandon()
            raise
        self.directory.sync([f.name for f in files])
        if len(files) == 1:
            self._copy(self.path_of(files[0]), batch)
        return files

    def _copy(self, path: str, batch: DriverBatch) -> None:
        draft = f"{path}.{os.getpid()}"
        save(batch, draft)
        os.replace(draft, path)
