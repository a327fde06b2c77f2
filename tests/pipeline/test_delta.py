"""Delta tables as sources and sinks: what a view of them is, and what is refused."""

from __future__ import annotations

import datetime as dt
import enum
import shutil
import uuid
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.base.errors import InputError, SinkError, SourceError
from tests.cases import Order, User, Z
from tests.pipeline.shop import Note, Shop, Total, View, amounts, names, totals

FEED = {"delta.enableChangeDataFeed": "true"}
TYPES = {"int": pa.int64()}


def arrow(rows: Any, of: type[st.Data]) -> pa.Table:
    """Rows as a table."""
    listed = list(rows)
    fields = {n: TYPES.get(t, pa.string()) for n, t in of.__annotations__.items()}
    return pa.table(
        {n: pa.array([getattr(r, n) for r in listed], t) for n, t in fields.items()},
    )


def make(path: Path, of: type[st.Data], rows: Any = (), feed: bool = True) -> str:
    write_deltalake(str(path), arrow(rows, of), configuration=FEED if feed else None)
    return str(path)


def apply(path: str, of: type[st.Data], change: Z[Any]) -> None:
    """Change a table as another program does: a merge by id."""
    came = {r.id: r for r, n in change.iter() if n > 0}
    gone = {r.id: r for r, n in change.iter() if n < 0 and r.id not in came}
    if came:
        names = list(of.__annotations__)
        (
            DeltaTable(path)
            .merge(arrow(came.values(), of), "t.id = s.id", source_alias="s", target_alias="t")
            .when_matched_update({n: f"s.{n}" for n in names})
            .when_not_matched_insert({n: f"s.{n}" for n in names})
            .execute()
        )
    if gone:
        DeltaTable(path).delete(f"id IN ({', '.join(map(str, gone))})")


def rows_of(path: object) -> list[dict[str, Any]]:
    return pa.table(DeltaTable(str(path)).to_pyarrow_table()).to_pylist()


def totals_in(path: object) -> set[Total]:
    found = [Total(**row) for row in rows_of(path)]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path


@pytest.mark.parametrize(
    ("seed", "diff"),
    [
        (1, "feed"),
        (2, "snapshot"),
        *(
            pytest.param(seed, diff, marks=pytest.mark.long)
            for seed in range(3, 9)
            for diff in ("feed", "snapshot")
        ),
    ],
)
def test_views_of_tables_that_change_at_random_equal_the_plain_query(
    lake: Path, seed: int, diff: str
) -> None:
    shop = Shop(seed)
    for _ in range(3):
        shop.change()
    orders = make(lake / "orders", Order, shop.orders.values(), feed=diff == "feed")
    users = make(lake / "users", User, shop.users.values(), feed=diff == "feed")

    def pipeline(most: int) -> st.Pipeline:
        return st.Pipeline(
            {"totals": totals, "amounts": amounts},
            store=f"parquet:{lake / 'state'}",
            max_versions=most,
            orders=st.DeltaTable(orders, diff=diff),
            users=st.DeltaTable(users, diff=diff),
            into={
                "totals": st.DeltaTable(lake / "totals", key="name"),
                "amounts": st.DeltaTable(lake / "amounts"),
            },
        )

    for round_ in range(4):
        with pipeline(1 if round_ % 2 else 1_000) as running:
            running.run()
            assert running.lag() == {"orders": 0, "users": 0}
        assert totals_in(lake / "totals") == shop.totals
        found = Counter({r["_value_"]: r["_count_"] for r in rows_of(lake / "amounts")})
        assert found == shop.amounts
        for _ in range(3):
            of_orders, of_users = shop.change()
            apply(orders, Order, of_orders)
            apply(users, User, of_users)
        if round_ == 1:
            DeltaTable(orders).optimize.compact()
            DeltaTable(str(lake / "totals")).optimize.compact()


