"""Which files of an Iceberg table hold some keys, and what becomes of their rows."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyiceberg.expressions
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, Or
from pyiceberg.io.pyarrow import (
    ArrowScan,
    bin_pack_arrow_table,
    pyarrow_to_schema,
    schema_to_pyarrow,
    write_file,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, WriteTask

from stepping_spark.pipeline.changes import key_ids, ranges_of
from stepping_spark.pipeline.plain import plain_type

ex: Any = pyiceberg.expressions

FILE_BYTES = 32 << 20
"""How large a data file gets: a step rewrites the files that hold its keys."""

SMALL, MANY = FILE_BYTES // 32, 8
"""So many files that are smaller are merged, now and then."""


@dataclass
class Rewrite:
    """What a step does to a table: files that go, and rows that are written."""

    gone: list[DataFile] = field(default_factory=list)
    rows: list[pa.Table] = field(default_factory=list)


def arrow_of(table: Table) -> pa.Schema:
    """The columns of a table, without large types and views."""
    found = schema_to_pyarrow(table.schema(), include_field_ids=False)
    return pa.schema([f.with_type(plain_type(f.type)).remove_metadata() for f in found])


def holding(table: Table, keys: pa.Table) -> list[FileScanTask]:
    """The files that may hold rows with one of these keys, by the bounds of their columns."""
    parts = [part for name in keys.column_names if (part := _within(name, keys.column(name)))]
    condition = functools.reduce(And, parts) if parts else AlwaysTrue()
    return list(table.scan(row_filter=condition).plan_files())


def _within(name: str, values: Any) -> BooleanExpression | None:
    """A condition that holds for these values of a column; None: bounds say nothing of it."""
    t = values.type
    known = pa.types.is_integer(t) or pa.types.is_string(t) or pa.types.is_date(t)
    if not (known or pa.types.is_timestamp(t)) or values.null_count or not len(values):
        return None
    ranges: list[BooleanExpression] = [
        And(ex.GreaterThanOrEqual(name, least), ex.LessThanOrEqual(name, most))
        for least, most in ranges_of(values)
    ]
    return functools.reduce(Or, ranges)


def rows_in(table: Table, task: FileScanTask, columns: Sequence[str] = ()) -> pa.Table:
    """The rows of a file that are not deleted; of some columns, or of all."""
    wanted = table.schema().select(*columns) if columns else table.schema()
    found = ArrowScan(table.metadata, table.io, wanted, AlwaysTrue()).to_table([task])
    types = arrow_of(table)
    names = list(columns) or types.names
    return found.select(names).cast(pa.schema([types.field(types.names.index(n)) for n in names]))


def places(rows: pa.Table, keys: pa.Table) -> Any:
    """For each row the place of its key among some keys, or -1."""
    names = keys.column_names
    ids = key_ids(pa.concat_tables([rows.select(names).cast(keys.schema), keys]), names)
    mine, theirs = ids[: rows.num_rows], ids[rows.num_rows :]
    found = np.full(int(ids.max(initial=0)) + 1, -1, np.int64)
    found[theirs] = np.arange(len(theirs))
    return found[mine]


def written(table: Table, rows: pa.Table, order: Sequence[str]) -> Iterator[DataFile]:
    """Data files with these rows, in the order of some columns, so that files hold few keys."""
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


def small(tasks: Iterable[FileScanTask]) -> list[FileScanTask]:
    """The files that are better merged."""
    found = [task for task in tasks if task.file.file_size_in_bytes < SMALL]
    return found if len(found) >= MANY else []
