"""The formats of files in a directory: Parquet is read by Arrow, JSON and CSV by field.

Fields of JSON and CSV are read as text, and converted one by one. So a value outside its type makes
only its own row a misfit. A time without a zone is no `datetime`, and a time with a zone is no
`st.LocalDateTime`.
"""

from __future__ import annotations

import io
import re
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from csv import Error as CsvError
from csv import reader as csv_reader
from dataclasses import dataclass
from itertools import chain
from json import JSONDecodeError, dumps, loads
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pacsv
import pyarrow.fs as pafs
import pyarrow.json as pajson

from stepping_spark.pipeline.columns import (
    first_typed,
    held_types,
    parquet_file,
    plain,
    plain_field,
    valued,
)
from stepping_spark.pipeline.protocols import AT, MISFITS
from stepping_spark.pipeline.rejects import texts_of
from stepping_spark.relations.arrow import Array, one_array
from stepping_spark.rows.names import as_in_table, column_of, columns_of, matched, type_in_table
from stepping_spark.rows.schema import COUNT
from stepping_spark.zsets.from_arrow import cast_or_null, told_type

pc: Any = pyarrow.compute

BLOCK = 1 << 24
"""The bytes of CSV that are read at once; more for a record that is larger."""

HEAD = 1 << 22
"""The bytes of a file from which types are inferred; more if its first line is longer."""

MOST = 1 << 30
"""The most bytes of one record of CSV."""

_STRADDLES = "straddling object"
_ENDS_IN_HEADER = "Empty CSV file or block"
_COUNTED = ", which may count milliseconds: declare an int, and use F.timestamp_millis in the query"
_NOT_CLOSED = "a quote is not closed"
_END = "(end)"
_BYTE_ORDER = b"\xef\xbb\xbf"

NumberedLine: TypeAlias = tuple[int, bytes]
"""The number of a line, and its text."""

Misfit: TypeAlias = tuple[str, str]
"""The text of a row that does not fit, and the reason."""


@dataclass(frozen=True)
class TextBlock:
    """Rows of a file, with columns named like the fields, and lines that are no rows.

    `misfits` has the columns of `MISFITS`, and a column `AT` with the line number, if known.
    """

    rows: pa.Table
    misfits: pa.Table


def _empty(columns: pa.Schema) -> pa.Table:
    """A table without rows, with the types of the table's columns."""
    fields = as_in_table(columns)
    return pa.table([pa.nulls(0, f.type) for f in fields], names=columns.names)


