"""A directory of Parquet files as a sink: the view after each step, or the changes of each step."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stepping_spark.base.errors import SinkError
from stepping_spark.pipeline.changes import STEP, TableForm, fields_of_key
from stepping_spark.pipeline.columns import check_names
from stepping_spark.pipeline.files.directory import FilesDirectory
from stepping_spark.relations.arrow import canonical, flat, row_ids
from stepping_spark.rows.names import as_in_table, to_table
from stepping_spark.rows.schema import CHANGE, COUNT
from stepping_spark.zsets.spark import ZSetSpark

KEPT = 2
"""The number of snapshots that stay, so that readers of the previous one can finish."""

_NAME = re.compile(r"step-(\d{10})-([0-9a-f]{12})\.parquet")


class FilesSink:
    """Writes a file for each step, which appears whole; its name has the step and the owner."""

    def __init__(self, path: str, key: tuple[str, ...], filesystem: Any, *, changes: bool) -> None:
        self._directory = FilesDirectory(path, filesystem, self._failure)
        self._form = TableForm(pa.schema([]), key, changes, f"directory {self._directory.shown}")
        self._owner = ""
        self._prepared: tuple[int, pa.Table] | None = None
        self.anew = None if changes else False

    def open(self, columns: pa.Schema, owner: str) -> None:
        """Create the directory, or check that it belongs to this owner."""
        self._get_ready(columns, owner)
        self._directory.make()
        self._steps()

    def look(self, columns: pa.Schema, owner: str) -> int:
        """Raise the errors of `open`, and create nothing; returns the owner's last step."""
        self._get_ready(columns, owner)
        return self.last_step() if self._directory.is_there() else 0

    def _get_ready(self, columns: pa.Schema, owner: str) -> None:
        form = self._form
        key = fields_of_key(form.key, columns, form.where)
        check_names(as_in_table(columns), (CHANGE, STEP) if form.changes else (), form.where)
        self._form = replace(form, columns=columns, key=key)
        self._prepared = None
        self._owner = hashlib.sha256(owner.encode()).hexdigest()[:12]

    def close(self) -> None:
        """Nothing to do."""

    def last_step(self) -> int:
        """The last step of this owner."""
        return max(self._steps(), default=0)

    def prepare(self, step: int, change: ZSetSpark[Any]) -> None:
        """Refuse a key that is not unique, and the deletion of a row that never existed."""
        self._prepared = step, self._file_of(step, change, self._steps())

    def write(self, step: int, change: ZSetSpark[Any]) -> None:
        """Write the step's file, and remove old snapshots."""
        steps = self._steps()
        prepared_step, table = self._prepared or (0, None)
        if prepared_step != step or table is None:
            table = self._file_of(step, change, steps)
        self._prepared = None
        self._directory.write(self._name(step), lambda file: pq.write_table(table, file))
        if not self._form.changes:
            for old in sorted(steps)[: 1 - KEPT]:
                self._directory.remove(self._name(old))

    def _file_of(self, step: int, change: ZSetSpark[Any], steps: list[int]) -> pa.Table:
        """The table in the step's file."""
        rows = change.to_arrow()
        if self._form.changes:
            return to_table(self._form.feed(rows, step), self._form.columns)
        last = 0 if self.anew else max(steps, default=0)
        return self._whole(last, to_table(rows, self._form.columns))

    def _whole(self, last: int, change: pa.Table) -> pa.Table:
        """All rows of the view after a change to those of the last step."""
        system, _ = self._directory.place
        columns = as_in_table(self._form.columns)
        rows = columns.empty_table()
        if last:
            path = self._directory.path_of(self._name(last))
            with self._directory.trying(f"{path} cannot be read", "restore the file"):
                rows = pq.read_table(path, filesystem=system).cast(columns)
        counts = np.concatenate([np.ones(rows.num_rows, np.int64), change.column(COUNT).to_numpy()])
        both = pa.concat_tables([rows, change.drop_columns([COUNT]).cast(columns)])
        ids = row_ids([c for name in both.schema.names for c in flat(canonical(both.column(name)))])
        _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        sums = np.zeros(len(first), np.int64)
        np.add.at(sums, inverse, counts)
        if (sums < 0).any():
            row = both.slice(int(first[np.flatnonzero(sums < 0)[0]]), 1).to_pylist()[0]
            raise self._failure(f"the view removes {row}, which it never had")
        table: Any = both
        whole: pa.Table = table.take(np.repeat(first, sums))
        return whole

    def _name(self, step: int) -> str:
        return f"step-{step:010d}-{self._owner}.parquet"

    def _steps(self) -> list[int]:
        """The steps with a file; raises `SinkError` for a file of another writer."""
        steps = []
        for file in self._directory.files():
            match = _NAME.fullmatch(file.name)
            if match is None or match[2] != self._owner:
                raise self._failure(
                    f"{file.name} is not of this pipeline; one pipeline writes a directory: give "
                    "it an empty one, or, if it takes over, remove its files and start "
                    "with a new store"
                )
            steps.append(int(match[1]))
        return steps

    def _failure(self, reason: str) -> SinkError:
        return SinkError(f"{self._form.where}: {reason}")
