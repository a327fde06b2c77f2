"""What other writers do with Iceberg tables and pyiceberg only reads: compaction, position deletes.

Both are made of pyiceberg's parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _FastAppendFiles, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT, Record

# The numbers of these columns are Iceberg's own.
FIELDS: list[pa.Field[Any]] = [
    pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
    pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
]


def delete_positions(table: Table, positions: Mapping[str, Sequence[int]]) -> None:
    """Commit a file that says which rows of which data files are deleted."""
    pairs = sorted((path, n) for path, listed in positions.items() for n in listed)
    rows = [{"file_path": path, "pos": n} for path, n in pairs]
    _delete(table, pa.Table.from_pylist(rows, pa.schema(FIELDS)), DataFileContent.POSITION_DELETES)


def delete_equal(table: Table, rows: pa.Table) -> None:
    """Commit a file that says by their columns which rows are deleted."""
    _delete(table, rows, DataFileContent.EQUALITY_DELETES, [1])


def _delete(
    table: Table, rows: pa.Table, content: DataFileContent, columns: list[int] | None = None
) -> None:
    where = f"{table.location()}/data/deletes-{uuid4().hex}.parquet"
    local = Path(unquote(urlsplit(where).path))
    pq.write_table(rows, local)
    file = DataFile.from_args(
        content=content,
        file_path=where,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=local.stat().st_size,
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=columns,
        key_metadata=None,
    )
    with table.transaction() as transaction:
        deletes = _Deletes(Operation.DELETE, transaction, table.io)
        deletes.append_data_file(file)
        deletes.commit()


def compact(table: Table) -> None:
    """Rewrite all files as one, in a snapshot that says that no row has changed."""
    scan = table.refresh().scan()
    with table.transaction() as transaction:
        rewrite = _Rewrite(Operation.REPLACE, transaction, table.io)
        for file in _dataframe_to_data_files(table.metadata, scan.to_arrow(), table.io):
            rewrite.append_data_file(file)
        for task in scan.plan_files():
            rewrite.delete_data_file(task.file)
        rewrite.commit()


def files_of(table: Table) -> list[str]:
    """The paths of the data files of a table as it is now."""
    return [task.file.file_path for task in table.refresh().scan().plan_files()]


class _Manifest(ManifestWriterV2):
    """A manifest of files that delete."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Deletes(_FastAppendFiles):
    """A snapshot that adds files that delete."""

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        schema, output = self.schema(), self.new_manifest_output()
        return _Manifest(spec, schema, output, self._snapshot_id, self._compression)


class _Rewrite(_OverwriteFiles):
    """A snapshot that replaces files; pyiceberg has no summary for one."""

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        return Summary(Operation.REPLACE)