def _there(columns: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """The columns that a file has or must have; others are NULL in its rows."""
    lower = {name.lower() for name in names}
    there = [f for f in columns if not f.nullable or column_of(f).lower() in lower]
    return pa.schema(there) if there else columns


def _with_absent(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """A table with NULL in the columns that its file lacks."""
    for field in columns:
        if field.name not in table.column_names:
            t: Any = type_in_table(field.type)
            table = table.append_column(field.name, pa.nulls(table.num_rows, t))
    return table.select(columns.names)


# -- CSV


def csv(system: pafs.FileSystem, path: str, columns: pa.Schema) -> Iterator[TextBlock]:
    """The rows of a CSV file with a header; an empty field of a text column is an empty text."""
    yield TextBlock(_empty(columns), MISFITS.empty_table())
    header = _header(system, path)
    if not header:
        return
    names = matched(_there(columns, header), header, pa.ArrowInvalid)
    wrong: dict[int, Misfit] = {}  # by the number of the row
    done, block = 0, BLOCK
    while True:
        ragged: list[Misfit] = []
        seen = 0
        try:
            tables = _csv_tables(system, path, list(names.values()), block, ragged)
            for table, is_open in tables:
                new = table.slice(max(0, done - seen))
                first = max(done, seen)
                seen += table.num_rows
                if new.num_rows:
                    new = _with_absent(new.rename_columns(list(names)), columns)
                    unclosed = {new.num_rows - 1: _NOT_CLOSED} if is_open else {}
                    rows, reasons = _converted(new, columns, unclosed)
                    texts = _texts(new, list(reasons))
                    for (i, reason), text in zip(reasons.items(), texts, strict=True):
                        wrong[first + i] = (text, reason)
                    yield TextBlock(rows, MISFITS.empty_table())
            lines = _lines_of_csv(system, path, len(header), seen, wrong, ragged)
            yield TextBlock(_empty(columns), _misfits(lines, [*wrong.values(), *ragged]))
            return
        except pa.ArrowInvalid as e:
            if _ENDS_IN_HEADER in str(e):
                return
            if _STRADDLES not in str(e) or block >= MOST:
                raise
        done, block = max(done, seen), block * 8


def _header(system: pafs.FileSystem, path: str) -> list[str]:
    """The names in the first line of a CSV file that is not empty; none of an empty file."""
    with _text(system, path) as text:
        header = next(filter(None, csv_reader(text)), [])
    if not _is_unicode("".join(header)) or "\0" in "".join(header):
        raise pa.ArrowInvalid("its header is no text in UTF-8; save it so, or name it .gz if it is")
    if header and not any(map(str.strip, header)):
        raise pa.ArrowInvalid("its first line has no name of a column; write the header there")
    return header


@contextmanager
def _text(system: pafs.FileSystem, path: str) -> Iterator[io.TextIOWrapper]:
    with system.open_input_stream(path) as file:
        opened: Any = file
        yield io.TextIOWrapper(opened, "utf-8-sig", "surrogateescape", newline="")


def _lines_of_csv(
    system: pafs.FileSystem,
    path: str,
    width: int,
    rows: int,
    wrong: Collection[int],
    ragged: Collection[Misfit],
) -> list[int] | None:
    """The lines at which wrong rows begin, by their numbers, and those of ragged records.

    Arrow does not count lines, so Python reads the file once more. None if it finds other records.
    """
    if not wrong and not ragged:
        return []
    of_wrong, of_ragged, row = [], [], 0
    with _text(system, path) as text, suppress(CsvError):
        records = csv_reader(text)
        next(filter(None, records))  # the header
        begin = records.line_num + 1
        for fields in records:
            if len(fields) == width:
                if row in wrong:
                    of_wrong.append(begin)
                row += 1
            elif fields:  # an empty line is no record
                of_ragged.append(begin)
            begin = records.line_num + 1
    is_same = (row, len(of_ragged)) == (rows, len(ragged))
    return [*of_wrong, *of_ragged] if is_same else None


def _csv_tables(
    system: pafs.FileSystem,
    path: str,
    columns: list[str],
    block: int,
    misfits: list[Misfit],
) -> Iterator[tuple[pa.Table, bool]]:
    """Some columns of a file as bytes, and whether the last row ends with the file, in quotes.

    Adds lines with too many or too few fields to `misfits`.
    """

    def ragged(line: Any) -> Literal["skip"]:
        reason = f"expected {line.expected_columns} fields, found {line.actual_columns}"
        if line.text.count('"') % 2:
            reason += f"; {_NOT_CLOSED}"
        misfits.append((line.text, reason))
        return "skip"

    binary: Any = pa.binary()
    with system.open_input_stream(path) as file:
        quotes: Any = _Quotes(file)
        reader = pacsv.open_csv(
            quotes,
            read_options=pacsv.ReadOptions(block_size=block),
            parse_options=pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=ragged),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(columns, binary),
                include_columns=columns,
                strings_can_be_null=False,
            ),
        )
        last = None
        for batch in filter(len, reader):
            if last is not None:
                yield last, False
            last = pa.Table.from_batches([batch])
    if last is not None:
        (values,) = last.slice(len(last) - 1).to_pylist()
        may_be_open = quotes.number % 2 or any(b"\n" in value for value in values.values())
        yield last, bool(may_be_open) and _ends_in_quotes(system, path)


