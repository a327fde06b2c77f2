"""Steps that mark rows of a Delta table as gone, in deletion vectors, and write only new rows.

A merge writes each file anew that has one of the rows, so that ten rows of millions cost megabytes.
Here a step is one commit with the new rows in a small file, the places of the old ones, and what
changed, for readers of the change feed. The protocol: "Deletion Vectors" and "Add CDC File" of
https://github.com/delta-io/delta/blob/master/PROTOCOL.md. deltalake reads all of it and writes none
of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute
from deltalake import DeltaTable as Table

from stepping_spark.pipeline.changes import ByKey
from stepping_spark.pipeline.delta.files import DataFiles, content
from stepping_spark.pipeline.delta.log import FEED, DeltaLog, is_on
from stepping_spark.pipeline.delta.writing import (
    FILE_ROWS,
    TableWriter,
    milliseconds,
    why_not_written,
)
from stepping_spark.rows.schema import COUNT

pc: Any = pyarrow.compute

VECTORS = "delta.enableDeletionVectors"

MOST_GONE = 1 << 14
"""Rows of a file that are gone: with more, or a quarter of it, the rest is written anew."""


def why_merged(table: Table, options: Mapping[str, str] | None) -> str:
    """Why steps of a table are not marked here, but merged by deltalake; empty if they are."""
    features = table.protocol().writer_features or ()
    if not is_on(table.metadata().configuration, VECTORS) or "deletionVectors" not in features:
        return f"{VECTORS} is not set: set it to true (ALTER TABLE … SET TBLPROPERTIES)"
    return why_not_written(table, options)


@dataclass(frozen=True)
class _Change:
    """What a step does: the keys of old rows, and what the feed says; new rows are a part of it."""

    old: pa.Table
    rows: pa.Table
    feed: tuple[tuple[str, pa.Table], ...]


class MarkedTable:
    """Writes the steps of a table by deletion vectors.

    `columns` are those of the table. State: for each data file its action in the log, the footer,
    and of small ones the keys. A step reads one row group of each file that may have a key, of
    `GROUP_ROWS` rows, and writes its own rows, those before it, and the places of all rows that are
    gone of the files that it touches.
    """

    def __init__(
        self,
        log: DeltaLog,
        options: Mapping[str, str] | None,
        columns: pa.Schema,
        key: Sequence[str],
    ) -> None:
        self._log = log
        self._columns = columns
        self._key = list(key)
        self._read = self._columns_of([*key, *(n for n in columns.names if n == COUNT)])
        self._files = DataFiles(log, self._read, key)
        self._writer = TableWriter(log.uri, options, columns, key)

    def find(self, table: Table, keys: pa.Table) -> pa.Table:
        """The rows that have one of the keys: the columns of the key, and the count."""
        self._files.update(table)
        found = [rows for _, _, rows in self._files.find(keys)]
        return pa.concat_tables([self._read.empty_table(), *found])

    def by_key(self, table: Table, found: ByKey, steps: Mapping[str, int]) -> None:
        """Write a step with one row for each key."""
        feed = (
            ("insert", found.came),
            ("update_preimage", found.before),
            ("update_postimage", found.changed),
            ("delete", found.gone),
        )
        old = pa.concat_tables([found.before, found.gone]).select(self._key)
        rows = pa.concat_tables([found.came, found.changed])
        self._write(table, _Change(old, rows, feed), steps)

    def by_count(self, table: Table, change: pa.Table, steps: Mapping[str, int]) -> None:
        """Write a step whose rows have counts that are added to those of the table."""
        keys = change.select(self._key)
        before = self.find(table, keys)
        names = self._read.names
        both = pa.concat_tables([before, change.select(names).cast(self._read)])
        after = both.group_by(self._key, use_threads=False).aggregate([(COUNT, "sum")])
        after = after.rename_columns(names)
        after = after.filter(pc.not_equal(after.column(COUNT), 0))
        feed = (("delete", before), ("insert", after))  # a count may be that of another row
        self._write(table, _Change(keys, after, feed), steps)

    def _write(self, table: Table, change: _Change, steps: Mapping[str, int]) -> None:
        """One commit; where somebody else was faster, deltalake's error."""
        self._files.update(table)
        now = milliseconds()
        marked = self._files.find(change.old)
        actions: list[dict[str, Any]] = []
        for f, places, _ in marked:
            actions += [f.removed(now), f.without(places).added]
        actions += self._writer.put(change.rows)
        if marked and is_on(table.metadata().configuration, FEED):
            actions.append(self._writer.put_feed(change.feed))
        self._writer.commit(self._log, table, "MERGE" if marked else "WRITE", actions, steps)

    def renew(self, table: Table) -> None:
        """Write the files anew of which many rows are gone."""
        self._files.update(table)
        now = milliseconds()
        actions = []
        for f in self._files.files.values():
            if len(f.gone) > min(MOST_GONE, (f.rows or FILE_ROWS) // 4):
                actions.append(f.removed(now, changes=False))
                for action in self._writer.put(content(self._log.files, f)):
                    actions.append({"add": {**action["add"], "dataChange": False}})
        if actions:
            self._writer.commit(self._log, table, "OPTIMIZE", actions)

    def _columns_of(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self._columns.field(n) for n in names])