def test_compaction_and_vacuum_are_no_step(lake: Path) -> None:
    users = make(lake / "users", User, [User(id=1, name="a")])
    write_deltalake(users, arrow([User(id=2, name="b")], User), mode="append")
    with following(lake, users) as pipeline:
        assert pipeline.run() == 1
        DeltaTable(users).optimize.compact()
        DeltaTable(users).vacuum(0, dry_run=False, enforce_retention_duration=False)
        assert pipeline.lag()["users"] == 0
        assert pipeline.run() == 0
        write_deltalake(users, arrow([User(id=3, name="c")], User), mode="append")
        assert pipeline.run() == 1
    assert names_in(lake) == ["a", "b", "c"]


def following(lake: Path, users: str, **given: Any) -> st.Pipeline:
    """A pipeline of the names in a table."""
    more = {"store": f"parquet:{lake / 'state'}", **given}
    diff = more.pop("diff", "feed")
    into = more.pop("into", {"names": st.DeltaTable(lake / "names", key="_value_")})
    return st.Pipeline(names, users=st.DeltaTable(users, diff=diff), into=into, **more)


def names_in(lake: Path) -> list[str]:
    return sorted(r["_value_"] for r in rows_of(lake / "names"))


# -- a version of many rows


@pytest.mark.parametrize("diff", ["feed", "snapshot"])
def test_a_version_of_many_rows_is_taken_in_pieces_also_by_another_process(
    lake: Path, diff: str
) -> None:
    many = [User(id=i, name=f"n{i}") for i in range(1_000)]
    users = make(lake / "users", User, many)
    steps = 0
    while True:  # a new process for each step
        with following(lake, users, max_rows=150, diff=diff) as pipeline:
            if not pipeline.run(max_steps=1):
                break
            steps += 1
    assert steps == 7
    assert names_in(lake) == sorted(u.name for u in many)
    write_deltalake(users, arrow(many[:700], User), mode="overwrite")
    taken = []
    while True:
        with following(lake, users, max_rows=150, diff=diff) as pipeline:
            taken.append(pipeline.run(max_steps=2))
            if not taken[-1]:
                break
    assert sum(taken) > 2
    assert names_in(lake) == sorted(u.name for u in many[:700])


def test_versions_are_taken_together_up_to_the_rows_of_a_step(lake: Path) -> None:
    users = make(lake / "users", User)
    for i in range(12):
        rows = [User(id=10 * i + j, name=f"n{i}") for j in range(10)]
        write_deltalake(users, arrow(rows, User), mode="append")
    with following(lake, users, max_rows=35) as pipeline:
        assert pipeline.run(max_steps=1) == 1  # the snapshot
        for i in range(12, 24):
            rows = [User(id=10 * i + j, name=f"n{i}") for j in range(10)]
            write_deltalake(users, arrow(rows, User), mode="append")
        assert pipeline.run() > 4
    assert len(names_in(lake)) == 24


# -- the source is not as it should be


def test_a_table_without_a_change_feed_is_refused_at_once_and_can_be_compared(lake: Path) -> None:
    # finding 32
    users = make(lake / "users", User, [User(id=1, name="a")], feed=False)
    for look in (st.Pipeline.dry_run, st.Pipeline.run):
        with (
            following(lake, users) as pipeline,
            pytest.raises(SourceError, match=r'change feed is off.*diff="snapshot"'),
        ):
            look(pipeline)
    with following(lake, users, diff="snapshot") as pipeline:
        assert pipeline.run() == 1
        DeltaTable(users).delete("id = 1")
        write_deltalake(users, arrow([User(id=2, name="b")], User), mode="append")
        assert pipeline.run() == 1
    assert names_in(lake) == ["b"]


