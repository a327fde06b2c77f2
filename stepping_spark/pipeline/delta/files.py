"""The data files of a Delta table by its log: their rows, and the places of rows by their keys.

deltalake returns neither the places of rows nor the original actions of the log, and a writer of
deletion vectors needs both. Its change feed has wrong times for INT96: see `parquet_file`. The
protocol: "Action Reconciliation", "Add CDC File" and "Deletion Vectors" of
https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
"""

from __future__ import annotations

import base64
import json
import struct
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable as Table
from pyroaring import BitMap64

from stepping_spark.base.errors import SourceError
from stepping_spark.pipeline.changes import key_ids
from stepping_spark.pipeline.columns import parquet_file, plain
from stepping_spark.pipeline.delta.log import DeltaLog, Updates
from stepping_spark.rows.schema import CHANGE, COUNT
from stepping_spark.zsets.from_change_feed import counted_feed

pc: Any = pyarrow.compute

Places = npt.NDArray[np.int64]

GROUP_ROWS = 1 << 14
"""Rows of a row group: all of them are read to find one."""

SMALL_BYTES, SMALL_FILES = 1 << 20, 8
"""Bytes of a file below which it is small, and the most small files that are read at once."""

_MAGIC = struct.pack("<i", 1681511377)  # a bitmap in the portable form
# RFC 1924, which Python uses, and Z85, which Delta uses, differ only in their characters.
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _FROM_Z85 = str.maketrans(_B85, _Z85), str.maketrans(_Z85, _B85)


def vector_of(deleted: BitMap64) -> dict[str, Any]:
    """The deletion vector of the places of deleted rows, stored inline in the log."""
    data = _MAGIC + deleted.serialize()
    text = base64.b85encode(data + bytes(-len(data) % 4)).decode().translate(_TO_Z85)
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(data),
        "cardinality": len(deleted),
    }


def _bitmap_of(vector: Mapping[str, Any]) -> BitMap64:
    """The places of deleted rows in an inline deletion vector: the inverse of `vector_of`."""
    data = base64.b85decode(vector["pathOrInlineDv"].translate(_FROM_Z85))
    return BitMap64.deserialize(data[len(_MAGIC) : vector["sizeInBytes"]])


@dataclass(frozen=True)
class DataFile:
    """A data file: the action that added it, and the places of its deleted rows."""

    action: Mapping[str, Any]
    gone: BitMap64 = field(default_factory=BitMap64)

    @property
    def path(self) -> str:
        """Its path, relative to the table."""
        return str(self.action["path"])

    @property
    def location(self) -> str:
        """Where the file is below the table: the log has it as part of a URI, with escapes."""
        return unquote(self.path)

    @property
    def is_unknown(self) -> bool:
        """Whether its deletion vector is in a file that was not read yet."""
        vector = self.action.get("deletionVector")
        return vector is not None and vector["storageType"] != "i" and not self.gone

    @property
    def added(self) -> dict[str, Any]:
        """The action that adds it."""
        return {"add": {**self.action, "dataChange": True}}

    def removed(self, now: int, *, changes: bool = True) -> dict[str, Any]:
        """The action that removes it."""
        names = ("path", "partitionValues", "size", "deletionVector")
        fields = {name: self.action[name] for name in names if self.action.get(name) is not None}
        flags = {"dataChange": changes, "deletionTimestamp": now, "extendedFileMetadata": True}
        return {"remove": {**fields, **flags}}

    def without(self, places: Places) -> DataFile:
        """The file with more deleted rows."""
        deleted = self.gone | BitMap64(places.tolist())
        stats = {**json.loads(self.action.get("stats") or "{}"), "tightBounds": False}
        action = {**self.action, "deletionVector": vector_of(deleted), "stats": json.dumps(stats)}
        return replace(self, action=action, gone=deleted)

    @cached_property
    def _stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = json.loads(self.action.get("stats") or "{}")
        return stats

    @property
    def rows(self) -> int | None:
        """The number of its rows, deleted ones included; None if its statistics lack it."""
        count = self._stats.get("numRecords")
        return None if count is None else int(count)

    def may_have(self, column: str, values: Wanted) -> bool:
        """Whether by its statistics a column may contain one of the values."""
        least, most = (self._stats.get(s, {}).get(column) for s in ("minValues", "maxValues"))
        is_number = isinstance(least, int) and isinstance(most, int)
        return not is_number or values.may_be_in(Extent(least, most, nulls=True))


@dataclass(frozen=True)
class Extent:
    """The least and the greatest value of some rows, or None; and whether NULL may occur."""

    least: Any
    most: Any
    nulls: bool


