"""A directory to which files are added, as a source."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from stepping_spark.errors import SourceError
from stepping_spark.pipeline.files.directory import Directory, File, digest
from stepping_spark.pipeline.files.formats import FORMATS, as_wanted
from stepping_spark.pipeline.pieces import InPieces, Pieces, at_most
from stepping_spark.pipeline.positions import numbers_of
from stepping_spark.pipeline.protocols import Batch, Portion, Position
from stepping_spark.rows.schema import COUNT


class FilesSource(InPieces):
    """The files that come after others.

    A position is (files, digest): so many files are read, which have these names and sizes. Within
    a file that is read in pieces it is (files, digest, n, k): of the next one k of n are read.
    """

    unit = "file"
    """What the first number of a position counts, as messages say it."""

    def __init__(self, path: str, kind: str, order: str, filesystem: Any) -> None:
        super().__init__()
        self._directory = Directory(path, filesystem, self._failure)
        self._kind = kind
        self._order = order

    def behind(self, after: Position | None) -> int | None:
        """The files that were not read."""
        return len(self._files()) - (0 if after is None else numbers_of(after)[0])

    def look(self, after: Position | None, portion: Portion) -> None:
        """Refuse files that `read` refuses, as far as a listing tells it."""
        done, known, *_ = (0, digest([])) if after is None else numbers_of(after)
        self._check(self._files(), done, known)

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The next files, or the next piece of one."""
        files = self._files()
        done, known, *piece = (0, digest([])) if after is None else numbers_of(after)
        self._check(files, done, known)
        if piece:
            return self._piece(files, done, *piece)
        new = files[done:]
        if not new:
            return None
        found: list[pa.Table] = []
        left = portion.rows
        for file in new[: portion.versions]:
            table = at_most(self._rows_of(file), self._schema, left)
            if table is None:
                break
            found.append(table)
            if left is not None:
                left -= table.num_rows
        if found:
            at = done + len(found)
            return Batch((at, digest(files[:at])), tuple(found), len(found))
        pieces = Pieces(self._rows_of(new[0]), self._schema, rows=portion.rows or 1)
        self._keep((done, known), pieces)
        return self._piece(files, done, pieces.n, 0)

    def _piece(self, files: list[File], done: int, n: int, k: int) -> Batch:
        known = digest(files[:done])
        cut = functools.partial(Pieces, self._rows_of(files[done]), self._schema, n=n)
        found = self._pieces((done, known), n, cut).read(k)
        if k + 1 < n:
            return Batch((done, known, n, k + 1), (found,), 0)
        return Batch((done + 1, digest(files[: done + 1])), (found,), 1)

    def _files(self) -> list[File]:
        files = self._directory.files(only=True)
        if self._order == "time":
            files.sort(key=lambda file: (file.time, file.name))
        return files

    def _check(self, files: list[File], done: int, known: int) -> None:
        """See that the files that were read are the first ones, and as they were."""
        if len(files) < done or digest(files[:done]) != known:
            raise self._failure(
                f"the first {done} files, by {self._order}, are not those that were read: one of "
                "them was removed or changed, or a file came that is before them. Files are only "
                "added, behind the others, and appear whole: write them under a name that begins "
                "with _ and rename them. Restore what was there, or start with a new store"
            )

    def _rows_of(self, file: File) -> Iterator[pa.Table]:
        system, _ = self._directory.place
        with self._directory.trying(f"{file.name} cannot be read", "correct or remove the file"):
            for table in FORMATS[self._kind](
                system, self._directory.path_of(file.name), self._columns
            ):
                counts = pa.repeat(pa.scalar(1, pa.int64()), table.num_rows)
                yield as_wanted(table, self._columns).append_column(COUNT, counts)

    @property
    def _schema(self) -> pa.Schema:
        fields = [pa.field(f.name, f.type) for f in self._columns]
        return pa.schema([*fields, pa.field(COUNT, pa.int64())])

    def _failure(self, said: str) -> SourceError:
        return SourceError(f"directory {self._directory.shown}: {said}")