def test_versions_from_before_the_change_feed_was_switched_on_are_compared(lake: Path) -> None:
    # finding 32
    users = make(lake / "users", User, [User(id=1, name="a")])
    with following(lake, users) as pipeline:
        pipeline.run()
        DeltaTable(users).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
        write_deltalake(users, arrow([User(id=2, name="b")], User), mode="append")
        DeltaTable(users).delete("id = 1")
        with pytest.raises(SourceError, match="version 2 was written without the change feed"):
            pipeline.run()
        DeltaTable(users).alter.set_table_properties(FEED)
        write_deltalake(users, arrow([User(id=3, name="c")], User), mode="append")
        assert pipeline.lag() == {"users": 3}
        assert pipeline.run() == 1
    assert names_in(lake) == ["b", "c"]


def test_files_that_were_removed_before_they_were_read_are_an_error_that_names_the_version(
    lake: Path,
) -> None:
    users = make(lake / "users", User, [User(id=1, name="a")])
    with following(lake, users) as pipeline:
        pipeline.run()
        write_deltalake(users, arrow([User(id=2, name="b")], User), mode="append")
        DeltaTable(users).optimize.compact()
        DeltaTable(users).vacuum(0, dry_run=False, enforce_retention_duration=False)
        with pytest.raises(SourceError, match=r"version 1 cannot be read.*VACUUM") as told:
            pipeline.run()
        assert "error" not in str(told.value)
        assert pipeline.stepper.store.last_step() == 1


def test_an_overwritten_table_is_a_change_like_any(lake: Path) -> None:
    users = make(lake / "users", User, [User(id=1, name="a"), User(id=2, name="b")])
    with following(lake, users) as pipeline:
        pipeline.run()
        rows = arrow([User(id=2, name="b"), User(id=3, name="c")], User)
        write_deltalake(users, rows, mode="overwrite")
        pipeline.run()
    assert names_in(lake) == ["b", "c"]


def test_a_table_that_was_made_anew_is_refused(lake: Path) -> None:
    users = make(lake / "users", User, [User(id=1, name="a")])
    with following(lake, users) as pipeline:
        pipeline.run()
        shutil.rmtree(users)
        with pytest.raises(SourceError, match="there is no Delta table"):
            pipeline.run()
        for i in range(3):
            write_deltalake(
                users, arrow([User(id=i, name="x")], User), mode="append", configuration=FEED
            )
        with pytest.raises(SourceError, match="another table than the one that was read"):
            pipeline.run()


def test_a_column_more_is_not_read_and_one_that_is_gone_is_an_error(lake: Path) -> None:
    users = make(lake / "users", User, [User(id=1, name="a")])
    with following(lake, users) as pipeline:
        pipeline.run()
        DeltaTable(users).alter.add_columns([Field("age", PrimitiveType("integer"))])
        rows = pa.table({"id": [2], "name": ["b"], "age": pa.array([7], pa.int32())})
        write_deltalake(users, rows, mode="append")
        assert pipeline.run() == 1
        assert names_in(lake) == ["a", "b"]
        write_deltalake(users, pa.table({"id": [3]}), mode="overwrite", schema_mode="overwrite")
        with pytest.raises(SourceError, match="at version 3 there is no column name; the columns"):
            pipeline.run()
        write_deltalake(
            users,
            pa.table({"id": [3], "name": ["c"]}),
            mode="overwrite",
            schema_mode="overwrite",
        )
        assert pipeline.run() == 1
    assert names_in(lake) == ["c"]


# -- the sink is not as it was left


def test_a_table_with_rows_of_others_is_refused(lake: Path) -> None:
    users = make(lake / "users", User, [User(id=1, name="a")])
    write_deltalake(str(lake / "names"), pa.table({"_value_": ["mine"]}))
    with pytest.raises(SinkError, match=r"has rows that no pipeline wrote") as told:
        following(lake, users).run()
    assert "version" not in str(told.value)
    assert names_in(lake) == ["mine"]


