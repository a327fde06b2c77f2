"""Writes what a step adds, what it gives and what merges, as files; and knows which are new."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from stepping_spark.codec import conform
from stepping_spark.hashing import Hashes
from stepping_spark.schema import Schema
from stepping_spark.store import Held, Register
from stores import spark_files
from stores.batches import DriverBatch
from stores.file_merges import FileMerge
from stores.manifest import FileBatch
from stores.parquet_files import FileReader, FileWriter, rows_of_file
from stores.spark_batches import Settled, column
from stores.tiers import Work


class BatchFiles:
    """Makes files, which count once a manifest names them."""

    def __init__(self, reader: FileReader, spark: Callable[[], SparkSession]) -> None:
        self._reader = reader
        self._spark = spark
        self._open: WeakSet[FileWriter] = WeakSet()
        self._of_step: list[str] = []
        self._of_merges: list[str] = []
        self.bytes_written = 0

    @property
    def unsynced(self) -> list[str]:
        """What must be durable before a manifest names it."""
        return self._of_merges + self._of_step

    def added(self, batch: DriverBatch, register: Register, stem: str) -> FileBatch:
        """The rows of a change that the driver has."""
        made = self._written(batch.table, batch.places, register.schema, stem)
        self._reader.keep_small(made, batch.table, batch.places)
        return made

    def added_in_spark(self, change: Settled, register: Register, stem: str) -> FileBatch:
        """The rows of a change that Spark has."""
        directory = self._reader.directory
        made = spark_files.write(change.frame, change.rows, register, directory, stem)
        return self._noted(made)

    def output(self, held: Held, schema: Schema, stem: str) -> FileBatch:
        """What a step gave."""
        if isinstance(held, DataFrame):
            frame = held.select(*[column(n) for n, _ in schema.all])
            made = spark_files.write_plain(frame, schema, self._reader.directory, stem)
            return self._noted(made)
        table = conform(held, schema)
        return self._written(table, None, schema, stem) if table.num_rows else FileBatch(())

    def merge(self, register: Register, run: Sequence[FileBatch], stem: str) -> Work[FileBatch]:
        """Begin to merge neighbouring batches."""
        rows = sum(b.rows for b in run)
        writer = self._writer(register.schema, stem, rows, places=True)

        def in_spark() -> FileBatch:
            return spark_files.merge(run, register, self._reader, stem, self._spark())

        return _Noted(FileMerge(run, register, self._reader, writer, in_spark), self._merged)

    def forget(self) -> None:
        """Remove what the step under way has written."""
        names, self._of_step = self._of_step, []
        with suppress(OSError):
            self._reader.directory.remove(names)

    def keep(self) -> None:
        """Take what was written as named by a manifest, now or later."""
        self._of_step, self._of_merges = [], []

    def close(self) -> None:
        """Give up merges under way."""
        for writer in list(self._open):
            writer.abandon()

    def _writer(self, schema: Schema, stem: str, rows: int, *, places: bool) -> FileWriter:
        directory = self._reader.directory
        writer = FileWriter(directory, stem, schema, rows_of_file(rows), places=places)
        self._open.add(writer)
        return writer

    def _written(
        self, rows: pa.Table, places: Hashes | None, schema: Schema, stem: str
    ) -> FileBatch:
        writer = self._writer(schema, stem, rows.num_rows, places=places is not None)
        try:
            writer.append(rows, places)
            return self._noted(writer.batch())
        except BaseException:
            writer.abandon()
            raise

    def _noted(self, made: FileBatch) -> FileBatch:
        self._of_step += made.names
        self.bytes_written += made.nbytes
        return made

    def _merged(self, made: tuple[FileBatch, ...]) -> None:
        self._of_merges += (n for b in made for n in b.names)
        self.bytes_written += sum(b.nbytes for b in made)


class _Noted:
    """A merge that tells what came of it."""

    def __init__(
        self, merge: Work[FileBatch], note: Callable[[tuple[FileBatch, ...]], None]
    ) -> None:
        self._merge = merge
        self._note = note

    def work(self, rows: int) -> tuple[FileBatch, ...] | None:
        """Merge about so many rows more. Once all are: the batch, or none for no rows."""
        made = self._merge.work(rows)
        if made is not None:
            self._note(made)
        return made
