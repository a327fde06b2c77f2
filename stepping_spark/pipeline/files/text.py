"""Files of text, JSON and CSV: each field is read as text, and converted by itself.

So a value that its type does not have is one of one row: the row does not fit, and the others do. A
time without a zone is no `datetime`, and one with a zone is no `st.LocalDateTime`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from csv import reader as csv_lines
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pacsv
import pyarrow.fs as pafs
import pyarrow.json as pajson

from stepping_spark.pipeline.protocols import MISFITS
from stepping_spark.pipeline.rejects import texts_of
from stepping_spark.relations.arrow import Array, lengths_of, one_array
from stepping_spark.rows.names import as_in_table, matched
from stepping_spark.rows.schema import COUNT
from stepping_spark.spark.errors import first_line
from stepping_spark.zsets.from_arrow import cast_or_null

pc: Any = pyarrow.compute

BLOCK = 1 << 24
"""Bytes of CSV that are read at once; more, if a record has more."""

MOST = 1 << 30
"""The most bytes of one record."""

_STRADDLES = "straddling object"


@dataclass(frozen=True)
class Part:
    """Rows of a file, with the names of the fields, and lines that are no rows: `MISFITS`."""

    rows: pa.Table
    misfits: pa.Table


def _empty(columns: pa.Schema) -> pa.Table:
    """No rows, with the types that the columns have in the table."""
    wanted = as_in_table(columns)
    return pa.table([pa.nulls(0, f.type) for f in wanted], names=columns.names)


# -- CSV


def csv(system: pafs.FileSystem, path: str, columns: pa.Schema) -> Iterator[Part]:
    """The rows of a CSV file, which has a header; a text that is empty is an empty text."""
    yield Part(_empty(columns), MISFITS.empty_table())
    with system.open_input_stream(path) as file:
        opened: Any = file
        header = next(
            csv_lines(io.TextIOWrapper(opened, "utf-8-sig", "surrogateescape", newline="")), None
        )
    if header is None:
        return
    names = _of_header(columns, header)
    done, block = 0, BLOCK
    while True:
        wrong: list[dict[str, Any]] = []
        seen = 0
        try:
            for table in _csv_tables(system, path, list(names.values()), block, wrong):
                new = table.slice(max(0, done - seen))
                seen += table.num_rows
                if new.num_rows:
                    yield _converted(new.rename_columns(list(names)), columns)
            yield Part(_empty(columns), pa.Table.from_pylist(wrong, MISFITS))
            return
        except pa.ArrowInvalid as e:
            if _STRADDLES not in str(e) or block >= MOST:
                raise
        done, block = max(done, seen), block * 8


def _of_header(columns: pa.Schema, there: list[str]) -> dict[str, str]:
    names = matched(columns, there, pa.ArrowInvalid)
    for column in names.values():
        if there.count(column) > 1:
            raise pa.ArrowInvalid(f"the header has the column {column!r} twice; rename one")
    return names


def _csv_tables(
    system: pafs.FileSystem,
    path: str,
    columns: list[str],
    block: int,
    wrong: list[dict[str, Any]],
) -> Iterator[pa.Table]:
    """The columns of a file as bytes; `wrong` gets the lines that have more or fewer fields."""

    def ragged(line: Any) -> Literal["skip"]:
        said = f"expected {line.expected_columns} fields, found {line.actual_columns}"
        wrong.append({"row": line.text, "reason": said, COUNT: 1})
        return "skip"

    binary: Any = pa.binary()
    with system.open_input_stream(path) as file:
        opened: Any = file
        reader = pacsv.open_csv(
            opened,
            read_options=pacsv.ReadOptions(block_size=block),
            parse_options=pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=ragged),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(columns, binary),
                include_columns=columns,
                strings_can_be_null=False,
            ),
        )
        for batch in reader:
            yield pa.Table.from_batches([batch])


# -- JSON


def json(system: pafs.FileSystem, path: str, columns: pa.Schema) -> Iterator[Part]:
    """The rows of a file with a JSON object in each line; a field that is missing is NULL."""
    yield Part(_empty(columns), MISFITS.empty_table())
    wanted = as_in_table(columns)
    with system.open_input_stream(path) as file:
        lines = [line for line in file.read().removeprefix(b"\xef\xbb\xbf").split(b"\n") if line]
    schema = pa.schema([pa.field(f.name, _as_text(f.type)) for f in wanted])
    made = list(_json_tables([line for line in lines if line.strip()], schema))
    table = pa.concat_tables([schema.empty_table(), *(t for t, _ in made)])
    yield _converted(table.rename_columns(columns.names), columns)
    yield Part(_empty(columns), pa.concat_tables([m for _, m in made] or [MISFITS.empty_table()]))


def _json_tables(lines: list[bytes], schema: pa.Schema) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The objects of lines; where they cannot be read, each half by itself."""
    if not lines:
        return
    data = b"\n".join(lines)
    try:
        data.decode()
        block = min(MOST, max(1 << 20, max(map(len, lines)) + 2))
        table = pajson.read_json(
            io.BytesIO(data),
            read_options=pajson.ReadOptions(block_size=block),
            parse_options=pajson.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
        yield table.select(schema.names), MISFITS.empty_table()
        return
    except (pa.ArrowInvalid, UnicodeDecodeError) as e:
        if len(lines) == 1:
            line = lines[0].decode(errors="backslashreplace")
            misfit = {"row": line, "reason": first_line(e), COUNT: 1}
            yield schema.empty_table(), pa.Table.from_pylist([misfit], MISFITS)
            return
    half = len(lines) // 2
    yield from _json_tables(lines[:half], schema)
    yield from _json_tables(lines[half:], schema)


def _as_text(t: pa.DataType) -> pa.DataType:
    """A type as JSON has it: with texts in place of dates and times, at any depth."""
    if isinstance(t, pa.StructType):
        return pa.struct([pa.field(f.name, _as_text(f.type)) for f in t])
    if isinstance(t, pa.ListType):
        return pa.list_(_as_text(t.value_type))
    return pa.string() if pa.types.is_temporal(t) else t


# -- values


def has_no_text(t: pa.DataType, *, nested: bool) -> bool:
    """Whether values of a type cannot be read from text: a duration, in CSV also a list."""
    if isinstance(t, pa.StructType):
        return not nested or any(has_no_text(f.type, nested=nested) for f in t)
    if isinstance(t, pa.ListType):
        return not nested or has_no_text(t.value_type, nested=nested)
    return pa.types.is_duration(t)


def _converted(table: pa.Table, columns: pa.Schema) -> Part:
    """The columns in the wanted types; a row with a value that its type does not have is none."""
    made: list[Array] = []
    reasons: dict[int, str] = {}
    wanted = as_in_table(columns)
    for field, there in zip(columns, wanted, strict=True):
        array = one_array(table.column(field.name))
        if pa.types.is_binary(array.type) and not pa.types.is_binary(field.type):
            array, at = cast_or_null(array, pa.string())
            reasons.update((i, f"column {field.name!r}: expected text in UTF-8") for i in at)
            if not pa.types.is_string(field.type):
                array = pc.if_else(pc.equal(array, ""), None, array)
        values, at = _valued(array, there.type)
        for i in at:
            found = array[int(i)].as_py()
            reasons.setdefault(
                int(i), f"column {field.name!r}: expected {there.type}, found {found!r}"
            )
        made.append(values)
    rows = pa.Table.from_arrays(made, names=columns.names)
    if not reasons:
        return Part(rows, MISFITS.empty_table())
    places = sorted(reasons)
    wrong: Any = pa.array(places, pa.int64())
    texts = texts_of(_of_text(table.take(wrong))).to_pylist()
    misfits = [
        {"row": text, "reason": reasons[i], COUNT: 1} for text, i in zip(texts, places, strict=True)
    ]
    keep = pc.invert(pc.is_in(pa.array(range(rows.num_rows), pa.int64()), value_set=wrong))
    return Part(rows.filter(keep), pa.Table.from_pylist(misfits, MISFITS))


def _of_text(table: pa.Table) -> pa.Table:
    """The fields of CSV, which were read as bytes, as text."""

    def text(column: Any) -> Any:
        if not pa.types.is_binary(column.type):
            return column
        return [v if v is None else v.decode(errors="backslashreplace") for v in column.to_pylist()]

    return pa.table({name: text(table.column(name)) for name in table.column_names})


def _valued(array: Any, t: Any) -> tuple[Array, Iterable[int]]:
    """Values in a type, at any depth, and the places of those that it does not have."""
    if array.type == t:
        return array, ()
    if isinstance(t, pa.StructType):
        parts = [_valued(part, f.type) for part, f in zip(array.flatten(), t, strict=True)]
        made: Any = pa.StructArray.from_arrays(
            [values for values, _ in parts], fields=list(t), mask=array.is_null()
        )
        return made, sorted({i for _, at in parts for i in at})
    if isinstance(t, pa.ListType):
        items, at = _valued(array.flatten(), t.value_type)
        ends = lengths_of(array).cumsum()
        offsets = pa.array([0, *ends.tolist()], pa.int32())
        lists: Any = pa.ListArray.from_arrays(offsets, items, type=t, mask=array.is_null())
        return lists, np.searchsorted(ends, np.asarray(list(at), np.int64), side="right").tolist()
    return cast_or_null(array, t)