def test_a_dry_run_refuses_a_table_that_a_run_refuses_and_makes_none(lake: Path) -> None:
    users = make(lake / "users", User, [User(id=1, name="a")])
    with following(lake, users) as pipeline:
        pipeline.dry_run()
        assert not (lake / "names").exists()
        pipeline.run()
        write_deltalake(users, arrow([User(id=2, name="b")], User), mode="append")
        pipeline.run()
        pipeline.dry_run()
    shutil.rmtree(lake / "names")
    with pytest.raises(SinkError, match=r"DeltaTable\(.*names'\) has no step of this pipeline"):
        following(lake, users).dry_run()
    write_deltalake(str(lake / "names"), pa.table({"_value_": ["mine"]}))
    with pytest.raises(SinkError, match="has rows that no pipeline wrote"):
        following(lake, users).dry_run()
    assert names_in(lake) == ["mine"]


@pytest.mark.parametrize("path", ["users", "./x/../users/", "link", "file://{}/users"])
def test_a_table_that_is_a_source_is_no_sink(lake: Path, path: str) -> None:
    users = make(lake / "users", User, [User(id=1, name="a")])
    (lake / "link").symlink_to(users)
    same = st.DeltaTable(path.format(lake) if "{}" in path else f"{lake}/{path}", key="_value_")
    with pytest.raises(InputError, match=r"is the source of input 'users' too.*another one"):
        following(lake, users, into={"names": same})


def test_two_views_do_not_go_into_one_table(lake: Path) -> None:
    users = make(lake / "users", User, [User(id=1, name="a")])
    into = {"names": [st.DeltaTable(lake / "names"), st.DeltaTable(f"{lake}/names/")]}
    with pytest.raises(InputError, match="is a sink of view 'names' too"):
        following(lake, users, into=into)


def test_rows_that_others_write_into_a_view_are_found_and_mended_by_restoring(lake: Path) -> None:
    users = make(lake / "users", User, [User(id=1, name="a")])
    with following(lake, users) as pipeline:
        pipeline.run()
        view = DeltaTable(str(lake / "names"))
        write_deltalake(view, pa.table({"_value_": ["alien"]}), mode="append")
        write_deltalake(users, arrow([User(id=2, name="b")], User), mode="append")
        for _ in range(2):
            with pytest.raises(SinkError, match="version 2; nobody else may write a table"):
                pipeline.run()
        DeltaTable(str(lake / "names")).restore(1)
        pipeline.run()
    assert names_in(lake) == ["a", "b"]


def test_a_second_pipeline_on_a_table_is_refused(lake: Path) -> None:
    users = make(lake / "users", User, [User(id=1, name="a")])
    one, two = (following(lake, users, store=f"parquet:{lake / s}") for s in ("one", "two"))
    with one, two:
        assert two.lag() == {"users": 1}  # it has opened the empty table
        one.run()
        with pytest.raises(SinkError, match="another pipeline or view writes it"):
            two.run()
    assert names_in(lake) == ["a"]


