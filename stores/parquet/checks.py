"""Compares a Parquet file with its description, before and after its rows are decoded.

A state may have been edited, or its files put in each other's place. A footer says whose file it
is. How much memory rows take is known before they take it: a file of a kilobyte can say that it has
a billion rows, or one long text in each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stepping_spark.relations.hashes import Hashes
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import Optional
from stores.checked import parsed
from stores.parquet.manifest import File
from stores.parquet.page_headers import place_of, values_of

GROUP_ROWS = 1 << 13
"""The rows of a row group: what is read at least to find a key in a large file."""

GROUP_BYTES = 1 << 25
"""The memory that the rows of a row group take, if they are more than one."""

MOST_DECODED = 1 << 27
"""The memory that the rows of a row group may take, or `RATIO` times their bytes in the file."""

RATIO = 64
SNAPPY = 22
"""Pages are compressed by snappy, which makes nothing smaller than by this factor."""

MOST_LISTED = 100_000
"""Row groups and columns that a footer may list."""

_KEY = b"stepping_spark"  # in a footer
_BITS = {"BOOLEAN": 1, "INT32": 32, "INT64": 64, "INT96": 64, "FLOAT": 32, "DOUBLE": 64} | {
    "BYTE_ARRAY": 32,  # and its bytes
    "FIXED_LEN_BYTE_ARRAY": 128,
}


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
    said = _footer(f, metadata)
    if said and said[0] != f.name:
        raise Damaged(f"{f.name} has the content of another file, {said[0]}")
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    for found in {metadata.num_rows, sum(rows)} - {f.rows}:
        raise Damaged(f"{f.name} has {found:,} rows, and was written with {f.rows:,}")
    odd = next((i for i, n in enumerate(rows) if not 0 < n <= GROUP_ROWS), None)
    if odd is not None:
        raise Damaged(
            f"{f.name} has {rows[odd]:,} rows in row group {odd}, and one has 1 to {GROUP_ROWS:,}"
        )


def check_content(f: File, opened: pq.ParquetFile, content: Content) -> None:
    """Raise `Damaged` for a file of another register, or with other columns."""
    said = _footer(f, opened.metadata)
    if said and said[1] != content.of:
        raise Damaged(f"{f.name} is a file of {said[1]}, and not of {content.of}")
    found = opened.schema_arrow.remove_metadata()
    if found != content.arrow:
        raise Damaged(
            f"{f.name} has the columns {_columns(found)}, and was written with "
            f"{_columns(content.arrow)}"
        )


def _footer(f: File, metadata: pq.FileMetaData) -> tuple[str, str] | None:
    """The name and the content of a file, from its footer; None in files of old versions."""
    said = (metadata.metadata or {}).get(_KEY)
    if said is None:
        return None
    try:
        part = parsed(said)
        return part["file"].text(), part["of"].text()
    except ValueError as e:
        raise Damaged(f"{f.name} has a footer that cannot be read: {e}") from None


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


# -- reading


def opened_file(
    source: pa.NativeFile,
    metadata: pq.FileMetaData | None = None,
    dictionaries: Sequence[str] = (),
) -> pq.ParquetFile:
    """An open file that reads these columns as dictionaries."""
    return pq.ParquetFile(
        source,
        metadata=metadata,
        read_dictionary=list(dictionaries),
        page_checksum_verification=True,
        thrift_container_size_limit=MOST_LISTED,
    )


def read_rows(
    source: pa.NativeFile,
    f: File,
    groups: Sequence[int] | None,
    metadata: pq.FileMetaData | None,
    content: Content,
) -> pa.Table:
    """The rows of these row groups of a file, or of all; its metadata, where it is known."""
    opened = opened_file(source, metadata)
    if metadata is None:
        check_file(f, opened.metadata)
    check_content(f, opened, content)
    wanted = list(range(opened.num_row_groups) if groups is None else groups)
    _check_places_in_file(f, opened.metadata, wanted)
    long = _long_columns(f, opened.metadata, wanted)
    _check_lists(f, opened.metadata, wanted, source)
    if long:
        opened = opened_file(source, opened.metadata, long)
    table = opened.read_row_groups(wanted)
    if long:
        _check_decoded(f, table, opened.metadata, wanted)
        table = table.cast(content.arrow)
    _check_rows(f, table, content)
    return table


# -- how much memory rows take


def _check_places_in_file(f: File, metadata: pq.FileMetaData, groups: Iterable[int]) -> None:
    """Raise `Damaged` if the footer places columns outside of the file."""
    for i, j in product(groups, range(metadata.num_columns)):
        column = metadata.row_group(i).column(j)
        start, size = place_of(column)
        if start < 0 or size < 0 or start + size > f.nbytes:
            raise Damaged(
                f"{f.name} has {f.nbytes:,} bytes, and its footer says that those of "
                f"{column.path_in_schema} of row group {i} are {size:,} from byte {start:,}"
            )


def _long_columns(f: File, metadata: pq.FileMetaData, groups: Iterable[int]) -> list[str]:
    """The columns that may be large in memory and are small in the file: read as dictionaries.

    Raises `Damaged` if the sizes in the file are too large already.
    """
    found: dict[str, None] = {}
    for i in groups:
        group = metadata.row_group(i)
        columns = [group.column(j) for j in range(group.num_columns)]
        most = _most(f, columns)
        for c in columns:
            if c.compression != "SNAPPY":
                raise Damaged(f"{f.name} is compressed by {c.compression}, and not by SNAPPY")
            worst = c.num_values * c.total_compressed_size * SNAPPY
            if c.physical_type == "BYTE_ARRAY" and worst > most:
                found[c.path_in_schema] = None
        _check_size(f, i, sum(c.num_values * _BITS[c.physical_type] for c in columns) // 8, most)
    return list(found)


def _check_lists(
    f: File, metadata: pq.FileMetaData, groups: Iterable[int], source: pa.NativeFile
) -> None:
    """Raise `Damaged` if pages of lists and the footer have different numbers of values."""
    schema = metadata.schema
    lists = [j for j in range(metadata.num_columns) if schema.column(j).max_repetition_level]
    for i, j in product(groups, lists):
        column = metadata.row_group(i).column(j)
        found = values_of(source, column)
        if found != column.num_values:
            raise Damaged(
                f"{f.name} has pages of {found:,} values in {column.path_in_schema} of row group "
                f"{i}, and its footer says {column.num_values:,}"
            )


def _check_decoded(
    f: File, table: pa.Table, metadata: pq.FileMetaData, groups: Sequence[int]
) -> None:
    """Raise `Damaged` if texts that were read as dictionaries are too large to decode."""
    begin = 0
    for i in groups:
        group = metadata.row_group(i)
        rows = table.slice(begin, group.num_rows)
        begin += group.num_rows
        size = sum(_text_bytes(chunk) for column in rows.columns for chunk in column.chunks)
        _check_size(f, i, size, _most(f, [group.column(j) for j in range(group.num_columns)]))


def _most(f: File, columns: Sequence[Any]) -> int:
    sizes: list[int] = [c.total_compressed_size for c in columns]
    return max(MOST_DECODED, RATIO * min(sum(sizes), f.nbytes))


def _check_size(f: File, group: int, size: int, most: int) -> None:
    if size > most:
        raise Damaged(
            f"{f.name} would take {size:,} bytes of memory for row group {group}, of {most:,} "
            "at most for what it has in the file"
        )


def _text_bytes(array: Any) -> int:
    """The bytes of the texts of an array of dictionaries, or of arrays that have some in them."""
    if pa.types.is_dictionary(array.type):
        lengths: Any = pc.binary_length(array.dictionary)
        return int(pc.sum(pc.take(lengths, array.indices)).as_py() or 0)
    if pa.types.is_list(array.type):
        return _text_bytes(array.flatten())
    if pa.types.is_struct(array.type):
        return sum(map(_text_bytes, array.flatten()))
    return 0


# -- rows


def _check_rows(f: File, table: pa.Table, content: Content) -> None:
    """Raise `Damaged` for values outside of their type, and for NULL in a type without it."""
    table.validate(full=True)
    never = [n for n, t in content.schema.all if not isinstance(t, Optional)]
    for name in [*never, *filter(None, [content.place])]:
        if nulls := table.column(name).null_count:
            raise Damaged(f"{f.name} has {nulls:,} rows with NULL as {name}")


def check_places(f: File, places: Hashes, first: int, last: int) -> None:
    """Raise `Damaged` if the rows of a row group are not in order."""
    if (int(places[0]), int(places[-1])) != (first, last) or (places[1:] < places[:-1]).any():
        raise Damaged(
            f"{f.name} has rows that are not in order of their key, from the place {first} to "
            f"{last}, as it was written"
        )


def bounds_of(f: File, metadata: pq.FileMetaData) -> tuple[Hashes, Hashes]:
    """The least and the greatest place of each row group; a `Damaged` where they are in no order.

    What the statistics of the last column say, which is that of places.
    """
    ends = np.zeros(2 * metadata.num_row_groups, np.uint64)
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        said = group.column(group.num_columns - 1).statistics
        if said is None or not isinstance(said.min, int) or not isinstance(said.max, int):
            raise Damaged(f"{f.name} does not say which places its row group {i} has")
        ends[2 * i], ends[2 * i + 1] = said.min, said.max
    if (int(ends[0]), int(ends[-1])) != (f.first, f.last) or (ends[1:] < ends[:-1]).any():
        raise Damaged(
            f"{f.name} has row groups that are not in order from the place {f.first} to {f.last}, "
            "as it was written"
        )
    return ends[::2].copy(), ends[1::2].copy()