class Wanted:
    """The wanted values of a column."""

    def __init__(self, values: Any) -> None:
        self._nulls = bool(values.null_count)
        self._ordered = sorted(values.drop_null().unique().to_pylist())

    def may_be_in(self, bounds: Extent) -> bool:
        """Whether rows with these bounds may contain one of the values."""
        if bounds.least is None or bounds.most is None or (self._nulls and bounds.nulls):
            return True
        try:
            i = bisect_left(self._ordered, bounds.least)
            return i < len(self._ordered) and bool(self._ordered[i] <= bounds.most)
        except TypeError:  # statistics of another type
            return True


@dataclass
class _Read:
    """The cache of a file: the footer and the bounds of row groups, or all rows of a small file."""

    footer: pq.FileMetaData | None = None
    bounds: Sequence[Extent] = ()
    rows: pa.Table | None = None


class DataFiles:
    """The data files of a table at a version, and a search for their rows by key.

    `columns` are the columns that are read; the first ones are the key. Of files with at most
    `GROUP_ROWS` rows these columns are cached, of larger files the footer. There are about a
    hundred small files at most, since they are merged.
    """

    def __init__(self, log: DeltaLog, columns: pa.Schema, key: Sequence[str]) -> None:
        self._log = log
        self._columns = columns
        self._key = list(key)
        self._version: int | None = None
        self.files: dict[str, DataFile] = {}
        self._known: dict[str, _Read] = {}

    def update(self, table: Table) -> None:
        """Update the files to the table's version, by its log."""
        version = table.version()
        if self._version is None or self._version > version:
            self.files, self._version = self._checkpoint(version)
        try:
            self._follow(version)
        except FileNotFoundError:  # the log was cleaned up meanwhile
            self.files, self._version = self._checkpoint(version)
            self._follow(version)
        if any(f.is_unknown for f in self.files.values()):
            self._read_vectors(table)
        self._known = {path: cached for path, cached in self._known.items() if path in self.files}

    def _follow(self, version: int) -> None:
        """Apply the commits up to a version."""
        assert self._version is not None
        for number in range(self._version + 1, version + 1):
            actions = list(map(json.loads, self._log.text(number).splitlines()))
            for action in (a["remove"] for a in actions if "remove" in a):
                self.files.pop(action["path"], None)
            for action in (a["add"] for a in actions if "add" in a):
                self.files[action["path"]] = _file_of(action)
            self._version = number

    def _checkpoint(self, version: int) -> tuple[dict[str, DataFile], int]:
        """The files of the last checkpoint and its version; none and -1 without a checkpoint."""
        checkpoint = self._log.checkpoint()
        if checkpoint is None or checkpoint[0] > version:
            return {}, -1
        at, rows = checkpoint
        files = [
            _file_of(action) for action in rows.column("add").to_pylist() if action is not None
        ]
        return {f.path: f for f in files}, at

    def _read_vectors(self, table: Table) -> None:
        """Read all deletion vectors by deltalake, as other writers may store them in files."""
        for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
            for row in range(batch.num_rows):
                path = path_in(self.files, batch.column("filepath")[row].as_py())
                stay: Any = batch.column("selection_vector")[row].values
                deleted = np.flatnonzero(~stay.to_numpy(zero_copy_only=False))
                self.files[path] = replace(self.files[path], gone=BitMap64(deleted.tolist()))

    def find(self, keys: pa.Table) -> list[tuple[DataFile, Places, pa.Table]]:
        """The rows with one of the keys, by file, with their places."""
        if not keys.num_rows:
            return []
        matches, values = [], Wanted(keys.column(0))
        for f in self.files.values():
            if f.may_have(self._key[0], values):
                places, rows = self._candidates(f, values)
                indices = self._matching(f, places, rows, keys)
                if len(indices):
                    matches.append((f, places[indices], rows.take(indices)))
        return matches

    def _matching(self, f: DataFile, places: Places, rows: pa.Table, keys: pa.Table) -> Places:
        """The indices of the rows that have one of the keys and are not deleted."""
        maybe = np.flatnonzero(pc.is_in(rows.column(0), value_set=keys.column(0)).to_numpy())
        if len(maybe) and f.gone:
            maybe = maybe[[place not in f.gone for place in places[maybe].tolist()]]
        if not len(maybe) or len(self._key) == 1:
            return maybe
        candidates = rows.select(self._key).take(maybe)
        ids = key_ids(pa.concat_tables([candidates, keys]), self._key)
        return maybe[np.isin(ids[: len(maybe)], ids[len(maybe) :])]

    def _candidates(self, f: DataFile, values: Wanted) -> tuple[Places, pa.Table]:
        """The rows of a file, with their places, without row groups that cannot have the values."""
        cached = self._known.setdefault(f.path, _Read())
        if cached.rows is not None:
            return np.arange(cached.rows.num_rows), cached.rows
        with self._log.files.open_input_file(f.location) as opened:
            file = parquet_file(opened, metadata=cached.footer, pre_buffer=True)
            if cached.footer is None and file.metadata.num_rows <= GROUP_ROWS:
                cached.rows = self._read(file, range(file.num_row_groups))
                return np.arange(cached.rows.num_rows), cached.rows
            if cached.footer is None:
                schema = file.metadata.schema
                leaves = [schema.column(i).path for i in range(len(schema))]
                number = leaves.index(self._key[0])
                groups = map(file.metadata.row_group, range(file.num_row_groups))
                cached.bounds = [_bounds_of(g.column(number)) for g in groups]
                cached.footer = file.metadata
            chosen = [i for i, b in enumerate(cached.bounds) if values.may_be_in(b)]
            sizes = [cached.footer.row_group(i).num_rows for i in range(len(cached.bounds))]
            begins = np.cumsum([0, *sizes])
            places = [np.arange(begins[i], begins[i + 1]) for i in chosen]
            return np.concatenate([np.arange(0), *places]), self._read(file, chosen)

    def _read(self, file: pq.ParquetFile, groups: Sequence[int]) -> pa.Table:
        rows = file.read_row_groups(list(groups), columns=self._columns.names)
        columns = [
            plain(rows.column(n)).cast(self._columns.field(n).type) for n in self._columns.names
        ]
        return pa.table(columns, schema=self._columns)


