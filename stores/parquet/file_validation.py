"""Compares a Parquet file with its description, before and after its rows are decoded.

Files may be damaged or swapped: a footer names its file and its register.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from stepping_spark.relations.hashing import Hashes
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import Optional
from stores.base import decoded
from stores.parquet.manifest import File

GROUP_ROWS = 1 << 11
"""The rows of a row group: the least that a lookup reads from a large file."""

GROUP_BYTES = 1 << 25
"""The most memory that the rows of a row group take, unless it has a single row."""

_KEY = b"stepping_spark"  # in a footer


class _Footer(Struct, frozen=True):
    file: str
    of: str


class Damaged(Exception):
    """A file that is missing, or is not the file that was written."""


def place_column(schema: Schema) -> str:
    """A name for the column of places that the schema does not use."""
    name = "_place_"
    while name in (n.lower() for n, _ in schema.all):
        name += "_"
    return name


@dataclass(frozen=True)
class Content:
    """The content of the files of a register or an output. Files of a register have places."""

    of: str
    schema: Schema
    places: bool

    @cached_property
    def place(self) -> str | None:
        """The name of the column of places."""
        return place_column(self.schema) if self.places else None

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns."""
        schema = self.schema.arrow
        return schema.append(pa.field(self.place, pa.uint64())) if self.place else schema

    def footer(self, name: str) -> dict[str, str]:
        """The footer of a file."""
        return {_KEY.decode(): json.dumps({"file": name, "of": self.of})}


def check_file(f: File, metadata: pq.FileMetaData) -> None:
    """Raise `Damaged` for another file, or one with other rows than were written."""
    identity = _footer(f, metadata)
    if identity and identity[0] != f.name:
        raise Damaged(f"{f.name} has the content of another file, {identity[0]}")
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    for count in {metadata.num_rows, sum(rows)} - {f.rows}:
        raise Damaged(f"{f.name} has {count:,} rows, and was written with {f.rows:,}")
    odd = next((i for i, n in enumerate(rows) if not 0 < n <= GROUP_ROWS), None)
    if odd is not None:
        raise Damaged(
            f"{f.name} has {rows[odd]:,} rows in row group {odd}, and one has 1 to {GROUP_ROWS:,}"
        )


def check_content(f: File, opened: pq.ParquetFile, content: Content) -> None:
    """Raise `Damaged` for a file of another register, or with other columns."""
    identity = _footer(f, opened.metadata)
    if identity and identity[1] != content.of:
        raise Damaged(f"{f.name} is a file of {identity[1]}, and not of {content.of}")
    columns = opened.schema_arrow.remove_metadata()
    if columns != content.arrow:
        raise Damaged(
            f"{f.name} has the columns {_columns(columns)}, and was written with "
            f"{_columns(content.arrow)}"
        )


def _footer(f: File, metadata: pq.FileMetaData) -> tuple[str, str] | None:
    """The name and the content of a file, from its footer; None in files of old versions."""
    text = (metadata.metadata or {}).get(_KEY)
    if text is None:
        return None
    try:
        footer = decoded(text, _Footer)
        return footer.file, footer.of
    except ValueError as e:
        raise Damaged(f"{f.name} has a footer that cannot be read: {e}") from None


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


# -- reading


def opened_file(source: pa.NativeFile, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """An open file; reads verify the checksums of its pages."""
    return pq.ParquetFile(source, metadata=metadata, page_checksum_verification=True)


def read_rows(
    source: pa.NativeFile,
    f: File,
    groups: Sequence[int] | None,
    metadata: pq.FileMetaData | None,
    content: Content,
) -> pa.Table:
    """The rows of some row groups of a file, or of all; `metadata` is given if it is known."""
    opened = opened_file(source, metadata)
    if metadata is None:
        check_file(f, opened.metadata)
    check_content(f, opened, content)
    table = opened.read_row_groups(list(range(opened.num_row_groups) if groups is None else groups))
    table.validate(full=True)
    never = [n for n, t in content.schema.all if not isinstance(t, Optional)]
    for name in [*never, *filter(None, [content.place])]:
        if nulls := table.column(name).null_count:
            raise Damaged(f"{f.name} has {nulls:,} rows with NULL as {name}")
    return table


def check_places(f: File, places: Hashes, first: int, last: int) -> None:
    """Raise `Damaged` if the rows of a row group are not in order."""
    if (int(places[0]), int(places[-1])) != (first, last) or (places[1:] < places[:-1]).any():
        raise Damaged(
            f"{f.name} has rows that are not in order of their key, from the place {first} to "
            f"{last}, as it was written"
        )


def bounds_of(f: File, metadata: pq.FileMetaData) -> tuple[Hashes, Hashes]:
    """The least and the greatest place of each row group. Raises `Damaged` for wrong ones.

    They come from the statistics of the last column, the column of places.
    """
    ends = np.zeros(2 * metadata.num_row_groups, np.uint64)
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        statistics = group.column(group.num_columns - 1).statistics
        if (
            statistics is None
            or not isinstance(statistics.min, int)
            or not isinstance(statistics.max, int)
        ):
            raise Damaged(f"{f.name} does not say which places its row group {i} has")
        ends[2 * i], ends[2 * i + 1] = statistics.min, statistics.max
    if (int(ends[0]), int(ends[-1])) != (f.first, f.last) or (ends[1:] < ends[:-1]).any():
        raise Damaged(
            f"{f.name} has row groups that are not in order from the place {f.first} to {f.last}, "
            "as it was written"
        )
    return ends[::2].copy(), ends[1::2].copy()
