"""A table of Postgres as a sink: what it cannot take is known before the step is committed."""

from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID

import psycopg
import pytest

import stepping_spark as st
from stepping_spark.base.errors import SinkError
from tests.cases import Z
from tests.pipeline.following import Database
from tests.pipeline.shop import Note, numbered

NAN, INF = float("nan"), float("inf")


def notes(notes: st.ZSet[Note]) -> st.ZSet[Note]:
    return notes


def as_they_are(row: Any) -> Any:
    """A query of the rows of a class that is made while the test runs."""
    zset: Any = st.ZSet

    def query(rows: Any) -> Any:
        return rows

    query.__annotations__ = {"rows": zset[row], "return": zset[row]}
    return query


def delivered(sink: Any, *changes: dict[Note, int]) -> None:
    items = numbered(map(Z, changes))
    with st.Pipeline(notes, store="memory", notes=items, into={"notes": sink}) as running:
        running.run()


# -- each type, alone and nested  # finding 15


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


T = TypeVar("T")


class Inner(st.Data, Generic[T]):
    one: T | None
    many: list[T]


class Row(st.Data, Generic[T]):
    id: int
    plain: T | None
    listed: list[list[T | None]]
    deep: Inner[T] | None
    deeper: list[Inner[T]]


Price = Annotated[Decimal, st.Precision(38, 2)]
EDGES: dict[str, tuple[Any, list[Any]]] = {
    "bool": (bool, [True, False]),
    "int": (int, [0, -(2**63), 2**63 - 1, 2**53 + 1]),
    "float": (float, [0.0, 0.1, -1e300, 5e-324, NAN, INF, -INF, 2.0**60]),
    "str": (str, ["", "null", "NaN", 'a"\\\n\t', "\u2028ü🎉", "\\N", "\\.", "x" * 10_000, "\x01"]),
    "bytes": (bytes, [b"", b"\x00\xff\\", b"\\x00"]),
    "Decimal": (Price, [Decimal("0.00"), Decimal("-1.10"), Decimal("9" * 36 + ".99")]),
    "date": (dt.date, [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "datetime": (
        dt.datetime,
        [
            dt.datetime(1, 1, 1, tzinfo=dt.UTC),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
        ],
    ),
    "local": (st.LocalDateTime, [dt.datetime(2024, 5, 1, 10, 0, 0, 1), dt.datetime(1, 1, 1)]),
    "timedelta": (
        dt.timedelta,
        [
            dt.timedelta(),
            dt.timedelta(days=-1, microseconds=1),
            dt.timedelta(days=106_751_990),
            -dt.timedelta(days=106_751_990),
            dt.timedelta(days=1, seconds=-1),
        ],
    ),
    "UUID": (UUID, [UUID(int=0), UUID(int=2**128 - 1)]),
    "Enum": (Mood, list(Mood)),
}


def rows_of(kind: str, of: Any) -> list[Any]:
    t, edges = EDGES[kind]
    generic: Any = Inner
    inner = generic[t]
    return [
        of(
            id=i,
            plain=edge,
            listed=[[edge, None], [], edges],
            deep=inner(one=edge, many=[edge, edge]) if i else None,
            deeper=[inner(one=None, many=[]), inner(one=edge, many=edges)],
        )
        for i, edge in enumerate(edges)
    ] + [of(id=-1, plain=None, listed=[], deep=None, deeper=[])]


@pytest.mark.parametrize("kind", EDGES)
@pytest.mark.parametrize("sort", ["by key", "counted", "changes"])
def test_values_of_each_type_go_into_a_table_and_come_back(
    db: Database, kind: str, sort: str
) -> None:
    generic: Any = Row
    of = generic[EDGES[kind][0]]
    query = as_they_are(of)
    given = Z(dict.fromkeys(rows_of(kind, of), 1))
    options: dict[str, Any] = {"by key": {"key": "id"}, "counted": {}, "changes": {"changes": True}}
    sink = db.table("out", **options[sort])
    with st.Pipeline(query, store="memory", rows=[(1, given)], into={"query": sink}) as running:
        running.run()
    if sort == "changes":
        assert db.run("SELECT count(*) FROM out") == [(len(list(given.iter())),)]
        return
    db.table("out").install()
    seen: list[Any] = []
    into = {"query": lambda step, change: seen.append(change.to_python())}
    with st.Pipeline(query, store="memory", rows=db.table("out"), into=into) as running:
        running.run()
    assert seen == [given]
    if sort == "counted":
        items = [(1, given), (2, Z(dict.fromkeys(rows_of(kind, of), -1)))]
        sink = db.table("away")
        with st.Pipeline(query, store="memory", rows=items, into={"query": sink}) as running:
            running.run(max_steps=1)
            assert db.run("SELECT DISTINCT _count_ FROM away") == [(1,)]
            running.run()
        assert db.run("SELECT count(*) FROM away") == [(0,)]


@pytest.mark.parametrize("kind", sorted(set(EDGES) - {"Enum", "UUID"}))
def test_what_is_nested_is_written_as_to_jsonb_writes_it(db: Database, kind: str) -> None:
    generic: Any = Row
    of = generic[EDGES[kind][0]]
    query = as_they_are(of)
    given = Z(dict.fromkeys(rows_of(kind, of), 1))
    into = {"query": db.table("out", key="id")}
    with st.Pipeline(query, store="memory", rows=[(1, given)], into=into) as running:
        running.run()
    db.run("SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC'")
    written = "SELECT listed -> 0 -> 0, to_jsonb(plain) FROM out WHERE id >= 0"
    assert [a for a, _ in db.run(written)] == [b for _, b in db.run(written)]


# -- what only a value tells


class Keyed(st.Data):
    key: str
    text: str | None
    more: list[str]


LONG = "".join(f"{i:x}" for i in range(40_000))
REFUSED = {
    "NUL in a text": (Keyed(key="a", text="x\0y", more=[]), {}, "column text: .*character NUL"),
    "NUL in a list": (Keyed(key="a", text="", more=["\0"]), {}, "column more: .*character NUL"),
    "NUL in a key": (Keyed(key="\0", text="", more=[]), {"key": "key"}, "column key: .*NUL"),
    "a long key": (
        Keyed(key=LONG, text="", more=[]),
        {"key": "key"},
        r"index row.*use a hash of it.*changes=True",
    ),
}


@pytest.mark.parametrize(("row", "options", "said"), REFUSED.values(), ids=REFUSED)
def test_a_value_that_postgres_cannot_hold_is_refused_before_the_commit(
    db: Database, row: Keyed, options: dict[str, Any], said: str
) -> None:
    # findings 15, 21 and 26
    def rows(rows: st.ZSet[Keyed]) -> st.ZSet[Keyed]:
        return rows

    good = Keyed(key="good", text=None, more=[LONG])
    changes: list[Any] = [Z({good: 1}), Z({row: 1})]
    sink = db.table("out", **options)
    with st.Pipeline(rows, store="memory", rows=numbered(changes), into=sink) as running:
        with pytest.raises(SinkError, match=said):
            running.run()
        assert db.run("SELECT key FROM out") == [("good",)]
        assert db.run("SELECT step FROM stepping_spark_steps") == [(1,)]


def test_a_row_that_somebody_deleted_is_missed(db: Database) -> None:
    # finding 11
    a = Note(id=1, text=None)
    items = numbered([Z({a: 2}), Z({a: -1})])
    with st.Pipeline(notes, store="memory", notes=items, into=db.table("out")) as running:
        running.run(max_steps=1)
        db.run("DELETE FROM out")
        with pytest.raises(SinkError, match="of 1 rows that it got up to step 1, 0 are there"):
            running.run()
        assert db.run("SELECT * FROM out") == []
        db.run("INSERT INTO out VALUES (1, NULL, 2)")
        running.run()
    assert db.run("SELECT * FROM out") == [(1, None, 1)]


def test_rows_that_a_constraint_of_the_table_forbids_are_refused_before_the_commit(
    db: Database,
) -> None:
    db.run(
        "CREATE TABLE out (id integer UNIQUE CHECK (id > 0), text varchar CHECK (length(text) < 4))"
    )
    sink = db.table("out", key="id")
    for row, said in (
        (Note(id=0, text=None), "violates check constraint"),
        (Note(id=2**40, text=None), "out of range"),
        (Note(id=1, text="long"), "violates check constraint"),
    ):
        with pytest.raises(SinkError, match=said):
            delivered(sink, {row: 1})
        assert db.run("SELECT step FROM stepping_spark_steps") == [(0,)]
    delivered(sink, {Note(id=1, text="abc"): 1})
    assert db.run("SELECT * FROM out") == [(1, "abc")]


def test_a_connection_that_is_lost_between_the_check_and_the_commit_loses_nothing(
    db: Database,
) -> None:
    sink = db.table("out", key="id").sink()
    prepare = sink.prepare

    def cut(step: int, change: Any) -> None:
        prepare(step, change)
        db.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name LIKE 'stepping_spark sink%'"
        )

    sink.prepare = cut  # type: ignore[method-assign]
    items = numbered([Z({Note(id=1, text=None): 1})])
    with st.Pipeline(notes, store="memory", notes=items, into=sink) as running:
        with pytest.raises(SinkError):
            running.run()
        sink.prepare = prepare  # type: ignore[method-assign]
        running.run()
    assert db.run("SELECT * FROM out") == [(1, None)]


# -- what the types and names tell


def test_many_columns_need_no_key_and_too_many_in_a_key_are_refused(db: Database) -> None:
    # finding 21
    wide: Any = type("Wide", (st.Data,), {"__annotations__": {f"c{i}": int for i in range(200)}})
    query = as_they_are(wide)
    row = wide(**{f"c{i}": i for i in range(200)})
    items = numbered([Z({row: 2}), Z({row: -1})])
    with st.Pipeline(query, store="memory", rows=items, into=db.table("out")) as running:
        running.run()
    assert db.run("SELECT c199, _count_ FROM out") == [(199, 1)]
    keyed = db.table("keyed", key=tuple(f"c{i}" for i in range(40)))
    with (
        pytest.raises(SinkError, match="40 of them in its key"),
        st.Pipeline(query, store="memory", rows=items, into=keyed) as running,
    ):
        running.run()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"text": "x" * 64}, "names have up to 63 bytes"),
        ({"text": "ctid"}, "names have up to 63 bytes, and are not tableoid"),
        ({"text": "_count_"}, "two columns _count_"),
        ({"text": "id"}, "two columns id"),
    ],
)
def test_names_that_no_table_has_are_refused_when_it_is_opened(
    db: Database, columns: dict[str, str], said: str
) -> None:
    items = numbered([Z({Note(id=1, text=None): 1})])
    sink = db.table("out", columns=columns)
    pipeline = st.Pipeline(notes, store="memory", notes=items, into=sink)
    with pytest.raises(SinkError, match=said):
        pipeline.dry_run()
    with pytest.raises(SinkError, match=said), pipeline:
        pipeline.run()


