"""A Delta table as a sink: the rows of a view, or its changes, a commit for each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake import DeltaTable as Table
from deltalake.exceptions import CommitFailedError, DeltaError

from stepping_spark.errors import SinkError
from stepping_spark.pipeline.changes import (
    by_key,
    check_key,
    feed_of,
    feed_schema,
    first_in_both,
    not_unique,
)
from stepping_spark.pipeline.delta.log import Log
from stepping_spark.pipeline.delta.reading import quoted
from stepping_spark.pipeline.delta.versions import FEED
from stepping_spark.pipeline.remedies import KEPT
from stepping_spark.rows.schema import COUNT
from stepping_spark.zsets.spark import ZSetSpark

ANY = "stepping_spark"
"""The application of every pipeline: two that write at the same moment are in each other's way."""

GONE = "_gone_"

MERGED_EVERY = 64
"""Steps after which small files are merged: each step writes some, and a step by key reads keys."""


class DeltaSink:
    """Writes the steps of one view.

    Each commit says its step twice: as that of this owner, and as that of any pipeline. So a table
    of another owner is known, and of two that write at once Delta lets one through.
    """

    def __init__(
        self,
        uri: str,
        options: Mapping[str, str] | None,
        key: Sequence[str],
        *,
        changes: bool,
    ) -> None:
        self._log = Log(uri, options, self._failure)
        self._options = dict(options) if options else None
        self._key = tuple(key)
        self._feed = changes
        self._columns = pa.schema([])
        self._owner = ""
        self._written = 0  # steps, by this process
        self._seen = -1  # the version up to which nobody else wrote rows
        self._where = f"Delta table {uri}"

    def open(self, columns: pa.Schema, owner: str) -> None:
        """Make the table, or see that it is this owner's."""
        self._prepare(columns, owner)
        if not self._log.exists():
            with self._writing("it could not be made"):
                Table.create(
                    self._log.uri,
                    self._schema,
                    configuration={FEED: "true"},
                    storage_options=self._options,
                )
        self._check_schema()
        self._check_owner(self._log.newest())

    def look(self, columns: pa.Schema, owner: str) -> int:
        """Refuse what `open` refuses, and make nothing; gives the last step of the owner."""
        self._prepare(columns, owner)
        if not self._log.exists():
            return 0
        self._check_schema()
        self._check_owner(self._log.newest())
        return self.last_step()

    def _prepare(self, columns: pa.Schema, owner: str) -> None:
        check_key(self._key, columns, self._where)
        self._columns, self._owner = columns, f"{ANY} {owner}"
        self._check_types()

    def close(self) -> None:
        """Nothing to do."""

    def last_step(self) -> int:
        """The last step of this owner."""
        return self._log.newest().transaction_version(self._owner) or 0

    def write(self, step: int, change: ZSetSpark[Any]) -> None:
        """Write the rows of a step, with its number."""
        table = self._log.newest()
        self._check_owner(table)
        rows = change.to_arrow()
        properties = CommitProperties(
            app_transactions=[Transaction(name, step) for name in (ANY, self._owner)]
        )
        if self._feed:
            self._append(table, feed_of(rows, step, self._key, self._where), properties)
        elif self._key:
            self._by_key(table, rows, properties)
        else:
            self._by_count(table, rows, properties)
        self._written += 1
        if self._written % MERGED_EVERY == 0:
            self._merge_files()

    def _merge_files(self) -> None:
        """Merge small files, which changes no rows; if somebody else does it just now, leave it."""
        with suppress(DeltaError, OSError):
            self._log.newest().optimize.compact()

    # -- the three forms

    def _append(self, table: Table, rows: pa.Table, properties: CommitProperties) -> None:
        with self._writing("a step could not be appended"):
            write_deltalake(
                table, rows.cast(self._schema), mode="append", commit_properties=properties
            )

    def _by_key(self, table: Table, change: pa.Table, properties: CommitProperties) -> None:
        found = by_key(change, self._key, self._where)
        self._check_new(table, found.came)
        if not found.changed.num_rows and not found.gone.num_rows:
            self._append(table, found.came, properties)
            return
        parts = [(found.came, False), (found.changed, False), (found.gone, True)]
        rows = pa.concat_tables(
            rows.append_column(GONE, pa.repeat(pa.scalar(gone), rows.num_rows))
            for rows, gone in parts
        )
        columns = {quoted(n): f"s.{quoted(n)}" for n in self._columns.names}
        with self._writing("a step could not be merged"):
            (
                table.merge(
                    rows,
                    _same(self._key, self._columns),
                    source_alias="s",
                    target_alias="t",
                    commit_properties=properties,
                )
                .when_matched_delete(f"s.{GONE}")
                .when_matched_update(columns)
                .when_not_matched_insert(columns, f"NOT s.{GONE}")
                .execute()
            )

    def _by_count(self, table: Table, change: pa.Table, properties: CommitProperties) -> None:
        columns = {quoted(n): f"s.{quoted(n)}" for n in self._schema.names}
        total = f"t.{COUNT} + s.{COUNT}"
        with self._writing("a step could not be merged"):
            (
                table.merge(
                    change,
                    _same(self._columns.names, self._columns),
                    source_alias="s",
                    target_alias="t",
                    commit_properties=properties,
                )
                .when_matched_delete(f"{total} = 0")
                .when_matched_update({COUNT: total})
                .when_not_matched_insert(columns)
                .execute()
            )

    def _check_new(self, table: Table, came: pa.Table) -> None:
        """See that the keys of new rows are not there: then the view has two rows of one."""
        first = self._key[0]
        if not came.num_rows:
            return
        wanted = came.select(list(self._key))
        with self._log.trying("its keys could not be read", "check the files of the table"):
            found = _with_one_of(table, wanted.column(first).unique(), first, list(self._key))
        double = first_in_both(wanted, found.cast(wanted.schema), self._key)
        if double is not None:
            raise not_unique(self._where, self._key, double)

    # -- what is checked

    @property
    def _schema(self) -> pa.Schema:
        if self._feed:
            return feed_schema(self._columns)
        if self._key:
            return self._columns
        return pa.schema([*self._columns, pa.field(COUNT, pa.int64(), nullable=False)])

    def _check_types(self) -> None:
        for field in self._columns:
            if pa.types.is_duration(field.type):
                raise self._failure(
                    f"column {field.name}: Delta has no durations; make it a number"
                )
            if self._feed or (self._key and field.name not in self._key):
                continue
            if pa.types.is_nested(field.type) or pa.types.is_floating(field.type):
                raise self._failure(
                    f"column {field.name} is {field.type}, by which rows cannot be found again; "
                    "give other columns that tell the rows apart as key=…, or write "
                    "changes=True"
                )

    def _check_schema(self) -> None:
        there = self._log.schema()
        if set(there.names) != set(self._schema.names):
            raise self._failure(
                f"the table has the columns {', '.join(there.names)}, and the view is written as "
                f"{', '.join(self._schema.names)}; give a new path"
            )

    def _check_owner(self, table: Table) -> None:
        """Refuse a table with rows that this owner did not write."""
        with self._log.trying("its steps could not be read", "check the files of the table"):
            mine = table.transaction_version(self._owner)
            last = table.transaction_version(ANY)
        if mine is None and last is not None:
            raise self._failure(
                f"another pipeline writes it, and has written step {last}, or this pipeline has "
                "lost its state; give another path, or delete the table to write it again"
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
        if foreign is not None:
            raise self._failure(
                f"somebody else has changed its rows in version {foreign}; nobody else may write "
                f"a table that a pipeline writes: restore version {foreign - 1}, and run again; "
                "or delete it and start with a new store"
            )
        self._seen = table.version()

    def _same_files(self, table: Table, version: int) -> bool:
        """Whether the table has the rows of a version again, as after RESTORE."""
        return set(table.file_uris()) == set(self._log.at(version).file_uris())

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            with self._log.trying(what, KEPT):
                yield
        except SinkError as e:
            if isinstance(e.__cause__, CommitFailedError):
                raise self._failure(
                    f"{what}, because somebody else wrote it at the same time: "
                    f"{e.__cause__}; one pipeline writes a table: stop the other"
                ) from e.__cause__
            raise

    def _failure(self, said: str) -> SinkError:
        return SinkError(f"Delta table {self._log.uri}: {said}")


def _same(names: Sequence[str], columns: pa.Schema) -> str:
    """Whether a row of the table and one of the step are equal in some columns, in SQL."""
    return " AND ".join(
        f"(t.{quoted(n)} IS NOT DISTINCT FROM s.{quoted(n)})"
        if columns.field(n).nullable
        else f"(t.{quoted(n)} = s.{quoted(n)})"
        for n in names
    )


def _with_one_of(table: Table, values: Any, name: str, columns: list[str]) -> pa.Table:
    """These columns of the rows whose column `name` has one of the values.

    The bounds of files say which files are read. Within a file each value is cast before it is
    compared: a merge of deltalake writes text as `string_view`, and Arrow cannot compare text with
    bounds of that type.
    """
    rows = table.to_pyarrow_dataset()
    field = pa.dataset.field(name)
    files = rows.get_fragments(filter=field.isin(values))
    wanted = field.cast(values.type).isin(values)
    found = [f.to_table(schema=rows.schema, columns=columns, filter=wanted) for f in files]
    return pa.concat_tables([rows.schema.empty_table().select(columns), *found])