def path_in(paths: Collection[str], address: str) -> str:
    """The path of a file in its table, from its address. Files of partitions may have one name."""
    name = address.rsplit("/", 1)[-1]
    named = [path for path in paths if path.rsplit("/", 1)[-1] == name]
    ends = [path for path in named if f"/{address}".endswith(f"/{path}")]
    (path,) = named if len(named) == 1 else [max(ends, key=len)]
    return path


def files_of(log: DeltaLog, table: Table) -> list[DataFile]:
    """The data files of an opened table; none if its log has a form that deltalake alone reads."""
    data = DataFiles(log, pa.schema([]), ())
    with suppress(FileNotFoundError):
        data.update(table)
    there = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
    return list(data.files.values()) if data.files.keys() == set(there) else []


def rows_of_file(
    system: pafs.FileSystem, f: DataFile, columns: Iterable[str]
) -> Iterator[pa.Table]:
    """The rows of a file that are not deleted, with those of the columns that it has, in parts."""
    deleted = np.fromiter(f.gone, np.int64, len(f.gone))  # sorted
    with system.open_input_file(f.location) as opened:
        file = parquet_file(opened, pre_buffer=True)
        there = set(file.schema_arrow.names)
        begin = 0
        for batch in file.iter_batches(columns=[c for c in columns if c in there]):
            rows = pa.Table.from_batches([batch])  # it may have no column
            for i, name in enumerate(rows.column_names):
                rows = rows.set_column(i, name, _in_micros(plain(rows.column(i))))
            n = rows.num_rows
            if f.gone:
                first, last = np.searchsorted(deleted, (begin, begin + n))
                mask = np.ones(n, np.bool_)
                mask[deleted[first:last] - begin] = False
                rows = rows.filter(pa.array(mask))
            begin += n
            yield rows


