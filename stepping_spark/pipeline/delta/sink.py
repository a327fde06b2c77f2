"""A Delta table as a sink: the rows or the changes of a view, with a commit for each step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake import DeltaTable as Table
from deltalake.exceptions import CommitFailedError

from stepping_spark.base.errors import SinkError
from stepping_spark.pipeline.by_tasks import (
    UNPACKED,
    is_rewritten,
    large_change,
    shares_of,
    write_by_tasks,
)
from stepping_spark.pipeline.changes import (
    ByKey,
    TableForm,
    fields_of_key,
    first_in_both,
    not_unique,
)
from stepping_spark.pipeline.columns import check_names, check_same, check_years, parts_of
from stepping_spark.pipeline.delta.files import DataFile, DataFiles
from stepping_spark.pipeline.delta.log import (
    APPEND_ONLY,
    FEED,
    FEED_COLUMNS,
    VECTORS,
    DeltaLog,
    is_on,
    quoted,
    with_one_of,
)
from stepping_spark.pipeline.delta.writing import (
    DeltaPart,
    DeltaShare,
    FilesOfTasks,
    MarkedTable,
    TableWriter,
    milliseconds,
    why_merged,
    why_not_written,
)
from stepping_spark.pipeline.protocols import KEPT, REFRESHED, REMOVED
from stepping_spark.relations.relation import SparkRelation
from stepping_spark.rows.names import as_in_table, to_table
from stepping_spark.rows.schema import COUNT
from stepping_spark.zsets.spark import ZSetSpark

ANY = "stepping_spark"
"""The application id of all pipelines, so that the commits of two concurrent ones conflict."""

MERGED_EVERY = 64
"""Steps between merges of small files: each step adds files, and a step by key reads keys.

The number of the step decides, so processes that take one step each merge, too.
"""

MERGED_BYTES = 1 << 20
"""The target size of merged files; for each eighth merge it is sixteen times larger.