def test_names_of_the_table_are_those_of_columns_and_come_back(db: Database) -> None:
    names = {"id": "Sample Number", "text": 'a "b" {c} %s'}
    sink = db.table("out", key="id", columns=names)
    delivered(sink, {Note(id=1, text="x"): 1, Note(id=2, text=None): 1})
    assert set(db.run('SELECT "Sample Number" FROM out')) == {(1,), (2,)}
    db.table("out").install()
    seen: list[Any] = []
    source = db.table("out", columns=names)
    into = {"notes": lambda step, change: seen.extend(change.iter())}
    with st.Pipeline(notes, store="memory", notes=source, into=into) as running:
        running.run()
    assert sorted(row.id for row, _ in seen) == [1, 2]


@pytest.mark.parametrize("sort", ["date", "real", "jsonb", "text[]", "varchar(3)"])
def test_a_table_whose_columns_are_of_other_types_is_refused(db: Database, sort: str) -> None:
    db.run(f"CREATE TABLE out (id bigint, text {sort})")
    with pytest.raises(SinkError, match=r"its column text is .*, and the view is written as text"):
        delivered(db.table("out", key="id"), {Note(id=1, text=None): 1})
    with psycopg.connect(db.url) as connection:
        assert connection.execute(f"SELECT count(*) FROM {db.schema}.out").fetchone() == (0,)
