"""Writes the additions, the outputs and the merges of steps as files, and tracks new files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakSet

import pyarrow as pa

from stepping_spark.base.packages import SparkSession
from stepping_spark.relations.codec import conform
from stepping_spark.relations.hashing import Hashes
from stepping_spark.relations.relation import KEPT_BYTES, Relation, SparkRelation
from stepping_spark.relations.store import Register
from stepping_spark.relations.transfer import column
from stepping_spark.rows.schema import Schema
from stores.batches.compaction import Work
from stores.batches.driver import Building
from stores.batches.spark import settle
from stores.parquet import spark_files
from stores.parquet.file_validation import Content
from stores.parquet.files import (
    FileReader,
    FileWriter,
    content_of,
    output_content,
    rows_of_file,
)
from stores.parquet.manifest import FileBatch, Output
from stores.parquet.merges import FileMerge
from stores.threads import side_by_side


@dataclass(frozen=True, eq=False)
class Added:
    """Rows that the step under way adds: on the driver, in order of place, or in files."""

    register: Register
    stem: str
    building: Building | None = None
    files: FileBatch = field(default=FileBatch(()))

    @property
    def rows(self) -> int:
        """The number of rows; waits until they are sorted. Raises the error if that failed."""
        return self.files.rows if self.building is None else self.building.batch.rows


def drop(added: Mapping[str, Sequence[Added]]) -> None:
    """Cancel sorts that have not begun."""
    for some in added.values():
        for a in some:
            if a.building is not None:
                a.building.drop()


def ended(added: Mapping[str, Sequence[Added]]) -> dict[str, list[Added]]:
    """The additions that have rows, after all sorts. Raises the error of a failed one."""
    return {name: [a for a in some if a.rows] for name, some in added.items()}


class BatchFiles:
    """Writes files, which count once a manifest names them."""

    def __init__(
        self,
        reader: FileReader,
        spark: Callable[[], SparkSession],
        driver_rows: int,
    ) -> None:
        self._reader = reader
        self._driver_rows = driver_rows
        self._spark = spark
        self._open: WeakSet[FileWriter] = WeakSet()
        self._of_step: list[str] = []
        self._of_merges: list[str] = []
        self.bytes_written = 0

    @property
    def unsynced(self) -> list[str]:
        """The new files, which must be durable before a manifest names them."""
        return self._of_merges + self._of_step

    def change(self, change: Relation, register: Register, stem: str) -> Added:
        """The consolidated rows of a change; many rows in Spark are written to files here."""
        if not isinstance(change, SparkRelation):
            return Added(register, stem, self._building(change, register))
        settled = settle(change, register)
        rows, nbytes = settled.rows or 0, settled.nbytes or 0
        if rows <= self._driver_rows and nbytes <= KEPT_BYTES:
            return Added(register, stem, self._building(settled, register))
        directory = self._reader.directory
        batch = spark_files.write(settled.frame, rows, register, directory, stem)
        return Added(register, stem, files=self._noted(batch))

    def of_tasks(self, batch: FileBatch, register: Register, stem: str) -> Added:
        """The rows of a change that tasks have written to files."""
        return Added(register, stem, files=self._noted(batch))

    def _building(self, change: Relation, register: Register) -> Building:
        return Building(change.fetched(), register)

    def step(
        self,
        added: Mapping[str, Sequence[Added]],
        outputs: Sequence[Relation] | None,
        schemas: Sequence[Schema],
        stem: str,
    ) -> tuple[dict[str, tuple[FileBatch, ...]], tuple[Output, ...] | None]:
        """Write all additions and outputs of a step to files; returns their batches."""
        changes = [(name, a) for name, some in added.items() for a in some]
        jobs: list[Callable[[], FileBatch]] = [partial(self._added, a) for _, a in changes]
        jobs += [
            partial(self._output, relation, output_content(i, schema), f"output{i}-{stem}")
            for i, (relation, schema) in enumerate(zip(outputs or (), schemas, strict=False))
        ]
        batches = side_by_side(lambda job: job(), jobs)
        written: dict[str, tuple[FileBatch, ...]] = {}
        for (name, _), batch in zip(changes, batches, strict=False):
            written[name] = (*written.get(name, ()), batch)
        if outputs is None:
            return written, None
        given = zip((s.kinds for s in schemas), batches[len(changes) :], strict=True)
        return written, tuple(given)

    def _added(self, added: Added) -> FileBatch:
        if added.building is None:
            return added.files
        batch = added.building.batch
        file_batch = self._written(
            batch.table, batch.places, content_of(added.register), added.stem
        )
        self._reader.keep_small(file_batch, batch.table, batch.places)
        return file_batch

    def _output(self, relation: Relation, content: Content, stem: str) -> FileBatch:
        schema = content.schema
        if isinstance(relation, SparkRelation):
            frame = relation.frame.select(*[column(n) for n, _ in schema.all])
            directory = self._reader.directory
            return self._noted(spark_files.write_plain(frame, content, directory, stem))
        table = conform(relation.fetched().table, schema)
        return self._written(table, None, content, stem) if table.num_rows else FileBatch(())

    def merge(self, register: Register, run: Sequence[FileBatch], stem: str) -> Work[FileBatch]:
        """Begin to merge neighbouring batches."""
        rows = sum(b.rows for b in run)
        writer = self._writer(content_of(register), stem, rows)

        def in_spark() -> FileBatch:
            return spark_files.merge(run, register, self._reader, stem, self._spark())

        merge = FileMerge(run, register, self._reader, writer, in_spark, self._driver_rows)
        return _Noted(merge, self._merged)

    def forget(self) -> None:
        """Remove the files of the step under way."""
        names, self._of_step = self._of_step, []
        with suppress(OSError):
            self._reader.directory.remove(names)

    def leave(self) -> None:
        """Leave the files of the step under way: a manifest may name them."""
        self._of_step = []

    def keep(self) -> None:
        """Keep all new files: a manifest names them now, or will."""
        self._of_step, self._of_merges = [], []

    def close(self) -> None:
        """Give up merges under way."""
        for writer in list(self._open):
            writer.abandon()

    def _writer(self, content: Content, stem: str, rows: int) -> FileWriter:
        writer = FileWriter(self._reader.directory, stem, content, rows_of_file(rows))
        self._open.add(writer)
        return writer

    def _written(
        self, rows: pa.Table, places: Hashes | None, content: Content, stem: str
    ) -> FileBatch:
        writer = self._writer(content, stem, rows.num_rows)
        try:
            writer.append(rows, places)
            return self._noted(writer.batch())
        except BaseException:
            writer.abandon()
            raise

    def _noted(self, batch: FileBatch) -> FileBatch:
        self._of_step += batch.names
        self.bytes_written += batch.nbytes
        return batch

    def _merged(self, batches: tuple[FileBatch, ...]) -> None:
        self._of_merges += (n for b in batches for n in b.names)
        self.bytes_written += sum(b.nbytes for b in batches)


class _Noted:
    """A merge that reports its batches when it is complete."""

    def __init__(
        self, merge: Work[FileBatch], note: Callable[[tuple[FileBatch, ...]], None]
    ) -> None:
        self._merge = merge
        self._note = note

    def work(self, rows: int) -> tuple[FileBatch, ...] | None:
        """Merge about `rows` more rows. None until it is complete; then the batch, if any."""
        batches = self._merge.work(rows)
        if batches is not None:
            self._note(batches)
        return batches