def test_of_two_commits_at_the_same_moment_one_is_fenced(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = make(lake / "users", User, [User(id=1, name="a")])
    one, two = (following(lake, users, store=f"parquet:{lake / s}") for s in ("one", "two"))
    with one, two:
        two.lag()
        sink: Any = two._outlets[0]._sink
        append = sink._append
        monkeypatch.setattr(sink, "_append", lambda *given: (one.run(), append(*given)))
        with pytest.raises(SinkError, match="somebody else wrote it at the same time"):
            two.run()
    assert names_in(lake) == ["a"]


def test_a_view_with_two_rows_of_a_key_is_refused_at_once_and_later(lake: Path) -> None:
    def notes(notes: st.ZSet[Note]) -> st.ZSet[Note]:
        return notes

    def pipeline(items: Any, name: str) -> st.Pipeline:
        into = {"notes": st.DeltaTable(lake / name, key="id")}
        return st.Pipeline(notes, store="memory", notes=items, into=into)

    one, two = Note(id=1, text=None), Note(id=1, text="x")
    with pytest.raises(SinkError, match=r"several rows with the key id = \{'id': 1\}"):
        pipeline([(1, Z({one: 1, two: 1}))], "a").run()
    with pytest.raises(SinkError, match="several rows with the key id"):
        pipeline([(1, Z({one: 1})), (2, Z({two: 1}))], "b").run()
    into = {"notes": st.DeltaTable(lake / "d", key="text")}
    items = [(1, Z({one: 1})), (2, Z({Note(id=2, text=None): 1}))]
    with pytest.raises(SinkError, match=r"key text = \{'text': None\}"):
        st.Pipeline(notes, store="memory", notes=items, into=into).run()
    pipeline([(1, Z({one: 1})), (2, Z({two: 1, one: -1}))], "c").run()
    assert rows_of(lake / "c") == [{"id": 1, "text": "x"}]


def test_new_keys_of_text_are_checked_against_rows_that_a_merge_has_written(lake: Path) -> None:
    def notes(notes: st.ZSet[Note]) -> st.ZSet[Note]:
        return notes

    a, b, c = (Note(id=i, text=x) for i, x in enumerate("abc"))
    again = Note(id=9, text="b")
    items = [(1, Z({a: 1, b: 1})), (2, Z({a: -1, replace(a, id=5): 1, c: 1}))]
    new = Note(id=6, text="d")
    into = {"notes": st.DeltaTable(lake / "d", key="text")}
    state = f"parquet:{lake / 'state'}"
    with st.Pipeline(notes, store=state, notes=[*items, (3, Z({new: 1}))], into=into) as running:
        running.run()
    found = {(r["id"], r["text"]) for r in rows_of(lake / "d")}
    assert found == {(5, "a"), (1, "b"), (2, "c"), (6, "d")}
    with (
        st.Pipeline(notes, store=state, notes=[(4, Z({again: 1}))], into=into) as running,
        pytest.raises(SinkError, match=r"several rows with the key text = \{'text': 'b'\}"),
    ):
        running.run()


def test_rows_without_a_key_are_counted_with_nulls(lake: Path) -> None:
    def texts(notes: st.ZSet[Note]) -> st.ZSet[Note]:
        return notes

    a, b = Note(id=1, text=None), Note(id=1, text="it's")
    items = [(1, Z({a: 2, b: 1})), (2, Z({a: -1, b: -1})), (3, Z({a: 3, b: 2}))]
    into = {"texts": st.DeltaTable(lake / "texts")}
    st.Pipeline(texts, store="memory", notes=items, into=into).run()
    assert sorted((r["text"] or "", r["_count_"]) for r in rows_of(lake / "texts")) == [
        ("", 4),
        ("it's", 2),
    ]


class Trip(st.Data):
    end: str
    Group: int | None
    order: float


@pytest.mark.parametrize("given", [{"key": ("Group", "end")}, {"changes": True}])
def test_names_of_columns_may_be_keywords_and_have_capitals(lake: Path, given: Any) -> None:
    def trips(trips: st.ZSet[Trip]) -> st.ZSet[Trip]:
        return trips

    def table(rows: list[tuple[str, int | None, float]]) -> pa.Table:
        ends, groups, orders = zip(*rows, strict=True)
        return pa.table({"end": ends, "GROUP": groups, "order": orders})

    write_deltalake(
        str(lake / "trips"), table([("a", 1, 0.5), ("b", None, 1.5)]), configuration=FEED
    )
    into = {"trips": st.DeltaTable(lake / "out", **given)}
    pipeline = st.Pipeline(trips, store="memory", trips=st.DeltaTable(lake / "trips"), into=into)
    pipeline.run()
    DeltaTable(str(lake / "trips")).update({"order": "7.5"}, predicate='"GROUP" IS NULL')
    DeltaTable(str(lake / "trips")).delete("\"end\" = 'a'")
    pipeline.run()
    rows = rows_of(lake / "out")
    if "key" in given:
        assert rows == [{"end": "b", "Group": None, "order": 7.5}]
    else:
        assert Counter(r["_change_type"] for r in rows) == {"insert": 3, "delete": 2}


@pytest.mark.parametrize("key", [(), ("id",)])
def test_a_change_feed_for_others_says_what_became_of_each_row(lake: Path, key: Any) -> None:
    def notes(notes: st.ZSet[Note]) -> st.ZSet[Note]:
        return notes

    a, b, c = Note(id=1, text="a"), Note(id=1, text="b"), Note(id=2, text="c")
    items = [(1, Z({a: 1, c: 1})), (2, Z({a: -1, b: 1})), (3, Z({c: -1}))]
    into = {"notes": st.DeltaTable(lake / "feed", key=key, changes=True)}
    st.Pipeline(notes, store="memory", notes=items, into=into).run()
    found = sorted((r["_step"], r["_change_type"], r["text"]) for r in rows_of(lake / "feed"))
    second = [(2, "update_postimage", "b")] if key else [(2, "delete", "a"), (2, "insert", "b")]
    assert found == [(1, "insert", "a"), (1, "insert", "c"), *second, (3, "delete", "c")]


def test_a_view_is_the_source_of_another_pipeline(lake: Path) -> None:
    def count(names: st.ZSet[str]) -> st.ZSet[str]:
        return st.filter(names, f=lambda n: n != "b")

    users = make(lake / "users", User, [User(id=1, name="a"), User(id=2, name="b")])
    into = {"count": st.DeltaTable(lake / "count", key="_value_")}
    with (
        following(lake, users) as first,
        st.Pipeline(
            count, store="memory", names=st.DeltaTable(lake / "names"), into=into
        ) as second,
    ):
        first.run()
        second.run()
        apply(users, User, Z({User(id=1, name="a"): -1, User(id=3, name="c"): 1}))
        first.run()
        second.run()
    assert [r["_value_"] for r in rows_of(lake / "count")] == ["c"]


def test_a_table_that_is_not_there_and_columns_that_do_not_fit_are_said(lake: Path) -> None:
    with pytest.raises(SourceError, match="there is no Delta table"):
        following(lake, str(lake / "nowhere")).run()
    users = make(lake / "users", User)
    write_deltalake(str(lake / "other"), pa.table({"x": pa.array([], pa.int64())}))
    into = {"names": st.DeltaTable(lake / "other", key="_value_")}
    with pytest.raises(SinkError, match="the table has the columns x, and the view is written as"):
        following(lake, users, into=into, store="memory").run()
    into = {"names": st.DeltaTable(lake / "new", key="no")}
    with pytest.raises(SinkError, match="key= names no"):
        following(lake, users, into=into, store="memory").run()


def test_columns_of_another_type_name_the_table_and_what_would_fit(lake: Path) -> None:
    class Visit(st.Data):
        id: str
        at: dt.datetime

    def visits(visits: st.ZSet[Visit]) -> st.ZSet[Visit]:
        return visits

    at = pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us"))
    for name, table, said in (
        ("ids", pa.table({"id": [1], "at": at.cast(pa.timestamp("us", "UTC"))}), r"'id'.*\(int\)$"),
        ("times", pa.table({"id": ["1"], "at": at}), r"'at'.*\(st\.LocalDateTime\)$"),
    ):
        path = str(lake / name)
        write_deltalake(path, table, configuration=FEED)
        where = rf"^input 'visits', DeltaTable\('{path}'\), column "
        with pytest.raises(SourceError, match=where + said):
            st.Pipeline(visits, store="memory", visits=st.DeltaTable(path)).run()


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Kinds(st.Data):
    id: uuid.UUID
    price: Annotated[Decimal, st.Precision(12, 2)]
    at: dt.datetime
    local: st.LocalDateTime
    day: dt.date | None
    raw: bytes
    ratio: float
    ok: bool
    colour: Colour
    more: list[int]
    pair: st.Pair[int, str | None]


def kinds_of(number: int) -> Kinds:
    local: Any = dt.datetime(2024, 5, 1, 12, number)
    return Kinds(
        id=uuid.UUID(int=number),
        price=Decimal("1.25") * number,
        at=dt.datetime(2024, 5, 1, 12, number, tzinfo=dt.UTC),
        local=local,
        day=None if number % 2 else dt.date(2024, 5, number),
        raw=bytes([0, number]),
        ratio=0.1 * number,
        ok=number % 2 == 0,
        colour=Colour.RED if number % 2 else Colour.BLUE,
        more=[number] * number,
        pair=st.Pair(left=number, right=None if number % 2 else "x"),
    )


def test_values_of_every_type_go_into_a_table_and_come_out_of_it(lake: Path) -> None:
    def kinds(kinds: st.ZSet[Kinds]) -> st.ZSet[Kinds]:
        return kinds

    a, b, c, d = map(kinds_of, (1, 2, 3, 4))
    into = {"kinds": st.DeltaTable(lake / "kinds", key="id")}
    items = [(1, Z({a: 1, b: 1, c: 1})), (2, Z({a: -1, d: 1})), (3, Z({b: -1}))]
    st.Pipeline(kinds, store="memory", kinds=items, into=into).run()
    view = View()
    st.Pipeline(
        kinds, store="memory", kinds=st.DeltaTable(lake / "kinds"), into={"kinds": view}
    ).run()
    assert view.rows == Z({c: 1, d: 1})


def test_durations_and_rows_that_cannot_be_found_again_are_refused(lake: Path) -> None:
    class Took(st.Data):
        id: int
        time: dt.timedelta

    class Ratio(st.Data):
        id: int
        ratio: float

    def took(rows: st.ZSet[Took]) -> st.ZSet[Took]:
        return rows

    def ratio(rows: st.ZSet[Ratio]) -> st.ZSet[Ratio]:
        return rows

    into = {"took": st.DeltaTable(lake / "took", key="id")}
    with pytest.raises(SinkError, match="column time: Delta has no durations"):
        st.Pipeline(took, store="memory", rows=[], into=into).run()
    with pytest.raises(SinkError, match="column ratio is double, by which rows cannot be found"):
        st.Pipeline(
            ratio, store="memory", rows=[], into={"ratio": st.DeltaTable(lake / "ratio")}
        ).run()


def test_steps_that_spark_computes_go_from_table_to_table(lake: Path, spark: SparkSession) -> None:
    shop = Shop(5)
    shop.change()
    orders = make(lake / "orders", Order, shop.orders.values())
    users = make(lake / "users", User, shop.users.values())
    pipeline = st.Pipeline(
        {"totals": totals, "amounts": amounts},
        store="memory",
        limits=st.Limits(local_rows=0),
        orders=st.DeltaTable(orders),
        users=st.DeltaTable(users),
        into={
            "totals": st.DeltaTable(lake / "totals", key="name"),
            "amounts": st.Files(lake / "amounts"),
        },
    )
    for _ in range(2):
        pipeline.run()
        assert totals_in(lake / "totals") == shop.totals
        of_orders, of_users = shop.change()
        apply(orders, Order, of_orders)
        apply(users, User, of_users)


def test_a_change_may_be_a_dataframe_with_more_columns(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS id, 'a' AS name, 2.0 AS more UNION ALL SELECT 2, 'b', 3.0")
    view = View()
    items = [(1, frame), (2, frame.selectExpr("name", "id", "-1L AS _count_").where("id = 1"))]
    st.Pipeline(names, store="memory", users=items, into={"names": view}).run()
    assert view.rows == Z({"b": 1})
