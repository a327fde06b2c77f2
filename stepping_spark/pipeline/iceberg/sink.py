"""An Iceberg table as a sink: a snapshot for each step, and the files that it rewrites."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyiceberg.expressions
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, Or
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    ArrowScan,
    bin_pack_arrow_table,
    pyarrow_to_schema,
    schema_to_pyarrow,
    write_file,
)
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table, WriteTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from stepping_spark.base.errors import SinkError
from stepping_spark.pipeline.by_tasks import (
    UNPACKED,
    is_rewritten,
    large_change,
    shares_of,
    write_by_tasks,
)
from stepping_spark.pipeline.changes import (
    Rewritten,
    TableForm,
    check_counts,
    fields_of_key,
    key_ids,
    not_unique,
    ranges_of,
)
from stepping_spark.pipeline.columns import check_names, check_same, check_years, plain_type
from stepping_spark.pipeline.iceberg.place import IcebergPlace, rewrites
from stepping_spark.pipeline.iceberg.types import NoType, lost_list, lost_name, schema_of
from stepping_spark.pipeline.protocols import KEPT, REFRESHED, REMOVED
from stepping_spark.relations.relation import SparkRelation
from stepping_spark.rows.names import as_in_table
from stepping_spark.rows.schema import COUNT
from stepping_spark.zsets.spark import ZSetSpark

ex: Any = pyiceberg.expressions

FILE_BYTES = 32 << 20
"""The most bytes of a data file. They are few, as a step rewrites the files with its keys."""

SMALL, MANY = FILE_BYTES // 32, 8
"""`MANY` or more files of less than `SMALL` bytes are merged, now and then."""


@dataclass
class Rewrite:
    """The effect of a step on a table: removed files, written rows, and added files."""

    gone: list[DataFile] = field(default_factory=list)
    rows: list[pa.Table] = field(default_factory=list)
    files: list[DataFile] = field(default_factory=list)  # written by tasks


def arrow_of(table: Table | IcebergPart) -> pa.Schema:
    """The columns of a table, without large types and views."""
    columns = schema_to_pyarrow(table.schema(), include_field_ids=False)
    return pa.schema([f.with_type(plain_type(f.type)).remove_metadata() for f in columns])


def holding(table: Table, keys: pa.Table) -> list[FileScanTask]:
    """The files that may contain one of the keys, by the bounds of their columns."""
    parts = [part for name in keys.column_names if (part := _within(name, keys.column(name)))]
    condition = functools.reduce(And, parts) if parts else AlwaysTrue()
    return list(table.scan(row_filter=condition).plan_files())


def _within(name: str, values: Any) -> BooleanExpression | None:
    """A condition on bounds that all values of a column satisfy; None for other types, or NULL."""
    t = values.type
    has_bounds = pa.types.is_integer(t) or pa.types.is_string(t) or pa.types.is_date(t)
    if not (has_bounds or pa.types.is_timestamp(t)) or values.null_count or not len(values):
        return None
    ranges: list[BooleanExpression] = [
        And(ex.GreaterThanOrEqual(name, least), ex.LessThanOrEqual(name, most))
        for least, most in ranges_of(values)
    ]
    return functools.reduce(Or, ranges)


def rows_in(
    table: Table | IcebergPart, task: FileScanTask, columns: Sequence[str] = ()
) -> pa.Table:
    """The rows of a file that are not deleted, with some columns or all."""
    schema = table.schema().select(*columns) if columns else table.schema()
    rows = ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_table([task])
    types = arrow_of(table)
    names = list(columns) or types.names
    return rows.select(names).cast(pa.schema([types.field(types.names.index(n)) for n in names]))


def key_indexes(rows: pa.Table, keys: pa.Table) -> Any:
    """For each row the index of its key in `keys`, or -1."""
    names = keys.column_names
    ids = key_ids(pa.concat_tables([rows.select(names).cast(keys.schema), keys]), names)
    mine, theirs = ids[: rows.num_rows], ids[rows.num_rows :]
    place_of = np.full(int(ids.max(initial=0)) + 1, -1, np.int64)
    place_of[theirs] = np.arange(len(theirs))
    return place_of[mine]


def written(table: Table | IcebergPart, rows: pa.Table, order: Sequence[str]) -> Iterator[DataFile]:
    """New data files with these rows, sorted by `order`, so that a file has few keys."""
    if not rows.num_rows:
        return
    sortable = [n for n in order if not pa.types.is_nested(rows.schema.field(n).type)]
    if sortable:
        rows = rows.sort_by([(name, "ascending") for name in sortable])
    schema = pyarrow_to_schema(rows.schema, name_mapping=table.schema().name_mapping)
    packed = enumerate(bin_pack_arrow_table(rows, FILE_BYTES))
    number = uuid4()
    tasks = (WriteTask(number, i, schema, batches) for i, batches in packed)
    yield from write_file(table.io, table.metadata, tasks)


def check_lists(rows: pa.Table, where: str) -> None:
    """Refuse NULL for a list of structs, which pyiceberg would lose."""
    if (lost := lost_list(rows)) is not None:
        raise SinkError(
            f"{where}: column {lost} has NULL for a list of structs, which pyiceberg writes as an "
            "empty list; make it an empty list in the query, or write the view to another table"
        )


@dataclass(frozen=True)
class IcebergPart:
    """A table with some of its files, for a task."""

    metadata: TableMetadata
    io: FileIO
    files: tuple[FileScanTask, ...] = ()

    def schema(self) -> Schema:
        """The columns."""
        return self.metadata.schema()

    def tables(self) -> Iterator[pa.Table]:
        """The rows of each file."""
        for task in self.files:
            yield rows_in(self, task)


@dataclass(frozen=True)
class IcebergShare:
    """The work of a task that writes a step."""

    form: TableForm
    step: int
    table: IcebergPart

    def write(self, rewritten: Rewritten) -> list[object]:
        """Write the data files."""
        check_lists(rewritten.rows, self.form.where)
        schema = arrow_of(self.table)
        rows = rewritten.rows.select(schema.names).cast(schema)
        return [*written(self.table, rows, self.form.order)]


def small(tasks: Iterable[FileScanTask]) -> list[FileScanTask]:
    """The small files to merge; none if they are few."""
    files = [task for task in tasks if task.file.file_size_in_bytes < SMALL]
    return files if len(files) >= MANY else []


pc: Any = pyarrow.compute

OWNER = "stepping-spark.owner"
STEP = "stepping-spark.step"
"""The properties with the owner and the step, of a snapshot and of the table (the last ones)."""

MERGED_EVERY = 64
"""The steps between merges of small files."""

PROPERTIES = {
    "write.target-file-size-bytes": str(FILE_BYTES),
    "commit.manifest-merge.enabled": "true",
}
_NO_RETRY = {"commit.retry.num-retries": "0"}

_ANOTHER = "give another name, or drop the table to write it again"


@dataclass(frozen=True)
class IcebergWrite:
    """A computed step for a table whose current snapshot is `at`; `of` is the original change."""

    step: int
    of: ZSetSpark[Any]
    at: int | None
    rewrite: Rewrite

    def fits(self, table: Table, step: int, change: ZSetSpark[Any]) -> bool:
        """Whether it was computed for this step and change, and for the current snapshot."""
        return self.of is change and (self.step, self.at) == (step, _current(table))


class IcebergSink:
    """Writes the steps of one view.

    A step is one snapshot. Its summary has the owner and the step, and so do the properties of the
    table, in the same commit: they stay when snapshots expire. A commit fails if the table's
    snapshot has changed since it was read, so only one of two concurrent commits succeeds.
    """

    def __init__(
        self,
        name: str,
        catalog: str | Catalog,
        options: Mapping[str, str],
        key: Sequence[str],
        *,
        changes: bool,
    ) -> None:
        self._place = IcebergPlace(name, catalog, options, self._failure)
        self._form = TableForm(pa.schema([]), tuple(key), changes, f"Iceberg table {name}")
        self._owner = ""
        self._ready: IcebergWrite | None = None
        # None: changes are appended, and never refreshed. True: the next step has all rows.
        self.anew = None if changes else False

    def open(self, columns: pa.Schema, owner: str) -> None:
        """Create the table, or check that it belongs to this owner."""
        self._get_ready(columns, owner)
        table = self._place.table_if_there()
        if table is None:
            table = self._new_table()
        self._check(table)

    def look(self, columns: pa.Schema, owner: str) -> int:
        """Raise the errors of `open`, and create nothing; returns the owner's last step."""
        self._get_ready(columns, owner)
        table = self._place.table_if_there()
        if table is None:
            return 0
        self._check(table)
        return self._step_of(table)

    def close(self) -> None:
        """Nothing to do."""

    def last_step(self) -> int:
        """The last step of this owner."""
        return self._step_of(self._place.table())

    def prepare(self, step: int, change: ZSetSpark[Any]) -> None:
        """Raise the errors that `write` would raise, and keep the computed step for it."""
        table = self._place.table()
        self._check_owner(table)
        self._ready = self._computed(table, step, change)

    def write(self, step: int, change: ZSetSpark[Any]) -> None:
        """Write the rows of a step, with its number."""
        table = self._place.table()
        self._check_owner(table)
        ready, self._ready = self._ready, None
        if ready is None or not ready.fits(table, step, change):
            ready = self._computed(table, step, change)
        with self._writing(f"step {step} could not be written"):
            self._commit(table, step, ready.rewrite)

    # -- a step

    def _computed(self, table: Table, step: int, change: ZSetSpark[Any]) -> IcebergWrite:
        """The computed step; raises `SinkError` if its rows or the table do not allow it."""
        large: SparkRelation | None = None
        if table.spec().is_unpartitioned():
            large = large_change(change, table.metadata.location)
        if large is not None:
            by_tasks = self._by_tasks(table, step, large)
            if by_tasks is not None:
                return IcebergWrite(step, change, _current(table), by_tasks)
        rows = change.to_arrow()
        check_years(rows, self._form.where)
        check_lists(rows, self._form.where)
        with self._place.trying("its rows cannot be read", KEPT):
            if self._form.changes:
                feed = self._form.feed(rows, step)
                rewrite = Rewrite(rows=[self._form.in_table(feed)])
            elif self.anew:
                rows = self._form.split(rows).came if self._form.key else rows
                files = [task.file for task in table.scan().plan_files()]
                rewrite = Rewrite(files, [self._form.in_table(rows)])
            elif self._form.key:
                rewrite = self._by_key(table, rows)
            else:
                rewrite = self._by_count(table, self._form.in_table(rows))
            if self.anew is False and step // MERGED_EVERY > self._step_of(table) // MERGED_EVERY:
                self._merge(table, rewrite)
        return IcebergWrite(step, change, _current(table), rewrite)

    def _by_tasks(self, table: Table, step: int, change: SparkRelation) -> Rewrite | None:
        """Let tasks rewrite the table with the rows after a step, or write the added rows.

        None if they cannot.
        """
        old_files: list[FileScanTask] = []
        if not self._form.changes:
            with self._place.trying("its files are not known", KEPT):
                old_files = list(table.scan().plan_files())
        share = IcebergShare(self._form, step, IcebergPart(table.metadata, table.io))
        parts = [
            replace(share.table, files=tuple(tasks))
            for tasks in shares_of(old_files)
            if not self.anew
        ]
        nbytes = UNPACKED * sum(task.file.file_size_in_bytes for task in old_files)
        if parts and not is_rewritten(change, nbytes):
            return None
        what = f"{self._form.where}: step {step} could not be written by tasks"
        files = write_by_tasks(change, share, parts, nbytes, what)
        return None if files is None else Rewrite([t.file for t in old_files], files=files)

    def _by_key(self, table: Table, change: pa.Table) -> Rewrite:
        split = self._form.split(change)
        came, changed, gone = map(self._form.in_table, (split.came, split.changed, split.gone))
        names = [self._column(name) for name in self._form.key]
        keys = pa.concat_tables([rows.select(names) for rows in (came, changed, gone)])
        rewrite = Rewrite(rows=[came, changed])
        for task in holding(table, keys):
            at = key_indexes(rows_in(table, task, names), keys)
            # The keys of rows that came are the first ones. They must not be in the table.
            double = at[(at >= 0) & (at < came.num_rows)]
            if len(double):
                row = keys.slice(int(double[0]), 1).to_pylist()[0]
                values = {field: row[self._column(field)] for field in self._form.key}
                raise not_unique(self._form.where, self._form.key, values)
            if (at >= 0).any():
                rewrite.gone.append(task.file)
                rewrite.rows.append(rows_in(table, task).filter(pa.array(at < 0)))
        return rewrite

    def _by_count(self, table: Table, change: pa.Table) -> Rewrite:
        keys = change.drop_columns([COUNT])
        counts = change.column(COUNT).to_numpy().copy()
        rewrite = Rewrite()
        for task in holding(table, keys):
            at = key_indexes(rows_in(table, task, keys.column_names), keys)
            if (at >= 0).any():
                rows = rows_in(table, task)
                rewrite.gone.append(task.file)
                rewrite.rows.append(rows.filter(pa.array(at < 0)))
                np.add.at(counts, at[at >= 0], rows.column(COUNT).to_numpy()[at >= 0])
        check_counts(keys, counts, self._form.where)
        new = keys.append_column(change.schema.field(COUNT), pa.array(counts))
        rewrite.rows.append(new.filter(pa.array(counts > 0)))
        return rewrite

    def _merge(self, table: Table, rewrite: Rewrite) -> None:
        """Add the rows of small files to the rewrite, and remove those files."""
        removed_paths = {file.file_path for file in rewrite.gone}
        for task in small(table.scan().plan_files()):
            if task.file.file_path not in removed_paths:
                rewrite.gone.append(task.file)
                rewrite.rows.append(rows_in(table, task))

    def _commit(self, table: Table, step: int, rewrite: Rewrite) -> None:
        """Commit one snapshot and the properties of the table, atomically."""
        marks = {OWNER: self._owner, STEP: str(step)}
        properties = {**table.metadata.properties, **_NO_RETRY}
        # A retried commit would follow a commit of another pipeline.
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        schema = arrow_of(table)
        parts = [part.select(schema.names).cast(schema) for part in rewrite.rows]
        rows = pa.concat_tables([schema.empty_table(), *parts])
        transaction = table.transaction()
        if self._form.changes and not rewrite.files:
            transaction.append(rows, snapshot_properties=marks)
        else:
            files = [*rewrite.files, *written(table, rows, self._form.order)]
            update = transaction.update_snapshot(snapshot_properties=marks)
            producer: Any = update.overwrite() if rewrite.gone else update.merge_append()
            with producer as snapshot:
                for file in rewrite.gone:
                    snapshot.delete_data_file(file)
                for file in files:
                    snapshot.append_data_file(file)
        transaction.set_properties(marks)
        transaction.commit_transaction()

    # -- the table

    def _get_ready(self, columns: pa.Schema, owner: str) -> None:
        key = fields_of_key(self._form.key, columns, self._form.where)
        self._form = replace(self._form, columns=columns, key=key)
        self._owner, self._ready = owner, None
        check_names(as_in_table(columns), self._form.schema.names[len(columns) :], self._form.where)
        try:
            schema_of(self._form.schema)
        except NoType as e:
            raise self._failure(f"column {e}, which Iceberg does not have; make it another") from e
        except ValueError as e:  # names with a dot, and names of parts of structs
            raise self._failure(f"{e}; give a field another column: columns={{field: name}}") from e
        if (lost := lost_name(as_in_table(columns))) is not None:
            raise self._failure(
                f"column {lost} is in a list of lists, where pyiceberg loses the values of fields "
                "with such names; use letters, digits and _ only"
            )

    def _new_table(self) -> Table:
        catalog, name, schema = (
            self._place.catalog(),
            self._place.name,
            schema_of(self._form.schema),
        )
        with self._place.trying("it could not be made", "check the catalog and what it allows"):
            try:
                return catalog.create_table_if_not_exists(name, schema, properties=PROPERTIES)
            except NoSuchNamespaceError:
                catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
                return catalog.create_table_if_not_exists(name, schema, properties=PROPERTIES)

    def _column(self, name: str) -> str:
        """The table's column of a field."""
        return self._form.schema.names[self._form.columns.get_field_index(name)]

    def _check(self, table: Table) -> None:
        remedy = f"give another name, or {REMOVED}"
        check_same(arrow_of(table), self._form.schema, self._form.where, remedy)
        if not self._form.changes and not table.spec().is_unpartitioned():
            raise self._failure(
                "it is partitioned, and rows of a view are written to tables without partitions; "
                "give another name, or write what changed: changes=True"
            )
        self._check_owner(table)

    def _step_of(self, table: Table) -> int:
        """The last step of this owner in the table; 0 if none.

        Snapshots of others are skipped: `_check_owner` refuses them. If no snapshot is left, the
        properties of the table have the step.
        """
        for snapshot in _back(table):
            if (step := self._mine(snapshot)) is not None:
                return step
        properties = {} if table.current_snapshot() is None else table.properties
        return int(properties[STEP]) if properties.get(OWNER) == self._owner else 0

    def _mine(self, snapshot: Snapshot) -> int | None:
        """The step of a snapshot of this owner; None for other snapshots."""
        properties = {} if snapshot.summary is None else snapshot.summary.additional_properties
        return int(properties[STEP]) if properties.get(OWNER) == self._owner else None

    def _check_owner(self, table: Table) -> None:
        """Refuse a table with rows that this owner did not write."""
        owner, step = table.properties.get(OWNER), table.properties.get(STEP)
        if owner is not None and owner != self._owner:
            raise self._failure(
                f"another pipeline or view writes it, and has written step {step}, or this "
                f"pipeline has lost its state; {_ANOTHER}"
            )
        for snapshot in _back(table):
            if self._mine(snapshot) is not None:
                return
            if rewrites(snapshot):
                continue
            if owner is None and _has_rows(table):
                raise self._failure(
                    "it has rows that no pipeline wrote; give a name that no table has, or that of "
                    "an empty one"
                )
            if owner is not None and not self.anew:
                raise self._failure(
                    f"somebody else has changed its rows in snapshot {snapshot.snapshot_id}; "
                    "nobody else may write a table that a pipeline writes: roll back to the "
                    "snapshot before it, and run again; or "
                    f"{REFRESHED if self.anew is False else REMOVED}"
                )

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            with self._place.trying(what, KEPT):
                yield
        except SinkError as e:
            if not isinstance(e.__cause__, CommitFailedException):
                raise
            raise self._failure(
                f"{what}, because somebody else wrote it at the same time: {e.__cause__}; one "
                "pipeline writes a table: stop the other"
            ) from e.__cause__

    def _failure(self, reason: str) -> SinkError:
        return SinkError(f"Iceberg table {self._place.name}: {reason}")


def _current(table: Table) -> int | None:
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def _back(table: Table) -> Iterator[Snapshot]:
    """The snapshots from the current one back to the oldest that is kept."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        before = snapshot.parent_snapshot_id
        snapshot = None if before is None else table.snapshot_by_id(before)


def _has_rows(table: Table) -> bool:
    return any(True for _ in table.scan().plan_files())
