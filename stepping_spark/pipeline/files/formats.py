"""How the files of a directory are read: Parquet here, JSON and CSV in `text`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.fs as pafs
import pyarrow.json as pajson
import pyarrow.parquet as pq

from stepping_spark.pipeline.files.text import Part, csv, json
from stepping_spark.pipeline.plain import plain, plain_field
from stepping_spark.pipeline.protocols import MISFITS
from stepping_spark.rows.names import matched


class Format(Protocol):
    """A kind of files."""

    def read(self, system: pafs.FileSystem, path: str, columns: pa.Schema) -> Iterator[Part]:
        """The rows of a file, with the names of the fields, and the lines that are no rows."""

    def schema(self, system: pafs.FileSystem, path: str) -> pa.Schema:
        """The columns of a file; their types are a guess, where its lines are text."""


class Parquet:
    """Files of typed columns."""

    def read(self, system: pafs.FileSystem, path: str, columns: pa.Schema) -> Iterator[Part]:
        """The rows of a file, whose columns have the types of the file."""
        with system.open_input_file(path) as opened:
            file: Any = pq.ParquetFile(opened)
            there = file.schema_arrow
            names = matched(columns, there.names, pa.ArrowInvalid)
            schema = pa.schema([plain_field(there.field(c), n) for n, c in names.items()])
            yield Part(schema.empty_table(), MISFITS.empty_table())
            for batch in file.iter_batches(columns=list(names.values())):
                arrays = [plain(batch.column(c)) for c in names.values()]
                yield Part(pa.Table.from_arrays(arrays, schema=schema), MISFITS.empty_table())

    def schema(self, system: pafs.FileSystem, path: str) -> pa.Schema:
        """The columns of a file."""
        with system.open_input_file(path) as opened:
            found: pa.Schema = pq.read_schema(opened)
            return found.remove_metadata()


class Json:
    """Files with a JSON object in each line."""

    read = staticmethod(json)

    def schema(self, system: pafs.FileSystem, path: str) -> pa.Schema:
        """The fields of all objects of a file, with the types of their values."""
        with system.open_input_stream(path) as file:
            opened: Any = file
            found: pa.Schema = pajson.read_json(opened).schema
            return found


class Csv:
    """Files with a header and a row in each line."""

    read = staticmethod(csv)

    def schema(self, system: pafs.FileSystem, path: str) -> pa.Schema:
        """The columns of a file, with types that all of their values have."""
        with system.open_input_stream(path) as file:
            options = pacsv.ParseOptions(newlines_in_values=True)
            opened: Any = file
            return pacsv.read_csv(opened, parse_options=options).schema


FORMATS: dict[str, Format] = {"parquet": Parquet(), "json": Json(), "csv": Csv()}
