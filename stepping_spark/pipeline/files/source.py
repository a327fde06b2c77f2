"""A directory to which files are added, as a source."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from stepping_spark.base.errors import SourceError
from stepping_spark.base.packages import DataFrame
from stepping_spark.pipeline.by_tasks import UNPACKED, frame_of_files, may_read, shares_of
from stepping_spark.pipeline.chunks import Chunks, InPieces, at_most
from stepping_spark.pipeline.columns import bare_type, first_typed, is_unknown
from stepping_spark.pipeline.files.directory import (
    FilesDirectory,
    ListedFile,
    digest,
    files_before,
    is_digest,
)
from stepping_spark.pipeline.files.formats import (
    FORMATS,
    Csv,
    Parquet,
    TextBlock,
    has_no_text,
)
from stepping_spark.pipeline.protocols import AT, MISFITS, Batch, Portion, Position, numbers_of
from stepping_spark.rows.names import as_in_table, column_of, type_in_table
from stepping_spark.rows.schema import COUNT
from stepping_spark.spark.session import first_line
from stepping_spark.spark.types import spark_schema_of
from stores.threads import side_by_side

R = TypeVar("R")

TYPED_BY = 20
"""The first files that say the columns, besides the last one, and their types in text."""


class FilesSource(InPieces):
    """Reads the files after those that were read.

    A position is (files, digest): the number of files that are read, and the digest of their names,
    sizes and times. Within a file that is read in pieces it is (files, digest, n, k): k of n pieces
    of the next file are read.
    """

    lengths = (2, 4)
    unit = "file"
    """The unit of the first number of a position, for messages."""

    def __init__(self, path: str, kind: str, order: str, filesystem: Any) -> None:
        super().__init__()
        self._directory = FilesDirectory(path, filesystem, self._failure)
        self._kind = kind
        self._order = order
        self._for_tasks = kind == "parquet"

    def open(self, columns: pa.Schema) -> None:
        """Set the wanted columns; raises `SourceError` for a type that the format lacks."""
        super().open(columns)
        if self._kind == "parquet":
            return
        for field in columns:
            if has_no_text(field.type, nested=self._kind == "json"):
                raise self._failure(
                    f"field {field.name} is {field.type}, and {self._kind.upper()} has no such "
                    "values; read it as str or int, and convert it in the query"
                )

    def schema(self) -> pa.Schema:
        """The columns of the last file, and those that only the first files have.

        In text, the wanted columns have their types, and JSON has all of them. Without wanted
        columns, types are inferred: each column has the first type that it has in these files, or
        in Parquet a wider int, so that a later file does not change it.
        """
        files, wanted = self._files(), self._columns
        some = [*files[:TYPED_BY], *files[TYPED_BY:][-1:]]
        if files and self._kind == "parquet":
            schemas = list(side_by_side(self._schema_of, some))
            return _united(schemas, inferred=not wanted.names).with_metadata({AT: files[-1].name})
        if wanted.names:
            of_csv = some if self._kind == "csv" else []
            names = dict.fromkeys(n for file in of_csv for n in self._of(file, Csv.names))
            types = {column_of(f).lower(): type_in_table(f.type) for f in wanted}
            there = [pa.field(n, types.get(n.lower(), pa.string())) for n in names]
            return pa.schema(there) if there else as_in_table(wanted)
        columns = first_typed(side_by_side(self._schema_of, some))
        if not columns.names:
            row = "one JSON object in a line" if self._kind == "json" else "a row"
            raise self._failure(f"it has no file with {row}, which would say the columns; add one")
        return columns

    def _schema_of(self, file: ListedFile) -> pa.Schema:
        return self._of(file, FORMATS[self._kind].schema)

    def _of(self, file: ListedFile, read: Callable[[pafs.FileSystem, str], R]) -> R:
        system, _ = self._directory.place
        with self._trying(file):
            return read(system, self._directory.path_of(file.name))

    def behind(self, after: Position | None) -> int | None:
        """The number of unread files."""
        return len(self._files()) - (0 if after is None else numbers_of(after)[0])

    def look(self, after: Position | None, portion: Portion) -> None:
        """Raise the errors of `read` that a listing of the files shows."""
        done, checksum, *_ = (0, digest([])) if after is None else numbers_of(after)
        self._check(self._files(), done, checksum)

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The next files, or the next piece of one."""
        files = self._files()
        done, checksum, *piece = (0, digest([])) if after is None else numbers_of(after)
        self._check(files, done, checksum)
        if piece:
            n, k = piece
            return self._piece(files, done, n, k)
        new = files[done:][: portion.versions]
        if not new:
            return None
        is_large = not portion.holds(0, UNPACKED * sum(file.size for file in new))
        frame = self._by_tasks(new, portion) if is_large else None
        whole = [] if frame is not None else self._whole(new, portion)
        if len(whole) < len(new) and not is_large:
            frame = self._by_tasks(new, portion)
        if frame is not None:
            to = done + len(new)
            return Batch((to, digest(files[:to])), (frame,), len(new))
        if whole:
            to = done + len(whole)
            misfits = pa.concat_tables([misfits for _, misfits in whole])
            tables = tuple(table for table, _ in whole)
            return Batch((to, digest(files[:to])), tables, len(whole), misfits=misfits)
        rows = _Rows(self._parts(new[0]), new[0].name)
        pieces = Chunks(rows.tables(), rows.schema, portion=portion)
        self._keep((done, checksum), pieces)
        return self._piece(files, done, pieces.n, 0, rows.misfits)

    def _whole(
        self, files: Sequence[ListedFile], portion: Portion
    ) -> list[tuple[pa.Table, pa.Table]]:
        """The rows and misfits of the first files, as many as the portion holds."""
        whole = []
        left = portion
        for file in files:
            rows = _Rows(self._parts(file), file.name)
            table = at_most(rows.tables(), rows.schema, left)
            if table is None:
                break
            whole.append((table, rows.misfits))
            left = left.without(table.num_rows, table.nbytes)
        return whole

    def _by_tasks(self, files: Sequence[ListedFile], portion: Portion) -> DataFrame | None:
        """The rows of Parquet files as a DataFrame; None if the driver must read them.

        The driver checks each value, so it reads files whose column types do not guarantee that all
        values fit.
        """
        session = portion.tasks() if self._for_tasks else None
        if session is None:
            return None
        system, path = self._directory.place
        is_local = isinstance(system, pafs.LocalFileSystem)
        if not is_local and system.type_name not in REMOTE:
            return None
        if not may_read(session, path if is_local else f"{system.type_name}://{path}"):
            return None
        part = ParquetFiles(system, (), self._columns)
        try:
            spark_schema_of(part.schema)
            pickle.dumps(part)
            fits = partial(self._fits, part.schema)
            self._for_tasks = fits(files[0]) and all(side_by_side(fits, files[1:]))
        except (KeyError, TypeError, pickle.PicklingError):
            self._for_tasks = False
        if not self._for_tasks:  # nor for later files: each check reads their footers
            return None
        paths = [self._directory.path_of(file.name) for file in files]
        parts = [replace(part, paths=tuple(share)) for share in shares_of(paths)]
        what = f"directory {self._directory.shown}: files cannot be read"
        return frame_of_files(session, parts, part.schema, what)

    def _fits(self, schema: pa.Schema, file: ListedFile) -> bool:
        """Whether the types of a file's columns guarantee that all values fit the fields."""
        in_file = _Rows(self._parts(file), file.name).schema
        return all(holds_all(f.type, bare_type(in_file.field(f.name).type)) for f in schema)

    def _piece(
        self,
        files: list[ListedFile],
        done: int,
        n: int,
        k: int,
        misfits: pa.Table | None = None,
    ) -> Batch:
        """One piece of a file; all misfits of the file come with the first piece."""
        checksum = digest(files[:done])
        piece = self._pieces((done, checksum), n, lambda: self._cut(files[done], n)).read(k)
        if k + 1 < n:
            return Batch((done, checksum, n, k + 1), (piece,), 0, misfits=misfits)
        return Batch((done + 1, digest(files[: done + 1])), (piece,), 1, misfits=misfits)

    def _cut(self, file: ListedFile, n: int) -> Chunks:
        rows = _Rows(self._parts(file), file.name)
        return Chunks(rows.tables(), rows.schema, n=n)

    def _files(self) -> list[ListedFile]:
        files = self._directory.files(only=True)
        if self._order == "time":
            files.sort(key=lambda file: (file.time, file.name))
        return files

    def _check(self, files: list[ListedFile], done: int, checksum: int) -> None:
        """Check that the files that were read come first and are unchanged."""
        if len(files) >= done and is_digest(checksum, files[:done]):
            return
        came = files_before(checksum, files, done)
        if came:
            why = (
                f"{', '.join(came[:3])}{f' and {len(came) - 3} others' if came[3:] else ''} came "
                "later, and before others of them: rename what came, to come last"
            )
        elif len(files) < done:
            why = f"found {len(files)}"
        else:
            last = max(files[:done], key=lambda file: file.time)
            at = dt.datetime.fromtimestamp(last.time // 10**9, dt.UTC)
            why = (
                "one of them was removed or written again, or a file came that is before them; of "
                f"the first {done} that are there, {last.name} was written last, at {at:%F %T} UTC"
            )
        raise self._failure(
            f"the first {done} files, by {self._order}, are not those that were read: {why}. New "
            "files come after the others, and appear whole: write them under a name that begins "
            "with _ and rename them. Restore what was there, with its times (cp -p), or start with "
            "a new store"
        )

    def _parts(self, file: ListedFile) -> Iterator[TextBlock]:
        system, _ = self._directory.place
        with self._trying(file):
            path = self._directory.path_of(file.name)
            yield from FORMATS[self._kind].read(system, path, self._columns)

    def _trying(self, file: ListedFile) -> AbstractContextManager[None]:
        """Translate errors of a file; a remedy is another kind, if its name has the suffix."""
        named = [kind for kind in FORMATS if kind != self._kind and f".{kind}" in file.name]
        other = f"read it as kind={named[0]!r}, or " if named else ""
        return self._directory.trying(f"{file.name} cannot be read", other + CORRECT)

    def _failure(self, reason: str) -> SourceError:
        return SourceError(f"directory {self._directory.shown}: {reason}")


def _united(schemas: Sequence[pa.Schema], *, inferred: bool) -> pa.Schema:
    """The columns of the last file, and those that only others have; nullable if one lacks them.

    A column has its type in the last file that is not NULL there. If types are `inferred`, it has
    the first one, or a wider int.
    """
    fields: dict[str, pa.Field[Any]] = {}
    for f in (f for columns in schemas for f in columns if not is_unknown(f.type)):
        known = fields.get(f.name)
        if known is None or not inferred or holds_all(f.type, known.type):
            fields[f.name] = f
    unknown = {f.name: f for columns in schemas for f in columns if f.name not in fields}
    of_all = {**fields, **unknown}
    has = [{f.name for f in columns if not is_unknown(f.type)} for columns in schemas]
    names = [*schemas[-1].names, *(name for name in of_all if name not in schemas[-1].names)]
    return pa.schema(
        [
            of_all[n].with_nullable(of_all[n].nullable or not all(n in known for known in has))
            for n in names
        ]
    )


CORRECT = "correct or remove the file"


REMOTE = ("s3", "gcs", "abfs", "hdfs")
"""File systems that tasks on other machines can reach."""


def holds_all(field_type: pa.DataType, in_file: pa.DataType) -> bool:
    """Whether a type has all values of another type: an equal type, or wider signed integers."""
    both_ints = pa.types.is_signed_integer(field_type) and pa.types.is_signed_integer(in_file)
    return field_type == in_file or (both_ints and in_file.bit_width <= field_type.bit_width)


@dataclass(frozen=True)
class ParquetFiles:
    """Some Parquet files of a directory, for a task, which reads the wanted columns."""

    system: pafs.FileSystem
    paths: tuple[str, ...]
    wanted: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows, with counts; fields that are not nullable may be NULL here."""
        fields = [pa.field(f.name, bare_type(type_in_table(f.type))) for f in self.wanted]
        return pa.schema([*fields, pa.field(COUNT, pa.int64())])

    def tables(self) -> Iterator[pa.Table]:
        """The rows, each with the count 1. Raises `SourceError` for an unreadable file."""
        for path in self.paths:
            try:
                for table in _Rows(Parquet().read(self.system, path, self.wanted), path).tables():
                    yield table.cast(self.schema)
            except (OSError, ValueError, pa.ArrowException) as e:
                raise SourceError(f"{path} cannot be read: {first_line(e)}; {CORRECT}") from e


class _Rows:
    """The rows of one file, each with the count 1. After they are read, `misfits` is complete."""

    def __init__(self, parts: Iterator[TextBlock], name: str) -> None:
        first = next(parts)
        self._parts = parts
        self._name = name
        count = pa.field(COUNT, pa.int64())
        self.schema = first.rows.schema.append(count).with_metadata({AT: name})
        self._misfits = [first.misfits]

    @property
    def misfits(self) -> pa.Table:
        """The lines that are no rows, as far as the file is read."""
        return pa.concat_tables([self._placed(part) for part in self._misfits])

    def _placed(self, misfits: pa.Table) -> pa.Table:
        """Misfits with the name of their file, and the line number, if known."""
        lines = [None] * misfits.num_rows
        if AT in misfits.column_names:
            lines = misfits.column(AT).to_pylist()
        places = [self._name if line is None else f"{self._name}, {line}" for line in lines]
        table: pa.Table = misfits.select(MISFITS.names)
        return table.append_column(AT, pa.array(places, pa.string()))

    def tables(self) -> Iterator[pa.Table]:
        """The rows."""
        for part in self._parts:
            self._misfits.append(part.misfits)
            counts = pa.repeat(pa.scalar(1, pa.int64()), part.rows.num_rows)
            rows = part.rows.append_column(COUNT, counts)
            yield rows.replace_schema_metadata(self.schema.metadata)