@dataclass(frozen=True)
class RowsOfFiles:
    """Data files of a table, for the driver or a task: it reads the rows that are not deleted.

    All rows of a file have the same count; None if the file is of the change feed, which says it.
    `names` has the column of each field, and `partitions` the types of partition columns.
    """

    uri: str
    options: Mapping[str, str] | None
    names: Mapping[str, str]
    partitions: pa.Schema
    files: tuple[tuple[DataFile, int | None], ...]

    def tables(
        self, updates: Updates | None = None, system: pafs.FileSystem | None = None
    ) -> Iterator[pa.Table]:
        """The rows with their counts; adds the numbers of updated rows to `updates`.

        Small files are read at the same time. `system` has the files, if it is known.
        """
        there = system or DeltaLog(self.uri, self.options, SourceError).files
        with ThreadPoolExecutor(SMALL_FILES) as pool:
            for files in _shares(self.files):
                tables = (self._of_file(there, f, n) for f, n in files)
                for some in tables if len(files) == 1 else pool.map(list, tables):
                    for rows, kinds in some:
                        if updates is not None and kinds is not None:
                            updates.add(kinds)
                        yield rows

    def _of_file(
        self, system: pafs.FileSystem, f: DataFile, count: int | None
    ) -> Iterator[tuple[pa.Table, Any]]:
        """The rows of a file in parts, and their kinds of change, if they have any."""
        columns = dict.fromkeys(self.names.values())
        if count is not None:
            for rows in rows_of_file(system, f, columns):
                counts: Any = pa.repeat(pa.scalar(count, pa.int64()), rows.num_rows)
                yield self._counted(f, rows, counts), None
            return
        for rows in rows_of_file(system, f, [*columns, CHANGE]):
            kinds = rows.select([CHANGE])
            yield (
                self._counted(f, rows, counted_feed(kinds, "the change feed").column(COUNT)),
                kinds.column(0),
            )

    def _counted(self, f: DataFile, rows: pa.Table, counts: Any) -> pa.Table:
        values: list[Any] = []
        for column in self.names.values():
            if column in self.partitions.names:
                value = _parsed(
                    f.action["partitionValues"].get(column), self.partitions.field(column).type
                )
                values.append(pa.repeat(value, rows.num_rows))
            elif column in rows.column_names:
                values.append(rows.column(column))
            else:  # added after the file was written
                values.append(pa.nulls(rows.num_rows))
        return pa.table([*values, counts], names=[*self.names, COUNT])


def _shares(files: Sequence[tuple[DataFile, int | None]]) -> Iterator[Sequence[Any]]:
    """The files one by one; small ones that follow each other up to `SMALL_FILES` together."""
    some: list[tuple[DataFile, int | None]] = []
    for f in files:
        is_small = (f[0].action.get("size") or SMALL_BYTES) < SMALL_BYTES
        if some and (not is_small or len(some) == SMALL_FILES):
            yield some
            some = []
        if is_small:
            some.append(f)
        else:
            yield [f]
    if some:
        yield some


def reads(partitions: pa.Schema, actions: Iterable[Mapping[str, Any]]) -> bool:
    """Whether `RowsOfFiles` reads the files of these actions as deltalake does.

    It knows no partition column of binary values, no empty text in one, and no path outside the
    table. A file that lacks the value of a partition is an error of deltalake.
    """
    return not any(map(pa.types.is_binary, partitions.types)) and all(
        set(partitions.names) <= set(values := action.get("partitionValues") or {})
        and "" not in values.values()
        and ":" not in action["path"]
        and not action["path"].startswith("/")
        for action in actions
    )


def _in_micros(column: Any) -> Any:
    """A column with times in microseconds, as Delta has them; parts of them are cut off."""
    return column.cast(_of_micros(column.type), safe=False)  # equal types are not cast


def _of_micros(t: pa.DataType) -> pa.DataType:
    if isinstance(t, pa.StructType):
        return pa.struct([f.with_type(_of_micros(f.type)) for f in t])
    if isinstance(t, pa.ListType):
        return pa.list_(t.value_field.with_type(_of_micros(t.value_type)))
    return pa.timestamp("us", t.tz) if isinstance(t, pa.TimestampType) else t


def _parsed(text: str | None, t: pa.DataType) -> Any:
    """The value of a partition column of this type, from its text in the log."""
    value: Any = pa.scalar(text, pa.string())
    if pa.types.is_timestamp(t) and text is not None and not text.endswith("Z"):
        value = value.cast(pa.timestamp("us"))  # in UTC
    return value.cast(t)


_SAID = ("path", "partitionValues", "size", "modificationTime", "stats", "deletionVector")


def _file_of(entry: Mapping[str, Any]) -> DataFile:
    """The data file of an `add` action, of a commit or a checkpoint, without empty fields."""
    action = {name: entry[name] for name in _SAID if entry.get(name) is not None}
    action["partitionValues"] = dict(action.get("partitionValues") or {})
    vector = action.get("deletionVector")
    if vector is None:
        return DataFile(action)
    action["deletionVector"] = {name: x for name, x in vector.items() if x is not None}
    return DataFile(action, _bitmap_of(vector) if vector["storageType"] == "i" else BitMap64())


def _bounds_of(chunk: Any) -> Extent:
    """The bounds in the statistics of a column chunk."""
    stats = chunk.statistics if chunk.is_stats_set else None
    with suppress(pa.ArrowException, ValueError):  # a type without values in Python
        if stats is not None and stats.has_min_max:
            return Extent(stats.min, stats.max, nulls=stats.null_count != 0)
    return Extent(None, None, nulls=True)
