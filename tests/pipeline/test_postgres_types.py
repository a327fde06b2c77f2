"""Each type of Postgres in a source: read as it is, or refused by name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest

import stepping_spark as st
from stepping_spark.base.errors import InputError, SourceError
from stepping_spark.pipeline.postgres.types import span_of
from tests.pipeline.following import Database, Follower

TEXT = pa.string()

SAMPLES = {
    "aclitem": "stepping=r/stepping",
    "bit": "1",
    "bool": "true",
    "box": "(1,1),(0,0)",
    "bytea": "\\x00ff",
    "cidr": "10.0.0.0/8",
    "circle": "<(0,0),1>",
    "date": "2024-05-01",
    "gtsvector": None,
    "inet": "10.0.0.1",
    "int2vector": "1 2",
    "interval": "1 day -02:00:00.5",
    "json": '{"a": [1, null]}',
    "jsonb": '{"a": [1, null]}',
    "jsonpath": '$."a"',
    "line": "{1,2,3}",
    "lseg": "[(0,0),(1,1)]",
    "macaddr": "08:00:2b:01:02:03",
    "macaddr8": "08:00:2b:01:02:03:04:05",
    "money": "$1.50",
    "oidvector": "1 2",
    "path": "((0,0),(1,1))",
    "pg_lsn": "0/16B3748",
    "pg_snapshot": "10:20:10,14,15",
    "point": "(1,2)",
    "polygon": "((0,0),(1,1))",
    "regclass": "pg_type",
    "regcollation": '"C"',
    "regconfig": "english",
    "regdatabase": "postgres",
    "regdictionary": "simple",
    "regnamespace": "pg_catalog",
    "regoper": "0",
    "regoperator": "+(integer,integer)",
    "regproc": "pg_catalog.now",
    "regprocedure": "pg_catalog.now()",
    "regrole": "stepping",
    "regtype": "integer",
    "tid": "(0,1)",
    "time": "10:00:00.5",
    "timestamp": "2024-05-01 10:00:00.123456",
    "timestamptz": "2024-05-01 10:00:00.5+02",
    "timetz": "10:00:00+02",
    "tsquery": "'a' & 'b'",
    "tsvector": "'a':1 'b':2",
    "txid_snapshot": "10:20:10,14,15",
    "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "varbit": "101",
    "xml": "<a/>",
}
"""A value of each base type; of one that is not here, 1."""
NAMED = ("aclitem", *(name for name in SAMPLES if name.startswith("reg")))


def all_types(db: Database) -> list[str]:
    """The base types, ranges and multiranges that a column can have."""
    return [
        name
        for (name,) in db.run(
            "SELECT typname FROM pg_type WHERE typtype IN ('b', 'r', 'm') AND typcategory <> 'A' "
            "AND typnamespace = 'pg_catalog'::regnamespace ORDER BY 1"
        )
    ]


def sample_of(name: str) -> str | None:
    if name.endswith("multirange"):
        return "{}"
    return "empty" if name.endswith("range") else SAMPLES.get(name, "1")


@pytest.mark.turn(3)
def test_every_base_type_and_its_array_is_read_or_refused_by_name(db: Database) -> None:
    # finding 3
    left = []
    for name in all_types(db):
        sample = sample_of(name)
        try:
            db.run(f'CREATE TABLE "t_{name}" (v pg_catalog."{name}", a pg_catalog."{name}"[])')
        except psycopg.Error as e:  # a type that no column can have
            left.append((name, e))
            continue
        table = f"t_{name}"
        try:
            if sample is not None:
                db.run(f'INSERT INTO "{table}" VALUES (%s, ARRAY[%s, NULL]::pg_catalog."{name}"[])',
                       sample, sample)  # fmt: skip
        except psycopg.Error as e:  # without libxml, and internal types
            left.append((name, e))
        db.run(f'INSERT INTO "{table}" VALUES (NULL, NULL)')
        db.table(table).install()
        own = Follower(db.table(table)).schema()
        wanted = Follower(db.table(table), v=TEXT, a=pa.list_(TEXT)).schema()
        schema = own if not isinstance(own.field("v").type, pa.OpaqueType) else wanted
        if isinstance(schema.field("v").type, pa.OpaqueType):
            assert name in NAMED
            continue
        follower = Follower(db.table(table))
        follower.columns = pa.schema([f for f in schema if "opaque" not in str(f.type)])
        follower.read()
        assert not follower.unfit, name
        assert sum(follower.left.values()) == db.run(f'SELECT count(*) FROM "{table}"')[0][0]
        if schema.field("v").type == TEXT:
            shown = {row[0] or "" for row in follower.left}
            assert shown == {v for (v,) in db.run(f"SELECT format('%s', v) FROM \"{table}\"")}, name
    assert {name for name, _ in left} <= {
        "gtsvector", "pg_brin_bloom_summary", "pg_brin_minmax_multi_summary", "pg_dependencies",
        "pg_mcv_list", "pg_ndistinct", "pg_node_tree", "xml",
    }  # fmt: skip


def test_values_are_read_as_they_are(db: Database) -> None:
    db.run("CREATE DOMAIN money_ AS numeric(10, 2); CREATE TYPE mood AS ENUM ('good', 'bad')")
    db.run("CREATE TYPE pair AS (at date, n numeric(5, 1), moods mood[])")
    db.run(
        """CREATE TABLE t (i2 int2, i8 int8, f4 float4, f8 float8, n numeric(10, 2), d money_,
        free numeric, b bytea, day date, ts timestamp, tz timestamptz, span interval, m mood,
        ints int[], deep int[], nested jsonb, days date[], p pair, ps pair[], texts text[],
        j json, r int4range, c char(3), blobs bytea[], spans interval[], neg numeric(3, -2))"""
    )
    db.run(
        r"""INSERT INTO t VALUES (-7, 9007199254740993, 0.1, 0.1, 19.99, 1.5, 1.255, '\x00ff',
        '2024-05-01', '2024-05-01 10:00:00.000001', '2024-05-01 10:00+02', '-1 day +02:00:00',
        'bad', '{1,NULL}', '{{1,2},{3,4}}',
        '{"a": [1, 2], "when": "2024-05-01", "p": 1.10, "more": 7}',
        '{2024-05-01}', ('2024-05-01', 1.5, '{good}'), ARRAY[(NULL, 2, NULL)::pair],
        '{"a,\"b",NULL,"NULL",""}', ' {"a" : 1}', '[1,5)', 'a', '{"\\x01"}', '{1 day}', 12345)"""
    )
    db.table("t").install()
    schema = Follower(db.table("t")).schema()
    nested = pa.struct(
        [("a", pa.list_(pa.int64())), ("when", pa.date32()), ("p", pa.decimal128(9, 2))]
    )
    for name, t in {
        "free": pa.decimal128(10, 3), "deep": pa.list_(pa.list_(pa.int64())), "nested": nested,
        "r": TEXT,
    }.items():  # fmt: skip
        schema = schema.set(schema.get_field_index(name), pa.field(name, t))
    follower = Follower(db.table("t"))
    follower.columns = schema
    schema = follower.schema()
    assert schema.field("nested").type == nested
    assert schema.field("deep").type == pa.list_(pa.list_(pa.int32()))
    follower.columns = schema
    follower.read()
    assert not follower.unfit
    ((row, _),) = follower.left.items()
    day = dt.date(2024, 5, 1)
    assert dict(zip(schema.names, row, strict=True)) == {
        "i2": -7,
        "i8": 9007199254740993,
        "f4": 0.10000000149011612,
        "f8": 0.1,
        "n": Decimal("19.99"),
        "d": Decimal("1.50"),
        "free": Decimal("1.255"),
        "b": b"\x00\xff",
        "day": day,
        "ts": dt.datetime(2024, 5, 1, 10, 0, 0, 1),
        "tz": dt.datetime(2024, 5, 1, 8, tzinfo=dt.UTC),
        "span": dt.timedelta(days=-1, hours=2),
        "m": "bad",
        "ints": (1, None),
        "deep": ((1, 2), (3, 4)),
        "nested": (("a", (1, 2)), ("p", Decimal("1.10")), ("when", day)),
        "days": (day,),
        "p": (("at", day), ("moods", ("good",)), ("n", Decimal("1.5"))),
        "ps": ((("at", None), ("moods", None), ("n", Decimal("2.0"))),),
        "texts": ('a,"b', None, "NULL", ""),
        "j": ' {"a" : 1}',
        "r": "[1,5)",
        "c": "a  ",
        "blobs": (b"\x01",),
        "spans": (dt.timedelta(days=1),),
        "neg": Decimal("12300"),
    }


@pytest.mark.parametrize(
    ("sort", "value", "t"),
    [
        ("numeric", "NaN", pa.decimal128(38, 18)),
        ("numeric", "1e30", pa.decimal128(38, 18)),
        ("numeric(10, 2)", "NaN", pa.decimal128(10, 2)),
        ("date", "infinity", pa.date32()),
        ("date", "10000-01-01", pa.date32()),
        ("date", "0044-03-15 BC", pa.date32()),
        ("timestamp", "-infinity", pa.timestamp("us")),
        ("timestamp", "294276-01-01", pa.timestamp("us")),
        ("timestamptz", "0044-03-15 BC", pa.timestamp("us", tz="UTC")),
        ("interval", "1 mon", pa.duration("us")),
        ("interval", "1 year 2 days", pa.duration("us")),
        ("interval", "178000000 years", pa.duration("us")),
        ("interval", "2000000000 days", pa.duration("us")),
        ("int[]", "{{1}}", pa.list_(pa.int32())),
        ("numeric[]", "{1,NaN}", pa.list_(pa.decimal128(38, 18))),
        ("date[]", "{infinity}", pa.list_(pa.date32())),
        ("jsonb", "[1.5]", pa.list_(pa.int64())),
        ("jsonb", '["1"]', pa.list_(pa.int64())),
        ("jsonb", "[true]", pa.list_(pa.int64())),
        ("jsonb", "[1]", pa.list_(pa.string())),
        ("jsonb", "[1]", pa.list_(pa.bool_())),
        ("jsonb", "[9007199254740993]", pa.list_(pa.float64())),
        ("jsonb", "[1e400]", pa.list_(pa.float64())),
        ("jsonb", '"abc"', pa.list_(pa.string())),
        ("jsonb", '{"a": [1, 2]}', pa.struct([("a", pa.struct([("b", pa.int64())]))])),
        ("jsonb", '["2024-05-01T10:00:00"]', pa.list_(pa.timestamp("us", tz="UTC"))),
        ("jsonb", '["2024-05-01T10:00:00Z"]', pa.list_(pa.timestamp("us"))),
        ("jsonb", '["2024-05-01T10:00:00"]', pa.list_(pa.date32())),
        ("jsonb", '["2024-05-01"]', pa.list_(pa.timestamp("us"))),
        ("jsonb", '["zz"]', pa.list_(pa.binary())),
        ("json", r'["\ud800"]', pa.list_(pa.string())),
        ("json", "[" * 5000 + "]" * 5000, pa.list_(pa.string())),
    ],
)  # fmt: skip
def test_a_value_that_arrow_cannot_hold_is_a_misfit(
    db: Database, sort: str, value: str, t: pa.DataType
) -> None:
    db.run(f"CREATE TABLE t (id int PRIMARY KEY, v {sort})")
    db.table("t").install()
    db.run("SET IntervalStyle = 'postgres'")
    db.run("INSERT INTO t VALUES (1, NULL), (2, %s)", value)
    follower = Follower(db.table("t"), id=pa.int32(), v=t)
    assert follower.schema().field("v").type == t
    follower.read()
    assert set(follower.left) == {(1, None)}
    (said,) = follower.unfit
    assert said.startswith("id = 2: column v: ")
    db.run("DELETE FROM t WHERE id = 2")
    follower.read()
    assert not follower.unfit


@pytest.mark.parametrize(
    "sort", ["inet", "point", "int4range", "money", "tsvector", "time", "hstore_"]
)
def test_a_type_that_arrow_does_not_have_is_text_and_opaque_where_it_cannot_be(
    db: Database, sort: str
) -> None:
    if sort == "hstore_":
        sort = "regclass"
    db.run(f"CREATE TABLE t (v {sort})")
    db.table("t").install()
    (own,) = Follower(db.table("t")).schema().types
    (text,) = Follower(db.table("t"), v=TEXT).schema().types
    (other,) = Follower(db.table("t"), v=pa.int64()).schema().types
    assert isinstance(other, pa.OpaqueType)
    assert other.type_name == sort
    assert own == text == (other if sort == "regclass" else TEXT)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("00:00:00", dt.timedelta()),
        ("-00:00:00.5", dt.timedelta(seconds=-0.5)),
        ("3 days", dt.timedelta(days=3)),
        ("-3 days +04:05:06.789", dt.timedelta(days=-3, hours=4, minutes=5, seconds=6.789)),
        ("1000000:00:00", dt.timedelta(hours=1_000_000)),
    ],
)
def test_a_span_is_read_as_postgres_writes_it(text: str, span: dt.timedelta) -> None:
    assert span_of(text) == span


def test_a_column_is_found_by_its_exact_name(db: Database) -> None:
    # finding 10
    db.run('CREATE TABLE t (qty int, "Qty" int, "a b" int)')
    db.table("t").install()
    db.run("INSERT INTO t VALUES (1, 2, 3)")

    def read(**columns: Any) -> list[tuple[Any, ...]]:
        follower = Follower(db.table("t"), **columns)
        follower.read()
        return list(follower.left)

    assert read(qty=pa.int32()) == [(1,)]
    assert read(Qty=pa.int32()) == [(2,)]
    follower = Follower(db.table("t"), n=pa.int32())
    follower.columns = pa.schema([pa.field("n", pa.int32(), metadata={"column": "a b"})])
    follower.read()
    assert list(follower.left) == [(3,)]


# -- in a pipeline


def same(field: Any) -> Any:
    """A query of rows with an `id` and a field `v`, as they are."""
    row: Any = type("Row", (st.Data,), {"__annotations__": {"id": int, "v": field}})
    zset: Any = st.ZSet

    def rows(rows: Any) -> Any:
        return rows

    rows.__annotations__ = {"rows": zset[row], "return": zset[row]}
    return rows


def read(db: Database, field: Any, **given: Any) -> list[Any]:
    """The values of `v` after each step of a pipeline."""
    seen: list[Any] = []
    into = {"rows": lambda step, change: seen.append([(r.v, n) for r, n in change.iter()])}
    with st.Pipeline(same(field), store="memory", rows=db.table("t", **given), into=into) as run:
        run.run()
    return seen


@pytest.mark.parametrize(
    ("sort", "value", "field"),
    [
        ("numeric", "19.99", int),
        ("numeric", "19.99", float),
        ("numeric(10, 2)", "19.99", int),
        ("float8", "19.99", int),
        ("real", "19.99", int),
        ("float8[]", "{19.99}", list[int]),
        ("timestamp", "2024-05-01", dt.datetime),
        ("timestamptz", "2024-05-01", st.LocalDateTime),
        ("timestamp", "2024-05-01 10:00", dt.date),
        ("timestamptz", "2024-05-01 10:00", dt.date),
        ("date", "2024-05-01", st.LocalDateTime),
        ("text", "abc", list[str]),
        ("text", "abc", bytes),
        ("bytea", "abc", str),
        ("int", "1", str),
        ("inet", "10.0.0.1", int),
        ("regclass", "pg_type", str),
        ("time", "10:00", dt.timedelta),
        ("json", "1", int),
    ],
)
def test_a_column_of_another_type_is_refused_when_it_is_opened(
    db: Database, sort: str, value: str, field: Any
) -> None:
    # finding 3
    db.run(f"CREATE TABLE t (id bigint, v {sort})")
    db.table("t").install()
    with pytest.raises((InputError, SourceError), match=r"column '?v"):
        read(db, field)
    db.run("INSERT INTO t VALUES (1, %s)", value)
    with pytest.raises((InputError, SourceError), match=r"column '?v"):
        read(db, field)


@pytest.mark.parametrize(
    ("sort", "value", "field", "found"),
    [
        ("smallint", "7", int, 7),
        ("oid", "7", int, 7),
        ("int", "7", float, 7.0),
        ("real", "0.5", float, 0.5),
        ("numeric(5, 2)", "1.25", Annotated[Decimal, st.Precision(12, 4)], Decimal("1.2500")),
        ("numeric", "1.25", Annotated[Decimal, st.Precision(5, 2)], Decimal("1.25")),
        ("numeric", "1.25", Decimal, Decimal("1.25")),
        ("uuid", str(UUID(int=7)), UUID, UUID(int=7)),
        ("uuid", str(UUID(int=7)), str, str(UUID(int=7))),
        ("inet", "10.0.0.1", str, "10.0.0.1"),
        ("json", '{"a": 1}', str, '{"a": 1}'),
        ("jsonb", "[1, 2]", list[int], (1, 2)),
        ("smallint[]", "{1,2}", list[int], (1, 2)),
    ],
)
def test_a_column_of_a_narrower_type_is_read(
    db: Database, sort: str, value: str, field: Any, found: Any
) -> None:
    db.run(f"CREATE TABLE t (id int, v {sort})")
    db.table("t").install()
    db.run("INSERT INTO t VALUES (1, %s)", value)
    assert read(db, field) == [[(found, 1)]]


def test_rows_that_do_not_fit_go_where_they_are_wanted_and_a_class_is_made_of_the_table(
    db: Database,
) -> None:
    # finding 17
    db.run("CREATE TABLE t (id bigint PRIMARY KEY, v numeric(10, 2), at point)")
    row_of = st.row_class(db.table("t"), name="Row")
    assert row_of(id=1, v=None, at=None).v is None
    db.table("t").install()
    db.run("INSERT INTO t VALUES (1, 1.5), (2, 'NaN')")
    with pytest.raises((InputError, SourceError), match="id = 2: column v: 'NaN' does not fit"):
        read(db, Annotated[Decimal, st.Precision(10, 2)])
    rejected: list[Any] = []
    sink = lambda step, change: rejected.extend(change.iter())  # noqa: E731
    for on_invalid in ("drop", sink):
        found = read(db, Annotated[Decimal, st.Precision(10, 2)], on_invalid=on_invalid)
        assert found == [[(Decimal("1.50"), 1)]]
    ((row, n),) = rejected
    assert (n, row.reason) == (1, "id = 2: column v: 'NaN' does not fit decimal128(10, 2)")
    db.run("UPDATE t SET v = 2 WHERE id = 2")
    assert len(read(db, Annotated[Decimal, st.Precision(10, 2)])[0]) == 2
