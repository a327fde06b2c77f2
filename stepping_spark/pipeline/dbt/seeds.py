"""A seed of a dbt project as a source: a CSV file that is edited.

A change is the difference between the file that was read last and the current file. So each file
that was read is kept, as a copy under the digest of its bytes. A position is (edition, digest): the
number of files that were read, and the digest of the last.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from stepping_spark.base.errors import SourceError
from stepping_spark.pipeline.protocols import Batch, Portion, Position, number_of, numbers_of
from stepping_spark.rows.names import as_in_table, matched
from stepping_spark.rows.schema import COUNT

NULLS = ["", "null", "NULL", "Null"]
"""The texts that dbt reads as NULL."""


class Seed:
    """The CSV file of a seed. `kinds` has Arrow types of columns, `kept` is the copies' folder."""

    def __init__(self, file: Path, cache: Path, kinds: Mapping[str, pa.DataType], delimiter: str):
        self.file = file
        self.kept = cache
        self.kinds = dict(kinds)
        self.delimiter = delimiter

    def __repr__(self) -> str:
        return f"Seed({self.file.name!r})"

    @property
    def identity(self) -> tuple[object, ...]:
        """A value that is equal for two seeds of the same file."""
        return ("seed", str(self.file.resolve()))

    def source(self) -> SeedSource:
        """The file as a source."""
        return SeedSource(self)


class SeedSource:
    """Reads the file of a seed, and then the changes by its edits."""

    lengths = (2,)
    unit = "edition"
    """The unit of the first number of a position, for messages."""

    def __init__(self, seed: Seed) -> None:
        self._seed = seed
        self._columns = pa.schema([])

    def open(self, columns: pa.Schema) -> None:
        """Set the wanted columns and their types."""
        self._columns = columns

    def close(self) -> None:
        """Nothing to do."""

    def schema(self) -> pa.Schema:
        """The columns of the file, with the given types or types inferred from the values."""
        columns = self._parsed(self._bytes(), self._seed.kinds).schema
        return pa.schema([pa.field(f.name, _type_in_rows(f.type)) for f in columns])

    def behind(self, after: Position | None) -> int:
        """1 if the file differs from the last one that was read, else 0."""
        return int(after is None or numbers_of(after)[1] != number_of(self._bytes()))

    def look(self, after: Position | None, portion: Portion) -> None:
        """Refuse an edited file if the copy of the file read before is missing."""
        if after is not None and self.behind(after):
            self._read_before(numbers_of(after)[1])

    def read(self, after: Position | None, portion: Portion) -> Batch | None:
        """The new rows of the file with count 1, and those of the file read before with -1."""
        data = self._bytes()
        edition, number = (0, None) if after is None else numbers_of(after)[:2]
        if number == number_of(data):
            return None
        tables = [self._rows(data, 1)]
        if number is not None:
            tables.append(self._rows(self._read_before(number), -1))
        self._keep(data)
        return Batch((edition + 1, number_of(data)), tuple(tables))

    def _bytes(self) -> bytes:
        try:
            return self._seed.file.read_bytes()
        except OSError as e:
            raise self._failure(f"it cannot be read: {e.strerror}; restore the file") from e

    def _rows(self, data: bytes, n: int) -> pa.Table:
        """The rows of a file, each with count `n`, with columns named like the fields."""
        header = self._parsed(data, {}).column_names
        names = matched(self._columns, header, self._failure)
        in_table = as_in_table(self._columns)
        kinds = {c: f.type for c, f in zip(names.values(), in_table, strict=True)}
        table = self._parsed(data, kinds).select(list(names.values())).rename_columns(list(names))
        return table.append_column(COUNT, pa.repeat(pa.scalar(n, pa.int64()), table.num_rows))

    def _parsed(self, data: bytes, kinds: Mapping[str, pa.DataType]) -> pa.Table:
        if not data.strip():
            raise self._failure("it is empty; write a line with the names of its columns")
        try:
            return pacsv.read_csv(
                io.BytesIO(data.removeprefix(b"\xef\xbb\xbf")),
                parse_options=pacsv.ParseOptions(
                    delimiter=self._seed.delimiter, newlines_in_values=True
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types=dict(kinds), null_values=NULLS, strings_can_be_null=True
                ),
            )
        except pa.ArrowInvalid as e:
            raise self._failure(
                f"{e}; correct the file, or give the column another type: column_types"
            ) from e

    def _copy_of(self, number: int) -> Path:
        return self._seed.kept / f"{self._seed.file.stem}-{number:012x}.csv"

    def _read_before(self, number: int) -> bytes:
        copy = self._copy_of(number)
        try:
            return copy.read_bytes()
        except OSError as e:
            raise self._failure(
                f"it was edited, and the copy of its earlier content, {copy}, is missing, so its "
                "change is unknown; restore the copy, or the earlier file, or start with a new "
                "store"
            ) from e

    def _keep(self, data: bytes) -> None:
        """Store a copy of the bytes, by a rename, so that readers see a whole file."""
        copy = self._copy_of(number_of(data))
        try:
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                draft = copy.with_name(f"_{copy.name}.{os.getpid()}")
                draft.write_bytes(data)
                os.replace(draft, copy)
        except OSError as e:
            raise self._failure(
                f"a copy of it cannot be kept at {copy}: {e.strerror}; check the rights"
            ) from e

    def _failure(self, reason: str) -> SourceError:
        return SourceError(f"seed {self._seed.file}: {reason}")


def _type_in_rows(t: Any) -> Any:
    """The type of a column in rows, for the type that the CSV reader inferred."""
    if pa.types.is_timestamp(t):
        return pa.timestamp("us", t.tz)
    return pa.string() if pa.types.is_null(t) or pa.types.is_time(t) else t
