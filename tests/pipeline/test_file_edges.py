"""Files as other programs write them: every type, odd values, records of any length."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st_

import stepping_spark as st
from stepping_spark import functions as F
from stepping_spark.base.errors import InputError, SinkError, SourceError
from tests.cases import Z
from tests.pipeline.field_types import FIELDS as FIELD_TYPES
from tests.pipeline.field_types import nested


class Line(st.Data):
    id: int
    text: str | None
    size: int | None = None


class Deed(st.Data):
    at: dt.datetime | None
    local: st.LocalDateTime | None
    day: dt.date | None
    price: Annotated[Decimal, st.Precision(6, 2)] | None
    ratio: float | None
    done: bool | None


class Inner(st.Data):
    at: Annotated[dt.datetime | None, st.Column("a.b")]
    days: list[dt.date]


class Nested(st.Data):
    number: Annotated[int, st.Column("Sample Number")]
    inner: Annotated[list[Inner | None] | None, st.Column("_in")]


def read(folder: Path, of: Any, kind: str, **given: Any) -> tuple[Any, list[tuple[str, str]]]:
    """The rows of the files of a folder, and the others with their reasons."""

    def query(rows: Any) -> Any:
        return st.distinct(rows)

    query.__annotations__ = {"rows": st.ZSet[of], "return": st.ZSet[of]}
    seen: dict[int, Any] = {}
    rejected: list[tuple[str, str]] = []

    def reject(step: int, rows: Any) -> None:
        rejected.extend((r.row, r.reason) for r, _ in rows.iter())

    rows = st.Files(folder, kind, **{"on_invalid": reject, **given})
    st.Pipeline(query, store="memory", rows=rows, into=seen.__setitem__).run()
    return seen.get(1, Z({})), rejected


def strict(folder: Path, of: Any, kind: str) -> Any:
    def query(rows: Any) -> Any:
        return st.distinct(rows)

    query.__annotations__ = {"rows": st.ZSet[of], "return": st.ZSet[of]}
    return st.Pipeline(query, store="memory", rows=st.Files(folder, kind), into=print)


def test_only_an_empty_field_of_csv_is_null(tmp_path: Path) -> None:
    """Finding 12."""
    (tmp_path / "a").write_text("id,text\n1,NaN\n2,NA\n3,null\n4,n/a\n5,\n")
    rows, rejected = read(tmp_path, Line, "csv", columns={"size": "id"})
    assert {r.text for r, _ in rows.iter()} == {"NaN", "NA", "null", "n/a", ""}
    assert not rejected
    (tmp_path / "a").write_text("id,text,size\n1,x,\n2,x,NaN\n3,x,null\n")
    rows, rejected = read(tmp_path, Line, "csv")
    assert rows == Z({Line(id=1, text="x"): 1})
    assert [reason for _, reason in rejected] == [
        "column 'size': expected int, found 'NaN'",
        "column 'size': expected int, found 'null'",
    ]


RIGHT = {
    "at": "2024-02-29T12:00:00+02:00",
    "local": "2024-02-29T12:00:00",
    "day": "2024-02-29",
    "price": "12.50",
    "ratio": "0.5",
    "done": "true",
}
WRONG = {
    "at": "2024-02-29T12:00:00",
    "local": "2024-02-29T12:00:00Z",
    "day": "2024-02-30",
    "price": "12.505",
    "ratio": "half",
    "done": "maybe",
}


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize("field", WRONG)
def test_a_text_that_is_no_value_of_its_type_is_one_row_that_does_not_fit(
    tmp_path: Path, kind: str, field: str
) -> None:
    """Finding 12: a time without a zone is no datetime, one with a zone no LocalDateTime."""
    lines: list[dict[str, str | None]] = [
        {**RIGHT},
        {**RIGHT, field: WRONG[field]},
        dict.fromkeys(RIGHT),
    ]
    if kind == "csv":
        texts = [",".join(RIGHT), *(",".join(v or "" for v in line.values()) for line in lines)]
    else:
        numbers = {"true": True, "0.5": 0.5, "12.50": 12.5}
        texts = [json.dumps({n: numbers.get(v or "", v) for n, v in x.items()}) for x in lines]
    (tmp_path / "a").write_text("\n".join(texts))
    rows, rejected = read(tmp_path, Deed, kind)
    local: Any = dt.datetime(2024, 2, 29, 12)
    right = Deed(
        at=dt.datetime(2024, 2, 29, 10, tzinfo=dt.UTC),
        local=local,
        day=dt.date(2024, 2, 29),
        price=Decimal("12.50"),
        ratio=0.5,
        done=True,
    )
    nothing = Deed(at=None, local=None, day=None, price=None, ratio=None, done=None)
    assert rows == Z({right: 1, nothing: 1})
    ((row, reason),) = rejected
    assert WRONG[field] in row
    assert field in reason or "decimal128(6, 2)" in reason
    with pytest.raises(InputError, match=r"a, .*on_invalid="):
        strict(tmp_path, Deed, kind).run()


def test_times_within_lists_of_json_are_converted_and_found_by_their_names(tmp_path: Path) -> None:
    """Findings 12 and 25."""
    good = {"a.b": "2024-02-29T12:00:00Z", "days": ["2024-02-29"]}
    lines: list[dict[str, Any]] = [
        {"Sample Number": 1, "_in": [good, None], "more": {"x": [1]}},
        {"Sample Number": 2, "_in": [{**good, "days": ["29.2."]}]},
        {"Sample Number": 3},
    ]
    (tmp_path / "a").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows, rejected = read(tmp_path, Nested, "json")
    inner = Inner(at=dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), days=[dt.date(2024, 2, 29)])
    one = Nested(number=1, inner=[inner, None])
    assert rows == Z({one: 1, Nested(number=3, inner=None): 1})
    assert [row for row, _ in rejected] == [json.dumps(lines[1])]


def test_lines_that_are_no_json_do_not_fit_and_the_others_do(tmp_path: Path) -> None:
    broken = [b'{"id": 2', b"[1]", b'{"id": "x"}', b'{"id": 1.0}', b'{"id": 5, "text": "\xff"}']
    good = [b'{"id": %d, "text": "t"}' % i for i in range(10, 40)]
    lines = good[:7] + broken[:2] + good[7:20] + broken[2:] + good[20:]
    (tmp_path / "a").write_bytes(b"\r\n".join(lines) + b"\n\n")
    rows, rejected = read(tmp_path, Line, "json")
    assert sorted(r.id for r, _ in rows.iter()) == list(range(10, 40))
    assert [row.rstrip("\r") for row, _ in rejected] == [
        line.decode(errors="backslashreplace") for line in broken
    ]


def test_lines_of_csv_with_more_or_fewer_fields_and_other_bytes_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'id,text,size\n1,x,2\n2\n3,x,1,9\n4,\xff,1\n5,"a\nb",3\n')
    rows, rejected = read(tmp_path, Line, "csv")
    assert rows == Z({Line(id=1, text="x", size=2): 1, Line(id=5, text="a\nb", size=3): 1})
    assert {(row, reason) for row, reason in rejected} == {
        ("2", "expected 3 fields, found 1"),
        ("3,x,1,9", "expected 3 fields, found 4"),
        ('{"id": "4", "text": "\\\\xff", "size": "1"}', "column 'text': expected text in UTF-8"),
    }


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_csv_file_may_have_a_header_alone(tmp_path: Path, end: str) -> None:
    (tmp_path / "a.csv").write_text(f"id,text,size{end}", newline="")
    assert read(tmp_path, Line, "csv") == (Z({}), [])
    source: Any = st.Files(tmp_path, "csv").source()
    assert source.schema().names == ["id", "text", "size"]


FIT = ('{},"a\nb",2', "{},é,", "")  # the last is no record
MISFITS = ("x{},y,2", "{}", "{},2", "1,2,3,{}", '{},"a\n\nb",z', '"{}\n",,', "{},\xff,3")


@given(st_.lists(st_.sampled_from([*FIT, *MISFITS]), max_size=12))
def test_the_lines_of_csv_that_do_not_fit_are_named(records: list[str]) -> None:
    places: list[str] = []

    def reject(step: int, rows: Any) -> None:
        places.extend(row.position for row, _ in rows.iter())

    with tempfile.TemporaryDirectory() as folder:
        lines = ["", "", "id,text,size", *(r.format(i) for i, r in enumerate(records))]
        text = "\r\n".join(lines)
        (Path(folder) / "a").write_bytes(text.encode().replace("\xff".encode(), b"\xff"))
        read(Path(folder), Line, "csv", on_invalid=reject)
    begin, expected = 4, []
    for record in records:
        if record in MISFITS:
            expected.append(f"a, line {begin}")
        begin += record.count("\n") + 1
    assert sorted(places) == sorted(expected)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_row_that_comes_twice_has_the_place_of_the_first(tmp_path: Path, kind: str) -> None:
    good, bad = {"csv": ("1,x,2", "1,x"), "json": ('{"id": 1, "text": "x"}', "[1]")}[kind]
    lines = [*["id,text,size"] * (kind == "csv"), *[good] * 10]
    for at in (8, 9):  # lines 9 and 10
        lines[at] = bad
    (tmp_path / "a").write_text("\n".join(lines))
    with pytest.raises(InputError, match="a, line 9, expected"):
        strict(tmp_path, Line, kind).run()


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_record_may_be_longer_than_what_is_read_at_once(tmp_path: Path, kind: str) -> None:
    """Finding 18."""
    long = "x" * (20 << 20)
    texts = ["a", long, "b"]
    if kind == "csv":
        lines = ["id,text,size", *(f"{i},{text},1" for i, text in enumerate(texts))]
    else:
        lines = [json.dumps({"id": i, "text": t, "size": 1}) for i, t in enumerate(texts)]
    (tmp_path / "a").write_text("\n".join(lines))
    rows, rejected = read(tmp_path, Line, kind)
    assert sorted((r.id, len(r.text)) for r, _ in rows.iter()) == [(0, 1), (1, len(long)), (2, 1)]
    assert not rejected


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_an_empty_file_has_no_rows(tmp_path: Path, kind: str, name: str) -> None:
    """Finding 18."""
    (tmp_path / name).write_bytes(gzip.compress(b"") if name.endswith("gz") else b"")
    rows, _ = read(tmp_path, Line, kind)
    assert rows == Z({})


def test_a_header_that_names_a_column_twice_is_refused(tmp_path: Path) -> None:
    """Finding 19."""
    (tmp_path / "a").write_text("id,text,size,text\n1,x,1,y\n")
    with pytest.raises(SourceError, match="there are two columns 'text'; rename one"):
        strict(tmp_path, Line, "csv").run()
    (tmp_path / "a").write_text("id,Text,text,size\n1,x,y,1\n")
    rows, _ = read(tmp_path, Line, "csv")
    assert rows == Z({Line(id=1, text="y", size=1): 1})
    (tmp_path / "a").write_text("id,Text,TEXT,size\n1,x,y,1\n")
    with pytest.raises(SourceError, match="there are 'Text' and 'TEXT', which differ in case only"):
        strict(tmp_path, Line, "csv").run()


@pytest.mark.parametrize("first", ["  ", ",,", '"",""'])
def test_a_header_without_names_is_refused(tmp_path: Path, first: str) -> None:
    (tmp_path / "a").write_text(f"{first}\nid,text,size\n1,x,1\n")
    with pytest.raises(SourceError, match="its first line has no name of a column; write the head"):
        strict(tmp_path, Line, "csv").run()


def test_a_file_that_is_written_again_with_the_same_size_is_noticed(tmp_path: Path) -> None:
    """Finding 13."""
    (tmp_path / "a").write_text('{"id": 1, "text": "x"}\n')
    with strict(tmp_path, Line, "json") as running:
        running.run()
        before = (tmp_path / "a").stat()
        (tmp_path / "a").write_text('{"id": 1, "text": "y"}\n')
        os.utime(tmp_path / "a", ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))
        with pytest.raises(SourceError, match="are not those that were read"):
            running.run()
        (tmp_path / "a").write_text('{"id": 1, "text": "x"}\n')
        os.utime(tmp_path / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
        assert running.run() == 0


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_type_that_text_does_not_have_is_refused_when_the_pipeline_is_opened(
    tmp_path: Path, kind: str
) -> None:
    class Span(st.Data):
        span: dt.timedelta

    class Spans(st.Data):
        spans: list[Span]

    for of in (Span, Spans):
        with pytest.raises(SourceError, match=rf"and {kind.upper()} has no such values"):
            strict(tmp_path, of, kind).dry_run()


PARQUET: dict[str, Any] = {
    "null": pa.null(),
    "int8": pa.int8(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float": pa.float32(),
    "decimal256": pa.decimal256(50, 2),
    "large text": pa.large_string(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "fixed": pa.binary(3),
    "date64": pa.date64(),
    "time": pa.time64("us"),
    "ns": pa.timestamp("ns"),
    "zoned": pa.timestamp("ms", "Europe/Berlin"),
    "duration": pa.duration("ns"),
    "list": pa.list_(pa.float32()),
    "large list": pa.large_list(pa.int8()),
    "fixed list": pa.list_(pa.int8(), 2),
    "struct": pa.struct([("x", pa.int16()), ("y", pa.list_(pa.struct([("z", pa.time32("s"))])))]),
    "map": pa.map_(pa.string(), pa.int64()),
}


class Seen(st.Data):
    at: dt.datetime | None = None
    day: dt.date | None = None


class Counted(st.Data):
    at: int


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"at": 1735646400000}', "'at': expected the text of a datetime (with a zone), found 17"),
        ('{"day": 20088}', "'day': expected the text of a date, found 20088$"),
        ('{"at": ["x"]}', "'at': expected the text of a datetime (with a zone), found [\"x\"]$"),
        ('{"at": "2024-12-31"}', "'at': expected datetime (with a zone), found '2024-12-31'$"),
    ],
)
def test_a_time_in_json_is_a_text(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a").write_text(text + "\n")
    _, ((_, reason),) = read(tmp_path, Seen, "json")
    assert said in f"{reason}$"


def test_milliseconds_in_json_are_an_int_that_the_query_makes_a_time(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"at": 1735646400000}\n')
    _, ((_, reason),) = read(tmp_path, Seen, "json")
    assert reason.endswith("declare an int, and use F.timestamp_millis in the query")

    def times(rows: st.ZSet[Counted]) -> st.ZSet[dt.datetime]:
        return st.map(rows, f=lambda c: F.timestamp_millis(c.at))

    seen: list[Any] = []
    st.Pipeline(
        times,
        store="memory",
        rows=st.Files(tmp_path, "json"),
        into=lambda step, change: seen.extend(change.iter()),
    ).run()
    assert seen == [(dt.datetime(2024, 12, 31, 12, tzinfo=dt.UTC), 1)]


class X(st.Data):
    x: int


FIELDS: list[Any] = [
    *(bool, int, float, str, bytes, Decimal, dt.date, dt.datetime, st.LocalDateTime, dt.timedelta),
    *(list[float], list[int], X, list[X]),
]


@pytest.mark.parametrize("name", PARQUET)
def test_each_type_of_parquet_meets_each_type_of_a_field(tmp_path: Path, name: str) -> None:
    """It is read, or refused in our words: no error of pyarrow reaches a user."""
    table = pa.table({"f": pa.nulls(2, PARQUET[name])})
    try:
        pq.write_table(table, tmp_path / "a")
    except pa.ArrowNotImplementedError:
        pytest.skip("Parquet does not have it")
    taken, said = 0, list[str]()
    for t in FIELDS:
        Field: Any = type("Field", (st.Data,), {"__annotations__": {"f": t | None}})  # noqa: N806

        try:
            rows, rejected = read(tmp_path, Field, "parquet")
        except SourceError as e:
            said.append(str(e))
        else:
            taken += 1
            assert rows == Z({Field(f=None): 1})
            assert not rejected
    assert all("expected" in text for text in said)
    assert taken or name in ("time", "map", "struct")


class Everything(st.Data):
    number: Annotated[int, st.Column("Sample Number")]
    kind: Annotated[str, st.Column("class")]
    id: Annotated[int | None, st.Column("_id")]
    span: dt.timedelta
    nested: list[Inner]


def test_what_a_sink_writes_a_source_reads(tmp_path: Path) -> None:
    """Finding 25, in both directions."""
    inner = Inner(at=dt.datetime(2024, 2, 29, tzinfo=dt.UTC), days=[dt.date(1, 1, 1)])
    span = dt.timedelta(seconds=1)
    rows = Z({Everything(number=1, kind="x", id=None, span=span, nested=[inner]): 2})

    def same(rows: st.ZSet[Everything]) -> st.ZSet[Everything]:
        return rows

    out = st.Files(tmp_path / "out", columns={"span": "time span"})
    st.Pipeline(same, store="memory", rows=[(1, rows)], into=out).run()
    (path,) = (tmp_path / "out").iterdir()
    assert pq.read_schema(path).names == ["Sample Number", "class", "_id", "time span", "nested"]
    seen: dict[int, Any] = {}
    st.Pipeline(same, store="memory", rows=out, into=seen.__setitem__).run()
    assert seen == {1: rows}


def test_a_key_that_is_not_unique_is_refused_before_the_commit(tmp_path: Path) -> None:
    """Finding 26: a corrected source goes on."""

    def lines(lines: st.ZSet[Line]) -> st.ZSet[Line]:
        return lines

    items = [(1, Z({Line(id=1, text="a"): 1})), (2, Z({Line(id=1, text="b"): 2}))]
    out = st.Files(tmp_path / "out", changes=True, key="id")
    with st.Pipeline(lines, store="memory", lines=items, into=out) as made:
        with pytest.raises(SinkError, match="several rows with the key id"):
            made.run()
        assert made.stepper.store.last_step() == 1
        items[1] = (2, Z({Line(id=1, text="a"): -1, Line(id=1, text="b"): 1}))
        assert made.run() == 1


def test_a_column_that_the_sink_adds_is_refused_when_the_pipeline_is_opened(tmp_path: Path) -> None:
    class Odd(st.Data):
        step: Annotated[int, st.Column("_step")]

    def odd(rows: st.ZSet[Odd]) -> st.ZSet[Odd]:
        return rows

    for changes in (False, True):
        out = st.Files(tmp_path / "out", changes=changes)
        made = st.Pipeline(odd, store="memory", rows=[], into=out)
        if changes:
            with pytest.raises(SinkError, match="_step and _step would be one column"):
                made.dry_run()
        else:
            assert made.run() == 0


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("name", FIELD_TYPES)
def test_each_type_of_a_field_is_written_and_read_two_deep(
    tmp_path: Path, name: str, changes: bool
) -> None:
    of, rows = nested(name)

    def same(rows: Any) -> Any:
        return st.distinct(rows)

    same.__annotations__ = {"rows": st.ZSet[of]}  # type: ignore[valid-type]
    out, seen = st.Files(tmp_path / "out", changes=changes), dict[int, Any]()
    table = Z(dict.fromkeys(rows, 1))
    st.Pipeline(same, store="memory", rows=[(1, table)], into=out).run()
    st.Pipeline(same, store="memory", rows=out, into=seen.__setitem__).run()
    st.assert_equal(seen[1], table)


ODD_LINES = {
    "null": "expected a JSON object",
    "5": "expected a JSON object",
    '{"id": 1} {"id": 2}': "expected one JSON object, found what is none: Extra data",
    '{"id": 1': "expected one JSON object, found what is none",
    '{"id": "x"}': "column 'id': expected int, found \"x\"",
    '{"id": 1.0}': "column 'id': expected int, found 1.0",
    '{"id": 1, "id": 2}': "expected a JSON object that names each key once, found 'id' twice",
    r'{"id": 1, "more": ["\ud800"]}': "column 'more': expected text in Unicode, found",
    '{"text": "t", "more": {"a": 1}}': "column 'id': expected int, found NULL",
    '{"id": 1, "size": 70000000000000000000, "more": {"a": 1}}': "column 'size': expected int",
}


@pytest.mark.parametrize("others", ["", '{"id": 9, "text": "t"}\n'])
@pytest.mark.parametrize(("line", "reason"), ODD_LINES.items())
def test_a_line_that_is_no_object_is_one_row_that_does_not_fit(
    tmp_path: Path, line: str, reason: str, others: str
) -> None:
    """A line that is null ended the process: pyarrow reads no such line."""
    (tmp_path / "a").write_text(f"{others}{line}\n\n{others}")
    seen: list[st.Rejected] = []

    def reject(step: int, rows: Any) -> None:
        seen.extend(row for row, _ in rows.iter())

    def query(rows: st.ZSet[Line]) -> st.ZSet[Line]:
        return rows

    rows = st.Files(tmp_path, "json", on_invalid=reject)
    st.Pipeline(query, store="memory", rows=rows).run()
    ((row, why, at),) = [(r.row, r.reason, r.position) for r in seen]
    assert (row, why[: len(reason)]) == (line, reason)
    assert at == f"a, line {2 if others else 1}"


def test_keys_of_json_are_found_in_any_case_as_all_columns_are(tmp_path: Path) -> None:
    lines = ['{"ID": 1, "Text": "\\"text\\": \\"x"}', '{"ID": 2, "more": {"id": 7, "size": 1}}']
    (tmp_path / "a").write_text("\n".join(lines))
    rows, rejected = read(tmp_path, Line, "json")
    assert rows == Z({Line(id=1, text='"text": "x'): 1, Line(id=2, text=None): 1})
    assert not rejected
    (tmp_path / "a").write_text('{"ID": 1, "Id": 2}\n')
    with pytest.raises(SourceError, match="there are 'ID' and 'Id', which differ in case only"):
        strict(tmp_path, Line, "json").run()


def test_an_open_quote_in_csv_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('id,text,size\n1,x,2\n"2,y,3\n4,z,5\n')
    _, ((_, reason),) = read(tmp_path, Line, "csv")
    assert reason == "expected 3 fields, found 1; a quote is not closed"


VALUES_OF_FILES: dict[str, st_.SearchStrategy[Any]] = {
    "number": st_.one_of(st_.integers(0, 9), st_.floats(0, 1), st_.none()),
    "text": st_.one_of(st_.sampled_from(["a", "2024-01-01", "7"]), st_.none(), st_.integers(0, 9)),
    "flag": st_.one_of(st_.booleans(), st_.none()),
    "parts": st_.one_of(st_.none(), st_.lists(st_.integers(0, 9), max_size=2)),
}


def lines_of_files(kind: str) -> st_.SearchStrategy[list[str]]:
    """Texts of files whose columns come and go, with other types, and lines that are no rows."""
    names = [n for n in VALUES_OF_FILES if kind == "json" or n != "parts"]
    rows = st_.fixed_dictionaries({}, optional={n: VALUES_OF_FILES[n] for n in names})
    if kind == "json":
        lines = st_.one_of(rows.map(json.dumps), st_.sampled_from(["null", '{"number": ', "{}"]))
        return st_.lists(st_.lists(lines, max_size=4).map("\n".join), min_size=1, max_size=4)

    def text(columns: list[str], rows: list[dict[str, Any]]) -> str:
        shown = [[r.get(n) for n in columns] for r in rows]
        lines = [",".join("" if v is None else str(v) for v in r) for r in shown]
        return "\n".join([",".join(columns), *lines, "1,2,3,4,5"])

    columns = st_.lists(st_.sampled_from(names), min_size=1, unique=True)
    return st_.lists(st_.builds(text, columns, st_.lists(rows, max_size=3)), min_size=1, max_size=4)


@pytest.mark.parametrize("kind", ["json", "csv"])
@given(data=st_.data())
def test_a_later_file_never_changes_the_type_of_a_column(kind: str, data: st_.DataObject) -> None:
    """A pipeline of views in SQL was refused if the newest file lacked a column, or had a float."""
    texts = data.draw(lines_of_files(kind))
    with tempfile.TemporaryDirectory() as folder:
        known: dict[str, pa.DataType] = {}
        for i, text in enumerate(texts):
            Path(folder, f"{i}.{kind}").write_text(text)
            try:
                columns = st.Files(folder, kind).source().schema()
            except SourceError:  # no file has a row yet
                columns = pa.schema([])
            types = {f.name: f.type for f in columns}
            assert {n: types[n] for n in known} == known
            known = {n: t for n, t in types.items() if "null" not in str(t)}


def test_a_source_says_what_its_file_says(tmp_path: Path) -> None:
    """Columns of Parquet that are never NULL are so in SQL, and a first line may have a mark."""
    whole: list[pa.Field[Any]] = [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("x", pa.int64()),
    ]
    pq.write_table(pa.table({"id": [1], "x": [2]}, schema=pa.schema(whole)), tmp_path / "a.parquet")
    assert st.Files(tmp_path).source().schema() == pa.schema(whole)
    (tmp_path / "a.parquet").unlink()
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"id": 1}\n{"x": 2}\n')
    assert st.Files(tmp_path, "json").source().schema().names == ["id", "x"]


@pytest.mark.parametrize("newest", [{"id": ["a"], "text": ["x"]}, {"text": ["x"]}])
def test_a_parquet_file_whose_columns_do_not_fit_is_named(
    tmp_path: Path, newest: dict[str, Any]
) -> None:
    fits = pa.table({"id": [1], "text": ["x"], "size": [1]})
    pq.write_table(fits, tmp_path / "1.parquet")
    pq.write_table(pa.table(newest), tmp_path / "2.parquet")
    for _ in range(2):  # the newest file, and an older one
        with pytest.raises((InputError, SourceError), match=r"2\.parquet.*column"):
            strict(tmp_path, Line, "parquet").run()
        pq.write_table(fits, tmp_path / "3.parquet")


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
@pytest.mark.parametrize("without", [(1,), (1, 2), (1, 3), (2,), (3,), (1, 2, 3)])
def test_a_column_that_files_lack_is_null_in_their_rows(
    tmp_path: Path, kind: str, without: tuple[int, ...]
) -> None:
    """A column that a writer adds or leaves out; no rows were read of the other files."""
    for i in (1, 2, 3):
        row = {"id": i, "text": "x"} if i in without else {"id": i, "text": "x", "size": i}
        if kind == "json":
            (tmp_path / f"{i}.json").write_text(json.dumps(row))
        elif kind == "csv":
            pacsv.write_csv(pa.Table.from_pylist([row]), tmp_path / f"{i}.csv")
        else:
            pq.write_table(pa.Table.from_pylist([row]), tmp_path / f"{i}.parquet")
    if kind != "json" and len(without) == 3:  # perhaps it has another name
        with pytest.raises(SourceError, match="there is no column size; the columns are id, text"):
            strict(tmp_path, Line, kind).run()
        return
    rows, rejected = read(tmp_path, Line, kind)
    sizes = {i: None if i in without else i for i in (1, 2, 3)}
    assert rows == Z({Line(id=i, text="x", size=size): 1 for i, size in sizes.items()})
    assert not rejected


def test_one_line_of_a_file_does_not_decide_about_types(tmp_path: Path) -> None:
    lines = ['{"id": 1}', '{"id": 2', '{"id": 3.5, "text": "x"}', "null", '{"id": "four"}']
    for last in (4, 5):
        (tmp_path / "a.json").write_text("\n".join(lines[:last]))
        columns = st.Files(tmp_path, "json").source().schema()
        assert [(f.name, str(f.type)) for f in columns] == [("id", "double"), ("text", "string")]


FIRST: dict[str, Any] = {"id": pa.array([1]), "x": pa.array(["a"])}
LATER: dict[str, tuple[Any, str]] = {
    "text": ({"id": pa.array(["2"]), "x": pa.array(["b"])}, "column 'id': expected int"),
    "float": ({"id": pa.array([2.5]), "x": pa.array(["b"])}, "column 'id': expected int"),
    "NULL": ({"id": pa.array([2]), "x": pa.nulls(1)}, ""),
    "wider": ({"id": pa.array([2]), "x": pa.array(["b"])}, ""),
    "less": ({"id": pa.array([2])}, ""),
}


@pytest.mark.parametrize("kind", LATER)
def test_a_later_parquet_file_does_not_change_types_that_are_not_stated(
    tmp_path: Path, kind: str
) -> None:
    """The error names the file that does not fit, not the table of the view."""
    (tmp_path / "in").mkdir()
    columns, refused = LATER[kind]
    narrow = {**FIRST, "id": FIRST["id"].cast("int32")} if kind == "wider" else FIRST
    pq.write_table(pa.table(narrow), tmp_path / "in" / "1.parquet")

    def run() -> int:
        files, table = st.Files(tmp_path / "in"), st.Files(tmp_path / "out")
        text = st.sql("SELECT id, x FROM rows")
        store = f"parquet:{tmp_path / 'state'}"
        with st.Pipeline(text, store=store, rows=files, into=table) as pipeline:
            return pipeline.run()

    assert run() == 1
    pq.write_table(pa.table(columns), tmp_path / "in" / "2.parquet")
    if refused:
        with pytest.raises(SourceError, match=rf"2\.parquet, {refused}"):
            run()
    else:
        assert run() == 1


@pytest.mark.parametrize(
    "data",
    [
        "id,größe\n1,2\n".encode("latin-1"),
        "id,text\n1,a\n".encode("utf-16"),
        "id,text\n1,a\n".encode("utf-16-le"),
        gzip.compress(b"id,text\n1,a\n"),
    ],
    ids=["latin-1", "utf-16", "utf-16-le", "gzip"],
)
def test_a_header_that_is_no_text_in_utf_8_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.csv cannot be read: its header is no text in UTF-8"):
        strict(tmp_path, Line, "csv").run()


class Pair(st.Data):
    id: int
    text: str | None


def test_a_column_that_a_file_of_parquet_has_twice_is_refused(tmp_path: Path) -> None:
    table = pa.table({"id": [1], "other": [2], "text": ["a"]})
    pq.write_table(table.rename_columns(["id", "id", "text"]), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="there are two columns 'id'; rename one"):
        strict(tmp_path, Pair, "parquet").run()


@pytest.mark.parametrize(
    ("text", "rows", "line"),
    [
        ('id,text\n1,"a\n2,b\n3,c\n', [], 2),
        ('id,text\n0,b"c\n1,"a""\n2,b\n', [Pair(id=0, text='b"c')], 3),
        ('id,text\n0,x\n1,"', [Pair(id=0, text="x")], 3),
        ('id,text\n0,"x\n"\n1,b"', [Pair(id=0, text="x\n"), Pair(id=1, text='b"')], None),
    ],
)
def test_a_quote_that_is_never_closed_is_a_row_that_does_not_fit(
    tmp_path: Path, text: str, rows: list[Pair], line: int | None
) -> None:
    (tmp_path / "a.csv").write_text(text)
    read_rows, rejected = read(tmp_path, Pair, "csv")
    assert read_rows == Z(dict.fromkeys(rows, 1))
    assert [reason for _, reason in rejected] == ([] if line is None else ["a quote is not closed"])
    if line is not None:
        with pytest.raises(InputError, match=rf"a\.csv, line {line}, a quote is not closed"):
            strict(tmp_path, Pair, "csv").run()


class Number(st.Data):
    id: int
    x: float | None = None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"id": 3, "x": 1e400}', "column 'x': expected numbers of 64 bits"),
        (b'{"id": 3, "other": [-1e400]}', "column 'other': expected numbers of 64 bits"),
        ('{"id": 1}'.encode("utf-16"), "expected text in UTF-8"),
    ],
)
def test_the_reason_names_what_cannot_be_read(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "a.json").write_bytes(data)
    _, ((_, said),) = read(tmp_path, Number, "json")
    assert said.startswith(reason)


@pytest.mark.parametrize("text", ['[{"id": 1},\n{"id": 2}]', '{\n  "id": 1\n}\n', "[]"])
def test_columns_of_json_need_one_object_in_a_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    if text[0] == "[" and "{" in text:
        (tmp_path / "a.json").write_text(text.replace("\n", ""))
    with pytest.raises(SourceError, match="no file with one JSON object in a line"):
        st.row_class(st.Files(tmp_path, "json"))


@pytest.mark.parametrize("kind", ["json", "csv"])
@pytest.mark.parametrize(
    "values",
    [
        ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.5+01:00"],
        ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00"],
        ["2024-01-01 00:00:00"],
        ["2024-01-01T00:00:00.123456789"],
        ["12:00:00"],
        ["NULL", "5"],
        ["N/A", "NaN"],
        [" 5"],
        ["0x1F", "7"],
        ["True", "false"],
    ],
)
def test_a_type_that_is_inferred_has_all_values_it_was_inferred_from(
    tmp_path: Path, kind: str, values: list[str]
) -> None:
    lines = [json.dumps({"id": i, "x": [v], "y": v}) for i, v in enumerate(values)]
    if kind == "csv":
        lines = ["id,y", *(f"{i},{v}" for i, v in enumerate(values)), "9,"]
    (tmp_path / "a").write_text("\n".join(lines))
    query = st.sql("SELECT * FROM rows")
    rows = st.Files(tmp_path, kind)
    assert st.Pipeline(query, store="memory", sources={"rows": rows}).run() == 1
