"""How the files of a directory are read: Parquet, JSON and CSV, as tables of the wanted columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.fs as pafs
import pyarrow.json as pajson
import pyarrow.parquet as pq

Reader = Callable[[pafs.FileSystem, str, pa.Schema], Iterator[pa.Table]]


def parquet(system: pafs.FileSystem, path: str, columns: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a Parquet file; columns are found by name, in any case."""
    with system.open_input_file(path) as opened:
        file: Any = pq.ParquetFile(opened)
        there = {name.lower(): name for name in file.schema_arrow.names}
        names = {n: there[n.lower()] for n in columns.names if n.lower() in there}
        _check(names, columns, file.schema_arrow.names)
        for batch in file.iter_batches(columns=list(names.values())):
            table = pa.Table.from_batches([batch]).select(list(names.values()))
            yield table.rename_columns(list(names))


def json(system: pafs.FileSystem, path: str, columns: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a file with a JSON object in each line; a field that is missing is NULL."""
    options = pajson.ParseOptions(
        explicit_schema=pa.schema([f.with_nullable(True) for f in columns]),
        unexpected_field_behavior="ignore",
    )
    with system.open_input_stream(path) as file:
        if not system.get_file_info(path).size:
            return
        opened: Any = file
        table = pajson.read_json(opened, parse_options=options)
        yield table.select(columns.names)


def csv(system: pafs.FileSystem, path: str, columns: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a CSV file, which has a header; a text that is empty is an empty text."""
    if not system.get_file_info(path).size:
        return
    with system.open_input_stream(path) as file:
        options = pacsv.ConvertOptions(
            column_types={f.name: f.type for f in columns}, include_columns=columns.names
        )
        opened: Any = file
        reader = pacsv.open_csv(
            opened,
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=options,
        )
        for batch in reader:
            yield pa.Table.from_batches([batch])


def as_wanted(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """A table's columns in the wanted types, of the same kind: a number does not become text.

    An ArrowInvalid for a column of another kind, and for a value that does not fit.
    """
    for found in table.schema:
        wanted = columns.field(found.name).type
        if not pa.types.is_null(found.type) and _kind(found.type) != _kind(wanted):
            raise pa.ArrowInvalid(f"column {found.name!r}: expected {wanted}, found {found.type}")
    return table.cast(pa.schema([pa.field(n, columns.field(n).type) for n in table.column_names]))


_KINDS: tuple[Callable[[Any], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_boolean,
    lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t),
    lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_binary_view(t),
    pa.types.is_date,
    lambda t: pa.types.is_timestamp(t) and t.tz is None,
    pa.types.is_timestamp,
    pa.types.is_duration,
    pa.types.is_nested,
)


def _kind(t: pa.DataType) -> int:
    """The number of a kind of types, among which a cast keeps what a value means."""
    if isinstance(t, pa.DictionaryType):
        t = t.value_type
    return next((i for i, is_one in enumerate(_KINDS) if is_one(t)), -1)


FORMATS: dict[str, Reader] = {"parquet": parquet, "json": json, "csv": csv}


def _check(names: dict[str, str], columns: pa.Schema, there: list[str]) -> None:
    missing = [n for n in columns.names if n not in names]
    if missing:
        raise pa.ArrowInvalid(
            f"there is no column {', '.join(missing)}; the columns are {', '.join(there)}"
        )