class _Quotes:
    """A file that counts its quotes while it is read: an odd number is a hint of an open one."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self.number = 0
        self.closed = False

    def read(self, size: int | None = None) -> bytes:
        data: bytes = self._file.read(size)
        self.number += data.count(b'"')
        return data


def _ends_in_quotes(system: pafs.FileSystem, path: str) -> bool:
    """Whether the last record has as many fields as the header, and its last quote is open."""
    with _text(system, path) as text, suppress(CsvError):
        records = filter(None, csv_reader(chain(text, [_END])))
        width, last = len(next(records)), deque(records, 1)
        return bool(last) and len(last[0]) == width and last[0] != [_END]
    return False


# -- JSON


def json(system: pafs.FileSystem, path: str, columns: pa.Schema) -> Iterator[TextBlock]:
    """The rows of a file with a JSON object in each line; a missing field is NULL."""
    yield TextBlock(_empty(columns), MISFITS.empty_table())
    with system.open_input_stream(path) as file:
        data = file.read().removeprefix(_BYTE_ORDER)
    names = _in_any_case(data.decode(errors="replace"), columns)
    fields = [(names[f.name], _as_text(type_in_table(f.type))) for f in columns]
    schema = pa.schema([pa.field(name, t) for name, t in fields])
    lines = _lines_of(data)
    types = {names[f.name]: _told_in_json(type_in_table(f.type)) for f in columns}
    for table, of_rows, misfits in _json_parts(lines, schema, types):
        yield TextBlock(_empty(columns), misfits)
        rows, reasons = _converted(table.rename_columns(columns.names), columns, {})
        yield TextBlock(rows, _of_lines([of_rows[i] for i in reasons], [*reasons.values()]))


def _lines_of(data: bytes) -> list[NumberedLine]:
    """The lines that are not empty, with their numbers."""
    return [(i, line.strip()) for i, line in enumerate(data.split(b"\n"), 1) if line.strip()]


def _in_any_case(text: str, columns: pa.Schema) -> dict[str, str]:
    """The key of each field: the column's name, or the only key that differs from it in case."""
    names = dict(columns_of(columns))
    seen = {
        field: set(re.findall(f'"({re.escape(name)})"\\s*:', text, re.IGNORECASE))
        for field, name in names.items()
    }
    if all(spellings <= {names[field]} for field, spellings in seen.items()):
        return names
    # A text or an object within a row may contain such a key, too: only keys of rows count.
    keys = {key for line in text.split("\n") for key in _keys_of(line)}
    present = pa.schema([f for f in columns if any(_same_name(names[f.name], key) for key in keys)])
    return names | matched(present, sorted(keys), pa.ArrowInvalid)