So a row is rewritten a few times in total, not at each merge.
"""

TRIES = 5
"""Attempts to commit while others merge or remove files."""

UNSAFE_RENAME = "allow_unsafe_rename"
"""The option of deltalake with which a commit does not fail if its file exists."""

_OWN = "__delta_rs_"

_APPEND_ONLY = (
    f"the table is append-only ({APPEND_ONLY}), and the step takes rows away: set it to false "
    "(ALTER TABLE … SET TBLPROPERTIES), or write what changed to another table: changes=True"
)


@dataclass(frozen=True)
class DeltaWrite:
    """A step as it is written: all its rows, or split by key. `of` is the original change.

    If tasks have written the rows, `files` has the actions, and the other fields are empty.
    """

    step: int
    of: ZSetSpark[Any]
    rows: pa.Table
    by_key: ByKey | None
    files: FilesOfTasks | None = None

    @property
    def takes_away(self) -> bool:
        """Whether the step deletes or updates rows of the table."""
        if self.by_key is not None:
            return bool(self.by_key.changed.num_rows or self.by_key.gone.num_rows)
        counts = self.rows.column(COUNT).to_numpy() if COUNT in self.rows.column_names else None
        return counts is not None and bool((counts < 0).any())


class DeltaSink:
    """Writes the steps of one view.

    Each commit records its step twice: for this owner, and for any pipeline (`ANY`). So the sink
    recognizes the table of another owner, and Delta rejects one of two concurrent commits.
    """

    def __init__(
        self,
        uri: str,
        options: Mapping[str, str] | None,
        key: Sequence[str],
        *,
        changes: bool,
        vacuum: bool,
        vectors: bool,
    ) -> None:
        self._log = DeltaLog(uri, options, self._failure)
        self._options = dict(options) if options else None
        self._vacuum = vacuum
        self._vectors = vectors
        self._marked: MarkedTable | None = None
        self._form = TableForm(pa.schema([]), tuple(key), changes, f"Delta table {uri}")
        self._owner = ""
        self._ready: DeltaWrite | None = None
        self._seen = -1  # up to this version nobody else wrote rows
        self.anew = None if changes else False

    def open(self, columns: pa.Schema, owner: str) -> None:
        """Create the table, or check that it belongs to this owner."""
        self._get_ready(columns, owner)
        if not self._log.exists():
            with self._writing("it could not be made"):
                Table.create(
                    self._log.uri,
                    self._form.schema,
                    configuration={FEED: "true", **({VECTORS: "true"} if self._vectors else {})},
                    storage_options=self._options,
                )
        self._check_there()

    def look(self, columns: pa.Schema, owner: str) -> int:
        """Raise the errors of `open`, and create nothing; returns the owner's last step."""
        self._get_ready(columns, owner)
        if not self._log.exists():
            return 0
        self._check_there()
        return self.last_step()

    def _get_ready(self, columns: pa.Schema, owner: str) -> None:
        key = fields_of_key(self._form.key, columns, self._form.where)
        self._form = replace(self._form, columns=columns, key=key)
        self._owner, self._ready = f"{ANY} {owner}", None
        check_names(as_in_table(columns), self._form.schema.names[len(columns) :], self._form.where)
        self._check_reserved()
        self._check_types()

    def close(self) -> None:
        """Nothing to do."""

    def last_step(self) -> int:
        """The last step of this owner."""
        return self._log.newest().transaction_version(self._owner) or 0

    def prepare(self, step: int, change: ZSetSpark[Any]) -> None:
        """Raise the errors that `write` would raise, and keep the computed rows for it."""
        table = self._log.newest()
        self._check_owner(table)
        self._ready = self._checked(table, step, change)

    def write(self, step: int, change: ZSetSpark[Any]) -> None:
        """Write the rows of a step, with its number."""
        table = self._log.newest()
        self._check_owner(table)
        ready, self._ready = self._ready, None
        if ready is None or ready.step != step or ready.of is not change:
            ready = self._checked(table, step, change)
        before = table.transaction_version(self._owner) or 0
        steps = dict.fromkeys((ANY, self._owner), step)
        properties = CommitProperties(
            app_transactions=[Transaction(name, step) for name, step in steps.items()]
        )
        if ready.files is not None:
            ready = self._commit_files(table, ready, steps)
        if ready is not None:
            self._write_rows(table, ready, properties, steps)
        if step // MERGED_EVERY > before // MERGED_EVERY:
            self._tidy(before, step)

    def _write_rows(
        self,
        table: Table,
        ready: DeltaWrite,
        properties: CommitProperties,
        steps: Mapping[str, int],
    ) -> None:
        """Write a step whose rows are on the driver."""
        marked = self._marking(table)
        if self._form.changes:
            self._append(table, ready.rows, properties)
        elif self.anew:
            rows = ready.rows if ready.by_key is None else ready.by_key.came
            self._append(table, rows, properties, instead=True)
        elif marked is not None:
            self._trying_again(table, lambda t: self._mark(marked, t, ready, steps))
        elif ready.by_key is not None:
            self._by_key(table, ready.by_key, properties)
        else:
            self._by_count(table, ready.rows, properties)

    def _checked(self, table: Table, step: int, change: ZSetSpark[Any]) -> DeltaWrite:
        """A step as it is written; raises `SinkError` if its rows or the table do not allow it."""
        may = self._may_be_by_tasks(table)
        large = large_change(change, self._log.uri) if may else None
        if large is not None:
            files = self._files_of_tasks(table, step, large)
            if files is not None:
                return DeltaWrite(step, change, self._form.schema.empty_table(), None, files)
        rows = change.to_arrow()
        check_years(rows, self._form.where)
        split = None
        if self._form.changes:
            rows = self._form.feed(rows, step)
        elif self._form.key:
            split = self._form.split(rows)
            if not self.anew:
                self._check_new(table, split.came)
        ready = DeltaWrite(step, change, rows, split)
        if (self.anew or ready.takes_away) and is_on(table.metadata().configuration, APPEND_ONLY):
            raise self._failure(_APPEND_ONLY)
        return ready

    def _may_be_by_tasks(self, table: Table) -> bool:
        """Whether tasks may write and replace files of the table without deltalake.

        Not of an append-only table: the driver checks whether a step deletes rows.
        """
        append_only = is_on(table.metadata().configuration, APPEND_ONLY)
        renames = any(
            UNSAFE_RENAME in name.lower() for name in (*(self._options or ()), *os.environ)
        )
        return not append_only and not renames and not why_not_written(table, self._options)

    def _files_of_tasks(
        self, table: Table, step: int, change: SparkRelation
    ) -> FilesOfTasks | None:
        """Let tasks rewrite the table with the rows after a step, or write the added rows.

        None if they cannot.
        """
        files: list[DataFile] = []
        if not self._form.changes:
            table_files = DataFiles(self._log, self._form.schema, self._form.order)
            with self._log.trying("its files are not known", "check the files of the table"):
                table_files.update(table)
            files = list(table_files.files.values())
        # Without a feed file, readers of the feed take added and removed files for the change.
        feed = bool(files) and not self.anew and is_on(table.metadata().configuration, FEED)
        share = DeltaShare(self._form, step, self._log.address, self._options, feed)
        place = self._log.address, self._options, self._form.schema
        old_files = [DeltaPart(*place, tuple(part)) for part in shares_of(files) if not self.anew]
        nbytes = UNPACKED * sum(f.action["size"] for f in files)
        if old_files and not is_rewritten(change, nbytes):
            return None
        what = f"{self._form.where}: step {step} could not be written by tasks"
        now = milliseconds()
        added = write_by_tasks(change, share, old_files, nbytes, what)
        if added is None:
            return None
        actions = [*(f.removed(now) for f in files), *added]
        return FilesOfTasks(table.version(), actions, not self._form.changes)

    def _tidy(self, before: int, step: int) -> None:
        """Merge small files, and with `vacuum` remove old ones; an error is a logged warning."""
        every, most = MERGED_EVERY, MERGED_BYTES
        while step // (8 * every) > before // (8 * every):
            every, most = 8 * every, 16 * most
        with self._log.warning("its small or old files could not be tidied"):
            table = self._log.newest()
            table.optimize.compact(target_size=most)
            marked = self._marking(table)
            if marked is not None:
                marked.renew(self._log.newest())
            if self._vacuum:
                self._log.newest().vacuum(dry_run=False)

    # -- the forms

    def _marking(self, table: Table) -> MarkedTable | None:
        """The writer of deletion vectors, if the table has them and no feature that forbids it."""
        if self._form.changes or why_merged(table, self._options):
            return None
        if self._marked is None:
            with self._log.trying("its files could not be reached", "check options="):
                self._marked = MarkedTable(
                    self._log, self._options, self._form.schema, self._form.order
                )
        return self._marked

    def _mark(
        self, marked: MarkedTable, table: Table, ready: DeltaWrite, steps: Mapping[str, int]
    ) -> None:
        """Write a step by deletion vectors."""
        split = ready.by_key
        if split is None:
            marked.by_count(table, to_table(ready.rows, self._form.columns), steps)
        else:
            parts = (split.came, split.changed, split.before, split.gone)
            marked.by_key(table, ByKey(*(to_table(p, self._form.columns) for p in parts)), steps)

    def _commit_files(
        self, table: Table, ready: DeltaWrite, steps: Mapping[str, int]
    ) -> DeltaWrite | None:
        """Commit the files of a step; compute the step again if the table has changed since.

        Returns the step if the driver must write it then.
        """
        left: list[DeltaWrite] = []

        def write(table: Table) -> None:
            now, files = ready, ready.files
            if files is not None and files.rewrites and files.version != table.version():
                now = self._checked(table, ready.step, ready.of)
            if now.files is None:
                left.append(now)
                return
            writer = TableWriter(self._log.uri, self._options, self._form.schema, self._form.order)
            writer.commit(self._log, table, "WRITE", now.files.actions, steps)

        self._trying_again(table, write)
        return left[0] if left else None

    def _trying_again(self, table: Table, write: Callable[[Table], None]) -> None:
        """Write a step; try again if another commit came first that changed no rows."""
        with self._writing("a step could not be written"):
            for attempt in range(1, TRIES + 1):
                try:
                    return write(table)
                except CommitFailedError:
                    version, table = table.version(), self._log.newest()
                    others = any(c.changes_rows for c in self._log.back_to(version))
                    if others or attempt == TRIES:
                        raise

    def _append(
        self,
        table: Table,
        rows: pa.Table,
        properties: CommitProperties,
        *,
        instead: bool = False,
    ) -> None:
        """Append rows to the table, or with `instead` replace all its rows by them."""
        data = self._form.in_table(rows)
        mode: Literal["append", "overwrite"] = "overwrite" if instead else "append"
        with self._writing("a step could not be appended"):
            write_deltalake(table, data, mode=mode, commit_properties=properties)

    def _by_key(self, table: Table, split: ByKey, properties: CommitProperties) -> None:
        if not split.changed.num_rows and not split.gone.num_rows:
            self._append(table, split.came, properties)
            return
        names = self._form.schema.names
        mark = "_gone_"
        while mark in names:
            mark += "_"
        parts = [(split.came, False), (split.changed, False), (split.gone, True)]
        rows = pa.concat_tables(
            rows.append_column(mark, pa.repeat(pa.scalar(deleted), rows.num_rows))
            for rows, deleted in parts
        )
        columns = {quoted(n): f"s.{quoted(n)}" for n in names}
        with self._writing("a step could not be merged"):
            (
                table.merge(
                    to_table(rows, self._form.columns),
                    self._same(self._form.key),
                    source_alias="s",
                    target_alias="t",
                    commit_properties=properties,
                )
                .when_matched_delete(f"s.{mark}")
                .when_matched_update(columns)
                .when_not_matched_insert(columns, f"NOT s.{mark}")
                .execute()
            )

    def _by_count(self, table: Table, change: pa.Table, properties: CommitProperties) -> None:
        columns = {quoted(n): f"s.{quoted(n)}" for n in self._form.schema.names}
        total = f"t.{COUNT} + s.{COUNT}"
        with self._writing("a step could not be merged"):
            (
                table.merge(
                    to_table(change, self._form.columns),
                    self._same(self._form.columns.names),
                    source_alias="s",
                    target_alias="t",
                    commit_properties=properties,
                )
                .when_matched_delete(f"{total} = 0")
                .when_matched_update({COUNT: total})
                .when_not_matched_insert(columns)
                .execute()
            )

    def _same(self, fields: Sequence[str]) -> str:
        """The SQL condition that rows of the table and of the step are equal in some fields."""
        conditions = []
        for field in map(self._in_table, fields):
            name = quoted(field.name)
            equal = "IS NOT DISTINCT FROM" if field.nullable else "="
            conditions.append(f"(t.{name} {equal} s.{name})")
        return " AND ".join(conditions)

    def _in_table(self, name: str) -> pa.Field[Any]:
        """The table's column of a field."""
        return as_in_table(self._form.columns).field(self._form.columns.get_field_index(name))

    def _check_new(self, table: Table, came: pa.Table) -> None:
        """Raise `SinkError` if the table has the key of a new row: the key is not unique."""
        if not came.num_rows:
            return
        keys = came.select(list(self._form.key))
        names = [self._in_table(n).name for n in self._form.key]
        marked = self._marking(table)
        with self._log.trying("its keys could not be read", "check the files of the table"):
            if marked is None:
                rows = with_one_of(table, keys.column(0).unique(), names)
            else:
                rows = marked.find(table, to_table(keys, self._form.columns))
        rows = rows.rename_columns(list(self._form.key))
        double = first_in_both(keys, rows.cast(keys.schema), self._form.key)
        if double is not None:
            raise not_unique(self._form.where, self._form.key, double)

    # -- checks

    def _check_reserved(self) -> None:
        """Refuse names that deltalake uses for its own columns when it merges rows."""
        wrong = [n for n in self._form.schema.names if n.lower().startswith((*FEED_COLUMNS, _OWN))]
        if wrong and not self._form.changes:
            raise self._failure(
                f"deltalake has the names {', '.join(wrong)} for columns of its own when it merges "
                "rows; rename the field, or give its column another name: columns={field: name}"
            )

    def _check_types(self) -> None:
        for path, t in parts_of(as_in_table(self._form.columns)):
            if pa.types.is_duration(t):
                raise self._failure(f"column {path}: Delta has no durations; make it a number")
            if isinstance(t, pa.StructType) and not t.num_fields:
                raise self._failure(f"column {path}: Delta has no structs without fields")
        for field in self._form.columns:
            if self._form.changes or (self._form.key and field.name not in self._form.key):
                continue
            if pa.types.is_nested(field.type) or pa.types.is_floating(field.type):
                raise self._failure(
                    f"column {field.name} is {field.type}, by which rows cannot be found again; "
                    "give other columns that tell the rows apart as key=…, make it a Decimal or a "
                    "text in the view, or write changes=True"
                )

    def _check_there(self) -> None:
        """Refuse an existing table of another owner, with other columns or unfit features."""
        remedy = f"give a new path, or {REMOVED}"
        check_same(self._log.schema(), self._form.schema, self._form.where, remedy)
        table = self._log.newest()
        self._check_owner(table)
        why = why_merged(table, self._options) if self._vectors else ""
        if why:
            raise self._failure(
                f"rows cannot be marked in deletion vectors: {why}; or leave out "
                "deletion_vectors=True, and steps are merged"
            )

    def _check_owner(self, table: Table) -> None:
        """Refuse a table with rows that this owner did not write."""
        with self._log.trying("its steps could not be read", "check the files of the table"):
            mine = table.transaction_version(self._owner)
            last = table.transaction_version(ANY)
        if mine is None and last is not None:
            raise self._failure(
                f"another pipeline or view writes it, and has written step {last}, or this "
                "pipeline has lost its state; give another path, or delete the table to write it "
                "again"
            )
        if mine != last:
            raise self._failure(
                f"another pipeline has written step {last} since step {mine} of this one: stop "
                "one of them, delete the table, and start with a new store"
            )
        foreign: int | None = None
        for commit in self._log.back_to(self._seen):
            if mine is not None and commit.steps.get(self._owner) == mine:
                if foreign is not None and self._same_files(table, commit.version):
                    foreign = None
                break
            if commit.changes_rows:
                foreign = commit.version
        if foreign is not None and mine is None:
            raise self._failure(
                "it has rows that no pipeline wrote; give a path where no table is, or an empty one"
            )
        if foreign is not None and not self.anew:
            raise self._failure(
                f"somebody else has changed its rows in version {foreign}; nobody else may write "
                f"a table that a pipeline writes: restore version {foreign - 1}, and run again; "
                f"or {REFRESHED if self.anew is False else REMOVED}"
            )
        if foreign is None:
            self._seen = table.version()

    def _same_files(self, table: Table, version: int) -> bool:
        """Whether the table has the same files as at a version, as after RESTORE."""
        return set(table.file_uris()) == set(self._log.at(version).file_uris())

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            with self._log.trying(what, KEPT):
                yield
        except SinkError as e:
            if not isinstance(e.__cause__, CommitFailedError):
                raise
            if "append-only" in str(e.__cause__):
                raise self._failure(f"{what}: {_APPEND_ONLY}") from e.__cause__
            raise self._failure(
                f"{what}, because somebody else wrote it at the same time: "
                f"{e.__cause__}; one pipeline writes a table: stop the other"
            ) from e.__cause__

    def _failure(self, reason: str) -> SinkError:
        return SinkError(f"Delta table {self._log.uri}: {reason}")