def _same_name(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _keys_of(line: str) -> Iterable[str]:
    try:
        row = loads(line)
    except ValueError:
        return ()
    return row if isinstance(row, dict) else ()


def _json_parts(
    lines: list[NumberedLine], schema: pa.Schema, types: dict[str, str]
) -> Iterator[tuple[pa.Table, list[NumberedLine], pa.Table]]:
    """The objects of lines, their lines, and misfits. Unreadable parts are halved.

    `types` are the expected types of the columns, for messages.
    """
    if not lines:
        return
    table = _parsed([line for _, line in lines], schema)
    if table is not None and table.num_rows == len(lines):
        yield table, lines, MISFITS.empty_table()
    elif len(lines) > 1:
        half = len(lines) // 2
        yield from _json_parts(lines[:half], schema, types)
        yield from _json_parts(lines[half:], schema, types)
    else:
        ((_, line),) = lines
        yield schema.empty_table(), [], _of_lines(lines, [_wrong_with(line, schema, types)])


def _of_lines(lines: list[NumberedLine], reasons: list[str]) -> pa.Table:
    """Lines as misfits, with their numbers."""
    texts = [line.decode(errors="backslashreplace") for _, line in lines]
    return _misfits([number for number, _ in lines], [*zip(texts, reasons, strict=True)])


def _parsed(lines: list[bytes], schema: pa.Schema) -> pa.Table | None:
    """The objects of lines; None if a line is no object, or does not fit the schema."""
    if not all(line.startswith(b"{") for line in lines):
        return None  # pyarrow raises no error for a line `null`, but ends the process
    data = b"\n".join(lines)
    try:
        data.decode()
        table = pajson.read_json(
            io.BytesIO(data),
            read_options=pajson.ReadOptions(block_size=max(1 << 20, max(map(len, lines)) + 2)),
            parse_options=pajson.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    return table.select(schema.names)


def _wrong_with(line: bytes, schema: pa.Schema, types: dict[str, str]) -> str:
    """The reason why a line is no row."""
    try:
        row = loads(line.decode(), object_pairs_hook=_JsonObject)
    except UnicodeDecodeError:
        return "expected text in UTF-8"
    except JSONDecodeError as e:
        return f"expected one JSON object, found what is none: {e.msg} at character {e.pos + 1}"
    if not isinstance(row, _JsonObject):
        return "expected a JSON object"
    if row.twice:
        return f"expected a JSON object that names each key once, found {row.twice[0]!r} twice"
    for key, value in row.items():
        if not _is_unicode(dumps([key, value], ensure_ascii=False)):
            return f"column {key!r}: expected text in Unicode, found {dumps(value)}"
    if _parsed([line], pa.schema([])) is None:
        beyond = next((f"column {key!r}: " for key in row if not _is_finite(row[key])), "")
        return f"{beyond}expected numbers of 64 bits, found one that cannot be read"
    for field in schema:
        if _parsed([line], pa.schema([field])) is None:
            value = row.get(field.name)
            as_count = "datetime" in types[field.name] and type(value) is int
            return (
                f"column {field.name!r}: expected {types[field.name]}, found "
                f"{dumps(value, ensure_ascii=False)}{_COUNTED if as_count else ''}"
            )
    return "expected a JSON object that can be read"


def _is_unicode(text: str) -> bool:
    """Whether a text has no half of a pair of surrogates, as JSON may have it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_finite(value: Any) -> bool:
    """Whether a value has no number beyond 64 bits: JSON in Python reads it as infinite."""
    try:
        return bool(dumps(value, allow_nan=False))
    except ValueError:
        return False


class _JsonObject(dict[str, Any]):
    """A JSON object, and the keys that it has twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.twice = [key for key, n in Counter(key for key, _ in pairs).items() if n > 1]


def _as_text(t: pa.DataType) -> pa.DataType:
    """A type in JSON: with strings in place of dates and times, at any depth."""
    if isinstance(t, pa.StructType):
        return pa.struct([pa.field(f.name, _as_text(f.type)) for f in t])
    if isinstance(t, pa.ListType):
        return pa.list_(_as_text(t.value_type))
    return pa.string() if pa.types.is_temporal(t) else t


def _told_in_json(t: pa.DataType) -> str:
    """A type for a message: for a date or a time, its text."""
    return f"the text of a {told_type(t)}" if pa.types.is_temporal(t) else told_type(t)


# -- types


def _head(system: pafs.FileSystem, path: str) -> bytes:
    """The first whole lines of a file, up to `HEAD` bytes, or its first line."""
    with system.open_input_stream(path) as file:
        data = b""
        while block := file.read(HEAD):
            whole, newline, _ = block.rpartition(b"\n")
            if newline and len(block) == HEAD:
                return data + whole + newline
            data += block
    return data


def _inferred(lines: list[bytes]) -> Iterator[pa.Schema]:
    """The schemas of the parts of lines that Arrow can read. Unreadable parts are halved."""
    schema = _schema_of(lines)
    if schema is not None:
        yield schema
    elif len(lines) > 1:
        half = len(lines) // 2
        yield from _inferred(lines[:half])
        yield from _inferred(lines[half:])


def _schema_of(lines: list[bytes]) -> pa.Schema | None:
    """The schema that Arrow infers from objects; None if it cannot read them."""
    if not lines:
        return None
    data = b"\n".join(lines)
    try:
        options = pajson.ReadOptions(block_size=max(1 << 20, len(data) + 1))
        schema = pajson.read_json(io.BytesIO(data), read_options=options).schema
    except pa.ArrowInvalid:
        return None
    in_text = pa.schema([(f.name, _as_text(f.type)) for f in schema])
    table = None if in_text == schema else _parsed(lines, in_text)
    return schema if table is None else held_types(table, schema)


# -- values


def has_no_text(t: pa.DataType, *, nested: bool) -> bool:
    """Whether a type has no form in text: durations, and without `nested` structs and lists."""
    if isinstance(t, pa.StructType):
        return not nested or any(has_no_text(f.type, nested=nested) for f in t)
    if isinstance(t, pa.ListType):
        return not nested or has_no_text(t.value_type, nested=nested)
    return pa.types.is_duration(t)


def _misfits(lines: list[int] | None, misfits: list[Misfit]) -> pa.Table:
    """Misfits as a table, with the numbers of their lines, if known, and in their order."""
    rows = [{"row": text, "reason": reason, COUNT: 1} for text, reason in misfits]
    table = pa.Table.from_pylist(rows, MISFITS)
    if lines is None:
        return table
    places: Any = pa.array([f"line {number}" for number in lines], pa.string())
    return table.append_column(AT, places).take(np.argsort(lines, kind="stable"))


def _converted(
    table: pa.Table, columns: pa.Schema, unclosed: Mapping[int, str]
) -> tuple[pa.Table, dict[int, str]]:
    """The rows with the wanted types, without those that have a value outside its type.

    For these it returns the reasons, by the number of the row; `unclosed` are wrong already.
    """
    arrays: list[Array] = []
    reasons = dict(unclosed)
    in_table = as_in_table(columns)
    for field, in_file in zip(columns, in_table, strict=True):
        array = one_array(table.column(field.name))
        if pa.types.is_binary(array.type) and not pa.types.is_binary(field.type):
            array, at = cast_or_null(array, pa.string())
            reasons |= {int(i): f"column {field.name!r}: expected text in UTF-8" for i in at}
            if not pa.types.is_string(field.type):
                array = pc.if_else(pc.equal(array, ""), None, array)
        values, at = valued(array, in_file.type)
        expected = f"column {field.name!r}: expected {told_type(in_file.type)}"
        for i in at:
            reasons.setdefault(int(i), f"{expected}, found {array[int(i)].as_py()!r}")
        if values.null_count and not field.nullable:
            for i in pc.indices_nonzero(values.is_null()).to_pylist():
                reasons.setdefault(i, f"{expected}, found NULL")
        arrays.append(values)
    rows = pa.Table.from_arrays(arrays, names=columns.names)
    if reasons:
        keep = np.ones(rows.num_rows, np.bool_)
        keep[list(reasons)] = False
        rows = rows.filter(pa.array(keep))
    return rows, dict(sorted(reasons.items()))


def _texts(table: pa.Table, rows: list[int]) -> list[str]:
    """Some rows of CSV as JSON. Their columns were read as bytes, and are decoded."""

    def text(column: Any) -> Any:
        if not pa.types.is_binary(column.type):
            return column
        return [v if v is None else v.decode(errors="backslashreplace") for v in column.to_pylist()]

    some = table.take(pa.array(rows, pa.int64()))
    decoded = pa.table({name: text(some.column(name)) for name in some.column_names})
    return list(map(str, texts_of(decoded).to_pylist()))


class Format(Protocol):
    """A format of files."""

    def read(self, system: pafs.FileSystem, path: str, columns: pa.Schema) -> Iterator[TextBlock]:
        """The rows of a file, with columns named like the fields, and lines that are no rows."""

    def schema(self, system: pafs.FileSystem, path: str) -> pa.Schema:
        """The columns of a file; for text formats their types are inferred."""


class Parquet:
    """Parquet files, whose columns have types."""

    def read(self, system: pafs.FileSystem, path: str, columns: pa.Schema) -> Iterator[TextBlock]:
        """The rows of a file, with the types of the file."""
        with system.open_input_file(path) as opened:
            file: Any = parquet_file(opened)
            in_file = file.schema_arrow
            names = matched(_there(columns, in_file.names), in_file.names, pa.ArrowInvalid)
            schema = pa.schema([plain_field(in_file.field(c), n) for n, c in names.items()])
            no_rows = _with_absent(schema.empty_table(), columns)
            yield TextBlock(no_rows, MISFITS.empty_table())
            for batch in file.iter_batches(columns=list(names.values())):
                arrays = [plain(batch.column(c)) for c in names.values()]
                rows = _with_absent(pa.Table.from_arrays(arrays, schema=schema), columns)
                yield TextBlock(rows, MISFITS.empty_table())

    def schema(self, system: pafs.FileSystem, path: str) -> pa.Schema:
        """The columns of a file."""
        with system.open_input_file(path) as opened:
            return parquet_file(opened).schema_arrow.remove_metadata()


class JsonLines:
    """Files with a JSON object in each line."""

    read = staticmethod(json)

    def schema(self, system: pafs.FileSystem, path: str) -> pa.Schema:
        """The fields of the first objects of a file, with types inferred from their values."""
        data = _head(system, path).removeprefix(_BYTE_ORDER)
        objects = [line for _, line in _lines_of(data) if line.startswith(b"{")]
        return first_typed(_inferred(objects), wider=True)


class Csv:
    """Files with a header and a row in each line."""

    read = staticmethod(csv)

    def schema(self, system: pafs.FileSystem, path: str) -> pa.Schema:
        """The columns of a file, with types inferred from the values in its first bytes."""
        skip: Any = lambda line: "skip"  # noqa: E731
        text = _head(system, path).decode(errors="replace")  # a line that is skipped is text
        if not text.strip():
            return pa.schema([])
        if "\0" in text:
            raise pa.ArrowInvalid("it contains bytes with the value 0, and is no text in UTF-8")
        head: Any = pa.py_buffer(f"{text}\n".encode())  # also behind a header alone
        options: Any = {
            "read_options": pacsv.ReadOptions(block_size=len(text) * 4 + 1),
            "parse_options": pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
        }
        csv_file: Any = pa.BufferReader
        inferred = pacsv.open_csv(csv_file(head), **options).schema
        if len({*inferred.names}) < len(inferred):
            return inferred
        as_text: Any = pacsv.ConvertOptions(column_types=dict.fromkeys(inferred.names, pa.string()))
        texts = pacsv.read_csv(csv_file(head), convert_options=as_text, **options)
        return held_types(texts, inferred)

    names = staticmethod(_header)


FORMATS: dict[str, Format] = {"parquet": Parquet(), "json": JsonLines(), "csv": Csv()}
